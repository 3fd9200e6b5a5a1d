"""Inspection of the learned structure: correlations, clusters, edges, and contributions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._linalg import psd_eigh
from ...structures import Clusters
from ...structures import factored_matrix as factors
from ...structures.factored_matrix import FactoredStructure
from ...tables.layout import shown
from ..fitted import FittedState

Array = np.ndarray


def correlation(A: Any) -> Any:
    """``A`` scaled to a unit diagonal; a task without variance has no correlation with any other."""
    if isinstance(A, FactoredStructure):
        return A.correlations()
    size = np.sqrt(np.maximum(np.diag(A), 0.0))
    size = np.where(size > 1e-9 * max(float(size.max(initial=0.0)), np.finfo(float).tiny), size, np.inf)
    C = np.clip(A / np.outer(size, size), -1.0, 1.0)
    np.fill_diagonal(C, 1.0)
    return C


def task_correlation(state: FittedState) -> Any:
    """The learned relations as correlations; with several kernels, those of the sum."""
    if state.structure_ is None:
        raise ValueError("a model of terms= has no matrix of all tasks: relations_frame() has that of each grouping")
    A = FactoredStructure.total(state.structure_) if isinstance(state.structure_, list) else state.structure_
    return correlation(A.astype(float))


def _correlation_array(state: FittedState, who: str) -> Array:
    """The dense correlation matrix."""
    C = task_correlation(state)
    if isinstance(C, np.ndarray):
        return C
    if not len(C) <= factors.LARGEST_ARRAY:
        raise ValueError(
            f"{who} compares every pair of tasks, and stops at {factors.LARGEST_ARRAY} of them, got {len(C)}; "
            "structure_.nearest(task, k) gives the neighbours of one task, and "
            "sklearn.cluster.KMeans on the rows of task_correlation().L makes groups"
        )
    return correlation(C.to_array())


def task_clusters(state: FittedState, n: int | None = None) -> Array:
    """Groups of tasks that are alike: a label for each task."""
    from scipy.cluster.hierarchy import fcluster, linkage  # slow to import
    from scipy.spatial.distance import squareform

    C, learned = _correlation_array(state, "task_clusters"), state.learned
    T = len(C)
    if n is not None and not 1 <= n <= T:
        raise ValueError(f"n must be between 1 and the number of tasks, {T}, got n={n!r}")
    if n is None and T > factors.DENSE_TASKS:
        raise ValueError(f"with {T} tasks say how many groups: task_clusters(n)")
    if T == 1:
        return np.zeros(1, int)
    if isinstance(learned, Clusters):
        n = learned.n_clusters if n is None else n
        tree = linkage(_leading(state.structure_.astype(float), n), "ward")
    else:
        distances = np.maximum(1 - C, 0.0)
        tree = linkage(squareform(distances, checks=False), "average")
        n = _best_n_clusters(distances, tree) if n is None else n
    if n == T:
        return np.arange(T)  # where all distances are equal, rounding would decide
    label = fcluster(tree, n, "maxclust")
    return np.unique(label, return_index=True)[1].argsort().argsort()[label - 1]


def task_graph(state: FittedState, threshold: float | None = None) -> list[tuple[Any, Any, float]]:
    """The pairs of tasks whose correlation is at least ``threshold`` in size, strongest first."""
    C, names, learned = _correlation_array(state, "task_graph"), state.tasks_.tolist(), state.learned
    if learned.precision_graph:
        C = -correlation(np.linalg.inv(state.structure_.astype(float)))
    if threshold is None:
        threshold = 0.05 if learned.precision_graph else 0.01 if learned.zeroes_relations else 0.5
    one, other = np.nonzero(np.triu(np.abs(C) >= threshold, k=1))
    order = np.argsort(-np.abs(C[one, other]), kind="stable")
    return [(names[t], names[s], float(C[t, s])) for t, s in zip(one[order], other[order], strict=True)]


def explain(state: FittedState, task: Any) -> dict[Any, float]:
    """The contribution of each task to a task of the fit, largest first."""
    names = state.tasks_.tolist()
    if task not in names:
        raise ValueError(f"there is no task {shown(task)}; the tasks are {names[:10]}")
    if task in (state.added_tasks_ or []):
        raise ValueError(f"explain needs a task of the fit, and {shown(task)} was added to it; fit again with all tasks")
    found = state.contributions
    if found is None:
        raise ValueError(f"explain needs a structure on the tasks, got {state.learned!r}")
    at = names.index(task)
    if isinstance(found, np.ndarray):
        contributions = found[:, at]
    else:
        metric, Z, W = found
        contributions = metric[:, at] * (Z.T @ W[:, at])
    total = float(contributions.sum())
    shares = contributions / total if total > 0 else np.zeros(len(contributions))
    order = np.argsort(-shares, kind="stable")
    return {names[s]: float(shares[s]) for s in order}


def _best_n_clusters(distances: Array, tree: Array) -> int:
    """The number of clusters with the best mean silhouette.

    One if all tasks are nearly identical; as many as tasks if even the closest two are nearly uncorrelated.
    """
    from scipy.cluster.hierarchy import fcluster  # slow to import
    from sklearn.metrics import silhouette_score

    T, heights = len(distances), tree[:, 2]
    if heights[-1] <= 0.05:
        return 1
    if heights[0] >= 0.7 or T == 2:
        return T if heights[0] >= 0.5 else 1
    cuts = [fcluster(tree, n, "maxclust") for n in range(2, max(T // 2, 2) + 1)]
    cuts = [cut for cut in cuts if cut.max() > 1]  # merges of equal height happen together
    scores = [silhouette_score(distances, cut, metric="precomputed") for cut in cuts]
    if max(scores, default=0.0) <= 1e-9:
        return 1  # all distances are equal: clusters would be due to rounding
    return int(cuts[int(np.argmax(scores))].max())


def _leading(A: Array, n: int) -> Array:
    """The tasks in the ``n - 1`` leading eigenvectors of the centred ``A``, scaled by the excess of their eigenvalues."""
    off = A - A.mean(axis=0) - A.mean(axis=1)[:, None] + A.mean()
    a, V = psd_eigh(off)
    a = a - a[min(1, len(a) - 1)]  # the smallest belongs to the mean, the next is the task-specific variance
    return (V * np.sqrt(np.maximum(a, 0.0)))[:, -max(n - 1, 1) :]
