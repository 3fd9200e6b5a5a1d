"""The supervised step of a sum of terms over shared rows, from Kronecker products.

With ``R = V^(1/2)`` the roots of the weights, ``K`` the Gram matrix of the wide terms over the rows and ``B`` the sum of their
matrices over the levels, the Gram matrix of all terms is

    R^-1 (K (x) B + CC') R^-1,      K = Q diag(k) Q',      B = P diag(b) P',

where the columns ``C`` are those of constants and of narrow terms. In the coordinates of ``Q`` and ``P`` the first part is
diagonal, the columns take a system of their number, and no matrix has the size of the observations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..._linalg import Positive, psd_eigh, solve_spd
from ...design.shared_rows import SharedRows
from .newton_systems import BatchDesign, Direction, Intercepts
from .term_columns import TermColumns

Array = np.ndarray


def level_roots(metric: TermColumns, shared: SharedRows) -> Array:
    """A root of the matrix over the levels."""
    term = metric.term
    if term.codes is None:
        side = np.ones((len(shared.levels), 1))
    else:
        side = (np.eye(term.n_levels) if term.descriptors is None else term.descriptors)[shared.levels]
    return side if metric.right is None else side @ metric.right


def n_columns(metrics: Sequence[TermColumns], shared: SharedRows) -> int | None:
    """The number of columns ``C``; ``None`` where the features of a wide term have a metric of their own."""
    total, r = 0, shared.phi.shape[1]
    for metric, wide in zip(metrics, shared.wide, strict=True):
        if metric.term.free:
            continue
        k, p = metric.shape
        if wide and (metric.left is not None or np.ptp(np.broadcast_to(metric.units, metric.term.r)[:r]) > 0):
            return None
        total += (k - r * wide) * min(p, len(shared.levels))
    return total


class SharedRowGram(BatchDesign):
    """The dual variables of all observations, in one batch element, under the squared loss."""

    def __init__(self, shared: SharedRows, metrics: Sequence[TermColumns], weight: Array):
        self.shared, self.root = shared, np.sqrt(weight)
        c, s, r = np.sqrt(shared.level_weight), np.sqrt(shared.row_weight), shared.phi.shape[1]
        B, narrow = np.zeros((len(c), len(c))), []
        for metric, wide in zip(metrics, shared.wide, strict=True):
            if metric.term.free:
                continue
            side = c[:, None] * level_roots(metric, shared)
            features = metric.features_of(metric.term.phi[shared.rows])
            if wide:
                scale = metric.scale * np.broadcast_to(metric.units, metric.term.r)[0]
                B += scale**2 * side @ side.T
                features = features[:, r:]
            narrow.append((side, s[:, None] * features))
        self.k, self.Q = shared.eigenbasis
        b, self.P = psd_eigh(B)
        self.d = np.multiply.outer(b, self.k).ravel()
        columns = [np.einsum("tm,ie->time", self.P.T @ side, self.Q.T @ each) for side, each in narrow]
        self.C = np.concatenate([each.reshape(len(self.d), -1) for each in columns], axis=1)

    def _rotated(self, x: Array) -> Array:
        """Columns over the observations, in the coordinates of the eigenvectors."""
        X = x[self.shared.order].reshape(len(self.P), len(self.Q), -1)
        X = np.tensordot(self.P, np.tensordot(self.Q, X, (0, 1)), (0, 1))
        return X.reshape(len(self.d), -1)

    def _back(self, x: Array) -> Array:
        """One column over the observations."""
        out = np.empty(len(self.d))
        out[self.shared.order] = (self.P @ x.reshape(len(self.P), len(self.Q)) @ self.Q.T).ravel()
        return out

    def start(self, u: Array) -> Array:
        return u

    def predict(self, coef: Array) -> Array:
        x = self._rotated(coef[0] / self.root)[:, 0]
        return (self._back(self.d * x + self.C @ (self.C.T @ x)) / self.root)[None]

    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        return np.einsum("bi,bi->b", coef, predicted)

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        """As that of ``Gram``, with ``h`` a multiple of the weights: ``du = Rw`` with a system for ``w``."""
        level = float(h.sum() / (self.root @ self.root))
        shrink = 1 / (1 + level * self.d)
        shrunk = shrink[:, None] * self.C
        small = Positive(np.eye(self.C.shape[1])[None] + level * (self.C.T @ shrunk)[None])

        def inverse(x: Array) -> Array:
            """Of ``I + level (K (x) B + CC')``."""
            x = shrink[:, None] * x
            return x - level * shrunk @ small.solve((self.C.T @ x)[None])[0] if self.C.shape[1] else x

        E = np.zeros((len(self.d), 0)) if intercepts is None else self._rotated(self.root[:, None] * intercepts.dense()[0])
        through = inverse(level * E)

        def direction(coef: Array, g: Array) -> tuple[Array, Array]:
            w, db = inverse(self._rotated((-g - coef)[0] / self.root)), np.zeros((0, 1))
            if E.shape[1]:
                assert damping is not None
                schur = E.T @ through + np.diag(damping[0])
                db = solve_spd(schur[None], (E.T @ (w + self._rotated(coef[0] / self.root)))[None])[0]
            return (self.root * self._back((w - through @ db)[:, 0]))[None], db.T

        return direction
