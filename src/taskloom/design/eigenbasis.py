"""Shared, fully observed inputs and the squared loss, with everything that does not change taken out.

With ``Phi_s = sqrt(s) Phi = U diag(d) V'`` (``s`` the weights of the rows), the objective depends on the targets only
through ``U'Y_s``, and on the weights through ``V'W``:

    J(W, b, A) at its best b = constant + sum_t c_t ||(U'Y_s)_t - d o (V'W)_t||^2 + alpha tr(A^+ W'W) + ...

That is the same kind of problem with ``r`` rows, diagonal features and no intercepts: an iteration costs ``O(r T^2)`` whatever
the number of rows. ``U`` comes from ``Phi_s V / d``, so directions far below the largest are inexact: what is found here has to
be certified on the original problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .observations import Observations
from .shared_inputs import SharedInputs

if TYPE_CHECKING:
    from .design import Design

Array = np.ndarray
ROUNDING = 1e-10  # singular values below this share of the largest


class DiagonalInputs(SharedInputs):
    """The decomposition of features that are diagonal already."""

    V = None

    def __init__(self, d: Array, targets: Array, c: Array):
        self.c, self.fit_intercept = c, False
        self.k, self.d = d**2, d
        self.targets = targets * np.sqrt(c)
        self.rows = np.ascontiguousarray(self.targets.T)
        self.projected = d[:, None] * self.targets

    def decompose(self) -> None:
        """Nothing is left to do."""

    def _moments_along(self, Q: Array) -> tuple[Array, Array]:
        P = self.d[:, None] * Q
        return P.T @ P, P.T @ self.targets


class Eigenbasis:
    """Coordinates along the eigenvectors of shared inputs, and the way there and back."""

    def __init__(self, design: Design, inputs: SharedInputs):
        inputs.decompose()
        order = np.argsort(inputs.k)[::-1]
        d = np.sqrt(inputs.k[order])
        keep = d > ROUNDING * max(float(d[0]), np.finfo(float).tiny)
        keep[0] = True
        self.kept, self.n_features = order[keep], len(order)
        self.V = None if inputs.V is None else inputs.V[:, self.kept]
        self.inputs, d = inputs, d[keep]
        along = inputs.projected[self.kept] / np.sqrt(inputs.c)
        targets = np.divide(along, d[:, None], where=d[:, None] > 0, out=np.zeros_like(along))
        self.diagonal = DiagonalInputs(d, targets, inputs.c)
        r, T = targets.shape
        self.observations = Observations(
            np.tile(np.arange(r), T), np.repeat(np.arange(T), r), targets.T.ravel(), np.repeat(inputs.c, r), T
        )
        seen = design.observations
        whole = float(seen.weight @ (seen.y - inputs.y_mean[seen.task]) ** 2)
        self.constant = whole - float(np.sum(inputs.c * targets**2))  # of the loss, which no weights can change

    def inward(self, W: Array) -> Array:
        """Weights along the eigenvectors."""
        return W[self.kept] if self.V is None else self.V.T @ W

    def outward(self, W: Array) -> tuple[Array, Array]:
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
