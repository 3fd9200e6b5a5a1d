"""The supervised step of a sum of terms from moments (``design.term_moments``): linear in the levels, not in the rows.

In the coefficients ``beta`` of all terms at their metrics, and of the basis of the unpenalised columns, the step is

    min  sum_i v_i (y_i - z_i)^2 + ||beta||^2 / 2,

whose system has one small block for each level of the eliminated term and a border of all else, as in ``elimination``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..._linalg import Positive
from ...design.term_inputs import scaled_rows
from ...design.term_moments import TermMoments
from ...problem import Problem
from ...problem.problem import scaled_bound
from ...structures.term_stack import stacked
from .sides import Supervised
from .term_columns import TermColumns

Array = np.ndarray
RELATIVE_RESIDUAL = 1e-10  # of the gradient at the rows, above which a solution from moments is refined there
MAX_REFINEMENTS = 3
DAMPING = 1e-12  # of the coefficients of the unpenalised basis, whose columns have length 1


class BlockMap:
    """A block diagonal map; each block is a matrix, or the diagonal of one."""

    def __init__(self, blocks: list[Array]):
        self.blocks = blocks
        self.rows = list(pairwise(np.cumsum([0, *(len(block) for block in blocks)]).tolist()))
        self.columns = list(pairwise(np.cumsum([0, *(block.shape[-1] for block in blocks)]).tolist()))

    def __call__(self, x: Array) -> Array:
        parts = zip(self.blocks, self.columns, strict=True)
        return np.concatenate([(M.T * x[a:b].T).T if M.ndim == 1 else M @ x[a:b] for M, (a, b) in parts])

    def adjoint(self, y: Array) -> Array:
        parts = zip(self.blocks, self.rows, strict=True)
        return np.concatenate([(M.T * y[a:b].T).T if M.ndim == 1 else M.T @ y[a:b] for M, (a, b) in parts])

    def turned(self, S: Array) -> Array:
        """``M'SM`` for a symmetric ``S``."""
        return self.adjoint(self.adjoint(S).T)


class MomentSystem:
    """The system at the metrics of all terms: factored once, for any right-hand side."""

    def __init__(self, moments: TermMoments, metrics: list[TermColumns]):
        self.moments, self.metrics = moments, metrics
        self.first = None if moments.first is None else metrics[moments.first]
        self.others = [metrics[q] for q in moments.others]
        self.n_penalised = sum(metric.size for metric in self.others)
        n_free = len(moments.gram) - 1 - sum(metric.term.r * metric.term.p for metric in self.others)
        self.map = BlockMap([*(metric.map for metric in self.others), np.ones(n_free)])
        self.root = np.zeros((0, 0)) if self.first is None else self.first.root
        self.systems = [(block, block.at(self.root)) for block in moments.blocks]
        self.reduced = moments.gram - sum(at.schur for _, at in self.systems)
        S = 2 * self.map.turned(self.reduced[:-1, :-1])
        S[np.diag_indices_from(S)] += np.where(np.arange(len(S)) < self.n_penalised, 1.0, DAMPING)
        self.remaining = Positive(S[None])

    def no_first(self) -> Array:
        """Coefficients of the eliminated term (``q x levels``), all zero."""
        return np.zeros((0, 0) if self.first is None else self.first.shape)

    def solve(self, first: Array, rest: Array) -> tuple[Array, Array]:
        """The coefficients of the eliminated term and of all else for a right-hand side."""
        found = self.no_first()
        for block, at in self.systems:
            found[:, block.levels] = at.solve(first[:, block.levels])
        rest = self._remaining(rest - 2 * self.map.adjoint(self.cross(found)[:-1]))
        t = np.append(self.map(rest), 0.0)
        for block, at in self.systems:
            found[:, block.levels] -= at.solve(2 * self.root.T @ block.along(t))
        return found, rest

    def _remaining(self, right: Array) -> Array:
        return self.remaining.solve(right[None, :, None])[0, :, 0] if len(right) else right

    def cross(self, first: Array) -> Array:
        """``Y'V`` times what the eliminated term predicts."""
        out = np.zeros(len(self.moments.gram))
        for block, _ in self.systems:
            out += block.cross(self.root @ first[:, block.levels])
        return out

    def correlations(self, t: Array) -> tuple[Array, Array]:
        """``X'V`` and ``Y'V`` times ``Yt``."""
        out = np.zeros((0, 0) if self.first is None else (self.first.term.r, self.first.term.p))
        for block, _ in self.systems:
            out[:, block.levels] = block.along(t)
        return out, self.moments.gram @ t

    def in_order(self, of_first: Array, of_all: Array) -> Array:
        """Correlations as one column, those of each term at its scale; zero for unpenalised terms."""
        at, parts = 0, []
        for q, metric in enumerate(self.metrics):
            term, size = metric.term, metric.term.r * metric.term.p
            if q == self.moments.first:
                part = of_first
            elif term.free:
                part = np.zeros((term.r, term.p))
            else:
                part, at = of_all[at : at + size].reshape(term.r, term.p), at + size
            parts.append(scaled_rows(part, metric.units))
        return stacked(parts)

    def minimum(self) -> MomentFit:
        """The solution of the step."""
        rest = self._remaining(2 * self.map.adjoint(self.reduced[:-1, -1]))
        first, along = self.no_first(), self.correlations(np.append(-self.map(rest), 1.0))
        for block, at in self.systems:
            first[:, block.levels] = at.solve(2 * self.root.T @ along[0][:, block.levels])
        return MomentFit(self, first, rest, along)


