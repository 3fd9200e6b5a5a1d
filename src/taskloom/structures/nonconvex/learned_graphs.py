"""Learned graphs of tasks: edges are entries of ``A^-1``. Given the weights, the best graph is a convex problem."""

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

from ..._linalg import psd_root, symmetric
from ..base import Array, Structure
from ..inner_solvers import newton_in_box
from ..known import Independent
from .base import NonConvex
from .graphical_lasso import DENSE, graphical_lasso, inverse, shrink

MIN_UNIT = 1e-8  # relative to the penalty: the smallest unit of residuals, because of rounding
MAX_EDGE = 1e13  # the largest edge weight in units of gamma: its tasks differ in the thirteenth digit of A
N_CACHED = 4  # structures whose edge weights one run keeps


def contrasts(M: Array, one: Array, other: Array) -> Array:
    """``(e_t - e_s)' M (e_t - e_s)`` for each pair ``(t, s)``."""
    return M[one, one] + M[other, other] - 2 * M[one, other]


@lru_cache(maxsize=8)
def _contrast_basis(n_tasks: int) -> Array:
    """An orthonormal basis of the vectors with sum zero, as columns; read-only."""
    basis = helmert(n_tasks).T
    basis.flags.writeable = False
    return basis


@dataclass(eq=False, repr=False)
class LearnedGraph(NonConvex):
    """``A^-1 = L(w) + gamma I`` with ``L(w)`` the Laplacian of a graph to be learned, ``F(A) = tr A + sparsity sum w``.

    The penalty is ``alpha (sum_{t<s} w_ts ||f_t - f_s||^2 + gamma sum ||f_t||^2)``: tasks joined by an edge have similar
    weights (Argyriou, Clemencon and Zhang 2013). Edges decrease ``tr A``: two tasks without any edge are joined if
    ``alpha ||f_t - f_s||^2 + sparsity < 2 / gamma^2``. Correlations of tasks are never negative.

    Parameters
    ----------
    gamma : float, default=10.0
        Regularisation strength of the norm of each task; greater than 0. Larger values also give fewer edges.
    sparsity : float, default=0.0
        Regularisation strength of the edge weights; at least 0.
    """

    gamma: float = 10.0
    sparsity: float = 0.0

    ranges: ClassVar[dict[str, str]] = {"gamma": "> 0", "sparsity": ">= 0"}
    interior: ClassVar[bool] = True
    precision_graph: ClassVar[bool] = True
    # In the copy of one run: recent structures with their edge weights, which cannot be computed accurately from A.
    _recent: deque[tuple[Array, Array]] | None = field(default=None, init=False)

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
        twin._recent = deque(maxlen=N_CACHED)
        return twin

    def _cached_weights(self, A: Array) -> Array | None:
        return next((w for structure, w in self._recent or () if structure is A), None)

    def weights(self, A: Array) -> Array:
        """The edge weights of a structure, over the pairs ``t < s`` row by row.

        Parameters
        ----------
        A : ndarray of shape (n_tasks, n_tasks)
            A structure of this form.

        Returns
        -------
        ndarray of shape (n_pairs,)
            Weights of the edges.
        """
        if (w := self._cached_weights(A)) is not None:
            return w
        across = _contrast_basis(len(A))
        laplacian = np.linalg.inv(across.T @ A @ across) - self.gamma * np.eye(len(A) - 1)
        return -(across @ laplacian @ across.T)[np.triu_indices(len(A), 1)]

    def value(self, A: Array) -> float:
        w = self.weights(A)
        if self._cached_weights(A) is None:  # A may have another form
            most = float(w.max(initial=0.0))
            rounding = 1e-15 * len(A) * float(np.abs(A).max()) * most**2
            inside = np.abs(self.gamma * A.sum(axis=1) - 1).max() <= 1e-6 and np.linalg.eigvalsh(A)[0] > 0
            if not (inside and w.min(initial=0.0) >= -1e-6 * max(1.0, most) - rounding):
                return np.inf
        return float(np.trace(A)) + self.sparsity * float(w.sum())

    def root(self, A: Array) -> Array:
        """With the mean of the tasks as a separate column, because ``A`` is tiny on differences of strongly joined tasks."""
        across = _contrast_basis(len(A))
        mean = np.full((len(A), 1), 1 / np.sqrt(self.gamma * len(A)))
        return np.hstack([mean, across @ psd_root(across.T @ A @ across, rtol=1e-17)])

    def best_structure(self, S: Array) -> Array:
        return self._best(contrasts(S, *np.triu_indices(len(S), 1)), len(S))

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        """From squared differences of the weights, because tasks may agree in more than eight digits."""
        one, other = np.triu_indices(R.shape[1], 1)
        differences = R[:, one] - R[:, other]
        squares = np.einsum("ij,ij->j", differences, differences)
        A = self._best(squares + 2 * floor, R.shape[1])
        w = np.maximum(self.weights(A), 0.0)
        penalty = float(w @ squares) + self.gamma * float(np.vdot(R, R))
        return A, penalty + float(np.trace(A)) + self.sparsity * float(w.sum())

    def _best(self, squares: Array, n_tasks: int) -> Array:
        """Minimise over ``w >= 0`` by Newton or quasi-Newton steps, in units of the optimum for two tasks."""
        if n_tasks == 1:
            return np.array([[1 / self.gamma]])
        price = np.maximum(squares, 0.0) + self.sparsity
        guess = np.sqrt(np.maximum(price / 2, (MAX_EDGE * self.gamma) ** -2))  # of A, for two tasks alone
        unit = 1 / (n_tasks * guess)
        find = self._newton if price.size <= DENSE else self._quasi_newton
        w = unit * find(price, unit, n_tasks)
        across, M = self._differences(n_tasks, w)
        A = 1 / (n_tasks * self.gamma) + symmetric(across @ M @ across.T)
        if self._recent is not None:
            self._recent.append((A, w))
        return A

    def _differences(self, n_tasks: int, w: Array) -> tuple[Array, Array]:
        """A basis of the vectors with sum zero, and ``A`` in that basis; along the mean ``A`` is ``1 / gamma``."""
        across = _contrast_basis(n_tasks)
        return across, inverse(across.T @ self.precision(w, n_tasks) @ across)

    def _quasi_newton(self, price: Array, unit: Array, n_tasks: int) -> Array:
        one, other = np.triu_indices(n_tasks, 1)

        def cost(u: Array) -> tuple[float, Array]:
            across, M = self._differences(n_tasks, unit * u)
            gradient = price - contrasts(across @ (M @ M) @ across.T, one, other)
            return float(np.trace(M) + price @ (unit * u)), unit * gradient

        options = {"maxiter": 5000, "maxfun": 20000, "ftol": 0.0, "gtol": 1e-11 / self.gamma}
        return minimize(cost, np.ones(one.size), jac=True, method="L-BFGS-B", bounds=[(0, None)] * one.size, options=options).x

    def _newton(self, price: Array, unit: Array, n_tasks: int) -> Array:
        one, other = np.triu_indices(n_tasks, 1)

        def cost(u: Array) -> tuple[float, Array, Callable[[Array], Array]]:
            try:
                across, M = self._differences(n_tasks, unit * u)
            except LinAlgError:
                return np.inf, np.zeros_like(u), np.diag
            differences = (across[one] - across[other]) @ M @ across.T  # differences of the rows of A

            def curvature(free: Array) -> Array:
                near = differences[free][:, one[free]] - differences[free][:, other[free]]
                return 2 * near * (differences[free] @ differences[free].T) * np.outer(unit[free], unit[free])

            gradient = price - np.einsum("ij,ij->i", differences, differences)
            return float(np.trace(M) + price @ (unit * u)), unit * gradient, curvature

        most = np.maximum(MAX_EDGE * self.gamma / unit, 2.0)
        return newton_in_box(cost, np.ones(one.size), np.zeros(one.size), most, enough=1e-15 / self.gamma)

    def residual(self, A: Array, correlation: Array, unit: float, factor: Array | None = None) -> float:
        """The gradient times the weight where the weight would decrease, else times the conductance between its two tasks."""
        one, other = np.triu_indices(len(A), 1)
        w = np.maximum(self.weights(A), 0.0)
        if one.size <= DENSE:  # differences first, which avoids cancellation of what all tasks share
            differences = A[one] - A[other]
            gradient = np.einsum("ij,ij->i", differences @ correlation - differences, differences) + self.sparsity
        else:
            gradient = contrasts(A @ correlation @ A - A @ A, one, other) + self.sparsity
        scale = np.where(gradient > 0, w, 1 / contrasts(A, one, other))
        return float(np.linalg.norm(gradient * scale)) / max(unit, MIN_UNIT * float(np.trace(A)))


