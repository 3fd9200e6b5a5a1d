"""Whether what a file holds can be the state of a fitted model: types, shapes that agree with each other, finite numbers."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from scipy.sparse import issparse

from ...features import entries
from ...persistence.decode import check
from ...problem.solution import Certificate
from ...solvers import Solver
from ...structures import Structure, as_structure
from ...structures.factored_matrix import FactoredStructure
from ...tables.preprocessing import TablePreprocessor
from ..target_encoding import TargetScale
from .kernel_maps import map_width

Array = np.ndarray
TRANSFER = ("alone", "together", "gain", "standard_error")


def check_fitted(model: Any) -> None:
    """Everything that predictions, scores and new tasks look at."""
    state = vars(model)
    missing = {"tasks_", "n_features_in_", "intercept_", "structure_", "certificate_", "_dtype", "_wide", "_scale", "_learned"}
    missing -= state.keys()
    check(not missing, f"the model has no {sorted(missing)[0] if missing else ''}")
    tasks, width = model.tasks_, model.n_features_in_
    check(isinstance(tasks, np.ndarray) and tasks.ndim == 1 and tasks.size > 0, "tasks_ is no list of tasks")
    check(len(set(tasks.tolist())) == tasks.size, "two tasks have one name")
    check(type(width) is int and width >= 1, f"n_features_in_ is no number of columns: {width!r}")
    column = model.task_column
    check(column is None or (isinstance(column, (str, Integral)) and type(column) is not bool), "task_column is no column")
    T, d = tasks.size, width - (column is not None)
    check(isinstance(model._dtype, np.dtype), "the model has no precision")
    _numbers("intercept_", model.intercept_, (T,), model._dtype)
    if "coef_" in state:
        check("dual_coef_" not in state, "the model has both coef_ and dual_coef_")
        _numbers("coef_", model.coef_, (T, map_width(model.feature_map_, d) if "feature_map_" in state else d), model._dtype)
    else:
        check("dual_coef_" in state and "X_fit_" in state, "the model has neither coef_ nor dual_coef_ with X_fit_")
        X = model.X_fit_
        check(issparse(X) or isinstance(X, np.ndarray), "X_fit_ is no matrix")
        check(X.ndim == 2 and X.shape[1] == d and X.shape[0] > 0, f"X_fit_ has the shape {X.shape}, not {d} columns")
        check(X.dtype.kind == "f" and bool(np.isfinite(entries(X)).all()), "X_fit_ is not finite")
        for C in _each(model.dual_coef_):
            _numbers("dual_coef_", C, (X.shape[0], T), model._dtype)
        _check_kernel(model)
    for name in ("structure_", "_inner_products"):
        if name in state:
            for A in _each(state[name]):
                _task_matrix(name, A, T)
    if "feature_structure_" in state:
        _numbers("feature_structure_", model.feature_structure_, (d, d))
    if state.get("_pulls") is not None:
        _check_pulls(state["_pulls"], T)
    check(isinstance(model._learned, Structure), "the model has no structure")
    _check_parameters(model)
    check(type(model._wide) is bool and type(state.get("_one_vs_rest", False)) is bool, "the layout of the targets is missing")
    _check_scale(model._scale, T)
    check(isinstance(model.certificate_, Certificate), "the model has no certificate")
    _check_names(model, T)
    _check_tables(state)


def _check_pulls(pulls: Any, T: int) -> None:
    """What ``explain`` reads: a matrix over the tasks of the fit, or the metric, ``Z`` and ``W`` that it is made of."""
    if isinstance(pulls, tuple):
        check(len(pulls) == 3 and isinstance(pulls[0], FactoredStructure) and len(pulls[0]) <= T, "_pulls is not readable")
        shape = (np.shape(pulls[1])[0] if np.ndim(pulls[1]) == 2 else -1, len(pulls[0]))
        _numbers("_pulls", pulls[1], shape)
        _numbers("_pulls", pulls[2], shape)
        return
    check(isinstance(pulls, np.ndarray) and pulls.ndim == 2 and pulls.shape[0] <= T, "_pulls has the wrong shape")
    _numbers("_pulls", pulls, (len(pulls), len(pulls)))


def _task_matrix(name: str, A: Any, T: int) -> None:
    """An array, or the factor that stands for it."""
    if isinstance(A, FactoredStructure):
        check(len(A) == T, f"{name} has {len(A)} tasks, not {T}")
    else:
        _numbers(name, A, (T, T))


def _each(value: Any) -> list:
    """One for each kernel, where there are several."""
    return value if isinstance(value, list) else [value]


def _numbers(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype | None = None) -> None:
    check(isinstance(array, np.ndarray), f"{name} is no array")
    check(array.shape == shape, f"{name} has the shape {array.shape}, not {shape}")
    check(array.dtype == dtype if dtype is not None else array.dtype in ("f4", "f8"), f"{name} is of type {array.dtype}")
    check(bool(np.isfinite(array).all()), f"{name} is not finite")


def _check_parameters(model: Any) -> None:
    """What scikit-learn's validation of parameters does not look at."""
    model._losses()
    for structure in _each(model.structure):
        as_structure(structure)
    check(isinstance(model.solver, (str, Solver)), "solver is neither a name nor a solver")
    linear = model.kernel == "linear" if isinstance(model.kernel, str) else False
    if "alphas" in model.get_params(deep=False):
        chosen = vars(model).get("alpha_")
        check(type(chosen) is float and np.isfinite(chosen) and chosen > 0, "the search has no strength that it chose")
        check(isinstance(vars(model).get("best_structure_"), (Structure, list)), "the search has no structure that it chose")
    check(linear or "coef_" not in vars(model) or "feature_map_" in vars(model), "coef_ does not go with this kernel")


