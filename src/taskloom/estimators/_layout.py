"""The two layouts of a table, read once at the door: wide (a column of ``Y`` for each task) and long (a column of ``X``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from .._component import require

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Table:
    """Inputs without the task column, the task label of each row (long) or ``None`` (wide), and the column's position."""

    X: Any
    labels: Array | None


def column_position(X: Any, task_column: Any) -> int:
    """Where the task column is; a name needs a frame, a position works for both."""
    names = list(map(str, X.columns)) if hasattr(X, "columns") else None
    n_columns = len(names) if names is not None else np.shape(X)[1]
    if isinstance(task_column, str):
        require(
            names is not None,
            f"task_column={task_column!r} is a name, but X has no column names: pass a data frame, or the column's position",
        )
        require(names is not None and task_column in names, f"X has no column {task_column!r} (task_column); it has {names}")
        return names.index(task_column)  # type: ignore[union-attr]
    position = int(task_column)
    require(-n_columns <= position < n_columns, f"task_column={task_column!r} is outside the {n_columns} columns of X")
    return position % n_columns


def split_table(X: Any, task_column: Any) -> Table:
    """Take the task column out of ``X``."""
    if task_column is None:
        return Table(X, None)
    require(not hasattr(X, "tocsr"), "task_column needs a dense X or a data frame; a sparse matrix cannot hold task labels")
    if not hasattr(X, "columns"):
        X = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        require(X.ndim == 2, f"X must be a matrix, got shape {X.shape}")
    position = column_position(X, task_column)
    n_columns = X.shape[1]
    labels = np.asarray(_safe_indexing(X, position, axis=1))
    if labels.dtype.kind not in "biufO":
        labels = labels.astype(object)
    missing = np.array([label is None or label != label for label in labels.tolist()])
    require(not missing.any(), f"the task column holds a missing value in row {int(np.argmax(missing)) if missing.size else 0}")
    rest = _safe_indexing(X, [j for j in range(n_columns) if j != position], axis=1)
    if isinstance(rest, np.ndarray) and rest.dtype.kind in "OUS":
        rest = rest.astype(float)
    return Table(rest, labels)


def sorted_labels(labels: Array) -> Array:
    """The distinct task labels in order; labels that do not compare with each other are ordered as text."""
    try:
        return np.unique(labels)
    except TypeError:
        return np.array(sorted(set(labels.tolist()), key=lambda label: (type(label).__name__, str(label))), dtype=object)


def code_labels(labels: Array, tasks: Array) -> Array:
    """The position of each label among the known tasks; -1 for a task that is not among them."""
    position = {label: t for t, label in enumerate(tasks.tolist())}
    return np.array([position.get(label, -1) for label in labels.tolist()], dtype=int)


def column_names(Y: Any, n_tasks: int) -> Array:
    """Task names from the columns of a frame (or the name of a series); positions otherwise."""
    if hasattr(Y, "columns"):
        names = list(Y.columns)
        require(len(set(names)) == len(names), f"the columns of Y must have different (unique) names, got {names}")
        return np.array(names, dtype=object)
    return np.arange(n_tasks)


def shown(label: Any) -> str:
    """A task label as a person would write it in code (``2``, not ``np.int64(2)``)."""
    return repr(label.item() if isinstance(label, np.generic) else label)
