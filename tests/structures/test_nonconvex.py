"""Structures that are not convex: planted relations are found, a stationary point is known as such, nothing more is claimed."""

import warnings

import numpy as np
import pytest
import zoo
from scipy.linalg import subspace_angles
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, compare_to_single_task, stability
from taskloom.problem import Problem
from taskloom.solvers import alpha_max, path, solve
from taskloom.structures import LearnedGraph, LowRank, SparsePrecision, Trace

EVERY = pytest.mark.parametrize("F", zoo.NON_CONVEX, ids=zoo.name)
GRAPHS = pytest.mark.parametrize("F", [F for F in zoo.NON_CONVEX if F.precision_graph], ids=zoo.name)
TREE = [(0, 1), (1, 2), (2, 3), (1, 4), (4, 5), (6, 7)]


def own_inputs(A, d, n, seed, noise=0.3):
    """Weights with covariance ``A`` over the tasks, inputs of its own for each task, 30 % of the targets missing."""
    rng, T = np.random.default_rng(seed), len(A)
    W = rng.normal(size=(d, T)) @ np.linalg.cholesky(A / np.mean(np.diag(A))).T / np.sqrt(d)
    X = rng.normal(size=(n * T, d))
    Y = X @ W + noise * rng.normal(size=(n * T, T))
    own = np.arange(n * T)[:, None] % T == np.arange(T)
    return X, np.where(own & (rng.random(Y.shape) > 0.3), Y, np.nan)


def small(loss="squared", T=4, seed=0):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(T, 2))
    X, Y = own_inputs(B @ B.T + 0.1 * np.eye(T), 6, 15, seed)
    return X, np.where(np.isnan(Y), np.nan, np.sign(Y - 0.1)) if loss in ("logistic", "hinge") else Y


def eliminated(problem, A):
    """``min over W of J(W, A)`` for the squared loss without intercepts, from the kernel form: nothing of the library's."""
    seen = problem.observations
    phi = problem.features[seen.row]
    K = phi @ phi.T * A[np.ix_(seen.task, seen.task)]
    return float(seen.y @ np.linalg.solve(K / problem.alpha + np.diag(1 / seen.weight), seen.y))


def gradient_of(f, x, step=1e-6):
    out = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        out[place] = (f(up) - f(down)) / (2 * step)
    return out


def f1(edges, planted):
    found, planted = {frozenset(edge[:2]) for edge in edges}, {frozenset(edge) for edge in planted}
    return 2 * len(found & planted) / (len(found) + len(planted))


# --- what was planted ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("specific", [True, False])
def test_the_planted_factors_are_found(specific):
    B = np.random.default_rng(3).normal(size=(12, 2))
    X, Y = own_inputs(B @ B.T + 0.05 * np.eye(12), 30, 60, seed=0)
    model = MultiTaskRegressor(LowRank(2, specific), alpha=0.01).fit(X, Y)
    a, V = np.linalg.eigh(model.structure_)
    assert model.certificate_.status == "stationary"
    assert np.degrees(subspace_angles(V[:, -2:], B)).max() < 15
    assert a[-2] > 2.5 * a[-3]  # two eigenvalues stand out


@pytest.mark.parametrize("seed", [0, 1])
def test_the_planted_graph_of_alike_tasks_is_found(seed):
    L = np.zeros((8, 8))
    for t, s in TREE:
        L[t, s] = L[s, t] = -1.0
    L -= np.diag(L.sum(axis=1))
    X, Y = own_inputs(np.linalg.inv(4 * L + np.eye(8)), 100, 200, seed)
    model = MultiTaskRegressor("learned_graph").fit(X, Y)
    assert model.certificate_.status == "stationary"
    assert f1(model.task_graph(0.1), TREE) >= 0.9
    assert min(weight for _, _, weight in model.task_graph()) > 0


@pytest.mark.parametrize("seed", [0, 1])
def test_the_planted_precision_is_found_with_its_signs(seed):
    P = np.eye(8)
    for k, (t, s) in enumerate(TREE):
        P[t, s] = P[s, t] = 0.42 * (-1) ** k
    X, Y = own_inputs(np.linalg.inv(P), 100, 200, seed)
    model = MultiTaskRegressor("sparse_precision").fit(X, Y)
    assert f1(model.task_graph(0.1), TREE) >= 0.9
    for t, s, weight in model.task_graph(0.1):
        assert weight * P[t, s] <= 0  # partial correlations are minus the precision
    assert len(model.task_graph()) < 20  # of 28 pairs: zeros are exact, and are not edges


