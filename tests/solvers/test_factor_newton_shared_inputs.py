"""Newton's method on shared inputs: a table with gaps and one without, against naive twins and proximal steps."""

import naive
import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import Problem, alpha_max, solve
from taskloom._array_api import left_vectors
from taskloom.design import Observations
from taskloom.design import table_with_gaps as table_block
from taskloom.design.input_spectrum import InputSpectrum
from taskloom.design.stacked_inputs import single_precision
from taskloom.design.table_with_gaps import TableWithGaps
from taskloom.engines.local import LocalEngine
from taskloom.solvers.auto import as_solver
from taskloom.solvers.factor.newton import Point, anisotropic_metric

N, D, T = 40, 12, 5


def gaps(missing=0.4, d=D, fit_intercept=True, seed=0, repeated=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, d)) * 0.7 ** np.arange(d) + 0.3
    Y = X @ rng.normal(size=(d, 2)) @ rng.normal(size=(2, T)) + 0.3 * rng.normal(size=(N, T)) + 1
    row, task = np.nonzero(rng.random(Y.shape) >= missing)
    if repeated:  # some targets were seen twice, and not alike
        row, task = np.append(row, row[:7]), np.append(task, task[:7])
    y = Y[row, task] + 0.1 * rng.normal(size=row.size)
    obs = Observations.build(row, task, y, T, sample_weight=rng.uniform(0.5, 2, size=row.size))
    return Problem(X, obs, "squared", "trace", 0.02, fit_intercept=fit_intercept)


def point_of(data, Q, alpha):
    return Point(LocalEngine(data, alpha).eliminate(Q), Q, alpha)


