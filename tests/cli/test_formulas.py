"""Texts that a spreadsheet would run as formulas, in tables and in reports."""

import html

import numpy as np
import pandas as pd
import pytest
from command_line import taskloom_

from taskloom import MultiTaskRegressor
from taskloom.cli.table_files import is_formula

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
