"""Graphs of tasks that are learned: edges are entries of ``A^-1``. Given the tasks, the best graph is a convex problem."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.linalg import LinAlgError, helmert
from scipy.optimize import minimize

from ..._component import is_number
from ..._linalg import psd_root, symmetric
from ..base import Array, Structure
from ..box_solvers import newton_in_box
from ..known import Independent
from .base import NonConvex
from .graphical_lasso import DENSE, graphical_lasso, inverse, shrink

ROUNDING = 1e-8  # the least share of the penalty that gradients of the structure are measured in: rounding hides the rest
WIDEST = 1e13  # the largest edge, in units of gamma: tasks that it joins differ in the thirteenth digit of A
RECENT = 4  # structures whose weights a run remembers


def contrasts(M: Array, one: Array, other: Array) -> Array:
    """``(e_t - e_s)' M (e_t - e_s)`` for each pair ``(t, s)``."""
    return M[one, one] + M[other, other] - 2 * M[one, other]


@lru_cache(maxsize=8)
def _contrasting(n_tasks: int) -> Array:
    """An orthonormal basis of what adds up to zero over the tasks, as columns; not to be written to."""
    basis = helmert(n_tasks).T
    basis.flags.writeable = False
    return basis


@dataclass(eq=False, repr=False)
class LearnedGraph(NonConvex):
    """``A^-1 = L(w) + gamma I`` with ``L(w)`` the Laplacian of a graph to be learned, ``F(A) = tr A + sparsity sum w``.

    The penalty is ``alpha (sum_{t<s} w_ts ||f_t - f_s||^2 + gamma sum ||f_t||^2)``: tasks joined by an edge are drawn together
    (Argyriou, Clemencon and Zhang 2013). ``tr A`` pays for edges between tasks that are alike: one appears between tasks that
    have none while ``alpha ||f_t - f_s||^2 + sparsity < 2 / gamma^2``. Relations are never negative.

    Parameters
    ----------
    gamma : float, default=10.0
        How strongly each task is drawn to zero; greater than 0. A larger one also leaves fewer edges.
    sparsity : float, default=0.0
        The price of an edge; at least 0.
    """

    gamma: float = 10.0
    sparsity: float = 0.0

    interior: ClassVar[bool] = True
    precision_graph: ClassVar[bool] = True
    # In a run: structures, and the weights that their digits may not tell.
    _made: deque[tuple[Array, Array]] | None = field(default=None, init=False)

    def check(self) -> None:
        if not (is_number(self.gamma) and self.gamma > 0):
            raise ValueError(f"LearnedGraph needs gamma > 0, got gamma={self.gamma!r}")
        if not (is_number(self.sparsity) and self.sparsity >= 0):
            raise ValueError(f"LearnedGraph needs sparsity >= 0, got sparsity={self.sparsity!r}")

    def convex_bound(self) -> tuple[Structure, float]:
        return Independent(), self.gamma

    def precision(self, w: Array, n_tasks: int) -> Array:
        """``L(w) + gamma I``; ``w`` runs over the pairs ``t < s`` row by row.

        Parameters
        ----------
        w : ndarray of shape (n_pairs,)
            Weights of the edges.
        n_tasks : int
            The number of tasks.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
            ``A^-1``.
        """
        P = np.zeros((n_tasks, n_tasks))
        P[np.triu_indices(n_tasks, 1)] = -w
        P += P.T
        np.fill_diagonal(P, self.gamma - P.sum(axis=1))
        return P

    def for_run(self) -> Structure:
        twin = copy.copy(self)
        twin._made = deque(maxlen=RECENT)
        return twin

    def _remembered(self, A: Array) -> Array | None:
        return next((w for made, w in self._made or () if made is A), None)

    def weights(self, A: Array) -> Array:
        """The edge weights behind a structure, over the pairs ``t < s`` row by row.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            A structure of this form.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Weights of the edges.
        """
        if (w := self._remembered(A)) is not None:
            return w
        across = _contrasting(len(A))
        laplacian = np.linalg.inv(across.T @ A @ across) - self.gamma * np.eye(len(A) - 1)
        return -(across @ laplacian @ across.T)[np.triu_indices(len(A), 1)]

    def value(self, A: Array) -> float:
        w = self.weights(A)
        if self._remembered(A) is None and not self._holds(A, w):
            return np.inf
        return float(np.trace(A)) + self.sparsity * float(w.sum())

    def _holds(self, A: Array, w: Array) -> bool:
        """Whether ``A`` is of this form, as far as its digits tell."""
        most = float(w.max(initial=0.0))
        rounding = 1e-15 * len(A) * float(np.abs(A).max()) * most**2
        inside = np.abs(self.gamma * A.sum(axis=1) - 1).max() <= 1e-6 and np.linalg.eigvalsh(A)[0] > 0
        return bool(inside and w.min(initial=0.0) >= -1e-6 * max(1.0, most) - rounding)

    def root(self, A: Array) -> Array:
        """With the mean of the tasks apart: where tasks have grown together, ``A`` is tiny on their differences."""
        across = _contrasting(len(A))
        mean = np.full((len(A), 1), 1 / np.sqrt(self.gamma * len(A)))
        return np.hstack([mean, across @ psd_root(across.T @ A @ across, rtol=1e-17)])

    def best_structure(self, S: Array) -> Array:
        return self._best(contrasts(S, *np.triu_indices(len(S), 1)), len(S))

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        """Squares of differences, not differences of squares: tasks may be alike to more than eight digits."""
        one, other = np.triu_indices(R.shape[1], 1)
        apart = R[:, one] - R[:, other]
        squares = np.einsum("ij,ij->j", apart, apart)
        A = self._best(squares + 2 * floor, R.shape[1])
        w = np.maximum(self.weights(A), 0.0)
        penalty = float(w @ squares) + self.gamma * float(np.vdot(R, R))
        return A, penalty + float(np.trace(A)) + self.sparsity * float(w.sum())

    def _best(self, squares: Array, n_tasks: int) -> Array:
        """Newton or quasi-Newton steps inside ``w >= 0``, each weight in units of what would hold its pair together."""
        if n_tasks == 1:
            return np.array([[1 / self.gamma]])
        price = np.maximum(squares, 0.0) + self.sparsity
        guess = np.sqrt(np.maximum(price / 2, (WIDEST * self.gamma) ** -2))  # A on the difference of two alone
        unit = 1 / (n_tasks * guess)
        find = self._newton if price.size <= DENSE else self._quasi_newton
        A, w = find(price, unit, n_tasks)
        if self._made is not None:
            self._made.append((A, w))
        return A

    def _differences(self, n_tasks: int, w: Array) -> tuple[Array, Array]:
        """A basis of what is not the mean, and ``A`` there; the mean is apart: ``A`` is ``1 / gamma`` there, whatever ``w``."""
        across = _contrasting(n_tasks)
        return across, inverse(across.T @ self.precision(w, n_tasks) @ across)

    def _structure(self, n_tasks: int, w: Array) -> Array:
        across, M = self._differences(n_tasks, w)
        return 1 / (n_tasks * self.gamma) + symmetric(across @ M @ across.T)

    def _quasi_newton(self, price: Array, unit: Array, n_tasks: int) -> tuple[Array, Array]:
        one, other = np.triu_indices(n_tasks, 1)

        def cost(u: Array) -> tuple[float, Array]:
            across, M = self._differences(n_tasks, unit * u)
            gradient = price - contrasts(across @ (M @ M) @ across.T, one, other)
            return float(np.trace(M) + price @ (unit * u)), unit * gradient

        options = {"maxiter": 5000, "maxfun": 20000, "ftol": 0.0, "gtol": 1e-11 / self.gamma}
        u = minimize(cost, np.ones(one.size), jac=True, method="L-BFGS-B", bounds=[(0, None)] * one.size, options=options).x
        return self._structure(n_tasks, unit * u), unit * u

    def _newton(self, price: Array, unit: Array, n_tasks: int) -> tuple[Array, Array]:
        one, other = np.triu_indices(n_tasks, 1)

        def cost(u: Array) -> tuple[float, Array, Callable[[Array], Array]]:
            try:
                across, M = self._differences(n_tasks, unit * u)
            except LinAlgError:
                return np.inf, np.zeros_like(u), np.diag
            apart = (across[one] - across[other]) @ M @ across.T  # differences of the rows of A

            def curvature(free: Array) -> Array:
                near = apart[free][:, one[free]] - apart[free][:, other[free]]
                return 2 * near * (apart[free] @ apart[free].T) * np.outer(unit[free], unit[free])

            gradient = price - np.einsum("ij,ij->i", apart, apart)
            return float(np.trace(M) + price @ (unit * u)), unit * gradient, curvature

        most = np.maximum(WIDEST * self.gamma / unit, 2.0)
        u = newton_in_box(cost, np.ones(one.size), np.zeros(one.size), most, enough=1e-15 / self.gamma)
        return self._structure(n_tasks, unit * u), unit * u

    def residual(self, A: Array, pull: Array, unit: float, factor: Array | None = None) -> float:
        """Each weight in units of itself where it wants to shrink, else of the conductance between its two tasks."""
        one, other = np.triu_indices(len(A), 1)
        w = np.maximum(self.weights(A), 0.0)
        if one.size <= DENSE:  # differences first: what is the same in all tasks does not rounding_floor them
            apart = A[one] - A[other]
            gradient = np.einsum("ij,ij->i", apart @ pull - apart, apart) + self.sparsity
        else:
            gradient = contrasts(A @ pull @ A - A @ A, one, other) + self.sparsity
        reach = np.where(gradient > 0, w, 1 / contrasts(A, one, other))
        return float(np.linalg.norm(gradient * reach)) / max(unit, ROUNDING * float(np.trace(A)))


