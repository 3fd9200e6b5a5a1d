"""The School benchmark that every multi-task paper reports: 139 schools, ten 75/25 splits, explained variance.

Explained variance as Argyriou, Evgeniou and Pontil (2008) have it: 1 minus the mean squared error over all test pupils,
divided by the variance of all test scores. Inputs are scaled to variance 1 (a constant column is left alone).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import StandardScaler

from ..datasets import fetch_school
from .compared_methods import NAMES, choose
from .summary_tables import Protocol, ScoreTable

TITLE = "School (explained variance)"
_SPLITS = Protocol("results", "School, the ten usual splits", "School")
_TABLE = ScoreTable("explained_variance", "explained variance", {"splits": _SPLITS})
units, summarise, table, draw = _TABLE.units, _TABLE.summarise, _TABLE.table, _TABLE.draw


def settings(quick: bool, repetitions: int | None) -> dict[str, Any]:
    return {
        "methods": [name for name in NAMES if name != "LogDet"],
        "sizes": ["75 %"],
        "repetitions": min(repetitions or (2 if quick else 10), 10),
        "n_alphas": 6 if quick else 10,
        "second_parameters": False,
        "seeds": "the number of the repetition",
    }


def measure(unit: dict[str, Any], settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    data = fetch_school(data_home=folder)
    train = data.train_split[unit["repetition"]]
    scaler = StandardScaler().fit(data.X[train])
    X = np.column_stack([scaler.transform(data.X), data.task])
    fitted = choose(X[train], data.y[train], settings, unit["repetition"], task_column=-1, task_weight="size")
    truth = data.y[~train]

    def explained(model: Any) -> float:
        return float(1 - np.mean((model.predict(X[~train]) - truth) ** 2) / truth.var())

    return {name: {"explained_variance": explained(found["model"]), **found["report"]} for name, found in fitted.items()}
