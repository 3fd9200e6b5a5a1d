"""Observations on a device, sorted by task: rows, targets and weights, of which only a few numbers a task reach the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._array_api import cast, namespace, to_numpy
from ...design import task_strengths

Array = Any


@dataclass(frozen=True, eq=False)
class TaskRows:
    """``row``, ``y`` and ``weight`` (``c_t s_i / S_t``) of each observation on the device; ``counts`` and the ``strengths``
    ``c_t`` of each task on the host."""

    row: Array
    y: Array
    weight: Array
    counts: np.ndarray
    strengths: np.ndarray

    @classmethod
    def build(
        cls, Y: Array, task: Array | None, n_tasks: int, weights: np.ndarray | None = None, task_weight: Any = "equal"
    ) -> TaskRows:
        """Sort targets by task: ``Y`` is ``n x T`` or, with the position of the task of each row, ``n x 1``; NaN where
        unobserved.

        A task of which nothing was observed has a count of 0.
        """
        xp, device = namespace(Y), Y.device
        s = None if weights is None else xp.asarray(np.array(weights), device=device)  # a copy: PyTorch wants to write
        observed = ~xp.isnan(Y) if s is None else ~xp.isnan(Y) & (s > 0)
        if task is None:
            column, row = xp.nonzero(observed.T)
        else:
            row = xp.nonzero(observed[:, 0])[0]
            column = xp.take(task, row)
            if not bool(xp.all(column[1:] >= column[:-1])):
                order = xp.argsort(column, stable=True)
                row, column = xp.take(row, order), xp.take(column, order)
        place = row if task is not None else row * n_tasks + column
        ends = to_numpy(xp.searchsorted(column, xp.arange(n_tasks + 1, dtype=column.dtype, device=device)))
        counts = np.diff(ends)
        total = counts.astype(float)
        if s is not None:
            s = xp.take(xp.reshape(s, (-1,)), place)
            total = np.bincount(to_numpy(column), weights=to_numpy(s), minlength=n_tasks)
        strengths = task_strengths(task_weight, total)
        share = xp.asarray(strengths / np.where(total > 0, total, 1.0), device=device)
        share = xp.take(share, column)
        weight = share if s is None else s * share
        return cls(row, xp.take(xp.reshape(Y, (-1,)), place), weight, counts, strengths)

    def padded(self, tasks: np.ndarray, length: int) -> tuple[Array, Array, Array]:
        """Rows, targets and weights of some tasks, each padded to a common length with entries of weight 0."""
        xp, device, kind = namespace(self.y), self.y.device, self.row.dtype
        starts = np.cumsum(self.counts) - self.counts
        first, count = (cast(xp.asarray(each[tasks], device=device), kind)[:, None] for each in (starts, self.counts))
        offset = xp.arange(length, dtype=kind, device=device)[None, :]
        inside = offset < count
        place = first + xp.where(inside, offset, xp.zeros_like(offset))

        def at(values: Array) -> Array:
            return xp.reshape(xp.take(values, xp.reshape(place, (-1,))), place.shape)

        weight = at(self.weight)
        return at(self.row), at(self.y), xp.where(inside, weight, xp.zeros_like(weight))
