"""The settings of a distributed fit, and the fitted state of its solution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..design import task_strengths
from ..estimators.callbacks import Watch
from ..estimators.fitted import FittedState, Prepared
from ..estimators.state_of_fit import fitted_state
from ..estimators.target_encoding import TargetScale
from ..estimators.validation import InputColumns, TargetInfo, entries_by_task
from ..problem.solution import History, Solution
from ..structures import Structure, as_structure
from .dask_workers import Workers
from .progress_bar import Report

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class FitContext:
    """The estimator, the columns of its inputs, the workers, and who is told of progress.

    Nothing writes to the estimator: a refused fit leaves it unchanged.
    """

    model: Any
    columns: InputColumns
    workers: Workers
    dtype: np.dtype
    report: Report
    watch: Watch | None
    last: FittedState | None  # of an earlier fit, for ``warm_start``

    @property
    def limits(self) -> dict[str, Any]:
        """The stopping criteria of ``solve``."""
        return {"tol": self.model.tol, "max_iter": self.model.max_iter, "time_limit": self.model.time_limit}

    def start(self, targets: TargetInfo) -> tuple[Array, Array] | None:
        """Coefficients (``T x d``) and intercepts of the last fit for ``warm_start``, if their shape is that of the data."""
        if not self.model.warm_start or self.last is None or self.last.coef_ is None:
            return None
        fits = self.last.coef_.shape == (len(targets.tasks_), self.n_features) and np.any(self.last.coef_)
        return (self.last.coef_.astype(float), self.last.intercept_.astype(float)) if fits else None

    def callback(self, relative: Callable[..., float], state: Callable[[Any], FittedState]) -> Callable[[History], bool]:
        """Reports to the console, to a callable, and to callbacks of scikit-learn; ``state`` is what a fit would be now."""

        def report(history: History) -> bool:
            size = abs(history.objective[-1]) + abs(history.dual[-1])
            stop = self.report(history, relative(history.gap[-1], size))
            if self.watch is not None:
                stop = self.watch.part("iteration").end(lambda: {"_state": state(history.best())}) or stop
            return bool(stop)

        return report

    @property
    def n_features(self) -> int:
        return self.columns.n_features_in_ - (self.model.task_column is not None)

    @property
    def centre(self) -> bool:
        return bool(self.model.fit_intercept)

    def structure(self, targets: TargetInfo) -> Structure:
        return self.model._coded_structure(as_structure(self.model.structure), self.columns, targets)

    def task_weights(self, targets: TargetInfo, counts: Array) -> Array:
        """``c_t`` of each task, from its number of observations."""
        return task_strengths(entries_by_task(self.model.task_weight, targets.tasks_, "task_weight"), counts)

    def fitted(self, targets: TargetInfo, features: Any, problem: Any, solution: Solution) -> FittedState:
        """The state as after a fit in memory, without the training data."""
        empty = np.empty((0, self.n_features), dtype=self.dtype)
        scale = TargetScale.none(len(targets.tasks_))
        data = Prepared(self.columns, targets, empty, features, problem, scale, self.model._kernel())
        return fitted_state(data, solution, self.model.tol, rows=False)
