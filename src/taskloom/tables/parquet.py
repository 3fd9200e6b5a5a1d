"""Parquet files as blocks of rows, for data that do not fit in memory, and for the command line."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

UNPACKED = 1 << 28  # bytes to which a column of a row group may unpack, whatever it takes in the file
TIMES = 20  # or so many times what it takes there
LONGEST_BYTES = 1024  # of cells that all have the same number of bytes
IN_MEMORY, TIMES_IN_MEMORY = 1 << 28, 100  # the same of the cells of a whole table


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


# --- for the command line -------------------------------------------------------------------------------------------------


def parquet_module() -> Any:
    """``pyarrow.parquet``, or how to install it."""
    try:
        return import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError('Parquet files need pyarrow: python -m pip install "taskloom[frames]"') from None


def opened(path: str, texts: Sequence[str] = ()) -> Any:
    """A Parquet file; the columns ``texts`` are read with each different text once."""
    try:
        return parquet_module().ParquetFile(path, read_dictionary=list(texts))
    except ValueError as error:
        raise ValueError(f"{path} is not readable as Parquet ({str(error).splitlines()[0]})") from None


def check_rows(path: str, n_columns: int) -> None:
    """Refuse a table that would take far more memory than its file, such as a billion equal rows."""
    needed = 8 * n_columns * opened(path).metadata.num_rows
    if needed > max(IN_MEMORY, TIMES_IN_MEMORY * os.path.getsize(path)):
        raise ValueError(
            f"{path} has {os.path.getsize(path)} bytes and would take {needed >> 20} MiB in memory; leave out rows or columns"
        )


def parquet_pieces(path: str, columns: Sequence[str], rows: int, characters: int) -> Iterator[Any]:
    """Data frames of some columns with at most ``rows`` rows and about so many characters; other columns are not decoded."""
    types, fields = import_module("pyarrow").types, opened(path).schema_arrow
    texts, kept = [], set(columns)
    for field in fields:
        if field.name not in kept:
            continue
        kind = getattr(field.type, "value_type", field.type) if types.is_dictionary(field.type) else field.type
        if types.is_nested(kind):
            raise ValueError(
                f"column {field.name!r} of {path} holds lists or records; flatten it first, or leave it out "
                f"(--drop {field.name})"
            )
        if types.is_fixed_size_binary(kind) and kind.byte_width > LONGEST_BYTES:
            raise ValueError(
                f"column {field.name!r} of {path} holds cells of {kind.byte_width} bytes; leave it out (--drop {field.name})"
            )
        if _is_text(kind):
            texts.append(field.name)
    source = opened(path, texts)
    _check_unpacked(path, source.metadata, kept)
    for batch in source.iter_batches(batch_size=rows, columns=list(columns)):
        sizes = _sizes(path, batch, texts)
        frame = batch.to_pandas(integer_object_nulls=True)  # whole numbers stay whole where some are missing
        for name in texts:
            frame[name] = frame[name].astype(object)  # equal texts are one object
        cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // characters)) + 1
        for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(frame)], strict=True):
            yield frame.iloc[start:end] if cuts.size else frame


def _is_text(kind: Any) -> bool:
    """Whether cells are texts or bytes of any length."""
    kind = getattr(kind, "storage_type", kind)  # of an extension
    types = import_module("pyarrow").types
    return any(is_one(kind) for is_one in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary))


def _check_unpacked(path: str, metadata: Any, kept: set[str]) -> None:
    """Columns of a few bytes that unpack to many would fill the memory: pages are unpacked as a whole."""
    for k in range(metadata.num_row_groups):
        group = metadata.row_group(k)
        for j in range(group.num_columns):
            chunk = group.column(j)
            small, large = chunk.total_compressed_size, chunk.total_uncompressed_size
            name = chunk.path_in_schema
            if name in kept and large > max(UNPACKED, TIMES * small):
                raise ValueError(
                    f"column {name!r} of {path} unpacks from {small} bytes to {large >> 20} MiB; leave it out (--drop {name})"
                )


def _sizes(path: str, batch: Any, texts: Sequence[str]) -> Any:
    """The characters of each row, about; a text that is too long for a cell of a CSV file is refused here, too."""
    sizes, compute = np.zeros(batch.num_rows), import_module("pyarrow.compute")
    for name in texts:
        column = batch.column(batch.schema.get_field_index(name))
        column = column if hasattr(column, "dictionary") else column.dictionary_encode()
        lengths = compute.binary_length(column.dictionary).to_numpy(zero_copy_only=False)
        if lengths.max(initial=0) > csv.field_size_limit():
            raise ValueError(
                f"column {name!r} of {path} holds a text of {int(lengths.max())} bytes, and a cell may have up to "
                f"{csv.field_size_limit()}; leave it out (--drop {name}), or shorten it"
            )
        there = compute.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
        sizes += lengths[there] if lengths.size else 0
    return sizes
