"""Classification on many tasks at once: binary tasks, or the classes of one target."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import check_array, column_or_1d
from sklearn.utils._param_validation import StrOptions

from ..losses import Logistic, RowLoss, Softmax, as_loss
from ..metrics import accuracy, observed, per_task
from ..solvers import Solver
from ..tables.layout import align_targets, as_table, column_names, shown, sorted_labels
from .base import MultiTaskEstimator
from .parameter_types import KernelParameter, LossLike, StructureParameter, TaskWeight, Unseen
from .target_encoding import check_label_type, distinct, signs_of, two_classes
from .terms.fit_sum import is_sum
from .validation import TargetInfo, available_if, sample_weights


def _has_probabilities(estimator) -> bool:
    if not isinstance(as_loss(estimator.loss), (Logistic, Softmax)):
        raise AttributeError(f"predict_proba needs loss='logistic' or 'softmax', got loss={estimator.loss!r}")
    return True


class MultiTaskClassifier(ClassifierMixin, MultiTaskEstimator):
    """Learn many related binary tasks, or the classes of one target, together with the structure that relates them.

    A one-dimensional ``y`` with two classes is one task; with more, each class against the rest is a task. A
    two-dimensional ``Y`` holds one binary task in each column (NaN or None where unobserved). With ``task_column``, ``y`` holds
    one label for each row.

    Parameters
    ----------
    structure, kernel, alpha, ridge, task_weight, fit_intercept, task_column, common, terms, intercept_scaling, unseen, \
