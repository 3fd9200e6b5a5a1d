"""How the inputs of the tasks spread over directions, on average: evenly, or (features of a kernel) by orders of magnitude."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from .._linalg import psd_eigh
from ..features import weighted_gram
from .shared_inputs import orthogonal_columns

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
MIN_FILLED_SHARE = 0.4  # inputs count as isotropic if their effective dimension is this share of the number of features
DIAGONAL_TOLERANCE = 1e-12  # largest off-diagonal entry of a diagonal matrix, relative to its largest diagonal entry
N_PROBES = 4  # random vectors that estimate the Frobenius norm of the second moments


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
        return cls(filled, filled >= MIN_FILLED_SHARE * len(moments), moments)

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
        if d >= 8 * N_PROBES and total > 0:
            shares = product(_signs(d)) / total
            square = float(np.vdot(shares, shares)) / N_PROBES
            if 0 < square * MIN_FILLED_SHARE * d <= 1:
                return cls(min(1 / square, d), True)
        return cls.of(moments())

    @cached_property
    def _basis(self) -> tuple[Array, Array | None]:
        assert self.moments is not None
        k = np.diag(self.moments)
        if np.abs(self.moments - np.diag(k)).max(initial=0.0) <= DIAGONAL_TOLERANCE * k.max(initial=0.0):
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
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(d, N_PROBES))


def _filled(moments: Array) -> float:
    """How many directions inputs fill, by their moments: all if they are alike, and the same if rows are repeated or turned."""
    total = float(np.trace(moments) if moments.ndim == 2 else moments.sum())
    shares = moments / total if total > 0 else np.ones((1, 1))  # fourth powers of the inputs themselves may overflow
    return 1 / float(np.vdot(shares, shares))


MIN_FEATURES_TO_CHECK = 200  # with fewer features a decomposition costs less than the check for orthogonal columns


class MeanGram:
    """Eigenvalues ``g`` and eigenvectors ``U`` of the mean over tasks of ``Phi_t' V_t Phi_t``, each task centred.

    Features of a kernel may be orthogonal once their mean is off: then all rows alike are close enough to the tasks' mean.
    """

    def __init__(self, design: Design):
        seen = design.observations
        by_row = np.bincount(seen.row, weights=seen.weight, minlength=design.n_rows)
        self.U: Array | None = None
        if (k := _orthogonal(design)) is not None:
            self.g = k * (by_row.mean() / design.n_tasks)
            return
        total = weighted_gram(design.features, by_row)
        if design.fit_intercept:
            means = design.weight_correlations / np.sqrt(seen.task_weights)
            total = total - means @ means.T
        self.g, self.U = psd_eigh(total / design.n_tasks)

    def inward(self, X: Array) -> Array:
        return X if self.U is None else self.U.T @ X

    def outward(self, X: Array) -> Array:
        return X if self.U is None else self.U @ X


def _orthogonal(design: Design) -> Array | None:
    phi = design.features
    if issparse(phi) or design.n_features < MIN_FEATURES_TO_CHECK:
        return None
    return orthogonal_columns(phi, phi.mean(axis=0) if design.fit_intercept else None)
