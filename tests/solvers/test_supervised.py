"""The supervised step on either side against its naive twin."""

from dataclasses import replace

import naive
import numpy as np
import pytest
import zoo
from scipy.optimize import minimize

from taskloom import Problem, losses, structures
from taskloom._linalg import Positive, psd_root
from taskloom.design import Observations, batches
from taskloom.losses import Hinge
from taskloom.solvers.supervised.coupled import Coupled
from taskloom.solvers.supervised.sides import FeatureSide, SideTuning, TaskSide
from taskloom.solvers.supervised.task_elimination import EliminatedTasks
from taskloom.solvers.supervised.term_sum_side import TermSumSide

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 4))
Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(12, 3))


LAYOUTS = ["shared", "own", "missing"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("d", [2, 30])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_task_side_solves_the_kronecker_system(layout, d, ridge, fit_intercept):
    rng = np.random.default_rng(0)
    X, Y = zoo.data(losses.Squared(), layout, d=d)
    A = zoo.random_psd(rng) + 0.1 * np.eye(zoo.T)
    problem = Problem(X, Y, "squared", structures.Frobenius(), 0.2, ridge, fit_intercept)
    fit = TaskSide(problem).supervise(psd_root(A))
    W, b = naive.kronecker_supervised_step(problem, A)
    assert np.allclose(fit.W, W, atol=1e-8)
    assert np.allclose(fit.b, b, atol=1e-8)
    assert np.isclose(fit.norm, 0.2 * np.trace(np.linalg.solve(A, W.T @ W)) + ridge * np.sum(W**2))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("d", [2, 30])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", [loss for loss in zoo.LOSSES if loss.smooth], ids=zoo.name)
def test_conjugate_gradients_give_the_dense_solution(layout, d, fit_intercept, loss, monkeypatch):
    rng = np.random.default_rng(0)
    problem = Problem(*zoo.data(loss, layout, d=d), loss, structures.LogDet(), 0.2, 0.1, fit_intercept)
    for A in (zoo.random_psd(rng) + 0.1 * np.eye(zoo.T), zoo.random_psd(rng, 2)):
        dense = TaskSide(problem)
        dense.shared = None
        iterative = TaskSide(problem)
        iterative.shared, iterative.tuning = None, SideTuning(max_dense_unknowns=0)
        one, other = dense.supervise(psd_root(A)), iterative.supervise(psd_root(A))
        assert np.allclose(one.W, other.W, atol=1e-7)
        assert np.allclose(one.b, other.b, atol=1e-6)
        assert np.isclose(one.norm, other.norm, rtol=1e-6)


def test_the_sylvester_solution_is_the_general_one():
    X, Y = zoo.data(losses.Squared(), "shared")
    rng = np.random.default_rng(1)
    s, c = rng.uniform(0.5, 2, size=len(X)), rng.uniform(0.5, 2, size=zoo.T)
    problem = Problem(X, Observations.from_wide(Y, s, c), "squared", structures.Trace(), 0.2, 0.1)
    assert problem.targets.shared_inputs is not None
    A, D = zoo.random_psd(rng, 2), zoo.random_psd(rng, 3, X.shape[1])
    for side, root in ((TaskSide(problem), psd_root(A)), (FeatureSide(problem), psd_root(D))):
        fast = side.supervise(root)
        side.shared = None
        slow = side.supervise(root)
        assert np.allclose(fast.W, slow.W, atol=1e-10)
        assert np.allclose(fast.b, slow.b, atol=1e-10)
        assert np.isclose(fast.norm, slow.norm)


@pytest.mark.parametrize(
    "weights",
    [np.arange(64).reshape(16, 4) + 1.0, None],
    ids=["weights that do not separate", "a missing entry"],
)
def test_the_sylvester_solution_is_not_used_where_it_does_not_hold(weights):
    X, Y = zoo.data(losses.Squared(), "shared")
    if weights is None:
        Y[3, 2] = np.nan
    assert Problem(X, Observations.from_wide(Y, weights)).targets.shared_inputs is None
    assert Problem(X, zoo.data(losses.Huber(), "shared")[1], "huber").targets.shared_inputs is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", [loss for loss in zoo.LOSSES if loss.smooth], ids=zoo.name)
def test_both_sides_agree_on_independent_tasks_and_with_a_general_optimiser(loss, layout):
    X, Y = zoo.data(loss, layout)
    problem = Problem(X, Y, loss, structures.Independent(), 0.05, 0.02)
    task, feature = TaskSide(problem).supervise(np.eye(zoo.T)), FeatureSide(problem).supervise(np.eye(X.shape[1]))
    assert np.allclose(task.W, feature.W, atol=1e-6)
    assert np.allclose(task.b, feature.b, atol=1e-5)

    def objective(x):
        W, b = x[: -zoo.T].reshape(-1, zoo.T), x[-zoo.T :]
        return problem.primal(W, b, np.eye(zoo.T))

    start = np.append(feature.W.ravel(), feature.b)
    found = minimize(objective, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 50})
    assert objective(start) <= found.fun + 1e-10


