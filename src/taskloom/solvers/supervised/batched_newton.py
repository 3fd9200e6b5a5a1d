"""Newton's method for batches of small convex problems, in the supervised step and at a factor of the structure.

One batch element is   min_{beta, b}  sum_i v_i loss(y_i, <x_i, beta> + b_{e(i)}) + ||beta||^2 / 2.

The regularisation strength is inside ``x`` (divided by ``sqrt(2 alpha)``), ``e(i)`` is the intercept of observation ``i``. A
batch of one element with many intercepts is the coupled problem of the task side; many elements with one intercept each are
the decoupled tasks of the feature side. Padding has weight 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ..._time_limit import check_time
from ...losses.base import Loss
from .interior_point import interior_point_start, is_piecewise_linear
from .newton_systems import BatchDesign, Direction, Intercepts

Array = np.ndarray


@dataclass(frozen=True)
class NewtonTuning:
    """The constants of Newton's method on a batch."""

    max_steps: int = 200  # of an element, to machine precision
    max_steps_at_factor: int = 100  # of a task at one factor of the structure
    max_steps_before_interior_point: int = 8  # on a smoothed piecewise linear loss; then the interior-point method takes over,
    max_steps_after_interior_point: int = 30  # and these polish its result
    short_step_length: float = 0.2  # shorter steps are compared with damped ones:
    damping_shares: tuple[float, ...] = (1.0, 1e-2, 1e-4)  # smallest curvature of a damped step, as a share of the majorant
    max_stalled_steps: int = 25  # that neither halve the decrement nor lower the value by the next share: only rounding remains
    min_relative_decrease: float = 1e-6  # of the value
    relative_rounding: float = 1e-15  # of a value; a decrement below is the end
    armijo_share: float = 1e-4  # of the decrement, by which a full step must lower the value, if values are looked at
    max_end_derivative_share: float = 0.9  # of the first directional derivative, at the end of a full step, if they are not
    max_derivative_share: float = 0.5  # of the first directional derivative, at the end of a shortened step
    max_searches: int = 40  # for the length of a shortened step
    negligible_decrease_share: float = 1e-6  # of the target; steps with a smaller predicted decrease are not shortened
    flat_share: float = 1e-4  # of its largest possible curvature, below which an intercept is damped by
    flat_damping: float = 1e-2  # this share of it;
    damping: float = 1e-12  # the share otherwise


TUNING = NewtonTuning()


@dataclass(eq=False)
class Fit:
    """A supervised solution in batch form: coefficients, intercepts, and ``||beta||^2 / 2`` over the batch."""

    coef: Array
    b: Array
    norm: float
    steps: int = 0  # number of Newton steps, if counted


