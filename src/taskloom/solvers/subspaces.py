"""Smaller forms of a problem: in a Krylov subspace of the features, or along the eigenvectors of shared inputs.

The optimal weights are ``W = Z A / (2 alpha)`` with ``Z = Phi'G``: they lie in the span of ``Z``. So weights in the span of a
basis ``V`` (``W = V'w``, features ``Phi V'``) are fitted, and certified on all features. If the gap is too large, the basis is
enlarged by the part of ``Z`` outside its span and by products of that with ``Phi'Phi``: block Krylov steps, for smooth losses,
any structure of the tasks, and missing targets. The objective is exact at ``V'w``, and the bound uses all features. At the
current structure, a direction ``u`` outside the span lowers the objective by about

    ||A^(1/2) Z'u||^2 / (4 alpha),

and directions whose decrease is small compared with the tolerance are omitted. If most features are needed, all are used.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from scipy.sparse import issparse

from .._linalg import psd_eigh, psd_root
from ..features.kernels import GROWING, PER_TASK
from ..losses import RowLoss
from ..problem import Problem, Targets
from ..problem.solution import Start
from ..structures import factored_matrix as factors

Array = np.ndarray
MIN_FEATURES_FOR_KRYLOV = 200  # with fewer features, all of them are as cheap as some
MAX_BASIS_SHARE = 0.5  # largest basis, as a share of the features: its decomposition costs the cube of its size
KRYLOV_DEPTH = 4  # block Krylov steps for each certificate
OMITTED_VALUE_SHARE = 0.01  # estimated decrease from the omitted directions, as a share of the tolerance
FIRST_OMITTED_SHARE = 1e-4  # share of the squared correlations at zero that the first basis may omit: no structure is known yet
STRUCTURE_RIDGE_SHARE = 0.01  # multiple of the mean eigenvalue added to the structure: its null space counts, too
RELATIVE_ROUNDING = 1e-13  # share of the squared norm of a block that is rounding


MIN_FEATURES_FOR_EIGENBASIS = 32  # with fewer features, an iteration is cheap as it is


class EigenbasisForm:
    """A problem along the eigenvectors of its features, and the maps between the two."""

    share: ClassVar[float] = 0.8  # of the tolerance: the bound on the original problem may be slightly weaker
    whole: ClassVar[bool] = True  # its minimum is that of the original problem
    same_rows: ClassVar[bool] = False  # its rows are eigenvectors

    def __init__(self, problem: Problem):
        assert problem.design.eigenbasis is not None
        self.basis = problem.design.eigenbasis
        self.constant = self.basis.constant

    @staticmethod
    def of(problem: Problem, min_features: int = MIN_FEATURES_FOR_EIGENBASIS) -> EigenbasisForm | None:
        """The eigenbasis form, or ``None`` if it does not exist or saves nothing; structures on the features forbid it."""
        if problem.structure.keeps_columns or problem.structure.is_sum or problem.n_features < min_features:
            return None
        return None if problem.targets.in_eigenbasis is None else EigenbasisForm(problem)

    def apply(self, problem: Problem) -> Problem:
        """The problem along the eigenvectors."""
        assert problem.model.in_eigenbasis is not None
        return Problem.of(problem.model.in_eigenbasis, problem.alpha, problem.ridge)

    def to_inner(self, start: Start | None) -> Start | None:
        """A warm start along the eigenvectors."""
        return None if start is None else start._replace(W=self.basis.to_inner(start.W), b=np.zeros_like(start.b))

    def to_original(self, W: Array, _: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the original problem."""
        return self.basis.to_original(W)

    def original(self, problem: Problem, W: Array, b: Array) -> tuple[Array, Array, Array]:
        """Weights, intercepts and predictions of the original problem."""
        W, b = self.to_original(W, b)
        return W, b, problem.predict(W, b)

    def enlarged(self, problem: Problem, Z: Array, A: Array, tol: float) -> None:
        """``None``: no direction is omitted."""
        return


