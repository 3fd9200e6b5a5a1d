"""Cheap exact features of large kernel matrices, and fits on a part of them, against the eigendecomposition of all of it."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel

import taskloom.features
from taskloom import MultiTaskRegressor, Problem, alpha_max, path, solve, structures
from taskloom.decompositions import asymmetry, centred_eigenvectors, decays, pivoted_cholesky
from taskloom.features import KernelFeatures, PivotedFeatures, decomposed
from taskloom.solvers.partial import Partial
from taskloom.solvers.reduced import Reduced
from taskloom.solvers.shared import SharedInputs
from taskloom.tasks import Observations

rng = np.random.default_rng(0)
N, T = 420, 6
X, X_NEW = rng.normal(size=(N, 3)), rng.normal(size=(30, 3))
Y = np.sin(X @ rng.normal(size=(3, 2))) @ rng.normal(size=(2, T)) + 0.3 * rng.normal(size=(N, T)) + 2
SMOOTH, ROUGH = 0.05, 5.0


def kernel(gamma):
    return rbf_kernel(X, gamma=gamma), rbf_kernel(X_NEW, X, gamma=gamma)


@pytest.mark.parametrize(("gamma", "kind"), [(SMOOTH, PivotedFeatures), (ROUGH, KernelFeatures)])
@pytest.mark.parametrize("centred", [True, False])
def test_every_decomposition_is_exact(gamma, kind, centred):
    """The same laws as the plain eigendecomposition: products, projections, and coefficients there and back."""
    K, K_new = kernel(gamma)
    features, plain = decomposed(K, centred), KernelFeatures(K)
    assert type(features) is kind
    assert np.abs(features.phi @ features.phi.T - K).max() < 1e-11
    assert np.allclose(features.project(K_new) @ features.phi.T, plain.project(K_new) @ plain.phi.T, atol=1e-8)
    C = rng.normal(size=(N, 2))
    W = features.weights(C)
    assert np.allclose(K_new @ features.dual_coef(W), K_new @ C, atol=1e-7)
    assert np.allclose(features.project(K_new) @ W, K_new @ C, atol=1e-7)
    assert np.allclose(features.phi @ features.fitting(K @ C), K @ C, atol=1e-7)


def test_centred_eigenvectors_are_orthogonal_once_their_mean_is_off():
    K, _ = kernel(ROUGH)
    phi = centred_eigenvectors(K)[0]
    gram = (phi - phi.mean(axis=0)).T @ (phi - phi.mean(axis=0))
    assert np.abs(gram - np.diag(np.diag(gram))).max() < 1e-13 * gram.max()
    assert SharedInputs.of(Problem(phi, Y))._orthogonal() is not None
    assert SharedInputs.of(Problem(phi, Y, fit_intercept=False))._orthogonal() is None


@pytest.mark.parametrize("gamma", [SMOOTH, ROUGH])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("structure", ["trace", "frobenius", "shared_mean"])
def test_fits_of_large_kernels_agree_with_the_plain_features(gamma, fit_intercept, weighted, structure, monkeypatch):
    weight = rng.uniform(0.5, 2.0, size=N) if weighted else None
    settings = {"kernel": "rbf", "gamma": gamma, "alpha": 1e-3, "tol": 1e-9, "fit_intercept": fit_intercept}
    structure = structures.SharedMean(1.0) if structure == "shared_mean" else structure
    quick = MultiTaskRegressor(structure, **settings).fit(X, Y, weight)
    monkeypatch.setattr(taskloom.features, "LARGE", N + 1)
    plain = MultiTaskRegressor(structure, **settings).fit(X, Y, weight)
    assert quick.certificate_.relative_gap <= 1e-9
    assert quick.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-8)
    assert np.allclose(quick.predict(X_NEW), plain.predict(X_NEW), atol=1e-3)
    assert np.allclose(quick.predict(X_NEW, return_std=True)[1], plain.predict(X_NEW, return_std=True)[1], rtol=1e-2, atol=1e-5)


def test_matrices_that_are_no_kernels_are_left_to_the_eigenvectors():
    K, _ = kernel(SMOOTH)
    assert pivoted_cholesky(K - 0.01 * np.eye(N)) is None
    assert pivoted_cholesky(np.zeros((N, N))) is None
    assert centred_eigenvectors(-K) is None
    distances = -np.square(X[:, None] - X[None]).sum(axis=2)  # positive semidefinite on vectors that add up to zero only
    assert centred_eigenvectors(distances) is None
    with pytest.raises(ValueError, match="not positive semidefinite: its matrix has smallest eigenvalue -"):
        decomposed(distances, True)
    with pytest.raises(ValueError, match="must be symmetric; it differs from its transpose by"):
        decomposed(K + np.triu(np.full((N, N), 0.5), 300), True)
    assert np.isfinite(decomposed(K - 1e-12 * np.eye(N), True).phi).all()
    assert asymmetry(np.zeros((0, 0))) == 0


def test_low_rank_and_repeated_rows():
    """A linear kernel has as many columns as inputs; a row that is there twice adds none."""
    assert decomposed(linear_kernel(X), True).phi.shape == (N, 3)
    twice = np.vstack([X, X])
    K = rbf_kernel(twice, gamma=SMOOTH)
    assert decomposed(K, True).phi.shape[1] <= N
    assert decays(K)


def smooth_problem(structure, alpha=1.0, missing=0.0, **options):
    holes = np.where(np.random.default_rng(1).random(Y.shape) < missing, np.nan, Y)
    return Problem(pivoted_cholesky(kernel(0.3)[0])[0], holes, "squared", structure, alpha, **options)


@pytest.mark.parametrize(
    ("structure", "missing"), [("trace", 0.0), ("frobenius", 0.0), ("unit_trace", 0.0), ("trace", 0.3), ("frobenius", 0.3)]
)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_part_of_the_features_is_certified_on_all_of_them(structure, fit_intercept, missing):
    """The gap is that of the whole problem, and the optimum is that of the whole problem, found without parts."""
    options = {"fit_intercept": fit_intercept, "missing": missing}
    problem = smooth_problem(structure, 0.01 * alpha_max(smooth_problem("trace")), **options)
    assert isinstance(Partial.of(problem), Partial)
    whole = smooth_problem(structure, problem.alpha, **options)
    assert (Reduced.of(whole) is None) == (missing > 0)
    whole.once("partial", lambda: None)
    for tol in (1e-3, 1e-6):
        found, sure = solve(problem, tol=tol), solve(whole, tol=1e-8)
        assert found.certificate.relative_gap <= tol
        assert found.certificate.dual <= sure.certificate.primal
        assert found.certificate.primal >= sure.certificate.dual
        assert found.certificate.primal == pytest.approx(problem.primal(found.W, found.b, found.A), rel=1e-9)
        assert found.certificate.primal - sure.certificate.primal <= tol * problem.scale


def test_parts_grow_with_what_the_certificate_asks_for_and_end_at_everything():
    problem = smooth_problem("trace")
    top = alpha_max(problem)
    first = Partial.of(problem)
    loose = solve(problem.at(0.1 * top), tol=1e-2)
    assert loose.certificate.optimal
    assert Partial.of(problem) is first
    solutions = path(problem, [0.1 * top, 0.01 * top], tol=1e-5)
    assert all(solution.certificate.optimal for solution in solutions)
    grown = Partial.of(problem)
    assert isinstance(grown, Partial)
    assert grown.q > first.q
    assert solve(problem.at(1e-7 * top), tol=1e-9).certificate.relative_gap <= 1e-9
    assert type(Partial.of(problem)) is Reduced


def test_no_parts_where_they_cannot_be():
    Phi = pivoted_cholesky(kernel(0.3)[0])[0]
    mostly_missing = np.where(np.arange(N)[:, None] % T == np.arange(T), Y, np.nan)
    assert Partial.of(Problem(Phi, mostly_missing)) is None
    assert Partial.of(Problem(Phi, Y, "huber")) is None
    assert type(Partial.of(Problem(rng.normal(size=(N, 300)), Y))) is Reduced  # columns of equal size


def test_full_rows_are_a_matrix():
    seen = Observations.from_wide(Y)
    assert seen.full_rows == N
    assert np.array_equal(seen.scatter(seen.y, N), Y)
    twice = Observations.build(np.tile(np.arange(2), 2), np.repeat([0, 1], 2), np.arange(4.0), 2)
    assert twice.full_rows == 2
    lopsided = Observations(np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1]), np.arange(4.0), np.ones(4), 2)
    assert lopsided.full_rows is None
    assert np.array_equal(lopsided.scatter(lopsided.y, 2), [[2, 0], [1, 3]])
