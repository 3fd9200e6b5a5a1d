"""Variants of the SARCOS protocol that the paper leaves open: ``python -m taskloom.experiments variants --data FOLDER``.

Single-task learning (ridge regression, 5 folds) with each choice of scaling, intercept and alpha (one for all tasks, or one for
each). Multi-task methods do not take part: the variant is chosen by the baseline alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

from ..datasets import fetch_sarcos
from .sarcos import PRINTED, SIZES, draw_rows, settings
from .summary_tables import markdown

Array = np.ndarray
ALPHAS = np.logspace(-7, 3, 31)
VARIANTS = {  # scaled inputs, intercept, one alpha per task
    "raw inputs, no intercept, one alpha": (False, False, False),
    "raw inputs, intercept, one alpha": (False, True, False),
    "scaled inputs, no intercept, one alpha": (True, False, False),
    "scaled inputs, intercept, one alpha": (True, True, False),
    "raw inputs, intercept, one alpha per task": (False, True, True),
    "scaled inputs, intercept, one alpha per task (ours)": (True, True, True),
}


def _errors(X: Array, y: Array, X_test: Array, y_test: Array, intercept: bool) -> Array:
    """nMSE of ridge regression at every alpha."""
    centre, level = (X.mean(axis=0), y.mean()) if intercept else (np.zeros(X.shape[1]), 0.0)
    U, s, Vt = np.linalg.svd(X - centre, full_matrices=False)
    W = Vt.T @ (s / (s**2 + len(y) * ALPHAS[:, None]) * (U.T @ (y - level))).T
    return np.mean((y_test[:, None] - (X_test - centre) @ W - level) ** 2, axis=0) / y_test.var()


def single_task(data: Any, unit: dict[str, Any], scaled: bool, intercept: bool, per_task: bool) -> float:
    """The mean nMSE over the tasks at the alpha that 5 folds choose, for all tasks or per task."""
    train, test = draw_rows(data, unit, settings(False, None))
    stacked = np.concatenate([data.X[rows] for rows in train])
    shift, scale = (stacked.mean(axis=0), stacked.std(axis=0)) if scaled else (0.0, 1.0)
    folds, final = np.zeros((2, len(train), ALPHAS.size))
    for t, rows in enumerate(train):
        X, y, part = (data.X[rows] - shift) / scale, data.Y[rows, t], np.arange(len(rows)) % 5
        for k in range(5):
            folds[t] += _errors(X[part != k], y[part != k], X[part == k], y[part == k], intercept)
        final[t] = _errors(X, y, (data.X[test] - shift) / scale, data.Y[test, t], intercept)
    best = np.argmin(folds, axis=1) if per_task else np.argmin(folds.sum(axis=0))
    return float(final[np.arange(len(train)), best].mean())


def show(folder: str | os.PathLike | None, repetitions: int = 10) -> None:
    """Print the mean nMSE of each variant beside the printed one."""
    data = fetch_sarcos(data_home=folder)
    rows = {"printed": [f"{value:.4f}" for value in PRINTED["STL"]["nmse"]]}
    for name, variant in VARIANTS.items():
        rows[name] = []
        for size in SIZES:
            units = [{"protocol": "random", "size": size, "repetition": r} for r in range(repetitions)]
            errors = [single_task(data, unit, *variant) for unit in units]
            rows[name].append(f"{np.mean(errors):.4f} ± {np.std(errors, ddof=1):.4f}")
    sys.stdout.write("\n".join(markdown("STL", SIZES, rows)) + "\n")
