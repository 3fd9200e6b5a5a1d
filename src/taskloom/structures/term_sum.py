"""Predictors that are sums of terms, ``W = [W_1; W_2; ...]``, each with its features and its structure.

    J = loss(sum_q Phi_q W_q + b) + sum_q alpha tr(A_q^+ W_q'W_q) + F_q(A_q)

This is the sum of separable kernels ``sum_q k_q A_q``, and convex. In the dual there is one ``G``, and one
``F_q*(Z_q'Z_q / (4 alpha))`` with ``Z_q = Phi_q'G`` for each term.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, ClassVar, NoReturn

import numpy as np

from .base import Array, Ray, Structure
from .terms import FeatureMatrix, TaskMatrix, Term, Variable


def check_term(structure: Structure, size: int) -> None:
    """Raise ``ValueError`` for a structure that cannot be that of one term, with a matrix of this size."""
    if structure.splits_weights:
        raise ValueError(f"{type(structure).__name__} is a sum already and cannot be one term of another")
    structure.check_tasks(size)
    if not structure.convex:
        raise ValueError(f"{type(structure).__name__} is not convex and cannot be one term of a sum")


@dataclass(eq=False, repr=False)
class TermSum(Structure):
    """The structure of stacked terms: ``A`` is the concatenation of their flattened variables.

    Parameters
    ----------
    structures : list of Structure or Variable
        One for each term. Structures that allow it are put on the features, where that decouples all tasks.
    widths : list of int
        The number of features of each term; the feature matrices are concatenated.
    n_tasks : int
        The number of tasks.
    """

    structures: list[Any]
    widths: list[int]
    n_tasks: int
    is_sum: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [each for each in self.structures if isinstance(each, Structure)]
        decouple = all(each.on_features or each.either_side for each in given) and max(self.widths) <= 3 * self.n_tasks
        self.variables: list[Variable] = [
            (FeatureMatrix if decouple or each.on_features else TaskMatrix)(each) if isinstance(each, Structure) else each
            for each in self.structures
        ]
        terms = [variable.structure for variable in self.variables]
        vars(self).update(known=all(F.known for F in terms), proof=next((F.proof for F in terms if F.proof), ""))

    @classmethod
    def of(cls, structures: list[Structure], widths: list[int], n_tasks: int) -> TermSum:
        """The sum of terms with these structures; raises ``ValueError`` for structures that cannot be a term."""
        if len(structures) != len(widths):
            raise ValueError(f"{len(widths)} kernels need one structure, or one for each, got {len(structures)} structures")
        for structure, width in zip(structures, widths, strict=True):
            check_term(structure, width if structure.on_features else n_tasks)
            if width < 1:
                raise ValueError("every term needs features")
        return cls(list(structures), list(widths), n_tasks)

    @property
    def user_written(self) -> bool:
        return any(variable.structure.user_written for variable in self.variables)

    def __repr__(self) -> str:
        return f"TermSum({[type(variable).__name__ for variable in self.variables]})"

    @property
    def needs_task_matrix(self) -> bool:
        return any(variable.couples for variable in self.variables)

    def features_of(self, R: Array) -> list[Array]:
        """The rows of stacked weights, or of ``Z``, that belong to each term."""
        return np.split(R, np.cumsum(self.widths)[:-1])

    @property
    def _variable_shapes(self) -> list[tuple[int, ...]]:
        return [m.shape(r, self.n_tasks) for m, r in zip(self.variables, self.widths, strict=True)]

    def split(self, A: Array) -> list[Array]:
        """The variable of each term, in its shape."""
        ends = np.cumsum(self.sizes)
        return [part.reshape(shape) for part, shape in zip(np.split(A, ends[:-1]), self._variable_shapes, strict=True)]

    def _by_variable(self, A: Array) -> list[tuple[Structure, Array]]:
        """The structure of each term, and its variable."""
        return [(m.structure, a) for m, a in zip(self.variables, self.split(A), strict=True)]

    def by_root(self, R: Array) -> list[tuple[Structure, Array]]:
        """The structure of each term, and its weights, or its ``Z``, in the orientation of the structure."""
        return [(m.structure, m.oriented(r)) for m, r in zip(self.variables, self.features_of(R), strict=True)]

    def value(self, A: Array) -> float:
        return sum(F.value(a) for F, a in self._by_variable(A))

    def squared_norm(self, R: Array, A: Array) -> float:
        return sum(F.squared_norm(r, a) for (F, r), a in zip(self.by_root(R), self.split(A), strict=True))

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        found = [F.best_of_root(r, floor) for F, r in self.by_root(R)]
        return np.concatenate([a.ravel() for a, _ in found]), float(sum(penalty for _, penalty in found))

    def moments(self, R: Array) -> Array:
        """The concatenated second moments of the terms."""
        return np.concatenate([F.moments(r).ravel() for F, r in self.by_root(R)])

    @property
    def sizes(self) -> list[int]:
        """The number of entries of the variable of each term."""
        return [int(np.prod(shape)) for shape in self._variable_shapes]

    def prox(self, A: Array, step: Any) -> Array:
        """The step length may be one for each term."""
        steps = np.broadcast_to(step, len(self.variables))
        return np.concatenate([F.prox(a, float(t)).ravel() for (F, a), t in zip(self._by_variable(A), steps, strict=True)])

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        nearby = [None] * len(self.variables) if near is None else self.split(near)
        rays = [F.ray_of_root(r, a) for (F, r), a in zip(self.by_root(R), nearby, strict=True)]
        return Ray(min(ray.max_scale for ray in rays), lambda c: float(sum(ray.conjugate(c) for ray in rays)))

    def root(self, A: Array) -> Any:
        return [F.root(a) for F, a in self._by_variable(A)]

    def inverse_trace(self, A: Array) -> float:
        return sum(F.inverse_trace(a) for F, a in self._by_variable(A))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a sum of terms depends on the weights and on Z, not on S: use best_of_root and ray_of_root")

    best_structure = conjugate = _refuse

    def terms(self, width: int, n_tasks: int) -> tuple[Term, ...]:
        columns = [slice(*ends) for ends in pairwise(accumulate(self.widths, initial=0))]
        return tuple(map(Term, columns, self.variables))


class SplitStructure(Structure):
    """A structure that splits the weights into several terms on the same features; see ``terms`` for its operations."""

    splits_weights: ClassVar[bool] = True

    def variables(self, width: int, n_tasks: int) -> list[Variable]:
        """The structure variable of each term.

        Parameters
        ----------
        width : int
            The number of features.
        n_tasks : int
            The number of tasks.

        Returns
        -------
        list
            The variable of each term of the weights.
        """
        raise TypeError(f"{type(self).__name__} does not say which terms it has")

    def terms(self, width: int, n_tasks: int) -> tuple[Term, ...]:
        return tuple(Term(slice(0, width), variable) for variable in self.variables(width, n_tasks))

    def _refuse(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} splits the weights into terms: use the variables of its terms")

    def value(self, A: Array) -> float:
        self._refuse()

    def best_structure(self, S: Array) -> Array:
        self._refuse()

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        self._refuse()

    def prox(self, A: Array, step: float) -> Array:
        self._refuse()
