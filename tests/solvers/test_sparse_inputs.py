"""Sparse inputs give the same answers as dense ones, and are never made dense on the way."""

import tracemalloc
import warnings

import numpy as np
import pytest
import zoo
from scipy import sparse
from scipy.sparse import csr_array, hstack
from scipy.sparse import random as sparse_random
from sklearn.gaussian_process.kernels import RBF

from taskloom import MultiTaskRegressor, Problem, alpha_max, losses, path, solve, structures
from taskloom._linalg import psd_root
from taskloom.design import Observations
from taskloom.features import kernels as features
from taskloom.features.kernels import LinearFeatures, build_features
from taskloom.solvers.supervised.newton_systems import SparseColumns
from taskloom.solvers.supervised.sides import FeatureSide, TaskSide

rng = np.random.default_rng(0)


LOSSES = [losses.Squared(), losses.Logistic(), losses.Huber(0.7), losses.Hinge()]
SMOOTH = [loss for loss in LOSSES if loss.smooth]
STRUCTURES = [
    structures.Trace(),
    structures.Frobenius(),
    structures.Clusters(2),
    structures.SharedMean(2.0),
    structures.Independent(),
]
SHAPES = {"tall": (20, 5), "wide": (8, 10)}
FORMATS = [sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix, sparse.lil_array]


@pytest.fixture(autouse=True)
def as_if_large(monkeypatch):
    """Small sparse matrices are made dense; here they are treated as large ones are."""
    monkeypatch.setattr(features, "SMALL", 0)


def thin(X, seed=3):
    """Most entries set to zero, none of the columns centred."""
    return np.where(np.random.default_rng(seed).random(X.shape) < 0.4, X + 0.5, 0.0)


def data(loss, layout, shape="tall"):
    n, d = SHAPES[shape]
    X, Y = zoo.data(loss, layout, n=n, d=d)
    return thin(X), Y


def many_rows(n=60_000, d=1000, n_tasks=3, signs=False):
    """Inputs with three entries a row: 480 MB if they were dense, 2 MB as they are."""
    rng = np.random.default_rng(0)
    place = np.repeat(np.arange(n), 3), rng.integers(0, d, size=3 * n)
    X = sparse.csr_array((rng.normal(size=3 * n), place), shape=(n, d))
    Y = X @ rng.normal(size=(d, n_tasks)) + rng.normal(size=(n, n_tasks))
    return X, np.where(Y > 0, 1.0, -1.0) if signs else Y


def peak_megabytes(run):
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


# --- whole fits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["shared", "missing"])
@pytest.mark.parametrize("F", STRUCTURES, ids=zoo.name)
@pytest.mark.parametrize("loss", LOSSES, ids=zoo.name)
def test_a_sparse_fit_is_the_dense_one(loss, F, layout, shape):
    X, Y = data(loss, layout, shape)
    tol = 1e-8 if loss.smooth else 1e-7
    dense, thinned = (solve(Problem(M, Y, loss, F, 0.1), tol=tol) for M in (X, sparse.csr_array(X)))
    assert dense.certificate.optimal, dense.certificate.message
    assert thinned.certificate.optimal, thinned.certificate.message
    assert abs(dense.certificate.primal - thinned.certificate.primal) <= max(dense.gap, thinned.gap)


@pytest.mark.parametrize("solver", ["alternating", "factored", "proximal"])
@pytest.mark.parametrize("layout", ["shared", "own", "missing"])
@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic()], ids=zoo.name)
def test_every_solver_on_the_feature_side(solver, layout, loss):
    X, Y = zoo.data(loss, layout, d=3)
    X = thin(X)
    dense, thinned = (solve(Problem(M, Y, loss, "trace", 0.03, 0.01), solver, tol=1e-6) for M in (X, sparse.csr_array(X)))
    assert thinned.certificate.optimal, thinned.certificate.message
    assert abs(dense.certificate.primal - thinned.certificate.primal) <= max(dense.gap, thinned.gap)


def test_more_columns_than_rows_by_way_of_the_kernel():
    X, Y = data(losses.Logistic(), "missing", "wide")
    found = []
    for M in (X, sparse.csr_array(X)):
        features = LinearFeatures(M)
        solution = solve(Problem(features.phi, Y, "logistic", "trace", 0.02), tol=1e-10)
        found.append(features.coef(solution.W))
    assert found[1].shape == (X.shape[1], zoo.T)
    assert np.allclose(*found, atol=1e-5)


def test_a_path_of_strengths_with_warm_starts():
    X, Y = data(losses.Huber(0.7), "missing")
    problems = [Problem(M, Y, "huber", "trace", ridge=0.01) for M in (X, sparse.csr_array(X))]
    for one, other in zip(*(path(problem, [0.3, 0.1, 0.03], tol=1e-7) for problem in problems), strict=True):
        assert abs(one.certificate.primal - other.certificate.primal) <= max(one.gap, other.gap)


