"""Classification on many tasks with strength and structure chosen by cross-validation."""

from __future__ import annotations

from typing import ClassVar

from .classifier import MultiTaskClassifier
from .cross_validation.search import CrossValidated, searched


class MultiTaskClassifierCV(CrossValidated, MultiTaskClassifier):
    """:class:`MultiTaskClassifier` with the strength, and if asked the structure, chosen by cross-validation.

    Parameters
    ----------
    structure, structures, alphas, cv, scoring, fallback, n_jobs, random_state
        As in :class:`MultiTaskRegressorCV`; the default folds hold every class of every task, and the default score is the mean
        accuracy over tasks.
    kernel, loss, ridge, task_weight, fit_intercept, task_column, unseen, coding, gamma, degree, coef0, \
approximation, n_components, solver, tol, max_iter, time_limit, verbose
        As in :class:`MultiTaskClassifier`.

    Attributes
    ----------
    alpha_, best_structure_, best_score_, best_params_, best_index_, cv_results_, path_, transfer_, fallback_tasks_, n_splits_
        As in :class:`MultiTaskRegressorCV`.
    classes_, structure_, coef_, dual_coef_, intercept_, tasks_, certificate_, n_iter_, history_, n_features_in_, \
feature_names_in_
        As in :class:`MultiTaskClassifier`.
    """

    _parameter_constraints: ClassVar[dict[str, list]] = searched(MultiTaskClassifier)
    _plain_class = MultiTaskClassifier

    def __init__(
        self,
        structure=None,
        *,
        structures=None,
        alphas=30,
        cv=None,
        scoring=None,
        fallback=None,
        n_jobs=None,
        kernel="linear",
        loss="logistic",
        ridge=0.0,
        task_weight="equal",
        fit_intercept=True,
        task_column=None,
        unseen="raise",
        coding="one_vs_rest",
        gamma=None,
        degree=3,
        coef0=1,
        approximation=None,
        n_components=100,
        solver="auto",
        tol=1e-4,
        max_iter=1000,
        time_limit=None,
        verbose=0,
        random_state=None,
    ):
        self._keep(locals())
