"""Predictors that are sums: Robust, Dirty, and lists of kernels, against CVXPY and against what is planted."""

import warnings

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel

from taskloom import (
    MultiTaskClassifier,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    Problem,
    alpha_max,
    compare_to_single_task,
    path,
    solve,
    structures,
)
from taskloom.features.kernels import KernelFeatures

T, D = 4, 5


def sample(layout="own", seed=0, n=15):
    rng = np.random.default_rng(seed)
    rows = n * T if layout == "own" else n
    X = rng.normal(size=(rows, D))
    W = rng.normal(size=(D, 2)) @ rng.normal(size=(2, T))
    W[:, 3] = 2 * rng.normal(size=D)
    Y = X @ W + 0.4 * rng.normal(size=(rows, T)) + 0.5
    if layout == "own":
        Y = np.where(np.arange(rows)[:, None] % T == np.arange(T), Y, np.nan)
    if layout == "missing":
        Y[rng.random(Y.shape) < 0.3] = np.nan
    return X, Y


def loss_of(Y, Z, kind):
    """The loss term, written out: the mean over each task's observations."""
    total = 0
    for t in range(Y.shape[1]):
        i = np.flatnonzero(~np.isnan(Y[:, t]))
        z, y = Z[i, t], Y[i, t]
        if kind == "squared":
            total += cp.sum_squares(y - z) / i.size
        elif kind == "absolute":
            total += cp.sum(cp.abs(y - z)) / i.size
        else:
            total += cp.sum(cp.logistic(-cp.multiply(np.sign(y), z))) / i.size
    return total


def minimum(objective, constraints=()):
    problem = cp.Problem(cp.Minimize(objective), list(constraints))
    for tol in (1e-9, 1e-8, 1e-7):  # near a singular A the finest is not always reached
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            problem.solve(solver="CLARABEL", tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol)
        if problem.status == "optimal":
            return problem.value
    raise AssertionError(problem.status)


NORMS = {
    "robust": (structures.Robust(0.7), lambda P, Q: cp.normNuc(P) + 0.7 * cp.sum(cp.norm(Q, 2, axis=0))),
    "dirty": (structures.Dirty(0.6), lambda P, Q: cp.sum(cp.norm(P, 2, axis=1)) + 0.6 * cp.sum(cp.abs(Q))),
}


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("layout", ["shared", "own", "missing"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "absolute"])
@pytest.mark.parametrize("name", NORMS)
def test_sums_of_norms_agree_with_cvxpy(name, loss, layout, fit_intercept):
    structure, norm = NORMS[name]
    X, Y = sample(layout)
    Y = np.where(np.isnan(Y), np.nan, np.where(Y > 0.5, 1.0, -1.0)) if loss == "logistic" else Y
    alpha, ridge = (0.05, 0.02) if loss == "squared" else (0.005, 0.0)
    P, Q, b = cp.Variable((D, T)), cp.Variable((D, T)), cp.Variable((1, T))
    Z = X @ (P + Q) + (np.ones((len(X), 1)) @ b if fit_intercept else 0)
    squares = ridge * (cp.sum_squares(P) + cp.sum_squares(Q))
    expected = minimum(loss_of(Y, Z, loss) + 2 * np.sqrt(alpha) * norm(P, Q) + squares)
    problem = Problem(X, Y, loss, structure, alpha, ridge, fit_intercept)
    found = solve(problem, tol=1e-7)
    assert found.certificate.optimal
    assert found.certificate.primal == pytest.approx(expected, rel=1e-6)
    assert found.certificate.dual <= expected + 1e-7 * abs(expected)
    assert found.certificate.dual >= expected - 2e-7 * problem.scale - 1e-7 * abs(expected)
    np.testing.assert_allclose(sum(found.terms.weights), found.W, atol=1e-12)


def quadratic(W, A):
    """``tr(A^+ W'W)`` by a Schur complement."""
    X = cp.Variable((W.shape[0], W.shape[0]), symmetric=True)
    return cp.trace(X), [cp.bmat([[X, W], [W.T, A]]) >> 0]


def penalty(structure, W, alpha):
    """``min_A alpha tr(A^+ W'W) + F(A)`` for the structures of the test below."""
    A = cp.Variable((T, T), symmetric=True)
    energy, constraints = quadratic(np.sqrt(alpha) * W, A)
    kind = type(structure).__name__
    if kind == "Trace":
        return energy + cp.trace(A), constraints
    if kind == "Frobenius":
        return energy + cp.sum_squares(A), constraints
    if kind == "UnitTrace":
        return energy, [*constraints, cp.trace(A) <= 1]
    if kind == "Clusters":
        U, M = np.full((T, T), 1 / T), cp.Variable((T, T), symmetric=True)
        s = structure
        here = U / s.mean + (M - U) / s.between + (np.eye(T) - M) / s.within == A
        return energy, [*constraints, here, M >> 0, np.eye(T) - M >> 0, cp.trace(M) == s.n_clusters, cp.sum(M, axis=1) == 1]
    known = np.eye(T) if kind == "Independent" else np.linalg.inv(np.eye(T) + structure.gamma * (np.eye(T) - 1 / T))
    return alpha * cp.sum_squares(W @ np.linalg.cholesky(np.linalg.inv(known))), []


