"""Large kernels and other losses: each short cut beside what it stands for."""

import numpy as np
import pytest

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, solve
from taskloom.design import input_spectrum
from taskloom.design.input_spectrum import InputSpectrum
from taskloom.losses import Huber


def test_leading_eigenvectors_stand_for_the_spectrum(monkeypatch):
    """Where those that are left out are equal, both agree, up to the accuracy of the subspace iteration."""
    monkeypatch.setattr(input_spectrum, "N_LEADING", 6)
    rng = np.random.default_rng(0)
    U, sizes = np.linalg.qr(rng.normal(size=(40, 40)))[0], np.array([9.0, 5.0, 4.0, 3.0, 2.5, 2.0, *[0.02] * 34])
    X = sizes[:, None] ** 0.5 * U.T
    leading = InputSpectrum.leading(sizes.sum(), lambda B: X.T @ (X @ B), 40)
    whole = InputSpectrum.of(X.T @ X)
    assert leading.filled == pytest.approx(whole.filled, rel=1e-3)
    rows = rng.normal(size=(3, 40))
    exact = whole.scaled(rows, 1 / (1 + whole.variances)[None])
    found = leading.scaled(rows, 1 / (1 + leading.variances)[None], 1 / (1 + leading.rest))
    np.testing.assert_allclose(found, exact, atol=2e-3)


def test_a_fit_with_leading_eigenvectors_is_the_same(monkeypatch):
    rng = np.random.default_rng(1)
    X, task = rng.normal(size=(150, 3)), np.repeat(np.arange(5), 30)
    y = np.sin(X[:, 0]) * (1 + task) + 0.1 * rng.normal(size=150)
    model = MultiTaskRegressor("trace", kernel="rbf", alpha=1e-3, task_column=3, tol=1e-7)
    table = np.column_stack([X, task])
    whole = model.fit(table, y).certificate_
    monkeypatch.setattr(input_spectrum, "MIN_FEATURES_FOR_LEADING", 50)
    monkeypatch.setattr(input_spectrum, "N_LEADING", 20)
    leading = model.fit(table, y).certificate_
    assert leading.optimal
    assert abs(leading.primal - whole.primal) <= leading.gap + whole.gap


def test_huber_is_a_smoothed_absolute_loss():
    loss, rng = Huber(0.3), np.random.default_rng(2)
    same, y, z = loss.as_smoothed(), rng.normal(size=50), rng.normal(size=50)
    np.testing.assert_allclose(same.value(y, z), loss.value(y, z), atol=1e-14)
    np.testing.assert_allclose(same.gradient(y, z), loss.gradient(y, z), atol=1e-14)
    s = np.clip(rng.normal(size=50), -0.6, 0.6)
    np.testing.assert_allclose(same.conjugate(y, s), loss.conjugate(y, s), atol=1e-14)


@pytest.mark.parametrize("n_tasks", [1, 3])
def test_huber_of_a_small_width_agrees_between_solvers(n_tasks):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 4))
    Y = 70 * np.sin(X[:, :1] + 0.3 * np.arange(n_tasks)) + 20 * rng.normal(size=(80, n_tasks))
    problem = MultiTaskRegressor("trace", kernel="rbf", loss=Huber(1.0), alpha=1e-4)._prepare(X, Y).problem
    found = [solve(problem, solver, tol=1e-4, max_iter=2000).certificate for solver in ("proximal", "block")]
    assert found[0].optimal
    assert abs(found[0].primal - found[1].primal) <= found[0].gap + found[1].gap


@pytest.mark.parametrize("missing", [False, True])
def test_inputs_that_tasks_share_are_stored_once(missing):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 6))
    Y = np.where(X[:, :4] + 0.3 * rng.normal(size=(60, 4)) > 0, 1.0, -1.0)
    if missing:
        Y[0, 0] = np.nan
    problem = Problem(X, Y, structure="trace", loss="logistic", alpha=1e-3)
    blocks = problem.design.smooth_loss_tasks[0]
    assert all(len(block.X) == (len(block.y) if missing else 1) for block in blocks)
    factored, proximal = (solve(problem, solver, tol=1e-7).certificate for solver in ("factored", "proximal"))
    assert factored.optimal
    assert abs(factored.primal - proximal.primal) <= factored.gap + proximal.gap


def test_a_classifier_with_repeated_rows_equals_one_with_weights():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 3))
    Y = (X @ rng.normal(size=(3, 3)) + rng.normal(size=(40, 3)) > 0).astype(float)
    twice = MultiTaskClassifier("trace", alpha=1e-3, tol=1e-8).fit(np.vstack([X, X[:10]]), np.vstack([Y, Y[:10]]))
    weighted = MultiTaskClassifier("trace", alpha=1e-3, tol=1e-8).fit(X, Y, sample_weight=1.0 + (np.arange(40) < 10))
    np.testing.assert_allclose(twice.coef_, weighted.coef_, rtol=1e-3, atol=1e-4)
