"""A splitter for tables with many tasks, stratified by task or with whole tasks left out."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target

from .layout import as_table, code_labels, missing_cells, sorted_labels, split_table
from .stratified_folds import Split, task_folds

Array = np.ndarray


class TaskKFold(BaseCrossValidator):
    """K folds for long tables, in which a column names the task of each row: leave out rows, whole tasks, or both.

    - ``"rows"``: how good are predictions for tasks that were seen? The rows of each task are spread over the folds, and every
      task with two rows is in every training part. Rows are tested once; the only row of a task is never tested. With two
      labels in ``y`` the same holds for each label of each task.
    - ``"tasks"``: how good are they for new tasks? Whole tasks are left out, and every row is tested once.
    - ``"both"``: a fold leaves out a share of the tasks, and a share of the rows of the other tasks. Every row is tested twice:
      as a row of a new task, and as a new row of a task that was seen (not the only row of a task). Needs 3 folds.

    Parameters
    ----------
    n_splits : int, default=5
        The number of folds, at least 2.
    leave : {"rows", "tasks", "both"}, default="rows"
        What the training parts lack.
    task_column : str or int, default=None
        The column of ``X`` that names the tasks; ``None`` if ``groups`` does.
    shuffle : bool, default=False
        Whether rows, or tasks, are assigned to folds in random order. Without it, folds of tasks have similar numbers of rows;
        with it, similar numbers of tasks.
    random_state : int, RandomState instance or None, default=None
        The seed of the shuffle.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import TaskKFold
    >>> X = np.column_stack([np.arange(6.0), [0, 0, 1, 1, 2, 2]])
    >>> for train, test in TaskKFold(3, leave="tasks", task_column=1).split(X):
    ...     print(train, test)
    [2 3 4 5] [0 1]
    [0 1 4 5] [2 3]
    [0 1 2 3] [4 5]
    """

    __metadata_request__split: ClassVar = {"groups": True}  # scikit-learn passes groups on, if it has any

    def __init__(
        self,
        n_splits: int = 5,
        *,
        leave: str = "rows",
        task_column: Any = None,
        shuffle: bool = False,
        random_state: Any = None,
    ):
        least = 3 if leave == "both" else 2
        if not (isinstance(leave, str) and leave in ("rows", "tasks", "both")):
            raise ValueError(f'TaskKFold needs leave="rows", "tasks" or "both", got leave={leave!r}')
        if not (isinstance(n_splits, (int, np.integer)) and not isinstance(n_splits, bool) and n_splits >= least):
            raise ValueError(f"TaskKFold(leave={leave!r}) needs n_splits >= {least}, got n_splits={n_splits!r}")
        if not isinstance(shuffle, (bool, np.bool_)):
            raise ValueError(f"TaskKFold needs shuffle=True or shuffle=False, got shuffle={shuffle!r}")
        if random_state is not None and not shuffle:
            raise ValueError(f"random_state={random_state!r} has no effect without shuffle=True")
        self.n_splits = n_splits
        self.leave = leave
        self.task_column = task_column
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of folds.

        Parameters
        ----------
        X, y, groups : object, default=None
            Ignored; for compatibility with scikit-learn.

        Returns
        -------
        int
            ``n_splits``.
        """
        return int(self.n_splits)

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[Split]:
        """The rows of the training and the test part of each fold.

        Parameters
        ----------
        X : array-like or data frame of shape (n_samples, n_features)
            The table.
        y : array-like of shape (n_samples,), default=None
            Targets; two labels are spread over the folds with the tasks.
        groups : array-like of shape (n_samples,), default=None
            The task of each row, where ``task_column`` is ``None``; ignored otherwise.

        Yields
        ------
        tuple of ndarray
            Positions of the training rows, and of the test rows.
        """
        task = self._tasks(X, groups)
        rng = check_random_state(self.random_state) if self.shuffle else None
        if self.leave == "rows":
            yield from self._leave_rows(task, y, rng)
            return
        own_fold = self._fold_of_tasks(np.bincount(task), rng)[task]
        row_fold = self._fold_of_rows(task, own_fold, rng) if self.leave == "both" else own_fold
        for k in range(self.n_splits):
            test = (own_fold == k) | (row_fold == k)
            yield np.flatnonzero(~test), np.flatnonzero(test)

    def _tasks(self, X: Any, groups: Any) -> Array:
        """The number of the task of each row."""
        if self.task_column is not None:
            labels: Any = split_table(X, self.task_column).labels
        elif groups is not None:
            labels = np.asarray(groups)
            rows = np.shape(as_table(X))[0]
            if labels.shape != (rows,):
                raise ValueError(f"groups needs the task of each of the {rows} rows, got shape {labels.shape}")
            if (missing := missing_cells(labels.tolist())).any():
                raise ValueError(f"groups holds a missing value in row {int(np.argmax(missing))}; name the task of every row")
        else:
            raise ValueError(
                "TaskKFold does not know the task of each row: pass TaskKFold(task_column=...), the column of X that names it, "
                "or groups="
            )
        return code_labels(labels, sorted_labels(labels))

    def _leave_rows(self, task: Array, y: Any, rng: Any) -> list[Split]:
        n = len(task)
        if n < self.n_splits:
            raise ValueError(f"n_splits={self.n_splits} folds need at least as many rows, got {n}; lower n_splits")
        stratum = task
        if y is not None and np.ndim(y) == 1 and type_of_target(y) == "binary":
            stratum = 2 * task + np.unique(np.asarray(y), return_inverse=True)[1]
        return task_folds(n, np.arange(n), stratum, int(self.n_splits), rng)

    def _fold_of_tasks(self, sizes: Array, rng: Any) -> Array:
        """The fold of each task: in random order, or the largest first, each to the fold with the fewest rows."""
        T = len(sizes)
        if self.n_splits > T:
            raise ValueError(
                f'n_splits={self.n_splits} folds of tasks need at least as many tasks, got {T}; lower n_splits, or leave="rows"'
            )
        fold = np.empty(T, int)
        if rng is not None:
            fold[rng.permutation(T)] = np.arange(T) % self.n_splits
            return fold
        rows = [(0, k) for k in range(self.n_splits)]
        heapify(rows)
        for t in np.argsort(-sizes, kind="stable"):
            count, fold[t] = rows[0]
            heapreplace(rows, (count + int(sizes[t]), int(fold[t])))
        return fold

    def _fold_of_rows(self, task: Array, own_fold: Array, rng: Any) -> Array:
        """The fold that tests a row while its task is seen: one of those that hold the task; -1 for the only row of a task."""
        n = len(task)
        rank = np.arange(n) if rng is None else rng.permutation(n)
        place = np.lexsort((rank, task))
        fold = np.empty(n, int)
        fold[place] = np.arange(n) % (self.n_splits - 1)  # in turn, so that a task with two rows is in two folds
        fold = (own_fold + 1 + fold) % self.n_splits
        return np.where(np.bincount(task)[task] == 1, -1, fold)
