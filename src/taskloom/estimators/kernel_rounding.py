"""Do the coefficients of a kernel predict what the certificate speaks about?

A certificate is about ``z = Phi W + b``; a model predicts ``k(x, X) C + b`` with ``C = U k^(-1/2) W``. Where the kernel matrix
is singular but for rounding and the strength is tiny, ``C`` is so large that its terms cancel, and predictions lose their
digits. Nobody must take such predictions for those that were certified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..problem import Problem
from ..problem.solution import STATUS, Certificate, Solution, reached
from .decision import responses
from .fitted import FittedState, Prepared

Array = np.ndarray
CAREFUL = 0.1  # of the tolerance: what rounding might do at worst, below which predictions need not be looked at


def as_predicted(
    state: FittedState, solution: Solution, data: Prepared, tol: float, predictor: Callable[..., FittedState]
) -> tuple[FittedState, Certificate]:
    """The certificate of what a model predicts, with the model: what single precision would lose, it keeps in double."""
    certificate, problem = solution.certificate, data.problem
    if state.dual_coef_ is None:
        return state, certificate
    z = problem.predict(solution.W, solution.b)
    if not _may_matter(state, data, solution.W, z, tol):
        return state, certificate
    off = _off(state, data, z)
    if state.dtype == np.float32 and problem.relative(abs(off)) > tol:
        state = predictor(data, solution.W, solution.b, np.dtype(float))
        off = _off(state, data, z)
    return state, widened(certificate, problem, off, tol)


def widened(certificate: Certificate, problem: Problem, off: float, tol: float) -> Certificate:
    """The certificate with a loss that is ``off``, as it is where that is within the tolerance.

    The loss bounds the minimum from above; the bound from below is about the kernel before its rounding, no more exact.
    """
    if problem.relative(abs(off)) <= tol:
        return certificate
    primal, dual = certificate.primal + max(off, 0.0), certificate.dual - abs(off)
    measure = reached(certificate.relative_gap, certificate.stationarity)
    words = STATUS["rounding"].format(off=problem.relative(abs(off)), measure=measure, tol=tol)
    return replace(
        certificate,
        primal=primal,
        dual=dual,
        gap=primal - dual,
        relative_gap=problem.relative(primal - dual, abs(primal)),
        status="rounding" if certificate.converged else certificate.status,
        message=f"{words}." if certificate.converged else f"{certificate.message} {words}.",
    )


def _may_matter(state: FittedState, data: Any, W: Array, z: Array, tol: float) -> bool:
    """Whether rounding of the kernel and its coefficients could be seen in the loss; needs no kernel matrix."""
    problem, seen = data.problem, data.problem.observations
    found = data.features.dual_coef(W)
    coefficients, parts = (found, data.features.parts) if isinstance(found, list) else ([found], [data.features])
    off = np.zeros(problem.n_tasks)
    for C, part in zip(coefficients, parts, strict=True):
        largest = float(np.einsum("ij,ij->i", part.phi, part.phi).max())  # no entry of the kernel matrix is larger
        size = max(float(np.abs(C).max()), np.finfo(float).tiny)  # whose square may overflow
        off += 4 * np.finfo(state.dtype).eps * len(C) * (largest * size) * np.linalg.norm(C / size, axis=0)
    loss, room = problem.loss_term(z), off[seen.task]
    worst = max(problem.loss_term(z + room), problem.loss_term(z - room)) - loss
    return problem.relative(worst) > CAREFUL * tol


def _off(state: FittedState, data: Prepared, z: Array) -> float:
    """The loss of the model's own predictions on the rows of the fit, less the one that was certified."""
    problem, seen = data.problem, data.problem.observations
    values = (sum(responses(state, data.inputs)) + state.intercept_ - data.scale.mean) / data.scale.spread
    return problem.loss_term(values[seen.row, seen.task]) - problem.loss_term(z)
