"""Hierarchical clustering of the tasks by their correlations."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...structures import factored_matrix as factors
from ...structures.factored_matrix import FactoredStructure

Array = np.ndarray
APART = 3.0  # more than any distance 1 - correlation: clusters are merged last


def task_tree(C: Array, groups: Any = None) -> Array:
    """Average linkage of ``1 - correlation``, as SciPy's ``linkage`` returns it; given clusters are not split."""
    from scipy.cluster.hierarchy import linkage  # slow to import
    from scipy.spatial.distance import squareform

    if len(C) < 2:
        return np.empty((0, 4))
    groups = np.zeros(len(C), int) if groups is None else np.asarray(groups)
    distances = np.maximum(1 - C, 0.0) + APART * (groups[:, None] != groups[None, :])
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(distances, checks=False), "average", optimal_ordering=len(C) <= 400)
    tree[:, 2] = np.maximum.accumulate(np.where(tree[:, 2] >= APART, tree[:, 2] - APART, tree[:, 2]))
    return tree


def every_pair(model: Any) -> Array:
    """The dense correlation matrix of a fitted model."""
    C = model.task_correlation()
    if isinstance(C, FactoredStructure):
        raise ValueError(
            f"the correlations of all pairs are limited to {factors.DENSE_TASKS} tasks, got {len(C)}; "
            "structure_.nearest(task, k) gives the neighbours of one task"
        )
    return C


def whole_structure(model: Any) -> Array:
    """The structure of a fitted model; with several kernels their sum."""
    terms = model.structure_ if isinstance(model.structure_, list) else [model.structure_]
    return np.sum([A.astype(float) for A in terms], axis=0)


def leaf_order(tree: Array) -> Array:
    """The tasks in the order of a tree's leaves; the tree of one task has no merge."""
    from scipy.cluster.hierarchy import leaves_list  # slow to import

    return leaves_list(tree) if len(tree) else np.zeros(1, int)
