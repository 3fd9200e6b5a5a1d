"""Observations (row, task, target, weight), their grouping by task, and batches of tasks of similar size."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csc_array

Array = np.ndarray


MAX_BATCH_ENTRIES = 1 << 18  # entries in the systems of tasks that are solved together; larger batches leave the cache


class Value:
    """Base of frozen dataclasses with ``cached_property``; a pickle holds the fields only."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: self.__dict__[field.name] for field in fields(self)}  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class TaskBatch:
    """Tasks of similar size, padded to a common length: their positions among the observations, and a mask."""

    tasks: Array
    place: Array
    mask: Array

    def first(self) -> TaskBatch:
        """The first task alone."""
        return TaskBatch(self.tasks[:1], self.place[:1], self.mask[:1])


@dataclass(frozen=True, eq=False)
class Grouping(Value):
    """Row and task of each observation, sorted by task, with cached derived quantities."""

    row: Array
    task: Array
    n_tasks: int

    @cached_property
    def counts(self) -> Array:
        """The number of observations of each task."""
        return np.bincount(self.task, minlength=self.n_tasks) if self.n_tasks > 1 else np.array([self.task.size])

    @cached_property
    def starts(self) -> Array:
        """Where each task begins in the sorted arrays, and the end of the last one."""
        return np.concatenate([[0], np.cumsum(self.counts)])

    @cached_property
    def full_rows(self) -> int | None:
        """The number of rows, if every task is observed once in each; the observations are then a matrix, by columns."""
        n = self.task.size // self.n_tasks
        return n if self.same_rows and np.array_equal(self.row[:n], np.arange(n)) else None

    @cached_property
    def same_rows(self) -> bool:
        """Whether every task is observed in the same rows, in the same order."""
        m = int(self.counts[0])
        return bool(np.all(self.counts == m) and np.all(self.row.reshape(self.n_tasks, m) == self.row[:m]))

    @cached_property
    def batches(self) -> list[TaskBatch]:
        """Tasks of similar size."""
        return batches(self.counts, self.starts)

    @cached_property
    def single_tasks(self) -> list[TaskBatch]:
        """One batch for each task."""
        return [_batch(np.array([t]), m, self.counts, self.starts) for t, m in enumerate(self.counts.tolist())]

    def scatter(self, values: Array, n_rows: int) -> Array:
        """The ``n x T`` matrix with these values at the observed positions (repeated ones are summed); read-only."""
        if self.full_rows == n_rows:
            return values.reshape(self.n_tasks, n_rows).T
        flat = np.bincount(self.places(n_rows), weights=values, minlength=n_rows * self.n_tasks)
        return flat.reshape(self.n_tasks, n_rows).T

    def places(self, n_rows: int) -> Array:
        """The positions of the observations in a ``T x n`` matrix, row by row."""
        return self.task * n_rows + self.row


def indicator(codes: Array, n_codes: int) -> csc_array:
    """``n_codes x n``; made without a pass over the rows, and products with it are sums over the rows of each code."""
    n = len(codes)
    return csc_array((np.ones(n), codes, np.arange(n + 1)), shape=(n_codes, n))


def stable_order(codes: Array, n_codes: int) -> Array:
    """Rows by their code, in their order where it is the same: ``argsort`` by counting."""
    return indicator(codes, n_codes).tocsr().indices


def batches(counts: Array, starts: Array, most: int | None = None) -> list[TaskBatch]:
    """Group tasks by size within a factor of two, so that at most half of a batch is padding."""
    groups = tasks_by_size(counts, MAX_BATCH_ENTRIES if most is None else most)
    return [_batch(tasks, length, counts, starts) for tasks, length in groups]


