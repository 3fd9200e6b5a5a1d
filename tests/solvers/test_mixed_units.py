"""Fits in mixed units arrive: inputs and targets times 1e-6 to 1e6, alpha from 1e-8 to 1e2, every loss."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, solve, structures
from taskloom.problem import weak_penalty

REGRESSION = ["squared", "huber", "absolute", "epsilon_insensitive", "quantile"]
LABELS = ["logistic", "hinge", "squared_hinge", "softmax", "multiclass_hinge"]
STRUCTURES = [
    "trace",
    "frobenius",
    structures.UnitTrace(),
    structures.Clusters(2),
    structures.LogDet(0.5),
    structures.Sparse(0.2),
    "independent",
    structures.FeatureSelection(),
    structures.Robust(),
    structures.Dirty(),
    structures.Schatten(1.5),
    structures.SchattenNorm(2),
    structures.SharedMean(1.0),
]
# Those that stopped short of their tolerance, most of them with a penalty so weak that the bound was lost.
STOPPED = [206, 455, 554, 682, 723, 1154, 1402, 1421]


def drawn(k):
    """An estimator, its inputs and its targets."""
    rng = np.random.default_rng([7, k])
    loss, structure = (REGRESSION + LABELS)[rng.integers(10)], STRUCTURES[rng.integers(13)]
    n, d, T = int(rng.integers(5, 50)), int(rng.integers(1, 12)), int(rng.integers(2, 10))
    unit_x, unit_y = 10.0 ** rng.uniform(-6, 6, 2)
    alpha = 10.0 ** rng.uniform(-8, 2)
    X = rng.normal(size=(n, d))
    Y = X @ rng.normal(size=(d, T)) + rng.normal(size=(n, T))
    missing = rng.random() < 0.3
    if loss in REGRESSION:
        if missing:
            holes = rng.random(Y.shape) < 0.3
            holes[0] = False
            Y[holes] = np.nan
        return MultiTaskRegressor(structure, loss=loss, alpha=alpha), unit_x * X, unit_y * Y
    whole_rows = loss in LABELS[3:]
    labels = Y.argmax(axis=1) if whole_rows else np.where(np.median(Y, axis=0) < Y, 1.0, 0.0)
    return MultiTaskClassifier(structure, loss=loss, alpha=alpha), unit_x * X, labels


@pytest.mark.parametrize("k", [*range(1, 40), *STOPPED])
def test_a_random_fit_arrives(k):
    model, X, Y = drawn(k)
    if model.loss in LABELS[3:] and isinstance(model.structure, (structures.Robust, structures.Dirty)):
        pytest.skip("a loss of whole rows has no sums")
    assert model.fit(X, Y).certificate_.optimal, model.certificate_.message


def weak(loss, n=40, T=4):
    """A problem whose penalty is nearly nothing; the labels of one task can be separated."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3))
    Y = X @ rng.normal(size=(3, T)) + rng.normal(size=(n, T))
    if loss in LABELS:
        Y = np.where(Y > 0, 1.0, -1.0)
        Y[:, 0] = np.where(X[:, 0] > 0, 1.0, -1.0)
    return Problem(X, Y, loss, alpha=1e-16)


@pytest.mark.parametrize("loss", [*REGRESSION, *LABELS[:3]])
def test_a_candidate_without_correlations_is_one_of_the_problem_without_its_penalty(loss):
    problem = weak(loss)
    obs = problem.observations
    rough = solve(problem, tol=1e-2)
    G, Z = weak_penalty.without_correlations(problem, rough.G, problem.correlate(rough.G))
    assert np.abs(problem.correlate(G)).max() <= 1e-6 * np.abs(obs.weight).max()
    assert np.allclose(problem.correlate(G), Z, atol=1e-12)
    assert np.abs(obs.sum_by_task(G)).max() <= 1e-9
    assert np.isfinite(problem.loss.conjugate(obs.y, -G / obs.weight)).all()


@pytest.mark.parametrize("loss", [*REGRESSION, *LABELS[:3]])
def test_weak_penalties_are_proved_and_bounds_stay_below_better_points(loss):
    """Their bounds are bounds: no point of a longer fit lies below."""
    problem = weak(loss)
    found, better = solve(problem), solve(problem, tol=1e-9, max_iter=3000)
    assert found.certificate.optimal, found.certificate.message
    assert found.certificate.dual <= better.certificate.primal * (1 + 1e-12)
    again = problem.dual(found.G, found.W)
    assert again >= found.certificate.dual - 1e-9 * abs(again)  # G attains the bound


def test_a_line_from_zero_is_the_usual_scaling():
    problem = weak("squared").at(0.1)
    found = solve(problem)
    Z = problem.correlate(found.G)
    bound, c = problem.best_on_line(found.G, found.W, None, Z)
    assert bound == problem.dual(found.G, found.W)
    assert 0 <= c <= 1


def test_another_solver_takes_over_where_the_first_one_stalls():
    model, X, Y = drawn(1402)
    stuck = MultiTaskRegressor(**{**model.get_params(deep=False), "solver": "factored"})
    with pytest.warns(ConvergenceWarning, match="No further progress"):
        stuck.fit(X, Y)
    assert not stuck.certificate_.optimal
    assert model.fit(X, Y).certificate_.optimal


def test_a_history_holds_bounds_of_the_problem_itself():
    """Attempts at larger strengths have bounds of their own, which may lie above the minimum."""
    rng = np.random.default_rng(0)
    X = 1e5 * rng.normal(size=(30, 6))
    Y = 1e-6 * (1e-5 * X @ rng.normal(size=(6, 3)) + rng.standard_t(2, size=(30, 3)))
    for alpha in (1e-8, 1e-6, 1e-4):
        found = solve(Problem(X, Y, "quantile", structures.Robust(0.8), alpha))
        history = found.history
        assert max(history.dual) <= found.certificate.primal * (1 + 1e-9)
        assert min(history.objective) >= found.certificate.dual * (1 - 1e-9)
