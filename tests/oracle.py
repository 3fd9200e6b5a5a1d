"""What the minimum is, by another road: the objective of the design, written in CVXPY as it stands, solved by Clarabel.

    J(W, b, A) = sum_t c_t/S_t sum_i s_i loss(y_i, Phi_i w_t + b_t)  +  alpha tr(A^+ W'W) + ridge tr(W'W) + F(A)

Nothing of taskloom is imported: losses and structures are recognised by the name of their class and their public
parameters, so an error in the library's formulas (steps, conjugates, normalisations) cannot repeat itself here.

``tr(A^+ W'W)``, infinite unless the rows of ``W`` lie in the range of ``A``, is the Schur complement of one matrix
inequality. It is spelled out instead of left to ``cp.matrix_frac``, whose value CVXPY reports through the inverse of
an ``A`` that is singular at many optima. Run the file to check it against closed forms and other solvers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special

Array = np.ndarray

# Near a singular A the steps become short long before the optimum is reached: do not stop for that. Where the usual
# settings stall all the same, other ones do not; asking for a digit less comes after that, and last, at 1e-7 (its own
# default is 5e-5, too loose to judge a certificate by), what Clarabel calls almost solved.
TOLERANCES = (1e-10, 1e-9, 1e-8)
ATTEMPTS: tuple[dict[str, Any], ...] = ({}, {"max_step_fraction": 0.9}, {"equilibrate_enable": False}, {"use_quad_obj": False})
PATIENCE = {"min_terminate_step_length": 1e-8, "min_switch_step_length": 1e-3, "max_iter": 500, "max_threads": 1}
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
    almost: tuple[float, dict[cp.Variable, Array]] | None = None
    status = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # CVXPY's, on accuracy: the status says it, and is looked at
        for tol, attempt in product(TOLERANCES, ATTEMPTS):
            precision = {"tol_gap_abs": tol, "tol_gap_rel": tol, "tol_feas": tol}
            try:
                problem.solve(solver=cp.CLARABEL, warm_start=False, **precision, **PATIENCE, **ALMOST, **attempt)
                status = problem.status
            except cp.error.SolverError as error:
                status = str(error)
                continue
            if status == "optimal":
                return float(problem.value)
            if status == "optimal_inaccurate" and almost is None:
                almost = float(problem.value), {x: x.value for x in problem.variables()}
    if almost is None:
        raise RuntimeError(f"the oracle could not solve {what}; Clarabel's last word: {status}")
    value, point = almost
    for x, found in point.items():
        x.save_value(found)
    return value


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
    if type(loss).__name__ in ("Softmax", "MulticlassHinge"):
        return v[:, 0] @ row_losses(loss, Y, Phi @ W + np.ones((len(Phi), 1)) @ cp.reshape(b, (1, Y.shape[1]), order="C"))
    total: cp.Expression = cp.Constant(0.0)
    for t in range(Y.shape[1]):
        seen = v[:, t] > 0
        y, weight = Y[seen, t], v[seen, t]
        if isinstance(b, cp.Variable) and type(loss).__name__ == "Logistic" and np.all(y == y[0]):
            continue
        total = total + weight @ losses(loss, y, Phi[seen] @ W[:, t] + b[t])
    return total


def row_losses(loss: Any, Y: Array, Z: cp.Expression) -> cp.Expression:
    """``loss(y_i, z_i)`` for every row; ``Y`` is +1 at the class of the row. One loss a row: it has the weight of one entry."""
    own = (Y > 0).astype(float)
    highest = cp.log_sum_exp(Z, axis=1) if type(loss).__name__ == "Softmax" else cp.max(Z + (1 - own), axis=1)
    return highest - cp.sum(cp.multiply(own, Z), axis=1)


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
        case "CustomLoss":
            return losses(loss.loss, y, z)
        case "LogCosh":
            return cp.logistic(2 * (z - y)) - (z - y) - np.log(2)
        case "Poisson":
            return cp.exp(z) - cp.multiply(y, z) + scipy.special.xlogy(y, y) - y
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
        case "Clusters":
            return clusters(structure, W, alpha)
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


def clusters(structure: Any, W: cp.Variable, alpha: float) -> Penalty:
    """``A(M) = U/mean + (M - U)/between + (I - M)/within`` over ``0 <= M <= I``, ``tr M = n_clusters``, ``M 1 = 1``.

    ``M 1 = 1`` puts an eigenvalue of ``M`` on its bound, which leaves an interior-point solver no interior. So ``M`` is
    written ``U + H N H'`` with ``H`` a basis of the complement of the mean, where ``N`` has room on both sides; then
    ``A`` is ``1/mean`` along the mean and ``N/between + (I - N)/within`` across it, and its energy falls in two.
    """
    T = W.shape[1]
    H, k = scipy.linalg.null_space(np.ones((1, T))), structure.n_clusters
    along = structure.mean * cp.sum_squares(W @ np.full(T, 1 / np.sqrt(T)))
    if k in (1, T):  # N is 0 or I: the set is a single point
        return Penalty(W, alpha * (along + (structure.within if k == 1 else structure.between) * cp.sum_squares(W @ H)), [])
    N = cp.Variable((T - 1, T - 1), symmetric=True)
    across = N / structure.between + (np.eye(T - 1) - N) / structure.within
    energy, schur = quadratic_over_structure(np.sqrt(alpha) * W @ H, across)
    constraints = [schur, N >> 0, np.eye(T - 1) - N >> 0, cp.trace(N) == k - 1]
    A = np.full((T, T), 1 / (T * structure.mean)) + H @ across @ H.T
    return Penalty(W, alpha * along + energy, constraints, A)


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
            relations = cp.sum(cp.abs(cp.multiply(1 - np.eye(T), A)))
            return cp.trace(A) - structure.mu * cp.log_det(A) + structure.l1 * relations, []
        case "Sparse":
            return cp.trace(A) + structure.l1 * cp.sum(cp.abs(cp.multiply(1 - np.eye(T), A))), []
        case "CustomStructure":
            return structure_value(structure.penalty, A)
        case "TraceAndSize":
            return cp.trace(A) + cp.sum_squares(A) / 2, []
        case "Banded":
            return cp.trace(A), [A[structure.apart] == 0]
        case "Sum":
            weights = structure.weights or [1.0] * len(structure.members)
            values = [structure_value(member, A) for member in structure.members]
            total = sum(weight * value for weight, (value, _) in zip(weights, values, strict=True))
            return total, [constraint for _, constraints in values for constraint in constraints]
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


# --- The oracle's own oracles: closed forms, scikit-learn, scipy and other formulations. Run the file. ---


class Check(NamedTuple):
    """Two roads to one number, and how far apart they may end (relative)."""

    what: str
    found: float
    expected: float
    tol: float = 1e-7


def stand_in(kind: str, **parameters: Any) -> Any:
    """What the oracle sees of a taskloom loss or structure: the name of its class and its parameters."""
    return type(kind, (), parameters)()


SQUARED, LOGISTIC, HINGE = stand_in("Squared"), stand_in("Logistic"), stand_in("Hinge")
INDEPENDENT, TRACE = stand_in("Independent"), stand_in("Trace")


def sample_problem(n: int = 20, r: int = 4, T: int = 4, seed: int = 0) -> tuple[Array, Array, Array]:
    """Features, targets with an offset and holes, and the labels that go with them."""
    rng = np.random.default_rng(seed)
    Phi = rng.normal(size=(n, r))
    Y = 1 + Phi @ rng.normal(size=(r, T)) + 0.3 * rng.normal(size=(n, T))
    Y[rng.random((n, T)) < 0.25] = np.nan
    return Phi, Y, np.where(np.isnan(Y), np.nan, np.where(Y > 1, 1.0, -1.0))


def another_way(
    Phi: Array, Y: Array, loss: Any, penalty: Callable[[cp.Variable], tuple[cp.Expression, list[cp.Constraint]]]
) -> float:
    """The minimum with the penalty written as a function of ``W`` by whoever asks."""
    W, b = cp.Variable((Phi.shape[1], Y.shape[1])), cp.Variable(Y.shape[1])
    value, constraints = penalty(W)
    data = data_term(loss, Phi, Y, observation_weights(Y, None, None), W, b)
    return solve(cp.Problem(cp.Minimize(data + value), constraints), "another way")


def check_losses() -> Iterator[Check]:
    """Each loss on a grid, against its formula in plain Python; most of them against scikit-learn's solvers as well."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import SVC, SVR, LinearSVC

    huber, absolute, tube = stand_in("Huber", width=0.7), stand_in("Absolute"), stand_in("EpsilonInsensitive", epsilon=0.2)
    quantile, squared_hinge = stand_in("Quantile", q=0.3), stand_in("SquaredHinge")
    formulas: dict[Any, Callable[[float, float], float]] = {
        SQUARED: lambda y, z: (y - z) ** 2,
        huber: lambda y, z: (y - z) ** 2 if abs(y - z) <= 0.7 else 1.4 * abs(y - z) - 0.49,
        absolute: lambda y, z: abs(y - z),
        tube: lambda y, z: max(0.0, abs(y - z) - 0.2),
        quantile: lambda y, z: 0.3 * (y - z) if y > z else 0.7 * (z - y),
        LOGISTIC: lambda y, z: math.log(1 + math.exp(-y * z)),
        HINGE: lambda y, z: max(0.0, 1 - y * z),
        squared_hinge: lambda y, z: max(0.0, 1 - y * z) ** 2,
    }
    grid = np.linspace(-3, 3, 41)
    for loss, formula in formulas.items():
        for y in (-1.0, 1.0):
            values = losses(loss, np.full(grid.size, y), cp.Constant(grid)).value
            off = max(abs(value - formula(y, z)) for value, z in zip(values, grid, strict=True))
            yield Check(f"{type(loss).__name__} on a grid, y = {y:+.0f}", 1 + off, 1.0, 1e-12)

    Phi, Y, labels = sample_problem()
    alpha, seen = 0.03, ~np.isnan(Y[:, 0])
    X, y, sign = Phi[seen], Y[seen, 0], labels[seen, 0]
    C = 1 / (2 * alpha * y.size)  # scikit-learn's objective is ||w||^2 / 2 + C sum of losses
    for loss, target, model in [
        (LOGISTIC, sign, LogisticRegression(C=C, tol=1e-10, max_iter=10_000)),
        (HINGE, sign, SVC(kernel="linear", C=C, tol=1e-10)),
        (squared_hinge, sign, LinearSVC(C=C, fit_intercept=False, tol=1e-10, max_iter=10**6)),
        (tube, y, SVR(kernel="linear", C=C, epsilon=0.2, tol=1e-10)),
        (absolute, y, SVR(kernel="linear", C=C, epsilon=0.0, tol=1e-10)),
    ]:
        model.fit(X, target)
        w, b = model.coef_.ravel(), float(np.ravel(model.intercept_)[0])
        mean_loss = np.mean([formulas[loss](a, z) for a, z in zip(target, X @ w + b, strict=True)])
        found = minimum(X, target[:, None], loss, INDEPENDENT, alpha, fit_intercept=loss is not squared_hinge)
        tol = 1e-6 if isinstance(model, SVC | SVR) else 1e-9  # libsvm keeps its kernel in single precision
        yield Check(f"{type(loss).__name__} = scikit-learn's {type(model).__name__}", found, mean_loss + alpha * w @ w, tol)

    label = np.argmax(np.nan_to_num(Y), axis=1)
    rows = np.where(label[:, None] == np.arange(Y.shape[1]), 1.0, -1.0)
    C = 1 / (2 * alpha * len(Phi))
    crammer_singer = LinearSVC(multi_class="crammer_singer", C=C, fit_intercept=False, tol=1e-10, max_iter=10**6)
    for kind, model in [("Softmax", LogisticRegression(C=C, tol=1e-10, max_iter=10_000)), ("MulticlassHinge", crammer_singer)]:
        model.fit(Phi, label)
        Z = Phi @ model.coef_.T + model.intercept_
        if kind == "Softmax":
            each = [math.log(sum(map(math.exp, z))) - z[k] for k, z in zip(label, Z, strict=True)]
        else:
            each = [max(z[j] + (j != k) for j in range(z.size)) - z[k] for k, z in zip(label, Z, strict=True)]
        expected = float(np.mean(each)) + alpha * float(np.sum(model.coef_**2))
        found = minimum(Phi, rows, stand_in(kind), INDEPENDENT, alpha, fit_intercept=kind == "Softmax")
        yield Check(f"{kind} = scikit-learn's {type(model).__name__}", found, expected, 1e-7)


