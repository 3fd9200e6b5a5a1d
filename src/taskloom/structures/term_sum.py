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
from .terms import TaskMatrix, Term, Variable, variable_of


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
        self.variables = [variable_of(each, decouple) if isinstance(each, Structure) else each for each in self.structures]

    @classmethod
    def of(cls, structures: list[Structure], widths: list[int], n_tasks: int) -> TermSum:
        """The sum of terms with these structures; raises ``ValueError`` for structures that cannot be a term."""
        if len(structures) != len(widths):
            raise ValueError(f"{len(widths)} kernels need one structure, or one for each, got {len(structures)} structures")
        for structure, width in zip(structures, widths, strict=True):
            if isinstance(structure, SplitStructure):
                raise ValueError(f"{type(structure).__name__} is a sum already and cannot be one term of another")
            structure.check_tasks(n_tasks)
            if not structure.convex:
                raise ValueError(f"{type(structure).__name__} is not convex and cannot be one term of a sum")
            if width < 1:
                raise ValueError("every term needs features")
        return cls(list(structures), list(widths), n_tasks)

    def __repr__(self) -> str:
        return f"TermSum({[type(variable).__name__ for variable in self.variables]})"

    @property
    def known(self) -> bool:  # type: ignore[override]
        return all(isinstance(m, TaskMatrix) and m.structure.known for m in self.variables)

    @property
    def proof(self) -> str:  # type: ignore[override]
        return next((m.structure.proof for m in self.variables if isinstance(m, TaskMatrix) and m.structure.proof), "")

    @property
    def needs_task_matrix(self) -> bool:
        return any(variable.couples for variable in self.variables)

    def features_of(self, R: Array) -> list[Array]:
        """The rows of stacked weights, or of ``Z``, that belong to each term."""
        return np.split(R, np.cumsum(self.widths)[:-1])

    def split(self, A: Array) -> list[Array]:
        """The variable of each term, in its shape."""
        shapes = [m.shape(r, self.n_tasks) for m, r in zip(self.variables, self.widths, strict=True)]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(A, ends[:-1]), shapes, strict=True)]

    def value(self, A: Array) -> float:
        return sum(m.value(a) for m, a in zip(self.variables, self.split(A), strict=True))

    def squared_norm(self, R: Array, A: Array) -> float:
        return sum(m.squared_norm(r, a) for m, r, a in zip(self.variables, self.features_of(R), self.split(A), strict=True))

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        found = [m.best(r, floor) for m, r in zip(self.variables, self.features_of(R), strict=True)]
        return np.concatenate([a.ravel() for a, _ in found]), float(sum(penalty for _, penalty in found))

    def moments(self, R: Array) -> Array:
        """The concatenated second moments of the terms."""
        return np.concatenate([m.moments(r).ravel() for m, r in zip(self.variables, self.features_of(R), strict=True)])

    def prox(self, A: Array, step: float) -> Array:
        return np.concatenate([m.prox(a, step).ravel() for m, a in zip(self.variables, self.split(A), strict=True)])

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        nearby: list[Array | None] = [None] * len(self.variables) if near is None else list(self.split(near))
        rays = [m.ray(r, a) for m, r, a in zip(self.variables, self.features_of(R), nearby, strict=True)]
        return Ray(min(ray.max_scale for ray in rays), lambda c: float(sum(ray.conjugate(c) for ray in rays)))

    def root(self, A: Array) -> Any:
        return [m.root(a) for m, a in zip(self.variables, self.split(A), strict=True)]

    def inverse_trace(self, A: Array) -> float:
        return sum(m.inverse_trace(a) for m, a in zip(self.variables, self.split(A), strict=True))

    def best_structure(self, S: Array) -> Array:
        raise TypeError("a sum of terms depends on the weights, not on S: use best_of_root")

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        raise TypeError("a sum of terms depends on Z, not on S: use ray_of_root")

    def terms(self, width: int, n_tasks: int) -> tuple[Term, ...]:
        columns = [slice(*ends) for ends in pairwise(accumulate(self.widths, initial=0))]
        return tuple(map(Term, columns, self.variables))


class SplitStructure(Structure):
    """A structure that splits the weights into several terms on the same features; see ``terms`` for its operations."""

    @property
    def needs_task_matrix(self) -> bool:
        return False  # depends on the terms

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
