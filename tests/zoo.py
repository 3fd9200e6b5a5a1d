"""One instance at least of every exported loss and structure: being listed here is all the testing a component needs."""

from __future__ import annotations

import numpy as np

from taskloom import losses, structures

T = 4


class LogCosh:
    """``log cosh(z - y)`` with the least that a loss of one's own must bring."""

    max_curvature = 1.0
    of_differences = True

    def value(self, y, z):
        return np.logaddexp(z - y, y - z) - np.log(2)

    def gradient(self, y, z):
        return np.tanh(z - y)

    def __repr__(self):
        return "LogCosh()"


class TraceAndSize:
    """``tr A + ||A||^2 / 2`` with the least that a penalty of one's own must bring."""

    def value(self, A):
        return float(np.trace(A) + np.vdot(A, A) / 2)

    def prox(self, A, step):
        a, V = np.linalg.eigh(A)
        return (V * np.maximum((a - step) / (1 + step), 0.0)) @ V.T

    def __repr__(self):
        return "TraceAndSize()"


LOSSES = [
    losses.Squared(),
    losses.Huber(0.7),
    losses.Absolute(),
    losses.EpsilonInsensitive(0.2),
    losses.Quantile(0.3),
    losses.Logistic(),
    losses.Hinge(),
    losses.SquaredHinge(),
    losses.CustomLoss(LogCosh()),
]
ROW_LOSSES = [losses.Softmax(), losses.MulticlassHinge()]  # of whole rows: their laws and problems are in test_rows.py

_rng = np.random.default_rng(0)
_B = _rng.normal(size=(T, T))
_ADJACENCY = np.array([[0, 1, 0, 0], [1, 0, 0.5, 0], [0, 0.5, 0, 0], [0, 0, 0, 0]])

KNOWN = [
    structures.Independent(),
    structures.Fixed(_B @ _B.T),
    structures.SharedMean(2.0),
    structures.TaskGraph(_ADJACENCY, 0.5),
    structures.OutputMetric(_B @ _B.T + np.eye(T)),
    structures.OutputCode(_B[:2]),  # a singular A
]
LEARNED = [
    structures.Trace(),
    structures.Frobenius(),
    structures.Schatten(1.5),
    structures.Schatten(4),
    structures.SchattenNorm(2),
    structures.SchattenNorm(1.5),
    structures.UnitTrace(),
    structures.Clusters(2),
    structures.LogDet(0.3),
    structures.Sparse(0.3),
    structures.CustomStructure(TraceAndSize()),
    structures.LogDet(0.3, l1=0.4),
    structures.Frobenius() + 0.5 * structures.Sparse(0.3),
    structures.Sum([structures.Trace(), structures.LogDet(0.3), structures.UnitTrace()], [1.0, 0.5, 2.0]),
]
KNOWN_ON_FEATURES = [structures.Fixed(_B.T @ _B, side="features")]  # of T features: laws here, problems in tests of their own
STRUCTURES = KNOWN + LEARNED
SUMS = [structures.Robust(), structures.Dirty()]  # split the weights into terms: tests/structures/test_terms.py
ON_FEATURES = [structures.FeatureSelection()]  # sit on the features: laws here, problems in tests of their own

NON_CONVEX = [  # no conjugate, no prox: tests/test_nonconvex.py has laws of their own
    structures.LowRank(2),
    structures.LowRank(1, specific=False),
    structures.LearnedGraph(3.0, sparsity=0.01),
    structures.SparsePrecision(0.1, l1=0.003),
]


def name(component: object) -> str:
    """A short test id."""
    return repr(component).split("<")[0].replace(" ", "") if "array" in repr(component) else repr(component)


def random_psd(rng: np.random.Generator, rank: int = T, size: int = T) -> np.ndarray:
    B = rng.normal(size=(size, rank))
    return B @ B.T / size


def random_feasible(structure, rng: np.random.Generator) -> np.ndarray:
    """A random point of the domain of ``F``: the prox lands in it from anywhere."""
    return structure.prox(random_psd(rng) * rng.uniform(0.1, 3), 0.1)


def targets(loss, rng: np.random.Generator, size: int) -> np.ndarray:
    y = rng.normal(size=size)
    return np.where(y > 0, 1.0, -1.0) if loss.targets == "signs" else y


def data(loss, layout: str, seed: int = 0, n: int = 16, d: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """``X`` and wide ``Y`` in one of the layouts ``shared``, ``own`` (inputs of its own for each task), ``missing``."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 2)) @ rng.normal(size=(2, T))
    rows = n * T if layout == "own" else n
    X = rng.normal(size=(rows, d))
    Y = X @ W + 0.4 * rng.normal(size=(rows, T)) + 0.5
    if loss.targets == "signs":
        Y = np.where(np.median(Y, axis=0) < Y, 1.0, -1.0)
    if layout == "own":
        Y = np.where(np.arange(rows)[:, None] % T == np.arange(T), Y, np.nan)
        for t in range(T):  # both classes in every task
            Y[t, t], Y[t + T, t] = (1.0, -1.0) if loss.targets == "signs" else (Y[t, t], Y[t + T, t])
    if layout == "missing":
        Y[4:] = np.where(rng.random((rows - 4, T)) < 0.3, np.nan, Y[4:])
        if loss.targets == "signs":
            Y[0], Y[1] = 1.0, -1.0
    return X, Y


def classes(seed: int = 0, n: int = 24, d: int = 3, noise: float = 0.7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``X``, the class of each row, and the same as a table of -1/+1; every one of ``T`` classes occurs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    label = np.argmax(X @ rng.normal(size=(d, T)) + noise * rng.gumbel(size=(n, T)), axis=1)
    label[:T] = np.arange(T)
    return X, label, np.where(label[:, None] == np.arange(T), 1.0, -1.0)