@dataclass(eq=False)
class Points:
    """A point of each element: coefficients, intercepts, predictions without these, gradients of the loss times weights."""

    coef: Array
    b: Array
    plain: Array
    g: Array

    def pick(self, which: Array) -> Points:
        return Points(self.coef[which], self.b[which], self.plain[which], self.g[which])

    def put(self, places: Array, other: Points) -> None:
        """Replace some points in place."""
        self.coef[places], self.b[places], self.plain[places], self.g[places] = other.coef, other.b, other.plain, other.g


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
        """Some of the elements; a single one is all, and a loss of whole rows could not be split."""
        if len(self.y) == 1:
            return self
        intercepts = None if self.intercepts is None else self.intercepts.pick(which)
        return Batch(self.loss.pick(which), self.y[which], self.v[which], self.design.pick(which), intercepts, self.tolerance)

    def outputs(self, plain: Array, b: Array) -> Array:
        """Predictions with intercepts."""
        return plain if self.intercepts is None or self.design.bordered else plain + self.intercepts.expand(b)

    def gradients(self, z: Array) -> Array:
        return self.v * self.loss.gradient(self.y, z)

    def value_at(self, point: Points) -> Array:
        with np.errstate(over="ignore"):  # an exponential may overflow
            losses = self.loss.value(self.y, self.outputs(point.plain, point.b))
        return np.einsum("bm,bm->b", self.v, losses) + self.design.inner(point.coef, point.coef, point.plain) / 2

    def value(self, coef: Array, b: Array) -> Array:
        return self.value_at(Points(coef, b, self.design.predict(coef), coef))

    def finish(self, coef: Array, b: Array, steps: int = 0) -> Fit:
        return Fit(coef, b, float(self.design.inner(coef, coef, self.design.predict(coef)).sum()) / 2, steps)

    def damping(self, z: Array, h: Array) -> Array | None:
        """Levenberg damping of the intercepts, which are not penalised.

        It is negligible unless the total curvature of a task is tiny; then it is a hundredth of the largest possible curvature,
        or, if that has no bound, of the majorant where the loss is linear at all observations. Unpenalised columns of all rows
        have the negligible one throughout.
        """
        if self.intercepts is None:
            return None
        total = limit = self.intercepts.curvatures(h)
        if np.isfinite(self.loss.max_curvature):
            limit = self.intercepts.curvatures(self.v) * self.loss.max_curvature
        elif not (total > 0).all():
            limit = np.where(total > 0, total, self.intercepts.curvatures(self.v * self.loss.majorant(self.y, z)))
        flat = self.intercepts.damped_where_flat & (total < TUNING.flat_share * limit)
        shares = np.where(flat, TUNING.flat_damping, TUNING.damping)
        return np.maximum(shares * limit, 1e-300)


class Move:
    """A full Newton step of a batch for some curvatures, that can be shortened."""

    def __init__(self, batch: Batch, here: Points, z: Array, curvature: Array):
        self.batch, self.here, self.z, self.h = batch, here, z, batch.v * curvature
        self.direction: Direction = batch.design.factor(self.h, batch.intercepts, batch.damping(z, self.h))
        self.dcoef, self.db = self.direction(here.coef, here.g)
        self.dplain = batch.design.predict(self.dcoef)
        self.dz = batch.outputs(self.dplain, self.db)
        self.linear = batch.design.inner(self.dcoef, here.coef, here.plain)
        self.quadratic = batch.design.inner(self.dcoef, self.dcoef, self.dplain)
        self.derivative = np.einsum("bm,bm->b", here.g, self.dz) + self.linear
        self.t = np.ones(len(z))
        with np.errstate(over="ignore", invalid="ignore"):  # an exponential may overflow
            g = batch.gradients(z + self.dz)
            self.end_derivative = np.einsum("bm,bm->b", g, self.dz) + self.linear + self.quadratic
        self.there = Points(here.coef + self.dcoef, here.b + self.db, here.plain + self.dplain, g)

    def shorten(self, which: Array) -> None:
        """Shorten the steps of some elements until the directional derivative is small, and still not positive.

        The objective is convex along a step, so that it is lower there. Under a piecewise loss a full step may skip pieces, and
        short ones take many systems; gradients are cheap beside a system. The lengths come from safeguarded secant steps.
        """
        batch, z, dz = self.batch.pick(which), self.z[which], self.dz[which]
        linear, quadratic, slope, up = (x[which] for x in (self.linear, self.quadratic, self.derivative, self.end_derivative))
        low, high, down, up = np.zeros(len(z)), np.ones(len(z)), slope, np.where(np.isnan(up), np.inf, up)
        t, open_ = high, np.ones(len(z), bool)
        for _ in range(TUNING.max_searches):
            share = np.divide(down, down - up, out=np.full(len(z), 0.5), where=up > np.maximum(down, 0))  # else rounding
            between = low + share * (high - low)
            t = np.where(open_, np.clip(between, 0.9 * low + 0.1 * high, 0.1 * low + 0.9 * high), t)
            with np.errstate(over="ignore", invalid="ignore"):
                g = batch.gradients(z + t[:, None] * dz)
                derivative = np.einsum("bm,bm->b", g, dz) + linear + t * quadratic
            derivative = np.where(np.isnan(derivative), np.inf, derivative)
            far, near = derivative > 0, derivative < TUNING.max_derivative_share * slope
            open_ = far | near
            if not open_.any():
                break
            high, up = np.where(far, t, high), np.where(far, derivative, up)
            low, down = np.where(near, t, low), np.where(near, derivative, down)
        self.t[which], here, t = t, self.here.pick(which), t[:, None]
        dcoef, db, dplain = self.dcoef[which], self.db[which], self.dplain[which]
        self.there.put(which, Points(here.coef + t * dcoef, here.b + t * db, here.plain + t * dplain, g))


