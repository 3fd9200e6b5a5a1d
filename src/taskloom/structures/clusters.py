"""Clustered tasks: Jacob, Bach and Vert's convex relaxation, in the corrected form of docs/notation.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.linalg import helmert

from .._linalg import column_squares, gram_spectrum, project_box_sum, symmetric
from .base import Array, Ray, Structure, linear_ray
from .cluster_norm import ClusterNorm


def _clipped_sums(rising: Array, levels: Array, low: float, high: float) -> Array:
    """``sum clip(level x, low, high)`` over the entries ``x >= 0`` of a sorted array, for each level."""
    below, above = rising.searchsorted(low / levels), rising.searchsorted(high / levels, side="right")
    total = np.zeros(rising.size + 1)
    np.cumsum(rising, out=total[1:])
    return low * below + high * (rising.size - above) + levels * (total[above] - total[below])


@dataclass(eq=False, repr=False)
class Clusters(Structure):
    """``A(M) = U/mean + (M - U)/between + (I - M)/within``: ``n_clusters`` groups of similar tasks (MTCL).

    ``U = 11'/T``; ``M`` relaxes the projection onto cluster indicators: ``0 <= M <= I``, ``tr M = n_clusters``,
    ``M 1 = 1``. Off the mean, the eigenvalues of ``A`` are ``1/within + (1/between - 1/within) m`` with ``0 <= m <= 1``
    and ``sum m = n_clusters - 1``; the best ones follow from water-filling.

    Parameters
    ----------
    n_clusters : int, default=2
        The number of clusters ``r``, from 1 to the number of tasks.
    mean : float, default=0.1
        Penalty ``e_M`` of the mean of all tasks.
    between : float, default=1.0
        Penalty ``e_B`` of the differences between the means of clusters.
    within : float, default=10.0
        Penalty ``e_W`` of the differences within clusters; at least ``between``.
    """

    n_clusters: int = 2
    mean: float = 0.1
    between: float = 1.0
    within: float = 10.0
    ranges: ClassVar[dict[str, str]] = {"mean": "> 0", "between": "> 0", "within": "> 0"}
    interior: ClassVar[bool] = True
    smooth_norm: ClassVar[bool] = True

    def check(self) -> None:
        if not (isinstance(self.n_clusters, (int, np.integer)) and self.n_clusters >= 1):
            raise ValueError(f"Clusters needs a whole number n_clusters >= 1, got n_clusters={self.n_clusters!r}")
        super().check()
        if not self.within >= self.between:
            raise ValueError(
                f"Clusters needs within >= between to mean clusters, got within={self.within!r}, between={self.between!r}"
            )

    def check_tasks(self, n_tasks: int) -> None:
        if self.n_clusters > n_tasks:
            raise ValueError(
                f"Clusters(n_clusters={self.n_clusters}) needs at least as many tasks as clusters, but the data have {n_tasks}"
            )

    @property
    def _spread(self) -> float:
        return 1 / self.between - 1 / self.within

    def is_singleton(self, n_tasks: int) -> bool:
        return self.n_clusters in (1, n_tasks) or self.within == self.between

    def in_task_span(self, n_tasks: int, n_directions: int) -> Structure | None:
        """The same penalty: other directions have the lowest eigenvalue, as long as there are directions to be raised."""
        return replace(self, n_clusters=min(self.n_clusters, n_directions))

    def weight_norm(self, W: Array) -> ClusterNorm:
        return ClusterNorm(self, W)

    def _off_mean(self, S: Array) -> tuple[Array, Array]:
        """The eigenvalues and eigenvectors of ``S`` on the complement of the mean."""
        H = helmert(len(S)).T  # an orthonormal basis of the vectors that add up to zero
        s, V = np.linalg.eigh(symmetric(H.T @ S @ H))
        return s, H @ V

    def _assemble(self, a: Array, V: Array) -> Array:
        T = len(V)
        return np.full((T, T), 1 / (T * self.mean)) + (V * a) @ V.T

    def value(self, A: Array) -> float:
        a, V = self._off_mean(A)
        if not np.allclose(self._assemble(a, V), A, rtol=1e-7, atol=1e-9 / self.mean):
            return np.inf
        low, high, total = 1 / self.within, 1 / self.between, self._total(a.size)
        slack = 1e-7 * high
        inside = np.all((a >= low - slack) & (a <= high + slack)) and abs(a.sum() - total) <= slack * max(a.size, 1)
        return 0.0 if inside else np.inf

    def _total(self, size: int) -> float:
        """The sum of the eigenvalues orthogonal to the mean."""
        return size / self.within + self._spread * min(self.n_clusters - 1, size)

    def best_structure(self, S: Array) -> Array:
        s, V = self._off_mean(S)
        return self._assemble(self._water_filling(np.sqrt(np.maximum(s, 0.0))), V)

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        """From the cluster norm if there are fewer rows than tasks and rounding permits, else from ``R'R``."""
        T = R.shape[1]
        if not np.any(R):
            return self.from_eigen(np.zeros(0), np.zeros((T, 0)), self._total(T - 1) / max(T - 1, 1)), 0.0
        if floor == 0 and len(R) < T and (norm := self.weight_norm(R.T)).clear:
            return norm.best(), norm.value
        S = R.T @ R
        s, V = self._off_mean(S)
        a = self._water_filling(np.sqrt(np.maximum(s, 0.0) + floor))
        return self._assemble(a, V), float((column_squares(R @ V) / a).sum()) + self.mean * float(S.sum()) / T

    def from_eigen(self, a: Array, V: Array, lowest: float) -> Array:
        """The structure with eigenvalues ``a`` along ``V`` and ``lowest`` along the other directions off the mean.

        Parameters
        ----------
        a : ndarray of shape (n_directions,)
            Eigenvalues.
        V : ndarray of shape (n_tasks, n_directions)
            Eigenvectors, orthogonal to the mean.
        lowest : float
            The eigenvalue of the other directions.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks)
            The structure.
        """
        A = self._assemble(a - lowest, V) - lowest / len(V)
        A[np.diag_indices(len(A))] += lowest
        return A

    def water_filling(self, sigma: Array, n_tasks: int) -> tuple[Array, float]:
        """The eigenvalues of the best structure for singular values of ``R`` orthogonal to the mean (ascending).

        Missing singular values are zeros; with ``n_tasks`` of them the first one belongs to the mean.

        Parameters
        ----------
        sigma : ndarray of shape (n_directions,)
            Singular values, in ascending order.
        n_tasks : int
            The number of tasks.

        Returns
        -------
        tuple of ndarray of shape (n_directions,) and float
            Eigenvalues along these directions, and along all others.
        """
        root = np.zeros(n_tasks - 1)
        given = sigma[max(sigma.size - root.size, 0) :]
        root[root.size - given.size :] = given
        a = self._water_filling(root)
        lowest = float(a[0]) if a.size and root[0] == 0 else 1 / self.within
        return np.concatenate([np.full(sigma.size - given.size, lowest), a[root.size - given.size :]]), lowest

    def _water_filling(self, root: Array) -> Array:
        """``argmin sum root^2 / a`` over the box with the given sum: ``a = clip(level root)``, one equation for ``level``."""
        low, high = 1 / self.within, 1 / self.between
        total = self._total(root.size)
        positive = root[root > 0]
        if positive.size == 0 or self._spread == 0:
            return np.full(root.size, total / max(root.size, 1))
        breaks = np.concatenate([low / positive, high / positive])
        breaks.sort()
        sums = _clipped_sums(np.sort(root), breaks, low, high)
        if sums[-1] < total:  # the directions with root = 0, if any, share the rest
            a = np.full(root.size, high)
            a[root <= 0] = (total - high * positive.size) / max(root.size - positive.size, 1)
            return a
        return np.clip(np.interp(total, sums, breaks) * root, low, high)

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        means = S.mean(axis=0)
        whole = float(S.mean())
        s = np.linalg.eigvalsh(symmetric(S - means[:, None] - means[None, :] + whole))
        return self._support(len(S) * whole, s)

    def _support(self, mean: float, s: Array) -> float:
        """``F*`` from ``1'S1/T`` and the eigenvalues of ``S`` off the mean (ascending; zeros may be left out)."""
        top = s[::-1][: self.n_clusters - 1].sum()
        return float(mean / self.mean + s.sum() / self.within + self._spread * top)

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        """Linear, because ``F*`` is a support function."""
        return linear_ray(self.conjugate(S))

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        mean = R.mean(axis=1)
        return linear_ray(self._support(R.shape[1] * float(mean @ mean), gram_spectrum(R - mean[:, None])))

    def prox(self, A: Array, step: float) -> Array:
        a, V = self._off_mean(A)
        return self._assemble(project_box_sum(a, 1 / self.within, 1 / self.between, self._total(a.size)), V)
