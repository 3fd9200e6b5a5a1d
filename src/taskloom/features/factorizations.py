"""Kernel matrices as features, cheaply: ``Phi`` with ``K = Phi Phi'``, and readers with ``k(x, X) readers = phi(x)``.

Three ways, each for large matrices. A Cholesky factor costs a tenth of the eigendecomposition, and a solver that looks for the
few directions that count (``solvers.subspaces``) needs no more. Close to singular it is pivoted: as many columns as the
kernel has dimensions that rounding can tell. Where tasks are many or rows are few, the eigenvectors of the *centred* matrix:
with intercepts and shared rows, those are the ones that make everything diagonal.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpstrf

Array = np.ndarray
EPS = np.finfo(float).eps
STRIP = 256  # rows at a time, so that a transposed copy stays in the cache


def asymmetry(K: Array) -> float:
    """The largest difference between a square matrix and its transpose."""
    strips = [np.abs(K[i : i + STRIP, i:] - K[i:, i : i + STRIP].T).max(initial=0.0) for i in range(0, len(K), STRIP)]
    return float(max(strips, default=0.0))


def rounding(K: Array) -> float:
    """What is nothing beside the largest eigenvalue, which is at least the mean of the row sums and the largest entry."""
    return 10 * EPS * max(float(K.sum()) / len(K), float(K.diagonal().max()))


def decays(K: Array, share: float = 0.95, level: float = 1e-6) -> bool:
    """Whether a partial factor is likely to pay: a quarter of the rows shows how fast the pivots fall."""
    rows = slice(None, None, 4)
    part = K[rows, rows]
    rank = dpstrf(part, tol=level * float(part.diagonal().max()), lower=1)[2]
    return rank <= share * len(part)


def cholesky(K: Array) -> Array | None:
    """The lower triangle ``Phi``; ``None`` where ``K`` is closer to singular than rounding can tell."""
    try:
        phi = np.linalg.cholesky(K)
    except np.linalg.LinAlgError:
        return None
    return phi if phi.diagonal().min() ** 2 > rounding(K) else None


def pivoted_cholesky(K: Array) -> tuple[Array, Array] | None:
    """``(Phi, pivots)``: ``Phi[pivots]`` is lower triangular, ``Phi Phi' = K`` to rounding; ``None`` if ``K`` forbids it.

    The pivot is the largest diagonal entry of what is left, so columns come in falling order of what they explain at least.
    """
    n, nothing = len(K), rounding(K)
    factor, order, rank, _ = dpstrf(K.T, tol=nothing, lower=1)
    order = order - 1
    if rank == 0:
        return None
    if rank < n:  # a positive semidefinite rest has no entry above its diagonal, which is nothing
        rest, below = order[rank:], factor[rank:, :rank]
        if np.abs(K[np.ix_(rest, rest)] - below @ below.T).max() > 20 * nothing:
            return None
    for i in range(0, rank, STRIP):
        factor[:i, i : i + STRIP], corner = 0.0, factor[i : i + STRIP, i : i + STRIP]
        corner[:] = np.tril(corner)
    phi = np.empty((n, rank))
    phi[order] = factor[:, :rank]
    return phi, order[:rank]


def centred_eigenvectors(K: Array) -> tuple[Array, Array, Array] | None:
    """``(Phi, U, scale)`` with readers ``U * scale``, from the eigenvectors of ``HKH`` (``H`` takes the mean of the rows off).

    ``Phi = [m_0 1, U_c sqrt(k) + 1 m']``: ``m`` makes ``Phi Phi' = K``, and ``Phi`` less its mean has orthogonal columns.
    ``None`` where ``K`` is not positive semidefinite, or too close to singular for ``m`` to be told.
    """
    n = len(K)
    means = K.mean(axis=0)
    overall = float(means.mean())
    centred = K - means
    centred -= means[:, None] - overall
    k, U = np.linalg.eigh(centred)
    nothing = rounding(K)
    if k[0] < -nothing * n:
        return None
    first = max(int(np.searchsorted(k, n * EPS * k[-1], side="right")), 1)  # the constants are in the kernel of HKH
    k, kept = k[first:], U[:, first:]
    kept -= kept.mean(axis=0)  # rounding, by the same token
    toward = kept.T @ (means - overall)
    if np.abs(kept @ toward - (means - overall)).max(initial=0.0) > nothing:
        return None
    scale = 1 / np.sqrt(k)
    m = scale * toward
    left = overall - float(m @ m)
    if left <= n * nothing:
        return None
    root = float(np.sqrt(left))
    U = U[:, first - 1 :]
    U[:, 0] = (1 / n - kept @ (scale * m)) / root
    phi = U * np.append(0.0, np.sqrt(k))
    phi += np.append(root, m)
    return phi, U, np.append(1.0, scale)
