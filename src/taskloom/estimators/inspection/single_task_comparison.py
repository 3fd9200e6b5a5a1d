"""Comparison of a multi-task model with single-task models, task by task."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import indexable

from ...tables.layout import as_table
from ..base import MultiTaskEstimator
from ..cross_validation.folds_fit import CVData, cross_validate, single_task_candidate
from ..cross_validation.results import Candidate, transfer_table
from ..cross_validation.search import CrossValidated
from ..terms.fit_sum import refuse_sum
from ..validation import as_structures

Array = np.ndarray


def compare_to_single_task(
    model: Any, X: Any, y: Any, *, sample_weight: Any = None, cv: Any = None, groups: Any = None, n_jobs: int | None = None
) -> dict[str, Array]:
    """Cross-validated score of each task under single-task and multi-task learning.

    The single-task models have the same kernel and loss, and the alpha with the best cross-validated score. The multi-task
    model is the given one with its ``alpha``; a cross-validated one searches.

    Parameters
    ----------
    model : estimator
        A multi-task estimator, fitted or not.
    X : array, sparse matrix or data frame of shape (n_samples, n_features)
        Inputs, as for its ``fit``.
    y : array-like or data frame of shape (n_samples,) or (n_samples, n_tasks)
        Targets, as for its ``fit``.
    sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
        Weights of the observations.
    cv : int, splitter or iterable of splits, default=None
        As in :class:`MultiTaskRegressorCV`.
    groups : array-like of shape (n_samples,), default=None
        For splitters that keep groups together, such as ``GroupKFold``.
    n_jobs : int, default=None
        Folds that run at the same time, in threads.

    Returns
    -------
    dict of arrays
        ``task``, the scores ``alone`` (single-task) and ``together`` (multi-task), the ``gain`` and its ``standard_error`` over
        the folds.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import MultiTaskRegressor, compare_to_single_task
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 8))
    >>> Y = X @ rng.normal(size=(8, 1)) @ np.ones((1, 5)) + rng.normal(size=(30, 5))
    >>> comparison = compare_to_single_task(MultiTaskRegressor(alpha=0.1), X, Y)
    >>> bool(comparison["gain"].mean() > 0)
    True
    """
    if not isinstance(model, MultiTaskEstimator):
        raise ValueError(
            f"compare_to_single_task needs a taskloom estimator, got {type(model).__name__}; of a pipeline, give pipe[-1], "
            "and for X what pipe[:-1].transform(X) gives"
        )
    if not isinstance(model, CrossValidated) or model.terms is not None:
        refuse_sum(model, "compare_to_single_task")
    if isinstance(model, CrossValidated):
        search = clone(model).set_params(fallback=None, n_jobs=n_jobs, **({} if cv is None else {"cv": cv}))
        found = getattr(search.fit(X, y, sample_weight, groups), "transfer_", None)
        if found is None:
            raise ValueError("single-task models are not possible: a task, or its part of a fold, has one class only")
        return {name: column for name, column in found.items() if name != "model"}
    X, y = indexable(as_table(X), as_table(y))
    cv_data = CVData(clone(model), X, y, sample_weight, None, cv, groups, n_jobs, model.random_state)
    data = cv_data.estimator._prepare(X, y, sample_weight)
    multi_task = Candidate(as_structures(model.structure, model.kernel), np.array([float(model.alpha)]))
    single_task = single_task_candidate(cv_data.estimator, data)
    done, planned = cross_validate(cv_data, data, [multi_task, single_task])
    if done < planned:
        raise KeyboardInterrupt  # a comparison on some of the folds would mislead
    tasks = [0] if data.targets.one_vs_rest else data.targets.tasks_.tolist()
    return transfer_table(single_task, multi_task, tasks)