def tasks_by_size(counts: Array, most: int) -> list[tuple[Array, int]]:
    """Tasks of similar size with the largest size among them, in groups whose systems have about ``most`` entries."""
    level = np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
    out = []
    for k in np.unique(level):
        tasks = np.flatnonzero(level == k)
        length = int(counts[tasks].max())
        pieces = min(-(-len(tasks) * length * max(length, 32) // most), len(tasks))
        out += [(some, length) for some in np.array_split(tasks, pieces)]
    return out


def _batch(tasks: Array, length: int, counts: Array, starts: Array) -> TaskBatch:
    offset = np.arange(length)
    mask = offset[None, :] < counts[tasks][:, None]
    place = np.where(mask, starts[tasks][:, None] + offset[None, :], starts[tasks][:, None])
    return TaskBatch(tasks, place, mask)


@dataclass(frozen=True, eq=False)
class Observations(Value):
    """One entry for each observed ``(row, task)``, sorted by task.

    ``weight`` is the weight in the objective, ``v = c_t s_i / S_t``; entries of weight 0 are not here at all.
    """

    row: Array
    task: Array
    y: Array
    weight: Array
    n_tasks: int
    grouping: Grouping = field(default=None, repr=False)  # type: ignore[assignment]  # derived, shared by copies
    counts: Array = field(init=False, repr=False)  # the number of observations of each task
    starts: Array = field(init=False, repr=False)  # where each task begins in the sorted arrays, and the end of the last one

    def __post_init__(self) -> None:
        grouping = self.grouping or Grouping(self.row, self.task, self.n_tasks)
        self.__dict__.update(grouping=grouping, counts=grouping.counts, starts=grouping.starts)

    @classmethod
    def build(
        cls, row: Array, task: Array, y: Array, n_tasks: int, sample_weight: Array | None = None, task_weight: Any = "equal"
    ) -> Observations:
        """Normalise weights as the objective does: ``c_t / S_t`` times the sample weight."""
        s = np.ones(y.size) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        if sample_weight is not None:
            if not (bool((s >= 0).all()) and bool(np.isfinite(s).all())):
                raise ValueError("sample weights must be finite and not negative")
            keep = s > 0
            row, task, y, s = row[keep], task[keep], y[keep], s[keep]
        total = np.bincount(task, weights=s, minlength=n_tasks)
        empty = np.flatnonzero(total <= 0)
        if empty.size != 0:
            raise ValueError(f"task {empty[0]} has no observation with positive weight; drop it")
        c = task_strengths(task_weight, total)
        v = s * (c / total)[task]
        later = np.diff(task)
        if np.all((later > 0) | ((later == 0) & (np.diff(row) >= 0))):  # already sorted
            return cls(row, task, y, v, n_tasks)
        order = stable_order(task, n_tasks) if np.all(np.diff(row) >= 0) else np.lexsort((row, task))
        return cls(row[order], task[order], y[order], v[order], n_tasks)

    @classmethod
    def from_wide(cls, Y: Array, sample_weight: Array | None = None, task_weight: Any = "equal") -> Observations:
        """From ``Y`` (``n x T``), NaN where a task was not observed; weights of shape ``(n,)`` or ``(n, T)``."""
        Y = np.asarray(Y, dtype=float)
        Y = Y[:, None] if Y.ndim == 1 else Y
        row, task = np.nonzero(~np.isnan(Y))
        s = None
        if sample_weight is not None:
            S = np.asarray(sample_weight, dtype=float)
            s = np.broadcast_to(S[:, None] if S.ndim == 1 else S, Y.shape)[row, task]
        return cls.build(row, task, Y[row, task], Y.shape[1], s, task_weight)

    def with_targets(self, y: Array, weight: Array | None = None) -> Observations:
        """Other targets (and weights) for the same rows and tasks."""
        return Observations(self.row, self.task, y, self.weight if weight is None else weight, self.n_tasks, self.grouping)

    def sum_by_task(self, values: Array) -> Array:
        """Add up one number for each observation within its task."""
        if self.n_tasks == 1:
            return np.array([values.sum(dtype=float)])
        return np.bincount(self.task, weights=values, minlength=self.n_tasks)

    def scatter(self, values: Array, n_rows: int) -> Array:
        """The ``n x T`` matrix with these values at the observed positions (repeated ones are summed); read-only."""
        return self.grouping.scatter(values, n_rows)

    @cached_property
    def task_weights(self) -> Array:
        """The sum of the weights of each task."""
        return self.sum_by_task(self.weight)

    def task_means(self, values: Array) -> Array:
        """The weighted mean over the observations of each task."""
        return self.sum_by_task(self.weight * values) / self.task_weights


def task_strengths(task_weight: Any, total: Array) -> Array:
    """``c_t``: 1 for ``"equal"``, ``T S_t / sum S`` for ``"size"``, or the given array."""
    n_tasks = total.size
    if isinstance(task_weight, str):
        if task_weight not in ("equal", "size"):
            raise ValueError(f'task_weight must be "equal", "size", an array or a dict by task name, got {task_weight!r}')
        return np.ones(n_tasks) if task_weight == "equal" else n_tasks * total / total.sum()
    c = np.asarray(task_weight, dtype=float)
    if c.shape != (n_tasks,):
        raise ValueError(f"task_weight needs one number for each of the {n_tasks} tasks, got shape {c.shape}")
    if not ((c > 0).all() and np.isfinite(c).all()):
        raise ValueError(f"task_weight must be positive and finite, got {c.min():.3g}")
    return c
