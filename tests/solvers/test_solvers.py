"""Every solver reaches the same certified value, says what it did, and stops when it is told to."""

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import zoo
from threadpoolctl import threadpool_info, threadpool_limits

from taskloom import Problem, alpha_max, losses, solve, solvers, structures
from taskloom.design import Observations
from taskloom.problem.dual_projection import project_dual
from taskloom.solvers import Alternating, Block, Factored, Proximal, path, strength_grid
from taskloom.solvers.record import MAX_STALLED_CERTIFICATES
from taskloom.solvers.reformulations import EigenbasisForm

LAYOUTS = ["shared", "own", "missing"]
PAIRS = [(loss, F) for i, loss in enumerate(zoo.LOSSES) for j, F in enumerate(zoo.STRUCTURES)]


def problem_of(loss, F, layout="own", alpha=0.03, **options):
    return Problem(*zoo.data(loss, layout), loss, F, alpha, **options)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("F", zoo.STRUCTURES, ids=zoo.name)
def test_auto_reaches_1e_8(F, layout):
    loss = zoo.LOSSES[(zoo.STRUCTURES.index(F) + LAYOUTS.index(layout)) % len(zoo.LOSSES)]
    tol = 1e-8 if loss.smooth else 1e-7
    solution = solve(problem_of(loss, F, layout), tol=tol)
    assert solution.certificate.status == "optimal", solution.certificate.message
    assert solution.certificate.relative_gap <= tol
    assert "solver" not in solution.certificate.message


@pytest.mark.parametrize(("loss", "F"), PAIRS, ids=lambda c: type(c).__name__)
def test_alternating_and_block_accept_every_pair_and_agree(loss, F):
    problem = problem_of(loss, F, "missing", ridge=0.01)
    found = [solve(problem, "auto", tol=1e-6)]
    steps, close = (30, 0.3) if F.iterative else (150, 3e-2)  # there every step is a search of its own: a few will do
    found += [solve(problem, solver, tol=1e-4, max_iter=steps) for solver in ("alternating", "block")]
    for one in found:
        assert one.certificate.relative_gap < close, one.certificate.message
        for other in found:
            slack = max(one.gap, other.gap) + 1e-9
            assert abs(one.certificate.primal - other.certificate.primal) <= slack


@pytest.mark.parametrize("solver", ["alternating", "block", "factored", "proximal"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic()], ids=zoo.name)
def test_every_solver_reaches_the_rank_deficient_optimum(solver, layout, loss):
    solution = solve(problem_of(loss, structures.Trace(), layout), solver, tol=1e-6, max_iter=3000)
    assert solution.certificate.optimal, solution.certificate.message


@pytest.mark.parametrize("alpha", [1e-3, 1e-1])
@pytest.mark.parametrize("F", [structures.UnitTrace(), structures.Trace()], ids=zoo.name)
@pytest.mark.parametrize("shape", [(60, 8, 6), (60, 6, 12)])
def test_block_reaches_a_low_rank_optimum_under_a_nonsmooth_loss(F, shape, alpha):
    """Its structure froze rotations of the weights: the gap stayed at 1e-4 for hundreds of steps, and stalled at 1e-5."""
    rng, (n, d, n_tasks) = np.random.default_rng(0), shape
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, 2)) @ rng.normal(size=(2, n_tasks)) + 0.7 * rng.normal(size=(n, n_tasks))
    Y = np.where(rng.random(scores.shape) < 0.3, np.nan, np.sign(scores))
    problem = Problem(X, Y, losses.Hinge(), F, alpha)
    solution = solve(problem, "block", tol=1e-6, max_iter=2000)
    assert solution.certificate.optimal, solution.certificate.message
    assert len(solution.history) <= 1500
    other = solve(problem, tol=1e-6)
    assert abs(solution.certificate.primal - other.certificate.primal) <= max(solution.gap, other.gap)


@pytest.mark.parametrize("solver", ["alternating", "proximal", "factored", "block"])
@pytest.mark.parametrize("F", [structures.Frobenius(), structures.Clusters(2), structures.LogDet(0.3)], ids=zoo.name)
def test_every_solver_reaches_1e_8_where_the_optimum_has_full_rank(solver, F):
    problem = problem_of(losses.Squared(), F)
    if Factored().accepts(problem) is not None and solver == "factored":
        with pytest.raises(ValueError, match="ignores zero eigenvalues"):
            solve(problem, solver)
        return
    solution = solve(problem, solver, tol=1e-8, max_iter=2000)
    assert solution.certificate.optimal, solution.certificate.message


