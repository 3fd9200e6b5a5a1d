"""Reformulations of a problem, as a list: a problem goes down the list, a solution comes back up.

This file has those that keep all values: a constant of the penalty taken out, terms side by side, and centred data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...equivalences import implied_tasks
from ...losses import RowLoss
from ...problem import Problem
from ...problem.solution import Solution, SolvedTerms, Start
from ...structures.factored_matrix import FactoredStructure, diagonal, returned
from ...structures.term_sum import TermSum
from ...structures.terms import EntryNorms, FeatureMatrix, TaskNorms, Variable
from .base import Reformulation
from .smoothing import Smoothing
from .subspaces import EigenbasisForm, KrylovSubspace, OnFeatures, SpanOfRows, TaskSpanForm, UngrownSpan

Array = np.ndarray
MIN_RELATIVE_SCALE = 1e-6  # a loss smaller than this share of the penalty's constant is measured without that constant


class PenaltyConstant(Reformulation):
    """The problem under the penalty less its constant."""

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        above_constant = problem.structure.shifted_to_zero(problem.n_tasks)
        return above_constant is not None and problem.scale < MIN_RELATIVE_SCALE * abs(above_constant[1])

    def apply(self, problem: Problem, start: Start | None) -> Problem:
        shifted = problem.structure.shifted_to_zero(problem.n_tasks)
        assert shifted is not None
        structure, self.shift = shifted
        return problem.with_structure(structure)

    def invert(self, solution: Solution) -> Solution:
        """Add the constant to primal and dual values; the gap is unchanged."""
        said, history = solution.certificate, solution.history
        for column in (history.objective, history.dual):
            column[:] = [value + self.shift for value in column]
        certificate = replace(said, primal=said.primal + self.shift, dual=said.dual + self.shift)
        return replace(solution, certificate=certificate)


class StackedTerms(Reformulation):
    """The problem with separate features and weights for each term; terms that share columns are summed."""

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        structure = problem.structure
        return (structure.is_sum and not structure.is_stack) or problem.model.stacked is not None

    def apply(self, problem: Problem, start: Start | None) -> Problem:
        if isinstance(problem.loss, RowLoss):
            raise ValueError(
                f"{type(problem.loss).__name__} is a loss of whole rows, and sums (Robust, Dirty, lists of kernels) need one "
                'of single outputs; use loss="logistic" or "hinge"'
            )
        inner = problem.stacked()
        self.inner, self.shared_columns = inner, inner is not problem
        return inner

    def to_inner(self, start: Start) -> Start | None:
        """Weights of each term, as along a path; totals do not say how they split."""
        return start if start.W.shape[0] == self.inner.n_features else None

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        stack: TermSum = self.inner.structure  # type: ignore[assignment]
        return np.sum(stack.features_of(W), axis=0) if self.shared_columns else W, b

    def invert(self, solution: Solution) -> Solution:
        stack: TermSum = self.inner.structure  # type: ignore[assignment]
        weights, variables = stack.features_of(solution.W), stack.split(solution.A)
        structures = [implied(*each, self.inner.alpha) for each in zip(stack.variables, weights, variables, strict=True)]
        (W, _), Z = self.to_original(solution.W, solution.b), solution.Z
        if self.shared_columns and Z is not None:
            Z = stack.features_of(Z)[0]
        terms = SolvedTerms(weights, variables, structures)
        return replace(solution, W=W, structure=FactoredStructure.total(structures), terms=terms, Z=Z)


def implied(variable: Variable, W: Array, A: Array, alpha: float) -> Any:
    """The task matrix of a term: its variable, or the one implied by its variable and weights."""
    if isinstance(variable, (TaskNorms, EntryNorms)):
        return returned(diagonal(A if isinstance(variable, TaskNorms) else A.sum(axis=0)))
    if not isinstance(variable, FeatureMatrix):
        return A
    if variable.structure.either_side:
        return returned(variable.structure.final_structure(np.sqrt(alpha) * W)[0])
    return implied_tasks(W, A)


class Centring(Reformulation):
    """The problem of the centred data; only intercepts change."""

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        return problem.targets.centering is not None

    def apply(self, problem: Problem, start: Start | None) -> Problem:
        centering = problem.targets.centering
        assert centering is not None
        self.centering, self.loss = centering, problem.loss
        return Problem.of(problem.model.centred, problem.alpha, problem.ridge)

    def to_inner(self, start: Start) -> Start:
        W, b = self.centering.to_inner(start.W, start.b)
        return start._replace(W=W, b=b)

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        return self.centering.to_original(W, b)

    def invert(self, solution: Solution) -> Solution:
        W, b = self.to_original(solution.W, solution.b)
        return replace(solution, W=W, b=self.loss.intercepts(b))


EQUIVALENT: tuple[type[Reformulation], ...] = (UngrownSpan, PenaltyConstant, StackedTerms)  # solved once, in this form
# each certified on the problem above it
ATTEMPTS: tuple[type[Reformulation], ...] = (KrylovSubspace, SpanOfRows, EigenbasisForm, TaskSpanForm, OnFeatures, Centring)
REFORMULATIONS = (*EQUIVALENT, *ATTEMPTS, Smoothing)  # in this order; a nonsmooth loss is smoothed while a solver runs


class Chain:
    """A problem, the reformulations that apply to it from the outside in, and the inner problem."""

    def __init__(
        self, problem: Problem, start: Start | None, kinds: Sequence[type[Reformulation]], without: set[type] | None = None
    ):
        self.steps: list[Reformulation] = []
        self.exact = self.same_rows = self.same_tasks = True
        self.restricted, self.constant, self.tolerance_share = False, 0.0, 1.0
        self.problem = self.inner = problem
        self.problems = [problem]
        for kind in kinds:
            if kind in (without or ()) or not kind.applies(self.inner, bool(self.steps)):
                continue
            step = kind()
            if (inner := step.apply(self.inner, start)) is not None:
                self.inner, start = inner, None if start is None else step.to_inner(start)
                self.steps.append(step)
                self.problems.append(inner)
                self.exact, self.same_rows = self.exact and step.exact, self.same_rows and step.same_rows
                self.same_tasks = self.same_tasks and step.same_tasks
                self.restricted, self.constant = self.restricted or step.restricted, self.constant + step.constant
                self.tolerance_share = min(self.tolerance_share, step.tolerance_share)
        self.start = start

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the original problem."""
        for step in reversed(self.steps):
            W, b = step.to_original(W, b)
        return W, b

    def original_point(self, W: Array, b: Array) -> tuple[Array, Array, Array]:
        """Weights, intercepts and predictions of the original problem; in a subspace predictions need fewer features."""
        z = None
        for step, inner in zip(reversed(self.steps), reversed(self.problems), strict=False):
            z = inner.predict(W, b) if step.restricted else z
            W, b = step.to_original(W, b)
        return W, b, self.problem.predict(W, b) if z is None else z

    def invert(self, solution: Solution) -> Solution:
        """The solution of the original problem."""
        for step in reversed(self.steps):
            solution = step.invert(solution)
        return solution
