"""Task-specific inputs under any smooth loss, in batches of similar size, for Newton's method on a factor."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .._array_api import times, times_transposed
from .._time_limit import check_time
from .input_spectrum import InputSpectrum
from .observations import TaskBatch, batches
from .task_data import three_cg_steps

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class SmoothLossTasks:
    """Tasks of similar size: inputs (``B x m x r``), targets and weights (``B x m``), zero where padded.

    With intercepts the inputs are centred. Inputs that all tasks share are stored once (``1 x m x r``).
    """

    batch: TaskBatch
    X: Array
    mean: Array  # of the inputs (``B x r``)
    y: Array
    v: Array
    squares: Array  # squared norms of the rows over the effective dimension of the inputs
    rows: Array  # approximate number of independent rows of each task
    size: Array  # half the sum of ``squares`` times curvatures, for each task

    def sized(self, h: Array) -> SmoothLossTasks:
        """With the sizes for these curvatures."""
        return replace(self, size=np.einsum("bm,bm->b", h, self.squares) / 2)

    def independent_fit(self, h: Array, g: Array, fit_intercept: bool) -> Array:
        """Ridge solutions of the tasks for the quadratic model with gradients ``g`` and curvatures ``h`` at the constants."""

        def balanced(e: Array) -> Array:
            return e - h * (e.sum(axis=1) / h.sum(axis=1))[:, None] if fit_intercept else e

        def product(W: Array) -> Array:
            return times_transposed(self.X, balanced(h * times(self.X, W)))

        return three_cg_steps(product, -times_transposed(self.X, balanced(g)), 0.6 * self.size)


def smooth_loss_tasks(design: Design) -> tuple[list[SmoothLossTasks], InputSpectrum]:
    """The batches of tasks, and the spectrum of their inputs.

    All quantities are the same for a repeated row and for a row of weight 2, so that the steps are, too.
    """
    obs, out, scaled = design.observations, [], []
    same = design.separable_weights is not None  # rows and weights, up to a factor: their inputs are stored once
    for batch in batches(obs.counts, obs.starts, sys.maxsize) if same else obs.grouping.batches:
        check_time()
        v = obs.weight[batch.place] * batch.mask
        X, u = (design.inputs.take(batch.first()), v[:1]) if same else (design.inputs.take(batch), v)
        mean = np.zeros((len(X), X.shape[2]))
        if design.fit_intercept:
            mean = times_transposed(X, u) / u.sum(axis=1)[:, None]
            X = X - mean[:, None, :]
            X = X if batch.mask.all() else X * batch.mask[:, :, None]
        scaled.append(np.sqrt(v.sum(axis=0, keepdims=True) if same else v)[:, :, None] * X)
        squares, independent = np.einsum("bmr,bmr->bm", X, X), 1 / _shares(scaled[-1])
        squares, mean = np.broadcast_to(squares, v.shape), np.broadcast_to(mean, (len(v), X.shape[2]))
        independent = np.broadcast_to(independent, len(v))
        out.append(SmoothLossTasks(batch, X, mean, obs.y[batch.place], v, squares, independent, np.zeros(len(v))))
    rows = [X.reshape(-1, X.shape[2]) for X in scaled]
    spectrum = InputSpectrum.probed(sum(float(np.vdot(X, X)) for X in rows), rows)
    filled = spectrum.filled
    return [replace(part, squares=part.squares / filled, rows=_rows(part.rows, filled)) for part in out], spectrum


def _shares(X: Array) -> Array:
    """One over the effective dimension of the inputs of each task, ``||M||^2 / tr(M)^2``."""
    gram = np.matmul(X, X.transpose(0, 2, 1)) if X.shape[1] <= X.shape[2] else np.matmul(X.transpose(0, 2, 1), X)
    total = np.einsum("bii->b", gram)
    gram /= np.where(total > 0, total, 1.0)[:, None, None]
    return np.where(total > 0, np.einsum("bij,bij->b", gram, gram), 1.0)


def _rows(filled_by_task: Array, filled: float) -> Array:
    """The number of independent rows ``m`` of each task, from ``1 / m + 1 / d = 1 / (effective dimension)``.

    Tasks that share their inputs have the effective dimension of all together, which only bounds ``m`` from below.
    """
    return 1 / np.maximum(1 / filled_by_task - 1 / filled, 0.25 / filled_by_task)
