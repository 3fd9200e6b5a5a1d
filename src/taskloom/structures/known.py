"""Structures that are given, not learned: problem (P) of the paper, and its Section 2.3."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from .._component import is_number
from . import factored_matrix as factors
from .base import Array, Ray, Structure


@dataclass(eq=False)
class _Held:
    """What was given, and the structure that it comes to."""

    given: list[Any]
    A: Array

    @cached_property
    def eigen(self) -> tuple[Array, Array]:
        return np.linalg.eigh(self.A)


class KnownStructure(Structure):
    """``A`` is given: ``F`` is the indicator of one matrix, and its conjugate is ``<A, S>``."""

    known: ClassVar[bool] = True
    _held: ClassVar[_Held | None] = None  # of the problem at hand

    @abstractmethod
    def matrix(self, n_tasks: int) -> Array:
        """``A`` for this many tasks; positive semidefinite, with no eigenvalue between rounding and 1e-12 of the largest.

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
        """For each new problem: an array that was given may have been written to since the last one."""
        self.__dict__.pop("_held", None)

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name != "_held"}

    def held(self, n_tasks: int) -> _Held:
        """``A``, and where asked for its eigendecomposition, once for each problem and all its questions.

        Parameters
        ----------
        n_tasks : int
            The number of tasks.

        Returns
        -------
        object
            With the attributes ``A`` and ``eigen`` (eigenvalues and eigenvectors).
        """
        given, held = list(self.get_params().values()), self._held
        same = held is not None and len(held.A) == n_tasks and all(a is b for a, b in zip(given, held.given, strict=True))
        if held is None or not same:
            held = self.__dict__["_held"] = _Held(given, self.matrix(n_tasks))
        return held

    def value(self, A: Array) -> float:
        known = self.held(len(A)).A
        return 0.0 if np.allclose(A, known, rtol=1e-9, atol=1e-9 * max(1e-300, np.abs(known).max())) else np.inf

    def best_structure(self, S: Array) -> Array:
        return self.held(len(S)).A.copy()

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        held = self.held(R.shape[1])
        A, (a, V) = held.A.copy(), held.eigen
        squared_norm = np.einsum("ij,ij->j", RV := R @ V, RV)
        inside = a > 1e-14 * max(a[-1], 0.0)
        if squared_norm[~inside].sum() > 1e-24 * squared_norm.sum():  # outside the range of A nothing is allowed but rounding
            return A, np.inf
        return A, float((squared_norm[inside] / a[inside]).sum())

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return float(np.vdot(self.held(len(S)).A, S))

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        """``<A, R'R>`` as a sum of squares: off the range of ``A`` the entries of ``R'R`` are large, and would not cancel."""
        a, V = self.held(R.shape[1]).eigen
        RL = (R @ V) * np.sqrt(np.maximum(a, 0.0))
        total = float(np.vdot(RL, RL))
        return Ray(np.inf, lambda c: c * total)

    def prox(self, A: Array, step: float) -> Array:
        return self.held(len(A)).A.copy()


class _AnyNumberOfTasks(KnownStructure):
    """A known structure that knows what it would be with one more task."""

    def new_task_conditional(self, n_tasks: int) -> tuple[Array, float]:
        A = self.matrix(n_tasks + 1)
        beta = np.linalg.solve(A[:-1, :-1], A[:-1, -1])
        return beta, float(A[-1, -1] - beta @ A[:-1, -1])


@dataclass(eq=False, repr=False)
class Independent(_AnyNumberOfTasks):
    """``A = I``: every task on its own (STL)."""

    either_side: ClassVar[bool] = True

    def matrix(self, n_tasks: int) -> Array:
        return np.eye(n_tasks)

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        return np.eye(R.shape[1]), float(np.vdot(R, R))

    def final_structure(self, R: Array) -> tuple[Any, float]:
        T = R.shape[1]
        if T <= factors.DENSE_TASKS:
            return self.best_of_root(R)
        return factors.FactoredStructure(np.zeros((T, 0)), 1.0), float(np.vdot(R, R))

    def value(self, A: Any) -> float:
        if not isinstance(A, factors.FactoredStructure):
            return super().value(A)
        return 0.0 if not np.any(A.L) and bool(np.all(A.own == 1)) else np.inf

    def squared_norm(self, R: Array, A: Any) -> float:
        return float(np.vdot(R, R)) if isinstance(A, factors.FactoredStructure) else super().squared_norm(R, A)

    def new_task_conditional(self, n_tasks: int) -> tuple[Array, float]:
        return np.zeros(n_tasks), 1.0

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        total = float(np.vdot(R, R))
        return Ray(np.inf, lambda c: c * total)

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return float(np.trace(S))


@dataclass(eq=False, repr=False)
class Rooted(KnownStructure):
    """``A = LL'`` by its root: for a solver that has one, whose small columns the digits of ``A`` may not hold."""

    L: Array

    def matrix(self, n_tasks: int) -> Array:
        return self.L @ self.L.T

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        RL = R @ self.L
        total = float(np.vdot(RL, RL))
        return Ray(np.inf, lambda c: c * total)


@dataclass(eq=False, repr=False)
class SharedMean(_AnyNumberOfTasks):
    """``sum ||f_t||^2 + gamma sum ||f_t - mean||^2``, that is ``A^+ = I + gamma (I - 11'/T)``: tasks near their mean.

    Parameters
    ----------
    gamma : float, default=1.0
        How strongly tasks are drawn to their mean, relative to the norm of each; at least 0 (independent tasks).
    """

    gamma: float = 1.0

    def check(self) -> None:
        if not (is_number(self.gamma) and self.gamma >= 0):
            raise ValueError(f"SharedMean needs gamma >= 0, got gamma={self.gamma!r}")

    def matrix(self, n_tasks: int) -> Array:
        mean = np.full((n_tasks, n_tasks), 1 / n_tasks)
        return mean + (np.eye(n_tasks) - mean) / (1 + self.gamma)
