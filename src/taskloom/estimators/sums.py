"""Predictors that are sums: structures for several kernels, and what a fitted sum tells."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._linalg import fits_single
from ..features import LinearFeatures
from ..problem.solution import Solution, SolvedTerms
from ..structures import Robust, as_structure

Array = np.ndarray
NOTHING = 1e-3  # a task's own part counts from this share of its weights on: an optimum within a tolerance is not exact


def as_structures(structure: Any, kernel: Any) -> Any:
    """The structure that was given; one for each kernel, where a list was."""
    if not isinstance(structure, (list, tuple)):
        return as_structure(structure)
    if not (isinstance(kernel, (list, tuple)) and len(kernel) == len(structure)):
        raise ValueError(
            f"a list of {len(structure)} structures needs a list of as many kernels, got kernel={kernel!r}; to choose one of "
            "several structures, search: MultiTaskRegressorCV(structures=[...])"
        )
    return [as_structure(each) for each in structure]


def fitted_addends(data: Any, solution: Solution, dtype: Any) -> dict[str, Any]:
    """The fields of a sum: a structure for each kernel; or what the tasks share, and what they keep to themselves."""
    addends: SolvedTerms = solution.terms  # type: ignore[assignment]
    if data.problem.structure.is_sum:
        return {"structure_": [A.astype(dtype if fits_single(A) else float) for A in addends.structures]}
    attributes: dict[str, Any] = {"addends": addends.structures}
    shared, own = addends.weights
    if isinstance(data.features, LinearFeatures):
        for name, W in (("shared_coef_", shared), ("own_coef_", own)):
            attributes[name] = np.ascontiguousarray((data.features.coef(W) * data.scale.spread).T, dtype=dtype)
    if isinstance(data.problem.structure, Robust):
        size, whole = np.linalg.norm(own, axis=0), np.linalg.norm(solution.W, axis=0)
        attributes["outlier_tasks_"] = data.targets.tasks_[size > NOTHING * np.maximum(whole, np.finfo(float).tiny)]
    return attributes
