"""Limited-memory BFGS on a factor of the structure, with the tasks eliminated exactly (variable projection).

    h(Q) = F(QQ') + sum_t min_b [ loss of task t with weights Q b + alpha ||b||^2 ],   grad h = -ZZ'Q/(2 alpha) + grad F

The envelope theorem gives the gradient from the same ``Z = Phi'G`` that makes the certificate.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ..._time_limit import check_time
from ...problem import Problem
from ...problem.evidence import Iterate
from ...problem.solution import Start
from ..base import Run
from ..supervised.sides import FeatureSide, Side, Supervised, TaskSide

Array = np.ndarray


class Memory:
    """The two-loop recursion of L-BFGS on matrices."""

    def __init__(self, size: int):
        self.size = size
        self.pairs: list[tuple[Array, Array, float]] = []

    def add(self, s: Array, y: Array) -> None:
        curvature = float(np.vdot(s, y))
        if curvature > 1e-12 * np.linalg.norm(s) * np.linalg.norm(y):
            self.pairs = [*self.pairs, (s, y, curvature)][-self.size :]

    def direction(self, gradient: Array, metric: Array | None = None) -> Array:
        """Minus the approximate inverse Hessian times the gradient; ``metric`` preconditions its columns."""
        q = gradient.copy()
        coefficients = []
        for s, y, sy in reversed(self.pairs):
            a = float(np.vdot(s, q)) / sy
            q -= a * y
            coefficients.append(a)
        q = q if metric is None else q @ metric
        if self.pairs:
            s, y, sy = self.pairs[-1]
            q *= sy / float(np.vdot(y, y if metric is None else y @ metric))
        for (s, y, sy), a in zip(self.pairs, reversed(coefficients), strict=True):
            q += s * (a - float(np.vdot(y, q)) / sy)
        return -q


class LbfgsRun(Run):
    """L-BFGS steps on a factor ``Q`` of the structure; subclasses define the objective and the point."""

    Q: Array
    value: float
    gradient: Array

    def __init__(self, memory: int):
        self.memory = Memory(memory)
        self.fit: Any = None  # the tasks at ``Q``
        self.evaluated = False  # whether they are fitted under the current loss

    @abstractmethod
    def _evaluate(self, Q: Array) -> tuple[float, Array, Any]:
        """The objective with the tasks eliminated, its gradient, and the fitted tasks."""

    def _metric(self) -> Array | None:
        """A preconditioner on the columns of the gradient, if there is one."""
        return None

    def _acceptable(self, value: float, gradient: Array, t: float, direction: Array, descent: float) -> bool:
        """Armijo's rule, or the approximate Wolfe condition where rounding hides the decrease (Hager and Zhang)."""
        if value <= self.value + 1e-4 * t * descent:
            return True
        return value <= self.value + 1e-12 * abs(self.value) and float(np.vdot(gradient, direction)) <= -0.9 * descent

    def step(self, gap: float | None) -> None:
        if not self.evaluated:
            self.value, self.gradient, self.fit = self._evaluate(self.Q)
            self.evaluated = True
            return
        direction = self.memory.direction(self.gradient, self._metric())
        descent = float(np.vdot(direction, self.gradient))
        if descent >= 0:
            self.memory.pairs = []
            direction = -self.gradient
            descent = float(np.vdot(direction, self.gradient))
        t = 1.0
        if not self.memory.pairs:
            t = min(1.0, 0.1 * float(np.linalg.norm(self.Q)) / max(float(np.linalg.norm(direction)), 1e-300))
        for _ in range(30):
            check_time()
            value, gradient, fit = self._evaluate(self.Q + t * direction)
            if self._acceptable(value, gradient, t, direction, descent):
                break
            t /= 3
        else:
            if not self.memory.pairs:
                self.finished = "stalled"
            self.memory.pairs = []
            return
        self.memory.add(t * direction, gradient - self.gradient)
        self.Q = self.Q + t * direction
        self.value, self.gradient, self.fit = value, gradient, fit


class FactorRun(LbfgsRun):
    """On a factor ``Q`` of ``D = QQ'`` on the features, or of ``A`` on the tasks (``LowRankRun``)."""

    side: Side

    def __init__(self, memory: int, problem: Problem, start: Start | None):
        super().__init__(memory)
        self.problem = problem
        self.structure: Any = problem.structure  # checked by ``accepts``
        self.side, self.Q = self._first(start)

    def _first(self, start: Start | None) -> tuple[Side, Array]:
        side, Q = FeatureSide(self.problem), np.eye(self.problem.n_features)
        if not self.structure.known:
            W = start[0] if start is not None else side.supervise(Q).W
            Q = self._root_of(W, 1e-2 if start is None else 1e-4)
        return side, Q

    def retarget(self, problem: Problem) -> None:
        self.problem = self.side.problem = problem
        self.evaluated, self.finished = False, None

    def step(self, gap: float | None) -> None:
        if not self.structure.known:
            super().step(gap)
            return
        self.fit, self.finished = self.side.supervise(self.Q), "stalled"  # one exact step

    def _root_of(self, W: Array, share: float) -> Array:
        """A factor with ``min(r, T)`` columns, which suffice; directions outside the span of ``W`` get a share."""
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

    def point(self) -> Iterate:
        fit = self.fit
        if self.structure.known:
            return Iterate(fit.W, fit.b, fit.z, fit.gradients)
        value = self.structure.f(np.linalg.svd(self.structure.project_factor(self.Q), compute_uv=False) ** 2)
        return Iterate(fit.W, fit.b, fit.z, fit.gradients, penalty=fit.norm + value)


class LowRankRun(FactorRun):
    """L-BFGS on ``[B, e]`` for ``A = BB' + diag(e^2)``, with the tasks eliminated.

    h(A) + tr A,   grad_A = I - Z1'Z1 / (4 alpha),   grad_B = 2 grad_A B,   grad_e = 2 diag(grad_A) e
    """

    def _first(self, start: Start | None) -> tuple[Side, Array]:
        problem, side = self.problem, TaskSide(self.problem)
        W = start[0] if start is not None else side.supervise(np.eye(problem.n_tasks)).W
        return side, self.structure.first_factor(problem.alpha * W.T @ W, 1e-2 if start is None else 1e-4)

    def _evaluate(self, Q: Array) -> tuple[float, Array, Supervised]:
        problem = self.problem
        fit = self.side.supervise(self.structure.root_of(Q))
        Z1 = fit.Z - 2 * problem.ridge * fit.W
        gradient = np.eye(problem.n_tasks) - Z1.T @ Z1 / (4 * problem.alpha)
        return problem.loss_term(fit.z) + fit.norm + float(np.vdot(Q, Q)), self.structure.gradient_of(Q, gradient), fit

    def point(self) -> Iterate:
        fit, L = self.fit, self.structure.root_of(self.Q)
        penalty = fit.norm + float(np.vdot(self.Q, self.Q))
        return Iterate(fit.W, fit.b, fit.z, fit.gradients, L @ L.T, penalty, fit.Z, self.Q, fit.norm)
