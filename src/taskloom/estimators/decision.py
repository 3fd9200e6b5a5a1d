"""Decision values of a fitted state: every task at every row, or the task of each row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from .._array_api import card_array, to_numpy, usable
from ..features.approximate import mapped, pieces
from ..features.kernels import entries
from ..solvers.device import accelerated_kernel
from .fitted import FittedState

Array = np.ndarray
ROWS = 1 << 15  # of a long table that are predicted at a time
CHUNK = 1 << 28  # entries of a kernel matrix between new and old inputs at a time on a device


def decision_values(state: FittedState, inputs: Any, task: Array | None = None, device: str | None = None) -> Array:
    """Every task at every row, or the task of each row; -1 stands for the mean of the tasks."""
    if state.decision_values is not None:
        return state.decision_values
    if state.coef_ is None:
        return _kernel_values(state, inputs, task, device)
    single = np.result_type(inputs.dtype, state.dtype) == np.float32
    if state.feature_map_ is None and not single:
        return _linear_values(state, inputs, task)

    twin = replace(state, coef_=state.coef_.astype(float))  # a product of mixed precision has no BLAS

    def features(rows: slice) -> Any:
        """In double precision: where inputs are far from zero, products in single precision have no digits left."""
        return inputs[rows].astype(float) if state.feature_map_ is None else mapped(state.feature_map_, inputs[rows])

    parts = [
        _linear_values(twin, features(rows), None if task is None else task[rows])
        for rows in pieces(inputs.shape[0], state.coef_.shape[1])
    ]
    return np.concatenate(parts).astype(state.dtype, copy=False)


def own_task(values: Array, task: Array | None) -> Array:
    """The value of each row's own task; -1 is the mean of the tasks."""
    if task is None:
        return values
    own = values[np.arange(len(values)), task]
    return np.where(task < 0, values.mean(axis=1), own)


def _linear_values(state: FittedState, inputs: Any, task: Array | None) -> Array:
    coef, intercept = state.coef_, state.intercept_
    if task is None:
        return inputs @ coef.T + intercept
    if (task < 0).any():  # a row more for the mean, which costs a copy of all tasks
        coef, intercept = np.vstack([coef, coef.mean(axis=0)]), np.append(intercept, intercept.mean())
    if issparse(inputs):  # the entries that are there, each with the coefficient of its row's task
        row = np.repeat(np.arange(len(task)), np.diff(inputs.indptr))
        dots = np.bincount(row, weights=inputs.data * coef[task[row], inputs.indices], minlength=len(task))
    else:  # some rows at a time: the coefficients of each row are as many numbers as the inputs
        rows = [slice(i, i + ROWS) for i in range(0, max(len(task), 1), ROWS)]
        dots = np.concatenate([np.einsum("ij,ij->i", inputs[some], coef[task[some]]) for some in rows])
    return dots + intercept[task]


def _kernel_values(state: FittedState, inputs: Any, task: Array | None, device: str | None) -> Array:
    some: Any = slice(None)
    if task is not None and (seen := np.unique(task)).size and seen[0] >= 0 and 2 * seen.size < state.n_tasks:
        some, task = seen, np.searchsorted(seen, task)  # few of the tasks: not all the others too
    values = sum(responses(state, inputs, some, device)) + state.intercept_[some]
    return own_task(values, task).astype(state.dtype, copy=False)


def responses(state: FittedState, inputs: Any, some: Any = slice(None), device: str | None = None) -> list[Array]:
    """What each kernel adds to the prediction of some tasks (intercepts aside); on the device where there is one."""
    C = state.dual_coef_
    if isinstance(C, list):
        return [k @ c[:, some] for k, c in zip(cross_kernel(state, inputs), C, strict=True)]
    device = device or state.device_
    kernel = on_device(state.kernel)
    if device is None or device == "cpu" or kernel is None or issparse(inputs) or not usable(device):
        return [cross_kernel(state, inputs) @ C[:, some]]
    old, duals = (card_array(each.astype(float, copy=False), device) for each in (state.X_fit_, C[:, some]))
    rows = max(CHUNK // len(state.X_fit_), 1)
    new = [card_array(inputs[i : i + rows].astype(float, copy=False), device) for i in range(0, max(len(inputs), 1), rows)]
    return [np.concatenate([to_numpy(kernel(part, old) @ duals) for part in new])]


def on_device(kernel: Any) -> Any:
    """The kernel as a device computes it; ``None`` where it does not."""
    return accelerated_kernel(kernel.kernel, **kernel.parameters) if isinstance(kernel.kernel, str) else None


def cross_kernel(state: FittedState, inputs: Any) -> Any:
    """The kernel between inputs and those of the fit, in memory of their own.

    A matrix times itself rounds in another way than times its copy (BLAS, scikit-learn). Predictions must depend on values, not
    on where they lie, or a model from a file would differ in the last bits.
    """
    fitted = state.X_fit_
    return state.kernel(inputs, fitted.copy() if np.may_share_memory(entries(fitted), entries(inputs)) else fitted)
