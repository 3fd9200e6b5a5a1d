"""Fits in a basis that grows with the certificate, against fits on all features."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import rbf_kernel

import taskloom.features.kernels
from taskloom import MultiTaskRegressor, Problem, alpha_max, path, solve
from taskloom.features.factorizations import cholesky, pivoted_cholesky
from taskloom.problem import Start
from taskloom.problem.evidence import Iterate
from taskloom.solvers.record import Record
from taskloom.solvers.reformulations import ATTEMPTS, Centring, Chain, EigenbasisForm, KrylovSubspace, subspaces

rng = np.random.default_rng(0)
N, T = 240, 6
X = rng.normal(size=(N, 3))
Y = np.sin(X @ rng.normal(size=(3, 2))) @ rng.normal(size=(2, T)) + 0.3 * rng.normal(size=(N, T)) + 2
HOLES = np.random.default_rng(1).random(Y.shape) < 0.3
FEATURES = {"smooth": pivoted_cholesky(rbf_kernel(X, gamma=0.1))[0], "rough": cholesky(rbf_kernel(X, gamma=5.0))}
CASES = [
    *(("squared", structure, False) for structure in ("trace", "frobenius", "unit_trace", "independent")),
    *((loss, structure, True) for loss in ("squared", "huber") for structure in ("trace", "frobenius")),
    *(("logistic", "trace", False), ("logistic", "frobenius", True), ("squared_hinge", "trace", True)),
]


@pytest.fixture(autouse=True)
def _few_features_are_enough(monkeypatch):
    monkeypatch.setattr(subspaces, "GROWING", 100)
    monkeypatch.setattr(subspaces, "TUNING", replace(subspaces.TUNING, min_krylov_features=100))


def forms_of(problem, start=None):
    """The reformulations with which a solver would begin."""
    return [type(step) for step in Chain(problem, start, ATTEMPTS).steps]


def problem_of(kernel, loss="squared", structure="trace", gaps=False, share=0.05, **options):
    """At a share of the strength at which the trace penalty learns nothing."""
    targets = Y if loss in ("squared", "huber") else np.sign(Y - 2)
    targets = np.where(HOLES & gaps, np.nan, targets)
    top = alpha_max(Problem(FEATURES[kernel], targets, loss, "trace", **options))
    return Problem(FEATURES[kernel], targets, loss, structure, share * top, **options)


@pytest.mark.parametrize(("loss", "structure", "gaps"), CASES)
@pytest.mark.parametrize("kernel", FEATURES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_basis_is_certified_on_all_features(loss, structure, gaps, kernel, fit_intercept, monkeypatch):
    """The gap is that of the whole problem, and the optimum is that of the whole problem, found without a basis."""
    problem = problem_of(kernel, loss, structure, gaps, fit_intercept=fit_intercept)
    assert KrylovSubspace in forms_of(problem)
    with monkeypatch.context() as patch:
        patch.setattr(subspaces, "TUNING", replace(subspaces.TUNING, min_krylov_features=10**9))
        assert KrylovSubspace not in forms_of(problem)
        sure = solve(problem, tol=1e-7)
    for tol in (1e-3, 1e-6):
        found = solve(problem, tol=tol)
        assert found.certificate.relative_gap <= tol
        assert found.certificate.dual <= sure.certificate.primal + 1e-12 * problem.scale
        assert found.certificate.primal >= sure.certificate.dual - 1e-12 * problem.scale
        assert found.certificate.primal == pytest.approx(problem.primal(found.W, found.b, found.A), rel=1e-9)
        assert found.certificate.primal - sure.certificate.primal <= tol * problem.scale
        assert problem.dual(found.G) <= found.certificate.primal + 1e-12 * problem.scale


@pytest.mark.parametrize(("loss", "structure", "gaps"), [CASES[0], CASES[1], CASES[4], CASES[8]])
@pytest.mark.parametrize("n_words", [150, 400])
def test_sparse_inputs_stay_sparse(loss, structure, gaps, n_words, monkeypatch):
    """With fewer and with more columns than rows; the twin is the dense problem on all features."""
    monkeypatch.setattr(taskloom.features.kernels, "GROWING", 100)
    rng = np.random.default_rng(2)
    words = csr_array(np.where(rng.random((N, n_words)) < 0.05, rng.random((N, n_words)) + 0.5, 0.0))
    scores = words @ rng.normal(size=(n_words, 2)) @ rng.normal(size=(2, T)) + 0.3 * rng.normal(size=(N, T))
    targets = np.where(HOLES & gaps, np.nan, scores if loss in ("squared", "huber") else np.sign(scores))
    top = alpha_max(Problem(words, targets, loss, "trace"))
    problem = Problem(words, targets, loss, structure, 0.1 * top)
    assert forms_of(problem)[0] is KrylovSubspace
    found = solve(problem, tol=1e-4)
    assert found.certificate.optimal
    with monkeypatch.context() as patch:
        patch.setattr(subspaces, "TUNING", replace(subspaces.TUNING, min_krylov_features=10**9))
        sure = solve(Problem(words.toarray(), targets, loss, structure, 0.1 * top), tol=1e-6)
    assert abs(found.certificate.primal - sure.certificate.primal) <= found.gap + sure.gap
    weak = solve(problem.at(1e-7 * top), tol=1e-8, start=Start(found.W, found.b, found.length, found.basis))
    assert weak.certificate.relative_gap <= 1e-8
    assert not isinstance(weak.basis, KrylovSubspace)


def test_deviations_of_a_wide_sparse_fit_are_those_of_the_dense_one(monkeypatch):
    monkeypatch.setattr(taskloom.features.kernels, "GROWING", 30)
    rng = np.random.default_rng(3)
    words = np.where(rng.random((400, 600)) < 0.05, rng.random((400, 600)), 0.0)
    scores = words @ rng.normal(size=(600, 3)) + 0.1 * rng.normal(size=(400, 3))
    models = [MultiTaskRegressor(alpha=1e-3, tol=1e-8).fit(inputs, scores) for inputs in (words, csr_array(words))]
    new = csr_array(words[:5] + words[5:10])
    deviations = [model.predict(inputs, return_std=True)[1] for model, inputs in zip(models, (new.toarray(), new), strict=True)]
    assert np.allclose(*deviations, rtol=1e-4)
    assert np.allclose(models[0].coef_, models[1].coef_, atol=1e-4 * np.abs(models[0].coef_).max())


@pytest.mark.parametrize(
    ("loss", "gaps", "reduces"), [("squared", False, True), ("squared", True, False), ("huber", False, False)]
)
def test_the_basis_predicts_what_its_weights_predict(loss, gaps, reduces):
    problem = problem_of("rough", loss, gaps=gaps)
    chain = Chain(problem, None, ATTEMPTS)
    assert (EigenbasisForm in forms_of(problem)) == reduces
    W, b, z = chain.original_point(np.ones((chain.inner.n_features, T)), np.ones(T))
    assert np.allclose(z, problem.predict(W, b), rtol=1e-12, atol=1e-12)
    outside = chain.to_original(np.ones((chain.inner.n_features, T)), np.ones(T))
    assert all(np.array_equal(one, other) for one, other in zip((W, b), outside, strict=True))


@pytest.mark.parametrize("gaps", [False, True])
def test_the_basis_is_orthonormal_and_grows_with_what_the_certificate_asks_for(gaps):
    problem = problem_of("rough", gaps=gaps)
    top = problem.alpha / 0.05
    coarse = solve(problem.at(0.5 * top), tol=1e-2)
    assert coarse.certificate.optimal
    first = coarse.basis
    assert np.array_equal(first.V, Chain(problem, None, ATTEMPTS).steps[0].V)
    again = solve(problem.at(0.45 * top), tol=1e-2, start=Start(coarse.W, coarse.b, coarse.length, first))
    assert again.basis.blocks is first.blocks
    fine = solve(problem.at(0.1 * top), tol=1e-6, start=Start(again.W, again.b, again.length, first))
    assert fine.certificate.optimal
    larger = fine.basis
    assert isinstance(larger, KrylovSubspace)
    assert len(larger.V) > len(first.V)
    assert np.array_equal(larger.V[: len(first.V)], first.V)
    assert np.abs(larger.V @ larger.V.T - np.eye(len(larger.V))).max() < 1e-13
    assert np.allclose(larger.P, larger.V @ problem.features.T, atol=1e-13)
    weak = solve(problem.at(1e-7 * top), tol=1e-9, start=Start(fine.W, fine.b, fine.length, larger))
    assert weak.certificate.relative_gap <= 1e-9
    assert not isinstance(weak.basis, KrylovSubspace)  # all features
    after = forms_of(problem, Start(weak.W, weak.b, weak.length, weak.basis))
    assert KrylovSubspace not in after
    assert (EigenbasisForm in after) != gaps


def test_a_path_hands_the_basis_on_and_keeps_none():
    problem = problem_of("rough", gaps=True)
    top = problem.alpha / 0.05
    solutions = path(problem, [0.3 * top, 0.1 * top], tol=1e-6)
    assert all(solution.certificate.optimal and solution.basis is None for solution in solutions)


def test_directions_that_are_worth_nothing_stay_out():
    """Targets of rank two ask for fewer directions than as many targets of full rank."""
    flat = Y.copy()
    flat[:, 2:] = flat[:, :2] @ rng.normal(size=(2, T - 2))
    sizes = []
    for targets in (flat, Y):
        problem = Problem(FEATURES["rough"], targets, "squared", "trace", problem_of("rough").alpha)
        found = solve(problem, tol=1e-6)
        assert found.certificate.optimal
        sizes.append(len(found.basis.V))
    assert sizes[0] < sizes[1]
    first = Chain(Problem(FEATURES["rough"], flat), None, ATTEMPTS).steps[0]
    assert len(first.V) <= 2 * subspaces.TUNING.krylov_depth


@pytest.mark.parametrize("loss", ["squared", "huber"])
@pytest.mark.parametrize("share", [0.1, 1e-4])
def test_the_history_is_that_of_all_runs(loss, share):
    """One count, and bounds of the problem that was posed: they only ever improve, and end at the certificate."""
    problem, calls = problem_of("rough", loss, gaps=True, share=share), []
    told = []

    def watch(history):
        calls.append(history.iteration[-1])
        told.append((history.objective[-1], history.dual[-1], history.gap[-1]))

    found = solve(problem, tol=1e-7, callback=watch)
    history, said = found.history, found.certificate
    for objective, dual, gap in told:  # of all features at any time: a basis proves nothing of what lies outside
        assert dual <= said.primal <= objective + 1e-12
        assert gap >= objective - said.primal - 1e-12
    assert said.optimal
    assert isinstance(found.basis, KrylovSubspace) == (share == 0.1)  # the basis grows, or all features end it
    assert calls == list(range(1, len(history) + 1)) == history.iteration
    assert (history.objective[-1], history.dual[-1], history.gap[-1]) == (said.primal, said.dual, said.gap)
    assert np.all(np.diff(history.objective) <= 0)
    assert np.all(np.diff([max(bound, -1e300) for bound in history.dual]) >= 0)
    assert np.all(np.diff(history.seconds) >= 0)
    assert max(history.dual) <= said.primal


def test_the_basis_grows_by_the_last_certificate_though_an_earlier_bound_may_be_better():
    problem = problem_of("rough", gaps=True)
    record, found = Record(problem, 1e-9), solve(problem, tol=1e-6)
    for W in (found.W, 0.5 * found.W):
        z = problem.predict(W, found.b)
        gradients = problem.loss.gradient(problem.observations.y, z)
        record.update(Iterate(W, found.b, z, gradients, Z=problem.correlate(-problem.observations.weight * gradients)))
    last = record.last
    assert not np.allclose(last.G, record.dual_point.G)
    assert np.allclose(last.Z, problem.correlate(last.G))


def test_starts_from_weights_outside_the_basis_and_stops_short():
    problem = problem_of("rough", gaps=True)
    begin = rng.normal(size=(problem.n_features, T)), np.zeros(T)
    assert solve(problem, tol=1e-5, start=begin).certificate.optimal
    stopped = solve(problem_of("rough", "huber"), tol=1e-9, max_iter=1)
    assert stopped.certificate.status == "max_iter"
    assert stopped.certificate.primal >= stopped.certificate.dual


def test_targets_far_from_zero():
    """Under a loss that sees differences only they are moved, in the basis as elsewhere."""
    near, far = (
        Problem(FEATURES["rough"], Y + shift, "huber", "trace", problem_of("rough", "huber").alpha) for shift in (0, 1e5)
    )
    assert forms_of(far) == [KrylovSubspace, Centring]
    one, other = solve(near, tol=1e-6), solve(far, tol=1e-6)
    assert other.certificate.optimal
    assert other.certificate.primal == pytest.approx(one.certificate.primal, abs=2e-6 * near.scale)


def test_no_basis_where_there_cannot_be_one(monkeypatch):
    phi = FEATURES["rough"]
    mostly_missing = np.where(np.arange(N)[:, None] % T == np.arange(T), Y, np.nan)
    assert not forms_of(Problem(phi, mostly_missing))
    assert KrylovSubspace not in forms_of(Problem(phi, np.ones((N, T))))  # there is nothing to learn
    assert not forms_of(Problem(phi, Y, "absolute"))  # it has kinks
    assert forms_of(Problem(csr_array(phi), Y)) == [KrylovSubspace, EigenbasisForm]
    assert not forms_of(Problem(phi, 2.0 * (Y.argmax(axis=1)[:, None] == np.arange(T)) - 1, "softmax"))  # no faster
    assert not forms_of(Problem(phi, Y, "huber", "feature_selection"))
    assert forms_of(Problem(phi, np.tile(Y, 6))) == [EigenbasisForm]  # too many tasks
    monkeypatch.setattr(subspaces, "GROWING", 1000)
    assert forms_of(Problem(phi, Y)) == [EigenbasisForm]  # too few features, and none of them small
    assert forms_of(Problem(phi, Y, "huber")) == [KrylovSubspace]
    assert KrylovSubspace in forms_of(Problem(FEATURES["smooth"], Y))


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_a_regressor_needs_no_eigenvectors(missing, monkeypatch):
    monkeypatch.setattr(taskloom.features.kernels, "LARGE", 200)
    monkeypatch.setattr(taskloom.features.kernels, "GROWING", 200)
    targets = np.where(np.random.default_rng(2).random(Y.shape) < missing, np.nan, Y)
    settings = {"kernel": "rbf", "gamma": 5.0, "alpha": 1e-3, "tol": 1e-7}
    model = MultiTaskRegressor("trace", **settings).fit(X, targets)
    monkeypatch.setattr(taskloom.features.kernels, "LARGE", N + 1)
    plain = MultiTaskRegressor("trace", **settings).fit(X, targets)
    assert model.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-6)
    assert np.allclose(model.predict(X[:20] + 0.1), plain.predict(X[:20] + 0.1), atol=1e-3)
