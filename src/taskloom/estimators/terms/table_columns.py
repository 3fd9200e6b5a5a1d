"""Columns of a table by name or position: numbers for inputs, labels for groupings, numbers or categories for descriptors."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _get_feature_names

from ...design.levels import empty_columns
from ...tables.layout import as_table, missing_cells

Array = np.ndarray


class TableColumns:
    """A table whose columns are read one by one, because some hold numbers and some hold labels."""

    def __init__(self, X: Any):
        if hasattr(X, "collect") and hasattr(X, "lazy"):
            raise ValueError(f"X is a {type(X).__name__}, which holds no data yet: pass X.collect()")
        X = as_table(X)
        self.X = X if hasattr(X, "columns") or hasattr(X, "tocsr") else np.asarray(X)
        if hasattr(self.X, "tocsr"):
            raise ValueError("terms= takes dense tables, got a sparse X; pass X.toarray(), or a data frame")
        if len(self.X.shape) != 2:
            raise ValueError(f"X must be a table with rows and columns, got shape {self.X.shape}")
        self.names = [str(name) for name in self.X.columns] if hasattr(self.X, "columns") else None
        if self.names is not None and len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"columns must have different (unique) names, got {twice!r} twice")
        self.n_rows, self.n_columns = self.X.shape

    @property
    def feature_names(self) -> Array | None:
        return _get_feature_names(self.X)

    def position(self, column: Any, what: str) -> int:
        """The position of a column that was given by name or by number."""
        if isinstance(column, str):
            if self.names is None:
                raise ValueError(f"{what}={column!r} is a name, but X has no column names; pass a data frame, or a position")
            if column not in self.names:
                close = get_close_matches(column, self.names, 1)
                hint = f"; did you mean {close[0]!r}?" if close else f"; it has {self.names[:20]}"
                raise ValueError(f"X has no column {column!r} ({what}){hint}")
            return self.names.index(column)
        if not isinstance(column, Integral) or isinstance(column, bool):
            raise ValueError(f"{what} must be a column name or a position, got {column!r}")
        if not -self.n_columns <= column < self.n_columns:
            raise ValueError(f"{what}={column} is outside the {self.n_columns} columns of X")
        return int(column) % self.n_columns

    def positions(self, columns: Any, what: str) -> tuple[int, ...]:
        """The positions of one column or of several."""
        one = isinstance(columns, str) or not isinstance(columns, Iterable)
        found = tuple(self.position(column, what) for column in ([columns] if one else columns))
        if not found:
            raise ValueError(f"{what}={columns!r} names no column; name one, or leave {what}= out")
        return found

    def name(self, position: int) -> Any:
        return position if self.names is None else self.names[position]

    def column(self, position: int) -> Array:
        if isinstance(self.X, np.ndarray):
            return self.X[:, position]
        return np.asarray(_safe_indexing(self.X, position, axis=1))

    def numbers(self, positions: tuple[int, ...]) -> Array:
        """Input columns as floats (``n x d``)."""
        if isinstance(self.X, np.ndarray) and self.X.dtype.kind in "biuf" and np.isfinite(self.X).all():
            return np.ascontiguousarray(self.X[:, list(positions)], dtype=float)
        out = empty_columns(self.n_rows, len(positions))
        for j, position in enumerate(positions):
            column = self._no_dates(position)
            try:
                out[:, j] = column
            except (TypeError, ValueError):
                name = self.name(position)
                raise ValueError(
                    f"column {name!r} of X holds no numbers: encode it (TablePreprocessor, OneHotEncoder), leave it out with "
                    f"columns=[...], or group by it: Term('constant', by={name!r})"
                ) from None
            if not np.isfinite(out[:, j]).all():
                row = int(np.argmin(np.isfinite(out[:, j])))
                raise ValueError(f"column {self.name(position)!r} of X holds NaN or infinity in row {row}; impute it first")
        return out

    def descriptors(self, position: int, numbers: bool | None = None) -> Array:
        """Descriptors of the level of each row; ``numbers`` says what they were in the fit. Missing ones are refused."""
        column = self._no_dates(position)
        missing = np.isnan(column) if column.dtype.kind in "biuf" else missing_cells(column.tolist())
        if missing.any():
            raise ValueError(
                f"column {self.name(position)!r}, which describes the levels of a term, holds a missing value in row "
                f"{int(np.argmax(missing))}; fill it in (for categories a name of its own will do), or drop the row"
            )
        if self._is_categorical(position):  # the codes of a category are not its size
            column = column.astype(str).astype(object)
        words = next((value for value in column.tolist() if isinstance(value, str)), None)
        if numbers and words is not None:
            raise ValueError(f"column {self.name(position)!r} held numbers in the fit, and now holds {words!r}")
        return column

    def _is_categorical(self, position: int) -> bool:
        kinds = getattr(self.X, "dtypes", None)
        return kinds is not None and hasattr(list(kinds)[position], "categories")

    def _no_dates(self, position: int) -> Array:
        column = self.column(position)
        if column.dtype.kind in "mM":
            raise ValueError(
                f"column {self.name(position)!r} of X holds dates or durations: turn it into numbers, such as the days since a "
                "first date"
            )
        return column

    def labels(self, position: int) -> Array:
        """The level of each row; a missing one is refused."""
        labels = self.column(position)
        labels = labels if labels.dtype.kind in "biufO" else labels.astype(object)
        if labels.dtype.kind in "biu":
            return labels
        missing = np.isnan(labels) if labels.dtype.kind == "f" else missing_cells(labels.tolist())
        if missing.any():
            raise ValueError(
                f"column {self.name(position)!r}, which a term is grouped by, holds a missing value in row "
                f"{int(np.argmax(missing))}; drop the row, or give it a level of its own"
            )
        return labels
