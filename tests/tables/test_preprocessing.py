"""Tables of numbers and words as matrices: what the preprocessing of ``taskloom fit`` does, and refuses."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from taskloom import TablePreprocessor
from taskloom.tables.preprocessing import read_targets

TABLE = pd.DataFrame(
    {
        "age": [20.0, np.nan, 40.0, 60.0],
        "text": ["1", " 2.5 ", "", "4"],
        "kind": ["b", "a", None, "a"],
        "truth": ["True", "false", "FALSE", "true"],
        "flag": [True, False, True, True],
        "level": pd.Categorical(["x", "y", "x", "y"]),
        "shop": ["s", "t", "s", "t"],
    }
)


def test_numbers_are_scaled_and_filled_with_the_median():
    out = TablePreprocessor().fit_transform(TABLE[["age", "text", "truth", "flag"]])
    assert list(out.columns) == ["age", "text", "truth", "flag"]
    filled = np.array([20.0, 40.0, 40.0, 60.0])
    assert np.allclose(out["age"], (filled - filled.mean()) / filled.std())
    assert np.allclose(out.mean(), 0)
    assert np.allclose(out.std(ddof=0), 1)


def test_categorical_columns_become_levels():
    step = TablePreprocessor(task_column="shop").fit(TABLE)
    assert step.levels_ == {"kind": ["a", "b", None], "level": ["x", "y"]}
    out = step.transform(TABLE)
    assert out.columns[-1] == "shop"
    assert out["shop"].tolist() == ["s", "t", "s", "t"]
    assert out["kind=(missing)"].tolist() == [0, 0, 1, 0]
    new = step.transform(TABLE.assign(kind="never seen", extra=1)[[*TABLE.columns[::-1], "extra"]])
    assert new[["kind=a", "kind=b", "kind=(missing)"]].to_numpy().sum() == 0
    assert list(new.columns) == list(out.columns) == step.get_feature_names_out().tolist()


def test_any_frame_will_do():
    step = TablePreprocessor(task_column="shop", categorical=("text",)).fit(TABLE)
    other = step.transform(pl.DataFrame({name: TABLE[name].tolist() for name in TABLE} | {"kind": ["b", "a", None, "a"]}))
    assert np.array_equal(step.transform(TABLE).drop(columns="shop"), other.drop(columns="shop"))
    assert clone(step).get_params() == step.get_params()
    with pytest.raises(ValueError, match="a data frame"):
        step.fit(np.eye(3))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"a": ["1", "x"]}, "column 'a' is numeric, but has 'x' in row 1"),
        ({"a": ["1,5", "2"]}, "a comma, such as '1,5'"),
        ({"a": ["1.000,5", "2.000,25"]}, "numbers with a comma"),
        ({"a": ["1", "inf"]}, "infinity in row 1"),
        ({"a": [1.0, np.inf]}, "infinity in row 1"),
        ({"a": ["1_000", "2"]}, "is numeric, but has '1_000'"),
        ({"a": ["", None]}, "'a' is empty"),
        ({"a": [np.nan, np.nan]}, "'a' is empty"),
        ({"a": pd.to_datetime(["2020-01-01", "2020-01-02"])}, "holds times"),
        ({"a": [f"n{i}" for i in range(101)]}, "101 different values"),
        ({"a=x": [1, 2], "a": ["x", "y"]}, "both be called 'a=x'"),
        ({}, "no input columns"),
    ],
)
def test_columns_that_make_no_sense(table, words):
    with pytest.raises(ValueError, match=words):
        TablePreprocessor().fit(pd.DataFrame(table))


def test_new_tables_must_have_the_columns():
    step = TablePreprocessor(task_column="shop").fit(TABLE)
    with pytest.raises(ValueError, match="no column 'kind', which the model was fitted with"):
        step.transform(TABLE.drop(columns="kind"))
    with pytest.raises(ValueError, match="column 'age' is numeric, but has 'old'"):
        step.transform(TABLE.astype(object).assign(age="old"))
    with pytest.raises(ValueError, match="'shop' is empty in row 2"):
        step.transform(TABLE.assign(shop=["s", "t", None, "t"]))


@pytest.mark.parametrize(
    ("values", "asked", "labelled"),
    [
        (["1", "2", ""], None, False),
        (["yes", "no", ""], None, True),
        (["true", "false", ""], None, True),
        ([True, False, True], None, True),
        (["1", "0", ""], True, True),
        (["true", "false", ""], False, False),
        ([1.0, 2.0, np.nan], None, False),
    ],
)
def test_targets_are_numbers_or_labels(values, asked, labelled):
    column = pd.Series(values, name="y")
    out, found = read_targets(column, asked)
    assert found is labelled
    missing = [value is None for value in out] if labelled else np.isnan(out).tolist()
    assert missing == [value == "" or value != value for value in values]


def test_categorical_targets_cannot_be_regressed():
    with pytest.raises(ValueError, match="column 'y' is numeric, but has 'a'"):
        read_targets(pd.Series(["a", "b"], name="y"), labels=False)


def test_groupings_are_passed_on_as_text():
    table = pd.DataFrame({"region": [1.0, 2.0, 1.0], "x": [0.0, 1.0, 2.0], "shop": ["a", "b", "NA"]})
    encoder = TablePreprocessor(groupings=["region"], task_column="shop").fit(table)
    found = encoder.transform(table[["shop", "x", "region"]])
    assert list(found.columns) == encoder.get_feature_names_out().tolist() == ["x", "region", "shop"]
    assert found["region"].tolist() == ["1", "2", "1"]
    assert found["shop"].tolist() == ["a", "b", "NA"]
    assert list(encoder.numeric_) == ["x"]
    with pytest.raises(ValueError, match="the grouping column 'region' is empty in row 1"):
        encoder.transform(table.assign(region=[1.0, None, 2.0]))
    with pytest.raises(ValueError, match="'shop' is named twice"):
        TablePreprocessor(groupings=["shop"], task_column="shop").fit(table)
    with pytest.raises(ValueError, match="groupings takes a list"):
        TablePreprocessor(groupings="region").fit(table)
    with pytest.raises(ValueError, match="no column 'country'"):
        TablePreprocessor(groupings=["country"]).fit(table)
