"""The linear algebra that everything shares: symmetric eigenproblems, clipped in one place, and thread limits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

Array = np.ndarray


def symmetric(M: Array) -> Array:
    """The symmetric part: products such as ``W'W`` are symmetric only up to rounding."""
    return (M + M.T) / 2


def fits_single(numbers: Any) -> bool:
    """Whether single precision holds these numbers: the largest neither overflows nor vanishes there, nor does its product."""
    size = float(np.abs(numbers).max(initial=0.0)) if isinstance(numbers, np.ndarray) else 0.0
    return size == 0 or 1e-30 <= size <= 1e30


def psd_eigh(M: Array) -> tuple[Array, Array]:
    """Eigenvalues (ascending, clipped at zero) and eigenvectors of a positive semidefinite matrix."""
    m, V = np.linalg.eigh(symmetric(M))
    return np.maximum(m, 0.0), V


def spectrum(M: Array) -> Array:
    """The eigenvalues of a positive semidefinite matrix, ascending and clipped at zero."""
    return np.maximum(np.linalg.eigvalsh(symmetric(M)), 0.0)


def compose(m: Array, V: Array) -> Array:
    """``V diag(m) V'``."""
    return (V * m) @ V.T


def spectral_map(f: Callable[[Array], Array], M: Array) -> Array:
    """Apply ``f`` to the eigenvalues of a positive semidefinite matrix."""
    m, V = psd_eigh(M)
    return compose(f(m), V)


def psd_root(M: Array, rtol: float = 1e-14) -> Array:
    """A tall ``L`` with ``M = L L'``; columns whose eigenvalue is rounding noise are left out."""
    m, V = psd_eigh(M)
    keep = m > rtol * max(m[-1], np.finfo(float).tiny) if m.size else np.zeros(0, bool)
    return V[:, keep] * np.sqrt(m[keep])


def project_box_sum(x: Array, lower: float, upper: float, total: float) -> Array:
    """The nearest point to ``x`` with ``lower <= x <= upper`` and ``sum = total`` (``x`` is one-dimensional).

    The projection is ``clip(x + shift)``; its sum grows with ``shift``, piecewise linearly, so the breakpoints
    tell in which piece the shift lies.
    """
    n = x.size
    if n == 0:
        return x
    total = min(max(total, n * lower), n * upper)
    breaks = np.sort(np.concatenate([lower - x, upper - x]))
    sums = np.clip(x[None, :] + breaks[:, None], lower, upper).sum(axis=1)
    k = int(np.clip(np.searchsorted(sums, total), 1, breaks.size - 1))
    rise = sums[k] - sums[k - 1]
    share = (total - sums[k - 1]) / rise if rise > 0 else 0.0
    return np.clip(x + breaks[k - 1] + share * (breaks[k] - breaks[k - 1]), lower, upper)


def project_simplex(X: Array) -> Array:
    """The nearest probabilities (nonnegative, adding up to 1) to each column of ``X``."""
    ordered = -np.sort(-X, axis=0)
    rank = np.arange(1, len(X) + 1)[:, None]
    level = (np.cumsum(ordered, axis=0) - 1) / rank  # what to take off, were these the positive ones
    last = np.count_nonzero(ordered > level, axis=0) - 1
    return np.maximum(X - level[last, np.arange(X.shape[1])], 0.0)


class _OneThread:
    """Hold BLAS to one thread while any fit of this process is inside its loop, and restore it after the last one.

    Small eigenproblems with a starved thread pool are 50 times slower (OpenBLAS issue 5517). The pool is global, so
    nested or concurrent fits must count: restoring what *each* found would leave the limit behind.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit: Any = None
        self._pools: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._pools = self._pools or ThreadpoolController()  # looking for the libraries takes milliseconds: once
                self._limit = self._pools.limit(limits=1, user_api="blas")
                self._limit.__enter__()
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0 and self._limit is not None:
                    self._limit.__exit__(None, None, None)
                    self._limit = None


one_thread = _OneThread()
