"""The cluster norm of Jacob, Bach and Vert at some weights: value, gradient, and the inverse of its Hessian.

    phi(W) = min over the structures A of Clusters of tr(A^-1 W'W)

It is smooth, a function of the mean of the tasks and of the singular values orthogonal to the mean: ``sum sigma^2 / a``, with
``a`` from water-filling. All but ``k`` directions have the lowest ``a``, so that after one eigendecomposition all operators are
a multiple of the identity plus a matrix of rank ``k``. Weights are ``T x r`` here, one row per task.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .base import Array

if TYPE_CHECKING:
    from .clusters import Clusters

MIN_SIGMA = 1e-5  # relative to the largest: smaller singular values are not accurate enough from a Gram matrix
TIE = 1e-12  # relative differences below this are ties
MIN_SIGMA_SINGLE = 1e-3  # the same in single precision: the coupling of smaller ones is left out of the inverse Hessian
ROUNDING = 1e-7  # singular values below this share of the largest count as zero


def _cast(dtype: type, *parts: Array) -> list[Array]:
    return [part.astype(dtype, copy=False) for part in parts]


class ClusterNorm:
    """``phi`` at ``W``.

    ``tall = V diag(sigma) basis'`` is ``W`` minus its mean, transposed if there are fewer tasks than features, so that the
    basis has the smaller dimension. The active directions come first.
    """

    def __init__(self, structure: Clusters, W: Array):
        self.structure = structure
        T, r = W.shape
        self.n_tasks = T
        self.mean = W.mean(axis=0)
        self.transposed = r >= T
        self.tall = self._oriented(W - self.mean)
        squared_norm, basis = np.linalg.eigh(self.tall.T @ self.tall)
        sigma = np.sqrt(np.where(squared_norm > ROUNDING**2 * squared_norm[-1], squared_norm, 0.0))
        a, lowest = structure.water_filling(sigma, T)
        active = a > lowest * (1 + TIE)
        self.k = int(np.count_nonzero(active))
        self.sigma, self.a, self.basis = sigma[::-1], a[::-1], np.ascontiguousarray(basis[:, ::-1])
        self.active = self.basis[:, : self.k]
        self.lowest = float(lowest)
        self.V = (self.tall @ self.active) / self.sigma[: self.k]
        self.value = float((self.sigma**2 / self.a).sum()) + structure.mean * T * float(self.mean @ self.mean)

    def _oriented(self, M: Array) -> Array:
        return np.ascontiguousarray(M.T) if self.transposed else M

    @cached_property
    def gradient(self) -> Array:
        above = self.sigma[: self.k] * (2 / self.a[: self.k] - 2 / self.lowest)
        gradient = (2 / self.lowest) * self.tall + (self.V * above) @ self.active.T
        return self._oriented(gradient) + 2 * self.structure.mean * self.mean

    @property
    def clear(self) -> bool:
        """Whether the singular values of the active directions are well above rounding."""
        return bool(np.all(self.sigma[: self.k] >= MIN_SIGMA * self.sigma[:1]))

    def best(self) -> Array:
        """The structure that attains the minimum."""
        return self.structure.from_eigen(self.a[: self.k], self.active if self.transposed else self.V, self.lowest)

    @property
    def _between(self) -> Array:
        """Which of the active eigenvalues lie strictly between the bounds."""
        return self.a[: self.k] < (1 - TIE) / self.structure.between

    def _pairs(self) -> tuple[Array, Array]:
        """The Hessian on pairs of directions of which one is active: symmetric and antisymmetric part.

        Divided differences of ``g = 2 sigma / a``. Between the bounds ``a = level sigma``, so that ``g`` is equal for all
        of these, and increases with their sum.
        """
        k, sigma, g = self.k, self.sigma, 2 * self.sigma / self.a
        s, limit = sigma[:k, None], np.where(self._between, 0.0, 2 / self.a[:k])[:, None]
        apart = s - sigma
        tie = np.abs(apart) <= TIE * s
        even = np.where(tie, limit, (g[:k, None] - g) / np.where(tie, 1.0, apart))
        return even, (g[:k, None] + g) / (s + sigma)

    def inverse(self, alpha: float, shift: float, dtype: type = float) -> Callable[[Array], Array]:
        """``E -> (alpha phi'' + shift)^-1 E``; in single precision it is accurate to a few digits."""
        k, sigma = self.k, self.sigma
        even, odd = (1 / (alpha * part + shift) for part in self._pairs())
        one_sided = 1 / (2 * alpha / self.a + shift)
        rest, mean = 1 / (2 * alpha / self.lowest + shift), 1 / (2 * alpha * self.structure.mean + shift)
        # Entries (i, j) and (j, i) of V'E basis are coupled: by half the sum and, with the ratio of the sigmas, the difference.
        # Pairs of two active directions are counted once; all coefficients are divided by sigma once or twice.
        stay, mix = (even + odd) / 2, (even - odd) / 2
        clear = sigma > (0.0 if dtype is float else MIN_SIGMA_SINGLE * sigma[0])
        over = np.where(clear, 1 / np.where(clear, sigma, 1.0), 0.0)
        along, mixed = stay - one_sided, mix * over
        across, later = (stay - one_sided[:k, None]) * over**2, mixed.copy()
        across[:, :k] = later[:, :k] = 0.0
        # On the diagonal, entries between the bounds depend on their sum only; the others are separate.
        between = self._between
        level = 2 * alpha / max(float(self.a[:k][between].sum()), TIE)
        shared = level / (shift + level * np.count_nonzero(between)) if between.any() else 0.0
        own, step, above = 1 / shift - one_sided[:k], len(sigma) + 1, one_sided[:k] - rest
        held = (np.full(self.n_tasks, 1 / self.n_tasks), self.V, self.basis, self.tall @ self.basis)
        weights, V, basis, scaled = _cast(dtype, *held)
        along, mixed, across, later, own, above = _cast(dtype, along, mixed, across, later, own, above)
        active = basis[:, :k]

        def apply(E: Array) -> Array:
            m = weights @ E
            F = self._oriented(E - m)
            Fk = F @ active
            x, y = (V.T @ F) @ basis, Fk.T @ scaled
            dx, dy = along * x + mixed * y, across * y + later * x
            diagonal = x.ravel()[::step]
            dx.ravel()[::step] = np.where(between, own * diagonal - (shared / shift) * diagonal[between].sum(), 0.0)
            out = rest * F
            out += (Fk * above + scaled @ dy.T) @ active.T
            out += V @ (dx @ basis.T)
            return self._oriented(out) + mean * m

        return apply

    def majorant(self, alpha: float, shift: float) -> Callable[[Array], Array]:
        """``E -> (2 alpha A^-1 + shift)^-1 E`` with the best structure ``A``, whose quadratic form majorises ``phi``."""
        U = self.active if self.transposed else self.V
        rest, mean = 1 / (2 * alpha / self.lowest + shift), 1 / (2 * alpha * self.structure.mean + shift)
        above = (1 / (2 * alpha / self.a[: self.k] + shift) - rest)[:, None]

        def apply(E: Array) -> Array:
            m = E.mean(axis=0)
            F = E - m
            return rest * F + U @ (above * (U.T @ F)) + mean * m

        return apply
