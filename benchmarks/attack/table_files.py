"""Tables that people and programs write: other encodings, open quotes, huge cells, wrong types, formulas for names.

Case ``k`` of a seed is always the same. Every table is read by the commands ``fit`` and ``predict`` themselves; what was on
disk before must be there afterwards, or the whole new file.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from taskloom import cli

from .check import TooSlow, limited
from .judging import LOADED, SECONDS, fault, judge_command
from .model_files import move_a_piece, overwrite
from .parts import flip_bits

Rng = np.random.Generator
BEFORE = b"what was here before"
FORMULAS = ['=HYPERLINK("http://x","y")', "+cmd|' /C calc'!A0", "@SUM(A1:A9)", "-2+3", "\t=1", "=1", "\r=1"]
CODECS = [
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "utf-7",
    "latin-1",
    "cp1252",
    "cp037",
    "shift_jis",
    "gb18030",
    "ascii",
    "punycode",
    "idna",
    "undefined",
    "unicode_escape",
    "raw_unicode_escape",
    "rot13",
    "hex",
    "zlib",
    "mbcs",
    "klingon",
    "",
    "utf-8\0",
    "UTF_8",
    "oem",
    "cp65001",
    "string_escape",
    "../x",
]
MARKS = [b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xff\xfe\0\0", b"\0\0\xfe\xff", b"+/v8", b"\xef\xbb\xbf\xef\xbb\xbf"]
CELLS: dict[str, list[str]] = {
    "dates": ["2020-01-31", "31.01.2020", "2020-01-31T10:00:00Z", "1e3", "12:30", "Feb 2", "0000-00-00", "20200131"],
    "booleans": ["true", "FALSE", "True", "yes", "no", "0", "1", "T", "F", "on"],
    "infinities": ["inf", "-inf", "Infinity", "1e999", "-1e999", "nan", "NaN", "1e308", "-1e308", "4.9e-324", "0x1p5", "1_000"],
    "mixed types": ["1", "x", "1,5", "1.000,5", "", " ", "NA", "null", "1.5", "½", "١٢", "\u22121", "1e5", "$3", "50 %", "'1"],
    "formulas": FORMULAS,
    "control characters": ["a\0b", "\x1b[2J", "\x07", "a\u202eb", "\u2028", "\x85", "\x0b", "\x1c", "\ufeff", "\U0010ffff"],
}


def rows_of(rng: Rng, n: int = 24) -> list[list[str]]:
    """A table that makes sense: an identifier, two inputs, a word, the task, the target."""
    x = rng.normal(size=(n, 2)).round(3)
    rows = [["id", "p", "q", "kind", "shop", "y"]]
    for i in range(n):
        words = ["x", "y"][i % 2], "abc"[i % 3]
        rows.append([f"r{i}", str(x[i, 0]), str(x[i, 1]), *words, f"{x[i].sum() + 0.1 * (i % 3):.3f}"])
    return rows


def written(rows: list[list[str]], delimiter: str = ",", quoting: Any = csv.QUOTE_MINIMAL, end: str = "\n") -> str:
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting, escapechar="\\").writerows(rows)
    return out.getvalue()


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def in_cells(kind: str) -> Callable[[Rng], tuple[bytes, list[str]]]:
    """Cells of a kind, in one place, in a column, or in the header."""

    def make(rng: Rng) -> tuple[bytes, list[str]]:
        rows = rows_of(rng)
        column = int(rng.integers(len(rows[0])))
        match int(rng.integers(3)):
            case 0:
                rows[int(rng.integers(1, len(rows)))][column] = pick(rng, CELLS[kind])
            case 1:
                for row in rows[1:]:
                    row[column] = pick(rng, CELLS[kind])
            case _:
                rows[0][column] = pick(rng, CELLS[kind])
        return written(rows).encode("utf-8", "surrogatepass"), []

    return make


def encoded(rng: Rng) -> tuple[bytes, list[str]]:
    rows = rows_of(rng)
    rows[0][0], rows[1][0] = "né", pick(rng, ["日本", "ß", "é", "\U0001f600", "plain"])
    says = pick(rng, CODECS)
    try:
        data = written(rows).encode(pick(rng, CODECS))
    except (UnicodeError, LookupError, ValueError):
        data = written(rows).encode("utf-8")
    return data, ["--encoding", says] if rng.random() < 0.7 else []


def marked(rng: Rng) -> tuple[bytes, list[str]]:
    return pick(rng, MARKS) + written(rows_of(rng)).encode(pick(rng, ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"])), []


def quoted(rng: Rng) -> tuple[bytes, list[str]]:
    rows = rows_of(rng)
    rows[int(rng.integers(len(rows)))][0] = pick(rng, ['a"b', '"', '""', 'a\n"b', "a\r\nb", "a,b", ",", "\n", "'", '"a'])
    text = written(rows, quoting=pick(rng, [csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONE]))
    for _ in range(int(rng.integers(0, 4))):
        at = int(rng.integers(len(text)))
        text = text[:at] + pick(rng, ['"', '""', "'", "\\"]) + text[at:]
    return text.encode(), []


def separated(rng: Rng) -> tuple[bytes, list[str]]:
    text = written(
        rows_of(rng), delimiter=pick(rng, [",", ";", "\t", "|", ":", " "]), end=pick(rng, ["\n", "\r\n", "\r", "\n\n"])
    )
    says = pick(rng, [",", ";", "\\t", "tab", "", ";;", '"', "\n", "\r", "\0", " ", "é", "\\"])
    return text.encode(), ["--delimiter", says] if rng.random() < 0.6 else []


def huge_cells(rng: Rng) -> tuple[bytes, list[str]]:
    rows = rows_of(rng)
    size = int(rng.choice([1000, 131_071, 131_072, 200_000, 1_000_000]))
    row = int(rng.integers(len(rows)))
    rows[row][int(rng.integers(6))] = pick(rng, ["x", "1", "é", "=", "\x1b"]) * size
    return written(rows).encode(), []


def many_columns(rng: Rng, most: int = 3000) -> tuple[bytes, list[str]]:
    rows, n = rows_of(rng, 12), int(rng.integers(100, most))
    more = [f"c{j}" if rng.random() < 0.999 else "c0" for j in range(n)]
    return written([row + (more if i == 0 else ["1"] * n) for i, row in enumerate(rows)]).encode(), []


def named_twice(rng: Rng) -> tuple[bytes, list[str]]:
    rows = rows_of(rng)
    names = ["p", " p", "p ", "P", "", " ", "id", "shop", "y", "prediction", "kind=x", "__class__", "index", "0"]
    rows[0][int(rng.integers(6))] = pick(rng, names)
    if rng.random() < 0.3:
        rows[0][int(rng.integers(6))] = pick(rng, names)
    return written(rows).encode(), []


def ragged(rng: Rng) -> tuple[bytes, list[str]]:
    rows = rows_of(rng)
    for _ in range(int(rng.integers(1, 4))):
        row = rows[int(rng.integers(len(rows)))]
        row[:] = [row[:-1], [*row, "1"], [], [""], row * 50][int(rng.integers(5))]
    return written(rows).encode(), []


def nearly_empty(rng: Rng) -> tuple[bytes, list[str]]:
    header = b"id,p,q,kind,shop,y\n"
    row = b"r,1,2,x,a,3\n"
    choices = [
        b"",
        b"\n",
        b"\n\n\n",
        b" ",
        b"\0",
        b",",
        b",,,,,\n",
        header,
        header[:-1],
        header + b"\n\n",
        header + row,
        b"\xef\xbb\xbf",
        header + b",,,,,\n" * 5,
        b'"',
        b'""',
        b"#",
        row,
        header + header,
        b"\r",
        b"\x1a",
    ]
    return pick(rng, choices), []


def damaged(rng: Rng) -> tuple[bytes, list[str]]:
    data = written(rows_of(rng)).encode()
    return pick(rng, [flip_bits, overwrite, move_a_piece])(data, rng), []


def random_bytes(rng: Rng) -> tuple[bytes, list[str]]:
    start = pick(
        rng, [b"", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"id,p,q,kind,shop,y\n", b"BZh9", b"\xd0\xcf\x11\xe0", b"\x93NUMPY"]
    )
    return start + rng.bytes(int(rng.integers(1, 3000))), []


def as_parquet(rng: Rng) -> tuple[bytes, list[str]]:
    """Columns of every Arrow type, whole or damaged."""
    rows = rows_of(rng)
    table = pd.DataFrame(rows[1:], columns=rows[0])
    table[["p", "q", "y"]] = table[["p", "q", "y"]].astype(float)
    columns: dict[str, Any] = {name: pa.array(table[name]) for name in table}
    n, moment = len(table), datetime.datetime(2020, 1, 31)
    kinds = [
        pa.array([True, False, None] * (n // 3)),
        pa.array([moment] * n),
        pa.array([moment.date()] * n),
        pa.nulls(n),
        pa.array([decimal.Decimal("1.5")] * n),
        pa.array([b"\xff\0"] * n),
        pa.array([[1, 2]] * n),
        pa.array([{"a": 1}] * n),
        pa.array([datetime.timedelta(1)] * n),
        pa.array([float("inf")] * n),
        pa.array([1 << 62] * n),
        pa.array(["1", "x"] * (n // 2)),
        pa.array(["a", "b"] * (n // 2)).dictionary_encode(),
        pa.array([1.0, None] * (n // 2), pa.float32()),
        pa.array([datetime.time(1)] * n),
        pa.array([0.5] * n).cast(pa.float16()),
        pa.array([1, None] * (n // 2), pa.uint8()),
        pa.array(["=1"] * n),
        pa.array([float("nan")] * n),
        pa.array([moment] * n, pa.timestamp("us", "Europe/Rome")),
        pa.array([(1 << 64) - 1] * n, pa.uint64()),
    ]
    columns[pick(rng, [*columns, "more", ""])] = pick(rng, kinds)
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out)
    data = out.getvalue()
    if rng.random() < 0.4:
        data = pick(rng, [flip_bits, overwrite, move_a_piece, lambda d, r: d[: int(r.integers(4, len(d)))]])(data, rng)
    return (data if data.startswith(b"PAR1") else b"PAR1" + data), []


KINDS: dict[str, Callable[[Rng], tuple[bytes, list[str]]]] = {
    "encodings": encoded,
    "byte-order marks": marked,
    "quotes": quoted,
    "delimiters and line ends": separated,
    "huge cells": huge_cells,
    "thousands of columns": many_columns,
    "names twice, or odd": named_twice,
    "ragged rows": ragged,
    "empty or nearly": nearly_empty,
    "damaged bytes": damaged,
    "random bytes": random_bytes,
    "Parquet": as_parquet,
    **{kind: in_cells(kind) for kind in CELLS},
}


def lying_down(columns: int) -> bytes:
    """A table with more columns than anyone wants."""
    names = ",".join(f"c{j}" for j in range(columns))
    cells = ",1" * columns
    return f"shop,y,{names}\na,1{cells}\nb,2{cells}\n".encode()


LARGE: dict[str, Callable[[], bytes]] = {
    "a million columns": lambda: lying_down(1_000_000),
    "a million columns of one name": lambda: b"y,shop" + b",c" * 1_000_000 + b"\n",
    "a million empty lines": lambda: b"id,p,q,kind,shop,y\n" + b"\n" * 1_000_000,
    "a cell of 100 MB": lambda: b"id,p,q,kind,shop,y\n" + b"x" * 100_000_000,
    "an open quote of 100 MB": lambda: b'id,p,q,kind,shop,y\n"' + b"1,2\n" * 25_000_000,
    "100 MB of zeros": lambda: b"\0" * 100_000_000,
    "300 000 rows of one task each": lambda: b"id,shop,y,p\n" + b"".join(b"r,%d,1,2\n" % i for i in range(300_000)),
}


def draw(seed: int, k: int) -> tuple[str, bytes, list[str], str]:
    """Case ``k``: its kind, the file, the options to read it, and the command that does."""
    rng = np.random.default_rng([seed, k, 1])
    kind = pick(rng, list(KINDS))
    data, options = KINDS[kind](rng)
    return kind, data, options, "fit" if rng.random() < 0.2 else "predict"


def write_model(folder: Path) -> Path:
    """A model of the table that makes sense, for ``predict``."""
    table, path = folder / "good.csv", folder / "model"
    table.write_text(written(rows_of(np.random.default_rng(0))))
    argv = ["fit", str(table), "--target", "y", "--task", "shop", "--drop", "id", "--alphas", "2", "--cv", "2"]
    if cli.run([*argv, "--structure", "trace", "--save", str(path), "-q"]):
        raise SystemExit("the model of the good table could not be fitted")
    table.unlink()
    return path


def judge_table(folder: Path, model: Path, data: bytes, options: list[str], command: str) -> tuple[str, str]:
    """Run a command on a table in a folder of its own; look at its words, and at what it left behind."""
    table, out = folder / "t.csv", folder / ("o.parquet" if data.startswith(b"PAR1") else "o.csv")
    table.write_bytes(data)
    out.write_bytes(BEFORE)
    argv = ["predict", str(model), str(table), "-o", str(out), "-q", *options]
    if command == "fit":
        argv = ["fit", str(table), "--target", "y", "--task", "shop", "--drop", "id", "--alphas", "1", "--cv", "2", "-q"]
        argv += ["--structure", "independent", "--max-iter", "5", "--save", str(out), *options]
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")
            outcome, detail = judge_command(argv)
    except TooSlow:
        return "FAILURE(too slow)", f"more than {SECONDS:g} CPU seconds"
    except BaseException as error:
        return f"FAILURE({type(error).__name__})", fault(error)
    left = sorted(path.name for path in folder.iterdir())
    if left != sorted([table.name, out.name]):
        return "FAILURE(left behind)", str(left)
    if (out.read_bytes() == BEFORE) == (outcome == LOADED):
        return "FAILURE(output)", f"{outcome}, but the file {'is the old one' if outcome == LOADED else 'was touched'}"
    out.unlink()
    return outcome, detail
