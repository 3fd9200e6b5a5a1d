"""How the inputs of the tasks spread over directions, on average: evenly, or (features of a kernel) by orders of magnitude."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .._linalg import psd_eigh

Array = np.ndarray
EVEN = 0.4  # of all directions that must be filled for inputs to count as alike in all of them
DIAGONAL = 1e-12  # what products of different columns may leave, beside the largest


class Spread:
    """Variances along directions, in units in which they are 1 where inputs are alike in all of those that they fill.

    Parameters
    ----------
    moments : array of shape (d, d)
        The sum of ``X'X`` over the tasks.
    """

    def __init__(self, moments: Array):
        self.moments = moments
        self.filled = _filled(moments)

    @classmethod
    def along(cls, variances: Array, U: Array | None) -> Spread:
        """With eigenvalues and eigenvectors (none: the directions are those of the features) that are known already."""
        spread = cls(variances)
        spread._basis = variances, U
        return spread

    @property
    def even(self) -> bool:
        return self.filled >= EVEN * len(self.moments)

    @cached_property
    def _basis(self) -> tuple[Array, Array | None]:
        k = np.diag(self.moments)
        if np.abs(self.moments - np.diag(k)).max(initial=0.0) <= DIAGONAL * k.max(initial=0.0):
            return k, None
        return psd_eigh(self.moments)

    @cached_property
    def variances(self) -> Array:
        k, total = self._basis[0], float(self._basis[0].sum())
        return k * (self.filled / total) if total > 0 else np.ones_like(k)

    def inward(self, rows: Array) -> Array:
        """A matrix with a column for each feature, in the directions."""
        U = self._basis[1]
        return rows if U is None else rows @ U.astype(rows.dtype, copy=False)

    def outward(self, rows: Array) -> Array:
        U = self._basis[1]
        return rows if U is None else rows @ U.T.astype(rows.dtype, copy=False)


def _filled(moments: Array) -> float:
    """How many directions inputs fill, by their moments: all if they are alike, and the same if rows are repeated or turned."""
    total = float(np.trace(moments) if moments.ndim == 2 else moments.sum())
    shares = moments / total if total > 0 else np.ones((1, 1))  # fourth powers of the inputs themselves may overflow
    return 1 / float(np.vdot(shares, shares))
