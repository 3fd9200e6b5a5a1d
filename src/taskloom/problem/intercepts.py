"""Best intercepts of a loss without features, and shifts that make the gradients of each task add up to zero."""

from __future__ import annotations

import numpy as np

from ..design import Observations
from ..losses import Loss, RowLoss
from .whole_rows import class_shares

Array = np.ndarray


def best_constants(loss: Loss, obs: Observations) -> Array:
    """The constant that minimises the loss of each task: in closed form, or by a bracketed search."""
    v = obs.weight
    if isinstance(loss, RowLoss):
        return loss.best_constants(class_shares(obs))
    if loss.targets == "signs":
        up, down = (obs.sum_by_task(v * (sign * obs.y > 0)) for sign in (1, -1))
        if (known := loss.best_constant(up, down)) is not None:
            return known

    def cost(b: Array) -> Array:
        with np.errstate(over="ignore"):  # an exponential may overflow at the ends of a bracket
            return obs.sum_by_task(v * loss.value(obs.y, b[obs.task]))

    low, high = np.full(obs.n_tasks, np.inf), np.full(obs.n_tasks, -np.inf)
    np.minimum.at(low, obs.task, obs.y)
    np.maximum.at(high, obs.task, obs.y)
    if not loss.of_differences:  # the minimiser need not lie in the range of y
        low, high = np.minimum(low, -2.0), np.maximum(high, 2.0)
    for _ in range(40 if loss.targets == "numbers" else 10):  # a task with a single class has no minimiser
        width = high - low
        edge = 1e-6 * width  # a small step outward tells the sign of the derivative
        below, above = cost(low - edge) < cost(low), cost(high + edge) < cost(high)
        if not (below.any() or above.any()):
            break
        low, high = np.where(below, low - width, low), np.where(above, high + width, high)
    if loss.smooth:
        return _stationary_constants(loss, obs, low, high)
    shrink = (np.sqrt(5) - 1) / 2
    for _ in range(90):
        left, right = high - shrink * (high - low), low + shrink * (high - low)
        go_left = cost(left) <= cost(right)
        low, high = np.where(go_left, low, left), np.where(go_left, right, high)
    return (low + high) / 2


def _stationary_constants(loss: Loss, obs: Observations, low: Array, high: Array) -> Array:
    """The root of the sum of gradients of each task, by Newton's method safeguarded by bisection."""
    v = obs.weight
    b, span = (low + high) / 2, high - low
    last, done = span, np.zeros(b.size, dtype=bool)
    for _ in range(100):
        z = b[obs.task]
        with np.errstate(over="ignore"):
            gradient = obs.sum_by_task(v * loss.gradient(obs.y, z))
            curvature = obs.sum_by_task(v * loss.curvature(obs.y, z))
        low, high = np.where(gradient <= 0, b, low), np.where(gradient >= 0, b, high)
        step = b - np.divide(gradient, curvature, out=np.full_like(b, np.inf), where=(curvature > 0) & np.isfinite(curvature))
        # Reject steps that do not shrink by half: bisection is faster then.
        accepted = (step >= low) & (step <= high) & (2 * np.abs(step - b) <= last)
        new = np.where(done, b, np.where(accepted, step, (low + high) / 2))
        last, b = np.abs(new - b), new
        done |= last <= np.where(accepted, 1e-9, 4e-16) * (np.abs(b) + span)
        if done.all():
            break
    return b


def balanced(obs: Observations, s: Array, lower: Array, upper: Array) -> Array:
    """Shift and clip the gradients of each task to their interval until their weighted sum is zero."""
    v = obs.weight
    shifted = s - (obs.sum_by_task(v * s) / obs.sum_by_task(v))[obs.task]
    if np.all((shifted >= lower) & (shifted <= upper)):
        return shifted
    low = np.full(obs.n_tasks, -2.0) * (1 + np.abs(s).max())
    high, shift = -low, np.zeros(obs.n_tasks)
    for _ in range(200):  # safeguarded Newton steps on a piecewise linear function
        moved = s - shift[obs.task]
        inside = np.clip(moved, lower, upper)
        excess, size = obs.sum_by_task(v * inside), obs.sum_by_task(v * np.abs(inside))
        free_weight = obs.sum_by_task(v * ((moved > lower) & (moved < upper)))
        low, high = np.where(excess > 0, shift, low), np.where(excess > 0, high, shift)
        step = shift + np.divide(excess, free_weight, out=np.full_like(free_weight, np.inf), where=free_weight > 0)
        close = (np.abs(excess) <= 4e-16 * size) | (high - low <= 4e-16 * np.maximum(np.abs(low), np.abs(high)))
        if np.all(close):
            break
        shift = np.where(close, shift, np.where((step > low) & (step < high), step, (low + high) / 2))
    s = np.clip(s - shift[obs.task], lower, upper)
    free = (s > lower) & (s < upper)  # distribute the rounding error over the entries inside their interval
    free_weight = obs.sum_by_task(v * free)
    shift_left = np.divide(obs.sum_by_task(v * s), free_weight, out=np.zeros_like(free_weight), where=free_weight > 0)
    return np.clip(s - free * shift_left[obs.task], lower, upper)
