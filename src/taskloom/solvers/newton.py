"""Supervised learning with a given metric, to machine precision: batches of small convex problems by Newton's method.

One batch element is   min_{beta, b}  sum_i v_i loss(y_i, <x_i, beta> + b_{e(i)}) + ||beta||^2 / 2.

The strength is inside ``x`` (divided by ``sqrt(2 alpha)``), ``e(i)`` names the intercept of observation ``i``. A batch of
one element with many intercepts is the coupled problem of the task side; many elements with one intercept each are the
decoupled tasks of the feature side. Padding has weight 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ..losses.base import Loss
from .interior import follows, interior
from .positive import Positive, solve_spd

Array = np.ndarray
MAX_STEPS = 200
TRIAL, POLISH = 8, 30  # steps before and after another way to a loss of straight pieces
CAUTION = (1.0, 1e-2, 1e-4)  # shares of the majorant that a step expects at least, where its own curvature led astray
PATIENCE = 25  # steps without a clear fall of the decrement, nor of the value by this share, after which only rounding is left
FALL = 1e-6


def apply(M: Array, x: Array) -> Array:
    """``M x`` for each batch element."""
    return np.matmul(M, x[..., None])[..., 0]


def transposed(M: Array) -> Array:
    return M.transpose(0, 2, 1)


class Intercepts(ABC):
    """Which intercept each observation has: they are spread over observations, and slopes are gathered back."""

    @abstractmethod
    def spread(self, b: Array) -> Array:
        """The intercept of each observation (``B x m``)."""

    @abstractmethod
    def gather(self, x: Array) -> Array:
        """The sum over the observations of each intercept (``B x k``)."""

    @abstractmethod
    def dense(self) -> Array:
        """The indicator matrix (``B x m x k``), for systems that are dense anyway."""

    @abstractmethod
    def pick(self, which: Array) -> Intercepts:
        """Those of some batch elements."""


@dataclass(frozen=True, eq=False)
class OneEach(Intercepts):
    """One intercept for each batch element; ``mask`` (``B x m``) says which entries are not padding."""

    mask: Array

    def spread(self, b: Array) -> Array:
        return self.mask * b

    def gather(self, x: Array) -> Array:
        return np.einsum("bm,bm->b", self.mask, x)[:, None]

    def dense(self) -> Array:
        return self.mask[:, :, None]

    def pick(self, which: Array) -> OneEach:
        return OneEach(self.mask[which])


@dataclass(frozen=True, eq=False)
class OnePerTask(Intercepts):
    """A single batch element that holds all tasks; ``task`` (``m``) names the task of each observation."""

    task: Array
    n_tasks: int

    def spread(self, b: Array) -> Array:
        return b[:, self.task]

    def gather(self, x: Array) -> Array:
        return np.bincount(self.task, weights=x[0], minlength=self.n_tasks)[None]

    def dense(self) -> Array:
        return np.eye(self.n_tasks)[self.task][None]

    def pick(self, which: Array) -> OnePerTask:
        return self


class Design(ABC):
    """The inputs of a batch, in the form that makes the smaller systems."""

    direct: ClassVar[bool] = True  # systems are solved, not approached

    @abstractmethod
    def start(self, u: Array) -> Array:
        """The coefficients of ``beta = X'u``."""

    @abstractmethod
    def predict(self, coef: Array) -> Array:
        """``X beta``."""

    @abstractmethod
    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        """``<beta, other beta>``, given what the other predicts."""

    @abstractmethod
    def pick(self, which: Array) -> Design:
        """Some of the batch elements."""

    @abstractmethod
    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        """The Newton system at curvatures ``h``."""


class Direction(ABC):
    """A factored Newton system: called with the coefficients and the loss gradient, it gives both steps."""

    @abstractmethod
    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]: ...


