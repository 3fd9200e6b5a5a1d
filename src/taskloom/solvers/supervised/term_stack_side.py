"""The supervised step for terms with task sides of their own: one Newton system, with the largest grouping eliminated."""

from __future__ import annotations

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
from .batched_newton import Batch, newton
from .elimination import MAX_DENSE, Eliminated, OtherColumns
from .moment_step import MomentFit, MomentSystem
from .newton_systems import FreeColumns
from .sides import Side, Strategy, Supervised, ridged
from .term_columns import MAX_DENSE_COLUMNS, TermColumns

Array = np.ndarray


def largest_eliminated(metrics: list[TermColumns], n_rows: int) -> tuple[Eliminated, list[TermColumns]]:
    """The penalised terms as one design, the largest grouping eliminated; and the terms in the order of its coefficients."""
    penalised = [metric for metric in metrics if not metric.term.free]
    grouped = [metric for metric in penalised if metric.grouped]
    first = max(grouped, key=lambda metric: metric.size, default=None)
    others = sorted((metric for metric in penalised if metric is not first), key=lambda metric: issparse(metric.columns))
    columns = OtherColumns.of(n_rows, [metric.columns for metric in others])
    design = Eliminated(None if first is None else first.levels, columns)
    return design, others if first is None else [first, *others]


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
        self.estimates = self.moments() is not None
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
        shapes = [variable.shape(*shape) for variable, shape in zip(self.stack.variables, self.stack.shapes, strict=True)]
        return [np.eye(shape[0]) if len(shape) == 2 else np.zeros(0) for shape in shapes]

    def _with_ridge(self, root: Any) -> list[TermColumns]:
        scale, out = 1 / np.sqrt(2 * self.problem.alpha), []
        plain = scale / np.sqrt(1 + self.rho)
        inputs = self.design.inputs
        for term, units, variable, each in zip(inputs.terms, inputs.scales, self.stack.variables, root, strict=True):
            if isinstance(variable, FeatureMatrix):
                out.append(TermColumns(term, ridged(each, self.rho), None, scale, units))
            elif isinstance(variable, TaskMatrix):
                out.append(TermColumns(term, None, ridged(each, self.rho), scale, units))
            else:
                out.append(TermColumns(term, None, None, plain, units))
        return out

    def _by_elimination(self, metrics: list[TermColumns]) -> Supervised:
        problem, obs = self.problem, self.problem.observations
        parts = [self._parts(q, metric) for q, metric in enumerate(metrics)]
        design, ordered = largest_eliminated([part for several in parts for part in several], problem.n_rows)
        loss = problem.loss.pick(np.arange(obs.y.size)[None])
        batch = Batch(loss, obs.y[None], obs.weight[None], design, self.border, self.tolerance)
        fit = newton(batch, design.start(self._dual[None]), self._ends[None])
        betas, at = {}, 0
        for metric in ordered:
            size = metric.shape[0] * metric.shape[1]
            betas[id(metric)], at = metric.beta_of(fit.coef[0, at : at + size]), at + size
        self._last_ends = fit.b[0]
        ends = np.zeros(0) if self.basis is None else self.basis.back @ fit.b[0]
        intercept, free = (ends[:1], ends[1:]) if problem.fit_intercept else (np.zeros(1), ends)
        W, used = [], 0
        for metric, several in zip(metrics, parts, strict=True):
            if metric.term.free:
                size = metric.term.r * metric.term.p
                W.append(free[used : used + size].reshape(metric.term.r, metric.term.p))
                used += size
            else:
                W.append(sum(part.weights(betas[id(part)]) for part in several))
        return replace(self._read(stacked(W), problem.loss.intercepts(intercept), fit.norm), steps=fit.steps)

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
        return self.estimates

    def _by_moments(self, metrics: list[TermColumns]) -> MomentFit:
        moments = self.moments()
        assert moments is not None
        return MomentSystem(moments, metrics).minimum()

    strategies = (
        Strategy("moments", "squared loss, few columns beside the largest grouping", _by_moments, _has_moments),
        Strategy("elimination", "otherwise", _by_elimination),
    )
