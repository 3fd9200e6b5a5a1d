"""A new level of one grouping of ``terms=``: it enters every term by its column, given all else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...design.term_inputs import TermData
from ...structures import as_structure
from ...tables.layout import shown
from ..add_task import bordered, check_name, given_targets, with_name
from ..fitted import FittedState
from .fit_sum import checked_table
from .fitted_terms import FittedTerm, level_descriptors
from .level_fit import LevelTerm, level_coefficients
from .level_prior import level_prior
from .sum_deviations import matrix_of
from .table_columns import TableColumns
from .term_features import InputMap

Array = np.ndarray


def add_level(model: Any, state: FittedState, X: Any, y: Any, name: Any, sample_weight: Any, relation: Any) -> FittedState:
    """The state with one more level of the grouping whose column holds ``name`` in every row.

    A row of weight ``s_i`` has ``v_i = s_i / S`` in the objective, ``S`` the sum over the rows of the fit: penalties are to the
    new level what they were to the others.
    """
    if relation is not None:
        raise ValueError("relation= is for tasks; with terms= the structures say what a new level is like, leave it out")
    if state.term_rows is None:
        raise ValueError("add_task of terms needs the data of the fit, which this model does not hold; refit it")
    table = checked_table(model, state, X)
    by = _grouping(state, table, name)
    given = given_targets(model, state, np.empty(table.n_rows), y, name, sample_weight)
    terms = [term for term in state.fitted_terms if term.by == by]
    values = {id(term): _descriptors(term, table, name) for term in terms if term.descriptors is not None}
    entered = [term for term in terms if term.descriptors is None]
    rho, row = state.ridge / state.alpha, given.row
    ready = [_level(term, table, row, rho) for term in entered]
    offset = float(state.intercept_[0]) + np.sum([term.predict(table)[row] for term in state.fitted_terms], axis=0)
    v = given.weight / state.term_rows.sample_weight.sum()
    levels = [level for level, _ in ready]
    coefs = level_coefficients(model, state.alpha, levels, given.y, v, offset)
    new = {
        id(term): _with_level(term, name, level, inputs, coef)
        for term, (level, inputs), coef in zip(entered, ready, coefs, strict=True)
    }
    new |= {id(term): _longer(term, name) for term in terms if term.descriptors is not None}
    pairs = zip(state.fitted_terms, state.term_rows.terms, strict=True)
    data = tuple(_data(each, values.get(id(term))) if term.by == by else each for term, each in pairs)
    return replace(
        state,
        fitted_terms=tuple(new.get(id(term), term) for term in state.fitted_terms),
        term_rows=replace(state.term_rows, terms=data),
        added_tasks_=[*(state.added_tasks_ or []), name],
    )


def _grouping(state: FittedState, table: TableColumns, name: Any) -> int:
    """The position of the column that holds ``name`` in every row."""
    check_name(name, np.zeros(0))
    levels = {term.by: term.levels for term in state.fitted_terms if term.by is not None}
    found = [by for by in levels if table.n_rows and all(label == name for label in table.labels(by).tolist())]
    columns = ", ".join(repr(table.name(by)) for by in levels) or "none"
    if not found:
        raise ValueError(f"add_task needs {shown(name)} in every row of a column that terms are grouped by: {columns}")
    new = [by for by in found if name not in levels[by].tolist()]
    if not new:
        check_name(name, levels[found[0]], f"level of {table.name(found[0])!r}")
    if len(new) > 1:
        names = " and ".join(repr(table.name(by)) for by in new)
        raise ValueError(f"{shown(name)} is in every row of {names}; rename one of them, so that the grouping is clear")
    return new[0]


def _descriptors(term: FittedTerm, table: TableColumns, name: Any) -> Array:
    """The descriptors of the new level (``1 x p``), which are constant over its rows."""
    assert term.descriptors is not None
    levels = np.empty(1, dtype=object)
    levels[0] = name
    return term.descriptors(level_descriptors(table, term.term, np.zeros(table.n_rows, dtype=int), levels)[1])


def _level(term: FittedTerm, table: TableColumns, row: Array, rho: float) -> tuple[LevelTerm, InputMap]:
    """The new level in a term, and the features of the term, which may be more than in the fit."""
    assert term.weights is not None
    X = table.numbers(term.inputs.columns)[row]
    if term.term.free:
        return LevelTerm(term.inputs(X), None), term.inputs
    n, scale, A = term.weights.shape[1] - term.n_added, float(np.sqrt(term.term.weight)), matrix_of(term.structure)
    structure = as_structure("independent" if term.term.structure is None else term.term.structure)
    A = A[:n, :n] if A is not None and not term.on_features else A
    prior = level_prior(structure, A, term.on_features, term.weights[:, :n] / scale, rho)
    prior, inputs = prior.completed(term.inputs, X) if len(row) else (prior, term.inputs)
    return LevelTerm(inputs(X), prior, scale), inputs


def _with_level(term: FittedTerm, name: Any, level: LevelTerm, inputs: InputMap, coef: Array) -> FittedTerm:
    """The term with the weights of the new level, and with its place in a structure on the levels."""
    assert term.weights is not None
    W = np.column_stack([inputs.same_weights(term.weights, term.inputs), level.weights(coef)])
    matrix, prior = term.structure, level.prior
    if prior is not None and prior.levels is not None and matrix_of(matrix) is not None:
        matrix = bordered(matrix, prior.of_levels(coef, len(matrix)), prior.own_variance)
    return replace(_longer(term, name), inputs=inputs, weights=W, structure=matrix)


def _longer(term: FittedTerm, name: Any) -> FittedTerm:
    assert term.levels is not None
    return replace(term, levels=with_name(term.levels, name), n_added=term.n_added + 1)


def _data(data: TermData, descriptors: Array | None) -> TermData:
    """The data of the fit, which have no row of the new level."""
    whole = data.descriptors
    whole = whole if descriptors is None or whole is None else np.vstack([whole, descriptors])
    return replace(data, n_levels=data.n_levels + 1, descriptors=whole)