@dataclass(eq=False, repr=False)
class SparsePrecision(NonConvex):
    """``F(A) = mu log det A + eps tr A^-1 + l1 sum_{t != s} |(A^-1)_ts|``: a sparse Gaussian graph of the tasks.

    Given the tasks this is a graphical lasso for ``A^-1``, with ``(alpha W'W + eps I) / mu`` in place of the sample covariance
    (Zhang and Schneider 2010; Goncalves, Von Zuben and Banerjee 2016). Two tasks without an edge are independent given the
    others. ``log det A`` grows slowly, so that large weights are shrunk little.

    Parameters
    ----------
    mu : float, default=0.1
        Strength of the log-determinant, greater than 0: how far weights are shrunk, as the variance of a prior would decide.
    l1 : float, default=0.001
        The price of an edge, in units of ``alpha W'W``; at least 0.
    eps : float, default=0.001
        Relations are learned where ``alpha W'W`` exceeds it, greater than 0; nothing learned is ``A = eps / mu I``.
    """

    mu: float = 0.1
    l1: float = 0.001
    eps: float = 0.001

    interior: ClassVar[bool] = True
    precision_graph: ClassVar[bool] = True

    def check(self) -> None:
        if not (is_number(self.mu) and self.mu > 0):
            raise ValueError(f"SparsePrecision needs mu > 0, got mu={self.mu!r}")
        if not (is_number(self.l1) and self.l1 >= 0):
            raise ValueError(f"SparsePrecision needs l1 >= 0, got l1={self.l1!r}")
        if not (is_number(self.eps) and self.eps > 0):
            raise ValueError(f"SparsePrecision needs eps > 0, got eps={self.eps!r}")

    def convex_bound(self) -> tuple[Structure, float]:
        return Independent(), self.mu / self.eps

    def value(self, A: Array) -> float:
        sign, logdet = np.linalg.slogdet(A)
        if sign <= 0:
            return np.inf
        P = np.linalg.inv(A)
        off = float(np.abs(P).sum() - np.abs(np.diag(P)).sum())
        return self.mu * float(logdet) + self.eps * float(np.trace(P)) + self.l1 * off

    def _price(self, size: Array) -> Array:
        """What an edge costs next to ``mu``, where tasks are measured in these sizes."""
        price = self.l1 / self.mu / np.outer(size, size)
        np.fill_diagonal(price, 0.0)
        return price

    def best_structure(self, S: Array) -> Array:
        """The graphical lasso on the scale of correlations, where all diagonals are 1."""
        C = (S + self.eps * np.eye(len(S))) / self.mu
        size = np.sqrt(np.diag(C))
        if self.l1 == 0:
            return C
        return graphical_lasso(C / np.outer(size, size), self._price(size))[0] * np.outer(size, size)

    def residual(self, A: Array, pull: Array, unit: float, factor: Array | None = None) -> float:
        """The step of a proximal gradient method, in units of ``1 / sqrt(A_tt A_ss)`` for each entry of ``A^-1``."""
        size = np.sqrt(np.diag(A))
        scaled = np.outer(size, size)
        P = inverse(A) * scaled
        gradient = ((A @ pull @ A + self.eps * np.eye(len(A))) / self.mu - A) / scaled
        return self.mu * float(np.linalg.norm(P - shrink(P - gradient, self._price(size)))) / max(unit, ROUNDING * self.mu)
