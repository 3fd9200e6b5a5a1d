"""Shared linear algebra: symmetric eigenproblems, projections, conjugate gradients, and limits on BLAS threads."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from threadpoolctl import ThreadpoolController

from ._time_limit import check_time, within_limit

Array = np.ndarray
MIN_LONG_PRODUCT = 1e10  # multiplications of a product that may take longer than a time limit
DIAGONAL_TOLERANCE = 1e-12  # largest off-diagonal entry of a diagonal matrix, relative to its largest diagonal entry
MIN_LONG_EIGH = 800  # rows of a matrix whose eigendecomposition may take longer than a time limit


def symmetric(M: Array) -> Array:
    """The symmetric part: products such as ``W'W`` are symmetric only up to rounding."""
    return (M + M.T) / 2


def fits_single(numbers: Any) -> bool:
    """Whether the largest magnitude is zero or within ``[1e-30, 1e30]``, well inside the range of single precision."""
    of_array = isinstance(numbers, np.ndarray)
    size = max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0))) if of_array else 0.0
    return size == 0 or 1e-30 <= size <= 1e30


def psd_eigh(M: Array) -> tuple[Array, Array]:
    """Eigenvalues (ascending, clipped at zero) and eigenvectors of a positive semidefinite matrix."""
    M = symmetric(M)
    m, V = within_limit(np.linalg.eigh, M) if len(M) >= MIN_LONG_EIGH else np.linalg.eigh(M)
    return np.maximum(m, 0.0), V


def psd_basis(M: Array) -> tuple[Array, Array | None]:
    """Eigenvalues and eigenvectors of a positive semidefinite matrix; ``None`` in place of these where it is diagonal."""
    m = np.diag(M)
    if np.abs(M - np.diag(m)).max(initial=0.0) <= DIAGONAL_TOLERANCE * m.max(initial=0.0):
        return m, None
    return psd_eigh(M)


def long_product(A: Array, B: Array) -> Array:
    """``A @ B``, within the time limit of a fit where that takes long."""
    return within_limit(np.matmul, A, B) if A.shape[0] * A.shape[1] * B.shape[1] > MIN_LONG_PRODUCT else A @ B


def spectrum(M: Array) -> Array:
    """The eigenvalues of a positive semidefinite matrix, ascending and clipped at zero."""
    return np.maximum(np.linalg.eigvalsh(symmetric(M)), 0.0)


def gram_spectrum(R: Array) -> Array:
    """The squared singular values of ``R``, ascending, from the smaller Gram matrix."""
    return np.maximum(np.linalg.eigvalsh(R @ R.T if len(R) < R.shape[1] else R.T @ R), 0.0)


def compose(m: Array, V: Array) -> Array:
    """``V diag(m) V'``."""
    return (V * m) @ V.T


def psd_root(M: Array, rtol: float = 1e-14) -> Array:
    """A tall ``L`` with ``M = L L'``; eigenvalues below ``rtol`` of the largest are dropped."""
    m, V = psd_eigh(M)
    keep = m > rtol * max(m[-1], np.finfo(float).tiny) if m.size else np.zeros(0, bool)
    return V[:, keep] * np.sqrt(m[keep])


def column_squares(M: Array) -> Array:
    """The squared norm of each column."""
    return np.einsum("ij,ij->j", M, M)


def sum_of_ratios(x: Array, a: Array) -> float:
    """``sum x_i / a_i`` over the entries with ``a_i > 0``."""
    return float(np.divide(x, a, out=np.zeros_like(a), where=a > 0).sum())


def inverse_quadratic(R: Array, a: Array, V: Array, rank_tol: float = 0.0, outside_tol: float = 0.0) -> float:
    """``tr(A^+ R'R)`` for ``A = V diag(a) V'``, ``a`` ascending; ``inf`` where ``R`` is not in the range of ``A``.

    Eigenvalues up to ``rank_tol`` of the largest count as zero; ``outside_tol`` is the share of ``||R||^2`` that may lie there.
    """
    squares, inside = column_squares(R @ V), a > rank_tol * max(a[-1], 0.0)
    if squares[~inside].sum() > outside_tol * squares.sum():
        return np.inf
    return float((squares[inside] / a[inside]).sum())


def project_box_sum(x: Array, lower: float, upper: float, total: float) -> Array:
    """The nearest point to ``x`` with ``lower <= x <= upper`` and ``sum = total`` (``x`` is one-dimensional).

    The projection is ``clip(x + shift)``; its sum grows with ``shift``, piecewise linearly, so the shift
    follows from the breakpoints.
    """
    n = x.size
    if n == 0:
        return x
    total = min(max(total, n * lower), n * upper)
    breaks = np.sort(np.concatenate([lower - x, upper - x]))
    sums = np.clip(x[None, :] + breaks[:, None], lower, upper).sum(axis=1)
    return np.clip(x + np.interp(total, sums, breaks), lower, upper)


def project_simplex(X: Array) -> Array:
    """The nearest probabilities (nonnegative, adding up to 1) to each column of ``X``."""
    X = X - X.max(axis=0)  # the projection is invariant to a shift, and huge entries do not absorb the 1
    ordered = -np.sort(-X, axis=0)
    rank = np.arange(1, len(X) + 1)[:, None]
    level = (np.cumsum(ordered, axis=0) - 1) / rank  # the shift, if exactly these entries stay positive
    last = np.count_nonzero(ordered > level, axis=0) - 1
    return np.maximum(X - level[last, np.arange(X.shape[1])], 0.0)