def test_tasks_of_very_different_size_share_no_padding():
    counts = np.array([1, 2, 3, 40, 50, 1000])
    made = batches(counts, np.concatenate([[0], np.cumsum(counts)]))
    assert sorted(np.concatenate([bucket.tasks for bucket in made]).tolist()) == list(range(6))
    for bucket in made:
        assert bucket.mask.sum() == counts[bucket.tasks].sum()
        assert bucket.mask.size <= 2 * bucket.mask.sum()


def test_one_structure_serves_every_strength():
    X, Y = zoo.data(losses.Squared(), "missing")
    problem = Problem(X, Y, alpha=1.0)
    for alpha in (1e-6, 1.0, 1e6):
        fit = FeatureSide(replace(problem, alpha=alpha)).supervise(np.eye(X.shape[1]))
        W, b = naive.kronecker_supervised_step(replace(problem, alpha=alpha), np.eye(zoo.T))
        assert np.allclose(fit.W, W, atol=1e-7)
        assert np.allclose(fit.b, b, atol=1e-7)


def test_slow_conjugate_gradients_under_a_nonsmooth_loss_give_way_to_dense_systems():
    """Hundreds of directions took hundreds of iterations each: 20 CPU seconds, where dense systems take one."""
    draws = np.random.default_rng(3)
    phi = draws.normal(size=(24, 10))
    Y = np.sign(phi @ draws.normal(size=(10, 18)) + 0.5 * draws.normal(size=(24, 18)))
    loss = Hinge().smoothed(np.zeros(Y.size), 1e-3)
    problem = Problem(phi, Y, "hinge", structures.SharedMean(2.0), 1e-7).with_loss(loss)
    root = problem.structure.root(problem.structure.matrix(18))
    dense, large = TaskSide(problem), TaskSide(problem)
    dense.tuning = SideTuning(max_dense_unknowns=10**6, max_dense_multiplications=np.inf)
    large.tuning = SideTuning(max_dense_unknowns=1)
    expected, found = dense.supervise(root), large.supervise(root)
    assert large._force_dense
    assert np.isclose(found.norm + problem.loss_term(found.z), expected.norm + problem.loss_term(expected.z), rtol=1e-9)


def test_systems_are_factored_once_or_solved_as_before():
    M = X.T @ X + np.eye(4)
    singular = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-15]])
    P = rng.normal(size=(80, 80))
    indefinite = P @ P.T - 1e-3 * np.eye(80)
    for A in (
        M[None],
        np.array([M, 2 * M]),
        (P @ P.T + np.eye(80))[None],
        indefinite[None],
        singular[None] - 1e-14 * np.eye(2),
    ):
        b = np.ones((len(A), A.shape[-1], 1))
        system = Positive(A)
        assert np.allclose(A @ system.solve(b), b, atol=1e-5)
        assert np.allclose(A @ system.solve(2 * b), 2 * b, atol=1e-5)


