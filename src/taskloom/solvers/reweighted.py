"""Newton's method on the loss, for smooth losses under the trace penalty: a sequence of squared losses.

Around the predictions ``z`` at hand, ``loss(y, u) = const + h/2 (u - (z - s/h))^2``, with slope ``s`` and curvature ``h``: a
problem with the squared loss, other weights and other targets, which ``projected`` solves in a few cheap steps from where the
last one ended. A step that does not lower the objective is cut, which is safe: the objective is convex along it. The same
model says at what price a dual candidate moves, so that it can be mended as for the squared loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse

from .._component import require
from ..losses import RowLoss, Squared
from ..problem import LOSS_FREE, Problem
from ..structures import Schatten
from .base import Iterate, Run, Solver
from .projected import Projected, ProjectedRun
from .proximal import Proximal
from .repair import repaired

Array = np.ndarray
PATIENCE = 2  # steps that do not halve the gap, after which proximal steps take over
BY_WEIGHT = ("mean gram", "weights")  # what depends on the weights of the observations


@dataclass(eq=False, repr=False)
class Reweighted(Solver):
    """A squared loss in place of a smooth one, again and again; for the trace penalty.

    Parameters
    ----------
    floor : float
        The least curvature of an observation, as a share of that of a parabola above the loss: straight pieces have none.
    """

    floor: float = 1e-3

    def check(self) -> None:
        require(0 < self.floor <= 1, f"Reweighted needs 0 < floor <= 1, got floor={self.floor!r}")

    def accepts(self, problem: Problem) -> str | None:
        trace = isinstance(problem.structure, Schatten) and problem.structure.p == 1
        entries = not isinstance(problem.loss, RowLoss)
        if trace and entries and problem.ridge == 0 and not issparse(problem.features):
            return None
        return 'solver="reweighted" needs Trace(), a loss of single outputs, dense features and no ridge; use solver="auto"'

    def begin(self, problem: Problem, start: tuple[Array, Array] | None, tol: float) -> Run:
        return ReweightedRun(self, problem, start, tol)


class ReweightedRun(Run):
    """One model a step, solved as finely as the gap at hand makes worthwhile."""

    def __init__(self, settings: Reweighted, problem: Problem, start: tuple[Array, Array] | None, tol: float):
        self.settings, self.problem, self.tol = settings, problem, tol
        self.started = start is not None
        nothing = np.zeros((problem.n_features, problem.n_tasks))
        constants = problem.best_constants if problem.fit_intercept else np.zeros(problem.n_tasks)
        self.W: Array = nothing if start is None else start[0]
        self.b: Array = constants if start is None else start[1]
        self.z = problem.predict(self.W, self.b)
        self.penalty = problem.best_penalty(self.W)[0]
        self.fallback: Run | None = None
        self.last, self.idle = np.inf, 0

    def retarget(self, problem: Problem) -> None:
        self.problem, self.last, self.idle = problem, np.inf, 0
        if self.fallback is not None:
            self.fallback.retarget(problem)

    def _model(self) -> Problem:
        """The squared loss that is the loss around the predictions at hand, to second order."""
        problem, seen = self.problem, self.problem.observations
        h = np.maximum(problem.loss.curvature(seen.y, self.z), self.settings.floor * problem.loss.majorant(seen.y, self.z))
        target = self.z - problem.loss.slope(seen.y, self.z) / h
        model = replace(problem, observations=replace(seen, y=target, weight=seen.weight * h / 2), loss=Squared())
        model._memo.update({key: problem._memo[key] for key in LOSS_FREE if key in problem._memo and key not in BY_WEIGHT})
        return model

    def step(self, gap: float) -> Iterate:
        if self.fallback is not None:
            return self.fallback.step(gap)
        problem, model = self.problem, self._model()
        scale = problem.scale
        inner = ProjectedRun(Projected(single=False), model, (self.W, self.b) if self.started else None, self.tol)
        share = gap / max(scale, 1e-300) if np.isfinite(gap) else 1.0
        inner.walk.enough = scale * max(1e-3 * share * min(1.0, 1e3 * share), 1e-14)
        there = inner.step(np.inf)
        self.started = True
        self.idle = self.idle + 1 if gap > 0.5 * self.last else 0
        self.last = gap
        if not self._walk(there) or self.idle == PATIENCE:  # a direction that is missing, or pieces without curvature
            self.fallback = Proximal().begin(problem, (self.W, self.b), self.tol)
        return self._iterate(model)

    def _walk(self, there: Iterate) -> bool:
        """Towards the minimum of the model, as far as the objective falls; False if it does not."""
        problem = self.problem
        here = problem.loss_term(self.z) + self.penalty
        t = 1.0
        while t > 1e-4:
            W, b, z = (old + t * (new - old) for old, new in ((self.W, there.W), (self.b, there.b), (self.z, there.z)))
            penalty = problem.best_penalty(W)[0]
            if problem.loss_term(z) + penalty < here:
                self.W, self.b, self.z, self.penalty = W, b, z, penalty
                return True
            t /= 3
        return False

    def _iterate(self, model: Problem) -> Iterate:
        problem, seen = self.problem, self.problem.observations
        slopes = problem.loss.slope(seen.y, self.z)
        G = problem.dual_candidate(slopes)
        Z = problem.correlate(G)
        mended = repaired(model, G, Z, self.W)
        if mended is not None:
            slopes = -mended / seen.weight
        return Iterate(self.W, self.b, self.z, slopes, penalty=self.penalty)
