"""Layouts of many tasks: wide (one column of ``Y`` per task), long (the task in a column of ``X``), one data set per task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import pairwise, repeat
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.sparse import hstack as sparse_hstack
from scipy.sparse import vstack as sparse_vstack
from sklearn.utils import _safe_indexing

from .._array_api import to_numpy

Array = np.ndarray
MAX_RANGE = 8  # of integer labels, relative to their number, up to which they are counted and not sorted
MAX_COUNTED = 1 << 62  # far from the largest integer


@dataclass(frozen=True, eq=False)
class Table:
    """Inputs without the task column, and the task label of each row (long) or ``None`` (wide)."""

    X: Any
    labels: Array | None


def as_table(X: Any) -> Any:
    """A pyarrow table as a frame that scikit-learn can read (its ``columns`` are values, not names), a masked array with its
    missing entries marked as such, tensors of PyTorch and CuPy as NumPy's arrays; all else as it is."""
    X = to_numpy(X)
    if isinstance(X, np.ma.MaskedArray):
        numbers = X.dtype.kind in "biuf"
        missing = np.ma.getmaskarray(X)
        values = X.data.astype(np.result_type(X.dtype, np.float32) if numbers else object)
        values[missing] = np.nan if numbers else None
        return values
    if not (hasattr(X, "column_names") and hasattr(X, "schema")):
        return X
    names = X.column_names
    if len(set(names)) != len(names):
        raise ValueError(f"columns must have different (unique) names, got {names}")
    try:  # both read Arrow's types as NumPy's, nulls included
        return import_module("pandas").DataFrame({name: X.column(name).to_pandas() for name in names})
    except ImportError:
        return import_module("polars").from_arrow(X)


def column_position(X: Any, task_column: Any) -> int:
    """The position of the task column; a name needs a data frame, a position works for arrays too."""
    names = list(map(str, X.columns)) if hasattr(X, "columns") else None
    n_columns = len(names) if names is not None else np.shape(X)[1]
    if isinstance(task_column, str):
        if names is None:
            raise ValueError(
                f"task_column={task_column!r} is a name, but X has no column names: pass a data frame, or the column's position"
            )
        if task_column not in names:
            raise ValueError(f"X has no column {task_column!r} (task_column); it has {names}")
        return names.index(task_column)
    if not (isinstance(task_column, Integral) and not isinstance(task_column, bool)):
        raise ValueError(f"task_column must be a column name or an integer, got {task_column!r}")
    position = int(task_column)
    if not (-n_columns <= position < n_columns):
        raise ValueError(f"task_column={task_column!r} is outside the {n_columns} columns of X")
    return position % n_columns


