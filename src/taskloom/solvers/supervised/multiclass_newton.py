"""The supervised step for multiclass losses, on either side: one Newton system for all classes.

With ``W = C B R'``, ``P = Phi C`` (task side ``C = I``, ``R = L / sqrt(2 alpha)``; feature side ``C = Q / sqrt(2 alpha)``,
``R = I``) the step minimises ``sum_i v_i l(y_i, (P B R')_i + b) + ||B||^2 / 2``. The Hessian of the loss of a row is
``diag(h) - hh'/sum(h)``. Small systems are dense; larger ones are solved by conjugate gradients, preconditioned with the mean
Hessian over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import issparse

from ..._linalg import psd_eigh
from ...features.kernels import weighted_gram
from ...problem import Problem
from .newton_systems import TUNING as SYSTEMS
from .newton_systems import BatchDesign, Direction, Intercepts, bordered_direction, iterative_direction

Array = np.ndarray


@dataclass(frozen=True)
class RowTuning:
    """The largest dense systems for all classes."""

    max_dense_unknowns: int = 600
    max_dense_multiplications: float = 2e8  # to assemble the system
    max_dense_entries: float = 5e6  # of its intermediate arrays
    flat_share: float = 1e-4  # of the largest curvature, below which curvatures of the intercepts are at most doubled,
    min_flat_damping: float = 1e-8  # by at least this share,
    damping: float = 1e-12  # and the share otherwise


TUNING = RowTuning()


class RowInputs:
    """``P`` and ``C``, with no more columns than rows if possible; sparse features are not multiplied out."""

    def __init__(self, problem: Problem, C: Array | None = None):
        self.problem, self.C = problem, C
        self.n = int(problem.observations.counts[0])
        self.phi = problem.inputs.rows(problem.observations.row[: self.n])
        self.P: Array | None = None
        if not issparse(self.phi):
            self.P = self.phi if C is None else self.phi @ C
            if self.P.shape[1] > self.n:
                basis, R = np.linalg.qr(self.P.T)
                self.P, self.C = R.T, basis if C is None else C @ basis

    def forward(self, B: Array) -> Array:
        return self.phi @ self.to_original(B) if self.P is None else self.P @ B

    def back(self, G: Array) -> Array:
        if self.P is not None:
            return self.P.T @ G
        return self.phi.T @ G if self.C is None else self.C.T @ (self.phi.T @ G)

    def to_original(self, B: Array) -> Array:
        return B if self.C is None else self.C @ B

    @cached_property
    def spectrum(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of ``P'VP``, centred if there are intercepts."""
        v = self.problem.observations.weight[: self.n]
        gram = weighted_gram(self.phi if self.P is None else self.P, v)
        if self.P is None and self.C is not None:
            gram = self.C.T @ gram @ self.C
        mean = self.back(v[:, None])
        return psd_eigh(gram - mean @ mean.T / v.sum() if self.problem.fit_intercept else gram)


