"""What a method is: predictions for new rows from training rows, with everything tuned on the training rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from .loaders import DataSet, Part

Array = np.ndarray
REGRESSION = ("long", "wide")
EVERY = ("long", "wide", "binary", "labels")


@dataclass(frozen=True)
class Method:
    """``run(data, train, new)`` gives predictions, or predictions and what else is worth a record."""

    name: str
    group: str  # "taskloom", "plain", "mixed model", "trees", "candidate"
    forms: tuple[str, ...]
    run: Callable[[DataSet, Part, Part], Any]
    needs: str | None = None  # a package
    limit: int = 180  # CPU seconds
    most_rows: int | None = None  # more training rows are not tried

    @property
    def missing(self) -> bool:
        return self.needs is not None and find_spec(self.needs) is None


def numbers(data: DataSet, y: Array) -> Array:
    """Targets as numbers: labels of two classes as -1 and 1, of several as a table of indicators."""
    if data.form == "binary":
        return 2.0 * y - 1
    return 1.0 * (y[:, None] == np.unique(data.all.y)) if data.form == "labels" else y


def answers(data: DataSet, values: Array) -> Array:
    """Predictions from values for such numbers."""
    return np.unique(data.all.y)[values.argmax(axis=1)] if data.form == "labels" else values


def each_task(train: Part, new: Part, one: Callable[[Array, Array, Array], Array], fewest: int) -> Array:
    """A model for each task of a long table; its mean below ``fewest`` rows, the mean of all for a task without any."""
    assert train.task is not None
    assert new.task is not None
    guess = np.full(len(new.X), float(np.mean(train.y)))
    order, order_new = np.argsort(train.task, kind="stable"), np.argsort(new.task, kind="stable")
    tasks, starts, counts = np.unique(new.task[order_new], return_index=True, return_counts=True)
    left = np.searchsorted(train.task[order], tasks, "left")
    right = np.searchsorted(train.task[order], tasks, "right")
    for a, b, start, count in zip(left, right, starts, counts, strict=True):
        mine, asked = order[a:b], order_new[start : start + count]
        y = train.y[mine]
        if len(mine) == 0:
            continue
        constant = len(mine) < fewest or np.ptp(y) == 0
        guess[asked] = y.mean() if constant else one(train.X[mine], y, new.X[asked])
    return guess
