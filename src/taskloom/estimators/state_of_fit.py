"""From a solution to a fitted state: coefficients in the units and the precision of the data, with their certificate."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._component import warn
from .._linalg import fits_single
from ..equivalences import implied_tasks
from ..features.approximate import MappedFeatures
from ..features.kernels import LinearFeatures
from ..problem.solution import Solution, SolvedTerms
from ..structures import Independent, Robust, Structure
from ..structures import factored_matrix as factors
from ..structures.factored_matrix import FactoredStructure
from .coefficient_rounding import held_model
from .fitted import FittedState, Prepared, Training
from .validation import described

Array = np.ndarray
OUTLIER_SHARE = 1e-3  # of the norm of a task's weights, above which it counts as an outlier: optima are within a tolerance


def predictor(data: Prepared, W: Array, b: Array, dtype: np.dtype | None = None) -> FittedState:
    """The fields that predictions need; in the precision of the inputs if the numbers are in its range."""
    features, std, b = data.features, data.scale.std, b * data.scale.std + data.scale.mean
    if isinstance(features, LinearFeatures):
        coef = [features.coef(W) * std]
    else:
        duals: Any = features.dual_coef(W)
        coef = [dual * std for dual in (duals if isinstance(duals, list) else [duals])]
    dtype = dtype or (data.inputs.dtype if all(map(fits_single, (*coef, b))) else np.dtype(float))
    if isinstance(features, LinearFeatures):
        found: dict[str, Any] = {"coef_": np.ascontiguousarray(coef[0].T, dtype=dtype)}
    else:
        many = W.shape[1] > max(factors.DENSE_TASKS, W.shape[0])
        coef = [each.astype(dtype) for each in coef]
        found = {"dual_coef_": coef if isinstance(duals, list) else coef[0], "X_fit_": data.inputs}
        found["inner_products"] = FactoredStructure(W.T) if many else W.T @ W
    return FittedState(
        **described(data.columns, data.targets),
        **found,
        scale=data.scale,
        kernel=data.kernel,
        alpha=data.problem.alpha,
        ridge=data.problem.ridge,
        dtype=dtype,
        intercept_=b.astype(dtype),
        feature_map_=data.features.map if isinstance(data.features, MappedFeatures) else None,
        gamma_=data.kernel.found_gamma,
    )


def fitted_state(data: Prepared, solution: Solution, tol: float, *, rows: bool = True) -> FittedState:
    """The state after a fit; ``rows=False`` where the rows are not at hand (a cluster, sufficient statistics).

    Warns where the fit did not converge.
    """
    problem, features = data.problem, data.features
    state, certificate = held_model(partial(predictor, data, solution.W, solution.b), data, solution, tol)
    certificate = replace(certificate, message=f"{certificate.message} {features.note}".rstrip())
    if not certificate.converged and certificate.status != "callback":
        warn(certificate.message, ConvergenceWarning)
    A, dtype = solution.A, state.dtype
    found: dict[str, Any] = {"structure_": in_precision(A, dtype)}
    if problem.structure.on_features:
        tasks = tasks_under(problem.structure, solution.W, A)
        found = {"structure_": in_precision(tasks, dtype), "feature_structure_": found["structure_"]}
    if solution.terms is not None:
        found |= _fitted_terms(data, solution, dtype)
    if not problem.structure.keeps_columns:  # for explain
        if isinstance(features, LinearFeatures):  # the certificate has computed the product, unless there is none
            found["dual"] = features.coef(problem.correlate(solution.G) if solution.Z is None else solution.Z)
        else:
            found["dual"] = problem.observations.scatter(solution.G, problem.n_rows)
    if rows:
        found["n_observations"] = problem.observations.y.size
    if rows and problem.loss.quadratic and not isinstance(A, FactoredStructure):  # for the posterior
        seen, settings = problem.observations, dict[str, Any](loss=problem.loss, structure=problem.structure)
        settings.update(alpha=problem.alpha, ridge=problem.ridge, fit_intercept=problem.fit_intercept)
        row, task = (None, None) if seen.grouping.full_rows == problem.n_rows else (seen.row, seen.task)
        first = seen.weight[seen.starts[:-1]]
        weight = first if np.array_equal(first[seen.task], seen.weight) else seen.weight
        found["training"] = Training(data.inputs, features, row, task, seen.y, weight, settings, solution.W, solution.b, A)
    return replace(
        state,
        **found,
        learned=copy.copy(problem.structure),
        approximation_error_=getattr(features, "error", None),
        certificate_=certificate,
        n_iter_=solution.n_iter,
        history_=solution.history.as_dict(),
        training_left_out=not rows,
    )


def tasks_under(structure: Structure, W: Array, D: Array) -> Any:
    """The task matrix that goes with ``D`` on the features: the identity if ``D`` is known, for then nothing relates tasks."""
    return factors.returned(Independent().final_structure(W)[0]) if structure.known else implied_tasks(W, D)


def in_precision(A: Any, dtype: Any) -> Any:
    """A structure in the precision of the model if its numbers are in range, else in double precision."""
    return A.astype(dtype if fits_single(A) else float)


def _fitted_terms(data: Any, solution: Solution, dtype: Any) -> dict[str, Any]:
    """The fields of a sum of terms: a structure for each kernel; or the shared and the task-specific coefficients."""
    terms: SolvedTerms = solution.terms  # type: ignore[assignment]
    if data.problem.structure.is_sum:
        return {"structure_": [in_precision(A, dtype) for A in terms.structures]}
    attributes: dict[str, Any] = {"term_structures": terms.structures}
    shared, own = terms.weights
    if isinstance(data.features, LinearFeatures):
        for name, W in (("shared_coef_", shared), ("own_coef_", own)):
            attributes[name] = np.ascontiguousarray((data.features.coef(W) * data.scale.std).T, dtype=dtype)
    if isinstance(data.problem.structure, Robust):
        size, whole = np.linalg.norm(own, axis=0), np.linalg.norm(solution.W, axis=0)
        attributes["outlier_tasks_"] = data.targets.tasks_[size > OUTLIER_SHARE * np.maximum(whole, np.finfo(float).tiny)]
    return attributes
