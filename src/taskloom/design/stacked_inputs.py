"""Task-specific inputs in stacks of tasks of similar size, for Newton's method under the squared loss.

A task with at least as many rows as features is stored by its Gram matrix, which is smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._array_api import row_products, times, times_transposed
from .._time_limit import check_time
from .input_spectrum import InputSpectrum
from .observations import MAX_BATCH_ENTRIES
from .table_with_gaps import TableWithGaps
from .task_data import Grams, Stack, along

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
MIN_ENTRIES_FOR_SINGLE_PRECISION = 20_000  # with fewer entries single precision saves no time


@dataclass(frozen=True, eq=False)
class StackedTasks(Stack):
    """A stack with the indices of its tasks."""

    tasks: Array | slice

    @property
    def inputs(self) -> Array:
        return self.X

    @property
    def length(self) -> int:
        return self.X.shape[1]

    def moments(self) -> Array:
        """``X'X`` for each task."""
        return np.matmul(self.X.transpose(0, 2, 1), self.X)

    def moments_along(self, U: Array) -> Array:
        """``U'X'XU`` for each task."""
        rows = (self.X.reshape(-1, len(U)) @ U.astype(self.dtype, copy=False)).reshape(*self.y.shape, -1)
        return np.matmul(rows.transpose(0, 2, 1), rows)

    def all_moments(self) -> Array:
        """``X'X`` summed over the tasks."""
        rows = self.X.reshape(-1, self.X.shape[2])
        return rows.T @ rows

    def moments_times(self, V: Array) -> Array:
        """``X'X V`` summed over the tasks."""
        rows = self.X.reshape(-1, self.X.shape[2])
        return rows.T @ (rows @ V)

    def single(self) -> StackedTasks:
        return _single(self)


@dataclass(frozen=True, eq=False)
class GramTasks(Grams):
    """Gram matrices with the indices of their tasks."""

    tasks: Array | slice

    @property
    def inputs(self) -> Array:
        return self.G

    @property
    def length(self) -> int:
        return self.G.shape[1]

    def moments(self) -> Array:
        return self.G

    def moments_along(self, U: Array) -> Array:
        return along(self.G, U.astype(self.dtype, copy=False))

    def all_moments(self) -> Array:
        return self.G.sum(axis=0)

    def moments_times(self, V: Array) -> Array:
        return self.all_moments() @ V

    def single(self) -> GramTasks:
        return _single(self)


def stacked_tasks(design: Design) -> tuple[list[StackedTasks | GramTasks], InputSpectrum]:
    """Stacks whose ``sum_t ||y_t - X_t w_t||^2`` is the loss term at the best intercepts, and the spectrum of the inputs."""
    out = _gathered([_block(*some, design.fit_intercept) for some in _pieces(design)])
    spectrum = _spectrum(out, design.n_features)
    return [replace(block, size=block.size / spectrum.filled) for block in out], spectrum


def _spectrum(data: list[StackedTasks | GramTasks], d: int) -> InputSpectrum:
    return InputSpectrum.probed(
        d,
        sum(float(block.size.sum()) for block in data),
        lambda V: sum((block.moments_times(V) for block in data), np.zeros(V.shape)),
        lambda: sum((block.all_moments() for block in data), np.zeros((d, d))),
    )


def _pieces(design: Design) -> Iterator[tuple[Array | slice, Array, Array, Array]]:
    """Indices, inputs, targets and weights of tasks of similar size; one piece if all have the same size and are few."""
    obs, stacked = design.observations, design.inputs.stacked
    if stacked is not None and stacked.shape[0] * stacked.shape[1] * max(stacked.shape[1], 32) <= MAX_BATCH_ENTRIES:
        yield slice(None), stacked, obs.y.reshape(stacked.shape[:2]), obs.weight.reshape(stacked.shape[:2])
        return
    for batch in obs.grouping.batches:
        check_time()
        yield batch.tasks, design.inputs.take(batch), obs.y[batch.place], obs.weight[batch.place] * batch.mask


def _block(tasks: Array | slice, X: Array, y: Array, v: Array, fit_intercept: bool) -> StackedTasks | GramTasks:
    if fit_intercept:
        share = v / v.sum(axis=1)[:, None]
        X, y = X - np.matmul(share[:, None, :], X), y - row_products(share, y)[:, None]
    if np.any(v != 1):
        root = np.sqrt(v)
        X, y = root[:, :, None] * X, root * y
    if X.shape[1] < X.shape[2]:
        rows = X.reshape(len(X), X.shape[1] * X.shape[2])
        return StackedTasks(X, y, times(rows[:, None, :], rows)[:, 0], tasks)
    G = np.matmul(X.transpose(0, 2, 1), X)
    return GramTasks(G, times_transposed(X, y), row_products(y, y), np.einsum("bii->b", G), tasks)


def _gathered(data: list[StackedTasks | GramTasks]) -> list[StackedTasks | GramTasks]:
    """Merge neighbouring blocks of the same length, up to the size of a batch."""
    out: list[list[StackedTasks | GramTasks]] = []
    for block in data:
        m = block.length
        if out and type(out[-1][0]) is type(block) and out[-1][0].length == m:
            count = sum(other.n_tasks for other in out[-1]) + block.n_tasks
            if count * m * max(m, 32) <= MAX_BATCH_ENTRIES:
                out[-1].append(block)
                continue
        out.append([block])
    return [_merged(group) if len(group) > 1 else group[0] for group in out]


def _merged(group: list[StackedTasks | GramTasks]) -> StackedTasks | GramTasks:
    kind = type(group[0])
    return kind(**{one.name: np.concatenate([getattr(block, one.name) for block in group]) for one in fields(kind)})


def single_precision(
    data: Sequence[StackedTasks | GramTasks | TableWithGaps],
) -> list[StackedTasks | GramTasks | TableWithGaps] | None:
    """The blocks in single precision; ``None`` if their range does not allow it or they are small."""
    if sum(block.inputs.size for block in data) < MIN_ENTRIES_FOR_SINGLE_PRECISION:
        return None
    obs = np.concatenate([part for block in data for part in (block.size, block.squares)])
    safe = bool(np.all((obs < 1e8) & ((obs > 1e-8) | (obs == 0))))
    return [block.single() for block in data] if safe else None


def _single(block: Any) -> Any:
    """A copy of a block in single precision."""
    numbers = [one.name for one in fields(block) if one.name != "tasks"]
    return replace(block, **{name: getattr(block, name).astype(np.float32) for name in numbers})
