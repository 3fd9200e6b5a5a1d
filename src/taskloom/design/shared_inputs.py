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
from ..features.kernels import weighted_gram
from .observations import Observations

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
ORTHOGONALITY_TOLERANCE = 1e-13  # largest off-diagonal product of orthogonal columns, relative to the largest squared norm


def separable_weights(design: Design) -> tuple[Array, Array] | None:
    """``(s, c)`` with ``v_it = s_i c_t`` if all tasks see the same rows, each once (``s_i = 0`` elsewhere), else ``None``."""
    obs, T = design.observations, design.n_tasks
    m = obs.y.size // T
    rows = obs.row[:m]
    if obs.y.size != m * T or not np.array_equal(obs.row, np.tile(rows, T)) or np.any(np.diff(rows) <= 0):
        return None
    V = obs.weight.reshape(T, m)  # observations are sorted by task, then row
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

    V: Array | None  # eigenvectors; None if the columns of the features are orthogonal

    def __init__(self, design: Design, s: Array, c: Array):
        self.c = c
        obs, T = design.observations, design.n_tasks
        Y = np.zeros((design.n_rows, T))
        Y[obs.row[: obs.y.size // T]] = obs.y.reshape(T, -1).T
        self.x_mean = s @ design.features if design.fit_intercept else np.zeros(design.n_features)
        self.y_mean = s @ Y if design.fit_intercept else np.zeros(T)
        self.fit_intercept = design.fit_intercept
        self._prepare(design, s, Y - self.y_mean)

    def _prepare(self, design: Design, s: Array, Y: Array) -> None:
        """Store the weighted inputs and the centred, weighted targets."""
        self._features, self._root = design.features, np.sqrt(s)[:, None]
        self.targets = self._root * Y * np.sqrt(self.c)

    @cached_property
    def features(self) -> Array:
        """``Phi_s``, copied on first use."""
        centred = self._features - self.x_mean
        centred *= self._root
        return centred

    def _moments(self) -> tuple[Array, Array]:
        """``Phi_s'Phi_s`` and ``Phi_s'Y_s``."""
        return self.features.T @ self.features, self.features.T @ self.targets

    def _moments_along(self, Q: Array) -> tuple[Array, Array]:
        """The same for the features ``Phi Q``."""
        P = self.features @ Q
        return P.T @ P, P.T @ self.targets

    def decompose(self) -> None:
        """Compute ``k``, ``V`` and ``projected`` (targets along the eigenvectors), once."""
        if not hasattr(self, "k"):
            k = self._orthogonal()
            if k is not None:
                self.k, self.V, self.projected = k, None, self.features.T @ self.targets
                return
            gram, cross = self._moments()
            self.k, self.V = psd_eigh(gram)
            self.projected = self.V.T @ cross

    def _orthogonal(self) -> Array | None:
        return orthogonal_columns(self.features)

    def from_eigenbasis(self, inner: Array) -> Array:
        """Weights from their coordinates along the eigenvectors of the features."""
        return inner if self.V is None else self.V @ inner

    def intercepts(self, W: Array) -> Array:
        return self.y_mean - self.x_mean @ W if self.fit_intercept else np.zeros(W.shape[1])

    def on_tasks(self, L: Array, alpha: float) -> tuple[Array, Array, float]:
        """Weights, intercepts and norm at ``A = LL'``."""
        self.decompose()
        root_c = np.sqrt(self.c)
        P, a, _ = np.linalg.svd(root_c[:, None] * L, full_matrices=False)  # of the factor: its range is exact
        a = a**2
        inner = (self.projected @ P) / (self.k[:, None] * a + alpha)
        W = self.from_eigenbasis(inner * a) @ P.T / root_c
        return W, self.intercepts(W), alpha * float(np.sum(inner**2 * a))

    def on_features(self, Q: Array, alpha: float) -> tuple[Array, Array, float]:
        """Weights, intercepts and norm at ``D = QQ'``."""
        gram, cross = self._moments_along(Q)
        e, E = psd_eigh(gram)
        B = E @ ((E.T @ cross) / (e[:, None] * self.c + alpha)) * np.sqrt(self.c)
        W = Q @ B
        return W, self.intercepts(W), alpha * float(np.vdot(B, B))


class SparseSharedInputs(SharedInputs):
    """Sparse inputs: only their Gram matrix and products with the targets are stored, centred afterwards."""

    def _prepare(self, design: Design, s: Array, Y: Array) -> None:
        self.gram = weighted_gram(design.features, s) - np.outer(self.x_mean, self.x_mean)
        self.cross = design.features.T @ (s[:, None] * Y * np.sqrt(self.c))  # Y is centred, so the inputs need not be

    def _orthogonal(self) -> Array | None:
        return None

    def _moments(self) -> tuple[Array, Array]:
        return self.gram, self.cross

    def _moments_along(self, Q: Array) -> tuple[Array, Array]:
        return Q.T @ self.gram @ Q, Q.T @ self.cross


MIN_RELATIVE_SINGULAR_VALUE = 1e-10  # singular values below this share of the largest are dropped as rounding


class DiagonalInputs(SharedInputs):
    """The decomposition of diagonal features."""

    V = None

    def __init__(self, d: Array, targets: Array, c: Array):
        self.c, self.fit_intercept = c, False
        self.k, self.d = d**2, d
        self.targets = targets * np.sqrt(c)
        self.rows = np.ascontiguousarray(self.targets.T)
        self.projected = d[:, None] * self.targets

    def decompose(self) -> None:
        """Nothing to compute: the features are diagonal."""

    def _moments_along(self, Q: Array) -> tuple[Array, Array]:
        P = self.d[:, None] * Q
        return P.T @ P, P.T @ self.targets


class Eigenbasis:
    """Shared, fully observed inputs and the squared loss, along the eigenvectors of the inputs.

    With ``Phi_s = sqrt(s) Phi = U diag(d) V'`` (``s`` the row weights), the objective depends on the targets through ``U'Y_s``
    and on the weights through ``V'W``:

        J(W, b, A) at its best b = constant + sum_t c_t ||(U'Y_s)_t - d o (V'W)_t||^2 + alpha tr(A^+ W'W) + ...

    That is a problem of the same kind with ``r`` rows, diagonal features and no intercepts: an iteration costs ``O(r T^2)``.
    ``U`` comes from ``Phi_s V / d`` and is inaccurate for small ``d``, so solutions are certified on the original problem.
    """

    def __init__(self, design: Design, inputs: SharedInputs):
        inputs.decompose()
        order = np.argsort(inputs.k)[::-1]
        d = np.sqrt(inputs.k[order])
        keep = d > MIN_RELATIVE_SINGULAR_VALUE * max(float(d[0]), np.finfo(float).tiny)
        keep[0] = True
        self.kept, self.n_features = order[keep], len(order)
        self.V = None if inputs.V is None else inputs.V[:, self.kept]
        self.inputs, d = inputs, d[keep]
        projected = inputs.projected[self.kept] / np.sqrt(inputs.c)
        targets = np.divide(projected, d[:, None], where=d[:, None] > 0, out=np.zeros_like(projected))
        self.diagonal = DiagonalInputs(d, targets, inputs.c)
        r, T = targets.shape
        self.observations = Observations(
            np.tile(np.arange(r), T), np.repeat(np.arange(T), r), targets.T.ravel(), np.repeat(inputs.c, r), T
        )
        obs = design.observations
        whole = float(obs.weight @ (obs.y - inputs.y_mean[obs.task]) ** 2)
        self.constant = whole - float(np.sum(inputs.c * targets**2))  # part of the loss that no weights can change

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
