"""Dask collections as blocks of rows, and the statistics that a worker computes of a block."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from ..design.design import FEATURE_SIZES, TARGET_SIZES, check_size
from ..tables.layout import code_labels, sorted_labels, split_table
from .task_summaries import PooledRows, TaskSummary, summarise

Array = np.ndarray


def is_frame(collection: Any) -> bool:
    """Whether a Dask collection is a data frame or a series."""
    return hasattr(type(collection), "divisions")


def names_columns(y: Any) -> bool:
    """Whether ``y`` holds names or positions of columns of ``X``."""
    return isinstance(y, (str, Integral)) or (isinstance(y, list) and bool(y) and all(names_columns(each) for each in y))


def split_targets(table: Any, y: Any) -> tuple[Any, Any]:
    """Split a table whose columns ``y`` are the targets; other pairs are returned unchanged."""
    if not names_columns(y):
        return table, y
    names, width = list(getattr(table, "columns", [])), table.shape[1]
    at = []
    for each in y if isinstance(y, list) else [y]:
        known = each in names if isinstance(each, str) else -width <= each < width
        if not known:
            raise ValueError(f"y={each!r} is no column of X; it has {names or f'{width} columns without names'}")
        at.append(names.index(each) if isinstance(each, str) else int(each) % width)
    rest = [j for j in range(width) if j not in at]
    chosen = at if isinstance(y, list) else at[0]
    return (table.iloc[:, rest], table.iloc[:, chosen]) if names else (table[:, rest], table[:, chosen])


def empty_tables(X: Any, y: Any) -> tuple[Any, Any]:
    """Inputs and targets without rows: names, types and shapes."""
    for name, given in (("X", X), ("y", y)):
        if not (is_frame(given) or hasattr(type(given), "chunks") or (name == "y" and names_columns(y))):
            raise ValueError(
                f"{name} must be a Dask array or data frame, got {type(given).__name__}; model.fit takes what fits in memory"
            )
    if getattr(X, "ndim", 2) != 2:
        raise ValueError(f"X must be a matrix, got {getattr(X, 'ndim', 2)} dimension(s)")
    empty = [
        each if names_columns(each) else each._meta if is_frame(each) else np.empty((0, *each.shape[1:]), dtype=each.dtype)
        for each in (X, y)
    ]
    return split_targets(*empty)


def row_blocks(X: Any, y: Any) -> list[tuple[Any, Any]]:
    """Delayed pairs of inputs and targets, one for each block of rows; each has all columns."""
    if not is_frame(X):
        X = X.rechunk({1: -1})
    if names_columns(y):
        return [(block, y) for block in np.ravel(X.to_delayed()).tolist()]
    if not is_frame(y):
        y = y.rechunk({1: -1}) if y.ndim == 2 else y
        if not is_frame(X) and not np.isnan([*X.chunks[0], *y.chunks[0]]).any():
            if X.shape[0] != y.shape[0]:
                raise ValueError(f"X has {X.shape[0]} rows and y has {y.shape[0]}")
            y = y.rechunk({0: X.chunks[0]})
    inputs, targets = (np.ravel(each.to_delayed()).tolist() for each in (X, y))
    if len(inputs) != len(targets):
        raise ValueError(
            f"X has {len(inputs)} partitions and y has {len(targets)}; repartition one of them so that their rows go together"
        )
    return list(zip(inputs, targets, strict=True))


def _checked(inputs: Any, y: Any, place: int) -> tuple[Array, Array]:
    """Inputs and targets of a block as numbers; NaN is allowed in targets."""
    inputs, y = split_targets(inputs, y)
    try:
        X, Y = np.asarray(inputs, dtype=float), np.asarray(y, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"partition {place} of X or y holds something that is no number ({error})") from None
    if len(X) != len(Y):
        raise ValueError(f"partition {place} has {len(X)} rows of X and {len(Y)} of y; repartition one of them")
    if not np.isfinite(X).all():
        raise ValueError(f"X holds NaN or infinity in partition {place}; fill or drop those rows")
    if np.isinf(Y).any():
        raise ValueError(f"y holds infinity in partition {place}")
    check_size(X, f"X in partition {place}", 0.0, FEATURE_SIZES[1])
    check_size(np.nan_to_num(Y), f"y in partition {place}", 0.0, TARGET_SIZES[1])
    return X, Y


def _columns(Y: Array) -> Array:
    return Y if Y.ndim == 2 else Y[:, None]


def read_long(inputs: Any, y: Any, task_column: Any, centre: bool, place: int) -> TaskSummary:
    """The statistics of the tasks of a block, from a table with a task column."""
    inputs, y = split_targets(inputs, y)
    table = split_table(inputs, task_column)
    X, Y = _checked(table.X, y, place)
    if Y.ndim != 1 and Y.shape[1] != 1:
        raise ValueError(f"y must be one column where X has a task column, got {Y.shape[1:]} of them")
    Y, labels = Y.reshape(len(X)), np.asarray(table.labels)
    seen = ~np.isnan(Y)
    names = sorted_labels(labels[seen])
    return summarise(np.column_stack([X, Y])[seen], code_labels(labels[seen], names), names, centre)


def read_wide(inputs: Any, y: Any, centre: bool, place: int) -> TaskSummary:
    """The same where every task has a column of targets, and its own rows: those in which it was observed.

    One task at a time: all of them at once would be a copy of the inputs each.
    """
    X, Y = _checked(inputs, y, place)
    Y = _columns(Y)
    parts = []
    for t in range(Y.shape[1]):
        seen = ~np.isnan(Y[:, t])
        if seen.any():
            rows = np.column_stack([X[seen], Y[seen, t]])
            parts.append(summarise(rows, np.zeros(len(rows), int), np.array([t]), centre))
    return TaskSummary.side_by_side(parts, X.shape[1] + 1)


def read_shared(inputs: Any, y: Any, place: int) -> PooledRows:
    """The statistics of a block in which every task was observed in every row."""
    X, Y = _checked(inputs, y, place)
    return PooledRows.merged([PooledRows(X, _columns(Y), len(X))])


def count_observed(inputs: Any, y: Any, _: int) -> Array:
    """The number of rows of a block, and for each task of a wide table in how many it was observed."""
    Y = np.asarray(split_targets(inputs, y)[1], dtype=float)
    return np.append(len(Y), np.count_nonzero(~np.isnan(_columns(Y)), axis=0))
