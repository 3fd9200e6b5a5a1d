"""Shared, fully observed inputs and the squared loss: everything diagonalises (the paper's closed-form supervised step).

With weights ``v_it = s_i c_t``, features and targets centred by ``s`` when there are intercepts, and ``Phi_s = sqrt(s) Phi =
U diag(sqrt(k)) V'``, the Sylvester equation ``Phi_s'Phi_s W diag(c) + alpha W A^-1 = Phi_s'Y_s`` is solved entry by entry in
the eigenvectors of ``Phi_s'Phi_s`` and of ``c^(1/2) A c^(1/2)``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .._linalg import psd_eigh
from ..features.kernels import to_dense, weighted_gram

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
MIN_RELATIVE_SINGULAR_VALUE = 1e-10  # singular values below this share of the largest are dropped as rounding
MIN_NARROW_RATIO = 8  # of features to columns of a factor, from which sparse inputs times the factor are dense
ORTHOGONALITY_TOLERANCE = 1e-13  # largest off-diagonal product of orthogonal columns, relative to the largest squared norm


def separable_weights(design: Design) -> tuple[Array, Array] | None:
    """``(s, c)`` with ``v_it = s_i c_t`` if all tasks see the same rows, each once (``s_i = 0`` elsewhere), else ``None``."""
    obs, T = design.observations, design.n_tasks
    rows = obs.row[: obs.y.size // T]
    if not obs.grouping.same_rows or np.any(np.diff(rows) <= 0):
        return None
    V = obs.weight.reshape(T, rows.size)  # observations are sorted by task, then row
    c = V.sum(axis=1)
    share = V[0] / c[0]
    if not np.allclose(V, c[:, None] * share, rtol=1e-12, atol=0.0):
        return None
    s = np.zeros(design.n_rows)
    s[rows] = share
    return s, c


def orthogonal_columns(phi: Array, mean: Array | None = None) -> Array | None:
    """The squared norms of the columns (less their ``mean``) if these are orthogonal, else ``None``.

    The test compares the Gram matrix with its diagonal on two random vectors.
    """
    n, r = phi.shape
    mean = np.zeros(r) if mean is None else mean
    k = np.einsum("ij,ij->j", phi, phi) - n * mean**2
    x = np.random.default_rng(0).normal(size=(r, 2))
    off = phi.T @ (phi @ x) - n * np.outer(mean, mean @ x) - k[:, None] * x
    return np.maximum(k, 0.0) if np.abs(off).max(initial=0.0) <= ORTHOGONALITY_TOLERANCE * k.max(initial=0.0) else None


class SharedInputs:
    """One decomposition of the features, shared by all structures and regularisation strengths."""

    def __init__(self, design: Design, s: Array, c: Array):
        self.c, self.fit_intercept = c, design.fit_intercept
        obs, T = design.observations, design.n_tasks
        Y = np.zeros((design.n_rows, T))
        Y[obs.row[: obs.y.size // T]] = obs.y.reshape(T, -1).T
        self.x_mean = s @ design.features if design.fit_intercept else np.zeros(design.n_features)
        self.y_mean = s @ Y if design.fit_intercept else np.zeros(T)
        self._features, self._root = design.features, np.sqrt(s)[:, None]
        self.targets = self._root * (Y - self.y_mean) * np.sqrt(c)

    @cached_property
    def features(self) -> Array:
        """``Phi_s``, copied on first use."""
        centred = self._features - self.x_mean
        centred *= self._root
        return centred

    def columns(self, which: Array) -> Array:
        """Some columns of ``Phi_s``, as rows."""
        rows: Array = to_dense(self._features[:, which]).T - self.x_mean[which][:, None]
        return rows * self._root[:, 0]

    def residuals(self, W: Array, rows: Array) -> Array:
        """What weights on some rows, zero on the others, leave of the targets at the best intercepts."""
        return self.targets / np.sqrt(self.c) - self.columns(rows).T @ W

    def _moments_along(self, Q: Array) -> tuple[Array, Array]:
        """``Phi_s'Phi_s`` and ``Phi_s'Y_s`` for the features ``Phi Q``."""
        P = self.features @ Q
        return P.T @ P, P.T @ self.targets

    def _decomposed(self) -> tuple[Array, Array | None, Array]:
        """The eigenvalues and eigenvectors of ``Phi_s'Phi_s`` (``None`` if it is diagonal), and ``Phi_s'Y_s``."""
        k, cross = orthogonal_columns(self.features), self.features.T @ self.targets
        return (*psd_eigh(self.features.T @ self.features), cross) if k is None else (k, None, cross)

    @cached_property
    def eigenbasis(self) -> Eigenbasis:
        return Eigenbasis(self, *self._decomposed())

    def intercepts(self, W: Array) -> Array:
        return self.y_mean - self.x_mean @ W if self.fit_intercept else np.zeros(W.shape[1])

    def on_tasks(self, L: Array, alpha: float) -> tuple[Array, Array, float]:
        """Weights, intercepts and norm at ``A = LL'``."""
        W, _, norm = self.eigenbasis.diagonal.on_tasks(L, alpha)
        return *self.eigenbasis.to_original(W), norm

    def on_features(self, Q: Array, alpha: float) -> tuple[Array, Array, float]:
        """Weights, intercepts and norm at ``D = QQ'``."""
        gram, cross = self._moments_along(Q)
        e, E = psd_eigh(gram)
        B = E @ ((E.T @ cross) / (e[:, None] * self.c + alpha)) * np.sqrt(self.c)
        W = Q @ B
        return W, self.intercepts(W), alpha * float(np.vdot(B, B))


