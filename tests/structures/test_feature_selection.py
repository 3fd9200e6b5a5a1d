"""The (2,1) norm: scikit-learn's ``MultiTaskLasso`` on shared inputs, CVXPY everywhere else, and the planted features."""

import cvxpy as cp
import numpy as np
import pytest
from sklearn.linear_model import MultiTaskLasso

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, alpha_max, solve, stack, structures

rng = np.random.default_rng(0)
d, T, n = 12, 5, 40
W = np.zeros((d, T))
W[[1, 4, 7]] = rng.normal(size=(3, T)) * 1.5
X = rng.normal(size=(n, d))
Y = X @ W + 0.3 * rng.normal(size=(n, T)) + 1.0


def own(missing=0.0):
    """Inputs of their own for each task; some targets missing."""
    Xs = [rng.normal(size=(20 + 3 * t, d)) for t in range(T)]
    ys = [inputs @ W[:, t] + 0.3 * rng.normal(size=len(inputs)) for t, inputs in enumerate(Xs)]
    for y in ys:
        y[rng.random(len(y)) < missing] = np.nan
    return stack(Xs, ys)


def oracle(X, task, y, alpha, loss, ridge=0.0):
    """The objective as it is printed, the structure eliminated by hand."""
    V, b = cp.Variable((d, T)), cp.Variable(T)
    terms = []
    for t in range(T):
        rows = task == t
        z = X[rows] @ V[:, t] + b[t]
        values = {
            "squared": lambda z=z, rows=rows: cp.sum_squares(y[rows] - z),
            "huber": lambda z=z, rows=rows: cp.sum(cp.huber(y[rows] - z, 1.0)),
            "absolute": lambda z=z, rows=rows: cp.sum(cp.abs(y[rows] - z)),
            "logistic": lambda z=z, rows=rows: cp.sum(cp.logistic(-cp.multiply(y[rows], z))),
        }[loss]()
        terms.append(values / rows.sum())
    penalty = 2 * np.sqrt(alpha) * cp.sum(cp.norm(V, 2, axis=1)) + ridge * cp.sum_squares(V)
    problem = cp.Problem(cp.Minimize(sum(terms) + penalty))
    return problem.solve(solver=cp.CLARABEL)


@pytest.mark.parametrize("alpha", [0.3, 0.01, 1e-4])
def test_shared_inputs_are_the_multi_task_lasso(alpha):
    model = MultiTaskRegressor("feature_selection", alpha=alpha, tol=1e-9).fit(X, Y)
    lasso = MultiTaskLasso(alpha=np.sqrt(alpha), tol=1e-10, max_iter=20000).fit(X, Y)
    assert np.allclose(model.coef_, lasso.coef_, atol=1e-5)
    assert np.allclose(model.intercept_, lasso.intercept_, atol=1e-5)


@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("loss", ["squared", "huber", "absolute", "logistic"])
def test_the_oracle_agrees_on_inputs_of_their_own(loss, ridge):
    table, y = own()
    y = np.where(y > 0, 1.0, -1.0) if loss == "logistic" else y
    model = MultiTaskRegressor("feature_selection", alpha=0.02, loss=loss, ridge=ridge, task_column=-1, tol=1e-7)
    model.fit(table, y)
    expected = oracle(table[:, :-1], table[:, -1], y, 0.02, loss, ridge)
    assert np.isclose(model.certificate_.primal, expected, rtol=1e-6)
    assert model.certificate_.dual <= expected * (1 + 1e-6)


def test_the_true_features_are_found_with_30_percent_missing():
    table, y = own(missing=0.3)
    model = MultiTaskRegressor("feature_selection", alpha=0.04, task_column=-1, tol=1e-6).fit(table, y)
    used = np.linalg.norm(model.coef_, axis=0)
    assert np.flatnonzero(used > 0.05 * used.max()).tolist() == [1, 4, 7]