# --- the certificate ----------------------------------------------------------------------------------------------


@EVERY
def test_the_certificate_claims_a_stationary_point_and_nothing_else(F):
    X, Y = small()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a fit that got there must not warn
        certificate = MultiTaskRegressor(F, alpha=0.02).fit(X, Y).certificate_
    assert not certificate.optimal
    assert certificate.converged
    assert certificate.status == "stationary"
    assert certificate.dual == -np.inf
    assert certificate.gap == certificate.relative_gap == np.inf
    assert certificate.stationarity <= 1e-4
    for words in ("not convex", "only a stationary point is known", f"residual of {certificate.stationarity:.1e}"):
        assert words in certificate.message
    assert "stationarity=" in repr(certificate)


@EVERY
def test_a_fit_that_stops_short_warns_and_says_how_far_it_is(F):
    X, Y = small()
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 .* stationarity residual .*not convex"):
        model = MultiTaskRegressor(F, alpha=0.02, max_iter=1, tol=1e-9).fit(X, Y)
    assert not model.certificate_.converged


def test_convex_fits_have_no_stationarity():
    certificate = solve(Problem(*small(), structure=Trace())).certificate
    assert certificate.stationarity is None
    assert "stationarity" not in repr(certificate)


@pytest.mark.parametrize("n_steps", [3, 6])
def test_the_residual_of_a_factor_is_the_gradient_by_finite_differences(n_steps):
    problem = Problem(*small(), structure=LowRank(2, specific=False), alpha=0.02, fit_intercept=False)
    solution = solve(problem, tol=0.0, max_iter=n_steps)
    a, V = np.linalg.eigh(solution.A)
    B = V[:, -2:] * np.sqrt(a[-2:])
    gradient = gradient_of(lambda B: eliminated(problem, B @ B.T) + np.vdot(B, B), B)
    expected = np.linalg.norm(gradient) / (2 * np.sqrt(problem.scale))
    assert expected > 1e-5
    assert np.isclose(solution.certificate.stationarity, expected, rtol=1e-3)


def test_the_residual_of_a_graph_is_the_projected_gradient_by_finite_differences():
    F = LearnedGraph(3.0, sparsity=0.01)
    problem = Problem(*small(), structure=F, alpha=0.02, fit_intercept=False)
    solution = solve(problem, tol=0.0, max_iter=1)
    w, T = F.weights(solution.A), problem.n_tasks

    def cost(w):
        A = np.linalg.inv(F.precision(w, T))
        return eliminated(problem, A) + np.trace(A) + 0.01 * w.sum()

    gradient = gradient_of(cost, w)
    one, other = np.triu_indices(T, 1)
    resistance = solution.A[one, one] + solution.A[other, other] - 2 * solution.A[one, other]
    expected = np.linalg.norm(np.where(gradient > 0, gradient * np.maximum(w, 0), gradient / resistance)) / problem.scale
    assert expected > 1e-5
    assert np.isclose(solution.certificate.stationarity, expected, rtol=1e-3)


def test_a_sparse_precision_is_stationary_by_finite_differences():
    F = SparsePrecision(0.1, l1=0.003)
    problem = Problem(*small(), structure=F, alpha=0.05, fit_intercept=False)
    solution = solve(problem, tol=1e-7)
    P = np.linalg.inv(solution.A)

    def smooth(P):
        A = np.linalg.inv((P + P.T) / 2)
        return eliminated(problem, A) + 0.1 * np.linalg.slogdet(A)[1] + 0.001 * np.trace(P)

    gradient, off = gradient_of(smooth, P, 1e-5), ~np.eye(len(P), dtype=bool)
    edge = off & (np.abs(P) > 1e-9 * np.abs(P).max())
    assert edge.any()
    assert (off & ~edge).any()
    assert np.allclose(np.diag(gradient), 0.0, atol=1e-7)
    assert np.allclose(gradient[edge], -0.003 * np.sign(P[edge]), atol=1e-7)
    assert np.all(np.abs(gradient[off & ~edge]) <= 0.003 + 1e-7)
    assert np.isclose(solution.certificate.primal, eliminated(problem, solution.A) + F.value(solution.A), rtol=1e-9)


