"""Piecewise linear losses at weak regularisation: an interior-point path to where Newton's method can start.

Newton's method on a smoothed loss sees the pieces that the observations lie on. Where the strength is weak it meets them one
by one, and creeps. An interior-point method is blind to pieces: with ``l(y, z) = sup_s s z - l*(y, s)`` and ``l*`` linear on
``[lower, 0]`` and on ``[0, upper]`` (kinks at two places ``k``, or at one), the conditions of the smoothed problem are

    z = k + width (s - guess) + q - p,     s = sum of both parts,     p (part - low) = q (high - part) = mu -> 0,

with ``p, q >= 0``; one step solves a system of the form that Newton's own has, and a dozen or two steps reach any accuracy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...losses.base import Loss
from ...losses.mixed import Mixed
from ...losses.smoothed import Smoothed

if TYPE_CHECKING:
    from .batched_newton import Batch

Array = np.ndarray
MAX_INTERIOR_STEPS = 60
COMPLEMENTARITY_TOLERANCE = 1e-13  # final sum of the complementarity products, relative to the first
MIN_STEP_LENGTH = 1e-6
MAX_SHORT_STEPS = 3  # shorter steps in a row, after which only rounding is left
BOUNDARY_FRACTION = 0.99  # largest fraction of the way to the boundary of a step
MAX_MARGIN_STEP = 2.0  # largest change of a prediction under a loss of margins, whose quadratic model is local
MARGIN_TOLERANCE = 1e-8  # change of these predictions at which they have converged


def follows(loss: Loss) -> bool:
    """Whether this is a smoothed loss of straight pieces, or that of some tasks."""
    return loss.is_surrogate and isinstance(loss, Smoothed | Mixed)


def interior(batch: Batch, coef: Array, b: Array) -> tuple[Array, Array]:
    """Coefficients and intercepts near the minimum of a smoothed loss of straight pieces."""
    return _Path(batch, coef, b).follow()


class _Path:
    """Where the method stands. Parts of the gradients come first: arrays are ``2 x B x m``.

    Observations under other losses (``plain``) take part in every step with their own gradients and curvatures; exponentials
    (``margins``) hold for short steps only.
    """

    def __init__(self, batch: Batch, coef: Array, b: Array):
        self.batch, self.coef, self.b = batch, np.zeros_like(coef), b.copy()
        ends, self.k = np.zeros((2, *batch.y.shape)), np.zeros((2, *batch.y.shape))
        self.width, self.guess, self.plain = np.ones(batch.y.shape), np.zeros(batch.y.shape), np.ones(batch.y.shape, bool)
        self.margins = np.zeros(batch.y.shape, bool)
        for place, part in batch.loss.pieces if isinstance(batch.loss, Mixed) else [(..., batch.loss)]:
            if not isinstance(part, Smoothed):
                self.margins[place] = (part.targets == "signs") & (batch.v[place] > 0)
                continue
            y = batch.y[place]
            self.width[place], self.guess[place], self.plain[place] = part.width, part.guess, False
            for end, k, gradient in zip(ends, self.k, part.loss.gradient_bounds(y), strict=True):
                end[place] = gradient = np.broadcast_to(gradient, y.shape)
                k[place] = np.divide(part.loss.conjugate(y, gradient), gradient, out=np.zeros_like(y), where=gradient != 0)
        self.there = (ends != 0) & (batch.v > 0)
        self.v = np.where(self.there, batch.v, 0.0)
        ends = np.where(self.there, ends, 1.0)
        self.s = ends / 2
        self.below, self.above = np.abs(self.s), np.abs(self.s)  # what is left to either end: too small to be a difference
        self.short = np.zeros(len(batch.y), int)  # how many steps in a row led nowhere
        self.margin_step = np.where(self.margins, np.inf, 0.0).max(axis=1)  # how far margins wanted to go in the last step
        self.z = np.zeros_like(batch.y) + batch.offsets(b)
        rest = np.where(self.there, self._distance(), 0.0)
        apart = 0.1 * np.abs(rest).max(axis=(0, 2)) + self.width.mean(axis=1)
        self.p, self.q = np.maximum(-rest, 0.0) + apart[:, None], np.maximum(rest, 0.0) + apart[:, None]

    def _slopes(self) -> Array:
        gradients = np.where(self.there, self.s, 0.0).sum(axis=0)
        return (
            np.where(self.plain, self.batch.loss.gradient(self.batch.y, self.z), gradients) if self.plain.any() else gradients
        )

    def _distance(self) -> Array:
        """``z - k - width (s - guess)``, which ``q - p`` is to be."""
        return self.z - self.k - self.width * (self._slopes() - self.guess)

    def _products(self) -> tuple[Array, Array]:
        """The weighted mean of all products for each element, and their sum."""
        products = self.p * self.below + self.q * self.above
        total = np.einsum("kbm,kbm->b", self.v, products)
        return np.maximum(total / np.maximum(2 * self.v.sum(axis=(0, 2)), 1e-300), 1e-300), total

    def follow(self) -> tuple[Array, Array]:
        begin = self._products()[1]
        for _ in range(MAX_INTERIOR_STEPS):
            mu, total = self._products()
            unsolved = (total > COMPLEMENTARITY_TOLERANCE * begin) | (self.margin_step > MARGIN_TOLERANCE)
            going = unsolved & (self.short < MAX_SHORT_STEPS)
            if not going.any():
                break
            self._step(mu, going)
        return self.coef, self.b

    def _step(self, mu: Array, going: Array) -> None:
        """Mehrotra's: a step to ``mu = 0`` tells how far to go, and what the products of its changes will be.

        Only elements that are still ``going`` move.
        """
        below, above = self.below, self.above
        steep = self.p / below + self.q / above
        ease = np.where(self.there, 1 / steep, 0.0)
        share = 1 + self.width * ease.sum(axis=0)
        total_curvature = ease.sum(axis=0) / share
        if self.plain.any():
            curvature, most = (of(self.batch.y, self.z) for of in (self.batch.loss.curvature, self.batch.loss.majorant))
            total_curvature = np.where(self.plain, np.maximum(curvature, 1e-3 * most), total_curvature)
        h = self.batch.v * total_curvature
        damping = None if self.batch.intercepts is None else 1e-14 * self.batch.intercepts.gather(h) + 1e-300
        direction = self.batch.design.factor(h, self.batch.intercepts, damping)
        missed = self.q - self.p - self._distance()

        def towards(low: Array, high: Array) -> tuple[Array, ...]:
            """The changes after which the products are about ``low`` and ``high``."""
            rest = missed + (high / above - self.q) - (low / below - self.p)
            correlated = (ease * rest).sum(axis=0) / share
            dcoef, db = direction(self.coef, self.batch.v * (self._slopes() - correlated))
            dz = self.batch.design.predict(dcoef) + self.batch.offsets(db)
            change = dz - self.width * (dz * total_curvature - correlated)
            ds = ease * (change - rest)
            dp = np.where(self.there, low / below - self.p - self.p / below * ds, 0.0)
            dq = np.where(self.there, high / above - self.q + self.q / above * ds, 0.0)
            return dcoef, db, dz, ds, dp, dq

        nothing = np.zeros_like(self.s)
        ds, dp, dq = towards(nothing, nothing)[3:]
        t = self._length(ds, dp, dq, 1.0)[:, None]
        ahead = (self.p + t * dp) * (below + t * ds) + (self.q + t * dq) * (above - t * ds)
        left = np.einsum("kbm,kbm->b", self.v, ahead) / np.maximum(2 * self.v.sum(axis=(0, 2)), 1e-300)
        goal = (mu * (left / mu) ** 3)[:, None]
        dcoef, db, dz, ds, dp, dq = towards(goal - ds * dp, goal + ds * dq)
        t = self._length(ds, dp, dq, BOUNDARY_FRACTION)
        self.margin_step = np.where(self.margins, np.abs(dz), 0.0).max(axis=1)
        self.short = np.where(t < MIN_STEP_LENGTH, self.short + 1, 0)
        t = (going * np.minimum(t, MAX_MARGIN_STEP / np.maximum(self.margin_step, 1e-300)))[:, None]
        self.coef, self.b, self.z = self.coef + t * dcoef, self.b + t * db, self.z + t * dz
        self.s, self.below, self.above = self.s + t * ds, below + t * ds, above - t * ds
        self.p, self.q = self.p + t * dp, self.q + t * dq

    def _length(self, ds: Array, dp: Array, dq: Array, inside: float) -> Array:
        """The longest step for each element, up to 1, that leaves everything positive."""
        room = np.array([self.below, self.above, self.p, self.q])
        pace = np.array([ds, -ds, dp, dq])
        fall = np.where(self.there, np.maximum(-pace / room, 0.0), 0.0).max(axis=(0, 1, 3))
        return np.minimum(1.0, inside / np.maximum(fall, 1e-300))
