"""Tables of fixed-width text."""

from __future__ import annotations

from textwrap import wrap

WIDTH = 88
MOST = 56  # characters of a cell


def rule(line: str = "-") -> str:
    """A line across the page."""
    return line * WIDTH


def wrapped(text: str) -> list[str]:
    """A text as lines of the page."""
    return wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False)


def table(columns: list[str], rows: list[list[str]], align: str) -> list[str]:
    """Lines of a table under its heading; ``align`` has ``l`` or ``r`` for each column."""
    cells = [columns, *([_short(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def line(row: list[str]) -> str:
        parts = [cell.rjust(w) if a == "r" else cell.ljust(w) for cell, w, a in zip(row, widths, align, strict=True)]
        return ("  " + "  ".join(parts)).rstrip()

    return [rule(), line(cells[0]), rule(), *map(line, cells[1:])]


def _short(cell: str) -> str:
    return cell if len(cell) <= MOST else f"{cell[: MOST - 3]}..."