PAIRS = [
    (structures.Trace(), structures.Trace()),
    (structures.SharedMean(5.0), structures.Clusters(2)),
    (structures.Trace(), structures.Clusters(2)),
    (structures.Independent(), structures.SharedMean(2.0)),
    (structures.Frobenius(), structures.UnitTrace()),
]


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("layout", ["own", "missing"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "+".join(type(s).__name__ for s in pair))
def test_lists_of_kernels_agree_with_cvxpy(pair, layout, fit_intercept):
    """``sum_q k_q A_q`` with a linear and an rbf kernel, every ``A_q`` learned (or known), jointly certified."""
    X, Y = sample(layout, n=6)
    alpha = 0.1
    model = MultiTaskRegressor(list(pair), kernel=["linear", "rbf"], alpha=alpha, fit_intercept=fit_intercept, tol=1e-7)
    model.fit(X, Y)
    blocks = [KernelFeatures(k(X, X)).phi for k in (linear_kernel, rbf_kernel)]
    Ws = [cp.Variable((phi.shape[1], T)) for phi in blocks]
    b = cp.Variable((1, T))
    Z = sum(phi @ W for phi, W in zip(blocks, Ws, strict=True)) + (np.ones((len(X), 1)) @ b if fit_intercept else 0)
    costs, constraints = zip(*[penalty(s, W, alpha) for s, W in zip(pair, Ws, strict=True)], strict=True)
    expected = minimum(loss_of(Y, Z, "squared") + sum(costs), [c for part in constraints for c in part])
    certificate = model.certificate_
    assert certificate.optimal
    assert certificate.primal == pytest.approx(expected, rel=2e-6)
    assert certificate.dual <= expected * (1 + 1e-6)
    assert [A.shape for A in model.structure_] == [(T, T), (T, T)]


def test_one_kernel_in_a_list_is_that_kernel():
    X, Y = sample("missing")
    for structure in (structures.Trace(), structures.Clusters(2), structures.Frobenius()):
        alone = MultiTaskRegressor(structure, kernel="rbf", alpha=0.02, tol=1e-9).fit(X, Y)
        listed = MultiTaskRegressor(structure, kernel=["rbf"], alpha=0.02, tol=1e-9).fit(X, Y)
        np.testing.assert_allclose(listed.predict(X), alone.predict(X), atol=2e-4)
        np.testing.assert_allclose(listed.structure_[0], alone.structure_, atol=2e-3)
        assert listed.certificate_.primal == pytest.approx(alone.certificate_.primal, rel=1e-8)


def test_the_same_kernel_twice_adds_up_its_known_structures():
    """``k A + k B`` is ``k (A + B)``."""
    X, Y = sample("own")
    rng = np.random.default_rng(1)
    A, B = (M @ M.T for M in rng.normal(size=(2, T, T)))
    twice = MultiTaskRegressor(
        [structures.Fixed(A), structures.Fixed(B)], kernel=["rbf", RBF(1.0)], gamma=0.5, alpha=0.1, tol=1e-10
    ).fit(X, Y)
    once = MultiTaskRegressor(structures.Fixed(A + B), kernel="rbf", gamma=0.5, alpha=0.1, tol=1e-10).fit(X, Y)
    np.testing.assert_allclose(twice.predict(X), once.predict(X), atol=1e-7)
    for task in twice.tasks_:
        assert sum(twice.explain(task).values()) == pytest.approx(1)


def test_large_coupled_sums_by_conjugate_gradients_agree_with_the_dense_system(monkeypatch):
    from taskloom.solvers.supervised.sides import SideTuning
    from taskloom.solvers.supervised.term_sum_side import TermSumSide

    X, Y = sample("own")
    model = MultiTaskRegressor([structures.SharedMean(3.0), structures.Trace()], kernel=["linear", "rbf"], alpha=0.05, tol=1e-8)
    dense = clone(model).fit(X, Y)
    monkeypatch.setattr(TermSumSide, "tuning", SideTuning(max_dense_sum_observations=10))
    sparse = clone(model).fit(X, Y)
    assert sparse.certificate_.optimal
    np.testing.assert_allclose(sparse.predict(X), dense.predict(X), atol=1e-4)


def test_a_trend_shared_by_all_and_a_smooth_part_shared_in_clusters():
    """The example of the issue: each part is recovered by the kernel that can express it."""
    rng = np.random.default_rng(0)
    n, tasks = 25, 8
    X = rng.uniform(-2, 2, size=(n * tasks, 1))
    task = np.tile(np.arange(tasks), n)
    bend = np.where(task % 2 == 0, np.sin(4 * X[:, 0]), np.cos(4 * X[:, 0]))
    y = 2 * X[:, 0] + bend + 0.1 * rng.normal(size=n * tasks)
    y[rng.random(y.size) < 0.3] = np.nan
    Y = np.where(np.arange(tasks) == task[:, None], y[:, None], np.nan)
    model = MultiTaskRegressor(
        [structures.SharedMean(100.0), structures.Clusters(2, mean=20.0)], kernel=["linear", "rbf"], gamma=4.0, alpha=1e-3
    ).fit(X, Y)
    grid = np.linspace(-1.8, 1.8, 50)[:, None]
    trend, smooth = model.predict_terms(grid)
    np.testing.assert_allclose(trend + smooth + model.intercept_, model.predict(grid), atol=1e-10)
    gradients = np.polyfit(grid[:, 0], trend, 1)[0]
    assert np.ptp(gradients) < 0.3
    assert abs(gradients.mean() - 2) < 0.5
    R = np.corrcoef(smooth.T)
    alike = np.arange(tasks)[:, None] % 2 == np.arange(tasks) % 2
    assert R[alike].min() > 0.65 > 0.3 > R[~alike].max()


@pytest.mark.parametrize("seed", range(2))
def test_outlier_tasks_are_recovered(seed):
    """Inputs of its own for each task, 30 % missing, defaults: the planted outliers and no others."""
    rng = np.random.default_rng(seed)
    tasks, d, n = 30, 12, 25
    W = rng.normal(size=(d, 2)) @ rng.normal(size=(2, tasks))
    planted = [4, 17, 23]
    W[:, planted] = 1.5 * rng.normal(size=(d, 3))
    X = rng.normal(size=(tasks * n, d))
    task = np.repeat(np.arange(tasks), n)
    y = np.einsum("ij,ji->i", X, W[:, task]) + 0.3 * rng.normal(size=tasks * n)
    y[rng.random(y.size) < 0.3] = np.nan
    names = np.array([f"shop {t}" for t in range(tasks)])
    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(d)]).assign(shop=names[task])
    model = MultiTaskRegressorCV("robust", task_column="shop", alphas=5, cv=3, kernels=None).fit(table, y)
    assert sorted(model.outlier_tasks_) == sorted(names[planted])
    assert model.shared_coef_.shape == model.own_coef_.shape == model.coef_.shape
    np.testing.assert_allclose(model.shared_coef_ + model.own_coef_, model.coef_, atol=1e-10)
    quiet = np.isin(model.tasks_, names[planted], invert=True)
    assert np.abs(model.own_coef_[quiet]).max() < 1e-2 * np.abs(model.own_coef_).max()


