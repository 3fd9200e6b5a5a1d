"""The problem evaluates itself: the objective from its definition, and a dual bound that is never too high."""

import pickle

import numpy as np
import pytest
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

from taskloom import Problem, losses, solve, structures
from taskloom.design import Observations

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))


PAIRS = [(loss, F) for loss in zoo.LOSSES for F in zoo.STRUCTURES]


def naive_objective(X, Y, S, c, loss, F, alpha, ridge, W, b, A):
    """J exactly as design.md writes it, task by task and observation by observation."""
    total = 0.0
    for t in range(Y.shape[1]):
        obs = [i for i in range(len(X)) if not np.isnan(Y[i, t]) and S[i, t] > 0]
        weight = sum(S[i, t] for i in obs)
        for i in obs:
            total += c[t] / weight * S[i, t] * float(loss.value(Y[i, t], X[i] @ W[:, t] + b[t]))
    G = W.T @ W
    return total + alpha * np.trace(np.linalg.pinv(A) @ G) + ridge * np.trace(G) + F.value(A)


@pytest.mark.parametrize("layout", ["shared", "own", "missing"])
@pytest.mark.parametrize("loss", zoo.LOSSES, ids=zoo.name)
def test_the_objective_is_the_one_that_is_written_down(loss, layout):
    rng = np.random.default_rng(0)
    X, Y = zoo.data(loss, layout)
    S = rng.integers(0, 3, size=Y.shape) + (np.arange(len(Y)) < 8)[:, None]
    c = rng.uniform(0.5, 2, size=zoo.T)
    for F in (structures.Frobenius(), structures.LogDet(0.5), structures.Sparse(0.2)):
        problem = Problem(X, Observations.from_wide(Y, S, c), loss, F, 0.3, 0.1)
        W, b, A = rng.normal(size=(X.shape[1], zoo.T)), rng.normal(size=zoo.T), zoo.random_psd(rng)
        assert np.isclose(problem.primal(W, b, A), naive_objective(X, Y, S, c, loss, F, 0.3, 0.1, W, b, A), rtol=1e-9)
        best, best_A = problem.best_primal(W, b)
        assert best <= problem.primal(W, b, A) + 1e-9
        assert np.isclose(best, problem.primal(W, b, best_A), rtol=1e-7)


