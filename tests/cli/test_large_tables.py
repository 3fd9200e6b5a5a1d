"""Large files in little memory, read in one meaning by either parser; many tasks at no cost to one row."""

import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskloom import MultiTaskRegressor, load
from taskloom.cli.table_files import TableFile
from taskloom.tables.fast_csv import plain_frame
from taskloom.tables.preprocessing import TablePreprocessor

MEASURE = """import os, sys
child = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss / 1024)
sys.exit(os.waitstatus_to_exitcode(status))"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is counted in other units elsewhere")
def test_predict_reads_many_rows_in_little_memory(saved, folder, tmp_path):
    """200 000 rows through the real command, in a process whose memory is that of its libraries and one piece."""
    small = pd.read_csv(folder / "long.csv", dtype=str, keep_default_na=False)
    table, out = tmp_path / "big.csv", tmp_path / "out.csv"
    many = 200_000 // len(small)
    pd.concat([small] * many).to_csv(table, index=False)
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", MEASURE, "-m", "taskloom", "predict", str(saved), str(table), "-o", str(out), "-q"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert float(run.stdout) < 500
    found = pd.read_csv(out)
    assert len(found) == many * len(small)
    expected = load(saved).predict(pd.read_csv(folder / "long.csv"))
    assert np.allclose(found["prediction"].to_numpy().reshape(many, -1), expected, rtol=1e-13)


def test_wide_tables_come_in_pieces_of_fewer_rows(folder, tmp_path, monkeypatch):
    """What is in memory is cells, not rows: with many columns or tasks a piece has fewer rows."""
    from taskloom import cli
    from taskloom.cli import predict

    command = [
        "fit",
        folder / "wide.csv",
        "--targets",
        "maths,art,sport",
        "--drop",
        "pupil",
        "--alphas",
        "2",
        "--cv",
        "2",
        "-q",
    ]
    assert cli.run([*map(str, command), "--save", f"{tmp_path / 'm'}"]) == 0
    asked = []
    whole = TableFile.pieces
    monkeypatch.setattr(predict, "CELLS", 100)
    monkeypatch.setattr(
        TableFile, "pieces", lambda self, rows, *args, **more: asked.append(rows) or whole(self, rows, *args, **more)
    )
    assert cli.run(["predict", f"{tmp_path / 'm'}", f"{folder / 'wide.csv'}", "-o", f"{tmp_path / 'o.csv'}", "-q"]) == 0
    columns = len(pd.read_csv(folder / "wide.csv").columns)
    assert asked == [100 // (columns + 3)]
    assert len(pd.read_csv(tmp_path / "o.csv")) == 120


CELLS = st.one_of(
    st.floats(allow_nan=False).map(repr),
    st.integers().map(str),
    st.text(alphabet='0123456789.,;eE+-_ "\t\r\n\0aNn/AfiIuUlLxX\u0661\u2028\xa0é=', max_size=8),
    st.sampled_from(
        ["", "NA", " NA", "nan", "-nan", "+NaN", "inf", "-Infinity", "True", "1e400", "1_000", " 1.5 ", "0x10", "1,5", "1d5"]
    ),
)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=4), min_size=1, max_size=6)


def as_read(path, numbers, rows):
    """The pieces that a reader finds, with numbers as the preprocessing reads them; or what it says is wrong."""
    step = TablePreprocessor(categorical=("text",))
    step.numeric_, step.levels_ = {"number": (0.0, 0.0, 1.0)}, {"text": ["", "a", None]}
    step.feature_names_in_, step.n_features_in_ = np.array(["number", "text"], dtype=object), 2
    try:
        pieces = TableFile(str(path), ",").pieces(rows, numbers)
        return [(step.transform(piece).to_numpy().tobytes(), piece["text"].tolist(), piece.index.tolist()) for piece in pieces]
    except ValueError as error:
        return str(error)


@settings(max_examples=300, deadline=None)
@given(TABLES, st.sampled_from(["\n", "\r\n", "\r"]), st.integers(1, 4), st.booleans())
def test_both_parsers_read_the_same(tmp_path_factory, table, end, rows, closed):
    """Whatever is in a file: numbers to the last bit, texts, row numbers, and the sentence about what is wrong."""
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    text = end.join(["number,text", *(",".join(line) for line in table)]) + (end if closed else "")
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert as_read(path, {"number"}, rows) == as_read(path, set(), rows)


def test_plain_lines_are_read_the_quick_way():
    """The comparison above means something only if the quick way is taken."""
    frame = plain_frame(['1.5,"a b"\n', ",NA\n"], ["number", "text"], ",", {"number"})
    assert frame["text"].tolist() == ["a b", "NA"]
    assert frame["number"].tolist()[0] == 1.5
    assert np.isnan(frame["number"][1])
    quotes = (['1,"a,b"\n'], ['1,"a""b"\n'], ['1," a"\n'], ['1,a"b"\n'])
    for lines in (*quotes, ["1\n"], ["1,2,3\n", "1\n"], ["1,2\n", "1\n", "1,2,3\n"], ["one,a\n"], ["1_0,a\n"]):
        assert plain_frame(lines, ["number", "text"], ",", {"number"}) is None


def test_one_row_of_ten_thousand_tasks():
    """0.3 ms on a quiet machine; the bound is ten times that, for machines that are not."""
    rng = np.random.default_rng(0)
    task = np.arange(20_000) % 10_000
    X = np.column_stack([rng.normal(size=(20_000, 5)), task])
    model = MultiTaskRegressor("trace", alpha=0.1, tol=0.1, task_column=-1).fit(X, rng.normal(size=20_000))
    expected, row = model.predict(X[:50]), X[:1]
    seconds = []
    for _ in range(50):
        began = time.process_time()
        found = model.predict(row)
        seconds.append(time.process_time() - began)
    assert np.median(seconds) < 3e-3
    assert np.allclose(found, expected[:1])


def test_a_wide_fit_of_thousands_of_tasks_needs_no_matrix_of_all_pairs():
    """The repair of the duals once decomposed a matrix of 10 000 x 10 000 for 5 features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 5))
    Y = X @ rng.normal(size=(5, 1)) @ rng.normal(size=(1, 3000)) + 0.1 * rng.normal(size=(20, 3000))
    began = time.process_time()
    model = MultiTaskRegressor("trace", alpha=0.1).fit(X, Y)
    assert model.certificate_.converged
    assert time.process_time() - began < 10


def test_whole_tables_have_numbers_where_every_cell_is_one(tmp_path):
    """Columns that turn to text after the first piece are text from the first cell on, as are those that are to be text."""
    lines = [f'{k}.50,0{k % 7},"shop {k % 3}",{k}' for k in range(20_010)]
    (tmp_path / "t.csv").write_text("\n".join(["x,code,shop,late", *lines, "1,02,a,word", ",,b,NA"]) + "\n")
    table = TableFile(str(tmp_path / "t.csv")).read(text={"code"})
    assert table["late"].tolist()[:2] == ["0", "1"]
    assert table["x"].tolist()[:2] == ["0.50", "1.50"]  # one column that is none makes all of them text
    table = TableFile(str(tmp_path / "t.csv")).read(without={"late"}, text={"code"})
    assert table["x"].dtype == float
    assert table["x"].tolist()[:2] == [0.5, 1.5]
    assert np.isnan(table["x"].iloc[-1])
    assert table["code"].tolist()[-2:] == ["02", ""]
    assert table["shop"].tolist()[0] == "shop 0"
    assert table.index.tolist() == list(range(1, 20_013))
