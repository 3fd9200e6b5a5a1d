"""Decision values of a fitted model: every task at every row, or the task of each row of a long table."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import check_is_fitted

from ..features import kernel_function
from .approximate_kernel import Approximating
from .model_files.save_load import apart
from .validation import Door

ROWS = 1 << 15  # of a long table that are predicted at a time


class Predicting(Approximating, Door):
    """Weights times features, or duals times a kernel, and the intercepts."""

    intercept_: Any
    dual_coef_: Any
    X_fit_: Any

    def _decision(self, X):
        """Predicted values, ``n x T`` or one for each row of a long table."""
        check_is_fitted(self, "intercept_")
        inputs, labels = self._inputs(X, reset=False)
        return self._values(inputs, None if labels is None else self._known_tasks(labels))

    def _values(self, inputs, task=None):
        """Every task at every row, or the task of each row; -1 stands for the mean of the tasks."""
        if not hasattr(self, "coef_"):
            some = np.empty(0) if task is None else np.unique(task)
            if some.size and some[0] >= 0 and 2 * some.size < len(self.intercept_):  # few of the tasks: not all the others too
                values = sum(self._responses(inputs, some)) + self.intercept_[some]
                return values[np.arange(len(values)), np.searchsorted(some, task)].astype(self._dtype, copy=False)
            values = sum(self._responses(inputs)) + self.intercept_
            if task is not None:
                values = np.column_stack([values, values.mean(axis=1)])[np.arange(len(values)), task]
            return values.astype(self._dtype, copy=False)
        if hasattr(self, "feature_map_"):
            return self._mapped_values(inputs, task)
        return self._linear_values(inputs, task)

    def _linear_values(self, inputs, task):
        if task is None:
            return inputs @ self.coef_.T + self.intercept_
        coef, intercept = self.coef_, self.intercept_
        if (task < 0).any():  # a row more for the mean, which costs a copy of all tasks
            coef, intercept = np.vstack([coef, coef.mean(axis=0)]), np.append(intercept, intercept.mean())
        if issparse(inputs):  # the entries that are there, each with the coefficient of its row's task
            row = np.repeat(np.arange(len(task)), np.diff(inputs.indptr))
            dots = np.bincount(row, weights=inputs.data * coef[task[row], inputs.indices], minlength=len(task))
        else:  # some rows at a time: the coefficients of each row are as many numbers as the inputs
            rows = [slice(i, i + ROWS) for i in range(0, max(len(task), 1), ROWS)]
            dots = np.concatenate([np.einsum("ij,ij->i", inputs[some], coef[task[some]]) for some in rows])
        return dots + intercept[task]

    def _responses(self, inputs, some=slice(None)):
        """What each kernel adds to the prediction of some tasks (intercepts aside)."""
        K, C = self._cross(inputs), self.dual_coef_
        return [k @ c[:, some] for k, c in zip(K, C, strict=True)] if isinstance(C, list) else [K @ C[:, some]]

    def predict_addends(self, X: Any) -> list[np.ndarray]:
        """With ``kernel=[k1, k2, ...]``, what each kernel adds to the prediction; they add up to it, less the intercepts.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.

        Returns
        -------
        list of ndarray
            For each kernel ``(n_samples, n_tasks)``, or ``(n_samples,)`` for a long table.
        """
        check_is_fitted(self, "intercept_")
        if not isinstance(self.kernel, (list, tuple)):
            raise ValueError(f"predict_addends needs a list of kernels, got kernel={self.kernel!r}")
        inputs, labels = self._inputs(X, reset=False)
        parts = self._responses(inputs)
        if labels is None:
            return parts
        task = self._known_tasks(labels)
        return [np.column_stack([part, part.mean(axis=1)])[np.arange(len(part)), task] for part in parts]

    def _kernel(self, X, Z):
        """The kernel between two sets of inputs, in double precision; a list of them for a list of kernels."""
        X, Z = double(X), double(Z)
        parameters = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        if isinstance(self.kernel, (list, tuple)):
            return [kernel_function(k, **parameters)(X, Z) for k in self.kernel]
        return kernel_function(self.kernel, **parameters)(X, Z)

    def _cross(self, inputs):
        """The kernel between inputs and those of the fit."""
        return self._kernel(inputs, apart(self.X_fit_, inputs))


def double(inputs):
    """Inputs in double precision: solutions are certified in it, whatever the precision of the data."""
    return inputs.astype(np.float64, copy=False)