@pytest.mark.parametrize("loss", [loss for loss in zoo.LOSSES if not loss.smooth], ids=zoo.name)
def test_nonsmooth_losses_reach_the_accuracy_of_smooth_ones(loss):
    for F in (structures.Trace(), structures.Frobenius(), structures.Clusters(2)):
        assert solve(problem_of(loss, F), tol=1e-8).certificate.optimal


def test_history_is_a_record_of_a_closing_bracket():
    solution = solve(problem_of(losses.Squared(), structures.Trace()), "block", tol=1e-6)
    history = solution.history.as_dict()
    assert set(history) == {"iteration", "objective", "dual", "gap", "seconds"}
    assert np.array_equal(history["iteration"], np.arange(1, len(history["gap"]) + 1))
    for column, sign in (("objective", -1), ("dual", 1), ("gap", -1), ("seconds", 1)):
        assert np.all(sign * np.diff(history[column]) >= 0), column
    assert np.allclose(history["gap"], history["objective"] - history["dual"])
    assert history["gap"][-1] == solution.gap


def test_the_solution_attains_what_the_certificate_says():
    for loss, F in [
        (losses.Squared(), structures.Trace()),
        (losses.Hinge(), structures.Sparse(0.2)),
        (losses.Huber(), structures.LogDet()),
    ]:
        problem = problem_of(loss, F, ridge=0.01)
        s = solve(problem, tol=1e-7)
        assert np.isclose(problem.primal(s.W, s.b, s.A), s.certificate.primal, rtol=1e-9)
        assert s.certificate.dual - 1e-9 <= problem.dual(s.G, s.W, s.A) + 1e-6 * problem.scale
        assert np.isclose(s.certificate.gap, s.certificate.primal - s.certificate.dual)
        assert np.isclose(s.certificate.relative_gap, s.certificate.gap / problem.scale)


def test_too_few_iterations_end_with_advice():
    certificate = solve(problem_of(losses.Squared(), structures.Trace()), "alternating", tol=1e-10, max_iter=3).certificate
    assert certificate.status == "max_iter"
    assert not certificate.optimal
    for words in ("max_iter=3", f"{certificate.relative_gap:.1e}", "Raise max_iter"):
        assert words in certificate.message


def test_a_time_limit_keeps_the_best_iterate():
    problem = problem_of(losses.Hinge(), structures.Sparse(0.3))
    began = time.perf_counter()
    solution = solve(problem, tol=0.0, max_iter=10**6, time_limit=0.2)
    assert time.perf_counter() - began < 5
    assert solution.certificate.status == "time_limit"
    assert solution.certificate.relative_gap < 1


@pytest.fixture
def two_threads():
    """BLAS with two threads, so that a limit that stays behind can be seen."""
    with threadpool_limits(limits=2, user_api="blas"):
        yield lambda: [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize("after", [0, 1, 5])
def test_ctrl_c_keeps_the_best_iterate_and_restores_threads(after, monkeypatch, two_threads):
    problem = problem_of(losses.Squared(), structures.Trace())
    before, steps = two_threads(), []
    original = Problem.dual_candidate

    def interrupt(self, gradients):
        steps.append(two_threads())
        if len(steps) == after + 1:
            raise KeyboardInterrupt
        return original(self, gradients)

    monkeypatch.setattr(Problem, "dual_candidate", interrupt)
    solution = solve(problem, "proximal", tol=1e-12)
    assert solution.certificate.status == "interrupted"
    assert "Interrupted" in solution.certificate.message
    assert np.isfinite(solution.certificate.gap)
    assert 2 in before
    assert set(steps[0]) == {1}
    assert two_threads() == before


def test_threads_are_restored_after_an_error(monkeypatch, two_threads):
    before = two_threads()
    monkeypatch.setattr(Problem, "dual_candidate", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        solve(problem_of(losses.Squared(), structures.Trace()))
    assert two_threads() == before


def test_concurrent_fits_restore_threads_after_the_last_one(two_threads):
    problem = problem_of(losses.Squared(), structures.Trace())
    before, alone = two_threads(), solve(problem, tol=1e-8)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: solve(problem, tol=1e-8), range(8)))
    assert all(np.array_equal(solution.W, alone.W) for solution in together)
    assert two_threads() == before


