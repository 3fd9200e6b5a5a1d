"""Sums of terms with task sides of their own: ``f(row) = b + sum_q phi_q(x)' W_q u_q(row)``, ``W_q`` of shape ``r_q x p_q``.

    J = loss + sum_q [ alpha/omega_q tr(A_q^+ W_q'W_q) + F_q(A_q) + ridge/omega_q ||W_q||^2 ]

The weights ``omega_q`` are inside the features, which are multiplied by ``sqrt(omega_q)``. All weights together are one column:
those of a term follow each other row by row. A term has a structure on its features, on its task side, or none: its weights are
penalised by their squares (``Independent``), or not at all (fixed effects).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .base import Array, Ray, Structure, linear_ray
from .term_sum import TermSum
from .terms import FeatureMatrix, Term, Variable


class _NoMatrix(Structure):
    """A penalty of the weights alone: there is no matrix to learn, and its variable is empty."""

    known: ClassVar[bool] = True

    def value(self, A: Array) -> float:
        return 0.0

    def best_structure(self, S: Array) -> Array:
        return np.zeros(0)

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return float(np.sum(S))

    def prox(self, A: Array, step: float) -> Array:
        return A

    def squared_norm(self, R: Array, A: Array) -> float:
        return float(np.vdot(R, R))

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        return np.zeros(0), self.squared_norm(R, R)

    def moments(self, R: Array) -> Array:
        return np.zeros(0)

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        return linear_ray(float(np.vdot(R, R)))

    def root(self, A: Array) -> Array:
        return A

    def inverse_trace(self, A: Array) -> float:
        return 0.0


class SquaredNorm(_NoMatrix):
    """``||W||^2``: independent levels, or a common function."""


class NoPenalty(_NoMatrix):
    """No penalty: fixed effects. A dual candidate has ``Z = 0`` for them, which the targets see to."""

    def squared_norm(self, R: Array, A: Array) -> float:
        return 0.0

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        return linear_ray(0.0)


class NoVariable(Variable):
    """The variable of a term without a matrix."""

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return (0,)


PENALISED, UNPENALISED = NoVariable(SquaredNorm()), NoVariable(NoPenalty())


@dataclass(eq=False, repr=False)
class TermStack(TermSum):
    """The structure of terms whose weights ``W_q`` (``r_q x p_q``) are one column.

    Parameters
    ----------
    structures : list of Variable
        The structure variable of each term.
    widths : list of int
        The numbers of features ``r_q``.
    n_tasks : int
        1: the weights are a column.
    sides : tuple of int
        The sizes ``p_q`` of the task sides.
    """

    sides: tuple[int, ...] = ()
    is_stack: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.check()
        self.variables = list(self.structures)
        terms = [variable.structure for variable in self.variables]
        vars(self).update(known=all(F.known for F in terms), proof=next((F.proof for F in terms if F.proof), ""))

    @property
    def needs_task_matrix(self) -> bool:
        return False

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """``(r_q, p_q)`` of each term."""
        return list(zip(self.widths, self.sides, strict=True))

    def features_of(self, R: Array) -> list[Array]:
        ends = np.cumsum([r * p for r, p in self.shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(np.ravel(R), ends), self.shapes, strict=True)]

    @property
    def _variable_shapes(self) -> list[tuple[int, ...]]:
        return [variable.shape(*shape) for variable, shape in zip(self.variables, self.shapes, strict=True)]

    def terms(self, width: int, n_tasks: int) -> tuple[Term, ...]:
        ends = np.cumsum([0, *(r * p for r, p in self.shapes)])
        return tuple(Term(slice(int(a), int(b)), v) for a, b, v in zip(ends[:-1], ends[1:], self.variables, strict=True))

    def __repr__(self) -> str:
        return f"TermStack({[type(variable.structure).__name__ for variable in self.variables]}, {self.shapes})"


def stacked(parts: list[Array]) -> Array:
    """The weights, or ``Z``, of all terms as one column."""
    return np.concatenate([np.ravel(part) for part in parts])[:, None]


def is_on_features(variable: Any) -> bool:
    """Whether the structure of a term is on its features."""
    return isinstance(variable, FeatureMatrix)
