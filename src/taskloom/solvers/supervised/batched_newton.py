"""Supervised learning with a given metric, to machine precision: batches of small convex problems by Newton's method.

One batch element is   min_{beta, b}  sum_i v_i loss(y_i, <x_i, beta> + b_{e(i)}) + ||beta||^2 / 2.

The strength is inside ``x`` (divided by ``sqrt(2 alpha)``), ``e(i)`` names the intercept of observation ``i``. A batch of
one element with many intercepts is the coupled problem of the task side; many elements with one intercept each are the
decoupled tasks of the feature side. Padding has weight 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...losses.base import Loss
from .interior_point import follows, interior
from .newton_systems import Design, Intercepts

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
    steps: int = 0  # that it took, where they were counted


@dataclass(eq=False)
class Batch:
    """The problems of a batch: targets, weights, inputs, and which intercept each observation has."""

    loss: Loss
    y: Array
    v: Array
    design: Design
    intercepts: Intercepts | None
    enough: float = 0.0  # how far above the minimum a solution may stay

    def pick(self, which: Array) -> Batch:
        intercepts = None if self.intercepts is None else self.intercepts.pick(which)
        return Batch(self.loss.pick(which), self.y[which], self.v[which], self.design.pick(which), intercepts, self.enough)

    def offsets(self, b: Array) -> Array | float:
        return 0.0 if self.intercepts is None else self.intercepts.spread(b)

    def value(self, coef: Array, b: Array) -> Array:
        plain = self.design.predict(coef)
        losses = self.loss.value(self.y, plain + self.offsets(b))
        return np.einsum("bm,bm->b", self.v, losses) + self.design.inner(coef, coef, plain) / 2

    def finish(self, coef: Array, b: Array) -> Fit:
        return Fit(coef, b, float(self.design.inner(coef, coef, self.design.predict(coef)).sum()) / 2)


def _damping(batch: Batch, h: Array) -> Array | None:
    """Intercepts are unpenalised: where no observation of a task curvatures, its step must come from somewhere.

    A trace of damping elsewhere; a hundredth of the largest possible curvature where there is almost none. Where curvatures
    have no bound, what is there must do.
    """
    if batch.intercepts is None:
        return None
    there = batch.intercepts.gather(h)
    bounded = np.isfinite(batch.loss.max_curvature)
    most = batch.intercepts.gather(batch.v) * batch.loss.max_curvature if bounded else there
    return np.maximum(np.where(there < 1e-4 * most, 1e-2, 1e-12) * most, 1e-300)


def newton(batch: Batch, coef: Array, b: Array) -> Fit:
    """Minimise a smooth loss from ``coef`` and ``b``; every element runs until its Newton decrement is rounding noise."""
    coef, b = coef.copy(), b.copy()
    _come_back(batch, coef, b)
    if batch.loss.quadratic:
        return _one_step(batch, coef, b)
    everyone = np.arange(len(batch.y))
    if not (batch.design.direct and follows(batch.loss)):  # another way, which asks for systems that are solved exactly
        steps = _newton_steps(batch, coef, b, everyone, MAX_NEWTON_STEPS)[1]
        return replace(batch.finish(coef, b), steps=steps)
    left = _newton_steps(batch, coef, b, everyone, STEPS_BEFORE_INTERIOR_POINT, cautious=False)[0]
    if left.size:
        part = batch.pick(left)
        found = interior(part, coef[left], b[left])
        better = part.value(*found) < part.value(coef[left], b[left])
        coef[left[better]], b[left[better]] = found[0][better], found[1][better]
        _newton_steps(batch, coef, b, left, STEPS_AFTER_INTERIOR_POINT)
    return batch.finish(coef, b)


def _newton_steps(batch: Batch, coef: Array, b: Array, active: Array, limit: int, cautious: bool = True) -> tuple[Array, int]:
    """Steps of the elements ``active``, in place; those that are still on their way after ``limit``, and how many it took."""
    least, lowest = np.full(len(batch.y), np.inf), np.full(len(batch.y), np.inf)
    idle = np.zeros(len(batch.y), int)
    steps = 0
    while active.size and steps < limit:
        part = batch if active.size == len(batch.y) else batch.pick(active)
        coef[active], b[active], decrement, value = _damped_step(part, coef[active], b[active], cautious)
        clear = (decrement < 0.5 * least[active]) | (value < lowest[active] - MIN_RELATIVE_DECREASE * np.abs(value))
        idle[active] = np.where(clear, 0, idle[active] + 1)
        least[active], lowest[active] = np.minimum(least[active], decrement), np.minimum(lowest[active], value)
        floor = np.maximum(1e-15 * np.maximum(np.abs(value), 1e-300), batch.enough)
        active = active[(decrement > floor) & (idle[active] < MAX_STALLED_STEPS)]
        steps += 1
    return active, steps


def _come_back(batch: Batch, coef: Array, b: Array) -> None:
    """Where a start lies so far out that zero is better, start at zero.

    From where an exponential carried it the way back is long; and one step of an ill-conditioned system is off by a share of
    its start, so that starts that come from each other could grow without end.
    """
    for away in (coef, b):
        here, kept = batch.value(coef, b), away.copy()
        away[:] = 0.0
        stay = here <= batch.value(coef, b)
        away[stay] = kept[stay]


def _one_step(batch: Batch, coef: Array, b: Array) -> Fit:
    """A quadratic needs one step; another with the same system mops up rounding, where there is any to speak of."""
    h = batch.v * batch.loss.curvature(batch.y, batch.y)
    direction = batch.design.factor(h, batch.intercepts, _damping(batch, h))
    for _ in range(3):
        z = batch.design.predict(coef) + batch.offsets(b)
        dcoef, db = direction(coef, batch.v * batch.loss.gradient(batch.y, z))
        coef, b = coef + dcoef, b + db
        after = batch.v * batch.loss.gradient(batch.y, batch.design.predict(coef) + batch.offsets(b))
        left = batch.design.start(after) + coef  # X'g + beta, or g + u: zero at the minimum
        close = np.abs(left).max(initial=0.0) <= 1e-13 * np.abs(coef).max(initial=0.0)
        if close or float(np.vdot(left, left)) <= 2 * batch.enough:
            break
    return batch.finish(coef, b)


def _damped_step(batch: Batch, coef: Array, b: Array, cautious: bool) -> tuple[Array, Array, Array, Array]:
    """One Newton step with a line search; the new point, the decrement (0 where no step will help) and the value before.

    Where the line search cuts the step short, the curvature at hand says little about the way ahead (most observations
    lie on straight pieces of the loss): steps with more of the majorant are tried too, and the best one is taken.
    """
    plain = batch.design.predict(coef)
    z = plain + batch.offsets(b)
    fixed = batch.design.inner(coef, coef, plain) / 2
    value = np.einsum("bm,bm->b", batch.v, batch.loss.value(batch.y, z)) + fixed
    t, dcoef, db, drop, reached = _search(batch, coef, plain, z, value, fixed, batch.loss.curvature(batch.y, z))
    if cautious and np.any(short := t < 0.2):
        curvature, majorant = batch.loss.curvature(batch.y, z), batch.loss.majorant(batch.y, z)
        for share in DAMPING_SHARES:
            other = _search(batch, coef, plain, z, value, fixed, np.maximum(curvature, share * majorant))
            better = (other[4] < reached) & short
            pick = better[:, None]
            t, drop, reached = (
                np.where(better, new, old) for new, old in ((other[0], t), (other[3], drop), (other[4], reached))
            )
            dcoef, db = np.where(pick, other[1], dcoef), np.where(pick, other[2], db)
    return coef + t[:, None] * dcoef, b + t[:, None] * db, np.where((t == 0) & cautious, 0.0, -drop), value


def _search(
    batch: Batch, coef: Array, plain: Array, z: Array, value: Array, fixed: Array, curvature: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """The step for these curvatures, its length by Armijo's rule, the gradient along it, and the value it reaches."""
    loss, design, y, v = batch.loss, batch.design, batch.y, batch.v
    g, h = v * loss.gradient(y, z), v * curvature
    dcoef, db = design.factor(h, batch.intercepts, _damping(batch, h))(coef, g)
    dplain = design.predict(dcoef)
    dz = dplain + batch.offsets(db)
    linear, quadratic = design.inner(dcoef, coef, plain), design.inner(dcoef, dcoef, dplain)
    drop = np.einsum("bm,bm->b", g, dz) + linear
    t = np.ones(len(y))
    for _ in range(60):  # for each element on its own; the quadratic part of the objective is known exactly
        with np.errstate(over="ignore"):  # an exponential at a step that is far too long
            losses = loss.value(y, z + t[:, None] * dz)
        trial = np.einsum("bm,bm->b", v, losses) + fixed + t * linear + t * t * quadratic / 2
        too_far = trial > value + 1e-4 * t * drop + 1e-14 * np.abs(value)
        if not too_far.any():
            return t, dcoef, db, drop, trial
        t = np.where(too_far, t / 2, t)
    return np.where(too_far, 0.0, t), dcoef, db, drop, np.where(too_far, value, trial)
