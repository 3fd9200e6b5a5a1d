"""Inputs that all tasks share, with complete targets: one eigendecomposition, then matrices as small as the tasks are few.

In the eigenvectors of the inputs the problem is one of independent rows (``task_blocks.Rows``). Certificates belong to the
problem that was posed: they are computed from its moments, not from the eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._array_api import cast, double, eigh, inner, like, namespace, place, to_numpy
from ..._component import require
from ..factor_newton import Point
from ..task_blocks import Rows, TaskBlock
from .evidence import DualCandidate, Evidence

Array = Any
BLOCK = 1 << 27  # numbers of the inputs that are read at a time


class _Shared:
    """What both forms have in common. ``s`` are the weights of the rows (sum 1), ``c`` those of the tasks."""

    def __init__(self, X: Array, Y: Array, s: np.ndarray, c: np.ndarray, alpha: float, fit_intercept: bool):
        self.X, self.alpha, self.fit_intercept, self.xp = X, alpha, fit_intercept, namespace(X)
        self.place = place(X)
        self.s, self.c = self._double(s), self._double(c)
        self.root = self.xp.sqrt(self.c)
        self.y_mean = self._double(self.s @ Y) if fit_intercept else self._double(np.zeros(c.size))
        raw = self.xp.sum(self.s[:, None] * Y**2, axis=0)
        self.blur = float(raw @ self.c) * (np.finfo(float).eps * (4 + X.shape[0])) ** 2

    def _double(self, values: Any) -> Array:
        values = np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values
        return self.xp.asarray(values, dtype=self.xp.float64, device=self.X.device)

    def _prove(self, left: Array, along: Array, pull: Array, penalty: float) -> Evidence:
        """The evidence in moments of the residuals ``R``: ``R'R``, ``R'Y`` and ``Z'Z``, each ``T x T``.

        A second candidate cuts what ``Z`` exceeds the bound of a trace penalty by, and nothing else: with shared inputs that is
        a multiplication of ``G`` from the right.
        """
        xp = self.xp
        loss = float(xp.sum(self.c * xp.linalg.diagonal(left)))
        gain = 2 * float(xp.sum(self.c * xp.linalg.diagonal(along)))
        squares, V = eigh(pull / (4 * self.alpha))
        squares = np.maximum(squares, 0.0)
        candidates = [DualCandidate(gain, loss, squares)]
        if squares[-1] > 1:
            s = np.sqrt(squares)
            V = like(V, pull)
            cut = like(np.maximum(1 - 1 / np.maximum(s, 1.0), 0.0), pull)
            N = like(np.eye(s.size), pull) - (V * cut) @ V.T
            mixed = self.c[:, None] * N
            cost = float(xp.sum(xp.linalg.diagonal(mixed.T @ left @ mixed) / self.c))
            candidates.append(DualCandidate(2 * inner(mixed, along), cost, np.minimum(squares, 1.0)))
        return Evidence(loss, penalty, candidates)


class SharedInputs(_Shared):
    """Few features: the moments are added up over blocks of rows, and rows are never seen again.

    Parameters
    ----------
    X : array of shape (n, d), on its device
    Y : array of shape (n, T), on the same device
    s, c : ndarray
        Weights of the rows (sum 1) and of the tasks.
    alpha : float
    fit_intercept : bool
    """

    single = False  # moments are added up in double precision, whatever the inputs

    def __init__(self, X: Array, Y: Array, s: np.ndarray, c: np.ndarray, alpha: float, fit_intercept: bool = True):
        super().__init__(X, Y := double(Y), s, c, alpha, fit_intercept)
        xp, (n, d) = self.xp, X.shape
        self.x_mean = self._double(np.zeros(d))
        rows = max(BLOCK // d, 1)
        pieces = [slice(first, min(first + rows, n)) for first in range(0, n, rows)]
        if fit_intercept:
            self.x_mean = sum(self.s[some] @ self._double(X[some, :]) for some in pieces)
        self.xx: Any = 0.0
        self.xy: Any = 0.0
        self.yy: Any = 0.0
        for some in pieces:
            root = xp.sqrt(self.s[some])[:, None]
            inputs = root * (self._double(X[some, :]) - self.x_mean)
            targets = root * (Y[some, :] - self.y_mean)
            self.xx, self.xy = self.xx + inputs.T @ inputs, self.xy + inputs.T @ targets
            self.yy = self.yy + targets.T @ targets
        self.scale = float(xp.sum(self.c * xp.linalg.diagonal(self.yy)))
        k, V = xp.linalg.eigh(self.xx)
        first = _first_kept(k)
        self.V, d_root = V[:, first:], xp.sqrt(k[first:])
        self.data: list[TaskBlock] = [Rows(d_root, (self.V.T @ self.xy) / d_root[:, None] * self.root, self.root)]

    def weights(self, point: Point | None) -> Array:
        """``W`` (``d x T``)."""
        return 0.0 * self.xy if point is None else self.V @ point.weights()

    def evidence(self, point: Point | None) -> Evidence:
        W = self.weights(point)
        explained = self.xx @ W
        along = self.yy - W.T @ self.xy
        left = along - self.xy.T @ W + W.T @ explained
        Z = 2 * (self.xy - explained) * self.c
        return self._prove(left, along, Z.T @ Z, 0.0 if point is None else point.penalty)

    def fitted(self, point: Point | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weights (``T x d``), intercepts and ``Z'`` (``T x d``) as NumPy's."""
        W = self.weights(point)
        Z = 2 * (self.xy - self.xx @ W) * self.c
        return to_numpy(W.T), to_numpy(self.y_mean - self.x_mean @ W), to_numpy(Z.T)


