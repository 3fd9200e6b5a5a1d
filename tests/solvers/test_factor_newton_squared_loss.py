"""Newton's method on the factor: value, gradient and Hessian against a naive twin, and the optimum it must reach."""

from dataclasses import replace

import naive
import numpy as np
import pytest

from taskloom import MultiTaskRegressor, Problem, alpha_max, losses, path, solve, structures
from taskloom.design import Observations
from taskloom.design import stacked_inputs as blocks_module
from taskloom.design import task_data as task_blocks
from taskloom.design.task_data import Grams, Stack, StackedRows
from taskloom.engines.local import LocalEngine, WeightSpectrum
from taskloom.experiments.fig1 import make
from taskloom.problem.dual_projection import project_dual_pair
from taskloom.solvers import Factored, Proximal
from taskloom.solvers.factor.factored import FittedTasksRun, SquaredLossRun
from taskloom.solvers.factor.lbfgs import FactorRun
from taskloom.solvers.factor.newton import FactorNewton, NewtonTuning, Point
from taskloom.solvers.path import strength_grid


def problem_of(counts=(4, 9, 3, 7, 5, 30), d=6, alpha=0.02, seed=0, fit_intercept=True):
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(len(counts)), counts)
    X = rng.normal(size=(task.size, d)) + 0.3
    y = np.einsum("ij,ji->i", X, (rng.normal(size=(d, 2)) @ rng.normal(size=(2, len(counts))))[:, task])
    y += 0.3 * rng.normal(size=task.size)
    weight = rng.uniform(0.5, 2, size=task.size)
    obs = Observations.build(np.arange(task.size), task, y, len(counts), sample_weight=weight)
    return Problem(X, obs, "squared", "trace", alpha, fit_intercept=fit_intercept)


def point_of(data, Q, alpha, spectrum=None):
    tasks = LocalEngine(data, alpha, None, spectrum).eliminate(Q)
    return Point(tasks, Q, alpha, spectrum=spectrum)


def newton_of(problem, start=None):
    """Newton's method on the tasks of a problem in double precision, from weights with one row for each task."""
    data, _ = problem.design.stacked_tasks
    start = None if start is None else WeightSpectrum.of(start)
    return FactorNewton(LocalEngine(data, problem.alpha), problem.alpha, 1, problem.scale, 1e-6, NewtonTuning(), start)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("q", [2, 6])
def test_value_gradient_and_hessian_are_those_of_the_naive_twin(q, fit_intercept):
    problem = problem_of(fit_intercept=fit_intercept)
    rng, (data, _) = np.random.default_rng(1), problem.design.stacked_tasks
    assert len(data) > 1  # tasks of different sizes, in systems of both kinds
    Q, step = rng.normal(size=(problem.n_features, q)), rng.normal(size=(problem.n_features, q))
    naive.check_point(problem, lambda Q: point_of(data, Q, problem.alpha), Q, step)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("share", [1.1, 0.5, 0.1, 1e-2, 1e-4])
def test_it_reaches_what_proximal_steps_reach(share, fit_intercept):
    problem = problem_of(fit_intercept=fit_intercept)
    problem = problem.at(share * alpha_max(problem))
    quick, slow = solve(problem, "factored", tol=1e-8), solve(problem, "proximal", tol=1e-8, max_iter=5000)
    assert quick.certificate.optimal, quick.certificate.message
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap
    assert np.isclose(problem.primal(quick.W, quick.b, quick.A), quick.certificate.primal, rtol=1e-9)


@pytest.mark.parametrize(("d", "n_tasks", "n"), [(60, 50, 8), (5, 60, 30), (80, 4, 10), (1, 1, 5), (3, 2, 1)])
def test_every_shape_is_solved_in_few_steps(d, n_tasks, n):
    problem = problem_of((n,) * n_tasks, d)
    top = alpha_max(problem)
    for share in (0.1, 0.001):
        solution = solve(problem.at(share * max(top, 1e-12)), "factored", tol=1e-6)
        assert solution.certificate.optimal, solution.certificate.message
        assert solution.n_iter <= 15


