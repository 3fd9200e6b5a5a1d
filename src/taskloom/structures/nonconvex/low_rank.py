"""Low rank plus diagonal: the structure of coregionalised Gaussian processes and of factor analysis."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np

from ..._linalg import psd_root, symmetric
from ..._time_limit import check_time
from ..base import Array, Structure
from ..spectral import Trace
from .base import NonConvex


@dataclass(eq=False, repr=False)
class LowRank(NonConvex):
    """``F(A) = tr A`` for ``A = BB' + diag(d)`` with ``rank`` columns in ``B`` and ``d >= 0``.

    The weights are a shared part of this rank plus a task-specific part (none with ``specific=False``). This is the output
    kernel of Dinuzzo (2013) and the coregionalisation of Gaussian processes, with the penalty of ``Trace``. For ``rank >= T``
    it equals ``Trace`` and is convex, which the fit does not use.

    Parameters
    ----------
    rank : int, default=2
        The number of columns of ``B``, at least 1.
    specific : bool, default=True
        Whether tasks have task-specific variances ``d``.
    """

    rank: int = 2
    specific: bool = True

    task_factor: ClassVar[bool] = True

    def check(self) -> None:
        if not (isinstance(self.rank, Integral) and not isinstance(self.rank, bool) and self.rank >= 1):
            raise ValueError(f"LowRank needs a whole number rank >= 1, got rank={self.rank!r}")
        if not isinstance(self.specific, bool | np.bool_):
            raise ValueError(f"LowRank needs specific=True or False, got {self.specific!r}")

    def convex_bound(self) -> tuple[Structure, float]:
        return Trace(), 1.0  # the same penalty on a larger set

    def value(self, A: Array) -> float:
        """``tr A``; solvers work on the factor, so that ``A`` is in the set."""
        return float(np.trace(A))

    def root_of(self, factor: Array) -> Array:
        """``L = [B, diag(e)]`` with ``A = LL'`` for a factor ``[B, e]``, or ``B`` itself without specific variances.

        Parameters
        ----------
        factor : ndarray of shape (n_tasks, n_columns)
            ``[B, e]``, or ``B``.

        Returns
        -------
        ndarray of shape (n_tasks, n_columns_of_root)
            The root ``L``.
        """
        return np.hstack([factor[:, :-1], np.diag(factor[:, -1])]) if self.specific else factor

    def gradient_of(self, factor: Array, gradient: Array) -> Array:
        """The gradient in ``[B, e]`` for a gradient in ``A``.

        Parameters
        ----------
        factor : ndarray of shape (n_tasks, n_columns)
            ``[B, e]``, or ``B``.
        gradient : ndarray of shape (n_tasks, n_tasks)
            The gradient in ``A``.

        Returns
        -------
        ndarray of shape (n_tasks, n_columns)
            The gradient in the factor.
        """
        out = 2 * gradient @ factor
        if self.specific:
            out[:, -1] = 2 * np.diag(gradient) * factor[:, -1]
        return out

    def first_factor(self, S: Array, share: float) -> Array:
        """An initial factor for ``S = alpha W'W``: the leading eigenvectors, and the diagonal of the remainder.

        Parameters
        ----------
        S : ndarray of shape (n_tasks, n_tasks)
            Symmetric positive semidefinite.
        share : float
            Added to all singular values, relative to their mean, so that no direction starts at zero.

        Returns
        -------
        ndarray of shape (n_tasks, n_columns)
            ``[B, e]``, or ``B``.
        """
        squared_norm, V = np.linalg.eigh(symmetric(S))
        size = np.sqrt(np.maximum(squared_norm[::-1], 0.0))
        V, lift, q = V[:, ::-1], share * float(size.mean()), min(self.rank, len(S))
        B = V[:, :q] * np.sqrt(size[:q] + lift)
        if not self.specific:
            return B
        left = (V[:, q:] ** 2) @ size[q:] ** 2
        return np.column_stack([B, np.sqrt(np.sqrt(left) + lift)])

    def best_structure(self, S: Array) -> Array:
        """``sqrt(S)`` truncated to the rank; with specific variances a stationary point of this nonconvex problem.

        Alternates between splitting a root ``R`` of ``S`` into a shared and a task-specific part, given ``A``, and the best
        ``A`` for the two parts. The objective never increases.
        """
        factor = self.first_factor(S, 1e-3 if self.specific else 0.0)
        if not self.specific:
            return factor @ factor.T
        R = psd_root(S).T
        shared, own = factor[:, :-1] @ factor[:, :-1].T, factor[:, -1] ** 2
        for _ in range(500):
            check_time()
            last = shared + np.diag(own)
            V = np.linalg.lstsq(last, R.T, rcond=1e-14)[0].T
            _, s, Vt = np.linalg.svd(V @ shared, full_matrices=False)
            q = min(self.rank, s.size)
            shared, own = (Vt[:q].T * s[:q]) @ Vt[:q], np.linalg.norm(V * own, axis=0)
            if np.abs(shared + np.diag(own) - last).max() <= 1e-10 * np.abs(last).max():
                break
        return shared + np.diag(own)

    def residual(self, A: Array, correlation: Array, unit: float, factor: Array | None = None) -> float:
        """``||(I - correlation) B||`` in units of ``sqrt(unit)``; the projected gradient in ``d >= 0``, in units of ``unit``.

        Where ``B`` has a zero singular value, the smallest eigenvalue of the gradient must not be negative either.
        """
        assert factor is not None, "LowRank needs the factor of A"
        gradient = np.eye(len(A)) - correlation
        B = factor[:, :-1] if self.specific else factor
        parts = [float(np.linalg.norm(gradient @ B)) / np.sqrt(unit)]
        if np.linalg.svd(B, compute_uv=False)[-1] ** 2 <= 1e-6 * unit:
            parts.append(max(-float(np.linalg.eigvalsh(gradient)[0]), 0.0))
        if self.specific:
            along = np.diag(gradient)
            parts.append(float(np.linalg.norm(np.where(along > 0, along * factor[:, -1] ** 2 / unit, along))))
        return float(np.linalg.norm(parts))