class KernelInputs(_Shared):
    """A kernel: one decomposition of the ``n x n`` matrix, in the precision of the inputs.

    Parameters
    ----------
    X : array of shape (n, d), on its device
    kernel : callable
        ``k(X, Z)`` for arrays on the device; see ``accelerated_kernel``.
    Y, s, c, alpha, fit_intercept
        As in ``SharedInputs``.
    """

    def __init__(
        self, X: Array, kernel: Callable, Y: Array, s: np.ndarray, c: np.ndarray, alpha: float, fit_intercept: bool = True
    ):
        xp = namespace(X)
        super().__init__(X, Y := double(Y), s, c, alpha, fit_intercept)
        self.single = X.dtype == xp.float32
        inputs = double(X)
        self.K = kernel(inputs, inputs)
        finite = bool(xp.all(xp.isfinite(self.K)))
        require(finite, "the kernel gave NaN or infinity; scale X or change the kernel's parameters")
        if fit_intercept:
            self.k_mean = self.s @ self.K
            self.K -= self.k_mean[:, None]
            self.K -= (self.k_mean - float(self.s @ self.k_mean))[None, :]
        self.row_root = xp.sqrt(self.s)[:, None]
        self.K *= self.row_root
        self.K *= self.row_root.T
        self.Y = self.row_root * (Y - self.y_mean)
        self.scale = inner(self.Y**2, xp.ones_like(self.Y) * self.c)
        k, U = xp.linalg.eigh(cast(self.K, X.dtype))
        low, high = float(k[0]), float(k[-1])
        require(
            low >= -max(1e-7, X.shape[0] * float(xp.finfo(k.dtype).eps)) * max(high, 0.0) and high >= 0,
            f"the kernel is not positive semidefinite: its matrix has smallest eigenvalue {low:.3g} (largest {high:.3g}); "
            "choose another kernel, or other parameters of it",
        )
        first = _first_kept(k)
        self.U, self.d = U[:, first:], xp.sqrt(k[first:])
        root = cast(self.root, X.dtype)
        self.data: list[TaskBlock] = [Rows(self.d, (self.U.T @ cast(self.Y, X.dtype)) * root, root)]

    def coefficients(self, point: Point | None) -> Array:
        """Of the centred, weighted features; ``n x T``."""
        if point is None:
            return 0.0 * self.Y
        return double(self.U @ (point.weights() / self.d[:, None]))

    def evidence(self, point: Point | None) -> Evidence:
        C = self.coefficients(point)
        values = self.K @ C
        left = self.Y - values
        penalty = 0.0 if point is None else point.penalty
        if self.single and point is not None:  # in single precision eigenvectors are not quite orthogonal
            penalty = self._penalty(C.T @ values, point)
        pull = 4 * self.c[:, None] * (left.T @ (self.K @ left)) * self.c
        return self._prove(left.T @ left, left.T @ self.Y, pull, penalty)

    def _penalty(self, products: Array, point: Point) -> float:
        """The penalty for these inner products of the tasks; rounding is charged for, so that it is never too small."""
        energy = np.maximum(eigh(products)[0], 0.0)
        energy = energy + np.finfo(float).eps * energy[-1]
        if point.p == 0:
            return self.alpha * float(energy.sum())
        a = (self.alpha * energy / point.p) ** (1 / (point.p + 1))
        return float(np.sum(np.divide(self.alpha * energy, a, out=np.zeros_like(a), where=a > 0) + a**point.p))

    def fitted(self, point: Point | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Dual coefficients (``n x T``), intercepts, the inner products of the tasks, and those of ``Z`` with them."""
        C = self.coefficients(point)
        values = self.K @ C
        products, pulls = C.T @ values, 2 * self.c[:, None] * ((self.Y - values).T @ values)
        dual = self.row_root * C
        b = self.y_mean
        if self.fit_intercept:
            dual = dual - self.s[:, None] * self.xp.sum(dual, axis=0)
            b = b - self.k_mean @ dual
        return to_numpy(dual), to_numpy(b), to_numpy(products), to_numpy(pulls)


def _first_kept(k: Array) -> int:
    """Where eigenvalues begin that are more than rounding; the last one is always kept."""
    values = to_numpy(k).astype(float)
    noise = len(values) * float(namespace(k).finfo(k.dtype).eps) * max(values[-1], 0.0)
    return min(int(np.searchsorted(values, noise, side="right")), len(values) - 1)


def accelerated_kernel(kernel: str, gamma: float | None, degree: float, coef0: float) -> Callable[[Array, Array], Array] | None:
    """A kernel of scikit-learn by its name, for arrays of any library; ``None`` for kernels that are not made of products."""

    def products(X: Array, Z: Array) -> Array:
        return X @ Z.T

    def polynomial(X: Array, Z: Array) -> Array:
        return ((1 / X.shape[1] if gamma is None else gamma) * (X @ Z.T) + coef0) ** degree

    def rbf(X: Array, Z: Array) -> Array:
        xp = namespace(X)
        distances = X @ Z.T
        distances *= -2
        distances += xp.sum(X * X, axis=1)[:, None]
        distances += xp.sum(Z * Z, axis=1)[None, :]
        distances = xp.where(distances > 0, distances, xp.zeros_like(distances[:1, :1]))
        distances *= -(1 / X.shape[1] if gamma is None else gamma)
        return xp.exp(distances)

    return {"linear": products, "poly": polynomial, "polynomial": polynomial, "rbf": rbf}.get(kernel)
