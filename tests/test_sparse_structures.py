"""Sparse relations and sums of structures: the fast paths against naive twins, what they find, and what they refuse."""

from concurrent.futures import ThreadPoolExecutor

import naive
import numpy as np
import pytest
import zoo

from taskloom import Problem, alpha_max, solve, structures
from taskloom.design import Observations
from taskloom.solvers import proximal
from taskloom.solvers.supervised.sides import TaskSide
from taskloom.structures import Clusters, Frobenius, LogDet, Sparse, Sum, Trace, UnitTrace
from taskloom.structures import l1_penalty as relations


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
    memory, gradient = F.remembering(), (around - B - B.T) / step
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
    for cls in (relations.Relations, Sum):
        monkeypatch.setattr(cls, "remembering", lambda self: self)
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
        side.dense_limit = 0

        def value(side=side):
            fit = side.supervise(np.linalg.cholesky(A))
            return side.problem.loss_term(fit.z) + fit.norm

        for enough in (1e-2, 1e-5):
            side._dual, side.enough = np.zeros_like(side._dual), enough
            loose = value()
            side.enough = 0.0
            assert -1e-12 <= loose - value() <= enough


class TestSums:
    def test_arithmetic(self):
        F = Trace() + 0.5 * (Sparse(0.1) + 2 * Frobenius())
        assert [type(member) for member in F.members] == [Trace, Sparse, Frobenius]
        assert F.weights == [1.0, 0.5, 1.0]
        A = zoo.random_psd(np.random.default_rng(0))
        assert np.isclose(F.value(A), Trace().value(A) + 0.5 * Sparse(0.1).value(A) + Frobenius().value(A))
        with pytest.raises(TypeError):
            Trace() + 1

    @pytest.mark.parametrize(
        ("F", "same"),
        [
            (Sum([Sparse(0.3)]), Sparse(0.3)),
            (Trace() + LogDet(0.6), 2 * LogDet(0.3)),
            (Trace() + LogDet(0.6, l1=0.4), Sum([LogDet(0.3, l1=0.2)], [2.0])),
            (Sum([Clusters(2)], [3.0]), Clusters(2)),
            (UnitTrace() + Trace() + 0.5 * Trace(), Sum([UnitTrace(), Trace()], [7.0, 1.5])),
        ],
        ids=zoo.name,
    )
    def test_sums_that_are_something_else(self, F, same):
        rng = np.random.default_rng(1)
        B, S = rng.normal(size=(4, 4)), zoo.random_psd(rng) + 0.1 * np.eye(4)
        assert np.allclose(F.prox(B + B.T, 0.7), same.prox(B + B.T, 0.7), atol=1e-6)
        assert np.allclose(F.best_structure(S), same.best_structure(S), atol=1e-4)

    def test_a_frobenius_part_only_scales_the_prox(self):
        B = np.random.default_rng(2).normal(size=(5, 5))
        A, step = B + B.T, 0.4
        shrunk = Sparse(0.3).prox(A / (1 + 2 * step), step / (1 + 2 * step))
        assert np.allclose((Frobenius() + Sparse(0.3)).prox(A, step), shrunk, atol=1e-6)

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: Sum([]), "list of structures"),
            (lambda: Sum([Trace(), 3]), "got 3"),
            (lambda: Trace() + structures.Independent(), "Independent fixes A"),
            (lambda: Trace() + structures.FeatureSelection(), "FeatureSelection sits on the features"),
            (lambda: Sum([Trace()], [0.0]), r"weights=\[0.0\]"),
            (lambda: Sum([Trace(), Trace()], [1.0]), "2 members"),
            (lambda: Sum([Trace() + Trace()]), "does not nest"),
            (lambda: -1 * Trace(), "positive number, got -1"),
            (lambda: (Trace() + Clusters(5)).check_tasks(3), "the data have 3"),
            (lambda: LogDet(1.0, l1=-1), "l1=-1"),
        ],
    )
    def test_what_cannot_be_added_is_refused_by_name(self, make, words):
        with pytest.raises(ValueError, match=words):
            make()

    def test_a_member_that_is_not_convex_is_refused_by_name(self):
        class Crooked(Trace):
            convex = False

        with pytest.raises(ValueError, match="Crooked is not convex"):
            Trace() + Crooked()


@pytest.mark.parametrize("exact", [None, 1e-4])
def test_many_tasks_of_their_own_inputs_reach_their_tolerance(exact, monkeypatch):
    """Tasks that are learned too roughly hide that the objective falls; then they are learned better."""
    if exact is not None:
        monkeypatch.setattr(proximal, "EXACT", exact)
    problem = Problem(*own_inputs(100), "squared", "trace", 1.0)
    posed = problem.with_structure(Sparse(0.5)).at(0.01 * alpha_max(problem))
    assert solve(posed, tol=1e-4).certificate.optimal
