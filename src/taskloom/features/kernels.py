"""Exact finite features of kernels: ``Phi`` (``n x r``) with ``K = Phi Phi'`` on the training inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array, diags_array, issparse
from sklearn import config_context

from .._linalg import long_product, symmetric
from .._time_limit import TimeLimitError, within_limit
from .factorizations import asymmetry, centred_eigenvectors, cholesky, decays, pivoted_cholesky

Array = np.ndarray
SMALL = 100_000  # entries of a sparse matrix, zeros included, up to which it is made dense
Matrix: TypeAlias = np.ndarray | csr_array  # dense, or sparse in CSR format
LARGE = 400  # rows from which the factorization of a kernel matrix is chosen
GROWING = 1000  # rows from which a Krylov subspace is faster than eigenvectors (solvers/subspaces.py)
PER_TASK = 8  # features per task below which the Krylov subspace would contain most of them
_TAKES = {  # the parameters among gamma, degree and coef0 of a named kernel
    "rbf": ("gamma",),
    "laplacian": ("gamma",),
    "chi2": ("gamma",),
    "sigmoid": ("gamma", "coef0"),
    "poly": ("gamma", "degree", "coef0"),
    "polynomial": ("gamma", "degree", "coef0"),
}
_ONE_MATRIX = 'kernel="precomputed" cannot stand in a list, where X would have to be several matrices; pass callables k(X, Z)'


def as_csr(X: Any) -> csr_array:
    """A sparse matrix in canonical CSR format with float entries; the argument is not changed."""
    rows = csr_array(X, dtype=float)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def entries(phi: Matrix) -> Array:
    """The stored entries of a dense or sparse matrix."""
    return phi.data if issparse(phi) else phi  # type: ignore[return-value]


def is_wide(phi: Matrix) -> bool:
    """Whether a sparse matrix has many rows and even more columns; its features are its columns."""
    return issparse(phi) and phi.shape[1] > phi.shape[0] >= GROWING


def row_squares(phi: Matrix) -> Array:
    """The squared norm of each row, in double precision."""
    if issparse(phi):
        rows = as_csr(phi)
        return np.bincount(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr)), rows.data**2, rows.shape[0])
    return np.einsum("ij,ij->i", phi, phi, dtype=float)


def column_sizes(phi: Matrix) -> Array:
    """The largest magnitude in each column; without a copy of the matrix."""
    if issparse(phi):
        return abs(phi).max(axis=0).toarray().ravel()
    return np.maximum(phi.max(axis=0), -phi.min(axis=0))


def weighted_gram(phi: Matrix, h: Array) -> Array:
    """``Phi' diag(h) Phi`` (``r x r``, dense)."""
    if issparse(phi):
        return (phi.T @ (diags_array(h, format="csr") @ phi)).toarray()
    return long_product(phi.T, h[:, None] * phi)


