"""Graphs of tasks that are learned: edges are entries of ``A^-1``. Given the tasks, the best graph is a convex problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, helmert
from scipy.optimize import minimize

from .._component import is_number, require
from .._linalg import symmetric
from .base import Array, Structure
from .box import newton_in_box
from .known import Independent
from .nonconvex import NonConvex

SHORTER = 3.0 ** -np.arange(40)  # the lengths that a search tries
ROUNDING = 1e-8  # the least share of the penalty that slopes of the structure are measured in: rounding hides the rest
DENSE = 1200  # pairs of tasks, up to which their curvature fits into a matrix


def contrasts(M: Array, one: Array, other: Array) -> Array:
    """``(e_t - e_s)' M (e_t - e_s)`` for each pair ``(t, s)``."""
    return M[one, one] + M[other, other] - 2 * M[one, other]


def inverse(M: Array) -> Array:
    """The inverse of a positive definite matrix; ``LinAlgError`` where it is not."""
    return symmetric(cho_solve(cho_factor(M, lower=True), np.eye(len(M))))


@dataclass(eq=False, repr=False)
class LearnedGraph(NonConvex):
    """``A^-1 = L(w) + gamma I`` with ``L(w)`` the Laplacian of a graph to be learned, ``F(A) = tr A + sparsity sum w``.

    The penalty is ``alpha (sum_{t<s} w_ts ||f_t - f_s||^2 + gamma sum ||f_t||^2)``: tasks joined by an edge are drawn together
    (Argyriou, Clemencon and Zhang 2013). ``tr A`` pays for edges between tasks that are alike: one appears between tasks that
    have none while ``alpha ||f_t - f_s||^2 + sparsity < 2 / gamma^2``. Relations are never negative.

    Parameters
    ----------
    gamma : float > 0
        How strongly each task is drawn to zero; a larger one also leaves fewer edges.
    sparsity : float >= 0
        The price of an edge.
    """

    gamma: float = 10.0
    sparsity: float = 0.0

    interior: ClassVar[bool] = True
    precision_graph: ClassVar[bool] = True

    def check(self) -> None:
        require(is_number(self.gamma) and self.gamma > 0, f"LearnedGraph needs gamma > 0, got gamma={self.gamma!r}")
        require(
            is_number(self.sparsity) and self.sparsity >= 0, f"LearnedGraph needs sparsity >= 0, got sparsity={self.sparsity!r}"
        )

    def learns_less_than(self) -> tuple[Structure, float]:
        return Independent(), self.gamma

    def precision(self, w: Array, n_tasks: int) -> Array:
        """``L(w) + gamma I``; ``w`` runs over the pairs ``t < s`` row by row."""
        P = np.zeros((n_tasks, n_tasks))
        P[np.triu_indices(n_tasks, 1)] = -w
        P += P.T
        np.fill_diagonal(P, self.gamma - P.sum(axis=1))
        return P

    def weights(self, A: Array) -> Array:
        """The edge weights behind a structure, over the pairs ``t < s`` row by row."""
        return -np.linalg.inv(A)[np.triu_indices(len(A), 1)]

    def value(self, A: Array) -> float:
        w = self.weights(A)
        off = np.abs(self.precision(w, len(A)) @ A - np.eye(len(A))).max()
        if off > 1e-6 or w.min(initial=0.0) < -1e-6 * max(1.0, float(w.max(initial=0.0))):
            return np.inf
        return float(np.trace(A)) + self.sparsity * float(w.sum())

    def best_structure(self, S: Array) -> Array:
        """Newton or quasi-Newton steps inside ``w >= 0``, each weight in units of what would hold its pair together."""
        T = len(S)
        one, other = np.triu_indices(T, 1)
        price = contrasts(S, one, other) + self.sparsity
        if T == 1:
            return np.array([[1 / self.gamma]])
        guess = np.sqrt(np.maximum(contrasts(S, one, other) / 2, 1e-12 / self.gamma**2))  # A on the difference of two alone
        unit = np.minimum(1 / guess, 1e6 * self.gamma) / T
        if one.size <= DENSE:
            return self._newton(price, unit, T)

        def cost(u: Array) -> tuple[float, Array]:
            A = inverse(self.precision(unit * u, T))
            slope = price - contrasts(A @ A, one, other)
            return float(np.trace(A) + price @ (unit * u)), unit * slope

        options = {"maxiter": 5000, "maxfun": 20000, "ftol": 0.0, "gtol": 1e-11 * (1 / self.gamma + float(np.trace(S)))}
        found = minimize(cost, np.ones(one.size), jac=True, method="L-BFGS-B", bounds=[(0, None)] * one.size, options=options)
        return inverse(self.precision(unit * found.x, T))

    def _newton(self, price: Array, unit: Array, n_tasks: int) -> Array:
        """With the mean of the tasks apart: there ``A`` is ``1 / gamma``, however large the weights."""
        one, other = np.triu_indices(n_tasks, 1)
        across = helmert(n_tasks).T
        mean = 1 / (n_tasks * self.gamma)

        def cost(u: Array) -> tuple[float, Array, Callable[[Array], Array]]:
            try:
                M = inverse(across.T @ self.precision(unit * u, n_tasks) @ across)
            except LinAlgError:
                return np.inf, np.zeros_like(u), np.diag
            apart = (across[one] - across[other]) @ M @ across.T  # differences of the rows of A

            def curvature(free: Array) -> Array:
                near = apart[free][:, one[free]] - apart[free][:, other[free]]
                return 2 * near * (apart[free] @ apart[free].T) * np.outer(unit[free], unit[free])

            slope = price - np.einsum("ij,ij->i", apart, apart)
            return float(np.trace(M) + price @ (unit * u)), unit * slope, curvature

        most = np.maximum(1e10 * self.gamma / unit, 2.0)
        u = newton_in_box(cost, np.ones(one.size), np.zeros(one.size), most, enough=1e-14 / self.gamma)
        return mean + symmetric(across @ inverse(across.T @ self.precision(unit * u, n_tasks) @ across) @ across.T)

    def residual(self, A: Array, pull: Array, unit: float, factor: Array | None = None) -> float:
        """Each weight in units of itself where it wants to shrink, else of the conductance between its two tasks."""
        one, other = np.triu_indices(len(A), 1)
        w = np.maximum(self.weights(A), 0.0)
        if one.size <= DENSE:  # differences first: what is the same in all tasks does not blur them
            apart = A[one] - A[other]
            slope = np.einsum("ij,ij->i", apart @ pull - apart, apart) + self.sparsity
        else:
            slope = contrasts(A @ pull @ A - A @ A, one, other) + self.sparsity
        reach = np.where(slope > 0, w, 1 / contrasts(A, one, other))
        return float(np.linalg.norm(slope * reach)) / max(unit, ROUNDING * float(np.trace(A)))