def test_ordinary_tasks_are_not_called_outliers():
    rng = np.random.default_rng(5)
    tasks, d = 25, 8
    X = rng.normal(size=(400, d))
    Y = X @ rng.normal(size=(d, 2)) @ rng.normal(size=(2, tasks)) + rng.normal(size=(400, tasks))
    Y[rng.random(Y.shape) < 0.3] = np.nan
    model = MultiTaskRegressorCV("robust", alphas=8, kernels=None).fit(X, Y)
    assert len(model.outlier_tasks_) <= 1


def test_dirty_finds_shared_rows_and_private_entries():
    rng = np.random.default_rng(0)
    tasks, d, n = 12, 15, 30
    W = np.zeros((d, tasks))
    W[:3] = rng.choice([-1, 1], size=(3, tasks)) * rng.uniform(0.8, 1.5, size=(3, tasks))
    W[7, 2] = W[11, 9] = 2.0
    X = rng.normal(size=(tasks * n, d))
    task = np.repeat(np.arange(tasks), n)
    y = np.einsum("ij,ji->i", X, W[:, task]) + 0.1 * rng.normal(size=tasks * n)
    Y = np.where(np.arange(tasks) == task[:, None], y[:, None], np.nan)
    Y[rng.random(Y.shape) < 0.3] = np.nan
    model = MultiTaskRegressor("dirty", alpha=0.002, tol=1e-6).fit(X, Y)
    rows = np.linalg.norm(model.shared_coef_, axis=0)
    assert set(np.flatnonzero(rows > 0.3)) == {0, 1, 2}
    private = np.argwhere(np.abs(model.own_coef_) > 0.5)
    assert {(2, 7), (9, 11)} <= {tuple(pair) for pair in private}
    assert np.all(private[:, 1] != 5)