def conjugate_gradient(
    product: Callable[[Any], Any],
    target: Any,
    *,
    preconditioner: Callable[[Any], Any] = lambda residual: residual,
    tol: float = 0.0,
    max_residual: float = 0.0,
    max_steps: int,
    min_curvature: float = 0.0,
    checkpoint: Callable[[float], None] | None = None,
    inner: Callable[[Any, Any], float] = np.vdot,
) -> Any:
    """``x`` with ``product(x) = target``, from zero; a warm start solves for what is left of the target.

    Arrays may have any shape, and be of any library that ``inner`` knows (``_array_api.dot`` knows all).

    Parameters
    ----------
    product : callable
        The symmetric operator.
    target : array
        The right-hand side.
    preconditioner : callable, default=identity
        An approximate inverse of the operator, symmetric and positive definite.
    tol : float, default=0.0
        Stop once the residual, in the norm of the preconditioner, has fallen to this share of the target.
    max_residual : float, default=0.0
        Stop once the Euclidean norm of the residual is at most this.
    max_steps : int
        The most products.
    min_curvature : float, default=0.0
        Stop at a direction whose curvature is at most this share of the curvature that the preconditioner expects: a step
        along it would be too long, or without end. The first direction is then returned itself.
    checkpoint : callable, default=None
        Called after each step with its length along the last argument of ``product``, for what is kept up to date by
        recurrence, and for limits on time.
    inner : callable, default=numpy.vdot
        The inner product of two arrays.
    """
    residual, scaled = target, preconditioner(target)
    x = direction = 0 * scaled
    size, last, expected = inner(residual, scaled), np.inf, 0.0
    enough = tol**2 * size
    for step in range(max_steps):
        check_time()
        if size <= enough or (max_residual > 0 and inner(residual, residual) <= max_residual**2):
            break
        direction = scaled + (size / last) * direction
        expected = size + (size / last) ** 2 * expected  # curvature of the preconditioner along the direction
        image = product(direction)
        curvature = inner(direction, image)
        if not curvature > min_curvature * expected:
            return x if step else direction
        length = size / curvature
        x, residual = x + length * direction, residual - length * image
        if checkpoint is not None:
            checkpoint(length)
        scaled = preconditioner(residual)
        size, last = inner(residual, scaled), size
    return x


MIN_FACTORED_UNKNOWNS = 64  # smaller systems are solved anew: the calls of a factorisation cost more than the arithmetic


def solve_spd(M: Array, rhs: Array) -> Array:
    """Each system once; where one is singular by rounding, all are lifted by a trace of themselves."""
    try:
        return np.linalg.solve(M, rhs)
    except np.linalg.LinAlgError:
        lift = 1e-12 * np.trace(M, axis1=-2, axis2=-1)[..., None, None]
        return np.linalg.solve(M + lift * np.eye(M.shape[-1]), rhs)


class Positive:
    """Systems that are solved more than once. A single large one is factored for good.

    Small ones are solved together each time: calls, not arithmetic, are what they cost. So is one that rounding has made
    indefinite.
    """

    def __init__(self, M: Array):
        self.M = M
        self._factor: tuple[Array, bool] | None = None
        self._fails = len(M) > 1 or M.shape[-1] < MIN_FACTORED_UNKNOWNS

    def solve(self, rhs: Array) -> Array:
        if self._factor is None and not self._fails:
            try:
                self._factor = cho_factor(self.M[0], lower=True, check_finite=False)
            except LinAlgError:
                self._fails = True
        return solve_spd(self.M, rhs) if self._factor is None else cho_solve(self._factor, rhs[0], check_finite=False)[None]


class _OneThread:
    """Limit BLAS to one thread while any fit of this process is running, and restore the limit after the last one.

    Small eigenproblems with an oversubscribed thread pool are 50 times slower (OpenBLAS issue 5517). Most pools are global, so
    nested and concurrent fits are counted. OpenBLAS with OpenMP has a limit per thread, which only that thread can restore. A
    forked child process has only the thread that forked.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: Counter[int] = Counter()  # nesting depth of each thread
        self._pools: tuple[list, list] | None = None  # global, and per thread
        self._found: list = []  # limits of the global pools before the first fit
        self._found_by: dict[int, list] = {}  # limits per thread before its first fit
        if hasattr(os, "register_at_fork"):
            lock = self._lock
            os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=self._in_child)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        thread = threading.get_ident()
        with self._lock:
            shared, own = self._pools = self._pools or blas_pools()  # finding the libraries takes milliseconds
            if not self._inside:
                self._found = _limit(shared)
            if thread not in self._inside:
                self._found_by[thread] = _limit(own)
            self._inside[thread] += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside[thread] -= 1
                if not self._inside[thread]:
                    del self._inside[thread]
                    _limit(self._found_by.pop(thread))
                if not self._inside:
                    _limit(self._found)

    def _in_child(self) -> None:
        """Forget all threads but the one that forked."""
        gone = set(self._inside) - {threading.get_ident()}
        for thread in gone:
            del self._inside[thread], self._found_by[thread]
        if gone and not self._inside:
            _limit(self._found)
        self._lock.release()


def blas_pools() -> tuple[list, list]:
    """The BLAS libraries with a global limit, and those with a limit per thread; each with the limit 1."""
    blas = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [(pool, 1) for pool in blas if getattr(pool, "threading_layer", None) == "openmp"]
    return [(pool, 1) for pool in blas if (pool, 1) not in own], own


def _limit(pools: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Set the limits of pools, and return their previous limits.

    The last fit to end need not be in the thread of the first. Since version 3.8 threadpoolctl silently ignores changes of the
    OpenBLAS limit from other threads; ``_real_set_num_threads`` is the function without that check.
    """
    found = []
    for pool, threads in pools:
        found.append((pool, pool.num_threads))
        getattr(pool, "_real_set_num_threads", pool.set_num_threads)(threads)
    return found


one_thread = _OneThread()
