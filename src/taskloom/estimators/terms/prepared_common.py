"""The data of a fit with ``common=``."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_consistent_length

from ...problem import Problem
from ...problem.solution import Solution
from ...structures import as_structure
from ...structures.factored_matrix import returned
from ...structures.term_stack import TermStack
from ...structures.terms import FeatureMatrix, TaskMatrix
from ...tables.layout import as_table, code_labels
from ..fitted import FittedState
from ..state_of_fit import in_precision, tasks_under
from ..validation import (
    new_inputs,
    observations,
    position_of_tasks,
    read_targets,
    training_inputs,
    training_weights,
)
from .common_part import CommonPart, common_term, own_values
from .fit_terms import bound_to
from .prepared_sum import PreparedSum, rows_of

Array = np.ndarray
INTERCEPT, COMMON, OWN = "intercept", "common", "own"


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
        dtype, inputs = inputs.dtype, inputs.astype(float)  # a copy: a kernel keeps them
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
        posed = part.posed(inputs, seen, structure)
        return cls(model, columns, targets, seen, s, posed, dtype, rows_of(posed, seen, model), inputs, part)

    @property
    def weights(self) -> dict[str, float]:
        intercept = {INTERCEPT: self.part.own.constant**2} if self.part.own.constant else {}
        return {COMMON: self.part.weight, OWN: 1.0, **intercept}

    @property
    def searched(self) -> list[str]:
        return [name for name, weight in self.weights.items() if name != OWN and np.isfinite(weight)]

    def parameters(self, weights: dict[str, float]) -> dict[str, Any]:
        return self.with_weights(weights).part.parameters

    def with_weights(self, weights: dict[str, float]) -> PreparedCommon:
        shared, own = self.posed
        part, constant = self.part, float(np.sqrt(weights.get(INTERCEPT, 0.0)))
        if constant != part.own.constant:
            part = replace(part, own=replace(part.own, constant=constant))
            own = replace(own, units=part.units(own.data.r))
        if not shared.data.free:
            shared, part = replace(shared, weight=weights[COMMON]), replace(part, weight=weights[COMMON])
        return replace(self, part=part, posed=[shared, own])

    def under(self, structure: Any) -> PreparedCommon:
        if structure is None:
            return self
        names = self.columns.input_names(self.model.task_column)
        bound = bound_to(as_structure(structure), self.part.own, names, self.targets.tasks_)
        return replace(self, posed=[self.posed[0], replace(self.posed[1], structure=bound)])

    @property
    def exact(self) -> bool:
        return self.part.exact

    def predicting(self, problem: Problem, W: Array, b: Array) -> dict[str, Any]:
        stack: TermStack = problem.structure  # type: ignore[assignment]
        shared, own = stack.features_of(W)
        shared = np.sqrt(self.posed[0].weight) * shared[:, 0]
        part = replace(self.part, common_weights=shared, own_weights=own, intercept=float(b[0]))
        total = part.coef()
        if total is None:
            words = [part.own.kernel, part.common.kernel] if isinstance(self.model.gamma, str) else []
            gamma = next((each.parameters["gamma"] for each in words if each is not None), None)
            return {"common_part": part, "intercept_": np.full(len(self.targets.tasks_), part.intercept), "gamma_": gamma}
        coef, intercept = (in_precision(each, self.dtype) for each in total)
        return {"common_part": part, "coef_": coef, "intercept_": intercept}

    def fitted_weights(self, last: FittedState) -> list[Array] | None:
        part = last.common_part
        return None if part is None else [part.common_weights[:, None], part.own_weights]

    def structures(self, state: FittedState, problem: Problem, solution: Solution) -> dict[str, Any]:
        stack: TermStack = problem.structure  # type: ignore[assignment]
        A, part = stack.split(solution.A)[1], state.common_part
        return {
            "common_part": replace(part, structure=A, on_features=isinstance(stack.variables[1], FeatureMatrix)),
            "structure_": in_precision(self._task_matrix(problem, part.own_weights, A), self.dtype),
            "learned": copy.copy(self.posed[1].structure),  # the parameter may change later
        }

    def _task_matrix(self, problem: Problem, W: Array, A: Array) -> Any:
        """The task matrix of the own part: its variable, or the one that its weights imply."""
        variable, structure = problem.structure.variables[1], self.posed[1].structure  # type: ignore[attr-defined]
        if isinstance(variable, TaskMatrix):
            return A
        if isinstance(variable, FeatureMatrix) and structure.on_features:
            return tasks_under(structure, W, A)
        return returned(structure.final_structure(np.sqrt(problem.alpha) * W)[0])

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
