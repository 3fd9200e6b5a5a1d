"""Shared inputs, the quick ways: each against the plain one that it stands for."""

import numpy as np
import pytest

from taskloom import Problem, solve, structures
from taskloom.design import Observations, batches
from taskloom.problem.dual_projection import project_dual
from taskloom.solvers.proximal import Eliminated
from taskloom.solvers.record import Record
from taskloom.solvers.reformulations import EigenbasisForm, OnFeatures, TaskSpanForm
from taskloom.solvers.supervised.coupled import Coupled, CoupledSquares
from taskloom.solvers.supervised.sides import TaskSide

N, D, T = 60, 40, 5


def data(missing=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) @ np.diag(0.9 ** np.arange(D)) + 1
    Y = X @ rng.normal(size=(D, 2)) @ rng.normal(size=(2, T)) + rng.normal(size=(N, T)) + 3
    Y[rng.random(Y.shape) < missing] = np.nan
    return X, Y


def reduced_problem(structure, alpha=0.3):
    X, Y = data()
    problem = Problem(X, Observations.from_wide(Y, task_weight=np.arange(1.0, T + 1)), "squared", structure, alpha)
    return EigenbasisForm.of(problem).apply(problem)


def random_structure(rank=T, seed=1):
    Q = np.random.default_rng(seed).normal(size=(T, rank))
    return Q @ Q.T


@pytest.mark.parametrize("rank", [T, 2])
def test_with_the_weights_eliminated_value_and_gradient_are_those_of_the_supervised_step(rank):
    problem, A = reduced_problem(structures.Trace()), random_structure(rank)
    side = TaskSide(problem)
    fit = side.supervise(problem.structure.root(A))
    value, gradient, P, shrunk = Eliminated.of(problem, side).at(A)
    assert np.isclose(value, problem.loss_term(fit.z) + fit.norm, rtol=1e-12)
    assert np.allclose(gradient, -fit.Z.T @ fit.Z / (4 * problem.alpha), rtol=1e-9, atol=1e-12 * np.abs(gradient).max())
    G = 2 * problem.alpha * P @ shrunk
    assert np.allclose(G.ravel(), problem.dual_candidate(fit.gradients), atol=1e-10 * np.abs(G).max())


@pytest.mark.parametrize("structure", [structures.Trace(), structures.Frobenius(), structures.UnitTrace()], ids=repr)
def test_the_gap_told_from_the_structure_alone_is_that_of_the_certificate(structure):
    """Close to the optimum; what it is off by is of a higher order."""
    problem = reduced_problem(structure)
    side, best = TaskSide(problem), solve(problem, tol=1e-10).A
    for size in (1e-3, 1e-2):
        step = size * random_structure(seed=2) / T
        A = (1 - size) * best + step * np.trace(best) / np.trace(random_structure(seed=2))
        fit = side.supervise(structure.root(A))
        value, gradient, *candidate = (quick := Eliminated.of(problem, side)).at(A)
        G = problem.dual_candidate(fit.gradients)
        better = project_dual(problem, G, fit.Z, fit.W)
        gap = value + structure.value(A) - problem.dual(G if better is None else better, fit.W)
        told = quick.gap(A, gradient, *candidate)
        assert 0.5 * gap <= told <= 2 * gap


@pytest.mark.parametrize("structure", [structures.Trace(), structures.Frobenius()], ids=repr)
def test_estimates_spare_certificates_and_change_nothing_else(structure, monkeypatch):
    problem, certified = reduced_problem(structure), []
    plain = Record.update
    monkeypatch.setattr(Record, "update", lambda record, point: certified.append(point) or plain(record, point))
    quick = solve(problem, "proximal", tol=1e-8)
    few = len(certified)
    monkeypatch.setattr(Eliminated, "of", staticmethod(lambda problem, side: None))
    slow = solve(reduced_problem(structure), "proximal", tol=1e-8)
    assert quick.certificate.optimal
    assert few < (len(certified) - few) / 2
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("guess", [False, True])
def test_coupled_squares_solve_the_normal_equations(intercept, guess):
    """Against one dense system for all tasks at once, intercepts included as unknowns."""
    X, Y = data(missing=0.4)
    problem, A = Problem(X, Y, "squared", alpha=0.2, fit_intercept=intercept), random_structure()
    obs = problem.observations
    L = problem.structure.root(A)
    squares = CoupledSquares(Coupled(problem, L))
    Z0 = np.random.default_rng(3).normal(size=(D, T)) if guess else None
    W, b, z, Z, norm = squares.solve(Z0)
    design = np.zeros((obs.y.size, D * T + T))
    for i, (row, t) in enumerate(zip(obs.row, obs.task, strict=True)):
        design[i, t * D : (t + 1) * D] = X[row]
        design[i, D * T + t] = intercept
    penalty = np.zeros((D * T + T, D * T + T))
    penalty[: D * T, : D * T] = problem.alpha * np.kron(np.linalg.inv(A), np.eye(D))
    system = design.T @ (obs.weight[:, None] * design) + penalty
    x = np.linalg.lstsq(system, design.T @ (obs.weight * obs.y), rcond=None)[0]
    assert np.allclose(W, x[: D * T].reshape(T, D).T, atol=1e-8)
    assert np.allclose(b, x[D * T :], atol=1e-8)
    assert np.allclose(z, problem.predict(W, b), atol=1e-10)
    assert np.allclose(Z, problem.correlate(-obs.weight * problem.loss.gradient(obs.y, z)), atol=1e-9)
    assert np.isclose(norm, problem.alpha * problem.structure.squared_norm(W, A), rtol=1e-8)


