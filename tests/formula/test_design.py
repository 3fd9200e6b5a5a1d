"""Design columns, terms and targets of a formula, on the data of the fit and on new data."""

import pickle
import sys

import formulaic
import numpy as np
import pandas as pd
import polars as pl
import pytest

from taskloom.formula import FormulaDesign
from taskloom.structures import Fixed

RNG = np.random.default_rng(0)
DATA = pd.DataFrame(
    {
        "y": RNG.normal(size=24),
        "x1": RNG.uniform(1, 3, size=24),
        "x2": RNG.normal(size=24),
        "a": np.tile(["p", "q", "r"], 8),
        "n": np.tile([1, 2], 12),
        "my col": RNG.normal(size=24),
        "shop": np.repeat([f"s{k}" for k in range(6)], 4),
        "region": np.tile(["north", "south", "south", "east"], 6),
    },
    index=np.arange(100, 124),
)


def terms(formula, **settings):
    return [str(term) for term in FormulaDesign.build(formula, DATA, **settings).terms]


@pytest.mark.parametrize(
    ("random", "expected"),
    [
        ("(1 | shop)", ["Term('constant', by='shop')"]),
        ("(1 + x1 | shop)", ["Term('linear', by='shop', structure='trace', columns=['x1'], intercept=True)"]),
        ("(x1 | shop)", ["Term('linear', by='shop', structure='trace', columns=['x1'], intercept=True)"]),
        ("(0 + x1 | shop)", ["Term('linear', by='shop', columns=['x1'])"]),
        ("(x1 - 1 | shop)", ["Term('linear', by='shop', columns=['x1'])"]),
        ("(0 + x1 + x2 | shop)", ["Term('linear', by='shop', structure='trace', columns=['x1', 'x2'])"]),
        ("(x1 || shop)", ["Term('constant', by='shop')", "Term('linear', by='shop', columns=['x1'])"]),
        ("(0 + x1 + x2 || shop)", ["Term('linear', by='shop', columns=['x1'])", "Term('linear', by='shop', columns=['x2'])"]),
        ("(1 | region/shop)", ["Term('constant', by='region')", "Term('constant', by='region:shop')"]),
        ("(1 | shop) + (1 | region)", ["Term('constant', by='shop')", "Term('constant', by='region')"]),
    ],
)
def test_random_parts(random, expected):
    assert terms(f"y ~ x2 + {random}") == ["Term('linear', columns=['x2'], weight=inf)", *expected]
    assert terms(f"y ~ {random}") == expected  # an intercept is no column: the estimator has it


def test_structure_and_weight_are_settings():
    known = Fixed(np.eye(2))
    design = FormulaDesign.build("y ~ x2 + (x1 | shop) + (1 | region)", DATA, structure=known, penalize_fixed=True)
    assert design.terms[0].weight == 1
    assert design.terms[1].structure is known
    assert design.terms[2].structure is None  # one column has one variance: nothing is there to relate


@pytest.mark.parametrize(("fixed", "expected"), [("x1", True), ("1 + x1", True), ("0 + x1", False), ("x1 - 1", False)])
def test_the_intercept_is_the_estimators(fixed, expected):
    design = FormulaDesign.build(f"y ~ {fixed} + (1 | shop)", DATA)
    assert design.fit_intercept is expected
    assert list(design.transform(DATA)) == ["x1", "shop"]


@pytest.mark.parametrize(
    "fixed", ["x1*x2", "np.log(x1) + center(x2)", "a", "C(n):x1", "poly(x1, 2)", "bs(x1, df=4)", "x1:a + scale(`my col`)"]
)
def test_design_columns_are_those_of_formulaic(fixed):
    expected = formulaic.model_matrix(fixed, DATA).drop(columns="Intercept")
    X = FormulaDesign.build(f"y ~ {fixed} + (1 | shop)", DATA).transform(DATA)
    assert list(X) == [*expected.columns, "shop"]
    np.testing.assert_allclose(X[expected.columns].to_numpy(), expected.to_numpy(float))
    assert X.index.equals(DATA.index)
    assert X.drop(columns="shop").dtypes.eq(float).all()


