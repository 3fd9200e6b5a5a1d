"""The features of the observations: layouts by task, and the two passes over the data that every solver makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import issparse

from ..features.kernels import Matrix
from .levels import LevelIndex
from .observations import Grouping, TaskBatch, Value

Array = np.ndarray
MAX_SMALL_TASK = 500  # entries of the rows of a task, on average, up to which tasks are multiplied together


@dataclass(frozen=True, eq=False)
class Inputs(Value):
    """``Phi`` (``n x r``) and the rows and tasks of the observations, without weights and targets."""

    features: Matrix
    grouping: Grouping
    n_rows: int = field(init=False)
    n_features: int = field(init=False)
    n_tasks: int = field(init=False)
    mostly_observed: bool = field(init=False)  # whether at least a quarter of all (row, task) pairs is observed

    def __post_init__(self) -> None:
        (n, r), T = self.features.shape, self.grouping.n_tasks
        self.__dict__.update(n_rows=n, n_features=r, n_tasks=T, mostly_observed=self.grouping.task.size * 4 >= n * T)

    @cached_property
    def by_observation(self) -> Array | None:
        """Dense features with one row for each observation, in their order, copied if the rows are in another order.

        ``None`` where rows are observed more than once: the copy would be larger than the features.
        """
        row = self.grouping.row
        if issparse(self.features) or row.size > self.n_rows:
            return None
        return self.features if np.array_equal(row, np.arange(self.n_rows)) else self.features[row]

    @cached_property
    def stacked(self) -> Array | None:
        """The features as ``T x m x r`` (a view), if every task has ``m`` consecutive rows that no other task has."""
        m, ordered = int(self.grouping.counts[0]), self.by_observation
        if ordered is None or np.any(self.grouping.counts != m):
            return None
        return ordered.reshape(self.n_tasks, m, self.n_features)

    @cached_property
    def by_task(self) -> list[tuple[slice, Matrix]]:
        """The slice of the observations of each task, and its features (a view if its rows are consecutive)."""
        starts, ordered = self.grouping.starts.tolist(), self.by_observation
        places = [slice(starts[t], starts[t + 1]) for t in range(self.n_tasks)]
        if ordered is not None and ordered is not self.features:
            return [(place, ordered[place]) for place in places]
        return [(place, self.rows(self.grouping.row[place])) for place in places]

    @cached_property
    def _small_tasks(self) -> tuple[Array, LevelIndex] | None:
        """The rows of all tasks together, where these are so small that a product for each costs more in calls than in sums."""
        rows = self.by_observation
        if rows is None or rows.size > MAX_SMALL_TASK * self.n_tasks:
            return None
        return rows, LevelIndex(self.grouping.task, self.n_tasks)

    def rows(self, rows: Array) -> Matrix:
        """Some rows of the features, without a copy if they are consecutive (sparse rows are always copied)."""
        together = rows.size > 0 and rows[-1] - rows[0] == rows.size - 1 and bool(np.all(np.diff(rows) == 1))
        if together and rows.size == self.n_rows:
            return self.features
        return self.features[rows[0] : rows[-1] + 1] if together else self.features[rows]

    @property
    def for_batches(self) -> Matrix:
        """``by_observation``, or the features themselves where rows are observed more than once; see ``take``."""
        return self.features if self.by_observation is None else self.by_observation

    def take(self, batch: TaskBatch, P: Array | None = None) -> Array:
        """The rows of the tasks of a batch (``B x m x q``), zero where padded, out of ``P``, a multiple of ``for_batches``."""
        P = self.for_batches if P is None else P
        if self.stacked is not None:  # consecutive rows: a view
            return P[batch.place[0, 0] : batch.place[-1, -1] + 1].reshape(*batch.place.shape, -1)
        row = batch.place if self.by_observation is not None else self.grouping.row[batch.place]
        return P[row] * batch.mask[:, :, None]

    def times(self, Q: Array) -> Callable[[TaskBatch], Array]:
        """``Phi Q`` for batches of tasks (``B x m x q``): at once, or batch by batch where no row is needed twice."""
        if self.stacked is None:
            P = np.asarray(self.for_batches @ Q)
            return lambda batch: self.take(batch, P)
        return lambda batch: np.matmul(self.take(batch).reshape(-1, len(Q)), Q).reshape(*batch.place.shape, -1)

    @cached_property
    def _transposed(self) -> Matrix:
        """``Phi'``; of sparse features it is a new object, so it is kept."""
        return self.features.T

    def predict(self, W: Array, b: Array) -> Array:
        """``z``: the prediction for each observation."""
        obs, n = self.grouping, self.n_rows
        if not W.any():
            return b[obs.task]
        if self.mostly_observed:
            Z = (self.features @ W).T if issparse(self.features) else W.T @ self.features.T  # T x n, as observations are
            if obs.full_rows == n:
                return (Z + b[:, None]).ravel()
            return Z.ravel()[obs.places(n)] + b[obs.task]
        if self.stacked is not None:
            return (np.matmul(self.stacked, W.T[:, :, None])[..., 0] + b[:, None]).ravel()
        if self._small_tasks is not None:
            rows, levels = self._small_tasks
            return levels.products(rows, W.T) + b[obs.task]
        z, by_task = np.empty(obs.task.size), np.ascontiguousarray(W.T)
        for w, (place, phi) in zip(by_task, self.by_task, strict=True):
            z[place] = phi @ w
        return z + b[obs.task]

    def correlate(self, G: Array) -> Array:
        """``Z = Phi'G`` (``r x T``); column ``t`` adds up over the observations of task ``t``."""
        if self.mostly_observed:
            full = self.grouping.scatter(G, self.n_rows)
            return self._transposed @ full if issparse(self.features) else (full.T @ self.features).T
        if self.stacked is not None:
            return np.matmul(G.reshape(self.n_tasks, 1, -1), self.stacked)[:, 0].T
        if self._small_tasks is not None:
            rows, levels = self._small_tasks
            return levels.correlations(rows, G).T
        Z = np.empty((self.n_tasks, self.n_features))
        for t, (place, phi) in enumerate(self.by_task):
            Z[t] = G[place] @ phi
        return Z.T