def _check_kernel(model: Any) -> None:
    """A kernel that gives a number for a pair of rows."""
    if isinstance(model.kernel, str) and model.kernel == "precomputed":
        return
    several = isinstance(model.kernel, (list, tuple))
    check(several == isinstance(model.dual_coef_, list), f"dual_coef_ does not go with kernel={model.kernel!r}")
    check(not several or len(model.kernel) == len(model.dual_coef_), f"kernel={model.kernel!r} has another number of kernels")
    for k in _each(model._kernel(model.X_fit_[:1], model.X_fit_[:1])):
        check(np.shape(k) == (1, 1) and bool(np.isfinite(k).all()), f"kernel={model.kernel!r} gives no number")


def _check_scale(scale: Any, T: int) -> None:
    check(isinstance(scale, TargetScale), "the scale of the targets is missing")
    _numbers("the mean of the targets", scale.mean, (T,))
    _numbers("the spread of the targets", scale.spread, (T,))
    check(bool((scale.spread > 0).all()), "the spread of the targets is not positive")


def _check_names(model: Any, T: int) -> None:
    """Classes and columns by name."""
    state = vars(model)
    classifies = hasattr(type(model), "decision_function")
    check(not classifies or {"classes_", "_one_vs_rest"} <= state.keys(), "the classifier has no classes")
    classes = state.get("classes_")
    if isinstance(classes, list):
        check(len(classes) == T, f"there are classes for {len(classes)} tasks, not {T}")
        for own in classes:
            check((own is None and not classifies) or _labels(own, 2), "a task has no two classes")
    elif classes is not None:
        check(_labels(classes, T if state.get("_one_vs_rest") else 2), "the classes are not readable")
    if "feature_names_in_" in state:
        names = state["feature_names_in_"]
        check(
            isinstance(names, np.ndarray) and names.shape == (model.n_features_in_,) and all(isinstance(n, str) for n in names),
            "the names of the columns are not readable",
        )
    column, width = model.task_column, model.n_features_in_
    if isinstance(column, str):
        check(
            column in state.get("feature_names_in_", ()), f"there is no column called {column!r}, as the task column should be"
        )
    elif column is not None:
        check(-width <= column < width, f"there is no column {column} among {width}, as the task column should be")


def _labels(classes: Any, count: int) -> bool:
    return isinstance(classes, np.ndarray) and classes.shape == (count,) and len(set(classes.tolist())) == count


