"""Newton systems of a sum of terms: the levels of the largest grouping are eliminated, what is left is small.

With coefficients ``beta_0`` of that grouping (a block ``k x k`` for each level) and ``beta_1`` of all else, border included,

    (I + X_0'HX_0) d_0 + C d_1 = r_0,      C'd_0 + (R + X_1'HX_1) d_1 = r_1,      C = X_0'HX_1,

where ``I + X_0'HX_0`` is block diagonal: one small system for each level, at a cost that is linear in their number. What is
left is ``S = R + X_1'HX_1 - C'(I + X_0'HX_0)^-1 C``: dense, or by conjugate gradients where it is large.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from ..._array_api import times
from ..._linalg import Positive, conjugate_gradient
from ...design.levels import MIN_LONG_ROWS, LevelIndex, joined
from .newton_systems import TUNING, BatchDesign, Direction, Intercepts

Array = np.ndarray
MAX_DENSE = 4000  # unknowns of the remaining system, up to which it is a dense matrix


@dataclass(frozen=True, eq=False)
class Levels:
    """A grouping: features of the rows (``n x k``), and their levels."""

    X: Array
    index: LevelIndex

    @property
    def n_levels(self) -> int:
        return self.index.n_levels

    @cached_property
    def expanded(self) -> csr_array:
        """The columns of all levels, as a sparse matrix (``n x levels k``)."""
        n, k = self.X.shape
        if k == 0:  # a structure of rank 0
            return csr_array((n, 0))
        columns = self.index.codes[:, None] * k + np.arange(k)
        return csr_array((self.X.ravel(), columns.ravel(), k * np.arange(n + 1)), shape=(n, self.n_levels * k))

    def sums(self, h: Array, Y: Array) -> Array:
        """``X'HY`` within each level (``levels x k x m``)."""
        shape = self.n_levels, self.X.shape[1], Y.shape[1]
        if Y.shape[1] >= MIN_LONG_ROWS:  # a row at a time
            return np.asarray(self.expanded.T @ (h[:, None] * Y)).reshape(shape)
        out = np.empty(shape)
        for i, x in enumerate(self.X.T):
            out[:, i] = self.index.sums((h * x)[:, None] * Y)
        return out

    def predict(self, B: Array) -> Array:
        """``x_i'b`` with the coefficients (``levels x k``) of the level of each row."""
        return self.index.products(self.X, B)

    def gather(self, u: Array) -> Array:
        return self.index.correlations(self.X, u)


@dataclass(frozen=True, eq=False)
class OtherColumns:
    """The columns of the other terms: dense ones, and after them sparse ones (of large groupings)."""

    dense: Array
    sparse: csr_array

    @classmethod
    def of(cls, n: int, columns: Sequence[Array | csr_array]) -> OtherColumns:
        """Columns of terms, the dense ones first."""
        dense = [part for part in columns if not issparse(part)]
        sparse = [part for part in columns if issparse(part)]
        return cls(joined(dense) if dense else np.zeros((n, 0)), hstack(sparse, format="csr") if sparse else csr_array((n, 0)))

    @property
    def size(self) -> int:
        return self.dense.shape[1] + self.sparse.shape[1]

    def __matmul__(self, x: Array) -> Array:
        m = self.dense.shape[1]
        return np.asarray(self.dense @ x[:m] + self.sparse @ x[m:])

    def adjoint(self, u: Array) -> Array:
        return np.concatenate([self.dense.T @ u, self.sparse.T @ u])

    def curvatures(self, h: Array) -> Array:
        """``h'x^2`` for every column."""
        return np.concatenate([h @ self.dense**2, self.sparse.multiply(self.sparse).T @ h])


class Eliminated(BatchDesign):
    """All rows in one batch element: a grouping that is eliminated, and the columns of the other terms.

    Parameters
    ----------
    levels : Levels or None
        The largest grouping.
    others : OtherColumns
        The columns of the other penalised terms.
    """

    def __init__(self, levels: Levels | None, others: OtherColumns):
        self.levels, self.others = levels, others
        self.size = 0 if levels is None else levels.n_levels * levels.X.shape[1]

    def _split(self, coef: Array) -> tuple[Array | None, Array]:
        own = None if self.levels is None else coef[0, : self.size].reshape(self.levels.n_levels, -1)
        return own, coef[0, self.size :]

    def start(self, u: Array) -> Array:
        own = np.zeros(0) if self.levels is None else self.levels.gather(u[0]).ravel()
        return np.concatenate([own, self.others.adjoint(u[0])])[None]

    def predict(self, coef: Array) -> Array:
        own, rest = self._split(coef)
        z = self.others @ rest
        return (z if own is None or self.levels is None else z + self.levels.predict(own))[None]

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        E = np.zeros((h.shape[1], 0)) if intercepts is None else intercepts.dense()[0]
        lift = np.zeros(0) if damping is None else damping[0]
        return EliminatedSystem(self, h[0], E, np.concatenate([np.ones(self.others.size), lift]))