gamma, degree, coef0, approximation, n_components, solver, tol, max_iter, time_limit, warm_start, verbose, random_state
        As in :class:`MultiTaskRegressor`.
    loss : Loss or str, default="logistic"
        Also ``"hinge"``, ``"squared_hinge"``, and the losses of numbers, applied to -1 and +1. ``"softmax"`` and
        ``"multiclass_hinge"`` compare the classes of one target with each other, one loss a row:
        ``(1/S) sum_i s_i loss(y_i, f(x_i) + b)`` in place of the sum over tasks. They need a one-dimensional ``y`` without a
        task column; every class is a task, of two classes too.
    coding : {"one_vs_rest", "simplex"}, default="one_vs_rest"
        How one target with more than two classes becomes tasks: each class against the rest; or the same with functions that
        add up to zero, which is the simplex code (one dimension fewer, no class is the reference). For the squared loss that
        is least squares on the corners of a simplex. It needs a spectral structure (trace, Frobenius, ...).

    Attributes
    ----------
    classes_ : ndarray, or list of ndarray
        The labels; a list, one array for each task, where the columns of ``Y`` have different ones.
    structure_, coef_, dual_coef_, intercept_, tasks_, certificate_, n_iter_, history_, n_features_in_, feature_names_in_
        As in :class:`MultiTaskRegressor`.

    Notes
    -----
    One object for each thread that fits: ``clone`` it. A fitted model may predict in many threads.
    """

    _parameter_constraints: ClassVar[dict[str, list]] = {
        **MultiTaskEstimator._parameter_constraints,
        "coding": [StrOptions({"one_vs_rest", "simplex"})],
    }

    def __init__(
        self,
        structure: StructureParameter = None,
        *,
        kernel: KernelParameter = "linear",
        alpha: float = 0.01,
        loss: LossLike = "logistic",
        ridge: float = 0.0,
        task_weight: TaskWeight = "equal",
        fit_intercept: bool = True,
        task_column: str | int | None = None,
        common: Any = None,
        terms: Any = None,
        intercept_scaling: float = 1.0,
        unseen: Unseen = "auto",
        coding: Literal["one_vs_rest", "simplex"] = "one_vs_rest",
        gamma: float | Literal["scale", "median"] | None = None,
        degree: float = 3,
        coef0: float = 1,
        approximation: Any = None,
        n_components: float | Literal["auto"] = 100,
        solver: str | Solver = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        time_limit: float | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        random_state: Any = None,
    ):
        self._keep(locals())

    # --- targets ------------------------------------------------------------------------------------------------

    def _targets(self, y, labels):
        """``Y`` as -1/+1 with NaN where unobserved."""
        if isinstance(self.loss, dict):
            raise ValueError("a classifier has one loss; losses by task are for MultiTaskRegressor")
        raw, long = np.asarray(y), labels is not None
        if raw.ndim == 2 and (raw.shape[1] == 1 or long):
            raw = column_or_1d(check_array(y, ensure_2d=False, dtype=None, ensure_all_finite="allow-nan"), warn=True)
        if raw.ndim not in (1, 2):
            raise ValueError(f"y should be a 1d or 2d array, got shape {raw.shape}")
        if raw.dtype.kind == "f":
            check_array(raw, ensure_2d=False, ensure_all_finite="allow-nan", input_name="y")
        wide = raw.ndim == 2
        whole_rows = isinstance(as_loss(self.loss), RowLoss)
        if whole_rows and (long or wide):
            raise ValueError(
                f"loss={self.loss!r} compares the classes of one target: it needs a one-dimensional y and no task_column, got "
                f"{'a task column' if long else f'y of shape {raw.shape}'}"
            )
        if wide:
            tasks = column_names(y, raw.shape[1])
            both = distinct(raw[observed(raw)]) if is_sum(self) else raw[:0]
            if len(both) == 2:  # intercepts are shrunk: one class is enough, where the other tasks say what the second is
                coded = [(both, signs_of(raw[:, t], both)) for t in range(len(tasks))]
            else:
                coded = [two_classes(raw[:, t], f"task {shown(name)}") for t, name in enumerate(tasks)]
            each = [own for own, _ in coded]
            alike = all(np.array_equal(own, each[0]) for own in each)
            known = TargetInfo(tasks_=tasks, wide=True, classes_=each[0] if alike else each, one_vs_rest=False)
            return np.column_stack([signs for _, signs in coded]), known
        seen = observed(raw)
        if not seen.any():
            raise ValueError("y holds nothing but missing labels (NaN)")
        classes = distinct(raw[seen])
        if whole_rows:
            if classes.size < 2:
                raise ValueError(f"y needs at least 2 classes, got 1 class: {classes.tolist()}")
        elif long or classes.size <= 2:
            whose = "y (a long table has the same two labels for all tasks)" if long else "task 0"
            classes, signs = two_classes(raw, whose)
            tasks = sorted_labels(labels) if long else np.array([0])
            return signs[:, None], TargetInfo(tasks_=tasks, wide=False, classes_=classes, one_vs_rest=False)
        signs = np.where(raw[:, None] == classes[None, :], 1.0, -1.0)
        signs[~seen] = np.nan
        return signs, TargetInfo(tasks_=classes, wide=False, classes_=classes, one_vs_rest=True)

    def _labelled(self, known):
        return np.ones(len(known.tasks_), bool)

    def _targets_of_task(self, state, y, name):
        """A new task has the classes of the others."""
        if state.one_vs_rest:
            raise ValueError("add_task needs binary tasks; here the tasks are the classes of one target")
        own = not isinstance(state.classes_, np.ndarray)
        if state.is_sum and not own:  # intercepts are shrunk: one class is enough, or none
            classes, signs = state.classes_, signs_of(y, state.classes_)
            if (signs == 0).any():
                classes = distinct(y[observed(y)])
        else:
            classes, signs = two_classes(y, f"task {shown(name)}")
        if not (own or np.array_equal(classes, state.classes_)):
            raise ValueError(
                f"task {shown(name)} has the classes {classes.tolist()}, the others have {list(map(shown, state.classes_))}"
            )
        return signs, [*state.classes_, classes] if own else state.classes_

    # --- predict ------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values; the sign says which of two classes, the largest which of many.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.

        Returns
        -------
        ndarray of shape (n_samples, n_tasks)
            Or (n_samples,) for one binary target or a long table.
        """
        values = self._decision(X)
        if self._state.one_vs_rest and values.shape[1] == 2:  # a loss of whole rows: the difference of the two outputs decides
            return values[:, 1] - values[:, 0]
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 and not self._state.wide else values

    def predict(self, X: Any) -> np.ndarray:
        """Predict the label of each row, or of each task at each row.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.

        Returns
        -------
        ndarray of shape (n_samples,)
            Or (n_samples, n_tasks) for a two-dimensional ``Y``.
        """
        return self._respond(self.decision_function(X))

    def _respond(self, values):
        """Decision values as labels."""
        if self._state.one_vs_rest and values.ndim == 2:
            return self.classes_[np.argmax(values, axis=1)]
        if not self._state.wide:
            return self.classes_[(values > 0).astype(int)]
        second = (values > 0).astype(int)
        if isinstance(self.classes_, np.ndarray):
            return self.classes_[second]
        columns = [classes[second[:, t]] for t, classes in enumerate(self.classes_)]
        if len({column.dtype.kind for column in columns}) > 1:  # classes of different types: numbers and strings
            columns = [column.astype(object) for column in columns]
        return np.column_stack(columns)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Predict probabilities (logistic and softmax loss).

        The classes of one target are learned each against the rest; their probabilities are scaled to add up to 1. The softmax
        loss has the probabilities of all classes at once.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Or (n_samples, n_tasks) for a two-dimensional ``Y``: those of the second class of each task.
        """
        if isinstance(as_loss(self.loss), Softmax):
            return softmax(self._decision(X), axis=1)
        p = expit(self.decision_function(X))
        if self._state.wide:
            return p
        if not self._state.one_vs_rest:
            return np.column_stack([1 - p, p])
        total = p.sum(axis=1, keepdims=True)
        return np.where(total > 0, p / np.where(total > 0, total, 1.0), 1 / p.shape[1])

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """The logarithms of ``predict_proba``.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.

        Returns
        -------
        ndarray
            Of the shape of ``predict_proba``.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def score_per_task(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> dict[Any, float]:
        """The accuracy of each task, by name; missing labels are left out. The classes of one target are one task, ``0``.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.
        y : array-like or data frame of shape (n_samples,) or (n_samples, n_tasks)
            Labels; NaN or None where unobserved.
        sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
            Weights of the observations.

        Returns
        -------
        dict
            By task; tasks without any observed label are left out.
        """
        if not self._fitted().one_vs_rest:
            return super().score_per_task(X, y, sample_weight)
        decision = self._decision(X)
        y = as_table(y)
        raw = column_or_1d(np.asarray(y))
        check_label_type(np.isin(raw[observed(raw)], self.classes_), raw, self.classes_)
        weight = None if sample_weight is None else sample_weights(sample_weight, y, raw[:, None])[:, 0]
        return per_task(accuracy, raw, self._respond(decision), None, weight)

    def _coded(self, known, y, labels):
        """Labels as -1 and +1; the classes of one target are not coded here, their accuracy is one number."""
        y = np.asarray(align_targets(y, known.tasks_) if labels is None and known.wide else y)
        if not known.wide:
            signs = signs_of(column_or_1d(y), known.classes_)
            return signs if labels is not None else signs[:, None]
        own = [known.classes_] * y.shape[1] if isinstance(known.classes_, np.ndarray) else known.classes_
        return np.column_stack([signs_of(y[:, t], classes) for t, classes in enumerate(own)])

    score = MultiTaskEstimator.score

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.task_column is None
        tags.classifier_tags.multi_label = self.task_column is None
        with suppress(ValueError, TypeError):  # fit refuses an invalid loss
            if isinstance(as_loss(self.loss), RowLoss):
                tags.target_tags.multi_output = tags.classifier_tags.multi_label = False
        return tags
