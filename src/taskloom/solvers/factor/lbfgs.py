"""Limited-memory BFGS on a matrix, one step at a time: what the solvers that work on a factor of the structure share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from ...problem import Problem
from ..base import Iterate, Run
from ..supervised.sides import Side, Supervised

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


class FactorRun(Run):
    """Steps on a factor ``Q`` of the structure; subclasses say what the objective is there, and how an iterate reads."""

    Q: Array
    value: float
    gradient: Array

    def __init__(self, memory: int, problem: Problem, side: Side):
        self.problem, self.side = problem, side
        self.structure: Any = problem.structure  # of the kind that the subclass needs: ``accepts`` saw to that
        self.memory = Memory(memory)
        self.fit: Supervised | None = None

    @abstractmethod
    def _evaluate(self, Q: Array) -> tuple[float, Array, Supervised]:
        """The objective with the tasks eliminated, its descent, and the tasks."""

    @abstractmethod
    def _iterate(self, fit: Supervised) -> Iterate:
        """The iterate at ``self.Q``."""

    def _acceptable(self, value: float, gradient: Array, t: float, direction: Array, descent: float) -> bool:
        """Armijo's rule; where rounding hides the decrease, the descent along the step decides (Hager and Zhang)."""
        if value <= self.value + 1e-4 * t * descent:
            return True
        return value <= self.value + 1e-12 * abs(self.value) and float(np.vdot(gradient, direction)) <= -0.9 * descent

    def retarget(self, problem: Problem) -> None:
        self.problem = self.side.problem = problem
        self.fit = None
        self.finished = None

    def step(self, gap: float) -> Iterate:
        if self.fit is None:
            self.value, self.gradient, self.fit = self._evaluate(self.Q)
            return self._iterate(self.fit)
        direction = self.memory.direction(self.gradient)
        descent = float(np.vdot(direction, self.gradient))
        if descent >= 0:
            self.memory.pairs = []
            direction = -self.gradient
            descent = float(np.vdot(direction, self.gradient))
        t = 1.0
        if not self.memory.pairs:
            t = min(1.0, 0.1 * float(np.linalg.norm(self.Q)) / max(float(np.linalg.norm(direction)), 1e-300))
        for _ in range(30):
            value, gradient, fit = self._evaluate(self.Q + t * direction)
            if self._acceptable(value, gradient, t, direction, descent):
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
