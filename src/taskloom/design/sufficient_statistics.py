"""Exact sufficient statistics of the squared loss, and a small data set that has the same ones.

``sum_i s_i (y_i - <x_i, w> - b)^2`` depends on the rows only through the weighted moments of ``(1, x, y)``. Any rows with
these moments give the same objective for every ``w`` and ``b``. With ``C = V diag(k) V'`` the covariance of
``x`` and ``H`` (``m x (m-1)``) orthonormal columns that add up to zero, ``m = rank + 2`` rows do:

    x~ = mean(x) + sqrt(m) H [sqrt(k) V'; 0]        y~ = mean(y) + sqrt(m) H [V' cov(x, y) / sqrt(k); sqrt(rest)]

``rest`` is the residual of least squares. Solver, certificate and intercepts see an ordinary problem, equivalent to the
original.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted moments of inputs (``d``) and targets (``q`` of them, seen in the same rows), centred about their means."""

    weight: float
    x_mean: Array  # d
    y_mean: Array  # q
    gram: Array  # d x d: sum of s (x - mean)(x - mean)'
    cross: Array  # d x q
    squares: Array  # q

    @classmethod
    def empty(cls, d: int, q: int) -> Moments:
        return cls(0.0, np.zeros(d), np.zeros(q), np.zeros((d, d)), np.zeros((d, q)), np.zeros(q))

    def plus(self, X: Array, Y: Array, s: Array) -> Moments:
        """The moments with new rows, centred before they are multiplied (Chan, Golub, LeVeque 1983)."""
        if not np.all(s > 0):
            X, Y, s = X[s > 0], Y[s > 0], s[s > 0]
        total = float(s.sum())
        if total == 0:
            return self
        x_mean, y_mean, root = s @ X / total, s @ Y / total, np.sqrt(s)[:, None]
        X, Y = root * (X - x_mean), root * (Y - y_mean)
        both = self.weight + total
        x_step, y_step, share = x_mean - self.x_mean, y_mean - self.y_mean, self.weight * total / both
        gram = X.T @ X
        gram += self.gram
        gram += share * np.outer(x_step, x_step)
        return Moments(
            both,
            self.x_mean + total / both * x_step,
            self.y_mean + total / both * y_step,
            gram,
            self.cross + X.T @ Y + share * np.outer(x_step, y_step),
            self.squares + np.einsum("ij,ij->j", Y, Y) + share * y_step**2,
        )

    def split(self) -> list[Moments]:
        """The moments of each target on its own."""
        own = [slice(t, t + 1) for t in range(len(self.y_mean))]
        return [replace(self, y_mean=self.y_mean[t], cross=self.cross[:, t], squares=self.squares[t]) for t in own]

    def rows(self) -> tuple[Array, Array]:
        """Inputs (``m x d``) and targets (``m x q``) with these moments, when all rows weigh the same."""
        k, V = np.linalg.eigh(self.gram / self.weight)
        eps = np.finfo(float).eps
        keep = k > max(len(k) * eps * float(k[-1]), float(self.x_mean @ self.x_mean) * (8 * eps) ** 2, np.finfo(float).tiny)
        k, V = k[keep], V[:, keep]
        inside = (V.T @ (self.cross / self.weight)) / np.sqrt(k)[:, None]
        rest = np.sqrt(np.maximum(self.squares / self.weight - np.einsum("ij,ij->j", inside, inside), 0.0))
        return rows_with(self.x_mean, self.y_mean, np.sqrt(k)[:, None] * V.T, inside, rest)


def rows_with(x_mean: Array, y_mean: Array, root: Array, targets: Array, rest: Array) -> tuple[Array, Array]:
    """Rows of equal weight with these means, covariance ``root'root``, ``cov(x, y) = root'targets``, and ``rest``."""
    X = np.vstack([root, np.zeros((2, len(x_mean)))])
    Y = np.vstack([targets, rest, np.zeros(len(rest))])
    return x_mean + _balanced(X), y_mean + _balanced(Y)


def _balanced(rows: Array) -> Array:
    """``sqrt(m) H rows``: the Householder reflection that maps the last axis to the constant vector; the last row is zero."""
    m = len(rows)
    u = np.full(m, -1 / np.sqrt(m))
    u[-1] += 1
    return np.sqrt(m) * (rows - np.outer(u, u @ rows) * (2 / (u @ u)))
