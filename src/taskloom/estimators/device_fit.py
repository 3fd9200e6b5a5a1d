"""Fits on an accelerator: arrays at the door of a device, and fitted attributes that are NumPy's again."""

from __future__ import annotations

import re
import sys
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_feature_names

from .._array_api import card_array, double, library, namespace, on_card, place, plain, to_numpy, usable
from .._component import warn
from ..design import Observations, task_strengths
from ..losses import as_loss
from ..solvers.device import (
    EigenbasisInputs,
    KernelInputs,
    OwnInputs,
    accelerated_kernel,
    is_definite,
    refusal,
    solve_on_device,
)
from ..structures import Structure, as_structure
from ..structures import factored_matrix as factors
from ..structures.factored_matrix import FactoredStructure
from ..tables import as_table, code_labels, column_names, column_position, sorted_labels
from .base import _STALE, MultiTaskEstimator
from .callbacks import show
from .rollback import all_or_nothing
from .target_encoding import TargetScale

Array = np.ndarray
WIDEST = 4000  # features of tasks with inputs of their own
CHUNK = 1 << 28  # entries of a kernel matrix between new and old inputs at a time


class OnDevice(MultiTaskEstimator):
    """``fit`` with ``device=``, or with tensors that lie on a device."""

    device: Any

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        device = getattr(self, "device", None)
        self.__dict__.pop("device_", None)
        if device is None and not on_card(X):
            return super().fit(X, y, sample_weight)
        self._validate_params()
        if device is not None and re.fullmatch(r"cpu|cuda(:\d+)?", device) is None:
            raise ValueError(f'device must be None, "cpu", "cuda" or "cuda:N", got device={device!r}')
        reason = self._refuses(X)
        if reason is not None:
            if device is not None:
                raise ValueError(reason)
            warn(f"X lies on a device, but this is fitted on the CPU: {reason}")
            return super().fit(to_numpy(X), to_numpy(y), to_numpy(sample_weight))
        return self._fit_on_device(X, y, sample_weight, device or place(X))

    fit.__doc__ = MultiTaskEstimator.fit.__doc__

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse &= getattr(self, "device", None) is None
        return tags

    def _refuses(self, X) -> str | None:
        """What of these settings a device cannot do, in a sentence."""
        remedy = "; leave device=None to fit on the CPU"
        if isinstance(self.structure, list) or not isinstance(self.kernel, str) or self._kernel_on_device() is None:
            return f"a device knows the kernels linear, rbf and poly, got kernel={self.kernel!r}{remedy}"
        if self.task_column is not None and self.kernel != "linear":
            return f"a device fits kernels for targets in columns, got task_column={self.task_column!r}{remedy}"
        if self.approximation is not None:
            return f"a device does not approximate kernels: pass the features of a transformer as X{remedy}"
        if issparse(X):
            return "a device takes dense inputs, got a sparse X; pass X.toarray(), or device=None for the CPU"
        if self.standardize_targets:
            return f"a device does not standardize targets: scale y before the fit{remedy}"
        if isinstance(self.loss, dict):
            return f"a device fits one loss for all tasks, got a dict{remedy}"
        return refusal(as_structure(self.structure), as_loss(self.loss), self.ridge, self.solver)

    def _kernel_on_device(self):
        return accelerated_kernel(self.kernel, self.gamma, self.degree, self.coef0) if isinstance(self.kernel, str) else None

    def _fit_on_device(self, X, y, sample_weight, device):
        inputs, labels = self._device_inputs(X, device)
        structure = as_structure(self.structure).bind([])
        data = self._device_data(inputs, labels, y, sample_weight)

        def report(history) -> None:
            if line := show(history):
                sys.stdout.write(line + "\n")

        limits = {"tol": self.tol, "max_iter": self.max_iter, "time_limit": self.time_limit}
        outcome = solve_on_device(data, structure, float(self.alpha), callback=report if self.verbose else None, **limits)
        self._keep(data, structure, outcome)
        if not outcome.certificate.converged:
            warn(outcome.certificate.message, ConvergenceWarning)
        return self

    # --- at the door --------------------------------------------------------------------------------------------

    def _device_inputs(self, X, device):
        """Inputs on the device, and the label of each row (an array there, or on the host) where there is a task column."""
        if library(X) in (None, "numpy"):
            inputs, labels = self._inputs(X, reset=True)
            if issparse(inputs):
                raise ValueError("a device takes dense inputs, got a sparse X; pass X.toarray()")
            return card_array(inputs, device), labels
        X = card_array(X, device)
        xp = namespace(X)
        if X.ndim != 2:
            raise ValueError(f"X must be a matrix, got shape {tuple(X.shape)}")
        X = X if X.dtype in (xp.float32, xp.float64) else double(X)
        if not xp.all(xp.isfinite(X)):
            raise ValueError("Input X contains NaN or infinity")
        _check_feature_names(self, X, reset=True)
        self.n_features_in_ = int(X.shape[1])
        if self.task_column is None:
            return X, None
        at = column_position(X, self.task_column)
        return xp.concat([X[:, :at], X[:, at + 1 :]], axis=1), X[:, at]

    def _device_data(self, inputs, labels, y, sample_weight) -> OwnInputs | EigenbasisInputs | KernelInputs:
        """The problem in one of the shapes that a device solves."""
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None")
        task = None
        if labels is not None:
            self.tasks_, task = _coded(labels)
        Y = self._device_targets(y, labels)
        n, T = int(inputs.shape[0]), len(self.tasks_)
        if Y.shape[0] != n:
            raise ValueError(f"X has {n} rows, but y has {Y.shape[0]}")
        weights = self._weights(to_numpy(sample_weight), np.empty((n, 1)), np.broadcast_to(0.0, Y.shape))
        xp = namespace(inputs)
        complete = labels is None and not bool(namespace(Y).any(namespace(Y).isnan(Y)))
        alike = weights is None or np.ptp(weights, axis=1).max() == 0
        narrow = self.kernel == "linear" and inputs.shape[1] < T  # then the structure is known by its factor
        if complete and alike and (factors.LARGEST_ARRAY if narrow else factors.DENSE_TASKS) >= T:
            s = np.full(n, 1 / n) if weights is None else weights[:, 0] / weights[:, 0].sum()
            c = task_strengths(self._by_task(self.task_weight, "task_weight"), np.full(T, 1.0))
            Y, settings = xp.asarray(Y, device=inputs.device), (s, c, float(self.alpha), self.fit_intercept)
            if self.kernel == "linear" and inputs.shape[1] <= n:
                return EigenbasisInputs(inputs, Y, *settings)
            definite = is_definite(self.kernel, self.gamma, self.degree, self.coef0)
            return KernelInputs(inputs, self._kernel_on_device(), Y, *settings, definite)
        if self.kernel != "linear":
            raise ValueError(
                f"a device fits kernels where all of at most {factors.DENSE_TASKS} tasks are observed in all rows, with one "
                "weight "
                "a row; leave device=None to fit on the CPU"
            )
        if not inputs.shape[1] <= WIDEST:
            raise ValueError(f"a device takes tasks of at most {WIDEST} features, got {inputs.shape[1]}")
        return OwnInputs(inputs, self._seen(to_numpy(Y), task, weights), float(self.alpha), self.fit_intercept)

    def _device_targets(self, y, labels):
        """Targets as ``n x T``, where they are; NaN where unobserved."""
        if library(y) in (None, "numpy") or labels is not None:
            return self._targets(as_table(y), labels)
        self.__dict__.pop("classes_", None)
        y, xp = plain(y), namespace(y)
        if y.ndim not in (1, 2):
            raise ValueError(f"y should be a 1d or 2d array, got shape {tuple(y.shape)}")
        self._wide = y.ndim == 2
        Y = double(y if self._wide else y[:, None])
        if bool(xp.any(xp.isinf(Y))):
            raise ValueError("y holds infinity")
        self.tasks_ = column_names(y, int(Y.shape[1]))
        return Y

    def _seen(self, Y: Array, task: Array | None, weights: Array | None) -> Observations:
        """Observations on the host: one number of each kind for a target is little beside the inputs."""
        if task is None:
            row, task = np.nonzero(~np.isnan(Y))
            y, s = Y[row, task], None if weights is None else weights[row, task]
        elif weights is None and not np.isnan(Y).any():  # every task was read off a row that was observed
            row, y, s = np.arange(len(Y)), Y[:, 0], None
        else:
            row = np.flatnonzero(~np.isnan(Y[:, 0]))
            task, y, s = task[row], Y[row, 0], None if weights is None else weights[row, 0]
        if len(row) < len(Y) or s is not None or Y.shape[1] > 1:
            self._check_observed(task, y, s)
        return Observations.build(row, task, y, len(self.tasks_), s, self._by_task(self.task_weight, "task_weight"))

    # --- what is kept ---------------------------------------------------------------------------------------------

    def _keep(self, data, structure: Structure, outcome) -> None:
        for stale in _STALE:
            self.__dict__.pop(stale, None)
        single, alpha, T = data.X.dtype == namespace(data.X).float32, float(self.alpha), len(self.tasks_)
        self._dtype = np.dtype(np.float32 if single else np.float64)
        if isinstance(data, KernelInputs):
            dual, b, products, pulls = data.fitted(outcome.point)
            A: Any = _of_products(structure, alpha, products)
            if self.kernel == "linear":
                self.coef_ = np.ascontiguousarray(dual.T @ to_numpy(data.X), dtype=self._dtype)
            else:
                self.dual_coef_, self.X_fit_ = dual.astype(self._dtype), to_numpy(data.X)
                self._inner_products = products
            self._pulls = A * pulls / (2 * alpha)
        else:
            W, b, Z = data.fitted(outcome.point)
            A = _of_weights(structure, alpha, W)
            self.coef_ = np.ascontiguousarray(W, dtype=self._dtype)
            many = isinstance(A, FactoredStructure)
            self._pulls = (A, Z.T / (2 * alpha), W.T) if many else A * (Z @ W.T) / (2 * alpha)
        self.intercept_, self.structure_ = b.astype(self._dtype), A.astype(self._dtype)
        self.certificate_, self.history_ = outcome.certificate, outcome.history.as_dict()
        self.n_iter_ = len(outcome.history)
        self._scale, self._learned, self._training = TargetScale.none(T), structure, None
        self.device_ = data.place

    def _responses(self, inputs, some=slice(None)):
        """What the kernel says, computed on the device where there is one."""
        device = getattr(self, "device", None) or getattr(self, "device_", None)
        kernel = self._kernel_on_device()
        if device in (None, "cpu") or kernel is None or issparse(inputs) or not usable(device):
            return super()._responses(inputs, some)
        old, C = (card_array(each.astype(float, copy=False), device) for each in (self.X_fit_, self.dual_coef_[:, some]))
        rows = max(CHUNK // len(self.X_fit_), 1)
        new = [card_array(inputs[i : i + rows].astype(float, copy=False), device) for i in range(0, max(len(inputs), 1), rows)]
        return [np.concatenate([to_numpy(kernel(part, old) @ C) for part in new])]


def _coded(labels) -> tuple[Array, Array]:
    """The tasks in order, and the position of each label among them; on the device where the labels are there."""
    if library(labels) in (None, "numpy"):
        tasks = sorted_labels(labels)
        return tasks, code_labels(labels, tasks)
    tasks, position = namespace(labels).unique_inverse(labels)
    return to_numpy(tasks), to_numpy(position).ravel()


def _of_products(structure: Structure, alpha: float, products: Array) -> Array:
    """The best ``A`` for inner products of the tasks."""
    return structure.best_structure(alpha * products)


def _of_weights(structure: Structure, alpha: float, W: Array) -> Any:
    """The best ``A`` for weights (``T x d``), factored where there are many tasks; only ``d x d`` is decomposed."""
    T, d = W.shape
    if structure.known:
        return factors.diagonal(np.ones(T))
    if d >= T:
        return _of_products(structure, alpha, W @ W.T)
    energy, U = np.linalg.eigh(W.T @ W)
    kept = energy > 1e-14 * max(energy[-1], np.finfo(float).tiny)
    energy, V = energy[kept], W @ (U[:, kept] / np.sqrt(energy[kept]))
    A = factors.by_eigen(structure.f_best(alpha * energy), V, 0.0)  # type: ignore[attr-defined]
    return A if T > factors.DENSE_TASKS else A.to_array()