def check_known() -> Iterator[Check]:
    """Known structures: closed forms of least squares, and the matrices of the design's corrections 2 and 3."""
    Phi, Y, labels = sample_problem()
    T, r, alpha = Y.shape[1], Phi.shape[1], 0.05
    rng = np.random.default_rng(1)
    s, c = rng.uniform(0.2, 2, size=Y.shape), rng.uniform(0.5, 2, size=T)
    v = observation_weights(Y, s, c)

    def least_squares(A: Array, ridge: float) -> float:
        """By the normal equations in ``vec(W)``, with no intercept."""
        P = np.concatenate([np.kron(np.eye(T)[t], Phi * np.sqrt(v[:, [t]])) for t in range(T)])
        y = np.concatenate([np.sqrt(v[:, t]) * np.nan_to_num(Y[:, t]) for t in range(T)])
        Q = np.kron(alpha * np.linalg.inv(A) + ridge * np.eye(T), np.eye(r))
        w = np.linalg.solve(P.T @ P + Q, P.T @ y)
        return float(np.sum((y - P @ w) ** 2) + w @ Q @ w)

    weights = {"sample_weight": s, "task_weight": c}
    by_task = 0.0
    for t in range(T):
        V, y = np.diag(v[:, t]), np.nan_to_num(Y[:, t])
        w = np.linalg.solve(Phi.T @ V @ Phi + alpha * np.eye(r), Phi.T @ V @ y)
        by_task += (y - Phi @ w) @ V @ (y - Phi @ w) + alpha * w @ w
    found = minimum(Phi, Y, SQUARED, INDEPENDENT, alpha, fit_intercept=False, **weights)
    yield Check("Independent = ridge regression, task by task", found, by_task, 1e-9)

    B = rng.normal(size=(T, T))
    A = B @ B.T + 0.1 * np.eye(T)
    for kind, structure in [("Fixed", stand_in("Fixed", A=A)), ("OutputMetric", stand_in("OutputMetric", theta=A))]:
        found = minimum(Phi, Y, SQUARED, structure, alpha, ridge=0.02, fit_intercept=False, **weights)
        yield Check(f"{kind} = the Kronecker system, with a ridge", found, least_squares(A, 0.02), 1e-9)

    off_mean, adjacency = np.eye(T) - 1 / T, np.abs(B + B.T)
    np.fill_diagonal(adjacency, 0.0)
    laplacian = np.diag(adjacency.sum(axis=0)) - adjacency
    for structure, inverse in [
        (stand_in("SharedMean", gamma=3.0), np.eye(T) + 3.0 * off_mean),
        (stand_in("TaskGraph", adjacency=adjacency, gamma=0.5), 2 * laplacian + 0.5 * np.eye(T)),
    ]:
        found = minimum(Phi, labels, LOGISTIC, structure, alpha)
        fixed = minimum(Phi, labels, LOGISTIC, stand_in("Fixed", A=np.linalg.inv(inverse)), alpha)
        yield Check(f"{type(structure).__name__} = Fixed at the inverse of the design", found, fixed, 1e-8)

    L = rng.normal(size=(2, T))
    found = minimum(Phi, labels, HINGE, stand_in("OutputCode", L=L), alpha)
    singular = minimum(Phi, labels, HINGE, stand_in("Fixed", A=L.T @ L), alpha)
    nearby = minimum(Phi, labels, HINGE, stand_in("Fixed", A=L.T @ L + 1e-8 * np.eye(T)), alpha)
    yield Check("OutputCode(L) = Fixed(L'L), singular", found, singular, 1e-8)
    yield Check("Fixed, singular = the limit of regular ones", singular, nearby, 1e-5)


