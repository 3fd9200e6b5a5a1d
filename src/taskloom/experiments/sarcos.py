"""Table 1 of the paper: seven torques of a robot arm, a few examples each.

The paper leaves open how inputs and outputs are scaled and whether there is an intercept. Here: inputs to mean 0 and variance 1
(of the training rows), outputs of each task likewise during the fit, an intercept for each task. The baseline comes within 15 %
of the printed errors; so does it on raw inputs (``variants`` prints the numbers), but there accelerations, whose variance is
a thousand times that of positions, dominate the regularisation.

Two protocols. ``random``: the paper's, training and test rows drawn at random, so that a training row is often the neighbour in
time of a test row. ``blocks``: no leakage, test rows from one stretch of time, training rows from outside of it and a margin.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from .. import metrics
from ..datasets import fetch_sarcos
from .compared_methods import NAMES, choose
from .summary_tables import Printed, Protocol, ScoreTable

Array = np.ndarray
TITLE = "SARCOS (Table 1)"
SIZES = [50, 100, 150, 200]
PRINTED: Printed = {
    "STL": {"nmse": [0.2436, 0.1723, 0.1483, 0.1312], "nI": [0.0, 0.0, 0.0, 0.0]},
    "MTFL": {"nmse": [0.2333, 0.1658, 0.1428, 0.1311], "nI": [0.0416, 0.0379, 0.0281, 0.0003]},
    "MTRL": {"nmse": [0.2314, 0.1653, 0.1421, 0.1303], "nI": [0.0404, 0.0401, 0.0288, 0.0071]},
    "OKL": {"nmse": [0.2284, 0.1604, 0.1410, 0.1301], "nI": [0.0630, 0.0641, 0.0350, 0.0087]},
}
PROTOCOLS = {
    "random": Protocol("results", "The paper's protocol, random rows", "random rows"),
    "blocks": Protocol("results_blocks", "Separated in time", "separated in time"),
}
_TABLE = ScoreTable("nmse", "nMSE", PROTOCOLS, PRINTED, SIZES, kind="protocol", recorded="protocols")
units, summarise, table, draw = _TABLE.units, _TABLE.summarise, _TABLE.table, _TABLE.draw


def settings(quick: bool, repetitions: int | None) -> dict[str, Any]:
    return {
        "methods": NAMES,
        "sizes": SIZES,
        "repetitions": repetitions or (5 if quick else 10),
        "repetitions_blocks": min(repetitions or 10, 1 if quick else 5),
        "n_alphas": 12,
        "second_parameters": True,
        "n_test": 5000,
        "block_share": 0.25,
        "margin": 500,
        "protocols": list(PROTOCOLS),
        "seeds": "the number of the repetition",
    }


def draw_rows(data: Any, unit: dict[str, Any], settings: dict[str, Any]) -> tuple[list[Array], Array]:
    """Training rows of each task, and the test rows that all tasks have in common.

    One permutation for each repetition: the training rows of a smaller size are among those of a larger one, and the test rows
    are the same, so that sizes can be compared.
    """
    rng = np.random.default_rng(unit["repetition"])
    n_rows = len(data.X)
    free = np.ones(n_rows, bool)
    complete = np.flatnonzero(data.complete)
    if unit["protocol"] == "random":
        test = rng.permutation(complete)[: min(settings["n_test"], complete.size * 4 // 5)]
        free[test] = False
    else:
        length = int(settings["block_share"] * n_rows)
        start = int(rng.integers(0, n_rows - length + 1))
        test = complete[(complete >= start) & (complete < start + length)]
        free[max(0, start - settings["margin"]) : start + length + settings["margin"]] = False
    known = ~np.isnan(data.Y)
    train = [rng.permutation(np.flatnonzero(free & known[:, t]))[: unit["size"]] for t in range(data.Y.shape[1])]
    return train, test


def measure(unit: dict[str, Any], settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    data = fetch_sarcos(data_home=folder)
    train, test = draw_rows(data, unit, settings)
    inputs = np.concatenate([data.X[rows] for rows in train])
    y = np.concatenate([data.Y[rows, t] for t, rows in enumerate(train)])
    task = np.repeat(np.arange(len(train)), [len(rows) for rows in train])
    scaler = StandardScaler().fit(inputs)
    X = np.column_stack([scaler.transform(inputs), task])
    X_test, Y_test = scaler.transform(data.X[test]), data.Y[test]
    fitted = choose(X, y, settings, unit["repetition"], task_column=-1, standardize_targets=True)

    def nmse(model: Any) -> float:
        return metrics.macro_nmse(Y_test, X_test @ model.coef_.T + model.intercept_)

    return {name: {"nmse": nmse(found["model"]), **found["report"]} for name, found in fitted.items()}
