"""Few directions of many features: those in which the certificate finds something left to learn.

The best weights are ``W = Z A / (2 alpha)`` with ``Z = Phi'G`` at the optimum: they lie in the span of ``Z``. So weights in the
span of a basis ``V`` (``W = V'w``, features ``Phi V'``) are learned, and certified on all features. Where the gap is wide, the
basis takes in what it lacks of ``Z``, and what the features say about that: block Krylov steps, for smooth losses, under any
structure of the tasks, with gaps in the targets. The objective is exact at ``V'w``, and the bound uses all features. With the
structure at hand, a direction ``u`` outside the span is worth about

    ||A^(1/2) Z'u||^2 / (4 alpha),

and directions that are worth nothing beside the tolerance stay out. Where most features would be in, all are taken.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from scipy.sparse import issparse

from .._linalg import psd_eigh, psd_root
from ..features import GROWING, PER_TASK
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
    """A problem along the eigenvectors of its features, and the way there and back."""

    share: ClassVar[float] = 0.8  # of the tolerance: the bound of the original problem may be a little weaker
    whole: ClassVar[bool] = True  # its minimum is that of the original problem
    same_rows: ClassVar[bool] = False  # its rows are directions: duals of the original problem are computed there

    def __init__(self, problem: Problem):
        assert problem.design.eigenbasis is not None
        self.basis = problem.design.eigenbasis
        self.constant = self.basis.constant

    @staticmethod
    def of(problem: Problem, min_features: int = MIN_FEATURES_FOR_EIGENBASIS) -> EigenbasisForm | None:
        """Where there is one and it pays; it turns the features, which a structure on them would not survive."""
        if problem.structure.keeps_columns or problem.structure.is_sum or problem.n_features < min_features:
            return None
        return None if problem.targets.in_eigenbasis is None else EigenbasisForm(problem)

    def apply(self, problem: Problem) -> Problem:
        """The problem along the eigenvectors."""
        assert problem.model.in_eigenbasis is not None
        return Problem.of(problem.model.in_eigenbasis, problem.alpha, problem.ridge)

    def inward(self, start: Start | None) -> Start | None:
        """Weights to start from, along the eigenvectors."""
        return None if start is None else start._replace(W=self.basis.inward(start.W), b=np.zeros_like(start.b))

    def outward(self, W: Array, _: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the original problem."""
        return self.basis.outward(W)

    def original(self, problem: Problem, W: Array, b: Array) -> tuple[Array, Array, Array]:
        """The same, and what they predict there."""
        W, b = self.outward(W, b)
        return W, b, problem.predict(W, b)

    def finer(self, problem: Problem, Z: Array, A: Array, tol: float) -> None:
        """What to try where this form, certified, was not fine enough: nothing, for nothing is left out."""
        return


