"""Standard deviations of a fitted sum of terms: its posterior, and new rows as the posterior takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...structures import as_structure
from ...uncertainty.term_posterior import GivenTerm, NewRows, TermPosterior
from ..fitted import FittedState
from ..validation import new_inputs, position_of_tasks
from .common_part import CommonPart
from .fit_sum import checked_table
from .fitted_terms import FittedTerm
from .table_columns import TableColumns

Array = np.ndarray


def sum_posterior(state: FittedState, noise: float | None, joint: bool) -> TermPosterior:
    """The posterior given the structures; ``joint`` needs them all known."""
    rows = state.term_rows
    learned = next((each for each in _structures(state) if not each.known), None)
    if joint and learned is not None:
        raise ValueError(
            f'return_std="joint" needs known structures in a sum of terms, got {learned!r}; return_std=True takes it as known'
        )
    if state.fitted_terms is not None:
        given = [
            GivenTerm(data, 1.0 if data.free else float(term.term.weight), matrix_of(term.structure), term.on_features)
            for data, term in zip(rows.terms, state.fitted_terms, strict=True)
        ]
        weights, intercept = [term.weights for term in state.fitted_terms], float(state.intercept_[0])
        task = np.zeros(len(rows.y), dtype=int)
    else:
        part: CommonPart = state.common_part
        shared, own = rows.terms
        given = [
            GivenTerm(shared, 1.0 if shared.free else part.weight),
            GivenTerm(own, 1.0, matrix_of(part.structure), part.on_features),
        ]
        assert part.common_weights is not None
        weights, intercept, task = [part.common_weights[:, None], part.own_weights], part.intercept, own.codes
    fitted = intercept + sum(data.predict(W) for data, W in zip(rows.terms, weights, strict=True))
    return TermPosterior(given, rows.y, fitted, rows.weight, task, state.alpha, state.ridge, rows.fit_intercept, noise)


def _structures(state: FittedState) -> list[Any]:
    if state.fitted_terms is None:
        return [state.learned]
    return [as_structure(term.term.structure) for term in state.fitted_terms if term.term.structure is not None]


def matrix_of(structure: Any) -> Array | None:
    """The matrix of a structure; ``None`` where a term has none."""
    return None if structure is None or np.size(structure) == 0 else np.asarray(structure, dtype=float)


def sum_deviation(model: Any, state: FittedState, X: Any, posterior: TermPosterior) -> Array:
    """Standard deviations in the shape of the decision values."""
    if state.fitted_terms is not None:
        table = checked_table(model, state, X)
        return posterior.deviation([_new_rows(term, table) for term in state.fitted_terms])[:, None]
    inputs, labels = new_inputs(model, X)
    task = position_of_tasks(state, labels, "raise" if model.unseen == "raise" else "mean")
    part, inputs = state.common_part, inputs.astype(float, copy=False)
    shared = NewRows(part.common(inputs), outside=part.common.outside(inputs))
    own = NewRows(part.own(inputs), outside=part.own.outside(inputs))
    if task is not None:
        return posterior.deviation([shared, replace(own, codes=task)])
    every = (replace(own, codes=np.full(len(inputs), t)) for t in range(state.n_tasks))
    return np.column_stack([posterior.deviation([shared, each]) for each in every])


def _new_rows(term: FittedTerm, table: TableColumns) -> NewRows:
    rows = term.rows(table)
    new = NewRows(rows.phi, rows.codes, rows.side, term.inputs.outside(table.numbers(term.inputs.columns)))
    if term.descriptors is None:
        return new
    return replace(new, side_outside=term.descriptors.outside(term.described(table)))