@dataclass(eq=False, repr=False)
class SparsePrecision(NonConvex):
    """``F(A) = mu log det A + eps tr A^-1 + l1 sum_{t != s} |(A^-1)_ts|``: a sparse Gaussian graph of the tasks.

    Given the tasks this is a graphical lasso for ``A^-1``, with ``(alpha W'W + eps I) / mu`` in place of the sample covariance
    (Zhang and Schneider 2010; Goncalves, Von Zuben and Banerjee 2016). Two tasks without an edge are independent given the
    others. ``log det A`` grows slowly, so that large weights are shrunk little.

    Parameters
    ----------
    mu : float > 0
        How much the log-determinant weighs; it decides how far weights are shrunk, as the variance of a prior would.
    l1 : float >= 0
        The price of an edge, in units of ``alpha W'W``.
    eps : float > 0
        Relations are learned where ``alpha W'W`` exceeds it; nothing learned is ``A = eps / mu I``.
    """

    mu: float = 0.1
    l1: float = 0.001
    eps: float = 0.001

    interior: ClassVar[bool] = True
    precision_graph: ClassVar[bool] = True

    def check(self) -> None:
        require(is_number(self.mu) and self.mu > 0, f"SparsePrecision needs mu > 0, got mu={self.mu!r}")
        require(is_number(self.l1) and self.l1 >= 0, f"SparsePrecision needs l1 >= 0, got l1={self.l1!r}")
        require(is_number(self.eps) and self.eps > 0, f"SparsePrecision needs eps > 0, got eps={self.eps!r}")

    def learns_less_than(self) -> tuple[Structure, float]:
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
        slope = ((A @ pull @ A + self.eps * np.eye(len(A))) / self.mu - A) / scaled
        return self.mu * float(np.linalg.norm(P - shrink(P - slope, self._price(size)))) / max(unit, ROUNDING * self.mu)


def shrink(M: Array, price: Array) -> Array:
    """Soft thresholding."""
    return np.sign(M) * np.maximum(np.abs(M) - price, 0.0)


