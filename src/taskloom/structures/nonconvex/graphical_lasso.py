"""The graphical lasso: sparse inverse covariance matrices with exact zeros."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..._linalg import conjugate_gradient, symmetric
from ..._time_limit import check_time
from ..base import Array
from ..inner_solvers import newton_in_box

STEP_LENGTHS = 3.0 ** -np.arange(40)  # of the line search
DENSE = 1200  # pairs of tasks up to which the Hessian is formed


def inverse_and_logdet(M: Array) -> tuple[Array, float]:
    """The inverse of a positive definite matrix, and its ``log det``; ``LinAlgError`` where it is not definite."""
    factor = cho_factor(M, lower=True)
    return symmetric(cho_solve(factor, np.eye(len(M)))), 2 * float(np.log(np.diag(factor[0])).sum())


def inverse(M: Array) -> Array:
    """The inverse of a positive definite matrix; ``LinAlgError`` where it is not."""
    return inverse_and_logdet(M)[0]


def shrink(M: Array, l1: Array) -> Array:
    """Soft thresholding."""
    return np.sign(M) * np.maximum(np.abs(M) - l1, 0.0)


def graphical_lasso(C: Array, l1: Array) -> tuple[Array, Array]:
    """``argmin_P <C, P> - log det P + <l1, |P|>`` and its inverse, as ``(inverse, P)``; ``C`` has a unit diagonal.

    Newton steps on the active entries, with entries that would change sign set to zero (QUIC, Hsieh et al. 2014, with conjugate
    gradients for the direction). Proximal gradient steps in between identify the active entries. For few tasks the dual problem
    is solved instead, which is faster and robust.
    """
    if len(C) * (len(C) - 1) <= 2 * DENSE:
        return _graphical_lasso_dual(C, l1)

    def at(P: Array) -> tuple[float, Array]:
        try:
            A, logdet = inverse_and_logdet(P)
        except LinAlgError:
            return np.inf, P
        return float(np.vdot(C, P) + np.vdot(l1, np.abs(P))) - logdet, A

    def first_better(P: Array, value: float, A: Array, candidates: Iterable[Array]) -> tuple[Array, float, Array]:
        """The first of the candidates with a smaller value."""
        for Q in candidates:
            new_value, new_A = at(Q)
            if new_value < value:
                return Q, new_value, new_A
        return P, value, A

    P = np.eye(len(C))
    value, A = at(P)
    for _ in range(100):
        check_time()
        gradient = C - A
        if np.abs(P - shrink(P - gradient, l1)).max() <= 1e-11:
            break
        before = value
        longest = 27 / float(np.linalg.eigvalsh(A)[-1]) ** 2
        P, value, A = first_better(P, value, A, (shrink(P - c * gradient, c * l1) for c in longest * STEP_LENGTHS))
        sign, move = _newton_move(P, A, C - A, l1)
        P, value, A = first_better(P, value, A, (np.where((Q := P + c * move) * sign > 0, Q, 0.0) for c in STEP_LENGTHS))
        if value >= before:  # the rest is below rounding
            break
    return A, P


def _graphical_lasso_dual(C: Array, l1: Array) -> tuple[Array, Array]:
    """The dual problem: ``max log det A`` over ``|A - C| <= l1``.

    Its Newton systems have one unknown per zero entry of ``P``. It is robust where ``C`` is nearly singular.
    """
    one, other = np.triu_indices(len(C), 1)
    most = l1[one, other]

    def structure(x: Array) -> Array:
        N = np.zeros_like(C)
        N[one, other] = x
        return C + N + N.T

    def cost(x: Array) -> tuple[float, Array, Callable[[Array], Array]]:
        try:
            P, logdet = inverse_and_logdet(structure(x))
        except LinAlgError:
            return np.inf, np.zeros_like(x), np.diag

        def curvature(free: Array) -> Array:
            t, s = one[free], other[free]
            return 2 * (P[np.ix_(t, t)] * P[np.ix_(s, s)] + P[np.ix_(t, s)] * P[np.ix_(s, t)])

        return -logdet, -2 * P[one, other], curvature

    C = C + max(1e-13 - float(np.linalg.eigvalsh(C)[0]), 0.0) * np.eye(len(C))  # singular by rounding
    start = np.clip(-C[one, other], -most, most)
    start = start if np.isfinite(cost(start)[0]) else np.zeros_like(start)
    x = newton_in_box(cost, start, -most, most, enough=1e-11)
    A = structure(x)
    P = inverse(A)
    free = np.abs(x) < most
    P[one[free], other[free]] = P[other[free], one[free]] = 0.0
    return A, P


def _newton_move(P: Array, A: Array, gradient: Array, l1: Array) -> tuple[Array, Array]:
    """The signs of the active entries, and the Newton step: ``AXA = -gradient - l1 sign`` there, ``X = -P`` elsewhere."""
    sign = np.where(P != 0, np.sign(P), -np.sign(gradient) * (np.abs(gradient) > l1))
    goal, free, X = -(gradient + l1 * sign), sign != 0, np.zeros_like(P)
    for _ in range(10):
        X = np.where(free, X, -P)
        X = X + _conjugate_gradients(A, symmetric(goal - A @ X @ A) * free, free)
        crossed = free & ((P + X) * sign < 0)
        if not crossed.any():
            break
        free = free & ~crossed
    return sign, symmetric(X)


def _conjugate_gradients(A: Array, goal: Array, free: Array) -> Array:
    """``X`` on the free entries with ``AXA = goal`` there, with the preconditioner ``A_tt A_ss``."""
    scale = np.outer(np.diag(A), np.diag(A))
    limits: dict[str, Any] = {"tol": 1e-6, "max_residual": 1e-15, "max_steps": 300}
    return conjugate_gradient(lambda X: symmetric(A @ X @ A) * free, goal, preconditioner=lambda X: X / scale, **limits)
