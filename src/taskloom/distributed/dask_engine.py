"""The engine over a Dask cluster: a pass is the local pass of every worker, and a sum over a fixed tree.

Eliminated tasks stay on their workers. If one dies, the others compute its results again, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from .._linalg import psd_eigh, symmetric
from ..engines.local import WeightSpectrum
from . import worker_tasks
from .dask_workers import Workers, owners
from .task_summaries import TaskSummary
from .worker_tasks import WorkerTasks, add, unpacked

Array = np.ndarray


class DaskEngine:
    """Tasks with task-specific inputs on the workers: each task belongs to the block with most of its rows.

    For tasks in several blocks, statistics move between workers, never rows; for a table that is sorted by task these are few.

    Parameters
    ----------
    workers : Workers
    statistics : list of futures
        The summaries of the tasks of each block; released once they are merged.
    present, counts : sequences of arrays
        The tasks of each block, and their numbers of rows.
    task_weights : array
        ``c_t`` of each task.
    centre : bool
        Whether there are intercepts.
    alpha, ridge : float
    n_features : int
    """

    spectrum = single_data = None
    dtype = np.dtype(float)

    def __init__(
        self,
        workers: Workers,
        statistics: list[Any],
        present: Sequence[Array],
        counts: Sequence[Array],
        task_weights: Array,
        centre: bool,
        alpha: float,
        ridge: float,
        n_features: int,
    ):
        self.workers, self.n_tasks, self.n_features = workers, len(task_weights), n_features
        self.alpha, self.ridge = alpha, ridge
        submit, pieces, owner = workers.submit, dict[int, list](), owners(present, counts, self.n_tasks)
        for block, tasks in enumerate(present):
            for to in np.unique(owner[tasks]).tolist():
                places = np.flatnonzero(owner[tasks] == to)
                piece = submit("parts", TaskSummary.take, statistics[block], places, tasks[places])
                pieces.setdefault(to, []).append(piece)
        order = np.argsort(owner, kind="stable")
        ends = np.searchsorted(owner[order], np.arange(len(present) + 1))
        self.places = [order[ends[to] : ends[to + 1]] for to in sorted(pieces)]  # of the tasks of each worker, among all
        self.worker_tasks = [
            submit("tasks", WorkerTasks.of, pieces[to], centre, task_weights[mine])
            for to, mine in zip(sorted(pieces), self.places, strict=True)
        ]
        statistics.clear()

    def sum(self, name: str, function: Callable, over: Sequence[Any], *arguments: Any) -> Array:
        """A local pass on every worker, and the sum of its results; large arguments are sent once."""
        return self.workers.gather(self.workers.total("sum", self.each(name, function, over, *arguments), add))

    def each(self, name: str, function: Callable, over: Sequence[Any], *arguments: Any) -> list[Any]:
        submit = self.workers.submit
        held = [submit("factor", np.asarray, a) if isinstance(a, np.ndarray) else a for a in arguments]
        return [submit(name, function, one, *held) for one in over]

    @cached_property
    def _statistics(self) -> list[float]:
        return self.sum("sizes", WorkerTasks.statistics, self.worker_tasks).tolist()

    @property
    def rounding_floor(self) -> float:
        return self._statistics[0]

    @property
    def size(self) -> float:
        """The mean of the sizes weighted by size."""
        _, total, squares, _ = self._statistics
        return squares / total if total > 0 else 0.0

    @property
    def mean_size(self) -> float:
        return self._statistics[1] / self.n_tasks

    @property
    def target_squares(self) -> float:
        return self._statistics[3]

    @cached_property
    def correlations_at_zero(self) -> Array:
        """``Z'Z`` at zero weights."""
        return unpacked(self.sum("statistics", WorkerTasks.correlations_at_zero, self.worker_tasks), self.n_features)

    def independent_fits(self, shrinkage: float) -> WeightSpectrum:
        return self._spectrum(self.sum("solve", WorkerTasks.independent_fits, self.worker_tasks, shrinkage))

    def _spectrum(self, moments: Array) -> WeightSpectrum:
        return WeightSpectrum(*psd_eigh(unpacked(moments, self.n_features)), self.n_tasks)

    def known_factor(self) -> Array:
        return np.eye(self.n_features) / (1 + self.ridge / self.alpha) ** 0.5

    def eliminate(self, Q: Array, near: Any = None, start: Any = None) -> DaskTasks:
        return DaskTasks(self, Q, self.each("solve", WorkerTasks.eliminate, self.worker_tasks, Q, self.alpha))

    def loss(self, W: Array, b: Array) -> float:
        """The loss term at weights (``d x T``) and intercepts, of which each worker gets those of its tasks."""
        submit = self.workers.submit
        parts = [
            submit("loss", WorkerTasks.loss, mine, np.ascontiguousarray(W[:, places].T), b[places])
            for mine, places in zip(self.worker_tasks, self.places, strict=True)
        ]
        return float(self.workers.gather(self.workers.total("sum", parts, add))[0])

    def for_directions(self, tasks: DaskTasks) -> DaskTasks:
        return tasks

    def refine(self) -> bool:
        return False

    def weights(self, tasks: DaskTasks | None) -> tuple[Array, Array, Array]:
        """``W`` and ``Z`` (``d x T``) and the intercepts, one worker's tasks at a time."""
        out, b = np.empty((2, self.n_tasks, self.n_features)), np.empty(self.n_tasks)
        held = [None] * len(self.worker_tasks) if tasks is None else tasks.futures
        for mine, solved in zip(self.worker_tasks, held, strict=True):
            places, W, Z, intercepts = self.workers.gather(self.workers.submit("weights", WorkerTasks.weights, mine, solved))
            out[0, places], out[1, places], b[places] = W, Z, intercepts
        return out[0].T, out[1].T, b


