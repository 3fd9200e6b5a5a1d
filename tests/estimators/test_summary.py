"""Summaries and frames of fitted models: what they say is what was simulated, fitted, or found by statsmodels."""

import sys

import numpy as np
import pytest

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Term, load
from taskloom.estimators.terms import mixed_model
from taskloom.estimators.terms.variance_components import CovarianceShape, RandomEffects, variance_components
from taskloom.structures import Fixed

pd = pytest.importorskip("pandas")
SIGMA = 0.7
COVARIANCE = np.array([[0.8, 0.2], [0.2, 0.5]])  # of intercepts and slopes


def simulated(n_groups, rows=12, crossed=0, seed=0):
    """Random intercepts and slopes in groups; crossed with random intercepts of variance 0.36, if there are any."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rows)
    n = len(group)
    x = rng.normal(2.0, 1.0, size=n)
    effects = rng.multivariate_normal([0.0, 0.0], COVARIANCE, size=n_groups)
    y = 1 + 2 * x + effects[group, 0] + effects[group, 1] * (x - 2) + SIGMA * rng.normal(size=n)
    frame = pd.DataFrame({"x": x, "group": [f"g{k:03d}" for k in group]})
    if crossed:
        frame["site"] = rng.integers(0, crossed, n)
        y = y + (0.6 * rng.normal(size=crossed))[frame["site"]]
    return frame, y


def terms(crossed=False, **settings):
    found = [
        Term("linear", columns=["x"], weight=np.inf),
        Term("linear", by="group", columns=["x"], intercept=True, **settings),
    ]
    return [*found, Term("constant", by="site")] if crossed else found


def marginal(theta_cov, sigma2, X, y, Z, weight):
    """The restricted log likelihood by its definition, with dense matrices."""
    V = sigma2 * np.diag(1 / weight) + sum(
        z @ np.kron(np.eye(z.shape[1] // len(D)), D) @ z.T for z, D in zip(Z, theta_cov, strict=True)
    )
    inverse = np.linalg.inv(V)
    information = X.T @ inverse @ X
    b = np.linalg.solve(information, X.T @ inverse @ y)
    r = y - X @ b
    n, p = X.shape
    value = np.linalg.slogdet(V)[1] + np.linalg.slogdet(information)[1] + r @ inverse @ r + (n - p) * np.log(2 * np.pi)
    return -0.5 * value, b, np.linalg.inv(information)


# --- variance components ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crossed", [False, True])
def test_elimination_equals_the_dense_likelihood_at_its_maximum(crossed):
    rng = np.random.default_rng(1)
    n, weight = 60, rng.uniform(0.5, 2.0, 60)
    X = np.column_stack([np.ones(n), rng.normal(size=n)])
    codes, other = rng.integers(0, 8, n), rng.integers(0, 4, n)
    phi = np.column_stack([X[:, 1], np.ones(n)])
    effects = [RandomEffects(phi, codes, 8, (CovarianceShape(2, "full"),))]
    y = X @ [1.0, 2.0] + rng.normal(size=(8, 2))[codes].sum(axis=1) + rng.normal(size=n)
    if crossed:
        effects.insert(0, RandomEffects(np.ones((n, 1)), other, 4, (CovarianceShape(1, "full"),)))
        y = y + rng.normal(size=4)[other]
    found = variance_components(X, y, weight, effects)
    Z = [each.design.toarray() for each in effects]
    value, b, covariance = marginal(found.covariances, found.sigma2, X, y, Z, weight)
    assert np.isclose(value, found.log_likelihood, atol=1e-8)
    assert np.allclose(b, found.coef, atol=1e-8)
    assert np.allclose(covariance, found.coef_covariance, atol=1e-8)
    for factor in (0.97, 1.03):
        assert marginal(found.covariances, factor * found.sigma2, X, y, Z, weight)[0] < value
        for j in range(len(effects)):
            moved = [D * (factor if i == j else 1.0) for i, D in enumerate(found.covariances)]
            assert marginal(moved, found.sigma2, X, y, Z, weight)[0] < value


@pytest.mark.parametrize("crossed", [False, True])
def test_a_fit_at_the_components_has_the_coefficients_of_generalised_least_squares(crossed):
    """``alpha = sigma^2 / n`` with the variances as weights and covariances: what lme4 fits, from two fits."""
    X, y = simulated(40, crossed=8 * crossed)
    found = MultiTaskRegressor(terms=terms(crossed), alpha=1.0 / len(y)).fit(X, y).summary()
    slopes, *sites = found.variance_components
    known = terms(structure=Fixed(pd.DataFrame(slopes.centred, slopes.features, slopes.features), side="features"))
    known += [Term("constant", by="site", weight=float(each.covariance[0, 0])) for each in sites]
    again = MultiTaskRegressor(terms=known, alpha=found.residual_variance / len(y), tol=1e-10).fit(X, y).summary()
    assert [each.fitted for each in again.coefficients] == pytest.approx([each.gls for each in found.coefficients], abs=1e-6)
    assert again.log_likelihood == pytest.approx(found.log_likelihood)


@pytest.mark.parametrize("crossed", [0, 40])
def test_simulated_components_are_recovered(crossed):
    """Whatever alpha and the structure are."""
    X, y = simulated(300, crossed=crossed)
    model = MultiTaskRegressor(terms=terms(bool(crossed), structure="trace"), alpha=1e-3).fit(X, y)
    summary = model.summary()
    own = summary.variance_components[0]
    assert own.features == ["intercept", "x"]
    error = np.sqrt((COVARIANCE**2 + np.outer(np.diag(COVARIANCE), np.diag(COVARIANCE))) / 300)
    assert np.all(np.abs(own.centred - COVARIANCE) < np.maximum(3 * error, 0.2 * np.abs(COVARIANCE)))
    assert np.isclose(np.sqrt(summary.residual_variance), SIGMA, rtol=0.05)
    if crossed:
        assert np.isclose(summary.variance_components[1].covariance[0, 0], 0.36, atol=3 * 0.36 * np.sqrt(2 / 40))
    intercept, slope = summary.coefficients
    assert abs(slope.gls - 2) < 3 * slope.std_error
    assert abs(intercept.gls - 1) < 3 * intercept.std_error


def test_no_variance_is_found_where_there_is_none():
    rng = np.random.default_rng(3)
    X, y = simulated(40)
    y = 1 + 2 * X["x"].to_numpy() + rng.normal(size=len(X))
    model = MultiTaskRegressor(terms=[Term("linear", columns=["x"], weight=np.inf), Term("constant", by="group")]).fit(X, y)
    summary = model.summary()
    assert summary.variance_components[0].covariance[0, 0] < 0.02
    assert np.isclose(summary.residual_variance, 1.0, rtol=0.2)


def test_components_are_those_of_statsmodels():
    smf = pytest.importorskip("statsmodels.formula.api")
    X, y = simulated(40, seed=2)
    X["x"] -= X["x"].mean()
    summary = MultiTaskRegressor(terms=terms(), alpha=0.01).fit(X, y).summary()
    fit = smf.mixedlm("y ~ x", X.assign(y=y), groups=X["group"], re_formula="~x").fit(reml=True)
    assert np.allclose(summary.variance_components[0].covariance, fit.cov_re.to_numpy(), rtol=5e-3, atol=1e-3)
    assert np.isclose(summary.residual_variance, fit.scale, rtol=1e-3)
    assert np.allclose([each.gls for each in summary.coefficients], fit.fe_params, rtol=1e-4)
    assert np.allclose([each.std_error for each in summary.coefficients], fit.bse_fe, rtol=5e-3)


def test_units_of_inputs_and_targets_scale_the_summary():
    X, y = simulated(30)
    near = MultiTaskRegressor(terms=terms()).fit(X, y).summary()
    far = MultiTaskRegressor(terms=terms()).fit(X.assign(x=1e4 * X["x"] + 7e4), 100 * y).summary()
    scale = np.array([100.0, 0.01])
    expected = near.variance_components[0].centred * np.outer(scale, scale)
    assert np.allclose(far.variance_components[0].centred, expected, rtol=1e-3)
    assert np.isclose(far.coefficients[1].std_error, 0.01 * near.coefficients[1].std_error, rtol=1e-3)


def test_a_weight_of_two_shrinks_the_noise_of_a_row():
    """Weights are relative: doubling all changes nothing."""
    X, y = simulated(30)
    one = MultiTaskRegressor(terms=terms()).fit(X, y).summary()
    two = MultiTaskRegressor(terms=terms()).fit(X, y, sample_weight=np.full(len(y), 2.0)).summary()
    some = MultiTaskRegressor(terms=terms()).fit(X, y, sample_weight=np.where(np.arange(len(y)) % 2, 2.0, 1.0)).summary()
    assert np.isclose(one.residual_variance, two.residual_variance, rtol=1e-6)
    assert not np.isclose(one.residual_variance, some.residual_variance, rtol=1e-6)


def test_a_common_part_has_the_components_of_its_two_terms():
    """In long and wide tables, with sample weights, whatever the weights of the tasks."""
    X, y = simulated(12)
    s = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    expected = MultiTaskRegressor(terms=terms()).fit(X, y, sample_weight=s).summary()
    groups, Y = np.unique(X["group"]), np.full((len(y), 12), np.nan)
    keep = np.arange(len(y)) >= 3  # tasks of different sizes
    Y[np.arange(len(y)), np.searchsorted(groups, X["group"])] = y
    long = MultiTaskRegressor(common=True, task_column="group").fit(X, y, sample_weight=s).summary()
    wide = MultiTaskRegressor(common=True).fit(X[["x"]], Y, sample_weight=s).summary()
    for found in (long, wide):
        slopes = [each.variance_components[0].covariance[1, 1] for each in (found, expected)]  # the centres are not the same
        assert np.isclose(*slopes, rtol=1e-4)
        assert np.isclose(found.residual_variance, expected.residual_variance, rtol=1e-4)
        assert np.isclose(found.log_likelihood, expected.log_likelihood, atol=1e-5)
        assert np.allclose([each.gls for each in found.coefficients], [each.gls for each in expected.coefficients], rtol=1e-5)
    fewer = MultiTaskRegressor(common=True, task_column="group").fit(X[keep], y[keep]).summary()
    same = MultiTaskRegressor(terms=terms()).fit(X[keep], y[keep]).summary()
    assert np.isclose(fewer.residual_variance, same.residual_variance, rtol=1e-4)


@pytest.mark.parametrize(("n_inputs", "kinds"), [(2, ["full"]), (6, ["full", "diagonal"]), (15, ["full", "scale"])])
def test_covariances_have_fewer_parameters_for_more_inputs(n_inputs, kinds):
    rng = np.random.default_rng(0)
    X, task = rng.normal(size=(600, n_inputs)), rng.integers(0, 20, 600)
    own = 0.5 * rng.normal(size=(20, n_inputs))
    y = X.sum(axis=1) + (X * own[task]).sum(axis=1) + 2 * rng.normal(size=20)[task] + 0.3 * rng.normal(size=600)
    model = MultiTaskRegressor(common=True, task_column=-1).fit(np.column_stack([X, task]), y)
    found = model.summary().variance_components
    assert [each.kind for each in found] == kinds
    assert found[0].features[0] == "intercept"
    slopes = np.diag(found[-1].covariance)[1 if n_inputs == 2 else 0 :]
    assert np.isclose(slopes.mean(), 0.25, rtol=0.35)
    assert "20" in str(model.summary())


@pytest.mark.parametrize(
    ("common", "text", "weight", "structure"),
    [
        (Term("linear", weight=np.inf), "x", np.inf, "unpenalised"),
        (Term("rbf", weight=0.5), "rbf(x)", 0.5, "independent"),
        ("rbf", "rbf(x)", 1.0, "independent"),
    ],
)
def test_a_common_part_has_the_weight_that_it_was_given(common, text, weight, structure):
    X, y = simulated(10)
    summary = MultiTaskRegressor(common=common, task_column="group", alpha=0.1).fit(X, y).summary()
    assert (summary.terms, summary.weights) == ([text, "(1 + x | group)"], [weight, 1.0])
    assert summary.structures[0] == structure


def test_relations_of_tasks_are_those_of_own_parts_and_terms_have_their_own():
    X, y = simulated(10)
    model = MultiTaskRegressor(common=True, task_column="group", alpha=0.01).fit(X, y)
    C = model.task_correlation()
    assert {(one, other) for one, other, _ in model.task_graph(0.9)} == {
        (model.tasks_[s], model.tasks_[t]) for s in range(10) for t in range(s + 1, 10) if abs(C[s, t]) >= 0.9
    }
    assert model.task_clusters().shape == (10,)
    model = MultiTaskRegressor(terms=terms(), alpha=0.01).fit(X, y)
    for ask in (model.task_correlation, model.task_clusters, model.task_graph):
        with pytest.raises(ValueError, match="that of each grouping"):
            ask()


def test_dependent_common_columns_have_no_standard_error():
    X, y = simulated(30)
    X["double"] = 2 * X["x"]
    model = MultiTaskRegressor(common=True, task_column="group", structure="independent").fit(X[["x", "double", "group"]], y)
    summary = model.summary()
    assert np.isnan(summary.coefficients[2].std_error)
    assert np.isfinite(summary.coefficients[1].std_error)
    assert "standard errors: 1." in str(summary)


def test_exact_fits_and_fits_without_an_intercept():
    X, y = simulated(10)
    exact = MultiTaskRegressor(terms=terms()).fit(X, np.full(len(y), 3.0)).summary()
    assert "no maximum" in exact.notes[0]
    bare = MultiTaskRegressor(terms=[Term("constant", by="group")], fit_intercept=False).fit(X, y).summary()
    assert bare.coefficients == []
    assert bare.variance_components[0].covariance > 1  # the mean of all is in it


def test_an_unpenalised_grouping_is_fixed():
    X, y = simulated(30, crossed=3)
    X["first"] = (X["site"] == 0).map({True: "a", False: "b"})
    own = [Term("linear", by="first", columns=["x"], weight=np.inf), Term("constant", by="group")]
    summary = MultiTaskRegressor(terms=own).fit(X, y).summary()
    assert [each.name for each in summary.coefficients] == ["intercept", "first[a]:x", "first[b]:x"]
    assert all(abs(each.gls - 2) < 0.5 for each in summary.coefficients[1:])


# --- what there is to say about other models -------------------------------------------------------------------------------


def test_other_losses_have_no_components_and_a_reason():
    X, y = simulated(10)
    for model, target in [
        (MultiTaskClassifier(terms=terms()), y > np.median(y)),
        (MultiTaskRegressor(terms=terms(), loss="absolute"), y),
    ]:
        summary = model.fit(X, target).summary()
        assert summary.variance_components == []
        assert summary.residual_variance is None
        assert "need loss='squared'" in str(summary)
        assert [each.name for each in summary.coefficients] == ["intercept", "x"]


def test_plain_models_have_one_own_term(tmp_path):
    X, y = simulated(10)
    model = MultiTaskRegressor(task_column="group").fit(X, y)
    summary = model.summary()
    assert summary.terms == ["(1 + x | group)"]
    assert summary.groups == {"group": 10}
    assert summary.n_observations == len(y)
    assert "common=True" in str(summary)
    assert MultiTaskRegressor(task_column="group", loss="huber").fit(X, y).summary().n_observations == len(y)
    assert MultiTaskClassifier().fit(X[["x"]], np.arange(len(y)) % 3).summary().n_observations == len(y)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").summary().n_observations == len(y)
    assert "not counted" in str(MultiTaskRegressor(task_column="group").partial_fit(X, y).summary())
    assert "rbf(x)" in MultiTaskRegressor(task_column="group", kernel="rbf").fit(X, y).summary().terms[0]


def test_sizes_beyond_the_limits_are_refused_in_a_sentence(monkeypatch):
    X, y = simulated(10, crossed=5)
    model = MultiTaskRegressor(terms=terms(True)).fit(X, y)
    for limit, sentence in [("MOST_CROSSED", "got 5"), ("MOST_FIXED", "got 1"), ("MOST_NUMBERS", "got 4e")]:
        with monkeypatch.context() as patch:
            patch.setattr(mixed_model, limit, 0)
            assert sentence in str(model.summary())
    kernel = MultiTaskRegressor(terms=[Term("rbf", by="group", columns=["x"])]).fit(X, y)
    assert "kernel for each level" in kernel.summary().notes[0]


def test_kernels_on_all_rows_and_descriptors_have_one_variance():
    X, y = simulated(20)
    X["size"] = X["group"].str[1:].astype(float)
    model = MultiTaskRegressor(
        terms=[
            Term("rbf", columns=["x"]),
            Term("linear", by="group", columns=["x"], described_by=["size"], intercept=True),
            Term("constant", by="group"),
            Term("constant", by="group", weight=2.0),
        ]
    ).fit(X, y)
    summary = model.summary()
    assert [each.by for each in summary.variance_components] == ["all rows", "group", "group", "group"]
    assert summary.terms[2:] == ["(1 | group)", "(1 | group) #2"]
    assert "described by size" in str(summary)


def test_the_printed_summary():
    X, y = simulated(30, crossed=4)
    text = str(MultiTaskRegressor(terms=terms(True), alpha=0.02).fit(X, y).summary())
    for part in [
        "observations: 360",
        "alpha: 0.02",
        "group 30, site 4",
        "(1 + x | group)",
        "(1 | site)",
        "residual",
        "Certificate: optimal",
    ]:
        assert part in text
    assert max(map(len, text.splitlines())) <= 88


# --- frames ----------------------------------------------------------------------------------------------------------------


def test_products_of_the_tidy_frame_are_predictions():
    X, y = simulated(10, crossed=3)
    X["size"] = X["group"].str[1:].astype(float) / 10
    own = Term("linear", by="group", columns=["x"], described_by=["size"])
    model = MultiTaskRegressor(terms=[*terms(True), own], alpha=0.01).fit(X, y)
    frame = model.coef_frame()
    assert list(frame.columns) == ["term", "by", "level", "feature", "coefficient"]
    total = np.zeros(len(X))
    for row in frame.itertuples():
        where = np.ones(len(X)) if row.by == "all rows" else (X[row.by] == row.level).to_numpy()
        total += row.coefficient * where * (1.0 if row.feature == "intercept" else X[row.feature].to_numpy())
    assert np.allclose(total, model.predict(X))
    assert set(frame["level"][frame["by"] == "site"]) == {0, 1, 2}


@pytest.mark.parametrize("common", [None, True])
def test_rows_of_the_frame_are_the_functions_of_the_tasks(common):
    X, y = simulated(10)
    model = MultiTaskRegressor(task_column="group", common=common).fit(X, y)
    frame = model.coef_frame()
    assert list(frame.columns) == ["x", "intercept"]
    rows = frame.loc[X["group"]]
    assert np.allclose(rows["x"].to_numpy() * X["x"].to_numpy() + rows["intercept"].to_numpy(), model.predict(X))
    relations = model.relations_frame()
    assert relations.index.tolist() == relations.columns.tolist() == model.tasks_.tolist()
    assert np.allclose(relations, model.task_correlation())


def test_frames_of_wide_tables_and_arrays():
    rng = np.random.default_rng(0)
    model = MultiTaskRegressor().fit(rng.normal(size=(30, 3)), rng.normal(size=(30, 4)))
    assert list(model.coef_frame().columns) == ["x0", "x1", "x2", "intercept"]
    assert model.coef_frame().index.tolist() == [0, 1, 2, 3]


def test_relations_of_terms_are_on_features_or_levels():
    X, y = simulated(10, crossed=3)
    model = MultiTaskRegressor(
        terms=[*terms(structure="trace"), Term("linear", by="site", columns=["x"], structure="shared_mean")]
    )
    found = model.fit(X, y).relations_frame()
    assert set(found) == {"(1 + x | group)", "(0 + x | site)"}
    assert found["(1 + x | group)"].columns.tolist() == ["x", "intercept"]
    assert found["(0 + x | site)"].columns.tolist() == [0, 1, 2]
    implied = MultiTaskRegressor(terms=terms()).fit(X[["x", "group"]], y)
    W = implied._state.fitted_terms[1].weights
    assert np.allclose(implied.relations_frame()["(1 + x | group)"], W @ W.T / 10)


def test_frames_of_kernels_are_refused():
    X, y = simulated(5)
    with pytest.raises(ValueError, match="needs a linear model, got kernel='rbf'"):
        MultiTaskRegressor(task_column="group", kernel="rbf").fit(X, y).coef_frame()


def test_frames_without_pandas_name_the_extra(monkeypatch):
    rng = np.random.default_rng(0)
    model = MultiTaskRegressor().fit(rng.normal(size=(20, 2)), rng.normal(size=(20, 2)))
    monkeypatch.setitem(sys.modules, "pandas", None)
    for frame in (model.coef_frame, model.relations_frame):
        with pytest.raises(ImportError, match=r"taskloom\[frames\]"):
            frame()
    assert "groups: task 2" in str(model.summary())
