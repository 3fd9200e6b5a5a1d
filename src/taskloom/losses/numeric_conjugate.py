"""An upper bound on the conjugate of a loss, and its domain, computed from the gradient or the prox.

``s z - l(y, z)`` is concave in ``z``. If ``s`` lies between the gradients at two points, the tangents at these points bound the
supremum, and the bound becomes exact as the points approach each other. The gradient at ``u = prox(m, 1)`` is ``m - u``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Gradients = Callable[[Array, Array], tuple[Array, Array]]  # (y, m) -> a point and its gradient, both increasing in m
FAR = (1e300, 1e150, 1e75, 1e30, 1e15, 1e8, 1e4, 1e2)
UNBOUNDED = 1e100  # gradients beyond this count as unbounded
GROWTH = tuple(4.0**k for k in range(26))
EPS = float(np.finfo(float).eps)


def typical_size(y: Array) -> float:
    """The unit of the targets: the median of their nonzero absolute values."""
    sizes = np.abs(y[y != 0])
    return float(np.median(sizes)) if sizes.size else 1.0


def conjugate(value: Callable[[Array, Array], Array], gradients: Gradients, y: Array, s: Array) -> Array:
    """``sup_z s z - l(y, z)``, bounded from above; infinite where ``s`` cannot be bracketed by gradients."""
    y, s = (np.array(x, dtype=float) for x in np.broadcast_arrays(y, s))
    shape, y, s = s.shape, y.ravel(), s.ravel()
    low, high, inside = _bracket(gradients, y, s, typical_size(y))
    out = np.full(s.shape, np.inf)
    out[inside] = _close(value, gradients, y[inside], s[inside], low[inside], high[inside])
    return out.reshape(shape)


def _bracket(gradients: Gradients, y: Array, s: Array, unit: float) -> tuple[Array, Array, Array]:
    """Points with gradients below and above ``s``, at growing distances in units of the targets, and where they exist."""
    low, high = np.full(s.shape, -np.inf), np.full(s.shape, np.inf)
    for place, sign in ((low, -1.0), (high, 1.0)):
        open_ = np.arange(s.size)
        for size in (*(unit * growth for growth in GROWTH), *(far for far in FAR[4::-1] if far > unit * GROWTH[-1])):
            place[open_] = sign * size
            g = gradients(y[open_], place[open_])[1]
            open_ = open_[~(sign * (g - s[open_]) >= 0)]
            if not open_.size:
                break
        place[open_] = np.nan
    return low, high, ~(np.isnan(low) | np.isnan(high))


def _close(value: Callable, gradients: Gradients, y: Array, s: Array, low: Array, high: Array) -> Array:
    """Shrink the brackets by inverse quadratic interpolation or bisection, until the tangent bounds are tight.

    Chandrupatla's method (1997). ``here`` is the newest point, ``there`` the other end of the bracket, ``past`` the point that
    was dropped last.
    """
    if not s.size:
        return s
    (z_low, g_low), (z_high, g_high) = gradients(y, low), gradients(y, high)
    here, there = np.array([low, z_low, g_low - s]), np.array([high, z_high, g_high - s])
    share = np.full_like(s, 0.5)
    for _ in range(200):
        (x, z, f), (x_there, z_there, f_there) = here, there
        slack = np.minimum(np.abs(f), np.abs(f_there)) * np.abs(z_there - z)
        size = np.abs(s) * np.minimum(np.abs(z), np.abs(z_there))
        width, least = np.abs(x_there - x), 4 * EPS * np.maximum(np.abs(x), np.abs(x_there))
        if np.all((slack <= EPS * np.maximum(size, size.mean())) | (width <= least)):
            break  # the gap is below rounding
        middle = x + share * (x_there - x)
        z_new, g_new = gradients(y, middle)
        new = np.array([middle, z_new, g_new - s])
        stays = (new[2] <= 0) == (f <= 0)  # which end of the bracket the new point replaces
        past, there = np.where(stays, here, there), np.where(stays, there, here)
        here = new
        share = _interpolated(here, there, past)
        edge = np.minimum(least / np.maximum(np.abs(there[0] - here[0]), 1e-300), 0.5)
        share = np.clip(share, edge, 1 - edge)
    left = here[2] <= 0
    lower, upper = np.where(left, here, there), np.where(left, there, here)
    return _tangents(value, y, s, (lower[1], -lower[2]), (upper[1], upper[2]))


def _interpolated(here: Array, there: Array, past: Array) -> Array:
    """The share of the bracket to move: by inverse quadratic interpolation where that is safe, else one half."""
    (x, _, f), (x_there, _, f_there), (x_past, _, f_past) = here, there, past
    along, rise = (x - x_there) / (x_past - x_there), (f - f_there) / (f_past - f_there)
    safe = (rise**2 < along) & ((1 - rise) ** 2 < 1 - along)
    guess = f / (f_there - f) * f_past / (f_there - f_past)
    guess += (x_past - x) / (x_there - x) * f / (f_past - f) * f_there / (f_past - f_there)
    return np.where(safe & np.isfinite(guess), guess, 0.5)


def _tangents(value: Callable, y: Array, s: Array, lower: tuple[Array, Array], upper: tuple[Array, Array]) -> Array:
    """The smaller one of the two tangent bounds on the supremum, plus a bound on the rounding."""
    bounds = []
    for (z, rise), other in ((lower, upper[0]), (upper, lower[0])):
        loss = value(y, z)
        bound = s * z - loss + np.where(rise > 0, rise * np.abs(other - z), 0.0) + 2 * EPS * (np.abs(s * z) + np.abs(loss))
        bounds.append(np.where(np.isnan(bound), np.inf, bound))
    return np.minimum(*bounds)


def interval(gradients: Callable[[Array, Array], Array], y: Array) -> tuple[Array, Array]:
    """The limits of the gradient on both sides; infinite where it is unbounded.

    Gradients increase, so that the largest one of several points is the closest to its limit. The farthest ones may overflow,
    as ``r / sqrt(1 + r^2)`` does, to zero.
    """
    edges = []
    for sign in (-1.0, 1.0):
        found = [sign * gradients(y, np.full(y.shape, sign * size)) for size in FAR]
        edge = sign * np.fmax.reduce(found)
        edges.append(np.where(np.abs(edge) > UNBOUNDED, sign * np.inf, edge))
    return np.minimum(edges[0], 0.0), np.maximum(edges[1], 0.0)
