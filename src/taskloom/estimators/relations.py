"""What was learned, to read: correlations, groups, edges, and who lends strength to whom."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import silhouette_score
from sklearn.utils.validation import check_is_fitted

from .._linalg import psd_eigh
from ..problem import Problem
from ..structures import Clusters
from ..structures import factored_matrix as factors
from ..structures.factored_matrix import FactoredStructure
from ..tables import shown
from .base import MultiTaskEstimator

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


class ReadStructure(MultiTaskEstimator):
    """Ways to look at ``structure_``."""

    structure_: Any
    _pulls: Any

    def task_correlation(self) -> Array | FactoredStructure:
        """The learned relations as correlations, in the order of ``tasks_``; with several kernels, those of the sum.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks), or FactoredStructure where ``structure_`` is one
        """
        check_is_fitted(self, "certificate_")
        A = FactoredStructure.total(self.structure_) if isinstance(self.structure_, list) else self.structure_
        return correlation(A.astype(float))

    def _correlation_array(self, who):
        """All correlations at once, for what compares every pair of tasks."""
        C = self.task_correlation()
        if isinstance(C, np.ndarray):
            return C
        if not len(C) <= factors.LARGEST_ARRAY:
            raise ValueError(
                f"{who} compares every pair of tasks, and stops at {factors.LARGEST_ARRAY} of them, got {len(C)}; "
                "structure_.nearest(task, k) gives the neighbours of one task, and "
                "sklearn.cluster.KMeans on the rows of task_correlation().L makes groups"
            )
        C = np.clip(C.to_array(), -1.0, 1.0)
        np.fill_diagonal(C, 1.0)
        return C

    def task_clusters(self, n: int | None = None) -> Array:
        """Groups of tasks that are alike, by average linkage of ``1 - correlation``.

        Under ``Clusters`` by Ward's linkage in the leading eigenvectors of the structure: what it relaxes is the projection
        onto them, and single correlations are noisier.

        Parameters
        ----------
        n : int, default=None
            How many groups. ``None`` is as many as the structure was told (``Clusters``), else as many as make
            the best mean silhouette.

        Returns
        -------
        ndarray of shape (n_tasks,)
            A label for each task, counted from 0 in the order in which groups first appear in ``tasks_``.
        """
        C = self._correlation_array("task_clusters")
        T = len(C)
        if n is not None and not 1 <= n <= T:
            raise ValueError(f"n must be between 1 and the number of tasks, {T}, got n={n!r}")
        if n is None and T > factors.DENSE_TASKS:
            raise ValueError(f"with {T} tasks say how many groups: task_clusters(n)")
        if T == 1:
            return np.zeros(1, int)
        if isinstance(self._learned, Clusters):
            n = self._learned.n_clusters if n is None else n
            tree = linkage(_leading(self.structure_.astype(float), n), "ward")
        else:
            distances = np.maximum(1 - C, 0.0)
            tree = linkage(squareform(distances, checks=False), "average")
            n = _natural_number(distances, tree) if n is None else n
        if n == T:
            return np.arange(T)  # where all are equally far apart, rounding would decide which of them are one group
        label = fcluster(tree, n, "maxclust")
        return np.unique(label, return_index=True)[1].argsort().argsort()[label - 1]

    def task_graph(self, threshold: float | None = None) -> list[tuple[Any, Any, float]]:
        """The pairs of tasks whose correlation is at least ``threshold`` in size, strongest first.

        Under ``LearnedGraph`` and ``SparsePrecision`` the edges are those that were learned, with the correlation of two tasks
        given all others (from ``A^-1``).

        Parameters
        ----------
        threshold : float, default=None
            ``None`` is 0.5; less for structures that set relations to zero themselves (0.01; 0.05 for edges), where what is
            left counts, however much it was shrunk.

        Returns
        -------
        list of (task, task, correlation)
            Edges as :class:`~taskloom.structures.TaskGraph` and networkx's ``add_weighted_edges_from`` take them.
        """
        C, names = self._correlation_array("task_graph"), self.tasks_.tolist()
        if self._learned.precision_graph:
            C = -correlation(np.linalg.inv(self.structure_.astype(float)))
        if threshold is None:
            threshold = 0.05 if self._learned.precision_graph else 0.01 if self._learned.zeroes_relations else 0.5
        one, other = np.nonzero(np.triu(np.abs(C) >= threshold, k=1))
        order = np.argsort(-np.abs(C[one, other]), kind="stable")
        return [(names[t], names[s], float(C[t, s])) for t, s in zip(one[order], other[order], strict=True)]

    def explain(self, task: Any) -> dict[Any, float]:
        """Which tasks lend strength to a task, and by how much.

        At the optimum the function of a task is a sum of what each task's data pull it towards, ``f_t = sum_s R_ts z_s / (2
        alpha)`` (``R`` is the structure, less what a ridge takes). The share of task ``s`` is the part of ``||f_t||^2`` along
        its term.

        Parameters
        ----------
        task : object
            The name of a task of the fit.

        Returns
        -------
        dict
            The share of each task, itself included, largest first; they add up to 1, and may be negative.
        """
        check_is_fitted(self, "certificate_")
        names = self.tasks_.tolist()
        if task not in names:
            raise ValueError(f"there is no task {shown(task)}; the tasks are {names[:10]}")
        if task in getattr(self, "added_tasks_", []):
            raise ValueError(f"explain needs a task of the fit, and {shown(task)} was added to it; fit again with all tasks")
        if self._pulls is None:
            raise ValueError(f"explain needs a structure on the tasks, got {self.structure!r}")
        at = names.index(task)
        pulls = self._pulls[:, at] if isinstance(self._pulls, np.ndarray) else _pulls_on(at, *self._pulls)
        total = float(pulls.sum())
        shares = pulls / total if total > 0 else np.zeros(len(pulls))
        order = np.argsort(-shares, kind="stable")
        return {names[s]: float(shares[s]) for s in order}

    def _store(self, data, solution) -> None:
        super()._store(data, solution)
        self._pulls = None
        problem = data.problem
        if problem.structure.keeps_columns:
            return
        Z, addends = problem.correlate(solution.G), solution.terms
        rho = problem.ridge / problem.alpha
        if isinstance(solution.A, FactoredStructure):
            if addends is None:
                self._pulls = (solution.A.shrunk(rho), Z / (2 * problem.alpha), solution.W)
        elif problem.n_tasks <= 5000:
            if addends is None or not problem.structure.is_sum:
                metrics = [solution.A] if addends is None else addends.structures  # on the same features metrics add up
                self._pulls = sum(_metric(problem, A) for A in metrics) * (Z.T @ solution.W) / (2 * problem.alpha)
            else:
                parts = zip(addends.structures, problem.structure.features_of(Z), addends.weights, strict=True)
                self._pulls = sum(_metric(problem, A) * (z.T @ W) for A, z, W in parts) / (2 * problem.alpha)


def _metric(problem: Problem, A: Array) -> Array:
    """``A``, less what a ridge takes: times ``Z'W`` it says what each task's data (rows) contribute to each task (columns)."""
    if problem.ridge == 0:
        return A
    a, V = psd_eigh(A)
    return (V * (a / (1 + problem.ridge / problem.alpha * a))) @ V.T


def _pulls_on(task: int, metric: FactoredStructure, Z: Array, W: Array) -> Array:
    """What the data of each task contribute to one task: a column of the matrix that fewer tasks keep."""
    return metric[:, task] * (Z.T @ W[:, task])


def _natural_number(distances: Array, tree: Array) -> int:
    """How many groups the tasks fall into by themselves: the number with the best mean silhouette.

    One where merging costs nothing; as many as tasks where even the closest two have little to do with each other.
    """
    T, heights = len(distances), tree[:, 2]
    if heights[-1] <= 0.05:
        return 1
    if heights[0] >= 0.7 or T == 2:
        return T if heights[0] >= 0.5 else 1
    cuts = [fcluster(tree, n, "maxclust") for n in range(2, max(T // 2, 2) + 1)]
    cuts = [cut for cut in cuts if cut.max() > 1]  # merges of one height cannot be told apart: all or none
    scores = [silhouette_score(distances, cut, metric="precomputed") for cut in cuts]
    if max(scores, default=0.0) <= 1e-9:
        return 1  # tasks that are all equally far from each other fall into groups by rounding alone
    return int(cuts[int(np.argmax(scores))].max())


def _leading(A: Array, n: int) -> Array:
    """The tasks in the ``n - 1`` leading directions of ``A`` off the mean, each scaled by how much it stands out."""
    off = A - A.mean(axis=0) - A.mean(axis=1)[:, None] + A.mean()
    a, V = psd_eigh(off)
    a = a - a[min(1, len(a) - 1)]  # the smallest belongs to the mean, the next is what tasks have of their own
    return (V * np.sqrt(np.maximum(a, 0.0)))[:, -max(n - 1, 1) :]