class LinearFeatures:
    """``Phi = X``; with more columns than rows, ``X' = QR`` and ``Phi = R'``, so that ``r`` is at most ``n``.

    With fewer columns than rows no ``n x n`` matrix is formed. A sparse ``X`` with many rows stays sparse. With fewer
    rows and at least as many columns the features are those of the kernel matrix ``XX'``, because ``Q`` would be dense. A small
    sparse ``X`` is made dense. With ``keep_columns`` the features are always the columns.
    """

    note = ""  # for the message of the certificate

    def __init__(self, X: Matrix, keep_columns: bool = False):
        self.basis: Array | None = None
        self.kernel: KernelFeatures | None = None
        if issparse(X) and X.shape[0] * X.shape[1] <= SMALL:
            X = to_dense(X)
        self.X = self.phi = as_csr(X) if issparse(X) else X
        self.n_inputs = X.shape[1]  # the number of coefficients that users see: one per column
        if keep_columns:
            return
        if issparse(X) and X.shape[1] >= X.shape[0]:
            if not np.isfinite(entries(self.X)).all():
                raise ValueError("X must be finite, got NaN or infinity")
            if X.shape[0] < GROWING:
                self.kernel = KernelFeatures(to_dense(self.X @ self.X.T))
                self.phi = self.kernel.phi
        elif X.shape[1] > X.shape[0]:
            self.basis, R = np.linalg.qr(X.T)
            self.phi = R.T

    @classmethod
    def in_span(cls, X: Matrix, n_tasks: int = 1) -> LinearFeatures:
        """As many features as rows for a sparse ``X`` with more columns than that, from its kernel matrix."""
        features = cls(X, keep_columns=True)
        features.kernel = decomposed(to_dense(features.X @ features.X.T), False, n_tasks)
        features.phi = features.kernel.phi
        return features

    def coef(self, W: Array) -> Array:
        """The weights of the columns of ``X`` (``d x T``)."""
        if self.kernel is not None:
            return self.X.T @ self.kernel.dual_coef(W)
        return W if self.basis is None else self.basis @ W

    def project(self, X: Matrix) -> Matrix:
        """The features of other inputs, projected on the span of the training inputs."""
        if self.kernel is not None:
            return self.kernel.project(to_dense(X @ self.X.T))
        return X if self.basis is None else X @ self.basis

    def weights(self, coef: Array) -> Array:
        """The weights ``W`` of the features from weights of the columns: the inverse of ``coef``."""
        if self.kernel is not None:
            return self.kernel.fitting(self.X @ coef)
        return coef if self.basis is None else self.basis.T @ coef


def _symmetric_kernel(K: Array) -> Array:
    """The matrix, symmetrised where it differs from its transpose by more than rounding."""
    difference = asymmetry(K)
    size = max(float(K.max(initial=0.0)), -float(K.min(initial=0.0)), np.finfo(float).tiny)
    if not difference <= 1e-6 * size:
        raise ValueError(f"the kernel matrix must be symmetric; it differs from its transpose by {difference:.3g}")
    return K if difference <= 1e-15 * size else symmetric(K)


def check_finite(finite: Any) -> None:
    """Raise if the entries of a kernel matrix are not all finite."""
    if not bool(finite):
        raise ValueError("the kernel gave NaN or infinity; scale X or change the kernel's parameters")


def check_definite(low: float, high: float, tolerance: float = 1e-7) -> None:
    """Raise if the smallest and the largest eigenvalue of a kernel matrix are not those of a semidefinite one."""
    if not (low >= -tolerance * max(high, 0.0) and high >= 0):
        raise ValueError(
            f"the kernel is not positive semidefinite: its matrix has smallest eigenvalue {low:.3g} (largest {high:.3g}); "
            "choose another kernel, or other parameters of it"
        )


class KernelFeatures:
    """``Phi = U sqrt(k)`` from the eigendecomposition of ``K``; eigenvalues below rounding are dropped."""

    note = ""  # for the message of the certificate

    def __init__(self, K: Array):
        k, U = within_limit(np.linalg.eigh, _symmetric_kernel(K))
        check_definite(k[0], k[-1])
        keep = k > len(k) * np.finfo(float).eps * k[-1]
        keep[-1] = True  # an all-zero kernel keeps one (zero) feature
        scale = np.divide(1.0, np.sqrt(k[keep]), out=np.zeros(int(keep.sum())), where=k[keep] > 0)
        U = U[:, keep]
        self._set(U * np.sqrt(np.maximum(k[keep], 0.0)), U, scale)
        if k[0] < -10 * len(k) * np.finfo(float).eps * k[-1]:
            self.note = f"The kernel matrix was repaired: its smallest eigenvalue was {k[0]:.1e} and counts as 0."

    def _set(self, phi: Array, U: Array, inverse_root: Array) -> None:
        self.phi, self.U, self.inverse_root = phi, U, inverse_root
        self.n_inputs = len(phi)  # the number of coefficients that users see: one per row

    @classmethod
    def centred(cls, K: Array) -> KernelFeatures | None:
        """Features whose columns are orthogonal after centring, for shared inputs with intercepts."""
        parts = centred_eigenvectors(K)
        if parts is None:
            return None
        features = cls.__new__(cls)
        features._set(*parts)
        return features

    def dual_coef(self, W: Array) -> Array:
        """``C`` with ``f(x) = k(x, X) C`` (``n x T``) for weights ``W`` of the features."""
        return self.U @ (self.inverse_root[:, None] * W)

    def project(self, K: Array) -> Array:
        """The features of other inputs, from their kernel with the training inputs."""
        return (K @ self.U) * self.inverse_root

    def weights(self, C: Array) -> Array:
        """``W = Phi'C``: the inverse of ``dual_coef``."""
        return self.phi.T @ C

    def fitting(self, F: Array) -> Array:
        """The weights with predictions ``F`` (``n x T``) on the training inputs, if ``F`` is in the span of the features."""
        return self.inverse_root[:, None] * (self.U.T @ F)