@dataclass(eq=False)
class MomentFit:
    """The coefficients of a step, and what the moments say of them."""

    system: MomentSystem
    first: Array  # q x levels
    rest: Array
    without_first: tuple[Array, Array] | None = None  # correlations of what all else leaves of the targets

    @property
    def norm(self) -> float:
        """``alpha tr(A^+ W'W) + ridge ||W||^2``."""
        rest = self.rest[: self.system.n_penalised]
        return float(np.vdot(self.first, self.first) + rest @ rest) / 2

    @cached_property
    def _correlations(self) -> tuple[Array, Array]:
        """``X'V`` and ``Y'V`` times the residual."""
        system = self.system
        along = self.without_first or system.correlations(np.append(-system.map(self.rest), 1.0))
        of_first, of_all, W = along[0].copy(), along[1], system.root @ self.first
        for block, _ in system.systems:
            of_first[:, block.levels] -= block.curved(W[:, block.levels])
            of_all = of_all - block.cross(W[:, block.levels])
        return of_first, of_all

    def loss_term(self, problem: Problem) -> float:
        """The loss term of the objective."""
        return self._loss

    @cached_property
    def _loss(self) -> float:
        (of_first, of_all), system = self._correlations, self.system
        explained = np.vdot(of_first, system.root @ self.first) + of_all[:-1] @ system.map(self.rest)
        return max(float(of_all[-1] - explained), 0.0)

    @cached_property
    def Z(self) -> Array:
        """``Phi'G`` of the dual candidate, zero for unpenalised terms."""
        of_first, of_all = self._correlations
        return 2 * self.system.in_order(of_first, of_all)

    @cached_property
    def weights(self) -> tuple[Array, Array]:
        """``W`` and the intercept."""
        moments, at = self.system.moments, 0
        free, basis, used = self.rest[self.system.n_penalised :], moments.data.free_basis, 0
        ends = np.zeros(0) if basis is None else basis.back @ free
        intercept, ends = (moments.mean + ends[:1], ends[1:]) if moments.data.fit_intercept else (np.zeros(1), ends)
        parts = []
        for q, metric in enumerate(self.system.metrics):
            size = metric.term.r * metric.term.p
            if q == moments.first:
                parts.append(metric.weights(self.first))
            elif metric.term.free:
                parts.append(ends[used : used + size].reshape(metric.term.r, metric.term.p))
                used += size
            else:
                parts.append(metric.weights(self.rest[at : at + metric.size].reshape(metric.shape)))
                at += metric.size
        return stacked(parts), intercept

    @property
    def W(self) -> Array:
        return self.weights[0]

    def gap(self, problem: Problem, A: Array) -> float:
        """The duality gap with this structure, by the candidate of a certificate."""
        structure, Z, ridge_part = problem.structure, self.Z, 0.0
        if problem.ridge:
            Z, ridge_part = Z - 2 * problem.ridge * self.W, problem.ridge * float(np.vdot(self.W, self.W))
        ray = structure.ray_of_root(Z / (2 * np.sqrt(problem.alpha)), A)
        dual = scaled_bound(2 * float(self._correlations[1][-1]), self._loss + ridge_part, ray)
        return self._loss + self.norm + structure.value(A) - dual

    def on_rows(self, problem: Problem) -> Supervised:
        """The fit with its predictions; where moments were not accurate enough, it is refined at the rows."""
        obs, system, fit = problem.observations, self.system, self
        for left in reversed(range(MAX_REFINEMENTS + 1)):
            W, b = fit.weights
            z = problem.predict(W, b)
            gradients = problem.loss.gradient(obs.y, z)
            G = -obs.weight * gradients
            Z = problem.correlate(G)
            first, rest = fit._gradient(problem, G, Z)
            size = max(float(np.abs(x).max(initial=0.0)) for x in (fit.first, fit.rest))
            worst = max(float(np.abs(x).max(initial=0.0)) for x in (first, rest))
            if not left or not worst > RELATIVE_RESIDUAL * size:
                break
            step = system.solve(first, rest)
            fit = MomentFit(system, fit.first + step[0], fit.rest + step[1])
        return Supervised(W, b, z, *fit._balanced(problem, gradients, Z), fit.norm)

    def _balanced(self, problem: Problem, gradients: Array, Z: Array) -> tuple[Array, Array]:
        """The dual candidate: orthogonal to the unpenalised columns, as the solution is up to rounding."""
        basis, moments = self.system.moments.data.free_basis, self.system.moments
        if basis is None:
            return gradients, Z
        left = basis.E.T @ (problem.observations.weight * gradients)
        t = np.zeros(len(moments.gram))
        t[-1 - len(left) : -1] = left
        penalised = np.concatenate([np.full(m.term.r * m.term.p, not m.term.free) for m in self.system.metrics])
        change = self.system.in_order(*self.system.correlations(t))
        return gradients - basis.E @ left, np.where(penalised[:, None], Z, 0.0) + change

    def _gradient(self, problem: Problem, G: Array, Z: Array) -> tuple[Array, Array]:
        """Of the objective, downward, in the coefficients; from the rows."""
        system, basis = self.system, self.system.moments.data.free_basis
        first, rest, at = self.system.no_first(), [], 0
        for q, (part, metric) in enumerate(zip(problem.structure.features_of(Z), system.metrics, strict=True)):  # type: ignore[attr-defined]
            if q == system.moments.first:
                first = metric.adjoint(part) - self.first
            elif not metric.term.free:
                rest.append(np.ravel(metric.adjoint(part)) - self.rest[at : at + metric.size])
                at += metric.size
        return first, np.concatenate([*rest, np.zeros(0) if basis is None else basis.E.T @ G])
