"""Fits of estimators with ``terms=`` or ``common=``, and their predictions."""

from __future__ import annotations

import sys
from inspect import signature
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_feature_names

from ..._component import warn
from ..._time_limit import time_limit
from ...losses import RowLoss, as_loss
from ...problem.solution import History
from ...solvers import solve
from ..callbacks import Watch, show
from ..fitted import FittedState
from ..validation import new_inputs, position_of_tasks
from .prepared_common import PreparedCommon
from .prepared_sum import PreparedSum
from .prepared_terms import PreparedTerms
from .separation import NOTE
from .table_columns import TableColumns

Array = np.ndarray
OF_TERMS = {  # what says the same beside terms=
    "structure": "Term(..., structure=...)",
    "kernel": "Term(kernel, ...)",
    "common": "a Term without by=",
    "task_column": "Term(..., by=...)",
    "task_weight": "sample_weight= of fit",
    "gamma": "a kernel with its parameters, such as Term(sklearn.gaussian_process.kernels.RBF(0.5))",
    "degree": "a kernel with its parameters: a function k(X, Z)",
    "coef0": "a kernel with its parameters: a function k(X, Z)",
    "intercept_scaling": "a Term('constant', by=...) with a weight of its own",
}


def is_sum(model: Any) -> bool:
    """Whether an estimator fits terms, or a common part."""
    common = getattr(model, "common", None)
    auto = isinstance(common, str) and common == "auto"  # of a search, which may or may not choose one
    return getattr(model, "terms", None) is not None or not (common is None or common is False or auto)


def refuse_sum(model: Any, what: str) -> None:
    """Raise for what a fit with terms, or with a common part, cannot do yet; a search may have chosen a common part."""
    state = vars(model).get("_state")
    if is_sum(model) if state is None else state.is_sum:
        given = "terms=" if model.terms is not None else "common="
        raise ValueError(f"{what} does not know {given} yet; fit without it, or refit on all rows")


def fit_sum(model: Any, X: Any, y: Any, sample_weight: Any, watch: Watch | None = None) -> FittedState:
    """The state of a fit with terms, or with a common part."""
    model._validate_params()
    with time_limit(model.time_limit):
        data = prepared_sum(model, X, y, sample_weight)
        return solved_state(model, data, float(model.alpha), watch)


def prepared_sum(model: Any, X: Any, y: Any, sample_weight: Any) -> PreparedSum:
    """The data of a fit with terms, or with a common part."""
    refuse_settings(model)
    kind = PreparedTerms if model.terms is not None else PreparedCommon
    return kind.of(model, X, y, sample_weight)


def refuse_settings(model: Any) -> None:
    """Raise for settings that do not go with terms, or not yet; one sentence each."""
    what = "terms=" if model.terms is not None else "common="
    if model.terms is not None:
        usual = {name: each.default for name, each in signature(type(model)).parameters.items()}
        for name, instead in OF_TERMS.items():
            value = getattr(model, name)
            same = value is usual[name] or (isinstance(value, (str, int, float)) and value == usual[name])
            if not (same or (name == "common" and value is False)):
                raise ValueError(f"terms= says it all: leave {name} as it is by default, got {name}={value!r}; take {instead}")
    if isinstance(model.loss, dict):
        raise ValueError(f"{what} takes one loss, got a dict")
    if isinstance(as_loss(model.loss), RowLoss):
        raise ValueError(
            f"{what} needs a loss of single outputs, such as 'logistic', got loss={model.loss!r}, one of whole rows"
        )
    if getattr(model, "standardize_targets", False):
        raise ValueError(f"{what} does not standardize targets yet; scale y before the fit")
    if model.approximation is not None:
        raise ValueError(f"{what} has no approximation=: kernels on more than 5000 rows take landmarks by themselves")
    if getattr(model, "device", None) is not None:
        raise ValueError(f"{what} runs on the CPU; leave device=None")
    if isinstance(model.kernel, (list, tuple)):
        raise ValueError(f"{what} takes one kernel for the own parts, got a list; use terms= for more")


def solved_state(model: Any, data: PreparedSum, alpha: float, watch: Watch | None = None) -> FittedState:
    """The fit at a strength, with the limits of the estimator; a watch is told about each iteration."""
    problem = data.problem(alpha)

    def report(history: History) -> bool:
        if model.verbose and (line := show(history)):
            sys.stdout.write(line + "\n")
        state = lambda: {"_state": data.predictor(problem, *history.best())}  # noqa: E731 (only for those who ask)
        return watch is not None and watch.part("iteration").end(state)

    limits = {name: getattr(model, name) for name in ("tol", "max_iter", "time_limit")}
    last = vars(model).get("_state") if getattr(model, "warm_start", False) else None
    start = None if last is None else data.weights_of(last, problem)
    solution = solve(problem, model.solver, start=start, callback=report if model.verbose or watch else None, **limits)
    state = data.state(problem, solution)
    if NOTE in state.certificate_.message or not (solution.certificate.converged or solution.certificate.status == "callback"):
        warn(state.certificate_.message, ConvergenceWarning)
    return state


def checked_table(model: Any, state: FittedState, X: Any) -> TableColumns:
    """A table with the columns of the fit."""
    table = TableColumns(X)
    _check_feature_names(model, table.X, reset=False)
    if table.n_columns != state.n_features_in_:
        expected = f"{type(model).__name__} is expecting {state.n_features_in_} features as input"
        raise ValueError(f"X has {table.n_columns} features, but {expected}")
    if model.unseen == "raise":
        for term in state.fitted_terms:
            term.check_seen(table)
    return table


def term_values(model: Any, state: FittedState, X: Any) -> list[Array]:
    """What each term adds to each row of a table."""
    table = checked_table(model, state, X)
    return [term.predict(table) for term in state.fitted_terms]


def predict_terms_of(model: Any, state: FittedState, X: Any) -> list[Array]:
    """What each term adds: one array for each of ``terms=``; the common and the own part of ``common=``."""
    if state.fitted_terms is not None:
        return term_values(model, state, X)
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
        return (float(state.intercept_[0]) + np.sum(term_values(model, state, X), axis=0))[:, None]
    inputs, labels = new_inputs(model, X)
    task = position_of_tasks(state, labels, "raise" if model.unseen == "raise" else "mean")
    return state.common_part.values(inputs.astype(float, copy=False), task)
