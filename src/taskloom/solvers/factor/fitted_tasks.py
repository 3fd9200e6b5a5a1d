"""Tasks under a smooth loss, fitted exactly at a factor ``Q`` of the structure, for Newton's method on ``Q``.

    h(Q) = ||Q||^2 + sum_t min_{b, c} [ sum_i v_i loss(y_i, p_i'b + c) + alpha ||b||^2 ],     p_i = Q'x_i,   w_t = Q b_t

The Hessian of ``h`` depends on the loss only through its curvatures at the minima of the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np

from ..._array_api import inverse_roots, times, times_transposed
from ...design.smooth_loss_tasks import SmoothLossTasks
from ...design.task_data import typical
from ...engines.local import LocalTasks, WeightSpectrum, gathered
from ...problem import Problem
from ..supervised.batched_newton import TUNING, Batch, Move, NewtonSteps
from ..supervised.newton_systems import BatchDesign, Direction, Intercepts, OneEach

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class BorderedColumns(BatchDesign):
    """Projected inputs (``B x m x k``), with the mask of each task as the last column if it has an intercept.

    ``ridge`` (``k``) is twice the strength of the penalty of each coefficient, zero for the intercept.
    """

    bordered: ClassVar[bool] = True
    P: Array
    ridge: Array

    def start(self, u: Array) -> Array:
        return times_transposed(self.P, u)

    def predict(self, coef: Array) -> Array:
        return times(self.P, coef)

    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        return np.einsum("bi,bi->b", self.ridge * coef, other)

    def pick(self, which: Array) -> BorderedColumns:
        return BorderedColumns(self.P[which], self.ridge)

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        K = np.matmul(self.P.transpose(0, 2, 1), h[:, :, None] * self.P)
        place = np.arange(self.ridge.size)
        K[:, place, place] += self.ridge
        if damping is not None:
            K[:, -1, -1] += damping[:, 0]
        return RootDirection(self, inverse_roots(K, 0.0))


@dataclass(frozen=True, eq=False)
class RootDirection:
    """With the inverse root ``R`` of the Hessian of each task, bordered by its intercept."""

    design: BorderedColumns
    R: Array

    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]:
        gradient = self.design.start(g) + self.design.ridge * coef
        return -times_transposed(self.R, times(self.R, gradient)), np.zeros((len(g), 0))


class Fitted:
    """The tasks of a block at ``Q``, fitted by Newton's method, and their derivatives in ``Q``."""

    def __init__(self, block: SmoothLossTasks, problem: Problem, Q: Array, starts: list[Array], target_decrease: float):
        (n, m), d = block.y.shape, len(Q)
        self.q = q = Q.shape[1]
        self.P, intercepts = np.broadcast_to((block.X.reshape(-1, d) @ Q).reshape(-1, m, q), (n, m, q)), None
        if problem.fit_intercept:
            intercepts = OneEach(block.batch.mask.astype(float))
            self.P = np.concatenate([self.P, intercepts.dense()], axis=2)
        k, loss, alpha = self.P.shape[2], problem.loss.pick(block.batch.place), problem.alpha
        design = BorderedColumns(self.P, np.where(np.arange(k) < q, 2 * alpha, 0.0))
        batch = Batch(loss, block.y, block.v, design, intercepts)
        self.h, self.R = np.empty((n, m)), np.empty((n, k, k))  # of the last step of each task
        best = _best_of(batch, [start[:, :k] for start in starts])
        steps = NewtonSteps(batch, best, np.zeros((n, 0)), target_decrease, self._keep)
        steps.minimise(np.arange(n), TUNING.max_steps_at_factor)
        beta, self.z = steps.points.coef, steps.points.plain
        self.values = batch.value_at(steps.points)
        self.Z = -times_transposed(block.X, steps.points.g)
        self.B, self.c = beta[:, :q], beta[:, q] if problem.fit_intercept else np.zeros(n)
        # One minus the degrees of freedom of the fit over the number of independent observations with positive curvature.
        taken = q - 2 * alpha * np.einsum("bij,bij->b", self.R[:, :, :q], self.R[:, :, :q])
        curved_share = np.einsum("bm,bm->b", block.v, self.h > 0) / block.v.sum(axis=1)
        self.residual_share = np.maximum(1 - taken / np.maximum(curved_share * block.rows, 1), 0.1)
        self.block = block.sized(self.h)
        self.size, self.minimum = self.block.size, self.values

    def _keep(self, active: Array, move: Move) -> None:
        self.h[active], self.R[active] = move.h, move.direction.R  # type: ignore[attr-defined]

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
        places = [slice(*ends) for ends in pairwise(accumulate((len(part.y) for part in engine.data), initial=0))]
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
            constants, done = c[done : done + len(block.y)], done + len(block.y)
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


def _best_of(batch: Batch, starts: list[Array]) -> Array:
    """The starting point of lowest objective for each task."""
    if len(starts) == 1:
        return starts[0]
    costs = [batch.value(start, start[:, :0]) for start in starts]
    return np.array(starts)[np.argmin(costs, axis=0), np.arange(len(costs[0]))]
