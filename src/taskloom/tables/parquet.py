"""Parquet files as blocks of rows, for data that do not fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any


class parquet_blocks:  # noqa: N801 (it is called like a function)
    """The rows of a Parquet file or folder in blocks, for ``fit_blocks``.

    It can be iterated repeatedly. Needs pyarrow.

    Parameters
    ----------
    path : str or path
        A file, or a folder of files with the same columns.
    target : str or sequence of str
        The column of ``y`` (one task, or a long table whose task is in the model's ``task_column``), or those of a wide ``Y``.
    columns : sequence of str, optional
        The columns of ``X``, the task column among them; all others by default.
    sample_weight : str, optional
        The column of the weights.
    rows : int, default=65536
        Rows of a block, at most.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, pyarrow as pa
    >>> from pyarrow.parquet import write_table
    >>> from taskloom import MultiTaskRegressor, parquet_blocks
    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> table = pa.table({"a": x[:, 0], "b": x[:, 1], "u": x @ [1.0, 2.0], "v": x @ [2.0, 1.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_table(table, os.path.join(folder, "part.parquet"))
    ...     model = MultiTaskRegressor(alpha=1e-3).fit_blocks(parquet_blocks(folder, ["u", "v"], rows=30))
    >>> model.tasks_.tolist(), model.feature_names_in_.tolist()
    (['u', 'v'], ['a', 'b'])
    """

    def __init__(
        self,
        path: str | os.PathLike,
        target: str | Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        sample_weight: str | None = None,
        rows: int = 1 << 16,
    ):
        try:
            arrow = import_module("pyarrow.dataset")
        except ImportError:
            raise ImportError("Parquet files need pyarrow: python -m pip install pyarrow") from None
        self._data = arrow.dataset(os.fspath(path), format="parquet")
        self.target: Any = target if isinstance(target, str) else list(target)
        self.sample_weight, self.rows = sample_weight, rows
        self._targets = [target] if isinstance(target, str) else list(target)
        self._weight = [] if sample_weight is None else [sample_weight]
        names, other = self._data.schema.names, [*self._targets, *self._weight]
        self.columns = [name for name in names if name not in other] if columns is None else list(columns)
        missing = [name for name in [*other, *self.columns] if name not in names]
        if missing:
            raise ValueError(f"{path} has no column {missing[0]!r}; it has {names}")

    def __iter__(self) -> Iterator[tuple]:
        arrow = import_module("pyarrow")
        wanted = [*self.columns, *self._targets, *self._weight]
        batches = self._data.to_batches(columns=wanted, batch_size=self.rows, batch_readahead=1, fragment_readahead=1)
        for batch in batches:
            if batch.num_rows == 0:
                continue
            table = arrow.Table.from_batches([batch])
            y = table.column(self.target).to_numpy() if isinstance(self.target, str) else table.select(self.target)
            weight = [table.column(name).to_numpy() for name in self._weight]
            yield (table.select(self.columns), y, *weight)
