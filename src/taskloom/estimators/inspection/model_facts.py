"""Facts of a fitted model for plots, reports and the command line, besides its public attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from ...structures import Structure
from ...tables.layout import as_table, split_table
from ..validation import position_of_tasks

Array = np.ndarray


def one_target(model: Any) -> bool:
    """Whether the tasks are the classes of one target."""
    return bool(model._state.one_vs_rest)


def chosen_structure(model: Any) -> Structure:
    """The structure of the fit, or the one that a search chose."""
    return getattr(model, "best_structure_", None) or model._state.learned


def chosen_alpha(model: Any) -> float:
    """The alpha of the fit, or the one that a search chose."""
    return float(model._state.alpha)


def labelled_tasks(model: Any) -> Array:
    """Which tasks have two labels."""
    return model._labelled(model._state)


def observed_targets(model: Any, X: Any, y: Any) -> tuple[Array, Array]:
    """The task and the target of every observation, labels as -1 and +1; the classes of one target are a task each."""
    state, labels = model._state, split_table(X, model.task_column).labels
    check_consistent_length(as_table(X), as_table(y))
    if state.one_vs_rest:
        raw = np.asarray(as_table(y)).ravel()
        Y = np.where(raw[:, None] == np.asarray(state.classes_)[None, :], 1.0, -1.0)
    else:
        Y = np.asarray(model._coded(state, as_table(y), labels), dtype=float)
    seen = ~np.isnan(Y)
    task = np.nonzero(seen)[1] if labels is None else position_of_tasks(state, labels[seen], model.unseen)
    return task, Y[seen]
