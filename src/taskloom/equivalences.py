"""Equivalences between the paper's problems: (Q) and (R), tasks (U) and features (T), dual coefficients and weights."""

from __future__ import annotations

import numpy as np

from ._linalg import psd_eigh, symmetric
from .structures import factored_matrix

Array = np.ndarray

__all__ = ["dual_to_weights", "features_to_tasks", "implied_tasks", "pseudo_inverse", "q_to_r", "r_to_q"]
__all__ += ["tasks_to_features", "weights_to_dual"]


def pseudo_inverse(A: Array, rtol: float = 1e-12) -> Array:
    """``A^+`` of a positive semidefinite matrix.

    Parameters
    ----------
    A : ndarray of shape (n, n)
        Symmetric positive semidefinite.
    rtol : float, default=1e-12
        Eigenvalues below this share of the largest count as zero.

    Returns
    -------
    ndarray of shape (n, n)
        The pseudo-inverse.
    """
    return np.linalg.pinv(symmetric(A), rtol=rtol, hermitian=True)


def r_to_q(C: Array, A: Array) -> tuple[Array, Array]:
    """A minimiser of the convex problem (R) becomes one of (Q): ``(C A^+, A)``.

    Parameters
    ----------
    C : ndarray of shape (n_samples, n_tasks)
        Dual coefficients of (R).
    A : ndarray of shape (n_tasks, n_tasks)
        The structure.

    Returns
    -------
    tuple of ndarray
        Dual coefficients of (Q), and the same structure.
    """
    return C @ pseudo_inverse(A), A


def q_to_r(C: Array, A: Array) -> tuple[Array, Array]:
    """A minimiser of the non-convex problem (Q) becomes one of (R): ``(C A, A)``.

    Parameters
    ----------
    C : ndarray of shape (n_samples, n_tasks)
        Dual coefficients of (Q).
    A : ndarray of shape (n_tasks, n_tasks)
        The structure.

    Returns
    -------
    tuple of ndarray
        Dual coefficients of (R), and the same structure.
    """
    return C @ A, A


def tasks_to_features(W: Array, A: Array) -> Array:
    """The matrix ``D`` on the features that is equivalent to ``A`` on the tasks, at an optimum ``W`` of a spectral structure.

    At the optimum ``A`` and ``W'W`` have the same eigenvectors: with ``W = U diag(w) V'``, ``D = U diag(v'Av) U'``.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_tasks)
        Optimal weights.
    A : ndarray of shape (n_tasks, n_tasks)
        The optimal structure on the tasks.

    Returns
    -------
    ndarray of shape (n_features, n_features)
        The structure on the features.
    """
    U, _, Vt = np.linalg.svd(W, full_matrices=False)
    return symmetric((U * np.einsum("ij,jk,ik->i", Vt, A, Vt)) @ U.T)


def features_to_tasks(W: Array, D: Array) -> Array:
    """The matrix ``A`` on the tasks that is equivalent to ``D`` on the features: the inverse of ``tasks_to_features``.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_tasks)
        Optimal weights.
    D : ndarray of shape (n_features, n_features)
        The optimal structure on the features.

    Returns
    -------
    ndarray of shape (n_tasks, n_tasks)
        The structure on the tasks.
    """
    return tasks_to_features(W.T, D)


def implied_tasks(W: Array, D: Array) -> Array | factored_matrix.FactoredStructure:
    """The task matrix that goes with a structure on the features: ``W'D^+W``, with the trace of ``D``.

    For the trace penalty it is the optimal ``A`` on the tasks. With many tasks it is returned in factored form.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_tasks)
        Weights.
    D : ndarray of shape (n_features, n_features)
        The structure on the features.

    Returns
    -------
    ndarray of shape (n_tasks, n_tasks), or FactoredStructure
        The structure on the tasks.
    """
    used = np.flatnonzero(np.diag(D) > 0)  # of a semidefinite matrix, all rows but these are zero
    if used.size < len(D):
        D, W = D[np.ix_(used, used)], W[used]
    if np.count_nonzero(D) == used.size:
        L = W.T / np.sqrt(np.diag(D))
    else:
        d, V = psd_eigh(D)
        keep = d > 1e-12 * d[-1]
        L = W.T @ (V[:, keep] / np.sqrt(d[keep]))
    L *= np.sqrt(np.trace(D) / max(float(np.vdot(L, L)), np.finfo(float).tiny))
    return factored_matrix.FactoredStructure(L) if len(L) > factored_matrix.DENSE_TASKS else symmetric(L @ L.T)


def dual_to_weights(Phi: Array, C: Array) -> Array:
    """``W = Phi'C``: the weights of a predictor ``f = sum_i k(x_i, .) c_i``.

    Parameters
    ----------
    Phi : ndarray of shape (n_samples, n_features)
        Features of the kernel, ``K = Phi Phi'``.
    C : ndarray of shape (n_samples, n_tasks)
        Dual coefficients.

    Returns
    -------
    ndarray of shape (n_features, n_tasks)
        Weights.
    """
    return Phi.T @ C


def weights_to_dual(Phi: Array, W: Array) -> Array:
    """The ``C`` of smallest norm with ``Phi'C = W``, for weights in the span of the rows of ``Phi``.

    Parameters
    ----------
    Phi : ndarray of shape (n_samples, n_features)
        Features of the kernel, ``K = Phi Phi'``.
    W : ndarray of shape (n_features, n_tasks)
        Weights.

    Returns
    -------
    ndarray of shape (n_samples, n_tasks)
        Dual coefficients.
    """
    return np.linalg.lstsq(Phi.T, W, rcond=None)[0]
