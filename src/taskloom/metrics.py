"""Metrics of many tasks; a target that is NaN was not observed. :class:`scorer` makes a scikit-learn scorer of each.

:func:`per_task` returns one number per task, the other functions their mean. ``task`` names the task of each row of a long
table; without it a two-dimensional ``y`` has one task in each column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .tables.layout import is_missing, rows_by_task, sorted_labels, split_table

Array = np.ndarray
FLAT = 1e-28  # a target is constant if its sum of squares about the mean is below this share of its sum of squares

__all__ = ["macro_accuracy", "macro_auc", "macro_nmse", "macro_r2", "normalized_improvement", "per_task", "pooled_nmse"]
__all__ += ["scorer"]


def observed(y: Array) -> Array:
    """Where a target is observed: not NaN, not None."""
    if y.dtype.kind == "f":
        return ~np.isnan(y)
    if y.dtype.kind == "O":
        return np.array([not is_missing(value) for value in y.ravel().tolist()], dtype=bool).reshape(y.shape)
    return np.ones(y.shape, dtype=bool)


def per_task(
    score: Callable[..., float], y_true: Any, y_pred: Any, task: Any = None, sample_weight: Any = None
) -> dict[Any, float]:
    """``score(true, predicted, sample_weight)`` of the observed entries of each task; tasks without any are left out.

    Parameters
    ----------
    score : callable
        ``score(true, predicted, sample_weight)``, which gives one number; the weights may be ``None``.
    y_true : array-like of shape (n_samples,) or (n_samples, n_tasks)
        Targets; NaN or None where unobserved.
    y_pred : array-like of the shape of ``y_true``
        Predictions, or decision values where ``score`` takes them.
    task : array-like of shape (n_samples,), default=None
        The task of each row of a long table.
    sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
        Weights of the observations.

    Returns
    -------
    dict
        By task label (long tables) or column position (wide ones).
    """
    truth, predictions = np.asarray(y_true), np.asarray(y_pred)
    if truth.shape != predictions.shape:
        raise ValueError(f"y_true has shape {truth.shape} and y_pred {predictions.shape}; they must be equal")
    weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
    scores = {}
    for name, rows, column in _tasks(truth, task):
        entry = (rows,) if column is None else (rows, column)
        true, predicted = truth[entry], predictions[entry]
        seen = observed(true)
        w = None if weight is None else weight[entry if weight.ndim == 2 else rows][seen]
        if seen.any():
            scores[name] = float(score(true[seen], predicted[seen], w))
    if not scores:
        raise ValueError("y_true holds only missing values: there is nothing to score")
    return scores


def _tasks(truth: Array, task: Any) -> list[tuple[Any, Any, int | None]]:
    if task is not None:
        labels = np.asarray(task)
        if len(labels) != len(truth):
            raise ValueError(f"task has {len(labels)} rows and y_true {len(truth)}")
        names = sorted_labels(labels)
        return [(name, rows, None) for name, rows in zip(names.tolist(), rows_by_task(labels, names), strict=True)]
    if truth.ndim == 1:
        return [(0, slice(None), None)]
    return [(t, slice(None), t) for t in range(truth.shape[1])]


def nmse(true: Array, predicted: Array, weight: Array | None) -> float:
    """Squared error over the variance of the targets: 1 - R2."""
    return 1 - r2(true, predicted, weight)


def r2(true: Array, predicted: Array, weight: Array | None) -> float:
    """As scikit-learn's ``r2_score`` (a constant target scores 1 if predicted exactly, else 0), without its checks."""
    if true.size < 2:
        return np.nan
    w = np.ones(true.size) if weight is None else weight
    total = float(w @ (true - np.average(true, weights=w)) ** 2)
    residual = float(w @ (true - predicted) ** 2)
    if total <= FLAT * float(w @ true**2):
        return 1.0 if residual == 0 else 0.0
    return 1 - residual / total


def accuracy(true: Array, predicted: Array, weight: Array | None) -> float:
    return float(np.average(true == predicted, weights=weight))


def auc(true: Array, decision: Array, weight: Array | None) -> float:
    from sklearn.metrics import roc_auc_score  # slow to import

    classes = np.unique(true)
    return float(roc_auc_score(true == classes[-1], decision, sample_weight=weight)) if classes.size == 2 else np.nan


