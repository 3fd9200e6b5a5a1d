"""The supervised step to machine precision: batches of small convex problems by Newton's method.

One batch element is   min_{beta, b}  sum_i v_i loss(y_i, <x_i, beta> + b_{e(i)}) + ||beta||^2 / 2.

The regularisation strength is inside ``x`` (divided by ``sqrt(2 alpha)``), ``e(i)`` is the intercept of observation ``i``. A
batch of one element with many intercepts is the coupled problem of the task side; many elements with one intercept each are
the decoupled tasks of the feature side. Padding has weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...losses.base import Loss
from .interior_point import interior_point_start, is_piecewise_linear
from .newton_systems import BatchDesign, Intercepts

Array = np.ndarray
MAX_NEWTON_STEPS = 200
STEPS_BEFORE_INTERIOR_POINT, STEPS_AFTER_INTERIOR_POINT = 8, 30  # Newton steps on smoothed piecewise linear losses
DAMPING_SHARES = (1.0, 1e-2, 1e-4)  # Levenberg damping: smallest curvature of a step, as a share of the majorant
MAX_STALLED_STEPS = 25  # steps that neither halve the decrement nor lower the value by the share below: only rounding remains
MIN_RELATIVE_DECREASE = 1e-6


@dataclass(eq=False)
class Fit:
    """A supervised solution in batch form: coefficients, intercepts, and ``||beta||^2 / 2`` over the batch."""

    coef: Array
    b: Array
    norm: float
    steps: int = 0  # number of Newton steps, if counted


@dataclass(eq=False)
class Batch:
    """The problems of a batch: targets, weights, inputs, and which intercept each observation has."""

    loss: Loss
    y: Array
    v: Array
    design: BatchDesign
    intercepts: Intercepts | None
    tolerance: float = 0.0  # how far above the minimum a solution may stay

    def pick(self, which: Array) -> Batch:
        intercepts = None if self.intercepts is None else self.intercepts.pick(which)
        return Batch(self.loss.pick(which), self.y[which], self.v[which], self.design.pick(which), intercepts, self.tolerance)

    def offsets(self, b: Array) -> Array | float:
        return 0.0 if self.intercepts is None else self.intercepts.expand(b)

    def value(self, coef: Array, b: Array) -> Array:
        plain = self.design.predict(coef)
        losses = self.loss.value(self.y, plain + self.offsets(b))
        return np.einsum("bm,bm->b", self.v, losses) + self.design.inner(coef, coef, plain) / 2

    def finish(self, coef: Array, b: Array) -> Fit:
        return Fit(coef, b, float(self.design.inner(coef, coef, self.design.predict(coef)).sum()) / 2)


def _damping(batch: Batch, h: Array) -> Array | None:
    """Levenberg damping of the intercepts, which are not penalised.

    It is negligible unless the total curvature of a task is tiny; then it is a hundredth of the largest possible curvature, if
    that is finite.
    """
    if batch.intercepts is None:
        return None
    total = batch.intercepts.gather(h)
    bounded = np.isfinite(batch.loss.max_curvature)
    max_total = batch.intercepts.gather(batch.v) * batch.loss.max_curvature if bounded else total
    return np.maximum(np.where(total < 1e-4 * max_total, 1e-2, 1e-12) * max_total, 1e-300)


def newton(batch: Batch, coef: Array, b: Array) -> Fit:
    """Minimise a smooth loss from ``coef`` and ``b`` until the Newton decrement of every element is rounding noise."""
    coef, b = coef.copy(), b.copy()
    _reset_to_zero(batch, coef, b)
    if batch.loss.quadratic:
        return _one_step(batch, coef, b)
    everyone = np.arange(len(batch.y))
    if not (batch.design.direct and is_piecewise_linear(batch.loss)):  # the interior-point method needs exact systems
        steps = _newton_steps(batch, coef, b, everyone, MAX_NEWTON_STEPS)[1]
        return replace(batch.finish(coef, b), steps=steps)
    left = _newton_steps(batch, coef, b, everyone, STEPS_BEFORE_INTERIOR_POINT, damped=False)[0]
    if left.size:
        part = batch.pick(left)
        found = interior_point_start(part, coef[left], b[left])
        better = part.value(*found) < part.value(coef[left], b[left])
        coef[left[better]], b[left[better]] = found[0][better], found[1][better]
        _newton_steps(batch, coef, b, left, STEPS_AFTER_INTERIOR_POINT)
    return batch.finish(coef, b)


def _newton_steps(batch: Batch, coef: Array, b: Array, active: Array, limit: int, damped: bool = True) -> tuple[Array, int]:
    least, lowest = np.full(len(batch.y), np.inf), np.full(len(batch.y), np.inf)
    stalled = np.zeros(len(batch.y), int)
    steps = 0
    while active.size and steps < limit:
        part = batch if active.size == len(batch.y) else batch.pick(active)
        coef[active], b[active], decrement, value = _damped_step(part, coef[active], b[active], damped)
        clear = (decrement < 0.5 * least[active]) | (value < lowest[active] - MIN_RELATIVE_DECREASE * np.abs(value))
        stalled[active] = np.where(clear, 0, stalled[active] + 1)
        least[active], lowest[active] = np.minimum(least[active], decrement), np.minimum(lowest[active], value)
        floor = np.maximum(1e-15 * np.maximum(np.abs(value), 1e-300), batch.tolerance)
        active = active[(decrement > floor) & (stalled[active] < MAX_STALLED_STEPS)]
        steps += 1
    return active, steps


def _reset_to_zero(batch: Batch, coef: Array, b: Array) -> None:
    """Start at zero where that has a lower objective.

    A start under an exponential loss may be far from the minimum. A step of an ill-conditioned system has an error proportional
    to its start, so that a sequence of warm starts could diverge.
    """
    for part in (coef, b):
        here, kept = batch.value(coef, b), part.copy()
        part[:] = 0.0
        stay = here <= batch.value(coef, b)
        part[stay] = kept[stay]


def _one_step(batch: Batch, coef: Array, b: Array) -> Fit:
    """A quadratic needs one step; up to two more with the same system reduce rounding."""
    h = batch.v * batch.loss.curvature(batch.y, batch.y)
    direction = batch.design.factor(h, batch.intercepts, _damping(batch, h))
    for _ in range(3):
        z = batch.design.predict(coef) + batch.offsets(b)
        dcoef, db = direction(coef, batch.v * batch.loss.gradient(batch.y, z))
        coef, b = coef + dcoef, b + db
        after = batch.v * batch.loss.gradient(batch.y, batch.design.predict(coef) + batch.offsets(b))
        left = batch.design.start(after) + coef  # X'g + beta, or g + u: zero at the minimum
        close = np.abs(left).max(initial=0.0) <= 1e-13 * np.abs(coef).max(initial=0.0)
        if close or float(np.vdot(left, left)) <= 2 * batch.tolerance:
            break
    return batch.finish(coef, b)


def _damped_step(batch: Batch, coef: Array, b: Array, damped: bool) -> tuple[Array, Array, Array, Array]:
    """One Newton step with a line search; the new point, the decrement (0 if the line search fails) and the value before.

    A short step means that the curvature is not representative (most observations are on linear pieces of the loss): steps with
    Levenberg damping by shares of the majorant are tried too, and the best is taken.
    """
    plain = batch.design.predict(coef)
    z = plain + batch.offsets(b)
    fixed = batch.design.inner(coef, coef, plain) / 2
    value = np.einsum("bm,bm->b", batch.v, batch.loss.value(batch.y, z)) + fixed
    t, dcoef, db, derivative, reached = _search(batch, coef, plain, z, value, fixed, batch.loss.curvature(batch.y, z))
    if damped and np.any(short := t < 0.2):
        curvature, majorant = batch.loss.curvature(batch.y, z), batch.loss.majorant(batch.y, z)
        for share in DAMPING_SHARES:
            other = _search(batch, coef, plain, z, value, fixed, np.maximum(curvature, share * majorant))
            better = (other[4] < reached) & short
            pick = better[:, None]
            t, derivative, reached = (
                np.where(better, new, old) for new, old in ((other[0], t), (other[3], derivative), (other[4], reached))
            )
            dcoef, db = np.where(pick, other[1], dcoef), np.where(pick, other[2], db)
    return coef + t[:, None] * dcoef, b + t[:, None] * db, np.where((t == 0) & damped, 0.0, -derivative), value


def _search(
    batch: Batch, coef: Array, plain: Array, z: Array, value: Array, fixed: Array, curvature: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The step for these curvatures, its length by Armijo's rule, the directional derivative, and the value reached."""
    loss, design, y, v = batch.loss, batch.design, batch.y, batch.v
    g, h = v * loss.gradient(y, z), v * curvature
    dcoef, db = design.factor(h, batch.intercepts, _damping(batch, h))(coef, g)
    dplain = design.predict(dcoef)
    dz = dplain + batch.offsets(db)
    linear, quadratic = design.inner(dcoef, coef, plain), design.inner(dcoef, dcoef, dplain)
    derivative = np.einsum("bm,bm->b", g, dz) + linear
    t = np.ones(len(y))
    for _ in range(60):  # separately for each element; the quadratic part is exact
        with np.errstate(over="ignore"):  # an exponential may overflow
            losses = loss.value(y, z + t[:, None] * dz)
        trial = np.einsum("bm,bm->b", v, losses) + fixed + t * linear + t * t * quadratic / 2
        too_far = trial > value + 1e-4 * t * derivative + 1e-14 * np.abs(value)
        if not too_far.any():
            return t, dcoef, db, derivative, trial
        t = np.where(too_far, t / 2, t)
    return np.where(too_far, 0.0, t), dcoef, db, derivative, np.where(too_far, value, trial)
