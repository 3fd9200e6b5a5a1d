"""The supervised step for multiclass losses, on either side: one Newton system for all classes.

With ``W = C B R'``, ``P = Phi C`` (task side ``C = I``, ``R = L / sqrt(2 alpha)``; feature side ``C = Q / sqrt(2 alpha)``,
``R = I``) the step minimises ``sum_i v_i l(y_i, (P B R')_i + b) + ||B||^2 / 2``. The Hessian of the loss of a row is
``diag(h) - hh'/sum(h)``. Small systems are dense; larger ones are solved by conjugate gradients, preconditioned with the mean
Hessian over the rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse

from ..._linalg import Positive, psd_eigh
from ...features.kernels import Matrix, weighted_gram
from ...problem import Problem
from .batched_newton import Batch, newton
from .newton_systems import TUNING as SYSTEMS
from .newton_systems import BatchDesign, Direction, Intercepts, IterativeDirection, OnePerTask

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


def row_fit(
    problem: Problem,
    Q: Array | None,
    L: Array | None,
    dual: Array,
    W: Array | None,
    b: Array,
    inputs: RowInputs | None = None,
) -> tuple[Array, Array, float]:
    """Weights, centred intercepts and norm at ``D = QQ'`` or ``A = LL'``, from the last duals, weights and intercepts.

    The starting point is the better of the last duals and the last weights.
    """
    obs = problem.observations
    design = RowDesign(problem, Q, L, inputs)
    intercepts = OnePerTask(obs.task, problem.n_tasks) if problem.fit_intercept else None
    batch = Batch(problem.loss, obs.y[None], obs.weight[None], design, intercepts)
    offset = b[None] if problem.fit_intercept else np.zeros((1, 0))

    def value(coef: Array) -> float:
        z = batch.outputs(design.predict(coef), offset)
        return problem.loss_term(z[0]) + float(np.vdot(coef, coef)) / 2

    starts = [design.start(dual[None])] + ([] if W is None else [design.coefficients(W)])
    fit = newton(batch, min(starts, key=value), offset)
    b = problem.loss.intercepts(fit.b[0]) if problem.fit_intercept else np.zeros(problem.n_tasks)
    return design.weights(fit.coef), b, fit.norm


class RowInputs:
    """``P`` and ``C``, with no more columns than rows if possible; sparse features are not multiplied out."""

    def __init__(self, phi: Matrix, C: Array | None):
        self.phi, self.C = phi, C
        self.P: Array | None = None
        if not issparse(phi):
            self.P = phi if C is None else phi @ C
            if self.P.shape[1] > len(self.P):
                basis, R = np.linalg.qr(self.P.T)
                self.P, self.C = R.T, basis if C is None else C @ basis
        self.width = (phi if self.C is None else self.C).shape[1]
        self._spectrum: tuple[Array, Array] | None = None

    @classmethod
    def of(cls, problem: Problem) -> RowInputs:
        """The inputs of all features, for any structure on the tasks."""
        return cls(problem.inputs.rows(problem.observations.row[: problem.observations.counts[0]]), None)

    def forward(self, B: Array) -> Array:
        return self.phi @ self.to_original(B) if self.P is None else self.P @ B

    def back(self, G: Array) -> Array:
        if self.P is not None:
            return self.P.T @ G
        return self.phi.T @ G if self.C is None else self.C.T @ (self.phi.T @ G)

    def to_original(self, B: Array) -> Array:
        return B if self.C is None else self.C @ B

    def to_inner(self, W: Array) -> Array:
        """The nearest ``B`` to weights ``CB``."""
        return W if self.C is None else np.linalg.lstsq(self.C, W, rcond=None)[0]

    def spectrum(self, v: Array, centre: bool) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of ``P'VP``, centred if there are intercepts; cached."""
        if self._spectrum is None:
            gram = weighted_gram(self.phi if self.P is None else self.P, v)
            if self.P is None and self.C is not None:
                gram = self.C.T @ gram @ self.C
            mean = self.back(v[:, None])
            self._spectrum = psd_eigh(gram - mean @ mean.T / v.sum() if centre else gram)
        return self._spectrum


