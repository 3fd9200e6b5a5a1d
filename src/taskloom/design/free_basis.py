"""A basis of the columns that are not penalised."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .levels import FEW_COLUMNS, joined
from .observations import Value

Array = np.ndarray
MIN_SINGULAR_VALUE = 1e-13  # of the columns at equal size, relative to the largest; smaller ones are rounding
ORTHOGONAL = 0.1  # smallest eigenvalue of their Gram matrix from which on one Cholesky factor will do,
MIN_EIGENVALUE = 1e-8  # from which on two are as good as a decomposition of the columns


@dataclass(frozen=True, eq=False)
class FreeBasis(Value):
    """A basis ``E`` of the unpenalised columns, the intercept first: ``E'VE = I``, and ``columns back = E``.

    Columns in units of their own or far from zero would lose in their products the digits that tell them apart.
    """

    E: Array
    back: Array

    @classmethod
    def of(cls, columns: Array, weight: Array) -> FreeBasis:
        gram = weighted_gram(columns, weight)
        size = np.sqrt(np.diag(gram))
        size[size == 0] = 1.0
        gram = gram / np.outer(size, size)
        if (least := np.linalg.eigvalsh(gram)[0]) > MIN_EIGENVALUE:
            return cls._by_cholesky(columns, weight, gram, size, once=least > ORTHOGONAL)
        root = np.sqrt(weight)[:, None]
        U, s, Vt = np.linalg.svd(root * columns / size, full_matrices=False)
        kept = s > MIN_SINGULAR_VALUE * s.max(initial=0.0)
        return cls(U[:, kept] / root, Vt[kept].T / s[kept] / size[:, None])

    @classmethod
    def _by_cholesky(cls, columns: Array, weight: Array, gram: Array, size: Array, once: bool) -> FreeBasis:
        """The second factor mends what rounding left of the first one."""
        back = np.linalg.inv(np.linalg.cholesky(gram)).T / size[:, None]
        if once:
            return cls(joined([columns @ column for column in back.T]), back)
        again = np.linalg.inv(np.linalg.cholesky(weighted_gram(joined([columns @ column for column in back.T]), weight))).T
        return cls(joined([columns @ column for column in (back @ again).T]), back @ again)


def weighted_gram(columns: Array, weight: Array) -> Array:
    """``C'VC``."""
    k = columns.shape[1]
    if k > FEW_COLUMNS:
        half = np.sqrt(weight)[:, None] * columns
        return half.T @ half
    out, product = np.empty((k, k)), np.empty(len(weight))
    for row, column in zip(out, columns.T, strict=True):
        row[:] = np.multiply(weight, column, out=product) @ columns
    return (out + out.T) / 2


def is_independent(columns: Array) -> bool:
    """Whether the columns are certainly linearly independent; where their Gram matrix leaves it open, they may be."""
    size = np.sqrt([column @ column for column in columns.T])
    if not columns.shape[1] or not size.min() > 0:
        return False
    least = np.linalg.eigvalsh(columns.T @ columns / np.outer(size, size))[0]
    return bool(least > MIN_EIGENVALUE and np.sqrt(least) * size.min() > MIN_EIGENVALUE * size.max())
