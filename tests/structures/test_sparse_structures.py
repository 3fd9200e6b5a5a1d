"""Sparse relations: the fast paths against naive twins, what they find, and few features for many tasks."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import cvxpy as cp
import naive
import numpy as np
import oracle
import pytest
import zoo

from taskloom import Problem, alpha_max, solve, structures
from taskloom.design import Observations
from taskloom.solvers import proximal
from taskloom.solvers.supervised.sides import SideTuning, TaskSide
from taskloom.structures import Frobenius, LogDet, Sparse, Sum, Trace
from taskloom.structures import sparse as relations


def own_inputs(n_tasks, n=30, d=50, seed=0):
    """Planted directions shared by all tasks, each task with inputs of its own."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 5)) @ rng.normal(size=(5, n_tasks)) / np.sqrt(5) + 0.3 * rng.normal(size=(d, n_tasks))
    X, task = rng.normal(size=(n_tasks * n, d)), np.repeat(np.arange(n_tasks), n)
    y = np.einsum("ij,ji->i", X, W[:, task]) + rng.normal(size=n_tasks * n)
    return X, Observations.build(np.arange(len(X)), task, y / y.std(), n_tasks)


@pytest.mark.parametrize("step", [0.05, 1.0])
@pytest.mark.parametrize(("F", "plain"), [(Sparse(0.3), Trace()), (LogDet(0.3, l1=0.2), LogDet(0.3))], ids=zoo.name)
def test_the_prox_is_that_of_its_naive_twin(F, plain, step):
    B = np.random.default_rng(0).normal(size=(6, 6))
    twin = naive.l1_prox(plain, F.l1, B + B.T, step)
    assert np.allclose(F.prox(B + B.T, step), twin, atol=1e-6)
    around = zoo.random_psd(np.random.default_rng(1), size=6, rank=6)
    memory, gradient = F.for_run(), (around - B - B.T) / step
    for _ in range(60):  # a step of a few rounds goes on where the last one stopped
        found = memory.proximal_step(around, gradient, step)
    exact = F.prox(B + B.T, step)
    assert np.linalg.norm(found - exact) <= 0.5 * np.linalg.norm(exact - around)
    memory.proximal_step(exact, (exact - B - B.T) / step, step)
    assert np.allclose(memory.proximal_step(exact, (exact - B - B.T) / step, step), exact, atol=1e-3)


@pytest.mark.parametrize("F", [Sparse(0.2), LogDet(0.3, l1=0.2), Frobenius() + 0.5 * Sparse(0.3)], ids=zoo.name)
def test_a_run_that_remembers_finds_what_one_that_does_not_finds(F, monkeypatch):
    X, seen = own_inputs(8, n=12, d=6)
    problem = Problem(X, seen, "squared", F, 0.05)
    quick = solve(problem, tol=1e-7)
    for cls in (relations.L1Structure, Sum):
        monkeypatch.setattr(cls, "for_run", lambda self: self)
        monkeypatch.setattr(cls, "proximal_step", structures.Structure.proximal_step)
    slow = solve(problem, tol=1e-7)
    assert quick.certificate.optimal
    assert slow.certificate.optimal
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap


def test_what_is_remembered_belongs_to_one_run():
    X, seen = own_inputs(12, n=12, d=6)
    for F in (Sparse(0.2), LogDet(0.3, l1=0.2), Frobenius() + Sparse(0.3)):
        problem, before = Problem(X, seen, "squared", F, 0.05), set(vars(F))
        alone = solve(problem, tol=1e-6)
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda _, problem=problem: solve(problem, tol=1e-6), range(4)))
        assert all(np.array_equal(solution.W, alone.W) for solution in together)
        assert set(vars(F)) == before


@pytest.mark.parametrize("share", [0.1, 0.01])
@pytest.mark.parametrize(
    ("F", "n_iter"), [(Sparse(0.1), 50), (LogDet(0.3, l1=0.1), 30), (Frobenius() + 0.5 * Sparse(0.1), 30)], ids=zoo.name
)
def test_a_hundred_tasks_take_few_iterations_of_few_eigenproblems(F, n_iter, share, monkeypatch):
    counted, eigh = [], np.linalg.eigh
    X, seen = own_inputs(100)
    problem = Problem(X, seen, "squared", F, share * 36.0)  # 36 is where a trace penalty learns nothing
    monkeypatch.setattr(np.linalg, "eigh", lambda A: counted.append(len(A)) or eigh(A))
    solution = solve(problem, tol=1e-4, max_iter=n_iter)
    assert solution.certificate.optimal, solution.certificate.message
    assert len(counted) <= 20 * (n_iter + 2)