def test_zero_is_not_called_stationary_where_a_factor_could_grow():
    F = LowRank(2, specific=False)
    pull = np.diag([2.0, 0.5, 0.1])  # a direction that pays, at a factor that has none
    assert F.residual(np.zeros((3, 3)), pull, 1.0, np.zeros((3, 2))) == 1.0
    assert F.residual(np.zeros((3, 3)), pull / 3, 1.0, np.zeros((3, 2))) == 0.0


# --- steps and optima ---------------------------------------------------------------------------------------------


@EVERY
def test_the_objective_never_rises_and_is_what_the_definition_says(F):
    problem = Problem(*small(), structure=F, alpha=0.02, ridge=0.01)
    solution = solve(problem, tol=1e-6)
    objective = np.array(solution.history.objective)
    assert np.all(np.diff(objective) <= 1e-12 * np.abs(objective[1:]))
    assert np.isclose(problem.primal(solution.W, solution.b, solution.A), solution.certificate.primal, rtol=1e-7)


@pytest.mark.parametrize("specific", [True, False])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_at_full_rank_the_certified_optimum_of_the_trace_is_reached(loss, specific):
    X, Y = small(loss)
    certified = solve(Problem(X, Y, loss, Trace(), 0.02), tol=1e-9).certificate
    found = solve(Problem(X, Y, loss, LowRank(4, specific), 0.02), tol=1e-6).certificate
    assert certified.optimal
    assert np.isclose(found.primal, certified.primal, rtol=1e-6)
    assert solve(Problem(X, Y, loss, LowRank(1, specific), 0.02)).certificate.primal >= certified.dual


@GRAPHS
@pytest.mark.parametrize("rank", [2, 5])
def test_the_graph_step_against_cvxpy(F, rank):
    cp = pytest.importorskip("cvxpy")
    S = 0.1 * zoo.random_psd(np.random.default_rng(rank), rank=rank, size=5)
    A = F.best_structure(S)
    P = cp.Variable((5, 5), symmetric=True)
    off = ~np.eye(5, dtype=bool)
    if isinstance(F, LearnedGraph):
        cost = cp.trace(P @ S) + cp.tr_inv(P) - F.sparsity * cp.sum(P[np.triu_indices(5, 1)])
        program = cp.Problem(cp.Minimize(cost), [P[off] <= 0, P @ np.ones(5) == F.gamma])
    else:
        cost = cp.trace(P @ S) - F.mu * cp.log_det(P) + F.eps * cp.trace(P) + F.l1 * cp.sum(cp.abs(P[off]))
        program = cp.Problem(cp.Minimize(cost))
    program.solve(solver="CLARABEL")
    assert np.isclose(np.trace(np.linalg.solve(A, S)) + F.value(A), program.value, rtol=1e-6, atol=1e-6)
    assert np.allclose(np.linalg.inv(A), P.value, atol=1e-2 * np.abs(P.value).max())


@GRAPHS
def test_graph_steps_solve_their_problem_whatever_the_size_of_the_weights(F):
    for size in (1e-4, 0.01, 1.0):
        S = size * zoo.random_psd(np.random.default_rng(1), rank=3, size=12)
        A = F.best_structure(S)
        half = np.linalg.solve(A, S)
        assert F.residual(A, np.linalg.solve(A, half.T), 1.0) < 1e-6


@pytest.mark.parametrize("specific", [True, False])
def test_the_low_rank_step_is_stationary(specific):
    F = LowRank(2, specific)
    S = zoo.random_psd(np.random.default_rng(2), rank=4 if specific else 2)
    A = F.best_structure(S)
    penalty = (
        F.best_of_root(np.linalg.cholesky(S + 1e-12 * np.eye(4)).T)[1]
        if specific
        else 2 * np.sqrt(np.linalg.eigvalsh(S)[-2:]).sum()
    )
    found = np.trace(np.linalg.pinv(A, rcond=1e-9) @ S) + np.trace(A)
    assert np.isclose(found, penalty, rtol=1e-5)
    trace_norm = 2 * np.sqrt(np.maximum(np.linalg.eigvalsh(S), 0)).sum()
    assert trace_norm - 1e-7 <= found <= 2 * np.sqrt(np.diag(S)).sum() + 1e-7  # between no limit on the rank and rank 0


# --- everything that consumes them --------------------------------------------------------------------------------


@EVERY
@pytest.mark.parametrize("loss", ["huber", "logistic", "hinge"])
def test_other_losses(F, loss):
    X, Y = small(loss)
    alpha = 0.1
    solution = solve(Problem(X, Y, loss, F, alpha), tol=2e-3, max_iter=200)
    assert solution.certificate.status == "stationary"


