"""Models behind formulas: what the estimator gets, and what users can ask."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import block_diag
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score

import taskloom
from taskloom.formula import FormulaModel

RNG = np.random.default_rng(0)
DATA = pd.DataFrame({"x": RNG.normal(size=40), "shop": np.tile(list("abcd"), 10)})
DATA["y"] = 2 * DATA["x"] + 1 + 0.1 * RNG.normal(size=40)


class FixedPart(RegressorMixin, BaseEstimator):
    """Least squares on the unpenalised columns of its terms: an estimator with terms that is easy to check."""

    def __init__(self, terms=None, fit_intercept=True, alpha=0.1):
        self.terms, self.fit_intercept, self.alpha = terms, fit_intercept, alpha

    def fit(self, X, y, sample_weight=None):
        self.columns_, self.X_ = self.terms[0].columns, X
        regression = LinearRegression(fit_intercept=self.fit_intercept).fit(X[self.columns_], y, sample_weight)
        self.coef_, self.intercept_ = regression.coef_, regression.intercept_
        return self

    def predict(self, X, scale=1.0):
        return scale * (X[self.columns_].to_numpy() @ self.coef_ + self.intercept_)

    def predict_terms(self, X):
        return X[self.columns_] * self.coef_

    def describe(self):
        return f"alpha={self.alpha}"


def fitted(formula="y ~ x + (1 + x | shop)", **settings):
    return taskloom.from_formula(formula, DATA, model=FixedPart, **settings)


def test_the_estimator_gets_terms_table_and_settings():
    model = fitted("y ~ 0 + x + (1 + x | shop)", alpha=0.5, structure="unit_trace", penalize_fixed=True)
    fixed, own = model.estimator_.terms
    assert (fixed.by, fixed.columns, fixed.weight) == (None, ["x"], 1)
    assert str(own) == "Term('linear', by='shop', structure='unit_trace', columns=['x'], intercept=True)"
    assert (model.estimator_.fit_intercept, model.alpha) == (False, 0.5)
    pd.testing.assert_frame_equal(model.X_, DATA[["x", "shop"]])


def test_a_fitted_model_takes_data_frames():
    model = fitted("y ~ I(2 * x) + (1 | shop)")
    reference = LinearRegression().fit(DATA[["x"]], DATA["y"])
    new = pd.DataFrame({"shop": ["a", "new"], "x": [0.0, 1.0]})
    np.testing.assert_allclose(model.predict(new), reference.predict(new[["x"]]))
    np.testing.assert_allclose(model.predict(new, scale=3.0), 3 * reference.predict(new[["x"]]))
    np.testing.assert_allclose(model.score(DATA), reference.score(DATA[["x"]], DATA["y"]))
    np.testing.assert_allclose(model.predict_terms(new)["I(2 * x)"], [0.0, reference.coef_[0]])
    np.testing.assert_allclose(model.coef_, reference.coef_ / 2)
    assert model.describe() == "alpha=0.1"
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(new), model.predict(new))


def test_fit_without_data_is_the_habit_of_statsmodels():
    model = fitted()
    assert model.fit() is model
    half = model.coef_
    assert model.fit(DATA.assign(y=2 * DATA["y"])) is model
    np.testing.assert_allclose(model.coef_, 2 * half)
    weighted = model.fit(DATA, sample_weight=np.r_[np.ones(20), np.zeros(20)]).coef_
    np.testing.assert_allclose(weighted, fitted().fit(DATA.head(20)).coef_)


def test_searches_of_scikit_learn_take_it():
    model = FormulaModel("y ~ x + (1 | shop)", FixedPart())
    scores = cross_val_score(model, DATA, cv=4)
    assert scores.min() > 0.9
    search = GridSearchCV(model, {"formula": ["y ~ 0 + x", "y ~ x"], "estimator__alpha": [1.0]}, cv=4).fit(DATA)
    assert search.best_params_["formula"] == "y ~ x"
    assert clone(model).get_params()["formula"] == model.formula


def test_the_estimator_of_a_formula_can_be_saved(tmp_path):
    """As the refusal of the formula itself says: its design stays code."""
    pytest.importorskip("safetensors")
    model = taskloom.from_formula("y ~ x + (1 + x | shop)", DATA, alpha=0.1)
    model.estimator_.save(tmp_path / "m")
    table = model.design_.transform(DATA)
    assert np.array_equal(taskloom.load(tmp_path / "m").predict(table), model.predict(DATA))


def test_what_is_refused():
    with pytest.raises(ValueError, match="fit_intercept=False is in the formula"):
        fitted(fit_intercept=False)
    with pytest.raises(ValueError, match=r"terms=.* is in the formula"):
        fitted(terms=[])
    unfitted = FormulaModel("y ~ x", FixedPart())
    with pytest.raises(NotFittedError, match=r"call fit\(data\)"):
        unfitted.fit()
    with pytest.raises(NotFittedError):
        unfitted.predict(DATA)
    with pytest.raises(AttributeError, match="no attribute 'coef_'"):
        unfitted.coef_  # noqa: B018
    with pytest.raises(AttributeError, match="nonsense"):
        fitted().nonsense  # noqa: B018
    with pytest.raises(NotImplementedError, match="pickle the model"):
        fitted().save("model")


def crossed(n=240, groups=24, region_effect=1.0):
    rng = np.random.default_rng(4)
    shop, region = rng.integers(0, groups, n), rng.integers(0, 5, n)
    data = pd.DataFrame({"x": rng.normal(2, 1, n), "shop": [f"s{k}" for k in shop], "region": region})
    level, slope = rng.normal(size=(2, groups)) * [[1.0], [0.5]]
    own = level[shop] + slope[shop] * data["x"] + region_effect * rng.normal(size=5)[region]
    return data.assign(y=1 + 2 * data["x"] + own + 0.7 * rng.normal(size=n))


def test_without_alpha_a_formula_is_the_mixed_model_of_statsmodels():
    """Restricted likelihood: fitted values, covariance of the effects where inputs are zero, variance of the noise."""
    smf = pytest.importorskip("statsmodels.formula.api")
    data = crossed(600, 40, region_effect=0.0)
    model = taskloom.from_formula("y ~ x + (1 + x | shop)", data, tol=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = smf.mixedlm("y ~ x", data, groups=data["shop"], re_formula="~x").fit(reml=True)
    np.testing.assert_allclose(model.predict(data), theirs.fittedvalues, atol=2e-3)
    summary = model.summary()
    np.testing.assert_allclose(summary.variance_components[0].covariance, theirs.cov_re, rtol=1e-2, atol=1e-3)
    assert summary.residual_variance == pytest.approx(theirs.scale, rel=1e-3)


def test_the_likelihood_gives_blups_of_crossed_groupings():
    data = crossed()
    model = taskloom.from_formula("y ~ x + (1 + x | shop) + (1 | region)", data, tol=1e-9)
    n, summary = len(data), model.summary()
    shop, region = summary.variance_components
    Z = np.zeros((n, 0))
    D = []
    for level in sorted(set(data["shop"])):
        here = (data["shop"] == level).to_numpy()[:, None]
        Z, D = np.hstack([Z, here * np.column_stack([np.ones(n), data["x"]])]), [*D, shop.covariance]
    for level in sorted(set(data["region"])):
        Z, D = np.hstack([Z, (data["region"] == level).to_numpy()[:, None]]), [*D, region.covariance]
    G = block_diag(*D)
    V = Z @ G @ Z.T + summary.residual_variance * np.eye(n)
    X = np.column_stack([np.ones(n), data["x"]])
    beta = np.linalg.solve(X.T @ np.linalg.solve(V, X), X.T @ np.linalg.solve(V, data["y"]))
    expected = X @ beta + Z @ G @ Z.T @ np.linalg.solve(V, data["y"] - X @ beta)
    np.testing.assert_allclose(model.predict(data), expected, atol=1e-4)
    assert model.estimator_.alpha == pytest.approx(summary.residual_variance / n)


def test_what_was_given_is_fitted_in_place_of_the_likelihood():
    data = crossed(80, 8)
    given = taskloom.from_formula("y ~ x + (1 | shop)", data, alpha=0.05)
    assert given.estimator_.alpha == 0.05
    robust = taskloom.from_formula("y ~ x + (1 | shop)", data, loss="huber")
    assert robust.certificate_.optimal
    with pytest.raises(ValueError, match="reml=True needs loss='squared', got loss='huber'"):
        taskloom.from_formula("y ~ x + (1 | shop)", data, loss="huber", reml=True)
    data["y"] = 2 * data["x"] + 1  # the fixed effects fit every row
    with pytest.warns(UserWarning, match=r"no maximum.*alpha = 1/n = 0.0125"):
        exact = FormulaModel("y ~ x + (1 | shop)").fit(data)
    np.testing.assert_allclose(exact.predict(data), data["y"], atol=1e-3)
