"""Folds over the rows of tables with many tasks: stratified by task, or with whole tasks left out."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target

from .layout import as_table, code_labels, missing_cells, sorted_labels, split_table

Array = np.ndarray
Split = tuple[Array, Array]


def task_folds(n_rows: int, row: Array, stratum: Array, n_splits: int, random_state: Any = None) -> list[Split]:
    """``n_splits`` folds over rows, with each stratum (a task, or a class of a task) spread evenly over them.

    A row may belong to many strata (the tasks observed in it) or to none. Rows are assigned one at a time, the rarest stratum
    first, each to the fold that lacks its stratum most (Sechidis, Tsoumakas and Vlahavas 2011). A row with the only observation
    of a stratum is in every training set, as is one row of a stratum that lies inside one fold. ``random_state`` shuffles the
    rows first; without it the folds depend on the data alone.
    """
    if not n_splits >= 2:
        raise ValueError(f"cv needs at least 2 folds, got cv={n_splits}")
    if not n_rows >= n_splits:
        raise ValueError(f"cv={n_splits} folds need at least as many rows, got n_samples = {n_rows}")
    rank = np.arange(n_rows) if random_state is None else np.argsort(check_random_state(random_state).permutation(n_rows))
    stratum = np.unique(stratum, return_inverse=True)[1] if stratum.size else stratum
    by_stratum = np.split(row[np.argsort(stratum, kind="stable")], np.cumsum(np.bincount(stratum))[:-1])
    members = [rows for rows in by_stratum if rows.size]  # the rows of each stratum
    fold = np.full(n_rows, -1)
    fixed = np.isin(np.arange(n_rows), [rows[0] for rows in members if len(rows) == 1])
    if np.unique(row).size == row.size:  # one stratum per row, as in long tables: in turn
        place = np.lexsort((rank[row], stratum))
        fold[row[place]] = np.arange(row.size) % n_splits
    else:
        _assign(fold, row, stratum, members, rank, n_splits)
    fold[fold < 0] = rank[fold < 0] % n_splits
    fold[fixed] = -1
    for rows in members:  # one row of every stratum that lies inside one fold, so that every training set has it
        if fold[rows[0]] >= 0 and np.all(fold[rows] == fold[rows[0]]):
            fold[rows[0]] = -1
    empty = np.setdiff1d(np.arange(n_splits), fold)
    if empty.size:
        why = f"{n_rows} rows are too few; use fewer folds"
        if 2 * np.count_nonzero(fixed) > n_rows:
            why = (
                f"rows of each task are too few, {np.count_nonzero(fixed)} of {n_rows} are the only one of their task (or "
                "class) and must be in every training set; is task_column the right column?"
            )
        raise ValueError(f"fold {empty[0]} of {n_splits} is empty: {why}")
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n_splits)]


def _assign(fold: Array, row: Array, stratum: Array, members: list[Array], rank: Array, n_splits: int) -> None:
    """Assign rows with many strata: the rarest stratum first, each of its rows to the fold that lacks it most."""
    by_row = np.argsort(row, kind="stable")
    ends = np.searchsorted(row[by_row], np.arange(len(fold) + 1))
    strata, sizes = stratum[by_row], np.array([len(rows) for rows in members])
    want = np.tile(sizes / n_splits, (n_splits, 1))
    room = np.full(n_splits, len(fold) / n_splits)
    for s in np.argsort(sizes, kind="stable"):
        rows = members[s]
        for i in rows[np.argsort(rank[rows], kind="stable")]:
            if fold[i] < 0:
                k = int(np.lexsort((-room, -want[:, s]))[0])
                fold[i] = k
                want[k, strata[ends[i] : ends[i + 1]]] -= 1
                room[k] -= 1


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
