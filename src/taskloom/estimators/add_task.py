"""Adding a task to a fitted model: the learned structure is kept, one small system is solved (docs/estimators.md derives it).

The function of the new task is a combination of the fitted ones plus a task-specific part, ``f = sum_t beta_t f_t + e``. Its
row of the structure has the covariances ``A beta`` and the variance ``beta'A beta + own``. The fitted tasks do not change. The
new one minimises

    sum_i v_i loss(y_i, f(x_i) + b) + alpha <f - f0, D^+ (f - f0)> + ridge ||f||^2,       D = W M M'W' + own I

with the conditional mean ``f0 = sum_t beta0_t f_t``. The structure defines ``beta0``, ``M`` and ``own``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.sparse import vstack as sparse_vstack
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_consistent_length

from .._component import warn
from .._linalg import psd_eigh
from ..design import Observations
from ..features.kernels import KernelFeatures
from ..losses import Loss, as_loss
from ..losses.offset import Shifted
from ..problem import Problem
from ..solvers import solve
from ..structures import Independent
from ..structures.factored_matrix import FactoredStructure
from ..tables.layout import as_table, shown
from .approximate_kernel import map_rows
from .decision import decision_values
from .fitted import FittedState, with_state
from .new_task_prior import NewTaskPrior, new_task_prior
from .state_of_fit import tasks_under
from .target_encoding import TargetScale, objects
from .validation import InputColumns, entries_by_task, new_inputs, sample_weights

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class NewTask:
    """A new task: inputs and observations in the units of the fit, and its loss."""

    model: Any  # whose settings it has
    inputs: Any
    seen: Observations
    loss: Loss
    scale: TargetScale  # of its targets, which the observations are without


def add_task(model: Any, state: FittedState, X: Any, y: Any, name: Any, sample_weight: Any, relation: Any) -> FittedState:
    """The state with one more task, at the end; the fitted tasks do not change."""
    if state.kernel.several:
        raise ValueError("add_task needs one kernel; with a list of them, fit again")
    check_name(name, state.tasks_)
    inputs = inputs_of_task(model, X)
    given = given_targets(model, state, inputs, y, name, sample_weight)
    if given.row.size == 0:
        raise ValueError(no_observation(name))
    seen = Observations.build(given.row, np.zeros(given.row.size, int), given.y, 1, given.weight)
    loss, scale = as_loss(model.loss), TargetScale.none(1)
    if getattr(model, "standardize_targets", False) and loss.of_differences:
        scale = TargetScale.of(seen, [loss])
        seen = scale.apply(seen)
    new = NewTask(model, inputs, seen, loss, scale)
    b, found = (
        _under_feature_structure(state, new) if state.learned.on_features else _under_task_structure(state, new, relation)
    )
    return replace(
        state,
        tasks_=with_name(state.tasks_, name),
        wide=state.wide or model.task_column is None,  # predictions of two tasks have two columns
        classes_=given.classes,
        intercept_=np.append(state.intercept_, b * scale.std + scale.mean).astype(state.dtype),
        scale=TargetScale(np.append(state.scale.mean, scale.mean), np.append(state.scale.std, scale.std)),
        added_tasks_=[*(state.added_tasks_ or []), name],
        **found,
    )


class GivenTargets(NamedTuple):
    """The targets of a new task that are observed, with a positive weight."""

    row: Array
    y: Array
    weight: Array
    classes: Any  # of all tasks


def given_targets(model: Any, state: FittedState, X: Any, y: Any, name: Any, sample_weight: Any) -> GivenTargets:
    """The targets of a new task as numbers."""
    given = np.asarray(as_table(y))
    y = given.ravel()
    check_consistent_length(X, y)
    weight = np.ones(len(y)) if sample_weight is None else sample_weights(sample_weight, given, y[:, None])[:, 0]
    values, classes = model._targets_of_task(state, y, name)
    row = np.flatnonzero(~np.isnan(values) & (weight > 0))
    return GivenTargets(row, values[row], weight[row], classes)


def check_name(name: Any, names: Array, what: str = "task") -> None:
    """Raise unless this is the name of a new task."""
    if not isinstance(name, Hashable):
        raise ValueError(f"a {what} is named by a label, got {type(name).__name__}; call add_task(X, y, name)")
    if name in names.tolist():
        raise ValueError(f"there is a {what} {shown(name)} already; choose another name")


def no_observation(name: Any) -> str:
    """The message for a task without data."""
    return f"task {shown(name)} has no observation (all NaN, or all of weight 0)"


def with_name(names: Array, name: Any) -> Array:
    """Labels with one more at the end."""
    longer = [*names.tolist(), name]
    same = np.array(longer)
    return same if same.dtype.kind == names.dtype.kind else objects(longer)


def inputs_of_task(model: Any, X: Any) -> Any:
    """Inputs without the task column, whether or not they came with one."""
    X = as_table(X)
    if model.task_column is not None and np.shape(X)[1] != model.n_features_in_:
        names = getattr(model, "feature_names_in_", None)
        if names is not None:
            columns = InputColumns(n_features_in_=model.n_features_in_, feature_names_in_=names)
            names = np.array(columns.input_names(model.task_column), dtype=names.dtype)
        model = with_state(model, InputColumns(n_features_in_=model.n_features_in_ - 1, feature_names_in_=names))
        model.task_column = None
    return new_inputs(model, X)[0]


def _under_task_structure(state: FittedState, new: NewTask, relation: Any) -> tuple[float, dict[str, Any]]:
    """The intercept of the new task, and the fields of the state that it changes."""
    prior = _prior_of_new_task(state, relation)
    if prior.own_variance != 0 and state.kernel.precomputed:
        raise ValueError(
            'under this structure add_task needs the kernel between the new inputs, which kernel="precomputed" does not '
            "give; pass a kernel function"
        )
    functions = (decision_values(state, new.inputs) - state.intercept_).astype(float) / state.scale.std  # of the fitted tasks
    inputs = new.inputs if state.feature_map_ is None else map_rows(state.feature_map_, new.inputs)
    beta, own, b = _fit_new_task(state, inputs, functions, new, prior)
    old = beta / state.scale.std  # coefficients of the fitted functions in their own units
    if state.coef_ is not None:
        row = np.asarray((old @ state.coef_ + own @ inputs) * new.scale.std)
        found: dict[str, Any] = {"coef_": np.vstack([state.coef_, row.reshape(1, -1)]).astype(state.dtype)}
    else:  # a column for the new task, and rows for its inputs if it has a task-specific part
        C = np.column_stack([state.dual_coef_, state.dual_coef_ @ old * new.scale.std])
        X, products, corner, cross = state.X_fit_, state.inner_products, 0.0, own @ functions
        if np.any(own):
            if isinstance(products, FactoredStructure):
                raise ValueError("a task with a task-specific part cannot be added to so many tasks of a kernel; fit again")
            corner = float(2 * cross @ beta + own @ state.kernel(inputs, inputs) @ own)
            C = np.vstack([C, np.zeros((len(own), C.shape[1]))])
            C[-len(own) :, -1] = own * new.scale.std
            X = (sparse_vstack if issparse(inputs) else np.vstack)([X, inputs])
        found = {"dual_coef_": C.astype(state.dtype), "X_fit_": X, "inner_products": bordered(products, beta, corner, cross)}
    A = bordered(state.structure_.astype(float, copy=False), beta, prior.own_variance).astype(state.dtype)
    return b, found | {"structure_": A, "new_task_prior": prior if relation is None else state.new_task_prior}


def _under_feature_structure(state: FittedState, new: NewTask) -> tuple[float, dict[str, Any]]:
    """Under a structure on the features the new task has the same ``D`` and is otherwise independent of the others."""
    D = state.feature_structure_.astype(float)
    d, V = psd_eigh(D)
    root = V * np.sqrt(d / (1 + state.ridge / state.alpha * d))
    W, b = _solve_task(state, np.asarray(new.inputs @ root), new, new.seen, new.loss)
    weights = root @ W[:, 0]
    A = tasks_under(state.learned, np.vstack([state.weights, weights]).T, D)
    coef = np.vstack([state.coef_, weights * new.scale.std])
    return b, {"coef_": coef.astype(state.dtype), "structure_": A.astype(state.dtype)}


def given_relation(state: FittedState, relation: Any) -> Array:
    """Covariances with all tasks, in their order."""
    relation = np.asarray(entries_by_task(relation, state.tasks_, "relation"), dtype=float)
    if not (relation.shape == (state.n_tasks,) and bool(np.isfinite(relation).all())):
        raise ValueError(f"relation needs one finite number for each of the {state.n_tasks} tasks, got shape {relation.shape}")
    return relation


def _prior_of_new_task(state: FittedState, relation: Any) -> NewTaskPrior:
    """The prior given the tasks of the fit; tasks added later are left out, so that the order of additions does not matter."""
    n_old, W, products = state.n_tasks, state.weights, state.inner_products
    if relation is not None:
        relation = given_relation(state, relation)
    elif state.new_task_prior is not None:
        return state.new_task_prior.extended(n_old)
    else:
        n_old -= len(state.added_tasks_ or [])
    if isinstance(products, FactoredStructure):
        W = products.L  # weights in an orthonormal basis
    W = None if W is None else W[:n_old]

    def gram() -> Any:
        return W @ W.T if W is not None and products is None else products[:n_old, :n_old]

    prior = new_task_prior(state.learned, state.structure_[:n_old, :n_old].astype(float, copy=False), gram, relation, W)
    return prior.with_ridge(state.ridge / state.alpha, gram).extended(state.n_tasks)


def _fit_new_task(state: FittedState, inputs: Any, functions: Array, new: NewTask, prior: NewTaskPrior) -> tuple:
    """Coefficients of the fitted tasks, of the kernel at the new inputs, and the intercept."""
    shared, offset, seen, loss = functions @ prior.loadings, functions @ prior.mean, new.seen, new.loss
    phi = shared
    if prior.own_variance != 0:
        K = state.kernel(inputs, inputs) if state.feature_map_ is None else inputs @ inputs.T
        features = KernelFeatures(shared @ shared.T + prior.own_variance * K)
        phi = features.phi
    if loss.targets == "signs":
        loss = Shifted(loss, offset[seen.row])
    else:
        seen = replace(seen, y=seen.y - offset[seen.row])
    W, b = _solve_task(state, phi, new, seen, loss)
    if prior.own_variance == 0:
        return prior.mean + prior.loadings @ W[:, 0], np.zeros(len(functions)), b
    dual = features.dual_coef(W)[:, 0]
    return prior.mean + prior.loadings @ (shared.T @ dual), prior.own_variance * dual, b


def _solve_task(state: FittedState, phi: Any, new: NewTask, seen: Observations, loss: Loss) -> tuple[Array, float]:
    """One small system for the squared loss, a certified solve for others."""
    alpha, centred = state.alpha, new.model.fit_intercept
    if not loss.quadratic:
        problem = Problem(phi, seen, loss, Independent(), alpha, 0.0, centred)
        solution = solve(problem, tol=new.model.tol, max_iter=new.model.max_iter)
        if not solution.certificate.optimal:
            warn(solution.certificate.message, ConvergenceWarning)
        return solution.W, solution.b[0]
    rows, share, root = phi[seen.row], seen.weight / seen.weight.sum(), np.sqrt(seen.weight)
    x_mean, y_mean = (share @ rows, share @ seen.y) if centred else (np.zeros(phi.shape[1]), 0.0)
    X, y = root[:, None] * (rows - x_mean), root * (seen.y - y_mean)
    if X.shape[0] < X.shape[1]:
        w = X.T @ np.linalg.solve(X @ X.T + alpha * np.eye(len(X)), y)
    else:
        w = np.linalg.solve(X.T @ X + alpha * np.eye(X.shape[1]), X.T @ y)
    return w[:, None], y_mean - x_mean @ w


def bordered(A: Any, beta: Array, own: float, cross: Any = 0.0) -> Any:
    """``A`` extended by the covariances ``A beta + cross`` and the variance ``beta'A beta + own``."""
    if isinstance(A, FactoredStructure):
        if not np.any(A.own * beta):
            return A.bordered(beta, own)
        A = A.to_array()  # the new task depends on what is a task's own
    edge = A @ beta
    corner = float(beta @ edge) + own
    edge = edge + cross
    return np.block([[A, edge[:, None]], [edge[None, :], np.array([[corner]])]])
