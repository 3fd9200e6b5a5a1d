"""Alone against together: two searches on the same folds, and what each says about rows that it has not seen.

Scores of a task pool its observations over the folds. A task of ten rows has two in each fold: its R2 there says nothing, and
the mean of such numbers even less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from ..estimators import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV
from ..estimators.cross_validation.splitters import task_folds
from ..structures import Independent, Structure
from .output import Output, watched
from .table_roles import TableRoles

Array = np.ndarray
Folds = list[tuple[Array, Array]]


@dataclass(frozen=True)
class Settings:
    """What the options of a command say about the model."""

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


def folds_of(data: TableRoles, n_splits: int, seed: int | None) -> Folds:
    """Folds that hold every task, and both classes of a labelled one."""
    stratum = data.task
    if data.labelled and data.layout != "classes":
        seen = data.seen
        stratum = stratum * 2 + np.array(
            [value == max(set(seen[data.task == t].tolist())) for t, value in zip(data.task, seen, strict=True)]
        )
    return task_folds(len(data.inputs), data.row, stratum, n_splits, seed)


class PooledR2:
    """A scorer: one minus the mean over observations of the squared error, in units of the variance of its task."""

    def __init__(self, data: TableRoles):
        self.variance = dict(zip(data.tasks, np.maximum(variances(data), 1e-300), strict=True))

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        error = (np.asarray(y, dtype=float) - estimator.predict(X)) ** 2
        if estimator.task_column is None:
            error = error / np.array([self.variance[name] for name in self.variance])
        else:
            error = error / np.array([self.variance[name] for name in X[estimator.task_column]])
        return 1 - float(np.nanmean(error))


def search(
    output: Output, data: TableRoles, X: Any, structures: list[Structure], settings: Settings, folds: Folds, title: str
) -> Any:
    """A fitted search over strengths and structures."""
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
        watched(model, bar).fit(X, data.y)
    # what a file can hold: a number of folds, and the default score
    return model.set_callbacks().set_params(cv=settings.cv, random_state=settings.seed, scoring=None)


def plain_model(model: Any) -> Any:
    """The chosen strength and structure, to be fitted again."""
    cls = MultiTaskClassifier if isinstance(model, MultiTaskClassifier) else MultiTaskRegressor
    known = cls._get_param_names()
    params = {name: value for name, value in model.get_params(deep=False).items() if name in known and name != "structure"}
    return cls(clone(model.best_structure_, safe=False), **params).set_params(alpha=model.alpha_)


def out_of_fold(output: Output, model: Any, data: TableRoles, X: Any, folds: Folds) -> Array:
    """What the model says about each observation when it was fitted without it; ``None`` where no fold leaves it out."""
    guess = np.full(data.row.size, None, dtype=object)
    with output.progress("predicting rows that were left out", len(folds)) as bar:
        for train, test in folds:
            y = data.y.iloc[train] if data.layout == "wide" else data.y[train]
            fitted = plain_model(model).fit(X.iloc[train], y)
            place = np.full(len(X), -1)
            place[test] = np.arange(len(test))
            mine = place[data.row] >= 0
            guess[mine] = pick(fitted.predict(X.iloc[test]), place[data.row[mine]], data.task[mine])
            if bar is not None:
                bar.advance(bar.task_ids[-1])
    return guess


def pick(predictions: Array, row: Array, task: Array) -> Array:
    """The predictions of observations, from those of rows (or of rows and tasks)."""
    return predictions[row, task] if predictions.ndim == 2 else predictions[row]


def variances(data: TableRoles) -> Array:
    """Of the targets of each task; 1 where they are labels."""
    if data.labelled:
        return np.ones(len(data.tasks))
    values = data.seen.astype(float)
    with np.errstate(over="ignore", invalid="ignore"):  # a fit says what is wrong with targets of 1e308
        return np.array([np.var(values[data.task == t]) for t in range(len(data.tasks))])


def compare_tasks(data: TableRoles, guesses: tuple[Array, Array], variance: Array) -> dict[str, Any]:
    """The ledger: each task's score alone and together over the same observations, and the standard error of its gain.

    The score is the share of hits, or one minus the mean squared error in units of the ``variance`` of the task, which is that
    of all its targets: the few that were held out may lie close together by chance.
    """
    alone, together = guesses
    seen = data.seen
    there = np.array([a is not None and b is not None for a, b in zip(alone, together, strict=True)])
    table: dict[str, list] = {"task": data.tasks, "alone": [], "together": [], "gain": [], "standard_error": []}
    for t in range(len(data.tasks)):
        mine = there & (data.task == t)
        one, other = (_points(data.labelled, seen[mine], guess[mine], float(variance[t])) for guess in (alone, together))
        n = one.size
        gain = other - one
        table["alone"].append(float(one.mean()) if n else np.nan)
        table["together"].append(float(other.mean()) if n else np.nan)
        table["gain"].append(float(gain.mean()) if n else np.nan)
        table["standard_error"].append(float(gain.std(ddof=1) / np.sqrt(n)) if n > 1 else np.nan)
    return {name: np.array(column, dtype=object if name == "task" else float) for name, column in table.items()}


def _points(labelled: bool, truth: Array, guess: Array, variance: float) -> Array:
    """What each observation adds to the score of its task."""
    if labelled:
        return (np.asarray(guess) == truth).astype(float)
    if variance == 0:
        return np.full(truth.size, np.nan)
    return 1 - (guess.astype(float) - truth.astype(float)) ** 2 / variance


def alone_and_together(
    output: Output, data: TableRoles, structures: list[Structure], settings: Settings
) -> tuple[Any, Any, dict]:
    """A fitted preprocessor, the chosen model fitted on all rows, and the ledger."""
    preprocessor = data.preprocessor().fit(data.inputs)
    X = preprocessor.transform(data.inputs)
    folds = folds_of(data, settings.cv, settings.seed)
    single = search(output, data, X, [Independent()], settings, folds, "each task on its own")
    model = search(output, data, X, structures, settings, folds, "all tasks together")
    guesses = out_of_fold(output, single, data, X, folds), out_of_fold(output, model, data, X, folds)
    return preprocessor, model, compare_tasks(data, guesses, variances(data))


def held_out(output: Output, data: TableRoles, structures: list[Structure], settings: Settings, share: float) -> dict:
    """The ledger on rows that had no part in choosing anything."""
    train, test = folds_of(data, max(round(1 / share), 2), settings.seed)[0]
    rest, kept = data.part(train), data.part(test)
    preprocessor = rest.preprocessor().fit(rest.inputs)
    X, X_kept = preprocessor.transform(rest.inputs), preprocessor.transform(kept.inputs)
    folds = folds_of(rest, settings.cv, settings.seed)
    guesses = []
    alone: list[Structure] = [Independent()]
    for candidates, title in ((alone, "held out: each on its own"), (structures, "held out: together")):
        fitted = search(output, rest, X, candidates, settings, folds, title)
        guesses.append(pick(fitted.predict(X_kept), kept.row, kept.task))
    return compare_tasks(kept, (guesses[0], guesses[1]), variances(data))