def test_a_dot_is_all_that_has_no_other_role():
    some = DATA[["y", "x1", "x2", "n", "shop", "region"]]
    assert FormulaDesign.build("np.log(n) ~ . + (1 | region:shop)", some).terms[0].columns == ["y", "x1", "x2"]
    assert FormulaDesign.build("y ~ . - x1 + (1 | shop)", some.drop(columns="region")).terms[0].columns == ["x2", "n"]


def test_categories_are_coded_by_hand_the_same():
    X = FormulaDesign.build("y ~ a + a:x1 + (1 | shop)", DATA).transform(DATA)
    np.testing.assert_array_equal(X["a[T.q]"], DATA["a"] == "q")
    np.testing.assert_allclose(X["a[T.r]:x1"] if "a[T.r]:x1" in X else X["a[r]:x1"], (DATA["a"] == "r") * DATA["x1"])


def test_one_name_has_one_meaning():
    """Columns of fixed and random parts share a table: contrasts and indicators of a category have names of their own."""
    X = FormulaDesign.build("y ~ C(a, contr.sum) + (0 + C(a, contr.sum) | shop)", DATA).transform(DATA)
    fixed = formulaic.model_matrix("C(a, contr.sum)", DATA).drop(columns="Intercept")
    own = formulaic.model_matrix("0 + C(a, contr.sum)", DATA)
    for expected in (fixed, own):
        np.testing.assert_array_equal(X[expected.columns].to_numpy(), expected.to_numpy(float))


def test_new_data_get_the_categories_and_the_state_of_the_fit():
    design = FormulaDesign.build("y ~ center(x1) + a + poly(x2, 2) + (np.log(x1) | shop)", DATA)
    whole = design.transform(DATA)
    for some in (slice(0, 1), slice(3, 9)):  # without the target, with other columns in between, one category only
        new = DATA.drop(columns="y").iloc[some, ::-1]
        pd.testing.assert_frame_equal(design.transform(new), whole.iloc[some])
        pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(design)).transform(new), whole.iloc[some])


def test_new_levels_of_groupings_pass():
    design = FormulaDesign.build("y ~ x1 + (1 | region/shop)", DATA)
    X = design.transform(DATA.assign(shop="new").head(2))
    assert X["region:shop"].tolist() == ["north:new", "south:new"]


def test_combinations_are_levels():
    data = pd.DataFrame(
        {"y": [1.0, 2.0, 3.0, 4.0], "a": ["u:v", "u", "u", "u"], "b": ["w", "v:w", "x", "x"], "k": [1, 1, 2, 2]}
    )
    design = FormulaDesign.build("y ~ (1 | a:b) + (1 | k:b)", data)
    X = design.transform(data)
    assert X["a:b"].nunique() == 3
    assert X["a:b"].tolist()[2:] == ["u:x", "u:x"]
    as_floats = design.transform(data.assign(k=data["k"].astype(float), b=data["b"].astype("category")))
    assert as_floats["k:b"].tolist() == X["k:b"].tolist() == ["1:w", "1:v\\:w", "2:x", "2:x"]


@pytest.mark.parametrize("convert", [pl.from_pandas, lambda frame: frame.to_dict("list")], ids=["polars", "dict"])
def test_other_tables(convert):
    design = FormulaDesign.build("y ~ x1*a + (1 | shop)", DATA)
    same = FormulaDesign.build("y ~ x1*a + (1 | shop)", convert(DATA)).transform(convert(DATA))
    np.testing.assert_array_equal(same.to_numpy(), design.transform(DATA).to_numpy())