@pytest.mark.parametrize("layout", ["shared", "missing"])
@pytest.mark.parametrize("loss", LOSSES, ids=zoo.name)
def test_everything_vanishes_at_the_same_strength(loss, layout):
    X, Y = data(loss, layout)
    dense, thinned = (alpha_max(Problem(M, Y, loss, "trace")) for M in (X, sparse.csr_array(X)))
    assert dense > 0
    assert np.isclose(dense, thinned, rtol=1e-6)
    above = solve(Problem(sparse.csr_array(X), Y, loss, "trace", 2 * thinned), tol=1e-6)
    assert above.certificate.optimal
    assert np.abs(above.W).max() < 1e-6


@pytest.mark.parametrize("F", [structures.Trace(), structures.Clusters(1)], ids=zoo.name)
@pytest.mark.parametrize("loss", [losses.Squared(), losses.Hinge()], ids=zoo.name)
def test_degenerate_data(F, loss):
    """No entry at all, a single row of it, one observation a task: a certified answer each time, without a warning."""
    rng = np.random.default_rng(0)
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    single = np.full((6, 3), np.nan)
    single[[0, 1, 2], [0, 1, 2]] = 1.0, -1.0, 1.0
    lone = np.zeros((6, 3))
    lone[2] = 1.0
    cases = [
        (np.zeros((6, 3)), np.column_stack([y, -y])),
        (lone, np.column_stack([y, -y])),
        (thin(rng.normal(size=(6, 3))), single),
        (thin(rng.normal(size=(6, 3))), y[:, None]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for X, Y in cases:
            for alpha in (0.01, 1e3):
                solution = solve(Problem(sparse.csr_array(X), Y, loss, F, alpha), tol=1e-6)
                assert solution.certificate.relative_gap <= 1e-6 or solution.gap <= 1e-9


# --- the supervised step --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("layout", ["shared", "own", "missing"])
@pytest.mark.parametrize("loss", SMOOTH, ids=zoo.name)
def test_both_sides_give_the_dense_step(loss, layout, fit_intercept):
    X, Y = zoo.data(loss, layout, d=9)
    X, rng = thin(X), np.random.default_rng(1)
    dense, thinned = (Problem(M, Y, loss, structures.Frobenius(), 0.2, 0.1, fit_intercept) for M in (X, sparse.csr_array(X)))
    roots = [(TaskSide, psd_root(zoo.random_psd(rng, rank))) for rank in (zoo.T, 2)]
    roots += [(FeatureSide, rng.normal(size=(9, q))) for q in (1, 5, 9)]
    for side, root in roots:
        one, other = side(dense).supervise(root), side(thinned).supervise(root)
        for name in ("W", "b", "z", "gradients", "Z", "norm"):
            assert np.allclose(getattr(one, name), getattr(other, name), atol=1e-7), (side, root.shape, name)


def test_a_large_task_keeps_its_inputs_sparse_and_a_narrow_metric_or_a_small_task_multiplies_them_out(monkeypatch):
    kept, gram = set(), SparseColumns.gram
    monkeypatch.setattr(SparseColumns, "gram", lambda self, h: kept.add(self) or gram(self, h))
    X, Y = zoo.data(losses.Logistic(), "shared", n=16, d=16)
    Y[3, 1] = np.nan
    side = FeatureSide(Problem(sparse.csr_array(thin(X)), Y, "logistic"))
    for q, expected in ((2, 0), (3, zoo.T), (15, zoo.T - 1), (16, 0)):
        kept.clear()
        side.supervise(np.eye(16, q))
        assert len(kept) == expected, q


def test_shared_inputs_with_weights():
    X, Y = data(losses.Squared(), "shared")
    rng = np.random.default_rng(1)
    obs = Observations.from_wide(Y, rng.uniform(0.5, 2, size=len(X)), rng.uniform(0.5, 2, size=zoo.T))
    dense, thinned = (Problem(M, obs).targets.shared_inputs for M in (X, sparse.csr_array(X)))
    for root in (psd_root(zoo.random_psd(rng)), psd_root(zoo.random_psd(rng, 2))):
        for one, other in zip(dense.on_tasks(root, 0.1), thinned.on_tasks(root, 0.1), strict=True):
            assert np.allclose(one, other, atol=1e-10)
    for Q in (rng.normal(size=(5, 5)), rng.normal(size=(5, 2))):
        for one, other in zip(dense.on_features(Q, 0.1), thinned.on_features(Q, 0.1), strict=True):
            assert np.allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("n_tasks", [3, 8])  # with eight, most places are empty: task by task
def test_predictions_and_correlations(n_tasks):
    rng = np.random.default_rng(0)
    X = thin(rng.normal(size=(40, 6)))
    for task in (np.arange(40) % n_tasks, np.arange(40) * n_tasks // 40):  # rows scattered, rows together
        Y = np.where(task[:, None] == np.arange(n_tasks), rng.normal(size=(40, n_tasks)), np.nan)
        dense, thinned = (Problem(M, Y) for M in (X, sparse.csc_matrix(X)))
        W, b, G = rng.normal(size=(6, n_tasks)), rng.normal(size=n_tasks), rng.normal(size=40)
        assert np.allclose(dense.predict(W, b), thinned.predict(W, b))
        assert np.allclose(dense.correlate(G), thinned.correlate(G))
        for (part, phi), (same, rows) in zip(dense.inputs.by_task, thinned.inputs.by_task, strict=True):
            assert part == same
            assert np.array_equal(phi, rows.toarray())


def test_tasks_that_see_every_row_share_them():
    problem = Problem(sparse.csr_array(np.eye(5, 3)), np.ones((5, 4)))
    assert all(phi is problem.features for _, phi in problem.inputs.by_task)


# --- what is kept, and what is never formed -------------------------------------------------------------------------


@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
def test_features_are_kept_by_rows_as_numbers(make):
    X = np.array([[0, 2, 0], [1, 0, 3], [0, 0, 0], [4, 0, 0]])
    features = Problem(make(X), np.ones((4, 2))).features
    assert isinstance(features, sparse.csr_array)
    assert features.dtype == float
    assert features.nnz == 4
    assert np.array_equal(features.toarray(), X)


def test_what_was_given_is_left_as_it_was():
    X = sparse.csr_array((np.array([1.0, 2.0, 5.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    features = Problem(X, np.ones((1, 1))).features
    assert X.indices.tolist() == [2, 0, 2]
    assert features.indices.tolist() == [0, 2]
    assert features.data.tolist() == [2.0, 6.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_entries_that_are_not_finite_are_refused(bad):
    X = sparse.csr_array(np.array([[0.0, bad, 0.0], [1.0, 0.0, 0.0]]))
    with pytest.raises(ValueError, match="finite"):
        Problem(X, np.ones((2, 1)))
    with pytest.raises(ValueError, match="finite"):
        LinearFeatures(X)


@pytest.fixture
def no_dense(monkeypatch):
    """Sparse matrices of some shapes refuse to become dense."""
    certified = set()

    def guard(cls, name):
        original = getattr(cls, name)

        def method(self, *args, **options):
            assert self.shape not in certified, f"{name} of a sparse matrix of shape {self.shape}"
            return original(self, *args, **options)

        monkeypatch.setattr(cls, name, method)

    for cls in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        for name in ("toarray", "todense"):
            guard(cls, name)
    return certified


@pytest.mark.parametrize(
    ("solver", "F"),
    [("alternating", structures.Clusters(2)), ("factored", structures.Trace()), ("proximal", structures.Trace())],
    ids=["alternating", "factored", "proximal"],
)
@pytest.mark.parametrize("layout", ["shared", "own", "missing"])
@pytest.mark.parametrize("loss", SMOOTH, ids=zoo.name)
def test_the_dense_matrix_is_never_formed(loss, layout, solver, F, no_dense):
    X, Y = zoo.data(loss, layout, n=20, d=3)
    X = sparse.csr_array(thin(X))
    counts = (~np.isnan(Y)).sum(axis=0).tolist()
    no_dense |= {(m, 3) for m in (len(Y), *counts)} | {(3, m) for m in (len(Y), *counts)}
    with pytest.raises(AssertionError, match="of a sparse matrix"):
        X.toarray()
    assert np.isfinite(solve(Problem(X, Y, loss, F), solver, max_iter=3).gap)
    assert alpha_max(Problem(X, Y, loss, "trace")) > 0


@pytest.mark.parametrize(("loss", "holes"), [("squared", False), ("squared", True), ("logistic", False)])
def test_memory_of_a_fit_does_not_grow_with_rows_times_columns(loss, holes):
    X, Y = many_rows(signs=loss == "logistic")
    if holes:
        Y[::7, 0] = np.nan
    solution = []
    peak = peak_megabytes(lambda: solution.append(solve(Problem(X, Y, loss, "trace", 1e-3), tol=1e-3, max_iter=3)))
    assert solution[0].certificate.relative_gap < 0.1
    assert peak < 100  # the dense matrix has 480


def test_memory_of_a_step_on_the_feature_side():
    X, Y = many_rows(n_tasks=2, signs=True)
    problem = Problem(X, Y, "logistic", "trace", 1e-3)
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(1000, 150)))[0]
    assert problem.scale > 0  # the best constants, which are no part of the step
    assert peak_megabytes(lambda: FeatureSide(problem).supervise(Q)) < 60  # the inputs of one task times Q have 72


# --- features -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", FORMATS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("shape", [(20, 5), (8, 8), (8, 12)])
def test_linear_features_and_the_way_back(shape, make):
    rng = np.random.default_rng(0)
    X = thin(rng.normal(size=shape))
    features = LinearFeatures(make(X))
    phi = features.phi
    assert sparse.issparse(phi) == (shape[0] > shape[1])
    assert np.allclose((phi @ phi.T).toarray() if sparse.issparse(phi) else phi @ phi.T, X @ X.T)
    W, coef = rng.normal(size=(phi.shape[1], 3)), rng.normal(size=(shape[1], 3))
    assert features.coef(W).shape == (features.n_inputs, 3)
    assert np.allclose(X @ features.coef(W), phi @ W)
    assert np.allclose(features.weights(features.coef(W)), W)
    assert np.allclose(phi @ features.weights(coef), X @ coef)


def test_linear_features_of_rows_that_repeat():
    X = np.tile(thin(np.random.default_rng(0).normal(size=(3, 12))), (2, 1))
    features = LinearFeatures(sparse.csr_array(X))
    assert features.phi.shape == (6, 3)
    W = np.arange(6.0).reshape(3, 2)
    assert np.allclose(features.weights(features.coef(W)), W)


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "cosine", "laplacian", lambda A, B: A @ B.T])
def test_kernels_that_take_sparse_inputs(kernel):
    X = thin(np.random.default_rng(0).normal(size=(6, 9)))
    dense, thinned = (build_features(M, kernel).phi for M in (X, sparse.csr_array(X)))
    assert np.allclose(dense @ dense.T, thinned @ thinned.T)


def test_a_sparse_matrix_may_be_the_kernel():
    K = np.diag([1.0, 2.0, 3.0])
    phi = build_features(sparse.csr_array(K), "precomputed").phi
    assert np.allclose(phi @ phi.T, K)


@pytest.mark.parametrize("kernel", ["chi2", RBF(0.5), lambda A, B: (A @ B.T + 1) ** 2])
def test_kernels_that_do_not_name_the_remedy(kernel):
    X = sparse.csr_array(np.eye(4))
    with pytest.raises(ValueError, match=r"cannot take a sparse X .*X\.toarray\(\)"):
        build_features(X, kernel)


def test_the_error_of_a_kernel_on_dense_inputs_is_its_own():
    with pytest.raises(ZeroDivisionError):
        build_features(np.eye(3), lambda *_: 1 / 0)


def test_a_small_sparse_matrix_is_solved_as_a_dense_one(monkeypatch):
    monkeypatch.undo()
    X, Y = np.random.default_rng(0).normal(size=(2, 12, 4))
    X[np.abs(X) < 0.5] = 0.0
    thin, full = (MultiTaskRegressor(alpha=0.01).fit(inputs, Y) for inputs in (sparse.csr_array(X), X))
    assert np.array_equal(thin.coef_, full.coef_)
    assert np.allclose(thin.predict(sparse.csr_array(X)), full.predict(X), rtol=1e-13)


def test_one_sparse_problem_on_both_sides_in_turn():
    features = sparse_random(48, 30, density=0.3, random_state=0, format="csr")
    obs = Observations.build(np.arange(48), np.repeat(np.arange(6), 8), np.random.default_rng(1).normal(size=48), 6)
    problem = Problem(features, obs, "squared", structures.Trace(), 0.01)
    solve(problem, "proximal")
    for structure, solver in ((structures.FeatureSelection(), "proximal"), (structures.Trace(), "factored")):
        again = solve(problem.with_structure(structure), solver).certificate
        fresh = solve(Problem(features, obs, "squared", structure, 0.01), solver).certificate
        assert again.optimal
        assert np.isclose(again.primal, fresh.primal)


def test_predictions_from_a_sparse_long_table_need_no_dense_one():
    inputs = sparse_random(500, 20_000, density=1e-4, random_state=0, format="csr")
    task = np.arange(500) % 5
    table = csr_array(hstack([inputs, task[:, None].astype(float)]))
    model = MultiTaskRegressor("independent", task_column=-1).fit(table, rng.normal(size=500))
    by_hand = np.einsum("ij,ij->i", inputs.toarray(), model.coef_[task]) + model.intercept_[task]
    tracemalloc.start()
    found = model.predict(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.allclose(found, by_hand)
    assert peak < 0.1 * 8 * inputs.shape[0] * inputs.shape[1]