Keep: TypeAlias = Callable[[Array, Move], None]


class NewtonSteps:
    """Newton steps on a batch, each element until the predicted decrease is at most ``target_decrease``.

    ``keep`` reads what is wanted of a step, with the places of its elements.
    """

    max_active_share = 0.7  # of the elements that go on, below which they are picked out

    def __init__(self, batch: Batch, coef: Array, b: Array, target_decrease: float, keep: Keep = lambda *_: None):
        self.batch, self.target_decrease, self.keep = batch, target_decrease, keep
        self.points = Points(coef, b, plain := batch.design.predict(coef), batch.gradients(batch.outputs(plain, b)))

    def minimise(self, active: Array, limit: int) -> Array:
        """At most ``limit`` steps on the active elements; those that are left."""
        part, here, self.steps = self.batch, self.points, 0
        left = np.zeros(len(self.batch.y), bool)
        left[active], active = True, np.arange(len(self.batch.y))
        while left.any() and self.steps < limit:
            check_time()
            if np.count_nonzero(left) < self.max_active_share * left.size:
                active, part, here, left = active[left], part.pick(left), here.pick(left), left[left]
            here, decrement = self.step(part, here, active)
            if active.size == len(self.batch.y):
                self.points = here
            else:
                self.points.put(active, here)
            left = self.unfinished(active, decrement)
            self.steps += 1
        return active[left]

    def step(self, part: Batch, here: Points, active: Array) -> tuple[Points, Array]:
        """One step of the active elements: where it leads, and the decrements."""
        z = part.outputs(here.plain, here.b)
        move = Move(part, here, z, part.loss.curvature(part.y, z))
        self.keep(active, move)
        too_far = ~(move.end_derivative <= TUNING.max_end_derivative_share * -move.derivative)
        too_far &= -move.derivative > TUNING.negligible_decrease_share * self.target_decrease
        if too_far.any():
            move.shorten(too_far)
        return move.there, -move.derivative

    def unfinished(self, active: Array, decrement: Array) -> Array:
        return decrement > self.target_decrease