@pytest.mark.parametrize(("loss", "F"), PAIRS, ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_no_dual_candidate_exceeds_any_primal_point(loss, F, fit_intercept):
    rng = np.random.default_rng(1)
    X, Y = zoo.data(loss, "missing")
    for ridge in (0.0, 0.2):
        problem = Problem(X, Y, loss, F, 0.1, ridge, fit_intercept)
        solution = solve(problem, tol=1e-6)
        for _ in range(5):
            W = solution.W + 0.3 * rng.normal(size=solution.W.shape)
            gradients = rng.normal(size=problem.observations.y.size)
            G = problem.dual_candidate(gradients)
            if fit_intercept:
                size = problem.observations.sum_by_task(np.abs(G))
                assert np.all(np.abs(problem.observations.sum_by_task(G)) <= 1e-12 * size)
            assert problem.dual(G, W, zoo.random_feasible(F, rng)) <= solution.certificate.primal + 1e-9


@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(zoo.LOSSES),
    F=st.sampled_from(zoo.STRUCTURES),
    alpha=st.floats(1e-4, 1e2),
    ridge=st.sampled_from([0.0, 1e-3, 1.0]),
    fit_intercept=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_the_bracket_is_true_for_open_ended_inputs(seed, loss, F, alpha, ridge, fit_intercept):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    X = rng.normal(size=(n, int(rng.integers(1, 6)))) * 10 ** rng.uniform(-2, 2)
    Y = zoo.targets(loss, rng, (n, zoo.T)) * (1 if loss.targets == "signs" else 10 ** rng.uniform(-2, 2))
    problem = Problem(X, Y, loss, F, alpha, ridge, fit_intercept)
    one = solve(problem, tol=1e-5, max_iter=300)
    other = solve(problem, "block", tol=1e-5, max_iter=100, time_limit=3.0)  # under sums its steps can take seconds
    for this, that in ((one, other), (other, one)):
        assert this.certificate.dual <= that.certificate.primal + 1e-10 * (1 + abs(that.certificate.primal))
        assert np.isfinite(this.certificate.gap)


def test_weights_of_zero_are_the_same_as_missing():
    _X, Y = zoo.data(losses.Squared(), "shared")
    S = np.ones_like(Y)
    S[3, 1] = S[5, 0] = 0
    gone = np.where(S == 0, np.nan, Y)
    one, other = Observations.from_wide(Y, S), Observations.from_wide(gone)
    assert np.array_equal(one.y, other.y)
    assert np.allclose(one.weight, other.weight)


def test_task_strengths():
    Y = np.array([[1.0, 1.0], [2.0, np.nan], [3.0, np.nan]])
    assert np.allclose(Observations.from_wide(Y).weight, [1 / 3, 1 / 3, 1 / 3, 1])
    assert np.allclose(Observations.from_wide(Y, task_weight="size").weight, 2 / 4 * np.ones(4))
    assert np.allclose(Observations.from_wide(Y, task_weight=[3.0, 5.0]).weight, [1, 1, 1, 5])
    for bad in ("even", [1.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="task_weight"):
            Observations.from_wide(Y, task_weight=bad)


def test_the_scale_is_the_loss_of_the_best_constant():
    X, Y = zoo.data(losses.Squared(), "missing")
    problem = Problem(X, Y)
    assert np.isclose(problem.scale, np.nanvar(Y, axis=0).sum())
    assert np.isclose(Problem(X, Y, fit_intercept=False).scale, np.nanmean(Y**2, axis=0).sum())
    median = Problem(X, Y, "absolute")
    assert np.isclose(median.scale, np.nanmean(np.abs(Y - np.nanmedian(Y, axis=0)), axis=0).sum())
    assert Problem(X, np.ones_like(Y)).relative(0.0) == 0.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alpha": 0.0}, "alpha=0.0"),
        ({"alpha": np.nan}, "alpha=nan"),
        ({"ridge": -1.0}, "ridge=-1.0"),
        ({"features": np.zeros(3)}, "matrix"),
        ({"features": np.full((16, 5), np.nan)}, "finite"),
        ({"features": np.zeros((3, 5))}, "3 rows"),
        ({"observations": np.full((16, 4), np.nan)}, "no observation"),
        ({"structure": structures.Fixed(np.eye(2))}, "describes 2 tasks"),
    ],
)
def test_nonsense_is_refused(change, words):
    X, Y = zoo.data(losses.Squared(), "shared")
    with pytest.raises(ValueError, match=words):
        Problem(**{"features": X, "observations": Y, **change})


def test_weights_below_the_estimators_are_checked():
    with pytest.raises(ValueError, match="not negative"):
        Observations.from_wide(Y, -np.ones(60))
    with pytest.raises(ValueError, match="finite"):
        Observations.from_wide(Y, np.full(60, np.nan))


def test_problems_that_differ_in_a_layer_share_the_layers_below():
    problem = Problem(np.ones((4, 2)), np.arange(8.0).reshape(4, 2))
    assert problem.at(2.0).model is problem.model
    other_structure = problem.with_structure(structures.as_structure("frobenius"))
    assert other_structure.targets is problem.targets
    assert other_structure.model is not problem.model
    other_loss = problem.with_loss(losses.as_loss("huber"))
    assert other_loss.design is problem.design
    assert other_loss.targets is not problem.targets
    other_targets = problem.design.with_observations(problem.observations.with_targets(-problem.observations.y))
    assert other_targets.inputs is problem.inputs


def test_a_problem_is_pickled_without_what_was_computed_from_it():
    problem = Problem(np.random.default_rng(0).normal(size=(30, 4)), np.random.default_rng(1).normal(size=(30, 3)))
    before = len(pickle.dumps(problem))
    solve(problem)
    assert len(pickle.dumps(problem)) == before
