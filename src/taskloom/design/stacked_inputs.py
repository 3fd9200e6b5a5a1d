"""Task-specific inputs in stacks of tasks of similar size, for Newton's method under the squared loss.

A task with at least as many rows as features is stored by its Gram matrix, which is smaller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from .._array_api import row_products, times, times_transposed
from .._time_limit import check_time
from .input_spectrum import InputSpectrum
from .observations import MAX_BATCH_ENTRIES
from .table_with_gaps import TableWithGaps
from .task_data import Grams, Stack

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
MIN_ENTRIES_FOR_SINGLE_PRECISION = 20_000  # with fewer entries single precision saves no time


def stacked_tasks(design: Design) -> tuple[list[Stack | Grams], InputSpectrum]:
    """Stacks whose ``sum_t ||y_t - X_t w_t||^2`` is the loss term at the best intercepts, and the spectrum of the inputs."""
    out = _gathered([_block(*some, design.fit_intercept) for some in _pieces(design)])
    grams = [block.G.sum(axis=0) for block in out if isinstance(block, Grams)]
    rows = [block.X.reshape(-1, design.n_features) for block in out if isinstance(block, Stack)]
    spectrum = InputSpectrum.probed(sum(float(block.size.sum()) for block in out), rows, grams)
    return [replace(block, size=block.size / spectrum.filled) for block in out], spectrum


def _pieces(design: Design) -> Iterator[tuple[Array | slice, Array, Array, Array]]:
    """Indices, inputs, targets and weights of tasks of similar size; one piece if all have the same size and are few."""
    obs, stacked = design.observations, design.inputs.stacked
    if stacked is not None and stacked.shape[0] * stacked.shape[1] * max(stacked.shape[1], 32) <= MAX_BATCH_ENTRIES:
        yield slice(None), stacked, obs.y.reshape(stacked.shape[:2]), obs.weight.reshape(stacked.shape[:2])
        return
    for batch in obs.grouping.batches:
        check_time()
        yield batch.tasks, design.inputs.take(batch), obs.y[batch.place], obs.weight[batch.place] * batch.mask


def _block(tasks: Array | slice, X: Array, y: Array, v: Array, fit_intercept: bool) -> Stack | Grams:
    if fit_intercept:
        share = v / v.sum(axis=1)[:, None]
        X, y = X - np.matmul(share[:, None, :], X), y - row_products(share, y)[:, None]
    if np.any(v != 1):
        root = np.sqrt(v)
        X, y = root[:, :, None] * X, root * y
    if X.shape[1] < X.shape[2]:
        rows = X.reshape(len(X), X.shape[1] * X.shape[2])
        return Stack(X, y, times(rows[:, None, :], rows)[:, 0], tasks)
    G = np.matmul(X.transpose(0, 2, 1), X)
    return Grams(G, times_transposed(X, y), row_products(y, y), np.einsum("bii->b", G), tasks)


def _gathered(data: list[Stack | Grams]) -> list[Stack | Grams]:
    """Merge neighbouring blocks of the same length, up to the size of a batch."""
    out: list[list[Stack | Grams]] = []
    for block in data:
        m = block.inputs.shape[1]
        if out and type(out[-1][0]) is type(block) and out[-1][0].inputs.shape[1] == m:
            count = sum(len(other.inputs) for other in [*out[-1], block])
            if count * m * max(m, 32) <= MAX_BATCH_ENTRIES:
                out[-1].append(block)
                continue
        out.append([block])
    return [_merged(group) if len(group) > 1 else group[0] for group in out]


def _merged(group: list[Stack | Grams]) -> Stack | Grams:
    kind = type(group[0])
    return kind(**{one.name: np.concatenate([getattr(block, one.name) for block in group]) for one in fields(kind)})


def single_precision(
    data: Sequence[Stack | Grams | TableWithGaps],
) -> list[Stack | Grams | TableWithGaps] | None:
    """The blocks in single precision; ``None`` if their range does not allow it or they are small."""
    if sum(block.inputs.size for block in data) < MIN_ENTRIES_FOR_SINGLE_PRECISION:
        return None
    obs = np.concatenate([part for block in data for part in (block.size, block.squares)])
    safe = bool(np.all((obs < 1e8) & ((obs > 1e-8) | (obs == 0))))
    return [block.single() for block in data] if safe else None
