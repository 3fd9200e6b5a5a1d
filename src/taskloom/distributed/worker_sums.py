"""The work of an iteration on one worker: sums over its tasks at a factor ``Q``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, NamedTuple

import numpy as np

from .._linalg import one_thread
from ..design import batches
from .task_summaries import TaskSummary

Array = np.ndarray
Statistic = Literal["correlation", "moments", "weights"]
SCALARS = 4  # the loss, <y, residuals>, <W, Z> and ||W||^2


class WorkerBlock(NamedTuple):
    """Tasks of similar size: inputs (``B x m x d``) and targets (``B x m``), centred, times the roots of their weights."""

    tasks: Array
    X: Array
    y: Array


@dataclass(frozen=True, eq=False)
class WorkerTasks:
    """The tasks of a worker, stacked in blocks."""

    places: Array  # positions among all tasks
    blocks: list[WorkerBlock]
    means: Array
    sizes: Array  # the rounding floor of the loss of constants, and the weighted sum of squares

    @property
    def width(self) -> int:
        return self.means.shape[1] - 1

    @classmethod
    def of(cls, statistics: TaskSummary, task_weights: Array) -> WorkerTasks:
        """From statistics whose labels are positions among all tasks; ``task_weights`` holds ``c_t``."""
        root, blocks = np.sqrt(task_weights / statistics.counts), []
        for batch in batches(np.diff(statistics.starts), statistics.starts):
            rows = statistics.rows[batch.place] * (batch.mask * root[batch.tasks][:, None])[:, :, None]
            blocks.append(WorkerBlock(batch.tasks, np.ascontiguousarray(rows[:, :, :-1]), rows[:, :, -1].copy()))
        squares = np.add.reduceat(statistics.rows[:, -1] ** 2, statistics.starts[:-1]) / statistics.counts
        off = np.finfo(float).eps * (4 + statistics.counts)
        rounding_floor = float(task_weights @ (off**2 * (squares + statistics.means[:, -1] ** 2)))
        curvature = sum(float(np.vdot(block.X, block.X)) for block in blocks)
        return cls(statistics.labels, blocks, statistics.means, np.array([rounding_floor, curvature]))

    def sums(self, Q: Array, alpha: float, ridge: float, statistic: Statistic) -> Array:
        """Scalars, then one small matrix: the triangle of the ``"moments"`` of ``Z``, or their product with ``Q``,
        or the triangle of the moments of the ``"weights"``."""
        d, scalars = self.width, np.zeros(SCALARS)
        out = np.zeros((d, Q.shape[1] if statistic == "correlation" else d))
        for block, B, left in self._solved(Q, alpha):
            W, Z = B @ Q.T, _correlate(block, left)
            scalars += [np.vdot(left, left), np.vdot(block.y, left), np.vdot(W, Z), np.vdot(W, W)]
            R = W if statistic == "weights" else Z - 2 * ridge * W
            out += R.T @ (R @ Q) if statistic == "correlation" else R.T @ R
        return np.concatenate([scalars, out.ravel() if statistic == "correlation" else out[np.triu_indices(d)]])

    def weights(self, Q: Array, alpha: float) -> tuple[Array, Array, Array, Array]:
        """Positions, weights and ``Z`` (a row for each task), and intercepts."""
        W, Z = np.empty((2, len(self.places), self.width))
        for block, B, left in self._solved(Q, alpha):
            W[block.tasks], Z[block.tasks] = B @ Q.T, _correlate(block, left)
        return self.places, W, Z, self.means[:, -1] - np.einsum("td,td->t", self.means[:, :-1], W)

    def _solved(self, Q: Array, alpha: float) -> Iterator[tuple[WorkerBlock, Array, Array]]:
        """For each block ``argmin_b ||y - XQb||^2 + alpha ||b||^2`` and the residuals, by the smaller of two systems."""
        q = Q.shape[1]
        with one_thread():
            for block in self.blocks:
                n, m, d = block.X.shape
                P = (block.X.reshape(n * m, d) @ Q).reshape(n, m, q)
                Pt = P.transpose(0, 2, 1)
                if q > m:
                    u = np.linalg.solve(np.matmul(P, Pt) + alpha * np.eye(m), block.y[:, :, None])
                    yield block, np.matmul(Pt, u)[..., 0], alpha * u[..., 0]
                else:
                    B = np.linalg.solve(np.matmul(Pt, P) + alpha * np.eye(q), np.matmul(Pt, block.y[:, :, None]))
                    yield block, B[..., 0], block.y - np.matmul(P, B)[..., 0]


def _correlate(block: WorkerBlock, left: Array) -> Array:
    """``Z = X'G`` of each task, with ``G`` twice the residuals."""
    return 2 * np.matmul(left[:, None, :], block.X)[:, 0]


def add(parts: Sequence[Array]) -> Array:
    """A sum in fixed order: the result of a fit does not depend on the schedule."""
    return reduce(np.add, parts)


def unpacked(vector: Array, shape: tuple[int, int], statistic: Statistic) -> tuple[Array, Array]:
    """Scalars, and the full matrix; ``shape`` is that of ``Q``."""
    scalars, rest, d = vector[:SCALARS], vector[SCALARS:], shape[0]
    if statistic == "correlation":
        return scalars, rest.reshape(shape)
    M = np.zeros((d, d))
    M[np.triu_indices(d)] = rest
    return scalars, M + np.triu(M, 1).T