class PrimalDesign(Design):
    """The coefficients are ``beta`` itself, and the systems are of its size."""

    @abstractmethod
    def gather(self, U: Array) -> Array:
        """``X'U`` for several columns (``B x m x k``)."""

    @abstractmethod
    def gram(self, h: Array) -> Array:
        """``X'HX`` (``B x p x p``)."""

    def start(self, u: Array) -> Array:
        return self.gather(u[..., None])[..., 0]

    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        return np.einsum("bi,bi->b", coef, other)

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        return _PrimalDirection(self, h, intercepts, damping)


@dataclass(frozen=True, eq=False)
class Columns(PrimalDesign):
    """``X`` itself (``B x m x p``)."""

    X: Array

    def gather(self, U: Array) -> Array:
        return np.matmul(transposed(self.X), U)

    def gram(self, h: Array) -> Array:
        return np.matmul(transposed(self.X), h[:, :, None] * self.X)

    def predict(self, coef: Array) -> Array:
        return apply(self.X, coef)

    def pick(self, which: Array) -> Columns:
        return Columns(self.X[which])


class _PrimalDirection(Direction):
    """``(I + X'HX) d beta = -(X'g + beta)``, bordered by the intercepts."""

    def __init__(self, design: PrimalDesign, h: Array, intercepts: Intercepts | None, damping: Array | None):
        self.design, self.intercepts = design, intercepts
        M = design.gram(h)
        M += np.eye(M.shape[-1])
        self.system = Positive(M)
        if intercepts is not None and damping is not None:
            E = intercepts.dense()
            self.edge = design.gather(h[:, :, None] * E)
            self.own = np.matmul(transposed(E), h[:, :, None] * E) + damping[:, :, None] * np.eye(E.shape[-1])

    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]:
        rhs = -(self.design.start(g) + coef)[..., None]
        if self.intercepts is None:
            return self.system.solve(rhs)[..., 0], np.zeros((len(g), 0))
        both = self.system.solve(np.concatenate([rhs, self.edge], axis=-1))
        step, through = both[..., :1], both[..., 1:]
        rest = -self.intercepts.gather(g)[..., None] - np.matmul(transposed(self.edge), step)
        db = solve_spd(self.own - np.matmul(transposed(self.edge), through), rest)
        return (step - np.matmul(through, db))[..., 0], db[..., 0]


@dataclass(frozen=True, eq=False)
class Gram(Design):
    """``K = XX'`` (``B x m x m``); the coefficients are the dual ``u`` with ``beta = X'u``."""

    K: Array

    def start(self, u: Array) -> Array:
        return u

    def predict(self, coef: Array) -> Array:
        return apply(self.K, coef)

    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        return np.einsum("bi,bi->b", coef, predicted)

    def pick(self, which: Array) -> Gram:
        return Gram(self.K[which])

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        return _GramDirection(self.K, h, intercepts, damping)