class KrylovBasis:
    """The problem in the span of a basis, along eigenvectors where it can be, else centred; the way there and back."""

    share: ClassVar[float] = 0.5  # of the tolerance, for the problem in the span: the rest is for what lies outside
    whole: ClassVar[bool] = False  # its minimum may lie above that of the original problem

    def __init__(self, problem: Problem, V: Array, P: Array):
        self.targets = problem.targets  # for which the basis is good, under any structure and strength
        self.V, self.P = V, P  # the basis, and the features along it: a row for each direction, which multiplies faster
        self.spanned = problem.with_features(P.T)
        self.eigenbasis = EigenbasisForm.of(self.spanned, min_features=1)  # few features, but of many rows
        self.centering = None if problem.loss.quadratic else self.spanned.targets.centering
        self.constant = 0.0 if self.eigenbasis is None else self.eigenbasis.constant
        self.same_rows = self.eigenbasis is None  # as those of the original problem: its duals are these

    @staticmethod
    def applies(problem: Problem) -> bool:
        """Where there are many features of a few tasks that share most rows, and the loss is smooth."""
        r, T = problem.n_features, problem.n_tasks
        return not (
            problem.structure.keeps_columns
            or problem.structure.is_sum
            or r < max(MIN_FEATURES_FOR_KRYLOV, PER_TASK * T)
            or T > factors.LARGEST_ARRAY
            or issparse(problem.features)
            or not (problem.inputs.mostly_observed and problem.loss.smooth)  # else tasks are small problems of their own
            or isinstance(problem.loss, RowLoss)  # its systems hold all tasks, and do not gain
            or (problem.loss.quadratic and r < GROWING and not _decay(problem.features))
        )

    @staticmethod
    def first(problem: Problem) -> KrylovBasis | None:
        """The basis that the targets ask for when nothing is learned yet, where one pays."""
        if not KrylovBasis.applies(problem):
            return None
        seen = problem.observations
        Z = problem.correlate(problem.dual_candidate(problem.loss.gradient(seen.y, problem.best_constants[seen.task])))
        nothing = np.zeros((0, problem.n_features)), np.zeros((0, problem.n_rows))
        return _grown(problem, *nothing, Z, FIRST_OMITTED_SHARE * float(np.vdot(Z, Z)))

    def apply(self, problem: Problem) -> Problem:
        """The problem in the span."""
        spanned = problem.with_targets(self.spanned.targets)
        if self.eigenbasis is not None:
            return self.eigenbasis.apply(spanned)
        return spanned if self.centering is None else spanned.with_targets(self.spanned.targets.centred)

    def inward(self, start: Start | None) -> Start | None:
        if start is None:
            return None
        start = start._replace(W=self.V @ start.W)
        if self.eigenbasis is not None:
            return self.eigenbasis.inward(start)
        if self.centering is None:
            return start
        W, b = self.centering.inward(start.W, start.b)
        return start._replace(W=W, b=b)

    def _along(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights of the directions of the basis, and intercepts."""
        form = self.eigenbasis or self.centering
        return (W, b) if form is None else form.outward(W, b)

    def outward(self, W: Array, b: Array) -> tuple[Array, Array]:
        W, b = self._along(W, b)
        return (W.T @ self.V).T, b

    def original(self, problem: Problem, W: Array, b: Array) -> tuple[Array, Array, Array]:
        """Weights and intercepts of the original problem, and what they predict: no pass over its features."""
        W, b = self._along(W, b)
        return (W.T @ self.V).T, b, self.spanned.predict(W, b)

    def finer(self, problem: Problem, Z: Array, A: Array, tol: float) -> KrylovBasis | EigenbasisForm | None:
        """A larger basis, by as much as this one's certificate asks for at the structure at hand, or all features."""
        root = psd_root(A + STRUCTURE_RIDGE_SHARE * float(np.trace(A)) / len(A) * np.eye(len(A)))
        least = OMITTED_VALUE_SHARE * tol * problem.scale * 4 * problem.alpha
        return _grown(problem, self.V, self.P, Z @ root, least) or EigenbasisForm.of(problem)


def first_form(problem: Problem, start: Start | None) -> KrylovBasis | EigenbasisForm | None:
    """A smaller form of the problem: the basis with which a start was found, a new one, or the eigenbasis of all features."""
    if start is not None and start.basis is not None and start.basis.targets is problem.targets:
        return start.basis if isinstance(start.basis, KrylovBasis) else EigenbasisForm.of(problem)
    return KrylovBasis.first(problem) or EigenbasisForm.of(problem)


class AllFeatures(NamedTuple):
    """In place of a basis, where one was tried for these targets and grew until it did not pay."""

    targets: Targets


def _decay(phi: Array) -> bool:
    """Whether the leading third is nearly all of the features, as in a pivoted Cholesky factor of a smooth kernel."""
    squared_norm = np.einsum("ij,ij->j", phi, phi)
    return float(squared_norm[len(squared_norm) // 3 :].sum()) <= 1e-3 * float(squared_norm.sum())


def _grown(problem: Problem, V: Array, P: Array, block: Array, least: float) -> KrylovBasis | None:
    """The basis with the directions of ``block``, the most valuable first, until squares of less than ``least`` are left.

    And with what the features say about these, rows weighed as the tasks together do: the next certificates would ask for it.
    """
    seen, phi, before = problem.observations, problem.features, len(V)
    weight = np.bincount(seen.row, seen.weight, minlength=problem.n_rows) / seen.weight.sum()
    new = _directions(V, block.T, least)
    for k in range(KRYLOV_DEPTH):
        if k > 0:
            heard = P[len(P) - len(new) :]
            new = _directions(V, ((heard - (heard @ weight)[:, None] if problem.fit_intercept else heard) * weight) @ phi)
        if len(V) + len(new) > MAX_BASIS_SHARE * problem.n_features:
            return None
        V, P = np.vstack([V, new]), np.vstack([P, new @ phi.T])
    return KrylovBasis(problem, V, P) if len(V) > before else None


def _directions(V: Array, block: Array, least: float = 0.0) -> Array:
    """Orthonormal rows that span what those of ``block`` have outside the span of ``V``."""
    outside = _outside(V, block)
    squares, U = psd_eigh(outside @ outside.T)
    keep = np.cumsum(squares) > max(least, RELATIVE_ROUNDING * float(np.vdot(block, block)))
    new = _orthonormal(U[:, keep].T[::-1] @ outside)
    return _orthonormal(_outside(V, new))  # small directions were normed: once more


def _outside(V: Array, block: Array) -> Array:
    return block - (block @ V.T) @ V


def _orthonormal(rows: Array) -> Array:
    return np.ascontiguousarray(np.linalg.qr(rows.T)[0].T)
