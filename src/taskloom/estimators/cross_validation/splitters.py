"""The folds of the cross-validated estimators: stratified ones that hold every task, or those of a splitter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...design import Observations
from ...tables.layout import shown
from ...tables.stratified_folds import Split, task_folds

Array = np.ndarray


def make_folds(plan: Any, seen: Observations, n_rows: int, labelled: Array, group: Array | None = None) -> list[Split]:
    """The folds that ``cv`` stands for; ``None`` and whole numbers are stratified over tasks (and classes of labelled ones).

    ``group`` has a number for each observation, to be stratified over in place of tasks.
    """
    cv = plan.cv
    if cv is None or (isinstance(cv, (int, np.integer)) and not isinstance(cv, bool)):
        stratum = (seen.task if group is None else group) * 2 + (labelled[seen.task] & (seen.y > 0))
        return task_folds(n_rows, seen.row, stratum, 5 if cv is None else int(cv), plan.random_state)
    from sklearn.model_selection import check_cv  # slow to import

    splits = [(np.asarray(train), np.asarray(test)) for train, test in check_cv(cv).split(plan.X, plan.y, plan.groups)]
    if len(splits) == 0:
        raise ValueError(f"cv={cv!r} gave no folds")
    for k, split in enumerate(splits):
        for part, name in zip(split, ("training", "test"), strict=True):
            if part.size == 0:
                raise ValueError(f"the {name} part of fold {k} is empty; choose other folds (cv={cv!r})")
    return splits


def check_folds(splits: list[Split], seen: Observations, n_rows: int, tasks: Array, labelled: Array) -> None:
    """Every training part must hold every task (both classes of labelled ones); the message names the first that fails."""
    for k, (train, _) in enumerate(splits):
        live = np.isin(np.arange(n_rows), train)[seen.row]
        count, rarest = _counts(seen.task[live], seen.y[live], labelled)
        if (count == 0).any():
            raise ValueError(
                f"the training part of fold {k} has no observation of task {shown(tasks[int(np.argmax(count == 0))])}; choose "
                'folds that hold every task (cv=5 does), or, for long tables, unseen="mean" to test on tasks that are new'
            )
        if (rarest == 0).any():
            raise ValueError(
                f"the training part of fold {k} has one class only of task {shown(tasks[int(np.argmax(rarest == 0))])}; choose "
                "folds that hold both classes of every task (cv=5 does)"
            )


def _counts(task: Array, y: Array, labelled: Array) -> tuple[Array, Array]:
    """The number of observations of each task, and of the rarer class of labelled ones (of the others: of all)."""
    count = np.bincount(task, minlength=len(labelled))
    positive = np.bincount(task[y > 0], minlength=len(labelled))
    return count, np.where(labelled, np.minimum(positive, count - positive), count)


def check_left(seen: Observations, tasks: Array, labelled: Array) -> None:
    """Leaving out one row must leave something of every task, and both classes of labelled ones."""
    rare = _counts(seen.task, seen.y, labelled)[1] < 2
    if rare.any():
        name = shown(tasks[int(np.argmax(rare))])
        raise ValueError(f"leaving out one row would leave nothing (or one class only) of task {name}; choose other folds")
