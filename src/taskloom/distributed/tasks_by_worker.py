"""Fits of tasks with task-specific inputs: steps on the factor, with the tasks on the workers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from .._time_limit import no_time_limit
from ..engines.local import WeightSpectrum
from ..estimators.fitted import FittedState
from ..estimators.validation import TargetInfo
from ..features.kernels import LinearFeatures
from ..problem.solution import Certificate, History, Solution
from ..solvers.engine_run import RemoteFactored, solve_remote
from ..solvers.record import Outcome
from ..structures import as_structure
from ..tables.layout import code_labels, sorted_labels
from .checkpoint import Checkpoint
from .cluster_problem import ClusterLbfgs, ClusterProblem
from .dask_engine import DaskEngine
from .fit_context import FitContext
from .partitions import read_long, read_wide

Array = np.ndarray
NOTHING = Certificate(np.nan, -np.inf, np.inf, np.inf, "callback", "The fit is not done.")  # of a fit under way


def fit_own(context: FitContext, targets: TargetInfo | None, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    """Fit to wide tables with missing targets; or to long ones, where ``None`` stands for tasks that are not known yet."""
    _accept(context)
    workers = context.workers
    read = (read_long, blocks, context.model.task_column) if targets is None else (read_wide, blocks)
    statistics = workers.read("statistics", *read, context.centre)
    names = workers.gather([workers.submit("names", attrgetter("labels", "counts"), each) for each in statistics])
    present, counts = map(list, zip(*names, strict=True))
    if targets is None:
        sizes = list(map(len, present))
        if not any(sizes):
            raise ValueError("y holds nothing but NaN: no task was observed")
        everywhere = np.concatenate([labels for labels in present if len(labels)])
        targets = TargetInfo(tasks_=sorted_labels(everywhere), wide=False)
        present = np.split(code_labels(everywhere, targets.tasks_), np.cumsum(sizes)[:-1])
    return _fit(context, targets, statistics, present, counts, checkpoint)


def _accept(context: FitContext) -> None:
    posed, solver = as_structure(context.model.structure), context.model.solver
    if not posed.either_side:
        raise ValueError(
            "tasks with inputs of their own need a spectral structure (Trace, Frobenius, Schatten, "
            f"SchattenNorm, UnitTrace, Independent) to be fitted on a cluster, got {posed!r}"
        )
    if solver not in ("auto", "factored"):
        raise ValueError(
            f'tasks with inputs of their own have one distributed solver; leave solver="auto", got solver={solver!r}'
        )


def _fit(
    context: FitContext, targets: TargetInfo, statistics: list[Any], present: list[Array], counts: list[Array], checkpoint: Any
) -> FittedState:
    model, n_tasks, structure = context.model, len(targets.tasks_), context.structure(targets)
    total = np.zeros(n_tasks)
    for some, n in zip(present, counts, strict=True):
        total[some] += n
    weights, alpha, ridge = context.task_weights(targets, total), float(model.alpha), float(model.ridge)
    engine = DaskEngine(context.workers, statistics, present, counts, weights, context.centre, alpha, ridge, context.n_features)
    problem = ClusterProblem(engine, structure, alpha, ridge)
    solver, start = RemoteFactored(other=ClusterLbfgs), context.start(targets)
    weights_of_start = None if start is None else WeightSpectrum.of(start[0])
    factor = before = None
    if checkpoint is not None:
        checkpoint = Checkpoint(checkpoint.path, checkpoint.every, _described(context, targets, problem, total))
        factor, before = checkpoint.read()
    told = context.callback(problem.relative, lambda point: _state(context, targets, problem, point))

    def report(history: History) -> bool:
        if checkpoint is not None and len(history) % checkpoint.every == 0:
            checkpoint.write(solver.run.here.Q, history)
        return told(history)

    found = solve_remote(
        problem,
        solver,
        start=weights_of_start if factor is None else factor,
        callback=report,
        history=before,
        name=f"solver Distributed on {len(context.workers.client.nthreads())} workers",
        **context.limits,
    )
    if checkpoint is not None and solver.run is not None:
        checkpoint.write(solver.run.here.Q, found.history)
    return _state(context, targets, problem, found.point, found)


def _described(context: FitContext, targets: TargetInfo, problem: ClusterProblem, total: Array) -> dict[str, Any]:
    """Settings and statistics that identify a problem."""
    return {
        "structure": repr(problem.structure),
        "alpha": problem.alpha,
        "ridge": problem.ridge,
        "fit_intercept": context.centre,
        "number of inputs": context.n_features,
        "number of tasks": len(targets.tasks_),
        "digest of the task names": hashlib.sha256(repr(targets.tasks_.tolist()).encode()).hexdigest()[:16],
        "number of observations": int(total.sum()),
        "loss of the best constants": problem.scale,
        "size of the correlations of inputs and targets": float(np.linalg.norm(problem.engine.correlations_at_zero)),
    }


def _state(
    context: FitContext, targets: TargetInfo, problem: ClusterProblem, point: Any, found: Outcome | None = None
) -> FittedState:
    """Gather the weights of a point; a certified one has the best structure for them."""
    with no_time_limit():  # the fit is done
        W, Z, b = problem.engine.weights(None) if point is None else point.tasks.weights
    A = problem.structure.final_structure(np.sqrt(problem.alpha) * W)[0]
    certificate, history = (NOTHING, History()) if found is None else (found.certificate, found.history)
    solution = Solution(W, b, A, np.zeros(0), certificate, history, "distributed", Z=Z)
    return context.fitted(targets, LinearFeatures(np.empty((0, context.n_features)), keep_columns=True), problem, solution)
