"""Which row and which task each observation belongs to, and batches of tasks of similar size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .value import Value

Array = np.ndarray
BATCH = 1 << 20  # numbers in the systems of the tasks that are solved together: more gain nothing, and take memory


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Tasks of similar size, padded to a common length: their places among the observations, and a mask."""

    tasks: Array
    place: Array
    mask: Array


@dataclass(frozen=True, eq=False)
class Grouping(Value):
    """Row and task of each observation, sorted by task; whatever follows from these alone is computed once."""

    row: Array
    task: Array
    n_tasks: int

    @cached_property
    def counts(self) -> Array:
        """The number of observations of each task."""
        return np.bincount(self.task, minlength=self.n_tasks)

    @cached_property
    def starts(self) -> Array:
        """Where each task begins in the sorted arrays, and the end of the last one."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def full_rows(self) -> int | None:
        """The number of rows, if every task was seen once in each of them: then observations are a matrix, column by column."""
        n = self.task.size // self.n_tasks
        full = self.task.size == n * self.n_tasks and np.array_equal(self.row, np.tile(np.arange(n), self.n_tasks))
        return n if full and bool(np.all(self.counts == n)) else None

    @cached_property
    def same_rows(self) -> bool:
        """Whether every task sees the same rows, in the same order."""
        m = int(self.counts[0])
        return bool(np.all(self.counts == m) and np.all(self.row.reshape(self.n_tasks, m) == self.row[:m]))

    @cached_property
    def batches(self) -> list[TaskBatch]:
        """Tasks of similar size."""
        return batches(self.counts, self.starts)

    @cached_property
    def single_tasks(self) -> list[TaskBatch]:
        """Each task in a batch of its own."""
        return [
            TaskBatch(np.array([t]), start + np.arange(m)[None], np.ones((1, m), dtype=bool))
            for t, (start, m) in enumerate(zip(self.starts.tolist(), self.counts.tolist(), strict=False))
        ]

    def sum_by_task(self, values: Array) -> Array:
        """Add up one number for each observation within its task."""
        return np.bincount(self.task, weights=values, minlength=self.n_tasks)

    def scatter(self, values: Array, n_rows: int) -> Array:
        """The ``n x T`` matrix with these values at the observed places (repeated places add up); to be read only."""
        if self.full_rows == n_rows:
            return values.reshape(self.n_tasks, n_rows).T
        flat = np.bincount(self.places(n_rows), weights=values, minlength=n_rows * self.n_tasks)
        return flat.reshape(self.n_tasks, n_rows).T

    def places(self, n_rows: int) -> Array:
        """Where the observations lie in a ``T x n`` matrix, read row by row."""
        return self.task * n_rows + self.row


def batches(counts: Array, starts: Array, most: int | None = None) -> list[TaskBatch]:
    """Group tasks by size within a factor of two, so that padding wastes at most half; few enough to stay in the cache."""
    most = BATCH if most is None else most
    level = np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
    out = []
    for k in np.unique(level):
        tasks = np.flatnonzero(level == k)
        length = int(counts[tasks].max())
        pieces = min(-(-len(tasks) * length * max(length, 32) // most), len(tasks))  # none of them empty
        out += [_batch(some, length, counts, starts) for some in np.array_split(tasks, pieces)]
    return out


def _batch(tasks: Array, length: int, counts: Array, starts: Array) -> TaskBatch:
    offset = np.arange(length)
    mask = offset[None, :] < counts[tasks][:, None]
    place = np.where(mask, starts[tasks][:, None] + offset[None, :], starts[tasks][:, None])
    return TaskBatch(tasks, place, mask)
