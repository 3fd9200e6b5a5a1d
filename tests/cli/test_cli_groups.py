"""``taskloom fit --common`` and ``--by``: a common part and other groupings, from the table to predictions of new levels."""

import json

import numpy as np
import pandas as pd
import pytest
from command_line import taskloom_

import taskloom
from taskloom import MultiTaskRegressor, TablePreprocessor, Term, cli

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("safetensors")

N, SHOPS, REGIONS = 160, 8, ["north", "south", "NA", "1"]
TASK = ["--target", "sales", "--task", "shop"]
QUICK = ["--alphas", "2", "--cv", "3"]


def panel():
    rng = np.random.default_rng(0)
    shop, region = rng.permutation(np.arange(N) % SHOPS), rng.permutation(np.arange(N) % len(REGIONS))
    price, visits = rng.normal(10, 2, N), rng.normal(size=N)
    sales = visits - price + 2 * rng.normal(size=SHOPS)[shop] + np.array([6.0, -6.0, 2.0, -2.0])[region] + rng.normal(size=N)
    names = {"shop": [f"s{k}" for k in shop], "region": np.array(REGIONS)[region]}
    return pd.DataFrame(names | {"price": price, "visits": visits, "sales": sales})


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    panel().to_csv("t.csv", index=False)
    return tmp_path


def fitted(capsys, *argv):
    """The result of a fit as JSON."""
    assert taskloom_("fit", *argv, *QUICK, "--json", "-q") == 0
    return json.loads(capsys.readouterr().out)


def test_the_scores_with_groups_are_those_of_own_fits(place, capsys):
    """Out-of-fold predictions of the chosen terms, computed without the command."""
    found = fitted(capsys, "t.csv", *TASK, "--by", "region", "--save", "m")
    weights = list(found["weights"].values())
    assert list(found["weights"]) == ["price + visits", "(1 + price + visits | shop)", "(1 | region)"]
    terms = [Term("linear"), Term("linear", by="shop", structure="trace", intercept=True), Term("constant", by="region")]
    for term, weight in zip(terms, weights, strict=True):
        term.weight = weight
    table = panel()
    y = table.pop("sales").to_numpy()
    X = TablePreprocessor(task_column="shop", groupings=["region"]).fit_transform(table)
    out = np.zeros(N)
    order = np.argsort(table["shop"].to_numpy(), kind="stable")
    fold = np.empty(N, int)
    fold[order] = np.arange(N) % 3  # in turn within each shop
    for k in range(3):
        model = MultiTaskRegressor(terms=terms, alpha=found["alpha"]).fit(X[fold != k], y[fold != k])
        out[fold == k] = model.predict(X[fold == k])
    assert found["over_rows"]["together"] == pytest.approx(1 - np.mean((out - y) ** 2) / np.var(y), abs=1e-3)
    assert found["over_rows"]["together"] > 0.9
    assert found["selection"] == taskloom.load("m")[-1].selection_
    assert (found["structure"], found["tasks"], found["transfer"]["task"]) == (None, SHOPS, [f"s{k}" for k in range(SHOPS)])


def test_single_task_models_see_groups_as_categories(place, capsys):
    """Their scores are those of a fit without --by, where the column is an input like any other."""
    with_groups = fitted(capsys, "t.csv", *TASK, "--by", "region")
    common = fitted(capsys, "t.csv", *TASK, "--common", "--categorical", "region")
    assert with_groups["over_rows"]["alone"] == pytest.approx(common["over_rows"]["alone"], abs=1e-6)
    assert with_groups["over_rows"]["together"] > common["over_rows"]["alone"]


def test_new_levels_get_nothing_from_their_terms(place, capsys):
    fitted(capsys, "t.csv", *TASK, "--by", "region", "--save", "m")
    new = panel().head(4)
    new.loc[1:, "region"] = ["moon", "north", "moon"]
    new.loc[2:, "shop"] = "new"
    new.to_csv("n.csv", index=False)
    assert taskloom_("predict", "m", "n.csv", "-o", "o.csv") == 0
    found = pd.read_csv("o.csv", keep_default_na=False)
    assert list(found.columns) == ["shop", "region", "sales", "prediction"]
    pipe = taskloom.load("m")
    common, own, region = pipe[-1].predict_terms(pipe[:-1].transform(new))
    assert np.count_nonzero(own) == 2
    assert np.count_nonzero(region) == 2
    assert np.allclose(found["prediction"], pipe[-1].intercept_[0] + common + own + region, rtol=1e-12)
    assert taskloom_("predict", "m", "n.csv", "--unseen", "raise") == cli.FAILED
    assert "without --unseen raise its term adds nothing" in capsys.readouterr().err
    new.assign(region=["north", "", "north", "north"]).to_csv("n.csv", index=False)
    assert taskloom_("predict", "m", "n.csv") == cli.FAILED
    assert "the grouping column 'region' is empty in row 2" in capsys.readouterr().err


def test_inspect_and_the_report_show_the_terms(place, capsys):
    pytest.importorskip("jinja2")
    fitted(capsys, "t.csv", *TASK, "--by", "region", "--save", "m", "--report", "r.html")
    page = (place / "r.html").read_text()
    assert "(1 | region)" in page
    assert "Variance components" in page
    assert taskloom_("inspect", "m") == 0
    text = capsys.readouterr().out
    assert "numeric: price, visits; grouped by: region, shop" in text
    assert "groups: shop 8, region 4" in text
    assert taskloom_("inspect", "m", "--json") == 0
    assert json.loads(capsys.readouterr().out)["groupings"] == ["region", "shop"]


