"""Features and targets with their means removed, where these are large: better conditioned, with the same values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...problem import Problem
from ...problem.solution import Solution, Start
from .base import Reformulation

Array = np.ndarray


class Centring(Reformulation):
    """The problem of the centred data; only intercepts change."""

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        return problem.targets.centering is not None

    def apply(self, problem: Problem, start: Start | None) -> Problem:
        centering = problem.targets.centering
        assert centering is not None
        self.centering, self.loss = centering, problem.loss
        return Problem.of(problem.model.centred, problem.alpha, problem.ridge)

    def to_inner(self, start: Start) -> Start:
        W, b = self.centering.to_inner(start.W, start.b)
        return start._replace(W=W, b=b)

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        return self.centering.to_original(W, b)

    def invert(self, solution: Solution) -> Solution:
        W, b = self.to_original(solution.W, solution.b)
        return replace(solution, W=W, b=self.loss.intercepts(b))
