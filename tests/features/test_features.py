"""Kernels become features exactly."""

import naive
import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, Matern, WhiteKernel
from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS, linear_kernel

from taskloom import MultiTaskRegressor
from taskloom.features.kernels import KernelFeatures, LinearFeatures, build_features, kernel_function

rng = np.random.default_rng(0)
X = rng.random((12, 3)) + 0.1  # positive, for the chi2 kernels
Y = X @ rng.normal(size=(3, 4)) + 0.1 * rng.normal(size=(12, 4))
# Not positive semidefinite on these inputs, and not in general: a predictor with such a kernel has no norm.
INDEFINITE = {"additive_chi2", "sigmoid"}


def quadratic(A, B):
    return (A @ B.T + 1) ** 2


PSD = sorted(set(PAIRWISE_KERNEL_FUNCTIONS) - INDEFINITE)


@pytest.mark.parametrize("kernel", PSD)
def test_every_named_kernel(kernel):
    features = build_features(X, kernel)
    K = kernel_function(kernel)(X, X)
    assert np.allclose(features.phi @ features.phi.T, K, atol=1e-8)
    assert np.allclose(naive.gram(kernel_function(kernel), X), K)
    model = MultiTaskRegressor(kernel=kernel, alpha=1e-3).fit(X, Y)
    assert np.isfinite(model.predict(X)).all()
    assert model.certificate_.optimal


@pytest.mark.parametrize("kernel", sorted(INDEFINITE))
def test_an_indefinite_kernel_is_refused_with_its_eigenvalue(kernel):
    with pytest.raises(ValueError, match="not positive semidefinite: its matrix has smallest eigenvalue -"):
        MultiTaskRegressor(kernel=kernel, gamma=5.0, coef0=-3.0).fit(X, Y)


@pytest.mark.parametrize(
    "kernel", [RBF(0.5), Matern(nu=1.5), RBF() + WhiteKernel(0.1), quadratic], ids=["rbf", "matern", "sum", "callable"]
)
def test_callables_and_gaussian_process_kernels(kernel):
    K = kernel(X, X)
    model = MultiTaskRegressor("frobenius", kernel=kernel, alpha=1e-3, tol=1e-8).fit(X, Y)
    given = MultiTaskRegressor("frobenius", kernel="precomputed", alpha=1e-3, tol=1e-8).fit(K, Y)
    assert np.allclose(model.predict(X), given.predict(K), atol=1e-5)
    assert model.dual_coef_.shape == (12, 4)


def test_a_linear_kernel_forms_no_square_matrix():
    tall = LinearFeatures(X)
    assert tall.phi is X
    wide = LinearFeatures(X.T)
    assert wide.phi.shape == (3, 3)
    assert np.allclose(wide.phi @ wide.phi.T, X.T @ X)
    W = rng.normal(size=(3, 2))
    assert np.allclose(X.T @ wide.coef(W), wide.phi @ W)
    assert np.allclose(wide.weights(wide.coef(W)), W)


def test_memory_of_a_linear_fit_grows_with_the_columns_not_with_the_square_of_the_rows():
    import tracemalloc

    many = rng.normal(size=(20_000, 4))
    targets = many @ rng.normal(size=(4, 3)) + rng.normal(size=(20_000, 3))
    tracemalloc.start()
    MultiTaskRegressor(alpha=0.1).fit(many, targets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6  # one 20000 x 20000 matrix would be 3200e6


def test_more_columns_than_rows_is_the_same_problem():
    wide = rng.normal(size=(8, 30))
    targets = rng.normal(size=(8, 3))
    linear = MultiTaskRegressor(alpha=0.01, tol=1e-9).fit(wide, targets)
    kernel = MultiTaskRegressor(alpha=0.01, tol=1e-9, kernel="precomputed").fit(linear_kernel(wide), targets)
    assert linear.coef_.shape == (3, 30)
    assert np.isclose(linear.certificate_.primal, kernel.certificate_.primal)
    assert np.allclose(linear.predict(wide), kernel.predict(linear_kernel(wide)), atol=1e-6)


def test_a_zero_kernel_keeps_one_feature():
    assert KernelFeatures(np.zeros((4, 4))).phi.shape == (4, 1)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("gaussian", "'gaussian'"),
        (3, "callable"),
        (lambda *_: np.ones((2, 2)), "square matrix"),
        (lambda A, B: np.full((len(A), len(B)), np.nan), "NaN"),
        (lambda A, B: np.arange(len(A) * len(B)).reshape(len(A), len(B)), "symmetric"),
    ],
)
def test_nonsense_is_refused(kernel, words):
    with pytest.raises(ValueError, match=words):
        build_features(X, kernel)


def test_a_kernel_that_is_indefinite_by_rounding_is_accepted():
    K = linear_kernel(X)
    assert np.isfinite(KernelFeatures(K - 1e-12 * np.eye(12)).phi).all()
