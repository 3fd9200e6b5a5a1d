"""Gaussian priors of the weights, for ``uncertainty/posterior.py``.

Given the structure, rows of ``W`` are independent, with covariance ``R = A (I + rho A)^-1`` over the tasks, where
``rho = ridge/alpha`` folds the ridge into it.

A learned structure is as uncertain as the weights. Let ``F`` be a function of the eigenvalues ``a``, and ``u_i``, ``v_j`` the
singular vectors of ``W``. At a fixed ``A`` the curvature of the penalty along ``u_i v_j'`` is ``2 / a_j``, infinite where
``a_j`` is zero. With the best ``A`` for the weights the penalty is a function of their singular values, and that curvature is
``2 / a_i``. The joint prior gives ``u_i v_j'`` the variance ``a_i + a_j``: the covariance ``A`` of the tasks, plus, for each
task independently, the covariance ``D = U a U'`` of the features.
"""

from __future__ import annotations

import numpy as np

from .._linalg import compose, psd_eigh

Array = np.ndarray
RANK_TOLERANCE = 1e-14  # eigenvalues below this share of the largest are rounding


class Prior:
    """The prior of weights given the structure, in units of ``tau / (2 alpha)``: ``cov(x'w_t, z'w_s) = x'z R_ts``.

    Where all features are of one task, ``task`` may have one entry.
    """

    def __init__(self, A: Array, rho: float):
        self.a, self.V = psd_eigh(A)
        own = self.a / (1 + rho * self.a)
        self.own = np.where(own > RANK_TOLERANCE * own.max(initial=0.0), own, 0.0)
        self.R = compose(self.own, self.V)
        self.root = self.V[:, self.own > 0] * np.sqrt(self.own[self.own > 0])  # T x q

    def n_columns(self, n_features: int) -> int:
        """The number of features with this covariance."""
        return n_features * self.root.shape[1]

    def columns(self, phi: Array, task: Array) -> Array:
        """One row for each pair of features and task: its products are the covariances."""
        return (phi[:, :, None] * self.root[task][:, None, :]).reshape(len(phi), -1)

    def covariance(self, phi: Array, task: Array, others: Array, their_task: Array) -> Array:
        return (phi @ others.T) * self.R[task[:, None], their_task]

    def variance(self, phi: Array, t: int) -> Array:
        return np.einsum("ij,ij->i", phi, phi) * self.R[t, t]


class JointPrior(Prior):
    """The prior of weights and structure: more variance along ``directions`` (``r x k``), independently for each task."""

    def __init__(self, A: Array, rho: float, directions: Array, d: Array):
        super().__init__(A, rho)
        self.directions = directions
        both = self.a + d[:, None]
        self.extra_variance = both / (1 + rho * both) - self.own  # k x T: by direction and eigenvector of A

    def n_columns(self, n_features: int) -> int:
        return super().n_columns(n_features) + self.extra_variance.size

    def columns(self, phi: Array, task: Array) -> Array:
        projected = phi @ self.directions
        more = [projected[:, i, None] * (self.V * np.sqrt(e))[task] for i, e in enumerate(self.extra_variance)]
        return np.hstack([super().columns(phi, task), *more])

    def covariance(self, phi: Array, task: Array, others: Array, their_task: Array) -> Array:
        total, pairs = super().covariance(phi, task, others, their_task), (task[:, None], their_task)
        for mine, theirs, e in zip((phi @ self.directions).T, (others @ self.directions).T, self.extra_variance, strict=True):
            total += np.outer(mine, theirs) * compose(e, self.V)[pairs]
        return total

    def variance(self, phi: Array, t: int) -> Array:
        return super().variance(phi, t) + (phi @ self.directions) ** 2 @ (self.extra_variance @ self.V[t] ** 2)


def structure_directions(W: Array, A: Array) -> tuple[Array, Array]:
    """The left singular vectors of ``W``, and the eigenvalues of ``A`` that belong to them."""
    U, sizes, Vt = np.linalg.svd(W, full_matrices=False)
    d = np.einsum("it,ts,is->i", Vt, A, Vt)
    kept = (sizes > RANK_TOLERANCE * sizes[:1]) & (d > RANK_TOLERANCE * d.max(initial=0.0))
    return U[:, kept], d[kept]
