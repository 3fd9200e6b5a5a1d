"""Smaller forms of a problem: along the eigenvectors of shared inputs, or in a Krylov subspace that grows.

The optimal weights are ``W = Z A / (2 alpha)`` with ``Z = Phi'G``: they lie in the span of ``Z``. So weights in the span of a
basis ``V`` (``W = V'w``, features ``Phi V'``) are fitted, and certified on all features. If the gap is too large, the basis is
enlarged by the part of ``Z`` outside its span and by products of that with ``Phi'Phi``: block Krylov steps, for smooth losses,
any structure of the tasks, and missing targets. The objective is exact at ``V'w``, and the bound uses all features. At the
current structure, a direction ``u`` outside the span lowers the objective by about

    ||A^(1/2) Z'u||^2 / (4 alpha),

and directions whose decrease is small compared with the tolerance are omitted. If most features are needed, all are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.sparse import issparse

from ..._linalg import psd_eigh, psd_root
from ..._time_limit import check_time
from ...features.kernels import GROWING, PER_TASK, is_wide
from ...losses import RowLoss
from ...problem import Problem, Targets
from ...problem.solution import Solution, Start
from ...structures import factored_matrix as factors
from .base import Reformulation

Array = np.ndarray


@dataclass(frozen=True)
class SubspaceTuning:
    """Constants of subspaces; shares are relative to what their names say."""

    min_krylov_features: int = 200  # with fewer features, all of them are as cheap as some,
    min_krylov_observations: int = 600  # and with fewer observations, whose dense system does not depend on the features
    max_basis_share: float = 0.5  # largest basis, as a share of the features: its decomposition costs the cube of its size
    krylov_depth: int = 4  # block Krylov steps for each certificate
    min_growth: float = 0.2  # of the basis: a certificate and a decomposition cost more than some directions
    min_sparse_basis: int = 64  # directions of the first basis for sparse inputs and the squared loss, where these are cheap
    max_sparse_entries: int = 2_000_000  # in the features along it
    omitted_value_share: float = 0.01  # estimated decrease from the omitted directions, as a share of the tolerance
    first_omitted_share: float = 1e-4  # of the squared correlations at zero, which the first basis may omit
    structure_ridge_share: float = 0.01  # multiple of the mean eigenvalue added to the structure: its null space counts, too
    relative_rounding: float = 1e-13  # share of the squared norm of a block that is rounding
    min_eigenbasis_features: int = 32  # with fewer features, an iteration is cheap as it is


TUNING = SubspaceTuning()


class EigenbasisForm(Reformulation):
    """A problem along the eigenvectors of its features: diagonal features, one row for each, no intercepts."""

    exact: ClassVar[bool] = False
    tolerance_share: ClassVar[float] = 0.8  # the bound on the original problem may be slightly weaker
    same_rows = False  # its rows are eigenvectors

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        """Whether inputs are shared, and many; structures on the features forbid another basis."""
        structure, small = problem.structure, max(problem.n_features, problem.n_tasks / 2) < TUNING.min_eigenbasis_features
        if structure.keeps_columns or structure.is_sum or not structure.convex or (small and not inside):
            return False
        inner = problem.model.in_eigenbasis
        cheap = problem.n_features < TUNING.min_eigenbasis_features and not inside  # but for many tasks
        return inner is not None and (not cheap or inner.in_task_span is not None)

    @classmethod
    def of(cls, problem: Problem) -> EigenbasisForm | None:
        """The form of a problem, where it applies; for problems of the same targets."""
        form = cls()
        return form if cls.applies(problem) and form.apply(problem) is not None else None

    def apply(self, problem: Problem, start: Start | None = None) -> Problem:
        assert problem.design.eigenbasis is not None
        assert problem.model.in_eigenbasis is not None
        self.basis = problem.design.eigenbasis
        self.constant = self.basis.constant
        return Problem.of(problem.model.in_eigenbasis, problem.alpha, problem.ridge)

    def to_inner(self, start: Start) -> Start:
        return start._replace(W=self.basis.to_inner(start.W), b=np.zeros_like(start.b))

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        return self.basis.to_original(W)

    def invert(self, solution: Solution) -> Solution:
        W, b = self.to_original(solution.W, solution.b)
        return replace(solution, W=W, b=b)


class TaskSpanForm(Reformulation):
    """A problem along the eigenvectors of its features, with directions of the span of its targets in place of many tasks."""

    exact: ClassVar[bool] = False
    tolerance_share: ClassVar[float] = 0.8
    same_rows = False
    same_tasks = False

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        return problem.structure.convex and problem.model.in_task_span is not None

    def apply(self, problem: Problem, start: Start | None = None) -> Problem:
        assert problem.design.task_span is not None
        assert problem.model.in_task_span is not None
        self.problem, self.span = problem, problem.design.task_span
        return Problem.of(problem.model.in_task_span, problem.alpha, problem.ridge)

    def to_inner(self, start: Start) -> Start:
        return start._replace(W=self.span.to_inner(start.W), b=np.zeros(self.span.basis.shape[1]))

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        return self.span.to_original(W), np.zeros(self.problem.n_tasks)

    def invert(self, solution: Solution) -> Solution:
        W, b = self.to_original(solution.W, solution.b)
        return replace(solution, W=W, b=b, structure=self.problem.best_penalty(W)[1])


class OnFeatures(Reformulation):
    """A penalty of the tasks as one of a matrix on fewer features, where it is not a function of both alike."""

    exact: ClassVar[bool] = False
    tolerance_share: ClassVar[float] = 0.8
    same_tasks = False

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        structure = problem.structure
        if problem.n_features >= problem.n_tasks or structure.is_sum or structure.on_features or structure.either_side:
            return False
        return structure.moved_to_features(problem.n_tasks) is not None

    def apply(self, problem: Problem, start: Start | None = None) -> Problem:
        moved = problem.structure.moved_to_features(problem.n_tasks)
        assert moved is not None
        self.problem = problem
        return problem.with_structure(moved)

    def invert(self, solution: Solution) -> Solution:
        return replace(solution, structure=self.problem.best_penalty(solution.W)[1])


class SpanOfRows(Reformulation):
    """A problem of sparse inputs with more columns than rows, with the features of their kernel matrix: as many as rows."""

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        return is_wide(problem.features) and not problem.structure.keeps_columns

    def apply(self, problem: Problem, start: Start | None) -> Problem:
        self.features, targets = problem.targets.in_span
        return problem.with_targets(targets)

    def to_inner(self, start: Start) -> Start:
        return start._replace(W=self.features.weights(start.W))

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        return self.features.coef(W), b

    def invert(self, solution: Solution) -> Solution:
        Z = None if solution.Z is None else self.features.coef(solution.Z)
        return replace(solution, W=self.features.coef(solution.W), Z=Z)


class UngrownSpan(SpanOfRows):
    """The same from the outset, where no subspace can grow."""

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        grows = KrylovSubspace.applies(problem) and not problem.structure.splits_weights
        return super().applies(problem) and not grows


class KrylovSubspace(Reformulation):
    """The problem in the span of a basis ``V``, with features ``P = Phi V'`` along it (both with one row a direction)."""

    exact: ClassVar[bool] = False
    restricted: ClassVar[bool] = True
    tolerance_share: ClassVar[float] = 0.5  # the rest is for the omitted directions
    targets: Targets  # valid for these, under any structure and regularisation strength
    spanned: Targets  # along the basis
    blocks: tuple[Array, ...]  # V, in the parts by which it grew, which are never copied
    P: Array

    @property
    def V(self) -> Array:
        return np.vstack(self.blocks)

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        """Whether there are many features, few tasks that share most rows, and a smooth loss."""
        r, T = problem.n_features, problem.n_tasks
        return not (
            problem.structure.keeps_columns
            or problem.structure.is_sum
            or not problem.structure.convex
            or r < max(TUNING.min_krylov_features, PER_TASK * T)
            or problem.observations.y.size < TUNING.min_krylov_observations
            or T > factors.LARGEST_ARRAY
            or not (problem.inputs.mostly_observed and problem.loss.smooth)
            or isinstance(problem.loss, RowLoss)  # one system holds all tasks: no gain
            or (problem.loss.quadratic and r < GROWING and not (issparse(problem.features) or _decay(problem.features)))
        )

    def apply(self, problem: Problem, start: Start | None) -> Problem | None:
        """In the basis of a warm start, or in one from the correlations at zero; ``None`` if all features are needed."""
        known = None if start is None else start.basis
        if known is None or known.targets is not problem.targets:
            obs = problem.observations
            Z = problem.correlate(problem.dual_candidate(problem.loss.gradient(obs.y, problem.best_constants[obs.task])))
            known = _enlarged(problem, (), np.zeros((0, problem.n_rows)), Z, TUNING.first_omitted_share * float(np.vdot(Z, Z)))
        if not isinstance(known, KrylovSubspace):
            return None
        self.__dict__.update(vars(known))
        return problem.with_targets(self.spanned)

    @classmethod
    def of(cls, problem: Problem, blocks: tuple[Array, ...], features: Array) -> KrylovSubspace:
        """The subspace of a basis, and the features ``Phi V'``."""
        subspace = cls()
        subspace.targets, subspace.blocks, subspace.P = problem.targets, blocks, features.T
        subspace.spanned = problem.targets.with_features(features)
        return subspace

    def to_inner(self, start: Start) -> Start:
        return start._replace(W=np.vstack([block @ start.W for block in self.blocks]))

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        ends = np.cumsum([len(block) for block in self.blocks])[:-1]
        return sum(part.T @ block for part, block in zip(np.split(W, ends), self.blocks, strict=True)).T, b

    def enlarged(self, problem: Problem, Z: Array, A: Array, tol: float) -> KrylovSubspace | AllFeatures:
        """A larger basis, by the correlations of the last certificate at the current structure; or all features."""
        root = psd_root(A + TUNING.structure_ridge_share * float(np.trace(A)) / len(A) * np.eye(len(A)))
        least = TUNING.omitted_value_share * tol * problem.scale * 4 * problem.alpha
        return _enlarged(problem, self.blocks, self.P, Z @ root, least) or AllFeatures(problem.targets)