def test_products_go_to_the_places_that_were_observed():
    X, Y = data(missing=0.3)
    problem, rng = Problem(X, Y), np.random.default_rng(4)
    W, b, G = rng.normal(size=(D, T)), rng.normal(size=T), rng.normal(size=problem.observations.y.size)
    row, task = problem.observations.row, problem.observations.task
    assert np.allclose(problem.predict(W, b), [X[i] @ W[:, t] + b[t] for i, t in zip(row, task, strict=True)])
    plain = np.zeros((D, T))
    for i, t, g in zip(row, task, G, strict=True):
        plain[:, t] += g * X[i]
    assert np.allclose(problem.correlate(G), plain)


def test_no_bucket_is_empty_however_long_the_tasks():
    """Two long tasks asked for more buckets than there are tasks: "auto" ended in an error for tasks of some 1000 rows."""
    counts = np.array([3000, 2900, 40])
    found = batches(counts, np.concatenate([[0], np.cumsum(counts)]))
    assert sorted(t for bucket in found for t in bucket.tasks.tolist()) == [0, 1, 2]
    assert all(bucket.tasks.size for bucket in found)


MANY = {
    "trace": structures.Trace(),
    "frobenius": structures.Frobenius(),
    "schatten norm": structures.SchattenNorm(3.0),
    "unit trace": structures.UnitTrace(),
    "log det": structures.LogDet(0.5),
    "few clusters": structures.Clusters(4, mean=0.5),
    "more clusters than directions": structures.Clusters(20),
}


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_a_penalty_far_larger_than_the_loss_is_taken_out_of_many_tasks_too(monkeypatch, missing):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(25, 6))
    Y = 1e-5 * (X @ rng.normal(size=(6, 3)) @ rng.normal(size=(3, 70)) + rng.normal(size=(25, 70)))
    Y[rng.random(Y.shape) < missing] = np.nan
    problem = Problem(X, Y, "squared", structures.LogDet(2.0), 1.0)
    found = solve(problem)
    for kind in (TaskSpanForm, OnFeatures):
        monkeypatch.setattr(kind, "applies", lambda problem, inside=False: False)
    plain = solve(problem)
    assert found.certificate.status == plain.certificate.status == "optimal"
    assert abs(found.certificate.primal - plain.certificate.primal) <= found.gap + plain.gap + 1e-12 * abs(
        plain.certificate.primal
    )


@pytest.mark.parametrize("alpha", [1e-3, 1.0])
@pytest.mark.parametrize("structure", MANY.values(), ids=MANY)
def test_directions_of_the_tasks_stand_for_many_tasks(monkeypatch, structure, alpha):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(25, 6))
    Y = X @ rng.normal(size=(6, 3)) @ rng.normal(size=(3, 70)) + rng.normal(size=(25, 70)) + 2 * rng.normal(size=70)
    problem, tol = Problem(X, Y, "squared", structure, alpha), 1e-7
    found = solve(problem, tol=tol)
    assert EigenbasisForm.applies(problem)
    assert TaskSpanForm.applies(EigenbasisForm.of(problem).apply(problem))
    monkeypatch.setattr(TaskSpanForm, "applies", lambda problem, inside=False: False)
    plain = solve(problem, tol=tol)
    assert found.certificate.status == plain.certificate.status == "optimal"
    assert abs(found.certificate.primal - plain.certificate.primal) <= found.gap + plain.gap
    assert found.A.shape == (70, 70)
    value = problem.primal(found.W, found.b, found.A)
    assert value == pytest.approx(found.certificate.primal, rel=1e-9)


def test_tasks_of_other_weights_are_not_rotated():
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(25, 6)), rng.normal(size=(25, 70))
    seen = Observations.from_wide(Y, task_weight=1 + rng.random(70))
    assert not EigenbasisForm.applies(Problem(X, seen, "squared", structures.Clusters(3), 0.1))
