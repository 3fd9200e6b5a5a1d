"""Variable projection: ``D = QQ'`` on the feature side, tasks eliminated exactly, limited-memory BFGS on ``Q``.

    h(Q) = F(QQ') + sum_t min_b [ loss of task t with weights Q b + alpha ||b||^2 ],   grad h = -ZZ'Q/(2 alpha) + grad F

The envelope theorem gives the gradient from the same ``Z = Phi'G`` that makes the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...problem import Problem
from ...problem.solution import Start
from ..base import Iterate, Run, Solver
from ..supervised.sides import FeatureSide, Supervised
from .lbfgs import FactorRun
from .low_rank_lbfgs import LowRankRun

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Factored(Solver):
    """L-BFGS on the factor of the structure; for functions of the nonzero eigenvalues, and for ``LowRank``.

    Parameters
    ----------
    memory : int, default=20
        Number of past steps that the quasi-Newton direction remembers.
    """

    memory: int = 20

    def check(self) -> None:
        if self.memory < 1:
            raise ValueError(f"Factored needs memory >= 1, got memory={self.memory!r}")

    def accepts(self, problem: Problem) -> str | None:
        if problem.structure.either_side or problem.structure.task_factor:
            return None
        name = type(problem.structure).__name__
        if problem.structure.on_features:
            return f'solver="factored" needs a structure of eigenvalues; for {name} use solver="proximal" or "auto"'
        return (
            f'solver="factored" needs a structure that ignores zero eigenvalues (trace, Schatten, unit trace, independent); '
            f'for {name} use solver="alternating" or "auto"'
        )

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        if problem.structure.task_factor:
            return LowRankRun(self.memory, problem, start)
        return _FactoredRun(self, problem, start)


class _FactoredRun(FactorRun):
    def __init__(self, settings: Factored, problem: Problem, start: Start | None):
        super().__init__(settings.memory, problem, FeatureSide(problem))
        self.Q = np.eye(problem.n_features)
        if not self.structure.known:
            W = start[0] if start is not None else self.side.supervise(self.Q).W
            self.Q = self._root_of(W, 1e-2 if start is None else 1e-4)

    def _root_of(self, W: Array, share: float) -> Array:
        """A factor with ``min(r, T)`` columns: no optimum needs more. Directions that ``W`` lacks get a share."""
        q = min(self.problem.n_features, self.problem.n_tasks)
        U, w, _ = np.linalg.svd(W, full_matrices=False)
        squared_norm = self.problem.alpha * w[:q] ** 2
        d = self.structure.f_best(squared_norm + share * squared_norm.mean() + 1e-300)
        return U[:, :q] * np.sqrt(d)

    def _evaluate(self, Q: Array) -> tuple[float, Array, Supervised]:
        problem = self.problem
        landed = self.structure.project_factor(Q)
        fit = self.side.supervise(landed)
        # alpha tr(D^+ WW') + ridge ||W||^2 = <W, Z> / 2 at the minimum over the tasks
        value = problem.loss_term(fit.z) + float(np.vdot(fit.W, fit.Z)) / 2
        value += self.structure.f(np.linalg.svd(landed, compute_uv=False) ** 2)
        Z1 = fit.Z - 2 * problem.ridge * fit.W
        gradient = -Z1 @ (Z1.T @ landed) / (2 * problem.alpha)
        return value, self.structure.pull_back(Q, gradient), fit

    def _iterate(self, fit: Supervised) -> Iterate:
        if self.structure.known:
            return Iterate(fit.W, fit.b, fit.z, fit.gradients)
        value = self.structure.f(np.linalg.svd(self.structure.project_factor(self.Q), compute_uv=False) ** 2)
        return Iterate(fit.W, fit.b, fit.z, fit.gradients, penalty=fit.norm + value)

    def step(self, gap: float) -> Iterate:
        if self.structure.known:
            self.finished = "stalled"
            return self._iterate(self.side.supervise(self.Q))
        return super().step(gap)