def check_norms() -> Iterator[Check]:
    """Learned structures that amount to a norm of ``W`` which CVXPY has: the design's correction 5, and ``Sparse``."""
    Phi, Y, labels = sample_problem()
    alpha = 0.05
    for loss, target in [(SQUARED, Y), (LOGISTIC, labels), (HINGE, labels)]:
        name = type(loss).__name__
        for strength in (0.01, alpha, 100.0):  # at the last one everything vanishes
            nuclear = another_way(Phi, target, loss, lambda W, s=strength: (2 * np.sqrt(s) * cp.normNuc(W), []))
            yield Check(f"Trace = nuclear norm, {name}, {strength:g}", minimum(Phi, target, loss, TRACE, strength), nuclear)
            squared = another_way(Phi, target, loss, lambda W, s=strength: (s * cp.square(cp.normNuc(W)), []))
            found = minimum(Phi, target, loss, stand_in("UnitTrace"), strength)
            yield Check(f"UnitTrace = its square, {name}, {strength:g}", found, squared)
        ridged = another_way(Phi, target, loss, lambda W: (2 * np.sqrt(alpha) * cp.normNuc(W) + 0.1 * cp.sum_squares(W), []))
        yield Check(f"Trace with a ridge, {name}", minimum(Phi, target, loss, TRACE, alpha, ridge=0.1), ridged)
        columns = another_way(Phi, target, loss, lambda W: (2 * np.sqrt(alpha) * cp.sum(cp.norm(W, 2, axis=0)), []))
        diagonal = minimum(Phi, target, loss, stand_in("Sparse", l1=20.0), alpha)
        yield Check(f"Sparse, strong = the norms of the columns, {name}", diagonal, columns)

    # For two tasks F(A) = max <I + N, A> has one number to maximise over, and each N is a nuclear norm of W (I + N)^(1/2).
    def bound(c: float) -> float:
        root = np.real(scipy.linalg.sqrtm(np.array([[1.0, c], [c, 1.0]])))
        return another_way(Phi, Y[:, :2], SQUARED, lambda W: (2 * np.sqrt(0.3) * cp.normNuc(W @ root), []))

    for l1 in (0.05, 0.2, 0.6):
        best = scipy.optimize.minimize_scalar(lambda c: -bound(c), bounds=(-l1, l1), method="bounded", options={"xatol": 1e-6})
        found = minimum(Phi, Y[:, :2], SQUARED, stand_in("Sparse", l1=l1), 0.3)
        yield Check(f"Sparse({l1}), two tasks = its minimax form", found, max(-best.fun, bound(-l1), bound(l1)))


