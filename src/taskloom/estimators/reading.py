"""What was learned, to read: correlations, groups, edges, and who lends strength to whom."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.utils.validation import check_is_fitted

from .._component import require
from .._linalg import psd_eigh
from ..structures import Clusters
from ..tables import shown
from .base import MultiTaskEstimator

Array = np.ndarray


def correlation(A: Array) -> Array:
    """``A`` scaled to a unit diagonal; a task without variance has no correlation with any other."""
    size = np.sqrt(np.maximum(np.diag(A), 0.0))
    size = np.where(size > 1e-9 * max(float(size.max(initial=0.0)), np.finfo(float).tiny), size, np.inf)
    C = np.clip(A / np.outer(size, size), -1.0, 1.0)
    np.fill_diagonal(C, 1.0)
    return C


class ReadStructure(MultiTaskEstimator):
    """Ways to look at ``structure_``."""

    structure_: Any
    _pulls: Any

    def task_correlation(self):
        """The learned relations as correlations, in the order of ``tasks_``.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
        """
        check_is_fitted(self, "certificate_")
        return correlation(self.structure_.astype(float))

    def task_clusters(self, n=None):
        """Groups of tasks that are alike, by average linkage of ``1 - correlation``.

        Parameters
        ----------
        n : int, optional
            How many groups. By default as many as the structure was told (``Clusters``), else as many as the widest gap
            between two merges suggests.

        Returns
        -------
        ndarray of shape (n_tasks,)
            A label for each task, counted from 0 in the order in which groups first appear in ``tasks_``.
        """
        C = self.task_correlation()
        T = len(C)
        require(n is None or 1 <= n <= T, f"n must be between 1 and the number of tasks, {T}, got n={n!r}")
        if T == 1:
            return np.zeros(1, int)
        tree = linkage(squareform(np.maximum(1 - C, 0.0), checks=False), "average")
        if n is None:
            n = self._learned.n_clusters if isinstance(self._learned, Clusters) else _widest_gap(tree[:, 2])
        label = fcluster(tree, n, "maxclust")
        return np.unique(label, return_index=True)[1].argsort().argsort()[label - 1]

    def task_graph(self, threshold=0.5):
        """The pairs of tasks whose correlation is at least ``threshold`` in size, strongest first.

        Returns
        -------
        list of (task, task, correlation)
            Edges as :class:`~taskloom.structures.TaskGraph` and networkx's ``add_weighted_edges_from`` take them.
        """
        C, names = self.task_correlation(), self.tasks_.tolist()
        one, other = np.nonzero(np.triu(np.abs(C) >= threshold, k=1))
        order = np.argsort(-np.abs(C[one, other]), kind="stable")
        return [(names[t], names[s], float(C[t, s])) for t, s in zip(one[order], other[order], strict=True)]

    def explain(self, task):
        """Which tasks lend strength to a task, and by how much.

        At the optimum the function of a task is a sum of what each task's data pull it towards, ``f_t = sum_s R_ts z_s / (2
        alpha)`` (``R`` is the structure, less what a ridge takes). The share of task ``s`` is the part of ``||f_t||^2`` along
        its term.

        Parameters
        ----------
        task : label of a task of the fit

        Returns
        -------
        dict
            The share of each task, itself included, largest first; they add up to 1, and may be negative.
        """
        check_is_fitted(self, "certificate_")
        names = self.tasks_.tolist()
        require(task in names, f"there is no task {shown(task)}; the tasks are {names[:10]}")
        require(
            self._pulls is not None and task not in getattr(self, "added_tasks_", []),
            "explain needs a task of the fit, and a structure on the tasks; fit again to explain added tasks",
        )
        pulls = self._pulls[:, names.index(task)]
        total = float(pulls.sum())
        shares = pulls / total if total > 0 else np.zeros(len(pulls))
        order = np.argsort(-shares, kind="stable")
        return {names[s]: float(shares[s]) for s in order}

    def _store(self, data, solution) -> None:
        super()._store(data, solution)
        self._pulls = None
        problem = data.problem
        if not problem.structure.on_features and problem.n_tasks <= 5000:
            a, V = psd_eigh(solution.A)
            R = (V * (a / (1 + problem.ridge / problem.alpha * a))) @ V.T
            self._pulls = R * (problem.correlate(solution.G).T @ solution.W) / (2 * problem.alpha)  # from s (rows) to t


def _widest_gap(heights: Array) -> int:
    """The number of groups before the merge that costs most more than the one before it; 1 where merging costs nothing."""
    if heights[-1] <= 0.05:
        return 1
    steps = np.diff(np.concatenate([[0.0], heights]))
    return int(len(heights) - np.argmax(steps)) + 1
