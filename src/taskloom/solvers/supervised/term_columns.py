"""A penalised term of a sum in the metric of its structure: coefficients, weights, and its columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from ...design.term_inputs import Scale, TermData, scaled_rows
from .elimination import Levels

Array = np.ndarray
MAX_DENSE_COLUMNS = 64  # of a grouping, up to which its columns are a dense matrix
MIN_KEPT_SHARE = 0.1  # of the rows, the number of features from which on their Gram matrix is kept


@dataclass(frozen=True, eq=False)
class TermColumns:
    """A penalised term in the metric of its structure: ``W = left beta right'``, where ``None`` is the identity."""

    term: TermData
    left: Array | None  # the root of D, r x k
    right: Array | None  # the root of A, p x k
    scale: float  # 1 / sqrt(2 alpha), of weights for coefficients
    units: Scale = 1.0  # of the features

    @cached_property
    def root(self) -> Array:
        """The coefficients of the data's features for those of ``beta`` (``r x k``)."""
        return scaled_rows(self.scale * (np.eye(self.term.r) if self.left is None else self.left), self.units)

    @cached_property
    def features(self) -> Array:
        """``phi left`` times the scale (``n x k``)."""
        return self.features_of(self.term.phi)

    def features_of(self, phi: Array) -> Array:
        """Those of some rows."""
        return phi * (self.scale * self.units) if self.left is None else phi @ self.root

    @property
    def keeps_gram(self) -> bool:
        """Whether the Gram matrix of the data's features is computed once, and serves at all metrics."""
        return self.left is None and self.term.r > MIN_KEPT_SHARE * len(self.term.phi)

    @property
    def gram(self) -> Array:
        """``XX'`` of the columns (``n x n``)."""
        K = self._gram_of_features()
        if self.grouped:
            codes = self.term.levels.codes
            K[codes[:, None] != codes] = 0.0
        elif self.right is not None or self.term.codes is not None:
            side = self.term.side if self.right is None else self.term.times_side(self.right)
            K *= side @ side.T
        return K

    def _gram_of_features(self) -> Array:
        if not self.keeps_gram:
            return self.features @ self.features.T
        squares = np.broadcast_to(np.square(self.units), self.term.r)
        K = self.scale**2 * squares[0] * self.term.gram
        if (other := np.flatnonzero(squares != squares[0])).size:  # as of the constant of an intercept
            X = self.term.phi[:, other]
            K += (self.scale**2 * (squares[other] - squares[0]) * X) @ X.T
        return K

    @cached_property
    def map(self) -> Array:
        """The coefficients of ``term.columns`` for those of ``beta``: a matrix, or its diagonal (``r p``)."""
        if self.left is None and self.right is None:
            return np.repeat(np.broadcast_to(self.scale * np.asarray(self.units), self.term.r), self.term.p)
        return np.kron(self.root, np.eye(self.term.p) if self.right is None else self.right)

    @property
    def shape(self) -> tuple[int, int]:
        """Of ``beta``."""
        k = self.term.r if self.left is None else self.left.shape[1]
        return k, self.term.p if self.right is None else self.right.shape[1]

    @property
    def size(self) -> int:
        """The number of coefficients."""
        return self.shape[0] * self.shape[1]

    @property
    def grouped(self) -> bool:
        return self.term.grouped and self.right is None

    def weights(self, beta: Array) -> Array:
        W = beta if self.left is None else self.left @ beta
        return self.scale * (W if self.right is None else W @ self.right.T)

    def adjoint(self, Z: Array) -> Array:
        """The gradient in ``beta`` for one in ``W``."""
        Z = Z if self.left is None else self.left.T @ Z
        return self.scale * (Z if self.right is None else Z @ self.right)

    @cached_property
    def levels(self) -> Levels:
        return Levels(self.features, self.term.levels)

    @cached_property
    def columns(self) -> Array | csr_array:
        """The columns of ``beta``, level by level where they are grouped, else feature by feature."""
        if self.grouped and self.size > MAX_DENSE_COLUMNS:
            return self.levels.expanded
        if self.size == 0:
            return np.zeros((len(self.term.phi), 0))
        side = self.term.side if self.right is None else self.term.times_side(self.right)
        pairs = side[:, :, None] * self.features[:, None, :] if self.grouped else self.features[:, :, None] * side[:, None, :]
        return pairs.reshape(len(side), -1)

    def beta_of(self, flat: Array) -> Array:
        """``beta`` from the coefficients of ``columns``."""
        k, p = self.shape
        return flat.reshape(p, k).T if self.grouped else flat.reshape(k, p)
