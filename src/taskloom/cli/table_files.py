"""CSV and Parquet files as data frames, piece by piece; cells of a CSV file are text. Every error is one sentence."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Iterator, Set
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..persistence import atomic_path
from ..tables.fast_csv import DELIMITERS, plain_frame
from ..tables.parquet import check_rows, opened, parquet_module, parquet_pieces
from ..tables.preprocessing import plain_numbers, repeated

ROWS = 20_000  # in a piece
PIECE = 1 << 26  # characters of a piece, about
LONGEST_LINE = 1 << 24  # characters; tables of 100 000 columns have shorter ones
MOST_COLUMNS = 100_000  # frames take a millisecond for each column; tables this wide are usually transposed
_MAGIC = {b"PK": "is a spreadsheet or an archive; export it as CSV", b"\x1f\x8b": "is compressed; unpack it first"}


class TableFile:
    """A table that is read piece by piece; ``columns`` are the names of its columns."""

    def __init__(self, path: str, delimiter: str | None = None, encoding: str = "utf-8"):
        self.path = path
        with open(path, "rb") as file:
            start = file.read(4)
        if not start:
            raise ValueError(f"{path} is empty")
        for magic, words in _MAGIC.items():
            if start.startswith(magic):
                raise ValueError(f"{path} {words}")
        if start[:2] in (b"\xff\xfe", b"\xfe\xff") and encoding == "utf-8":
            raise ValueError(f"{path} is UTF-16; pass --encoding utf-16")
        self.parquet = start == b"PAR1"
        self.encoding = "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding
        delimiter = "\t" if delimiter in ("\\t", "tab") else delimiter
        if delimiter is not None and len(delimiter) != 1:
            raise ValueError(f"--delimiter needs one character, got {delimiter!r}")
        self.delimiter = delimiter or ("," if self.parquet else self._guess())
        self.columns = list(opened(path).schema_arrow.names) if self.parquet else self._header()
        self._check_names()

    def pieces(self, rows: int = ROWS, numbers: Set[str] = frozenset(), without: Set[str] = frozenset()) -> Iterator[Any]:
        """Data frames of about ``rows`` rows, fewer where cells are long; their index counts rows from 1.

        Cells of a CSV file are text; those of the columns ``numbers`` may be numbers already. The columns ``without`` are left
        out; those of a Parquet file are not even decoded.
        """
        done, kept = 0, [name for name in self.columns if name not in without]
        frames = parquet_pieces(self.path, kept, rows, PIECE) if self.parquet else self._csv_pieces(rows, numbers)
        for frame in frames:
            if len(frame):
                frame = frame[kept] if without else frame
                frame.index = range(done + 1, done + 1 + len(frame))
                done += len(frame)
                yield frame

    def read(self, without: Set[str] = frozenset(), text: Set[str] = frozenset()) -> Any:
        """The whole table, or all of its columns but some.

        Columns of a CSV file that hold numbers and empty cells only are numbers, unless they are named in ``text``; all others
        are text, cell for cell.
        """
        if self.parquet:
            check_rows(self.path, len(self.columns) - len(without))
        first = next(self.pieces(without=without), None)
        if first is None:
            raise ValueError(f"{self.path} has a header but no rows")
        few = () if self.parquet else (name for name in first if name not in text and plain_numbers(first[name]) is not None)
        pieces = self._with_numbers(frozenset(few), without)
        if pieces is None:  # a column begins with numbers only
            pieces = list(self.pieces(without=without))
        return pieces[0] if len(pieces) == 1 else import_module("pandas").concat(pieces)

    def _with_numbers(self, numbers: Set[str], without: Set[str]) -> list[Any] | None:
        """All pieces, in which some columns are numbers; ``None`` if a cell of these is none."""
        pieces = []
        for piece in self.pieces(numbers=numbers, without=without):
            texts = [name for name in numbers if piece[name].dtype.kind != "f"]  # of a piece with quotes, say
            found = {name: plain_numbers(piece[name]) for name in texts}
            if any(values is None for values in found.values()):
                return None
            pieces.append(piece.assign(**found) if found else piece)
        return pieces

    def arrow_types(self) -> dict[str, Any]:
        """The types of the columns, for writing them again as they were."""
        if not self.parquet:
            return dict.fromkeys(self.columns, "string")
        return {field.name: field.type for field in opened(self.path).schema_arrow}

    def _check_names(self) -> None:
        if len(self.columns) > MOST_COLUMNS:
            raise ValueError(
                f"{self.path} has {len(self.columns)} columns, and the command line reads up to {MOST_COLUMNS}; is it "
                "transposed (one row per observation)? In Python, fit takes arrays of any width"
            )
        if "" in self.columns:
            raise ValueError(f"column {self.columns.index('') + 1} of {self.path} has no name; name it, or remove it")
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(f"{self.path} has two columns {repeated(self.columns)!r}; rename one of them")

    # --- CSV --------------------------------------------------------------------------------------------------------------

    @contextmanager
    def _text(self) -> Iterator[Iterator[str]]:
        """The lines of the file; of one that is too long, the beginning."""
        try:
            with open(self.path, encoding=self.encoding, newline="") as file:
                yield iter(partial(file.readline, LONGEST_LINE + 1), "")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path} is not {error.encoding} (byte 0x{error.object[error.start]:02x}); say which encoding it has, for "
                "example --encoding latin-1"
            ) from None
        except UnicodeError as error:  # UTF-16 without its mark, codecs for names of hosts
            raise ValueError(f"{self.path} is not readable as {self.encoding!r} ({error}); pass another --encoding") from None
        except LookupError:
            raise ValueError(f"there is no encoding {self.encoding!r}") from None
        except csv.Error as error:
            raise ValueError(f"{self.path} is not readable as CSV ({error})") from None

    def _rows(self, delimiter: str) -> Iterator[list[str]]:
        """The cells of each line; empty lines are left out."""
        with self._text() as lines:
            yield from filter(None, _reader(self._checked(lines), delimiter))

    def _checked(self, lines: Iterable[str], before: int = 0) -> Iterator[str]:
        """Lines of text; anything else is no table, and may be larger than the memory."""
        for number, line in enumerate(lines, before + 1):
            if "\0" in line:
                raise ValueError(
                    f"line {number} of {self.path} holds NUL bytes, which no table has: it is another kind of file, was not "
                    "written to its end, or has another encoding (--encoding utf-16)"
                )
            if len(line) > LONGEST_LINE:
                raise ValueError(
                    f"line {number} of {self.path} has more than {LONGEST_LINE} characters; a table has one observation a line"
                )
            yield line

    def _guess(self) -> str:
        """The delimiter under which the first lines have the most cells, all as many."""
        best, most = ",", 1
        for delimiter in DELIMITERS:
            try:
                widths = {len(row) for row in islice(self._rows(delimiter), 30)}
            except ValueError as error:
                if "as CSV" not in str(error):
                    raise
                continue
            if len(widths) == 1 and (width := widths.pop()) > most:
                best, most = delimiter, width
        return best

    def _header(self) -> list[str]:
        row = next(self._rows(self.delimiter), None)
        if row is None:
            raise ValueError(f"{self.path} is empty")
        return [name.strip() for name in row]

    def _csv_pieces(self, rows: int, numbers: Set[str]) -> Iterator[Any]:
        numbers = numbers & set(self.columns)
        with self._text() as file:
            lines = iter(file)
            header = _reader(self._checked(lines), self.delimiter)
            next(filter(None, header), None)
            read = header.line_num
            while some := _some(lines, rows):
                frame, many = plain_frame(some, self.columns, self.delimiter, numbers) if numbers else None, len(some)
                if frame is None:
                    frame, many = self._careful_frame(chain(some, lines), many, read)
                read += many
                yield frame

    def _careful_frame(self, lines: Iterable[str], many: int, before: int) -> tuple[Any, int]:
        """``many`` lines as a frame of text, and the number of lines read: a quoted cell may go on in the next line."""
        reader, cells, width = _reader(self._checked(lines, before), self.delimiter), [], len(self.columns)
        for row in reader:
            if row and len(row) != width:
                hint = "; is it the right --delimiter?" if width == 1 or len(row) == 1 else ""
                line = before + reader.line_num
                raise ValueError(f"line {line} of {self.path} has {len(row)} cells, the header has {width}{hint}")
            if row:
                cells.append(row)
            if reader.line_num >= many:
                break
        return import_module("pandas").DataFrame(cells, columns=self.columns, dtype=object), reader.line_num


def _some(lines: Iterator[str], rows: int) -> list[str]:
    """So many lines, or fewer that are long."""
    some: list[str] = []
    size = 0
    while len(some) < rows and size < PIECE and (more := list(islice(lines, min(8, rows - len(some))))):
        some += more
        size += sum(map(len, more))
    return some


def _reader(lines: Iterable[str], delimiter: str) -> Any:
    return csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)


def is_formula(cell: Any) -> bool:
    """Whether a spreadsheet would run a text instead of showing it; numbers such as -1.5 are none."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False


