"""Errors in the field's definitions, lower is better, and paired comparisons over splits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.metrics import roc_auc_score

from .loaders import Part

Array = np.ndarray


def unexplained(_train: Part, test: Part, guess: Array) -> float:
    """1 - explained variance, pooled over all test rows (Argyriou, Evgeniou and Pontil 2008)."""
    return float(np.mean((test.y - guess) ** 2) / test.y.var())


def unexplained_by_task(_train: Part, test: Part, guess: Array) -> float:
    """1 - the mean over tasks of R2, tasks with fewer than five test rows left out: the literature's other definition."""
    assert test.task is not None
    kept = [t for t in np.unique(test.task) if np.sum(test.task == t) >= 5 and test.y[test.task == t].var() > 0]
    return float(np.mean([np.mean((test.y - guess)[test.task == t] ** 2) / test.y[test.task == t].var() for t in kept]))


def mean_squared_error(_train: Part, test: Part, guess: Array) -> float:
    return float(np.mean((test.y - guess) ** 2))


def average_relative_rmse(train: Part, test: Part, guess: Array) -> float:
    """aRRMSE of the multi-target suite: root of the error of each target over that of its training mean, averaged."""
    wrong, of_mean = ((test.y - guess) ** 2).sum(axis=0), ((test.y - train.y.mean(axis=0)) ** 2).sum(axis=0)
    seen = of_mean > 0
    return float(np.mean(np.sqrt(wrong[seen] / of_mean[seen])))


def one_minus_auc(_train: Part, test: Part, guess: Array) -> float:
    """1 - the mean over tasks of the area under the curve, tasks with both classes among the test rows."""
    assert test.task is not None
    mine = [test.task == t for t in np.unique(test.task)]
    return 1 - float(np.mean([roc_auc_score(test.y[own], guess[own]) for own in mine if 0 < test.y[own].mean() < 1]))


def error_rate(_train: Part, test: Part, guess: Array) -> float:
    return float(np.mean(test.y != guess))


ERRORS: dict[str, Callable[[Part, Part, Array], float]] = {
    "unexplained": unexplained,
    "mean squared error": mean_squared_error,
    "aRRMSE": average_relative_rmse,
    "1 - AUC": one_minus_auc,
    "error rate": error_rate,
}


def paired(mine: dict[int, float], other: dict[int, float]) -> tuple[float, float | None]:
    """Mean difference over the splits that both have, and its standard error (None for one split)."""
    both = sorted(mine.keys() & other.keys())
    gaps = np.array([mine[k] - other[k] for k in both])
    return float(gaps.mean()), float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else None
