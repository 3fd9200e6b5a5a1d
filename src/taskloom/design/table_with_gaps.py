"""Tasks that share rows, with missing targets, for Newton's method on a factor under the squared loss.

    sum_i v_it (y_it - (phi_i - mean_t)'w_t)^2,     mean_t the mean of the rows of task t, if there are intercepts

The inputs are stored once for all tasks: a pass over them is one matrix product, and ``P = Phi Q`` serves all tasks. Arrays
by task are ``T x n``, with contiguous rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .._array_api import inverse_roots, row_products
from .input_spectrum import InputSpectrum
from .task_data import Solved, TaskBlock

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
MIN_ENTRIES_FOR_TABLE = 2e5  # entries (observations x features) below which a shared table saves no time
MAX_ROWS_PER_FEATURE = 20  # with more rows per feature, Gram matrices of the tasks are cheaper


class _SolvedTable(Solved):
    """Solutions of the systems ``P_t'P_t + alpha``."""

    def _minimise(self, block: TableWithGaps, Q: Array, alpha: float) -> tuple[Array, Array, Array]:
        self.P = block.phi @ Q
        self.R = inverse_roots(block.grams(self.P), alpha)
        B = self._solve((block.v * block.y) @ self.P)
        left = block.weighed(block.y - B @ self.P.T)
        return B, 2 * (left @ block.phi), row_products(block.y, left)

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        e = self.block.weighed(dW @ self.block.phi.T)
        dB = self._solve(dZ / 2 - e @ self.P)
        e += self.block.weighed(dB @ self.P.T)
        return dB, 2 * (e @ self.block.phi)


@dataclass(frozen=True, eq=False)
class TableWithGaps(TaskBlock):
    """One matrix of inputs; for each task weights (0 where the target is missing) and centred targets."""

    solved, tasks = _SolvedTable, slice(None)
    phi: Array
    v: Array
    y: Array
    total: Array | None  # sum of the weights of each task; None without intercepts
    size: Array
    squares: Array
    spectrum: InputSpectrum

    @staticmethod
    def filled(design: Design) -> bool:
        """Whether the inputs are large and at least a quarter of the table is observed."""
        N = design.observations.y.size
        return N * design.n_features >= MIN_ENTRIES_FOR_TABLE and design.n_rows * design.n_tasks <= 4 * N

    @staticmethod
    def suits(design: Design) -> bool:
        """Whether the table is filled, and Gram matrices of the tasks would not be cheaper."""
        return TableWithGaps.filled(design) and design.n_rows <= MAX_ROWS_PER_FEATURE * design.n_features

    @classmethod
    def of(cls, design: Design) -> TableWithGaps:
        n, obs = design.n_rows, design.observations
        v, y = (obs.grouping.scatter(values, n).T.copy() for values in (obs.weight, obs.weight * obs.y))
        y = np.divide(y, v, where=v > 0, out=y)
        phi, norms = design.features, np.einsum("ij,ij->i", design.features, design.features)
        squared_norm, total = v @ norms, None
        if design.fit_intercept:
            total = v.sum(axis=1)
            y -= (row_products(v, y) / total)[:, None]
            squared_norm -= np.square(v @ phi).sum(axis=1) / total
        mean = design.mean_gram
        spectrum = InputSpectrum.along(mean.g, mean.U)
        size = np.maximum(squared_norm, 0.0) / spectrum.filled
        return cls(phi, v, y, total, size, row_products(v * y, y), spectrum)

    @property
    def inputs(self) -> Array:
        return self.phi

    def independent_fit(self, shrink: float) -> Array:
        """Approximate ridge solutions: the Gram matrix of each task is replaced by a multiple of the mean one."""
        along = self.spectrum.to_inner((self.v * self.y) @ self.phi)
        size = np.where(self.size > 0, self.size, 1.0)
        return self.spectrum.to_original(along / np.multiply.outer(size, self.spectrum.variances + shrink).astype(along.dtype))

    def weighed(self, e: Array) -> Array:
        """``v (e - mean of e)`` for each task: weighted, with the intercept eliminated."""
        if self.total is not None:
            e = e - (row_products(self.v, e) / self.total)[:, None]
        return self.v * e

    def grams(self, P: Array) -> Array:
        """``P_t'P_t`` of the observed rows of each task, centred."""
        out = np.empty((len(self.v), P.shape[1], P.shape[1]), dtype=P.dtype)
        for t, (obs, root) in enumerate(self._seen):
            rows = P[obs]
            rows *= root
            np.matmul(rows.T, rows, out=out[t])
        if self.total is not None:
            sums = self.v @ P
            out -= sums[:, :, None] * (sums / self.total[:, None])[:, None, :]
        return out

    @cached_property
    def _seen(self) -> list[tuple[Array, Array]]:
        """The observed rows of each task, and the square roots of their weights."""
        return [(obs, np.sqrt(v[obs])[:, None]) for v, obs in ((v, np.flatnonzero(v)) for v in self.v)]

    def moments_along(self, U: Array) -> Array:
        """``U'X'XU`` for each task."""
        return self.grams(self.phi @ U.astype(self.phi.dtype, copy=False))
