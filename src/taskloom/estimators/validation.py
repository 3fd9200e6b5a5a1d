"""Validation: tables become matrices, targets become observations, task labels become positions.

Nothing here writes to an estimator: the description of the data is returned as :class:`Columns` and :class:`Targets`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils import check_array, metaestimators
from sklearn.utils.validation import (
    _check_feature_names,
    _get_feature_names,
    check_consistent_length,
)

from .._component import warn
from ..design import Observations
from ..losses import Loss, as_loss
from ..structures import as_structure
from ..tables.layout import TaskPositions, align_targets, as_table, code_labels, column_of_words, shown, split_table

Array = np.ndarray
Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False, kw_only=True)
class InputColumns:
    """The columns of ``X``, of which one may name the task of each row."""

    n_features_in_: int
    feature_names_in_: Array | None = None

    def input_names(self, task_column: Any) -> list[Any]:
        """The names of the columns without that of the tasks; positions where they have none."""
        width = self.n_features_in_ - (task_column is not None)
        if self.feature_names_in_ is None:
            return list(range(width))
        names = self.feature_names_in_.tolist()
        if task_column is not None:
            del names[names.index(task_column) if isinstance(task_column, str) else task_column]
        return names


@dataclass(frozen=True, eq=False, kw_only=True)
class TargetInfo:
    """A description of the targets: their tasks, and the class labels of a classifier."""

    tasks_: Array
    wide: bool  # a column for each task
    classes_: Any = None
    one_vs_rest: bool | None = None  # whether the tasks are the classes of one target; classifiers only

    @functools.cached_property
    def positions(self) -> TaskPositions:
        """The position of a label among the tasks."""
        return TaskPositions(self.tasks_)


def described(columns: InputColumns, targets: TargetInfo) -> dict[str, Any]:
    """The fields of both, as a fitted state takes them."""
    found = vars(columns) | vars(targets)
    found.pop("positions", None)  # which the state has of its own
    return found


def available_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """scikit-learn's ``available_if`` with a type: an untyped decorator would hide the signature of a method."""
    return metaestimators.available_if(check)


