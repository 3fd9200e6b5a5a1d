"""Work on the cluster: named Dask tasks, and sums in a fixed order.

Data enter as lazy collections and the factor as a Dask task. If a worker dies, the others compute its results again, in the
same order and with the same rounding.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._time_limit import TimeLimitError, remaining_time

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
        """The results, within the time limit of the fit."""
        from distributed import TimeoutError as WaitedTooLong
        from distributed import wait

        if (seconds := remaining_time()) is not None:
            try:
                wait(futures, timeout=max(seconds, 1e-3))
            except WaitedTooLong:
                raise TimeLimitError("time_limit was reached while the workers computed; raise time_limit") from None
        return self.client.gather(futures)


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
