"""The supervised step for terms with task sides of their own: one Newton system.

It is one of the weights, with the largest grouping eliminated, or one of the observations, where these are fewer; over
rows that all levels share it is one over the rows and one over the levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from ...design.free_basis import FreeBasis
from ...design.term_inputs import TermDesign
from ...design.term_moments import TermMoments
from ...problem import Problem
from ...structures.known import DiagonalPlusColumns
from ...structures.term_stack import TermStack, stacked
from ...structures.terms import FeatureMatrix, TaskMatrix
from .batched_newton import Batch, Fit, newton
from .elimination import MAX_DENSE, Eliminated, OtherColumns
from .moment_step import MomentFit, MomentSystem
from .newton_systems import BatchDesign, FreeColumns, Gram
from .shared_row_gram import SharedRowGram, n_columns
from .sides import Side, Strategy, Supervised, ridged
from .term_columns import MAX_DENSE_COLUMNS, TermColumns

Array = np.ndarray
TYPICAL_CG_STEPS = 50  # of a system that is too large for a dense matrix
PASSES = 10  # over a matrix of the observations, of one number for each entry, beside the Cholesky factor


def largest_eliminated(metrics: list[TermColumns], n_rows: int) -> tuple[Eliminated, list[TermColumns]]:
    """The penalised terms as one design, the largest grouping eliminated; and the terms in the order of its coefficients."""
    penalised = [metric for metric in metrics if not metric.term.free]
    grouped = [metric for metric in penalised if metric.grouped]
    first = max(grouped, key=lambda metric: metric.size, default=None)
    others = sorted((metric for metric in penalised if metric is not first), key=lambda metric: issparse(metric.columns))
    columns = OtherColumns.of(n_rows, [metric.columns for metric in others])
    design = Eliminated(None if first is None else first.levels, columns)
    return design, others if first is None else [first, *others]


def elimination_cost(metrics: list[TermColumns], n: int, border: int, moments: bool) -> float:
    """Multiplications of a system with the largest grouping eliminated; ``moments`` spare the passes over the rows."""
    grouped = [metric for metric in metrics if metric.grouped]
    first = max(grouped, key=lambda metric: metric.size, default=None)
    others = [metric for metric in metrics if metric is not first]
    sparse = [metric for metric in others if metric.grouped and metric.size > MAX_DENSE_COLUMNS]
    left = sum(metric.size for metric in others) + border
    d = left - sum(metric.size for metric in sparse)
    k, levels = (0, 1) if first is None else first.shape
    if left > MAX_DENSE:
        return TYPICAL_CG_STEPS * 4.0 * n * (d + k + sum(metric.shape[0] for metric in sparse))
    k = min(k, -(-n // levels)) if moments else k
    blocks = levels * (k**3 + k**2 * d + k * d**2)
    return left**3 / 3 + blocks + (0.0 if moments else float(n) * (d**2 + d * k + k**2))


class TermStackSide(Side):
    """``root`` is a list with the root of the variable of each term; weights are one column."""

    bounds_near_structure = True

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.stack: TermStack = problem.structure  # type: ignore[assignment]
        self.design: TermDesign = problem.design  # type: ignore[assignment]
        self.dim = max([1, *(F.shape(*s)[0] for F, s in zip(self.stack.variables, self.stack.shapes, strict=True))])
        self.basis: FreeBasis | None = self.design.data.free_basis
        self.border = None if self.basis is None else FreeColumns(self.basis.E)
        self._n_ends = 0 if self.basis is None else self.basis.E.shape[1]
        self._moments_hold = self.moments() is not None
        full = self._metrics([np.broadcast_to(0.0, shape) for shape in self._shapes], 0.0)  # shapes are all that counts
        self.estimates = self._moments_hold and not (self._has_shared_rows(full) or self._has_few_observations(full))
        self._last_ends: Array | None = None

    @property
    def _ends(self) -> Array:
        """Coefficients of the basis of intercept and unpenalised columns to start from: at first those of the best constant."""
        if self._last_ends is not None:
            return self._last_ends
        if self.basis is None:
            return np.zeros(0)
        z = np.full(self.problem.n_rows, float(self._b[0]))
        return (self.problem.observations.weight * z) @ self.basis.E

    def moment_root(self, W: Array) -> Array:
        return W

    def plain_root(self) -> list[Any]:
        return [np.eye(shape[0]) if len(shape) == 2 else np.zeros(0) for shape in self._shapes]

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [variable.shape(*shape) for variable, shape in zip(self.stack.variables, self.stack.shapes, strict=True)]

    def _with_ridge(self, root: Any) -> list[TermColumns]:
        return self._metrics(root, self.rho)

    def _metrics(self, root: Any, rho: float) -> list[TermColumns]:
        scale, out = 1 / np.sqrt(2 * self.problem.alpha), []
        plain = scale / np.sqrt(1 + rho)
        inputs = self.design.inputs
        for term, units, variable, each in zip(inputs.terms, inputs.scales, self.stack.variables, root, strict=True):
            if isinstance(variable, FeatureMatrix):
                out.append(TermColumns(term, ridged(each, rho), None, scale, units))
            elif isinstance(variable, TaskMatrix):
                out.append(TermColumns(term, None, ridged(each, rho), scale, units))
            else:
                out.append(TermColumns(term, None, None, plain, units))
        return out

    def _newton(self, design: BatchDesign) -> Fit:
        """All rows in one batch element, from the last duals and the last unpenalised coefficients."""
        problem, obs = self.problem, self.problem.observations
        loss = problem.loss.pick(np.arange(obs.y.size)[None])
        batch = Batch(loss, obs.y[None], obs.weight[None], design, self.border, self.tolerance)
        fit = newton(batch, design.start(self._dual[None]), self._ends[None])
        self._last_ends = fit.b[0]
        return fit

    def _with_ends(self, W: Callable[[int], Array], norm: float, steps: int) -> Supervised:
        """The solution with the penalised weights ``W`` of each term, and the last intercept and unpenalised coefficients."""
        ends = np.zeros(0) if self.basis is None else self.basis.back @ self._ends
        intercept, free = (ends[:1], ends[1:]) if self.problem.fit_intercept else (np.zeros(1), ends)
        parts, used = [], 0
        for q, term in enumerate(self.design.inputs.terms):
            size = term.r * term.p
            parts.append(free[used : used + size].reshape(term.r, term.p) if term.free else W(q))
            used += size * term.free
        return replace(self._read(stacked(parts), self.problem.loss.intercepts(intercept), norm), steps=steps)

    def _by_elimination(self, metrics: list[TermColumns]) -> Supervised:
        parts = [self._parts(q, metric) for q, metric in enumerate(metrics)]
        design, ordered = largest_eliminated([part for several in parts for part in several], self.problem.n_rows)
        fit = self._newton(design)
        betas, at = {}, 0
        for metric in ordered:
            size = metric.shape[0] * metric.shape[1]
            betas[id(metric)], at = metric.beta_of(fit.coef[0, at : at + size]), at + size

        def weights(q: int) -> Array:
            return np.sum([part.weights(betas[id(part)]) for part in parts[q]], axis=0)

        return self._with_ends(weights, fit.norm, fit.steps)

    def _by_observations(self, metrics: list[TermColumns]) -> Supervised:
        penalised = [metric for metric in metrics if not metric.term.free]
        K = penalised[0].gram if penalised else np.zeros((self.problem.n_rows, self.problem.n_rows))
        for metric in penalised[1:]:
            K += metric.gram
        return self._from_dual(Gram(K[None]), metrics)

    def _by_shared_rows(self, metrics: list[TermColumns]) -> Supervised:
        assert self.design.data.shared_rows is not None
        return self._from_dual(SharedRowGram(self.design.data.shared_rows, metrics, self.problem.observations.weight), metrics)

    def _from_dual(self, design: BatchDesign, metrics: list[TermColumns]) -> Supervised:
        """One number for each observation: ``beta = X'u``. The norm is that of ``beta``, as ``u'Ku`` would lose digits."""
        fit = self._newton(design)
        Z = self.stack.features_of(self.problem.correlate(fit.coef[0]))
        betas = [metric.adjoint(part) for metric, part in zip(metrics, Z, strict=True)]
        norm = sum(float(np.vdot(beta, beta)) for beta, metric in zip(betas, metrics, strict=True) if not metric.term.free) / 2
        return self._with_ends(lambda q: metrics[q].weights(betas[q]), norm, fit.steps)

    def _elimination_cost(self, metrics: list[TermColumns]) -> float:
        parts = [part for q, metric in enumerate(metrics) for part in self._parts(q, metric) if not metric.term.free]
        return elimination_cost(parts, self.problem.n_rows, self._n_ends, self._moments_hold)

    def _observations_cost(self, metrics: list[TermColumns]) -> float:
        n, penalised = self.problem.n_rows, [metric for metric in metrics if not metric.term.free]
        width = sum(0 if metric.keeps_gram else metric.shape[0] for metric in penalised) + PASSES * (1 + len(penalised))
        return n * n * (n / 3 + width) if n <= MAX_DENSE else np.inf

    def _has_few_observations(self, metrics: list[TermColumns]) -> bool:
        """Whether a system of the observations takes fewer multiplications than one of what elimination leaves."""
        return self.problem.n_rows <= MAX_DENSE and self._observations_cost(metrics) < self._elimination_cost(metrics)

    def _has_shared_rows(self, metrics: list[TermColumns]) -> bool:
        """Under the squared loss, where that takes the fewest multiplications."""
        shared = self.design.data.shared_rows if self.problem.loss.quadratic else None
        columns = None if shared is None else n_columns(metrics, shared)
        if shared is None or columns is None:
            return False
        n, m = self.problem.n_rows, columns + self._n_ends
        cost = n * m * m + PASSES * n * (m + len(shared.phi) + len(shared.levels))
        within = n * m <= MAX_DENSE**2
        return within and cost < min(self._observations_cost(metrics), self._elimination_cost(metrics))

    def _parts(self, q: int, metric: TermColumns) -> list[TermColumns]:
        """A large grouping whose known structure is a diagonal and few columns: levels on their own, and what they share."""
        variable = self.stack.variables[q]
        structure = variable.structure if isinstance(variable, TaskMatrix) else None
        if not isinstance(structure, DiagonalPlusColumns) or not metric.term.grouped or metric.size <= MAX_DENSE_COLUMNS:
            return [metric]
        A = structure.factored(metric.term.p).shrunk(self.rho)
        own = replace(metric, right=None, scale=metric.scale * float(np.sqrt(A.own[0])))
        return [own, replace(metric, right=A.L)]

    def moments(self) -> TermMoments | None:
        """Under the squared loss, unless what is not eliminated has too many columns."""
        terms, variables = self.design.inputs.terms, self.stack.variables
        grouped = [
            q for q, term in enumerate(terms) if term.grouped and not term.free and not isinstance(variables[q], TaskMatrix)
        ]
        first = max(grouped, key=lambda q: terms[q].r * terms[q].p, default=None)
        others = [term for q, term in enumerate(terms) if q != first]
        sparse = any(term.grouped and term.r * term.p > MAX_DENSE_COLUMNS for term in others)
        if sparse or not self.problem.loss.quadratic or sum(term.r * term.p for term in others) > MAX_DENSE:
            return None
        return self.design.data.eliminations[len(terms) if first is None else first]

    def _has_moments(self, metrics: list[TermColumns]) -> bool:
        return self._moments_hold

    def _by_moments(self, metrics: list[TermColumns]) -> MomentFit:
        moments = self.moments()
        assert moments is not None
        return MomentSystem(moments, metrics).minimum()

    strategies = (
        Strategy("shared rows", "squared loss, every level has the same rows", _by_shared_rows, _has_shared_rows),
        Strategy("by observations", "fewer observations than weights", _by_observations, _has_few_observations),
        Strategy("moments", "squared loss, few columns beside the largest grouping", _by_moments, _has_moments),
        Strategy("elimination", "otherwise", _by_elimination),
    )
