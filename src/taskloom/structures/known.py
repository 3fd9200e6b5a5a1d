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

    def root(self, A: Array) -> Array:
        a, V = self._known(len(A)).eigen
        return V[:, a > 0] * np.sqrt(a[a > 0])


class DiagonalPlusColumns(KnownStructure):
    """``A = diag(own) + LL'`` with few columns: nothing needs the ``T x T`` matrix, and there is none for many tasks."""

    @abstractmethod
    def factored(self, n_tasks: int) -> factors.FactoredStructure:
        """``A``, with the same variance ``own`` for all tasks.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.

        Returns
        -------
        FactoredStructure
            ``A``.
        """

    def matrix(self, n_tasks: int) -> Array:
        return self.factored(n_tasks).to_array()

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        A = self.factored(R.shape[1])
        return A.to_array(), A.inverse_quadratic(R)

    def final_structure(self, R: Array) -> tuple[Any, float]:
        A = self.factored(R.shape[1])
        return A.to_array() if factors.few(len(A)) else A, A.inverse_quadratic(R)

    def metric(self, A: Any) -> Any:
        return self.factored(len(A))

    def value(self, A: Any) -> float:
        if not isinstance(A, factors.FactoredStructure):
            return super().value(A)
        known = self.factored(len(A))
        return 0.0 if np.array_equal(A.L, known.L) and np.array_equal(A.own, known.own) else np.inf

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        A = self.factored(R.shape[1])
        along = R @ A.L
        return linear_ray(float(np.vdot(along, along) + column_squares(R) @ A.own))


@dataclass(eq=False, repr=False)
class Independent(DiagonalPlusColumns):
    """``A = I``: independent tasks (single-task learning, STL)."""

    either_side: ClassVar[bool] = True

    def factored(self, n_tasks: int) -> factors.FactoredStructure:
        return factors.FactoredStructure(np.zeros((n_tasks, 0)), 1.0)

    def new_task_conditional(self, n_tasks: int) -> tuple[Array, float]:
        return np.zeros(n_tasks), 1.0


@dataclass(eq=False, repr=False)
class Rooted(KnownStructure):
    """``A = LL'`` given by its root ``L``, whose small columns would be lost in the digits of ``A``."""

    L: Array

    def matrix(self, n_tasks: int) -> Array:
        return self.L @ self.L.T

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        return linear_ray(float(np.vdot(RL := R @ self.L, RL)))


@dataclass(eq=False, repr=False)
class SharedMean(DiagonalPlusColumns):
    """``sum ||f_t||^2 + gamma sum ||f_t - mean||^2``, that is ``A^+ = I + gamma (I - 11'/T)``: tasks close to their mean.

    Parameters
    ----------
    gamma : float, default=1.0
        Regularisation strength of the distances to the mean, relative to that of the norms; at least 0 (independent tasks).
    """

    gamma: float = 1.0
    ranges: ClassVar[dict[str, str]] = {"gamma": ">= 0"}

    def factored(self, n_tasks: int) -> factors.FactoredStructure:
        own = 1 / (1 + self.gamma)
        return factors.FactoredStructure(np.full((n_tasks, 1), np.sqrt(self.gamma * own / n_tasks)), own)

    def new_task_conditional(self, n_tasks: int) -> tuple[Array, float]:
        share = self.gamma / (n_tasks + 1)  # of the variance that tasks share, relative to their own
        beta = share / (1 + n_tasks * share)
        return np.full(n_tasks, beta), (1 + share * (1 - n_tasks * beta)) / (1 + self.gamma)
