"""The passes over the tasks of one worker: the local engine on its blocks, and sums that leave it as one vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from .._linalg import one_thread
from ..design import batches
from ..design.task_data import Stack
from ..engines.local import LocalEngine, LocalTasks
from .task_summaries import TaskSummary, merge

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class WorkerTasks:
    """The tasks of a worker, stacked in blocks."""

    places: Array  # positions among all tasks
    order: Array  # of the tasks in the blocks
    blocks: list[Stack]  # centred, times the roots of their weights
    means: Array
    task_weights: Array  # ``c_t``
    rounding_floor: float  # of the loss of the intercept-only model

    @classmethod
    def of(cls, parts: Sequence[TaskSummary], centre: bool, task_weights: Array) -> WorkerTasks:
        """From statistics whose labels are positions among all tasks; ``task_weights`` holds ``c_t``."""
        statistics = merge(parts, centre)
        root, blocks, order = np.sqrt(task_weights / statistics.counts), [], []
        for batch in batches(np.diff(statistics.starts), statistics.starts):
            rows = statistics.rows[batch.place] * (batch.mask * root[batch.tasks][:, None])[:, :, None]
            blocks.append(Stack.of(np.ascontiguousarray(rows[:, :, :-1]), rows[:, :, -1].copy()))
            order.append(batch.tasks)
        squares = np.add.reduceat(statistics.rows[:, -1] ** 2, statistics.starts[:-1]) / statistics.counts
        off = np.finfo(float).eps * (4 + statistics.counts)
        rounding_floor = float(task_weights @ (off**2 * (squares + statistics.means[:, -1] ** 2)))
        return cls(statistics.labels, np.concatenate(order), blocks, statistics.means, task_weights, rounding_floor)

    def statistics(self) -> Array:
        """The rounding floor, sums of the sizes of the inputs and of their squares, and the sum of squared targets."""
        sizes = np.concatenate([block.size for block in self.blocks])
        squares = sum(float(block.squares.sum()) for block in self.blocks)
        return np.array([self.rounding_floor, sizes.sum(), sizes @ sizes, squares])

    def at_zero(self) -> Array:
        """``Z`` at zero weights."""
        return np.concatenate([2 * np.matmul(block.y[:, None, :], block.X)[:, 0] for block in self.blocks])

    def correlations_at_zero(self) -> Array:
        """``Z'Z`` at zero weights."""
        Z = self.at_zero()
        return packed(Z.T @ Z)

    def independent_fits(self, shrinkage: float) -> Array:
        """``W'W`` of approximate ridge solutions of the tasks."""
        W = np.concatenate([block.independent_fit(shrinkage) for block in self.blocks])
        return packed(W.T @ W)

    def eliminate(self, Q: Array, alpha: float) -> LocalTasks:
        with one_thread():
            return LocalEngine(self.blocks, alpha).eliminate(Q)

    def loss(self, W: Array, b: Array) -> Array:
        """The loss term at weights (a row for each task) and intercepts."""
        first, total = 0, float(self.task_weights @ (self.means[:, -1] - np.einsum("td,td->t", self.means[:, :-1], W) - b) ** 2)
        for block in self.blocks:
            some = self.order[first : first + len(block.y)]
            left = block.y - np.matmul(block.X, W[some][:, :, None])[:, :, 0]
            total, first = total + float(np.vdot(left, left)), first + len(block.y)
        return np.array([total])

    def weights(self, tasks: LocalTasks | None) -> tuple[Array, Array, Array, Array]:
        """Positions, weights and ``Z`` (a row for each task), and intercepts; ``None`` stands for zero weights."""
        W, Z = np.zeros((2, len(self.places), self.blocks[0].X.shape[2]))
        if tasks is None:
            Z[self.order] = self.at_zero()
        else:
            W[self.order], Z[self.order] = tasks.weights(), tasks.Z
        return self.places, W, Z, self.means[:, -1] - np.einsum("td,td->t", self.means[:, :-1], W)


def sums(tasks: LocalTasks) -> Array:
    """The minimum, ``||B||^2``, ``Z'B`` and the curvature of the tasks along ``B``."""
    scalars = np.array([tasks.minimum, tasks.squared_norm])
    return np.concatenate([scalars, tasks.product.ravel(), packed(tasks.curvature)])


def hessian(tasks: LocalTasks, dQ: Array) -> Array:
    with one_thread():
        return tasks.hessian(dQ)


def moments(tasks: LocalTasks, ridge: float) -> Array:
    """``||W||^2``, and ``Z1'Z1`` with ``Z1 = Z - 2 ridge W``."""
    W = tasks.weights() if ridge else None
    Z1 = tasks.Z if W is None else tasks.Z - 2 * ridge * W
    return np.concatenate([[0.0 if W is None else np.vdot(W, W)], packed(Z1.T @ Z1)])


def weight_moments(tasks: LocalTasks) -> Array:
    """``W'W``."""
    W = tasks.weights()
    return packed(W.T @ W)


def curvature_outside(tasks: LocalTasks, U: Array) -> Array:
    """The squared norm of ``Z`` outside the span of ``U``, and the same times the curvatures of the tasks."""
    outside = tasks.Z - (tasks.Z @ U) @ U.T
    share = np.einsum("td,td->t", outside, outside)
    return np.array([share.sum(), share @ tasks.curvatures])


def packed(M: Array) -> Array:
    """The upper triangle of a symmetric matrix."""
    return M[np.triu_indices(len(M))]


def unpacked(vector: Array, d: int) -> Array:
    M = np.zeros((d, d))
    M[np.triu_indices(d)] = vector
    return M + np.triu(M, 1).T


def add(parts: Sequence[Array]) -> Array:
    """A sum in fixed order: the result of a fit does not depend on the schedule."""
    return reduce(np.add, parts)
