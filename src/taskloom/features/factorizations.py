"""Factorizations ``K = Phi Phi'`` of large kernel matrices, and matrices ``U`` with ``k(x, X) U = phi(x)``.

A Cholesky factor costs a tenth of the eigendecomposition, and suffices for solvers on a Krylov subspace
(``solvers.subspaces``). Close to singular it is pivoted, with as many columns as the numerical rank. With many tasks or few
rows, the eigenvectors of the centred matrix are used: with intercepts and shared rows they diagonalise the problem.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpstrf

from .._time_limit import check_time, within_limit

Array = np.ndarray
EPS = np.finfo(float).eps
STRIP = 256  # rows per block, so that a transposed copy fits into the cache


def asymmetry(K: Array) -> float:
    """The largest difference between a square matrix and its transpose."""
    strips = [np.abs(K[i : i + STRIP, i:] - K[i:, i : i + STRIP].T).max(initial=0.0) for i in range(0, len(K), STRIP)]
    return float(max(strips, default=0.0))


def rounding(K: Array) -> float:
    """Rounding errors relative to the largest eigenvalue, which is at least the mean row sum and the largest entry."""
    return 10 * EPS * max(float(K.sum()) / len(K), float(K.diagonal().max()))


def decays(K: Array, share: float = 0.95, level: float = 1e-6) -> bool:
    """Whether the pivots of a quarter of the rows decay, so that a partial factorization is likely to pay off."""
    rows = slice(None, None, 4)
    part = K[rows, rows]
    rank = dpstrf(part, tol=level * float(part.diagonal().max()), lower=1)[2]
    return rank <= share * len(part)


def cholesky(K: Array) -> Array | None:
    """The Cholesky factor ``Phi``; ``None`` where ``K`` is numerically singular."""
    try:
        phi = within_limit(np.linalg.cholesky, K)
    except np.linalg.LinAlgError:
        return None
    return phi if phi.diagonal().min() ** 2 > rounding(K) else None


def pivoted_cholesky(K: Array) -> tuple[Array, Array] | None:
    """``(Phi, pivots)``: ``Phi[pivots]`` is lower triangular, ``Phi Phi' = K`` to rounding; ``None`` for an indefinite ``K``.

    The pivot is the largest diagonal entry of the remainder.
    """
    n, tol = len(K), rounding(K)
    factor, order, rank, _ = dpstrf(K.T, tol=tol, lower=1)
    order = order - 1
    if rank == 0:
        return None
    if rank < n:  # no entry of a positive semidefinite remainder exceeds its diagonal, which is rounding
        rest, below = order[rank:], factor[rank:, :rank]
        if np.abs(K[np.ix_(rest, rest)] - below @ below.T).max() > 20 * tol:
            return None
    for i in range(0, rank, STRIP):
        check_time()
        factor[:i, i : i + STRIP], corner = 0.0, factor[i : i + STRIP, i : i + STRIP]
        corner[:] = np.tril(corner)
    phi = np.empty((n, rank))
    phi[order] = factor[:, :rank]
    return phi, order[:rank]


def centred_eigenvectors(K: Array) -> tuple[Array, Array, Array] | None:
    """``(Phi, U, scale)`` with ``k(x, X) (U * scale) = phi(x)``, from the eigenvectors of ``HKH`` (``H`` subtracts the mean).

    ``Phi = [m_0 1, U_c sqrt(k) + 1 m']``, with ``m`` such that ``Phi Phi' = K``; after subtraction of its mean, ``Phi`` has
    orthogonal columns. ``None`` where ``K`` is not positive semidefinite, or too close to singular to compute ``m``.
    """
    n = len(K)
    means = K.mean(axis=0)
    overall = float(means.mean())
    centred = K - means
    centred -= means[:, None] - overall
    k, U = np.linalg.eigh(centred)
    tol = rounding(K)
    if k[0] < -tol * n:
        return None
    first = max(int(np.searchsorted(k, n * EPS * k[-1], side="right")), 1)  # constants are in the null space of HKH
    k, kept = k[first:], U[:, first:]
    kept -= kept.mean(axis=0)  # remove rounding along the constants
    toward = kept.T @ (means - overall)
    if np.abs(kept @ toward - (means - overall)).max(initial=0.0) > tol:
        return None
    scale = 1 / np.sqrt(k)
    m = scale * toward
    left = overall - float(m @ m)
    if left <= n * tol:
        return None
    root = float(np.sqrt(left))
    U = U[:, first - 1 :]
    U[:, 0] = (1 / n - kept @ (scale * m)) / root
    phi = U * np.append(0.0, np.sqrt(k))
    phi += np.append(root, m)
    return phi, U, np.append(1.0, scale)
