"""Tasks under a smooth loss, fitted exactly at a factor ``Q`` of the structure, for Newton's method on ``Q``.

    h(Q) = ||Q||^2 + sum_t min_{b, c} [ sum_i v_i loss(y_i, p_i'b + c) + alpha ||b||^2 ],     p_i = Q'x_i,   w_t = Q b_t

The Hessian of ``h`` depends on the loss only through its curvatures at the minima of the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from ..._array_api import inverse_roots, times, times_transposed
from ...design.smooth_loss_tasks import SmoothLossTasks
from ...design.task_data import typical
from ...engines.local import LocalTasks, WeightSpectrum, gathered
from ...losses.base import Loss
from ...problem import Problem

Array = np.ndarray
MAX_NEWTON_STEPS = 100  # Newton steps for one task at one factor
MAX_DERIVATIVE_SHARE = 0.1  # the line search stops where the directional derivative has fallen to this share


@dataclass(frozen=True, eq=False)
class _Batch:
    """Tasks that have not converged: projected inputs, targets, weights and the loss."""

    P: Array
    y: Array
    v: Array
    loss: Loss

    def pick(self, which: Array) -> _Batch:
        return _Batch(self.P[which], self.y[which], self.v[which], self.loss.pick(which))

    def gradients(self, z: Array) -> Array:
        return self.v * self.loss.gradient(self.y, z)

    def curvatures(self, z: Array) -> Array:
        return self.v * self.loss.curvature(self.y, z)

    def lengths(
        self, z: Array, dz: Array, linear: Array, curvature: Array, directional_derivative: Array, target_decrease: float
    ) -> tuple[Array, Array]:
        """Step lengths of the tasks, and the gradients there: a full step, or where the directional derivative is small.

        The objective is convex along a step. Under a piecewise loss a full step may skip pieces and a short one takes many
        systems;
        gradients are cheap compared with a system.
        """
        low, high, t = np.zeros(len(z)), np.ones(len(z)), np.ones(len(z))
        down, up = directional_derivative, np.full(len(z), np.inf)
        for _ in range(40):
            with np.errstate(over="ignore", invalid="ignore"):  # an exponential may overflow
                g = self.gradients(z + t[:, None] * dz)
                derivative = np.einsum("bm,bm->b", g, dz) + linear + t * curvature
            derivative = np.where(np.isnan(derivative), np.inf, derivative)
            too_far = (derivative > np.where(t == 1, 0.9, MAX_DERIVATIVE_SHARE) * -directional_derivative) & (
                -directional_derivative > 1e-6 * target_decrease
            )
            too_near = (derivative < MAX_DERIVATIVE_SHARE * directional_derivative) & (t < 1)
            if not np.any(too_far | too_near):
                break
            high, up = np.where(too_far, t, high), np.where(too_far, derivative, up)
            low, down = np.where(too_near, t, low), np.where(too_near, derivative, down)
            between = low - (high - low) * down / (up - down)  # safeguarded secant step
            t = np.where(too_far | too_near, np.clip(between, 0.9 * low + 0.1 * high, 0.1 * low + 0.9 * high), t)
        return t, g


class Fitted:
    """The tasks of a block at ``Q``, fitted by Newton's method, and their derivatives in ``Q``."""

    def __init__(self, block: SmoothLossTasks, problem: Problem, Q: Array, starts: list[Array], target_decrease: float):
        n, m, d = block.X.shape
        self.q = q = Q.shape[1]
        self.P = (block.X.reshape(n * m, d) @ Q).reshape(n, m, q)
        if problem.fit_intercept:
            self.P = np.concatenate([self.P, block.batch.mask[:, :, None]], axis=2)
        self.block, self.loss, self.alpha = block, problem.loss.pick(block.batch.place), problem.alpha
        loss, alpha = self.loss, self.alpha
        self._fit(self._best_of([start[:, : self.P.shape[2]] for start in starts]), target_decrease)
        self.Z = -times_transposed(block.X, block.v * loss.gradient(block.y, self.z))
        self.B, self.c = self.beta[:, :q], self.beta[:, q] if problem.fit_intercept else np.zeros(n)
        # One minus the degrees of freedom of the fit over the number of independent observations with positive curvature.
        taken = q - 2 * alpha * np.einsum("bij,bij->b", self.R[:, :, :q], self.R[:, :, :q])
        curved_share = np.einsum("bm,bm->b", block.v, self.h > 0) / block.v.sum(axis=1)
        self.residual_share = np.maximum(1 - taken / np.maximum(curved_share * block.rows, 1), 0.1)
        self.block = block.sized(self.h)
        self.size, self.minimum = self.block.size, self.values

    def _best_of(self, starts: list[Array]) -> Array:
        """The starting point of lowest objective for each task."""
        if len(starts) == 1:
            return starts[0]
        costs = [self._value(times(self.P, start), start) for start in starts]
        return np.array(starts)[np.argmin(costs, axis=0), np.arange(len(costs[0]))]

    def _fit(self, beta: Array, target_decrease: float) -> None:
        """Newton steps until the predicted decrease of each task is at most ``target_decrease``; keeps the last system."""
        n, m, k = self.P.shape
        ridge = np.where(np.arange(k) < self.q, 2 * self.alpha, 0.0)
        self.beta, self.z, self.h, self.R = beta, times(self.P, beta), np.empty((n, m)), np.empty((n, k, k))
        batch, active, z = _Batch(self.P, self.block.y, self.block.v, self.loss), np.arange(n), self.z
        g = batch.gradients(z)
        for _ in range(MAX_NEWTON_STEPS):
            h = batch.curvatures(z)
            R = self._system(batch, z, h)
            gradient = times_transposed(batch.P, g) + ridge * beta
            step = -times_transposed(R, times(R, gradient))
            dz, correlation, directional_derivative = times(batch.P, step), ridge * step, np.einsum("bq,bq->b", gradient, step)
            linear, curvature = np.einsum("bq,bq->b", correlation, beta), np.einsum("bq,bq->b", correlation, step)
            t, g = batch.lengths(z, dz, linear, curvature, directional_derivative, target_decrease)
            beta, z = beta + t[:, None] * step, z + t[:, None] * dz
            self.beta[active], self.z[active], self.h[active], self.R[active] = beta, z, h, R
            left = -directional_derivative > target_decrease
            if not left.any():
                break
            if np.count_nonzero(left) < 0.7 * left.size:  # continue with the remaining tasks
                active, batch, z, beta, g = active[left], batch.pick(left), z[left], beta[left], g[left]
        self.values = self._value(self.z, self.beta)

    def _value(self, z: Array, beta: Array) -> Array:
        b = beta[:, : self.q]
        with np.errstate(over="ignore"):  # an exponential may overflow
            losses = self.loss.value(self.block.y, z)
        return np.einsum("bm,bm->b", self.block.v, losses) + self.alpha * np.einsum("bq,bq->b", b, b)

    def _system(self, batch: _Batch, z: Array, h: Array) -> Array:
        """The inverse root of the Hessian of the tasks, bordered by their intercepts."""
        K = np.matmul(batch.P.transpose(0, 2, 1), h[:, :, None] * batch.P)
        place = np.arange(self.q)
        K[:, place, place] += 2 * self.alpha
        if self.q < K.shape[1]:  # damp intercepts without curvature
            curvature_c, max_curvature_c = K[:, -1, -1], batch.v.sum(axis=1) * self.loss.max_curvature
            if not np.isfinite(self.loss.max_curvature):
                positive = curvature_c > 0  # else the loss is linear at all observations
                max_curvature_c = curvature_c
                if not positive.all():
                    max_curvature_c = np.where(positive, curvature_c, (batch.v * batch.loss.majorant(batch.y, z)).sum(axis=1))
            K[:, -1, -1] += np.maximum(np.where(curvature_c < 1e-4 * max_curvature_c, 1e-2, 1e-12) * max_curvature_c, 1e-300)
        return inverse_roots(K, 0.0)

    def respond(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        """The derivative of ``B`` (bordered by the intercepts), and of the gradients of the loss at fixed ``B``."""
        e = self.h * times(self.block.X, dW)
        correlation = -times_transposed(self.P, e)
        correlation[:, : self.q] += dZ
        return times_transposed(self.R, times(self.R, correlation)), e

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        """The derivatives of ``B`` and of ``-Z`` when ``Q`` changes ``QB`` by ``dW`` and ``Q'Z`` by ``dZ``."""
        d, e = self.respond(dW, dZ)
        return d[:, : self.q], times_transposed(self.block.X, e + self.h * times(self.P, d))


class FittedTasks(LocalTasks):
    """The tasks at ``Q``, fitted from the best of some weights and intercepts.

    Weights and intercepts have one row for each task, in the order of the blocks.
    """

    def __init__(self, engine: FittedEngine, Q: Array, starts: Sequence[tuple[Array, Array]]):
        squared_norm = np.einsum("rq,rq->q", Q, Q)
        over = Q / np.maximum(squared_norm, 1e-12 * squared_norm.max(initial=0.0) + np.finfo(float).tiny)
        begin = [np.column_stack([W @ over, c]) for W, c in starts]
        places = [slice(*ends) for ends in pairwise(accumulate((len(part.X) for part in engine.data), initial=0))]
        target_decrease = engine.accuracy / engine.n_tasks
        parts = [
            Fitted(part, engine.problem, Q, [start[place] for start in begin], target_decrease)
            for part, place in zip(engine.data, places, strict=True)
        ]
        super().__init__(parts, Q)
        self.c = gathered(parts, "c")
        self.W = self.weights()

    def ahead(self, dQ: Array) -> Callable[[float], tuple[Array, Array]]:
        """Weights and intercepts to first order, as a function of the length of a step along ``dQ``."""
        dW, dZ, dB, dc = self.B @ dQ.T, self.Z @ dQ, np.empty_like(self.B), np.zeros_like(self.c)
        for part, place in self.places():
            d = part.respond(dW[place], dZ[place])[0]
            dB[place] = d[:, : part.q]
            if d.shape[1] > part.q:
                dc[place] = d[:, part.q]
        return lambda t: ((self.B + t * dB) @ (self.Q + t * dQ).T, self.c + t * dc)

    def by_observation(self, read: Callable[[Fitted], Array], size: int) -> Array:
        """A quantity of each observation, in the order of the observations."""
        out = np.empty(size)
        for part in self.parts:
            batch = part.block.batch
            out[batch.place[batch.mask]] = read(part)[batch.mask]
        return out


class FittedEngine:
    """Tasks in memory under a smooth loss: at a factor, each is fitted by Newton's method from its last solution."""

    target_squares = 0.0  # shrinkage comes from the majorant of the loss instead
    dtype = np.dtype(float)

    def __init__(self, problem: Problem):
        self.problem, self.n_tasks, self.n_features = problem, problem.n_tasks, problem.n_features
        self.data, spectrum = problem.design.smooth_loss_tasks
        self.spectrum = None if spectrum.even else spectrum
        self.order = np.concatenate([part.batch.tasks for part in self.data])
        self.mean = np.concatenate([part.mean for part in self.data])
        self.accuracy = 2e-2 * problem.scale  # how far above their minimum all tasks may stay together
        self.single_data = None

    @property
    def size(self) -> float:
        return typical(np.concatenate([block.size for block in self.data]))

    def independent_fits(self, shrinkage: float) -> WeightSpectrum:
        """Ridge solutions of the tasks under the majorant of the loss at the best constants."""
        W, sized, done, c = [], [], 0, self.problem.best_constants[self.order]
        for block in self.data:
            constants, done = c[done : done + len(block.X)], done + len(block.X)
            loss, z = self.problem.loss.pick(block.batch.place), np.broadcast_to(constants[:, None], block.y.shape)
            h, g = block.v * loss.majorant(block.y, z), block.v * loss.gradient(block.y, z)
            sized.append(block.sized(h))
            W.append(sized[-1].independent_fit(h, g, self.problem.fit_intercept))
        self.data, self.first = sized, (np.concatenate(W), c)
        return WeightSpectrum.of(self.first[0])

    def eliminate(self, Q: Array, near: FittedTasks | None = None, start: tuple[Array, Array] | None = None) -> FittedTasks:
        if near is None:
            return FittedTasks(self, Q, [self.first if start is None else start])
        return FittedTasks(self, Q, [(near.W, near.c)] if start is None else [(near.W, near.c), start])

    def for_directions(self, tasks: FittedTasks) -> FittedTasks:
        return tasks

    def refine(self) -> bool:
        return False
