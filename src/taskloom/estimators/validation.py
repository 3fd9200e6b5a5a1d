"""Data at the door: inputs become matrices, targets become observations, names become positions; nonsense stays outside."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import _check_feature_names, _check_n_features, _check_sample_weight, check_consistent_length

from ..design import Observations
from ..losses import Loss, as_loss
from ..tables import TaskPositions, align_targets, as_table, code_labels, column_of_words, shown, sorted_labels, split_table

Array = np.ndarray


def _refuse_other_tables(X: Any) -> None:
    """What newcomers pass in place of one table, with the way to make one of it."""
    several = type(X) is dict or (isinstance(X, (list, tuple)) and len(X) > 0 and all(np.ndim(x) == 2 for x in X[:2]))
    if several:
        raise ValueError("X is one table, got one for each task: X, y = taskloom.stack(Xs, ys), then task_column=-1")
    if hasattr(X, "collect") and hasattr(X, "lazy"):
        raise ValueError(f"X is a {type(X).__name__}, which holds no data yet: pass X.collect()")


class Door(BaseEstimator):
    """What every estimator asks of data before it learns from them, and of data that it is to predict."""

    tasks_: Any
    n_features_in_: int
    _wide: bool
    loss: Any
    task_column: Any
    task_weight: Any
    unseen: str

    def _targets(self, y, labels):
        """``Y`` as numbers, NaN where unobserved, for targets at the door; sets what describes them."""
        raise NotImplementedError

    def _inputs(self, X, reset):
        """Inputs as a float matrix, and the task of each row when there is a task column."""
        _refuse_other_tables(X)
        X = as_table(X)
        _check_feature_names(self, X, reset=reset)
        table = split_table(X, self.task_column)
        inputs = self._matrix(table.X)
        if reset:
            self.n_features_in_ = inputs.shape[1] + (table.labels is not None)
        elif self.task_column is None:
            _check_n_features(self, inputs, reset=False)
        elif inputs.shape[1] + 1 != self.n_features_in_:
            raise ValueError(
                f"X has {inputs.shape[1] + 1} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input (the task column counts)"
            )
        return inputs, table.labels

    def _matrix(self, X):
        """Inputs as finite numbers, in single precision where they came so."""
        if hasattr(X, "iloc") and all(isinstance(kind, np.dtype) and kind.kind in "iuf" for kind in X.dtypes):
            X = X.to_numpy()  # for a row or two, the checks of a frame take longer than all else
        try:
            return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X", estimator=self)
        except (TypeError, ValueError) as error:
            odd = isinstance(error, TypeError) and not hasattr(X, "columns")  # an array of things that are neither
            if odd or (words := column_of_words(X)) is None:
                raise
            tasks = "" if self.task_column is not None else f", or pass task_column={words!r} if it names the tasks"
            why = str(error).split(". ")[0]
            raise ValueError(
                f"column {words!r} of X holds no numbers ({why}): encode it (TablePreprocessor, OneHotEncoder), leave it out"
                f"{tasks}"
            ) from None

    def _observations(self, inputs, labels, y, sample_weight):
        """Targets as observations; sets ``tasks_`` and whatever else describes the targets."""
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None")
        self.tasks_ = None if labels is None else sorted_labels(labels)
        Y = self._targets(as_table(y), labels)
        check_consistent_length(inputs, Y)
        weights = self._weights(sample_weight, inputs, Y)
        if labels is None:
            row, task = np.nonzero(~np.isnan(Y))
            values = Y[row, task]
            s = None if weights is None else weights[row, task]
        else:
            row = np.flatnonzero(~np.isnan(Y[:, 0]))
            task, values = code_labels(labels, self.tasks_)[row], Y[row, 0]
            s = None if weights is None else weights[row, 0]
        self._check_observed(task, values, s)
        return Observations.build(row, task, values, len(self.tasks_), s, self._by_task(self.task_weight, "task_weight"))

    def _weights(self, sample_weight, inputs, Y):
        """Sample weights in the shape of ``Y``; one for each entry is accepted where ``y`` was two-dimensional."""
        if sample_weight is None:
            return None
        weights = np.asarray(sample_weight, dtype=float)
        if weights.ndim == 2 and self._wide:
            names = list(sample_weight.columns) if hasattr(sample_weight, "columns") else []
            if names != list(range(len(names))) and self.tasks_.dtype.kind == "O":  # both have names
                weights = np.asarray(align_targets(sample_weight, self.tasks_, "sample_weight"), dtype=float)
            if weights.shape != Y.shape:
                raise ValueError(f"sample_weight of shape {weights.shape} does not match y of shape {Y.shape}")
            if not np.isfinite(weights).all():
                raise ValueError("sample_weight holds NaN or infinity")
        else:
            weights = _check_sample_weight(sample_weight, inputs, dtype=np.float64)[:, None]
        if not (weights >= 0).all():
            raise ValueError(f"sample_weight must not be negative, got {weights.min():.3g}")
        if not (weights > 0).any():
            raise ValueError("all sample weights are zero: nothing to learn from")
        return np.broadcast_to(weights, Y.shape)

    def _check_observed(self, task, y, s):
        """Every task must have something to learn from; the message names the task."""
        if y.size == 0:
            raise ValueError("y holds nothing but NaN: no task was observed")
        live = np.ones(y.size, bool) if s is None else s > 0
        seen = np.bincount(task[live], minlength=len(self.tasks_))
        if (seen == 0).any():
            name = self.tasks_[int(np.argmax(seen == 0))]
            raise ValueError(f"task {shown(name)} has no observation (all NaN, or all of weight 0); leave it out")
        positive = np.bincount(task[live & (y > 0)], minlength=len(self.tasks_))
        alone = self._labelled() & ((positive == 0) | (positive == seen))
        if alone.any():
            raise ValueError(
                f"task {shown(self.tasks_[int(np.argmax(alone))])} has one class only among its observations; a binary task "
                "needs both (this is a classifier: fewer than 2 classes, got 1 class)"
            )

    def _losses(self) -> list[Loss]:
        """One loss for each task."""
        if not isinstance(self.loss, dict):
            return [as_loss(self.loss)] * len(self.tasks_)
        return [as_loss(loss) for loss in self._by_task(self.loss, "loss")]

    def _by_task(self, given, what):
        """The entries of a dict (or of a series with labels) by task name, in the order of the tasks; else as it is."""
        if hasattr(given, "index") and hasattr(given, "to_dict") and list(given.index) != list(range(len(given))):
            given = given.to_dict()
        if not isinstance(given, dict):
            return given
        names = self.tasks_.tolist()
        known = set(names)
        strangers = [name for name in given if name not in known]
        if strangers:
            raise ValueError(f"{what} names {shown(strangers[0]) if strangers else ''}, which is not a task of the data")
        missing = [name for name in names if name not in given]
        if missing:
            raise ValueError(f"{what} has no entry for task {shown(missing[0]) if missing else ''}")
        return [given[name] for name in names]

    def _labelled(self) -> Array:
        """Which tasks have two labels."""
        return np.array([loss.targets == "signs" for loss in self._losses()])

    def _tasks_of_rows(self, X):
        """The task label of each row of a long table; ``None`` for a wide one."""
        return split_table(as_table(X), self.task_column).labels

    def _known_tasks(self, labels):
        known = self.__dict__.get("_task_positions")
        if known is None or known.tasks is not self.tasks_:
            known = self._task_positions = TaskPositions(self.tasks_)
        task = known(labels)
        if (task < 0).any() and self.unseen == "raise":
            stranger = labels[int(np.argmax(task < 0))]
            raise ValueError(
                f"task {shown(stranger)} was not seen in training; the tasks are {_few(self.tasks_)}. Add it with add_task, "
                'or set unseen="mean" to predict with the mean of the tasks'
            )
        return task


def _few(tasks: Array) -> str:
    """The names of the tasks, or the first of them."""
    names = tasks[:10].tolist()
    return f"{names}" if len(tasks) <= 10 else f"{names} and {len(tasks) - 10} more"
