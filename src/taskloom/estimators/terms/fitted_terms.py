"""Terms after a fit: what each adds to a prediction."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...tables.layout import TaskPositions, shown
from .table_columns import TableColumns
from .term import Term
from .term_features import DescriptorMap, InputMap

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class TermRows:
    """Features of new rows, and their levels (-1: not seen) or descriptors."""

    phi: Array
    codes: Array | None = None
    side: Array | None = None

    def predict(self, W: Array) -> Array:
        """What a term with these weights (``r x p``) adds to each row."""
        if self.side is not None:
            return np.einsum("ij,ij->i", self.phi @ W, self.side)
        if self.codes is None:
            return self.phi @ W[:, 0]
        return np.where(self.codes < 0, 0.0, np.einsum("ij,ij->i", self.phi, W.T[self.codes]))


@dataclass(frozen=True, eq=False)
class FittedTerm:
    """A term with its maps, its levels and its weights (``r x p``), in the units of the inputs."""

    term: Term
    inputs: InputMap
    by: int | None = None  # position of the grouping
    levels: Array | None = None
    descriptors: DescriptorMap | None = None
    weights: Array | None = None
    structure: Any = None  # the learned matrix, on the side where it was learned
    on_features: bool = False  # that side
    n_added: int = 0  # levels that add_task added, at the end

    @cached_property
    def positions(self) -> TaskPositions:
        assert self.levels is not None
        return TaskPositions(self.levels)

    def rows(self, table: TableColumns) -> TermRows:
        """New rows as the term sees them."""
        phi = self.inputs(table.numbers(self.inputs.columns))
        if self.by is None:
            return TermRows(phi)
        if self.descriptors is not None:
            return TermRows(phi, side=self.descriptors(self.described(table)))
        return TermRows(phi, self.positions(table.labels(self.by)))

    def check_seen(self, table: TableColumns) -> None:
        """Raise for a level that was not in the fit; descriptors are there for such levels."""
        if self.by is None or self.descriptors is not None:
            return
        labels = table.labels(self.by)
        new = self.positions(labels) < 0
        if new.any():
            raise ValueError(
                f"level {shown(labels[int(np.argmax(new))])} of column {table.name(self.by)!r} was not seen in training; with "
                "unseen='auto' the term adds nothing there"
            )

    def described(self, table: TableColumns) -> list[Array]:
        """The columns with the descriptors."""
        assert self.descriptors is not None
        described = zip(self.descriptors.columns, self.descriptors.categories, strict=True)
        return [table.descriptors(j, known is None) for j, known in described]

    def predict(self, table: TableColumns) -> Array:
        """What the term adds to each row; 0 for a level that was not seen."""
        assert self.weights is not None
        return self.rows(table).predict(self.weights)


def level_descriptors(table: TableColumns, term: Term, codes: Array, levels: Array) -> tuple[tuple[int, ...], list[Array]]:
    """The descriptors of each level: one array for each column; a descriptor that varies inside a level is refused."""
    columns = table.positions(term.described_by, "described_by")
    first = np.full(len(levels), len(codes))
    np.minimum.at(first, codes, np.arange(len(codes)))
    values = []
    for position in columns:
        column = table.descriptors(position)
        expected = column[first]
        varies = np.array([a != b for a, b in zip(column.tolist(), expected[codes].tolist(), strict=True)], dtype=bool)
        if varies.any():
            level = levels[codes[int(np.argmax(varies))]]
            raise ValueError(
                f"column {table.name(position)!r} describes the levels of {term.by!r}, but varies within level {shown(level)}; "
                "leave it to the inputs (columns=), or make it constant within each level"
            )
        values.append(expected)
    return columns, values