def test_targets():
    assert FormulaDesign.build("y ~ x1", DATA).target(DATA).equals(DATA["y"])
    assert FormulaDesign.build("`my col` ~ x1", DATA).target(DATA).equals(DATA["my col"])
    assert FormulaDesign.build("a ~ x1", DATA).target(DATA).equals(DATA["a"])  # classes stay as they are
    np.testing.assert_allclose(FormulaDesign.build("np.log(x1) ~ x2", DATA).target(DATA), np.log(DATA["x1"]))
    centred = FormulaDesign.build("center(y) ~ x1", DATA)
    np.testing.assert_allclose(centred.target(DATA.head(3)), DATA["y"].head(3) - DATA["y"].mean())


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("y ~ x3", "no column 'x3'; did you mean 'x"),
        ("y ~ np.log(x3)", "no column 'x3'; did you mean 'x"),
        ("y ~ bs(x3, df=4)", "no column 'x3'; did you mean 'x"),
        ("y ~ x1 + (1 | shops)", "no column 'shops'; did you mean 'shop'"),
        ("y ~ x1 + (zzz | shop)", "no column 'zzz'; it has"),
        ("why ~ x1", "no column 'why'; did you mean 'y'"),
        ("np.log(why) ~ x1", "no column 'why'; did you mean 'y'"),
        ("y ~ nonsense(x1)", "name 'nonsense' is not defined"),
        ("y ~ np.log(x1 +)", "cannot be read as a formula: invalid syntax.*stand in backticks"),
        ("y ~ shop + (1 | shop)", "'shop' is an input and a grouping"),
        ("y ~ x1 + (C(region) | shop) + (1 | region)", "'region' is an input and a grouping"),
        ("y ~ x1:n + (1 | x1:n)", "'x1:n' is an input and a grouping"),
        ("y ~ x1 + y", "'y' is the target"),
        ("y ~ x1 + (1 | y)", "'y' is the target"),
        ("x1 + x2 ~ y", r"must be one column, got 'x1 \+ x2'"),
        ("y ~ 1", "nothing but an intercept"),
        ("y ~ x1 + (0 | shop)", r"nothing varies by 'shop' in \(0 \| shop\): write \(1 \| shop\)"),
        ("y ~ x1 +* x2", "cannot be read as a formula"),
        ("y ~ x1.nonsense()", "cannot be read as a formula: Unable to evaluate"),
    ],
)
def test_what_is_refused(formula, message):
    with pytest.raises(ValueError, match=message) as caught:
        FormulaDesign.build(formula, DATA)
    assert "\n" not in str(caught.value)


def test_missing_values_are_named():
    data = DATA.copy()
    data.loc[103, ["x1", "a", "shop"]] = None
    for formula, message in [
        ("y ~ x2 + (1 | shop)", "grouping 'shop' is missing in row 103"),
        ("y ~ x2 + (1 | region/shop)", "grouping 'shop' is missing in row 103"),
        ("y ~ np.log(x1)", "input 'x1' is missing in row 103"),
        ("y ~ a", "input 'a' is missing in row 103"),
    ]:
        with pytest.raises(ValueError, match=message):
            FormulaDesign.build(formula, data).transform(data)
        with pytest.raises(ValueError, match=message):
            FormulaDesign.build(formula, DATA).transform(data)


def test_values_that_a_transformation_loses_are_named():
    design = FormulaDesign.build("y ~ I(1 / x1)", DATA)
    with pytest.raises(ValueError, match=r"I\(1 / x1\) is not a finite number in row 102"):
        design.transform(DATA.assign(x1=[1.0, 1.0, 0.0, *[1.0] * 21]))


def test_new_data_are_checked():
    design = FormulaDesign.build("y ~ a + (1 | shop)", DATA)
    with pytest.raises(ValueError, match=r"categories that the data of the fit has not: \{'z'\}"):
        design.transform(DATA.assign(a="z"))
    with pytest.raises(ValueError, match="no column 'shop'; did you mean 'shops'"):
        design.transform(DATA.rename(columns={"shop": "shops"}))
    with pytest.raises(ValueError, match="no column 'y'"):
        design.target(DATA.drop(columns="y"))
    with pytest.raises(TypeError, match=r"a formula names columns.*got ndarray"):
        design.transform(DATA.to_numpy())
    with pytest.raises(ValueError, match="'a' twice"):
        design.transform(pd.concat([DATA, DATA[["a"]]], axis=1))


def test_without_formulaic(monkeypatch):
    monkeypatch.setitem(sys.modules, "formulaic", None)
    with pytest.raises(ImportError, match=r'pip install "taskloom\[formula\]"'):
        FormulaDesign.build("y ~ x1", DATA)