class TaskScores:
    """The scores of all tasks, for repeated predictions of the same targets: R2, or accuracy of signs.

    ``y`` and ``z`` hold one number for each scored observation, ``task`` its task among ``names``; ``labelled`` says which
    tasks have labels, as -1 and +1 (0 is a label that the model does not know).
    """

    def __init__(self, y: Array, task: Array, names: list[Any], labelled: Array, weight: Array | None):
        self.y, self.task, self.names, self.labelled = y, task, names, labelled
        self.w = np.ones(y.size) if weight is None else weight
        self.size = self._sum(np.ones(y.size))
        self.total = self._sum(self.w)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = self._sum(self.w * y) / self.total
        self.squares = self._sum(self.w * (y - mean[task]) ** 2)
        self.flat = self.squares <= FLAT * self._sum(self.w * y**2)

    def _sum(self, values: Array) -> Array:
        return np.bincount(self.task, values, len(self.names))

    def __call__(self, z: Array, variance: dict[Any, float] | None = None) -> dict[Any, float]:
        """By task; tasks without an observation are left out.

        With ``variance`` (by task) this is the pooled-variance R2 (``scoring="steady"``): errors are divided by the variance of
        all targets of the task, not by that of the few in this fold, which may be small by chance.
        """
        residual = self._sum(self.w * (self.y - z) ** 2)
        correct = self._sum(self.w * (np.where(z > 0, 1.0, -1.0) == self.y))
        with np.errstate(invalid="ignore", divide="ignore"):
            explained = np.where(self.flat, np.where(residual == 0, 1.0, 0.0), 1 - residual / self.squares)
            explained[self.size < 2] = np.nan
            if variance is not None:
                explained = 1 - residual / (self.total * np.array([variance.get(name, np.nan) for name in self.names]))
                explained[~np.isfinite(explained)] = np.nan
            scores = np.where(self.labelled, correct / self.total, explained)
        return {name: float(score) for name, score, size in zip(self.names, scores, self.size, strict=True) if size > 0}


def mean_score(scores: dict[Any, float]) -> float:
    """The mean over the tasks that have a score."""
    values = np.array(list(scores.values()))
    return float(values[~np.isnan(values)].mean()) if not np.isnan(values).all() else np.nan


def macro_r2(y_true: Any, y_pred: Any, task: Any = None, sample_weight: Any = None) -> float:
    """The mean over tasks of the coefficient of determination; tasks with a single observation have none.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_tasks)
        Targets; NaN where unobserved.
    y_pred : array-like of the shape of ``y_true``
        Predictions.
    task : array-like of shape (n_samples,), default=None
        The task of each row of a long table.
    sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
        Weights of the observations.

    Returns
    -------
    float
        The mean; 1 is best.
    """
    return mean_score(per_task(r2, y_true, y_pred, task, sample_weight))


def macro_nmse(y_true: Any, y_pred: Any, task: Any = None, sample_weight: Any = None) -> float:
    """The mean over tasks of squared error over the variance of the task's targets (the paper's nMSE).

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_tasks)
        Targets; NaN where unobserved.
    y_pred : array-like of the shape of ``y_true``
        Predictions.
    task : array-like of shape (n_samples,), default=None
        The task of each row of a long table.
    sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
        Weights of the observations.

    Returns
    -------
    float
        The mean; 0 is best, 1 is as good as the mean of each task.
    """
    return mean_score(per_task(nmse, y_true, y_pred, task, sample_weight))


def pooled_nmse(y_true: Any, y_pred: Any, task: Any = None, sample_weight: Any = None) -> float:
    """matMTL's nMSE: the mean over *all* observations of squared error over the (ddof 1) variance of its task's targets.

    Tasks are weighted by their number of observations; :func:`macro_nmse` weights them equally.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_tasks)
        Targets; NaN where unobserved.
    y_pred : array-like of the shape of ``y_true``
        Predictions.
    task : array-like of shape (n_samples,), default=None
        The task of each row of a long table.
    sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
        Weights of the observations.

    Returns
    -------
    float
        The mean; 0 is best.
    """

    def total(true: Array, predicted: Array, weight: Array | None) -> float:
        w = np.ones(true.size) if weight is None else weight
        variance = np.var(true, ddof=1) if true.size > 1 else np.nan
        return float(w @ (true - predicted) ** 2 / variance)

    def size(true: Array, _: Array, weight: Array | None) -> float:
        return float(true.size if weight is None else weight.sum())

    errors = np.array(list(per_task(total, y_true, y_pred, task, sample_weight).values()))
    sizes = np.array(list(per_task(size, y_true, y_pred, task, sample_weight).values()))
    there = np.isfinite(errors)
    return float(errors[there].sum() / sizes[there].sum()) if there.any() else np.nan