class EliminatedSystem:
    """The system at curvatures ``h``, with the columns ``E`` of the border and the diagonal ``ridge`` of what is left."""

    def __init__(self, design: Eliminated, h: Array, E: Array, ridge: Array):
        self.design, self.h, self.E, self.ridge = design, h, E, ridge
        levels = design.levels
        if levels is not None:
            blocks = levels.sums(h, levels.X)
            blocks[:, np.arange(blocks.shape[1]), np.arange(blocks.shape[1])] += 1.0
            self.inverse = np.linalg.inv(blocks)
        self.remaining = Positive(self.schur()[None]) if len(ridge) <= MAX_DENSE else None

    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]:
        """The Newton step of coefficients and border, ``-H^-1 gradient``."""
        own, rest = self.design._split(coef)
        levels, k = self.design.levels, self.E.shape[1]
        right = -self._columns_times(g[0])
        right[: len(rest)] -= rest
        if levels is None or own is None:
            step = self._solve(right)
            return step[: len(step) - k][None], step[len(step) - k :][None]
        first = times(self.inverse, -(levels.gather(g[0]) + own))
        step = self._solve(right - self._columns_times(self.h * levels.predict(first)))
        first = first - times(self.inverse, levels.gather(self.h * self._predict(step)))
        m = len(step) - k
        return np.concatenate([first.ravel(), step[:m]])[None], step[m:][None]

    def _predict(self, step: Array) -> Array:
        m = self.design.others.size
        return self.design.others @ step[:m] + self.E @ step[m:]

    def _columns_times(self, u: Array) -> Array:
        return np.concatenate([self.design.others.adjoint(u), self.E.T @ u])

    @property
    def rest(self) -> Any:
        """The columns of what is left, the border at the end; sparse where some of the other terms are."""
        others = self.design.others
        if not others.sparse.shape[1]:
            return joined([others.dense, self.E])
        return hstack([csr_array(others.dense), others.sparse, csr_array(self.E)], format="csr")

    def cross(self, X: Any) -> Any:
        """``X_0'HX``, a row for each coefficient of the levels; sparse where the columns ``X`` are."""
        levels: Any = self.design.levels
        if issparse(X):
            return levels.expanded.T @ X.multiply(self.h[:, None]).tocsr()
        return levels.sums(self.h, X).reshape(self.design.size, X.shape[1])

    def eliminated(self, C: Any) -> Any:
        """``(I + X_0'HX_0)^-1 C``, sparse where ``C`` is."""
        if issparse(C):
            return self._block_diagonal @ C
        return np.matmul(self.inverse, C.reshape(*self.inverse.shape[:2], C.shape[1])).reshape(C.shape)

    def schur(self) -> Array:
        """The remaining system as a dense matrix; products of dense columns, of sparse ones, and of both."""
        others, levels = self.design.others, self.design.levels
        X = joined([others.dense, self.E])
        S, is_sparse = np.empty((len(self.ridge), len(self.ridge))), np.zeros(len(self.ridge), dtype=bool)
        is_sparse[others.dense.shape[1] : others.size] = True
        places = np.flatnonzero(~is_sparse), np.flatnonzero(is_sparse)
        half = np.sqrt(self.h)[:, None] * X
        dense = half.T @ half
        if levels is not None:
            C = levels.sums(self.h, X)
            solved = np.matmul(self.inverse, C).reshape(C.shape[0] * C.shape[1], X.shape[1])
            dense -= C.reshape(solved.shape).T @ solved
        S[np.ix_(places[0], places[0])] = dense
        if others.sparse.shape[1]:
            weighted = others.sparse.multiply(self.h[:, None]).tocsr()
            mixed, sparse = weighted.T @ X, (others.sparse.T @ weighted).toarray()
            if levels is not None:
                D = levels.expanded.T @ weighted
                mixed -= D.T @ solved
                sparse -= (D.T @ (self._block_diagonal @ D)).toarray()
            S[np.ix_(places[1], places[0])], S[np.ix_(places[0], places[1])] = mixed, mixed.T
            S[np.ix_(places[1], places[1])] = sparse
        S[np.diag_indices_from(S)] += self.ridge
        return S

    @cached_property
    def _block_diagonal(self) -> csr_array:
        n, k, _ = self.inverse.shape
        columns = (np.arange(n)[:, None, None] * k + np.arange(k)[None, None, :]).repeat(k, axis=1)
        return csr_array((self.inverse.ravel(), columns.ravel(), k * np.arange(n * k + 1)), shape=(n * k, n * k))

    def _solve(self, right: Array) -> Array:
        if self.remaining is not None:
            return self.remaining.solve(right[None, :, None])[0, :, 0] if len(right) else right
        levels, h = self.design.levels, self.h

        def product(x: Array) -> Array:
            u = h * self._predict(x)
            if levels is not None:
                u = u - h * levels.predict(times(self.inverse, levels.gather(u)))
            return self._columns_times(u) + self.ridge * x

        diagonal = np.concatenate([self.design.others.curvatures(h), self.E.T**2 @ h]) + self.ridge
        return conjugate_gradient(
            product,
            right,
            preconditioner=lambda x: x / diagonal,
            tol=TUNING.relative_residual,
            max_steps=TUNING.max_cg_steps,
        )
