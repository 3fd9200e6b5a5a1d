"""Nonsmooth losses: the proximal method of multipliers around any solver for smooth losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...problem import Problem
from ...problem.evidence import Iterate, stationarity
from ...problem.solution import Start
from .base import Reformulation

MAX_GAP_SHARE = 0.3  # of the gap of the original problem, at which a smoothed one is solved accurately enough


class Smoothing(Reformulation):
    """The problem with its loss smoothed around an estimate of the gradients, which is updated as the fit converges.

    When the duality gap of the smoothed problem is a small share of the gap of the original one, smoothing dominates the error:
    the current gradients become the new centre. If the gap stays above the share ``target_share`` of the last one, the width of
    the smoothing shrinks by ``width_factor``.
    """

    def __init__(self, target_share: float = 0.5, width_factor: float = 3.0):
        self.target_share, self.width_factor = target_share, width_factor

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        return not problem.loss.smooth

    def apply(self, problem: Problem, start: Start | None = None) -> Problem:
        obs = problem.observations
        self.original = problem
        self.width = 0.3 * _unit(problem, obs.y - problem.best_constants[obs.task])
        self.min_width, self.best_gap = 1e-6 * self.width, np.inf
        return self.recenter(np.zeros(obs.y.size))

    def recenter(self, guess: np.ndarray) -> Problem:
        """Smooth the loss around these gradients."""
        self.problem = self.original.with_loss(self.original.loss.smoothed(guess, self.width))
        return self.problem

    def gap(self, point: Iterate, enough: float) -> float:
        """The duality gap of the smoothed problem; the squared stationarity residual if it is not convex.

        Better dual candidates are looked for while the gap is above ``enough``.
        """
        if not self.problem.structure.convex:
            return stationarity(self.problem, point)[0] ** 2 * self.original.scale
        found = self.problem.evidence(point, enough / max(self.problem.scale, np.finfo(float).tiny))
        return max(found.primal - found.dual, 0.0)

    def follow(self, run: Any, point: Iterate, gap: float, true_gap: float) -> float:
        """Smooth anew around the point of a run, if it is accurate enough; the gap of the problem that the run then solves."""
        gap = min(self.gap(point, MAX_GAP_SHARE * true_gap), gap)
        if not self.update(point, gap, true_gap, run.finished is not None):
            return gap
        run.retarget(self.problem)
        return true_gap  # that of the next smoothed problem is unknown

    def update(self, point: Iterate, gap: float, true_gap: float, finished: bool) -> bool:
        """Smooth anew if the smoothed problem is solved accurately enough; True if so."""
        solved = gap <= MAX_GAP_SHARE * true_gap
        if not (solved or finished):
            return False
        if solved and true_gap > self.target_share * self.best_gap:
            self.width = np.maximum(self.width / self.width_factor, self.min_width)
        self.best_gap = min(true_gap, self.best_gap)
        self.recenter(point.gradients)
        return True


def _unit(problem: Problem, residual: np.ndarray) -> np.ndarray | float:
    """The unit of widths: residuals of the constants, or the targets if these residuals are zero up to rounding, or 1."""
    y = problem.observations.y
    of_residuals, of_targets, of_one = (problem.loss.unit(size) for size in (residual, y, np.ones_like(y)))
    some = np.greater(of_targets, 1e-290)
    told = some & np.greater(of_residuals, np.maximum(1e-12 * of_targets, 1e-290))
    unit = np.where(told, of_residuals, np.where(some, of_targets, of_one))
    return unit if unit.ndim else float(unit)
