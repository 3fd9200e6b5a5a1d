"""The cluster norm of Jacob, Bach and Vert at some weights: value, gradient, and the inverse of its Hessian.

    phi(W) = min over the structures A of Clusters of tr(A^-1 W'W)

It is smooth, a function of the mean of the tasks and of the singular values off the mean: ``sum sigma^2 / a``, with ``a`` the
water-filling of ``sigma``. All but ``k`` directions share the lowest ``a``, so that everything beyond one eigendecomposition
is the identity plus something of rank ``k``. Weights are ``T x r`` here, a row for each task.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Array
from .clusters import CLEAR, Clusters

SAME = 1e-12  # relative differences below this are ties
NOISE = 1e-7  # singular values below this share of the largest are rounding


class ClusterNorm:
    """``phi`` at ``W``.

    ``tall = V diag(sigma) basis'`` is ``W`` off its mean, transposed where there are fewer tasks than features: the basis is
    that of the smaller side, and the active directions come first.
    """

    def __init__(self, structure: Clusters, W: Array):
        self.structure = structure
        T, r = W.shape
        self.n_tasks = T
        self.mean = W.mean(axis=0)
        self.flipped = r >= T
        self.tall = self._turned(W - self.mean)
        squared_norm, basis = np.linalg.eigh(self.tall.T @ self.tall)
        sigma = np.sqrt(np.where(squared_norm > NOISE**2 * squared_norm[-1], squared_norm, 0.0))
        a, lowest = structure.fill_up(sigma, T)
        active = a > lowest * (1 + SAME)
        self.k = int(np.count_nonzero(active))
        self.sigma, self.a, self.basis = sigma[::-1], a[::-1], np.ascontiguousarray(basis[:, ::-1])
        self.active = self.basis[:, : self.k]
        self.lowest = lowest
        turned = self.tall @ self.active
        self.V = turned / self.sigma[: self.k]
        self.value = float((self.sigma**2 / self.a).sum()) + structure.mean * T * float(self.mean @ self.mean)
        gradient = (2 / lowest) * self.tall + (turned * (2 / self.a[: self.k] - 2 / lowest)) @ self.active.T
        self.gradient = self._turned(gradient) + 2 * structure.mean * self.mean

    def _turned(self, M: Array) -> Array:
        return np.ascontiguousarray(M.T) if self.flipped else M

    @property
    def clear(self) -> bool:
        """Whether the active directions are clear of rounding."""
        return bool(np.all(self.sigma[: self.k] >= CLEAR * self.sigma[:1]))

    def best(self) -> Array:
        """The structure that attains the minimum."""
        return self.structure.assembled(self.a[: self.k], self.active if self.flipped else self.V, self.lowest)

    @property
    def _between(self) -> Array:
        """Which of the active directions lie between the bounds, where they share what there is."""
        return self.a[: self.k] < (1 - SAME) / self.structure.between

    def _pairs(self) -> tuple[Array, Array]:
        """The Hessian on pairs of directions, of which one is active: its symmetric part and the antisymmetric.

        Divided differences of ``g = 2 sigma / a``. Between the bounds ``a = level sigma``, so that ``g`` is the same for all
        of these, and rises with their sum.
        """
        k, sigma, g = self.k, self.sigma, 2 * self.sigma / self.a
        s, limit = sigma[:k, None], np.where(self._between, 0.0, 2 / self.a[:k])[:, None]
        apart = s - sigma
        tie = np.abs(apart) <= SAME * s
        even = np.where(tie, limit, (g[:k, None] - g) / np.where(tie, 1.0, apart))
        return even, (g[:k, None] + g) / (s + sigma)

    def inverse(self, alpha: float, shift: float) -> Callable[[Array], Array]:
        """``E -> (alpha phi'' + shift)^-1 E``."""
        k, V, basis, active, sigma, tall = self.k, self.V, self.basis, self.active, self.sigma, self.tall
        even, odd = (1 / (alpha * part + shift) for part in self._pairs())
        one_sided = 1 / (2 * alpha / self.a + shift)
        rest, mean = 1 / (2 * alpha / self.lowest + shift), 1 / (2 * alpha * self.structure.mean + shift)
        # Entries (i, j) and (j, i) of V'E basis mix: by the half sum and, in proportion to the smaller sigma, the difference.
        # Of the second kind, pairs of active directions are among the first kind already; all are over sigma, once or twice.
        stay, mix = (even + odd) / 2, (even - odd) / 2
        over = np.where(sigma > 0, 1 / np.where(sigma > 0, sigma, 1.0), 0.0)
        along, mixed = stay - one_sided, mix * over
        across, later = (stay - one_sided[:k, None]) * over**2, mixed.copy()
        across[:, :k] = later[:, :k] = 0.0
        # On the diagonal, what lies between the bounds only feels the sum; the rest is one-sided.
        between = self._between
        level = 2 * alpha / max(float(self.a[:k][between].sum()), SAME)
        shared = level / (shift + level * np.count_nonzero(between)) if between.any() else 0.0
        own, step, above = 1 / shift - one_sided[:k], len(sigma) + 1, one_sided[:k] - rest
        weights = np.full(self.n_tasks, 1 / self.n_tasks)

        def apply(E: Array) -> Array:
            m = weights @ E
            F = self._turned(E - m)
            Fk = F @ active
            x, y = (V.T @ F) @ basis, (Fk.T @ tall) @ basis
            dx, dy = along * x + mixed * y, across * y + later * x
            diagonal = x.ravel()[::step]
            dx.ravel()[::step] = np.where(between, own * diagonal - (shared / shift) * diagonal[between].sum(), 0.0)
            out = rest * F
            out += (Fk * above + tall @ (basis @ dy.T)) @ active.T
            out += V @ (dx @ basis.T)
            return self._turned(out) + mean * m

        return apply

    def majorant(self, alpha: float, shift: float) -> Callable[[Array], Array]:
        """``E -> (2 alpha A^-1 + shift)^-1 E`` with the best structure ``A`` for the weights: no less curved than ``phi``."""
        U = self.active if self.flipped else self.V
        rest, mean = 1 / (2 * alpha / self.lowest + shift), 1 / (2 * alpha * self.structure.mean + shift)
        above = (1 / (2 * alpha / self.a[: self.k] + shift) - rest)[:, None]

        def apply(E: Array) -> Array:
            m = E.mean(axis=0)
            F = E - m
            return rest * F + U @ (above * (U.T @ F)) + mean * m

        return apply
