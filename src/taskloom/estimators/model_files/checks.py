"""Checks of the content of a model file: types, consistent shapes, finite numbers."""

from __future__ import annotations

from dataclasses import MISSING, fields
from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import issparse

from ...features.kernels import KernelFeatures, entries
from ...persistence.refusal import check
from ...problem.solution import Certificate
from ...solvers import Solver
from ...structures import Structure, as_structure
from ...structures.factored_matrix import FactoredStructure
from ..fitted import FittedState, Kernel, Training
from ..target_encoding import TargetScale
from ..terms.fit_sum import is_sum
from ..validation import losses_by_task
from .array_checks import are_labels, are_names, check_numbers
from .stored_parts import map_width, try_map
from .stored_terms import check_common, check_terms

Array = np.ndarray
TRANSFER = ("alone", "together", "gain", "standard_error")


def check_fitted(model: Any, kernel: Kernel, found: dict[str, Any], search: dict[str, Any] | None) -> None:
    """Everything that predictions, scores and new tasks look at, by the names of the fields of a state."""
    needed = {each.name for each in fields(FittedState) if each.default is MISSING} | {"certificate_"}
    needed |= set() if "fitted_terms" in found else {"structure_", "learned"}
    missing = sorted(needed - found.keys())
    check(not missing, f"the model has no {missing[0] if missing else ''}")
    tasks, width, column = found["tasks_"], found["n_features_in_"], model.task_column
    check(are_labels(tasks, np.size(tasks)) and tasks.size > 0, "tasks_ is no list of tasks, each of another name")
    check(type(width) is int and width >= 1, f"n_features_in_ is no number of columns: {width!r}")
    check(column is None or (isinstance(column, (str, Integral)) and type(column) is not bool), "task_column is no column")
    T, d, dtype = tasks.size, width - (column is not None), found["dtype"]
    check(isinstance(dtype, np.dtype), "the model has no precision")
    check_numbers("intercept_", found["intercept_"], (T,), dtype)
    if "fitted_terms" in found:
        check_terms(model, found)
    elif "common_part" in found:
        check_common(model, found)
    else:
        _check_functions(model, kernel, found)
    for name in ("structure_", "inner_products"):
        for A in _each(found[name]) if name in found else ():
            if isinstance(A, FactoredStructure):  # which stands for the array
                check(len(A) == T, f"{name} has {len(A)} tasks, not {T}")
            else:
                check_numbers(name, A, (T, T))
    if "feature_structure_" in found:
        check_numbers("feature_structure_", found["feature_structure_"], (d, d))
    if found.get("stored_contributions") is not None:
        _check_contributions(found["stored_contributions"], T)
    check(isinstance(found.get("learned"), Structure) or "fitted_terms" in found, "the model has no structure")
    _check_parameters(model, tasks, search)
    layout = type(found["wide"]) is bool and type(found.get("one_vs_rest", False)) is bool
    check(layout, "the layout of the targets is missing")
    _check_scale(found["scale"], T)
    if (gamma := found.get("gamma_")) is not None:
        check(type(gamma) is float and np.isfinite(gamma) and gamma >= 0, "gamma_ is no width of a kernel")
    check(isinstance(found["certificate_"], Certificate), "the model has no certificate")
    _check_names(model, found, T)
    _check_tables(found, search or {})


def _check_functions(model: Any, kernel: Kernel, found: dict[str, Any]) -> None:
    """The tasks' functions: coefficients of inputs, of mapped inputs, or of kernels at the inputs of the fit."""
    T, d, dtype = len(found["tasks_"]), found["n_features_in_"] - (model.task_column is not None), found["dtype"]
    check(not is_sum(model), "the model has no terms that were fitted")
    if "coef_" in found:
        check("dual_coef_" not in found, "the model has both coef_ and dual_coef_")
        feature_map = found.get("feature_map_")
        features = d if feature_map is None else map_width(feature_map, d)
        check_numbers("coef_", found["coef_"], (T, features), dtype)
        check(kernel.linear or feature_map is not None, "coef_ does not go with this kernel")
        if feature_map is not None:  # it gives as many features as there are coefficients in the file
            try_map(feature_map, d, features)
    else:
        check("dual_coef_" in found and "X_fit_" in found, "the model has neither coef_ nor dual_coef_ with X_fit_")
        X = found["X_fit_"]
        check(issparse(X) or isinstance(X, np.ndarray), "X_fit_ is no matrix")
        check(X.ndim == 2 and X.shape[1] == d and X.shape[0] > 0, f"X_fit_ has the shape {X.shape}, not {d} columns")
        check(X.dtype.kind == "f" and bool(np.isfinite(entries(X)).all()), "X_fit_ is not finite")
        for C in _each(found["dual_coef_"]):
            check_numbers("dual_coef_", C, (X.shape[0], T), dtype)
        _check_kernel(kernel, found["dual_coef_"], X)


def _check_contributions(given: Any, T: int) -> None:
    """What ``explain`` reads: a matrix over the tasks of the fit, or the metric, ``Z`` and ``W`` that it is made of."""
    if not isinstance(given, tuple):
        check_numbers("_pulls", given, (np.shape(given)[:1] or (0,)) * 2)
        check(len(given) <= T, "_pulls has the wrong shape")
        return
    check(len(given) == 3 and isinstance(given[0], FactoredStructure) and len(given[0]) <= T, "_pulls is not readable")
    for part in given[1:]:
        check_numbers("_pulls", part, (np.shape(given[1])[0] if np.ndim(given[1]) == 2 else -1, len(given[0])))


def _each(value: Any) -> list:
    """One for each kernel, where there are several."""
    return value if isinstance(value, list) else [value]