def descend(Phi: Array, Y: Array, h: Callable[[Array], tuple[float, Array]]) -> float:
    """Least squares plus ``h`` (value, slope) of the singular values of ``W``, by L-BFGS from several starts."""
    r, T, v, rng = Phi.shape[1], Y.shape[1], observation_weights(Y, None, None), np.random.default_rng(2)

    def objective(x: Array) -> tuple[float, Array]:
        W, b = x[: r * T].reshape(r, T), x[r * T :]
        R = np.where(np.isnan(Y), 0.0, Phi @ W + b - Y)
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
        value, slope = h(s)
        gradient = 2 * Phi.T @ (v * R) + (U * slope) @ Vt
        return float(np.sum(v * R**2)) + value, np.concatenate([gradient.ravel(), 2 * (v * R).sum(axis=0)])

    options = {"maxiter": 20_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-11, "maxcor": 50}
    starts = [rng.normal(size=r * T + T) for _ in range(3)]
    return min(scipy.optimize.minimize(objective, x, jac=True, method="L-BFGS-B", options=options).fun for x in starts)


def power_by_inequalities(A: cp.Variable, p: float) -> tuple[cp.Expression, list[cp.Constraint]]:
    """``tr A^p`` for three ``p`` that chains of matrix inequalities reach; nothing to do with majorisation."""
    T = A.shape[0]
    B, X, eye = cp.Variable((T, T), symmetric=True), cp.Variable((T, T), symmetric=True), np.eye(T)
    if p == 1.5:  # B <= A^(1/2), X >= A B^-1 A
        return cp.trace(X), [cp.bmat([[A, B], [B, eye]]) >> 0, cp.bmat([[X, A], [A, B]]) >> 0]
    above_square = cp.bmat([[B, A], [A, eye]]) >> 0
    if p == 3:  # B >= A^2, X >= B A^-1 B
        return cp.trace(X), [above_square, cp.bmat([[X, B], [B, A]]) >> 0]
    if p == 4:  # B >= A^2
        return cp.sum_squares(B), [above_square]
    raise NotImplementedError(f"no chain for p={p}")