def test_the_structures_that_are_kept():
    """``D`` is diagonal with ``d_j = sqrt(alpha) ||row j||``; the task matrix that it implies has its trace."""
    model = MultiTaskRegressor("feature_selection", alpha=0.02, tol=1e-8).fit(X, Y)
    D = model.feature_structure_
    assert np.allclose(D, np.diag(np.sqrt(0.02) * np.linalg.norm(model.coef_, axis=0)), atol=1e-8)
    assert model.structure_.shape == (T, T)
    assert np.isclose(np.trace(model.structure_), np.trace(D))
    assert np.linalg.eigvalsh(model.structure_)[0] > -1e-10
    assert not hasattr(MultiTaskRegressor("trace").fit(X, Y), "feature_structure_")


def test_more_columns_than_rows_stay_columns():
    model = MultiTaskRegressor("feature_selection", alpha=0.05, tol=1e-8).fit(X[:8], Y[:8])
    lasso = MultiTaskLasso(alpha=np.sqrt(0.05), tol=1e-10, max_iter=20000).fit(X[:8], Y[:8])
    assert np.allclose(model.coef_, lasso.coef_, atol=1e-4)


@pytest.mark.parametrize("solver", ["alternating", "proximal"])
def test_solvers(solver):
    problem = Problem(X, Y, "squared", structures.FeatureSelection(), 0.02)
    assert solve(problem, solver, tol=1e-7, max_iter=3000).certificate.optimal
    assert not np.any(solve(problem.at(1.001 * alpha_max(problem))).W)
    assert np.any(solve(problem.at(0.99 * alpha_max(problem)), tol=1e-8).W)


@pytest.mark.parametrize("solver", ["factored"])
def test_solvers_of_tasks_say_what_to_use_instead(solver):
    with pytest.raises(ValueError, match="proximal"):
        MultiTaskRegressor("feature_selection", solver=solver).fit(X, Y)


def test_a_new_task_uses_the_chosen_features():
    model = MultiTaskRegressor("feature_selection", alpha=0.05, tol=1e-7).fit(X, Y)
    truth = np.zeros(d)
    truth[[1, 4]] = 2.0
    inputs = rng.normal(size=(15, d))
    model.add_task(inputs, inputs @ truth, name="new")
    assert np.allclose(model.coef_[-1][np.linalg.norm(model.coef_[:-1], axis=0) < 1e-6], 0, atol=1e-6)
    assert model.structure_.shape == (T + 1, T + 1)


def test_kernels_are_refused():
    with pytest.raises(ValueError, match="kernel='rbf'"):
        MultiTaskRegressor("feature_selection", kernel="rbf").fit(X, Y)


def test_classifiers_too():
    model = MultiTaskClassifier("feature_selection", alpha=1e-3).fit(X, np.where(Y > 1, "yes", "no"))
    assert model.score(X, np.where(Y > 1, "yes", "no")) > 0.8


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
@pytest.mark.parametrize("options", [{}, {"ridge": 0.05}, {"fit_intercept": False}], ids=str)
def test_the_solvers_of_the_paper_take_it_as_well(loss, options):
    """Alternating and block descent accept every convex pair of loss and structure."""
    deep = np.random.default_rng(0)
    X = deep.normal(size=(40, 8))
    Y = X @ (deep.normal(size=(8, 4)) * (np.arange(8) < 3)[:, None]) + 0.3 * deep.normal(size=(40, 4))
    Y[deep.random(Y.shape) < 0.2] = np.nan
    best = MultiTaskRegressor("feature_selection", loss=loss, alpha=0.05, tol=1e-6, **options).fit(X, Y).certificate_
    for solver in ("alternating", "block"):
        found = MultiTaskRegressor("feature_selection", loss=loss, alpha=0.05, solver=solver, max_iter=3000, **options)
        said = found.fit(X, Y).certificate_
        assert said.optimal, said.message
        assert said.dual <= best.primal
        assert said.primal >= best.dual
