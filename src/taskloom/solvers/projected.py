"""Variable projection by Newton's method, for the squared loss and the trace penalty: few steps, of few cheap products each.

``factor_newton`` walks; here are the tasks of a problem in blocks, and what it found, certified like any other iterate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse

from .._component import require
from ..problem import Problem
from ..structures import Schatten
from .base import Iterate, Run, Solver
from .factor_newton import Walk
from .proximal import Proximal
from .sides import buckets, lined_up
from .task_blocks import Stack

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Projected(Solver):
    """Newton's method on the factor of the structure, with conjugate gradients; for the trace penalty and the squared loss.

    Parameters
    ----------
    forcing : float
        Conjugate gradients stop when the residual of the Newton system has fallen to this share.
    """

    forcing: float = 0.05

    def check(self) -> None:
        require(0 < self.forcing < 1, f"Projected needs 0 < forcing < 1, got forcing={self.forcing!r}")

    def accepts(self, problem: Problem) -> str | None:
        trace = isinstance(problem.structure, Schatten) and problem.structure.p == 1
        if trace and problem.loss.quadratic and problem.ridge == 0 and not issparse(problem.features):
            return None
        return 'solver="projected" needs Trace(), the squared loss, dense features and no ridge; use solver="auto"'

    def begin(self, problem: Problem, start: tuple[Array, Array] | None, tol: float) -> Run:
        return ProjectedRun(self, problem, start, tol)


def blocks(problem: Problem) -> list[Stack]:
    """``sum_t ||y_t - X_t w_t||^2`` is the loss term at the best intercepts; tasks in the order of the buckets."""
    seen = problem.observations
    out = []
    for bucket in problem.once("buckets", lambda: buckets(seen.counts, seen.starts)):
        v = seen.weight[bucket.place] * bucket.mask
        root = np.sqrt(v)
        X, y = root[:, :, None] * bucket.take(lined_up(problem), problem), root * seen.y[bucket.place]
        if problem.fit_intercept:
            share = (root / v.sum(axis=1)[:, None])[:, None, :]
            X -= root[:, :, None] * np.matmul(share, X)
            y -= root * np.matmul(share, y[:, :, None])[:, :, 0]
        out.append(Stack.of(X, y))
    return out


class ProjectedRun(Run):
    """Newton steps until they promise less than the tolerance; accelerated proximal steps where nothing moves any more."""

    def __init__(self, settings: Projected, problem: Problem, start: tuple[Array, Array] | None, tol: float):
        self.problem, self.tol = problem, tol
        data = problem.once("blocks", lambda: blocks(problem))
        self.order = np.concatenate([bucket.tasks for bucket in problem.once("buckets", list)])
        self.means = problem.once("means", lambda: _means(problem))
        begin = None if start is None else start[0].T[self.order]
        self.walk = Walk(data, problem.alpha, 1, problem.scale, tol, settings.forcing, begin)
        self.fallback: Run | None = None

    def retarget(self, problem: Problem) -> None:
        raise AssertionError("the squared loss is smooth: nothing smooths it anew")

    def step(self, gap: float) -> Iterate:
        if self.fallback is not None:
            return self.fallback.step(gap)
        moved = self.walk.advance()
        iterate = self._iterate()
        if not moved:
            self.fallback = Proximal().begin(self.problem, (iterate.W, iterate.b), self.tol)
        return iterate

    def _iterate(self) -> Iterate:
        problem, here, (mean, mean_y) = self.problem, self.walk.here, self.means
        W = np.empty((problem.n_features, problem.n_tasks))
        W[:, self.order] = here.Q @ here.B.T
        b = mean_y - np.einsum("rt,rt->t", mean, W)
        z = problem.predict(W, b)
        slopes = problem.loss.slope(problem.observations.y, z)
        Z = problem.correlate(-problem.observations.weight * slopes)
        return Iterate(W, b, z, slopes, penalty=here.penalty, Z=Z)


def _means(problem: Problem) -> tuple[Array, Array]:
    """The means of the features (``r x T``) and of the targets; 0 where there are no intercepts."""
    if not problem.fit_intercept:
        return np.zeros((problem.n_features, problem.n_tasks)), np.zeros(problem.n_tasks)
    seen = problem.observations
    total = seen.sum_by_task(seen.weight)
    return problem.correlate(seen.weight) / total, seen.sum_by_task(seen.weight * seen.y) / total
