"""Tasks in blocks, as Newton's method on a factor wants them: inputs of their own, or multiples of one diagonal matrix.

Written once for NumPy, PyTorch and CuPy. With ``D = QQ'``, every task minimises ``||y_t - X_t Q b||^2 + alpha ||b||^2``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .._array_api import eigh, inverse_roots, like, namespace, times, times_transposed

Array = Any  # of any of the libraries


class Solved(Protocol):
    """The tasks of a block at ``Q``: coefficients, what is left of the targets, slopes, and how they answer to a change."""

    B: Array
    left: Array
    Z: Array
    size: Array  # the mean over the features of the sum of squares of the inputs, for each task
    y: Array

    def answer(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        """The change of ``B`` and of ``-Z``, when ``Q`` moves ``QB`` by ``dW`` and ``Q'Z`` by ``dZ``."""
        ...


class TaskBlock(Protocol):
    """Some tasks, and what Newton's method asks of them."""

    @property
    def n_tasks(self) -> int: ...

    def at(self, Q: Array, alpha: float) -> Solved: ...

    def alone(self) -> Array:
        """Every task on its own, with a little shrinkage: weights, a row for each task."""
        ...


@dataclass(frozen=True, eq=False)
class Stack:
    """Tasks of similar size: inputs (``B x m x d``) and targets (``B x m``), centred, times the roots of the weights."""

    X: Array
    y: Array
    size: Array

    @classmethod
    def of(cls, X: Array, y: Array) -> Stack:
        return cls(X, y, namespace(X).sum(X * X, axis=(1, 2)) / X.shape[2])

    @property
    def n_tasks(self) -> int:
        return self.X.shape[0]

    def at(self, Q: Array, alpha: float) -> _SolvedStack:
        return _SolvedStack(self, Q, alpha)

    def alone(self) -> Array:
        xp = namespace(self.X)
        gram = self.X @ xp.matrix_transpose(self.X)
        lift = xp.where(self.size > 0, 0.3 * self.size, xp.ones_like(self.size))
        R = inverse_roots(gram + lift[:, None, None] * eye_like(gram))
        return times_transposed(self.X, times_transposed(R, times(R, self.y)))


def eye_like(like_this: Array) -> Array:
    return like(np.eye(like_this.shape[-1]), like_this)


class _SolvedStack:
    """The systems are those of ``P'P + alpha`` or of ``PP' + alpha``, ``P = XQ``, whichever are smaller."""

    def __init__(self, block: Stack, Q: Array, alpha: float):
        self.X, self.y, self.size, self.alpha = block.X, block.y, block.size, alpha
        xp = namespace(Q)
        n, m, d = block.X.shape
        self.P = P = xp.reshape(xp.reshape(block.X, (n * m, d)) @ Q, (n, m, Q.shape[1]))
        self.wide = P.shape[2] > m
        K = P @ xp.matrix_transpose(P) if self.wide else xp.matrix_transpose(P) @ P
        K += (alpha + float(xp.finfo(K.dtype).eps) * xp.linalg.trace(K))[:, None, None] * eye_like(K)
        self.R = inverse_roots(K)
        if self.wide:
            u = self._solve(block.y)
            self.B, self.left = times_transposed(P, u), alpha * u
        else:
            self.B = self._solve(times_transposed(P, block.y))
            self.left = block.y - times(P, self.B)
        self.Z = 2 * times_transposed(block.X, self.left)

    def _solve(self, x: Array) -> Array:
        return times_transposed(self.R, times(self.R, x))

    def answer(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        e = times(self.X, dW)
        pull = dZ / 2 - times_transposed(self.P, e)
        if self.wide:
            through = self._solve(times(self.P, pull))
            dB = (pull - times_transposed(self.P, through)) / self.alpha
            e = e + through
        else:
            dB = self._solve(pull)
            e = e + times(self.P, dB)
        return dB, 2 * times_transposed(self.X, e)


@dataclass(frozen=True, eq=False)
class Rows:
    """Shared inputs in the eigenvectors of their Gram matrix: row ``i`` has the inputs ``d_i diag(root)`` and targets ``y_i``.

    The structure then sits on what used to be the tasks, the rows stand where tasks stood, and one small eigendecomposition
    solves the systems of all rows.
    """

    d: Array
    y: Array  # a row for each
    root: Array  # sqrt(c), one number for each task of the problem

    @property
    def n_tasks(self) -> int:
        return self.y.shape[0]

    def at(self, Q: Array, alpha: float) -> _SolvedRows:
        return _SolvedRows(self, Q, alpha)

    def alone(self) -> Array:
        k = self.d**2
        return (self.d / (k + float(namespace(k).mean(k))))[:, None] * self.y * self.root


class _SolvedRows:
    """All systems are ``d_i^2 E + alpha`` with one ``E = Q' diag(c) Q``."""

    def __init__(self, block: Rows, Q: Array, alpha: float):
        xp = namespace(Q)
        self.block, self.y, self.d = block, block.y, block.d[:, None]
        self.size = block.d**2 * float(xp.mean(block.root**2))
        self.Q = block.root[:, None] * Q
        e, V = eigh(self.Q.T @ self.Q)
        self.V = like(V, Q)
        self.shrunk = 1 / (self.d**2 * like(np.maximum(e, 0.0), Q) + alpha)
        self.B = self._solve(self.d * (block.y @ self.Q))
        self.left = block.y - self.d * (self.B @ self.Q.T)
        self.Z = 2 * self.d * self.left * block.root

    def _solve(self, x: Array) -> Array:
        return ((x @ self.V) * self.shrunk) @ self.V.T

    def answer(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        e = self.d * dW * self.block.root
        dB = self._solve(dZ / 2 - self.d * (e @ self.Q))
        e = e + self.d * (dB @ self.Q.T)
        return dB, 2 * self.d * e * self.block.root
