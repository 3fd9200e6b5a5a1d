"""Convex minimisation and concave maximisation over a box, the duals of l1 penalties."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from .base import Array


def maximise_in_box(
    f: Callable[[Array], tuple[float, Array]],
    x: Array,
    bound: float,
    n_steps: int = 500,
) -> Array:
    """Maximise a concave ``f`` (value, gradient) over ``|x| <= bound`` by the spectral projected gradient method.

    ``f`` may be ``-inf`` outside its domain, which contains the initial ``x``. Step lengths are Barzilai and Borwein's; the
    line search is nonmonotone. Where the increase is below rounding, the gradients decide whether a step is accepted.
    """
    value, gradient = f(x)
    recent, length = [value], 1.0 / max(float(np.abs(gradient).max(initial=0.0)), 1e-30)
    for _ in range(n_steps):
        move = np.clip(x + length * gradient, -bound, bound) - x
        if np.abs(move).max(initial=0.0) <= 1e-14 * bound:
            break
        for _ in range(40):
            new_value, new_gradient = f(x + move)
            size, curvature_along = float(np.vdot(move, move)), float(np.vdot(move, gradient - new_gradient))
            if new_value >= min(recent) + 1e-4 * float(np.vdot(gradient, move)):
                break
            if new_value >= value - 1e-12 * abs(value) and curvature_along <= size / length:
                break
            move = move / 2
        else:
            break
        x, value, gradient = x + move, new_value, new_gradient
        length = min(max(size / curvature_along if curvature_along > 0 else 10 * length, 1e-30), 1e30)
        recent = [*recent[-8:], value]
    return x


def accelerated_ascent(
    image: Callable[[Array], Array],
    gradient_of: Callable[[Array], Array],
    x: Array,
    bound: float,
    length: float,
    enough: Callable[[Array], float],
    n_steps: int = 500,
) -> tuple[Array, Array]:
    """Maximise a concave function with gradient ``gradient_of(image(x))`` over ``|x| <= bound``; return ``image(x)`` and ``x``.

    Nesterov's accelerated gradient method with step ``length``, the inverse Lipschitz constant of the gradient; the momentum is
    reset whenever it points downhill. Stops when the gap ``bound sum |gradient| - <x, gradient>`` is at most
    ``enough(image(x))`` or rounding.
    """
    ahead, momentum = x, 1.0
    for _ in range(n_steps):
        point, found = ahead, image(ahead)
        gradient = gradient_of(found)
        support = bound * float(np.abs(gradient).sum())
        if support - float(np.vdot(point, gradient)) <= max(enough(found), 1e-14 * support):
            break
        new = np.clip(point + length * gradient, -bound, bound)
        if np.abs(new - point).max(initial=0.0) <= 1e-14 * bound:
            break
        if float(np.vdot(gradient, new - x)) < 0:
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = np.clip(new + (momentum - 1) / grown * (new - x), -bound, bound)
        x, momentum = new, grown
    return found, point


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
