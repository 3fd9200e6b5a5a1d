"""A fast CSV reader for simple lines (no quotes, no surprises), by the parser of pandas."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Set
from importlib import import_module
from typing import Any

from .preprocessing import MISSING

DELIMITERS = ",;\t|"
# a quoted cell that would be the same without its quotes, by delimiter
_NEEDLESS = {d: re.compile(rf'(^|[{d}]) *"((?:[^ "{d}\r\n][^"{d}\r\n]*)?)"(?=[{d}\r\n]|$)', re.MULTILINE) for d in DELIMITERS}


def plain_frame(lines: list[str], columns: list[str], delimiter: str, numbers: Set[str]) -> Any | None:
    """Lines as a data frame, the columns ``numbers`` as floats and the others as text; ``None`` if the lines are not simple.

    Simple lines hold no quotes that are needed and as many cells as there are columns, and the columns of ``numbers`` hold
    numbers and empty cells only. All others go to Python's own reader, which is ten times slower and names the line of an
    error. Both must return the same cells: a line on which they differ is not simple.
    """
    text = "".join(lines)
    if '"' in text and delimiter in DELIMITERS:
        text = _NEEDLESS[delimiter].sub(r"\1\2", text)
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
    except ValueError:  # a cell that is not a number, or a line with more cells than the header
        return None
    # Where no line has more cells than the header and all together have as many, each has; a longer first line is an index.
    return frame if len(frame) == len(lines) and isinstance(frame.index, pandas.RangeIndex) else None