class _GramDirection(Direction):
    """``(I + HK) du = e - H E db`` with ``e = -g - u``, scaled by ``R = sqrt(h)`` to be symmetric.

    ``du`` comes out as ``R`` times a solution, never as a difference of large numbers: with a weak penalty ``K`` is huge and
    ``du`` tiny. Observations without curvature take ``du = e`` and drop out of the system. The intercepts follow from the
    new duals adding up to zero.
    """

    def __init__(self, K: Array, h: Array, intercepts: Intercepts | None, damping: Array | None):
        self.K, self.intercepts, self.damping = K, intercepts, damping
        self.bent = h > 1e-14 * h.max(axis=1, keepdims=True, initial=0.0)
        self.root = np.sqrt(np.where(self.bent, h, 0.0))
        self.system = Positive(self.root[:, :, None] * K * self.root[:, None, :] + np.eye(K.shape[-1]))

    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]:
        e = -g - coef
        straight = np.where(self.bent, 0.0, e)
        scaled = np.divide(e, self.root, out=np.zeros_like(e), where=self.bent)
        rhs = (scaled - self.root * apply(self.K, straight))[..., None]
        if self.intercepts is None or self.damping is None:
            return straight + self.root * self.system.solve(rhs)[..., 0], np.zeros((len(g), 0))
        E = self.intercepts.dense()
        both = self.root[:, :, None] * self.system.solve(np.concatenate([rhs, self.root[:, :, None] * E], axis=-1))
        step, through = straight[..., None] + both[..., :1], both[..., 1:]
        schur = np.matmul(transposed(E), through) + self.damping[:, :, None] * np.eye(E.shape[-1])
        db = solve_spd(schur, self.intercepts.gather(step[..., 0] + coef)[..., None])
        return (step - np.matmul(through, db))[..., 0], db[..., 0]


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
    """Intercepts are unpenalised: where no observation of a task bends, its step must come from somewhere.

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
        steps = _newton_steps(batch, coef, b, everyone, MAX_STEPS)[1]
        return replace(batch.finish(coef, b), steps=steps)
    left = _newton_steps(batch, coef, b, everyone, TRIAL, cautious=False)[0]
    if left.size:
        part = batch.pick(left)
        found = interior(part, coef[left], b[left])
        better = part.value(*found) < part.value(coef[left], b[left])
        coef[left[better]], b[left[better]] = found[0][better], found[1][better]
        _newton_steps(batch, coef, b, left, POLISH)
    return batch.finish(coef, b)


def _newton_steps(batch: Batch, coef: Array, b: Array, active: Array, limit: int, cautious: bool = True) -> tuple[Array, int]:
    """Steps of the elements ``active``, in place; those that are still on their way after ``limit``, and how many it took."""
    least, lowest = np.full(len(batch.y), np.inf), np.full(len(batch.y), np.inf)
    idle = np.zeros(len(batch.y), int)
    steps = 0
    while active.size and steps < limit:
        part = batch if active.size == len(batch.y) else batch.pick(active)
        coef[active], b[active], decrement, value = _damped_step(part, coef[active], b[active], cautious)
        clear = (decrement < 0.5 * least[active]) | (value < lowest[active] - FALL * np.abs(value))
        idle[active] = np.where(clear, 0, idle[active] + 1)
        least[active], lowest[active] = np.minimum(least[active], decrement), np.minimum(lowest[active], value)
        floor = np.maximum(1e-15 * np.maximum(np.abs(value), 1e-300), batch.enough)
        active = active[(decrement > floor) & (idle[active] < PATIENCE)]
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
        dcoef, db = direction(coef, batch.v * batch.loss.slope(batch.y, z))
        coef, b = coef + dcoef, b + db
        after = batch.v * batch.loss.slope(batch.y, batch.design.predict(coef) + batch.offsets(b))
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
        for share in CAUTION:
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
    """The step for these curvatures, its length by Armijo's rule, the slope along it, and the value it reaches."""
    loss, design, y, v = batch.loss, batch.design, batch.y, batch.v
    g, h = v * loss.slope(y, z), v * curvature
    dcoef, db = design.factor(h, batch.intercepts, _damping(batch, h))(coef, g)
    dplain = design.predict(dcoef)
    dz = dplain + batch.offsets(db)
    linear, bend = design.inner(dcoef, coef, plain), design.inner(dcoef, dcoef, dplain)
    drop = np.einsum("bm,bm->b", g, dz) + linear
    t = np.ones(len(y))
    for _ in range(60):  # for each element on its own; the quadratic part of the objective is known exactly
        with np.errstate(over="ignore"):  # an exponential at a step that is far too long
            losses = loss.value(y, z + t[:, None] * dz)
        trial = np.einsum("bm,bm->b", v, losses) + fixed + t * linear + t * t * bend / 2
        too_far = trial > value + 1e-4 * t * drop + 1e-14 * np.abs(value)
        if not too_far.any():
            return t, dcoef, db, drop, trial
        t = np.where(too_far, t / 2, t)
    return np.where(too_far, 0.0, t), dcoef, db, drop, np.where(too_far, value, trial)
