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
from ...design.input_spectrum import InputSpectrum
from ...design.smooth_loss_tasks import SmoothLossTasks
from ...problem import Problem
from ..supervised.batched_newton import TUNING, Batch, Move, NewtonSteps
from ..supervised.newton_systems import BatchDesign, Direction, Intercepts, OneEach
from .objective import Point, joined

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
        n, m, d = block.X.shape
        self.q = q = Q.shape[1]
        self.P, intercepts = (block.X.reshape(n * m, d) @ Q).reshape(n, m, q), None
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
        self.size = self.block.size

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


class FittedPoint(Point):
    """``h`` at ``Q``, whose columns are orthogonal; the tasks start from the best of some weights and intercepts.

    Weights and intercepts have one row for each task, in the order of the blocks.
    """

    parts: list[Fitted]  # type: ignore[assignment]

    def __init__(
        self,
        data: Sequence[SmoothLossTasks],
        problem: Problem,
        Q: Array,
        starts: Sequence[tuple[Array, Array]],
        target_decrease: float,
        spectrum: InputSpectrum | None = None,
    ):
        self.Q, self.alpha, self.p, self.spectrum = Q, problem.alpha, 1, spectrum
        self.places = [slice(*ends) for ends in pairwise(accumulate((len(part.X) for part in data), initial=0))]
        squared_norm = np.einsum("rq,rq->q", Q, Q)
        over = Q / np.maximum(squared_norm, 1e-12 * squared_norm.max(initial=0.0) + np.finfo(float).tiny)
        begin = [np.column_stack([W @ over, c]) for W, c in starts]
        self.parts = [
            Fitted(part, problem, Q, [start[place] for start in begin], target_decrease)
            for part, place in zip(data, self.places, strict=True)
        ]
        self.B, self.Z, self.c = (joined([getattr(part, name) for part in self.parts]) for name in ("B", "Z", "c"))
        self.value = float(np.vdot(Q, Q)) + sum(float(part.values.sum()) for part in self.parts)
        self.gradient = 2 * Q - self.Z.T @ self.B
        self.W = self.weights()

    def predicted(self, dQ: Array) -> tuple[Array, Array]:
        """The first-order change of ``B`` and of the intercepts when ``Q`` changes by ``dQ``."""
        dW, dZ, dB, dc = self.B @ dQ.T, self.Z @ dQ, np.empty_like(self.B), np.zeros_like(self.c)
        for part, place in zip(self.parts, self.places, strict=True):
            d = part.respond(dW[place], dZ[place])[0]
            dB[place] = d[:, : part.q]
            if d.shape[1] > part.q:
                dc[place] = d[:, part.q]
        return dB, dc

    def by_observation(self, read: Callable[[Fitted], Array], size: int) -> Array:
        """A quantity of each observation, in the order of the observations."""
        out = np.empty(size)
        for part in self.parts:
            batch = part.block.batch
            out[batch.place[batch.mask]] = read(part)[batch.mask]
        return out


def _best_of(batch: Batch, starts: list[Array]) -> Array:
    """The starting point of lowest objective for each task."""
    if len(starts) == 1:
        return starts[0]
    costs = [batch.value(start, start[:, :0]) for start in starts]
    return np.array(starts)[np.argmin(costs, axis=0), np.arange(len(costs[0]))]
