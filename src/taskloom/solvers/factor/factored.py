"""The solver on a factor of the structure: Newton's method where tasks can be eliminated, else limited-memory BFGS."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse

from ...design.table_with_gaps import TableWithGaps
from ...losses import RowLoss
from ...problem import Problem
from ...problem.solution import Start
from ..base import Run, Solver
from ..proximal import Proximal
from .lbfgs import FactorRun, LowRankRun
from .newton_runs import FittedTasksRun, SquaredLossRun

MAX_COPIED_ENTRIES = 2e8  # entries of a copy of the inputs with one row for each observation
MAX_SYSTEM_ENTRIES = 3e7  # entries of the linear systems of all tasks


@dataclass(eq=False, repr=False)
class Factored(Solver):
    """Steps on a factor of the structure, with the tasks eliminated.

    Under ``Trace`` and a loss of single outputs these are Newton steps; under other functions of the nonzero eigenvalues, with
    a ridge, and for ``LowRank``, those of limited-memory BFGS.

    Parameters
    ----------
    memory : int, default=20
        Number of past steps that the quasi-Newton direction remembers.
    forcing : float, default=None
        Conjugate gradients stop when the residual of a Newton system has fallen to this share. By default 0.1 under the squared
        loss, where a product costs less, and 0.05 under others.
    single : bool, default=True
        Whether the first Newton steps under the squared loss, and the directions of all, are computed in single precision. They
        cost less; equal problems that are written differently (a row twice, or with weight 2) then end equal within the
        tolerance, not exactly.
    """

    memory: int = 20
    forcing: float | None = None
    single: bool = True

    def check(self) -> None:
        if self.memory < 1:
            raise ValueError(f"Factored needs memory >= 1, got memory={self.memory!r}")
        if self.forcing is not None and not 0 < self.forcing < 1:
            raise ValueError(f"Factored needs 0 < forcing < 1, got forcing={self.forcing!r}")

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

    def smoothing_schedule(self, problem: Problem) -> tuple[float, float]:
        return (0.1, 4.0) if newton_applies(problem) else (0.5, 3.0)

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        if problem.structure.task_factor:
            return LowRankRun(self.memory, problem, start)
        if not newton_applies(problem):
            return FactorRun(self.memory, problem, start)
        try:
            return (SquaredLossRun if problem.loss.quadratic else FittedTasksRun)(self, problem, start, tol)
        except np.linalg.LinAlgError:  # the systems are singular in double precision
            return Proximal().begin(problem, start, tol)


def newton_applies(problem: Problem) -> bool:
    """Whether tasks can be eliminated at a factor, and the inputs and systems of all tasks fit in memory."""
    if problem.structure.schatten_power != 1 or problem.ridge or problem.n_tasks < 2 or isinstance(problem.loss, RowLoss):
        return False
    if problem.loss.quadratic and problem.targets.shared_inputs is not None:
        return True
    if issparse(problem.features):
        return False
    if problem.loss.quadratic:
        return TableWithGaps.suits(problem.design) or copies_fit(problem)
    columns = max(40, min(problem.n_tasks, problem.n_features) // 2)
    return copies_fit(problem) and problem.n_tasks * columns**2 <= MAX_SYSTEM_ENTRIES


def copies_fit(problem: Problem) -> bool:
    """Whether a copy of the inputs with one row for each observation fits in memory."""
    return problem.observations.y.size * problem.n_features <= MAX_COPIED_ENTRIES
