"""Whether the methods of a loss agree at given points: ``l(y, z') + l*(y, s) >= s z'`` for every ``z'`` (Fenchel and Young).

With ``l*(y, s) = s z - l(y, z)`` in place of the conjugate, that says that ``s`` is a gradient at ``z``. So one function tests
conjugates, gradients and proximal operators, from values alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Array, Loss

EPS = float(np.finfo(float).eps)
DISTANCES = 4.0 ** np.arange(-11, 12)  # of the points that are tried, in units of the loss over its gradient
MAX_OBSERVATIONS = 500  # of these, evenly spaced by their targets, the methods are tried
ULPS = 1 + 3 * EPS * np.array([[1, 1], [-1, 1], [1, -1], [-1, -1]])  # factors of targets and numbers that show rounding
MAX_NOISE = 1e-6  # the most that rounding may be of the numbers that are compared
SLOPE = 1e-12  # relative accuracy of gradients, for points far away
EDGE_SLOPE = 1e-6  # the same of the ends of their interval


def sample(y: Array) -> Array:
    """Indices of observations that cover the range of the targets."""
    order = np.argsort(y, kind="stable")
    return order[np.unique(np.linspace(0, y.size - 1, min(y.size, MAX_OBSERVATIONS)).astype(int))]


def typical_length(loss: Loss, y: Array, z: Array, s: Array) -> float:
    """The unit of predictions: the mean loss over the mean gradient, in which a loss of any unit changes."""
    value, slope = float(np.abs(loss.value(y, z)).mean()), float(np.abs(s).mean())
    least = EPS * float(np.abs(z).max(initial=0.0))
    length = value / slope if value > 0 and slope > 0 else float(np.abs(z - y).mean())
    return max(length, least) or 1.0


def excess(loss: Loss, y: Array, s: Array, z: Array, claimed: Array, length: float, slope: Array | float = SLOPE) -> Array:
    """By how much ``sup_z s z - l(y, z)`` exceeds what is claimed of it, beyond rounding; 0 where nothing was found.

    Points are tried on both sides of ``z``, at distances from 1e-7 to 1e7 of ``length``. ``slope`` is the relative accuracy
    of ``s``.
    """
    found = np.zeros(y.shape)
    claimed = np.where(np.isfinite(claimed), claimed, np.inf)
    with np.errstate(all="ignore"):
        noise = _noise(lambda y, z: loss.value(y, z) - s * z, y, z, loss.targets == "numbers")
        for distance in (0.0, *(length * DISTANCES), *(-length * DISTANCES)):
            there = z + distance
            value = loss.value(y, there)
            sizes = np.abs(s * there) + np.abs(value) + np.abs(claimed)
            gain = s * there - value - claimed - 8 * EPS * sizes - np.minimum(8 * noise, MAX_NOISE * sizes)
            gain -= slope * np.abs(s) * np.abs(distance)
            found = np.fmax(found, np.where(np.isfinite(gain), gain, 0.0))
    return found


def _noise(function: Callable[[Array, Array], Array], y: Array, x: Array, numbers: bool) -> Array:
    """The rounding error of a function of targets and numbers, from changes of both in the last place."""
    here, noise = function(y, x), np.zeros(y.shape)
    for of_y, of_x in ULPS:
        noise = np.fmax(noise, np.abs(function(y * of_y if numbers else y, x * of_x) - here))
    return noise


def conjugate_excess(loss: Loss, y: Array, s: Array, z: Array, length: float, slope: float = SLOPE) -> Array:
    """By how much the conjugate at ``s`` is too small: it bounds the minimum of a fit only where it is not."""
    with np.errstate(all="ignore"):
        claimed = loss.conjugate(y, s)
        if not loss.proof:  # a numerical conjugate has its own rounding in it
            noise = 8 * _noise(loss.conjugate, y, s, loss.targets == "numbers")
            claimed = claimed + np.nan_to_num(np.minimum(noise, MAX_NOISE * (np.abs(s * z) + np.abs(claimed))))
    return excess(loss, y, s, z, claimed, length, slope)


def gradient_excess(loss: Loss, y: Array, z: Array, length: float) -> Array:
    """By how much values lie below the tangents of the gradient at ``z``."""
    s = loss.gradient(y, z)
    return excess(loss, y, s, z, s * z - loss.value(y, z), length)


def prox_excess(loss: Loss, y: Array, z: Array, s: Array, length: float) -> Array:
    """The same of the gradients ``(m - u) / step`` at ``u = prox(m, step)``, around ``z``."""
    step = length / max(float(np.abs(s).mean()), EPS)
    found = np.zeros(y.shape)
    for move in (s, s + np.abs(s).mean(), s - np.abs(s).mean()):
        m = z + step * move
        u = loss.prox(y, m, step)
        slope = (m - u) / step
        lost = SLOPE + 8 * EPS * np.abs(m) / np.maximum(np.abs(m - u), np.finfo(float).tiny)
        found = np.maximum(found, excess(loss, y, slope, u, slope * u - loss.value(y, u), length, lost))
    return found


def domain_excess(loss: Loss, y: Array, z: Array, s: Array, length: float) -> Array:
    """The same of the conjugate at the ends of its interval, or at large gradients where it has no end."""
    far = 3 * max(float(np.abs(s).max(initial=0.0)), EPS)
    found = np.zeros(y.shape)
    for sign, edge in zip((-1, 1), loss.gradient_bounds(y), strict=True):
        end = np.broadcast_to(np.asarray(edge, dtype=float), y.shape)
        slope = np.where(np.isfinite(end), end, sign * far)
        found = np.maximum(found, conjugate_excess(loss, y, slope, z, length, EDGE_SLOPE))
    return found
