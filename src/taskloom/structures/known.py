"""Structures whose matrix ``A`` is known: problem (P) of the paper, and its Section 2.3."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .._linalg import column_squares, inverse_quadratic
from . import factored_matrix as factors
from .base import Array, Ray, Structure, linear_ray


@dataclass(eq=False)
class _KnownMatrix:
    """The matrix ``A`` that follows from some parameters, and its eigendecomposition."""

    parameters: list[Any]
    A: Array

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        """Eigenvalues that are rounding count as zero: off the range of ``A`` correlations may be large."""
        a, V = np.linalg.eigh(self.A)
        return np.where(a > 1e-13 * a[-1], a, 0.0), V


class KnownStructure(Structure):
    """``A`` is known: ``F`` is the indicator function of one matrix, and its conjugate is ``<A, S>``."""

    known: ClassVar[bool] = True
    _held: ClassVar[_KnownMatrix | None] = None  # cache for the current problem

    @abstractmethod
    def matrix(self, n_tasks: int) -> Array:
        """``A`` for this many tasks: positive semidefinite, with all nonzero eigenvalues above 1e-12 of the largest.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
            ``A``.
        """

    def check_tasks(self, n_tasks: int) -> None:
        """Clear the cache: an array among the parameters may have changed since the last problem."""
        self.__dict__.pop("_held", None)

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name != "_held"}

    def _known(self, n_tasks: int) -> _KnownMatrix:
        """``A`` and its eigendecomposition, computed once per problem."""
        parameters, held = list(self.get_params().values()), self._held
        if held is None or len(held.A) != n_tasks or any(a is not b for a, b in zip(parameters, held.parameters, strict=True)):
            held = self.__dict__["_held"] = _KnownMatrix(parameters, self.matrix(n_tasks))
        return held

    def value(self, A: Array) -> float:
        known = self._known(len(A)).A
        return 0.0 if np.allclose(A, known, rtol=1e-9, atol=1e-9 * max(1e-300, np.abs(known).max())) else np.inf

    def best_structure(self, S: Array) -> Array:
        return self._known(len(S)).A.copy()

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        known = self._known(R.shape[1])  # outside the range of A only rounding is allowed
        return known.A.copy(), inverse_quadratic(R, *known.eigen, rank_tol=1e-14, outside_tol=1e-24)

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return float(np.vdot(self._known(len(S)).A, S))

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        """``<A, R'R>`` as a sum of squares, without cancellation of the entries of ``R'R`` off the range of ``A``."""
        a, V = self._known(R.shape[1]).eigen
        return linear_ray(float(column_squares(R @ V) @ a))

    def prox(self, A: Array, step: float) -> Array:
        return self._known(len(A)).A.copy()


@dataclass(eq=False, repr=False)
class Independent(KnownStructure):
    """``A = I``: independent tasks (single-task learning, STL)."""

    either_side: ClassVar[bool] = True

    def matrix(self, n_tasks: int) -> Array:
        return np.eye(n_tasks)

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        return np.eye(R.shape[1]), float(np.vdot(R, R))

    def final_structure(self, R: Array) -> tuple[Any, float]:
        return factors.diagonal(np.ones(R.shape[1])), float(np.vdot(R, R))

    def value(self, A: Any) -> float:
        if not isinstance(A, factors.FactoredStructure):
            return super().value(A)
        return 0.0 if not np.any(A.L) and bool(np.all(A.own == 1)) else np.inf

    def new_task_conditional(self, n_tasks: int) -> tuple[Array, float]:
        return np.zeros(n_tasks), 1.0

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        return linear_ray(float(np.vdot(R, R)))


@dataclass(eq=False, repr=False)
class Rooted(KnownStructure):
    """``A = LL'`` given by its root ``L``, whose small columns would be lost in the digits of ``A``."""

    L: Array

    def matrix(self, n_tasks: int) -> Array:
        return self.L @ self.L.T

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        return linear_ray(float(np.vdot(RL := R @ self.L, RL)))


@dataclass(eq=False, repr=False)
class SharedMean(KnownStructure):
    """``sum ||f_t||^2 + gamma sum ||f_t - mean||^2``, that is ``A^+ = I + gamma (I - 11'/T)``: tasks close to their mean.

    Parameters
    ----------
    gamma : float, default=1.0
        Regularisation strength of the distances to the mean, relative to that of the norms; at least 0 (independent tasks).
    """

    gamma: float = 1.0
    ranges: ClassVar[dict[str, str]] = {"gamma": ">= 0"}

    def matrix(self, n_tasks: int) -> Array:
        mean = np.full((n_tasks, n_tasks), 1 / n_tasks)
        return mean + (np.eye(n_tasks) - mean) / (1 + self.gamma)

    def new_task_conditional(self, n_tasks: int) -> tuple[Array, float]:
        A = self.matrix(n_tasks + 1)
        beta = np.linalg.solve(A[:-1, :-1], A[:-1, -1])
        return beta, float(A[-1, -1] - beta @ A[:-1, -1])
