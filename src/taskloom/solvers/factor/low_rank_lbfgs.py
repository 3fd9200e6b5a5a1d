"""Variable projection on ``A = BB' + diag(e^2)``: tasks eliminated exactly, limited-memory BFGS on ``[B, e]``.

h(A) + tr A,   grad_A = I - Z1'Z1 / (4 alpha),   grad_B = 2 grad_A B,   grad_e = 2 diag(grad_A) e
"""

from __future__ import annotations

import numpy as np

from ...problem import Problem
from ...problem.solution import Start
from ..base import Iterate
from ..supervised.sides import Supervised, TaskSide
from .lbfgs import FactorRun

Array = np.ndarray


class LowRankRun(FactorRun):
    """Quasi-Newton steps on the factor of a structure of low rank on the tasks."""

    def __init__(self, memory: int, problem: Problem, start: Start | None):
        super().__init__(memory, problem, TaskSide(problem))
        W = start[0] if start is not None else self.side.supervise(np.eye(problem.n_tasks)).W
        self.Q = self.structure.first_factor(problem.alpha * W.T @ W, 1e-2 if start is None else 1e-4)

    def _evaluate(self, Q: Array) -> tuple[float, Array, Supervised]:
        problem = self.problem
        fit = self.side.supervise(self.structure.root_of(Q))
        gradient = np.eye(problem.n_tasks) - self._pull(fit)
        return problem.loss_term(fit.z) + fit.norm + float(np.vdot(Q, Q)), self.structure.gradient_of(Q, gradient), fit

    def _pull(self, fit: Supervised) -> Array:
        Z1 = fit.Z - 2 * self.problem.ridge * fit.W
        return Z1.T @ Z1 / (4 * self.problem.alpha)

    def _iterate(self, fit: Supervised) -> Iterate:
        L = self.structure.root_of(self.Q)
        penalty = fit.norm + float(np.vdot(self.Q, self.Q))
        return Iterate(fit.W, fit.b, fit.z, fit.gradients, L @ L.T, penalty, fit.Z, self.Q, fit.norm)