@pytest.mark.parametrize("grams", [True, False])
def test_first_weights_are_those_of_tasks_on_their_own(grams):
    data, _ = problem_of((12,) * 4, 5 if grams else 20).design.stacked_tasks
    block, shrink = data[0], 0.3
    assert isinstance(block, Grams if grams else StackedRows)
    G = block.G if grams else block.X.transpose(0, 2, 1) @ block.X
    c = block.c if grams else np.einsum("bmd,bm->bd", block.X, block.y)
    naive_twin = np.linalg.solve(G + shrink * block.size[:, None, None] * np.eye(G.shape[1]), c[:, :, None])[:, :, 0]
    found = block.independent_fit(shrink)
    assert np.linalg.norm(found - naive_twin) <= 0.2 * np.linalg.norm(naive_twin)  # three steps of conjugate gradients
    assert not task_blocks.three_cg_steps(lambda W: 0 * W, np.zeros((2, 3)), np.zeros(2)).any()


def test_first_weights_are_shrunk_less_where_the_penalty_is_weak(monkeypatch):
    _, problem = make(100, 5, 0)
    problem, steps = problem.with_structure(structures.Trace()), []
    plain = FactorNewton._newton_step
    monkeypatch.setattr(FactorNewton, "_newton_step", lambda walk, **given: steps.append(walk) or plain(walk, **given))
    assert solve(problem.at(3e-3 * alpha_max(problem)), "factored", tol=1e-6).certificate.optimal
    few = len(steps)
    fits = LocalEngine.independent_fits
    monkeypatch.setattr(LocalEngine, "independent_fits", lambda engine, shrinkage: fits(engine, 0.3))
    assert solve(problem.at(3e-3 * alpha_max(problem)), "factored", tol=1e-6).certificate.optimal
    assert few < len(steps) - few


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_tasks_that_need_no_help_are_solved_in_few_steps(missing):
    """Long tasks, along directions of different size that all matter: rows of their own, and a table with gaps."""
    rng = np.random.default_rng(0)
    n, n_tasks, scale = 400, 7, np.geomspace(10, 0.1, 28)
    row, task = np.nonzero(rng.random((n, n_tasks)) >= missing)
    row = row if missing else np.arange(row.size)
    X = rng.normal(size=(row.max() + 1, scale.size)) * scale
    W = 10 * rng.normal(size=(scale.size, n_tasks)) / scale[:, None]
    y = np.einsum("ij,ji->i", X[row], W[:, task]) + 5 * rng.normal(size=row.size)
    problem = Problem(X, Observations.build(row, task, y, n_tasks), "squared", "trace", fit_intercept=True)
    solution = solve(problem.at(1e-7 * alpha_max(problem)), "factored", tol=1e-6)
    assert solution.certificate.optimal, solution.certificate.message
    assert solution.n_iter <= 10


def test_the_metric_knows_that_tasks_undo_changes_within_the_span():
    """Symmetric, positive, and it predicts what a Newton step gains; that of inputs that are alike
    predicts less.
    """
    rng = np.random.default_rng(0)
    n, n_tasks, scale = 200, 5, np.geomspace(30, 0.3, 8)
    task = np.repeat(np.arange(n_tasks), n)
    X = rng.normal(size=(task.size, scale.size)) * scale
    y = np.einsum("ij,ji->i", X, rng.normal(size=(scale.size, n_tasks))[:, task]) + 10 * rng.normal(size=task.size)
    problem = Problem(X, Observations.build(np.arange(task.size), task, y, n_tasks), "squared", "trace", fit_intercept=False)
    problem = problem.at(1e-6 * alpha_max(problem))
    data, spread = problem.design.stacked_tasks
    U, s, _ = np.linalg.svd(solve(problem, tol=1e-10).W, full_matrices=False)
    at_best = U * np.sqrt(np.sqrt(problem.alpha) * s)
    point = point_of(data, at_best @ np.diag([1.1, 1, 0.9, 1, 1.2]), problem.alpha, spread)
    basis = np.eye(point.Q.size).reshape(-1, *point.Q.shape)
    M = np.array([point.metric(one).ravel() for one in basis])
    assert np.allclose(M, M.T, rtol=1e-6, atol=1e-9 * M.max())
    assert np.linalg.eigvalsh((M + M.T) / 2)[0] > 0

    H = np.array([point.hessian(one).ravel() for one in basis])
    gradient = point.gradient.ravel()
    fall = gradient @ np.linalg.solve(H, gradient)
    assert 0.7 * fall < gradient @ M @ gradient < 1.4 * fall
    alike = point._metric()(point.gradient).ravel()
    assert gradient @ alike < 0.5 * fall


