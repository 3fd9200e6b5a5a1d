"""``taskloom inspect`` and ``taskloom predict`` with models of several terms, or with a common part."""

import json

import numpy as np
import pandas as pd
import pytest
from command_line import taskloom_
from sklearn.pipeline import make_pipeline

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, TablePreprocessor, Term, cli

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("safetensors")

N = 90
INPUTS = ["x1", "x2"]
TERMS = [
    Term("linear", columns=INPUTS, weight=np.inf),
    Term("linear", by="shop", columns=["x1"], intercept=True, structure="trace", weight=0.5),
    Term("constant", by="region"),
    Term("constant", by="shop", described_by=["size", "kind"]),
]
FITS = {
    "terms": lambda X, y: MultiTaskRegressor(terms=TERMS, alpha=0.05).fit(X, y),
    "common": lambda X, y: MultiTaskRegressor(common=True, task_column="shop", alpha=0.05).fit(X[[*INPUTS, "shop"]], y),
    "classifier": lambda X, y: MultiTaskClassifier(terms=TERMS, alpha=0.05).fit(X, np.where(y > 0, "up", "down")),
    "pipeline": lambda X, y: make_pipeline(
        TablePreprocessor(task_column="shop"), MultiTaskRegressor(common=True, task_column="shop", alpha=0.05)
    ).fit(X[[*INPUTS, "kind", "shop"]], y),
    "plain": lambda X, y: MultiTaskRegressor(task_column="shop", alpha=0.05).fit(X[[*INPUTS, "shop"]], y),
}