@EVERY
def test_fits_are_deterministic_and_follow_the_tasks(F):
    X, Y = small()
    order = np.array([2, 0, 3, 1])
    one, same, other = (solve(Problem(X, y, structure=F, alpha=0.02), tol=1e-7) for y in (Y, Y.copy(), Y[:, order]))
    assert np.array_equal(one.A, same.A)
    assert np.allclose(other.A, one.A[np.ix_(order, order)], atol=1e-4 * np.abs(one.A).max())
    assert np.allclose(other.W, one.W[:, order], atol=1e-4)


@EVERY
@pytest.mark.parametrize("solver", ["block", "proximal", "alternating", "factored"])
def test_solvers_that_cannot_say_so(F, solver):
    if solver == ("factored" if F.task_factor else "alternating"):
        return
    with pytest.raises(ValueError, match=r'solver="auto"|or "auto"'):
        solve(Problem(*small(), structure=F), solver)


@EVERY
def test_what_needs_convexity_is_refused_in_one_sentence(F):
    with pytest.raises(ValueError, match="is not convex and has no conjugate"):
        F.conjugate(np.eye(4))
    with pytest.raises(ValueError, match="is not convex and has no prox"):
        F.prox(np.eye(4), 1.0)
    assert type(clone(F)) is type(F)


def test_the_largest_strength():
    """A factor learns nothing where the trace learns nothing; graphs always learn a little."""
    X, Y = small()
    assert alpha_max(Problem(X, Y, structure=LowRank(1))) == alpha_max(Problem(X, Y, structure=Trace()))
    assert alpha_max(Problem(X, Y, structure=LearnedGraph())) == np.inf
    top = alpha_max(Problem(X, Y, structure=LowRank(1)))
    W = [np.abs(s.W).max() for s in path(Problem(X, Y, structure=LowRank(1, specific=False)), [1.1 * top, 0.5 * top])]
    assert W[0] < 1e-2 * W[1]


@EVERY
def test_cross_validation_and_the_transfer_table(F):
    X, Y = small()
    search = MultiTaskRegressorCV(F, alphas=3, cv=2, tol=1e-3, kernels=None).fit(X, Y)
    assert np.isfinite(search.best_score_)
    assert np.all(search.path_["relative_gap"] == np.inf)
    assert search.certificate_.status == "stationary"
    ledger = compare_to_single_task(MultiTaskRegressor(F, tol=1e-3), X, Y, cv=2)
    assert np.isfinite(ledger["gain"]).all()


@EVERY
def test_reading_bootstrap_and_one_more_task(F):
    X, Y = small()
    model = MultiTaskRegressor(F, alpha=0.02, tol=1e-3).fit(X, Y)
    assert np.isclose(sum(model.explain(0).values()), 1.0)
    assert stability(model, X, Y, n_resamples=2).median.shape == (4, 4)
    assert model.add_task(X[:20], X[:20] @ np.ones(6), "new").predict(X).shape == (len(X), 5)


@EVERY
@pytest.mark.parametrize("value", [0.0, 7.0])
def test_constant_targets_leave_nothing_to_learn(F, value):
    model = MultiTaskRegressor(F).fit(small()[0], np.full((60, 3), value))
    assert model.certificate_.status == "stationary"
    assert np.allclose(model.predict(small()[0]), value, atol=1e-6)


def test_one_task_alone():
    X = small()[0]
    for F in zoo.NON_CONVEX:
        assert MultiTaskRegressor(F).fit(X, X @ np.arange(6.0)).certificate_.converged


def test_classifiers():
    X, Y = small("logistic")
    model = MultiTaskClassifier(LowRank(2), alpha=0.02).fit(X, Y)
    assert model.certificate_.status == "stationary"
    assert model.score(X, Y) > 0.8


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LowRank(0), "rank=0"),
        (lambda: LowRank(1.5), "rank=1.5"),
        (lambda: LowRank(2, specific="no"), "'no'"),
        (lambda: LearnedGraph(0), "gamma=0"),
        (lambda: LearnedGraph(1, sparsity=-1), "sparsity=-1"),
        (lambda: SparsePrecision(0), "mu=0"),
        (lambda: SparsePrecision(1, l1=-1), "l1=-1"),
        (lambda: SparsePrecision(1, eps=0), "eps=0"),
    ],
)
def test_nonsense_is_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()