def test_a_callback_may_stop_the_fit():
    obs = []

    def callback(history):
        obs.append(history.gap[-1])
        return len(obs) == 4

    solution = solve(problem_of(losses.Squared(), structures.Trace()), "proximal", tol=1e-12, callback=callback)
    assert solution.n_iter == len(obs) == 4


def test_a_stuck_fit_says_so():
    solution = solve(problem_of(losses.Squared(), structures.Frobenius(), "shared"), "alternating", tol=0.0, max_iter=10**5)
    assert solution.n_iter < 10**4 + MAX_STALLED_CERTIFICATES
    assert solution.certificate.status in ("stalled", "optimal")


def test_fits_are_deterministic_and_do_not_depend_on_the_order_of_rows():
    X, Y = zoo.data(losses.Logistic(), "missing")
    first = solve(Problem(X, Y, "logistic", "trace", 0.02), tol=1e-9)
    again = solve(Problem(X, Y, "logistic", "trace", 0.02), tol=1e-9)
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = solve(Problem(X[order], Y[order], "logistic", "trace", 0.02), tol=1e-9)
    rotation = np.linalg.qr(np.random.default_rng(1).normal(size=(X.shape[1],) * 2))[0]
    rotated = solve(Problem(X @ rotation, Y, "logistic", "trace", 0.02), tol=1e-9)
    assert np.array_equal(first.W, again.W)
    assert np.allclose(first.W, shuffled.W, atol=1e-7)
    assert np.allclose(first.W, rotation @ rotated.W, atol=1e-7)


def test_a_warm_start_saves_iterations():
    problem = problem_of(losses.Squared(), structures.Trace())
    cold = solve(problem, "proximal", tol=1e-8)
    warm = solve(replace(problem, alpha=0.98 * problem.alpha), "proximal", tol=1e-8, start=(cold.W, cold.b))
    assert warm.certificate.optimal
    assert warm.n_iter < cold.n_iter


class TestAlgorithm1AsPrinted:
    """``Alternating(delta=, A0=, stop="change")`` is the paper's algorithm, step by step."""

    def test_its_iterates(self):
        problem = problem_of(losses.Squared(), structures.Frobenius(), "shared", fit_intercept=False)
        delta, A = 1e-2, np.eye(zoo.T)
        solver = Alternating(delta=delta, A0=np.eye(zoo.T), stop="change")
        for n_iter in (1, 2, 5):
            A = np.eye(zoo.T)
            for _ in range(n_iter):  # supervised and unsupervised step, in three lines of textbook algebra
                K, v = problem.features @ problem.features.T, problem.observations.weight[0]
                Y = problem.observations.y.reshape(zoo.T, -1).T
                C = (
                    np.linalg.solve(
                        np.kron(np.eye(zoo.T), K) + problem.alpha / v * np.kron(np.linalg.inv(A), np.eye(len(K))), Y.T.ravel()
                    )
                    .reshape(zoo.T, -1)
                    .T
                )
                M = problem.alpha * (C.T @ K @ C + delta**2 * np.eye(zoo.T))
                m, V = np.linalg.eigh(M)
                A = (V * (m / 2) ** (1 / 3)) @ V.T
            W = solve(problem, solver, tol=0.0, max_iter=n_iter).W
            assert np.allclose(W, problem.features.T @ C, atol=1e-9)

    def test_it_stops_on_the_change_and_says_that_this_proves_nothing(self):
        problem = problem_of(losses.Squared(), structures.Trace(), "shared")
        solution = solve(problem, Alternating(delta=1e-8, A0=np.eye(zoo.T), stop="change"), tol=1e-5, max_iter=10**4)
        assert solution.certificate.status == "change"
        assert "proves nothing" in solution.certificate.message
        assert solution.certificate.relative_gap > 1e-5  # satisfied, and still off: what the certificate is for

    def test_it_declines_a_nonsmooth_loss(self):
        with pytest.raises(ValueError, match="smooth loss"):
            solve(problem_of(losses.Hinge(), structures.Trace()), Alternating(stop="change"))