def graphical_lasso(C: Array, price: Array) -> tuple[Array, Array]:
    """``argmin_P <C, P> - log det P + <price, |P|>`` and its inverse, as ``(inverse, P)``; ``C`` has a unit diagonal.

    Newton steps on the entries that are not zero or want to leave it; entries that would cross zero stop there, so zeros are
    exact (QUIC, Hsieh et al. 2014, with conjugate gradients for the direction). Proximal gradient steps in between settle
    which entries those are. Few tasks are solved from the other side, which is faster and minds nothing.
    """
    if len(C) * (len(C) - 1) <= 2 * DENSE:
        return _graphical_lasso_dual(C, price)

    def at(P: Array) -> tuple[float, Array]:
        try:
            factor = cho_factor(P, lower=True)
        except LinAlgError:
            return np.inf, P
        logdet = 2 * float(np.log(np.diag(factor[0])).sum())
        return float(np.vdot(C, P) + np.vdot(price, np.abs(P))) - logdet, symmetric(cho_solve(factor, np.eye(len(P))))

    def first_better(P: Array, value: float, A: Array, candidates: Iterable[Array]) -> tuple[Array, float, Array]:
        """The first of shorter and shorter steps that pays."""
        for Q in candidates:
            new_value, new_A = at(Q)
            if new_value < value:
                return Q, new_value, new_A
        return P, value, A

    P = np.eye(len(C))
    value, A = at(P)
    for _ in range(100):
        slope = C - A
        if np.abs(P - shrink(P - slope, price)).max() <= 1e-11:
            break
        before = value
        longest = 27 / float(np.linalg.eigvalsh(A)[-1]) ** 2
        P, value, A = first_better(P, value, A, (shrink(P - c * slope, c * price) for c in longest * SHORTER))
        sign, move = _newton_move(P, A, C - A, price)
        P, value, A = first_better(P, value, A, (np.where((Q := P + c * move) * sign > 0, Q, 0.0) for c in SHORTER))
        if value >= before:  # rounding hides what is left
            break
    return A, P


def _graphical_lasso_dual(C: Array, price: Array) -> tuple[Array, Array]:
    """The same from the other side: ``max log det A`` over ``|A - C| <= price``, where entries of ``P`` may change sign freely.

    Its Newton systems are of the size of the entries of ``P`` that are zero. It is sure where ``C`` is nearly singular.
    """
    one, other = np.triu_indices(len(C), 1)
    most = price[one, other]

    def structure(x: Array) -> Array:
        N = np.zeros_like(C)
        N[one, other] = x
        return C + N + N.T

    def cost(x: Array) -> tuple[float, Array, Callable[[Array], Array]]:
        try:
            factor = cho_factor(structure(x), lower=True)
        except LinAlgError:
            return np.inf, np.zeros_like(x), np.diag
        P = symmetric(cho_solve(factor, np.eye(len(C))))

        def curvature(free: Array) -> Array:
            t, s = one[free], other[free]
            return 2 * (P[np.ix_(t, t)] * P[np.ix_(s, s)] + P[np.ix_(t, s)] * P[np.ix_(s, t)])

        return -2 * float(np.log(np.diag(factor[0])).sum()), -2 * P[one, other], curvature

    C = C + max(1e-13 - float(np.linalg.eigvalsh(C)[0]), 0.0) * np.eye(len(C))  # singular by rounding
    start = np.clip(-C[one, other], -most, most)
    start = start if np.isfinite(cost(start)[0]) else np.zeros_like(start)
    x = newton_in_box(cost, start, -most, most, enough=1e-11)
    A = structure(x)
    P = inverse(A)
    free = np.abs(x) < most
    P[one[free], other[free]] = P[other[free], one[free]] = 0.0
    return A, P


def _newton_move(P: Array, A: Array, slope: Array, price: Array) -> tuple[Array, Array]:
    """The signs that a Newton step keeps, and the step: ``AXA = -slope - price sign`` on what is free, ``X = -P`` elsewhere."""
    sign = np.where(P != 0, np.sign(P), -np.sign(slope) * (np.abs(slope) > price))
    goal, free, X = -(slope + price * sign), sign != 0, np.zeros_like(P)
    for _ in range(10):
        X = np.where(free, X, -P)
        X = X + _conjugate_gradients(A, symmetric(goal - A @ X @ A) * free, free)
        crossed = free & ((P + X) * sign < 0)
        if not crossed.any():
            break
        free = free & ~crossed
    return sign, symmetric(X)


def _conjugate_gradients(A: Array, goal: Array, free: Array) -> Array:
    """``X`` on the free entries with ``AXA = goal`` there, in units of ``A_tt A_ss``."""
    scale = np.outer(np.diag(A), np.diag(A))
    X, rest = np.zeros_like(A), goal
    eased = rest / scale
    way, size = eased, float(np.vdot(rest, eased))
    enough = 1e-12 * size + 1e-30  # entries are of the order of 1
    for _ in range(300):
        if size <= enough:
            break
        curved = symmetric(A @ way @ A) * free
        step = size / float(np.vdot(way, curved))
        X, rest = X + step * way, rest - step * curved
        eased = rest / scale
        size, last = float(np.vdot(rest, eased)), size
        way = eased + size / last * way
    return X
