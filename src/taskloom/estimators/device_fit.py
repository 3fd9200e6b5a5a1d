"""Fits on an accelerator: validation of arrays on a device, and a fitted state of NumPy arrays."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning

from .._array_api import card_array, double, eigh, library, like, namespace, place, plain, to_numpy
from .._component import warn
from .._time_limit import time_limit as limited_time
from ..design import task_strengths
from ..engines.local import WeightSpectrum
from ..losses import Squared, as_loss
from ..problem.solution import Certificate, History
from ..solvers.device import EigenbasisInputs, KernelInputs, OwnInputs, TaskRows, is_definite
from ..solvers.engine_run import RemoteFactored, solve_remote
from ..structures import Structure, as_structure
from ..structures import factored_matrix as factors
from ..tables.layout import code_labels, column_names, column_position, sorted_labels
from .callbacks import Watch, show
from .coefficient_rounding import single_or_double
from .decision import on_device
from .fitted import FittedState, Kernel
from .target_encoding import TargetScale
from .validation import (
    InputColumns,
    TargetInfo,
    check_observed,
    described,
    entries_by_task,
    read_targets,
    training_inputs,
    training_weights,
)

Array = np.ndarray
WIDEST = 4000  # features of tasks with inputs of their own
Data = OwnInputs | EigenbasisInputs | KernelInputs


def device_for(model: Any, X: Any) -> str | None:
    """The device of a fit with ``device=`` or with inputs on a device; ``None`` for the host, with a warning that says why."""
    device = model.device
    model._validate_params()
    if device is not None and re.fullmatch(r"cpu|cuda(:\d+)?", device) is None:
        raise ValueError(f'device must be None, "cpu", "cuda" or "cuda:N", got device={device!r}')
    reason = _refusal(model, X)
    if reason is None:
        return device or place(X)
    if device is not None:
        raise ValueError(reason)
    warn(f"X lies on a device, but this is fitted on the CPU: {reason}")
    return None


def _refusal(model: Any, X: Any) -> str | None:
    """Why a device cannot fit these settings, as a sentence; ``None`` if it can."""
    remedy = "; leave device=None to fit on the CPU"
    if isinstance(model.structure, list) or not isinstance(model.kernel, str) or on_device(model._kernel()) is None:
        return f"a device knows the kernels linear, rbf and poly, got kernel={model.kernel!r}{remedy}"
    if model.task_column is not None and model.kernel != "linear":
        return f"a device fits kernels for targets in columns, got task_column={model.task_column!r}{remedy}"
    if model.approximation is not None:
        return f"a device does not approximate kernels: pass the features of a transformer as X{remedy}"
    if issparse(X):
        return "a device takes dense inputs, got a sparse X; pass X.toarray(), or device=None for the CPU"
    if model.standardize_targets:
        return f"a device does not standardize targets: scale y before the fit{remedy}"
    if isinstance(model.loss, dict):
        return f"a device fits one loss for all tasks, got a dict{remedy}"
    if not isinstance(loss := as_loss(model.loss), Squared):
        return f'a device fits the squared loss only, got loss={loss!r}; take loss="squared", or device=None for the CPU'
    structure = as_structure(model.structure)
    if not ((structure.known and structure.either_side) or structure.schatten_power in (1, 2)):
        return f"a device knows the structures Trace(), Frobenius() and Independent(), got structure={structure!r}{remedy}"
    if model.ridge != 0:
        return f"a device takes no ridge, got ridge={model.ridge!r}{remedy}"
    if model.solver not in ("auto", "factored"):
        return f'a device has one solver, got solver={model.solver!r}; take solver="auto", or device=None for the CPU'
    return None


def fit_on_device(model: Any, X: Any, y: Any, sample_weight: Any, device: str, watch: Watch | None = None) -> FittedState:
    """The fitted state of a fit on a device."""
    with limited_time(model.time_limit):
        inputs, labels, columns = _device_inputs(model, X, device)
        kernel = model._kernel(to_numpy(inputs) if isinstance(model.gamma, str) else None)
        problem, targets = _device_problem(model, kernel, inputs, labels, y, sample_weight)

        def state(point: Any, certificate: Certificate | None, history: History) -> FittedState:
            return _fitted(model, kernel, described(columns, targets), problem, point, certificate, history)

        def report(history: History) -> bool | None:
            if model.verbose and (line := show(history)):
                sys.stdout.write(line + "\n")
            return watch is not None and watch.part("iteration").end(lambda: {"_state": state(history.best(), None, history)})

        coef = _start(model, problem) if model.warm_start else None
        start = None if coef is None else WeightSpectrum.of(problem.to_inner(coef))
        settings = {name: getattr(model, name) for name in ("tol", "max_iter", "time_limit")}
        callback = report if model.verbose or watch is not None else None
        name = "Newton's method on the factor"
        found = solve_remote(problem, RemoteFactored(), start=start, callback=callback, name=name, **settings)
    if not found.certificate.converged and found.certificate.status != "callback":
        warn(found.certificate.message, ConvergenceWarning)
    return state(found.point, found.certificate, found.history)


def _start(model: Any, problem: Data) -> Array | None:
    """The coefficients of the last fit for ``warm_start``, if their shape is that of the data."""
    last, (n, d), kernel = vars(model).get("_state"), problem.X.shape, isinstance(problem, KernelInputs)
    coef = None if last is None else last.dual_coef_ if kernel else last.coef_
    shape = (n, problem.n_tasks) if kernel else (problem.n_tasks, d)
    return coef if coef is not None and coef.shape == shape and np.any(coef) else None


# --- validation --------------------------------------------------------------------------------------------------------


def _device_inputs(model: Any, X: Any, device: str) -> tuple[Any, Any, InputColumns]:
    """Inputs on the device, and the label of each row (an array there, or on the host) where there is a task column."""
    numbers = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind == "f" and device != "cpu"
    if library(X) in (None, "numpy") and not numbers:
        inputs, labels, columns = training_inputs(model, X)
        if issparse(inputs):
            raise ValueError("a device takes dense inputs, got a sparse X; pass X.toarray()")
        return card_array(inputs, device), labels, columns
    X = card_array(X, device)
    xp = namespace(X)
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix, got shape {tuple(X.shape)}")
    X = X if X.dtype in (xp.float32, xp.float64) else double(X)
    if not xp.all(xp.isfinite(X)):
        raise ValueError("Input X contains NaN or infinity")
    columns = InputColumns(n_features_in_=int(X.shape[1]))
    if model.task_column is None:
        return X, None, columns
    at = column_position(X, model.task_column)
    return xp.concat([X[:, :at], X[:, at + 1 :]], axis=1), X[:, at], columns


def _device_problem(
    model: Any, kernel: Kernel, inputs: Any, labels: Any, y: Any, sample_weight: Any
) -> tuple[Data, TargetInfo]:
    """The problem in one of the shapes that a device solves."""
    Y, targets, task = _device_targets(model, y, labels, inputs)
    n, T = int(inputs.shape[0]), len(targets.tasks_)
    if Y.shape[0] != n:
        raise ValueError(f"X has {n} rows, but y has {Y.shape[0]}")
    weights = training_weights(sample_weight, y, np.broadcast_to(0.0, Y.shape), targets)
    settings = as_structure(model.structure).bind([]), float(model.alpha), model.fit_intercept
    complete = labels is None and not bool(namespace(Y).any(namespace(Y).isnan(Y)))
    alike = weights is None or np.ptp(weights, axis=1).max() == 0
    linear = model.kernel == "linear"
    narrow = linear and inputs.shape[1] < T  # then the structure is known by its factor
    if complete and alike and (factors.LARGEST_ARRAY if narrow else factors.DENSE_TASKS) >= T:
        s = np.full(n, 1 / n) if weights is None else weights[:, 0] / weights[:, 0].sum()
        c = task_strengths(entries_by_task(model.task_weight, targets.tasks_, "task_weight"), np.full(T, 1.0))
        weights_and_settings = (s, c, *settings)
        if linear and inputs.shape[1] <= n:
            return EigenbasisInputs(inputs, Y, *weights_and_settings), targets
        definite = is_definite(kernel.kernel, **kernel.parameters)
        return KernelInputs(inputs, on_device(kernel), Y, *weights_and_settings, definite=definite, linear=linear), targets
    if not linear:
        raise ValueError(
            f"a device fits kernels where all of at most {factors.DENSE_TASKS} tasks are observed in all rows, with one "
            "weight a row; leave device=None to fit on the CPU"
        )
    if not inputs.shape[1] <= WIDEST:
        raise ValueError(f"a device takes tasks of at most {WIDEST} features, got {inputs.shape[1]}")
    strengths = entries_by_task(model.task_weight, targets.tasks_, "task_weight")
    observed = TaskRows.build(Y, task, T, weights, strengths)
    check_observed(targets.tasks_, observed.counts)
    return OwnInputs(inputs, observed, *settings), targets


def _device_targets(model: Any, y: Any, labels: Any, inputs: Any) -> tuple[Any, TargetInfo, Any]:
    """Targets where the inputs are, their description, and the position of the task of each row, if there is a task column.

    Targets are ``n x T``, or ``n x 1`` with a task column; NaN where unobserved.
    """
    tasks, task = (None, None) if labels is None else _coded(labels, inputs)
    if library(y) in (None, "numpy") or library(y) != library(inputs):
        Y, targets = read_targets(model, y, tasks)
        return like(Y, double(inputs[:0, :])), targets, task
    xp = namespace(inputs)
    y = xp.asarray(plain(y), device=inputs.device)
    if y.ndim not in (1, 2) or (tasks is not None and y.ndim == 2 and y.shape[1] != 1):
        raise ValueError(f"y should be a 1d {'' if labels is not None else 'or 2d '}array, got shape {tuple(y.shape)}")
    Y = double(y if y.ndim == 2 else y[:, None])
    if bool(xp.any(xp.isinf(Y))):
        raise ValueError("y holds infinity")
    wide = tasks is None and y.ndim == 2
    return Y, TargetInfo(tasks_=column_names(y, int(Y.shape[1])) if tasks is None else tasks, wide=wide), task


def _coded(labels: Any, inputs: Any) -> tuple[Array, Any]:
    """The tasks in order, and the position of each label among them, where the inputs are."""
    if library(labels) in (None, "numpy"):
        tasks = sorted_labels(labels)
        return tasks, namespace(inputs).asarray(code_labels(labels, tasks), device=inputs.device)
    found, position = namespace(labels).unique_inverse(labels)
    return to_numpy(found), namespace(labels).reshape(position, (-1,))


# --- fitted state -------------------------------------------------------------------------------------------------------


def _fitted(
    model: Any, kernel: Kernel, found: dict[str, Any], data: Data, point: Any, certificate: Certificate | None, history: History
) -> FittedState:
    """The state at a point; ``found`` describes the columns and the targets."""
    dtype = np.dtype(np.float32 if data.X.dtype == data.xp.float32 else np.float64)
    structure, alpha = data.structure, data.alpha
    objective: Callable[[Array, Array], float] = data.objective
    if isinstance(data, KernelInputs):
        coef, b, products, inner = data.fitted(point)
        A: Any = structure.best_structure(alpha * products)
        found = found | {"stored_contributions": A * inner / (2 * alpha)}
        if not data.linear:
            objective = data.objective_of_dual
            found |= {"X_fit_": to_numpy(data.X), "inner_products": products}
    else:
        W, intercepts, Z = data.fitted(point)
        A = _best_structure(structure, alpha, W)
        coef, b = to_numpy(W), to_numpy(intercepts)
        found = found | {"dual": to_numpy(Z).T}
    if certificate is not None and dtype == np.float32:
        dtype, certificate = single_or_double(objective, coef, b, certificate, data.relative, model.tol)
    found["dual_coef_" if "X_fit_" in found else "coef_"] = np.ascontiguousarray(coef, dtype=dtype)
    return FittedState(
        **found,
        scale=TargetScale.none(data.n_tasks),
        kernel=kernel,
        gamma_=kernel.found_gamma,
        alpha=alpha,
        dtype=dtype,
        intercept_=b.astype(dtype),
        structure_=A.astype(dtype),
        learned=structure,
        certificate_=certificate,
        n_iter_=len(history),
        history_=history.as_dict(),
        device_=data.place,
    )


def _best_structure(structure: Structure, alpha: float, W: Any) -> Any:
    """The best ``A`` for weights on a device (``T x d``), factored where there are many tasks; only ``d x d`` is decomposed."""
    T, d = W.shape
    if structure.known:
        return factors.returned(factors.diagonal(np.ones(T)))
    if d >= T:
        return structure.best_structure(alpha * to_numpy(W @ W.T))
    energy, U = eigh(W.T @ W)
    kept = energy > 1e-14 * max(energy[-1], np.finfo(float).tiny)
    energy, V = energy[kept], to_numpy(W @ like(U[:, kept] / np.sqrt(energy[kept]), W))
    A = factors.by_eigen(structure.f_best(alpha * energy), V, 0.0)  # type: ignore[attr-defined]
    return A if T > factors.DENSE_TASKS else A.to_array()
