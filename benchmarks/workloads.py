"""What ``against.py`` measures: small cuts of what the other benchmarks measure, by public names of the library only.

A workload is a function that makes its data once and gives back ``fresh``; ``fresh()`` prepares one run, untimed and knowing
nothing of earlier runs, and gives back the work. The work returns the certificates of what it solved, or nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    Problem,
    alpha_max,
    path,
    solve,
    stack,
    structures,
)

Work = Callable[[], list]
Fresh = Callable[[], Work]
TOL = 1e-6
WORKLOADS: dict[str, Callable[[], Fresh]] = {}


def workload(named: dict[str, tuple]) -> Callable:
    """Register the decorated function under each name, with the arguments that go with it."""

    def register(make: Callable[..., Fresh]) -> Callable[..., Fresh]:
        WORKLOADS.update({name: partial(make, *arguments) for name, arguments in named.items()})
        return make

    return register


def own_inputs(n_tasks: int, n: int, d: int, rank: int = 5, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """``X`` and a wide ``Y`` with one target in each row: inputs of its own for each task, weights of low rank and a rest."""
    rng = np.random.default_rng([n_tasks, n, d])
    W = rng.normal(size=(d, rank)) @ rng.normal(size=(rank, n_tasks)) / np.sqrt(rank * d) + 0.05 * rng.normal(size=(d, n_tasks))
    X, task = rng.normal(size=(n_tasks * n, d)), np.repeat(np.arange(n_tasks), n)
    Y = np.full((len(X), n_tasks), np.nan)
    Y[np.arange(len(X)), task] = np.einsum("ij,ji->i", X, W[:, task]) + noise * rng.normal(size=len(X))
    return X, Y


def long_table(n_tasks: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """The same without the wide table: the task is the last column."""
    rng = np.random.default_rng([n_tasks, n, d])
    W = rng.normal(size=(d, 5)) @ rng.normal(size=(5, n_tasks)) / np.sqrt(5 * d)
    Xs = rng.normal(size=(n_tasks, n, d))
    ys = np.einsum("tij,jt->ti", Xs, W) + 0.3 * rng.normal(size=(n_tasks, n))
    return stack(list(Xs), list(ys))


def shared_inputs(n: int, n_tasks: int, missing: float = 0.0, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([n, n_tasks])
    X = rng.normal(size=(n, d))
    Y = np.sin(X @ rng.normal(size=(d, 4))) @ rng.normal(size=(4, n_tasks)) + 0.3 * rng.normal(size=(n, n_tasks))
    Y[rng.random(Y.shape) < missing] = np.nan
    return X, Y


def signs(Y: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(Y), np.nan, np.where(Y > 0, 1.0, -1.0))


def solving(X: np.ndarray, Y: np.ndarray, cases: Iterable[dict[str, Any]], solver: str = "auto", tol: float = TOL) -> Fresh:
    """Solve one problem after the other."""
    cases = list(cases)

    def fresh() -> Work:
        problems = [Problem(X, Y, **case) for case in cases]
        return lambda: [solve(problem, solver, tol=tol, max_iter=20_000).certificate for problem in problems]

    return fresh


def fitting(model: Any, X: np.ndarray, Y: np.ndarray) -> Fresh:
    """Fit a copy of the estimator."""

    def fresh() -> Work:
        twin = copy.deepcopy(model)
        return lambda: [twin.fit(X, Y).certificate_]

    return fresh


def top(X: np.ndarray, Y: np.ndarray, loss: str = "squared") -> float:
    """The strength at which the trace penalty learns nothing."""
    return alpha_max(Problem(X, Y, loss=loss, structure="trace", alpha=1.0))


# --- fig1.py: inputs of their own, squared loss ---------------------------------------------------------------------------


@workload(
    {
        "own inputs, trace, 100 x 30, d = 100": ("trace", 0.1),
        "own inputs, trace, weak, 100 x 30, d = 100": ("trace", 0.01),
        "own inputs, clusters, 100 x 30, d = 100": (structures.Clusters(5), 0.1),
    }
)
def own(structure: Any, share: float) -> Fresh:
    X, Y = own_inputs(100, 30, 100, rank=100, noise=0.1)
    return solving(X, Y, [{"structure": structure, "alpha": share * top(X, Y)}])


@workload(
    {
        "solver: alternating, 20 x 20, d = 10": ("alternating", "frobenius"),
        "solver: block, 20 x 20, d = 10": ("block", "frobenius"),
        "solver: proximal, 20 x 20, d = 10": ("proximal", "trace"),
        "solver: factored, 20 x 20, d = 10": ("factored", "trace"),
    }
)
def named_solver(solver: str, structure: str) -> Fresh:
    X, Y = own_inputs(20, 20, 10)
    return solving(X, Y, [{"structure": structure, "alpha": 0.1 * top(X, Y)}], solver, 1e-5)


# --- shared_inputs.py: kernels on shared inputs ---------------------------------------------------------------------------


@workload(
    {
        "rbf, trace, n = 1000, T = 50": ("trace", 1000, 0.0),
        "rbf, Frobenius, n = 500, T = 50": ("frobenius", 500, 0.0),
        "rbf, trace, half missing, n = 500, T = 50": ("trace", 500, 0.5),
    }
)
def kernel(structure: str, n: int, missing: float) -> Fresh:
    return fitting(MultiTaskRegressor(structure, kernel="rbf", gamma=0.2, alpha=0.03, tol=TOL), *shared_inputs(n, 50, missing))


# --- losses.py --------------------------------------------------------------------------------------------------------------


@workload(
    {
        "loss: logistic, 60 x 40, d = 30": ("logistic",),
        "loss: huber, 60 x 40, d = 30": ("huber",),
        "loss: squared_hinge, 60 x 40, d = 30": ("squared_hinge",),
        "loss: hinge, 60 x 40, d = 30": ("hinge",),
        "loss: absolute, 60 x 40, d = 30": ("absolute",),
        "loss: quantile, 60 x 40, d = 30": ("quantile",),
        "loss: epsilon_insensitive, 60 x 40, d = 30": ("epsilon_insensitive",),
    }
)
def loss(name: str) -> Fresh:
    X, Y = own_inputs(60, 40, 30)
    Y = signs(Y) if name in ("logistic", "hinge", "squared_hinge") else Y
    return solving(X, Y, [{"loss": name, "structure": "trace", "alpha": 0.1 * top(X, Y, name)}])


@workload({"loss: softmax, 8 classes, n = 300": ()})
def softmax() -> Fresh:
    X, Y = shared_inputs(300, 8, d=10)
    return fitting(MultiTaskClassifier(loss="softmax", alpha=1e-4, tol=1e-5), X, np.argmax(Y, axis=1))


# --- structures.py: every structure, in groups of alike cost ---------------------------------------------------------------

SMALL = 30  # tasks


def known() -> list[structures.Structure]:
    B = np.random.default_rng(0).normal(size=(SMALL, SMALL)) / np.sqrt(SMALL)
    return [
        structures.Independent(),
        structures.SharedMean(2.0),
        structures.Fixed(B @ B.T),
        structures.TaskGraph.chain(SMALL),
        structures.OutputMetric(B @ B.T + np.eye(SMALL)),
        structures.OutputCode(B[: SMALL // 5]),
    ]


def spectral() -> list[structures.Structure]:
    powers = [structures.Frobenius(), structures.Schatten(1.5), structures.Schatten(4), structures.SchattenNorm(2)]
    return [*powers, structures.UnitTrace(), structures.LogDet(0.3), structures.Clusters(5)]


def not_convex() -> list[structures.Structure]:
    return [structures.LowRank(3), structures.LearnedGraph(3.0), structures.SparsePrecision(0.1)]


@workload(
    {
        "structures: known": (known,),
        "structures: spectral": (spectral,),
        "structures: Sparse": (lambda: [structures.Sparse(0.1)],),
        "structures: sums": (lambda: [structures.Trace() + structures.Frobenius(), structures.LogDet(0.3, l1=0.1)],),
        "structures: FeatureSelection": (lambda: [structures.FeatureSelection()],),
        "structures: Robust, Dirty": (lambda: [structures.Robust(), structures.Dirty()],),
        "structures: not convex": (not_convex,),
    }
)
def each_structure(some: Callable[[], list[structures.Structure]]) -> Fresh:
    X, Y = own_inputs(SMALL, 30, 20)
    alpha = 0.1 * top(X, Y)
    return solving(X, Y, [{"structure": structure, "alpha": alpha} for structure in some()], tol=1e-4)


# --- selection.py: searches, paths and new tasks --------------------------------------------------------------------------


@workload({"search: rbf, shared inputs, n = 300, T = 20": ()})
def search_shared() -> Fresh:
    return fitting(MultiTaskRegressorCV("trace", kernel="rbf", gamma=0.2, alphas=15, cv=3), *shared_inputs(300, 20))


@workload({"search: own inputs, 30 x 30, d = 20": ()})
def search_own() -> Fresh:
    return fitting(MultiTaskRegressorCV("trace", task_column=-1, alphas=15, cv=3, kernels=None), *long_table(30, 30, 20))


@workload({"search: classifier, n = 100, T = 5": ()})
def search_classifier() -> Fresh:
    X, Y = shared_inputs(100, 5)
    return fitting(MultiTaskClassifierCV("trace", alphas=5, cv=3, kernels=None), X, Y > 0)


@workload({"path: 12 strengths, 40 x 30, d = 30": ()})
def walk() -> Fresh:
    X, Y = own_inputs(40, 30, 30)
    strengths = top(X, Y) * np.logspace(0, -3, 12)

    def fresh() -> Work:
        problem = Problem(X, Y, structure="trace", alpha=1.0)
        return lambda: [found.certificate for found in path(problem, strengths, tol=TOL)]

    return fresh


@workload({"add_task to 200 x 30, d = 50": ()})
def add_task() -> Fresh:
    X, y = long_table(201, 30, 50)
    old = X[:, -1] < 200
    model = MultiTaskRegressor("trace", alpha=0.05, task_column=-1).fit(X[old], y[old])

    def fresh() -> Work:
        twin = copy.deepcopy(model)
        return lambda: [twin.add_task(X[~old], y[~old], name=200.0).certificate_]

    return fresh


# --- many_tasks.py ----------------------------------------------------------------------------------------------------------


@workload(
    {
        "many tasks: 2000 x 30, d = 50": (2000, 30, 50),
        "many tasks: 10000 x 5, d = 8": (10_000, 5, 8),
    }
)
def many_tasks(n_tasks: int, n: int, d: int) -> Fresh:
    return fitting(MultiTaskRegressor("trace", alpha=0.05 * n_tasks / 100, task_column=-1), *long_table(n_tasks, n, d))


# --- what takes milliseconds: where the code around the numbers counts ------------------------------------------------------


@workload({"default fit, n = 40, d = 5, T = 8": ()})
def small_fit() -> Fresh:
    return fitting(MultiTaskRegressor(), *shared_inputs(40, 8))


@workload({"default classifier, n = 40, d = 5, T = 8": ()})
def small_classifier() -> Fresh:
    X, Y = shared_inputs(40, 8)
    return fitting(MultiTaskClassifier(), X, Y > 0)


@workload(
    {
        "predict one row, linear, 100 times": ("linear", {}),
        "predict one row, rbf, 100 times": ("rbf", {}),
        "predict one row, return_std, 100 times": ("linear", {"return_std": True}),
    }
)
def predict(kernel: str, options: dict[str, bool]) -> Fresh:
    X, Y = shared_inputs(200, 8)
    model = MultiTaskRegressor(kernel=kernel).fit(X, Y)
    model.predict(X[:1], **options)  # what is computed once is computed now

    def work() -> list:
        for row in X[:100]:
            model.predict(row[None], **options)
        return []

    return lambda: work