@pytest.mark.parametrize("repeated", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("q", [2, T])
def test_a_table_is_what_the_naive_twin_is(q, fit_intercept, repeated):
    problem, rng = gaps(fit_intercept=fit_intercept, repeated=repeated), np.random.default_rng(1)
    data = [TableWithGaps.of(problem.design)]
    Q, step = rng.normal(size=(2, D, q))
    naive.check_point(problem, lambda Q: point_of(data, Q, problem.alpha), Q, step)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_table_is_what_blocks_of_tasks_are(fit_intercept):
    problem, rng = gaps(fit_intercept=fit_intercept), np.random.default_rng(2)
    table, (data, spread) = TableWithGaps.of(problem.design), problem.design.stacked_tasks
    order = np.concatenate([np.atleast_1d(np.arange(T)[block.tasks]) for block in data])
    Q, step, U = (rng.normal(size=(D, q)) for q in (3, 3, 4))
    one, other = point_of([table], Q, 0.1), point_of(data, Q, 0.1)
    assert np.isclose(one.value, other.value, rtol=1e-10)
    assert np.allclose(one.tasks.B[order], other.tasks.B, rtol=1e-8, atol=1e-10)
    assert np.allclose(one.tasks.Z[order], other.tasks.Z, rtol=1e-8, atol=1e-10)
    assert np.allclose(one.hessian(step), other.hessian(step), rtol=1e-8, atol=1e-9)
    assert np.allclose(table.squares[order], np.concatenate([block.squares for block in data]))
    moments = np.concatenate([block.moments_along(U) for block in data])
    assert np.allclose(table.moments_along(U)[order], moments, rtol=1e-9, atol=1e-12)
    assert np.isclose(table.spectrum.filled, spread.filled, rtol=1e-6)
    size = np.concatenate([block.size for block in data])
    assert np.allclose(table.size[order], size, rtol=1e-6)


def test_in_single_precision_a_table_answers_alike():
    problem, rng = gaps(), np.random.default_rng(3)
    table = TableWithGaps.of(problem.design)
    Q, step = rng.normal(size=(2, D, 3))
    here, single = point_of([table], Q, 0.1), table.single()
    answer = here.with_tasks(here.tasks.in_precision_of([single])).hessian(step.astype(np.float32))
    assert answer.dtype == np.float32
    assert np.allclose(answer, here.hessian(step), rtol=1e-3, atol=1e-3 * np.abs(answer).max())
    assert single.independent_fit(0.3).dtype == np.float32
    assert np.allclose(
        single.independent_fit(0.3), table.independent_fit(0.3), rtol=1e-3, atol=1e-3 * np.abs(table.independent_fit(0.3)).max()
    )
    assert single_precision([table]) is None  # too few numbers to spare any traffic


@pytest.mark.parametrize("turned", [True, False])
def test_the_metric_is_a_kronecker_sum_inverted(turned):
    rng = np.random.default_rng(4)
    roots = rng.normal(size=(50, D)) * 0.5 ** np.arange(D)
    moments = roots.T @ roots if turned else np.diag(0.5 ** np.arange(D))
    spread = InputSpectrum.of(moments)
    K, pull = (M @ M.T + np.eye(3) for M in rng.normal(size=(2, 3, 3)))
    naive_twin = np.kron(np.eye(D), K) + np.kron(moments * (spread.filled / np.trace(moments)), pull)
    gradient = rng.normal(size=(D, 3))
    found = anisotropic_metric(K, pull, spread)(gradient)
    assert np.allclose(found, np.linalg.solve(naive_twin, gradient.ravel()).reshape(D, 3), rtol=1e-8, atol=1e-10)
    assert not spread.even
    assert InputSpectrum.of(np.eye(D)).even
    assert np.allclose(InputSpectrum.of(np.eye(D)).variances, 1)
    assert np.isfinite(InputSpectrum.of(np.zeros((D, D))).variances).all()


@pytest.mark.parametrize("decay", [1.0, 0.9])
def test_few_products_tell_whether_inputs_are_even(decay):
    d = 60
    roots = np.random.default_rng(5).normal(size=(600, d)) * decay ** np.arange(d)
    moments = roots.T @ roots
    exact = InputSpectrum.of(moments)
    for parts in ([roots], []), ([], [moments]), ([roots[:100]], [roots[100:].T @ roots[100:]]):
        probed = InputSpectrum.probed(np.trace(moments), *parts)
        assert probed.even == exact.even == (decay == 1)
        assert (probed.moments is None) == (decay == 1)  # all of them were not asked for
        assert np.isclose(probed.filled, exact.filled, rtol=0.1)
    assert InputSpectrum.probed(0.0, [], [0 * moments]).even == InputSpectrum.of(0 * moments).even


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("share", [1.1, 0.1, 1e-3, 1e-5])
def test_tables_reach_what_proximal_steps_reach(share, fit_intercept, monkeypatch):
    monkeypatch.setattr(table_block, "MIN_ENTRIES_FOR_TABLE", 0)
    problem = gaps(fit_intercept=fit_intercept)
    assert TableWithGaps.suits(problem.design)
    problem = problem.at(share * alpha_max(problem))
    quick, slow = solve(problem, "factored", tol=1e-8), solve(problem, "proximal", tol=1e-8, max_iter=20_000)
    assert quick.certificate.optimal, quick.certificate.message
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap


@pytest.mark.parametrize("form", ["dense", "sparse", "few features"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("share", [1.1, 0.1, 1e-3, 1e-6])
def test_shared_inputs_reach_what_proximal_steps_reach(share, fit_intercept, form):
    rng, d = np.random.default_rng(5), 8 if form == "few features" else 45
    X = rng.normal(size=(60, d)) * 0.8 ** np.arange(d) + 1
    Y = X @ rng.normal(size=(d, 3)) @ rng.normal(size=(3, 9)) + rng.normal(size=(60, 9))
    obs = Observations.from_wide(Y, sample_weight=rng.uniform(0.5, 2, 60), task_weight=np.arange(1.0, 10))
    features = csr_array(X) if form == "sparse" else X
    problem = Problem(features, obs, "squared", "trace", 1.0, fit_intercept=fit_intercept)
    problem = problem.at(share * alpha_max(problem))
    quick, slow = solve(problem, "factored", tol=1e-8), solve(problem, "proximal", tol=1e-8, max_iter=20_000)
    assert quick.certificate.optimal, quick.certificate.message
    assert quick.n_iter <= 20
    assert abs(quick.certificate.primal - slow.certificate.primal) <= quick.gap + slow.gap
    assert np.isclose(problem.primal(quick.W, quick.b, quick.A), quick.certificate.primal, rtol=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_a_smooth_kernel_at_a_tiny_strength_takes_few_steps(missing):
    """Inputs whose directions differ by many orders of magnitude: it took a thousand rounds of steps, and did not arrive."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(150, 5))
    Y = np.sin(X @ rng.normal(size=(5, 4))) @ rng.normal(size=(4, 7)) + 0.3 * rng.normal(size=(150, 7))
    Y[rng.random(Y.shape) < missing] = np.nan
    k, U = np.linalg.eigh(rbf_kernel(X, gamma=0.02))
    problem = Problem(U * np.sqrt(np.maximum(k, 0)), Y)
    for share in (1e-2, 1e-4, 1e-6):
        fit = solve(problem.at(share * alpha_max(problem)), tol=1e-5, max_iter=75)
        assert fit.solver == "factored"
        assert fit.certificate.optimal, fit.certificate.message


def test_nothing_in_the_inputs():
    for X in (np.zeros((6, 3)), csr_array((6, 3)), np.ones((6, 40))):
        fit = solve(Problem(X, np.random.default_rng(7).normal(size=(6, 4))), tol=1e-8)
        assert fit.certificate.optimal
        assert not np.any(fit.W)


def test_auto_knows_where_tables_suit():
    rng = np.random.default_rng(8)
    X, Y = rng.normal(size=(300, 200)), rng.normal(size=(300, 20))
    full = Problem(X, Y.copy())
    Y[rng.random(Y.shape) < 0.5] = np.nan
    some = Problem(X, Y)
    assert TableWithGaps.suits(some)
    tall = rng.normal(size=(4000, 54))
    assert not TableWithGaps.suits(Problem(tall[:, :50], tall[:, 50:]))  # products of the tasks' own are smaller
    assert not TableWithGaps.suits(Problem(X[:40, :20], Y[:40]))
    Y[rng.random(Y.shape) < 0.7] = np.nan
    assert not TableWithGaps.suits(Problem(X, Y))  # tasks of their own have fewer rows by far
    assert {as_solver("auto", each).name for each in (full, some, Problem(X, Y))} == {"factored"}


def test_left_vectors_of_directions_that_are_not_there_are_finite():
    """In single precision, one over the root of the least number of double precision is infinite: a warning, and no number."""
    M = np.zeros((9, 3), dtype=np.float32)
    M[:, 0] = 1
    squares, U = left_vectors(M)
    assert np.allclose(squares, [0, 0, 9])
    assert np.isfinite(U).all()
    assert np.allclose(np.abs(U[:, -1]), 1 / 3)
