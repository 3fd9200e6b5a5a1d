"""The loop over iterations: it certifies, records, writes checkpoints and stops, as ``solvers.solve`` does in memory."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from ..problem.solution import Certificate, History, sentence
from .checkpoint import Checkpoint
from .factor_descent import CERTIFY_EVERY, Descent, DescentPoint, Objective
from .progress_bar import Report

Array = np.ndarray
PATIENCE = 300  # iterations without progress of the gap before the status is "stalled"


@dataclass(frozen=True)
class Limits:
    """Stopping criteria, and iterations between checkpoints."""

    tol: float
    max_iter: int
    time_limit: float | None
    every: int


@dataclass(eq=False)
class ClusterRecord:
    """The best bounds so far; they may come from different iterations."""

    scale: float  # the loss of the intercept-only model
    rounding_floor: float  # what rounding may add to it
    primal: float = np.inf
    dual: float = -np.inf
    point: DescentPoint | None = None  # the best so far; None for zero weights
    history: History = field(default_factory=History)
    began: float = field(default_factory=time.perf_counter)

    @property
    def gap(self) -> float:
        """The duality gap, at least the rounding error."""
        return max(abs(self.primal - self.dual), 4 * np.finfo(float).eps * (abs(self.primal) + abs(self.dual)))

    @property
    def relative_gap(self) -> float:
        gap, size = self.gap, abs(self.primal) + abs(self.dual)
        if self.scale <= self.rounding_floor and gap <= max(self.rounding_floor, 1e-12 * size):
            return 0.0
        return gap / self.scale if self.scale > 0 else np.inf

    def record(self, objective: Objective, point: DescentPoint) -> None:
        if point.value < self.primal:
            self.primal, self.point = point.value, point
        if point.moments is not None:
            self.dual = max(self.dual, objective.bound(point.scalars, point.moments))
        self.add_to_history()

    def add_to_history(self) -> None:
        seconds = time.perf_counter() - self.began
        self.history.add(len(self.history) + 1, self.primal, self.dual, self.gap, seconds)

    def resume(self, history: History) -> None:
        """Continue the history of an interrupted fit."""
        self.history = history
        if len(history):
            self.began -= history.seconds[-1]
            self.dual = max(self.dual, history.dual[-1])

    def small_step(self) -> bool:
        """Whether the last decrease is small beside the gap, so that a certificate is worth its cost."""
        return len(self.history) > 1 and self.history.objective[-2] - self.primal < 0.1 * self.gap

    def stalled(self) -> bool:
        gaps = self.history.gap
        return len(gaps) > PATIENCE and gaps[-1] > 0.999 * gaps[-1 - PATIENCE]

    def certificate(self, status: str, tol: float, solver: str) -> Certificate:
        message = sentence(status, self.relative_gap, None, len(self.history), tol, solver)
        return Certificate(self.primal, self.dual, self.gap, self.relative_gap, status, message)


def run(objective: Objective, record: ClusterRecord, checkpoint: Checkpoint | None, limits: Limits, report: Report) -> str:
    """Iterate until a stopping criterion holds; returns the status. Ctrl-C keeps the best point, and writes a checkpoint."""
    if record.relative_gap <= limits.tol:  # zero weights are optimal
        record.add_to_history()
        return "optimal"
    if objective.structure.known:
        record.record(objective, objective.single_task())
        return "optimal" if record.relative_gap <= limits.tol else "stalled"
    saved = None if checkpoint is None else checkpoint.read()
    descent = Descent(objective, objective.initial_factor() if saved is None else saved.Q)
    if saved is not None:
        record.resume(saved.history)
        record.primal, record.point = descent.here.value, descent.here
        for step, change in saved.pairs:
            descent.memory.add(step, change)
        descent.proximal_step = saved.proximal_step
    status = "interrupted"
    with suppress(KeyboardInterrupt):
        status = _iterate(objective, descent, record, checkpoint, limits, report)
    if checkpoint is not None:
        checkpoint.write(descent, record.history)
    return status


def _iterate(
    objective: Objective, descent: Descent, record: ClusterRecord, checkpoint: Checkpoint | None, limits: Limits, report: Report
) -> str:
    while record.relative_gap > limits.tol:
        k = len(record.history) + 1
        if k > limits.max_iter:
            return "max_iter"
        record.record(objective, descent.step(due=k % CERTIFY_EVERY == 0 or record.small_step()))
        stop = report(record.history, record.relative_gap)
        if record.relative_gap <= limits.tol:
            break
        if descent.finished or record.stalled():
            return "stalled"
        if stop:
            return "callback"
        if limits.time_limit is not None and record.history.seconds[-1] >= limits.time_limit:
            return "time_limit"
        if checkpoint is not None and k % limits.every == 0:
            checkpoint.write(descent, record.history)
    return "optimal"