def test_planted_relations_come_back():
    """Six groups of tasks on directions of their own, inputs of their own, 30 % of the targets missing."""
    rng = np.random.default_rng(0)
    n_tasks, n, d, group = 24, 40, 30, np.repeat(np.arange(6), 4)
    W = np.linalg.qr(rng.normal(size=(d, 6)))[0][:, group] * rng.uniform(0.8, 1.2, size=n_tasks) * 3
    X, Y = rng.normal(size=(n_tasks * n, d)), np.full((n_tasks * n, n_tasks), np.nan)
    for t in range(n_tasks):
        rows = np.arange(t * n, (t + 1) * n)
        rows = rows[rng.random(n) > 0.3]
        Y[rows, t] = X[rows] @ W[:, t] + 0.3 * rng.normal(size=rows.size)
    alike = (group[:, None] == group) & ~np.eye(n_tasks, dtype=bool)
    apart = group[:, None] != group
    zeros = []
    for F in (Trace(), Sparse(0.2), LogDet(0.05, l1=0.2)):
        A = solve(Problem(X, Y, "squared", F, 0.05), tol=1e-4).A
        correlation = np.abs(A / np.sqrt(np.outer(np.diag(A), np.diag(A))))
        assert np.min(correlation[alike]) > 3 * np.max(correlation[apart])
        zeros.append(np.mean(correlation[apart] < 1e-3))
    assert zeros[0] < 0.05  # a trace penalty zeroes nothing
    assert zeros[1] > 0.65
    assert zeros[2] > 0.9


def test_a_supervised_step_stops_as_far_above_its_minimum_as_it_may():
    X, seen = own_inputs(20, n=12, d=40)
    A = zoo.random_psd(np.random.default_rng(1), size=20, rank=20) + 0.05 * np.eye(20)
    for loss in ("squared", "huber"):
        side = TaskSide(Problem(X, seen, loss, LogDet(), 0.05))
        side.tuning = SideTuning(max_dense_unknowns=0)

        def value(side=side):
            fit = side.supervise(np.linalg.cholesky(A))
            return side.problem.loss_term(fit.z) + fit.norm

        for enough in (1e-2, 1e-5):
            side._dual, side.enough = np.zeros_like(side._dual), enough
            loose = value()
            side.enough = 0.0
            assert -1e-12 <= loose - value() <= enough


@pytest.mark.parametrize("exact", [None, 1e-4])
def test_many_tasks_of_their_own_inputs_reach_their_tolerance(exact, monkeypatch):
    """Tasks that are learned too roughly hide that the objective falls; then they are learned better."""
    if exact is not None:
        monkeypatch.setattr(proximal, "TUNING", replace(proximal.TUNING, fit_gap_share=exact))
    problem = Problem(*own_inputs(100), "squared", "trace", 1.0)
    posed = problem.with_structure(Sparse(0.5)).at(0.01 * alpha_max(problem))
    assert solve(posed, tol=1e-4).certificate.optimal


def test_sparse_falls_back_on_a_diagonal_structure():
    _, penalty = structures.Sparse(0.5).best_of_root(np.outer([1.0, 0], [1.0, 0.8]))
    assert penalty <= 2 * (1.0 + 0.8) + 1e-9


class TestFewFeatures:
    """Fewer features than tasks: ``W'W`` is singular, and the best structure may reach beyond its range."""

    @pytest.mark.parametrize("rank", [1, 2])
    @pytest.mark.parametrize("l1", [0.05, 0.3])
    def test_step_of_sparse(self, rank, l1):
        R = 0.1 * np.random.default_rng(0).normal(size=(rank, 6))
        A = cp.Variable((6, 6), symmetric=True)
        energy, schur = oracle.quadratic_over_structure(cp.Constant(R), A)
        value, constraints = oracle.structure_value(Sparse(l1), A)
        expected = oracle.solve(cp.Problem(cp.Minimize(energy + value), [*constraints, schur]), "the step")
        _, found = Sparse(l1).best_of_root(R)
        assert found == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("solver", ["alternating", "block"])
    def test_what_is_called_optimal_is(self, solver):
        """The best structure was searched again at the end, badly, and replaced the one that had been certified."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(14, 2))
        Y = X @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(14, 6))
        problem = Problem(X, Y, "squared", Sparse(0.3), 4e-4, fit_intercept=False)
        solution = solve(problem, solver)
        assert solution.certificate.optimal
        assert solution.certificate.relative_gap <= 1e-4
        assert problem.primal(solution.W, solution.b, solution.A) == pytest.approx(solution.certificate.primal, rel=1e-9)
