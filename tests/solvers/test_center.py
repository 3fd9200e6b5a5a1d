"""Inputs and targets far from zero: the fit is that of centred data, with other intercepts."""

import numpy as np
import pytest

from taskloom import MultiTaskRegressor, Problem, solve

rng = np.random.default_rng(0)
n, d, T = 30, 5, 4
X = rng.normal(size=(n, d))
Y = X @ rng.normal(size=(d, T)) + 0.3 * rng.normal(size=(n, T)) + 1


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_huber_with_targets_far_from_zero(offset):
    for F in ("independent", "trace"):
        model = MultiTaskRegressor(F, loss="huber").fit(X, Y + offset)
        assert model.certificate_.optimal, model.certificate_.message
        assert model.score(X, Y + offset) > 0.5


def test_huber_with_targets_that_spread_far_beyond_its_width():
    model = MultiTaskRegressor("trace", loss="huber").fit(X, 2e5 + 5e4 * Y)
    assert model.certificate_.optimal, model.certificate_.message


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_features_far_from_zero_change_nothing_but_the_intercepts(loss):
    near = MultiTaskRegressor(loss=loss, tol=1e-7).fit(X, Y)
    far = MultiTaskRegressor(loss=loss, tol=1e-7, warm_start=True).fit(X + 1e5, Y)
    assert np.isclose(near.certificate_.primal, far.certificate_.primal, rtol=1e-6)
    assert np.allclose(near.predict(X), far.predict(X + 1e5), atol=1e-2)
    assert far.fit(X + 1e5, Y).certificate_.optimal  # and from a warm start


@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon_insensitive", "huber"])
def test_targets_far_from_zero(loss):
    """Mean 1000, spread 1: rounding in the line search once left losses with kinks short of their tolerance."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 5))
        Y = X @ rng.normal(size=(5, 4)) * 0.5 + rng.standard_t(3, size=(40, 4))
        near, far = (solve(Problem(X, Y + shift, loss, "trace", 1e-3), tol=1e-6) for shift in (0.0, 1000.0))
        assert far.certificate.optimal
        assert abs(near.certificate.primal - far.certificate.primal) <= near.gap + far.gap + 1e-9
        assert np.allclose(far.b, near.b + 1000, atol=0.2)
