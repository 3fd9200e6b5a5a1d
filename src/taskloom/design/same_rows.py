"""Levels that have the same rows, as the tasks of a wide table without gaps: what remains of them is kept once for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .._array_api import inverse_roots
from .level_systems import LevelBlock, LevelSystems
from .levels import LevelIndex

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class SameRows(LevelBlock):
    """``V^1/2 X`` (``rows x k``) and ``V^1/2 Y`` of all columns but the targets; these are ``rows x levels``."""

    levels: Array
    X: Array
    Y: Array
    targets: Array

    @classmethod
    def of(cls, X: Array, Y: Array, v: Array, index: LevelIndex) -> SameRows | None:
        """All levels; ``None`` where they differ, by a row or by its weight."""
        L, n = index.n_levels, int(index.counts[0])
        if L == 1 or not n or not np.all(index.counts == n):
            return None
        order = index.order.reshape(L, n)
        first = order[0]
        for each in order[1:]:
            pairs = ((M[each], M[first]) for M in (v, X, Y[:, :-1]))
            if not (np.array_equal(X[each[0]], X[first[0]]) and all(np.array_equal(*pair) for pair in pairs)):
                return None
        half = np.sqrt(v[first])[:, None]
        return cls(np.arange(L), half * X[first], half * Y[first, :-1], half * Y[order, -1].T)

    @cached_property
    def gram(self) -> Array:
        """``Y'VY``, added over the levels."""
        return self.added(self.Y, self.targets)

    @cached_property
    def moments(self) -> tuple[Array, Array, Array]:
        """``X'VX``, and ``X'VY`` of the common columns and of the targets."""
        return self.X.T @ self.X, self.X.T @ self.Y, self.X.T @ self.targets

    def added(self, common: Array, own: Array) -> Array:
        """The products of common columns with each other, and with those of the targets, added over the levels."""
        beside = (common.T @ own.sum(axis=1))[:, None]
        return np.block([[len(self.levels) * (common.T @ common), beside], [beside.T, np.array([[np.vdot(own, own)]])]])

    def along(self, t: Array) -> Array:
        return self.X.T @ ((self.Y @ t[:-1])[:, None] + t[-1] * self.targets)

    def curved(self, W: Array) -> Array:
        return self.X.T @ (self.X @ W)

    def cross(self, W: Array) -> Array:
        z = self.X @ W
        return np.append(self.Y.T @ z.sum(axis=1), np.vdot(self.targets, z))

    def at(self, root: Array) -> LevelSystems:
        return _Primal(self, root) if root.shape[1] <= len(self.X) else _Dual(self, self.X @ root)


class _Primal(LevelSystems):
    """One unknown for each column of the root."""

    def __init__(self, block: SameRows, root: Array):
        G, C, own = block.moments
        self.R = inverse_roots(2 * (root.T @ G @ root)[None], 1.0)[0]
        turn = self.R @ root.T
        self.schur = 2 * block.added(turn @ C, turn @ own)

    def solve(self, r: Array) -> Array:
        return self.R.T @ (self.R @ r)


class _Dual(LevelSystems):
    """One unknown for each row, with ``K = I + 2XX'``: ``A^-1 = I - 2X'K^-1 X``, and ``Y'Y`` less ``schur`` is ``Y'K^-1 Y``."""

    def __init__(self, block: SameRows, X: Array):
        self.X, self.R = X, inverse_roots(2 * (X @ X.T)[None], 1.0)[0]
        self.schur = block.gram - block.added(self.R @ block.Y, self.R @ block.targets)

    def solve(self, r: Array) -> Array:
        return r - 2 * self.X.T @ (self.R.T @ (self.R @ (self.X @ r)))
