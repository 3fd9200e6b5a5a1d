"""Searches beside single fits, leave-one-out, a scorer in a search, a new task, and joint standard deviations.

A search is measured as ``MultiTaskRegressorCV`` is by default (``common="auto"``: with and without a common part) and with
``common=None`` (only without); the note has the second. The bar is for the first.
"""

from __future__ import annotations

import resource
from typing import Any

import numpy as np

from taskloom import MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV, metrics

from .row import DATA, Measured, Row, cpu

Array = np.ndarray
IMPORTS = DATA / "au_imports.npz"
COLUMN = 0  # of the task


def panel(n_tasks: int, n_rows: int, d: int, noise: float = 0.5) -> tuple[Array, Array]:
    """Linear tasks of rank 2 with inputs of their own, as a long table with the task in the first column."""
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(n_tasks), n_rows)
    X = rng.normal(size=(len(task), d))
    W = rng.normal(size=(n_tasks, min(d, 2))) @ rng.normal(size=(min(d, 2), d))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=n_tasks)[task] + noise * rng.normal(size=len(task))
    return np.column_stack([task, X]), y


def yearly_imports() -> tuple[Array, Array, str]:
    """Imports of 4999 commodities by year, with the square of the year; of the same shape where the data are not there."""
    if not IMPORTS.exists():
        X, y = panel(4999, 25, 9)
        return X, y, "simulated"
    held = np.load(IMPORTS)
    X, y, task = held["X"], held["y"], np.unique(held["task"], return_inverse=True)[1]
    return np.column_stack([task, X, X[:, -1] ** 2]), y, "imports"


def peak() -> float:
    """The largest resident size of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def searched(X: Array, y: Array, **options: Any) -> MultiTaskRegressorCV:
    return MultiTaskRegressorCV(task_column=COLUMN, **options, kernels=None).fit(X, y)


def beside_fits(X: Array, y: Array, factor: float, repeats: int = 3, **options: Any) -> Measured:
    """A search, by default and without common parts, beside one fit at the alpha that the second chose."""
    searched(*panel(10, 8, X.shape[1] - 1), **options)
    plain, chosen = cpu(lambda: searched(X, y, common=None, scoring="steady", **options))  # R2 needs two rows of a task
    alone = MultiTaskRegressor(alpha=chosen.alpha_, task_column=COLUMN)
    fit, _ = cpu(lambda: alone.fit(X, y), repeats)
    seconds, found = cpu(lambda: searched(X, y, **options))
    memory = peak()
    tried = f"{len(found.cv_results_['params'])} settings in {found.n_splits_} folds"
    note = f"common=None: {plain:.2f} s, {plain / fit:.1f} fits; peak {memory:.2f} GiB; {tried}"
    return Measured(seconds, fit, factor, note, plain <= factor * fit and (len(y) < 400_000 or memory <= 2))


def over_imports() -> Measured:
    X, y, which = yearly_imports()
    searched(*panel(10, 8, 9), alphas=12, cv=3)
    plain, _ = cpu(lambda: searched(X, y, common=None, alphas=12, cv=3))
    seconds, _ = cpu(lambda: searched(X, y, alphas=12, cv=3))
    return Measured(seconds, 1.0, 40, f"{which}; common=None: {plain:.1f} s", plain <= 40)


def leave_one_out(n_tasks: int) -> Measured:
    X, y = panel(n_tasks, 5, 3)
    options: dict[str, Any] = {"structure": "independent", "cv": "loo", "common": None}
    searched(*panel(5, 5, 3), **options)
    seconds, found = cpu(lambda: searched(X, y, **options))
    fit, _ = cpu(lambda: MultiTaskRegressor("independent", alpha=found.alpha_, task_column=COLUMN).fit(X, y), 5)
    return Measured(seconds, fit, 5, f"{len(found.path_['alphas'])} values of alpha, beside one fit")


def by_auc() -> Measured:
    X, y = panel(60, 60, 6, 1.0)
    y = np.where(y > 0, 1, 0)
    held: list[float] = []
    for scoring in (None, metrics.scorer(metrics.macro_auc, response="decision_function")):
        search = MultiTaskClassifierCV(task_column=COLUMN, common=None, alphas=10, scoring=scoring, kernels=None)
        search.fit(*(each[:1200] for each in (X, y)))
        held.append(cpu(lambda search=search: search.fit(X, y), 2)[0])
    named = MultiTaskClassifierCV(task_column=COLUMN, common=None, alphas=10, scoring="roc_auc", kernels=None)
    return Measured(held[1], held[0], 1.5, f"by accuracy; scoring='roc_auc' {cpu(lambda: named.fit(X, y))[0]:.2f} s")


def new_task() -> Measured:
    X, y = panel(200, 30, 50, 2.0)
    model = MultiTaskRegressor(alpha=0.1, task_column=COLUMN)
    refit, _ = cpu(lambda: model.fit(X, y), 5)
    mine = X[:30, 1:]

    def add() -> None:
        for k in range(20):
            model._state = state
            model.add_task(mine, y[:30], 1000 + k)

    state = model._state
    seconds, _ = cpu(add, 3)
    return Measured(seconds / 20, refit, 0.01, "of a refit")


def deviations(n_rows: int, n_tasks: int) -> Measured:
    X, y = panel(n_tasks, n_rows // n_tasks, 8)
    model = MultiTaskRegressor(alpha=0.01, task_column=COLUMN)

    def fresh(kind: Any) -> Array:
        model._state.posteriors.clear()
        return model.predict(X, return_std=kind)[1]

    model.fit(X, y)
    fresh(True)
    (known, _), (joint, _) = cpu(lambda: fresh(True), 2), cpu(lambda: fresh("joint"), 2)
    return Measured(joint, known, 2, "return_std=True, fresh posteriors")


FITS = "40 single fits"
ROWS = [
    Row(
        "search over 125 066 tasks x 4 rows, 2 inputs, 8 alphas",
        "fails: 117 GiB",
        "40 fits, 2 GiB",
        lambda: beside_fits(*panel(125_066, 4, 2), 40, 2, alphas=8),
    ),
    Row("search over 2000 tasks x 4 rows, 8 alphas", "21 s", FITS, lambda: beside_fits(*panel(2000, 4, 5), 40, alphas=8)),
    Row("search over 8000 tasks x 4 rows, 8 alphas", "32 s", FITS, lambda: beside_fits(*panel(8000, 4, 5), 40, alphas=8)),
    Row('`cv="loo"`, `Independent`, own inputs, 500 groups', "11 s", "5 fits", lambda: leave_one_out(500)),
    Row('`cv="loo"`, `Independent`, own inputs, 2000 groups', "over 60 s", "5 fits", lambda: leave_one_out(2000)),
    Row("search over 4999 tasks x 25 rows, 9 inputs, 12 alphas x 3 folds", "121 s", "40 s", over_imports),
    Row("AUC scorer in a search", "7 times the search by accuracy", "1.5 times", by_auc),
    Row("search, own inputs, 60 tasks x 40", "56 fits", FITS, lambda: beside_fits(*panel(60, 40, 50, 2.0), 40, 10)),
    Row("`add_task`", "2.5 % of a refit", "1 %", new_task),
    Row('`return_std="joint"`, 2400 rows', "3.4 s", "2 times `True`", lambda: deviations(2400, 40)),
]
