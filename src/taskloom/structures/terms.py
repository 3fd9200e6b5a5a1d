"""The terms of a predictor, and the structure variable of each term.

A predictor is a sum of terms ``phi_q(x)' W_q``. Each term has a structure variable ``A``, and the penalty
``tr(A^+ R'R) + F(A)`` on its scaled weights ``R = sqrt(alpha) W_q``. The variable is a matrix on the tasks, a matrix on the
features, one number per task, or one number per weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar, NamedTuple

import numpy as np

from .._linalg import column_squares, sum_of_ratios
from .base import Array, Ray, Structure, indicator_ray


class RowNorm(NamedTuple):
    """A norm of one row of the weights, ``weight`` times the Euclidean one, or the l1 norm (``by_entry``).

    The penalty of the best structure is ``2 sqrt(alpha)`` times the sum over rows.
    """

    weight: float
    by_entry: bool = False

    def value(self, W: Array) -> float:
        """The sum over rows."""
        return self.weight * float(np.abs(W).sum() if self.by_entry else np.sqrt(np.einsum("jt,jt->j", W, W)).sum())

    def dual(self, Z: Array) -> Array:
        """The dual norm of each row."""
        return (np.abs(Z).max(axis=1) if self.by_entry else np.sqrt(np.einsum("jt,jt->j", Z, Z))) / self.weight

    def shrink(self, row: Array, threshold: float) -> Array:
        """``argmin_w ||w - row||^2 / 2 + threshold norm(w)``."""
        threshold *= self.weight
        if self.by_entry:
            return row - np.minimum(np.maximum(row, -threshold), threshold)
        size = sqrt(row @ row)
        return row * (1 - threshold / size if size > threshold else 0.0)


@dataclass(frozen=True, eq=False)
class Variable:
    """A structure, and the orientation in which it sees the weights of a term, or its ``Z`` (``r x T``)."""

    structure: Structure
    couples: ClassVar[bool] = False  # whether it couples the tasks

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        """The shape of the structure variable."""
        return (T,)

    def oriented(self, R: Array) -> Array:
        """The root that the structure takes."""
        return R

    @property
    def row_norm(self) -> RowNorm | None:
        """The norm of a row of the weights, where the penalty is a sum over rows."""
        return None


class TaskMatrix(Variable):
    """A structure on the tasks: ``A`` is ``T x T``."""

    couples: ClassVar[bool] = True

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return T, T


class FeatureMatrix(Variable):
    """A structure on the features: ``D`` is ``r x r``, and the tasks are not coupled."""

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return r, r

    def oriented(self, R: Array) -> Array:
        return R.T

    @property
    def row_norm(self) -> RowNorm | None:
        return RowNorm(1.0) if self.structure.sums_row_norms else None


class TaskNorms(Variable):
    """One number per task: the weights of a task are zero together."""


class EntryNorms(Variable):
    """One number per weight: the l1 norm of the weights."""

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return r, T

    def oriented(self, R: Array) -> Array:
        return R.reshape(1, -1)

    @property
    def row_norm(self) -> RowNorm | None:
        return RowNorm(self.structure.weight, by_entry=True) if isinstance(self.structure, GroupNorms) else None


@dataclass(eq=False, repr=False)
class GroupNorms(Structure):
    """One number per column of ``R``, ``F(A) = weight^2 sum A``: the group lasso ``2 weight sum_g ||R_g||``.

    ``A`` and the second moments ``S`` are vectors.
    """

    weight: float

    @property
    def _cost(self) -> float:
        return self.weight**2

    def value(self, A: Array) -> float:
        return self._cost * float(A.sum()) if np.all(A >= 0) else np.inf

    def best_structure(self, S: Array) -> Array:
        return np.sqrt(S / self._cost)

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return indicator_ray(float(S.max(initial=0.0)) / self._cost).conjugate(1.0)

    def prox(self, A: Array, step: float) -> Array:
        return np.maximum(A - step * self._cost, 0.0)

    def squared_norm(self, R: Array, A: Array) -> float:
        squares, a = column_squares(R), A.ravel()
        return np.inf if np.any(squares[a <= 0] > 0) else sum_of_ratios(squares, a)

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        squares = column_squares(R)
        A = self.best_structure(squares + floor)
        return A, sum_of_ratios(squares, A) + self.value(A)

    def moments(self, R: Array) -> Array:
        return column_squares(R)

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        return indicator_ray(float(column_squares(R).max(initial=0.0)) / self._cost)

    def root(self, A: Array) -> Array:
        return np.sqrt(A)

    def inverse_trace(self, A: Array) -> float:
        return float((1 / np.maximum(A, 1e-300)).sum())


class Term(NamedTuple):
    """``phi(x)' W``: the columns of the feature matrix that it uses, and the structure variable of ``W``.

    Terms share columns under ``Robust`` and ``Dirty``; in a sum of kernels each term has its own.
    """

    columns: slice
    variable: Variable
