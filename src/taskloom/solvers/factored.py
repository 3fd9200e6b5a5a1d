"""Variable projection: ``D = QQ'`` on the feature side, tasks eliminated exactly, limited-memory BFGS on ``Q``.

    h(Q) = F(QQ') + sum_t min_b [ loss of task t with weights Q b + alpha ||b||^2 ],   grad h = -ZZ'Q/(2 alpha) + grad F

The envelope theorem gives the slope from the same ``Z = Phi'G`` that makes the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._component import require
from ..problem import Problem
from .base import Iterate, Run, Solver
from .sides import FeatureSide, Supervised

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Factored(Solver):
    """L-BFGS on the factor of the structure; for structures that are functions of the nonzero eigenvalues.

    Parameters
    ----------
    memory : int
        Number of past steps that the quasi-Newton direction remembers.
    """

    memory: int = 20

    def check(self) -> None:
        require(self.memory >= 1, f"Factored needs memory >= 1, got memory={self.memory!r}")

    def accepts(self, problem: Problem) -> str | None:
        if problem.structure.either_side:
            return None
        name = type(problem.structure).__name__
        if problem.structure.on_features:
            return f'solver="factored" needs a structure of eigenvalues; for {name} use solver="proximal" or "auto"'
        return (
            f'solver="factored" needs a structure that ignores zero eigenvalues (trace, Schatten, unit trace, independent); '
            f'for {name} use solver="alternating" or "auto"'
        )

    def begin(self, problem: Problem, start: tuple[Array, Array] | None, tol: float) -> Run:
        return _FactoredRun(self, problem, start)


class _Memory:
    """The two-loop recursion of L-BFGS on matrices."""

    def __init__(self, size: int):
        self.size = size
        self.pairs: list[tuple[Array, Array, float]] = []

    def add(self, s: Array, y: Array) -> None:
        curvature = float(np.vdot(s, y))
        if curvature > 1e-12 * np.linalg.norm(s) * np.linalg.norm(y):
            self.pairs = [*self.pairs, (s, y, curvature)][-self.size :]

    def direction(self, gradient: Array) -> Array:
        q = gradient.copy()
        coefficients = []
        for s, y, sy in reversed(self.pairs):
            a = float(np.vdot(s, q)) / sy
            q -= a * y
            coefficients.append(a)
        if self.pairs:
            s, y, sy = self.pairs[-1]
            q *= sy / float(np.vdot(y, y))
        for (s, y, sy), a in zip(self.pairs, reversed(coefficients), strict=True):
            q += s * (a - float(np.vdot(y, q)) / sy)
        return -q


class _FactoredRun(Run):
    def __init__(self, settings: Factored, problem: Problem, start: tuple[Array, Array] | None):
        self.problem = problem
        self.structure: Any = problem.structure  # an EitherSide, or known: ``accepts`` saw to that
        self.side = FeatureSide(problem)
        self.memory = _Memory(settings.memory)
        self.fit: Supervised | None = None
        self.Q = np.eye(problem.n_features)
        if not self.structure.known:
            W = start[0] if start is not None else self.side.supervise(self.Q).W
            self.Q = self._root_of(W, 1e-2 if start is None else 1e-4)

    def _root_of(self, W: Array, share: float) -> Array:
        """A factor with ``min(r, T)`` columns: no optimum needs more. Directions that ``W`` lacks get a share."""
        q = min(self.problem.n_features, self.problem.n_tasks)
        U, w, _ = np.linalg.svd(W, full_matrices=False)
        energy = self.problem.alpha * w[:q] ** 2
        d = self.structure.f_best(energy + share * energy.mean() + 1e-300)
        return U[:, :q] * np.sqrt(d)

    def _evaluate(self, Q: Array) -> tuple[float, Array, Supervised]:
        problem = self.problem
        landed = self.structure.land(Q)
        fit = self.side.supervise(landed)
        # alpha tr(D^+ WW') + ridge ||W||^2 = <W, Z> / 2 at the minimum over the tasks
        value = problem.loss_term(fit.z) + float(np.vdot(fit.W, fit.Z)) / 2
        value += self.structure.f(np.linalg.svd(landed, compute_uv=False) ** 2)
        Z1 = fit.Z - 2 * problem.ridge * fit.W
        slope = -Z1 @ (Z1.T @ landed) / (2 * problem.alpha)
        return value, self.structure.pull_back(Q, slope), fit

    def _iterate(self, fit: Supervised) -> Iterate:
        if self.structure.known:
            return Iterate(fit.W, fit.b, fit.z, fit.slopes)
        value = self.structure.f(np.linalg.svd(self.structure.land(self.Q), compute_uv=False) ** 2)
        return Iterate(fit.W, fit.b, fit.z, fit.slopes, penalty=fit.norm + value)

    def _acceptable(self, value: float, gradient: Array, t: float, direction: Array, slope: float) -> bool:
        """Armijo's rule; where rounding hides the decrease, the slope along the step decides (Hager and Zhang)."""
        if value <= self.value + 1e-4 * t * slope:
            return True
        return value <= self.value + 1e-12 * abs(self.value) and float(np.vdot(gradient, direction)) <= -0.9 * slope

    def retarget(self, problem: Problem) -> None:
        self.problem = self.side.problem = problem
        self.fit = None
        self.finished = None

    def step(self, gap: float) -> Iterate:
        if self.structure.known:
            fit = self.side.supervise(self.Q)
            self.finished = "stalled"
            return self._iterate(fit)
        if self.fit is None:
            self.value, self.gradient, self.fit = self._evaluate(self.Q)
            return self._iterate(self.fit)
        direction = self.memory.direction(self.gradient)
        slope = float(np.vdot(direction, self.gradient))
        if slope >= 0:
            self.memory.pairs = []
            direction = -self.gradient
            slope = float(np.vdot(direction, self.gradient))
        t = 1.0
        if not self.memory.pairs:
            t = min(1.0, 0.1 * float(np.linalg.norm(self.Q)) / max(float(np.linalg.norm(direction)), 1e-300))
        for _ in range(30):
            value, gradient, fit = self._evaluate(self.Q + t * direction)
            if self._acceptable(value, gradient, t, direction, slope):
                break
            t /= 3
        else:
            if not self.memory.pairs:
                self.finished = "stalled"
            self.memory.pairs = []
            return self._iterate(self.fit)
        self.memory.add(t * direction, gradient - self.gradient)
        self.Q = self.Q + t * direction
        self.value, self.gradient, self.fit = value, gradient, fit
        return self._iterate(fit)
