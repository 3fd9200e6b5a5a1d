"""The settings of a distributed fit, and the fitted state of its solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..design import task_strengths
from ..estimators.fitted import FittedState, Prepared
from ..estimators.state_of_fit import fitted_state
from ..estimators.target_encoding import TargetScale
from ..estimators.validation import InputColumns, TargetInfo, entries_by_task
from ..problem.solution import Solution
from ..structures import Structure, as_structure
from .cluster import Workers
from .cluster_loop import Limits
from .progress_bar import Report

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class FitContext:
    """The estimator, the columns of its inputs, the workers, and the stopping criteria.

    Nothing writes to the estimator: a refused fit leaves it unchanged.
    """

    model: Any
    columns: InputColumns
    workers: Workers
    dtype: np.dtype
    limits: Limits
    report: Report

    @property
    def n_features(self) -> int:
        return self.columns.n_features_in_ - (self.model.task_column is not None)

    @property
    def centre(self) -> bool:
        return bool(self.model.fit_intercept)

    def structure(self, targets: TargetInfo) -> Structure:
        return self.model._coded_structure(as_structure(self.model.structure), targets)

    def task_weights(self, targets: TargetInfo, counts: Array) -> Array:
        """``c_t`` of each task, from its number of observations."""
        return task_strengths(entries_by_task(self.model.task_weight, targets.tasks_, "task_weight"), counts)

    def fitted(self, targets: TargetInfo, features: Any, problem: Any, solution: Solution) -> FittedState:
        """The state as after a fit in memory, without the training data."""
        empty = np.empty((0, self.n_features), dtype=self.dtype)
        scale = TargetScale.none(len(targets.tasks_))
        data = Prepared(self.columns, targets, empty, features, problem, scale, self.model._kernel())
        return fitted_state(data, solution, self.limits.tol, rows=False)
