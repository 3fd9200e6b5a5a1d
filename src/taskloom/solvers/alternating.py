"""Alternating minimisation: the paper's Algorithm 1 with exact steps (its Corollary on block coordinate methods, part a)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..problem import Problem
from ..problem.solution import Start
from .anderson import Extrapolation
from .barrier import UnsupervisedStep
from .base import Iterate, Run, Solver
from .supervised.choose_side import choose_side
from .supervised.sides import Supervised, TaskSide

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Alternating(Solver):
    """``W <- supervised step at A``, ``A <- argmin alpha tr(A^-1 (W'W + delta^2 I)) + F(A)``, both exact.

    Parameters
    ----------
    delta : float, default=None
        The barrier of (S^delta). ``None`` ties it to the gap.
    A0 : array-like of shape (n_tasks, n_tasks), default=None
        First structure. ``None`` starts from the tasks learned each on its own.
    stop : {"gap", "change"}, default="gap"
        ``"change"`` is the algorithm exactly as printed: no extrapolation, and it stops when the objective of (S^delta)
        changes by less than ``tol`` times the scale of the loss.
    memory : int, default=10
        How many past steps Anderson's extrapolation may combine; 0 is the plain alternation. A combined step that
        does not lower the objective is taken back.
    """

    delta: float | None = None
    A0: Any = None
    stop: str = "gap"
    memory: int = 10

    def check(self) -> None:
        if self.delta is not None and not self.delta >= 0:
            raise ValueError(f"Alternating needs delta >= 0 or None, got delta={self.delta!r}")
        if self.stop not in ("gap", "change"):
            raise ValueError(f'Alternating needs stop="gap" or "change", got stop={self.stop!r}')
        if self.memory < 0:
            raise ValueError(f"Alternating needs memory >= 0, got memory={self.memory!r}")

    def accepts(self, problem: Problem) -> str | None:
        if self.stop == "change" and not problem.loss.smooth:
            return 'Alternating(stop="change") needs a smooth loss: its rule cannot tell a renewed smoothing from progress'
        if problem.structure.task_factor:
            return (
                f'solver="alternating" needs exact steps, which {problem.structure!r} has not; use solver="factored" or "auto"'
            )
        return None

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        return _AlternatingRun(self, problem, start, tol)


class _AlternatingRun(Run):
    def __init__(self, settings: Alternating, problem: Problem, start: Start | None, tol: float):
        self.settings, self.problem = settings, problem
        self.side = TaskSide(problem) if settings.A0 is not None else choose_side(problem)
        self.structure_step = UnsupervisedStep(problem, self.side, settings.delta)
        self.extrapolate = Extrapolation(0 if settings.stop == "change" else settings.memory)
        self.tolerance = tol * problem.scale
        self.objective = np.inf
        self.plain: Array | None = None  # the weights to go back to if the combined ones do not pay
        self.W = np.zeros((problem.n_features, problem.n_tasks))
        self.A = self._first(start)

    def _first(self, start: Start | None) -> Array:
        T = self.problem.n_tasks
        if self.settings.A0 is not None:
            A = np.asarray(self.settings.A0, dtype=float)
            if A.shape != (T, T):
                raise ValueError(f"A0 must be of shape {(T, T)}, got {A.shape}")
            return A
        if self.problem.structure.known:
            return self.structure_step(self.W)
        self.W = start[0] if start is not None else self.side.supervise(self.side.plain_root()).W
        return self.structure_step(self.W)

    def retarget(self, problem: Problem) -> None:
        self.problem = self.side.problem = self.structure_step.problem = problem
        self._map_changed()

    def _map_changed(self) -> None:
        self.finished = None
        self.objective, self.plain = np.inf, None
        self.extrapolate.clear()

    def step(self, gap: float) -> Iterate:
        fit = self.side.supervise(self.problem.structure.root(self.A))
        here = Iterate(fit.W, fit.b, fit.z, fit.gradients, self.A if self.side.near_counts else None)
        if not self.problem.structure.convex or self.problem.structure.iterative:  # the best structure is a search of its own
            here = replace(here, penalty=fit.norm + self.problem.structure.value(self.A), norm=fit.norm)
        if self.problem.structure.known:
            self.finished = "stalled"
            return here
        value = self._value(fit)
        if self.plain is not None and value > self.objective + 1e-13 * abs(self.objective):
            self.W, self.plain = self.plain, None
            self.A = self.structure_step(self.W)
            self.extrapolate.clear()
            return here
        if self.settings.stop == "change" and abs(self.objective - value) < self.tolerance:
            self.finished = "change"
        self.objective = value
        combined = self.extrapolate(self.W, fit.W)
        self.plain = None if combined is fit.W else fit.W
        self.W = combined
        self.A = self.structure_step(self.W)
        if self.structure_step.lower(self.A, gap):
            self._map_changed()
        return here

    def _value(self, fit: Supervised) -> float:
        """The objective of (S^delta) at this structure, tasks eliminated."""
        value = self.problem.loss_term(fit.z) + fit.norm + self.problem.structure.value(self.A)
        return value + self.structure_step.cost(self.A)