def check_spectral() -> Iterator[Check]:
    """``tr A^p``, its norm and the log determinant: eliminated and descended upon, and by chains of inequalities."""
    Phi, Y, labels = sample_problem()
    alpha, T = 0.05, Y.shape[1]
    for p in (1.3, 1.5, 2, 3, 4):
        q = 2 * p / (p + 1)  # min over a of alpha s^2 / a + a^p is a multiple of s^q; the multiple is found by search
        scale = scipy.optimize.minimize_scalar(lambda a, p=p: alpha / a + a**p, bounds=(1e-6, 5), method="bounded").fun
        power = descend(Phi, Y, lambda s, q=q, c=scale: (c * np.sum(s**q), c * q * s ** (q - 1)))
        yield Check(f"Schatten({p}) = descent", minimum(Phi, Y, SQUARED, stand_in("Schatten", p=p), alpha), power)

        def norm(s: Array, q: float = q) -> tuple[float, Array]:
            size = np.sum(s**q) ** (1 / q)
            return 2 * np.sqrt(alpha) * size, 2 * np.sqrt(alpha) * (s / size) ** (q - 1)

        found = minimum(Phi, Y, SQUARED, stand_in("SchattenNorm", p=p), alpha)
        yield Check(f"SchattenNorm({p}) = descent", found, descend(Phi, Y, norm))

    def chained(W: cp.Variable, p: float) -> tuple[cp.Expression, list[cp.Constraint]]:
        A = cp.Variable((T, T), symmetric=True)
        energy, schur = quadratic_over_structure(np.sqrt(alpha) * W, A)
        F, constraints = power_by_inequalities(A, p)
        return energy + F, [schur, *constraints]

    for p, (loss, target) in product((1.5, 3, 4), [(SQUARED, Y), (LOGISTIC, labels), (HINGE, labels)]):
        found = minimum(Phi, target, loss, stand_in("Schatten", p=p), alpha)
        inequalities = another_way(Phi, target, loss, lambda W, p=p: chained(W, p))
        yield Check(f"Schatten({p}) = chain of inequalities, {type(loss).__name__}", found, inequalities)
    for one, other in [
        (stand_in("Schatten", p=1), TRACE),
        (stand_in("SchattenNorm", p=1), TRACE),
        (stand_in("Schatten", p=2), stand_in("Frobenius")),
    ]:
        pair = [minimum(Phi, labels, LOGISTIC, structure, alpha) for structure in (one, other)]
        yield Check(f"{type(one).__name__}({one.p}) = {type(other).__name__}", *pair)

    def log_det(s: Array, mu: float) -> tuple[float, Array]:
        a = (mu + np.sqrt(mu**2 + 4 * alpha * s**2)) / 2  # a^2 - mu a - alpha s^2 = 0
        return float(np.sum(alpha * s**2 / a + a - mu * np.log(a))), 2 * alpha * s / a

    for mu in (0.1, 1.0):
        found = minimum(Phi, Y, SQUARED, stand_in("LogDet", mu=mu, l1=0.0), alpha)
        yield Check(f"LogDet({mu}) = descent", found, descend(Phi, Y, lambda s, mu=mu: log_det(s, mu)))


