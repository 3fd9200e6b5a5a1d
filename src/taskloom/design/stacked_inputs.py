"""Task-specific inputs in stacks of tasks of similar size, for Newton's method under the squared loss.

A task with at least as many rows as features is stored by its Gram matrix, which is smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .._array_api import row_products, times, times_transposed
from .._time_limit import check_time
from .input_spectrum import InputSpectrum
from .observations import MAX_BATCH_ENTRIES
from .table_with_gaps import TableWithGaps
from .task_data import Grams, Stack, StackedRows

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
MIN_ENTRIES_FOR_SINGLE_PRECISION = 20_000  # with fewer entries single precision saves no time


@dataclass(frozen=True, eq=False)
class StackInPlace(StackedRows):
    """A stack of rows that stay where they are: a copy, centred and times the roots of the weights, is made when it is needed.

    Steps in single precision read a copy of that precision, so that most fits never hold this one.
    """

    rows: Array  # B x m x d, a view of the features
    mean: Array | None  # B x 1 x d, where there are intercepts
    root: Array  # B x m
    y: Array
    size: Array
    tasks: Array | slice

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape

    def copied(self) -> Array:
        """The inputs, centred and times the roots of the weights."""
        return _centred(self.rows, self.mean, self.root)

    @cached_property
    def X(self) -> Array:
        return self.copied()

    def single(self) -> Stack:  # type: ignore[override]  # not in place
        y, size = self.y.astype(np.float32), self.size.astype(np.float32)
        return Stack(self.copied().astype(np.float32), y, size, self.tasks)


TaskStack: TypeAlias = Stack | StackInPlace | Grams


def stacked_tasks(design: Design) -> tuple[list[TaskStack], InputSpectrum]:
    """Stacks whose ``sum_t ||y_t - X_t w_t||^2`` is the loss term at the best intercepts, and the spectrum of the inputs."""
    in_place = design.inputs.stacked is not None
    out = _gathered([_block(*some, design.fit_intercept, in_place) for some in _pieces(design)])
    grams = [block.G.sum(axis=0) for block in out if isinstance(block, Grams)]
    spectrum = InputSpectrum.probed(sum(float(block.size.sum()) for block in out), _AllRows(out), grams)
    return [replace(block, size=block.size / spectrum.filled) for block in out], spectrum


class _AllRows:
    """The rows of all stacks, one stack at a time."""

    def __init__(self, blocks: Sequence[TaskStack]):
        self.stacks = [block for block in blocks if isinstance(block, StackedRows)]

    def __iter__(self) -> Iterator[Array]:
        for block in self.stacks:
            yield (block.copied() if isinstance(block, StackInPlace) else block.X).reshape(-1, block.shape[2])


def _pieces(design: Design) -> Iterator[tuple[Array | slice, Array, Array, Array]]:
    """Indices, inputs, targets and weights of tasks of similar size; one piece if all have the same size and are few."""
    obs, stacked = design.observations, design.inputs.stacked
    if stacked is not None and stacked.shape[0] * stacked.shape[1] * max(stacked.shape[1], 32) <= MAX_BATCH_ENTRIES:
        yield slice(None), stacked, obs.y.reshape(stacked.shape[:2]), obs.weight.reshape(stacked.shape[:2])
        return
    for batch in obs.grouping.batches:
        check_time()
        yield batch.tasks, design.inputs.take(batch), obs.y[batch.place], obs.weight[batch.place] * batch.mask


def _block(tasks: Array | slice, X: Array, y: Array, v: Array, fit_intercept: bool, in_place: bool) -> TaskStack:
    mean, root = None, np.sqrt(v)
    if fit_intercept:
        share = v / v.sum(axis=1)[:, None]
        mean, y = np.matmul(share[:, None, :], X), y - row_products(share, y)[:, None]
    rows, X, y = X, _centred(X, mean, root), root * y
    if X.shape[1] < X.shape[2]:
        squares = X.reshape(len(X), X.shape[1] * X.shape[2])
        size = times(squares[:, None, :], squares)[:, 0]
        return StackInPlace(rows, mean, root, y, size, tasks) if in_place else Stack(X, y, size, tasks)
    G = np.matmul(X.transpose(0, 2, 1), X)
    return Grams(G, times_transposed(X, y), row_products(y, y), np.einsum("bii->b", G), tasks)


def _centred(rows: Array, mean: Array | None, root: Array) -> Array:
    """Rows less their mean, times the roots of their weights; one new array at most."""
    X = rows if mean is None else rows - mean
    return X if np.all(root == 1) else np.multiply(X, root[:, :, None], out=None if mean is None else X)


def _gathered(data: list[TaskStack]) -> list[TaskStack]:
    """Merge neighbouring blocks of the same length, up to the size of a batch."""
    out: list[list[TaskStack]] = []
    for block in data:
        m = block.shape[1]
        if out and type(out[-1][0]) is type(block) is not StackInPlace and out[-1][0].shape[1] == m:
            count = sum(len(other.size) for other in [*out[-1], block])
            if count * m * max(m, 32) <= MAX_BATCH_ENTRIES:
                out[-1].append(block)
                continue
        out.append([block])
    return [_merged(group) if len(group) > 1 else group[0] for group in out]


def _merged(group: list[TaskStack]) -> TaskStack:
    kind = type(group[0])
    return kind(**{one.name: np.concatenate([getattr(block, one.name) for block in group]) for one in fields(kind)})


def single_precision(
    data: Sequence[TaskStack | TableWithGaps],
) -> list[TaskStack | TableWithGaps] | None:
    """The blocks in single precision; ``None`` if their range does not allow it or they are small."""
    if sum(prod(block.shape) for block in data) < MIN_ENTRIES_FOR_SINGLE_PRECISION:
        return None
    obs = np.concatenate([part for block in data for part in (block.size, block.squares)])
    safe = bool(np.all((obs < 1e8) & ((obs > 1e-8) | (obs == 0))))
    return [block.single() for block in data] if safe else None