def column_of_words(X: Any) -> Any:
    """The name (of an array: the position) of the first column that is not numeric; ``None`` if all are."""
    if not hasattr(X, "columns") and not (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUSM"):
        return None
    names = X.columns if hasattr(X, "columns") else range(X.shape[1])
    for position, name in enumerate(names):
        column = np.asarray(_safe_indexing(X, position, axis=1))
        try:
            if column.dtype.kind in "mM":
                return name
            column.astype(float)
        except (TypeError, ValueError):
            return name
    return None


def split_table(X: Any, task_column: Any) -> Table:
    """Take the task column out of ``X``."""
    X = as_table(X)
    if task_column is None:
        return Table(X, None)
    if hasattr(X, "tocsr"):
        X = X.tocsr()
    elif not hasattr(X, "columns"):
        X = X if isinstance(X, np.ndarray) else np.asarray(X, dtype=object)
        if X.ndim != 2:
            raise ValueError(f"X must be a matrix, got shape {X.shape}")
    position = column_position(X, task_column)
    others = [j for j in range(X.shape[1]) if j != position]
    if issparse(X):  # tasks are numbers; an entry that is not stored is task 0
        labels = X[:, [position]].toarray().ravel()
        if not np.isfinite(labels).all():
            raise ValueError(f"the task column (position {position}) holds NaN or infinity; drop these rows")
        return Table(X[:, others], labels)
    plain = isinstance(X, np.ndarray)
    labels = X[:, position] if plain else np.asarray(_safe_indexing(X, position, axis=1))
    if labels.dtype.kind not in "biufO":
        labels = labels.astype(object)
    missing = np.isnan(labels) if labels.dtype.kind in "biuf" else missing_cells(labels.tolist())
    if missing.any():
        raise ValueError(
            f"the task column {task_column!r} holds a missing value in row {int(np.argmax(missing))}; drop the row, or give it "
            "a task of its own"
        )
    rest = _without_column(X, position) if plain else _safe_indexing(X, others, axis=1)
    if isinstance(rest, np.ndarray) and rest.dtype.kind in "OUS":
        rest = rest.astype(float)
    return Table(rest, labels)


def _without_column(X: Array, position: int) -> Array:
    """All columns but one; without a copy if that is the first or the last one."""
    if position == 0:
        return X[:, 1:]
    return X[:, :-1] if position == X.shape[1] - 1 else np.delete(X, position, axis=1)


def is_missing(value: Any) -> bool:
    """None, NaN, or a missing value of pandas (whose comparisons have no truth value)."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except TypeError:
        return True


def missing_cells(values: list) -> Array:
    """Which of the values are missing; strings never are."""
    if set(map(type, values)) <= {str}:
        return np.zeros(len(values), bool)
    return np.array([is_missing(value) for value in values])


def align_targets(y: Any, tasks: Array, what: str = "y") -> Any:
    """The columns of a frame of targets in the order of the tasks; any other table must have one column for each task."""
    if hasattr(y, "columns"):
        names = list(y.columns)
        missing = [name for name in tasks.tolist() if name not in names]
        if not missing:
            return _safe_indexing(y, [names.index(name) for name in tasks.tolist()], axis=1)
        if not (len(names) == len(tasks) and tasks.dtype.kind in "iu"):
            raise ValueError(f"{what} has no column for task {missing[0]!r}; it has {names}")
    width = np.shape(y)[1] if np.ndim(y) == 2 else 1
    if width != len(tasks):
        raise ValueError(f"{what} has {width} columns, but the model has {len(tasks)} tasks")
    return y


def sorted_labels(labels: Array) -> Array:
    """The distinct task labels in order; labels that do not compare with each other are ordered as text."""
    if (offset := offset_of_small_range(labels)) is not None:
        return (np.flatnonzero(np.bincount(labels.astype(np.int64, copy=False) - offset)) + offset).astype(labels.dtype)
    if labels.dtype.kind != "O":
        return np.unique(labels)
    distinct = set(labels.tolist())  # sorting all of them would take most of a fit
    try:
        in_order = sorted(distinct)
    except TypeError:
        in_order = sorted(distinct, key=lambda label: (type(label).__name__, str(label)))
    return np.fromiter(in_order, dtype=object, count=len(in_order))


def offset_of_small_range(labels: Array) -> int | None:
    """The smallest label, if labels are integers of a range not much longer than they are many: these need no sorting."""
    if labels.dtype.kind not in "iu" or not labels.size:
        return None
    low, high = int(labels.min()), int(labels.max())
    return low if high - low <= MAX_RANGE * labels.size and abs(high) < MAX_COUNTED else None


class TaskPositions:
    """The position of a label among the known tasks; the index is built once, for repeated calls."""

    def __init__(self, tasks: Array):
        self.tasks = tasks

    @cached_property
    def _sorted(self) -> tuple[Array, Array]:
        order = np.argsort(self.tasks)
        return self.tasks[order], order

    @cached_property
    def _by_label(self) -> dict[Any, int]:
        return {label: t for t, label in enumerate(self.tasks.tolist())}

    @cached_property
    def _places(self) -> tuple[int, Array] | None:
        """For integers of a small range: the smallest one, and the position of each number from there on."""
        offset = offset_of_small_range(self.tasks)
        if offset is None:
            return None
        places = np.full(int(self.tasks.max()) - offset + 1, -1)
        places[self.tasks.astype(np.int64, copy=False) - offset] = np.arange(len(self.tasks))
        return offset, places

    def __call__(self, labels: Array) -> Array:
        """The position of each label; -1 for a task that is not known."""
        if labels.dtype == self.tasks.dtype and self._places is not None:
            offset, places = self._places
            numbers = labels.astype(np.int64, copy=False)
            inside = (numbers >= offset) & (numbers < offset + len(places))
            found = places.take(numbers - offset, mode="clip")
            return found if inside.all() else np.where(inside, found, -1)
        if labels.dtype == self.tasks.dtype and labels.dtype.kind in "biuf":
            tasks, order = self._sorted
            place = np.searchsorted(tasks, labels).clip(max=len(tasks) - 1)
            return np.where(tasks[place] == labels, order[place], -1)
        position = self._by_label
        return np.fromiter(map(position.get, labels.tolist(), repeat(-1)), dtype=int, count=len(labels))


def code_labels(labels: Array, tasks: Array) -> Array:
    """The position of each label among the known tasks; -1 for a task that is not among them."""
    return TaskPositions(tasks)(labels)


def rows_by_task(labels: Array, tasks: Array) -> list[Array]:
    """The rows of each task, in order: one pass over the labels, however many tasks there are."""
    task = code_labels(np.asarray(labels), tasks)
    order = np.argsort(task, kind="stable")
    ends = np.searchsorted(task[order], np.arange(len(tasks) + 1))
    return [order[begin:end] for begin, end in pairwise(ends)]


def column_names(Y: Any, n_tasks: int) -> Array:
    """Task names from the columns of a frame (or the name of a series); positions otherwise."""
    if hasattr(Y, "columns"):
        names = list(Y.columns)
        if len(set(names)) != len(names):
            raise ValueError(f"the columns of Y must have different (unique) names, got {names}")
        return np.fromiter(names, dtype=object)  # NumPy's array would take tuples for rows
    if n_tasks == 1 and getattr(Y, "name", None) is not None:
        return np.fromiter([Y.name], dtype=object)
    return np.arange(n_tasks)


def shown(label: Any) -> str:
    """A task label as a person would write it in code (``2``, not ``np.int64(2)``)."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def stack(Xs: Any, ys: Any) -> tuple[Any, Array]:
    """Make one long table from one data set for each task.

    Parameters
    ----------
    Xs : sequence or dict of arrays, sparse matrices or data frames of shape (n_t, d)
        Inputs of each task, with the same columns. The keys of a dict name the tasks; a sequence numbers them from 0.
    ys : sequence or dict of arrays of shape (n_t,)
        Targets, in the same order or with the same keys.

    Returns
    -------
    X : array, sparse array or data frame of shape (sum of n_t, d + 1)
        All inputs with the task as the last column: fit with ``task_column=-1``, or ``task_column="task"`` for data frames.
    y : array of shape (sum of n_t,)

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import MultiTaskRegressor, stack
    >>> X, y = stack([np.eye(3), np.ones((2, 3))], [[1.0, 2.0, 3.0], [4.0, 5.0]])
    >>> X.shape, y.tolist()
    ((5, 4), [1.0, 2.0, 3.0, 4.0, 5.0])
    >>> MultiTaskRegressor(task_column=-1).fit(X, y).tasks_.tolist()
    [0.0, 1.0]
    """
    names = list(Xs) if isinstance(Xs, Mapping) else list(range(len(Xs)))
    if len(names) == 0:
        raise ValueError("stack needs at least one task, got none")
    if not (isinstance(Xs, Mapping) == isinstance(ys, Mapping) and len(ys) == len(names)):
        raise ValueError(
            f"Xs and ys must both be dicts or both be sequences, of one length; got {len(names)} inputs and {len(ys)} targets"
        )
    if isinstance(Xs, Mapping):
        unmatched = [name for name in names if name not in ys]
        if unmatched:
            raise ValueError(f"ys has no task {unmatched[0]!r}, which Xs has")
    inputs = [Xs[name] for name in names]
    targets = [np.asarray(ys[name]) for name in names]
    width = np.shape(inputs[0])[1] if np.ndim(inputs[0]) == 2 else -1
    for name, X, y in zip(names, inputs, targets, strict=True):
        if np.ndim(X) != 2:
            raise ValueError(f"the inputs of task {name!r} must be a matrix, got shape {np.shape(X)}")
        if np.shape(X)[1] != width:
            raise ValueError(f"task {name!r} has {np.shape(X)[1]} columns, the first task has {width}")
        if y.ndim != 1:
            raise ValueError(f"the targets of task {name!r} must be one-dimensional, got shape {y.shape}")
        if len(y) != np.shape(X)[0]:
            raise ValueError(f"task {name!r} has {np.shape(X)[0]} rows of inputs and {len(y)} targets")
    labels = [name for name, y in zip(names, targets, strict=True) for _ in range(len(y))]
    y = np.concatenate(targets)
    if hasattr(inputs[0], "columns"):
        return _stack_frames(inputs, labels), y
    numeric = all(isinstance(name, Real) for name in names)
    if any(issparse(X) for X in inputs):
        if not numeric:
            raise ValueError(f"in a sparse matrix the task is a number; name the tasks by numbers, not {names[0]!r}")
        return csr_array(sparse_hstack([sparse_vstack(inputs), _numbered(names, labels, np.dtype(float))[:, None]])), y
    whole = np.vstack([np.asarray(X) for X in inputs])
    if not numeric:
        return np.hstack([whole.astype(object), np.array(labels, dtype=object)[:, None]]), y
    column = _numbered(names, labels, whole.dtype if whole.dtype.kind == "f" else np.dtype(float))
    return np.hstack([whole.astype(column.dtype), column[:, None]]), y


def _numbered(names: list[Any], labels: list[Any], kind: np.dtype) -> Array:
    """Task labels in the precision of the inputs, or in double precision where labels would coincide."""
    for precision in (kind, np.dtype(float)):
        if np.array(names, dtype=precision).tolist() == names:
            return np.array(labels, dtype=precision)
    merged = next(name for name in names if float(name) != name)
    raise ValueError(f"task {merged!r} has no exact double-precision value; name the tasks by strings")


def _stack_frames(frames: Sequence[Any], labels: list[Any]) -> Any:
    """Frames keep their columns and get a last one, ``task``."""
    import narwhals as nw  # only frames need it

    frames = [nw.from_native(frame, eager_only=True) for frame in frames]
    columns = frames[0].columns
    if "task" in columns:
        raise ValueError("the inputs have a column 'task' already; rename it before stacking")
    for frame in frames:
        if frame.columns != columns:
            raise ValueError(f"all inputs must have the columns {columns}, got {frame.columns}")
    whole = nw.concat(frames)
    task = nw.new_series("task", labels, backend=whole.implementation)
    return whole.with_columns(task.alias("task")).to_native()


def unstack(X: Any, y: Any, task_column: Any = -1) -> tuple[dict[Any, Any], dict[Any, Array]]:
    """Split a long table into one data set per task: the inverse of :func:`stack`.

    Parameters
    ----------
    X : array, sparse matrix or data frame of shape (n_samples, n_features + 1)
        Inputs and the task column.
    y : array-like of shape (n_samples,)
        Targets.
    task_column : str or int, default=-1
        Name or position of the task column.

    Returns
    -------
    Xs, ys : dicts by task label
        Inputs without the task column, and targets.
    """
    table = split_table(X, task_column)
    if table.labels is None:
        raise ValueError("unstack needs the name or the position of the task column, got task_column=None")
    labels, y = np.asarray(table.labels), np.asarray(y)
    if len(y) != len(labels):
        raise ValueError(f"X has {len(labels)} rows and y has {len(y)}")
    Xs, ys = {}, {}
    tasks = sorted_labels(labels)
    for label, rows in zip(tasks.tolist(), rows_by_task(labels, tasks), strict=True):
        Xs[label], ys[label] = _safe_indexing(table.X, rows), y[rows]
    return Xs, ys
