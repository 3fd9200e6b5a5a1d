"""The terms of a predictor, and the structure variable of each term.

A predictor is a sum of terms ``phi_q(x)' W_q``. Each term has a structure variable ``A``, and the penalty
``tr(A^+ R'R) + F(A)`` on its scaled weights ``R = sqrt(alpha) W_q``. The variable is a matrix on the tasks, a matrix on the
features, one number per task, or one number per weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from .._linalg import column_squares, sum_of_ratios
from .base import Array, Ray, Structure, indicator_ray


class Variable(ABC):
    """The interface that :class:`TermSum` needs. ``R`` are the weights of the term, or its ``Z`` (``r x T``)."""

    couples: bool  # whether it couples the tasks

    @abstractmethod
    def shape(self, r: int, T: int) -> tuple[int, ...]:
        """The shape of the variable."""

    @abstractmethod
    def value(self, A: Array) -> float: ...

    @abstractmethod
    def squared_norm(self, R: Array, A: Array) -> float:
        """``tr(A^+ R'R)``; ``inf`` where ``R`` is not in the range of ``A``."""

    @abstractmethod
    def best(self, R: Array, floor: float) -> tuple[Array, float]:
        """The best variable ``A`` for ``R``, and ``tr(A^+ R'R) + F(A)``."""

    @abstractmethod
    def moments(self, R: Array) -> Array:
        """The second moments of ``R``, in the shape of the variable."""

    @abstractmethod
    def prox(self, A: Array, step: float) -> Array: ...

    @abstractmethod
    def ray(self, R: Array, near: Array | None) -> Ray: ...

    @abstractmethod
    def root(self, A: Array) -> Array: ...

    @abstractmethod
    def inverse_trace(self, A: Array) -> float:
        """``tr A^-1``, the barrier."""


class TaskMatrix(Variable):
    """A structure on the tasks: ``A`` is ``T x T``."""

    couples = True

    def __init__(self, structure: Structure):
        self.structure = structure

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return T, T

    def value(self, A: Array) -> float:
        return self.structure.value(A)

    def _oriented(self, R: Array) -> Array:
        return R

    def squared_norm(self, R: Array, A: Array) -> float:
        return self.structure.squared_norm(self._oriented(R), A)

    def best(self, R: Array, floor: float) -> tuple[Array, float]:
        return self.structure.best_of_root(self._oriented(R), floor)

    def moments(self, R: Array) -> Array:
        return self._oriented(R).T @ self._oriented(R)

    def prox(self, A: Array, step: float) -> Array:
        return self.structure.prox(A, step)

    def ray(self, R: Array, near: Array | None) -> Ray:
        return self.structure.ray_of_root(self._oriented(R), near)

    def root(self, A: Array) -> Array:
        return self.structure.root(A)

    def inverse_trace(self, A: Array) -> float:
        return self.structure.inverse_trace(A)


class FeatureMatrix(TaskMatrix):
    """A structure on the features: ``D`` is ``r x r``, and the tasks are not coupled."""

    couples = False

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return r, r

    def _oriented(self, R: Array) -> Array:
        return R.T


class _GroupNorms(Variable):
    """One number per group of weights, ``F(A) = weight^2 sum A``: the group lasso ``2 weight sum_g ||R_g||``."""

    couples = False

    def __init__(self, weight: float):
        self.cost = weight**2

    def value(self, A: Array) -> float:
        return self.cost * float(A.sum()) if np.all(A >= 0) else np.inf

    def squared_norm(self, R: Array, A: Array) -> float:
        squared_norm = self.moments(R)
        return np.inf if np.any(squared_norm[A <= 0] > 0) else sum_of_ratios(squared_norm, A)

    def best(self, R: Array, floor: float) -> tuple[Array, float]:
        squared_norm = self.moments(R)
        A = np.sqrt((squared_norm + floor) / self.cost)
        return A, sum_of_ratios(squared_norm, A) + self.value(A)

    def prox(self, A: Array, step: float) -> Array:
        return np.maximum(A - step * self.cost, 0.0)

    def ray(self, R: Array, near: Array | None) -> Ray:
        return indicator_ray(float(self.moments(R).max(initial=0.0)) / self.cost)

    def root(self, A: Array) -> Array:
        return np.sqrt(A)

    def inverse_trace(self, A: Array) -> float:
        return float((1 / np.maximum(A, 1e-300)).sum())


class TaskNorms(_GroupNorms):
    """One number per task: the weights of a task are zero together."""

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return (T,)

    def moments(self, R: Array) -> Array:
        return column_squares(R)


class EntryNorms(_GroupNorms):
    """One number per weight: the l1 norm of the weights."""

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return r, T

    def moments(self, R: Array) -> Array:
        return R**2


def variable_of(structure: Structure, decouple: bool = False) -> Variable:
    """A matrix on the features if the structure requires it, or allows it and ``decouple`` is set; else on the tasks."""
    if structure.on_features or (structure.either_side and decouple):
        return FeatureMatrix(structure)
    return TaskMatrix(structure)


class Term(NamedTuple):
    """``phi(x)' W``: the columns of the feature matrix that it uses, and the structure variable of ``W``.

    Terms share columns under ``Robust`` and ``Dirty``; in a sum of kernels each term has its own.
    """

    columns: slice
    variable: Variable
