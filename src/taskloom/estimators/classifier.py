"""Classification on many tasks at once: binary tasks, or the classes of one target."""

from __future__ import annotations

import numpy as np
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from .._component import require
from ..losses import Logistic
from ..metrics import macro_accuracy, observed
from ..tables import align_targets, column_names, shown
from .base import MultiTaskEstimator, loss_of


def _is_logistic(estimator) -> bool:
    if not isinstance(loss_of(estimator), Logistic):
        raise AttributeError(f"predict_proba needs loss='logistic', got loss={estimator.loss!r}")
    return True


class MultiTaskClassifier(ClassifierMixin, MultiTaskEstimator):
    """Learn many related binary tasks, or the classes of one target, together with the structure that relates them.

    A one-dimensional ``y`` with two classes is one task; with more, each class against the rest is a task. A
    two-dimensional ``Y`` holds one binary task in each column (NaN or None where unobserved). With ``task_column``, ``y`` holds
    one label for each row.

    Parameters
    ----------
    structure, kernel, alpha, ridge, task_weight, fit_intercept, task_column, gamma, degree, coef0, solver, tol, max_iter, \
time_limit, warm_start, verbose, random_state
        As in :class:`MultiTaskRegressor`.
    loss : Loss or str, default="logistic"
        Also ``"hinge"``, ``"squared_hinge"``, and the losses of numbers, applied to -1 and +1.

    Attributes
    ----------
    classes_ : ndarray, or list of ndarray
        The labels; a list, one array for each task, where the columns of ``Y`` have different ones.
    structure_, coef_, dual_coef_, intercept_, tasks_, certificate_, n_iter_, history_, n_features_in_, feature_names_in_
        As in :class:`MultiTaskRegressor`.
    """

    def __init__(
        self,
        structure=None,
        *,
        kernel="linear",
        alpha=0.01,
        loss="logistic",
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
        super().__init__(
            structure,
            kernel=kernel,
            alpha=alpha,
            loss=loss,
            ridge=ridge,
            task_weight=task_weight,
            fit_intercept=fit_intercept,
            task_column=task_column,
            gamma=gamma,
            degree=degree,
            coef0=coef0,
            solver=solver,
            tol=tol,
            max_iter=max_iter,
            time_limit=time_limit,
            warm_start=warm_start,
            verbose=verbose,
            random_state=random_state,
        )

    def _targets(self, y, loss, long):
        """``Y`` as -1/+1 with NaN where unobserved; sets ``classes_`` and, for wide tables, ``tasks_``."""
        labels = np.asarray(y)
        if labels.ndim == 2 and (labels.shape[1] == 1 or long):
            labels = column_or_1d(check_array(y, ensure_2d=False, dtype=None, ensure_all_finite="allow-nan"), warn=True)
        require(labels.ndim in (1, 2), f"y should be a 1d or 2d array, got shape {labels.shape}")
        if labels.dtype.kind == "f":
            check_array(labels, ensure_2d=False, ensure_all_finite="allow-nan", input_name="y")
        self._wide = labels.ndim == 2
        self._one_vs_rest = False
        if self._wide:
            coded = [self._signs(labels[:, t], column_names(y, labels.shape[1])[t]) for t in range(labels.shape[1])]
            self.classes_ = [classes for classes, _ in coded]
            if all(np.array_equal(classes, self.classes_[0]) for classes in self.classes_):
                self.classes_ = self.classes_[0]
            self.tasks_ = column_names(y, labels.shape[1])
            return np.column_stack([signs for _, signs in coded])
        seen = observed(labels)
        require(bool(seen.any()), "y holds nothing but missing labels (NaN)")
        self.classes_ = _classes(labels[seen])
        if long or self.classes_.size <= 2:
            self.classes_, signs = self._signs(labels, "y" if long else 0)
            self.tasks_ = None if long else np.array([0])
            return signs[:, None]
        self._one_vs_rest = True
        self.tasks_ = self.classes_
        signs = np.where(labels[:, None] == self.classes_[None, :], 1.0, -1.0)
        signs[~seen] = np.nan
        return signs

    def _signs(self, labels, name):
        """The two classes of a task, and its labels as -1/+1."""
        seen = observed(labels)
        require(bool(seen.any()), f"task {shown(name)} has no observation: its labels are all missing (NaN)")
        classes = _classes(labels[seen])
        require(
            classes.size == 2,
            f"task {shown(name)} needs exactly 2 classes, got {classes.size} class{'es' if classes.size > 1 else ''}: "
            f"{classes[:5].tolist()}",
        )
        signs = np.full(len(labels), np.nan)
        signs[seen] = np.where(labels[seen] == classes[1], 1.0, -1.0)
        return classes, signs

    def decision_function(self, X):
        """Decision values: ``(n, n_tasks)``, or ``(n,)`` for one binary task or a long table."""
        values = self._decision(X)
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 and not self._wide else values

    def predict(self, X):
        """Labels: ``(n, n_tasks)`` for a two-dimensional ``Y``, else ``(n,)``."""
        values = self.decision_function(X)
        if self._one_vs_rest:
            return self.classes_[np.argmax(values, axis=1)]
        if not self._wide:
            return self.classes_[(values > 0).astype(int)]
        second = (values > 0).astype(int)
        if isinstance(self.classes_, np.ndarray):
            return self.classes_[second]
        columns = [classes[second[:, t]] for t, classes in enumerate(self.classes_)]
        if len({column.dtype.kind for column in columns}) > 1:  # numbers beside words stay what they are
            columns = [column.astype(object) for column in columns]
        return np.column_stack(columns)

    @available_if(_is_logistic)
    def predict_proba(self, X):
        """Probabilities (logistic loss): ``(n, n_classes)`` for one target, ``(n, n_tasks)`` of the second class for many.

        The classes of one target are learned each against the rest; their probabilities are scaled to add up to 1.
        """
        p = expit(self.decision_function(X))
        if self._wide:
            return p
        if not self._one_vs_rest:
            return np.column_stack([1 - p, p])
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1 / p.shape[1])

    def score(self, X, y, sample_weight=None):
        """The mean over tasks of the accuracy; missing labels are left out."""
        predicted = self.predict(X)
        y = y if self.task_column is not None or not self._wide else align_targets(y, self.tasks_)
        return macro_accuracy(np.asarray(y).reshape(predicted.shape), predicted, self._tasks_of_rows(X), sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.task_column is None
        tags.classifier_tags.multi_label = self.task_column is None
        return tags


def _classes(labels):
    """The distinct labels, in order; objects such as a frame's mixed columns are read as what they are."""
    labels = np.array(labels.tolist()) if labels.dtype.kind == "O" else labels
    check_classification_targets(labels)
    return np.unique(labels)
