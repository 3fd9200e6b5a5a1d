"""Predictions of a kernel whose coefficients cancel are not passed off as those that were certified."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskRegressor


def data(n=20, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(X @ rng.normal(size=(2, 3))) + 0.1 * rng.normal(size=(n, 3))


def loss_of(model, X, Y):
    """Of what the model predicts, by the definition."""
    return float(((Y - model.predict(X)) ** 2).mean(axis=0).sum())


@pytest.mark.parametrize("structure", ["trace", "independent"])
def test_a_kernel_that_is_constant_but_for_rounding_is_not_certified(structure):
    X, Y = data()
    model = MultiTaskRegressor(structure, kernel="laplacian", gamma=1e-16, alpha=1e-40)
    with pytest.warns(ConvergenceWarning, match="digits are left.*Raise alpha or ridge"):
        model.fit(X, Y)
    said = model.certificate_
    assert said.status == "rounding"
    assert not said.optimal
    assert said.relative_gap > model.tol
    assert said.gap == pytest.approx(said.primal - said.dual)
    assert said.primal >= loss_of(model, X, Y) - said.gap


@pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("alpha", [1e-8, 1e-4, 1.0])
def test_what_is_certified_is_what_is_predicted(gamma, alpha):
    """Nearly singular kernels at weak strengths included."""
    X, Y = data()
    model = MultiTaskRegressor("trace", kernel="rbf", gamma=gamma, alpha=alpha).fit(X, Y)
    C = model.dual_coef_
    norms = np.linalg.svd(C.T @ rbf_kernel(X, gamma=gamma) @ C, compute_uv=False)
    objective = loss_of(model, X, Y) + 2 * np.sqrt(alpha) * np.sqrt(np.maximum(norms, 0)).sum()
    scale = float(((Y - Y.mean(axis=0)) ** 2).mean(axis=0).sum())
    assert model.certificate_.optimal
    assert abs(objective - model.certificate_.primal) <= model.tol * scale


def test_single_precision_is_left_where_predictions_would_lose_their_digits():
    X, Y = data(60)
    settings = {"kernel": "rbf", "gamma": 0.02, "alpha": 1e-14, "max_iter": 5000}
    model = MultiTaskRegressor("frobenius", **settings).fit(X.astype(np.float32), Y.astype(np.float32))
    assert model.dual_coef_.dtype == np.float64
    rough = model.dual_coef_.astype(np.float32).astype(float)  # what it would have predicted with
    single = rbf_kernel(X.astype(np.float32).astype(float), gamma=0.02) @ rough + model.intercept_
    scale = float(((Y - Y.mean(axis=0)) ** 2).mean(axis=0).sum())
    assert abs(float(((Y - single) ** 2).mean(axis=0).sum()) - loss_of(model, X.astype(np.float32), Y)) > 1e-4 * scale
    usual = MultiTaskRegressor("frobenius", kernel="rbf", gamma=1.0, alpha=1e-2).fit(X.astype(np.float32), Y)
    assert usual.dual_coef_.dtype == np.float32
