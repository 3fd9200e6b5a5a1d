"""An interior-point method for smoothed piecewise linear losses at weak regularisation; Newton's method polishes its result.

Newton's method on a smoothed loss changes the piece of few observations per step and converges slowly. An interior-point
method does not depend on the pieces: with ``l(y, z) = sup_s s z - l*(y, s)`` and ``l*`` linear on ``[lower, 0]`` and on
``[0, upper]`` (breakpoints ``k``), the optimality conditions of the smoothed problem are

    z = k + width (s - guess) + q - p,     s = sum of both parts,     p (part - low) = q (high - part) = mu -> 0,

with ``p, q >= 0``. A step solves a system of the same form as Newton's, and 10 to 20 steps reach any accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._time_limit import check_time
from ...losses.base import Loss
from ...losses.mixed import Mixed

if TYPE_CHECKING:
    from .batched_newton import Batch

Array = np.ndarray


@dataclass(frozen=True)
class InteriorTuning:
    """The constants of the interior-point method."""

    max_steps: int = 60
    relative_complementarity: float = 1e-13  # final sum of the complementarity products, relative to the first
    min_step_length: float = 1e-6
    max_short_steps: int = 3  # below that length in a row, after which only rounding is left
    max_boundary_share: float = 0.99  # of the way to the boundary, in one step
    max_margin_change: float = 2.0  # of a prediction under a loss of margins, whose quadratic model is local
    converged_margin_change: float = 1e-8  # of these predictions


TUNING = InteriorTuning()


def is_piecewise_linear(loss: Loss) -> bool:
    """Whether this is a smoothed piecewise linear loss (such as Huber's), or is so for some tasks."""
    return any(part.as_smoothed() is not None for _, part in _pieces(loss))


def _pieces(loss: Loss) -> list[Any]:
    """The indices of observations, and their loss."""
    return loss.pieces if isinstance(loss, Mixed) else [(..., loss)]


def interior_point_start(batch: Batch, coef: Array, b: Array) -> tuple[Array, Array]:
    """Coefficients and intercepts near the minimum of a smoothed piecewise linear loss."""
    return _Path(batch, coef, b).follow()


class _Path:
    """The iterate of the method. The two parts of the gradients are the first axis: arrays are ``2 x B x m``.

    Observations under other losses (``plain``) enter every step with their gradients and curvatures. Steps under losses of
    margins (``margins``) are bounded, since their quadratic model is local.
    """

    def __init__(self, batch: Batch, coef: Array, b: Array):
        self.batch, self.coef, self.b = batch, np.zeros_like(coef), b.copy()
        ends, self.k = np.zeros((2, *batch.y.shape)), np.zeros((2, *batch.y.shape))
        self.width, self.guess, self.plain = np.ones(batch.y.shape), np.zeros(batch.y.shape), np.ones(batch.y.shape, bool)
        self.margins = np.zeros(batch.y.shape, bool)
        for place, plain in _pieces(batch.loss):
            part: Any = plain.as_smoothed()
            if part is None:
                self.margins[place] = (plain.targets == "signs") & (batch.v[place] > 0)
                continue
            y = batch.y[place]
            self.width[place], self.guess[place], self.plain[place] = part.width, part.guess, False
            for end, k, gradient in zip(ends, self.k, part.loss.gradient_bounds(y), strict=True):
                end[place] = gradient = np.broadcast_to(gradient, y.shape)
                k[place] = np.divide(part.loss.conjugate(y, gradient), gradient, out=np.zeros_like(y), where=gradient != 0)
        self.used = (ends != 0) & (batch.v > 0)
        self.v = np.where(self.used, batch.v, 0.0)
        ends = np.where(self.used, ends, 1.0)
        self.s = ends / 2
        self.below = self.above = np.abs(self.s)  # distances to both ends, updated since differences would cancel
        self.short = np.zeros(len(batch.y), int)  # short steps in a row
        self.margin_step = np.where(self.margins, np.inf, 0.0).max(axis=1)  # largest change of a margin in the last step
        self.z = batch.outputs(np.zeros_like(batch.y), b)
        rest = np.where(self.used, self._distance(), 0.0)
        apart = 0.1 * np.abs(rest).max(axis=(0, 2)) + self.width.mean(axis=1)
        self.p, self.q = np.maximum(-rest, 0.0) + apart[:, None], np.maximum(rest, 0.0) + apart[:, None]

    def _gradients(self) -> Array:
        gradients = np.where(self.used, self.s, 0.0).sum(axis=0)
        if not self.plain.any():
            return gradients
        return np.where(self.plain, self.batch.loss.gradient(self.batch.y, self.z), gradients)

    def _distance(self) -> Array:
        """``z - k - width (s - guess)``, the required value of ``q - p``."""
        return self.z - self.k - self.width * (self._gradients() - self.guess)

    def _mean_product(self, below: Array, above: Array, p: Array, q: Array) -> Array:
        """The weighted mean of the complementarity products of each element."""
        return np.einsum("kbm,kbm->b", self.v, p * below + q * above) / np.maximum(2 * self.v.sum(axis=(0, 2)), 1e-300)

    def follow(self) -> tuple[Array, Array]:
        begin = self._mean_product(self.below, self.above, self.p, self.q)
        for _ in range(TUNING.max_steps):
            check_time()
            mu = self._mean_product(self.below, self.above, self.p, self.q)
            unsolved = (mu > TUNING.relative_complementarity * begin) | (self.margin_step > TUNING.converged_margin_change)
            going = unsolved & (self.short < TUNING.max_short_steps)
            if not going.any():
                break
            self._step(mu, going)
        return self.coef, self.b

    def _step(self, mu: Array, going: Array) -> None:
        """Mehrotra's predictor-corrector step: a step to ``mu = 0`` gives the centring and the second-order correction.

        Only the elements ``going`` are updated.
        """
        below, above = self.below, self.above
        stiffness = self.p / below + self.q / above
        compliance = np.where(self.used, 1 / stiffness, 0.0)
        share = 1 + self.width * compliance.sum(axis=0)
        total_curvature = compliance.sum(axis=0) / share
        if self.plain.any():
            curvature, most = (of(self.batch.y, self.z) for of in (self.batch.loss.curvature, self.batch.loss.majorant))
            total_curvature = np.where(self.plain, np.maximum(curvature, 1e-3 * most), total_curvature)
        h = self.batch.v * total_curvature
        damping = None if self.batch.intercepts is None else 1e-14 * self.batch.intercepts.gather(h) + 1e-300
        direction = self.batch.design.factor(h, self.batch.intercepts, damping)
        missed = self.q - self.p - self._distance()

        def towards(low: Array, high: Array) -> tuple[Array, ...]:
            """The step after which the complementarity products are about ``low`` and ``high``."""
            rest = missed + (high / above - self.q) - (low / below - self.p)
            correlated = (compliance * rest).sum(axis=0) / share
            dcoef, db = direction(self.coef, self.batch.v * (self._gradients() - correlated))
            dz = self.batch.outputs(self.batch.design.predict(dcoef), db)
            change = dz - self.width * (dz * total_curvature - correlated)
            ds = compliance * (change - rest)
            dp = np.where(self.used, low / below - self.p - self.p / below * ds, 0.0)
            dq = np.where(self.used, high / above - self.q + self.q / above * ds, 0.0)
            return dcoef, db, dz, ds, dp, dq

        nothing = np.zeros_like(self.s)
        ds, dp, dq = towards(nothing, nothing)[3:]
        t = self._length(ds, dp, dq, 1.0)[:, None]
        left = self._mean_product(below + t * ds, above - t * ds, self.p + t * dp, self.q + t * dq)
        goal = (mu * (left / np.maximum(mu, 1e-300)) ** 3)[:, None]
        dcoef, db, dz, ds, dp, dq = towards(goal - ds * dp, goal + ds * dq)
        t = self._length(ds, dp, dq, TUNING.max_boundary_share)
        self.margin_step = np.where(self.margins, np.abs(dz), 0.0).max(axis=1)
        self.short = np.where(t < TUNING.min_step_length, self.short + 1, 0)
        t = (going * np.minimum(t, TUNING.max_margin_change / np.maximum(self.margin_step, 1e-300)))[:, None]
        self.coef, self.b, self.z = self.coef + t * dcoef, self.b + t * db, self.z + t * dz
        self.s, self.below, self.above = self.s + t * ds, below + t * ds, above - t * ds
        self.p, self.q = self.p + t * dp, self.q + t * dq

    def _length(self, ds: Array, dp: Array, dq: Array, inside: float) -> Array:
        """The longest step of each element, up to 1, that keeps all variables positive."""
        slack = np.array([self.below, self.above, self.p, self.q])
        change_rate = np.array([ds, -ds, dp, dq])
        fall = np.where(self.used, np.maximum(-change_rate / slack, 0.0), 0.0).max(axis=(0, 1, 3))
        return np.minimum(1.0, inside / np.maximum(fall, 1e-300))