def test_a_common_part_beside_the_tasks(place, capsys):
    found = fitted(capsys, "t.csv", *TASK, "--common", "--drop", "region", "--save", "m")
    model = taskloom.load("m")[-1]
    assert list(found["weights"]) == ["common", "own", "intercept"]
    assert found["structure"] in ("Trace()", "Independent()")
    assert model.transfer_["together"].tolist() == found["transfer"]["together"]
    assert taskloom_("fit", "t.csv", *TASK, "--drop", "region", *QUICK, "--common", "rbf", "--save", "m") == 0
    text = capsys.readouterr().out
    assert "chosen: " in text
    assert "over all rows: R2 " in text
    assert taskloom.load("m")[-1].common == "rbf"


def test_groups_without_tasks(place, capsys):
    argv = ("t.csv", "--target", "sales", "--by", "shop", "--by", "region")
    found = fitted(capsys, *argv, "--holdout", "0.25")
    assert (found["tasks"], found["transfer"]) == (0, None)
    assert list(found["weights"]) == ["price + visits", "(1 | shop)", "(1 | region)"]
    assert found["held_out"]["together"] > 0.8
    assert taskloom_("fit", *argv, *QUICK) == 0
    said = capsys.readouterr()
    assert "no tasks, 8 levels in column 'shop', 4 levels in column 'region'" in said.err
    assert "(one model: shop and region as categorical input)" in said.out


def test_tasks_of_one_class_have_a_common_part_and_no_single_task_model(place, capsys):
    table = panel().assign(region=lambda frame: frame["region"] + "-")
    table["good"] = np.where((table.pop("sales") > -10) | (table["shop"] == "s1"), "yes", "no")
    table.to_csv("l.csv", index=False)
    assert taskloom_("fit", "l.csv", "--target", "good", "--task", "shop", *QUICK) == cli.FAILED
    assert "one class only" in capsys.readouterr().err
    for beside in (["--common"], ["--by", "region"]):
        assert taskloom_("fit", "l.csv", "--target", "good", "--task", "shop", *QUICK, *beside) == 0
        said = capsys.readouterr()
        assert "no comparison with single-task models: task 's1' has one class only" in said.err
        assert "over all rows: accuracy 0." in said.out
        assert "single-task," not in said.out


def test_a_wide_table_with_a_common_part_says_that_units_matter(place, capsys):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    Y = X @ rng.normal(size=(3, 3)) + rng.normal(size=(40, 3))
    pd.DataFrame(np.hstack([X, 10 * Y]), columns=["x", "y", "z", *"abc"]).to_csv("w.csv", index=False)
    assert taskloom_("fit", "w.csv", "--targets", "a,b,c", "--common", *QUICK, "--save", "m") == 0
    low, high = sorted(np.std(10 * Y, axis=0))[::2]
    assert f"(their standard deviations are from {low:.3g} to {high:.3g})" in capsys.readouterr().err
    assert taskloom_("predict", "m", "w.csv", "-o", "o.csv") == 0
    assert list(pd.read_csv("o.csv").columns)[-3:] == ["prediction a", "prediction b", "prediction c"]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([*TASK, "--by", "shop"], "Column 'shop' cannot be both --task and --by"),
        ([*TASK, "--by", "sales"], "Column 'sales' cannot be both --target and --by"),
        ([*TASK, "--by", "region", "--by", "region"], "Column 'region' is named twice in --by"),
        ([*TASK, "--by", "region", "--drop", "region"], "Column 'region' cannot be dropped"),
        ([*TASK, "--by", "region", "--categorical", "region"], "cannot be both --categorical and --by"),
        (["--targets", "price,visits", "--by", "region"], "--by is for long tables"),
        ([*TASK, "--by", "region", "--structure", "trace,frobenius"], "not trace, frobenius"),
        (["--target", "sales", "--by", "region", "--structure", "trace"], "--structure relates the tasks"),
        ([*TASK, "--by", "region", "--gamma", "1"], "--gamma does not go with --by"),
        ([*TASK, "--common", "--fallback"], "--fallback does not go with --common"),
        ([*TASK, "--common", "lineal"], "'lineal' is no kernel"),
        (["--target", "shop", "--common", "--drop", "region"], "the classes of one target have nothing in common"),
    ],
)
def test_options_that_do_not_go_together(argv, words, place, capsys):
    assert taskloom_("fit", "t.csv", *argv) == cli.USAGE
    assert words in capsys.readouterr().err


def test_a_table_after_common_is_no_kernel(place, capsys):
    assert taskloom_("fit", "--common", "t.csv", *TASK) == cli.USAGE
    assert "the name of a table goes before it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("regoin", "Did you mean 'region'?"),
        ("id", "another level in every row"),
        ("one", "one level"),
        ("gap", "the grouping column 'gap' is empty in row 3"),
    ],
)
def test_columns_that_group_nothing(column, words, place, capsys):
    gap = np.where(np.arange(N) == 2, "", panel()["region"])
    panel().assign(id=np.arange(N), one="k", gap=gap).to_csv("t.csv", index=False)
    assert taskloom_("fit", "t.csv", *TASK, "--by", column) == cli.FAILED
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--common"], ["--common", "rbf"], ["--by", "region"]])
def test_compare_says_that_these_are_options_of_fit(option, place, capsys):
    assert taskloom_("compare", "t.csv", *TASK, *option) == cli.USAGE
    assert f"{option[0]} is for fit" in capsys.readouterr().err
