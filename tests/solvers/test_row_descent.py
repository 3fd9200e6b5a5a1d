"""Descent on rows of the weights, against proximal steps on the structure."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import MultiTaskLasso

from taskloom import Problem, alpha_max, path, solve, structures
from taskloom.design import Observations
from taskloom.solvers import row_descent
from taskloom.solvers.auto import choose
from taskloom.solvers.proximal import Proximal
from taskloom.solvers.row_descent import RowDescent
from taskloom.structures.terms import RowNorm

rng = np.random.default_rng(0)
N, D, T = 40, 120, 4
X = rng.normal(size=(N, D)) + 2.0
WEIGHTS = np.where(np.arange(D)[:, None] < 6, rng.normal(size=(D, T)), 0.0)
WEIGHTS[10, 1] = WEIGHTS[11, 2] = 2.0
Y = X @ WEIGHTS + 0.3 * rng.normal(size=(N, T)) + 1.0
STRUCTURES = [structures.FeatureSelection(), structures.Dirty(), structures.Dirty(0.8)]
THIN = np.where(rng.random(X.shape) < 0.3, X, 0.0)
OPTIONS = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "ridge": {"ridge": 0.05},
    "sparse": {"features": csr_array(THIN)},
    "weights": {"observations": Observations.from_wide(Y, rng.uniform(0.5, 2, size=N), rng.uniform(0.3, 3, size=T))},
}


def problem_of(structure, share=0.05, features=X, observations=Y, **options):
    problem = Problem(features, observations, "squared", structure, **options)
    return problem.at(share * alpha_max(problem))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("structure", STRUCTURES, ids=repr)
@pytest.mark.parametrize("share", [0.3, 0.01])
def test_descent_on_rows_finds_what_proximal_steps_find(structure, share, options, monkeypatch):
    monkeypatch.setattr(row_descent, "TUNING", replace(row_descent.TUNING, min_working_set=10, slow_steps=1000))
    problem = problem_of(structure, share, **options)
    assert isinstance(choose(problem), RowDescent)
    found, other = solve(problem, tol=1e-7), solve(problem, "proximal", tol=1e-6, max_iter=5000)
    assert found.certificate.optimal
    assert found.solver == "rowdescent"
    assert abs(found.certificate.primal - other.certificate.primal) <= found.gap + other.gap
    assert found.certificate.dual <= other.certificate.primal * (1 + 1e-12)
    if found.terms is None:
        assert found.certificate.primal == pytest.approx(problem.primal(found.W, found.b, found.A), rel=1e-9)


def test_weights_are_those_of_scikit_learn():
    problem = problem_of("feature_selection")
    found = solve(problem, tol=1e-9)
    lasso = MultiTaskLasso(np.sqrt(problem.alpha), tol=1e-9, max_iter=100_000).fit(X, Y)
    assert np.allclose(found.W.T, lasso.coef_, atol=1e-5)
    assert np.array_equal(found.W.any(axis=1), lasso.coef_.any(axis=0))


def test_what_it_does_not_take():
    gaps = np.where(np.random.default_rng(1).random(Y.shape) < 0.2, np.nan, Y)
    for problem in (
        Problem(X, gaps, "squared", "feature_selection"),
        Problem(X, Y, "huber", "feature_selection"),
        Problem(X, Y, "squared", structures.Robust()),
        Problem(X, Y, "squared", "trace"),
    ):
        assert RowDescent().accepts(problem)
        assert not isinstance(choose(problem), RowDescent)


@pytest.mark.parametrize("structure", STRUCTURES[:2], ids=repr)
def test_along_a_path_it_starts_where_it_ended(structure):
    problem = problem_of(structure)
    alphas = problem.alpha * np.array([4.0, 2.0, 1.0, 0.99])
    warm = path(problem, alphas, tol=1e-6)
    assert all(solution.certificate.optimal for solution in warm)
    assert warm[-1].n_iter <= solve(problem.at(alphas[-1]), tol=1e-6).n_iter


def test_other_solvers_go_on_where_columns_are_too_much_alike(monkeypatch):
    alike = X[:, :1] + 1e-2 * X[:, :30]
    problem = problem_of("feature_selection", 1e-3, alike)
    monkeypatch.setattr(row_descent, "TUNING", replace(row_descent.TUNING, slow_steps=2))
    begun, begin = [], Proximal.begin
    monkeypatch.setattr(Proximal, "begin", lambda *given: begun.append(given) or begin(*given))
    assert solve(problem, tol=1e-6, max_iter=5000).certificate.optimal
    assert begun


@pytest.mark.parametrize("norm", [RowNorm(1.0), RowNorm(0.6), RowNorm(0.7, by_entry=True)], ids=repr)
def test_shrinking_leaves_an_element_of_the_dual_ball(norm):
    """``row - shrink(row)`` is a subgradient: in the dual ball, and aligned with what is left."""
    for _ in range(20):
        row, threshold = rng.normal(size=T), rng.uniform(0, 2)
        left = norm.shrink(row, threshold)
        assert norm.dual((row - left)[None])[0] <= threshold * (1 + 1e-12)
        assert np.isclose((row - left) @ left, threshold * norm.value(left[None]))