class UnknownFeatures(KernelFeatures):
    """What stands for the features of ``n`` rows whose kernel matrix took longer than the time limit: for constants only."""

    note = "The time limit passed before the kernel matrix was decomposed: the model is a constant for each task."

    def __init__(self, n: int):
        self._set(np.zeros((n, 1)), np.zeros((n, 1)), np.zeros(1))


class PivotedFeatures(KernelFeatures):
    """``Phi`` from a Cholesky factor, pivoted where the kernel is close to singular."""

    def __init__(self, phi: Array, pivots: Array | None):
        self.phi, self.pivots, self.n_inputs = phi, pivots, len(phi)
        self.inverse_root = np.ones(phi.shape[1])

    def _solve(self, rhs: Array, trans: str = "N") -> Array:
        """``R^-1 rhs`` or ``R'^-1 rhs`` with the lower triangular rows ``R`` of the pivots."""
        triangle = self.phi if self.pivots is None else self.phi[self.pivots]
        return solve_triangular(triangle, rhs, trans=trans, lower=True, check_finite=False)

    def _at_pivots(self, rows: Array) -> Array:
        """These rows at the pivots, and zeros elsewhere."""
        if self.pivots is None:
            return rows
        out = np.zeros((self.n_inputs, rows.shape[1]))
        out[self.pivots] = rows
        return out

    @cached_property
    def U(self) -> Array:  # type: ignore[override]
        """``U`` with ``phi(x) = k(x, X) U``."""
        return self._at_pivots(self._solve(np.eye(self.phi.shape[1])).T)

    def dual_coef(self, W: Array) -> Array:
        return self._at_pivots(self._solve(W, "T"))


class SumFeatures:
    """The concatenated features of several kernels: the predictor is a sum with one term per kernel."""

    def __init__(self, parts: list[KernelFeatures]):
        self.parts = parts
        self.widths = [part.phi.shape[1] for part in parts]
        self.phi = np.hstack([part.phi for part in parts])
        self.n_inputs = parts[0].n_inputs
        self.note = " ".join(part.note for part in parts if part.note)

    def dual_coef(self, W: Array) -> list[Array]:
        """The dual coefficients of each kernel, with ``f(x) = sum_q k_q(x, X) C_q``."""
        own = np.split(W, np.cumsum(self.widths)[:-1])
        return [part.dual_coef(each) for part, each in zip(self.parts, own, strict=True)]

    def project(self, Ks: list[Array]) -> Array:
        """The features of other inputs, from their kernels with the training inputs."""
        return np.hstack([part.project(K) for part, K in zip(self.parts, Ks, strict=True)])

    def weights(self, Cs: list[Array]) -> Array:
        """Stacked weights from dual coefficients: the inverse of ``dual_coef``."""
        return np.vstack([part.weights(C) for part, C in zip(self.parts, Cs, strict=True)])


