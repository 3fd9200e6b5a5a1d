"""Newton's method on the factor (``factor_newton``) for a problem with the squared loss and the trace penalty: the fastest way.

The first steps, and the directions of all, are computed in single precision, where units leave room for it. Where nothing moves
any more although the certificate asks for it, proximal steps take over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse

from .._component import require
from ..problem import Problem
from ..structures import Schatten
from .base import Iterate, Run, Solver
from .blocks import blocks, means, rough
from .factor_newton import Walk
from .proximal import Proximal

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Projected(Solver):
    """Newton's method on the factor of the structure, with conjugate gradients; for the trace penalty and the squared loss.

    Parameters
    ----------
    forcing : float
        Conjugate gradients stop when the residual of the Newton system has fallen to this share.
    single : bool
        Whether the first steps, and the directions of all, are computed in single precision. They cost less; equal problems
        that are written differently (a row twice, or with weight 2) then end equal within the tolerance, not exactly.
    """

    forcing: float = 0.1
    single: bool = True

    def check(self) -> None:
        require(0 < self.forcing < 1, f"Projected needs 0 < forcing < 1, got forcing={self.forcing!r}")

    def accepts(self, problem: Problem) -> str | None:
        trace = isinstance(problem.structure, Schatten) and problem.structure.p == 1
        if trace and problem.loss.quadratic and problem.ridge == 0 and not issparse(problem.features):
            return None
        return 'solver="projected" needs Trace(), the squared loss, dense features and no ridge; use solver="auto"'

    def begin(self, problem: Problem, start: tuple[Array, Array] | None, tol: float) -> Run:
        return ProjectedRun(self, problem, start, tol)


class ProjectedRun(Run):
    """Newton steps until they promise less than the tolerance; a proximal step where the certificate disagrees."""

    def __init__(self, settings: Projected, problem: Problem, start: tuple[Array, Array] | None, tol: float):
        self.problem, self.tol = problem, tol
        data = problem.once("blocks", lambda: blocks(problem))
        single = problem.once("rough blocks", lambda: rough(data)) if settings.single else None
        self.means = problem.once("means", lambda: means(problem))
        self.order = data[0].tasks if len(data) == 1 else np.concatenate([block.tasks for block in data])
        begin = None if start is None else start[0].T[self.order]
        self.walk = Walk(data, problem.alpha, 1, problem.scale, tol, settings.forcing, begin, single)
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
        B, Q = np.empty((problem.n_tasks, here.Q.shape[1])), here.Q.astype(float, copy=False)
        B[self.order] = here.B
        W = B @ Q.T

        def settle() -> tuple[float, Array]:
            A, penalty = problem.structure.handed_back(np.sqrt(problem.alpha) * (np.linalg.qr(Q, mode="r") @ B.T))
            return penalty, A

        b = mean_y - np.einsum("rt,tr->t", mean, W)
        z = problem.predict(W.T, b)
        slopes = problem.loss.slope(problem.observations.y, z)
        Z = problem.correlate(-problem.observations.weight * slopes)
        return Iterate(W.T, b, z, slopes, penalty=here.penalty, Z=Z, settle=settle)
