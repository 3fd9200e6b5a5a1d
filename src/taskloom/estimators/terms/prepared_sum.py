"""The data of a fit with ``terms=`` or ``common=``, validated once; problems at any alpha and weights, and fitted states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_consistent_length

from ...design import Observations
from ...problem import Problem
from ...problem.solution import Solution
from ...problem.term_problem import PosedTerm
from ...structures import as_structure
from ...structures.term_stack import TermStack
from ...structures.terms import FeatureMatrix, TaskMatrix
from ...tables.layout import as_table, code_labels
from ..fitted import FittedState
from ..state_of_fit import tasks_under
from ..target_encoding import TargetScale
from ..validation import (
    InputColumns,
    TargetInfo,
    described,
    new_inputs,
    observations,
    position_of_tasks,
    read_targets,
    training_inputs,
    training_weights,
)
from .common_part import CommonPart, common_term, own_values
from .fit_terms import bound_to, fitted_weights, posed_terms, problem_of
from .fitted_terms import FittedTerm
from .rows_of_fit import RowsOfFit
from .table_columns import TableColumns

Array = np.ndarray
INTERCEPT, COMMON, OWN = "intercept", "common", "own"
LANDMARKS_NOTE = "Kernels on more than 5000 rows have 400 landmarks."


@dataclass(frozen=True, eq=False)
class PreparedSum(ABC):
    """Validated data of a sum of terms."""

    model: Any  # the estimator, not fitted
    columns: InputColumns
    targets: TargetInfo
    seen: Observations  # of all terms; the weights are those of the objective
    sample_weight: Array
    posed: list[PosedTerm]

    @property
    def scale(self) -> TargetScale:
        return TargetScale.none(len(self.targets.tasks_))

    @property
    def kernel(self) -> Any:
        return self.model._kernel()

    def problem(self, alpha: float) -> Problem:
        """The problem at a strength."""
        return problem_of(self.posed, self.seen.y, self.seen.weight, self.model, alpha)

    def _state(self, problem: Problem, solution: Solution, exact: bool, **found: Any) -> FittedState:
        note = "" if exact else LANDMARKS_NOTE
        certificate = replace(solution.certificate, message=f"{solution.certificate.message} {note}".rstrip())
        return FittedState(
            **described(self.columns, self.targets),
            scale=self.scale,
            kernel=self.kernel,
            alpha=problem.alpha,
            ridge=problem.ridge,
            dtype=np.dtype(float),
            certificate_=certificate,
            n_iter_=solution.n_iter,
            history_=solution.history.as_dict(),
            training_left_out=True,
            term_rows=RowsOfFit.of(self.posed, self.seen.y, self.sample_weight, problem),
            **found,
        )

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The weight of each term, by name."""

    @abstractmethod
    def with_weights(self, weights: dict[str, float]) -> PreparedSum:
        """The same data with other weights."""

    @abstractmethod
    def state(self, problem: Problem, solution: Solution) -> FittedState:
        """The fitted model of a solution of ``problem``."""

    @abstractmethod
    def new_rows(self, model: Any, X: Any) -> Any:
        """New rows as ``values`` takes them; ``model`` has the columns of the fit."""

    @abstractmethod
    def values(self, problem: Problem, solution: Solution, rows: Any) -> Array:
        """The decision values of new rows."""


@dataclass(frozen=True, eq=False)
class PreparedTerms(PreparedSum):
    """The data of ``terms=``."""

    fitted: list[FittedTerm]

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, sample_weight: Any) -> PreparedTerms:
        table = TableColumns(X)
        Y, targets = read_targets(model, y, None)
        if targets.wide or Y.shape[1] != 1:
            raise ValueError(f"terms= needs a one-dimensional y with numbers, or with two labels, got shape {np.shape(y)}")
        check_consistent_length(np.empty(table.n_rows), Y)
        weights = training_weights(sample_weight, as_table(y), Y, targets)
        s = np.ones(len(Y)) if weights is None else weights[:, 0]
        s = np.where(np.isnan(Y[:, 0]), 0.0, s)
        if not (s > 0).any():
            raise ValueError("y holds nothing but NaN: nothing was observed")
        row = np.flatnonzero(s > 0)
        if len(row) < len(s):
            table = TableColumns(_safe_indexing(table.X, row))
        posed, fitted = posed_terms(model.terms, table, s[row] / s.sum())
        columns = InputColumns(n_features_in_=table.n_columns, feature_names_in_=table.feature_names)
        seen = Observations(row, np.zeros(len(row), dtype=int), Y[row, 0], s[row] / s.sum(), 1)
        return cls(model, columns, targets, seen, s[row], posed, fitted)

    @property
    def names(self) -> list[str]:
        """The terms in words; a number follows where two are alike."""
        texts = [repr(each.term) for each in self.fitted]
        return [text if texts.count(text) == 1 else f"{text} #{texts[: k + 1].count(text)}" for k, text in enumerate(texts)]

    @property
    def weights(self) -> dict[str, float]:
        each = (np.inf if one.data.free else one.weight for one in self.posed)
        return dict(zip(self.names, each, strict=True))

    def with_weights(self, weights: dict[str, float]) -> PreparedTerms:
        new = [one if one.data.free else replace(one, weight=w) for one, w in zip(self.posed, weights.values(), strict=True)]
        return replace(self, posed=new)

    def state(self, problem: Problem, solution: Solution) -> FittedState:
        terms = fitted_weights(problem, solution, self.posed, self.fitted)
        exact = all(term.inputs.kernel is None or term.inputs.kernel.exact for term in terms)
        return self._state(problem, solution, exact, intercept_=solution.b.copy(), fitted_terms=tuple(terms))

    def new_rows(self, model: Any, X: Any) -> list[Any]:
        table = TableColumns(X)
        return [term.rows(table) for term in self.fitted]

    def values(self, problem: Problem, solution: Solution, rows: list[Any]) -> Array:
        stack: TermStack = problem.structure  # type: ignore[assignment]
        parts = zip(rows, stack.features_of(solution.W), self.posed, strict=True)
        return (float(solution.b[0]) + sum(new.predict(np.sqrt(one.weight) * W) for new, W, one in parts))[:, None]