def names_its_class(method: Method) -> Method:
    """Errors about arguments name the class of the estimator; Python would name the class that defines the method."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def named(self: Any, *args: Any, **settings: Any) -> Any:
        try:
            signature.bind(self, *args, **settings)
        except TypeError as error:
            hint = "; the task of each row travels inside X: task_column=..." if "task" in settings else ""
            raise TypeError(f"{type(self).__name__}.{method.__name__}() {error}{hint}") from None
        return method(self, *args, **settings)

    return cast(Method, named)


# --- inputs -------------------------------------------------------------------------------------------------------------


def training_inputs(model: Any, X: Any, fitted: bool = False) -> tuple[Any, Array | None, InputColumns]:
    """Inputs as a float matrix, the task label of each row if there is a task column, and a description of the columns.

    The names of the columns must be those of a ``fitted`` model.
    """
    if type(X) is dict or (isinstance(X, (list, tuple)) and len(X) > 0 and all(np.ndim(x) == 2 for x in X[:2])):
        raise ValueError("X is one table, got one for each task: X, y = taskloom.stack(Xs, ys), then task_column=-1")
    if hasattr(X, "collect") and hasattr(X, "lazy"):
        raise ValueError(f"X is a {type(X).__name__}, which holds no data yet: pass X.collect()")
    X = as_table(X)
    names = _check_feature_names(model, X, reset=False) if fitted else _get_feature_names(X)
    table = split_table(X, model.task_column)
    X = table.X
    if hasattr(X, "iloc") and all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in X.dtypes):
        X = X.to_numpy()  # for few rows, the checks of a frame take longer than the prediction
    try:
        inputs = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X", estimator=model)
    except (TypeError, ValueError) as error:
        odd = isinstance(error, TypeError) and not hasattr(X, "columns")  # an array of objects
        if odd or (column := column_of_words(X)) is None:
            raise
        tasks = "" if model.task_column is not None else f", or pass task_column={column!r} if it names the tasks"
        why = str(error).split(". ")[0]
        raise ValueError(
            f"column {column!r} of X holds no numbers ({why}): encode it (TablePreprocessor, OneHotEncoder), leave "
            f"it out{tasks}"
        ) from None
    width = inputs.shape[1] + (table.labels is not None)
    return inputs, table.labels, InputColumns(n_features_in_=width, feature_names_in_=names)


def new_inputs(model: Any, X: Any) -> tuple[Any, Array | None]:
    """The same for a fitted model, whose columns these must be."""
    inputs, labels, columns = training_inputs(model, X, fitted=True)
    if columns.n_features_in_ != model.n_features_in_:
        raise ValueError(
            f"X has {columns.n_features_in_} features, but {type(model).__name__} is expecting {model.n_features_in_} "
            f"features as input{'' if labels is None else ' (the task column counts)'}"
        )
    return inputs, labels


def new_rows(model: Any, known: TargetInfo, X: Any) -> tuple[Any, Any]:
    """Inputs for a fitted model, and the position of the task of each row of a long table."""
    inputs, labels = new_inputs(model, X)
    if not (model.unseen == "auto" and getattr(model, "means_for_unseen", False)):
        return inputs, position_of_tasks(known, labels, model.unseen)
    task = position_of_tasks(known, labels, "mean")
    if task is not None and (task < 0).any():
        unknown = shown(labels[int(np.argmax(task < 0))])  # type: ignore[index]
        warn(
            f"task {unknown} was not seen in training, and the model has no common part: it gets the mean of the tasks; set "
            'unseen="mean" to accept that, or unseen="raise"',
            UserWarning,
        )
    return inputs, task


def position_of_tasks(known: TargetInfo, labels: Array | None, unseen: str) -> Any:
    """The position of each label among the tasks of a fit; -1 for one that was not seen, unless that is refused.

    ``None`` for a wide table, which has no labels.
    """
    if labels is None:
        return None
    task = known.positions(labels)
    if unseen != "mean" and (task < 0).any():
        unknown, names = labels[int(np.argmax(task < 0))], known.tasks_[:10].tolist()
        more = f" and {len(known.tasks_) - 10} more" if len(known.tasks_) > 10 else ""
        common = getattr(known, "common_part", None) is not None
        instead = '"auto" to predict with the common part' if common else '"mean" to predict with the mean of the tasks'
        raise ValueError(
            f"task {shown(unknown)} was not seen in training; the tasks are {names}{more}. Add it with add_task, or set "
            f"unseen={instead}"
        )
    return task


# --- targets ------------------------------------------------------------------------------------------------------------


def observations(
    known: TargetInfo, Y: Array, task: Array | None, weights: Array | None, labelled: Array, task_weight: Any
) -> Observations:
    """Targets (NaN where unobserved) as observations; ``task`` has the position of each row's task, for long tables.

    Every task needs an observation, and a binary task both classes; the message names the task.
    """
    row, column = np.nonzero(~np.isnan(Y))
    y, s = Y[row, column], None if weights is None else weights[row, column]
    task, tasks, live = column if task is None else task[row], known.tasks_, slice(None) if s is None else s > 0
    seen = np.bincount(task[live], minlength=len(tasks))
    check_observed(tasks, seen)
    positive = np.bincount(task[live], weights=y[live] > 0, minlength=len(tasks))
    one_class = labelled & ((positive == 0) | (positive == seen))
    if one_class.any():
        raise ValueError(
            f"task {shown(tasks[int(np.argmax(one_class))])} has one class only among its observations; a binary task "
            "needs both (this is a classifier: fewer than 2 classes, got 1 class)"
        )
    return Observations.build(row, task, y, len(tasks), s, entries_by_task(task_weight, tasks, "task_weight"))


def check_observed(tasks: Array, counts: Array) -> None:
    """Raise if a task has no observation of positive weight."""
    if not counts.any():
        raise ValueError("y holds nothing but NaN: no task was observed")
    if (counts == 0).any():
        name = tasks[int(np.argmax(counts == 0))]
        raise ValueError(f"task {shown(name)} has no observation (all NaN, or all of weight 0); leave it out")


def training_data(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[InputColumns, TargetInfo, Any, Observations]:
    """The columns and the targets of a fit, its inputs as a matrix, and its targets as observations."""
    inputs, labels, columns = training_inputs(model, X)
    Y, known = read_targets(model, y, labels)
    check_consistent_length(inputs, Y)
    weights = training_weights(sample_weight, as_table(y), Y, known)
    task = None if labels is None else code_labels(labels, known.tasks_)
    return columns, known, inputs, observations(known, Y, task, weights, model._labelled(known), model.task_weight)


def read_targets(model: Any, y: Any, labels: Any) -> tuple[Array, TargetInfo]:
    """Targets as numbers, NaN where unobserved, and their description."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None")
    return model._targets(as_table(y), labels)


