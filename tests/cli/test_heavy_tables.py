"""Tables that would take far more memory than their file: read in pieces without what is dropped, or refused in a sentence."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from taskloom import cli
from taskloom.cli import table_files
from taskloom.cli.table_files import TableFile

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
MEASURE = """import os, sys, resource
resource.setrlimit(resource.RLIMIT_AS, (10 << 30, 10 << 30))
child = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status))"""
FIT = ["--target", "y", "--task", "shop", "--alphas", "1", "--cv", "2", "--structure", "independent", "-q"]
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is counted in other units elsewhere")


def measured(*argv):
    """The MiB, the exit code and the words of a command."""
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURE, "-m", "taskloom", *map(str, argv)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    mebibytes, code = run.stdout.splitlines()[-1].split()
    return float(mebibytes), int(code), run.stderr


def columns(n=60):
    x = np.random.default_rng(0).normal(size=(n, 2))
    return {"p": x[:, 0], "q": x[:, 1], "shop": [*"abc"] * (n // 3), "y": x.sum(axis=1)}


def with_text(path, n=300, size=10_000_000):
    """A long text, once in the file, in every row."""
    same = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array(["x" * size]))
    parquet.write_table(pa.table(columns(n) | {"text": same}), path, compression="zstd", store_schema=False)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m"
    pd.DataFrame(columns()).to_csv(path.with_suffix(".csv"), index=False)
    assert cli.run(["fit", str(path.with_suffix(".csv")), *FIT, "--save", str(path)]) == 0
    return path


@linux
def test_what_is_dropped_is_not_decoded(model, tmp_path):
    path = with_text(tmp_path / "t.parquet")
    assert path.stat().st_size < 500_000
    mebibytes, code, said = measured("fit", path, *FIT, "--drop", "text")
    assert (code, said) == (0, "")
    assert mebibytes < 600
    mebibytes, code, said = measured("predict", model, path, "-o", tmp_path / "o.csv")
    assert code == cli.FAILED
    assert "holds a text of 10000000 bytes, and a cell may have up to 131072; leave it out (--drop text)" in said
    assert mebibytes < 600
    mebibytes, code, said = measured("predict", model, path, "--drop", "text", "--quiet", "-o", tmp_path / "o.csv")
    assert (code, said) == (0, "")
    assert mebibytes < 600
    assert pd.read_csv(tmp_path / "o.csv").columns.tolist() == ["shop", "y", "prediction"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict_leaves_columns_out(ending, model, tmp_path, capsys):
    path, out = tmp_path / f"t.{ending}", tmp_path / "o.csv"
    frame = pd.DataFrame(columns() | {"note": "n"})
    frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    assert cli.run(["predict", str(model), str(path), "--drop", "note,y", "-o", str(out)]) == 0
    assert pd.read_csv(out).columns.tolist() == ["shop", "prediction"]
    for name, words in (
        ("p", "the model was fitted with it"),
        ("shop", "the model was fitted with it"),
        ("nothing", "nothing"),
    ):
        capsys.readouterr()
        assert cli.run(["predict", str(model), str(path), "--drop", name]) != 0
        assert words in capsys.readouterr().err


@linux
@pytest.mark.parametrize(("command", "lines"), [("fit", 0), ("compare", 1), ("predict", 61)])
def test_a_file_with_a_hole_is_no_table(command, lines, model, tmp_path):
    """Whatever was written before it: nothing, the header, all rows."""
    path = tmp_path / "t.csv"
    text = pd.DataFrame(columns()).to_csv(index=False)
    path.write_text("".join(text.splitlines(keepends=True)[:lines]))
    with path.open("rb+") as file:
        file.truncate(3 << 30)
    argv = ["predict", model, path, "-o", tmp_path / "o.csv"] if command == "predict" else [command, path, *FIT]
    mebibytes, code, said = measured(*argv)
    assert code == cli.FAILED
    assert f"line {lines + 1} of {path} holds NUL bytes, which no table has" in said
    assert mebibytes < 600


def failed(capsys, *argv):
    assert cli.run([str(word) for word in argv]) == cli.FAILED
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_a_line_without_end(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table_files, "LONGEST_LINE", 1000)
    path = tmp_path / "t.csv"
    for text in ("p" * 1001, "p,q,shop,y\n" + "1" * 2000 + ",2,a,3\n"):
        path.write_text(text)
        line = text.count("\n", 0, 20) + 1
        for argv in (["fit", path, *FIT], ["predict", model, path]):
            assert f"line {line} of {path} has more than 1000 characters" in failed(capsys, *argv)


def test_long_lines_come_in_smaller_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(table_files, "PIECE", 4000)
    rows = [(k, "x" * 500) for k in range(100)]
    pd.DataFrame(rows, columns=["k", "text"]).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame(rows, columns=["k", "text"]).to_parquet(tmp_path / "t.parquet", index=False)
    for name in ("t.csv", "t.parquet"):
        pieces = list(TableFile(str(tmp_path / name)).pieces())
        assert 5 < len(pieces) < 50
        assert max(map(len, pieces)) <= 16
        together = pd.concat(pieces)
        assert together.index.tolist() == list(range(1, 101))
        assert [int(k) for k in together["k"]] == list(range(100))
        assert set(together["text"]) == {"x" * 500}


def test_parquet_that_unpacks_is_refused(model, tmp_path, capsys):
    """Texts that pack well, a million equal rows, cells of a megabyte: by what the file says about itself."""
    n = 150
    packed = {"text": [f"{k % 7}" + "x" * 2_000_000 for k in range(n)]}
    parquet.write_table(pa.table(columns(n) | packed), tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    assert "column 'text'" in failed(capsys, "fit", tmp_path / "a.parquet", *FIT)
    assert cli.run(["fit", str(tmp_path / "a.parquet"), *FIT, "--drop", "text"]) == 0
    many = pa.array(np.zeros(9_000_000))
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(many), np.int8)), pa.array(["a"]))
    table = pa.table({"p": many, "q": many, "shop": word, "y": many})
    parquet.write_table(table, tmp_path / "b.parquet", compression="zstd")
    assert "MiB in memory; leave out rows or columns" in failed(capsys, "fit", tmp_path / "b.parquet", *FIT)
    bytes_ = pa.array([b"x" * 2000] * 60, pa.binary(2000))
    parquet.write_table(pa.table(columns() | {"blob": bytes_}), tmp_path / "c.parquet")
    assert "holds cells of 2000 bytes" in failed(capsys, "fit", tmp_path / "c.parquet", *FIT)
    assert cli.run(["fit", str(tmp_path / "c.parquet"), *FIT, "--drop", "blob"]) == 0


def test_a_long_name_does_not_take_room_in_every_row(tmp_path, capsys):
    path = tmp_path / "t.csv"
    rows = "".join(f"{k % 7},{k % 5},{'ab'[k % 2]},{k % 3}\n" for k in range(3000))
    path.write_text(f"p,q,shop,y\n1,2,{'z' * 131_000},3\n{rows}")
    assert "column 'shop' holds a name of 131000 characters" in failed(capsys, "fit", path, *FIT)


def test_columns_that_are_left_out_may_hold_anything(tmp_path):
    nested = pa.array([{"a": [1]}] * 60)
    parquet.write_table(pa.table(columns() | {"more": nested}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="lists or records"):
        TableFile(str(tmp_path / "t.parquet")).read()
    assert list(TableFile(str(tmp_path / "t.parquet")).read(without={"more"})) == ["p", "q", "shop", "y"]