@dataclass(frozen=True, eq=False)
class PreparedCommon(PreparedSum):
    """The data of ``common=``."""

    inputs: Array
    part: CommonPart

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, sample_weight: Any) -> PreparedCommon:
        inputs, labels, columns = training_inputs(model, X)
        if issparse(inputs):
            raise ValueError("common= takes dense inputs, got a sparse X; pass X.toarray()")
        inputs = inputs.astype(float)  # a copy: a kernel keeps them
        Y, targets = read_targets(model, y, labels)
        if targets.one_vs_rest:
            raise ValueError("common= needs tasks with two labels; the classes of one target have nothing in common")
        check_consistent_length(inputs, Y)
        weights = training_weights(sample_weight, as_table(y), Y, targets)
        task = None if labels is None else code_labels(labels, targets.tasks_)
        one_class_is_fine = np.zeros(len(targets.tasks_), bool)  # intercepts are shrunk
        seen = observations(targets, Y, task, weights, one_class_is_fine, model.task_weight)
        part = CommonPart.of(inputs, seen, common_term(model), model)
        structure = bound_to(as_structure(model.structure), part.own, columns.input_names(model.task_column), targets.tasks_)
        s = np.ones(len(seen.y)) if weights is None else weights[seen.row, seen.task if task is None else 0]
        return cls(model, columns, targets, seen, s, part.posed(inputs, seen, structure), inputs, part)

    @property
    def weights(self) -> dict[str, float]:
        intercept = {INTERCEPT: self.part.own.constant**2} if self.part.own.constant else {}
        return {COMMON: self.part.weight, OWN: 1.0, **intercept}

    def with_weights(self, weights: dict[str, float]) -> PreparedCommon:
        shared, own = self.posed
        part, phi = self.part, own.data.phi
        constant = float(np.sqrt(weights.get(INTERCEPT, 0.0)))
        if constant != part.own.constant:
            phi = np.hstack([phi[:, :-1], np.full((len(phi), 1), constant)])
            own = replace(own, data=replace(own.data, phi=phi))
            part = replace(part, own=replace(part.own, constant=constant))
        if not shared.data.free:
            shared, part = replace(shared, weight=weights[COMMON]), replace(part, weight=weights[COMMON])
        return replace(self, part=part, posed=[shared, own])

    def under(self, structure: Any) -> PreparedCommon:
        """The same data under another structure of the own parts."""
        names = self.columns.input_names(self.model.task_column)
        bound = bound_to(as_structure(structure), self.part.own, names, self.targets.tasks_)
        return replace(self, posed=[self.posed[0], replace(self.posed[1], structure=bound)])

    def state(self, problem: Problem, solution: Solution) -> FittedState:
        stack: TermStack = problem.structure  # type: ignore[assignment]
        shared, own = stack.features_of(solution.W)
        shared = np.sqrt(self.posed[0].weight) * shared[:, 0]
        part = replace(self.part, common_weights=shared, own_weights=own, intercept=float(solution.b[0]))
        found: dict[str, Any] = {"common_part": part, "structure_": _task_matrix(problem, own, stack.split(solution.A)[1])}
        found["learned"] = copy(self.posed[1].structure)  # the parameter may change later
        total = part.coef()
        if total is None:
            found["intercept_"] = np.full(len(self.targets.tasks_), part.intercept)
        else:
            found["coef_"], found["intercept_"] = total
        return self._state(problem, solution, part.exact, **found)

    def new_rows(self, model: Any, X: Any) -> tuple[Array, Array, Array | None]:
        inputs, labels = new_inputs(model, X)
        inputs = inputs.astype(float, copy=False)
        task = position_of_tasks(self.targets, labels, "mean")
        return self.part.common(inputs), replace(self.part.own, constant=1.0 if self.part.own.constant else 0.0)(inputs), task

    def values(self, problem: Problem, solution: Solution, rows: tuple[Array, Array, Array | None]) -> Array:
        stack: TermStack = problem.structure  # type: ignore[assignment]
        shared, own = stack.features_of(solution.W)
        common, phi, task = rows
        if self.part.own.constant:
            own = np.vstack([own[:-1], self.part.own.constant * own[-1:]])
        return own_values(float(solution.b[0]) + np.sqrt(self.posed[0].weight) * (common @ shared[:, 0]), phi, own, task)


def prepared_sum(model: Any, X: Any, y: Any, sample_weight: Any) -> PreparedSum:
    """The data of a fit with terms, or with a common part."""
    kind = PreparedTerms if model.terms is not None else PreparedCommon
    return kind.of(model, X, y, sample_weight)


def _task_matrix(problem: Problem, W: Array, A: Array) -> Any:
    """The task matrix of the own part: its variable, or the one that its weights imply."""
    variable = problem.structure.variables[1]  # type: ignore[attr-defined]
    if isinstance(variable, TaskMatrix):
        return A
    if isinstance(variable, FeatureMatrix) and not variable.structure.either_side:
        return tasks_under(variable.structure, W, A)
    return as_structure(variable.structure if isinstance(variable, FeatureMatrix) else "independent").final_structure(
        np.sqrt(problem.alpha) * W
    )[0]