def test_weights_to_start_from_keep_the_rank_that_they_have():
    """Of 100 tasks, all of which have a direction of their own; a start of noise is cut."""
    problem = problem_of((12,) * 100, 150, fit_intercept=False)
    rng = np.random.default_rng(0)
    W = np.linalg.qr(rng.normal(size=(150, 100)))[0]
    run = Factored().begin(problem, (W, np.zeros(100)), 1e-4)
    assert run.here.Q.shape[1] == 100
    W[:, 30:] *= 1e-5
    run = Factored().begin(problem, (W, np.zeros(100)), 1e-4)
    assert run.here.Q.shape[1] == 30


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_a_proximal_step_finds_what_lacks_and_has_the_right_length_at_once(unit, monkeypatch):
    """From one of two planted directions: one or two points are enough, whatever the units of the inputs."""
    problem = problem_of((12,) * 40, 20)
    problem = replace(problem, features=unit * problem.features).at(unit**2)
    best = solve(problem, "factored", tol=1e-8)
    top = np.linalg.svd(best.W)[0][:, :1]
    walk = newton_of(problem, best.W.T @ top @ top.T)
    assert walk.here.Q.shape[1] == 1
    before, tried, at = walk.here.value, [], walk._at
    monkeypatch.setattr(walk, "_at", lambda Q: tried.append(Q) or at(Q))
    assert walk._grow()
    assert len(tried) <= 2
    assert walk.here.Q.shape[1] > 1
    assert walk.here.value < before
    whole = newton_of(problem, best.W.T)
    assert before - walk.here.value > 0.3 * (before - whole.here.value)
    assert not whole._grow()  # nothing lacks


@pytest.mark.parametrize("unit", [1e-150, 1.0, 1e150])
def test_the_length_of_a_proximal_step_is_a_number_in_any_units_and_where_nothing_bends(unit, monkeypatch):
    problem = problem_of()
    walk = newton_of(problem)
    tasks, lengths = walk.here.tasks, []
    tasks.Z = unit * np.ones((problem.n_tasks, problem.n_features))
    largest, curvature = tasks.outside(np.zeros((problem.n_features, 0)))
    assert np.isclose(largest, unit**2 * problem.n_tasks * problem.n_features)
    assert 0 < curvature < np.inf

    def length(curvature, largest):
        """The first one that is tried."""
        lengths.clear()
        monkeypatch.setattr(tasks, "outside", lambda U: (largest, curvature))
        monkeypatch.setattr(tasks, "grown", lambda Q, step: lengths.append(4 * problem.alpha * step) or (np.zeros(1), Q[:, :1]))
        assert not walk._grow()
        return lengths[0]

    assert 0 < length(curvature, 5.0) < np.inf
    assert np.isclose(length(curvature, 5.0), 2 * length(curvature, 10.0))
    tasks.curvatures = 0 * tasks.curvatures  # all on straight pieces
    monkeypatch.undo()
    flat = tasks.outside(np.zeros((problem.n_features, 0)))[1]
    assert flat == 0
    assert np.isclose(length(flat, 5.0), np.mean(np.sum(walk.here.Q**2, axis=0)))


def test_a_path_takes_fewer_points_than_single_fits(monkeypatch):
    problem, points = problem_of((12,) * 30, 20), []
    monkeypatch.setattr(
        FactorNewton, "_at", lambda walk, Q, start=None, at=FactorNewton._at: points.append(Q) or at(walk, Q, start)
    )
    alphas = strength_grid(problem, 12, 3.0)
    solutions = path(problem, alphas, "factored", tol=1e-5)
    along, points[:] = len(points), []
    for alpha, solution in zip(alphas, solutions, strict=True):
        independent_fit = solve(problem.at(alpha), "factored", tol=1e-5)
        assert solution.certificate.optimal
        assert abs(independent_fit.certificate.primal - solution.certificate.primal) <= independent_fit.gap + solution.gap
    assert along < 0.8 * len(points)


