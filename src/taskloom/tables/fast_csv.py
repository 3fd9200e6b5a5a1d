"""The quick way through a CSV file: lines in which nothing can be misunderstood are read by the parser of pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Set
from importlib import import_module
from typing import Any

from .preprocessing import MISSING

DELIMITERS = ",;\t|"


def plain_frame(lines: list[str], columns: list[str], delimiter: str, numbers: Set[str]) -> Any | None:
    """Lines as a frame with numbers in the columns of that name and texts in the others; ``None`` if they are not plain.

    Plain lines hold no quotes and as many cells as there are columns, and the columns of ``numbers`` hold numbers and empty
    cells only. All others are for Python's own reader, ten times slower, which knows what is wrong and in which line. Both must
    give the same cells: what either would read in another way is not plain.
    """
    text = "".join(lines)
    cells = (len(columns) - 1) * len(lines)
    if cells == 0 or delimiter not in DELIMITERS or text.count(delimiter) != cells or '"' in text or "\0" in text:
        return None
    if max(map(len, lines)) > csv.field_size_limit():
        return None
    pandas = import_module("pandas")
    exact = {} if tuple(map(int, pandas.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
    try:
        frame = pandas.read_csv(
            io.BytesIO(text.encode()),
            sep=delimiter,
            header=None,
            names=columns,
            dtype={name: float if name in numbers else object for name in columns},
            na_values={name: list(MISSING) for name in numbers},
            keep_default_na=False,
            skipinitialspace=True,
            skip_blank_lines=False,
            quoting=csv.QUOTE_NONE,
            low_memory=False,
            **exact,
        )
    except ValueError:  # a cell that is no number, or a line with more cells than the header
        return None
    # Where no line has more cells than the header and all together have as many, each has; a longer first line is an index.
    return frame if len(frame) == len(lines) and isinstance(frame.index, pandas.RangeIndex) else None
