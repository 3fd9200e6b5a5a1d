"""The minimum of a small problem in good units, by CVXPY, from the objective alone: nothing here comes from the library.

min  sum_i v_i loss(y_i, <x_i, w_t> + b_t) + tr R + F(A)    over  [[A, sqrt(alpha) W'], [sqrt(alpha) W, R]] >= 0
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from . import users
from .build import Instance
from .values import observation_weights

TOLERANCES = (1e-10, 1e-9, 1e-8)  # of the conic solver, the first that it is sure of
ACCURACY = 1e-5  # of the minimum, relative to it and to the loss of constants


def minimum(instance: Instance) -> float | None:
    """``min J``, or ``None`` where the solver is not sure, or CVXPY is not installed."""
    try:
        import cvxpy as cp
    except ImportError:
        return None
    (_, T), d = instance.Y.shape, instance.X.shape[1]
    W, b, A = cp.Variable((d, T)), cp.Variable((1, T)), cp.Variable((T, T), PSD=True)
    R, root = cp.Variable((d, d), symmetric=True), np.sqrt(instance.alpha)
    F, constraints = _penalty(instance.structure, A)
    constraints = [*constraints, cp.bmat([[A, root * W.T], [root * W, R]]) >> 0]
    if not instance.fit_intercept:
        constraints.append(b == 0)
    v, X = observation_weights(instance).astype(float), instance.X.astype(float)
    terms = [cp.trace(R), F, instance.ridge * cp.sum_squares(W)]
    for t, spec in enumerate(instance.losses):
        live = v[:, t] > 0
        z = X[live] @ W[:, t] + b[0, t]
        terms.append(cp.sum(cp.multiply(v[live, t], loss_of(spec, instance.Y[live, t], z))))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.hstack(terms))), constraints)
    return solved(problem)


def solved(problem: Any) -> float | None:
    """The value of a problem that CVXPY is sure of."""
    import cvxpy as cp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tol in TOLERANCES:
            try:
                problem.solve(solver=cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol, max_threads=1)
            except cp.error.SolverError:
                continue
            except BaseException as error:
                if type(error).__name__ != "PanicException":  # of Clarabel's, where its eigenvalues fail
                    raise
                continue
            if problem.status == "optimal":
                return float(problem.value)
    return None


def loss_of(spec: dict[str, Any], y: Any, z: Any) -> Any:
    """The loss of each entry as a CVXPY expression."""
    import cvxpy as cp

    r = y - z
    match spec["name"]:
        case "squared":
            return cp.square(r)
        case "huber":
            return cp.huber(r, spec["width"])
        case "absolute":
            return cp.abs(r)
        case "quantile":
            return cp.maximum(spec["q"] * r, (spec["q"] - 1) * r)
        case "epsilon_insensitive":
            return cp.pos(cp.abs(r) - spec["epsilon"])
        case "log_cosh":
            r = r / spec["width"]
            return cp.logistic(-2 * r) + r - np.log(2)
        case "logistic":
            return cp.logistic(-cp.multiply(y, z))
        case "hinge":
            return cp.pos(1 - cp.multiply(y, z))
        case "squared_hinge":
            return cp.square(cp.pos(1 - cp.multiply(y, z)))
        case name:
            raise NotImplementedError(name)


def _penalty(spec: dict[str, Any], A: Any) -> tuple[Any, list]:
    import cvxpy as cp

    if spec["name"] == "constrained":
        return users.constrained(A, spec["what"], spec["bound"])
    if spec["name"] == "trace":
        return cp.trace(A), []
    factor = spec["factor"] if spec.get("fault") == "value" else 1.0
    return factor * (cp.trace(A) + (cp.sum_squares(A) / 2 if spec.get("base") != "trace" else 0.0)), []
