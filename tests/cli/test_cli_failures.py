"""How the command line fails: one sentence on stderr, an exit code, and nothing half-written."""

import csv
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from command_line import LONG, environment, taskloom_

from taskloom import MultiTaskRegressor, cli
from taskloom.cli import output as show
from taskloom.cli import sentence
from taskloom.cli.table_files import MOST_COLUMNS, TableFile, TableWriter


def wide(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 5))
    return X, X @ rng.normal(size=(5, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(40, 4))


def long():
    X, Y = wide()
    frames = [pd.DataFrame(X, columns=list("abcde")).assign(shop=name) for name in ("u", "v")]
    return pd.concat(frames, ignore_index=True), np.concatenate([Y[:, 0], Y[:, 1]])


pytest.importorskip("safetensors")


TABLES = {
    "empty": ("", "is empty"),
    "only a header": ("score,school,x\n", "has a header but no rows"),
    "ragged": ("score,school,x\n1,a,2\n1,a\n", "line 3 of .* has 2 cells, the header has 3"),
    "columns twice": ("score,school,x,x\n1,a,2,3\n", "two columns 'x'"),
    "no name": ("score,school,\n1,a,2\n", "column 3 of .* has no name"),
    "decimal comma": ("score;school;x\n1;a;1,5\n2;b;2,5\n", "a comma, such as '1,5' in row 1: write decimals with a point"),
    "infinity": ("score,school,x\n1,a,inf\n2,b,3\n", "column 'x' holds infinity in row 1"),
    "infinite target": ("score,school,x\n1e999,a,1\n2,b,3\n", "column 'score' holds infinity in row 1"),
    "a word among numbers": ("score,school,x\n1,a,1\n2,b,?\n", "column 'x' is numeric, but has '\\?' in row 2"),
    "no task": ("score,school,x\n1,a,1\n2,,2\n", "task column 'school' is empty in row 2"),
    "no target": ("score,school,x\n,a,1\n,b,2\n", "column 'score' is empty"),
    "no inputs": ("score,school\n1,a\n2,b\n", "no input columns"),
    "an empty column": ("score,school,x\n1,a,\n2,b,\n", "column 'x' is empty"),
    "another column": ("scores,school,x\n1,a,1\n", "has no column 'score'; it has scores, school, x. Did you mean 'scores'"),
    "one column": ("score:school:x\n1:a:1\n", "has no column 'score'; .* right --delimiter"),
    "an open quote": ('score,school,x\n1,a,"2\n', "not readable as CSV"),
    "identifiers": ("score,school,x\n" + "".join(f"{i},{i % 2},n{i}\n" for i in range(200)), "--drop x"),
    "too few rows": ("score,school,x\n1,a,1\n2,b,2\n", "at least as many rows"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_make_no_sense(name, tmp_path, capsys):
    text, words = TABLES[name]
    (tmp_path / "t.csv").write_text(text)
    assert taskloom_("fit", tmp_path / "t.csv", *LONG, "-q") == cli.FAILED
    says = capsys.readouterr()
    assert re.search(words, says.err), says.err
    assert says.err.count("\n") == 1
    assert says.err.startswith("taskloom: ")
    assert says.out == ""


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("naïve,b\n1,2\n".encode("latin-1"), r"not utf-8 \(byte 0xef\); .*--encoding latin-1"),
        (b"PK\x03\x04rest", "export it as CSV"),
        (b"\x1f\x8b\x08\x00rest", "unpack it first"),
        ("a,b\n1,2\n".encode("utf-16"), "--encoding utf-16"),
        (b"PAR1nonsense", "t.csv is not readable as Parquet"),
    ],
)
def test_files_that_are_no_csv(data, words, tmp_path, capsys):
    (tmp_path / "t.csv").write_bytes(data)
    assert taskloom_("fit", tmp_path / "t.csv", *LONG) == cli.FAILED
    assert re.search(words, capsys.readouterr().err)


def test_encodings_delimiters_and_quotes(tmp_path):
    (tmp_path / "t.csv").write_bytes('﻿nom; "l\'âge"\n"a;b"; 2\n\n"c""d"; 3\n'.encode())
    table = TableFile(str(tmp_path / "t.csv"))
    assert (table.delimiter, table.columns) == (";", ["nom", "l'âge"])
    assert table.read(text={"l'âge"}).to_dict("list") == {"nom": ["a;b", 'c"d'], "l'âge": ["2", "3"]}
    (tmp_path / "u.csv").write_bytes("né\té\n1\t2\n".encode("latin-1"))
    assert TableFile(str(tmp_path / "u.csv"), encoding="latin-1").columns == ["né", "é"]
    with pytest.raises(ValueError, match="no encoding 'klingon'"):
        TableFile(str(tmp_path / "u.csv"), encoding="klingon")
    with pytest.raises(ValueError, match="one character"):
        TableFile(str(tmp_path / "u.csv"), delimiter=";;")


def test_a_table_is_written_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("before")
    with pytest.raises(ValueError, match="longer"), TableWriter(str(path)) as writer:
        writer.write({"a": [1, 2], "b": [1, 2, 3]})
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.csv"]


def test_a_column_cannot_be_target_and_task(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("score,school,x\n1,a,2\n")
    assert taskloom_("fit", str(tmp_path / "t.csv"), "--target", "score", "--task", "score") == cli.USAGE
    assert "'score' cannot be both --target and --task" in capsys.readouterr().err


def test_numbers_are_never_cut_off(monkeypatch, capsys):
    """In a file at all, and on a narrow terminal words are folded instead."""
    columns = ("structure", "alpha", "R2", "s.e.", "below best", "s.e.", "duality gap", "seconds")
    row = ("feature_selection with a long name", "0.00014", "0.767", "0.012", "0.006", "0.004", "0.0093 %", "12.3")
    show.Output().table(columns, [row])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(cell in lines[1] for cell in row)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    show.Output().table(columns, [row])
    narrow = capsys.readouterr().out
    assert all(cell in narrow for cell in row[1:])
    assert "…" not in narrow


def test_files_that_are_not_there(folder, saved, tmp_path, capsys):
    for argv in (
        ["fit", tmp_path / "no.csv", *LONG],
        ["predict", tmp_path / "no.taskloom", folder / "long.csv"],
        ["predict", saved, tmp_path / "no.csv"],
        ["inspect", tmp_path / "no.taskloom"],
    ):
        assert taskloom_(*argv) == cli.FAILED
        assert re.fullmatch(r"taskloom: No such file or directory: .*\n", capsys.readouterr().err)
    assert taskloom_("inspect", folder / "long.csv") == cli.FAILED
    assert "not a taskloom model file" in capsys.readouterr().err
    assert taskloom_("predict", saved, folder / "long.csv", "-o", tmp_path / "nowhere" / "o.csv") == cli.FAILED
    assert "no folder" in capsys.readouterr().err


def test_a_traceback_only_with_debug(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("score,school,x\n1,a,1\n")
    assert taskloom_("fit", tmp_path / "t.csv", "--target", "gone", "--task", "school") == cli.FAILED
    assert "Traceback" not in capsys.readouterr().err
    with pytest.raises(ValueError, match="gone"):
        taskloom_("fit", tmp_path / "t.csv", "--target", "gone", "--task", "school", "--debug")


def test_an_unexpected_error_is_still_one_sentence(monkeypatch, capsys, saved):
    def broken(*_):
        raise ZeroDivisionError("nothing\nhelps")

    monkeypatch.setattr("taskloom.estimators.load", broken)
    assert taskloom_("inspect", saved) == cli.FAILED
    assert (
        capsys.readouterr().err
        == "taskloom: unexpected ZeroDivisionError: nothing helps (run again with --debug for the traceback)\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals are those of POSIX")
def test_interrupting_is_one_sentence_and_130(folder, tmp_path):
    """Ctrl-C inside a solve too, where the library itself would answer with its best iterate."""
    code = (
        "import sys, taskloom.cli.gains_table\nfrom taskloom.cli import main\n"
        "sys.stderr.write('ready\\n'); sys.stderr.flush()\nmain(sys.argv[1:])"
    )
    argv = [
        "fit",
        str(folder / "long.csv"),
        *LONG,
        "--drop",
        "pupil,passed",
        "--structure",
        "log_det,clusters:3",
        "--kernel",
        "rbf",
    ]
    argv += ["--alphas", "200", "--tol", "1e-9", "--save", str(tmp_path / "m"), "-q"]
    run = subprocess.Popen([sys.executable, "-c", code, *argv], stderr=subprocess.PIPE, text=True, env=environment())
    assert run.stderr.readline() == "ready\n"
    time.sleep(1.0)
    run.send_signal(signal.SIGINT)
    said = run.communicate(timeout=30)[1]
    assert run.returncode == cli.INTERRUPTED, said
    assert said == "taskloom: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_remedies_on_the_command_line_are_those_of_the_command_line():
    X, y = long()
    model = MultiTaskRegressor(task_column="shop").fit(X, y)
    with pytest.raises(ValueError) as error:
        model.predict(X.assign(shop="w"))
    assert "--unseen mean" in sentence(error.value)
    assert "add_task" not in sentence(error.value)
    with pytest.raises(ValueError) as error:
        MultiTaskRegressor("tracee").fit(*wide())
    assert "object" not in sentence(error.value)


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