class AllFeatures(NamedTuple):
    """A marker for warm starts: a basis was tried for these targets and found too large."""

    targets: Targets


def _decay(phi: Array) -> bool:
    """Whether the leading third of the columns has nearly all of the squared norm, as in a pivoted Cholesky factor."""
    squared_norm = np.einsum("ij,ij->j", phi, phi)
    return float(squared_norm[len(squared_norm) // 3 :].sum()) <= 1e-3 * float(squared_norm.sum())


def _enlarged(problem: Problem, V: tuple[Array, ...], P: Array, block: Array, least: float) -> KrylovSubspace | None:
    """The basis with the leading directions of ``block``, until squares of less than ``least`` are left.

    It also contains the Krylov directions of these, with rows weighted as by all tasks together.
    """
    obs, phi, size, largest = problem.observations, problem.features, len(P), min(problem.n_features, problem.n_rows)
    weight = np.bincount(obs.row, obs.weight, minlength=problem.n_rows) / obs.weight.sum()
    new, products = _directions(V, block.T, least, TUNING.min_growth / TUNING.krylov_depth * size), [P]
    first = 0
    if not V and issparse(phi) and problem.loss.quadratic:
        first = min(TUNING.min_sparse_basis, TUNING.max_sparse_entries // problem.n_rows)
    for k in range(max(TUNING.krylov_depth, -(-first // max(len(new), 1)))):
        check_time()
        if k > 0:
            seen = products[-1] - (products[-1] @ weight)[:, None] if problem.fit_intercept else products[-1]
            new = _directions(V, (seen * weight) @ phi)
        size += len(new)
        if size > TUNING.max_basis_share * largest:
            return None
        V = (*V, new)
        products.append(new @ phi.T)
    if size == len(P):
        return None
    features = np.empty((problem.n_rows, size))
    return KrylovSubspace.of(problem, V, np.concatenate([part.T for part in products], axis=1, out=features))


def _directions(V: tuple[Array, ...], block: Array, least: float = 0.0, count: float = 0.0) -> Array:
    """Orthonormal rows that span the part of ``block`` outside the span of ``V``: up to ``least``, and at least ``count``."""
    outside = _outside(V, block)
    squares, U = psd_eigh(outside @ outside.T)
    left, size = np.cumsum(squares), TUNING.relative_rounding * float(np.vdot(block, block))
    keep = (left > size) & ((left > least) | (np.arange(len(left), 0, -1) <= count))
    new = _orthonormal(U[:, keep].T[::-1] @ outside)
    return _orthonormal(_outside(V, new))  # orthogonalise twice


def _outside(V: tuple[Array, ...], rows: Array) -> Array:
    for block in V:
        rows = rows - (rows @ block.T) @ block
    return rows


def _orthonormal(rows: Array) -> Array:
    return np.ascontiguousarray(np.linalg.qr(rows.T)[0].T)