def test_block_with_first_order_steps_on_both_blocks():
    """Part (b) of the corollary as it is printed: a proximal gradient step on the structure too."""
    problem = problem_of(losses.Squared(), structures.Frobenius())
    solution = solve(problem, Block(structure_step="gradient", delta=1e-4, memory=0), tol=1e-3, max_iter=3000)
    assert solution.certificate.optimal, solution.certificate.message


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Alternating(delta=-1), "delta=-1"),
        (lambda: Alternating(stop="soon"), "soon"),
        (lambda: Alternating(memory=-1), "memory=-1"),
        (lambda: Block(structure_step="x"), "structure_step"),
        (lambda: Factored(memory=0), "memory=0"),
        (lambda: Proximal(look_back=0), "look_back=0"),
        (lambda: solve(problem_of(losses.Squared(), structures.Trace()), "newton"), "'newton'"),
        (lambda: solve(problem_of(losses.Squared(), structures.Trace()), tol=-1), "tol=-1"),
        (lambda: solve(problem_of(losses.Squared(), structures.Trace()), max_iter=0), "max_iter=0"),
        (lambda: solve(problem_of(losses.Squared(), structures.Trace()), Alternating(A0=np.eye(2))), "A0"),
    ],
)
def test_nonsense_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "F", [structures.Trace(), structures.Clusters(1), structures.LogDet(), structures.Sparse()], ids=zoo.name
)
@pytest.mark.parametrize("loss", [losses.Squared(), losses.Hinge()], ids=zoo.name)
def test_degenerate_data(F, loss):
    """One task, one observation a task, repeated rows, an all-zero kernel: a certified answer each time."""
    rng = np.random.default_rng(0)
    y = zoo.targets(loss, rng, 6)
    y[:2] = 1.0, -1.0
    single = np.full((6, 3), np.nan)
    single[[0, 1, 2], [0, 1, 2]] = 1.0, -1.0, 1.0
    cases = {
        "one task": (rng.normal(size=(6, 3)), y[:, None]),
        "one observation a task": (rng.normal(size=(6, 3)), single),
        "repeated rows": (np.ones((6, 3)), np.column_stack([y, y])),
        "zero kernel": (np.zeros((6, 3)), np.column_stack([y, -y])),
        "rank one": (np.outer(rng.normal(size=6), np.ones(4)), np.column_stack([y, -y])),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, (X, Y) in cases.items():
            for fit_intercept in (True, False):
                solution = solve(Problem(X, Y, loss, F, 0.01, 0.0, fit_intercept), tol=1e-6)
                assert solution.certificate.relative_gap <= 1e-6 or solution.gap <= 1e-9, (name, solution.certificate)
                assert np.all(np.isfinite(solution.W)), name


def wide_problem(F, alpha=0.02, intercept=True, task_weight="equal"):
    """Shared inputs with enough features to be reduced, far from zero."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 40)) + 5
    Y = X @ rng.normal(size=(40, 2)) @ rng.normal(size=(2, zoo.T)) + rng.normal(size=(60, zoo.T))
    return Problem(X, Observations.from_wide(Y, task_weight=task_weight), "squared", F, alpha, 0.01, intercept)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("F", zoo.STRUCTURES, ids=zoo.name)
def test_the_reduced_problem_is_the_problem(F, intercept, monkeypatch):
    """Rotated, centred and freed of what does not change, it has the same minimum; and the certificate is the original's."""
    posed = wide_problem(F, intercept=intercept, task_weight=np.arange(1.0, zoo.T + 1))
    assert EigenbasisForm.of(posed) is not None
    quick = solve(posed, tol=1e-8)
    monkeypatch.setattr(EigenbasisForm, "applies", lambda problem, inside=False: False)
    plain = wide_problem(F, intercept=intercept, task_weight=np.arange(1.0, zoo.T + 1))
    slow = solve(plain, tol=1e-8)
    assert quick.certificate.optimal
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap
    assert np.isclose(plain.primal(quick.W, quick.b, quick.A), quick.certificate.primal, rtol=1e-9)
    # A structure that searches for its proof may find a slightly different one the second time.
    slack = quick.gap if F.iterative else 0.0
    assert np.isclose(plain.dual(quick.G, quick.W, quick.A), quick.certificate.dual, rtol=1e-9, atol=slack)


def test_a_tolerance_finer_than_the_reduction_goes_on_with_the_problem_itself():
    solution = solve(wide_problem(structures.Frobenius()), tol=1e-13)
    assert solution.certificate.relative_gap <= 1e-12


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_a_dual_projection_is_a_true_bound_and_a_better_one(layout, ridge):
    """Near the optimum: still balanced over every task, below the minimum, and closer to it than the shrunk candidate."""
    problem = problem_of(losses.Squared(), structures.Trace(), layout, ridge=ridge)
    best = solve(problem, tol=1e-9)
    rng, gains = np.random.default_rng(0), []
    for _ in range(20):
        W = best.W + 1e-2 * np.abs(best.W).max() * rng.normal(size=best.W.shape)
        gradients = problem.loss.gradient(problem.observations.y, problem.predict(W, best.b))
        G = problem.dual_candidate(gradients)
        better = project_dual(problem, G, problem.correlate(G), W)
        if better is None:
            continue
        assert np.abs(problem.observations.sum_by_task(better)).max() <= 1e-12 * np.abs(better).max()
        bound = problem.dual(better, W)
        assert bound <= best.certificate.primal + 1e-12
        gains.append(bound - problem.dual(G, W))
    assert len(gains) >= 5
    assert np.median(gains) > 0


@pytest.mark.parametrize("F", [structures.Trace(), structures.Frobenius(), structures.Clusters(2)], ids=zoo.name)
def test_a_path_is_what_single_solves_give_and_cheaper(F):
    problem = problem_of(losses.Squared(), F, "own")
    alphas = strength_grid(problem, 12)
    assert np.all(np.diff(alphas) < 0)
    walked = path(problem, alphas, tol=1e-7)
    alone = [solve(problem.at(alpha), tol=1e-7) for alpha in alphas]
    for one, other in zip(walked, alone, strict=True):
        assert one.certificate.optimal
        assert abs(one.certificate.primal - other.certificate.primal) <= one.gap + other.gap
    assert sum(s.n_iter for s in walked) <= sum(s.n_iter for s in alone)


def test_the_first_strength_of_a_grid_gains_next_to_nothing():
    for F in zoo.STRUCTURES:
        problem = problem_of(losses.Squared(), F, "missing")
        there = problem.at(strength_grid(problem, 3)[0])
        nothing, _ = there.best_primal(np.zeros((there.n_features, there.n_tasks)), there.best_constants)
        gain = (nothing - solve(there, tol=1e-6).certificate.dual) / there.scale
        assert gain <= 0.0101
        assert gain >= 1e-4 or np.isfinite(alpha_max(problem))


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3])
def test_tasks_with_one_observation_and_targets_of_zero(alpha):
    """What leaves a task without any room to move, or the structure without any direction, is solved like the rest."""
    rng = np.random.default_rng(0)
    X, row = rng.normal(size=(13, 4)), np.arange(13)
    lonely = Observations.build(row, np.array([0] * 6 + [1] * 6 + [2]), rng.normal(size=13), 3)
    silent = Observations.build(row[:12], np.repeat([0, 1, 2], 4), np.zeros(12), 3)
    for obs in (lonely, silent):
        assert solve(Problem(X[: obs.y.size], obs, "squared", "trace", alpha), tol=1e-8).certificate.optimal


