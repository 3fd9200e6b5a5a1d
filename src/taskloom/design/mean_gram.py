"""The mean Gram matrix of the tasks, decomposed: a preconditioner for all of them, and how inputs vary over directions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from .._linalg import psd_eigh
from ..features import weighted_gram

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
ORTHOGONAL = 1e-13  # what is left of the products of different columns, beside the largest
MANY_FEATURES = 200  # below this many a decomposition is cheap


def orthogonal_columns(phi: Array, mean: Array | None = None) -> Array | None:
    """The squared norms of the columns (less their ``mean``), where these are orthogonal: then nothing is left to decompose.

    Two products tell: were the Gram matrix not diagonal, it would move a random vector otherwise than its diagonal does.
    """
    n, r = phi.shape
    mean = np.zeros(r) if mean is None else mean
    k = np.einsum("ij,ij->j", phi, phi) - n * mean**2
    x = np.random.default_rng(0).normal(size=(r, 2))
    off = phi.T @ (phi @ x) - n * np.outer(mean, mean @ x) - k[:, None] * x
    return np.maximum(k, 0.0) if np.abs(off).max(initial=0.0) <= ORTHOGONAL * k.max(initial=0.0) else None


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
    if issparse(phi) or design.n_features < MANY_FEATURES:
        return None
    return orthogonal_columns(phi, phi.mean(axis=0) if design.fit_intercept else None)
