"""Tables of a model with ``terms=`` or ``common=``: its summary as cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..estimators.terms.summary import COEFFICIENT_COLUMNS, SHOWN_COEFFICIENTS, TERM_COLUMNS, VARIANCE_COLUMNS, Summary
from ..labels import clean_text, shorten

LONGEST = 160  # characters of a cell
TEXTS = {"term", "structure", "group", "effect", "name"}


@dataclass(frozen=True, eq=False)
class TermTable:
    """A table: columns with whether they hold numbers, rows of text, and what is not shown."""

    title: str
    columns: list[tuple[str, bool]]
    rows: list[list[str]]
    left_out: str = ""

    @classmethod
    def of(cls, title: str, columns: list[str], rows: list[list[str]], left_out: str = "") -> TermTable:
        named = [(column, column not in TEXTS) for column in columns]
        return cls(
            title,
            named,
            [[_cell(cell, number) for cell, (_, number) in zip(row, named, strict=True)] for row in rows],
            left_out,
        )


def term_tables(summary: Summary | None) -> list[TermTable]:
    """Terms, variance components, coefficients of the common part; those that there are."""
    if summary is None:
        return []
    tables = [TermTable.of("Terms", TERM_COLUMNS, summary.term_rows)]
    if summary.variance_rows:
        tables.append(
            TermTable.of("Variance components (restricted maximum likelihood)", VARIANCE_COLUMNS, summary.variance_rows)
        )
    if summary.coefficients:
        tables.append(_coefficients(summary))
    return tables


def _coefficients(summary: Summary) -> TermTable:
    rows, hidden = summary.coefficient_rows[:SHOWN_COEFFICIENTS], len(summary.coefficients) - SHOWN_COEFFICIENTS
    left_out = f"and {hidden:,} more: model.summary().coefficients" if hidden > 0 else ""
    if summary.residual_variance is None:  # there are none but those of the fit
        return TermTable.of("Coefficients of the common part", ["name", "fitted"], [row[:2] for row in rows], left_out)
    title = "Coefficients of the common part (GLS: generalised least squares, without a penalty)"
    return TermTable.of(title, ["name", *COEFFICIENT_COLUMNS], rows, left_out)


def _cell(text: str, number: bool) -> str:
    """Names on one line; numbers with minus signs, and infinity as a sign of its own."""
    if number:
        return "\u221e" if text == "inf" else text.replace("-", "\u2212")
    return shorten(clean_text(text), LONGEST) if text else ""


def levels_of(summary: Summary) -> list[tuple[str, str]]:
    """The number of levels of each grouping, and what they are called."""
    return [(f"{levels:,}", f"levels of {shorten(clean_text(by), 40)}") for by, levels in summary.groups.items()]


def in_words(summary: Summary) -> list[str]:
    """The terms, each with the number of its levels."""
    pairs: list[tuple[str, Any]] = list(zip(summary.terms, summary.levels, strict=True))
    return [
        f"\u2068{shorten(clean_text(text), 80)}\u2069{'' if levels is None else f' ({levels:,} levels)'}"
        for text, levels in pairs
    ]
