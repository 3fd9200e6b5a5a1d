"""Preprocessing of data frames: scaling, imputation and one-hot encoding, by column name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .layout import is_missing

Array = np.ndarray
MISSING = frozenset({"", "NA", "N/A", "NaN", "nan", "null", "NULL"})  # texts that mean a missing value
_TRUTH = {"true": 1.0, "false": 0.0}
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(\.\d{3})*,\d+")


class TablePreprocessor(TransformerMixin, BaseEstimator):
    """Standardise numeric columns and one-hot encode categorical columns of a data frame; columns are found by name.

    Numeric columns get mean 0 and variance 1; missing values are imputed by the median. Categorical columns become one 0/1
    column per level; a missing value is a level of its own, and an unseen level is all zeros. Columns that were not in the fit
    are ignored.

    Parameters
    ----------
    task_column : str, default=None
        The column that names the task of each row; it is passed on, as text.
    groupings : sequence of str, default=()
        Columns that group the rows, as ``Term(..., by=...)`` takes them; they are passed on, as text.
    categorical : sequence of str, default=()
        Numeric columns to treat as categorical.
    max_levels : int, default=100
        A text column with more levels than this is refused unless it is named in ``categorical``: it is probably an
        identifier.

    Attributes
    ----------
    numeric_ : dict of tuples
        Median, mean and standard deviation of each numeric column.
    levels_ : dict of lists
        The levels of each categorical column; ``None`` is the level of missing values.
    feature_names_in_ : ndarray
    n_features_in_ : int

    Examples
    --------
    >>> import pandas as pd
    >>> from taskloom import TablePreprocessor
    >>> table = pd.DataFrame({"age": [20.0, 40.0, None], "town": ["bath", "cork", "bath"]})
    >>> TablePreprocessor().fit_transform(table).round(2).to_dict("list")
    {'age': [-1.22, 1.22, 0.0], 'town=bath': [1.0, 0.0, 1.0], 'town=cork': [0.0, 1.0, 0.0]}
    """

    def __init__(
        self,
        *,
        task_column: str | None = None,
        groupings: Sequence[str] = (),
        categorical: Sequence[str] = (),
        max_levels: int = 100,
    ):
        self.task_column = task_column
        self.groupings = groupings
        self.categorical = categorical
        self.max_levels = max_levels

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find which columns are numeric and which categorical, and the scale or the levels of each.

        Parameters
        ----------
        X : data frame of shape (n_samples, n_columns)
            The table.
        y : None, default=None
            Ignored; there for scikit-learn's pipelines.

        Returns
        -------
        self
        """
        X = _frame(X)
        names = list(map(str, X.columns))
        if len(set(names)) != len(names):
            raise ValueError(f"columns must have different names, got {repeated(names)!r} twice")
        place = {name: k for k, name in enumerate(names)}
        if isinstance(self.groupings, str):
            raise ValueError(f"groupings takes a list of names, got {self.groupings!r}; pass [{self.groupings!r}]")
        for name in (*self.categorical, *self.labels):
            if name not in place:
                raise ValueError(f"the table has no column {name!r}; it has {_some(names)}")
        if len(set(self.labels)) < len(self.labels):
            raise ValueError(f"column {repeated(self.labels)!r} is named twice in task_column and groupings; name it once")
        inputs = [name for name in names if name not in self.labels]
        if len(inputs) == 0:
            raise ValueError("the table has no input columns, only tasks, groupings and targets")
        self.numeric_, self.levels_ = {}, {}
        for name in inputs:
            column = X.iloc[:, place[name]]
            values = None if name in self.categorical else _numbers(column, name)
            if values is None:
                self.levels_[name] = self._levels(column, name)
            else:
                self.numeric_[name] = _scale(values, name)
        self.feature_names_in_ = np.array(names, dtype=object)
        self.n_features_in_ = len(names)
        out = self.get_feature_names_out().tolist()
        if len(set(out)) != len(out):
            raise ValueError(f"two columns would both be called {repeated(out)!r}; rename one of the inputs")
        return self

    def _levels(self, column: Any, name: str) -> list[str | None]:
        texts = _texts(column)
        levels = sorted({text for text in texts if text is not None})
        if len(levels) == 0:
            raise ValueError(f"column {name!r} is empty; leave it out")
        if name not in self.categorical and len(levels) > self.max_levels:
            raise ValueError(
                f"column {name!r} is text with {len(levels)} different values; leave it out (--drop {name}), or name it as "
                f"categorical (--categorical {name}) if it is not an identifier"
            )
        return [*levels, *([None] if None in texts else [])]

    def transform(self, X: Any) -> Any:
        """Encode the columns of the fit.

        Parameters
        ----------
        X : data frame
            With the columns of the fit, in any order.

        Returns
        -------
        pandas.DataFrame
            Numeric columns, then those of ``groupings``, and last the task column if there is one.
        """
        check_is_fitted(self, "numeric_")
        X = _frame(X)
        names = list(map(str, X.columns))
        place = {name: k for k, name in reversed(list(enumerate(names)))}  # of two with one name the first
        missing = [name for name in self.feature_names_in_ if name not in place]
        if missing:
            raise ValueError(f"the table has no column {missing[0]!r}, which the model was fitted with; it has {_some(names)}")
        parts = []
        for name in self._inputs():
            column = X.iloc[:, place[name]]
            if name in self.numeric_:
                median, mean, std = self.numeric_[name]
                values: Any = _numbers(column, name, strict=True)
                parts.append(((np.where(np.isnan(values), median, values) - mean) / std)[:, None])
            else:
                position = {level: k for k, level in enumerate(self.levels_[name])}
                level = np.array([position.get(text, -1) for text in _texts(column)], dtype=int)
                parts.append((level[:, None] == np.arange(len(position))).astype(float))
        pd = import_module("pandas")
        out = self.get_feature_names_out()
        words = dict.fromkeys(self.groupings, "the grouping column") | {self.task_column: "the task column"}
        labels = {name: task_names(X.iloc[:, place[name]], words[name]) for name in self.labels}
        inputs = pd.DataFrame(np.hstack(parts), columns=out[: len(out) - len(labels)], index=X.index)
        return inputs.assign(**{name: pd.Series(texts, index=X.index, dtype=object) for name, texts in labels.items()})

    @property
    def labels(self) -> list[str]:
        """The columns that are passed on as text: groupings, and last the task column if there is one."""
        return [*self.groupings, *([] if self.task_column is None else [self.task_column])]

    def _inputs(self) -> list[str]:
        labels = set(self.labels)
        return [name for name in self.feature_names_in_.tolist() if name not in labels]

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """The names of the columns that ``transform`` gives.

        Parameters
        ----------
        input_features : None, default=None
            Ignored; there for scikit-learn's pipelines.

        Returns
        -------
        ndarray of str objects
        """
        check_is_fitted(self, "numeric_")
        return np.array(list(self.names_out()), dtype=object)

    def names_out(self) -> Iterator[str]:
        """The names of the columns that ``transform`` gives, one by one.

        Yields
        ------
        str
        """
        for name in self._inputs():
            if name in self.numeric_:
                yield name
            else:
                yield from (f"{name}={'(missing)' if level is None else level}" for level in self.levels_[name])
        yield from self.labels