@pytest.mark.parametrize(("left", "goes"), [(1.0, False), (0.9, False), (0.5, True)])
def test_small_columns_go_where_the_dual_says_so_and_a_step_takes_most_of_them(left, goes):
    problem = problem_of(alpha=1e4)  # so strong that the dual wants every direction to vanish
    walk, (data, _) = newton_of(problem), problem.design.stacked_tasks
    Q = np.eye(problem.n_features)[:, :3] * [1.0, 0.9, 0.1]
    walk.here = point_of(data, Q, problem.alpha)
    whole, trimmed = walk._trimmed(Q * [1.0, 1.0, left], keep_columns=False)
    assert whole.shape[1] == 3
    assert trimmed.shape[1] == (2 if goes else 3)
    assert walk._trimmed(Q * [1.0, 1.0, left], keep_columns=True)[1].shape[1] == 3  # just found: not judged yet


@pytest.mark.parametrize("columns", ["independent", "alike", "constant"])
def test_long_tasks_are_known_by_their_products(columns):
    """The same value, gradient and answers as from the rows, in both precisions and along any directions."""
    rng = np.random.default_rng(0)
    X, y, Q, U = rng.normal(size=(3, 40, 5)), rng.normal(size=(3, 40)), rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    if columns == "alike":  # as far as products can tell
        X[1, :, 3] = X[1, :, 2] + 1e-9 * X[1, :, 3]
    if columns == "constant":
        X[1:, :, 2] = 0.0
    G = X.transpose(0, 2, 1) @ X
    size = np.einsum("bii->b", G) / 5
    short = Grams(G, np.einsum("bmr,bm->br", X, y), np.square(y).sum(axis=1), size, slice(None))
    whole = Stack(X, y, size, slice(None))
    here, there = point_of([short], Q, 0.3), point_of([whole], Q, 0.3)
    assert np.isclose(here.value, there.value, rtol=1e-12)
    assert np.allclose(here.gradient, there.gradient, rtol=1e-10, atol=1e-10)
    step = rng.normal(size=Q.shape)
    assert np.allclose(here.hessian(step), there.hessian(step), rtol=1e-9, atol=1e-9)
    assert np.allclose(here.metric(step), there.metric(step), rtol=1e-9)
    assert np.allclose(short.moments_along(U), whole.moments_along(U), rtol=1e-10, atol=1e-10)
    assert np.allclose(short.G, whole.moments_along(np.eye(whole.X.shape[2])), rtol=1e-10, atol=1e-10)
    for one, other in ((here, short), (there, whole)):
        light = one.with_tasks(one.tasks.in_precision_of([other.single()]))
        answer = light.hessian(step.astype(np.float32))
        assert answer.dtype == np.float32
        assert np.allclose(answer, one.hessian(step), rtol=1e-3, atol=1e-3 * np.abs(answer).max())


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_long_tasks_give_what_the_naive_twin_gives(fit_intercept):
    problem = problem_of((40, 90, 4, 200, 35), 5, fit_intercept=fit_intercept)
    (data, _), rng = problem.design.stacked_tasks, np.random.default_rng(1)
    assert [type(block) for block in data] == [Stack, Grams]
    Q, other = rng.normal(size=(2, 5, 3))
    gain = point_of(data, Q, problem.alpha).value - point_of(data, other, problem.alpha).value
    assert np.isclose(gain, naive.projected_objective(problem, Q) - naive.projected_objective(problem, other), rtol=1e-9)
    problem = problem.at(0.05 * alpha_max(problem))
    quick, slow = solve(problem, "factored", tol=1e-9), solve(problem, "proximal", tol=1e-9, max_iter=5000)
    assert quick.certificate.optimal
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_units_and_directions_of_very_different_size_do_not_matter(scale):
    problem = problem_of((12,) * 20, 8)
    features = problem.features * np.array([1, 1, 1, 1, 1e-3, 1e-3, 1e-3, 1e3]) * scale
    problem = Problem(features, problem.observations, "squared", "trace", 1.0)
    problem = problem.at(0.01 * alpha_max(problem))
    assert solve(problem, "factored", tol=1e-7).certificate.optimal


