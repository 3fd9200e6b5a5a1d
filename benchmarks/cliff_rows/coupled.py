"""Known relations of tasks with inputs of their own: tasks close to their mean, a graph, a given matrix, and none."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV
from taskloom.structures import Fixed, SharedMean, Structure, TaskGraph

from .row import DATA, Measured, Row, cpu


def groups(n_tasks: int, rows: int, n_inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """The task and its inputs, and targets: weights about a common mean, an intercept for each task, noise of 1."""
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(n_tasks * rows, n_inputs)), np.repeat(np.arange(n_tasks), rows)
    W = rng.normal(size=n_inputs) + 0.3 * rng.normal(size=(n_tasks, n_inputs))
    y = np.einsum("ij,ij->i", X, W[task]) + rng.normal(size=n_tasks)[task] + rng.normal(size=len(task))
    return np.column_stack([task, X]), y


def school() -> tuple[np.ndarray, np.ndarray]:
    """School of ``../shared/data`` where it is, else a table of its shape."""
    path = DATA / "school.npz"
    if not path.exists():
        return groups(139, 110, 27)
    held = np.load(path)
    return np.column_stack([held["task"], held["X"][:, :27]]).astype(float), held["y"].astype(float)


def structure(name: str, n_tasks: int) -> Structure:
    if name == "SharedMean":
        return SharedMean(1.0)
    if name == "TaskGraph":
        return TaskGraph.chain(n_tasks)
    return Fixed(0.9 ** np.abs(np.subtract.outer(np.arange(n_tasks), np.arange(n_tasks))))


def beside_trace(name: str, data: tuple[np.ndarray, np.ndarray], factor: float, search: bool, common: str | None) -> Measured:
    """A search, or a fit (the least of two)."""
    X, y = data
    n_tasks = len(np.unique(X[:, 0]))

    def fitted(given: Any) -> tuple[float, Any]:
        if search:
            return cpu(lambda: MultiTaskRegressorCV(given, common=common, task_column=0, kernels=None).fit(X, y))
        return cpu(lambda: MultiTaskRegressor(given, task_column=0).fit(X, y), repeats=2)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        beside, _ = fitted("trace")
        ours, model = fitted(structure(name, n_tasks))
    return Measured(ours, beside, factor, "neighbour: trace", model.certificate_.optimal)


def independent_beside_linear(common: str | None) -> Measured:
    X, y = groups(42, 20, 5)

    def search(kernel: str) -> tuple[float, Any]:
        given = {"common": common, "alphas": [1e-3, 1e-2, 1e-1, 1.0, 10.0]}
        return cpu(lambda: MultiTaskRegressorCV("independent", kernel=kernel, task_column=0, **given).fit(X, y))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        beside, _ = search("linear")
        ours, model = search("rbf")
    return Measured(ours, beside, 4.0, "neighbour: the same search with a linear kernel", model.certificate_.optimal)


def measured(
    name: str, shape: tuple[int, int, int] | None, factor: float, search: bool = False, common: str | None = None
) -> Measured:
    return beside_trace(name, school() if shape is None else groups(*shape), factor, search, common)


OWN = "inputs of their own"
ROWS = [
    Row(f"`SharedMean`, {OWN}: search on School", "22 to 36 s", "1.5 times", partial(measured, "SharedMean", None, 1.5, True)),
    Row(
        f"`SharedMean`, {OWN}: search on School, with and without a common part",
        "over 88 s",
        "1.5 times",
        partial(measured, "SharedMean", None, 1.5, True, "auto"),
    ),
    Row(f"`TaskGraph`, {OWN}: search on School", "", "5 times", partial(measured, "TaskGraph", None, 5.0, True)),
    Row(f"`Fixed`, {OWN}: a fit on School", "", "5 times", partial(measured, "Fixed", None, 5.0)),
    Row(f"`SharedMean`, {OWN}: 2000 groups", "4 to 10 s", "1.5 times", partial(measured, "SharedMean", (2000, 5, 5), 1.5)),
    Row(f"`TaskGraph`, {OWN}: 2000 groups", "10 s", "5 times", partial(measured, "TaskGraph", (2000, 5, 5), 5.0)),
    Row(
        f"`SharedMean`, {OWN}: 4544 people x 5 rows",
        "not in 10 minutes",
        "1.5 times",
        partial(measured, "SharedMean", (4544, 5, 53), 1.5),
    ),
    Row(
        "`Independent`, rbf, 42 tasks x 20 rows, 5 alphas, no common part",
        "",
        "4 times linear",
        partial(independent_beside_linear, None),
    ),
    Row(
        "`Independent`, rbf, 42 tasks x 20 rows, 5 alphas", "14 s", "4 times linear", partial(independent_beside_linear, "auto")
    ),
]
