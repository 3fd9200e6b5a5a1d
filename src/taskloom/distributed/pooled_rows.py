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
from .fit_context import FitContext
from .partitions import read_shared
from .task_summaries import PooledRows


def fit_shared(context: FitContext, targets: Targets, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    if checkpoint is not None:
        raise ValueError(
            "tasks that share all their inputs are read in one pass and solved on the client: there is nothing to checkpoint"
        )
    model, limits, n_tasks, structure = context.model, context.limits, len(targets.tasks_), context.structure(targets)
    parts = context.workers.read("statistics", read_shared, blocks, context.centre)
    shared: PooledRows = context.workers.gather(context.workers.total("sum", parts, PooledRows.merged, context.centre))
    inputs = np.vstack([shared.root, np.zeros(context.n_features)])  # the last row holds what no weights could explain
    y = np.vstack([shared.targets, np.sqrt(shared.rest)])
    weight = context.task_weights(targets, np.full(n_tasks, float(shared.count))) / shared.count
    rows, every = np.arange(len(inputs)), np.arange(n_tasks)
    seen = Observations(np.tile(rows, n_tasks), np.repeat(every, rows.size), y.T.ravel(), np.repeat(weight, rows.size), n_tasks)
    features: Any = build_features(inputs, "linear", structure.keeps_columns)
    problem = Problem(features.phi, seen, model.loss, structure, float(model.alpha), float(model.ridge), False)

    def report(history: History) -> bool | None:
        return context.report(history, problem.relative(history.gap[-1], abs(history.objective[-1]) + abs(history.dual[-1])))

    solution = solve(
        problem, model.solver, tol=limits.tol, max_iter=limits.max_iter, time_limit=limits.time_limit, callback=report
    )
    b = shared.target_mean - shared.mean @ features.coef(solution.W)
    return context.fitted(targets, features, problem, replace(solution, b=b))
