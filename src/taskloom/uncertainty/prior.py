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

from functools import cached_property

import numpy as np

from .._linalg import compose, psd_eigh

Array = np.ndarray
RANK_TOLERANCE = 1e-14  # eigenvalues below this share of the largest are rounding


class Prior:
    """The prior of weights given the structure, in units of ``tau / (2 alpha)``: ``cov(x'w_t, z'w_s) = x'z R_ts``.

    With an uncertain structure there is more variance along ``directions`` (``r x k``, with eigenvalues ``d``), independently
    for each task. Where all features are of one task, ``task`` may have one entry.
    """

    def __init__(self, A: Array, rho: float, directions: Array | None = None, d: Array | None = None):
        self.a, self.V = psd_eigh(A)
        own = self.a / (1 + rho * self.a)
        self.own = np.where(own > RANK_TOLERANCE * own.max(initial=0.0), own, 0.0)
        self.R = compose(self.own, self.V)
        self.root = self.V[:, self.own > 0] * np.sqrt(self.own[self.own > 0])  # T x q
        self.directions, both = directions, self.a + (np.zeros((0, 1)) if d is None else d[:, None])
        self.extra_variance = both / (1 + rho * both) - self.own  # k x T: by direction and eigenvector of A
        self._within = np.zeros(0) if d is None else d / (1 + rho * d)  # where the eigenvalue of A is zero

    def _along(self, phi: Array) -> Array:
        """The features along each of the directions (``k x m``)."""
        return np.zeros((0, len(phi))) if self.directions is None else (phi @ self.directions).T

    def columns(self, phi: Array, task: Array) -> tuple[Array, Array]:
        """Two rows for each pair of features and task: products of the first are the covariances between tasks, products of the
        second are what is added within a task.

        Along a direction the covariance of the tasks is ``V f(a + d) V'``, and ``f(d) I`` of it is within the tasks.
        """
        inside = self.own > 0
        if self.directions is None:
            return (phi[:, :, None] * self.root[task][:, None, :]).reshape(len(phi), -1), np.zeros((len(phi), 0))
        rest, along = phi @ self._complement, self._along(phi).T
        within = np.maximum(self._within, 0.0)
        between = np.sqrt(np.maximum((self.extra_variance + self.own)[:, inside] - within[:, None], 0.0))  # k x q
        shared = [
            (rest[:, :, None] * self.root[task][:, None, :]).reshape(len(phi), -1),
            (along[:, :, None] * between * self.V[task][:, None, inside]).reshape(len(phi), -1),
        ]
        return np.hstack(shared), along * np.sqrt(within)

    @cached_property
    def _complement(self) -> Array:
        """An orthonormal basis of the features outside the directions."""
        assert self.directions is not None
        return np.linalg.qr(self.directions, mode="complete")[0][:, self.directions.shape[1] :]

    def covariance(self, phi: Array, task: Array, others: Array, their_task: Array) -> Array:
        pairs = (task[:, None], their_task)
        total = (phi @ others.T) * self.R[pairs]
        for mine, theirs, e in zip(self._along(phi), self._along(others), self.extra_variance, strict=True):
            total += np.outer(mine, theirs) * compose(e, self.V)[pairs]
        return total

    def variance(self, phi: Array, t: int) -> Array:
        return np.einsum("ij,ij->i", phi, phi) * self.R[t, t] + self.extra_variance @ self.V[t] ** 2 @ self._along(phi) ** 2


def structure_directions(W: Array, A: Array) -> tuple[Array, Array]:
    """The left singular vectors of ``W``, and the eigenvalues of ``A`` that belong to them."""
    U, sizes, Vt = np.linalg.svd(W, full_matrices=False)
    d = np.einsum("it,ts,is->i", Vt, A, Vt)
    kept = (sizes > RANK_TOLERANCE * sizes[:1]) & (d > RANK_TOLERANCE * d.max(initial=0.0))
    return U[:, kept], d[kept]
