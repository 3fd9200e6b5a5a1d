"""The convex problems inside a structure: proximal gradient, accelerated gradient, and Newton's method in a box."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .._linalg import symmetric
from .._time_limit import check_time
from .base import TINY, Array


def proximal_gradient(
    smooth: Callable[[Array], tuple[float, Array]],
    prox: Callable[[Array, float], tuple[Array, float]],
    x: Array,
    value: float,
    length: float,
    rtol: float = 1e-14,
    n_steps: int = 500,
    more: Callable[[], bool] = lambda: True,
) -> Array:
    """Minimise ``smooth(x) + F(x)`` from ``x``, where ``F(x) = value``; return the best point.

    ``smooth`` gives a value, infinite outside its domain, and a gradient; ``prox`` a point and its ``F``. Step lengths are
    Barzilai and Borwein's; the line search is nonmonotone. Where the decrease is below rounding, the gradients decide whether a
    step is accepted. Stops when the objective changes by at most ``rtol`` in twelve steps, or when there is no ``more`` budget.
    """
    at, gradient = smooth(x)
    recent = [at + value]
    best = recent[0], x
    for _ in range(n_steps):
        check_time()
        if not more():
            break
        new, value = prox(x - length * gradient, length)
        at, new_gradient = smooth(new)
        total, move = at + value, new - x
        size, curvature = float(np.vdot(move, move)), float(np.vdot(move, new_gradient - gradient))
        rounding = total <= recent[-1] + 1e-14 * abs(recent[-1]) and curvature <= size / length
        if not (rounding or total <= max(recent[-6:]) - 1e-4 * size / (2 * length)):
            if size <= 1e-30 * float(np.vdot(x, x)):
                break
            length /= 3
            continue
        x, gradient = new, new_gradient
        recent.append(total)
        if total <= best[0] + 1e-14 * abs(best[0]):  # within rounding the last point is the most accurate
            best = total, x
        length = min(max(size / curvature if curvature > 0 else 3 * length, 1e-3 * length), 1e3 * length)
        still = len(recent) > 12 and max(recent[-12:]) - min(recent[-12:]) <= rtol * abs(total)
        if still or size <= 1e-28 * float(np.vdot(x, x)):
            break
    return best[1]


def inverse_trace(A: Array, S: Array) -> tuple[float, Array]:
    """``tr(A^-1 S)`` and its gradient, of matrices or of vectors of eigenvalues."""
    a, V = (A, None) if A.ndim == 1 else np.linalg.eigh(symmetric(A))
    if a.min() <= 1e-14 * max(float(a.max()), TINY):
        return np.inf, np.zeros_like(A)
    if V is None:
        return float((S / a).sum()), -S / a**2
    inverse = (V / a) @ V.T
    return float(np.vdot(inverse, S)), -inverse @ S @ inverse


def accelerated(step: Callable[[Array], tuple[Array, Any, bool]], x: Array, n_steps: int) -> tuple[Any, int]:
    """Nesterov's accelerated gradient method; the momentum is reset whenever it points against the step.

    ``step`` gives the next point, what it found on the way, and whether that is accurate enough. Returns what the last step
    found, and the number of steps.
    """
    ahead, momentum = x, 1.0
    for k in range(1, n_steps + 1):
        check_time()
        new, found, done = step(ahead)
        if done or k == n_steps:
            return found, k
        if float(np.vdot(new - ahead, new - x)) < 0:
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / grown * (new - x)
        x, momentum = new, grown
    raise AssertionError("the last step returns")


def _solve(H: Array, rhs: Array) -> Array:
    """Solve a system that is positive definite up to rounding."""
    try:
        return cho_solve(cho_factor(H, lower=True, check_finite=False), rhs, check_finite=False)
    except LinAlgError:
        return np.linalg.solve(H, rhs)


def newton_in_box(
    f: Callable[[Array], tuple[float, Array, Callable[[Array], Array]]],
    x: Array,
    low: Array,
    high: Array,
    enough: float,
    n_steps: int = 60,
) -> Array:
    """Minimise a convex ``f`` over ``low <= x <= high`` by the projected Newton method (Bertsekas 1982).

    ``f`` gives value, gradient and a function from indices to that block of the Hessian; the value is ``inf`` outside the
    domain. Stops when no entry of the projected gradient exceeds ``enough``. Where the decrease is below rounding, the
    projected gradients decide whether a step is accepted.
    """

    def residual(x: Array, gradient: Array) -> float:
        return float(np.abs(x - np.clip(x - gradient, low, high)).max(initial=0.0))

    value, gradient, curvature = f(x)
    for _ in range(n_steps):
        check_time()
        if (size := residual(x, gradient)) <= enough:
            break
        edge = np.minimum(size, 1e-3 * (high - low))
        free = np.flatnonzero(~((x <= low + edge) & (gradient > 0) | (x >= high - edge) & (gradient < 0)))
        move = -gradient
        if free.size:
            H = curvature(free)
            scale = np.sqrt(np.maximum(np.diag(H), 1e-300))
            move[free] = -_solve(H / np.outer(scale, scale) + 1e-13 * np.eye(free.size), gradient[free] / scale) / scale
        for shorter in 0.5 ** np.arange(30):
            new = np.clip(x + shorter * move, low, high)
            new_value, new_gradient, new_curvature = f(new)
            if new_value <= value + 1e-4 * float(gradient @ (new - x)) and new_value < value:
                break
            if new_value <= value + 1e-13 * abs(value) and residual(new, new_gradient) < 0.9 * size:
                break
        else:
            break
        x, value, gradient, curvature = new, new_value, new_gradient, new_curvature
    return x