def task_names(column: Any, what: str = "the task column") -> list[str]:
    """The task or the level of each row as text; a row without one is refused. ``NA`` is a name like any other."""
    names = column.tolist()
    if not set(map(type, names)) <= {str}:
        whole = (isinstance(value, float) and value.is_integer() for value in names)  # 2.0 is task 2: a gap makes floats of all
        names = ["" if is_missing(v) else str(int(v)) if w else str(v) for v, w in zip(names, whole, strict=True)]
    if "" in names:
        raise ValueError(f"{what} {column.name!r} is empty in row {column.index[names.index('')]}")
    return names


def read_targets(column: Any, labels: bool | None = None) -> tuple[Array, bool]:
    """Numeric targets with NaN where they are missing, or class labels with None; and whether they are class labels.

    With ``labels=None`` the column decides: text and booleans are class labels, numbers are not.
    """
    truth = column.dtype.kind == "b" or {str(text).strip().lower() for text in _texts(column) if text is not None} <= {*_TRUTH}
    as_labels = labels or (truth and labels is None)
    values = None if as_labels else _numbers(column, str(column.name), strict=labels is False, target=True)
    if values is not None:
        return values, False
    return np.array(_texts(column), dtype=object), True


def _frame(X: Any) -> Any:
    if hasattr(X, "iloc"):
        return X
    if not hasattr(X, "to_pandas"):
        raise ValueError(f"a table with column names is needed (a data frame), got {type(X).__name__}")
    return X.to_pandas()