def test_single_precision_gives_way_where_it_has_too_few_digits(monkeypatch):
    plain, certified = task_blocks.inverse_roots, []

    def picky(K, lift):
        if K.dtype == np.float32 and np.ndim(lift) == 0:  # a start, with a lift for each task, is never too close to singular
            certified.append(K)
            raise np.linalg.LinAlgError
        return plain(K, lift)

    problem = problem_of((15,) * 8, 10)
    problem = problem.at(0.01 * alpha_max(problem))
    assert blocks_module.single_precision(problem.design.stacked_tasks[0]) is None  # too few numbers to spare any traffic
    expected = solve(problem, "factored", tol=1e-9).certificate.primal
    monkeypatch.setattr(blocks_module, "MIN_ENTRIES_FOR_SINGLE_PRECISION", 0)
    monkeypatch.setattr(task_blocks, "inverse_roots", picky)
    again = Problem(problem.features, problem.observations, "squared", "trace", problem.alpha)
    assert np.isclose(solve(again, "factored", tol=1e-9).certificate.primal, expected, rtol=1e-8)
    assert len(certified) == 1


@pytest.mark.parametrize(("n_matrices", "n"), [(3, 7), (500, 4)])
def test_inverse_roots_one_by_one_and_all_at_once(n_matrices, n):
    X = np.random.default_rng(0).normal(size=(n_matrices, n, n + 3))
    K = X @ X.transpose(0, 2, 1)
    roots = task_blocks.inverse_roots(K.copy(), 0.5)
    assert np.allclose(roots.transpose(0, 2, 1) @ roots, np.linalg.inv(K + 0.5 * np.eye(n)), rtol=1e-10)
    assert task_blocks.inverse_roots(K.astype(np.float32), 0.5).dtype == np.float32


def test_roots_of_matrices_that_rounding_made_indefinite():
    x = np.random.default_rng(0).normal(size=(3, 1, 6))
    K = x.transpose(0, 2, 1) @ x - 1e-16 * np.eye(6)
    assert np.isfinite(task_blocks.inverse_roots(K, 0.0)).all()
    with pytest.raises(np.linalg.LinAlgError):
        task_blocks.inverse_roots(-np.ones((3, 6, 6)), 0.0)
    with pytest.raises(np.linalg.LinAlgError):
        task_blocks.inverse_roots(K.astype(np.float32) - np.float32(1e-6) * np.eye(6, dtype=np.float32), 0.0)


def test_a_second_dual_projection_brings_the_bound_closer_than_the_first():
    problem = make(20, 25, 0)[1]
    problem = problem.at(0.02 * alpha_max(problem))
    best, near = solve(problem, "factored", tol=1e-10), solve(problem, "factored", tol=1e-3)
    G = problem.dual_candidate(problem.loss.gradient(problem.observations.y, problem.predict(near.W, near.b)))
    short = [best.certificate.primal - problem.dual(G, near.W)]
    for k in range(2):
        G = project_dual_pair(problem, G, problem.correlate(G), near.W, lift=k == 0)[0]
        short.append(best.certificate.primal - problem.dual(G, near.W))
    assert short[0] > 10 * short[1] > 20 * short[2] > 0


@pytest.mark.parametrize("shape", [(6, 40, 9), (30, 12, 9)])
@pytest.mark.parametrize("structure", [structures.Trace(), structures.Clusters(n_clusters=3)])
def test_what_is_handed_back_is_the_best_structure_for_the_weights(structure, shape):
    d, n_tasks, n = shape
    problem = problem_of((n,) * n_tasks, d)
    problem = problem.with_structure(structure).at(0.1 * alpha_max(problem))
    solution = solve(problem, tol=1e-6)
    assert solution.solver in ("factored", "clusternewton")
    penalty, A = problem.best_penalty(solution.W)
    assert np.allclose(solution.A, A, rtol=1e-7, atol=1e-8 * np.abs(A).max())
    loss = problem.loss_term(problem.predict(solution.W, solution.b))
    assert np.isclose(solution.certificate.primal, loss + penalty, rtol=1e-12)


