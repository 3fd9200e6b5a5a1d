"""Sufficient statistics of the rows of a worker: at most ``d + 1`` rows for each task.

For the squared loss these are the number of rows, the means, and a root ``R`` of the centred moments: ``R'R`` is the Gram
matrix of ``[X - mean, y - mean]``, and ``||y - Xw - b||^2`` at the best ``b`` is ``||R_y - R_x w||^2``. The root is the
triangular factor of a QR decomposition. It is never larger than the rows, and does not square their condition number as a
Gram matrix would. The roots of parts of a task are merged by stacking them, with a row for the difference of the means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..design import batches
from ..design.sufficient_statistics import rows_with

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class TaskSummary:
    """Statistics of some tasks: roots (``sum m_t x (d + 1)``, targets last), counts, and means."""

    labels: Array
    rows: Array
    starts: Array  # of the rows of each task, and the end of the last one
    counts: Array  # of the rows of the data
    means: Array  # of the inputs and of the targets, ``K x (d + 1)``; 0 without intercepts

    def take(self, places: Array, labels: Array) -> TaskSummary:
        """Some of the tasks (ascending places), with other labels."""
        if len(places) == len(self.labels):  # all of them, in order: nothing to copy
            return replace(self, labels=labels)
        held = np.diff(self.starts)[places]
        starts = np.concatenate([[0], np.cumsum(held)])
        rows = np.arange(starts[-1]) + np.repeat(self.starts[places] - starts[:-1], held)
        return TaskSummary(labels, self.rows[rows], starts, self.counts[places], self.means[places])

    @classmethod
    def side_by_side(cls, parts: Sequence[TaskSummary], width: int) -> TaskSummary:
        """Concatenate statistics of different tasks; ``width`` is the number of columns."""
        if not parts:
            return cls(np.zeros(0, int), np.zeros((0, width)), np.zeros(1, int), np.zeros(0, int), np.zeros((0, width)))
        held = np.concatenate([np.diff(part.starts) for part in parts])
        labels, rows, counts, means = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("labels", "rows", "counts", "means")
        )
        return cls(labels, rows, np.concatenate([[0], np.cumsum(held)]), counts, means)


def summarise(rows: Array, task: Array, labels: Array, centre: bool) -> TaskSummary:
    """The statistics of tasks from rows ``[x, y]`` of ``task`` (positions in ``labels``, in any order)."""
    if not len(labels):
        return TaskSummary.side_by_side([], rows.shape[1])
    order = np.argsort(task, kind="stable")
    rows, task = rows[order], task[order]
    counts = np.bincount(task, minlength=len(labels))
    starts = np.concatenate([[0], np.cumsum(counts)])
    means = np.zeros((len(labels), rows.shape[1]))
    if centre:
        means = np.add.reduceat(rows, starts[:-1], axis=0) / counts[:, None]
        rows = rows - means[task]
        means += (drift := np.add.reduceat(rows, starts[:-1], axis=0) / counts[:, None])  # a second pass corrects rounding
        rows -= drift[task]
    return TaskSummary(labels, *shortened(rows, counts), counts, means)


def shortened(rows: Array, counts: Array) -> tuple[Array, Array]:
    """The same moments in at most ``width`` rows for each task, and where each begins; similar sizes go together."""
    width, starts = rows.shape[1], np.concatenate([[0], np.cumsum(counts)])
    held = np.minimum(counts, width)
    ends = np.concatenate([[0], np.cumsum(held)])
    out = np.empty((ends[-1], width))
    for batch in batches(counts, starts):
        block = rows[batch.place] * batch.mask[:, :, None]  # rows of zeros add nothing to the moments
        if block.shape[1] > width:
            block = np.linalg.qr(block, mode="r")
        own = np.arange(block.shape[1]) < held[batch.tasks][:, None]
        out[(ends[batch.tasks][:, None] + np.arange(block.shape[1]))[own]] = block[own]
    return out, ends


def merge(parts: Sequence[TaskSummary], centre: bool) -> TaskSummary:
    """The statistics of the union of rows; tasks may be in several parts, whose order is fixed."""
    parts = [part for part in parts if len(part.labels)]
    if len(parts) == 1:
        return parts[0]
    labels, task = np.unique(np.concatenate([part.labels for part in parts]), return_inverse=True)
    counts = np.concatenate([part.counts for part in parts])
    means = np.concatenate([part.means for part in parts])
    held = np.concatenate([np.diff(part.starts) for part in parts])
    total = np.bincount(task, weights=counts).astype(int)
    mean = np.zeros((len(labels), means.shape[1]))
    np.add.at(mean, task, means * (counts / total[task])[:, None])
    rows, owner = [part.rows for part in parts], [np.repeat(task, held)]
    if centre:  # differences of means between parts are part of the moments
        several = np.bincount(task)[task] > 1
        rows.append((np.sqrt(counts)[:, None] * (means - mean[task]))[several])
        owner.append(task[several])
    stacked, by = np.concatenate(rows), np.concatenate(owner)
    order = np.argsort(by, kind="stable")
    return TaskSummary(labels, *shortened(stacked[order], np.bincount(by, minlength=len(labels))), total, mean)


@dataclass(frozen=True, eq=False)
class PooledRows:
    """Rows that all tasks share, or at most ``d + 2`` of equal weight that have the same moments and stand for ``count``."""

    X: Array
    Y: Array
    count: int

    @classmethod
    def merged(cls, parts: Sequence[PooledRows]) -> PooledRows:
        """The statistics of all rows together."""
        X, Y = np.vstack([part.X for part in parts]), np.vstack([part.Y for part in parts])
        if len(X) <= X.shape[1] + 2 and all(part.count == len(part.X) for part in parts):
            return cls(X, Y, len(X))
        s = np.concatenate([np.full(len(part.X), part.count / max(len(part.X), 1)) for part in parts])
        count = sum(part.count for part in parts)
        x_mean, y_mean, root = s @ X / count, s @ Y / count, np.sqrt(s / count)[:, None]
        U, R = np.linalg.qr(root * (X - x_mean))
        centred = root * (Y - y_mean)
        targets = U.T @ centred
        left = centred - U @ targets
        return cls(*rows_with(x_mean, y_mean, R, targets, np.sqrt(np.einsum("nt,nt->t", left, left))), count)
