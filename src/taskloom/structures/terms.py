"""The terms of a predictor, and the structure variable of each term.

A predictor is a sum of terms ``phi_q(x)' W_q``. Each term has a structure variable ``A``, and the penalty
``tr(A^+ R'R) + F(A)`` on its scaled weights ``R = sqrt(alpha) W_q``. The variable is a matrix on the tasks, a matrix on the
features, one number per task, or one number per weight.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from .base import Array, Ray, Structure

TINY = np.finfo(float).tiny


class Variable(ABC):
    """What :class:`TermSum` asks of a term. ``R`` stands for its weights, or for its ``Z`` (``r x T``)."""

    couples: bool  # whether tasks are coupled through it

    @abstractmethod
    def shape(self, r: int, T: int) -> tuple[int, ...]:
        """The shape of the variable."""

    @abstractmethod
    def value(self, A: Array) -> float: ...

    @abstractmethod
    def squared_norm(self, R: Array, A: Array) -> float:
        """``tr(A^+ R'R)``; ``inf`` where ``R`` leaves the range of ``A``."""

    @abstractmethod
    def best(self, R: Array, floor: float) -> tuple[Array, float]:
        """The best variable for ``R``, and what it then charges, penalty included."""

    @abstractmethod
    def moments(self, R: Array) -> Array:
        """What the variable sees of ``R``: its squares, in the shape of the variable."""

    @abstractmethod
    def prox(self, A: Array, step: float) -> Array: ...

    @abstractmethod
    def ray(self, R: Array, near: Array | None) -> Ray: ...

    @abstractmethod
    def root(self, A: Array) -> Array: ...

    @abstractmethod
    def inverse_trace(self, A: Array) -> float:
        """``tr A^-1``: what a barrier charges."""


class TaskMatrix(Variable):
    """A structure on the tasks: ``A`` is ``T x T``."""

    couples = True

    def __init__(self, structure: Structure):
        self.structure = structure

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return T, T

    def value(self, A: Array) -> float:
        return self.structure.value(A)

    def _seen(self, R: Array) -> Array:
        return R

    def squared_norm(self, R: Array, A: Array) -> float:
        return self.structure.squared_norm(self._seen(R), A)

    def best(self, R: Array, floor: float) -> tuple[Array, float]:
        return self.structure.best_of_root(self._seen(R), floor)

    def moments(self, R: Array) -> Array:
        return self._seen(R).T @ self._seen(R)

    def prox(self, A: Array, step: float) -> Array:
        return self.structure.prox(A, step)

    def ray(self, R: Array, near: Array | None) -> Ray:
        return self.structure.ray_of_root(self._seen(R), near)

    def root(self, A: Array) -> Array:
        return self.structure.root(A)

    def inverse_trace(self, A: Array) -> float:
        return self.structure.inverse_trace(A)


class FeatureMatrix(TaskMatrix):
    """A structure on the features: ``D`` is ``r x r``, and every task is on its own."""

    couples = False

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return r, r

    def _seen(self, R: Array) -> Array:
        return R.T


class _GroupNorms(Variable):
    """A variable for each group of weights, with ``F = weight^2 sum A``: the sum of the groups' norms, times ``2 weight``."""

    couples = False

    def __init__(self, weight: float):
        self.cost = weight**2

    def value(self, A: Array) -> float:
        return self.cost * float(A.sum()) if np.all(A >= 0) else np.inf

    def squared_norm(self, R: Array, A: Array) -> float:
        squared_norm = self.moments(R)
        if np.any(squared_norm[A <= 0] > 0):
            return np.inf
        return float((squared_norm[A > 0] / A[A > 0]).sum())

    def best(self, R: Array, floor: float) -> tuple[Array, float]:
        squared_norm = self.moments(R)
        A = np.sqrt((squared_norm + floor) / self.cost)
        charged = np.divide(squared_norm, A, out=np.zeros_like(A), where=A > 0)
        return A, float(charged.sum()) + self.value(A)

    def prox(self, A: Array, step: float) -> Array:
        return np.maximum(A - step * self.cost, 0.0)

    def ray(self, R: Array, near: Array | None) -> Ray:
        largest = float(self.moments(R).max(initial=0.0)) / self.cost
        return Ray(1 / max(largest, TINY), lambda c: 0.0 if c * largest <= 1 else np.inf)

    def root(self, A: Array) -> Array:
        return np.sqrt(A)

    def inverse_trace(self, A: Array) -> float:
        return float((1 / np.maximum(A, 1e-300)).sum())


class TaskNorms(_GroupNorms):
    """A number for each task: its weights are there as a whole, or not at all."""

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return (T,)

    def moments(self, R: Array) -> Array:
        return np.einsum("jt,jt->t", R, R)


class EntryNorms(_GroupNorms):
    """A number for each weight: the absolute values add up."""

    def shape(self, r: int, T: int) -> tuple[int, ...]:
        return r, T

    def moments(self, R: Array) -> Array:
        return R**2


def variable_of(structure: Structure, decouple: bool = False) -> Variable:
    """The variable of a structure on its side: on the features where it has to be, or where that decouples the tasks."""
    if structure.on_features or (structure.either_side and decouple):
        return FeatureMatrix(structure)
    return TaskMatrix(structure)


class Term(NamedTuple):
    """``phi(x)' W``: the columns of the feature matrix that it uses, and the structure variable of ``W``.

    Terms share columns under ``Robust`` and ``Dirty``; in a sum of kernels each term has its own.
    """

    columns: slice
    variable: Variable
