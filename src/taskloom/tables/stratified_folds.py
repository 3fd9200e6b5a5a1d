"""Folds over rows that spread every task, or every class of a task, evenly."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

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