def sample_weights(sample_weight: Any, y: Any, Y: Array, known: TargetInfo | None = None) -> Array:
    """Sample weights in the shape of the encoded targets ``Y``: one for each row, or for each entry of a two-dimensional ``y``.

    Columns of a wide ``y`` are the tasks of ``known``; that of any other is one task, or one target with several classes.
    """
    sample_weight = as_table(sample_weight)
    weights = np.asarray(sample_weight, dtype=float)
    entrywise = weights.ndim == 2 and np.ndim(y) == 2
    if entrywise and known is not None and known.wide and known.tasks_.dtype.kind == "O":
        names = list(sample_weight.columns) if hasattr(sample_weight, "columns") else []
        if names != list(range(len(names))):  # both have names
            weights = np.asarray(align_targets(sample_weight, known.tasks_, "sample_weight"), dtype=float)
    if weights.shape not in ((), np.shape(y) if entrywise else (len(Y),)):
        raise ValueError(
            f"sample_weight of shape {weights.shape} does not match y of shape {np.shape(y)}; pass one weight for each row, or "
            "one for each entry of a two-dimensional y"
        )
    if not np.isfinite(weights).all():
        raise ValueError("sample_weight holds NaN or infinity")
    if not (weights >= 0).all():
        raise ValueError(f"sample_weight must not be negative, got {weights.min():.3g}")
    return np.broadcast_to(weights if entrywise else weights.reshape(-1, 1), Y.shape)


def training_weights(sample_weight: Any, y: Any, Y: Array, known: TargetInfo) -> Array | None:
    """The sample weights of a fit; ``None`` where there are none."""
    weights = None if sample_weight is None else sample_weights(sample_weight, y, Y, known)
    if weights is not None and not (weights > 0).any():
        raise ValueError("all sample weights are zero: nothing to learn from")
    return weights


def losses_by_task(loss: Any, tasks: Array) -> list[Loss]:
    """One loss for each task."""
    if not isinstance(loss, dict):
        return [as_loss(loss)] * len(tasks)
    return [as_loss(each) for each in entries_by_task(loss, tasks, "loss")]


def entries_by_task(given: Any, tasks: Array, what: str) -> Any:
    """The entries of a dict (or of a series with labels) by task name, in the order of the tasks; else as it is."""
    if hasattr(given, "index") and hasattr(given, "to_dict") and list(given.index) != list(range(len(given))):
        given = given.to_dict()
    if not isinstance(given, dict):
        return given
    names = tasks.tolist()
    known = set(names)
    if unknown := [name for name in given if name not in known]:
        raise ValueError(f"{what} names {shown(unknown[0])}, which is not a task of the data")
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"{what} has no entry for task {shown(missing[0])}")
    return [given[name] for name in names]


# --- parameters ----------------------------------------------------------------------------------------------------------


def as_structures(structure: Any, kernel: Any) -> Any:
    """The structure that was given; one for each kernel, where a list was."""
    if not isinstance(structure, (list, tuple)):
        return as_structure(structure)
    if not (isinstance(kernel, (list, tuple)) and len(kernel) == len(structure)):
        raise ValueError(
            f"a list of {len(structure)} structures needs a list of as many kernels, got kernel={kernel!r}; to choose one of "
            "several structures, search: MultiTaskRegressorCV(structures=[...])"
        )
    return [as_structure(each) for each in structure]
