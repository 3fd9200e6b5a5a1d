"""Convex and concave functions on a box: what every question about an l1 penalty comes down to."""

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
    """Maximise a concave ``f`` (value, gradient) over ``|x| <= bound`` by spectral projected gradients.

    ``f`` may be ``-inf`` outside its domain; ``x`` must start inside. The step length is Barzilai and Borwein's, the
    acceptance rule looks back over the last few values; where rounding hides the gain, the gradients decide.
    """
    value, gradient = f(x)
    recent, length = [value], 1.0 / max(float(np.abs(gradient).max(initial=0.0)), 1e-30)
    for _ in range(n_steps):
        move = np.clip(x + length * gradient, -bound, bound) - x
        if np.abs(move).max(initial=0.0) <= 1e-14 * bound:
            break
        for _ in range(40):
            new_value, new_slope = f(x + move)
            size, bend = float(np.vdot(move, move)), float(np.vdot(move, gradient - new_slope))
            if new_value >= min(recent) + 1e-4 * float(np.vdot(gradient, move)):
                break
            if new_value >= value - 1e-12 * abs(value) and bend <= size / length:
                break
            move = move / 2
        else:
            break
        x, value, gradient = x + move, new_value, new_slope
        length = min(max(size / bend if bend > 0 else 10 * length, 1e-30), 1e30)
        recent = [*recent[-8:], value]
    return x


def climb(
    image: Callable[[Array], Array],
    gradient_of: Callable[[Array], Array],
    x: Array,
    bound: float,
    length: float,
    enough: Callable[[Array], float],
    n_steps: int = 500,
) -> tuple[Array, Array]:
    """Maximise a concave function with gradient ``gradient_of(image(x))`` over ``|x| <= bound``: the last image, and its ``x``.

    The gradient changes by at most ``1 / length`` times a move, so the step is known, and Nesterov's momentum (given up
    whenever it points downhill) needs no values. At most ``bound sum |gradient| - <x, gradient>`` is left to gain: ``enough``
    of that may stay, and what rounding may hide.
    """
    ahead, momentum = x, 1.0
    for _ in range(n_steps):
        point, found = ahead, image(ahead)
        gradient = gradient_of(found)
        most = bound * float(np.abs(gradient).sum())
        if most - float(np.vdot(point, gradient)) <= max(enough(found), 1e-14 * most):
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


def _solved(H: Array, rhs: Array) -> Array:
    """A system that is positive definite up to rounding."""
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
    """Minimise a convex ``f`` over ``low <= x <= high`` by Newton steps on the entries that no bound holds (Bertsekas 1982).

    ``f`` gives value, gradient and, for some of the entries, the curvature between them; the value is ``inf`` outside its
    domain. Ends where no entry would move by more than ``enough`` along its gradient. Where rounding hides the gain, the
    gradients decide.
    """

    def left(x: Array, gradient: Array) -> float:
        return float(np.abs(x - np.clip(x - gradient, low, high)).max(initial=0.0))

    value, gradient, curvature = f(x)
    for _ in range(n_steps):
        if (rest := left(x, gradient)) <= enough:
            break
        edge = np.minimum(rest, 1e-3 * (high - low))
        free = np.flatnonzero(~((x <= low + edge) & (gradient > 0) | (x >= high - edge) & (gradient < 0)))
        move = -gradient
        if free.size:
            H = curvature(free)
            size = np.sqrt(np.maximum(np.diag(H), 1e-300))
            alike = H / np.outer(size, size) + 1e-13 * np.eye(free.size)
            move[free] = -_solved(alike, gradient[free] / size) / size
        for shorter in 0.5 ** np.arange(30):
            new = np.clip(x + shorter * move, low, high)
            new_value, new_slope, new_curvature = f(new)
            if new_value <= value + 1e-4 * float(gradient @ (new - x)) and new_value < value:
                break
            if new_value <= value + 1e-13 * abs(value) and left(new, new_slope) < 0.9 * rest:
                break
        else:
            break
        x, value, gradient, curvature = new, new_value, new_slope, new_curvature
    return x