class RowDesign(BatchDesign):
    """All classes in one batch element; the coefficients are ``B``, flattened."""

    def __init__(self, problem: Problem, Q: Array | None, L: Array | None, inputs: RowInputs | None = None):
        self.problem = problem
        self.rows = problem.observations.row[: problem.observations.counts[0]]
        scale = np.sqrt(2 * problem.alpha)
        if Q is None:
            self.inputs = RowInputs.of(problem) if inputs is None else inputs
        else:
            self.inputs = RowInputs(problem.inputs.rows(self.rows), Q / scale)
        self.R = None if L is None else L / scale
        self.shape = (self.inputs.width, problem.n_tasks if L is None else L.shape[1])

    def table(self, x: Array) -> Array:
        """Entries as a matrix, a row for each row of the data."""
        return x.reshape(self.problem.n_tasks, -1).T

    def weights(self, coef: Array) -> Array:
        """``W`` for coefficients."""
        return self.inputs.to_original(self._expanded(coef.reshape(self.shape)))

    def coefficients(self, W: Array) -> Array:
        """The coefficients nearest to weights."""
        B = self.inputs.to_inner(W)
        return (B if self.R is None else np.linalg.lstsq(self.R, B.T, rcond=None)[0].T).reshape(1, -1)

    def _expanded(self, B: Array) -> Array:
        return B if self.R is None else B @ self.R.T

    def outputs(self, coef: Array) -> Array:
        """The outputs without intercepts (``n x T``)."""
        return self._expanded(self.inputs.forward(coef.reshape(self.shape)))

    def correlate(self, U: Array) -> Array:
        """``P'UR``."""
        return self.inputs.back(U if self.R is None else U @ self.R)

    def start(self, u: Array) -> Array:
        return self.correlate(self.table(u)).reshape(1, -1)

    def predict(self, coef: Array) -> Array:
        return self.outputs(coef).T.reshape(1, -1)

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        (p, q), n = self.shape, len(self.rows)
        small = p * q <= TUNING.max_dense_unknowns and n * p * p <= TUNING.max_dense_entries
        small &= n * (p * q) ** 2 <= TUNING.max_dense_multiplications
        if small and self.inputs.P is not None:
            return _DenseDirection(self, self.table(h), intercepts is not None)
        return self._iterative(RowHessian(self, self.table(h), intercepts is not None), intercepts)

    def _iterative(self, hessian: RowHessian, intercepts: Intercepts | None) -> Direction:
        """Conjugate gradients, preconditioned with the mean Hessian; inexact far from the minimum."""
        v = self.problem.observations.weight[: len(self.rows)]
        g, U = self.inputs.spectrum(v, intercepts is not None)
        mean = hessian.mean / v.sum()
        m, V = psd_eigh(mean if self.R is None else self.R.T @ mean @ self.R)
        scale, inverse = 1 + g[:, None] * m, np.zeros((1, 1)) if intercepts is None else np.linalg.inv(hessian.of_intercepts)

        def max_residual(rhs: Array, coef: Array, g: Array) -> float:
            size, left = float(np.linalg.norm(coef)) + float(np.linalg.norm(self.start(g))), float(np.linalg.norm(rhs))
            return float(np.clip(left / max(size, 1e-300), SYSTEMS.relative_residual, SYSTEMS.max_relative_residual)) * left

        return IterativeDirection(
            self,
            curved=lambda z: hessian.times(self.table(z)).T.reshape(1, -1),
            intercepts=intercepts,
            solved=lambda gathered: gathered @ inverse,
            max_residual=max_residual,
            preconditioner=lambda x: (U @ ((U.T @ x.reshape(self.shape) @ V) / scale) @ V.T).reshape(1, -1),
        )


class RowHessian:
    """The Hessian of the loss, and its block of the intercepts (``T x T``)."""

    def __init__(self, design: RowDesign, h: Array, intercept: bool):
        self.design, self.h = design, h
        total = h.sum(axis=1, keepdims=True)
        self.share = np.divide(h, total, out=np.zeros_like(h), where=total > 0)
        self.mean = np.diag(h.sum(axis=0)) - self.share.T @ h  # over the rows, times their number
        if intercept:
            self.of_intercepts = self._lifted(self.mean)

    def times(self, U: Array) -> Array:
        """The Hessian of the loss times ``U`` (``n x T``)."""
        return self.h * (U - np.einsum("it,it->i", self.share, U)[:, None])

    def _lifted(self, H: Array) -> Array:
        """The Hessian of the intercepts with Levenberg damping, since they are not penalised.

        The constant direction, which no row determines, gets the largest curvature. Small eigenvalues are at most doubled: more
        damping would slow the convergence.
        """
        problem = self.design.problem
        T = len(H)
        most = problem.loss.max_curvature * float(problem.observations.weight[: len(self.h)].sum())
        e, V = psd_eigh(H + most * np.full((T, T), 1 / T))
        flat = np.maximum(e, TUNING.min_flat_damping * most)
        lift = np.where(e < TUNING.flat_share * most, flat, TUNING.damping * most)
        return (V * np.maximum(e + lift, 1e-300)) @ V.T


class _DenseDirection:
    """``I + sum_i P_i P_i' x R'H_iR`` (Kronecker products), bordered by the intercepts."""

    def __init__(self, design: RowDesign, h: Array, intercept: bool):
        self.design, self.intercept = design, intercept
        hessian = RowHessian(design, h, intercept)
        P, T = design.inputs.P, h.shape[1]
        assert P is not None
        R = np.eye(T) if design.R is None else design.R
        part = R[None] - (hessian.share @ R)[:, None]  # centred first, so that the result is positive semidefinite
        correlated = h[:, :, None] * part
        middle = np.matmul(part.transpose(0, 2, 1), correlated)
        (n, p), q = P.shape, R.shape[1]
        pairs = (P[:, :, None] * P[:, None, :]).reshape(n, p * p)
        M = (pairs.T @ middle.reshape(n, q * q)).reshape(p, p, q, q).transpose(0, 2, 1, 3).reshape(p * q, p * q)
        M[np.diag_indices(p * q)] += 1.0
        if intercept:
            edge = (P.T @ correlated.reshape(n, T * q)).reshape(p, T, q).transpose(0, 2, 1).reshape(p * q, T)
            M = np.block([[M, edge], [edge.T, hessian.of_intercepts]])
        self.system = Positive(M[None])

    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]:
        sums = self.design.table(g).sum(axis=0)[: None if self.intercept else 0]
        rhs = -np.concatenate([(self.design.start(g) + coef)[0], sums])
        both = self.system.solve(rhs[None, :, None])[..., 0]
        return both[:, : coef.size], both[:, coef.size :]
