"""Concave functions on a box: what every question about an l1 penalty comes down to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Array


def maximise_in_box(
    f: Callable[[Array], tuple[float, Array]],
    x: Array,
    bound: float,
    n_steps: int = 500,
) -> Array:
    """Maximise a concave ``f`` (value, slope) over ``|x| <= bound`` by spectral projected gradients.

    ``f`` may be ``-inf`` outside its domain; ``x`` must start inside. The step length is Barzilai and Borwein's, the
    acceptance rule looks back over the last few values; where rounding hides the gain, the slopes decide.
    """
    value, slope = f(x)
    recent, length = [value], 1.0 / max(float(np.abs(slope).max(initial=0.0)), 1e-30)
    for _ in range(n_steps):
        move = np.clip(x + length * slope, -bound, bound) - x
        if np.abs(move).max(initial=0.0) <= 1e-14 * bound:
            break
        for _ in range(40):
            new_value, new_slope = f(x + move)
            size, bend = float(np.vdot(move, move)), float(np.vdot(move, slope - new_slope))
            if new_value >= min(recent) + 1e-4 * float(np.vdot(slope, move)):
                break
            if new_value >= value - 1e-12 * abs(value) and bend <= size / length:
                break
            move = move / 2
        else:
            break
        x, value, slope = x + move, new_value, new_slope
        length = min(max(size / bend if bend > 0 else 10 * length, 1e-30), 1e30)
        recent = [*recent[-8:], value]
    return x


def climb(
    image: Callable[[Array], Array],
    slope_of: Callable[[Array], Array],
    x: Array,
    bound: float,
    length: float,
    enough: Callable[[Array], float],
    n_steps: int = 500,
) -> tuple[Array, Array]:
    """Maximise a concave function with slope ``slope_of(image(x))`` over ``|x| <= bound``: the last image, and its ``x``.

    The slope changes by at most ``1 / length`` times a move, so the step is known, and Nesterov's momentum (given up
    whenever it points downhill) needs no values. At most ``bound sum |slope| - <x, slope>`` is left to gain: ``enough`` of that
    may stay, and what rounding may hide.
    """
    ahead, momentum = x, 1.0
    for _ in range(n_steps):
        point, found = ahead, image(ahead)
        slope = slope_of(found)
        most = bound * float(np.abs(slope).sum())
        if most - float(np.vdot(point, slope)) <= max(enough(found), 1e-14 * most):
            break
        new = np.clip(point + length * slope, -bound, bound)
        if np.abs(new - point).max(initial=0.0) <= 1e-14 * bound:
            break
        if float(np.vdot(slope, new - x)) < 0:
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = np.clip(new + (momentum - 1) / grown * (new - x), -bound, bound)
        x, momentum = new, grown
    return found, point
