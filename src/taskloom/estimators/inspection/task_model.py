"""The function of one task as a plain estimator of scikit-learn, for tools that know those alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...losses import Logistic, RowLoss, as_loss
from ...tables.layout import shown
from ..fitted import FittedState


def task_model(model: Any, state: FittedState, name: Any) -> Any:
    """A fitted linear estimator with the total coefficients of a task."""
    from sklearn.linear_model import LinearRegression, LogisticRegression  # slow to import
    from sklearn.svm import LinearSVC

    if state.fitted_terms is not None:
        raise ValueError("task_model needs tasks, and terms= has groupings; coef_frame() has the coefficients of each level")
    if state.coef_ is None or isinstance(state.coef_, list) or state.feature_map_ is not None:
        raise ValueError(f"task_model needs a linear model, got kernel={model.kernel!r} (common={model.common!r})")
    classifies = state.classes_ is not None
    if classifies and isinstance(as_loss(model.loss), RowLoss):
        raise ValueError(f"task_model needs a loss of single outputs, got loss={model.loss!r}, one of all classes at once")
    tasks = state.tasks_.tolist()
    if name not in tasks:
        more = f" and {len(tasks) - 10} more" if len(tasks) > 10 else ""
        raise ValueError(f"no task {shown(name)}; the tasks are {tasks[:10]}{more}")
    t = tasks.index(name)
    coef, intercept = state.coef_[t].astype(float), float(np.broadcast_to(state.intercept_, len(tasks))[t])
    names = state.input_names(model.task_column)
    plain: Any
    if classifies:
        own = state.classes_ if isinstance(state.classes_, np.ndarray) else state.classes_[t]
        plain = LogisticRegression() if isinstance(as_loss(model.loss), Logistic) else LinearSVC()
        plain.classes_ = np.array([False, True]) if state.one_vs_rest else own
        plain.coef_, plain.intercept_ = coef[None].copy(), np.array([intercept])
    else:
        plain = LinearRegression()
        plain.coef_, plain.intercept_ = coef.copy(), intercept
    plain.n_features_in_ = len(coef)
    if state.feature_names_in_ is not None:
        plain.feature_names_in_ = np.asarray(names, dtype=object)
    return plain
