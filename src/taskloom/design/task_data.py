"""Blocks of tasks under the squared loss, for Newton's method on a factor ``Q`` of ``D = QQ'``.

Every task minimises ``||y_t - X_t Q b||^2 + alpha ||b||^2``. Written once for NumPy, PyTorch and CuPy.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from .._array_api import cast, eigh, inverse_roots, like, namespace, row_products, times, times_transposed

Array = Any  # of any of the libraries


class Solved:
    """The tasks of a block at ``Q``: coefficients ``B``, correlations ``Z`` and minima, each with a row for each task.

    Parameters
    ----------
    block : TaskBlock
    Q : array
    alpha : float

    Attributes
    ----------
    size : array
        That of the block: the mean over the directions of the inputs of their sum of squares, for each task.
    residual_share : array
        The root of the unexplained share of the targets of each task: how far a change of ``Q`` cannot be undone.
    """

    R: Array  # inverse roots of the systems

    def __init__(self, block: Any, Q: Array, alpha: float):
        self.block, self.size = block, block.size
        self.B, self.Z, self.minimum = self._minimise(block, Q, alpha)
        xp, squares = namespace(block.squares), block.squares
        tiny = float(xp.finfo(squares.dtype).smallest_normal)
        self.residual_share = xp.sqrt((abs(self.minimum) + tiny) / (squares + tiny))  # rounding may make a minimum negative

    def _minimise(self, block: Any, Q: Array, alpha: float) -> tuple[Array, Array, Array]:
        """``B``, ``Z`` and the minimum of the objective of each task."""
        raise NotImplementedError

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        """The derivatives of ``B`` and of ``-Z`` when ``Q`` changes ``QB`` by ``dW`` and ``Q'Z`` by ``dZ``."""
        raise NotImplementedError

    def _solve(self, x: Array) -> Array:
        return times_transposed(self.R, times(self.R, x))

    def in_precision_of(self, block: TaskBlock) -> Self:
        """A copy that computes in the precision of ``block``, which holds the same numbers."""
        twin = copy(self)
        twin.block = block
        for name in {"P", "Q", "R"} & vars(self).keys():
            setattr(twin, name, cast(getattr(self, name), block.inputs.dtype))
        return twin


class TaskBlock:
    """Base of blocks of tasks."""

    solved: ClassVar[type[Solved]]  # of a block, a factor and alpha: the tasks at their minima
    inputs: Array  # its last axis are the features, its type is that of all numbers
    size: Array
    squares: Array  # sum of the squared targets of each task

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the inputs."""
        return self.inputs.shape

    def independent_fit(self, shrink: float) -> Array:
        """Approximate ridge solutions of the tasks, one row each; the ridge is ``shrink`` times the size of the inputs."""
        raise NotImplementedError

    def single(self) -> Self:
        """A copy in single precision."""
        held = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        numbers = {name: values for name, values in held.items() if getattr(values, "dtype", None) == np.float64}
        return replace(self, **{name: values.astype(np.float32) for name, values in numbers.items()})  # type: ignore[type-var]


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


def along(G: Array, Q: Array) -> Array:
    """``Q'GQ`` for each of the matrices ``G``."""
    n, d = G.shape[:2]
    xp = namespace(G)
    return Q.T @ xp.reshape(xp.reshape(G, (n * d, d)) @ Q, (n, d, Q.shape[1]))


class _SolvedStack(Solved):
    """Solutions of the systems ``P'P + alpha`` or ``PP' + alpha``, ``P = XQ``, whichever are smaller."""

    def _minimise(self, block: Stack, Q: Array, alpha: float) -> tuple[Array, Array, Array]:
        self.alpha, self.P = alpha, block.along(Q)
        self.wide, across = self.P.shape[2] > self.P.shape[1], namespace(Q).matrix_transpose(self.P)
        self.R = inverse_roots(self.P @ across if self.wide else across @ self.P, alpha)
        if self.wide:
            u = self._solve(block.y)
            B, left = times_transposed(self.P, u), alpha * u
        else:
            B = self._solve(times_transposed(self.P, block.y))
            left = block.y - times(self.P, B)
        return B, 2 * times_transposed(block.X, left), row_products(block.y, left)

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        X, dZ = self.block.X, dZ / 2
        e = times(X, dW)
        if self.wide:
            e = self._solve(times(self.P, dZ) + self.alpha * e)
            dB = (dZ - times_transposed(self.P, e)) / self.alpha
        else:
            dB = self._solve(dZ - times_transposed(self.P, e))
            e = e + times(self.P, dB)
        return dB, 2 * times_transposed(X, e)