def test_a_tolerance_below_rounding_ends():
    assert solve(problem_of(), "factored", tol=0.0, max_iter=400).certificate.relative_gap < 1e-12


def test_a_path_starts_each_fit_from_the_last():
    problem = problem_of((15,) * 30, 12)
    top = alpha_max(problem)
    assert all(solution.certificate.optimal for solution in path(problem, top * np.logspace(0, -3, 8), tol=1e-7))


def test_a_start_that_is_nearly_enough_is_improved_by_newton_steps(monkeypatch):
    problem = problem_of((20,) * 30, 25, seed=3)

    def refuse(*_):
        raise AssertionError("proximal steps took over")

    monkeypatch.setattr(Proximal, "begin", refuse)
    strengths = alpha_max(problem) * np.geomspace(1, 1e-3, 30)[1:]
    assert all(solution.certificate.optimal for solution in path(problem, strengths, solver="factored", tol=1e-4))


@pytest.mark.parametrize("solver", ["alternating", "block", "factored", "proximal"])
def test_every_solver_takes_shared_inputs_that_are_reduced_for_others(solver):
    """The reduced problem has sparse features, which Newton on the factor does not take: it gets the problem as posed."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(60, 40))
    Y = X @ rng.normal(size=(40, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(60, 6))
    problem = Problem(X, Observations.from_wide(Y), "squared", "trace", 1.0)
    problem = problem.at(0.1 * alpha_max(problem))
    found, reference = solve(problem, solver, tol=1e-5, max_iter=5000), solve(problem, tol=1e-9)
    assert found.certificate.optimal, found.certificate.message
    assert abs(found.certificate.primal - reference.certificate.primal) <= found.gap + reference.gap


def test_it_takes_the_steps_that_a_problem_allows_and_says_what_it_needs():
    X, Y = np.eye(4), np.where(np.arange(8).reshape(4, 2) % 3 > 0, 1.0, -1.0)
    for options, kind in (
        ({}, SquaredLossRun),
        ({"loss": losses.Logistic()}, FittedTasksRun),
        ({"structure": structures.Frobenius()}, FactorRun),
        ({"ridge": 0.1}, FactorRun),
    ):
        problem = Problem(X, Y, alpha=0.01, **{"loss": losses.Squared(), "structure": structures.Trace(), **options})
        assert type(Factored().begin(problem, None, 1e-6)) is kind
        assert solve(problem, "factored", tol=1e-6).certificate.optimal
    with pytest.raises(ValueError, match="factored"):
        solve(Problem(X, Y, alpha=0.1, structure=structures.Clusters(2)), "factored")
    with pytest.raises(ValueError, match="forcing=2"):
        Factored(forcing=2)
    assert solve(problem_of(), tol=1e-4).solver == "factored"


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_rows_that_stay_in_place_give_what_copies_give(fit_intercept):
    design = problem_of((12,) * 4, 20, fit_intercept=fit_intercept).design
    (block,), _ = design.stacked_tasks
    rows, v = design.inputs.stacked, design.observations.weight.reshape(4, 12, 1)
    assert np.shares_memory(block.rows, design.features)
    centred = rows - (v * rows).sum(axis=1, keepdims=True) / v.sum(axis=1, keepdims=True) if fit_intercept else rows
    assert np.allclose(block.X, np.sqrt(v) * centred, rtol=1e-14, atol=1e-15)
    assert np.array_equal(block.single().X, block.X.astype(np.float32))
    assert block.shape == block.X.shape


@pytest.mark.parametrize("place", [0, 3, 6])
def test_the_place_of_the_task_column_does_not_matter(place):
    """All columns but the first or the last are a view of the table, and no table is changed by a fit."""
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(60, 6)), np.repeat(np.arange(10.0), 6)
    y = X[:, 0] * (1 + task) + rng.normal(size=60)
    table = np.insert(X, place, task, axis=1)
    before, one = table.copy(), MultiTaskRegressor(alpha=0.1, task_column=place).fit(table, y)
    other = MultiTaskRegressor(alpha=0.1, task_column=-1).fit(np.column_stack([X, task]), y)
    assert np.array_equal(table, before)
    assert np.allclose(one.coef_, other.coef_, rtol=1e-10, atol=1e-12)
