"""The supervised step for terms with task sides of their own: one Newton system, with the largest grouping eliminated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from ...design.term_inputs import FreeBasis, TermData, TermInputs
from ...problem import Problem
from ...structures.term_stack import TermStack, stacked
from ...structures.terms import FeatureMatrix, TaskMatrix
from .batched_newton import Batch, newton
from .elimination import Eliminated, Levels
from .newton_systems import FreeColumns
from .sides import Side, Strategy, Supervised, ridged

Array = np.ndarray
MAX_DENSE_COLUMNS = 64  # of a grouping, up to which its columns are a dense matrix


@dataclass(frozen=True, eq=False)
class TermColumns:
    """A penalised term in the metric of its structure: ``W = left beta right'``, where ``None`` is the identity."""

    term: TermData
    left: Array | None  # the root of D, r x k
    right: Array | None  # the root of A, p x k
    scale: float  # 1 / sqrt(2 alpha), of weights for coefficients

    @cached_property
    def features(self) -> Array:
        """``phi left`` times the scale (``n x k``)."""
        return self.scale * (self.term.phi if self.left is None else self.term.phi @ self.left)

    @property
    def shape(self) -> tuple[int, int]:
        """Of ``beta``."""
        return self.features.shape[1], self.term.p if self.right is None else self.right.shape[1]

    @property
    def grouped(self) -> bool:
        return self.term.grouped and self.right is None

    def weights(self, beta: Array) -> Array:
        W = beta if self.left is None else self.left @ beta
        return self.scale * (W if self.right is None else W @ self.right.T)

    def adjoint(self, Z: Array) -> Array:
        """The gradient in ``beta`` for one in ``W``."""
        Z = Z if self.left is None else self.left.T @ Z
        return self.scale * (Z if self.right is None else Z @ self.right)

    @cached_property
    def levels(self) -> Levels:
        assert self.term.codes is not None
        return Levels(self.features, self.term.codes, self.term.n_levels)

    @cached_property
    def columns(self) -> Array | csr_array:
        """The columns of ``beta``, level by level where they are grouped, else feature by feature."""
        if self.grouped and self.shape[0] * self.shape[1] > MAX_DENSE_COLUMNS:
            return self.levels.expanded
        side = self.term.side if self.right is None else self.term.times_side(self.right)
        pairs = side[:, :, None] * self.features[:, None, :] if self.grouped else self.features[:, :, None] * side[:, None, :]
        return pairs.reshape(len(side), -1)

    def beta_of(self, flat: Array) -> Array:
        """``beta`` from the coefficients of ``columns``."""
        k, p = self.shape
        return flat.reshape(p, k).T if self.grouped else flat.reshape(k, p)


def largest_eliminated(metrics: list[TermColumns], n_rows: int) -> tuple[Eliminated, list[TermColumns]]:
    """The penalised terms as one design, the largest grouping eliminated; and the terms in the order of its coefficients."""
    penalised = [metric for metric in metrics if not metric.term.free]
    grouped = [metric for metric in penalised if metric.grouped]
    first = max(grouped, key=lambda metric: metric.shape[0] * metric.shape[1], default=None)
    others = [metric for metric in penalised if metric is not first]
    design = Eliminated(None if first is None else first.levels, joined([metric.columns for metric in others], n_rows))
    return design, others if first is None else [first, *others]


def joined(columns: list[Any], n_rows: int) -> Any:
    """Columns of several terms beside each other; sparse if some are."""
    sparse = any(issparse(each) for each in columns)
    return hstack(columns, format="csr") if sparse else np.hstack([np.zeros((n_rows, 0)), *columns])


class TermStackSide(Side):
    """``root`` is a list with the root of the variable of each term; weights are one column."""

    bounds_near_structure = True

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.stack: TermStack = problem.structure  # type: ignore[assignment]
        self.inputs: TermInputs = problem.inputs  # type: ignore[assignment]
        self.dim = max([1, *(F.shape(*s)[0] for F, s in zip(self.stack.variables, self.stack.shapes, strict=True))])
        self.basis: FreeBasis | None = problem.design.free_basis  # type: ignore[attr-defined]
        self.border = None if self.basis is None else FreeColumns(self.basis.E)
        self._ends = self._first_ends()

    def _first_ends(self) -> Array:
        """Coefficients of the basis of intercept and unpenalised columns: those of the best constant."""
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
        for term, variable, each in zip(self.inputs.terms, self.stack.variables, root, strict=True):
            if isinstance(variable, FeatureMatrix):
                out.append(TermColumns(term, ridged(each, self.rho), None, scale))
            elif isinstance(variable, TaskMatrix):
                out.append(TermColumns(term, None, ridged(each, self.rho), scale))
            else:
                out.append(TermColumns(term, None, None, plain))
        return out

    def _by_elimination(self, metrics: list[TermColumns]) -> Supervised:
        problem, obs = self.problem, self.problem.observations
        design, ordered = largest_eliminated(metrics, problem.n_rows)
        loss = problem.loss.pick(np.arange(obs.y.size)[None])
        batch = Batch(loss, obs.y[None], obs.weight[None], design, self.border, self.tolerance)
        fit = newton(batch, design.start(self._dual[None]), self._ends[None])
        betas, at = {}, 0
        for metric in ordered:
            size = metric.shape[0] * metric.shape[1]
            betas[id(metric)], at = metric.beta_of(fit.coef[0, at : at + size]), at + size
        self._ends = fit.b[0]
        ends = np.zeros(0) if self.basis is None else self.basis.back @ self._ends
        intercept, free = (ends[:1], ends[1:]) if problem.fit_intercept else (np.zeros(1), ends)
        W, used = [], 0
        for metric in metrics:
            if metric.term.free:
                size = metric.term.r * metric.term.p
                W.append(free[used : used + size].reshape(metric.term.r, metric.term.p))
                used += size
            else:
                W.append(metric.weights(betas[id(metric)]))
        return replace(self._read(stacked(W), problem.loss.intercepts(intercept), fit.norm), steps=fit.steps)

    strategies = (Strategy("elimination", "always", _by_elimination),)
