"""The certificate of a fit is that of the coefficients that the model holds, in the precision in which it holds them."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskClassifier, MultiTaskRegressor, structures

ALPHA = 0.01


def far(offset, n=60, d=4, T=3, seed=0):
    """Inputs in single precision, about ``offset``, with differences of about 1."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) + offset).astype(np.float32)
    centred = X.astype(float) - X.astype(float).mean(axis=0)
    return X, centred @ rng.normal(size=(d, T)) + 0.5 * rng.normal(size=(n, T))


def predictions(model, X):
    """Of the coefficients as they are, in extended precision."""
    return X.astype(np.longdouble) @ model.coef_.T.astype(np.longdouble) + model.intercept_.astype(np.longdouble)


def objective(model, X, Y, penalty):
    """By the definition, from the coefficients as they are; ``penalty`` of their double-precision values."""
    return float(np.nanmean((Y - predictions(model, X)) ** 2, axis=0).sum()) + penalty(model.coef_.astype(float))


def trace(coef):
    return 2 * np.sqrt(ALPHA) * np.linalg.svd(coef, compute_uv=False).sum()


def assert_certified(model, X, Y, penalty=trace):
    said, held = model.certificate_, objective(model, X, Y, penalty)
    scale = float(np.nanvar(Y, axis=0).sum())
    assert said.optimal, said.message
    assert said.dual - 1e-7 * scale <= held <= said.primal + 1e-7 * scale
    assert held - said.dual <= said.gap + 1e-7 * scale
    assert np.abs(model.predict(X) - predictions(model, X)).max() <= 1e-5 * np.nanmax(np.abs(Y))


@pytest.mark.parametrize("offset", [0.0, 1e4, 1e5, 1e6, 1e7])
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("layout", ["shared", "missing", "more inputs than rows"])
def test_linear_models_far_from_zero(offset, device, layout):
    """Weights and intercept were rounded after the certificate: claimed gap 3.5e-6, that of the model 2.8e-2."""
    X, Y = far(offset, *((8, 20) if layout == "more inputs than rows" else ()))
    if layout == "missing":
        Y[::3, 0] = np.nan
    model = MultiTaskRegressor(alpha=ALPHA, device=device).fit(X, Y)
    assert_certified(model, X, Y)
    assert model.coef_.dtype == (np.float32 if offset < 1e5 else np.float64 if offset > 1e5 else model.coef_.dtype)


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_other_structures_far_from_zero(offset):
    X, Y = far(offset)
    model = MultiTaskRegressor("independent", alpha=ALPHA).fit(X, Y)
    assert_certified(model, X, Y, lambda coef: ALPHA * np.vdot(coef, coef))
    model = MultiTaskRegressor(structures.FeatureSelection(), alpha=ALPHA).fit(X, Y)
    assert_certified(model, X, Y, lambda coef: 2 * np.sqrt(ALPHA) * np.linalg.norm(coef, axis=0).sum())


@pytest.mark.parametrize("structure", ["robust", "dirty", "low_rank", structures.Sparse(0.1), "clusters"])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_every_kind_of_structure_is_certified_after_rounding(structure, offset):
    """Sums of terms, iterative penalties, problems that are not convex: the loss of the model is not above the objective."""
    X, Y = far(offset)
    model = MultiTaskRegressor(structure, alpha=ALPHA).fit(X, Y)
    assert model.certificate_.converged, model.certificate_.message
    loss = objective(model, X, Y, lambda coef: 0.0)
    assert loss <= model.certificate_.primal + 1e-7 * Y.var(axis=0).sum()
    exact = MultiTaskRegressor(structure, alpha=ALPHA).fit(X.astype(float), Y)
    assert abs(model.certificate_.primal - exact.certificate_.primal) <= 2e-5 * Y.var(axis=0).sum()


def test_targets_far_from_zero():
    X, Y = far(0.0)
    model = MultiTaskRegressor(alpha=ALPHA).fit(X, Y + 1e7)
    assert model.intercept_.dtype == np.float64
    assert_certified(model, X, Y + 1e7)


def test_long_tables_and_sparse_inputs():
    X, Y = far(1e6)
    long = np.column_stack([np.vstack([X] * 3), np.repeat(np.arange(3), 60).astype(np.float32)])
    model = MultiTaskRegressor(alpha=ALPHA, task_column=-1).fit(long, Y.T.ravel())
    assert abs(objective(model, X, Y, trace) - model.certificate_.primal) <= 1e-7 * Y.var(axis=0).sum()
    own = predictions(model, X).T.ravel()
    assert np.abs(model.predict(long) - own).max() < 1e-5 * np.abs(Y).max()
    assert_certified(MultiTaskRegressor(alpha=ALPHA).fit(csr_array(X), Y), X, Y)


def test_blocks_of_rows():
    X, Y = far(1e6)
    model = MultiTaskRegressor(alpha=ALPHA).fit_blocks([(X[:30], Y[:30]), (X[30:], Y[30:])])
    assert_certified(model, X, Y)


def test_labels():
    X, Y = far(1e6)
    model = MultiTaskClassifier(alpha=ALPHA).fit(X, Y > 0)
    margins = np.where(Y > 0, 1, -1) * predictions(model, X)
    held = float(np.logaddexp(0, -margins).mean(axis=0).sum()) + trace(model.coef_.astype(float))
    assert abs(held - model.certificate_.primal) <= 1e-7 * 3


def test_an_approximate_kernel():
    X, Y = far(0.0)
    model = MultiTaskRegressor(kernel="rbf", gamma=0.1, approximation="nystroem", n_components=20, alpha=ALPHA).fit(X, Y)
    assert model.coef_.dtype == np.float32
    loss = float(((Y - model.predict(X)) ** 2).mean(axis=0).sum())
    assert abs(loss + trace(model.coef_.astype(float)) - model.certificate_.primal) <= 1e-5 * Y.var(axis=0).sum()


def test_a_tolerance_that_single_precision_cannot_hold():
    """Rounded weights have full rank, where the optimum has not: the nuclear norm grows by the rounding."""
    X, Y = far(0.0, T=12)
    assert MultiTaskRegressor(alpha=2.0).fit(X, Y).coef_.dtype == np.float32
    model = MultiTaskRegressor(alpha=2.0, tol=1e-10).fit(X, Y)
    assert model.coef_.dtype == np.float64
    assert np.linalg.matrix_rank(model.coef_, tol=1e-6) < 4
    assert_certified(model, X, Y, lambda coef: np.sqrt(2.0 / ALPHA) * trace(coef))


def test_double_precision_that_is_too_little_says_so():
    """Inputs at 1e14 in steps of 1/64: the products of the predictions have no digits left for the differences."""
    rng = np.random.default_rng(0)
    steps = rng.integers(-100, 100, size=(60, 4)) / 64
    X, Y = steps + 1e14, steps @ rng.normal(size=(4, 3)) + 0.01 * rng.normal(size=(60, 3))
    with pytest.warns(ConvergenceWarning, match=r"so far from zero.*Centre X"):
        model = MultiTaskRegressor(alpha=1e-6).fit(X, Y)
    assert model.certificate_.status == "cancellation"
    assert model.certificate_.relative_gap > model.tol
    loss = float(((Y - model.predict(X)) ** 2).mean(axis=0).sum())
    assert loss <= model.certificate_.primal * 1.5
