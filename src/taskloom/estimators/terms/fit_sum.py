"""Fits of estimators with ``terms=`` or ``common=``, and their predictions."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_feature_names, check_consistent_length

from ..._component import warn
from ..._time_limit import time_limit
from ...problem import Problem
from ...problem.solution import History, Solution
from ...solvers import solve
from ...structures import as_structure
from ...structures.term_stack import TermStack
from ...structures.terms import FeatureMatrix, TaskMatrix
from ...tables.layout import as_table, code_labels
from ..callbacks import show
from ..fitted import FittedState
from ..state_of_fit import tasks_under
from ..target_encoding import TargetScale
from ..validation import (
    InputColumns,
    described,
    new_inputs,
    observations,
    position_of_tasks,
    read_targets,
    training_inputs,
    training_weights,
)
from .common_part import CommonPart
from .fit_terms import bound_to, fitted_weights, posed_terms, problem_of
from .rows_of_fit import RowsOfFit
from .table_columns import TableColumns

Array = np.ndarray
PLAIN = {"structure": None, "kernel": "linear", "common": None, "task_column": None, "task_weight": "equal"}


def is_sum(model: Any) -> bool:
    """Whether an estimator fits terms, or a common part."""
    return getattr(model, "terms", None) is not None or getattr(model, "common", None) not in (None, False)


def refuse_sum(model: Any, what: str) -> None:
    """Raise for what a fit with terms, or with a common part, cannot do yet."""
    if is_sum(model):
        given = "terms=" if model.terms is not None else "common="
        raise ValueError(f"{what} does not know {given} yet; fit without it, or refit on all rows")


def fit_sum(model: Any, X: Any, y: Any, sample_weight: Any) -> FittedState:
    """The state of a fit with terms, or with a common part."""
    model._validate_params()
    _refuse(model)
    with time_limit(model.time_limit):
        if model.terms is not None:
            return _fit_terms(model, X, y, sample_weight)
        return _fit_common(model, X, y, sample_weight)


def _refuse(model: Any) -> None:
    """Settings that do not go with terms, or not yet; one sentence each."""
    what = "terms=" if model.terms is not None else "common="
    if model.terms is not None:
        for name, usual in PLAIN.items():
            value = getattr(model, name)
            if not (value is usual or (isinstance(value, str) and value == usual) or (name == "common" and value is False)):
                raise ValueError(f"terms= says it all; leave {name} as it is by default, got {name}={value!r}")
    if isinstance(model.loss, dict):
        raise ValueError(f"{what} takes one loss, got a dict")
    if getattr(model, "standardize_targets", False):
        raise ValueError(f"{what} does not standardize targets yet; scale y before the fit")
    if model.approximation is not None:
        raise ValueError(f"{what} has no approximation=: kernels on more than 5000 rows take landmarks by themselves")
    if getattr(model, "device", None) is not None:
        raise ValueError(f"{what} runs on the CPU; leave device=None")
    if isinstance(model.kernel, (list, tuple)):
        raise ValueError(f"{what} takes one kernel for the own parts, got a list; use terms= for more")


def _solved(model: Any, problem: Problem) -> Solution:
    def report(history: History) -> bool:
        if line := show(history):
            sys.stdout.write(line + "\n")
        return False

    limits = {name: getattr(model, name) for name in ("tol", "max_iter", "time_limit")}
    solution = solve(problem, model.solver, callback=report if model.verbose else None, **limits)
    if not solution.certificate.converged:
        warn(solution.certificate.message, ConvergenceWarning)
    return solution


def _state(model: Any, columns: InputColumns, targets: Any, solution: Solution, note: str = "", **found: Any) -> FittedState:
    certificate = replace(solution.certificate, message=f"{solution.certificate.message} {note}".rstrip())
    return FittedState(
        **described(columns, targets),
        scale=TargetScale.none(len(targets.tasks_)),
        kernel=model._kernel(),
        alpha=float(model.alpha),
        ridge=float(model.ridge),
        dtype=np.dtype(float),
        certificate_=certificate,
        n_iter_=solution.n_iter,
        history_=solution.history.as_dict(),
        training_left_out=True,
        **found,
    )


# --- terms --------------------------------------------------------------------------------------------------------------


def _fit_terms(model: Any, X: Any, y: Any, sample_weight: Any) -> FittedState:
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
    seen = s > 0
    if not seen.all():
        table = TableColumns(_safe_indexing(table.X, np.flatnonzero(seen)))
    weight = s[seen] / s.sum()
    posed, fitted = posed_terms(model.terms, table, weight)
    problem = problem_of(posed, Y[seen, 0], weight, model)
    solution = _solved(model, problem)
    terms = fitted_weights(problem, solution, posed, fitted)
    kernels = [term.inputs.kernel for term in terms if term.inputs.kernel is not None]
    note = "" if all(kernel.exact for kernel in kernels) else "Kernels on more than 5000 rows have 400 landmarks."
    columns = InputColumns(n_features_in_=table.n_columns, feature_names_in_=table.feature_names)
    rows = RowsOfFit.of(posed, Y[seen, 0], s[seen], problem)
    found = {"intercept_": solution.b.copy(), "fitted_terms": tuple(terms), "term_rows": rows}
    return _state(model, columns, targets, solution, note, **found)


def term_values(model: Any, state: FittedState, X: Any) -> tuple[TableColumns, list[Array]]:
    """What each term adds to each row of a table."""
    table = TableColumns(X)
    _check_feature_names(model, table.X, reset=False)
    if table.n_columns != state.n_features_in_:
        expected = f"{type(model).__name__} is expecting {state.n_features_in_} features as input"
        raise ValueError(f"X has {table.n_columns} features, but {expected}")
    return table, [term.predict(table) for term in state.fitted_terms]


# --- a common part ---------------------------------------------------------------------------------------------------------


def _fit_common(model: Any, X: Any, y: Any, sample_weight: Any) -> FittedState:
    inputs, labels, columns = training_inputs(model, X)
    if issparse(inputs):
        raise ValueError("common= takes dense inputs, got a sparse X; pass X.toarray()")
    inputs = inputs.astype(float, copy=False)
    Y, targets = read_targets(model, y, labels)
    if targets.one_vs_rest:
        raise ValueError("common= needs tasks with two labels; the classes of one target have nothing in common")
    check_consistent_length(inputs, Y)
    weights = training_weights(sample_weight, as_table(y), Y, targets)
    task = None if labels is None else code_labels(labels, targets.tasks_)
    one_class_is_fine = np.zeros(len(targets.tasks_), bool)  # intercepts are shrunk
    seen = observations(targets, Y, task, weights, one_class_is_fine, model.task_weight)
    kernel = model.kernel if model.common is True else model.common
    part = CommonPart.of(inputs, seen, kernel, model.kernel, model.fit_intercept)
    structure = bound_to(as_structure(model.structure), part.own, columns.input_names(model.task_column), targets.tasks_)
    posed = part.posed(inputs, seen, structure)
    problem = problem_of(posed, seen.y, seen.weight, model)
    solution = _solved(model, problem)
    stack: TermStack = problem.structure  # type: ignore[assignment]
    shared, own = stack.features_of(solution.W)
    part = replace(part, common_weights=shared[:, 0], own_weights=own, intercept=float(solution.b[0]))
    note = "" if part.exact else "Kernels on more than 5000 rows have 400 landmarks."
    found: dict[str, Any] = {"common_part": part, "structure_": _task_matrix(problem, own, stack.split(solution.A)[1])}
    s = np.ones(len(seen.y)) if weights is None else weights[seen.row, seen.task if task is None else 0]
    found["term_rows"] = RowsOfFit.of(posed, seen.y, s, problem)
    total = part.coef()
    if total is None:
        found["intercept_"] = np.full(len(targets.tasks_), part.intercept)
    else:
        found["coef_"], found["intercept_"] = total
    return _state(model, columns, targets, solution, note, **found)


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


def predict_terms_of(model: Any, state: FittedState, X: Any) -> list[Array]:
    """What each term adds: one array for each of ``terms=``; the common and the own part of ``common=``."""
    if state.fitted_terms is not None:
        return term_values(model, state, X)[1]
    inputs, labels = new_inputs(model, X)
    task = position_of_tasks(state, labels, "raise" if model.unseen == "raise" else "mean")
    inputs = inputs.astype(float, copy=False)
    values = state.common_part.values(inputs, task) - state.common_part.intercept
    shared = state.common_part.shared(inputs)
    shared = np.broadcast_to(shared if task is not None else shared[:, None], values.shape).copy()
    return [shared, values - shared]


def sum_decision(model: Any, state: FittedState, X: Any) -> Array:
    """Decision values of a sum of terms: one column; of a common part: every task at every row, or the task of each row."""
    if state.fitted_terms is not None:
        return (float(state.intercept_[0]) + np.sum(term_values(model, state, X)[1], axis=0))[:, None]
    inputs, labels = new_inputs(model, X)
    task = position_of_tasks(state, labels, "raise" if model.unseen == "raise" else "mean")
    return state.common_part.values(inputs.astype(float, copy=False), task)
