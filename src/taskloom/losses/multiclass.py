"""Multiclass losses of a row of outputs, one output per class: softmax, and the hinge loss of Crammer and Singer.

Both are ``sup_p <p, z> - z_y - c(y, p)`` over the probabilities ``p`` of the classes; the gradients are ``s = p - e_y``, and
``c`` is the conjugate. They are invariant to a constant that is added to all outputs of a row.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import xlogy

from .._linalg import project_simplex
from .base import Array, Loss

MIN_CURVATURE = 3e-3  # of the majorant off the active face, relative to the largest curvature
DOMAIN_TOL = 1e-13  # distance of gradients from the domain of the conjugate that counts as rounding


class RowLoss(Loss):
    """``l(y, z)`` of the class ``y`` of a row and its outputs ``z``, one for each class. The classes are the tasks.

    There is one loss per row, not per entry: ``J = (1/S) sum_i s_i l(y_i, f(x_i) + b) + ...``. Arrays have one entry per row
    and class, sorted by class, then row; ``y`` is +1 for the class of the row and -1 elsewhere. ``value`` and ``conjugate``
    distribute the loss of a row evenly over its ``T`` entries, so that weighted sums over entries are right. ``curvature``
    gives ``h`` such that ``diag(h) - hh'/sum(h)`` is the Hessian of a row.
    """

    targets: ClassVar[Literal["numbers", "signs", "mixed"]] = "signs"

    @abstractmethod
    def best_constants(self, shares: Array) -> Array:
        """The best constant outputs for these class frequencies.

        Parameters
        ----------
        shares : ndarray of shape (n_classes,)
            Share of the total weight of each class.

        Returns
        -------
        ndarray of shape (n_classes,)
            One output for each class, of mean 0.
        """

    @abstractmethod
    def _row_value(self, own: Array, z: Array) -> Array:
        """The loss of each row; ``own`` and ``z`` are ``T x n``, and ``own`` marks the class of each row."""

    @abstractmethod
    def _row_conjugate(self, own: Array, p: Array) -> Array:
        """``c(y, p)`` of each row."""

    def value(self, y: Array, z: Array) -> Array:
        own, z_rows = _by_row(y, z)
        return _spread_over_entries(self._row_value(own, z_rows), z)

    def conjugate(self, y: Array, s: Array) -> Array:
        """``sup_z <s, z> - l(y, z)`` over the row; ``inf`` unless ``s + e_y`` are probabilities."""
        own, gradients = _by_row(y, s)
        p = gradients + own
        inside = (p.min(axis=0) >= -DOMAIN_TOL) & (np.abs(gradients.sum(axis=0)) <= DOMAIN_TOL * len(p))
        return _spread_over_entries(np.where(inside, self._row_conjugate(own, np.maximum(p, 0.0)), np.inf), s)

    def gradient_bounds(self, y: Array) -> tuple[Array, Array]:
        """The bounding box of the gradients; their sum over each row must also be zero."""
        return np.where(y > 0, -1.0, 0.0), np.where(y > 0, 0.0, 1.0)

    def intercepts(self, b: Array) -> Array:
        return b - b.mean()


def _by_row(y: Array, *others: Array) -> tuple[Array, ...]:
    """A mask of the class of each row, and the arrays, reshaped to (classes, rows)."""
    n = np.count_nonzero(y > 0)
    return (y > 0).reshape(-1, n), *(other.reshape(-1, n) for other in others)


def _spread_over_entries(rows: Array, like: Array) -> Array:
    """Distribute one number per row evenly over its entries."""
    classes = like.size // rows.size
    return np.broadcast_to(rows / classes, (classes, rows.size)).reshape(like.shape)


def gradients_of(own: Array, p: Array) -> Array:
    """``p - e_y``, with a sum of exactly zero: the entry of the class is minus the sum of the others."""
    others = np.where(own, 0.0, p)
    return np.where(own, -others.sum(axis=0), others)


def _own(own: Array, z: Array) -> Array:
    """The output of the class of each row."""
    return np.where(own, z, 0.0).sum(axis=0)


@dataclass(eq=False, repr=False)
class Softmax(RowLoss):
    """``log(sum_k exp z_k) - z_y``: multinomial logistic regression."""

    max_curvature: ClassVar[float] = 0.5

    def best_constants(self, shares: Array) -> Array:
        logs = np.log(shares)
        return logs - logs.mean()

    def _row_value(self, own: Array, z: Array) -> Array:
        top = z.max(axis=0)
        return np.log(np.exp(z - top).sum(axis=0)) + (top - _own(own, z))

    def gradient(self, y: Array, z: Array) -> Array:
        own, z_rows = _by_row(y, z)
        return gradients_of(own, self._probabilities(z_rows)).reshape(z.shape)

    def curvature(self, y: Array, z: Array) -> Array:
        return self._probabilities(_by_row(y, z)[1]).reshape(z.shape)

    def _probabilities(self, z: Array) -> Array:
        parts = np.exp(z - z.max(axis=0))
        return parts / parts.sum(axis=0)

    def _row_conjugate(self, own: Array, p: Array) -> Array:
        return xlogy(p, p).sum(axis=0)


@dataclass(eq=False, repr=False)
class MulticlassHinge(RowLoss):
    """``max_k (1[k != y] + z_k) - z_y``: the multiclass support vector machine of Crammer and Singer."""

    smooth: ClassVar[bool] = False

    def best_constants(self, shares: Array) -> Array:
        """Zero, unless one class has more than half of the weight: then its output is larger by the margin 1.

        The loss is ``min(1, 2 - 2 max share)``.
        """
        ahead = (shares > 0.5).astype(float)
        return ahead - ahead.mean()

    def _row_value(self, own: Array, z: Array) -> Array:
        return np.max(z + ~own, axis=0) - _own(own, z)

    def _row_conjugate(self, own: Array, p: Array) -> Array:
        return -np.where(own, 0.0, p).sum(axis=0)

    def smoothed(self, guess: Array, width: Array | float) -> SmoothedHinge:
        return SmoothedHinge(self, guess, width)


@dataclass(eq=False, repr=False)
class SmoothedHinge(RowLoss):
    """``sup_s <s, z> - l*(y, s) - width ||s - guess||^2 / 2`` for the multiclass hinge ``l``; the analogue of ``Smoothed``.

    The best ``p = s + e_y`` is the projection of ``guess + e_y + (z + 1 - e_y)/width`` on the simplex. The curvature is
    that of the projection on the active face.
    """

    loss: MulticlassHinge
    guess: Array
    width: Array | float

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        return float(np.max(1 / self.width))

    def best_constants(self, shares: Array) -> Array:
        return self.loss.best_constants(shares)

    def _probabilities(self, own: Array, z: Array) -> Array:
        return project_simplex(self.guess.reshape(z.shape) + own + (z + ~own) / self.width)

    def _smoothing_term(self, own: Array, p: Array) -> Array:
        """The smoothing term ``width ||s - guess||^2 / 2`` of each row."""
        return self.width * ((p - own - self.guess.reshape(p.shape)) ** 2).sum(axis=0) / 2

    def _row_value(self, own: Array, z: Array) -> Array:
        p = self._probabilities(own, z)
        return (p * (z - _own(own, z) + ~own)).sum(axis=0) - self._smoothing_term(own, p)

    def _row_conjugate(self, own: Array, p: Array) -> Array:
        return self.loss._row_conjugate(own, p) + self._smoothing_term(own, p)

    def gradient(self, y: Array, z: Array) -> Array:
        own, z_rows = _by_row(y, z)
        return gradients_of(own, self._probabilities(own, z_rows)).reshape(z.shape)

    def curvature(self, y: Array, z: Array) -> Array:
        own, z_rows = _by_row(y, z)
        face = self._probabilities(own, z_rows) > 0
        return (np.where(face.sum(axis=0) > 1, face, 0.0) / self.width).reshape(z.shape)  # no curvature at a vertex

    def majorant(self, y: Array, z: Array) -> Array:
        """With a small curvature off the active face, for steps that leave it."""
        own, z_rows = _by_row(y, z)
        return (np.where(self._probabilities(own, z_rows) > 0, 1.0, MIN_CURVATURE) / self.width).reshape(z.shape)