def panel():
    """A table with an identifier; names of shops look like numbers, but are text."""
    rng = np.random.default_rng(0)
    shop = rng.permutation(np.arange(N) % 4)
    x1, x2 = rng.normal(size=(2, N))
    y = x1 - x2 + rng.normal(size=4)[shop] * (1 + x1) + 0.1 * rng.normal(size=N)
    names = {"shop": [f"s{k}" for k in shop], "region": rng.integers(10, 13, N), "size": shop / 2.0}
    kinds = np.array(["mall", "street"])[shop % 2]
    return pd.DataFrame({"id": [f"r{i}" for i in range(N)], "x1": x1, **names, "kind": kinds, "x2": x2}), y


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table as files, and files of models."""
    place = tmp_path_factory.mktemp("terms")
    frame, y = panel()
    frame.to_csv(place / "t.csv", index=False)
    frame.to_parquet(place / "t.parquet")
    for name, fit in FITS.items():
        taskloom.save(fit(frame.drop(columns="id"), y), place / name)
    return place


KEPT = {
    "terms": ["id", "shop", "region"],
    "common": ["id", "shop", "region", "size", "kind"],
    "classifier": ["id", "shop", "region"],
    "pipeline": ["id", "shop", "region", "size"],
    "plain": ["id", "shop", "region", "size", "kind"],
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("table", ["t.csv", "t.parquet"])
def test_predictions_are_those_of_the_model(name, table, folder, tmp_path):
    frame, y = panel()
    model = FITS[name](frame.drop(columns="id"), y)
    assert taskloom_("predict", folder / name, folder / table, "-o", tmp_path / "o.csv", "--rows", 40) == 0
    found = pd.read_csv(tmp_path / "o.csv")
    more = ["probability down", "probability up"] if name == "classifier" else []
    assert list(found.columns) == [*KEPT[name], "prediction", *more]
    columns = model.feature_names_in_
    if name == "classifier":
        assert found["prediction"].tolist() == model.predict(frame[columns]).tolist()
        assert np.allclose(found[more], model.predict_proba(frame[columns]), rtol=1e-13)
    else:
        assert np.allclose(found["prediction"], model.predict(frame[columns]), rtol=1e-13)


def test_new_levels_and_categories_get_what_is_common(folder, tmp_path):
    frame, y = panel()
    new = frame.head(4).assign(
        shop=["s0", "new", "new", "s1"], region=[10, 99, 10, 11], kind=["kiosk", "mall", "street", "mall"]
    )
    new.to_csv(tmp_path / "n.csv", index=False)
    for name in ("terms", "common", "pipeline"):
        assert taskloom_("predict", folder / name, tmp_path / "n.csv", "-o", tmp_path / "o.csv") == 0
        model = FITS[name](frame.drop(columns="id"), y)
        assert np.allclose(
            pd.read_csv(tmp_path / "o.csv")["prediction"], model.predict(new[model.feature_names_in_]), rtol=1e-13
        )
    assert taskloom_("predict", folder / "common", tmp_path / "n.csv", "--unseen", "raise") == cli.FAILED


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("shop", "", "column 'shop' is empty in row 3"),
        ("region", "", "column 'region' is empty in row 3"),
        ("x1", "NA", "column 'x1' is empty in row 3"),
        ("x1", "much", "column 'x1' is numeric, but has 'much' in row 3"),
    ],
)
def test_cells_that_no_model_can_read_are_refused_with_their_row(column, cell, words, folder, tmp_path, capsys):
    frame = panel()[0].astype(str)
    frame.loc[2, column] = cell
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert taskloom_("predict", folder / "terms", tmp_path / "t.csv", "--rows", 2) == cli.FAILED
    assert words in capsys.readouterr().err
    frame.drop(columns="size").to_csv(tmp_path / "t.csv", index=False)
    assert taskloom_("predict", folder / "terms", tmp_path / "t.csv") == cli.FAILED
    assert "no column 'size', which the model was fitted with" in capsys.readouterr().err


def test_a_model_of_an_array_has_no_names(tmp_path, capsys):
    X = np.random.default_rng(0).normal(size=(20, 2))
    MultiTaskRegressor().fit(X, X).save(tmp_path / "m")
    panel()[0].to_csv(tmp_path / "t.csv", index=False)
    assert taskloom_("predict", tmp_path / "m", tmp_path / "t.csv") == cli.FAILED
    assert "without the names of its columns" in capsys.readouterr().err


def test_inspect_shows_the_terms(folder, capsys):
    assert taskloom_("inspect", folder / "terms") == 0
    text = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "x1 + x2 unpenalised inf" in lines
    assert "(1 + x1 | shop) trace 0.5 4" in lines
    assert "(1 | region) independent 1 3" in lines
    assert "(1 | shop described by size, kind) independent 1 4" in lines
    assert "groups: shop 4, region 3" in lines
    assert "Variance components" in text
    assert "tasks" not in text.split("Terms")[0]
    assert taskloom_("inspect", folder / "terms", "--json") == 0
    found, model = json.loads(capsys.readouterr().out), taskloom.load(folder / "terms")
    summary = model.summary()
    assert (found["tasks"], found["structure"], found["alpha"]) == (None, None, 0.05)
    assert [term["term"] for term in found["summary"]["terms"]] == summary.terms
    assert [term["weight"] for term in found["summary"]["terms"]] == [None, 0.5, 1.0, 1.0]
    assert [term["levels"] for term in found["summary"]["terms"]] == [None, 4, 3, 4]
    assert found["summary"]["groups"] == {"shop": 4, "region": 3}
    assert found["summary"]["residual_variance"] == summary.residual_variance
    assert found["summary"]["coefficients"][1]["gls"] == summary.coefficients[1].gls
    assert np.array_equal(found["summary"]["variance_components"][0]["covariance"], summary.variance_components[0].covariance)


def test_inspect_of_a_common_part_shows_tasks_and_terms(folder, capsys):
    assert taskloom_("inspect", folder / "pipeline") == 0
    text = capsys.readouterr().out
    assert "4: s0, s1, s2, s3" in text
    assert "structure    Trace()" in text
    assert "(1 + x1 + x2 + kind=mall + kind=street | shop)" in text
    assert taskloom_("inspect", folder / "plain", "--json") == 0
    assert json.loads(capsys.readouterr().out)["summary"] is None


def test_inspect_says_what_a_search_chose(tmp_path, capsys):
    frame, y = panel()
    terms = [TERMS[0], Term("constant", by="shop"), TERMS[2]]
    model = MultiTaskRegressorCV(terms=terms, alphas=[0.1], cv=2).fit(frame.drop(columns="id"), y)
    model.save(tmp_path / "m")
    assert taskloom_("inspect", tmp_path / "m") == 0
    assert f"selection    {model.selection_}" in capsys.readouterr().out
    assert taskloom_("inspect", tmp_path / "m", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    weights = [None if np.isinf(weight) else weight for weight in model.best_weights_.values()]
    assert (list(found["weights"].values()), found["selection"]) == (weights, model.selection_)
    assert [term["weight"] for term in found["summary"]["terms"]] == weights
