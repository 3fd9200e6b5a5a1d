"""Kernels as finite features: ``Phi`` (``n x r``) with ``K = Phi Phi'`` on the training inputs, exactly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, pairwise_kernels

from ._component import require
from ._linalg import symmetric

Array = np.ndarray
_TAKES = {  # which of gamma, degree and coef0 a named kernel understands
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "chi2": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "poly": ("gamma", "degree", "coef0"),
    "polynomial": ("gamma", "degree", "coef0"),
}


class LinearFeatures:
    """``Phi = X``; with more columns than rows, ``X' = QR`` and ``Phi = R'``, so that ``r`` is at most ``n``.

    No ``n x n`` matrix is formed when there are fewer columns than rows.
    """

    def __init__(self, X: Array):
        self.basis: Array | None = None
        self.phi = X
        self.n_inputs = X.shape[1]  # how many weights a user sees: one for each column
        if X.shape[1] > X.shape[0]:
            self.basis, R = np.linalg.qr(X.T)
            self.phi = R.T

    def coef(self, W: Array) -> Array:
        """The weights of the columns of ``X`` (``d x T``)."""
        return W if self.basis is None else self.basis @ W

    def weights(self, coef: Array) -> Array:
        """The weights ``W`` of the features that stand for weights of the columns: the way back."""
        return coef if self.basis is None else self.basis.T @ coef


class KernelFeatures:
    """``Phi = U sqrt(k)`` from the eigendecomposition of ``K``; directions below rounding are left out."""

    def __init__(self, K: Array):
        lopsided = float(np.abs(K - K.T).max(initial=0.0))
        size = max(float(np.abs(K).max(initial=0.0)), np.finfo(float).tiny)
        require(
            lopsided <= 1e-6 * size, f"the kernel matrix must be symmetric; it differs from its transpose by {lopsided:.3g}"
        )
        k, U = np.linalg.eigh(symmetric(K))
        require(
            k[0] >= -1e-7 * max(k[-1], 0.0) and k[-1] >= 0,
            f"the kernel is not positive semidefinite: its matrix has smallest eigenvalue {k[0]:.3g} (largest {k[-1]:.3g}); "
            "choose another kernel, or other parameters of it",
        )
        keep = k > len(k) * np.finfo(float).eps * k[-1]
        keep[-1] = True  # an all-zero kernel keeps one (zero) feature
        self.inverse_root = np.divide(1.0, np.sqrt(k[keep]), out=np.zeros(int(keep.sum())), where=k[keep] > 0)
        self.U = U[:, keep]
        self.phi = self.U * np.sqrt(np.maximum(k[keep], 0.0))
        self.n_inputs = len(K)  # how many coefficients a user sees: one for each row

    def dual_coef(self, W: Array) -> Array:
        """``C`` with ``f(x) = k(x, X) C`` (``n x T``) for weights ``W`` of the features."""
        return self.U @ (self.inverse_root[:, None] * W)

    def weights(self, C: Array) -> Array:
        """``W = Phi'C``: the way back."""
        return self.phi.T @ C


def kernel_function(kernel: Any, *, gamma: float | None = None, degree: float = 3, coef0: float = 1) -> Callable[..., Array]:
    """``k(X, Z)`` for a scikit-learn kernel name, a Gaussian-process kernel, or a callable of two matrices."""
    if callable(kernel):
        return lambda X, Z: np.asarray(kernel(X, Z), dtype=float)
    known = sorted({*PAIRWISE_KERNEL_FUNCTIONS, "precomputed"})
    require(
        isinstance(kernel, str) and kernel in known,
        f"kernel must be one of {known} or a callable k(X, Z), got {kernel!r}",
    )
    if kernel == "precomputed":
        return lambda X, _: X
    given = {"gamma": gamma, "degree": degree, "coef0": coef0}
    parameters = {name: given[name] for name in _TAKES.get(kernel, ()) if given[name] is not None}
    return lambda X, Z: pairwise_kernels(X, Z, metric=kernel, **parameters)


def build_features(X: Array, kernel: Any, **parameters: Any) -> LinearFeatures | KernelFeatures:
    """The features of a kernel on the training inputs."""
    if isinstance(kernel, str) and kernel == "linear":
        return LinearFeatures(X)
    K = np.asarray(kernel_function(kernel, **parameters)(X, X), dtype=float)
    require(
        K.shape == (len(X), len(X)),
        f"the kernel must give a square matrix over the {len(X)} rows of X, got shape {K.shape}",
    )
    require(bool(np.isfinite(K).all()), "the kernel gave NaN or infinity; scale X or change the kernel's parameters")
    return KernelFeatures(K)