class TableWriter:
    """Writes pieces of a table to a file that appears when all of it is there; ``None`` is standard output.

    ``types`` are the Arrow types of columns whose first piece may not tell.
    """

    def __init__(self, path: str | None, types: dict[str, Any] | None = None, escape_formulas: bool = False):
        self.path, self.types, self.escape_formulas = path, types or {}, escape_formulas
        self.formulas = 0  # texts in a CSV file that a spreadsheet would run
        self._stack = ExitStack()
        self._csv: Any = None
        self._parquet: Any = None
        self._first = True

    def __enter__(self) -> TableWriter:
        if self.path is None:
            self._csv = csv.writer(sys.stdout, lineterminator="\n")
            return self
        self._place = self._stack.enter_context(atomic_path(self.path))
        if Path(self.path).suffix.lower() not in (".parquet", ".pq"):
            file = self._stack.enter_context(open(self._place, "w", encoding="utf-8", newline=""))
            self._csv = csv.writer(file, lineterminator=os.linesep)
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._stack.__exit__(*error)

    def _guarded(self, cells: list) -> list:
        """Count the texts that a spreadsheet would run, and escape them if that was asked for."""
        risky = [is_formula(cell) for cell in cells]
        self.formulas += sum(risky)
        if not self.escape_formulas:
            return cells
        return [f"'{cell}" if run else cell for cell, run in zip(cells, risky, strict=True)]

    def write(self, columns: dict[str, list]) -> None:
        """One more piece; cells are written as they are, quoted where CSV needs it, unless formulas are to be escaped.

        Identifiers come back as they went in, so that tables can be joined by them; who opens the file in a spreadsheet asks
        for the escape.
        """
        if self._csv is not None:
            if self._first:
                self._csv.writerow(self._guarded(list(columns)))
            self._csv.writerows(zip(*map(self._guarded, columns.values()), strict=True))
        else:
            arrow = import_module("pyarrow")
            piece = arrow.table({name: arrow.array(cells, self.types.get(name)) for name, cells in columns.items()})
            if self._first:
                self._parquet = self._stack.enter_context(parquet_module().ParquetWriter(self._place, piece.schema))
            self._parquet.write_table(piece)
        self._first = False