def check_clusters() -> Iterator[Check]:
    """The set of the design's correction 4 with ``M`` itself as the variable, as printed, and its two ends."""
    Phi, Y, labels = sample_problem()
    alpha, T = 0.2, Y.shape[1]
    U = np.full((T, T), 1 / T)
    for k, (loss, target) in product((2, 3), [(SQUARED, Y), (HINGE, labels)]):
        structure = stand_in("Clusters", n_clusters=k, mean=0.5, between=1.0, within=4.0)

        def printed(W: cp.Variable, k: int = k) -> tuple[cp.Expression, list[cp.Constraint]]:
            M = cp.Variable((T, T), symmetric=True)
            energy, schur = quadratic_over_structure(np.sqrt(alpha) * W, U / 0.5 + (M - U) / 1.0 + (np.eye(T) - M) / 4.0)
            return energy, [schur, M >> 0, np.eye(T) - M >> 0, cp.trace(M) == k, cp.sum(M, axis=1) == 1]

        found, expected = minimum(Phi, target, loss, structure, alpha), another_way(Phi, target, loss, printed)
        yield Check(f"Clusters({k}) as printed, {type(loss).__name__}", found, expected, 1e-6)
    for k, across in [(1, 4.0), (T, 1.0)]:
        structure = stand_in("Clusters", n_clusters=k, mean=0.5, between=1.0, within=4.0)
        fixed = stand_in("Fixed", A=U / 0.5 + (np.eye(T) - U) / across)
        pair = [minimum(Phi, labels, LOGISTIC, one, alpha) for one in (structure, fixed)]
        yield Check(f"Clusters({k}) of {T} tasks = Fixed", *pair, 1e-8)
    all_alike = stand_in("Clusters", n_clusters=2, mean=2.0, between=2.0, within=2.0)
    pair = [minimum(Phi, Y, SQUARED, all_alike, alpha), minimum(Phi, Y, SQUARED, INDEPENDENT, 2 * alpha)]
    yield Check("Clusters, all weights alike = Independent", *pair, 1e-8)


