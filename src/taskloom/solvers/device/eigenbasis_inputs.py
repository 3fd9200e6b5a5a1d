"""Shared inputs with complete targets: one eigendecomposition, then matrices of the size of the tasks.

Along the eigenvectors of the inputs the rows are independent (``task_data.Rows``). Certificates are computed from the moments
of the original problem, not from the eigenvectors.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..._array_api import double, eigh, inner, like, namespace, to_numpy
from ..._time_limit import check_time
from ...design.task_data import Rows, TaskBlock
from ...structures import Structure
from ..factor.newton import Point
from .device_problem import DeviceProblem, DualCandidate

Array = Any
MAX_BLOCK_ENTRIES = 1 << 27  # entries of the inputs that are read at a time


class Shared(DeviceProblem):
    """Common part of both layouts. ``s`` are the row weights (sum 1), ``c`` the task weights."""

    def __init__(
        self, X: Array, Y: Array, s: np.ndarray, c: np.ndarray, structure: Structure, alpha: float, fit_intercept: bool = True
    ):
        super().__init__(X, structure, alpha, fit_intercept)
        self.n_tasks, Y = c.size, double(Y)
        self.s, self.c = self._double(s), self._double(c)
        self.root = self.xp.sqrt(self.c)
        self.y_mean = self._double(self.s @ Y) if fit_intercept else self._double(np.zeros(c.size))
        raw = self.xp.sum(self.s[:, None] * Y**2, axis=0)
        self.rounding_floor = float(raw @ self.c) * (np.finfo(float).eps * (4 + X.shape[0])) ** 2
        self._decompose(Y)

    def _decompose(self, Y: Array) -> None:
        """Set ``scale`` and ``data``, for targets in double precision."""
        raise NotImplementedError

    def _double(self, values: Any) -> Array:
        values = np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values
        return self.xp.asarray(values, dtype=self.xp.float64, device=self.X.device)

    def _prove(self, left: Array, along: Array, correlation: Array, penalty: float) -> tuple[float, float, list[DualCandidate]]:
        """The terms of a certificate from moments of the residuals ``R``: ``R'R``, ``R'Y`` and ``Z'Z``, each ``T x T``.

        A second dual candidate projects ``Z`` onto the domain of the trace penalty, by a multiplication of ``G`` from the
        right.
        """
        xp = self.xp
        loss = float(xp.sum(self.c * xp.linalg.diagonal(left)))
        gain = 2 * float(xp.sum(self.c * xp.linalg.diagonal(along)))
        squares, V = eigh(correlation / (4 * self.alpha))
        squares = np.maximum(squares, 0.0)
        candidates = [DualCandidate(gain, loss, squares)]
        if squares[-1] > 1:
            s = np.sqrt(squares)
            V = like(V, correlation)
            cut = like(np.maximum(1 - 1 / np.maximum(s, 1.0), 0.0), correlation)
            N = like(np.eye(s.size), correlation) - (V * cut) @ V.T
            mixed = self.c[:, None] * N
            cost = float(xp.sum(xp.linalg.diagonal(mixed.T @ left @ mixed) / self.c))
            candidates.append(DualCandidate(2 * inner(mixed, along), cost, np.minimum(squares, 1.0)))
        return loss, penalty, candidates


class EigenbasisInputs(Shared):
    """Few features: the moments are added up over blocks of rows, and rows are never seen again.

    Parameters
    ----------
    X : array of shape (n, d), on its device
    Y : array of shape (n, T), on the same device
    s, c : ndarray
        Weights of the rows (sum 1) and of the tasks.
    structure : Structure
    alpha : float
    fit_intercept : bool
    """

    single = False  # moments are added up in double precision, whatever the inputs

    def _decompose(self, Y: Array) -> None:
        X, xp, (n, d) = self.X, self.xp, self.X.shape
        self.x_mean = self._double(np.zeros(d))
        rows = max(MAX_BLOCK_ENTRIES // d, 1)
        pieces = [slice(first, min(first + rows, n)) for first in range(0, n, rows)]
        if self.fit_intercept:
            self.x_mean = sum(self.s[some] @ self._double(X[some, :]) for some in pieces)
        self.xx: Any = 0.0
        self.xy: Any = 0.0
        self.yy: Any = 0.0
        for some in pieces:
            check_time()
            root = xp.sqrt(self.s[some])[:, None]
            inputs = root * (self._double(X[some, :]) - self.x_mean)
            targets = root * (Y[some, :] - self.y_mean)
            self.xx, self.xy = self.xx + inputs.T @ inputs, self.xy + inputs.T @ targets
            self.yy = self.yy + targets.T @ targets
        self.scale = float(xp.sum(self.c * xp.linalg.diagonal(self.yy)))
        k, V = xp.linalg.eigh(self.xx)
        first = first_kept(k)
        self.V, d_root = V[:, first:], xp.sqrt(k[first:])
        self.data: list[TaskBlock] = [Rows(d_root, (self.V.T @ self.xy) / d_root[:, None] * self.root, self.root)]

    def weights(self, point: Point | None) -> Array:
        """``W`` (``d x T``)."""
        return 0.0 * self.xy if point is None else self.V @ point.tasks.weights()

    def to_inner(self, coef: np.ndarray) -> Array:
        return self.V.T @ self._double(coef.T)

    def terms(self, point: Point | None) -> tuple[float, float, list[DualCandidate]]:
        W = self.weights(point)
        explained = self.xx @ W
        along = self.yy - W.T @ self.xy
        left = along - self.xy.T @ W + W.T @ explained
        Z = 2 * (self.xy - explained) * self.c
        return self._prove(left, along, Z.T @ Z, 0.0 if point is None else point.penalty)

    def loss_of(self, W: Array, b: Array) -> float:
        off = self.y_mean - W @ self.x_mean - b
        left = self.xp.linalg.diagonal(self.yy - 2 * (W @ self.xy) + W @ self.xx @ W.T)
        return float(self.xp.sum(self.c * (left + off**2)))

    def fitted(self, point: Point | None) -> tuple[Array, Array, Array]:
        """Weights (``T x d``), intercepts and ``Z'`` (``T x d``) on the device."""
        W = self.weights(point)
        Z = 2 * (self.xy - self.xx @ W) * self.c
        return W.T, self.y_mean - self.x_mean @ W, Z.T


def first_kept(k: Array) -> int:
    """The index of the first eigenvalue above rounding; the last one is always kept."""
    values = to_numpy(k).astype(float)
    noise = len(values) * float(namespace(k).finfo(k.dtype).eps) * max(values[-1], 0.0)
    return min(int(np.searchsorted(values, noise, side="right")), len(values) - 1)
