"""Newton's method on the factor for losses other than the squared one, under the trace penalty.

As ``projected``, with the tasks fitted by Newton's method at every step (``fitted_tasks``), each from its last solution. The
quadratic model of the loss at the current predictions, a weighted squared loss, serves for the dual projection. Nonsmooth
losses are smoothed (``smoothing``), and smoothed anew around their gradients after a few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import issparse

from ..._array_api import row_products
from ...design.smooth_loss_tasks import SmoothLossTasks
from ...losses import RowLoss, Squared
from ...problem import Problem, Targets
from ...problem.dual_projection import project_dual
from ...problem.solution import Start
from ...structures import Schatten
from ..base import Iterate, Run, Solver
from ..proximal import Proximal
from .fitted_tasks import FittedPoint
from .newton import FIRST_SHRINKAGE_SHARE, MAX_DROPPED_COLUMN_SHARE, FactorNewton

Array = np.ndarray
MAX_STEPS_PER_CERTIFICATE = 20  # Newton steps after which a certificate is computed, whatever the predicted decrease
MIN_PREDICTED_DECREASE_SHARE = 0.05  # share of the tolerance at which the predicted decrease is worth a certificate
MAX_STALLED_ROUNDS = 6  # rounds that do not halve the gap, after which proximal steps take over (a new smoothing takes 3 or 4)
MIN_CURVATURE_SHARE = 1e-6  # smallest curvature of the quadratic model, relative to the majorant
MAX_DROPPED_GRADIENT = 0.9  # a small column is dropped if its squared dual norm is below this (it vanishes at optima below 1)


@dataclass(eq=False, repr=False)
class Reweighted(Solver):
    """Newton's method on the factor of the structure, with the tasks fitted at each step; for the trace penalty.

    Parameters
    ----------
    forcing : float, default=0.05
        Conjugate gradients stop when the residual of the Newton system has fallen to this share.
    """

    forcing: float = 0.05
    smoothing_schedule: ClassVar[tuple[float, float]] = (0.1, 4.0)

    def check(self) -> None:
        if not (0 < self.forcing < 1):
            raise ValueError(f"Reweighted needs 0 < forcing < 1, got forcing={self.forcing!r}")

    def accepts(self, problem: Problem) -> str | None:
        trace = isinstance(problem.structure, Schatten) and problem.structure.p == 1
        entries = not isinstance(problem.loss, RowLoss)
        if trace and entries and problem.ridge == 0 and not issparse(problem.features):
            return None
        return 'solver="reweighted" needs Trace(), a loss of single outputs, dense features and no ridge; use solver="auto"'

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        try:
            return ReweightedRun(self, problem, start, tol)
        except np.linalg.LinAlgError:  # the systems are singular in double precision
            return Proximal().begin(problem, start, tol)


class FittedFactorNewton(FactorNewton):
    """Newton steps on the factor, with the tasks fitted at each; rows of weights are tasks in the order of the blocks."""

    here: FittedPoint
    data: list[SmoothLossTasks]  # type: ignore[assignment]

    def __init__(self, problem: Problem, tol: float, forcing: float, start: Start | None):
        self.problem, self.alpha, self.p, self.scale, self.forcing = problem, problem.alpha, 1, problem.scale, forcing
        self.data, spectrum = problem.design.smooth_loss_tasks
        self.spectrum = None if spectrum.even else spectrum
        self.order = np.concatenate([part.batch.tasks for part in self.data])
        self.mean = np.concatenate([part.mean for part in self.data])
        self.accuracy = 2e-2 * self.scale
        self.target_decrease = MIN_PREDICTED_DECREASE_SHARE * tol * self.scale
        if start is None:
            c = problem.best_constants[self.order]
            W = self._independent_fits(c)
            Q = self._factor_of(W, FIRST_SHRINKAGE_SHARE)
        else:
            W = start[0].T[self.order]
            c = start[1][self.order] + row_products(self.mean, W)
            Q = self._factor_of(W)
        self.here = self._fitted(Q, [(W, c)])
        self.check_directions = start is not None

    def _fitted(self, Q: Array, starts: list[tuple[Array, Array]]) -> FittedPoint:
        return FittedPoint(self.data, self.problem, Q, starts, self.accuracy / self.problem.n_tasks, self.spectrum)

    def _at(self, Q: Array, *starts: tuple[Array, Array]) -> FittedPoint:
        """The tasks at ``Q``, starting from the best of these weights and intercepts and of the current ones."""
        return self._fitted(Q, [(self.here.W, self.here.c), *starts])

    def _independent_fits(self, c: Array) -> Array:
        """Ridge solutions of the tasks under the majorant of the loss."""
        W, sized, done = [], [], 0
        for block in self.data:
            constants, done = c[done : done + len(block.X)], done + len(block.X)
            loss, z = self.problem.loss.pick(block.batch.place), np.broadcast_to(constants[:, None], block.y.shape)
            h, g = block.v * loss.majorant(block.y, z), block.v * loss.gradient(block.y, z)
            block = block.sized(h)
            sized.append(block)
            W.append(block.independent_fit(h, g, self.problem.fit_intercept))
        self.data = sized
        return np.concatenate(W)

    def retarget(self, problem: Problem) -> None:
        """Continue with a loss that was smoothed anew."""
        self.problem = problem
        self.here = self._at(self.here.Q)

    def advance(self) -> bool:
        moved = self.check_directions and self._grow()
        for k in range(MAX_STEPS_PER_CERTIFICATE):
            metric = self.here.metric()
            predicted_decrease = float(np.vdot(self.here.gradient, metric(self.here.gradient))) / 2
            if k == 0:
                self.target_decrease = min(self.target_decrease, 0.3 * predicted_decrease)  # make at least one step
            if predicted_decrease <= self.target_decrease:
                break
            self.accuracy = 0.1 * predicted_decrease
            if not self._newton_step(metric, predicted_decrease):
                break
            moved = True
        self.check_directions, self.target_decrease = True, self.target_decrease / 10
        return moved

    def _newton_step(self, metric: Callable[[Array], Array], predicted_decrease: float) -> bool:
        here, move = self.here, self._direction(metric, predicted_decrease)
        directional_derivative = float(np.vdot(here.gradient, move))
        dB, dc = here.predicted(move)
        longest = min(1.0, float(np.linalg.norm(here.Q)) / float(np.linalg.norm(move)))
        for keep in (False, True):  # keep all columns if dropping some fails
            for t in longest * 0.25 ** np.arange(7):
                orthogonal, small = self._orthogonalised(here.Q + t * move)
                if keep and not small.any():
                    continue
                ahead = (here.B + t * dB) @ (here.Q + t * move).T, here.c + t * dc
                there = self._at(orthogonal if keep else orthogonal[:, ~small], ahead)
                if there.value < here.value + 1e-4 * t * directional_derivative:
                    self.here = there
                    return True
        return False

    def _orthogonalised(self, Q: Array) -> tuple[Array, Array]:
        """``Q`` with orthogonal columns, and which of them are small and vanish according to the dual."""
        squared_norm, V = np.linalg.eigh(Q.T @ Q)
        orthogonal, share = Q @ V, squared_norm / max(float(squared_norm.mean()), np.finfo(float).tiny)
        correlation = self.here.Z @ orthogonal
        size = np.einsum("tq,tq->q", correlation, correlation) / (4 * self.problem.alpha)  # times the squared norm
        return orthogonal, (share < MAX_DROPPED_COLUMN_SHARE) & (size < (MAX_DROPPED_GRADIENT - 2 * share) * squared_norm)


class ReweightedRun(Run):
    """Rounds of such steps; the dual candidate is projected under the quadratic model of the loss."""

    def __init__(self, settings: Reweighted, problem: Problem, start: Start | None, tol: float):
        self.problem, self.tol = problem, tol
        self.newton = FittedFactorNewton(problem, tol, settings.forcing, start)
        self.smoothed = problem.loss.is_surrogate
        self.fallback: Run | None = None
        self.last, self.idle = np.inf, 0

    def retarget(self, problem: Problem) -> None:
        self.problem, self.last, self.idle = problem, np.inf, 0
        (self.newton if self.fallback is None else self.fallback).retarget(problem)

    def step(self, gap: float) -> Iterate:
        if self.fallback is not None:
            return self.fallback.step(gap)
        if self.smoothed:
            self.newton.target_decrease = 0.01 * min(gap, 0.1 * self.newton.scale)
        self.idle = self.idle + 1 if gap > 0.5 * self.last else 0
        self.last = gap
        try:
            moved = self.newton.advance()
        except np.linalg.LinAlgError:
            moved = False
        iterate = self._iterate()
        if not moved or self.idle == MAX_STALLED_ROUNDS:
            self.fallback = Proximal().begin(self.problem, Start(iterate.W, iterate.b), self.tol)
        return iterate

    def _model(self) -> Problem | None:
        """The squared loss that equals the loss at the current predictions to second order; ``None`` without curvature."""
        problem, obs = self.problem, self.problem.observations
        z = self.newton.here.by_observation(lambda part: part.z, obs.y.size)
        h = np.maximum(problem.loss.curvature(obs.y, z), MIN_CURVATURE_SHARE * problem.loss.majorant(obs.y, z))
        if not np.all(h > 0):
            return None
        target = z - problem.loss.gradient(obs.y, z) / h
        design = problem.design.with_observations(obs.with_targets(target, obs.weight * h / 2))
        return problem.with_targets(Targets(design, Squared()))

    def _iterate(self) -> Iterate:
        problem, obs, here = self.problem, self.problem.observations, self.newton.here
        W, b = np.empty_like(here.W), np.empty_like(here.c)
        W[self.newton.order], b[self.newton.order] = here.W, here.c - row_products(self.newton.mean, here.W)
        z = here.by_observation(lambda part: part.z, obs.y.size)
        gradients = problem.loss.gradient(obs.y, z)
        G = problem.dual_candidate(gradients)
        model = self._model()
        projected = None if model is None else project_dual(model, G, problem.correlate(G), W.T, prepare=False)
        return Iterate(W.T, b, z, gradients if projected is None else -projected / obs.weight, penalty=here.penalty)