def repeated(names: list[str]) -> str:
    """The first name that is there twice."""
    return next((name for name, count in Counter(names).items() if count > 1), "")


def _some(names: list[str]) -> str:
    """Names for a sentence: all of them, or the first of many."""
    return str(names) if len(names) <= 20 else f"{len(names)} columns, {str(names[:20])[1:-1]}, ..."


def _texts(column: Any) -> list[str | None]:
    """Each cell as text, ``None`` where it is missing."""
    cells = column.tolist()
    if set(map(type, cells)) <= {str}:  # each different text once: texts repeat
        texts = {cell: None if cell.strip() in MISSING else cell for cell in set(cells)}
        return [texts[cell] for cell in cells]
    return [None if is_missing(value) or str(value).strip() in MISSING else str(value) for value in cells]


def as_numbers(column: Any, name: str) -> Array:
    """Each cell of a column of numbers, NaN where it is missing; anything else is refused."""
    values = _numbers(column, name, strict=True)
    assert values is not None
    return values


def plain_numbers(column: Any) -> Array | None:
    """Texts as numbers, NaN where they are missing; ``None`` if one of them is no number."""
    values, invalid = _parse([None if text is None else text.strip() for text in _texts(column)])
    return None if invalid else values


def _numbers(column: Any, name: str, strict: bool = False, target: bool = False) -> Array | None:
    """Each cell as a number, NaN where it is missing; ``None`` for a categorical column, which ``strict`` refuses."""
    kind = column.dtype.kind
    if kind in "mMc":
        raise ValueError(f"column {name!r} holds times or complex numbers; make them numbers, or leave it out (--drop {name})")
    if kind in "biuf":
        values = column.to_numpy(dtype=float, na_value=np.nan)
    else:
        texts = [None if text is None else text.strip() for text in _texts(column)]
        values, invalid = _parse(texts)
        if invalid:
            odd = [str(texts[i]) for i in invalid]
            only = len(odd) == sum(text is not None for text in texts)  # there is no number in the column
            if all(text.lower() in _TRUTH for text in odd) and (only or strict):
                values[invalid] = [_TRUTH[text.lower()] for text in odd]
                return values
            where = f"{odd[0]!r} in row {column.index[invalid[0]]}"
            if all(_DECIMAL_COMMA.fullmatch(text) for text in odd):
                raise ValueError(
                    f"column {name!r} holds numbers with a comma, such as {where}: write decimals with a point, and thousands "
                    "without a separator"
                )
            if only and not strict:
                return None
            other = "treat it as class labels (--classify)" if target else f"treat it as categorical (--categorical {name})"
            instead = "" if strict else f", or {other}"
            raise ValueError(f"column {name!r} is numeric, but has {where}; leave the cell empty if it is missing{instead}")
    infinite = np.flatnonzero(np.isinf(values))
    if infinite.size:
        where = f"row {column.index[int(infinite[0])]}"
        raise ValueError(f"column {name!r} holds infinity in {where}; leave the cell empty if it is missing")
    return values


def _parse(texts: list[str | None]) -> tuple[Array, list[int]]:
    """Texts as numbers, and the positions of texts that are not numbers."""
    try:
        plain = [float("nan") if text is None else float(text) for text in texts]
        if not any("_" in text for text in texts if text is not None):
            return np.array(plain), []
    except ValueError:
        pass
    values, invalid = np.full(len(texts), np.nan), []
    for i, text in enumerate(texts):
        if text is not None:
            try:
                values[i] = float(text if "_" not in text else "no number")  # Python reads 1_000 as a number
            except ValueError:
                invalid.append(i)
    return values, invalid


def _scale(values: Array, name: str) -> tuple[float, float, float]:
    """Median, mean and standard deviation after imputation; 1 for a constant column."""
    if np.isnan(values).all():
        raise ValueError(f"column {name!r} is empty; leave it out")
    median = float(np.nanmedian(values))
    filled = np.where(np.isnan(values), median, values)
    if not float(np.abs(filled).max()) < 1e150:
        raise ValueError(
            f"column {name!r} holds {filled[np.abs(filled).argmax()]:.3g}, whose square overflows; rescale it, or leave it out"
        )
    mean, std = float(filled.mean()), float(filled.std())
    return median, mean, std if std > 1e-12 * max(abs(mean), np.finfo(float).tiny) else 1.0