def test_strengths_paths_and_searches_know_sums():
    X, Y = sample("own")
    for structure in (structures.Robust(), structures.Dirty()):
        problem = Problem(X, Y, "squared", structure)
        top = alpha_max(problem)
        above, below = solve(problem.at(1.001 * top), tol=1e-9), solve(problem.at(0.9 * top), tol=1e-9)
        assert not np.any(above.W)
        assert np.any(below.W)
        for alpha, warm in zip(
            (0.3 * top, 0.1 * top, 0.03 * top), path(problem, [0.3 * top, 0.1 * top, 0.03 * top], tol=1e-7), strict=True
        ):
            cold = solve(problem.at(alpha), tol=1e-7)
            assert warm.certificate.primal == pytest.approx(cold.certificate.primal, abs=3e-7 * problem.scale)
    model = MultiTaskRegressorCV(structures=["robust", "dirty", "trace"], alphas=5, kernels=None).fit(X, Y)
    assert model.certificate_.optimal
    listed = MultiTaskRegressorCV(["trace", "shared_mean"], kernel=["linear", "rbf"], alphas=4).fit(X, Y)
    assert len(listed.structure_) == len(listed.dual_coef_) == 2
    assert set(compare_to_single_task(MultiTaskRegressor("robust"), X, Y)) >= {"gain", "alone"}
    assert "spectrum" in listed.path_


def test_a_new_task_joins_a_robust_model_and_its_posterior_is_there():
    X, Y = sample("missing", n=40)
    model = MultiTaskRegressor("robust", alpha=0.01).fit(X, Y)
    _mean, deviation = model.predict(X, return_std=True)
    assert np.all(deviation > 0)
    rng = np.random.default_rng(3)
    more = rng.normal(size=(30, D))
    model.add_task(more, more @ model.coef_[0], "new")
    assert np.corrcoef(model.predict(more)[:, -1], more @ model.coef_[0])[0, 1] > 0.9


def test_sparse_inputs_and_classifiers():
    from scipy.sparse import csr_array

    X, Y = sample("own")
    dense, sparse = (MultiTaskRegressor("robust", alpha=0.05, tol=1e-8).fit(Z, Y) for Z in (X, csr_array(X)))
    np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-4)
    labels = np.where(np.isnan(Y), np.nan, np.where(Y > 0.5, 1, 0))
    for model in (MultiTaskClassifier("robust"), MultiTaskClassifier(["trace", "trace"], kernel=["linear", "rbf"])):
        assert model.fit(X, labels).certificate_.optimal
        assert model.score(X, labels) > 0.8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"structure": ["trace", "trace"]}, "list of 2 structures needs a list of as many kernels"),
        ({"structure": ["trace"], "kernel": ["linear", "rbf"]}, "list of 1 structures needs a list of as many kernels"),
        ({"kernel": []}, "empty"),
        ({"kernel": ["rbf", "precomputed"]}, "cannot stand in a list"),
        ({"structure": "feature_selection", "kernel": ["linear", "rbf"]}, "columns of X"),
        ({"structure": "dirty", "kernel": "rbf"}, "columns of X"),
        ({"structure": "robust", "kernel": ["linear", "rbf"]}, "sum already"),
        ({"structure": structures.Trace(), "kernel": ["linear", "nonsense"]}, "kernel must be one of"),
        ({"structure": "robust", "solver": "block"}, "use solver"),
        ({"structure": "robust", "solver": "factored"}, "use solver"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(arguments, words):
    X, Y = sample("own")
    with pytest.raises(ValueError, match=words):
        MultiTaskRegressor(**arguments).fit(X, Y)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, "much", None])
def test_prices_are_checked(value):
    for cls in (structures.Robust, structures.Dirty):
        with pytest.raises(ValueError, match="> 0"):
            cls(value)


def test_multiclass_losses_are_refused():
    X, y = sample("shared")[0], np.arange(15) % 3
    with pytest.raises(ValueError, match="loss of whole rows"):
        MultiTaskClassifier("robust", loss="softmax").fit(X, y)


def test_methods_that_need_one_kernel_say_so():
    X, Y = sample("own")
    model = MultiTaskRegressor("trace", kernel=["linear", "rbf"]).fit(X, Y)
    with pytest.raises(ValueError, match="one kernel"):
        model.add_task(X, np.zeros(len(X)), "new")
    with pytest.raises(ValueError, match="one kernel"):
        model.predict(X, return_std=True)
    with pytest.raises(ValueError, match="list of kernels"):
        MultiTaskRegressor().fit(X, Y).predict_terms(X)
    assert clone(model).fit(X, Y).task_correlation().shape == (T, T)
