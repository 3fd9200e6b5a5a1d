"""Sums of terms with kernels: as many columns in each term as rows."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV

from .row import Measured, Row, cpu


def curves(n: int, n_tasks: int, complete: bool) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Tasks that share a smooth function: every task on all rows, or each row of one task."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5))
    W = rng.normal(size=(5, 1)) + 0.3 * rng.normal(size=(5, n_tasks))
    Y = np.sin(X) @ W + 0.3 * rng.normal(size=(n, n_tasks))
    if complete:
        return {}, X, Y
    task = np.arange(n) % n_tasks
    return {"task_column": 0}, np.column_stack([task, X]), Y[np.arange(n), task]


def fit(n: int, n_tasks: int, complete: bool, loss: str, seconds: float) -> Measured:
    settings, X, y = curves(n, n_tasks, complete)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, model = cpu(lambda: MultiTaskRegressor(kernel="rbf", common=True, loss=loss, **settings).fit(X, y))
    return Measured(ours, 1.0, seconds, "", model.certificate_.optimal)


def diabetes() -> Measured:
    """Two tasks, by sex: a common part is compared by default."""
    X, y = load_diabetes(return_X_y=True)
    X, y = np.column_stack([X[:, 1] > 0, np.delete(X, 1, 1)]), (y - y.mean()) / y.std()

    def search(loss: str) -> tuple[float, Any]:
        return cpu(lambda: MultiTaskRegressorCV(kernel="rbf", loss=loss, task_column=0).fit(X, y))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        beside, _ = search("squared")
        ours, model = search("huber")
    return Measured(ours, beside, 4.0, "neighbour: the squared loss", model.certificate_.optimal)


ROWS = [
    Row("`common=True`, rbf: 10 tasks x 500 rows", "11 to 59 s", "2 s", partial(fit, 500, 10, True, "squared", 2.0)),
    Row("`common=True`, rbf: 42 tasks on 1400 rows", "31 s", "5 s", partial(fit, 1400, 42, False, "squared", 5.0)),
    Row("`common=True`, rbf, Huber: 20 tasks on 600 rows", "60 s", "3 s", partial(fit, 600, 20, False, "huber", 3.0)),
    Row("rbf, Huber: search on diabetes with a common part", "10 s", "4 times squared", diabetes),
]
