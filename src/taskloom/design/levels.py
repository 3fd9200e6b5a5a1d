"""The level of each row of a grouping: sums over the rows of each level, and numbers of levels at their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csc_array

from .observations import Value, indicator, stable_order

Array = np.ndarray
FEW_COLUMNS = 8  # up to which columns lie, and are read, one by one: rows of few numbers are slow to gather
COLUMNS_AT_ONCE = 4  # of many sums; more leave the cache, until rows are
MIN_LONG_ROWS = 16  # numbers: these stream through the memory
CACHED_SUMS = 1 << 17  # numbers that stay in the cache


def empty_columns(n: int, k: int) -> Array:
    """Room for ``n x k`` numbers: column by column where they are few."""
    return np.empty((n, k), order="F" if k <= FEW_COLUMNS else "C")


def joined(columns: Sequence[Array]) -> Array:
    """Columns, or several at once, beside each other."""
    widths = [1 if part.ndim == 1 else part.shape[1] for part in columns]
    out, at = empty_columns(len(columns[0]), sum(widths)), 0
    for part, width in zip(columns, widths, strict=True):
        out[:, at : at + width] = part if part.ndim == 2 else part[:, None]
        at += width
    return out


@dataclass(frozen=True, eq=False)
class LevelIndex(Value):
    """The level of each row, a number below ``n_levels``."""

    codes: Array
    n_levels: int

    @cached_property
    def counts(self) -> Array:
        """The number of rows of each level."""
        return np.bincount(self.codes, minlength=self.n_levels)

    @cached_property
    def order(self) -> Array:
        """The rows level by level, in their order within a level."""
        return stable_order(self.codes, self.n_levels)

    @cached_property
    def _indicator(self) -> csc_array:
        return indicator(self.codes, self.n_levels)

    def sums(self, Y: Array) -> Array:
        """The sum over the rows of each level, of numbers (``n``) or of rows (``n x m``)."""
        if Y.ndim == 1:
            return np.bincount(self.codes, weights=Y, minlength=self.n_levels)
        m = Y.shape[1]
        if m <= COLUMNS_AT_ONCE or m >= MIN_LONG_ROWS or m * self.n_levels <= CACHED_SUMS:
            return np.asarray(self._indicator @ Y)
        return np.hstack([self._indicator @ Y[:, a : a + COLUMNS_AT_ONCE] for a in range(0, m, COLUMNS_AT_ONCE)])

    def products(self, X: Array, B: Array) -> Array:
        """``x_i'b`` for every row, with the ``b`` (``levels x k``) of its level."""
        k = X.shape[1]
        if k > FEW_COLUMNS:
            return np.einsum("ij,ij->i", X, B[self.codes])
        z, product = np.zeros(len(self.codes)), np.empty(len(self.codes))
        for j in range(k):
            np.ascontiguousarray(B[:, j]).take(self.codes, out=product, mode="clip")
            z += np.multiply(product, X[:, j], out=product)
        return z

    def correlations(self, X: Array, u: Array) -> Array:
        """``sum_i u_i x_i`` over the rows of each level (``levels x k``)."""
        if X.shape[1] > FEW_COLUMNS:
            return self.sums(u[:, None] * X)
        out, product = np.empty((X.shape[1], self.n_levels)), np.empty(len(u))
        for j, row in enumerate(out):
            row[:] = self.sums(np.multiply(u, X[:, j], out=product))
        return out.T
