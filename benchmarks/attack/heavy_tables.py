"""Tables that take far more memory than their size, unless they are read with care: Parquet that unpacks, files with a hole.

Case ``k`` of a seed is always the same. A command may take ten seconds and a gibibyte for one of them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from .table_files import pick, rows_of, written

Rng = np.random.Generator
HOLE = 3 << 30  # bytes of a file that are not there
FIT = ["--target", "y", "--task", "shop", "--alphas", "1", "--cv", "2", "-q", "--structure", "independent", "--max-iter", "5"]


def columns(rng: Rng, n: int) -> dict[str, pa.Array]:
    """The columns of ``rows_of`` in a Parquet file."""
    x = rng.normal(size=(n, 2))
    words = {"kind": pa.array(["x", "y"] * (n // 2)), "shop": pa.array([*"ab"] * (n // 2))}
    return {"id": pa.array(["r"] * n), "p": pa.array(x[:, 0]), "q": pa.array(x[:, 1]), **words, "y": pa.array(x.sum(axis=1))}


def same_text(path: Path, rng: Rng) -> None:
    """A long text, once in the file, in every row of the column ``id``."""
    n, long = 600, pa.array(["x" * int(rng.integers(5_000_000, 12_000_000))])
    same = pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), long)
    store = bool(rng.random() < 0.5)  # with the type of Arrow, or as plain text
    parquet.write_table(pa.table(columns(rng, n) | {"id": same}), path, compression="zstd", store_schema=store)


def packed_texts(path: Path, rng: Rng) -> None:
    """Long texts that differ in a few letters, packed to nearly nothing."""
    n = 300
    texts = pa.array([f"{k % 7}" + "x" * 2_000_000 for k in range(n)])
    kind = str(rng.choice(["zstd", "gzip", "brotli"]))
    parquet.write_table(pa.table(columns(rng, n) | {"id": texts}), path, compression=kind, use_dictionary=False)


def equal_rows(path: Path, rng: Rng) -> None:
    """Tens of millions of equal rows, which take a few bytes."""
    n = int(rng.choice([20_000_000, 60_000_000]))
    zeros, word = pa.array(np.zeros(n)), pa.array(["a"])
    same = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, dtype=np.int32)), word)
    table = {"id": same, "p": zeros, "q": zeros, "kind": same, "shop": same, "y": zeros}
    parquet.write_table(pa.table(table), path, compression="zstd")


def hole(path: Path, rng: Rng) -> None:
    """A file whose end was never written: in place of it there is nothing, which reads as zeros."""
    text = written(rows_of(rng))
    path.write_text(pick(rng, ["", text, text[: text.index("\n") + 1], text[: len(text) // 2]]))
    with path.open("rb+") as file:
        file.truncate(HOLE)


def endless_line(path: Path, rng: Rng) -> None:
    """A line of some hundred megabytes, in the header or after it."""
    start = pick(rng, ["", "id,p,q,kind,shop,y\n"])
    path.write_text(start + pick(rng, ["1", "x,", '"', "é"]) * 150_000_000)


def long_name(path: Path, rng: Rng) -> None:
    """One long name among very many short ones: of a task, a class or anything else."""
    rows = rows_of(rng, 40_000)
    rows[int(rng.integers(1, len(rows)))][pick(rng, [0, 3, 4, 5])] = "z" * (csv.field_size_limit() - 1)
    path.write_text(written(rows))


def long_cells(path: Path, rng: Rng) -> None:
    """Identifiers as long as a cell may be, in every row."""
    rows = rows_of(rng, 1200)
    for row in rows[1:]:
        row[0] = "i" * (csv.field_size_limit() - 1)
    path.write_text(written(rows))


KINDS: dict[str, Callable[[Path, Rng], None]] = {
    "Parquet: one long text in every row": same_text,
    "Parquet: long texts, packed": packed_texts,
    "Parquet: millions of equal rows": equal_rows,
    "a file with a hole": hole,
    "a line without end": endless_line,
    "a long name among short ones": long_name,
    "long cells in every row": long_cells,
}


def draw(seed: int, k: int, path: Path, model: Path, out: Path) -> tuple[str, list[str]]:
    """Case ``k``: its kind, and the command that reads the file, which is at ``path`` now; each kind in its turn."""
    rng = np.random.default_rng([seed, k, 3])
    kind = list(KINDS)[k % len(KINDS)]
    KINDS[kind](path, rng)
    command = "fit" if kind == "Parquet: millions of equal rows" else pick(rng, ["fit", "compare", "predict"])
    if command == "predict":  # which goes on for as long as there are rows
        return kind, ["predict", str(model), str(path), "-o", str(out), "-q"]
    drop = ["--drop", "id"] if k < len(KINDS) or rng.random() < 0.7 else []
    return kind, [command, str(path), *FIT, *drop]