class DaskTasks:
    """Tasks at a factor, on the workers: sums over them are small, and each is one round trip."""

    ahead = None  # under the squared loss a minimum takes no iterations

    def __init__(self, engine: DaskEngine, Q: Array, futures: list[Any]):
        self.engine, self.Q, self.futures = engine, Q, futures
        d, q = Q.shape
        found = engine.sum("sum", worker_tasks.sums, futures)
        self.minimum, self.squared_norm = found[:2].tolist()
        self.product, self.curvature = found[2 : 2 + d * q].reshape(d, q), unpacked(found[2 + d * q :], q)

    @cached_property
    def moments(self) -> tuple[float, Array]:
        """``||W||^2`` (with a ridge), and ``Z1'Z1`` with ``Z1 = Z - 2 ridge W``."""
        found = self.engine.sum("moments", worker_tasks.moments, self.futures, self.engine.ridge)
        return float(found[0]), unpacked(found[1:], self.engine.n_features)

    @cached_property
    def weights(self) -> tuple[Array, Array, Array]:
        """``W`` and ``Z`` (``d x T``) and the intercepts, gathered once."""
        return self.engine.weights(self)

    def hessian(self, dQ: Array) -> Array:
        return self.engine.sum("product", worker_tasks.hessian, self.futures, dQ)

    def correlation_gram(self, X: Array) -> Array:
        if "moments" in vars(self):
            return X.T @ self.moments[1] @ X
        return self.engine.sum("product", worker_tasks.LocalTasks.correlation_gram, self.futures, X)

    def outside(self, U: Array) -> tuple[float, float]:
        M = self.moments[1]
        outside = M - U @ (U.T @ M)
        outside = symmetric(outside - (outside @ U) @ U.T)
        share, curvature = self.engine.sum("product", worker_tasks.curvature_outside, self.futures, U).tolist()
        return float(np.linalg.eigvalsh(outside)[-1]), curvature / share if share > 0 else 0.0

    def grown(self, Q: Array, step: float) -> tuple[Array, Array]:
        return np.linalg.eigh(symmetric(Q @ Q.T + step * self.moments[1]))

    def weight_spectrum(self) -> WeightSpectrum:
        return self.engine._spectrum(self.engine.sum("moments", worker_tasks.weight_moments, self.futures))
