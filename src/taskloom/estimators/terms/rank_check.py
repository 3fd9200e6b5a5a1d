"""Whether the weights of unpenalised terms are determined: their columns must be independent of each other."""

from __future__ import annotations

import numpy as np

from ...design.free_basis import is_independent
from ...problem.term_problem import PosedTerm
from ...tables.layout import shown
from .fitted_terms import FittedTerm
from .table_columns import TableColumns

Array = np.ndarray
ROUNDING = 1e-12  # of centred columns, relative to the size of the inputs: what is left of a constant one
DEPENDENT = 1e-9  # share of a column that is not in the span of those before it
MOST_NAMED = 5  # columns in a message


def check_rank(posed: list[PosedTerm], fitted: list[FittedTerm], table: TableColumns, fit_intercept: bool) -> None:
    """Unpenalised columns must be independent of each other, of those of the terms before, and of the intercept."""
    before = np.zeros((table.n_rows, 0))
    for one, term in zip(posed, fitted, strict=True):
        if not one.data.free:
            continue
        own = _columns(one, term, fit_intercept)
        others, before = before.shape[1], np.hstack([before, own])
        if is_independent(before) or np.linalg.matrix_rank(before) == before.shape[1]:
            continue
        names = [_name(term, table, j - others, one.data.p) for j in _dependent(before) if j >= others] or ["some"]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        beside = ", on those of other unpenalised terms" if others else ""
        intercept = " or on the intercept (which fit_intercept=False leaves out)" if fit_intercept else ""
        depend = "depends" if len(names) == 1 else "depend"
        raise ValueError(
            f"the columns of {term.term!r} are linearly dependent: {', '.join(names[:MOST_NAMED])}{more} {depend} on the "
            f"columns before{beside}{intercept}. Without a penalty their weights are not determined: leave one out, or give "
            "the term a finite weight"
        )


def _columns(one: PosedTerm, term: FittedTerm, fit_intercept: bool) -> Array:
    """The columns of a term at equal size, centred where there is an intercept; zeros where only rounding is left."""
    phi, columns = one.data.phi, one.data.columns
    columns = columns - columns.mean(axis=0) if fit_intercept else columns
    largest, mean = np.abs(phi).max(axis=0), term.inputs.mean
    if mean is not None:
        largest[: len(mean)] += np.abs(mean)
    size, rounding = np.abs(columns).max(axis=0), ROUNDING * np.repeat(largest, one.data.p)
    return np.where(size > rounding, columns / np.where(size > rounding, size, 1.0), 0.0)


def _dependent(columns: Array) -> list[int]:
    """The columns that are in the span of those before them."""
    norms = np.linalg.norm(columns, axis=0)
    R = np.linalg.qr(columns / np.where(norms > 0, norms, 1.0), mode="r")
    left = np.zeros(columns.shape[1])
    left[: len(R)] = np.abs(np.diag(R))
    return np.flatnonzero(left <= DEPENDENT).tolist()


def _name(term: FittedTerm, table: TableColumns, column: int, p: int) -> str:
    """The feature of a column, and its level or descriptor."""
    feature, place = divmod(column, p)
    inputs = [repr(table.name(j)) for j in term.inputs.columns]
    name = inputs[feature] if feature < len(inputs) else "the constant"
    if term.by is None or term.levels is None:
        return name
    of = shown(term.levels[place]) if term.descriptors is None else f"descriptor {place}"
    return f"{name} of {of}"
