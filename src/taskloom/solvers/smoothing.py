"""Losses with kinks: the proximal method of multipliers, around any solver for smooth losses."""

from __future__ import annotations

import numpy as np

from ..problem import Problem
from .base import Iterate, stationarity


class SmoothedProblem:
    """A smooth stand-in for the loss, renewed whenever it has been minimised well enough.

    The stand-in is the loss smoothed around a guess of its gradients. When its own duality gap is a small share of the true
    one, the smoothing is what is left of the error: the gradients become the new guess. The width only shrinks, by the factor
    ``cut``, when the gap stays above the share ``hope`` of what it was.
    """

    def __init__(self, problem: Problem, hope: float = 0.5, cut: float = 3.0):
        self.hope, self.cut = hope, cut
        seen = problem.observations
        constants = problem.best_constants
        self.true = problem
        self.width = 0.3 * _unit(problem, seen.y - constants[seen.task])
        self.narrowest = 1e-6 * self.width
        self.reached = np.inf
        self.renew(np.zeros(seen.y.size))

    def renew(self, guess: np.ndarray) -> None:
        """Smooth the loss around these gradients."""
        self.problem = self.true.with_loss(self.true.loss.smoothed(guess, self.width))

    def gap(self, point: Iterate) -> float:
        """The duality gap of the stand-in at this iterate; the square of its gradient where there is none."""
        if not self.problem.structure.convex:
            return stationarity(self.problem, point)[0] ** 2 * self.true.scale
        dual = self.problem.dual(self.problem.dual_candidate(point.gradients), point.W, point.A)
        return max(point.objective(self.problem) - dual, 0.0)

    def update(self, point: Iterate, gap: float, true_gap: float, stuck: bool) -> bool:
        """Renew the stand-in if it has been minimised well enough; True when it has."""
        solved = gap <= 0.3 * true_gap
        if not (solved or stuck):
            return False
        if solved and true_gap > self.hope * self.reached:
            self.width = np.maximum(self.width / self.cut, self.narrowest)
        self.reached = min(true_gap, self.reached)
        self.renew(point.gradients)
        return True


def _unit(problem: Problem, residual: np.ndarray) -> np.ndarray | float:
    """What widths are measured in: residuals of constants; where these leave none (a single row), the targets; else 1.

    Where all targets of a task are zero, its residuals are the rounding of its constant.
    """
    y = problem.observations.y
    of_residuals, of_targets, of_one = (problem.loss.unit(size) for size in (residual, y, np.ones_like(y)))
    some = np.greater(of_targets, 1e-290)
    told = some & np.greater(of_residuals, np.maximum(1e-12 * of_targets, 1e-290))
    unit = np.where(told, of_residuals, np.where(some, of_targets, of_one))
    return unit if unit.ndim else float(unit)
