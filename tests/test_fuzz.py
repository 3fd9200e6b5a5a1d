"""A short run of benchmarks/fuzz.py, what it found, and formulas in the names of a table."""

import csv
import html
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_cli import taskloom_
from test_hostile_files import forge, good, on_model  # noqa: F401 (a fixture)

import taskloom
from taskloom import ModelFileError, MultiTaskRegressor, cli
from taskloom.cli.table_files import MOST_COLUMNS, TableFile, is_formula

pytest.importorskip("safetensors")
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def fuzzing():
    """The attackers, which live beside the benchmarks."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        yield pytest.importorskip("attack.fuzzing")
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def fuzzer(fuzzing, tmp_path_factory):
    return fuzzing.Fuzzer(tmp_path_factory.mktemp("fuzz"), 1, tmp_path_factory.mktemp("failures"))


@pytest.mark.parametrize(("what", "count"), [("model files", 300), ("tables", 60)])
def test_files_are_used_or_refused_in_one_sentence(what, count, fuzzing, fuzzer):
    tally = fuzzing.Tally()
    for _ in range(count):
        fuzzer.judge_next(what, tally)
    assert tally.failures == []
    assert tally.done == count
    assert fuzzing.Tally(tally.as_json()).rows() == tally.rows()


def test_the_judge_notices(fuzzing, fuzzer, tmp_path, monkeypatch):
    """A canary that ran, another exception, a sentence that is none: each is a failure."""
    path, mark = tmp_path / "m", tmp_path / "mark"
    path.write_bytes(fuzzer.seeds[0])
    assert fuzzing.judge_model(path, mark)[0] == "used"
    for error, outcome in ((ZeroDivisionError("x"), "ZeroDivisionError"), (ModelFileError(""), "no sentence")):

        def fail(_, error=error):
            raise error

        monkeypatch.setattr(taskloom, "load", fail)
        assert outcome in fuzzing.judge_model(path, mark)[0]
    mark.touch()
    assert fuzzing.judge_model(path, mark)[0] == "FAILURE(it ran)"


# --- what it found ----------------------------------------------------------------------------------------------------------


def test_standard_deviations_of_a_saved_approximation(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = MultiTaskRegressor(kernel="rbf", approximation="nystroem", n_components=5).fit(X, np.sin(X))
    model.save(tmp_path / "m")
    mean, spread = taskloom.load(tmp_path / "m").predict(X[:4] + 0.1, return_std=True)
    assert np.array_equal(mean, model.predict(X[:4] + 0.1))
    assert np.allclose(spread, model.predict(X[:4] + 0.1, return_std=True)[1])


FOUND = {
    "text that clears the screen": on_model(lambda m, a: m["params"].update({"\x1b[2J": 1})),
    "half a character": on_model(lambda m, a: m["params"].update({"\ud800": 1})),
    "a sentence without end": on_model(lambda m, a: m["params"].update({"x" * 100_000: 1})),
    "one number alone": on_model(lambda m, a: a.update({m["fitted"]["intercept_"]["name"]: np.array(1.0)})),
    "half precision": on_model(lambda m, a: a.update({(name := m["training"]["solution"]["A"]["name"]): a[name].astype("f2")})),
    "a task column that is not there": on_model(lambda m, a: m["params"].update({"task_column": "nowhere"})),
    "other columns than those of the preprocessing": on_model(
        lambda m, a: m["fitted"]["feature_names_in_"]["values"].__setitem__(0, "other")
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_fuzzing_found_is_refused(name, good, tmp_path):  # noqa: F811
    (tmp_path / "m").write_bytes(forge(good, tmp_path / "m", FOUND[name]))
    with pytest.raises(ModelFileError) as caught:
        taskloom.load(tmp_path / "m")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) <= 1000


def test_wide_tables_are_read_or_refused_quickly(tmp_path, capsys):
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{j}" for j in range(60_000)) + "\n")
    assert len(TableFile(str(path)).columns) == 60_000
    path.write_text(",".join(f"c{j}" for j in range(MOST_COLUMNS + 1)) + "\n")
    assert taskloom_("fit", path, "--target", "c0", "--task", "c1") == cli.FAILED
    assert f"has {MOST_COLUMNS + 1} columns, and the command line reads up to {MOST_COLUMNS}" in capsys.readouterr().err


def test_a_cell_of_a_megabyte_is_not_repeated(saved, folder, tmp_path, capsys):
    rows = list(csv.reader((folder / "long.csv").read_text().splitlines()))
    rows[1][rows[0].index("age")] = "\x1b" * 100_000
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert taskloom_("predict", saved, tmp_path / "t.csv", "-o", tmp_path / "o.csv") == cli.FAILED
    said = capsys.readouterr().err
    assert len(said) < 1100
    assert "\x1b" not in said


def test_numbers_whose_squares_overflow_are_refused_in_a_sentence(tmp_path, capsys):
    for row, name in (("1e308,0.5,a,0.1", "column 'p'"), ("0.5,0.5,a,-1e308", "of y")):
        lines = ["p,q,shop,y", *[f"{k / 7:.3f},{k % 3},{'ab'[k % 2]},{k % 5}" for k in range(20)], row]
        (tmp_path / "t.csv").write_text("\n".join(lines))
        assert taskloom_("fit", tmp_path / "t.csv", "--target", "y", "--task", "shop", "--alphas", "2", "--cv", "2", "-q") == 1
        assert name in (sentence := capsys.readouterr().err)
        assert "unexpected" not in sentence


def test_utf_16_without_its_mark_is_refused_in_our_words(tmp_path):
    (tmp_path / "t.csv").write_bytes("a,b\n1,2\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"not readable as 'utf-16' .*pass another --encoding"):
        TableFile(str(tmp_path / "t.csv"), encoding="utf-16")


# --- formulas ---------------------------------------------------------------------------------------------------------------

FORMULAS = ['=HYPERLINK("http://x","y")', "+cmd|' /C calc'!A0", "@SUM(A1:A9)", "-2+3"]


def test_texts_that_a_spreadsheet_would_run():
    assert all(map(is_formula, [*FORMULAS, "\t=1", "=1"]))
    assert not any(map(is_formula, ["-1.5", "+3e5", "", "plain", "a=1", None, 5.0, "-inf"]))


def test_identifiers_come_back_as_they_were_unless_an_escape_is_asked_for(saved, folder, tmp_path, capsys):
    frame = pd.read_csv(folder / "long.csv").drop(columns=["score", "passed"])
    frame["pupil"] = [FORMULAS[i % 4] for i in range(len(frame))]
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert taskloom_("predict", saved, tmp_path / "t.csv", "-o", tmp_path / "o.csv") == 0
    assert "120 texts begin like a formula" in capsys.readouterr().err
    assert pd.read_csv(tmp_path / "o.csv")["pupil"].tolist() == frame["pupil"].tolist()
    assert taskloom_("predict", saved, tmp_path / "t.csv", "-o", tmp_path / "o.csv", "--escape-formulas") == 0
    assert "formula" not in capsys.readouterr().err
    escaped = pd.read_csv(tmp_path / "o.csv")
    assert escaped["pupil"].tolist() == [f"'{name}" for name in frame["pupil"]]
    assert escaped["prediction"].dtype == float  # negative numbers stay numbers


def test_a_report_shows_formulas_and_markup_as_text(tmp_path):
    write_report = pytest.importorskip("taskloom.report").write_report
    X = np.random.default_rng(0).normal(size=(20, 2))
    names = ["<script>alert(1)</script>", FORMULAS[0]]
    model = MultiTaskRegressor().fit(X, pd.DataFrame(X, columns=names))
    write_report(model, tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert names[0] not in page
    assert html.escape(names[0]) in page
