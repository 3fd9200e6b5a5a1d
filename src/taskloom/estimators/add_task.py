"""Adding a task to a fitted model: the learned structure is kept, one small system is solved (docs/estimators.md derives it).

The function of the new task is a combination of the fitted ones plus a task-specific part, ``f = sum_t beta_t f_t + e``. Its
row of the structure has the covariances ``A beta`` and the variance ``beta'A beta + own``. The fitted tasks do not change. The
new one minimises

    sum_i v_i loss(y_i, f(x_i) + b) + alpha <f - f0, D^+ (f - f0)> + ridge ||f||^2,       D = W M M'W' + own I

with the conditional mean ``f0 = sum_t beta0_t f_t``. The structure defines ``beta0``, ``M`` and ``own``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.sparse import vstack as sparse_vstack
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_consistent_length

from .._component import warn
from .._linalg import psd_eigh
from ..design import Observations
from ..equivalences import implied_tasks
from ..features.kernels import KernelFeatures, LinearFeatures
from ..losses import Loss
from ..losses.offset import Shifted
from ..problem import Problem
from ..solvers import solve
from ..structures import Independent, Structure
from ..structures.factored_matrix import FactoredStructure
from ..tables.layout import as_table, shown
from .approximate_kernel import map_rows
from .decision import decision_values
from .fitted import FittedState
from .target_encoding import TargetScale, objects
from .validation import as_matrix, entries_by_task, new_inputs

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class NewTaskPrior:
    """The conditional law of a new task given the fitted ones."""

    mean: Array  # beta0: weights of the fitted tasks in the conditional mean
    loadings: Array  # M, T x q
    own_variance: float  # of the task-specific part

    def extended(self, n_tasks: int) -> NewTaskPrior:
        """The same for more tasks; those that were added have weight zero."""
        more = n_tasks - len(self.mean)
        if more == 0:
            return self
        return NewTaskPrior(np.pad(self.mean, (0, more)), np.pad(self.loadings, ((0, more), (0, 0))), self.own_variance)

    def with_ridge(self, rho: float, gram: Callable[[], Array]) -> NewTaskPrior:
        """With a ridge: ``D`` becomes ``(D^-1 + rho)^-1``, eigenvalue by eigenvalue, and the mean shrinks with it."""
        if rho == 0:
            return self
        e, V = psd_eigh(self.loadings.T @ gram() @ self.loadings)
        own = self.own_variance / (1 + rho * self.own_variance)
        after = (self.own_variance + e) / (1 + rho * (self.own_variance + e)) - own
        stretch = np.sqrt(np.divide(after, e, out=np.zeros_like(e), where=e > 0))
        return NewTaskPrior(self.mean / (1 + rho * self.own_variance), self.loadings @ (V * stretch), own)


def new_task_prior(
    structure: Structure, A: Array, gram: Callable[[], Array], relation: Array | None = None, weights: Array | None = None
) -> NewTaskPrior:
    """The prior of a new task under a fixed structure; ``gram`` returns the inner products of the tasks' functions.

    With ``weights`` (``T x d``) and fewer features than tasks, the decomposition is ``d x d``.
    """
    T = len(A)
    if relation is not None:
        return _prior_given_relation(A, relation)
    given = structure.new_task_conditional(T)
    if given is not None:
        return NewTaskPrior(given[0], np.zeros((T, 0)), given[1])
    if structure.either_side:
        if weights is not None and weights.shape[1] < T:
            d, V = psd_eigh(weights.T @ weights)
            g, V = d, weights @ (V / np.sqrt(np.maximum(d, np.finfo(float).tiny)))
        else:
            g, V = psd_eigh(gram())
        keep = g > 1e-12 * max(g[-1], np.finfo(float).tiny)
        g, V = g[keep], V[:, keep]
        a = np.sum(V * (A @ V), axis=0)  # A and W'W share their eigenvectors at the optimum
        return NewTaskPrior(np.zeros(T), V * np.sqrt(np.maximum(a, 0.0) / g), 0.0)
    a, V = psd_eigh(A)
    keep = a > 1e-10 * max(a[-1], np.finfo(float).tiny)
    root = V[:, keep] / np.sqrt(a[keep])  # W root root' W' = W A^+ W'
    size = float(np.sum(root * (gram() @ root)))
    loadings = root * np.sqrt(a.sum() / size) if size > 0 else root[:, :0]
    own = float(np.mean(1 / np.einsum("tq,tq->t", root, root))) if keep.all() else 0.0
    return NewTaskPrior(np.zeros(T), loadings, own)


def _prior_given_relation(A: Array, relation: Array) -> NewTaskPrior:
    """The conditional law of a Gaussian with covariance ``A`` and given covariances with the new task."""
    a, V = psd_eigh(A)
    keep = a > 1e-10 * max(a[-1], np.finfo(float).tiny)
    beta = V[:, keep] @ ((V[:, keep].T @ relation) / a[keep])
    left = float(np.mean(np.diag(A)) - beta @ A @ beta)
    if not left > 0:
        raise ValueError(
            f"relation is too strong: the others would determine the new task (its conditional variance would be {left:.3g}); "
            "scale relation down"
        )
    return NewTaskPrior(beta, np.zeros((len(A), 0)), left)


@dataclass(frozen=True, eq=False)
class NewTask:
    """A new task: inputs and observations in the units of the fit, loss, and mean and standard deviation of its targets."""

    name: Any
    inputs: Any
    seen: Observations
    loss: Loss
    mean: float
    std: float
    classes: Any  # of all tasks, including this one
    alpha: float
    fit_intercept: bool
    limits: dict[str, Any]  # of a solve


def add_task(model: Any, state: FittedState, X: Any, y: Any, name: Any, sample_weight: Any, relation: Any) -> FittedState:
    """The state with one more task, at the end; the fitted tasks do not change."""
    if state.kernel.several:
        raise ValueError("add_task needs one kernel; with a list of them, fit again")
    if not isinstance(name, Hashable):
        raise ValueError(f"a task is named by a label, got {type(name).__name__}; call add_task(X, y, name)")
    if name in state.tasks_.tolist():
        raise ValueError(f"there is a task {shown(name)} already; choose another name")
    inputs = _inputs_of_task(model, X)
    y = np.asarray(as_table(y)).ravel()
    check_consistent_length(inputs, y)
    weight = None if sample_weight is None else _check_sample_weight(sample_weight, inputs, dtype=np.float64)
    values, loss, (mean, std), classes = model._targets_of_task(state, y, name, weight)
    row = np.flatnonzero(~np.isnan(values))
    if row.size == 0 or not (weight is None or (weight[row] > 0).any()):
        raise ValueError(f"task {shown(name)} has no observation (all NaN, or all of weight 0)")
    weight = None if weight is None else weight[row]
    seen = Observations.build(row, np.zeros(row.size, int), values[row], 1, weight)
    limits = {"tol": model.tol, "max_iter": model.max_iter}
    new = NewTask(name, inputs, seen, loss, mean, std, classes, state.alpha, model.fit_intercept, limits)
    state = _add_under_feature_structure(state, new) if state.learned.on_features else _add(state, new, relation)
    return replace(state, wide=state.wide or model.task_column is None)  # predictions of two tasks have two columns


def _add(state: FittedState, new: NewTask, relation: Any) -> FittedState:
    prior = _prior_of_new_task(state, _relation(state, relation))
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
        row = np.asarray((old @ state.coef_ + own @ inputs) * new.std)
        predictor: dict[str, Any] = {"coef_": np.vstack([state.coef_, row.reshape(1, -1)]).astype(state.dtype)}
    else:
        products = _extended_inner_products(state, inputs, functions, beta, own)
        predictor = _extended_dual(state, inputs, state.dual_coef_ @ old * new.std, own * new.std)
        predictor["inner_products"] = products
    A = _bordered(state.structure_.astype(float, copy=False), beta, prior.own_variance).astype(state.dtype)
    keep = None if relation is not None else prior
    return _appended(state, new, b, structure_=A, new_task_prior=keep or state.new_task_prior, **predictor)


def _add_under_feature_structure(state: FittedState, new: NewTask) -> FittedState:
    """Under a structure on the features the new task has the same ``D`` and is otherwise independent of the others."""
    d = np.diag(state.feature_structure_).astype(float)
    root = np.sqrt(d / (1 + state.ridge / state.alpha * d))
    W, b = _solve_task(np.asarray(new.inputs @ np.diag(root)), new, new.seen, new.loss)
    weights = root * W[:, 0]
    W_all = np.vstack([state.weights, weights])
    coef = np.vstack([state.coef_, weights * new.std]).astype(state.dtype)
    A = implied_tasks(W_all.T, state.feature_structure_.astype(float)).astype(state.dtype)
    return _appended(state, new, b, coef_=coef, structure_=A)


def _appended(state: FittedState, new: NewTask, b: float, **fields: Any) -> FittedState:
    """Append the new task, in the units of its targets."""
    names = [*state.tasks_.tolist(), new.name]
    same = np.array(names)
    return replace(
        state,
        tasks_=same if same.dtype.kind == state.tasks_.dtype.kind else objects(names),
        classes_=new.classes,
        intercept_=np.append(state.intercept_, b * new.std + new.mean).astype(state.dtype),
        scale=TargetScale(np.append(state.scale.mean, new.mean), np.append(state.scale.std, new.std)),
        added_tasks_=[*(state.added_tasks_ or []), new.name],
        **fields,
    )


def _prior_of_new_task(state: FittedState, relation: Array | None) -> NewTaskPrior:
    """The prior given the tasks of the fit; tasks added later are left out, so that the order of additions does not matter."""
    if relation is None and state.new_task_prior is not None:
        return state.new_task_prior.extended(state.n_tasks)
    n_old = state.n_tasks - (0 if relation is not None else len(state.added_tasks_ or []))
    A, W = state.structure_[:n_old, :n_old].astype(float, copy=False), state.weights
    if W is None and isinstance(state.inner_products, FactoredStructure):
        W = state.inner_products.L  # weights in an orthonormal basis
    W = None if W is None else W[:n_old]
    gram = partial(_inner_products_of, state, n_old)
    return (
        new_task_prior(state.learned, A, gram, relation, W).with_ridge(state.ridge / state.alpha, gram).extended(state.n_tasks)
    )


def _relation(state: FittedState, relation: Any) -> Array | None:
    if relation is None:
        return None
    a = np.asarray(entries_by_task(relation, state.tasks_, "relation"), dtype=float)
    if not (a.shape == (state.n_tasks,) and bool(np.isfinite(a).all())):
        raise ValueError(f"relation needs one finite number for each of the {state.n_tasks} tasks, got shape {a.shape}")
    return a


def _inner_products_of(state: FittedState, n_tasks: int) -> Array:
    """Inner products of the functions of the first tasks."""
    W = state.weights
    return state.inner_products[:n_tasks, :n_tasks] if W is None else W[:n_tasks] @ W[:n_tasks].T


def _fit_new_task(
    state: FittedState, inputs: Any, functions: Array, new: NewTask, prior: NewTaskPrior
) -> tuple[Array, Array, float]:
    """Coefficients of the fitted tasks, of the kernel at the new inputs, and the intercept."""
    shared, offset, seen, loss = functions @ prior.loadings, functions @ prior.mean, new.seen, new.loss
    features: LinearFeatures | KernelFeatures
    if prior.own_variance == 0:
        features = LinearFeatures(shared, keep_columns=True)
    else:
        K = state.kernel(inputs, inputs) if state.feature_map_ is None else inputs @ inputs.T
        features = KernelFeatures(shared @ shared.T + prior.own_variance * K)
    if loss.targets == "signs":
        loss = Shifted(loss, offset[seen.row])
    else:
        seen = replace(seen, y=seen.y - offset[seen.row])
    W, b = _solve_task(features.phi, new, seen, loss)
    if isinstance(features, LinearFeatures):
        return prior.mean + prior.loadings @ features.coef(W)[:, 0], np.zeros(len(functions)), b
    dual = features.dual_coef(W)[:, 0]
    return prior.mean + prior.loadings @ (shared.T @ dual), prior.own_variance * dual, b


def _solve_task(phi: Any, new: NewTask, seen: Observations, loss: Loss) -> tuple[Array, float]:
    """One small system for the squared loss, a certified solve for others."""
    if not loss.quadratic:
        solution = solve(Problem(phi, seen, loss, Independent(), new.alpha, 0.0, new.fit_intercept), **new.limits)
        if not solution.certificate.optimal:
            warn(solution.certificate.message, ConvergenceWarning)
        return solution.W, solution.b[0]
    rows, share = phi[seen.row], seen.weight / seen.weight.sum()
    x_mean, y_mean = (share @ rows, share @ seen.y) if new.fit_intercept else (np.zeros(phi.shape[1]), 0.0)
    root = np.sqrt(seen.weight)
    X, y = root[:, None] * (rows - x_mean), root * (seen.y - y_mean)
    if X.shape[0] < X.shape[1]:
        w = X.T @ np.linalg.solve(X @ X.T + new.alpha * np.eye(len(X)), y)
    else:
        w = np.linalg.solve(X.T @ X + new.alpha * np.eye(X.shape[1]), X.T @ y)
    return w[:, None], y_mean - x_mean @ w


def _extended_inner_products(state: FittedState, inputs: Any, functions: Array, beta: Array, own: Array) -> Any:
    g, cross = state.inner_products, own @ functions
    if not np.any(own):
        return _bordered(g, beta, 0.0)
    if isinstance(g, FactoredStructure):
        raise ValueError("a task with a task-specific part cannot be added to so many tasks of a kernel; fit again")
    norm = float(2 * cross @ beta + own @ state.kernel(inputs, inputs) @ own)
    return _bordered(g, beta, norm, cross)


def _extended_dual(state: FittedState, inputs: Any, old: Array, own: Array) -> dict[str, Any]:
    """A column for the new task, and rows for its inputs if it has a task-specific part."""
    C, X = np.column_stack([state.dual_coef_, old]), state.X_fit_
    if np.any(own):
        C = np.vstack([C, np.zeros((len(own), C.shape[1]))])
        C[-len(own) :, -1] = own
        X = (sparse_vstack if issparse(inputs) else np.vstack)([X, inputs])
    return {"dual_coef_": C.astype(state.dtype), "X_fit_": X}


def _inputs_of_task(model: Any, X: Any) -> Any:
    """Inputs without the task column, whether or not they came with one."""
    X = as_table(X)
    if model.task_column is None or np.shape(X)[1] == model.n_features_in_:
        return new_inputs(model, X)[0]
    inputs = as_matrix(model, X)
    if inputs.shape[1] != model.n_features_in_ - 1:
        raise ValueError(f"X has {inputs.shape[1]} features, the fit had {model.n_features_in_} with the task column")
    if hasattr(X, "columns") and hasattr(model, "feature_names_in_"):
        names = model.feature_names_in_.tolist()
        del names[names.index(model.task_column) if isinstance(model.task_column, str) else model.task_column]
        if list(X.columns) != names:
            raise ValueError(f"X must have the columns {names} (the task column is not needed)")
    return inputs


def _bordered(A: Any, beta: Array, own: float, cross: Any = 0.0) -> Any:
    """``A`` extended by the covariances ``A beta + cross`` and the variance ``beta'A beta + own``."""
    if isinstance(A, FactoredStructure):
        return A.bordered(beta, own)
    edge = A @ beta
    corner = float(beta @ edge) + own
    edge = edge + cross
    return np.block([[A, edge[:, None]], [edge[None, :], np.array([[corner]])]])