@dataclass(eq=False, repr=False)
class SparsePrecision(NonConvex):
    """``F(A) = mu log det A + eps tr A^-1 + l1 sum_{t != s} |(A^-1)_ts|``: a sparse Gaussian graph of the tasks.

    Given the tasks this is a graphical lasso for ``A^-1``, with ``(alpha W'W + eps I) / mu`` in place of the sample covariance
    (Zhang and Schneider 2010; Goncalves, Von Zuben and Banerjee 2016). Two tasks without an edge are conditionally
    independent given the others. ``log det A`` increases slowly, so that large weights are shrunk little.

    Parameters
    ----------
    mu : float, default=0.1
        Weight of the log-determinant, greater than 0. Larger values shrink the weights more.
    l1 : float, default=0.001
        Regularisation strength of the edges, in units of ``alpha W'W``; at least 0.
    eps : float, default=0.001
        Weight of ``tr A^-1``, greater than 0, in units of ``alpha W'W``. Weights of zero have ``A = eps / mu I``.
    """

    mu: float = 0.1
    l1: float = 0.001
    eps: float = 0.001

    ranges: ClassVar[dict[str, str]] = {"mu": "> 0", "l1": ">= 0", "eps": "> 0"}
    interior: ClassVar[bool] = True
    precision_graph: ClassVar[bool] = True

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
        """The l1 weights relative to ``mu``, for tasks scaled by these sizes."""
        price = self.l1 / self.mu / np.outer(size, size)
        np.fill_diagonal(price, 0.0)
        return price

    def best_structure(self, S: Array) -> Array:
        """The graphical lasso on the correlation scale, with unit diagonals."""
        C = (S + self.eps * np.eye(len(S))) / self.mu
        size = np.sqrt(np.diag(C))
        if self.l1 == 0:
            return C
        return graphical_lasso(C / np.outer(size, size), self._price(size))[0] * np.outer(size, size)

    def residual(self, A: Array, correlation: Array, unit: float, factor: Array | None = None) -> float:
        """The length of a proximal gradient step, in units of ``1 / sqrt(A_tt A_ss)`` for each entry of ``A^-1``."""
        size = np.sqrt(np.diag(A))
        scaled = np.outer(size, size)
        P = inverse(A) * scaled
        gradient = ((A @ correlation @ A + self.eps * np.eye(len(A))) / self.mu - A) / scaled
        return self.mu * float(np.linalg.norm(P - shrink(P - gradient, self._price(size)))) / max(unit, MIN_UNIT * self.mu)
