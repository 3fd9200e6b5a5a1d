"""Blocks of tasks under the squared loss, for Newton's method on a factor ``Q`` of ``D = QQ'``.

Every task minimises ``||y_t - X_t Q b||^2 + alpha ||b||^2``. Written once for NumPy, PyTorch and CuPy.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from .._array_api import cast, eigh, inverse_roots, like, namespace, row_products, times, times_transposed

Array = Any  # of any of the libraries


class Solved(Protocol):
    """The tasks of a block at ``Q``: coefficients, gradients and directional derivatives."""

    B: Array
    Z: Array
    size: Array  # mean over the directions of the inputs of their sum of squares, for each task
    minimum: Array  # minimum of the objective of each task
    residual_share: Array  # see ``residual_share``

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        """The derivatives of ``B`` and of ``-Z`` when ``Q`` changes ``QB`` by ``dW`` and ``Q'Z`` by ``dZ``."""
        ...


class TaskBlock(Protocol):
    """The interface of a block of tasks."""

    @property
    def size(self) -> Array: ...

    @property
    def squares(self) -> Array: ...  # sum of the squared targets of each task

    @property
    def dtype(self) -> Any: ...

    @property
    def n_tasks(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    def at(self, Q: Array, alpha: float) -> Solved: ...

    def independent_fit(self, shrink: float) -> Array:
        """Approximate ridge solutions of the tasks, one row each; the ridge is ``shrink`` times the size of the inputs."""
        ...


@dataclass(frozen=True, eq=False)
class Stack:
    """Tasks of similar size: centred inputs (``B x m x d``) and targets (``B x m``), times the square roots of the weights."""

    X: Array
    y: Array
    size: Array

    @classmethod
    def of(cls, X: Array, y: Array) -> Stack:
        return cls(X, y, namespace(X).sum(X * X, axis=(1, 2)) / X.shape[2])

    @property
    def dtype(self) -> Any:
        return self.X.dtype

    @property
    def n_tasks(self) -> int:
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        return self.X.shape[2]

    @cached_property
    def squares(self) -> Array:
        return row_products(self.y, self.y)

    def at(self, Q: Array, alpha: float) -> _SolvedStack:
        return _SolvedStack(self, Q, alpha)

    def independent_fit(self, shrink: float) -> Array:
        lift = shrink * self.size
        return three_cg_steps(lambda W: times_transposed(self.X, times(self.X, W)), times_transposed(self.X, self.y), lift)


def typical(sizes: Array) -> float:
    """The mean of sizes weighted by size, so that zeros do not count."""
    xp = namespace(sizes)
    total = float(xp.sum(sizes))
    return float(xp.sum(sizes * (sizes / total))) if total > 0 else 0.0


def eye_like(like_this: Array) -> Array:
    return like(np.eye(like_this.shape[-1]), like_this)


def three_cg_steps(product: Callable[[Array], Array], target: Array, lift: Array) -> Array:
    """Approximate solutions of ``(H + lift) W = target`` for each task: three steps of conjugate gradients."""
    xp = namespace(target)
    tiny = float(xp.finfo(target.dtype).smallest_normal)  # no division by zero
    peak = float(xp.max(xp.abs(target))) or 1.0  # scaled, so that squares neither overflow nor vanish
    lift, p = (lift + tiny)[:, None], target / peak
    W, r, length = 0 * p, p, row_products(p, p)
    for last in (False, False, True):
        Hp = product(p) + lift * p
        step = (length / (row_products(p, Hp) + tiny))[:, None]
        W = W + step * p
        if last:
            break
        r, before = r - step * Hp, length
        length = row_products(r, r)
        p = r + (length / (before + tiny))[:, None] * p
    return peak * W


def residual_share(minimum: Array, squares: Array) -> Array:
    """The root of the unexplained share of the targets of each task: how far a change of ``Q`` cannot be undone."""
    tiny = float(namespace(squares).finfo(squares.dtype).smallest_normal)
    return namespace(minimum).sqrt((abs(minimum) + tiny) / (squares + tiny))  # rounding may make the minimum negative


@dataclass(frozen=True, eq=False)
class Grams:
    """Tasks stored by Gram matrices: ``X'X`` (``B x d x d``), ``X'y`` (``B x d``) and ``y'y``."""

    G: Array
    c: Array
    squares: Array
    size: Array

    @property
    def dtype(self) -> Any:
        return self.G.dtype

    @property
    def n_tasks(self) -> int:
        return self.G.shape[0]

    @property
    def n_features(self) -> int:
        return self.G.shape[1]

    def at(self, Q: Array, alpha: float) -> _SolvedGrams:
        return _SolvedGrams(self, Q, alpha)

    def independent_fit(self, shrink: float) -> Array:
        return three_cg_steps(lambda W: times(self.G, W), self.c, shrink * self.size)


class _SolvedGrams:
    """Solutions of the systems ``Q'X'XQ + alpha``."""

    def __init__(self, block: Grams, Q: Array, alpha: float):
        self.G, self.size, self.Q = block.G, block.size, Q
        self.R = inverse_roots(along(block.G, Q), alpha)
        target = block.c @ Q
        self.B = self._solve(target)
        self.minimum = block.squares - row_products(target, self.B)
        self.residual_share = residual_share(self.minimum, block.squares)
        self.Z = 2 * (block.c - times(block.G, self.B @ Q.T))

    def _solve(self, x: Array) -> Array:
        return times_transposed(self.R, times(self.R, x))

    def in_precision_of(self, block: Grams) -> _SolvedGrams:
        """A copy that computes in the precision of ``block``, which holds the same products."""
        twin = copy(self)
        twin.G, twin.Q, twin.R = block.G, cast(self.Q, block.dtype), cast(self.R, block.dtype)
        return twin

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        correlation = times(self.G, dW)
        dB = self._solve(dZ / 2 - correlation @ self.Q)
        return dB, 2 * (correlation + times(self.G, dB @ self.Q.T))


def along(G: Array, Q: Array) -> Array:
    """``Q'GQ`` for each of the matrices ``G``."""
    n, d = G.shape[:2]
    xp = namespace(G)
    return Q.T @ xp.reshape(xp.reshape(G, (n * d, d)) @ Q, (n, d, Q.shape[1]))


class _SolvedStack:
    """Solutions of the systems ``P'P + alpha`` or ``PP' + alpha``, ``P = XQ``, whichever are smaller."""

    def __init__(self, block: Stack, Q: Array, alpha: float):
        self.X, self.size, self.alpha = block.X, block.size, alpha
        xp = namespace(Q)
        n, m, d = block.X.shape
        self.P = P = xp.reshape(xp.reshape(block.X, (n * m, d)) @ Q, (n, m, Q.shape[1]))
        self.wide = P.shape[2] > m
        across = xp.matrix_transpose(P)
        self.R = inverse_roots(P @ across if self.wide else across @ P, alpha)
        if self.wide:
            u = self._solve(block.y)
            self.B, left = times_transposed(P, u), alpha * u
        else:
            self.B = self._solve(times_transposed(P, block.y))
            left = block.y - times(P, self.B)
        self.minimum = row_products(block.y, left)
        self.residual_share = residual_share(self.minimum, block.squares)
        self.Z = 2 * times_transposed(block.X, left)

    def _solve(self, x: Array) -> Array:
        return times_transposed(self.R, times(self.R, x))

    def in_precision_of(self, block: Stack) -> _SolvedStack:
        """A copy that computes in the precision of ``block``, which holds the same inputs."""
        twin = copy(self)
        twin.X, twin.P, twin.R = block.X, cast(self.P, block.dtype), cast(self.R, block.dtype)
        return twin

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        e, dZ = times(self.X, dW), dZ / 2
        if self.wide:
            e = self._solve(times(self.P, dZ) + self.alpha * e)
            dB = (dZ - times_transposed(self.P, e)) / self.alpha
        else:
            dB = self._solve(dZ - times_transposed(self.P, e))
            e = e + times(self.P, dB)
        return dB, 2 * times_transposed(self.X, e)


@dataclass(frozen=True, eq=False)
class Rows:
    """Shared inputs along the eigenvectors of their Gram matrix: row ``i`` has inputs ``d_i diag(root)`` and targets ``y_i``.

    The rows take the place of the tasks and the structure acts on the tasks. One small eigendecomposition solves all systems.
    """

    d: Array
    y: Array  # one row for each ``d_i``
    root: Array  # sqrt(c), for each task of the problem

    @property
    def size(self) -> Array:
        return self.d**2 * float(namespace(self.root).mean(self.root**2))

    @property
    def dtype(self) -> Any:
        return self.y.dtype

    @property
    def n_tasks(self) -> int:
        return self.y.shape[0]

    @property
    def n_features(self) -> int:
        return self.y.shape[1]

    @property
    def squares(self) -> Array:
        return row_products(self.y, self.y)

    def at(self, Q: Array, alpha: float) -> _SolvedRows:
        return _SolvedRows(self, Q, alpha)

    def independent_fit(self, shrink: float) -> Array:
        k = self.d**2
        return (self.d / (k + (typical(k) or 1.0)))[:, None] * self.y * self.root


class _SolvedRows:
    """Solutions of the systems ``d_i^2 E + alpha`` with ``E = Q' diag(c) Q``."""

    def __init__(self, block: Rows, Q: Array, alpha: float):
        self.block, self.size, self.d = block, block.size, block.d[:, None]
        self.Q = block.root[:, None] * Q
        e, V = eigh(self.Q.T @ self.Q)
        self.V = like(V, Q)
        self.inverse = 1 / (self.d**2 * like(np.maximum(e, 0.0), Q) + alpha)
        self.B = self._solve(self.d * (block.y @ self.Q))
        left = block.y - self.d * (self.B @ self.Q.T)
        self.minimum = row_products(block.y, left)
        self.residual_share = residual_share(self.minimum, row_products(block.y, block.y))
        self.Z = 2 * self.d * left * block.root

    def _solve(self, x: Array) -> Array:
        return ((x @ self.V) * self.inverse) @ self.V.T

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        e = self.d * dW * self.block.root
        dB = self._solve(dZ / 2 - self.d * (e @ self.Q))
        e = e + self.d * (dB @ self.Q.T)
        return dB, 2 * self.d * e * self.block.root
