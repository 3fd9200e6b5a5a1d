"""The cluster norm of Jacob, Bach and Vert at some weights: value, slope, and the inverse of its Hessian.

    phi(W) = min over the structures A of Clusters of tr(A^-1 W'W)

It is smooth, a function of the mean of the tasks and of the singular values off the mean: ``sum sigma^2 / a``, with ``a`` the
water-filling of ``sigma``. All but ``k`` directions share the lowest ``a``, so that everything beyond one eigendecomposition
is the identity plus something of rank ``k``. Weights are ``T x r`` here, a row for each task.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .base import Array
from .clusters import Clusters

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
        self.mean = W.mean(axis=0)
        self.flipped = r >= T
        self.tall = self._turned(W - self.mean)
        energy, basis = np.linalg.eigh(self.tall.T @ self.tall)
        sigma = np.sqrt(np.where(energy > NOISE**2 * energy[-1], energy, 0.0))
        a, lowest = structure.fill_up(sigma, T)
        active = a > lowest * (1 + SAME)
        self.k = int(np.count_nonzero(active))
        self.sigma, self.a, self.basis = sigma[::-1], a[::-1], np.ascontiguousarray(basis[:, ::-1])
        self.active = self.basis[:, : self.k]
        self.lowest = lowest
        turned = self.tall @ self.active
        self.V = turned / self.sigma[: self.k]
        self.value = float((self.sigma**2 / self.a).sum()) + structure.mean * T * float(self.mean @ self.mean)
        slope = (2 / lowest) * self.tall + (turned * (2 / self.a[: self.k] - 2 / lowest)) @ self.active.T
        self.slope = self._turned(slope) + 2 * structure.mean * self.mean

    def _turned(self, M: Array) -> Array:
        return np.ascontiguousarray(M.T) if self.flipped else M

    def _pairs(self) -> tuple[Array, Array, Array]:
        """The Hessian on pairs of directions, of which one is active: its symmetric part, the antisymmetric, the diagonal.

        Divided differences of ``g = 2 sigma / a``. Between the bounds ``a = level sigma``, so that ``g`` is the same for all
        of these, and rises with their sum.
        """
        k, sigma, g = self.k, self.sigma, 2 * self.sigma / self.a
        s, inner = sigma[:k, None], self.a[:k] < (1 - SAME) / self.structure.between
        tie = np.abs(s - sigma) <= SAME * s
        limit = np.where(inner, 0.0, 2 / self.a[:k])[:, None]
        even = np.where(tie, limit, (g[:k, None] - g) / np.where(tie, 1.0, s - sigma))
        odd = (g[:k, None] + g) / (s + sigma)
        own = np.diag(2 / self.a[:k])
        own[np.ix_(inner, inner)] = 2 / max(float(self.a[:k][inner].sum()), SAME)
        return even, odd, own

    def inverse(self, alpha: float, shift: float) -> Callable[[Array], Array]:
        """``E -> (alpha phi'' + shift)^-1 E``."""
        k, V, basis, active, sigma = self.k, self.V, self.basis, self.active, self.sigma
        even, odd, own = self._pairs()
        even, odd = 1 / (alpha * even + shift), 1 / (alpha * odd + shift)
        own = np.linalg.inv(alpha * own + shift * np.eye(k))
        one_sided = 1 / (2 * alpha / self.a + shift)
        rest, mean = 1 / (2 * alpha / self.lowest + shift), 1 / (2 * alpha * self.structure.mean + shift)
        # Entries (i, j) and (j, i) of V'E basis mix: by the half sum and, in proportion to the smaller sigma, the difference.
        stay, mix = (even + odd) / 2, (even - odd) / 2
        along, across = stay - one_sided, stay - one_sided[:k, None]
        across[:, :k] = 0.0  # pairs of active directions are among the first kind already
        safe = np.where(sigma > 0, sigma, np.inf)
        diagonal = np.arange(k)

        def apply(E: Array) -> Array:
            m = E.mean(axis=0)
            F = self._turned(E - m)
            Fk = F @ active
            x, y = (V.T @ F) @ basis, ((Fk.T @ self.tall) @ basis) / safe
            dx, dy = along * x + mix * y, across * y
            dy[:, k:] += (mix * x)[:, k:]
            dx[diagonal, diagonal] = own @ x[diagonal, diagonal] - one_sided[:k] * x[diagonal, diagonal]
            right = Fk * (one_sided[:k] - rest) + self.tall @ (basis @ (dy / safe).T)
            out = rest * F
            out += right @ active.T
            out += V @ (dx @ basis.T)
            return self._turned(out) + mean * m

        return apply
