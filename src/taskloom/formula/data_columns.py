"""Columns of a data frame by name, checked once: there, complete, and joined to groupings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import numpy as np


def as_frame(data: Any) -> Any:
    """The data as a frame of pandas; frames of polars, tables of pyarrow and dicts of columns are converted."""
    pd = import_module("pandas")
    if isinstance(data, Mapping):
        data = pd.DataFrame(dict(data))
    elif not isinstance(data, pd.DataFrame) and hasattr(data, "to_pandas"):
        data = data.to_pandas()
    if not isinstance(data, pd.DataFrame):
        raise TypeError(f"a formula names columns: data must be a data frame or a dict of columns, got {type(data).__name__}")
    if not data.columns.is_unique:
        raise ValueError(f"columns must have different names, got {data.columns[data.columns.duplicated()][0]!r} twice")
    return data


def check_columns(frame: Any, names: Iterable[str]) -> None:
    """Raise for a name that is no column."""
    known = [name for name in frame.columns if isinstance(name, str)]
    for name in names:
        if name not in known:
            meant = "".join(f"; did you mean {close!r}?" for close in get_close_matches(name, known, n=1, cutoff=0.5))
            raise ValueError(f"the data has no column {name!r}{meant or f'; it has {known}'}")


def check_complete(frame: Any, names: Iterable[str], what: str) -> None:
    """Raise for a missing value in one of the columns, with the label of its row."""
    for name in names:
        missing = np.asarray(frame[name].isna())
        if missing.any():
            row = frame.index[int(np.argmax(missing))]
            raise ValueError(f"the {what} {name!r} is missing in row {row}: leave out or impute such rows")


def levels(frame: Any, by: tuple[str, ...]) -> Any:
    """The level of each row: the column itself, or the joined texts of several."""
    if len(by) == 1:
        return frame[by[0]]
    rows = zip(*(_texts(frame[name]) for name in by), strict=True)
    return np.array([":".join(row) for row in rows], dtype=object)


def _texts(column: Any) -> np.ndarray:
    codes, values = import_module("pandas").factorize(column)
    return np.array([_text(value) for value in values], dtype=object)[codes]


def _text(value: Any) -> str:
    """A level as text: 3 and 3.0 are one level, and a colon inside a level is no boundary between levels."""
    whole = isinstance(value, (float, np.floating)) and value.is_integer()
    return str(int(value) if whole else value).replace("\\", "\\\\").replace(":", "\\:")