def macro_accuracy(y_true: Any, y_pred: Any, task: Any = None, sample_weight: Any = None) -> float:
    """The mean over tasks of the accuracy.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_tasks)
        Labels; NaN or None where unobserved.
    y_pred : array-like of the shape of ``y_true``
        Predicted labels.
    task : array-like of shape (n_samples,), default=None
        The task of each row of a long table.
    sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
        Weights of the observations.

    Returns
    -------
    float
        The mean; 1 is best.
    """
    return mean_score(per_task(accuracy, y_true, y_pred, task, sample_weight))


def macro_auc(y_true: Any, decision: Any, task: Any = None, sample_weight: Any = None) -> float:
    """The mean over tasks of the area under the ROC curve; tasks with one class among the observed are left out.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_tasks)
        Labels, the larger of which is the positive class; NaN or None where unobserved.
    decision : array-like of the shape of ``y_true``
        Decision values or probabilities of the positive class.
    task : array-like of shape (n_samples,), default=None
        The task of each row of a long table.
    sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
        Weights of the observations.

    Returns
    -------
    float
        The mean; 1 is best, 0.5 is chance.
    """
    return mean_score(per_task(auc, y_true, decision, task, sample_weight))


def normalized_improvement(single: Any, joint: Any) -> float:
    """The paper's nI: the mean over experiments of ``(single - joint) / sqrt(single joint)`` of their nMSE.

    Parameters
    ----------
    single : array-like of shape (n_experiments,)
        nMSE of single-task learning.
    joint : array-like of shape (n_experiments,)
        nMSE of multi-task learning, of the same experiments.

    Returns
    -------
    float
        The mean; positive where multi-task learning is better.
    """
    one, other = np.asarray(single, dtype=float), np.asarray(joint, dtype=float)
    if not (one.shape == other.shape and one.size > 0):
        raise ValueError(f"need nMSE of the same experiments, got {one.shape}, {other.shape}")
    return float(np.mean((one - other) / np.sqrt(one * other)))


def _tasks_of_rows(estimator: Any, X: Any) -> Array | None:
    """The task of each row of a long table, as the model inside a fitted pipeline or search sees it; else ``None``."""
    while not hasattr(estimator, "task_column"):
        if hasattr(estimator, "steps"):
            X, estimator = estimator[:-1].transform(X) if len(estimator.steps) > 1 else X, estimator.steps[-1][1]
            continue
        inner = [name for name in ("best_estimator_", "regressor_", "estimator_") if hasattr(estimator, name)]
        if not inner:
            return None
        estimator = getattr(estimator, inner[0])
    return split_table(X, estimator.task_column).labels


class scorer:  # noqa: N801 (reads as a function: scoring=metrics.scorer(macro_r2))
    """Make a scikit-learn scorer of one of the functions here; it finds the tasks of a long table by itself.

    Parameters
    ----------
    score : callable
        ``score(y_true, y_pred, task, sample_weight)``.
    greater_is_better : bool, default=True
        Whether a larger score is better; if not, the scorer negates it, as in scikit-learn.
    response : str, default="predict"
        The method of the estimator that gives the predictions.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from taskloom import MultiTaskRegressor, metrics
    >>> search = GridSearchCV(
    ...     MultiTaskRegressor(task_column="school"),
    ...     {"alpha": [0.1, 1.0]},
    ...     scoring=metrics.scorer(metrics.macro_nmse, greater_is_better=False),
    ... )
    """

    def __init__(self, score: Callable[..., float], *, greater_is_better: bool = True, response: str = "predict"):
        self.score, self.greater_is_better, self.response = score, greater_is_better, response

    def __call__(self, estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
        value = self.score(y, getattr(estimator, self.response)(X), _tasks_of_rows(estimator, X), sample_weight)
        return value if self.greater_is_better else -value

    def __repr__(self) -> str:
        return f"scorer({self.score.__name__}, greater_is_better={self.greater_is_better}, response={self.response!r})"
