"""Many tasks with task-specific inputs on a device: batches of small systems, grouped by size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..._array_api import cast, double, eigh, inner, times, times_transposed
from ..._time_limit import check_time
from ...design import tasks_by_size
from ...design.task_data import Stack, TaskBlock
from ...structures import Structure
from ..factor.newton import Point
from .device_problem import DeviceProblem, DualCandidate
from .task_rows import TaskRows

Array = Any
MAX_BATCH_ENTRIES = 1 << 27  # entries in the systems of tasks that are solved together: they fill a GPU and fit in its memory
MAX_HOST_BATCH_ENTRIES = 1 << 20  # on a CPU, where smaller batches are as fast: a time limit is looked at between them


class OwnInputs(DeviceProblem):
    """Tasks with task-specific rows, or with any rows, which are then copied for each task.

    Parameters
    ----------
    X : array of shape (n, d), on its device
    observed : TaskRows
        Rows, targets and weights of each task, on the same device.
    structure : Structure
    alpha : float
    fit_intercept : bool
    """

    def __init__(self, X: Array, observed: TaskRows, structure: Structure, alpha: float, fit_intercept: bool = True):
        super().__init__(X, structure, alpha, fit_intercept)
        self.observed, self.single = observed, X.dtype == self.xp.float32
        self.n_tasks = len(observed.counts)
        most = MAX_HOST_BATCH_ENTRIES if self.place == "cpu" else MAX_BATCH_ENTRIES
        self.batches = tasks_by_size(observed.counts, most)
        self.order = np.concatenate([tasks for tasks, _ in self.batches])
        self.data: list[TaskBlock] = []
        self.scale, means = 0.0, []
        for tasks, length in self.batches:
            check_time()
            inputs, y, *mean = self._centred(tasks, length)
            self.scale += inner(y, y)
            means.append(mean)
            self.data.append(Stack.of(cast(inputs, X.dtype), cast(y, X.dtype)))
        self.x_mean, self.y_mean = (self.xp.concat(each) for each in zip(*means, strict=True))
        squares = float(self.xp.sum(observed.weight * observed.y**2))
        self.rounding_floor = squares * (np.finfo(float).eps * (4 + int(observed.counts.max()))) ** 2

    def _centred(self, tasks: np.ndarray, length: int) -> tuple[Array, Array, Array, Array]:
        """Inputs and targets of some tasks in double precision, times the roots of their weights, and their means."""
        xp = self.xp
        place, y, v = self.observed.padded(tasks, length)
        rows = xp.reshape(place, (-1,))
        together = bool(xp.all(rows[1:] - rows[:-1] == 1))  # consecutive rows: a view
        inputs = self.X[int(rows[0]) : int(rows[-1]) + 1, :] if together else xp.take(self.X, rows, axis=0)
        inputs = double(xp.reshape(inputs, (*place.shape, self.X.shape[1])))
        root = xp.sqrt(v)
        share = v / xp.sum(v, axis=1)[:, None] * (1.0 if self.fit_intercept else 0.0)
        x_mean, y_mean = times_transposed(inputs, share), xp.sum(share * y, axis=1)
        return root[:, :, None] * (inputs - x_mean[:, None, :]), root * (y - y_mean[:, None]), x_mean, y_mean

    def _on_device(self, values: np.ndarray) -> Array:
        return self.xp.asarray(np.ascontiguousarray(values), device=self.X.device)

    def _residuals(self, W: Array) -> Iterator[tuple[Array, Array, Array]]:
        """The inputs, targets and residuals of each block, in double precision."""
        first = 0
        for batch, block in zip(self.batches, self.data, strict=True):
            inputs, y = self._centred(*batch)[:2] if self.single else (block.X, block.y)  # type: ignore[attr-defined]
            yield inputs, y, y - times(inputs, W[first : first + y.shape[0], :])
            first += y.shape[0]

    def weights(self, point: Point | None) -> Array:
        """``W`` with a row for each task, in the order of the blocks and in double precision."""
        if point is None:
            return self.xp.zeros((self.n_tasks, self.X.shape[1]), dtype=self.xp.float64, device=self.X.device)
        return double(point.tasks.B) @ double(point.Q).T

    def loss_of(self, W: Array, b: Array) -> float:
        order = self._on_device(self.order)
        W, b = self.xp.take(W, order, axis=0), self.xp.take(b, order, axis=0)
        size = self._on_device(self.observed.strengths[self.order])
        off = self.y_mean - self.xp.sum(self.x_mean * W, axis=1) - b  # of the mean: 0 unless intercepts were rounded
        return inner(size * off, off) + sum(inner(left, left) for _, _, left in self._residuals(W))

    def terms(self, point: Point | None) -> tuple[float, float, list[DualCandidate]]:
        loss, gain, gradients = 0.0, 0.0, []
        for inputs, y, left in self._residuals(self.weights(point)):
            loss += inner(left, left)
            gain += 2 * inner(left, y)
            gradients.append(2 * times_transposed(inputs, left))
        Z = self.xp.concat(gradients)
        spectrum = eigh(Z.T @ Z if Z.shape[1] <= Z.shape[0] else Z @ Z.T)[0]
        candidate = DualCandidate(gain, loss, np.maximum(spectrum, 0.0) / (4 * self.alpha))
        return loss, 0.0 if point is None else point.penalty, [candidate]

    def to_inner(self, coef: np.ndarray) -> Array:
        return cast(self._on_device(coef[self.order]), self.X.dtype)

    def fitted(self, point: Point | None) -> tuple[Array, Array, Array]:
        """Weights (``T x d``), intercepts and ``Z'`` (``T x d``) on the device, in the order of the tasks."""
        W = self.weights(point)
        b = self.y_mean - self.xp.sum(self.x_mean * W, axis=1)
        Z = self.xp.concat([2 * times_transposed(inputs, left) for inputs, _, left in self._residuals(W)])
        if np.all(np.diff(self.order) > 0):  # the blocks are in the order of the tasks
            return W, b, Z
        back = self._on_device(np.argsort(self.order))
        W, b, Z = (self.xp.take(each, back, axis=0) for each in (W, b, Z))
        return W, b, Z