@pytest.mark.parametrize("small", [1e-6, 1e-3, 1e-2])
def test_everything_vanishes_under_a_nonsmooth_loss_where_it_should(small):
    """One task without an intercept, in closed form; a target near its kink must not be taken for one on it."""
    X, y = np.array([[1.0], [1.0], [-1.0], [2.0]]), np.array([[small], [2.0], [-3.0], [0.5]])
    problem = Problem(X, y, loss="absolute", structure="trace", fit_intercept=False)
    exact = float(np.linalg.norm(X.T @ np.sign(y) / 4) ** 2 / 4)
    assert np.isclose(alpha_max(problem), exact, rtol=1e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("loss", ["absolute", "epsilon_insensitive", "quantile", "hinge"])
def test_nothing_is_learned_above_the_largest_strength_of_nonsmooth_losses(loss, fit_intercept):
    for seed in range(4):
        deep = np.random.default_rng(seed)
        X = deep.normal(size=(25, 4))
        Y = X @ deep.normal(size=(4, 3)) + deep.normal(size=(25, 3))
        problem = Problem(X, np.sign(Y) if loss == "hinge" else Y, loss=loss, structure="trace", fit_intercept=fit_intercept)
        top = alpha_max(problem)
        for share, vanishes in ((1.0005, True), (0.5, False)):
            there = problem.at(share * top)
            constants = there.best_constants if fit_intercept else np.zeros(3)
            nothing, _ = there.best_primal(np.zeros((4, 3)), constants)
            gained = nothing - solve(there, tol=1e-8, max_iter=300).certificate.primal
            assert gained <= 1e-7 if vanishes else gained > 1e-6


def test_set_params_that_fails_changes_nothing():
    """Whatever it fails with."""
    solver = solvers.Alternating()
    with pytest.raises(TypeError):
        solver.set_params(memory="x")
    assert solver.memory == solvers.Alternating().memory
