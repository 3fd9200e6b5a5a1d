"""What every part of a distributed fit needs to know, and how a fitted model is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..design import task_strengths
from ..estimators.base import Prepared
from ..estimators.target_encoding import TargetScale
from ..problem.solution import Solution
from ..structures import Structure, as_structure
from .cluster import Workers
from .cluster_loop import Limits
from .progress_bar import Report

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Job:
    """An estimator to be fitted, by whom, and until when."""

    model: Any
    workers: Workers
    n_features: int
    dtype: np.dtype
    limits: Limits
    report: Report

    @property
    def centre(self) -> bool:
        return bool(self.model.fit_intercept)

    @property
    def n_tasks(self) -> int:
        return len(self.model.tasks_)

    def structure(self) -> Structure:
        return self.model._coded_structure(as_structure(self.model.structure))

    def strengths(self, counts: Array) -> Array:
        """``c_t`` of each task, from its number of observations."""
        return task_strengths(self.model._by_task(self.model.task_weight, "task_weight"), counts)

    def store(self, features: Any, problem: Any, solution: Solution) -> None:
        """As after a fit of data at hand, but for the training data, which are with the workers."""
        empty = np.empty((0, self.n_features), dtype=self.dtype)
        self.model._store(Prepared(empty, features, problem, TargetScale.none(self.n_tasks)), solution)
        self.model.__dict__.pop("_training", None)
