"""Kernels: paths with inputs of their own, shared rows at weak strengths, other losses than the squared one, lists."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, path, solve
from taskloom.estimators.base import MultiTaskEstimator
from taskloom.estimators.classifier import MultiTaskClassifier
from taskloom.losses import Huber
from taskloom.solvers.path import strength_grid

from .row import Measured, Row, cpu

TOL = 1e-4  # of the paths, as a fit has it by default


def own_rows(n_tasks: int, n_rows: int, n_inputs: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Long layout: the task in the last column; targets from four nonlinear functions that all tasks mix, and noise."""
    rng = np.random.default_rng(n_rows)
    X, task = rng.normal(size=(n_rows, n_inputs)), np.sort(np.arange(n_rows) % n_tasks)
    hidden = np.sin(X @ rng.normal(size=(n_inputs, 4)) / 2)
    y = np.einsum("ij,ij->i", hidden, rng.normal(size=(n_tasks, 4))[task]) + 0.5 * rng.normal(size=n_rows)
    return np.column_stack([X, task]), y


def path_of(model: MultiTaskEstimator, X: Any, Y: Any, size: int) -> tuple[float, bool]:
    """CPU seconds of the features and a path, and whether all of it is certified."""

    def work() -> list[Any]:
        problem = model._prepare(X, Y).problem
        return path(problem, strength_grid(problem, size), tol=TOL)

    seconds, solutions = cpu(work)
    return seconds, all(one.certificate.optimal for one in solutions)


def own_inputs(n_tasks: int, n_rows: int, n_alphas: int, bar: float) -> Measured:
    X, y = own_rows(n_tasks, n_rows)
    seconds, proved = path_of(MultiTaskRegressor("trace", kernel="rbf", task_column=X.shape[1] - 1), X, y, n_alphas)
    return Measured(seconds, 1.0, bar, f"{n_alphas} strengths over five decades, each proved to {TOL:g}", proved)


def shared_rows(n: int, n_tasks: int) -> tuple[np.ndarray, np.ndarray]:
    """Five inputs, as in benchmarks/shared_inputs.py."""
    rng = np.random.default_rng(n + n_tasks)
    X = rng.normal(size=(n, 5))
    return X, np.sin(X @ rng.normal(size=(5, 4))) @ rng.normal(size=(4, n_tasks)) + 0.3 * rng.normal(size=(n, n_tasks))


def beside_eigh(structure: str, gamma: float = 0.2, shares: tuple[float, ...] = (1e-3, 1e-5, 1e-7)) -> Measured:
    """The worst strength, all of them shares of the one at which the trace penalty learns nothing."""
    X, Y = shared_rows(2000, 50)
    K, centred = rbf_kernel(X, gamma=gamma), 2 * (Y - Y.mean(axis=0)) / len(Y)
    top = float(np.linalg.eigvalsh(centred.T @ K @ centred)[-1]) / 4
    found, proved = [], True
    for share in shares:
        eigh = cpu(lambda: np.linalg.eigh(K), repeats=2)[0]
        model = MultiTaskRegressor(structure, kernel="rbf", gamma=gamma, alpha=share * top)
        problem = model._prepare(X, Y).problem
        tol = 1e-6 * solve(problem).certificate.primal / problem.scale  # tolerances are relative to the constants' loss

        def fit(model: MultiTaskRegressor = model, tol: float = tol) -> Any:
            return solve(model._prepare(X, Y).problem, tol=tol).certificate

        seconds, said = cpu(fit, repeats=2)
        proved = proved and said.gap <= 1.001e-6 * said.primal
        found.append((seconds, eigh, f"{share:g} of the top: {seconds / eigh:.2f}, gap {said.gap / abs(said.primal):.1e}"))
    seconds, eigh, _ = max(found, key=lambda each: each[0] / each[1])
    note = f"gamma {gamma:g}; in units of one eigh, gaps as shares of the objective: " + "; ".join(each[2] for each in found)
    return Measured(seconds, eigh, 1.3, note, proved)


def labels() -> tuple[np.ndarray, np.ndarray]:
    """14 labels of 1500 shared rows, three in ten positive."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 20))
    scores = np.sin(X @ rng.normal(size=(20, 5)) / 3) @ rng.normal(size=(5, 14)) + 0.5 * rng.normal(size=(1500, 14))
    return X, (scores > np.quantile(scores, 0.7, axis=0)).astype(float)


def logistic_beside_squared() -> Measured:
    X, Y = labels()
    ours, proved = path_of(MultiTaskClassifier("trace", kernel="rbf", loss="logistic"), X, Y, 15)
    squared, _ = path_of(MultiTaskRegressor("trace", kernel="rbf"), X, 2 * Y - 1, 15)
    return Measured(ours, squared, 4.0, "15 strengths over five decades; neighbour: the squared loss", proved)


def huber_beside_squared() -> Measured:
    """A path of one task: targets with a standard deviation of 77, residuals mostly beyond the width of 1."""
    data = load_diabetes()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    ours, proved = path_of(MultiTaskRegressor("trace", kernel="rbf", loss=Huber(1.0)), X, data.target, 30)
    squared, _ = path_of(MultiTaskRegressor("trace", kernel="rbf"), X, data.target, 30)
    return Measured(ours, squared, 8.0, "30 strengths over five decades; neighbour: the squared loss", proved)


def huber_search_beside_squared() -> Measured:
    """The search that the issue measured: five folds, the grid that it extends itself, single-task models beside."""
    data = load_diabetes()
    X = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    losses = (Huber(1.0), "squared")
    ours, squared = (
        cpu(lambda loss=loss: MultiTaskRegressorCV(kernel="rbf", loss=loss).fit(X, data.target))[0] for loss in losses
    )
    return Measured(ours, squared, 8.0, "MultiTaskRegressorCV; neighbour: the squared loss")


def lists_beside_one() -> Measured:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(138, 6))
    Y = np.column_stack([np.sin(X[:, 0]) + X[:, 1], np.sin(X[:, 0]) - X[:, 2]]) + 0.3 * rng.normal(size=(138, 2))
    two, proved = path_of(MultiTaskRegressor("trace", kernel=[rbf_kernel, "laplacian"]), X, Y, 30)
    one, _ = path_of(MultiTaskRegressor("trace", kernel="rbf"), X, Y, 30)
    return Measured(two, one, 6.0, "30 strengths each, rbf and laplacian beside rbf", proved)


ROWS = [
    Row("rbf, own inputs, 1680 rows, 42 tasks, 30 alphas", "over 60 s", "20 s", partial(own_inputs, 42, 1680, 30, 20.0)),
    Row("rbf, own inputs, 7100 rows, 71 tasks, 10 alphas", "over 100 s", "60 s", partial(own_inputs, 71, 7100, 10, 60.0)),
    Row("rbf, 2000 shared rows, 50 tasks, weak alpha, trace", "2.8 s", "1.3 `eigh`", partial(beside_eigh, "trace")),
    Row("rbf, 2000 shared rows, 50 tasks, weak alpha, Frobenius", "1.8 s", "1.3 `eigh`", partial(beside_eigh, "frobenius")),
    Row("logistic, rbf, 14 labels, 1500 rows, 15 alphas", "over 60 s", "4 times", logistic_beside_squared),
    Row("Huber of width 1, rbf, 442 rows, 30 alphas", "16 s", "8 times", huber_beside_squared),
    Row("Huber of width 1, rbf, 442 rows, a search", "63 s", "8 times", huber_search_beside_squared),
    Row("kernel lists, 138 rows, 2 tasks, 30 alphas each", "5 alphas 1.1 s", "6 times", lists_beside_one),
]
