"""Predictors that are sums of terms: solved with the weights of all terms stacked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...equivalences import implied_tasks
from ...losses import RowLoss
from ...problem import Problem
from ...problem.solution import Solution, SolvedTerms, Start
from ...structures.factored_matrix import FactoredStructure, diagonal
from ...structures.term_sum import TermSum
from ...structures.terms import EntryNorms, FeatureMatrix, TaskNorms, Variable
from .base import Reformulation

Array = np.ndarray


class StackedTerms(Reformulation):
    """The problem with separate features and weights for each term; terms that share columns are summed."""

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        return problem.structure.is_sum or problem.model.stacked is not None

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

    def invert(self, solution: Solution) -> Solution:
        stack: TermSum = self.inner.structure  # type: ignore[assignment]
        weights, variables = stack.features_of(solution.W), stack.split(solution.A)
        structures = [implied(*each, self.inner.alpha) for each in zip(stack.variables, weights, variables, strict=True)]
        W, Z = solution.W, solution.Z
        if self.shared_columns:
            W, Z = np.sum(weights, axis=0), None if Z is None else stack.features_of(Z)[0]
        terms = SolvedTerms(weights, variables, structures)
        return replace(solution, W=W, A=FactoredStructure.total(structures), terms=terms, Z=Z)


def implied(variable: Variable, W: Array, A: Array, alpha: float) -> Any:
    """The task matrix of a term: its variable, or the one implied by its variable and weights."""
    if isinstance(variable, (TaskNorms, EntryNorms)):
        return diagonal(A if isinstance(variable, TaskNorms) else A.sum(axis=0))
    if not isinstance(variable, FeatureMatrix):
        return A
    if variable.structure.either_side:
        return variable.structure.final_structure(np.sqrt(alpha) * W)[0]
    return implied_tasks(W, A)
