"""Fits of sums of terms: the table becomes the data of each term, one problem is solved, and the terms get their weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...design.term_inputs import TermData
from ...problem.term_problem import PosedTerm
from ...structures import Independent, Structure, as_structure
from ...tables.layout import code_labels, sorted_labels
from .fitted_terms import FittedTerm, level_descriptors
from .rank_check import check_rank
from .table_columns import TableColumns
from .term import Term
from .term_features import DescriptorMap, InputMap, KernelMap

Array = np.ndarray


def posed_terms(
    terms: list[Term], table: TableColumns, weight: Array, fit_intercept: bool
) -> tuple[list[PosedTerm], list[FittedTerm]]:
    """The data of each term, and the term as it will predict; ``weight`` is the weight of each row, for centring.

    Without a free intercept inputs are not centred: their means would be one.
    """
    _check_terms(terms)
    groupings = {table.position(term.by, "by") for term in terms if term.by is not None}
    described = {
        position
        for term in terms
        if term.described_by is not None
        for position in table.positions(term.described_by, "described_by")
    }
    free = tuple(j for j in range(table.n_columns) if j not in groupings | described)
    posed, fitted = [], []
    for term in terms:
        columns = free if term.columns is None else table.positions(term.columns, "columns")
        if clash := sorted(set(columns) & groupings):
            raise ValueError(
                f"column {table.name(clash[0])!r} is an input and a grouping; leave it out of columns=, or out of by="
            )
        data, ready = _posed(term, table, () if _is(term, "constant") else columns, weight if fit_intercept else None)
        posed.append(data)
        fitted.append(ready)
    check_rank(posed, fitted, table, fit_intercept)
    return posed, fitted


def _is(term: Term, kernel: str) -> bool:
    return isinstance(term.kernel, str) and term.kernel == kernel


def _posed(term: Term, table: TableColumns, columns: tuple[int, ...], weight: Array | None) -> tuple[PosedTerm, FittedTerm]:
    X = table.numbers(columns)
    constant, linear = _is(term, "constant"), _is(term, "linear")
    if not constant and not columns:
        raise ValueError(f"{term!r} has no input columns: every column is a grouping or a descriptor")
    inputs = InputMap(
        columns,
        mean=None if not linear else np.zeros(len(columns)) if weight is None else weight @ X / weight.sum(),
        kernel=None if linear or constant else KernelMap.of(X, term.kernel),
        constant=float(constant or term.intercept),
    )
    structure = Independent() if term.structure is None else as_structure(term.structure)
    described = None
    if term.by is None:
        fitted, data = FittedTerm(term, inputs), TermData(inputs(X), free=term.free)
    else:
        by = table.position(term.by, "by")
        labels = table.labels(by)
        levels = sorted_labels(labels)
        codes = code_labels(labels, levels)
        U = None
        if term.described_by is not None:
            where, values = level_descriptors(table, term, codes, levels)
            described = DescriptorMap.of(where, values, term.descriptor_kernel)
            U = described(values)
        fitted = FittedTerm(term, inputs, by, levels, described)
        data = TermData(inputs(X), codes, len(levels), U, free=term.free)
    names = [table.name(column) for column in columns]
    structure = bound_to(structure, inputs, names, fitted.levels if described is None else None)
    return PosedTerm(data, structure, 1.0 if term.free else term.weight), fitted


def bound_to(structure: Structure, inputs: InputMap, names: list[Any], levels: Array | None) -> Structure:
    """The structure in the order of the levels, or of the input columns and the constant."""
    if structure.keeps_columns and inputs.kernel is not None:
        raise ValueError(
            f"{structure!r} acts on the input columns and needs a linear or constant term, got kernel={inputs.kernel.kernel!r}"
        )
    if levels is not None:
        if structure.moved_to_features(len(levels)) is None:
            structure.check_size(len(levels))
        structure = structure.bind(levels.tolist()) if type(structure).bind is not Structure.bind else structure  # takes long
    return structure.bind_features([*names, *(["intercept"] if inputs.constant else [])])


def _check_terms(terms: Any) -> None:
    if not isinstance(terms, (list, tuple)) or not terms or not all(isinstance(term, Term) for term in terms):
        raise ValueError(f"terms= takes a list of taskloom.Term, got {terms!r}")
