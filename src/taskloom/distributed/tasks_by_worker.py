"""Fits of tasks with task-specific inputs: L-BFGS on the factor, with the tasks on the workers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..estimators.fitted import FittedState
from ..estimators.validation import TargetInfo
from ..features.kernels import LinearFeatures
from ..losses import Loss, as_loss
from ..problem.solution import Solution
from ..structures import Independent, Structure, as_structure
from ..structures.spectral import EitherSide
from ..tables.layout import code_labels, sorted_labels
from .checkpoint import Checkpoint
from .cluster import DistributedTasks
from .cluster_loop import ClusterRecord, run
from .factor_descent import Objective
from .fit_context import FitContext
from .partitions import names_of, read_long, read_wide

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class RemoteProblem:
    """The part of a problem that a fitted state needs, where the observations are on the workers."""

    loss: Loss
    structure: Structure
    alpha: float
    ridge: float
    n_tasks: int
    Z: Array

    def correlate(self, _: Array) -> Array:
        """``Z = Phi'G`` at the end of the fit."""
        return self.Z


def fit_long(context: FitContext, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    """Fit to long tables."""
    _accept(context)
    statistics = context.workers.read("statistics", read_long, blocks, context.model.task_column, context.centre)
    names = _names(context, statistics)
    sizes = [len(labels) for labels, _ in names]
    if not any(sizes):
        raise ValueError("y holds nothing but NaN: no task was observed")
    everywhere = np.concatenate([labels for labels, _ in names if len(labels)])
    targets = TargetInfo(tasks_=sorted_labels(everywhere), wide=False)
    present = np.split(code_labels(everywhere, targets.tasks_), np.cumsum(sizes)[:-1])
    return _fit(context, targets, statistics, present, [n for _, n in names], checkpoint)


def fit_gaps(context: FitContext, targets: TargetInfo, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    """Fit to wide tables with missing targets."""
    _accept(context)
    statistics = context.workers.read("statistics", read_wide, blocks, context.centre)
    names = _names(context, statistics)
    return _fit(context, targets, statistics, [label for label, _ in names], [n for _, n in names], checkpoint)


def _accept(context: FitContext) -> None:
    structure, solver = context.model.structure, context.model.solver
    posed = as_structure(structure)
    if not isinstance(posed, (EitherSide, Independent)):
        raise ValueError(
            "tasks with inputs of their own need a spectral structure (Trace, Frobenius, Schatten, "
            f"SchattenNorm, UnitTrace, Independent) to be fitted on a cluster, got {posed!r}"
        )
    if not (isinstance(solver, str) and solver == "auto"):
        raise ValueError(
            f'tasks with inputs of their own have one distributed solver; leave solver="auto", got solver={solver!r}'
        )


def _names(context: FitContext, statistics: Sequence[Any]) -> list[tuple[Array, Array]]:
    return context.workers.gather([context.workers.submit("names", names_of, each) for each in statistics])


def _fit(
    context: FitContext, targets: TargetInfo, statistics: list[Any], present: list[Array], counts: list[Array], checkpoint: Any
) -> FittedState:
    model, d, n_tasks, structure = context.model, context.n_features, len(targets.tasks_), context.structure(targets)
    total = np.zeros(n_tasks)
    for some, n in zip(present, counts, strict=True):
        total[some] += n
    tasks = DistributedTasks(context.workers, statistics, present, counts)
    tasks.merge_blocks(context.task_weights(targets, total), context.centre)
    alpha, ridge = float(model.alpha), float(model.ridge)
    rounding_floor, squares = tasks.sizes().tolist()
    objective = Objective(
        lambda Q, statistic: tasks.sums(Q, alpha, ridge, statistic),
        structure,
        alpha,
        ridge,
        d,
        n_tasks,
        squares / (d * n_tasks),
    )
    scalars, moments = objective.at_zero()
    record = ClusterRecord(float(scalars[0]), rounding_floor, float(scalars[0]), objective.bound(scalars, moments))
    file = (
        None if checkpoint is None else Checkpoint(checkpoint, _described(context, targets, structure, total, scalars, moments))
    )
    status = run(objective, record, file, context.limits, context.report)
    return _fitted_state(context, targets, objective, tasks, record, status)


def _described(
    context: FitContext, targets: TargetInfo, structure: Structure, total: Array, scalars: Array, moments: Array
) -> dict[str, Any]:
    """Settings and statistics that identify a problem."""
    model = context.model
    return {
        "structure": repr(structure),
        "alpha": float(model.alpha),
        "ridge": float(model.ridge),
        "fit_intercept": bool(model.fit_intercept),
        "number of inputs": context.n_features,
        "number of tasks": len(targets.tasks_),
        "digest of the task names": hashlib.sha256(repr(targets.tasks_.tolist()).encode()).hexdigest()[:16],
        "number of observations": int(total.sum()),
        "loss of the best constants": float(scalars[0]),
        "size of the correlations of inputs and targets": float(np.linalg.norm(moments)),
    }


def _fitted_state(
    context: FitContext, targets: TargetInfo, objective: Objective, tasks: DistributedTasks, record: ClusterRecord, status: str
) -> FittedState:
    """Gather the weights; the certified point has the best structure for them."""
    d, n_tasks = context.n_features, len(targets.tasks_)
    root = np.zeros((d, 0)) if record.point is None else objective.root(record.point.Q)
    W, Z, b = tasks.weights(root, objective.alpha, n_tasks)
    A, penalty = objective.structure.final_structure(np.sqrt(objective.alpha) * W)
    if record.point is not None:
        record.primal = min(record.primal, float(record.point.scalars[0]) + penalty + objective.ridge * float(np.vdot(W, W)))
    certificate = record.certificate(
        status, context.limits.tol, f"solver Distributed on {len(context.workers.client.nthreads())} workers"
    )
    problem = RemoteProblem(as_loss(context.model.loss), objective.structure, objective.alpha, objective.ridge, n_tasks, Z)
    features = LinearFeatures(np.empty((0, d)), keep_columns=True)
    return context.fitted(
        targets, features, problem, Solution(W, b, A, np.zeros(0), certificate, record.history, "distributed")
    )
