"""How the inputs of the tasks spread over directions, on average: evenly, or (features of a kernel) by orders of magnitude."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache

import numpy as np

from .._linalg import psd_eigh

Array = np.ndarray
EVEN = 0.4  # of all directions that must be filled for inputs to count as alike in all of them
DIAGONAL = 1e-12  # what products of different columns may leave, beside the largest
PROBES = 4  # products with the moments that tell whether inputs are even


class InputSpectrum:
    """Variances along directions, in units in which they are 1 where inputs are alike in all of those that they fill.

    Parameters
    ----------
    filled : float
        How many directions inputs fill.
    even : bool
        Whether that is most of them: then nobody asks which.
    moments : array of shape (d, d), or (d,) where these are eigenvalues
        The sum of ``X'X`` over the tasks; needed unless inputs are even.
    """

    def __init__(self, filled: float, even: bool, moments: Array | None = None):
        self.filled, self.even, self.moments = filled, even, moments

    @classmethod
    def of(cls, moments: Array) -> InputSpectrum:
        filled = _filled(moments)
        return cls(filled, filled >= EVEN * len(moments), moments)

    @classmethod
    def along(cls, variances: Array, U: Array | None) -> InputSpectrum:
        """With eigenvalues and eigenvectors (none: the directions are those of the features) that are known already."""
        spread = cls.of(variances)
        spread._basis = variances, U
        return spread

    @classmethod
    def probed(cls, d: int, total: float, product: Callable[[Array], Array], moments: Callable[[], Array]) -> InputSpectrum:
        """From a few products with the moments, whose trace is ``total``, where these tell that inputs are even; else from all.

        The mean of ``||M s||^2`` over random signs ``s`` is ``||M||^2``, and little varies where eigenvalues are alike.
        """
        if d >= 8 * PROBES and total > 0:
            shares = product(_signs(d)) / total
            square = float(np.vdot(shares, shares)) / PROBES
            if 0 < square * EVEN * d <= 1:
                return cls(min(1 / square, d), True)
        return cls.of(moments())

    @cached_property
    def _basis(self) -> tuple[Array, Array | None]:
        assert self.moments is not None
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


@lru_cache(maxsize=8)
def _signs(d: int) -> Array:
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(d, PROBES))


def _filled(moments: Array) -> float:
    """How many directions inputs fill, by their moments: all if they are alike, and the same if rows are repeated or turned."""
    total = float(np.trace(moments) if moments.ndim == 2 else moments.sum())
    shares = moments / total if total > 0 else np.ones((1, 1))  # fourth powers of the inputs themselves may overflow
    return 1 / float(np.vdot(shares, shares))
