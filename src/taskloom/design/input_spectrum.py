"""Second moments of the inputs of all tasks: spectrum, effective dimension, and the mean Gram matrix as a preconditioner.

The eigenvalues of generic inputs are similar; those of kernel features differ by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from .._linalg import long_product, psd_basis, psd_eigh
from ..features.kernels import weighted_gram
from .shared_inputs import orthogonal_columns

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
MIN_FILLED_SHARE = 0.4  # inputs count as isotropic if their effective dimension is this share of the number of features
N_PROBES = 4  # random vectors that estimate the Frobenius norm of the second moments
MIN_FEATURES_FOR_LEADING = 1000  # from which on a decomposition of the moments costs more than the fit, and
N_LEADING = 256  # leading eigenvectors stand for them; a kernel has few large eigenvalues


class InputSpectrum:
    """Eigenvalues of the second moments of the inputs, scaled to 1 if all directions that the inputs span have equal variance.

    Parameters
    ----------
    filled : float
        Effective dimension of the inputs, ``tr(M)^2 / ||M||^2`` for second moments ``M``; invariant to rotations and to
        repeated rows.
    even : bool
        Whether it is close to the number of features: the inputs then count as isotropic.
    moments : array of shape (d, d), or (d,) where these are eigenvalues
        The sum of ``X'X`` over the tasks; needed unless ``even``.
    rest : float, optional
        The mean eigenvalue of the directions that are left out, where only the leading ones are known.
    """

    def __init__(self, filled: float, even: bool, moments: Array | None = None, rest: float | None = None):
        self.filled, self.even, self.moments, self._rest = filled, even, moments, rest

    @classmethod
    def of(cls, moments: Array) -> InputSpectrum:
        total = float(np.trace(moments) if moments.ndim == 2 else moments.sum())
        shares = moments / total if total > 0 else np.ones((1, 1))  # normalised, since fourth powers of the inputs may overflow
        filled = 1 / float(np.vdot(shares, shares))
        return cls(filled, filled >= MIN_FILLED_SHARE * len(moments), moments)

    @classmethod
    def along(cls, variances: Array, U: Array | None) -> InputSpectrum:
        """From known eigenvalues and eigenvectors (``None``: the features themselves are the directions)."""
        spectrum = cls.of(variances)
        spectrum._basis = variances, U
        return spectrum

    @classmethod
    def probed(cls, total: float, rows: Iterable[Array], grams: Sequence[Array] = ()) -> InputSpectrum:
        """From a few products with the moments, whose trace is ``total``, if these show isotropy; else from the moments.

        The moments are ``X'X`` summed over ``rows``, which may be read twice, and the sum of ``grams``.

        For random signs ``s``, ``||M s||^2`` has mean ``||M||^2``, and little variance if the eigenvalues are similar.
        """
        d = next(iter(chain(rows, grams))).shape[1]
        if d >= 8 * N_PROBES and total > 0:
            signs = _signs(d)
            shares = sum([X.T @ (X @ signs) for X in rows] + [G @ signs for G in grams]) / total
            square = float(np.vdot(shares, shares)) / N_PROBES
            if 0 < square * MIN_FILLED_SHARE * d <= 1:
                return cls(min(1 / square, d), True)
        if d >= MIN_FEATURES_FOR_LEADING:
            return cls.leading(total, lambda B: sum([X.T @ (X @ B) for X in rows] + [G @ B for G in grams]), d)
        moments: Any = sum([long_product(X.T, X) for X in rows] + list(grams))
        return cls.of(moments)

    @classmethod
    def leading(cls, total: float, product: Callable[[Array], Array], d: int) -> InputSpectrum:
        """The leading eigenvectors, by subspace iteration; the others share what they leave of the trace."""
        B = product(np.random.default_rng(0).normal(size=(d, N_LEADING)))
        U = np.linalg.qr(product(np.linalg.qr(B)[0]))[0]
        k, E = psd_eigh(U.T @ product(U))
        others, left = d - N_LEADING, max(total - float(k.sum()), 0.0)
        filled = total**2 / (float(k @ k) + left**2 / others)
        spectrum = cls(filled, filled >= MIN_FILLED_SHARE * d, rest=left / others)
        spectrum._basis, spectrum._total = (k, U @ E), total
        return spectrum

    @cached_property
    def _total(self) -> float:
        return float(self._basis[0].sum())

    @cached_property
    def _basis(self) -> tuple[Array, Array | None]:
        assert self.moments is not None
        return psd_basis(self.moments)

    @cached_property
    def variances(self) -> Array:
        k, total = self._basis[0], self._total
        return k * (self.filled / total) if total > 0 else np.ones_like(k)

    @property
    def rest(self) -> float | None:
        """The variance of the directions that are left out; ``None`` if there are none."""
        return None if self._rest is None else self._rest * (self.filled / self._total)

    @cached_property
    def _single(self) -> Array | None:
        """The eigenvectors in single precision."""
        return None if self._basis[1] is None else self._basis[1].astype(np.float32)

    def scaled(self, rows: Array, factors: Array, rest: Array | float = 0.0) -> Array:
        """Rows of features times factors along the eigenvectors, and ``rest`` along the directions that are left out."""
        U = self._single if rows.dtype == np.float32 else self._basis[1]
        if U is None:
            return rows * factors
        if self._rest is None:
            return ((rows @ U) * factors) @ U.T
        return rest * rows + ((rows @ U) * (factors - rest)) @ U.T

    def to_inner(self, rows: Array) -> Array:
        """Rows of features in the eigenbasis."""
        U = self._basis[1]
        return rows if U is None else rows @ U.astype(rows.dtype, copy=False)

    def to_original(self, rows: Array) -> Array:
        """Rows from the eigenbasis to the features."""
        U = self._basis[1]
        return rows if U is None else rows @ U.T.astype(rows.dtype, copy=False)


@lru_cache(maxsize=8)
def _signs(d: int) -> Array:
    return np.random.default_rng(0).choice([-1.0, 1.0], size=(d, N_PROBES))


MIN_FEATURES_TO_CHECK = 200  # with fewer features a decomposition costs less than the check for orthogonal columns


class MeanGram:
    """Eigenvalues ``g`` and eigenvectors ``U`` of the mean over tasks of ``Phi_t' V_t Phi_t``, each task centred.

    Centred kernel features may be orthogonal. Then the weights of the rows are replaced by their mean.
    """

    def __init__(self, design: Design):
        obs = design.observations
        by_row = np.bincount(obs.row, weights=obs.weight, minlength=design.n_rows)
        self.U: Array | None = None
        phi = design.features
        if not issparse(phi) and design.n_features >= MIN_FEATURES_TO_CHECK:
            k = orthogonal_columns(phi, phi.mean(axis=0) if design.fit_intercept else None)
            if k is not None:
                self.g = k * (by_row.mean() / design.n_tasks)
                return
        total = weighted_gram(design.features, by_row)
        if design.fit_intercept:
            means = design.weight_correlations / np.sqrt(obs.task_weights)
            total = total - means @ means.T
        self.g, self.U = psd_eigh(total / design.n_tasks)

    def to_inner(self, X: Array) -> Array:
        return X if self.U is None else self.U.T @ X

    def to_original(self, X: Array) -> Array:
        return X if self.U is None else self.U @ X
