"""What one number for each task can do: the constants that leave the least loss, and the shifts that balance gradients."""

from __future__ import annotations

import numpy as np

from ..design import Observations
from ..losses import Loss, RowLoss
from .whole_rows import class_shares

Array = np.ndarray


def best_constants(loss: Loss, seen: Observations) -> Array:
    """The constant that minimises the loss of each task: by a search inside a bracket that grows, or in closed form."""
    v = seen.weight
    if loss.quadratic:
        return seen.task_means(seen.y)
    if isinstance(loss, RowLoss):
        return loss.best_constants(class_shares(seen))
    if loss.targets == "signs":
        up, down = (seen.sum_by_task(v * (sign * seen.y > 0)) for sign in (1, -1))
        if (known := loss.best_constant(up, down)) is not None:
            return known

    def cost(b: Array) -> Array:
        with np.errstate(over="ignore"):  # a bracket may reach far beyond where an exponential ends
            return seen.sum_by_task(v * loss.value(seen.y, b[seen.task]))

    low, high = np.full(seen.n_tasks, np.inf), np.full(seen.n_tasks, -np.inf)
    np.minimum.at(low, seen.task, seen.y)
    np.maximum.at(high, seen.task, seen.y)
    if not loss.of_differences:  # then the range of y does not say all; under a mixed loss it does for some tasks
        low, high = np.minimum(low, -2.0), np.maximum(high, 2.0)
    for _ in range(40 if loss.targets == "numbers" else 10):  # it may lie outside the range of y; one-sided classes have none
        width = high - low
        edge = 1e-6 * width  # right beside the edges: a whole width out it may be uphill again
        below, above = cost(low - edge) < cost(low), cost(high + edge) < cost(high)
        if not (below.any() or above.any()):
            break
        low, high = np.where(below, low - width, low), np.where(above, high + width, high)
    if loss.smooth:
        return _stationary_constants(loss, seen, low, high)
    shrink = (np.sqrt(5) - 1) / 2
    for _ in range(90):
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        go_left = cost(left) <= cost(right)
        low, high = np.where(go_left, low, left), np.where(go_left, right, high)
    return (low + high) / 2


def _stationary_constants(loss: Loss, seen: Observations, low: Array, high: Array) -> Array:
    """Where the gradients of each task add up to zero, by Newton's method inside a bracket that shrinks."""
    v = seen.weight
    b, span = (low + high) / 2, high - low
    last, done = span, np.zeros(b.size, dtype=bool)
    for _ in range(100):
        z = b[seen.task]
        with np.errstate(over="ignore"):
            gradient = seen.sum_by_task(v * loss.gradient(seen.y, z))
            curvature = seen.sum_by_task(v * loss.curvature(seen.y, z))
        low, high = np.where(gradient <= 0, b, low), np.where(gradient >= 0, b, high)
        step = b - np.divide(gradient, curvature, out=np.full_like(b, np.inf), where=(curvature > 0) & np.isfinite(curvature))
        # Steps that do not shrink, as on an exponential, would walk through the whole bracket.
        sound = (step >= low) & (step <= high) & (2 * np.abs(step - b) <= last)
        there = np.where(done, b, np.where(sound, step, (low + high) / 2))
        last, b = np.abs(there - b), there
        done |= last <= np.where(sound, 1e-9, 4e-16) * (np.abs(b) + span)
        if done.all():
            break  # of Newton's last step, the square is left
    return b


def balanced(seen: Observations, s: Array, lower: Array, upper: Array) -> Array:
    """Shift the gradients of each task, inside their interval, until they add up to zero (weighted)."""
    v = seen.weight
    shifted = s - (seen.sum_by_task(v * s) / seen.sum_by_task(v))[seen.task]
    if np.all((shifted >= lower) & (shifted <= upper)):
        return shifted
    low = np.full(seen.n_tasks, -2.0) * (1 + np.abs(s).max())
    high, shift = -low, np.zeros(seen.n_tasks)
    for _ in range(200):  # Newton's method inside a bracket that shrinks: the sum is made of straight pieces
        moved = s - shift[seen.task]
        inside = np.clip(moved, lower, upper)
        excess, size = seen.sum_by_task(v * inside), seen.sum_by_task(v * np.abs(inside))
        room = seen.sum_by_task(v * ((moved > lower) & (moved < upper)))
        low, high = np.where(excess > 0, shift, low), np.where(excess > 0, high, shift)
        step = shift + np.divide(excess, room, out=np.full_like(room, np.inf), where=room > 0)
        close = (np.abs(excess) <= 4e-16 * size) | (high - low <= 4e-16 * np.maximum(np.abs(low), np.abs(high)))
        if np.all(close):
            break
        shift = np.where(close, shift, np.where((step > low) & (step < high), step, (low + high) / 2))
    s = np.clip(s - shift[seen.task], lower, upper)
    free = (s > lower) & (s < upper)  # what rounding leaves over goes to the entries that can still move
    room = seen.sum_by_task(v * free)
    rest = np.divide(seen.sum_by_task(v * s), room, out=np.zeros_like(room), where=room > 0)
    return np.clip(s - free * rest[seen.task], lower, upper)
