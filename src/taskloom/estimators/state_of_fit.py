"""From a solution to a fitted state: coefficients in the units and the precision of the data, with their certificate."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._component import warn
from .._linalg import fits_single
from ..equivalences import implied_tasks
from ..features import LinearFeatures
from ..features.approximate import MappedFeatures
from ..problem.solution import Solution, SolvedTerms
from ..structures import Robust
from ..structures import factored_matrix as factors
from ..structures.factored_matrix import FactoredStructure
from .approximate_kernel import approximation_note
from .fitted import FittedState, Prepared, Training
from .kernel_rounding import as_predicted

Array = np.ndarray
OUTLIER_SHARE = 1e-3  # of a task's weights, from which on it counts as an outlier: an optimum within a tolerance is not exact


def predictor(data: Prepared, W: Array, b: Array, dtype: np.dtype | None = None) -> FittedState:
    """What predictions need, for these weights; in the precision of the inputs where they fit it."""
    spread, b = data.scale.spread, b * data.scale.spread + data.scale.mean
    linear = isinstance(data.features, LinearFeatures)
    C: Any = data.features.coef(W) if isinstance(data.features, LinearFeatures) else data.features.dual_coef(W)
    each = [c * spread for c in (C if isinstance(C, list) else [C])]
    dtype = dtype or (data.inputs.dtype if all(map(fits_single, (*each, b))) else np.dtype(float))
    state = FittedState(
        **data.described(),
        alpha=data.problem.alpha,
        ridge=data.problem.ridge,
        dtype=dtype,
        intercept_=b.astype(dtype),
        feature_map_=data.features.map if isinstance(data.features, MappedFeatures) else None,
        coef_=np.ascontiguousarray(each[0].T, dtype=dtype) if linear else None,
    )
    if linear:
        return state
    each = [c.astype(dtype) for c in each]
    many = W.shape[1] > max(factors.DENSE_TASKS, W.shape[0])
    return replace(
        state,
        dual_coef_=each if isinstance(C, list) else each[0],
        X_fit_=data.inputs,
        inner_products=FactoredStructure(W.T) if many else W.T @ W,
    )


def fitted_state(
    data: Prepared, solution: Solution, tol: float, *, approximation: Any = None, rows: bool = True
) -> FittedState:
    """Everything that a fit leaves; ``rows=False`` where the data are elsewhere, or are statistics of what they were."""
    problem, features = data.problem, data.features
    state = predictor(data, solution.W, solution.b)
    state, certificate = as_predicted(state, solution, data, tol, predictor)
    certificate = approximation_note(certificate, features, approximation)
    if certificate.status == "rounding":
        warn(certificate.message, ConvergenceWarning)
    A, dtype = solution.A, state.dtype
    on_features = problem.structure.on_features
    implied = implied_tasks(solution.W, A) if on_features else A
    kept = rows and problem.loss.quadratic and not isinstance(A, FactoredStructure)
    found: dict[str, Any] = {
        "structure_": implied.astype(dtype if fits_single(implied) else float),
        "feature_structure_": A.astype(dtype if fits_single(A) else float) if on_features else None,
    }
    if solution.terms is not None:
        found |= _fitted_terms(data, solution, dtype)
    return replace(
        state,
        **found,
        learned=copy.copy(problem.structure),
        approximation_error_=getattr(features, "error", None),
        certificate_=replace(certificate, message=" ".join(filter(None, (certificate.message, features.note)))),
        n_iter_=solution.n_iter,
        history_=solution.history.as_dict(),
        dual=_pulled_towards(data, solution, kept),
        training=Training.of(data.inputs, features, problem, solution) if kept else None,
        training_left_out=not rows,
    )


def _pulled_towards(data: Prepared, solution: Solution, kept: bool) -> Array | None:
    """What each task's data pull it towards, for ``explain``: of a kernel the dual point itself, else one product with it.

    Where the rows are kept anyway, even that can wait.
    """
    problem = data.problem
    if problem.structure.keeps_columns:
        return None
    if not isinstance(data.features, LinearFeatures):
        return problem.observations.scatter(solution.G, problem.n_rows)
    return None if kept else data.features.coef(problem.correlate(solution.G))


def _fitted_terms(data: Any, solution: Solution, dtype: Any) -> dict[str, Any]:
    """The fields of a sum of terms: a structure for each kernel; or the shared and the task-specific coefficients."""
    terms: SolvedTerms = solution.terms  # type: ignore[assignment]
    if data.problem.structure.is_sum:
        return {"structure_": [A.astype(dtype if fits_single(A) else float) for A in terms.structures]}
    attributes: dict[str, Any] = {"term_structures": terms.structures}
    shared, own = terms.weights
    if isinstance(data.features, LinearFeatures):
        for name, W in (("shared_coef_", shared), ("own_coef_", own)):
            attributes[name] = np.ascontiguousarray((data.features.coef(W) * data.scale.spread).T, dtype=dtype)
    if isinstance(data.problem.structure, Robust):
        size, whole = np.linalg.norm(own, axis=0), np.linalg.norm(solution.W, axis=0)
        attributes["outlier_tasks_"] = data.targets.tasks_[size > OUTLIER_SHARE * np.maximum(whole, np.finfo(float).tiny)]
    return attributes