def _check_tables(state: dict[str, Any]) -> None:
    """The way of the fit, and the ledger of a search."""
    history = state.get("history_", {})
    lengths = {len(column) if isinstance(column, np.ndarray) and column.ndim == 1 else -1 for column in history.values()}
    check(isinstance(history, dict) and len(lengths) <= 1 and -1 not in lengths, "history_ is not readable")
    if "transfer_" in state:
        ledger = state["transfer_"]
        check(isinstance(ledger, dict) and {"task", *TRANSFER} <= ledger.keys(), "transfer_ is not readable")
        rows = np.shape(ledger["task"])
        check(len(rows) == 1, "transfer_ is not readable")
        for name in TRANSFER:
            column = ledger[name]
            good = isinstance(column, np.ndarray) and column.dtype.kind == "f" and column.shape == rows
            check(good, f"{name} of transfer_ is not readable")


def check_training(model: Any) -> None:
    """The training data belong to the model: ``return_std`` reads them."""
    data, W, b, A = model._training
    problem = data.problem
    T, (n, r) = len(model.tasks_), problem.features.shape
    check(problem.n_tasks == T, f"the training data have {problem.n_tasks} tasks, the model has {T}")
    _check_scale(data.scale, T)
    _numbers("the weights", W, (r, T))
    _numbers("the intercepts", b, (T,))
    check(A.ndim == 2 and A.shape[0] == A.shape[1] and A.shape[0] in (T, r), "the structure has the wrong shape")
    _numbers("the structure", A, A.shape)
    seen = problem.observations
    count = seen.y.size
    for name, top in (("row", n), ("task", T)):
        index = getattr(seen, name)
        check(index.dtype.kind == "i" and index.shape == (count,), "the observations are not readable")
        check(count > 0 and index.min() >= 0 and index.max() < top, f"an observation names {name} {index.max()} of {top}")
    _numbers("the targets", seen.y, (count,))
    _numbers("the weights of the observations", seen.weight, (count,))
    check(bool((seen.weight > 0).all()), "an observation has no weight")
    check(problem.loss.quadratic, "the training data are kept for the squared loss only")
    check(type(problem.fit_intercept) is bool, "nobody knows whether the training data have intercepts")
    features = data.features
    _numbers("the features", entries(features.phi), entries(features.phi).shape)
    if hasattr(features, "U"):
        _numbers("the basis of the features", features.U, (n, r))
        _numbers("the scale of the features", features.inverse_root, (r,))
    elif features.basis is not None:
        _numbers("the basis of the features", features.basis, (features.n_inputs, r))
    inputs = model.n_features_in_ - (model.task_column is not None) if "coef_" in vars(model) else model.X_fit_.shape[0]
    row = np.zeros((1, inputs))
    if "feature_map_" in vars(model):
        check(np.shape(model._kernel(row, row)) == (1, 1), f"kernel={model.kernel!r} gives no number")
    width = np.shape(features.project(row))
    check(width == (1, r), f"the features of a row have the shape {width}, not {(1, r)}")


def check_preprocessor(step: TablePreprocessor) -> None:
    """Names of columns, scales of numbers, levels of words."""
    names, numeric, levels = step.feature_names_in_, step.numeric_, step.levels_
    check(isinstance(names, np.ndarray) and names.ndim == 1 and all(isinstance(n, str) for n in names), "columns have no names")
    check(isinstance(numeric, dict) and isinstance(levels, dict), "the columns of the preprocessing are not readable")
    check(step.n_features_in_ == len(names) == len(set(names.tolist())), "two columns have one name")
    known = [*numeric, *levels, *([step.task_column] if step.task_column is not None else [])]
    check(sorted(known) == sorted(names), "the columns of the preprocessing do not agree with their names")
    for name, scale in numeric.items():
        good = isinstance(scale, tuple) and len(scale) == 3 and all(type(x) is float and np.isfinite(x) for x in scale)
        check(good and scale[2] > 0, f"the scale of column {name!r} is not readable")
    for name, own in levels.items():
        good = isinstance(own, list) and len(own) > 0 and all(level is None or isinstance(level, str) for level in own)
        check(good and len(set(own)) == len(own), f"the levels of column {name!r} are not readable")
