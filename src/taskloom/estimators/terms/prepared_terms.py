"""The data of a fit with ``terms=``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length

from ...design import Observations
from ...problem import Problem
from ...problem.solution import Solution
from ...structures.term_stack import TermStack
from ...structures.terms import FeatureMatrix
from ...tables.layout import as_table
from ..fitted import FittedState
from ..validation import (
    InputColumns,
    read_targets,
    training_weights,
)
from .described_terms import described
from .fit_terms import posed_terms
from .fitted_terms import FittedTerm
from .prepared_sum import PreparedSum, rows_of
from .table_columns import TableColumns

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class PreparedTerms(PreparedSum):
    """The data of ``terms=``."""

    fitted: list[FittedTerm]

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, sample_weight: Any) -> PreparedTerms:
        table = TableColumns(X)
        Y, targets = read_targets(model, y, None)
        if targets.one_vs_rest and not targets.wide:
            raise ValueError(f"terms= needs a y with two labels, got {len(targets.tasks_)}; fit one label against the rest")
        if targets.wide or Y.shape[1] != 1:
            raise ValueError(f"terms= needs a one-dimensional y with numbers, or with two labels, got shape {np.shape(y)}")
        check_consistent_length(np.empty(table.n_rows), Y)
        weights = training_weights(sample_weight, as_table(y), Y, targets)
        y, s = Y[:, 0], np.ones(len(Y)) if weights is None else weights[:, 0]
        kept = ~np.isnan(y) & (s > 0)
        if not kept.any():
            raise ValueError("y holds nothing but NaN: nothing was observed")
        row = np.flatnonzero(kept)
        if len(row) < len(s):
            table, y, s = TableColumns(_safe_indexing(table.X, row)), y[row], s[row]
        posed, fitted = posed_terms(model.terms, table, s / s.sum(), bool(model.fit_intercept))
        columns = InputColumns(n_features_in_=table.n_columns, feature_names_in_=table.feature_names)
        seen = Observations(row, np.zeros(len(row), dtype=int), y, s / s.sum(), 1)
        return cls(model, columns, targets, seen, s, posed, np.dtype(float), rows_of(posed, seen, model), fitted)

    @property
    def names(self) -> list[str]:
        """The terms in words, as in ``summary``."""
        return [each.text for each in described(self.fitted, self.columns)]

    @property
    def weights(self) -> dict[str, float]:
        each = (np.inf if one.data.free else one.weight for one in self.posed)
        return dict(zip(self.names, each, strict=True))

    @property
    def searched(self) -> list[str]:
        """Those of penalised terms that are 1, as by default; one of them is the unit, if no other weight is."""
        penalised = [(name, one) for name, one in zip(self.names, self.posed, strict=True) if not one.data.free]
        open_ones = [(name, one.data.r * one.data.p) for name, one in penalised if one.weight == 1]
        if open_ones and len(open_ones) == len(penalised):
            open_ones.remove(max(open_ones, key=lambda pair: pair[1]))
        return [name for name, _ in open_ones]

    def with_weights(self, weights: dict[str, float]) -> PreparedTerms:
        new = list(zip(self.posed, self.fitted, weights.values(), strict=True))
        posed = [one if one.data.free else replace(one, weight=w) for one, _, w in new]
        return replace(self, posed=posed, fitted=[replace(term, term=replace(term.term, weight=w)) for _, term, w in new])

    def under(self, structure: Any) -> PreparedTerms:
        return self

    def parameters(self, weights: dict[str, float]) -> dict[str, Any]:
        return {"terms": [replace(term.term, weight=w) for term, w in zip(self.fitted, weights.values(), strict=True)]}

    @property
    def exact(self) -> bool:
        return all(term.inputs.kernel is None or term.inputs.kernel.exact for term in self.fitted)

    def predicting(self, problem: Problem, W: Array, b: Array) -> dict[str, Any]:
        stack: TermStack = problem.structure  # type: ignore[assignment]
        each = zip(self.fitted, self.posed, stack.features_of(W), strict=True)
        return {
            "intercept_": b.copy(),
            "fitted_terms": tuple(replace(term, weights=np.sqrt(one.weight) * part) for term, one, part in each),
        }

    def fitted_weights(self, last: FittedState) -> list[Array] | None:
        return None if last.fitted_terms is None else [term.weights for term in last.fitted_terms]

    def structures(self, state: FittedState, problem: Problem, solution: Solution) -> dict[str, Any]:
        stack: TermStack = problem.structure  # type: ignore[assignment]
        each = zip(state.fitted_terms, self.posed, stack.split(solution.A), strict=True)
        return {
            "fitted_terms": tuple(
                replace(term, structure=A, on_features=isinstance(one.variable, FeatureMatrix)) for term, one, A in each
            )
        }

    def new_rows(self, model: Any, X: Any) -> list[Any]:
        table = TableColumns(X)
        return [term.rows(table) for term in self.fitted]

    def values(self, problem: Problem, solution: Solution, rows: list[Any]) -> Array:
        stack: TermStack = problem.structure  # type: ignore[assignment]
        parts = zip(rows, stack.features_of(solution.W), self.posed, strict=True)
        return (float(solution.b[0]) + sum(new.predict(np.sqrt(one.weight) * W) for new, W, one in parts))[:, None]
