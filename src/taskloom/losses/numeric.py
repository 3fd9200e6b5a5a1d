"""What follows from the slope or the prox of a loss alone: its conjugate, bounded from above, and where that is finite.

``s z - l(y, z)`` is concave in ``z``. Once ``s`` lies between the slopes at two points, the tangents at these points bound the
supremum, and the bound closes as the points do. A prox gives slopes, too: ``u = prox(m, 1)`` has the slope ``m - u``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray
Slopes = Callable[[Array, Array], tuple[Array, Array]]  # (y, m) -> a point, and a slope there; both grow with m
FAR = (1e300, 1e150, 1e75, 1e30, 1e15, 1e8, 1e4, 1e2)
EDGE = 1e100  # a slope beyond this has no limit
GROWTH = tuple(4.0**k for k in range(26))
EPS = float(np.finfo(float).eps)


def conjugate(value: Callable[[Array, Array], Array], slopes: Slopes, y: Array, s: Array) -> Array:
    """``sup_z s z - l(y, z)``, bounded from above; infinite where no two points have slopes on both sides of ``s``."""
    y, s = (np.array(x, dtype=float) for x in np.broadcast_arrays(y, s))
    shape, y, s = s.shape, y.ravel(), s.ravel()
    low, high, inside = _bracket(slopes, y, s)
    out = np.full(s.shape, np.inf)
    out[inside] = _close(value, slopes, y[inside], s[inside], low[inside], high[inside])
    return out.reshape(shape)


def _bracket(slopes: Slopes, y: Array, s: Array) -> tuple[Array, Array, Array]:
    """Places whose slopes lie below and above ``s``, and where they were found."""
    low, high = np.full(s.shape, -np.inf), np.full(s.shape, np.inf)
    for place, sign in ((low, -1.0), (high, 1.0)):
        open_ = np.arange(s.size)
        for size in (*GROWTH, *FAR[4::-1]):
            place[open_] = sign * size
            g = slopes(y[open_], place[open_])[1]
            open_ = open_[~(sign * (g - s[open_]) >= 0)]
            if not open_.size:
                break
        place[open_] = np.nan
    return low, high, ~(np.isnan(low) | np.isnan(high))


def _close(value: Callable, slopes: Slopes, y: Array, s: Array, low: Array, high: Array) -> Array:
    """Close the brackets, by the Illinois rule and by halves in turn, until the tangents leave nothing to gain."""
    if not s.size:
        return s
    (z_low, g_low), (z_high, g_high) = slopes(y, low), slopes(y, high)
    weight_low, weight_high = np.ones_like(s), np.ones_like(s)
    for k in range(200):
        below, above = s - g_low, g_high - s
        slack = np.minimum(below, above) * (z_high - z_low)
        size = np.abs(s) * np.minimum(np.abs(z_low), np.abs(z_high))
        if np.all((slack <= EPS * np.maximum(size, 1.0)) | (high - low <= 4 * EPS * np.maximum(np.abs(low), np.abs(high)))):
            break
        middle = low + (high - low) / 2
        if k % 3 != 2:
            total = weight_low * below + weight_high * above
            share = np.divide(weight_low * below, total, out=np.full_like(s, 0.5), where=np.isfinite(total) & (total > 0))
            secant = low + share * (high - low)
            middle = np.where((secant > low) & (secant < high), secant, middle)
        z, g = slopes(y, middle)
        left = g <= s  # the new point takes the place of the lower end
        weight_high = np.where(left, weight_high / 2, 1.0)
        weight_low = np.where(left, 1.0, weight_low / 2)
        low, z_low, g_low = np.where(left, middle, low), np.where(left, z, z_low), np.where(left, g, g_low)
        high, z_high, g_high = np.where(left, high, middle), np.where(left, z_high, z), np.where(left, g_high, g)
    return _tangents(value, y, s, (z_low, s - g_low), (z_high, g_high - s))


def _tangents(value: Callable, y: Array, s: Array, lower: tuple[Array, Array], upper: tuple[Array, Array]) -> Array:
    """The least of the bounds that the two tangents put on the supremum between the points, and the rounding on top."""
    bounds = []
    for (z, rise), other in ((lower, upper[0]), (upper, lower[0])):
        loss = value(y, z)
        bound = s * z - loss + np.where(rise > 0, rise * np.abs(other - z), 0.0) + 2 * EPS * (np.abs(s * z) + np.abs(loss))
        bounds.append(np.where(np.isnan(bound), np.inf, bound))
    return np.minimum(*bounds)


def interval(slopes: Callable[[Array, Array], Array], y: Array) -> tuple[Array, Array]:
    """The slopes far out on both sides; infinite where they grow without limit."""
    edges = []
    for sign in (-1.0, 1.0):
        edge = np.full(y.shape, np.nan)
        for size in FAR:
            missing = np.isnan(edge)
            if not missing.any():
                break
            edge[missing] = slopes(y[missing], np.full(int(missing.sum()), sign * size))
        edges.append(np.where(np.abs(edge) > EDGE, sign * np.inf, edge))
    return np.minimum(edges[0], 0.0), np.maximum(edges[1], 0.0)
