"""What the estimators share: data at the door, features, a certified solve, fitted attributes."""

from __future__ import annotations

import sys
import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
)

from .._component import require
from ..features import LinearFeatures, build_features, kernel_function
from ..losses import Loss, as_loss
from ..problem import Problem
from ..solution import History
from ..solvers import solve
from ..structures import as_structure
from ..tables import code_labels, shown, sorted_labels, split_table
from ..tasks import Observations

Array = np.ndarray


class MultiTaskEstimator(BaseEstimator):
    """Fit, store, predict; subclasses say what targets mean."""

    _parameter_constraints: ClassVar[dict[str, list]] = {
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="left"), None],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        structure=None,
        *,
        kernel="linear",
        alpha=0.01,
        loss="squared",
        ridge=0.0,
        task_weight="equal",
        fit_intercept=True,
        task_column=None,
        gamma=None,
        degree=3,
        coef0=1,
        solver="auto",
        tol=1e-4,
        max_iter=1000,
        time_limit=None,
        warm_start=False,
        verbose=0,
        random_state=None,
    ):
        self.structure = structure
        self.kernel = kernel
        self.alpha = alpha
        self.loss = loss
        self.ridge = ridge
        self.task_weight = task_weight
        self.fit_intercept = fit_intercept
        self.task_column = task_column
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    tasks_: Any
    classes_: Any
    _wide: bool

    # --- fit ----------------------------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None):
        """Learn the tasks and their structure.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Inputs; with ``task_column`` set, one of the columns names the task of each row.
        y : array or data frame of shape (n_samples,) or (n_samples, n_tasks)
            Targets; NaN where a task was not observed.
        sample_weight : array of shape (n_samples,) or (n_samples, n_tasks), optional
            Weights of the observations; 0 is the same as leaving the observation out.

        Returns
        -------
        self
        """
        self._validate_params()
        loss, structure = as_loss(self.loss), as_structure(self.structure)
        inputs, labels = self._inputs(X, reset=True)
        observations = self._observations(inputs, labels, y, sample_weight, loss)
        features = self._build_features(inputs)
        problem = Problem(features.phi, observations, loss, structure, float(self.alpha), float(self.ridge), self.fit_intercept)
        solution = solve(
            problem,
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            start=self._start(features, problem),
            callback=_progress if self.verbose else None,
        )
        self._store(features, inputs, solution)
        if not solution.certificate.optimal:
            warnings.warn(solution.certificate.message, ConvergenceWarning, stacklevel=2)
        return self

    def _inputs(self, X, reset):
        """Inputs as a float matrix, and the task of each row when there is a task column."""
        _check_feature_names(self, X, reset=reset)
        table = split_table(X, self.task_column)
        inputs = check_array(table.X, dtype=np.float64, input_name="X", estimator=self)
        if reset:
            self.n_features_in_ = inputs.shape[1] + (table.labels is not None)
        elif self.task_column is None:
            _check_n_features(self, inputs, reset=False)
        elif inputs.shape[1] + 1 != self.n_features_in_:
            raise ValueError(
                f"X has {inputs.shape[1] + 1} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input (the task column counts)"
            )
        return inputs, table.labels

    def _observations(self, inputs, labels, y, sample_weight, loss):
        """Targets as observations; sets ``tasks_`` and whatever else describes the targets."""
        require(y is not None, "This estimator requires y to be passed, but the target y is None")
        Y = self._targets(y, loss, long=labels is not None)
        check_consistent_length(inputs, Y)
        weights = self._weights(sample_weight, inputs, Y)
        if labels is None:
            row, task = np.nonzero(~np.isnan(Y))
            values = Y[row, task]
            s = None if weights is None else weights[row, task]
        else:
            self.tasks_ = sorted_labels(labels)
            row = np.flatnonzero(~np.isnan(Y[:, 0]))
            task, values = code_labels(labels, self.tasks_)[row], Y[row, 0]
            s = None if weights is None else weights[row, 0]
        self._check_observed(task, values, s, loss)
        return Observations.build(row, task, values, len(self.tasks_), s, self._task_strengths())

    def _weights(self, sample_weight, inputs, Y):
        """Sample weights in the shape of ``Y``; one for each entry is accepted where ``y`` was two-dimensional."""
        if sample_weight is None:
            return None
        weights = np.asarray(sample_weight, dtype=float)
        if weights.ndim == 2 and self._wide:
            require(weights.shape == Y.shape, f"sample_weight of shape {weights.shape} does not match y of shape {Y.shape}")
            require(bool(np.isfinite(weights).all()), "sample_weight holds NaN or infinity")
        else:
            weights = _check_sample_weight(sample_weight, inputs, dtype=np.float64)[:, None]
        require(bool((weights >= 0).all()), f"sample_weight must not be negative, got {weights.min():.3g}")
        require(bool((weights > 0).any()), "all sample weights are zero: nothing to learn from")
        return np.broadcast_to(weights, Y.shape)

    def _check_observed(self, task, y, s, loss):
        """Every task must have something to learn from; the message names the task."""
        require(y.size > 0, "y holds nothing but NaN: no task was observed")
        live = np.ones(y.size, bool) if s is None else s > 0
        seen = np.bincount(task[live], minlength=len(self.tasks_))
        if (seen == 0).any():
            name = self.tasks_[int(np.argmax(seen == 0))]
            raise ValueError(f"task {shown(name)} has no observation (all NaN, or all of weight 0); leave it out")
        if loss.targets == "signs":
            for t, name in enumerate(self.tasks_):
                classes = np.unique(y[live & (task == t)])
                require(
                    classes.size == 2,
                    f"task {shown(name)} has one class only among its observations; a binary task needs both "
                    f"(this is a classifier: fewer than 2 classes, got 1 class)",
                )

    def _task_strengths(self):
        if not isinstance(self.task_weight, dict):
            return self.task_weight
        strangers = [name for name in self.task_weight if name not in self.tasks_.tolist()]
        require(not strangers, f"task_weight names {shown(strangers[0]) if strangers else ''}, which is not a task of the data")
        missing = [name for name in self.tasks_.tolist() if name not in self.task_weight]
        require(not missing, f"task_weight has no entry for task {shown(missing[0]) if missing else ''}")
        return np.array([self.task_weight[name] for name in self.tasks_.tolist()], dtype=float)

    def _build_features(self, inputs):
        return build_features(inputs, self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)

    def _start(self, features, problem):
        """With ``warm_start``, the weights of the last fit, when they still fit the data."""
        if not self.warm_start or not hasattr(self, "certificate_"):
            return None
        linear = isinstance(features, LinearFeatures)
        last = getattr(self, "coef_" if linear else "dual_coef_", None)
        if last is None:
            return None
        last = last.T if linear else last
        fits = last.shape == (features.n_inputs, problem.n_tasks)
        return (features.weights(last), self.intercept_) if fits else None

    def _store(self, features, inputs, solution):
        for stale in ("coef_", "dual_coef_", "X_fit_"):
            self.__dict__.pop(stale, None)
        if isinstance(features, LinearFeatures):
            self.coef_ = np.ascontiguousarray(features.coef(solution.W).T)
        else:
            self.dual_coef_ = features.dual_coef(solution.W)
            self.X_fit_ = inputs
        self.intercept_ = solution.b
        self.structure_ = solution.A
        self.certificate_ = solution.certificate
        self.n_iter_ = solution.n_iter
        self.history_ = solution.history.as_dict()

    # --- predict ------------------------------------------------------------------------------------------------

    def _decision(self, X):
        """Predicted values, ``n x T`` or one for each row of a long table."""
        check_is_fitted(self, "certificate_")
        inputs, labels = self._inputs(X, reset=False)
        if hasattr(self, "coef_"):  # a linear kernel
            values = inputs @ self.coef_.T + self.intercept_
        else:
            k = kernel_function(self.kernel, gamma=self.gamma, degree=self.degree, coef0=self.coef0)
            values = k(inputs, self.X_fit_) @ self.dual_coef_ + self.intercept_
        if labels is None:
            return values
        return values[np.arange(len(values)), self._known_tasks(labels)]

    def _tasks_of_rows(self, X):
        """The task label of each row of a long table; ``None`` for a wide one."""
        return split_table(X, self.task_column).labels

    def _known_tasks(self, labels):
        task = code_labels(labels, self.tasks_)
        if (task < 0).any():
            stranger = labels[int(np.argmax(task < 0))]
            raise ValueError(f"task {shown(stranger)} was not seen in training; the tasks are {self.tasks_.tolist()}")
        return task

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = self.task_column is None
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags


def _progress(history: History) -> None:
    """One line for each tenth iteration, on standard output as scikit-learn does."""
    k = len(history)
    if k <= 3 or k % 10 == 0:
        sys.stdout.write(
            f"iteration {history.iteration[-1]:5d}   objective {history.objective[-1]:.8g}   gap {history.gap[-1]:.2e}   "
            f"{history.seconds[-1]:.2f} s\n"
        )


def loss_of(estimator: MultiTaskEstimator) -> Loss:
    """The loss object that an estimator's ``loss`` stands for."""
    return as_loss(estimator.loss)
