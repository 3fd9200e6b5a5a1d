"""Predictors that are sums: solved with the weights of all addends stacked, handed back as one predictor and its addends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...equivalences import implied_tasks
from ...losses import RowLoss
from ...problem import Problem
from ...problem.solution import Addends, Solution
from ...structures.factored_matrix import FactoredStructure, diagonal
from ...structures.members import ByEntry, ByTask, Member, OnFeatures
from ...structures.parts import Parts

Array = np.ndarray


def in_addends(problem: Problem, inner: Problem, run: Callable[[tuple | None], Solution], start: tuple | None) -> Solution:
    """Solve ``inner``, which has features for each addend; where ``problem`` has them once, its weights are the sum."""
    if isinstance(problem.loss, RowLoss):
        raise ValueError(
            f"{type(problem.loss).__name__} is a loss of whole rows, and sums (Robust, Dirty, lists of kernels) need one of "
            "single "
            'outputs; use loss="logistic" or "hinge"'
        )
    parts: Parts = inner.structure  # type: ignore[assignment]
    found = run(start if start is None or start[0].shape[0] == inner.n_features else None)
    weights, variables = parts.features_of(found.W), parts.variables(found.A)
    structures = [implied(*each, inner.alpha) for each in zip(parts.members, weights, variables, strict=True)]
    W = found.W if problem.n_features == inner.n_features else np.sum(weights, axis=0)
    return replace(found, W=W, A=FactoredStructure.total(structures), addends=Addends(weights, variables, structures))


def implied(member: Member, W: Array, A: Array, alpha: float) -> Any:
    """The task matrix of an addend: its variable, or what stands for it on the tasks."""
    if isinstance(member, (ByTask, ByEntry)):
        return diagonal(A if isinstance(member, ByTask) else A.sum(axis=0))
    if not isinstance(member, OnFeatures):
        return A
    if member.structure.either_side:
        return member.structure.final_structure(np.sqrt(alpha) * W)[0]
    return implied_tasks(W, A)
