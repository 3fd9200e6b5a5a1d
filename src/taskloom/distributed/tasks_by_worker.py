"""Tasks with inputs of their own: the walk on the factor, with the tasks spread over the workers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..estimators.fitted import FittedState
from ..estimators.validation import Targets
from ..features import LinearFeatures
from ..losses import Loss, as_loss
from ..problem.solution import Solution
from ..structures import Independent, Structure, as_structure
from ..structures.spectral import EitherSide
from ..tables import code_labels, sorted_labels
from .checkpoint import Checkpoint
from .cluster import Tasks
from .cluster_loop import ClusterRecord, run
from .factor_descent import Objective
from .job import Job
from .partitions import names_of, read_long, read_wide

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Afar:
    """What a fitted estimator asks of its problem, where the observations are elsewhere."""

    loss: Loss
    structure: Structure
    alpha: float
    ridge: float
    n_tasks: int
    Z: Array

    def correlate(self, _: Array) -> Array:
        """``Z = Phi'G`` at the end of the fit."""
        return self.Z


def fit_long(job: Job, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    """From tables with a task column."""
    _accept(job)
    statistics = job.workers.read("statistics", read_long, blocks, job.model.task_column, job.centre)
    names = _names(job, statistics)
    sizes = [len(labels) for labels, _ in names]
    if not any(sizes):
        raise ValueError("y holds nothing but NaN: no task was observed")
    everywhere = np.concatenate([labels for labels, _ in names if len(labels)])
    targets = Targets(tasks_=sorted_labels(everywhere), wide=False)
    present = np.split(code_labels(everywhere, targets.tasks_), np.cumsum(sizes)[:-1])
    return _fit(job, targets, statistics, present, [n for _, n in names], checkpoint)


def fit_gaps(job: Job, targets: Targets, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    """From tables with a column of targets for each task, some of which are missing."""
    _accept(job)
    statistics = job.workers.read("statistics", read_wide, blocks, job.centre)
    names = _names(job, statistics)
    return _fit(job, targets, statistics, [label for label, _ in names], [n for _, n in names], checkpoint)


def _accept(job: Job) -> None:
    structure, solver = job.model.structure, job.model.solver
    posed = as_structure(structure)
    if not isinstance(posed, (EitherSide, Independent)):
        raise ValueError(
            "tasks with inputs of their own need a structure that may sit on the features (Trace, Frobenius, Schatten, "
            f"SchattenNorm, UnitTrace, Independent) to be fitted on a cluster, got {posed!r}"
        )
    if not (isinstance(solver, str) and solver == "auto"):
        raise ValueError(
            f'tasks with inputs of their own have one distributed solver; leave solver="auto", got solver={solver!r}'
        )


def _names(job: Job, statistics: Sequence[Any]) -> list[tuple[Array, Array]]:
    return job.workers.gather([job.workers.submit("names", names_of, each) for each in statistics])


def _fit(
    job: Job, targets: Targets, statistics: list[Any], present: list[Array], counts: list[Array], checkpoint: Any
) -> FittedState:
    model, d, n_tasks, structure = job.model, job.n_features, len(targets.tasks_), job.structure(targets)
    total = np.zeros(n_tasks)
    for some, n in zip(present, counts, strict=True):
        total[some] += n
    tasks = Tasks(job.workers, statistics, present, counts)
    tasks.settle(job.strengths(targets, total), job.centre)
    alpha, ridge = float(model.alpha), float(model.ridge)
    rounding_floor, squares = tasks.sizes().tolist()
    objective = Objective(
        lambda Q, what: tasks.sums(Q, alpha, ridge, what), structure, alpha, ridge, d, n_tasks, squares / (d * n_tasks)
    )
    scalars, moments = objective.nothing()
    book = ClusterRecord(float(scalars[0]), rounding_floor, float(scalars[0]), objective.bound(scalars, moments))
    file = None if checkpoint is None else Checkpoint(checkpoint, _described(job, targets, structure, total, scalars, moments))
    status = run(objective, book, file, job.limits, job.report)
    return _hand_back(job, targets, objective, tasks, book, status)


def _described(
    job: Job, targets: Targets, structure: Structure, total: Array, scalars: Array, moments: Array
) -> dict[str, Any]:
    """Settings and data of a problem, in as few words as tell it from others."""
    model = job.model
    return {
        "structure": repr(structure),
        "alpha": float(model.alpha),
        "ridge": float(model.ridge),
        "fit_intercept": bool(model.fit_intercept),
        "number of inputs": job.n_features,
        "number of tasks": len(targets.tasks_),
        "digest of the task names": hashlib.sha256(repr(targets.tasks_.tolist()).encode()).hexdigest()[:16],
        "number of observations": int(total.sum()),
        "loss of the best constants": float(scalars[0]),
        "size of the correlations of inputs and targets": float(np.linalg.norm(moments)),
    }


def _hand_back(job: Job, targets: Targets, objective: Objective, tasks: Tasks, book: ClusterRecord, status: str) -> FittedState:
    """The weights come to the client; the best structure for them is what is certified."""
    d, n_tasks = job.n_features, len(targets.tasks_)
    root = np.zeros((d, 0)) if book.point is None else objective.root(book.point.Q)
    W, Z, b = tasks.weights(root, objective.alpha, n_tasks)
    A, penalty = objective.structure.final_structure(np.sqrt(objective.alpha) * W)
    if book.point is not None:
        book.primal = min(book.primal, float(book.point.scalars[0]) + penalty + objective.ridge * float(np.vdot(W, W)))
    certificate = book.certificate(
        status, job.limits.tol, f"solver Distributed on {len(job.workers.client.nthreads())} workers"
    )
    problem = Afar(as_loss(job.model.loss), objective.structure, objective.alpha, objective.ridge, n_tasks, Z)
    features = LinearFeatures(np.empty((0, d)), keep_columns=True)
    return job.fitted(targets, features, problem, Solution(W, b, A, np.zeros(0), certificate, book.history, "distributed"))
