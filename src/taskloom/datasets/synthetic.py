"""Simulated tasks with a known structure, and sixty simulated shops: the data of ``taskloom demo``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import Bunch, check_random_state

Array = np.ndarray
STRUCTURES = ("clusters", "low_rank", "graph", "sparse", "independent")
FEATURES = ("price cut", "rain", "holiday", "street traffic", "newsletter", "season")


def make_tasks(
    structure: str = "clusters",
    n_tasks: int = 12,
    n_samples: int | Sequence[int] = 30,
    n_features: int = 10,
    *,
    missing: float = 0.0,
    noise: float = 0.1,
    task: str = "regression",
    shared: bool = False,
    random_state: Any = None,
) -> Bunch:
    """Simulate linear tasks whose coefficients have a known covariance over the tasks.

    Parameters
    ----------
    structure : {"clusters", "low_rank", "graph", "sparse", "independent"}, default="clusters"
        Covariance of the tasks: three clusters, rank two, a ring graph, a few correlated pairs, or the identity.
    n_tasks : int, default=12
        The number of tasks.
    n_samples : int or sequence of int, default=30
        Observations per task, or one number for each.
    n_features : int, default=10
        The number of inputs.
    missing : float, default=0.0
        The share of observations that is removed at random; two of each task are kept, one of each class for labels.
    noise : float, default=0.1
        Standard deviation of the noise; the functions themselves have variance 1.
    task : {"regression", "classification"}, default="regression"
        Numeric targets, or class labels -1 and +1 (the sign of function plus noise).
    shared : bool, default=False
        Whether all tasks are observed at the same inputs.
    random_state : int, RandomState or None, default=None
        Seed of the draws.

    Returns
    -------
    Bunch
        The same data twice: ``X``, ``y`` (long: the last column of ``X`` is the task, for ``task_column=-1``) and ``X_wide``,
        ``Y`` (wide: one column per task, NaN where not observed). The ground truth: ``structure`` (``n_tasks x n_tasks``,
        unit diagonal), ``coef`` (``n_tasks x n_features``), ``groups`` (clusters) and ``adjacency`` (graph), else ``None``.

    Examples
    --------
    >>> from taskloom import MultiTaskRegressor
    >>> from taskloom.datasets import make_tasks
    >>> data = make_tasks("low_rank", random_state=0)
    >>> model = MultiTaskRegressor("trace", task_column=-1).fit(data.X, data.y)
    >>> model.coef_.shape == data.coef.shape
    True
    """
    counts = np.full(max(n_tasks, 1), n_samples, dtype=int) if np.ndim(n_samples) == 0 else np.array(n_samples)
    fewest, most = (int(counts.min()), int(counts.max())) if counts.size else (0, 0)
    for right, message in (
        (structure in STRUCTURES, f"structure must be one of {list(STRUCTURES)}, got {structure!r}"),
        (task in ("regression", "classification"), f'task must be "regression" or "classification", got {task!r}'),
        (n_tasks >= 1 and n_features >= 1, f"need at least one task and one feature, got {n_tasks} and {n_features}"),
        (0 <= missing < 1, f"missing is a share, at least 0 and below 1, got {missing!r}"),
        (noise >= 0, f"noise must be at least 0, got {noise!r}"),
        (counts.shape == (n_tasks,), f"n_samples needs one number for each of the {n_tasks} tasks, got {counts.size}"),
        (fewest >= 2, f"every task needs at least 2 samples, got {fewest}"),
        (not shared or fewest == most, "shared inputs mean the same number of samples for every task"),
    ):
        if not right:
            raise ValueError(message)
    rng = check_random_state(random_state)
    A, groups, adjacency = _covariance(structure, n_tasks, rng)
    root = np.linalg.cholesky(A + 1e-12 * np.eye(n_tasks))
    coef = root @ rng.standard_normal((n_tasks, n_features)) / np.sqrt(n_features)

    n_rows = int(counts[0]) if shared else int(counts.sum())
    inputs = rng.standard_normal((n_rows, n_features))
    row = np.tile(np.arange(n_rows), n_tasks) if shared else np.arange(n_rows)
    which = np.repeat(np.arange(n_tasks), counts)
    y = np.einsum("ij,ij->i", inputs[row], coef[which]) + noise * rng.standard_normal(row.size)
    if task == "classification":
        y = _both_signs(y, which)
    kept = _observed(y, which, missing, task, rng)
    row, which, y = row[kept], which[kept], y[kept]
    Y = np.full((n_rows, n_tasks), np.nan)
    Y[row, which] = y
    seen = ~np.isnan(Y).all(axis=1)
    truth = {"structure": A, "coef": coef, "groups": groups, "adjacency": adjacency}
    return Bunch(X=np.column_stack([inputs[row], which]), y=y, X_wide=inputs[seen], Y=Y[seen], **truth)


def _covariance(structure: str, T: int, rng: np.random.RandomState) -> tuple[Array, Array | None, Array | None]:
    """The covariance of the tasks (unit diagonal), and the clusters or the graph."""
    groups = adjacency = None
    A: Array = np.eye(T)
    if structure == "clusters":
        groups = rng.permutation(np.arange(T) % min(3, T))
        A = 0.95 * (groups[:, None] == groups) + 0.05 * A
    elif structure == "low_rank":
        B = rng.standard_normal((T, min(2, T)))
        A = B @ B.T
    elif structure == "graph":
        order = rng.permutation(T)
        adjacency = np.zeros((T, T))
        if T > 1:
            adjacency[order, np.roll(order, 1)] = adjacency[np.roll(order, 1), order] = 1.0
        A = np.linalg.inv(2 * (np.diag(adjacency.sum(axis=1)) - adjacency) + 0.3 * np.eye(T))
    elif structure == "sparse":
        order = rng.permutation(T)
        for s, t in zip(order[0 : T - 1 : 4], order[1:T:4], strict=True):
            A[s, t] = A[t, s] = 0.9
    deviation = np.sqrt(np.diag(A))
    return A / np.outer(deviation, deviation), groups, adjacency


def _both_signs(y: Array, which: Array) -> Array:
    """Labels by the sign; where all have one sign, the value nearest to zero gets the other label."""
    label = np.where(y > 0, 1.0, -1.0)
    for t in np.unique(which):
        mine = np.flatnonzero(which == t)
        if np.ptp(label[mine]) == 0:
            nearest = mine[np.argmin(np.abs(y[mine]))]
            label[nearest] = -label[nearest]
    return label


def _observed(y: Array, which: Array, missing: float, task: str, rng: np.random.RandomState) -> Array:
    """Which observations are kept: a random share, and at least two of each task (one of each class for labels)."""
    rank = rng.random_sample(y.size)
    kept = rank >= missing
    for t in np.unique(which):
        mine = np.flatnonzero(which == t)
        parts = [mine[y[mine] == label] for label in (-1.0, 1.0)] if task == "classification" else [mine]
        for part in parts:
            kept[part[np.argsort(-rank[part])[: 3 - len(parts)]]] = True
    return kept


def load_shops(random_state: int = 0) -> Bunch:
    """Sixty simulated shops in four clusters, eleven weeks of sales each: the data of ``taskloom demo``.

    Shops of one cluster have similar coefficients for price cuts, rain, holidays and so on. The clusters are the ground truth;
    models do not see them.

    Parameters
    ----------
    random_state : int, default=0
        Seed of the simulation.

    Returns
    -------
    Bunch
        ``X`` (660 weeks x 6) and ``y`` (sales, in thousands) with ``task`` (the shop of each week); ``X_test``, ``y_test`` and
        ``task_test`` (40 more weeks of each shop); ``kind`` (the true cluster of each shop), ``coef`` (60 x 6, the
        true coefficients), ``feature_names``, ``task_names``.
    """
    rng = np.random.default_rng(random_state)
    n_shops, n_kinds, weeks = 60, 4, {"": 11, "_test": 40}
    kind = np.arange(n_shops) % n_kinds
    centres = rng.normal(size=(n_kinds, len(FEATURES))) * 1.5
    coef = centres[kind] + 0.25 * rng.normal(size=(n_shops, len(FEATURES)))
    level = rng.normal(20, 4, size=n_shops)
    sales: dict[str, Array] = {}
    for part, count in weeks.items():
        X = rng.normal(size=(n_shops * count, len(FEATURES)))
        task = np.repeat(np.arange(n_shops), count)
        y = level[task] + np.einsum("ij,ij->i", X, coef[task]) + 1.5 * rng.normal(size=task.size)
        sales |= {f"X{part}": X, f"y{part}": y, f"task{part}": task}
    names = [f"shop {s:02d}" for s in range(n_shops)]
    return Bunch(**sales, kind=kind, coef=coef, feature_names=list(FEATURES), task_names=names)