def check_bookkeeping() -> Iterator[Check]:
    """Weights, holes and intercepts mean what the objective says."""
    Phi, Y, labels = sample_problem()
    n, T = Y.shape
    rng = np.random.default_rng(3)
    repeats = rng.integers(1, 4, size=n)
    again = np.repeat(np.arange(n), repeats)
    sparse = stand_in("Sparse", l1=0.2)
    for loss, target, structure in [(SQUARED, Y, TRACE), (LOGISTIC, labels, sparse), (HINGE, labels, INDEPENDENT)]:
        name = f"{type(loss).__name__}, {type(structure).__name__}"
        weighted = minimum(Phi, target, loss, structure, 0.05, sample_weight=repeats)
        repeated = minimum(Phi[again], target[again], loss, structure, 0.05)
        yield Check(f"a weight of k = k rows, {name}", weighted, repeated)
        full = np.where(np.isnan(target), 1.0, target)
        unseen = minimum(Phi, full, loss, structure, 0.05, sample_weight=np.where(np.isnan(target), 0.0, repeats[:, None]))
        yield Check(f"a hole = a weight of 0, {name}", unseen, weighted)
        scaled = minimum(Phi, target, loss, structure, 0.05, sample_weight=repeats[:, None] * rng.uniform(1, 9, size=T))
        yield Check(f"weights are relative within a task, {name}", scaled, weighted)
    tripled = minimum(Phi, Y, SQUARED, INDEPENDENT, 0.3, task_weight=np.full(T, 3.0))
    yield Check("c_t = 3 is 3 times the problem at alpha / 3", tripled, 3 * minimum(Phi, Y, SQUARED, INDEPENDENT, 0.1), 1e-8)
    c = rng.uniform(0.5, 2, size=T)
    alone = sum(minimum(Phi, Y[:, [t]], SQUARED, INDEPENDENT, 0.1, task_weight=c[[t]]) for t in range(T))
    yield Check("tasks with A = I add up", minimum(Phi, Y, SQUARED, INDEPENDENT, 0.1, task_weight=c), alone, 1e-8)
    both = minimum(Phi, Y, SQUARED, INDEPENDENT, 0.03, ridge=0.07)
    yield Check("a ridge adds to alpha when A = I", both, minimum(Phi, Y, SQUARED, INDEPENDENT, 0.1), 1e-8)

    moved = minimum(Phi, Y + np.arange(T), SQUARED, TRACE, 0.05)
    yield Check("an intercept absorbs an offset", moved, minimum(Phi, Y, SQUARED, TRACE, 0.05))
    whole = np.nan_to_num(Y)
    centred = minimum(Phi - Phi.mean(axis=0), whole - whole.mean(axis=0), SQUARED, TRACE, 0.05, fit_intercept=False)
    yield Check("an intercept = centring", minimum(Phi, whole, SQUARED, TRACE, 0.05), centred)
    vanished = sum(np.nanvar(Y[:, t]) for t in range(T))
    yield Check("no W at a large alpha: the variances are left", minimum(Phi, Y, SQUARED, TRACE, 1e3), vanished)
    one_sided = labels.copy()
    one_sided[:, 0] = np.where(np.isnan(labels[:, 0]), np.nan, 1.0)
    pair = [minimum(Phi, y, LOGISTIC, INDEPENDENT, 0.1) for y in (one_sided, labels[:, 1:])]
    yield Check("Logistic: a task of one label costs nothing", *pair, 1e-8)
    fixed_intercept = minimum(Phi, one_sided, LOGISTIC, INDEPENDENT, 0.1, fit_intercept=False)
    pair = [minimum(Phi, one_sided[:, [t]], LOGISTIC, INDEPENDENT, 0.1, fit_intercept=False) for t in range(T)]
    yield Check("... but it does without an intercept", fixed_intercept, sum(pair), 1e-8)


def main() -> int:
    """Print every check and count those that failed."""
    failed = 0
    for check in chain(check_losses(), check_known(), check_norms(), check_spectral(), check_clusters(), check_bookkeeping()):
        off = abs(check.found - check.expected) / abs(check.expected)
        failed += not off <= check.tol
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