class SparseSharedInputs(SharedInputs):
    """Sparse inputs: only products with them are used, or their Gram matrix, centred afterwards."""

    @cached_property
    def gram(self) -> Array:
        """``Phi_s'Phi_s`` (``r x r``, dense)."""
        return weighted_gram(self._features, self._root[:, 0] ** 2) - np.outer(self.x_mean, self.x_mean)

    @cached_property
    def cross(self) -> Array:
        """``Phi_s'Y_s``; targets are centred, so the inputs need not be."""
        return self._features.T @ (self._root * self.targets)

    def _decomposed(self) -> tuple[Array, Array, Array]:
        return *psd_eigh(self.gram), self.cross

    def _moments_along(self, Q: Array) -> tuple[Array, Array]:
        if MIN_NARROW_RATIO * Q.shape[1] > len(Q):
            return Q.T @ self.gram @ Q, Q.T @ self.cross
        P = self._root * (self._features @ Q - self.x_mean @ Q)
        return P.T @ P, P.T @ self.targets


class DiagonalInputs(SharedInputs):
    """The decomposition of diagonal features; ``targets`` are multiplied by the roots of the weights ``c`` of the tasks."""

    def __init__(self, d: Array, targets: Array, c: Array):
        self.c, self.fit_intercept = c, False
        self.k, self.d, self.targets = d**2, d, targets
        self.rows = np.ascontiguousarray(targets.T)

    def _decomposed(self) -> tuple[Array, None, Array]:
        return self.k, None, self.d[:, None] * self.targets

    def _moments_along(self, Q: Array) -> tuple[Array, Array]:
        P = self.d[:, None] * Q
        return P.T @ P, P.T @ self.targets

    def on_tasks(self, L: Array, alpha: float) -> tuple[Array, Array, float]:
        root_c = np.sqrt(self.c)
        P, a, _ = np.linalg.svd(root_c[:, None] * L, full_matrices=False)  # of the factor: its range is exact
        a = a**2
        inner = (self.d[:, None] * (self.targets @ P)) / (self.k[:, None] * a + alpha)
        W = (inner * a) @ P.T / root_c
        return W, self.intercepts(W), alpha * float(np.sum(inner**2 * a))


class Eigenbasis:
    """Shared, fully observed inputs and the squared loss, along the eigenvectors of the inputs.

    With ``Phi_s = sqrt(s) Phi = U diag(d) V'`` (``s`` the row weights), the objective depends on the targets through ``U'Y_s``
    and on the weights through ``V'W``:

        J(W, b, A) at its best b = constant + sum_t c_t ||(U'Y_s)_t - d o (V'W)_t||^2 + alpha tr(A^+ W'W) + ...

    That is a problem of the same kind with ``r`` rows, diagonal features and no intercepts: an iteration costs ``O(r T^2)``.
    ``U`` comes from ``Phi_s V / d`` and is inaccurate for small ``d``, so solutions are certified on the original problem.

    Parameters
    ----------
    inputs : SharedInputs
    k : array
        Eigenvalues ``d^2``; those below rounding are dropped.
    V : array, optional
        Eigenvectors; ``None`` if the columns of the features are orthogonal.
    cross : array
        ``Phi_s'Y_s``.
    """

    def __init__(self, inputs: SharedInputs, k: Array, V: Array | None, cross: Array):
        order = np.argsort(k)[::-1]
        d = np.sqrt(k[order])
        keep = d > MIN_RELATIVE_SINGULAR_VALUE * max(float(d[0]), np.finfo(float).tiny)
        keep[0] = True
        self.inputs, self.kept, self.n_features = inputs, order[keep], len(order)
        self.V, d = None if V is None else V[:, self.kept], d[keep]
        projected = self.to_inner(cross)
        targets = np.divide(projected, d[:, None], where=d[:, None] > 0, out=np.zeros_like(projected))
        self.diagonal = DiagonalInputs(d, targets, inputs.c)

    @property
    def constant(self) -> float:
        """The part of the loss that no weights can change."""
        whole, inside = self.inputs.targets, self.diagonal.targets
        return float(np.vdot(whole, whole) - np.vdot(inside, inside))

    def to_inner(self, W: Array) -> Array:
        """Weights along the eigenvectors."""
        return W[self.kept] if self.V is None else self.V.T @ W

    def to_original(self, W: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the original features."""
        if self.V is None:
            outside = np.zeros((self.n_features, W.shape[1]))
            outside[self.kept] = W
        else:
            outside = self.V @ W
        return outside, self.inputs.intercepts(outside)

    def features(self, phi: Array) -> Array:
        """Features of other inputs along the eigenvectors."""
        centred = phi - self.inputs.x_mean
        return centred[:, self.kept] if self.V is None else centred @ self.V
