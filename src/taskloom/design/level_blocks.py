"""What remains of the rows of each level under the squared loss, and the systems of the levels at a metric.

With features ``X`` of the levels (``k`` columns), columns ``Y`` of all else (``m``: other terms, the unpenalised basis, and the
targets) and weights ``v``, everything that a fit asks for is

    along       X'VYt                                                   (k x levels)
    curved      X'VXW                                                   (k x levels)
    cross       Y'VXW, added over the levels                            (m)
    schur       Y'VX L (I/2 + L'X'VXL)^-1 L'X'VY, added over the levels     (m x m)

at a root ``L`` of the metric. Levels with many rows keep ``X'VX`` and ``X'VY``; those with fewer rows than features keep these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._array_api import inverse_roots, times, times_transposed
from .level_systems import LevelBlock, LevelSystems
from .levels import LevelIndex
from .observations import batches
from .same_rows import SameRows

Array = np.ndarray
FEW_FEATURES = 4  # up to which the arithmetic runs over many levels at once, one entry of their matrices after the other:
LEVELS_AT_ONCE = 1 << 13


@dataclass(frozen=True, eq=False)
class FewFeatures(LevelBlock):
    """Few features: matrices of the levels are stored entry by entry (``k x k x levels`` and ``k x m x levels``)."""

    levels: slice
    G: Array
    C: Array

    @classmethod
    def of(cls, X: Array, Y: Array, v: Array, index: LevelIndex) -> list[LevelBlock]:
        """Blocks whose arrays stay in the cache."""
        k, m, T = X.shape[1], Y.shape[1], index.n_levels
        G, C = np.empty((k, k, T)), np.empty((k, m, T))
        x, product = np.empty((2, len(v)))
        for i in range(k):
            np.multiply(v, X[:, i], out=x)
            for j in range(i + 1):
                G[i, j] = G[j, i] = index.sums(np.multiply(x, X[:, j], out=product))
            for j in range(m):
                C[i, j] = index.sums(np.multiply(x, Y[:, j], out=product))
        parts = [slice(a, min(a + LEVELS_AT_ONCE, T)) for a in range(0, T, LEVELS_AT_ONCE)]
        return [cls(part, *(np.ascontiguousarray(M[:, :, part]) for M in (G, C))) for part in parts]

    def along(self, t: Array) -> Array:
        return t @ self.C

    def curved(self, W: Array) -> Array:
        return sum_of_products(self.G, W)

    def cross(self, W: Array) -> Array:
        return sum(C @ w for C, w in zip(self.C, W, strict=True))

    def at(self, root: Array) -> FewFeatureSystems:
        return FewFeatureSystems(self, root)


class FewFeatureSystems(LevelSystems):
    def __init__(self, block: FewFeatures, root: Array):
        (k, m, T), q = block.C.shape, root.shape[1]
        A = (2 * np.kron(root, root).T @ block.G.reshape(k * k, T)).reshape(q, q, T)
        A[np.arange(q), np.arange(q)] += 1
        self.inverse = inverse_of_entries(A)
        turned = (root.T @ block.C.reshape(k, m * T)).reshape(q, m, T)
        self.schur = np.zeros((m, m))
        for i in range(q):
            solved = self.inverse[i, 0] * turned[0]
            for j in range(1, q):
                solved += self.inverse[i, j] * turned[j]
            self.schur += 2 * (turned[i] @ solved.T)

    def solve(self, r: Array) -> Array:
        return sum_of_products(self.inverse, r)


def sum_of_products(M: Array, x: Array) -> Array:
    """``M x`` for matrices stored entry by entry (``k x k x levels``)."""
    out = np.empty((len(M), M.shape[2]))
    for i, row in enumerate(M):
        np.einsum("jl,jl->l", row, x, out=out[i])
    return out


def inverse_of_entries(A: Array) -> Array:
    """The inverses of positive definite matrices stored entry by entry, in place, by sweeps: no pivot is below 1 here."""
    if len(A) == 2:
        (a, b), (_, d) = A
        scale = 1 / (a * d - b * b)
        A[0, 0], A[1, 1] = d * scale, a * scale  # both are new arrays
        A[0, 1] = A[1, 0] = -b * scale
        return A
    for p in range(len(A)):
        pivot = 1 / A[p, p]
        row = A[p] * pivot
        for i in range(len(A)):
            if i != p:
                factor = A[i, p].copy()
                A[i] -= factor * row
                A[i, p] = -factor * pivot
        A[p] = row
        A[p, p] = pivot
    return A


@dataclass(frozen=True, eq=False)
class ManyRows(LevelBlock):
    """Levels with at least as many rows as features: ``X'VX`` and ``X'VY`` (``levels x k x k`` and ``levels x k x m``)."""

    levels: Array
    G: Array
    C: Array

    def along(self, t: Array) -> Array:
        return (self.C @ t).T

    def curved(self, W: Array) -> Array:
        return times(self.G, W.T).T

    def cross(self, W: Array) -> Array:
        return np.ravel(W.T) @ self.C.reshape(-1, self.C.shape[2])

    def at(self, root: Array) -> LevelSystems:
        return _Primal(root.T @ self.G @ root, root.T @ self.C)


class _Primal(LevelSystems):
    """One unknown for each column of the root."""

    def __init__(self, gram: Array, turned: Array):
        self.R = inverse_roots(2 * gram, 1.0)
        half = (self.R @ turned).reshape(-1, turned.shape[2])
        self.schur = 2 * (half.T @ half)

    def solve(self, r: Array) -> Array:
        return times_transposed(self.R, times(self.R, r.T)).T


@dataclass(frozen=True, eq=False)
class FewRows(LevelBlock):
    """Levels with fewer rows than features, equally many: ``V^1/2 X`` and ``V^1/2 Y`` (``levels x rows x k``, ``... x m``)."""

    levels: Array
    X: Array
    Y: Array

    @cached_property
    def gram(self) -> Array:
        rows = self.Y.reshape(-1, self.Y.shape[2])
        return rows.T @ rows

    def along(self, t: Array) -> Array:
        return times_transposed(self.X, self.Y @ t).T

    def curved(self, W: Array) -> Array:
        return times_transposed(self.X, times(self.X, W.T)).T

    def cross(self, W: Array) -> Array:
        return np.ravel(times(self.X, W.T)) @ self.Y.reshape(-1, self.Y.shape[2])

    def at(self, root: Array) -> LevelSystems:
        scale = root.diagonal()
        X = self.X * scale if _is_diagonal(root) else self.X @ root
        return _Primal(X.mT @ X, X.mT @ self.Y) if X.shape[2] <= X.shape[1] else _Dual(self, X)


class _Dual(LevelSystems):
    """One unknown for each row, with ``K = I + 2XX'``: ``A^-1 = I - 2X'K^-1 X``, and ``Y'Y`` less ``schur`` is ``Y'K^-1 Y``."""

    def __init__(self, block: FewRows, X: Array):
        self.X, self.R = X, inverse_roots(2 * (X @ X.mT), 1.0)
        half = (self.R @ block.Y).reshape(-1, block.Y.shape[2])
        self.schur = block.gram - half.T @ half

    def solve(self, r: Array) -> Array:
        along = times(self.R, times(self.X, r.T))
        return r - 2 * times_transposed(self.X, times_transposed(self.R, along)).T


def level_blocks(X: Array, Y: Array, v: Array, index: LevelIndex) -> list[LevelBlock]:
    """All levels that have rows."""
    k = X.shape[1]
    if k <= FEW_FEATURES:
        return FewFeatures.of(X, Y, v, index)
    if (same := SameRows.of(X, Y, v, index)) is not None:
        return [same]
    many = np.flatnonzero(index.counts >= k)
    return [*_many_rows(X, Y, v, index, many), *_few_rows(X, Y, v, index)]


def _many_rows(X: Array, Y: Array, v: Array, index: LevelIndex, levels: Array) -> Iterator[LevelBlock]:
    if not levels.size:
        return
    k, m = X.shape[1], Y.shape[1]
    G, C = np.empty((len(levels), k, k)), np.empty((len(levels), k, m))
    starts = np.cumsum(index.counts) - index.counts
    for batch in batches(index.counts[levels], starts[levels]):
        rows = index.order[batch.place]
        x = X[rows]
        weighted = (v[rows] * batch.mask)[:, :, None] * x
        G[batch.tasks], C[batch.tasks] = weighted.mT @ x, weighted.mT @ Y[rows]
    yield ManyRows(levels, G, C)


def _few_rows(X: Array, Y: Array, v: Array, index: LevelIndex) -> Iterator[LevelBlock]:
    starts = np.cumsum(index.counts) - index.counts
    for count in range(1, X.shape[1]):
        levels = np.flatnonzero(index.counts == count)
        if levels.size:
            rows = index.order[starts[levels][:, None] + np.arange(count)]
            half = np.sqrt(v[rows])[:, :, None]
            yield FewRows(levels, half * _taken(X, rows), half * _taken(Y, rows))


def _is_diagonal(M: Array) -> bool:
    """As the root of levels that are independent of each other."""
    return M.shape[0] == M.shape[1] and np.count_nonzero(M) == np.count_nonzero(M.diagonal())


def _taken(M: Array, rows: Array) -> Array:
    """Rows of a matrix, a view where they follow each other."""
    first, last = int(rows[0, 0]), int(rows[-1, -1])
    if last - first + 1 == rows.size and np.array_equal(rows.ravel(), np.arange(first, last + 1)):
        return M[first : last + 1].reshape(*rows.shape, -1)
    return M[rows]
