"""The graphical lasso: sparse inverses of covariances, with exact zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..._linalg import symmetric
from ..base import Array
from ..box_solvers import newton_in_box

SHORTER = 3.0 ** -np.arange(40)  # the lengths that a search tries
DENSE = 1200  # pairs of tasks, up to which their curvature fits into a matrix


def inverse(M: Array) -> Array:
    """The inverse of a positive definite matrix; ``LinAlgError`` where it is not."""
    return symmetric(cho_solve(cho_factor(M, lower=True), np.eye(len(M))))


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
        gradient = C - A
        if np.abs(P - shrink(P - gradient, price)).max() <= 1e-11:
            break
        before = value
        longest = 27 / float(np.linalg.eigvalsh(A)[-1]) ** 2
        P, value, A = first_better(P, value, A, (shrink(P - c * gradient, c * price) for c in longest * SHORTER))
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


def _newton_move(P: Array, A: Array, gradient: Array, price: Array) -> tuple[Array, Array]:
    """The signs that a Newton step keeps, and the step: ``AXA = -gradient - price sign`` on what is free, ``X = -P``
    elsewhere.
    """
    sign = np.where(P != 0, np.sign(P), -np.sign(gradient) * (np.abs(gradient) > price))
    goal, free, X = -(gradient + price * sign), sign != 0, np.zeros_like(P)
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
