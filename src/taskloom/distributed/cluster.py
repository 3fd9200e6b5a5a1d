"""Work on the cluster: named Dask tasks, and sums in a fixed order.

Data enter as lazy collections and the factor as a Dask task. If a worker dies, the others compute its results again, in the
same order and with the same rounding.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from .task_summaries import TaskSummary, merge
from .worker_sums import Statistic, WorkerTasks, add

Array = np.ndarray
FAN_IN = 8  # terms of a sum that are added at a time


class Workers:
    """Submits work under names for the dashboard (``taskloom-statistics``, ``taskloom-solve``, ...)."""

    def __init__(self, client: Any):
        self.client, self._fit, self._made = client, uuid.uuid4().hex, 0

    def key(self, name: str) -> str:
        self._made += 1
        return f"taskloom-{name}-{self._fit}-{self._made}"

    def submit(self, name: str, function: Callable, *arguments: Any) -> Any:
        return self.client.submit(function, *arguments, key=self.key(name))

    def read(self, name: str, function: Callable, blocks: Sequence[tuple], *arguments: Any) -> list[Any]:
        """``function`` of each block of rows, where the block is; futures."""
        from dask import delayed

        lazy = delayed(function, pure=False)
        each = [lazy(*block, *arguments, place, dask_key_name=self.key(name)) for place, block in enumerate(blocks)]
        return self.client.compute(each)

    def total(self, name: str, parts: Sequence[Any], combine: Callable, *arguments: Any) -> Any:
        """A sum over a fixed tree."""
        while len(parts) > 1:
            groups = [list(parts[i : i + FAN_IN]) for i in range(0, len(parts), FAN_IN)]
            parts = [self.submit(name, combine, group, *arguments) for group in groups]
        return parts[0]

    def gather(self, futures: Any) -> Any:
        return self.client.gather(futures)


def _identity(Q: Array) -> Array:
    return Q


def _worker_tasks(parts: Sequence[TaskSummary], centre: bool, task_weights: Array) -> WorkerTasks:
    return WorkerTasks.of(merge(parts, centre), task_weights)


def owners(present: Sequence[Array], counts: Sequence[Array], n_tasks: int) -> Array:
    """The block that owns each task: the one with most of its rows; equal ones in turn."""
    most, equals = np.zeros(n_tasks, int), np.zeros(n_tasks, int)
    for tasks, n in zip(present, counts, strict=True):
        equals[tasks] = np.where(n > most[tasks], 1, equals[tasks] + (n == most[tasks]))
        most[tasks] = np.maximum(most[tasks], n)
    turn, owner = np.arange(n_tasks) % equals, np.full(n_tasks, -1)
    for block, (tasks, n) in enumerate(zip(present, counts, strict=True)):
        among = n == most[tasks]
        mine = tasks[among & (turn[tasks] == 0) & (owner[tasks] < 0)]
        owner[mine] = block
        turn[tasks[among]] -= 1
    return owner


class DistributedTasks:
    """Tasks with task-specific inputs on the workers: each task belongs to the block with most of its rows.

    For tasks in several blocks, statistics move between workers, never rows; for a table that is sorted by task these are few.
    """

    def __init__(self, workers: Workers, statistics: list[Any], present: Sequence[Array], counts: Sequence[Array]):
        self.workers, self.present, self.counts = workers, present, counts
        n_tasks = max(int(tasks.max(initial=-1)) for tasks in present) + 1
        self._statistics = statistics
        self._owner = owners(present, counts, n_tasks)
        self.worker_tasks: list[Any] = []

    def merge_blocks(self, task_weights: Array, centre: bool) -> None:
        """Merge the statistics of every task, and release those of the blocks."""
        submit, pieces = self.workers.submit, dict[int, list]()
        for block, tasks in enumerate(self.present):
            owner = self._owner[tasks]
            for to in np.unique(owner).tolist():
                places = np.flatnonzero(owner == to)
                piece = submit("parts", TaskSummary.take, self._statistics[block], places, tasks[places])
                pieces.setdefault(to, []).append(piece)
        order = np.argsort(self._owner, kind="stable")
        ends = np.searchsorted(self._owner[order], np.arange(len(self.present) + 1))
        for to in sorted(pieces):
            mine = order[ends[to] : ends[to + 1]]
            self.worker_tasks.append(submit("tasks", _worker_tasks, pieces[to], centre, task_weights[mine]))
        self._statistics.clear()

    def sums(self, Q: Array, alpha: float, ridge: float, statistic: Statistic) -> Array:
        """Broadcast a factor, and sum the statistics of the tasks."""
        submit = self.workers.submit
        factor = submit("factor", _identity, Q)
        parts = [submit("solve", WorkerTasks.sums, held, factor, alpha, ridge, statistic) for held in self.worker_tasks]
        return self.workers.gather(self.workers.total("sum", parts, add))

    def sizes(self) -> Array:
        """The rounding floor of the loss of the intercept-only model, and the weighted sum of squares of the inputs."""
        parts = [self.workers.submit("sizes", attrgetter("sizes"), held) for held in self.worker_tasks]
        return self.workers.gather(self.workers.total("sum", parts, add))

    def weights(self, Q: Array, alpha: float, n_tasks: int) -> tuple[Array, Array, Array]:
        """``W`` and ``Z`` (``d x T``) and the intercepts, one worker's tasks at a time."""
        factor = self.workers.submit("factor", _identity, Q)
        out = np.empty((2, n_tasks, len(Q))), np.empty(n_tasks)
        for future in [self.workers.submit("weights", WorkerTasks.weights, held, factor, alpha) for held in self.worker_tasks]:
            places, W, Z, b = self.workers.gather(future)
            out[0][0, places], out[0][1, places], out[1][places] = W, Z, b
        return out[0][0].T, out[0][1].T, out[1]