class CarefulSteps(NewtonSteps):
    """To machine precision: no step raises the value, short steps compete with damped ones, and stalled elements end.

    A short step means that the curvature is not representative (most observations are on linear pieces of the loss): steps with
    Levenberg damping by shares of the majorant are tried too, and the best is taken.
    """

    max_active_share = 1.0  # every step may take several systems

    def __init__(self, batch: Batch, coef: Array, b: Array, damped: bool = True):
        super().__init__(batch, coef, b, batch.tolerance)
        self.damped, self.values, count = damped, batch.value_at(self.points), len(batch.y)
        self.least, self.lowest, self.stalled = np.full(count, np.inf), np.full(count, np.inf), np.zeros(count, int)

    def step(self, part: Batch, here: Points, active: Array) -> tuple[Points, Array]:
        z, value = part.outputs(here.plain, here.b), self.values[active]
        curvature = part.loss.curvature(part.y, z)
        move, reached = self._trial(part, here, z, curvature, value)
        there, derivative = move.there, move.derivative
        if self.damped and np.any(short := move.t < TUNING.short_step_length):
            places, some, begin = np.flatnonzero(short), part.pick(short), here.pick(short)
            majorant = some.loss.majorant(some.y, z[short])
            for share in TUNING.damping_shares:
                damped = np.maximum(curvature[short], share * majorant)
                other, values = self._trial(some, begin, z[short], damped, value[short])
                better = values < reached[short]
                there.put(places[better], other.there.pick(better))
                derivative[places[better]], reached[places[better]] = other.derivative[better], values[better]
        rises = ~(reached <= value + 1e-14 * np.abs(value))
        if rises.any():
            there.put(rises, here.pick(rises))
        self.before, self.values[active] = value, np.where(rises, value, reached)
        return there, np.where(rises & self.damped, 0.0, -derivative)

    def _trial(self, part: Batch, here: Points, z: Array, curvature: Array, value: Array) -> tuple[Move, Array]:
        """A step for these curvatures, as long as Armijo's rule permits or shortened, and the values it reaches."""
        move = Move(part, here, z, curvature)
        reached = part.value_at(move.there)
        too_far = ~(reached <= value + TUNING.armijo_share * move.derivative + 1e-14 * np.abs(value))
        if too_far.any():
            move.shorten(too_far)
            reached[too_far] = part.pick(too_far).value_at(move.there.pick(too_far))
        return move, reached

    def unfinished(self, active: Array, decrement: Array) -> Array:
        value, least, lowest = self.before, self.least[active], self.lowest[active]
        clear = (decrement < 0.5 * least) | (value < lowest - TUNING.min_relative_decrease * np.abs(value))
        self.stalled[active] = np.where(clear, 0, self.stalled[active] + 1)
        self.least[active], self.lowest[active] = np.minimum(least, decrement), np.minimum(lowest, value)
        floor = np.maximum(TUNING.relative_rounding * np.maximum(np.abs(value), 1e-300), self.target_decrease)
        return (decrement > floor) & (self.stalled[active] < TUNING.max_stalled_steps)


def newton(batch: Batch, coef: Array, b: Array) -> Fit:
    """Minimise a smooth loss from ``coef`` and ``b`` until the Newton decrement of every element is rounding noise."""
    coef, b = coef.copy(), b.copy()
    _reset_to_zero(batch, coef, b)
    if batch.loss.quadratic:
        return _one_step(batch, coef, b)
    pieces = batch.design.direct and is_piecewise_linear(batch.loss)  # the interior-point method needs exact systems
    steps = CarefulSteps(batch, coef, b, damped=not pieces)
    left = steps.minimise(np.arange(len(b)), TUNING.max_steps_before_interior_point if pieces else TUNING.max_steps)
    if pieces and left.size:
        part, coef, b = batch.pick(left), steps.points.coef, steps.points.b
        found = interior_point_start(part, coef[left], b[left])
        better = part.value(*found) < steps.values[left]
        coef[left[better]], b[left[better]] = found[0][better], found[1][better]
        steps = CarefulSteps(batch, coef, b)
        steps.minimise(left, TUNING.max_steps_after_interior_point)
    return batch.finish(steps.points.coef, steps.points.b, steps.steps)


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
    direction = batch.design.factor(h, batch.intercepts, batch.damping(batch.y, h))
    for _ in range(3):
        z = batch.outputs(batch.design.predict(coef), b)
        dcoef, db = direction(coef, batch.gradients(z))
        coef, b = coef + dcoef, b + db
        after = batch.gradients(batch.outputs(batch.design.predict(coef), b))
        left = batch.design.start(after) + coef  # X'g + beta, or g + u: zero at the minimum
        close = np.abs(left).max(initial=0.0) <= 1e-13 * np.abs(coef).max(initial=0.0)
        if close or float(np.vdot(left, left)) <= 2 * batch.tolerance:
            break
    return batch.finish(coef, b)
