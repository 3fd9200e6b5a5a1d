"""A new task beside a common part: its own function, with its shrunk intercept, given the structure and the common part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..add_task import bordered, check_name, given_relation, given_targets, inputs_of_task, no_observation, with_name
from ..fitted import FittedState
from ..state_of_fit import in_precision, tasks_under
from ..target_encoding import TargetScale
from .common_part import CommonPart
from .level_fit import LevelTerm, level_coefficients
from .level_prior import LevelPrior, level_prior
from .sum_deviations import matrix_of

Array = np.ndarray


def add_to_common(model: Any, state: FittedState, X: Any, y: Any, name: Any, sample_weight: Any, relation: Any) -> FittedState:
    """The state with one more task, at the end; the common part and the fitted tasks do not change."""
    check_name(name, state.tasks_)
    part: CommonPart = state.common_part
    inputs = inputs_of_task(model, X).astype(float, copy=False)
    given = given_targets(model, state, inputs, y, name, sample_weight)
    if given.row.size == 0:
        raise ValueError(f"{no_observation(name)}; predict takes unseen tasks, and gives them the common part")
    inputs = inputs[given.row]
    prior, own = _prior(state, relation).completed(part.own, inputs)
    level = LevelTerm(own(inputs), prior)
    v = given.weight * _strength(model, state, given.weight.sum()) / given.weight.sum()
    coef = level_coefficients(model, state.alpha, [level], given.y, v, part.intercept + part.shared(inputs))[0]
    assert part.own_weights is not None
    before = own.same_weights(part.own_weights, part.own)
    new = replace(part, own=own, own_weights=np.column_stack([before, level.weights(coef)]))
    A, matrix = _with_relations(state, new, prior, coef)
    new = replace(new, structure=matrix)
    total = new.coef()
    coef_, intercept = (None, np.full(state.n_tasks + 1, part.intercept)) if total is None else total
    return replace(
        state,
        tasks_=with_name(state.tasks_, name),
        wide=state.wide or model.task_column is None,
        classes_=given.classes,
        common_part=new,
        coef_=None if coef_ is None else in_precision(coef_, state.dtype),
        intercept_=in_precision(intercept, state.dtype),
        structure_=in_precision(A, state.dtype),
        scale=TargetScale.none(state.n_tasks + 1),
        added_tasks_=[*(state.added_tasks_ or []), name],
    )


def _n_of_fit(state: FittedState) -> int:
    return state.n_tasks - len(state.added_tasks_ or [])


def _prior(state: FittedState, relation: Any) -> LevelPrior:
    """Given the tasks of the fit, so that the order of additions does not matter; given all tasks with a ``relation``."""
    part, rho = state.common_part, state.ridge / state.alpha
    if relation is not None:
        if state.learned.on_features:
            raise ValueError(f"relation= needs a structure on the tasks, got {state.learned!r}; leave it out")
        A = np.asarray(state.structure_, dtype=float)
        return level_prior(state.learned, A, False, part.own_weights, rho, given_relation(state, relation))
    n, matrix = _n_of_fit(state), matrix_of(part.structure)
    if matrix is not None and not part.on_features:
        matrix = matrix[:n, :n]
    return level_prior(state.learned, matrix, part.on_features, part.own_weights[:, :n], rho)


def _strength(model: Any, state: FittedState, total: float) -> float:
    """``c_t`` of the new task: in proportion to its size, if that was so in the fit, else 1."""
    if not (isinstance(model.task_weight, str) and model.task_weight == "size"):
        return 1.0
    if state.term_rows is None:
        raise ValueError('add_task with task_weight="size" needs the data of the fit, which this model does not hold; refit it')
    return total * _n_of_fit(state) / float(state.term_rows.sample_weight.sum())


def _with_relations(state: FittedState, part: CommonPart, prior: LevelPrior, coef: Array) -> tuple[Any, Any]:
    """The task matrix with the new task, and the matrix of the own part; its last weights are those of the new task."""
    W = part.own_weights
    assert W is not None
    if state.learned.on_features:
        return tasks_under(state.learned, W, part.structure), part.structure
    if prior.levels is not None:
        beta = prior.of_levels(coef, state.n_tasks)
    else:  # D is a function of the fitted weights, whose span it has
        beta = np.pad(np.linalg.lstsq(W[:, : _n_of_fit(state)], W[:, -1], rcond=None)[0], (0, len(state.added_tasks_ or [])))
    on_tasks = matrix_of(part.structure) is not None and not part.on_features
    A = bordered(state.structure_, beta, prior.own_variance)
    return A, bordered(part.structure, beta, prior.own_variance) if on_tasks else part.structure