class RowDesign(BatchDesign):
    """All classes in one batch element; the coefficients are ``B``, flattened."""

    def __init__(self, inputs: RowInputs, R: Array | None):
        self.problem, self.inputs, self.R = inputs.problem, inputs, R
        width = (inputs.phi if inputs.C is None else inputs.C).shape[1]
        self.shape = (width, self.problem.n_tasks if R is None else R.shape[1])

    def table(self, x: Array) -> Array:
        """Entries as a matrix, a row for each row of the data."""
        return x.reshape(self.problem.n_tasks, -1).T

    def weights(self, coef: Array) -> Array:
        """``W`` for coefficients."""
        return self.inputs.to_original(self._expanded(coef.reshape(self.shape)))

    def coefficients(self, W: Array) -> Array:
        """The coefficients nearest to weights."""
        B = W if self.inputs.C is None else np.linalg.lstsq(self.inputs.C, W, rcond=None)[0]
        return (B if self.R is None else np.linalg.lstsq(self.R, B.T, rcond=None)[0].T).reshape(1, -1)

    def _expanded(self, B: Array) -> Array:
        return B if self.R is None else B @ self.R.T

    def start(self, u: Array) -> Array:
        U = self.table(u)
        return self.inputs.back(U if self.R is None else U @ self.R).reshape(1, -1)

    def predict(self, coef: Array) -> Array:
        return self._expanded(self.inputs.forward(coef.reshape(self.shape))).T.reshape(1, -1)

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        (p, q), n = self.shape, self.inputs.n
        small = p * q <= TUNING.max_dense_unknowns and n * p * p <= TUNING.max_dense_entries
        small &= n * (p * q) ** 2 <= TUNING.max_dense_multiplications
        hessian = RowHessian(self.problem, self.table(h))
        if small and self.inputs.P is not None:
            return bordered_direction(self, self._system(hessian, self.inputs.P)[None], intercepts)
        return self._iterative(hessian, intercepts)

    def _system(self, hessian: RowHessian, P: Array) -> Array:
        """``I + sum_i P_i P_i' x R'H_iR`` (Kronecker products), bordered by the intercepts."""
        T = hessian.h.shape[1]
        R = np.eye(T) if self.R is None else self.R
        part = R[None] - (hessian.share @ R)[:, None]  # centred first, so that the result is positive semidefinite
        correlated = hessian.h[:, :, None] * part
        middle = np.matmul(part.transpose(0, 2, 1), correlated)
        (n, p), q = P.shape, R.shape[1]
        pairs = (P[:, :, None] * P[:, None, :]).reshape(n, p * p)
        M = (pairs.T @ middle.reshape(n, q * q)).reshape(p, p, q, q).transpose(0, 2, 1, 3).reshape(p * q, p * q)
        M[np.diag_indices(p * q)] += 1.0
        if not self.problem.fit_intercept:
            return M
        edge = (P.T @ correlated.reshape(n, T * q)).reshape(p, T, q).transpose(0, 2, 1).reshape(p * q, T)
        return np.block([[M, edge], [edge.T, hessian.of_intercepts]])

    def _iterative(self, hessian: RowHessian, intercepts: Intercepts | None) -> Direction:
        """Conjugate gradients, preconditioned with the mean Hessian; inexact far from the minimum."""
        g, U = self.inputs.spectrum
        mean = hessian.mean / self.problem.observations.weight[: self.inputs.n].sum()
        m, V = psd_eigh(mean if self.R is None else self.R.T @ mean @ self.R)
        scale, inverse = 1 + g[:, None] * m, np.zeros((1, 1)) if intercepts is None else np.linalg.inv(hessian.of_intercepts)

        def max_residual(rhs: Array, coef: Array, g: Array) -> float:
            size, left = float(np.linalg.norm(coef)) + float(np.linalg.norm(self.start(g))), float(np.linalg.norm(rhs))
            return float(np.clip(left / max(size, 1e-300), SYSTEMS.relative_residual, SYSTEMS.max_relative_residual)) * left

        return iterative_direction(
            self,
            curved=lambda z: hessian.times(self.table(z)).T.reshape(1, -1),
            intercepts=intercepts,
            solved=lambda gathered: gathered @ inverse,
            max_residual=max_residual,
            preconditioner=lambda x: (U @ ((U.T @ x.reshape(self.shape) @ V) / scale) @ V.T).reshape(1, -1),
        )


class RowHessian:
    """The Hessian of the loss."""

    def __init__(self, problem: Problem, h: Array):
        self.problem, self.h = problem, h
        total = h.sum(axis=1, keepdims=True)
        self.share = np.divide(h, total, out=np.zeros_like(h), where=total > 0)
        self.mean = np.diag(h.sum(axis=0)) - self.share.T @ h  # over the rows, times their number

    def times(self, U: Array) -> Array:
        """The Hessian of the loss times ``U`` (``n x T``)."""
        return self.h * (U - np.einsum("it,it->i", self.share, U)[:, None])

    @property
    def of_intercepts(self) -> Array:
        """The Hessian of the intercepts (``T x T``) with Levenberg damping, since they are not penalised.

        The constant direction, which no row determines, gets the largest curvature. Small eigenvalues are at most doubled: more
        damping would slow the convergence.
        """
        (n, T), problem = self.h.shape, self.problem
        most = problem.loss.max_curvature * float(problem.observations.weight[:n].sum())
        e, V = psd_eigh(self.mean + most * np.full((T, T), 1 / T))
        flat = np.maximum(e, TUNING.min_flat_damping * most)
        lift = np.where(e < TUNING.flat_share * most, flat, TUNING.damping * most)
        return (V * np.maximum(e + lift, 1e-300)) @ V.T
