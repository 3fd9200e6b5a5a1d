"""What the minimum is, by another road: the objective of the design, written in CVXPY as it stands, solved by Clarabel.

    J(W, b, A) = sum_t c_t/S_t sum_i s_i loss(y_i, Phi_i w_t + b_t)  +  alpha tr(A^+ W'W) + ridge tr(W'W) + F(A)

Nothing of taskloom is imported: losses and structures are recognised by the name of their class and their public
parameters, so an error in the library's formulas (steps, conjugates, normalisations) cannot repeat itself here.

``tr(A^+ W'W)``, infinite unless the rows of ``W`` lie in the range of ``A``, is the Schur complement of one matrix
inequality. It is spelled out instead of left to ``cp.matrix_frac``, whose value CVXPY reports through the inverse of
an ``A`` that is singular at many optima. Run the file to check it against closed forms and other solvers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.linalg

Array = np.ndarray

# Interior points near a singular A stall at times: asking for a digit less is then better than taking a stalled point.
# Clarabel's own idea of "almost solved" is 5e-5, too loose to judge a certificate by; here it is 1e-7, and last.
TOLERANCES = (1e-10, 1e-9, 1e-8)
ALMOST = {"reduced_tol_gap_abs": 1e-7, "reduced_tol_gap_rel": 1e-7, "reduced_tol_feas": 1e-7}


class Optimum(NamedTuple):
    """The minimum and where it was found; ``A`` is ``None`` where the penalty was written without it."""

    value: float
    W: Array
    b: Array
    A: Array | None


class Penalty(NamedTuple):
    """``alpha tr(A^+ W'W) + F(A)`` as an expression, with the ``W`` (and ``A``) that it speaks about."""

    W: cp.Expression
    value: cp.Expression
    constraints: list[cp.Constraint]
    A: cp.Expression | None = None


def minimum(
    features: Array,
    Y: Array,
    loss: Any,
    structure: Any,
    alpha: float,
    *,
    ridge: float = 0.0,
    fit_intercept: bool = True,
    sample_weight: Array | None = None,
    task_weight: Array | None = None,
) -> float:
    """The least value of ``J`` over ``W``, ``b`` and ``A``, to about eight digits.

    ``features`` is ``Phi`` (``n x r``), ``Y`` is ``n x T`` with NaN where unobserved and labels -1/+1 for the losses of
    a margin, ``sample_weight`` has shape ``(n,)`` or ``(n, T)``, ``task_weight`` holds the ``c_t`` (all 1 if ``None``).
    """
    return optimum(
        features,
        Y,
        loss,
        structure,
        alpha,
        ridge=ridge,
        fit_intercept=fit_intercept,
        sample_weight=sample_weight,
        task_weight=task_weight,
    ).value


def optimum(
    features: Array,
    Y: Array,
    loss: Any,
    structure: Any,
    alpha: float,
    *,
    ridge: float = 0.0,
    fit_intercept: bool = True,
    sample_weight: Array | None = None,
    task_weight: Array | None = None,
) -> Optimum:
    """As ``minimum``, with the point as well: its objective bounds the minimum from above, whatever the solver says."""
    Phi, Y = np.asarray(features, dtype=float), np.asarray(Y, dtype=float)
    (n, r), T = Phi.shape, Y.shape[1]
    if Y.shape[0] != n:
        raise ValueError(f"features have {n} rows, Y has {Y.shape[0]}")
    v = observation_weights(Y, sample_weight, task_weight)
    W, penalty, constraints, A = structure_penalty(structure, r, T, float(alpha))
    b = cp.Variable(T) if fit_intercept else np.zeros(T)
    data = data_term(loss, Phi, Y, v, W, b)
    problem = cp.Problem(cp.Minimize(data + penalty + float(ridge) * cp.sum_squares(W)), constraints)
    value = solve(problem, f"{type(loss).__name__} with {type(structure).__name__}")
    intercepts = np.nan_to_num(b.value) if fit_intercept and b.value is not None else np.zeros(T)
    return Optimum(value, W.value, intercepts, None if A is None else A.value)


def solve(problem: cp.Problem, what: str) -> float:
    """The optimal value, or an error: an oracle that is not sure must not speak."""
    status = "not started"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # CVXPY's, on accuracy: the status says it, and is looked at
        for tol in TOLERANCES:
            settings = {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol, "max_iter": 500, "max_threads": 1}
            try:
                problem.solve(solver=cp.CLARABEL, **settings, **ALMOST)
                status = problem.status
            except cp.error.SolverError as error:
                status = str(error)
            if status == "optimal" or (status == "optimal_inaccurate" and tol == TOLERANCES[-1]):
                return float(problem.value)
    raise RuntimeError(f"the oracle could not solve {what} to {TOLERANCES[-1]:.0e}; Clarabel's last word: {status}")


def observation_weights(Y: Array, sample_weight: Array | None, task_weight: Array | None) -> Array:
    """``v = c_t s_i / S_t`` (``n x T``), zero where unobserved: ``S_t`` adds up the observed weights alone."""
    s = np.ones(Y.shape) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    s = np.broadcast_to(s[:, None] if s.ndim == 1 else s, Y.shape)
    s = np.where(np.isnan(Y), 0.0, s)
    S = s.sum(axis=0)
    if np.any(s < 0) or np.any(S <= 0):
        raise ValueError("weights must be nonnegative, and every task needs an observation of positive weight")
    c = np.ones(Y.shape[1]) if task_weight is None else np.asarray(task_weight, dtype=float)
    return s * c / S


def data_term(loss: Any, Phi: Array, Y: Array, v: Array, W: cp.Expression, b: cp.Variable | Array) -> cp.Expression:
    """The weighted losses, task by task.

    With a free intercept, a task whose labels are all alike drives the logistic loss to zero as ``b_t`` goes to
    infinity, where no solver arrives: its term is replaced by that infimum.
    """
    total: cp.Expression = cp.Constant(0.0)
    for t in range(Y.shape[1]):
        seen = v[:, t] > 0
        y, weight = Y[seen, t], v[seen, t]
        if isinstance(b, cp.Variable) and type(loss).__name__ == "Logistic" and np.all(y == y[0]):
            continue
        total = total + weight @ losses(loss, y, Phi[seen] @ W[:, t] + b[t])
    return total


def losses(loss: Any, y: Array, z: cp.Expression) -> cp.Expression:
    """``loss(y_i, z_i)`` for every observation, from the definitions of the design."""
    match type(loss).__name__:
        case "Squared":
            return cp.square(y - z)
        case "Huber":
            return cp.huber(y - z, loss.width)  # r^2 inside, 2 width |r| - width^2 outside: CVXPY's convention is ours
        case "Absolute":
            return cp.abs(y - z)
        case "EpsilonInsensitive":
            return cp.pos(cp.abs(y - z) - loss.epsilon)
        case "Quantile":
            return cp.maximum(loss.q * (y - z), (loss.q - 1) * (y - z))
        case "Logistic":
            return cp.logistic(cp.multiply(-y, z))
        case "Hinge":
            return cp.pos(1 - cp.multiply(y, z))
        case "SquaredHinge":
            return cp.square(cp.pos(1 - cp.multiply(y, z)))
        case name:
            raise NotImplementedError(f"the oracle does not know the loss {name}")


def structure_penalty(structure: Any, r: int, T: int, alpha: float) -> Penalty:
    """``alpha tr(A^+ W'W) + F(A)``: from the meaning of the structure where ``A`` is known, else with ``A`` a variable."""
    W = cp.Variable((r, T))
    match type(structure).__name__:
        case "Independent":
            return Penalty(W, alpha * cp.sum_squares(W), [])
        case "SharedMean":
            mean = W @ np.full((T, T), 1 / T)
            return Penalty(W, alpha * (cp.sum_squares(W) + structure.gamma * cp.sum_squares(W - mean)), [])
        case "TaskGraph":
            adjacency = np.asarray(structure.adjacency, dtype=float)
            pairs = zip(*np.nonzero(adjacency), strict=True)  # ordered pairs: each edge counts twice
            apart = sum(adjacency[t, s] * cp.sum_squares(W[:, t] - W[:, s]) for t, s in pairs)
            return Penalty(W, alpha * (apart + structure.gamma * cp.sum_squares(W)), [])
        case "Fixed":
            return known(square_root(structure.A), r, alpha)
        case "OutputMetric":
            return known(square_root(structure.theta), r, alpha)
        case "OutputCode":
            return known(np.asarray(structure.L, dtype=float).T, r, alpha)
        case "Clusters" if structure.n_clusters in (1, T):  # the set is a single point
            M = np.eye(T) if structure.n_clusters == T else np.full((T, T), 1 / T)
            return known(square_root(clustered(structure, M)), r, alpha)
        case "Clusters":
            M, constraints = relaxed_clusters(structure.n_clusters, T)
            A, F = clustered(structure, M), cp.Constant(0.0)
        case _:
            A = cp.Variable((T, T), symmetric=True)
            F, constraints = structure_value(structure, A)
    energy, schur = quadratic_over_structure(np.sqrt(alpha) * W, A)
    return Penalty(W, energy + F, [*constraints, schur], A)


def square_root(A: Any) -> Array:
    """Some ``L`` with ``A = L L'``, for a positive semidefinite ``A`` that may be singular."""
    a, V = np.linalg.eigh(np.asarray(A, dtype=float))
    return V * np.sqrt(np.maximum(a, 0.0))


def known(L: Array, r: int, alpha: float) -> Penalty:
    """``A = L L'`` given. ``tr(A^+ W'W)`` is the least ``||B||^2`` with ``W = B L'``, so minimising over ``B`` is exact.

    It holds whatever the rank of ``A``: no pseudo-inverse, no threshold, and ``W`` cannot leave the range of ``A``.
    """
    B = cp.Variable((r, L.shape[1]))
    return Penalty(B @ L.T, alpha * cp.sum_squares(B), [], cp.Constant(L @ L.T))


def quadratic_over_structure(W: cp.Expression, A: cp.Expression) -> tuple[cp.Expression, cp.Constraint]:
    """``tr(A^+ W'W)`` with the range condition, for any ``A >= 0``: the least ``tr R`` with ``[[A, W'], [W, R]] >= 0``."""
    R = cp.Variable((W.shape[0], W.shape[0]), symmetric=True)
    return cp.trace(R), cp.bmat([[A, W.T], [W, R]]) >> 0


def clustered(structure: Any, M: Any) -> Any:
    """``A(M) = U/mean + (M - U)/between + (I - M)/within``."""
    T = M.shape[0]
    U = np.full((T, T), 1 / T)
    return U / structure.mean + (M - U) / structure.between + (np.eye(T) - M) / structure.within


def relaxed_clusters(n_clusters: int, T: int) -> tuple[cp.Expression, list[cp.Constraint]]:
    """``0 <= M <= I``, ``tr M = n_clusters``, ``M 1 = 1``.

    ``M 1 = 1`` puts an eigenvalue of ``M`` on the bound, which leaves an interior-point solver no interior; so ``M`` is
    written ``U + H N H'`` with ``H`` a basis of the complement of the mean, where ``N`` has room on both sides.
    """
    H = scipy.linalg.null_space(np.ones((1, T)))
    N = cp.Variable((T - 1, T - 1), symmetric=True)
    return np.full((T, T), 1 / T) + H @ N @ H.T, [N >> 0, np.eye(T - 1) - N >> 0, cp.trace(N) == n_clusters - 1]


def structure_value(structure: Any, A: cp.Variable) -> tuple[cp.Expression, list[cp.Constraint]]:
    """``F(A)`` for ``A >= 0`` (which the Schur complement demands), with the constraints that define it."""
    T = A.shape[0]
    match type(structure).__name__:
        case "Trace":
            return cp.trace(A), []
        case "Frobenius":
            return cp.sum_squares(A), []
        case "Schatten" if structure.p == 1:
            return cp.trace(A), []
        case "Schatten" if structure.p == 2:
            return cp.sum_squares(A), []
        case "Schatten":
            return function_of_eigenvalues(A, lambda a: cp.sum(cp.power(a, structure.p, approx=False)))
        case "SchattenNorm" if structure.p == 1:
            return cp.trace(A), []
        case "SchattenNorm" if structure.p == 2:
            return cp.norm(A, "fro"), []
        case "SchattenNorm":
            return function_of_eigenvalues(A, lambda a: cp.pnorm(a, structure.p, approx=False))
        case "UnitTrace":
            return cp.Constant(0.0), [cp.trace(A) <= 1]
        case "LogDet":
            return cp.trace(A) - structure.mu * cp.log_det(A), []
        case "Sparse":
            return cp.trace(A) + structure.l1 * cp.sum(cp.abs(cp.multiply(1 - np.eye(T), A))), []
        case name:
            raise NotImplementedError(f"the oracle does not know the structure {name}")


def function_of_eigenvalues(
    A: cp.Expression, f: Callable[[cp.Expression], cp.Expression]
) -> tuple[cp.Expression, list[cp.Constraint]]:
    """``f(eigenvalues of A)`` for a convex ``f`` of nonnegative numbers that ignores their order, for any such ``f``.

    It is the least ``f(x)`` over the ``x`` that majorise the eigenvalues: the ``k`` largest add up to at most
    ``x_1 + ... + x_k`` for each ``k``, all of them to exactly the sum of ``x``. CVXPY has no ``tr A^p`` of its own;
    power cones (``approx=False`` above) make it exact for every real ``p``, not for simple fractions alone.
    """
    T = A.shape[0]
    x = cp.Variable(T, nonneg=True)
    constraints = [cp.lambda_sum_largest(A, k) <= cp.sum(x[:k]) for k in range(1, T)]
    return f(x), [*constraints, cp.trace(A) == cp.sum(x)]
