"""Single-task against multi-task learning: two searches on the same folds, compared on out-of-fold predictions.

The score of a task pools its observations over the folds. A task of ten rows has two in each fold: its R2 there is noise, and
so is the mean of R2 over folds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from ..estimators import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV
from ..estimators.cross_validation.splitters import task_folds
from ..structures import Independent, Structure
from .output import FoldProgress, Output
from .table_roles import TableRoles

Array = np.ndarray
Folds = list[tuple[Array, Array]]


@dataclass(frozen=True)
class Settings:
    """The model options of a command."""

    kernel: str = "linear"
    gamma: float | None = None
    loss: str | None = None
    alphas: Any = 20
    cv: int = 5
    seed: int | None = None
    jobs: int = 1
    tol: float = 1e-4
    max_iter: int = 1000
    fallback: bool = False


def assign_folds(data: TableRoles, n_splits: int, seed: int | None) -> Folds:
    """Folds stratified by task, and by class where targets are labels."""
    stratum = data.task
    if data.labelled and data.layout != "classes":
        second = np.array([max(data.seen[data.task == t].tolist()) for t in range(len(data.tasks))], dtype=object)
        stratum = stratum * 2 + (data.seen == second[data.task])
    return task_folds(len(data.inputs), data.row, stratum, n_splits, seed)


class PooledR2:
    """A scorer: one minus the mean over observations of the squared error divided by the variance of the task."""

    def __init__(self, data: TableRoles):
        self.variance = dict(zip(data.tasks, np.maximum(variances(data), 1e-300), strict=True))

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        error = (np.asarray(y, dtype=float) - estimator.predict(X)) ** 2
        tasks = self.variance if estimator.task_column is None else X[estimator.task_column]
        return 1 - float(np.nanmean(error / np.array([self.variance[name] for name in tasks])))


def search(
    output: Output, data: TableRoles, X: Any, structures: list[Structure], settings: Settings, folds: Folds, title: str
) -> Any:
    """A fitted search over values of alpha and structures."""
    options: dict[str, Any] = {
        "structures": structures,
        "kernel": settings.kernel,
        "gamma": settings.gamma,
        "alphas": settings.alphas,
        "cv": folds,
        "n_jobs": settings.jobs,
        "tol": settings.tol,
        "max_iter": settings.max_iter,
        "task_column": data.task_column,
        "fallback": "single" if settings.fallback else None,
    }
    if settings.loss is not None:
        options["loss"] = settings.loss
    if data.labelled:
        model = MultiTaskClassifierCV(**options)
    else:
        wide = data.layout == "wide"  # columns may be in different units
        model = MultiTaskRegressorCV(**options, scoring=PooledR2(data), standardize_targets=wide)
    with output.progress(title, len(folds)) as bar:
        model.set_callbacks(*([] if bar is None else [FoldProgress(bar)])).fit(X, data.y)
    # what a file can hold: a number of folds, and the default score
    return model.set_callbacks().set_params(cv=settings.cv, random_state=settings.seed, scoring=None)


def plain_model(model: Any) -> Any:
    """An unfitted estimator with the chosen alpha and structure."""
    cls = MultiTaskClassifier if isinstance(model, MultiTaskClassifier) else MultiTaskRegressor
    known = cls._get_param_names()
    params = {name: value for name, value in model.get_params(deep=False).items() if name in known and name != "structure"}
    return cls(clone(model.best_structure_, safe=False), **params).set_params(alpha=model.alpha_)


def out_of_fold(output: Output, model: Any, data: TableRoles, X: Any, folds: Folds) -> Array:
    """Out-of-fold predictions of all observations; ``None`` where no fold leaves an observation out."""
    predicted = np.full(data.row.size, None, dtype=object)
    with output.progress("out-of-fold predictions", len(folds)) as bar:
        for train, test in folds:
            y = data.y.iloc[train] if data.layout == "wide" else data.y[train]
            fitted = plain_model(model).fit(X.iloc[train], y)
            place = np.full(len(X), -1)
            place[test] = np.arange(len(test))
            mine = place[data.row] >= 0
            predicted[mine] = pick(fitted.predict(X.iloc[test]), place[data.row[mine]], data.task[mine])
            if bar is not None:
                bar.advance(bar.task_ids[-1])
    return predicted


def pick(predictions: Array, row: Array, task: Array) -> Array:
    """The predictions of observations, from those of rows (long) or of rows and tasks (wide)."""
    return predictions[row, task] if predictions.ndim == 2 else predictions[row]


def variances(data: TableRoles) -> Array:
    """The variance of the targets of each task; 1 where they are labels."""
    if data.labelled:
        return np.ones(len(data.tasks))
    values = data.seen.astype(float)
    with np.errstate(over="ignore", invalid="ignore"):  # a fit says what is wrong with targets of 1e308
        return np.array([np.var(values[data.task == t]) for t in range(len(data.tasks))])


def compare_tasks(data: TableRoles, predictions: tuple[Array, Array], variance: Array) -> dict[str, Any]:
    """Single-task and multi-task score of each task on the same observations, the gain, and its standard error.

    The score is the accuracy, or one minus the mean squared error divided by ``variance``. This is the variance of all targets
    of the task: that of a few held-out targets may be small by chance.
    """
    alone, together = predictions
    seen = data.seen
    there = np.array([a is not None and b is not None for a, b in zip(alone, together, strict=True)])
    rows = []
    for t in range(len(data.tasks)):
        mine = there & (data.task == t)
        one, other = (_scores(data.labelled, seen[mine], z[mine], float(variance[t])) for z in (alone, together))
        n, gain = one.size, other - one
        error = gain.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
        rows.append((one.mean(), other.mean(), gain.mean(), error) if n else (np.nan,) * 4)
    scores = dict(zip(("alone", "together", "gain", "standard_error"), np.array(rows, dtype=float).T, strict=True))
    return {"task": np.array(data.tasks, dtype=object), **scores}


def _scores(labelled: bool, truth: Array, predicted: Array, variance: float) -> Array:
    """The score of each observation; their mean is the score of the task."""
    if labelled:
        return (np.asarray(predicted) == truth).astype(float)
    if variance == 0:
        return np.full(truth.size, np.nan)
    return 1 - (predicted.astype(float) - truth.astype(float)) ** 2 / variance


def fit_both(output: Output, data: TableRoles, structures: list[Structure], settings: Settings) -> tuple[Any, Any, dict]:
    """A fitted preprocessor, the chosen model fitted on all rows, and its comparison with single-task learning."""
    preprocessor = data.preprocessor().fit(data.inputs)
    X = preprocessor.transform(data.inputs)
    folds = assign_folds(data, settings.cv, settings.seed)
    single = search(output, data, X, [Independent()], settings, folds, "single-task")
    model = search(output, data, X, structures, settings, folds, "multi-task")
    predicted = out_of_fold(output, single, data, X, folds), out_of_fold(output, model, data, X, folds)
    return preprocessor, model, compare_tasks(data, predicted, variances(data))


def score_holdout(output: Output, data: TableRoles, structures: list[Structure], settings: Settings, share: float) -> dict:
    """The comparison with single-task learning on rows that are held out from all model selection."""
    train, test = assign_folds(data, max(round(1 / share), 2), settings.seed)[0]
    rest, kept = data.part(train), data.part(test)
    preprocessor = rest.preprocessor().fit(rest.inputs)
    X, X_kept = preprocessor.transform(rest.inputs), preprocessor.transform(kept.inputs)
    folds = assign_folds(rest, settings.cv, settings.seed)
    single = search(output, rest, X, [Independent()], settings, folds, "held out: single-task")
    model = search(output, rest, X, structures, settings, folds, "held out: multi-task")
    one, other = (pick(fitted.predict(X_kept), kept.row, kept.task) for fitted in (single, model))
    return compare_tasks(kept, (one, other), variances(data))
