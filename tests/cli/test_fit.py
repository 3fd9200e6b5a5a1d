"""``taskloom fit``: outputs never replace inputs, names may hold commas, sentences fit the column that is at fault."""

import numpy as np
import pandas as pd
import pytest

from taskloom import cli

rng = np.random.default_rng(0)
NAMES = ["z", "m", "a"]
X = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("pqr"))
Y = pd.DataFrame(rng.normal(size=(40, 3)), columns=NAMES)
LONG, TARGET = pd.concat([X.assign(t=name) for name in NAMES]), Y.to_numpy().T.ravel()


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many = LONG.assign(y=TARGET, colour=np.where(np.arange(120) % 2, "red", "blue"), **{"price, eur": 1.0 + np.arange(120)})
    many.to_csv("a.csv", index=False)
    return ["a.csv", "--target", "y", "--task", "t", "--alphas", "2", "--cv", "2", "--quiet"]


def test_no_output_is_written_over_an_input_or_another_output(table, capsys, tmp_path):
    before = (tmp_path / "a.csv").read_bytes()
    assert cli.run(["fit", *table, "--save", "a.csv"]) == cli.FAILED
    assert "a.csv is the table already" in capsys.readouterr().err
    assert cli.run(["fit", *table, "--save", "s", "--report", "s"]) == cli.FAILED
    assert "s is the model already" in capsys.readouterr().err
    assert (tmp_path / "a.csv").read_bytes() == before
    assert cli.run(["fit", *table, "--save", "m"]) == 0
    model = (tmp_path / "m").read_bytes()
    for to, words in (
        ("m", "m is the model already"),
        ("a.csv", "a.csv is the table already"),
        ("o.xlsx", "o.xlsx ends in .xlsx"),
    ):
        assert cli.run(["predict", "m", "a.csv", "-o", to]) == cli.FAILED
        assert words in capsys.readouterr().err
    assert (tmp_path / "m").read_bytes() == model


def test_a_name_with_a_comma_stands_in_quotes(table):
    assert cli.run(["fit", *table, "--drop", '"price, eur",colour']) == 0


def test_the_report_shows_how_to_fit_again_from_the_table(table, tmp_path):
    assert cli.run(["fit", *table, "--report", "r.html"]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "TablePreprocessor(task_column=" in page
    assert ".fit_transform(X)" in page


def test_a_bad_cell_of_the_target_is_not_told_to_be_an_input(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    LONG.assign(y=[*map(str, TARGET[:-1]), "n.d."]).to_csv("a.csv", index=False)
    assert cli.run(["fit", "a.csv", "--target", "y", "--task", "t"]) == cli.FAILED
    said = capsys.readouterr().err
    assert "--classify" in said
    assert "--categorical" not in said


def test_the_score_of_a_class_is_its_recall(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X.assign(kind=np.array(["lo", "mid", "hi"])[np.digitize(X.p, [-0.5, 0.5])]).to_csv("a.csv", index=False)
    assert cli.run(["fit", "a.csv", "--target", "kind", "--alphas", "2", "--cv", "2"]) == 0
    assert "score: recall" in capsys.readouterr().out