class KrylovBasis:
    """The problem in the span of a basis, along eigenvectors if possible, else centred; and the maps between the two."""

    share: ClassVar[float] = 0.5  # of the tolerance; the rest is for the omitted directions
    whole: ClassVar[bool] = False  # its minimum may lie above that of the original problem

    def __init__(self, problem: Problem, V: Array, P: Array):
        self.targets = problem.targets  # valid for these, under any structure and regularisation strength
        self.V, self.P = V, P  # basis, and features along it, one row each
        self.spanned = problem.with_features(P.T)
        self.eigenbasis = EigenbasisForm.of(self.spanned, min_features=1)
        self.centering = None if problem.loss.quadratic else self.spanned.targets.centering
        self.constant = 0.0 if self.eigenbasis is None else self.eigenbasis.constant
        self.same_rows = self.eigenbasis is None  # as the original problem: dual points carry over

    @staticmethod
    def applies(problem: Problem) -> bool:
        """Whether there are many features, few tasks that share most rows, and a smooth loss."""
        r, T = problem.n_features, problem.n_tasks
        return not (
            problem.structure.keeps_columns
            or problem.structure.is_sum
            or r < max(MIN_FEATURES_FOR_KRYLOV, PER_TASK * T)
            or T > factors.LARGEST_ARRAY
            or issparse(problem.features)
            or not (problem.inputs.mostly_observed and problem.loss.smooth)
            or isinstance(problem.loss, RowLoss)  # one system holds all tasks: no gain
            or (problem.loss.quadratic and r < GROWING and not _decay(problem.features))
        )

    @staticmethod
    def first(problem: Problem) -> KrylovBasis | None:
        """The basis from the correlations at zero, or ``None`` if all features are needed."""
        if not KrylovBasis.applies(problem):
            return None
        obs = problem.observations
        Z = problem.correlate(problem.dual_candidate(problem.loss.gradient(obs.y, problem.best_constants[obs.task])))
        nothing = np.zeros((0, problem.n_features)), np.zeros((0, problem.n_rows))
        return _enlarged(problem, *nothing, Z, FIRST_OMITTED_SHARE * float(np.vdot(Z, Z)))

    def apply(self, problem: Problem) -> Problem:
        """The problem in the span."""
        spanned = problem.with_targets(self.spanned.targets)
        if self.eigenbasis is not None:
            return self.eigenbasis.apply(spanned)
        return spanned if self.centering is None else spanned.with_targets(self.spanned.targets.centred)

    def to_inner(self, start: Start | None) -> Start | None:
        if start is None:
            return None
        start = start._replace(W=self.V @ start.W)
        if self.eigenbasis is not None:
            return self.eigenbasis.to_inner(start)
        if self.centering is None:
            return start
        W, b = self.centering.to_inner(start.W, start.b)
        return start._replace(W=W, b=b)

    def _along(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights along the basis, and intercepts."""
        form = self.eigenbasis or self.centering
        return (W, b) if form is None else form.to_original(W, b)

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        W, b = self._along(W, b)
        return (W.T @ self.V).T, b

    def original(self, problem: Problem, W: Array, b: Array) -> tuple[Array, Array, Array]:
        """Weights, intercepts and predictions of the original problem, without a pass over its features."""
        W, b = self._along(W, b)
        return (W.T @ self.V).T, b, self.spanned.predict(W, b)

    def enlarged(self, problem: Problem, Z: Array, A: Array, tol: float) -> KrylovBasis | EigenbasisForm | None:
        """A larger basis, by the correlations of the last certificate at the current structure; or all features."""
        root = psd_root(A + STRUCTURE_RIDGE_SHARE * float(np.trace(A)) / len(A) * np.eye(len(A)))
        least = OMITTED_VALUE_SHARE * tol * problem.scale * 4 * problem.alpha
        return _enlarged(problem, self.V, self.P, Z @ root, least) or EigenbasisForm.of(problem)


def first_form(problem: Problem, start: Start | None) -> KrylovBasis | EigenbasisForm | None:
    """The first reduced form: the basis of a warm start, a new one, or the eigenbasis of all features."""
    if start is not None and start.basis is not None and start.basis.targets is problem.targets:
        return start.basis if isinstance(start.basis, KrylovBasis) else EigenbasisForm.of(problem)
    return KrylovBasis.first(problem) or EigenbasisForm.of(problem)


class AllFeatures(NamedTuple):
    """A marker for warm starts: a basis was tried for these targets and found too large."""

    targets: Targets


def _decay(phi: Array) -> bool:
    """Whether the leading third of the columns has nearly all of the squared norm, as in a pivoted Cholesky factor."""
    squared_norm = np.einsum("ij,ij->j", phi, phi)
    return float(squared_norm[len(squared_norm) // 3 :].sum()) <= 1e-3 * float(squared_norm.sum())


def _enlarged(problem: Problem, V: Array, P: Array, block: Array, least: float) -> KrylovBasis | None:
    """The basis with the leading directions of ``block``, until squares of less than ``least`` are left.

    It also contains the Krylov directions of these, with rows weighted as by all tasks together.
    """
    obs, phi, before = problem.observations, problem.features, len(V)
    weight = np.bincount(obs.row, obs.weight, minlength=problem.n_rows) / obs.weight.sum()
    new = _directions(V, block.T, least)
    for k in range(KRYLOV_DEPTH):
        if k > 0:
            products = P[len(P) - len(new) :]
            if problem.fit_intercept:
                products = products - (products @ weight)[:, None]
            new = _directions(V, (products * weight) @ phi)
        if len(V) + len(new) > MAX_BASIS_SHARE * problem.n_features:
            return None
        V, P = np.vstack([V, new]), np.vstack([P, new @ phi.T])
    return KrylovBasis(problem, V, P) if len(V) > before else None


def _directions(V: Array, block: Array, least: float = 0.0) -> Array:
    """Orthonormal rows that span the part of ``block`` outside the span of ``V``."""
    outside = _outside(V, block)
    squares, U = psd_eigh(outside @ outside.T)
    keep = np.cumsum(squares) > max(least, RELATIVE_ROUNDING * float(np.vdot(block, block)))
    new = _orthonormal(U[:, keep].T[::-1] @ outside)
    return _orthonormal(_outside(V, new))  # orthogonalise twice


def _outside(V: Array, block: Array) -> Array:
    return block - (block @ V.T) @ V


def _orthonormal(rows: Array) -> Array:
    return np.ascontiguousarray(np.linalg.qr(rows.T)[0].T)
