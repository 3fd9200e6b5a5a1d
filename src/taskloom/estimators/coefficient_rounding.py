"""The certificate of the model that a user holds: of its coefficients, in the precision in which they are kept.

A certificate of a solver is about ``z = Phi W + b``. A fitted model predicts ``x'coef + b``, or ``k(x, X) C + b``, with
coefficients in the precision of the inputs. Three things may move its objective: coefficients are rounded to single
precision; inputs lie far from zero, so that ``x'coef`` and ``b`` cancel; a kernel matrix is numerically singular and alpha
tiny, so that the terms of ``k(x, X) C`` cancel. The objective is evaluated again where a bound on the effect is not
negligible. Single precision is left where it costs a share of the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..features.kernels import LinearFeatures, column_sizes
from ..problem import Problem
from ..problem.solution import STATUS, Certificate, Solution, reached, rounded_gap
from .decision import responses
from .fitted import FittedState, Prepared

Array = np.ndarray
DOUBLE = np.dtype(float)
ROUNDING_SHARE = 0.1  # of tol: what single precision may cost, and the bound up to which an effect is not computed


def held_model(
    predictor: Callable[..., FittedState], data: Prepared, solution: Solution, tol: float
) -> tuple[FittedState, Certificate]:
    """The model with its certificate; ``predictor(dtype)`` makes it in a precision, by default that of the inputs."""
    state, certificate = predictor(), solution.certificate
    if not np.isfinite(certificate.primal) or not _may_matter(state, data, solution, tol):
        return state, certificate
    excess = _excess(state, data, solution)
    if state.dtype != DOUBLE and data.problem.relative(abs(excess)) > ROUNDING_SHARE * tol:
        state = predictor(DOUBLE)
        excess = _excess(state, data, solution) if _may_matter(state, data, solution, tol) else 0.0
    return state, with_excess(certificate, excess, data.problem.relative, tol, state.coef_ is None)


def single_or_double(
    objective: Callable[[Array, Array], float], coef: Array, b: Array, certificate: Certificate, relative: Any, tol: float
) -> tuple[np.dtype, Certificate]:
    """The precision in which to keep coefficients of a device, and the certificate of the coefficients that are kept."""
    single = np.dtype(np.float32)
    excess = objective(coef.astype(single), b.astype(single)) - certificate.primal
    if not relative(abs(excess)) <= ROUNDING_SHARE * tol:
        return DOUBLE, certificate
    return single, with_excess(certificate, excess, relative, tol, kernel=False)


def with_excess(
    certificate: Certificate, excess: float, relative: Callable[..., float], tol: float, kernel: bool
) -> Certificate:
    """The certificate of a model whose objective is higher by ``excess`` than the certified one."""
    if excess == 0 or not np.isfinite(excess):
        return certificate
    dual = certificate.dual
    if relative(abs(excess)) > tol and kernel:  # the bound is about the kernel before rounding, and no more exact
        dual -= abs(excess)
    primal = max(certificate.primal + excess, dual)
    gap = rounded_gap(primal, dual)
    changed = replace(certificate, primal=primal, dual=dual, gap=gap, relative_gap=relative(gap, abs(primal)))
    spoiled = changed.relative_gap > tol if certificate.optimal else relative(abs(excess)) > tol
    if not spoiled:
        return changed
    measure = reached(certificate.relative_gap, certificate.stationarity)
    status = "rounding" if kernel else "cancellation"
    message = STATUS[status].format(off=relative(abs(excess)), measure=measure, tol=tol)
    return replace(
        changed,
        status=status if certificate.converged else certificate.status,
        message=f"{message}." if certificate.converged else f"{certificate.message} {message}.",
    )


def _may_matter(state: FittedState, data: Prepared, solution: Solution, tol: float) -> bool:
    """Whether coefficients are in single precision, or a bound on the effect of rounding is more than a share of ``tol``."""
    if state.dtype != DOUBLE:
        return True
    problem: Any = data.problem
    if not isinstance(problem, Problem):  # on a cluster: features are centred there
        return False
    z = problem.predict(solution.W, solution.b)
    linear = isinstance(data.features, LinearFeatures)
    error = (_linear_error if linear else _kernel_error)(data, solution)[problem.observations.task]
    loss = problem.loss_term(z)
    worse = max(problem.loss_term(z + error), problem.loss_term(z - error)) - loss
    return problem.relative(worse) > ROUNDING_SHARE * tol


def _linear_error(data: Prepared, solution: Solution) -> Array:
    """A bound on the rounding error of ``x'w + b`` over the rows, for each task."""
    size = column_sizes(data.problem.features) @ np.abs(solution.W) + np.abs(solution.b)
    return 4 * np.finfo(float).eps * size


def _kernel_error(data: Prepared, solution: Solution) -> Array:
    """A bound on the rounding error of ``k(x, X) C``, for each task; needs no kernel matrix."""
    features: Any = data.features
    found = features.dual_coef(solution.W)
    coefficients, parts = (found, features.parts) if isinstance(found, list) else ([found], [features])
    error = np.zeros(data.problem.n_tasks)
    for C, part in zip(coefficients, parts, strict=True):
        largest = float(np.einsum("ij,ij->i", part.phi, part.phi).max())  # no entry of the kernel matrix is larger
        size = max(float(np.abs(C).max()), np.finfo(float).tiny)  # whose square may overflow
        error += 4 * np.finfo(float).eps * len(C) * (largest * size) * np.linalg.norm(C / size, axis=0)
    return error


def _excess(state: FittedState, data: Prepared, solution: Solution) -> float:
    """The objective of the coefficients of a model, minus the certified one."""
    scale, features = data.scale, data.features
    b = (state.intercept_.astype(float) - scale.mean) / scale.std
    if state.dual_coef_ is None:
        coef = state.coef_.T.astype(float) / scale.std
        return data.problem.excess(solution, features.weights(coef), b, root=coef)
    C, seen = state.dual_coef_, data.problem.observations
    kept = [each.astype(float) / scale.std for each in (C if isinstance(C, list) else [C])]
    W = features.weights(kept if isinstance(C, list) else kept[0])  # type: ignore[arg-type]
    values = sum(responses(state, data.inputs)) / scale.std + b
    return data.problem.excess(solution, W, b, z=values[seen.row, seen.task])
