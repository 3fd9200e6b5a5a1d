"""Predictors that are sums of terms: solved with the weights of all terms stacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..equivalences import implied_tasks
from ..losses import RowLoss
from ..problem import Problem
from ..problem.solution import Solution, SolvedTerms, Start
from ..structures.factored_matrix import FactoredStructure, diagonal
from ..structures.term_sum import TermSum
from ..structures.terms import EntryNorms, FeatureMatrix, TaskNorms, Variable

Array = np.ndarray


def solve_stacked(problem: Problem, inner: Problem, run: Callable[[Start | None], Solution], start: Start | None) -> Solution:
    """Solve ``inner``, which has separate features for each term; terms of ``problem`` that share columns are summed."""
    if isinstance(problem.loss, RowLoss):
        raise ValueError(
            f"{type(problem.loss).__name__} is a loss of whole rows, and sums (Robust, Dirty, lists of kernels) need one of "
            'single outputs; use loss="logistic" or "hinge"'
        )
    stack: TermSum = inner.structure  # type: ignore[assignment]
    found = run(start if start is None or start.W.shape[0] == inner.n_features else None)
    weights, variables = stack.features_of(found.W), stack.split(found.A)
    structures = [implied(*each, inner.alpha) for each in zip(stack.variables, weights, variables, strict=True)]
    W = found.W if problem is inner else np.sum(weights, axis=0)
    A, terms = FactoredStructure.total(structures), SolvedTerms(weights, variables, structures)
    Z = found.Z if problem is inner or found.Z is None else stack.features_of(found.Z)[0]  # of the columns that all terms share
    return replace(found, W=W, A=A, terms=terms, Z=Z)


def implied(variable: Variable, W: Array, A: Array, alpha: float) -> Any:
    """The task matrix of a term: its variable, or the one implied by its variable and weights."""
    if isinstance(variable, (TaskNorms, EntryNorms)):
        return diagonal(A if isinstance(variable, TaskNorms) else A.sum(axis=0))
    if not isinstance(variable, FeatureMatrix):
        return A
    if variable.structure.either_side:
        return variable.structure.final_structure(np.sqrt(alpha) * W)[0]
    return implied_tasks(W, A)
