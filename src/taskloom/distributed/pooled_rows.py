"""Tasks that share all their inputs: one pass over the rows leaves a small problem, for the solvers that there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..design import Observations
from ..estimators.fitted import FittedState
from ..estimators.validation import Targets
from ..features import build_features
from ..problem import Problem
from ..problem.solution import History
from ..solvers import solve
from .job import Job
from .partitions import read_shared
from .task_summaries import PooledRows


def fit_shared(job: Job, targets: Targets, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    if checkpoint is not None:
        raise ValueError(
            "tasks that share all their inputs are read in one pass and solved on the client: there is nothing to checkpoint"
        )
    model, limits, n_tasks, structure = job.model, job.limits, len(targets.tasks_), job.structure(targets)
    parts = job.workers.read("statistics", read_shared, blocks, job.centre)
    shared: PooledRows = job.workers.gather(job.workers.total("sum", parts, PooledRows.merged, job.centre))
    inputs = np.vstack([shared.root, np.zeros(job.n_features)])  # the last row holds what no weights could explain
    y = np.vstack([shared.targets, np.sqrt(shared.rest)])
    weight = job.strengths(targets, np.full(n_tasks, float(shared.count))) / shared.count
    rows, every = np.arange(len(inputs)), np.arange(n_tasks)
    seen = Observations(np.tile(rows, n_tasks), np.repeat(every, rows.size), y.T.ravel(), np.repeat(weight, rows.size), n_tasks)
    features: Any = build_features(inputs, "linear", structure.keeps_columns)
    problem = Problem(features.phi, seen, model.loss, structure, float(model.alpha), float(model.ridge), False)

    def report(history: History) -> bool | None:
        return job.report(history, problem.relative(history.gap[-1], abs(history.objective[-1]) + abs(history.dual[-1])))

    solution = solve(
        problem, model.solver, tol=limits.tol, max_iter=limits.max_iter, time_limit=limits.time_limit, callback=report
    )
    b = shared.target_mean - shared.mean @ features.coef(solution.W)
    return job.fitted(targets, features, problem, replace(solution, b=b))