def _check_parameters(model: Any, tasks: Array, search: dict[str, Any] | None) -> None:
    """What scikit-learn's validation of parameters does not look at."""
    losses_by_task(model.loss, tasks)
    for structure in _each(model.structure):
        as_structure(structure)
    check(isinstance(model.solver, (str, Solver)), "solver is neither a name nor a solver")
    if search is not None:
        chosen = search.get("alpha_")
        check(type(chosen) is float and np.isfinite(chosen) and chosen > 0, "the search has no alpha that it chose")
        chose = isinstance(search.get("best_structure_"), (Structure, list)) or model.terms is not None
        check(chose, "the search has no structure that it chose")


def _check_kernel(kernel: Kernel, dual_coef: Any, X: Any) -> None:
    """A kernel that gives a number for a pair of rows."""
    if kernel.precomputed:
        return
    check(kernel.several == isinstance(dual_coef, list), "dual_coef_ does not go with the kernel")
    check(not kernel.several or len(kernel.kernel) == len(dual_coef), "dual_coef_ has another number of kernels")
    for k in _each(kernel(X[:1], X[:1])):
        check(np.shape(k) == (1, 1) and bool(np.isfinite(k).all()), "the kernel gives no number")


def _check_scale(scale: Any, T: int) -> None:
    check(isinstance(scale, TargetScale), "the scale of the targets is missing")
    check_numbers("the mean of the targets", scale.mean, (T,))
    check_numbers("the standard deviation of the targets", scale.std, (T,))
    check(bool((scale.std > 0).all()), "the standard deviation of the targets is not positive")


def _check_names(model: Any, found: dict[str, Any], T: int) -> None:
    """Classes and columns by name."""
    classifies = hasattr(type(model), "decision_function")
    check(not classifies or {"classes_", "one_vs_rest"} <= found.keys(), "the classifier has no classes")
    classes = found.get("classes_")
    if isinstance(classes, list):
        check(len(classes) == T, f"there are classes for {len(classes)} tasks, not {T}")
        for own in classes:
            check((own is None and not classifies) or are_labels(own, 2), "a task has no two classes")
    elif classes is not None:
        check(are_labels(classes, T if found.get("one_vs_rest") else 2), "the classes are not readable")
    names = found.get("feature_names_in_", np.zeros(0, str))
    good = "feature_names_in_" not in found or are_names(names, found["n_features_in_"])
    check(good, "the names of the columns are not readable")
    column, width = model.task_column, found["n_features_in_"]
    if isinstance(column, str):
        check(column in names.tolist(), f"there is no column called {column!r}, as the task column should be")
    elif column is not None:
        check(-width <= column < width, f"there is no column {column} among {width}, as the task column should be")


def _check_tables(found: dict[str, Any], search: dict[str, Any]) -> None:
    """The history of the fit, and the comparison with single-task models."""
    history = found.get("history_", {})
    lengths = {len(column) if isinstance(column, np.ndarray) and column.ndim == 1 else -1 for column in history.values()}
    check(len(lengths) <= 1 and -1 not in lengths, "history_ is not readable")
    weights = search.get("best_weights_", {})
    good = isinstance(weights, dict) and all(isinstance(w, float) and w > 0 for w in weights.values())
    check(good and isinstance(search.get("selection_", ""), str), "what the search chose is not readable")
    if "transfer_" in search:
        transfer = search["transfer_"]
        check(isinstance(transfer, dict) and {"task", *TRANSFER} <= transfer.keys(), "transfer_ is not readable")
        rows = np.shape(transfer["task"])
        for name in TRANSFER:
            column = transfer[name]
            good = isinstance(column, np.ndarray) and column.dtype.kind == "f" and len(rows) == 1 and column.shape == rows
            check(good, f"{name} of transfer_ is not readable")


def check_training(model: Any, state: FittedState, training: Training, scale: Any) -> None:
    """The training data belong to the model: ``return_std`` reads them."""
    T = state.n_tasks
    W, b, A, features = training.W, training.b, training.A, training.features
    _check_scale(scale, T)
    check_numbers("the intercepts", b, (T,))
    (n, r), count = features.phi.shape, np.size(training.y)
    for name, top in (("row", n), ("task", T)):
        index = getattr(training, name)
        good = isinstance(index, np.ndarray) and index.dtype.kind == "i" and index.shape == (count,)
        check(good, "the observations are not readable")
        check(count > 0 and index.min() >= 0 and index.max() < top, f"an observation names {name} {index.max()} of {top}")
    check_numbers("the targets", training.y, (count,))
    check_numbers("the weights of the observations", training.weight, (count,))
    check(bool((training.weight > 0).all()), "an observation has no weight")
    problem = training.problem()
    check_numbers("the weights", W, (r, T))
    check(len(A) in (T, r), "the structure has the wrong shape")
    check_numbers("the structure", A, (len(A), len(A)))
    check(problem.loss.quadratic, "the training data are kept for the squared loss only")
    check(type(problem.fit_intercept) is bool, "fit_intercept of the training data is missing")
    check_numbers("the features", entries(features.phi), entries(features.phi).shape)
    if isinstance(features, KernelFeatures):
        check_numbers("the basis of the features", features.U, (n, r))
        check_numbers("the scale of the features", features.inverse_root, (r,))
    elif features.basis is not None:
        check_numbers("the basis of the features", features.basis, (features.n_inputs, r))
    inputs = state.n_features_in_ - (model.task_column is not None) if state.coef_ is not None else state.X_fit_.shape[0]
    row = np.zeros((1, inputs))
    if state.feature_map_ is not None:
        check(np.shape(state.kernel(row, row)) == (1, 1), "the kernel gives no number")
    width = np.shape(features.project(row))
    check(width == (1, r), f"the features of a row have the shape {width}, not {(1, r)}")
