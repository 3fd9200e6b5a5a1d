"""Tables that fits with ``terms=`` take, and what they say of those that they do not."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Term, structures

pd = pytest.importorskip("pandas")
N, SHOPS, INPUTS = 120, 6, ["x1", "x2"]
FIXED = Term("linear", columns=INPUTS, weight=np.inf)
OWN = Term("constant", by="shop")
DESCRIBED = Term("constant", by="shop", described_by=["size"])


def panel(seed=0):
    """Shops with intercepts of their own; a size, a chain and a day of opening for each shop."""
    rng = np.random.default_rng(seed)
    shop, size = rng.permutation(np.arange(N) % SHOPS), rng.normal(size=SHOPS)
    x1, x2 = rng.normal(8.0, 1.0, size=(2, N))
    y = 3 * x1 - x2 + size[shop] + 0.1 * rng.normal(size=N)
    frame = pd.DataFrame({"x1": x1, "x2": x2, "shop": [f"s{k}" for k in shop], "size": size[shop], "chain": shop % 2})
    return frame.assign(day=pd.Timestamp("2020-01-01") + pd.to_timedelta(shop, unit="D")), y


def fit(terms, X, y, **settings):
    return MultiTaskRegressor(terms=terms, alpha=1e-3, tol=1e-9, **settings).fit(X, y)


# --- no free intercept ----------------------------------------------------------------------------------------------------


def test_without_an_intercept_functions_go_through_the_origin():
    """Inputs are centred for the sake of intercepts; without any the centre would be one."""
    X, y = panel()
    model = fit([FIXED], X, y, fit_intercept=False)
    expected = LinearRegression(fit_intercept=False).fit(X[INPUTS], y)
    assert np.allclose(model.predict(X), expected.predict(X[INPUTS]))
    assert model.predict(X.assign(x1=0.0, x2=0.0)) == pytest.approx(np.zeros(N), abs=1e-9)
    assert [each.fitted for each in model.summary().coefficients] == pytest.approx(expected.coef_)


def test_a_common_part_without_an_intercept_goes_through_the_origin():
    X, y = panel()
    model = MultiTaskRegressor("independent", common=True, task_column="shop", fit_intercept=False, alpha=0.1, tol=1e-9)
    model.fit(X[[*INPUTS, "shop"]], y)
    by_shop = np.hstack([X[INPUTS].to_numpy() * (X["shop"] == f"s{k}").to_numpy()[:, None] for k in range(SHOPS)])
    columns = np.hstack([X[INPUTS].to_numpy(), by_shop])
    expected = Ridge(alpha=0.1, fit_intercept=False).fit(columns, y, sample_weight=np.full(N, SHOPS / N))
    assert np.allclose(model.predict(X[[*INPUTS, "shop"]]), expected.predict(columns), atol=1e-6)
    assert np.allclose(model.intercept_, 0.0)


def test_unpenalised_levels_need_no_other_intercept():
    X, y = panel()
    model = fit([FIXED, Term("constant", by="shop", weight=np.inf)], X, y, fit_intercept=False)
    columns = np.hstack([X[INPUTS], pd.get_dummies(X["shop"]).to_numpy(float)])
    expected = LinearRegression(fit_intercept=False).fit(columns, y)
    assert np.allclose(model.predict(X), expected.predict(columns))


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_a_level_keeps_a_share_of_its_mean(weight):
    X, y = panel()
    X, y = X[20:], y[20:]  # levels of several sizes
    alpha, n = 0.02, len(y)
    model = MultiTaskRegressor(terms=[Term("constant", by="shop", weight=weight)], alpha=alpha, fit_intercept=False).fit(X, y)
    levels = pd.Series(y).groupby(X["shop"].to_numpy())
    m = levels.size()
    assert m.nunique() > 1
    expected = levels.mean() * m / (m + alpha * n / weight)
    assert np.allclose(model.coef_frame()["coefficient"][1:], expected)


# --- tables ---------------------------------------------------------------------------------------------------------------


def test_frames_of_polars_and_pyarrow_are_those_of_pandas():
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    X, y = panel()
    X = X.drop(columns="day")
    expected = fit([FIXED, OWN, DESCRIBED], X, y).predict(X)
    for table in (
        pl.from_pandas(X),
        pa.Table.from_pandas(X),
        pl.from_pandas(X).with_columns(pl.col("shop").cast(pl.Categorical)),
    ):
        assert np.allclose(fit([FIXED, OWN, DESCRIBED], table, y).predict(table), expected)
    with pytest.raises(ValueError, match=r"X is a LazyFrame.*pass X\.collect\(\)"):
        fit([FIXED], pl.from_pandas(X).lazy(), y)


@pytest.mark.parametrize("columns", ["x1", 0, ["x1"], np.array([0]), pd.Index(["x1"])], ids=repr)
def test_one_column_or_several(columns):
    X, y = panel()
    expected = fit([Term("linear", columns=["x1"])], X, y).predict(X)
    assert np.array_equal(fit([Term("linear", columns=columns)], X, y).predict(X), expected)
    described = fit([Term("constant", by="shop", described_by=columns)], X.assign(x1=X["size"]), y)
    assert np.array_equal(described.predict(X.assign(x1=X["size"])), fit([DESCRIBED], X, y).predict(X))


@pytest.mark.parametrize("kind", ["str", "category"])
def test_text_and_categories_are_no_sizes(kind):
    """A chain that is called 3 is not three times a chain that is called 1."""
    X, y = panel()
    term = Term("constant", by="shop", described_by="chain")
    chain = 1 + 2 * X["chain"]
    found, one_hot = X.assign(chain=chain.astype(kind)), X.assign(chain=chain.map({1: "one", 3: "three"}))
    assert np.allclose(fit([FIXED, term], found, y).predict(found), fit([FIXED, term], one_hot, y).predict(one_hot))
    assert not np.allclose(fit([FIXED, term], found, y).predict(found), fit([FIXED, term], X, y).predict(X))


def test_levels_that_were_not_seen_add_nothing_or_are_refused():
    X, y = panel()
    new = X.assign(shop="new")
    model = fit([FIXED, OWN, DESCRIBED], X, y)
    assert np.allclose(model.predict(new), model.predict(X) - model.predict_terms(X)[1])
    strict = fit([FIXED, OWN, DESCRIBED], X, y, unseen="raise")
    assert np.allclose(strict.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="level 'new' of column 'shop' was not seen in training"):
        strict.predict(new)
    assert np.isfinite(fit([FIXED, DESCRIBED], X, y, unseen="raise").predict(new)).all()


def test_dates_are_levels():
    X, y = panel()
    model = fit([FIXED, Term("constant", by="day")], X, y)
    assert np.allclose(model.predict(X), fit([FIXED, OWN], X, y).predict(X))
    assert model.summary().groups == {"day": SHOPS}


# --- refusals ---------------------------------------------------------------------------------------------------------------


def changed(column, values):
    """The frame with other values in a column: of the first shop, or of all rows."""
    frame, _ = panel()
    first = (frame["shop"] == "s0").to_numpy()
    return frame.assign(**{column: [new if rows else old for old, new, rows in zip(frame[column], values, first, strict=True)]})


@pytest.mark.parametrize(
    ("table", "terms", "message"),
    [
        (
            changed("size", [np.nan] * N),
            [DESCRIBED],
            "'size', which describes the levels of a term, holds a missing value in row",
        ),
        (changed("chain", [None] * N), [Term("constant", by="shop", described_by=["chain"])], "'chain', which.*missing value"),
        (changed("size", list(range(N))), [DESCRIBED], "'size' describes the levels of 'shop', but varies within level 's0'"),
        (panel()[0], [Term("constant", by="shop", described_by="day")], "'day' of X holds dates.*the days since"),
        (panel()[0], [Term("linear", columns=["x1", "day"])], "'day' of X holds dates"),
        (panel()[0], [Term("linear", columns=[])], r"columns=\[\] names no column"),
        (panel()[0], [Term("constant", by="shop", described_by=[])], r"described_by=\[\] names no column"),
        (panel()[0], [Term("linear", columns="x3")], r"no column 'x3' \(columns\)"),
        (
            panel()[0],
            [FIXED, Term("linear", columns=["x2"], weight=np.inf)],
            "'x2' depends on the columns before, on those of other",
        ),
        (
            panel()[0].assign(c=0.1),
            [Term("linear", columns=["x1", "c"], weight=np.inf)],
            "dependent: 'c' depend.*on the intercept",
        ),
        (panel()[0], [Term("constant", by="shop", weight=np.inf)], "constant of 's5'.*which fit_intercept=False leaves out"),
        (pd.concat([panel()[0], panel()[0][["x1"]]], axis=1), [FIXED], "unique.*got 'x1' twice"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_a_sentence(table, terms, message):
    with pytest.raises(ValueError, match=message):
        fit(terms, table, panel()[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0.5}, r"leave gamma as it is by default, got gamma=0\.5; take a kernel with its parameters"),
        ({"degree": 2}, "leave degree as it is"),
        ({"intercept_scaling": 2.0}, "leave intercept_scaling as it is"),
        ({"kernel": "rbf"}, r"take Term\(kernel, \.\.\.\)"),
        ({"task_weight": "size"}, "take sample_weight="),
    ],
)
def test_a_setting_that_terms_would_ignore_is_refused(settings, message):
    X, y = panel()
    with pytest.raises(ValueError, match=message):
        fit([FIXED], X, y, **settings)


def test_new_rows_are_checked_as_those_of_the_fit():
    X, y = panel()
    model = fit([FIXED, DESCRIBED], X, y)
    with pytest.raises(ValueError, match=r"'size', which describes.*missing value in row 0"):
        model.predict(X.assign(size=np.nan))
    with pytest.raises(ValueError, match="'size' held numbers in the fit, and now holds 'big'"):
        model.predict(X.assign(size="big"))


def test_terms_are_refused_at_birth():
    with pytest.raises(ValueError, match=r"got 'lienar'; did you mean 'linear'\?"):
        Term("lienar")
    with pytest.raises(ValueError, match="intercept=True or intercept=False"):
        Term("linear", by="shop", intercept="yes")
    with pytest.raises(ValueError, match="kernel of a Term"):
        Term("precomputed")


def test_labels_that_are_not_two_are_counted():
    X, y = panel()
    with pytest.raises(ValueError, match="two labels, got 3"):
        MultiTaskClassifier(terms=[FIXED]).fit(X, np.digitize(y, np.quantile(y, [0.3, 0.6])))
    with pytest.raises(ValueError, match=r"needs a loss of single outputs.*got loss='softmax'"):
        MultiTaskClassifier(terms=[FIXED], loss="softmax").fit(X, y > np.median(y))


def test_what_a_model_of_terms_lacks_says_where_it_is():
    X, y = panel()
    model = fit([FIXED, Term("linear", by="shop", columns=INPUTS, structure=structures.Trace())], X, y)
    assert not hasattr(model, "coef_")
    with pytest.raises(AttributeError, match=r"with terms= coef_frame\(\)"):
        _ = model.coef_
    with pytest.raises(AttributeError, match=r"with terms= relations_frame\(\)"):
        _ = model.structure_
    for ask in (model.task_correlation, model.task_clusters, model.task_graph):
        with pytest.raises(ValueError, match=r"relations_frame\(\) has that of each grouping"):
            ask()
