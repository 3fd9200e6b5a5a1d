"""Cheap exact features of large kernel matrices, against the eigendecomposition."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel

import taskloom.features.kernels
from taskloom import MultiTaskRegressor, Problem, structures
from taskloom.design import Observations
from taskloom.features.factorizations import asymmetry, centred_eigenvectors, cholesky, decays, pivoted_cholesky
from taskloom.features.kernels import KernelFeatures, PivotedFeatures, decomposed

rng = np.random.default_rng(0)
N, T = 420, 6
X, X_NEW = rng.normal(size=(N, 3)), rng.normal(size=(30, 3))
Y = np.sin(X @ rng.normal(size=(3, 2))) @ rng.normal(size=(2, T)) + 0.3 * rng.normal(size=(N, T)) + 2
SMOOTH, ROUGH = 0.05, 5.0


def kernel(gamma):
    return rbf_kernel(X, gamma=gamma), rbf_kernel(X_NEW, X, gamma=gamma)


@pytest.mark.parametrize(
    ("gamma", "growing", "kind"),
    [
        (SMOOTH, 1000, PivotedFeatures),
        (SMOOTH, 400, PivotedFeatures),
        (ROUGH, 1000, KernelFeatures),
        (ROUGH, 400, PivotedFeatures),
    ],
)
@pytest.mark.parametrize("centred", [True, False])
def test_every_decomposition_is_exact(gamma, growing, kind, centred, monkeypatch):
    """The same laws as the plain eigendecomposition: products, projections, and coefficients there and back."""
    monkeypatch.setattr(taskloom.features.kernels, "GROWING", growing)
    K, K_new = kernel(gamma)
    features, plain = decomposed(K, centred), KernelFeatures(K)
    assert type(features) is kind
    assert gamma == SMOOTH or (getattr(features, "pivots", ...) is None) == (growing < N)
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
    assert Problem(phi, Y).targets.shared_inputs.eigenbasis.V is None
    assert Problem(phi, Y, fit_intercept=False).targets.shared_inputs.eigenbasis.V is not None


@pytest.mark.parametrize("gamma", [SMOOTH, ROUGH])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("structure", ["trace", "frobenius", "shared_mean"])
@pytest.mark.parametrize("growing", [400, 1000])
def test_fits_of_large_kernels_agree_with_the_plain_features(gamma, fit_intercept, weighted, structure, growing, monkeypatch):
    monkeypatch.setattr(taskloom.features.kernels, "GROWING", growing)
    weight = rng.uniform(0.5, 2.0, size=N) if weighted else None
    settings = {"kernel": "rbf", "gamma": gamma, "alpha": 1e-3, "tol": 1e-9, "fit_intercept": fit_intercept}
    structure = structures.SharedMean(1.0) if structure == "shared_mean" else structure
    quick = MultiTaskRegressor(structure, **settings).fit(X, Y, weight)
    monkeypatch.setattr(taskloom.features.kernels, "LARGE", N + 1)
    plain = MultiTaskRegressor(structure, **settings).fit(X, Y, weight)
    assert quick.certificate_.relative_gap <= 1e-9
    assert quick.certificate_.primal == pytest.approx(plain.certificate_.primal, rel=1e-8)
    assert np.allclose(quick.predict(X_NEW), plain.predict(X_NEW), atol=1e-3)
    assert np.allclose(quick.predict(X_NEW, return_std=True)[1], plain.predict(X_NEW, return_std=True)[1], rtol=1e-2, atol=1e-5)


def test_matrices_that_are_no_kernels_are_left_to_the_eigenvectors():
    K, _ = kernel(SMOOTH)
    assert cholesky(K) is None  # as good as singular
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


def test_full_rows_are_a_matrix():
    seen = Observations.from_wide(Y)
    assert seen.grouping.full_rows == N
    assert np.array_equal(seen.scatter(seen.y, N), Y)
    twice = Observations.build(np.tile(np.arange(2), 2), np.repeat([0, 1], 2), np.arange(4.0), 2)
    assert twice.grouping.full_rows == 2
    lopsided = Observations(np.array([0, 1, 0, 1]), np.array([0, 0, 0, 1]), np.arange(4.0), np.ones(4), 2)
    assert lopsided.grouping.full_rows is None
    assert np.array_equal(lopsided.scatter(lopsided.y, 2), [[2, 0], [1, 3]])