@pytest.mark.parametrize("side", [TaskSide, FeatureSide, TermSumSide])
def test_strategies_can_be_printed_and_the_last_one_always_applies(side):
    names = [strategy.name for strategy in side.strategies]
    assert len(set(names)) == len(names)
    assert all(f"'{name}'" in repr(side.strategies) for name in names)
    assert side.strategies[-1].where == "otherwise"
    assert side.strategies[-1].applies(None, None)


@pytest.mark.parametrize("structure", [structures.SharedMean(3.0), structures.Independent()], ids=zoo.name)
@pytest.mark.parametrize("loss", [loss for loss in zoo.LOSSES if loss.smooth], ids=zoo.name)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("d", "ridge", "fit_intercept"), [(2, 0.3, True), (2, 0.0, False), (30, 0.0, True), (30, 0.3, False)])
def test_tasks_are_eliminated_under_a_diagonal_and_few_columns(structure, loss, layout, d, ridge, fit_intercept):
    problem = Problem(*zoo.data(loss, layout, d=d), loss, structure, 0.2, ridge, fit_intercept)
    A = structure.factored(zoo.T)
    fast, slow = TaskSide(problem), TaskSide(problem)
    slow.shared = fast.shared = None
    B = fast._with_ridge(A)
    if problem.targets.shared_inputs is None and problem.n_features * A.L.shape[1] <= problem.observations.y.size:
        assert not isinstance(B, np.ndarray)
    one, other = fast.supervise(A), slow.supervise(psd_root(structure.matrix(zoo.T)))
    assert np.allclose(one.W, other.W, atol=1e-7)
    assert np.allclose(one.b, other.b, atol=1e-6)
    assert np.isclose(one.norm, other.norm, rtol=1e-6)


@pytest.mark.parametrize("sizes", [(2, 2, 2, 2), (1, 9, 4, 30)])
def test_eliminated_tasks_solve_the_whole_system(sizes):
    rng = np.random.default_rng(3)
    n, T, r = sum(sizes), len(sizes), 5
    task = np.repeat(np.arange(T), sizes)
    seen = Observations.build(np.arange(n), task, rng.normal(size=n), T)
    problem = Problem(rng.normal(size=(n, r)), seen, "squared", structures.SharedMean(), 0.1)
    h, damping, s, L = rng.random(n), 0.1 * rng.random(T), rng.random(T), rng.normal(size=(T, 2))
    Z = rng.normal(size=(r, T))
    W = EliminatedTasks(problem, h, damping, s, L).weights(Z)
    curved = np.empty_like(W)
    for t in range(T):
        X, v = problem.features[task == t], h[task == t]
        curved[:, t] = X.T @ (v * (X @ W[:, t] - v @ X @ W[:, t] / (v.sum() + damping[t])))
    assert np.allclose(W @ np.linalg.inv(np.diag(s) + L @ L.T) + curved, Z)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_both_preconditioners_lead_to_the_same_solution(fit_intercept, monkeypatch):
    rng = np.random.default_rng(4)
    T, m, r = 12, 6, 8
    X, y = rng.normal(size=(T * m, r)), rng.normal(size=T * m)
    seen = Observations.build(np.arange(T * m), np.repeat(np.arange(T), m), y, T)
    problem = Problem(X, seen, "squared", structures.TaskGraph.chain(T, weight=5.0), 0.02, 0.01, fit_intercept)
    root = problem.structure.root(np.eye(T))
    fits = []
    for eliminates in (True, False):
        if not eliminates:
            monkeypatch.setattr(Coupled, "_without_tasks", lambda *_: None)
        side = TaskSide(problem)
        side.tuning = SideTuning(max_dense_unknowns=0)
        fits.append(side.supervise(root))
    assert np.allclose(fits[0].W, fits[1].W, atol=1e-9)
    assert np.allclose(fits[0].b, fits[1].b, atol=1e-9)