def kernel_function(kernel: Any, *, gamma: float | None = None, degree: float = 3, coef0: float = 1) -> Callable[..., Array]:
    """``k(X, Z)`` for a scikit-learn kernel name, a Gaussian-process kernel, or a callable of two matrices."""
    if callable(kernel):
        return lambda X, Z: to_dense(kernel(X, Z))
    from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS  # slow to import

    known = sorted({*PAIRWISE_KERNEL_FUNCTIONS, "precomputed"})
    if not (isinstance(kernel, str) and kernel in known):
        raise ValueError(f"kernel must be one of {known} or a callable k(X, Z), got {kernel!r}")
    if kernel == "precomputed":
        return lambda X, _: X
    given = {"gamma": gamma, "degree": degree, "coef0": coef0}
    parameters = {name: given[name] for name in _TAKES.get(kernel, ()) if given[name] is not None}
    function = PAIRWISE_KERNEL_FUNCTIONS[kernel]

    def values(X: Any, Z: Any) -> Array:
        with config_context(assume_finite=True, skip_parameter_validation=True):  # inputs are validated already
            return function(X, Z, **parameters)

    return values


def to_dense(K: Any) -> Array:
    """A dense or sparse matrix as a dense float array."""
    return np.asarray(K.toarray() if issparse(K) else K, dtype=float)


def build_features(
    X: Matrix, kernel: Any, keep_columns: bool = False, centred: bool = False, n_tasks: int = 1, **parameters: Any
) -> LinearFeatures | KernelFeatures | SumFeatures:
    """The features of a kernel on the training inputs; ``keep_columns`` for structures on the columns of ``X``.

    ``centred`` is set for models with intercepts, which depend on centred features only. ``n_tasks`` decides the
    factorization of large kernel matrices.
    """
    if isinstance(kernel, (list, tuple)):
        if len(kernel) == 0:
            raise ValueError("kernel=[] is empty: give at least one kernel")
        if "precomputed" in [k for k in kernel if isinstance(k, str)]:
            raise ValueError(_ONE_MATRIX)
        return SumFeatures([_kernel_features(X, each, centred, n_tasks, **parameters) for each in kernel])
    if isinstance(kernel, str) and kernel == "linear":
        return LinearFeatures(X, keep_columns)
    try:
        return _kernel_features(X, kernel, centred, n_tasks, **parameters)
    except TimeLimitError:
        return UnknownFeatures(X.shape[0])


def _kernel_features(X: Matrix, kernel: Any, centred: bool, n_tasks: int, **parameters: Any) -> KernelFeatures:
    n, k = X.shape[0], kernel_function(kernel, **parameters)
    try:
        K = to_dense(within_limit(k, X, X))
    except TimeLimitError:
        raise
    except Exception as error:  # with the remedy, for a kernel that takes no sparse inputs
        if not issparse(X):
            raise
        raise ValueError(f"kernel={kernel!r} cannot take a sparse X ({error}); pass X.toarray()") from error
    if K.shape != (n, n):
        raise ValueError(f"the kernel must give a square matrix over the {n} rows of X, got shape {K.shape}")
    check_finite(np.isfinite(K).all())
    return decomposed(K, centred, n_tasks) if n >= LARGE else KernelFeatures(K)


def decomposed(K: Array, centred: bool, n_tasks: int = 1) -> KernelFeatures:
    """Exact features of a large kernel matrix by the cheapest factorization that applies; eigenvectors if none does."""
    K = _symmetric_kernel(K)
    if len(K) >= max(GROWING, PER_TASK * n_tasks):
        if (phi := cholesky(K)) is not None:
            return PivotedFeatures(phi, None)
    elif not decays(K):
        features = KernelFeatures.centred(K) if centred else KernelFeatures(K)
        if features is not None:
            return features
    found = pivoted_cholesky(K)
    return KernelFeatures(K) if found is None else PivotedFeatures(*found)