class StackedRows(TaskBlock):
    """Base of tasks of similar size: centred inputs (``B x m x d``) and targets, times the square roots of the weights."""

    solved = _SolvedStack
    X: Array
    y: Array
    tasks: Array | slice

    @property
    def inputs(self) -> Array:
        return self.X

    @cached_property
    def squares(self) -> Array:
        return row_products(self.y, self.y)

    def along(self, Q: Array) -> Array:
        """``XQ``."""
        xp, (n, m, d) = namespace(Q), self.X.shape
        return xp.reshape(xp.reshape(self.X, (n * m, d)) @ Q, (n, m, Q.shape[1]))

    def moments_along(self, U: Array) -> Array:
        """``U'X'XU`` for each task."""
        rows = self.along(cast(U, self.inputs.dtype))
        return np.matmul(rows.transpose(0, 2, 1), rows)

    def independent_fit(self, shrink: float) -> Array:
        lift = shrink * self.size
        return three_cg_steps(lambda W: times_transposed(self.X, times(self.X, W)), times_transposed(self.X, self.y), lift)


@dataclass(frozen=True, eq=False)
class Stack(StackedRows):
    """Tasks of similar size, with a copy of their inputs (``B x m x d``) and targets (``B x m``)."""

    X: Array
    y: Array
    size: Array
    tasks: Array | slice = field(default_factory=lambda: slice(None))  # positions among all tasks

    @classmethod
    def of(cls, X: Array, y: Array) -> Stack:
        return cls(X, y, namespace(X).sum(X * X, axis=(1, 2)) / X.shape[2])


class _SolvedGrams(Solved):
    """Solutions of the systems ``Q'X'XQ + alpha``."""

    def _minimise(self, block: Grams, Q: Array, alpha: float) -> tuple[Array, Array, Array]:
        self.Q, self.R, target = Q, inverse_roots(along(block.G, Q), alpha), block.c @ Q
        B = self._solve(target)
        return B, 2 * (block.c - times(block.G, B @ Q.T)), block.squares - row_products(target, B)

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        G = self.block.G
        correlation = times(G, dW)
        dB = self._solve(dZ / 2 - correlation @ self.Q)
        return dB, 2 * (correlation + times(G, dB @ self.Q.T))


@dataclass(frozen=True, eq=False)
class Grams(TaskBlock):
    """Tasks stored by Gram matrices: ``X'X`` (``B x d x d``), ``X'y`` (``B x d``) and ``y'y``."""

    solved = _SolvedGrams
    G: Array
    c: Array
    squares: Array
    size: Array
    tasks: Array | slice = field(default_factory=lambda: slice(None))  # positions among all tasks

    @property
    def inputs(self) -> Array:
        return self.G

    def moments_along(self, U: Array) -> Array:
        """``U'X'XU`` for each task."""
        return along(self.G, cast(U, self.inputs.dtype))

    def independent_fit(self, shrink: float) -> Array:
        return three_cg_steps(lambda W: times(self.G, W), self.c, shrink * self.size)


class _SolvedRows(Solved):
    """Solutions of the systems ``d_i^2 E + alpha`` with ``E = Q' diag(c) Q``."""

    def _minimise(self, block: Rows, Q: Array, alpha: float) -> tuple[Array, Array, Array]:
        self.d, self.Q = block.d[:, None], block.root[:, None] * Q
        e, V = eigh(self.Q.T @ self.Q)
        self.V = like(V, Q)
        self.inverse = 1 / (self.d**2 * like(np.maximum(e, 0.0), Q) + alpha)
        B = self._solve(self.d * (block.y @ self.Q))
        left = block.y - self.d * (B @ self.Q.T)
        return B, 2 * self.d * left * block.root, row_products(block.y, left)

    def _solve(self, x: Array) -> Array:
        return ((x @ self.V) * self.inverse) @ self.V.T

    def derivative(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        e = self.d * dW * self.block.root
        dB = self._solve(dZ / 2 - self.d * (e @ self.Q))
        e = e + self.d * (dB @ self.Q.T)
        return dB, 2 * self.d * e * self.block.root


@dataclass(frozen=True, eq=False)
class Rows(TaskBlock):
    """Shared inputs along the eigenvectors of their Gram matrix: row ``i`` has inputs ``d_i diag(root)`` and targets ``y_i``.

    The rows take the place of the tasks and the structure acts on the tasks. One small eigendecomposition solves all systems.
    """

    solved = _SolvedRows
    d: Array
    y: Array  # one row for each ``d_i``
    root: Array  # sqrt(c), for each task of the problem

    @property
    def inputs(self) -> Array:
        return self.root

    @cached_property
    def size(self) -> Array:
        return self.d**2 * float(namespace(self.root).mean(self.root**2))

    @cached_property
    def squares(self) -> Array:
        return row_products(self.y, self.y)

    def independent_fit(self, shrink: float) -> Array:
        k = self.d**2
        return (self.d / (k + (typical(k) or 1.0)))[:, None] * self.y * self.root
