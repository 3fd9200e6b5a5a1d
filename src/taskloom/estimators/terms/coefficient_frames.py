"""Coefficients and learned relations of a fitted model as data frames."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ..fitted import FittedState
from ..inspection.relations import _correlation_array
from .described_terms import INTERCEPT, DescribedTerm, described_terms, names_of_inputs

Array = np.ndarray
ALL = "all rows"
TIDY = {"term": object, "by": object, "level": object, "feature": object, "coefficient": float}  # levels keep their type


def _pandas(what: str) -> Any:
    try:
        return import_module("pandas")
    except ImportError:
        raise ImportError(f'{what} makes a data frame of pandas: python -m pip install "taskloom[frames]"') from None


def coef_frame(model: Any, state: FittedState) -> Any:
    """Totals by task; a tidy frame for ``terms=``."""
    pd = _pandas("coef_frame")
    if state.fitted_terms is not None:
        cells = zip(*_rows(model, state), strict=True)
        return pd.DataFrame({name: pd.Series(cell, dtype=TIDY[name]) for name, cell in zip(TIDY, cells, strict=True)})
    if state.coef_ is None or isinstance(state.coef_, list) or state.feature_map_ is not None:
        raise ValueError(f"coef_frame needs a linear model, got kernel={model.kernel!r} (common={model.common!r})")
    frame = pd.DataFrame(state.coef_, index=state.tasks_.tolist(), columns=names_of_inputs(model, state))
    frame.insert(frame.shape[1], INTERCEPT, np.broadcast_to(state.intercept_, len(frame)), allow_duplicates=True)
    return frame


def _rows(model: Any, state: FittedState) -> list[tuple[str, Any, Any, str, float]]:
    """One row for each coefficient: with 1 for intercepts, their products with the inputs of a row add up to its prediction.

    Terms see centred inputs, so that a level of a linear term has an intercept even if the term has none.
    """
    rows: list[tuple[str, Any, Any, str, float]] = []
    if state.term_rows is None:
        raise ValueError("coef_frame of terms needs the data of the fit, which this model does not hold; refit it")
    total = float(state.intercept_[0])
    for term, fitted, data in zip(described_terms(model, state), state.fitted_terms, state.term_rows.terms, strict=True):
        if term.features is None:
            continue
        W, inputs = fitted.weights, fitted.inputs
        levels = [None] if fitted.levels is None else fitted.levels.tolist()
        W = W if data.descriptors is None else W @ data.descriptors.T
        names = term.features[:-1] if inputs.constant else term.features
        slopes, own = W[: len(names)], W[-1] if inputs.constant else np.zeros(W.shape[1])
        own = own - inputs.mean @ slopes if inputs.mean is not None else own
        if term.by is None:
            total += float(own[0])
        else:
            names, slopes = [*names, INTERCEPT], np.vstack([slopes, own])
        by = ALL if term.by is None else term.by
        rows += [
            (term.text, by, level, name, float(slopes[j, t])) for t, level in enumerate(levels) for j, name in enumerate(names)
        ]
    return [("1", ALL, None, INTERCEPT, total), *rows]


def relations_frame(model: Any, state: FittedState) -> Any:
    """Correlations of tasks; for ``terms=`` the matrix of each grouped term, by its text."""
    pd = _pandas("relations_frame")
    if state.fitted_terms is None:
        names = state.tasks_.tolist()
        return pd.DataFrame(_correlation_array(state, "relations_frame"), index=names, columns=names)
    terms = zip(described_terms(model, state), state.fitted_terms, strict=True)
    return {term.text: _relations(pd, term, fitted) for term, fitted in terms if term.by is not None and not term.free}


def _relations(pd: Any, term: DescribedTerm, fitted: Any) -> Any:
    """The learned matrix with names; without one the mean square of the weights over levels, on the features."""
    W, A = fitted.weights, np.asarray(fitted.structure)
    names = term.features if term.features is not None else [f"feature {j}" for j in range(len(W))]
    if A.ndim != 2 or not A.size:
        return pd.DataFrame(W @ W.T / W.shape[1], index=names, columns=names)
    if not fitted.on_features:
        names = [f"descriptor {j}" for j in range(W.shape[1])] if term.described else fitted.levels.tolist()
    return pd.DataFrame(fitted.term.weight * A, index=names, columns=names)
