"""Simulated tasks with a known structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import Bunch, check_random_state

Array = np.ndarray
STRUCTURES = ("clusters", "low_rank", "graph", "sparse", "independent")


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
    if structure not in STRUCTURES:
        raise ValueError(f"structure must be one of {list(STRUCTURES)}, got {structure!r}")
    if task not in ("regression", "classification"):
        raise ValueError(f'task must be "regression" or "classification", got {task!r}')
    if n_tasks < 1 or n_features < 1:
        raise ValueError(f"need at least one task and one feature, got {n_tasks} and {n_features}")
    if not (0 <= missing < 1):
        raise ValueError(f"missing is a share, at least 0 and below 1, got {missing!r}")
    if noise < 0:
        raise ValueError(f"noise must be at least 0, got {noise!r}")
    counts = np.broadcast_to(np.asarray(n_samples, dtype=int), (n_tasks,)) if np.ndim(n_samples) == 0 else np.array(n_samples)
    if counts.shape != (n_tasks,):
        raise ValueError(f"n_samples needs one number for each of the {n_tasks} tasks, got {counts.size}")
    if int(counts.min()) < 2:
        raise ValueError(f"every task needs at least 2 samples, got {int(counts.min())}")
    if shared and np.ptp(counts) > 0:
        raise ValueError("shared inputs mean the same number of samples for every task")
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
    return Bunch(
        X=np.column_stack([inputs[row], which]),
        y=y,
        X_wide=inputs[seen],
        Y=Y[seen],
        structure=A,
        coef=coef,
        groups=groups,
        adjacency=adjacency,
    )


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
