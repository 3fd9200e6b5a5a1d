"""One more task, against the structure that was learned: no refit, one small system (docs/estimators.md derives it).

The new task is a combination of the old ones plus something of its own, ``f = sum_t beta_t f_t + e``, and joins the structure
with ``A beta`` as its relations and ``beta'A beta + own`` as its variance. With the old tasks frozen, it minimises

    sum_i v_i loss(y_i, f(x_i) + b) + alpha <f - f0, D^+ (f - f0)> + ridge ||f||^2,       D = W M M'W' + own I

with ``f0 = sum_t beta0_t f_t``. The structure says what ``beta0``, ``M`` and ``own`` are.
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

from .._component import warn
from .._linalg import psd_eigh
from ..design import Observations
from ..equivalences import implied_tasks
from ..features import KernelFeatures, LinearFeatures
from ..losses import Loss
from ..losses.offset import Shifted
from ..problem import Problem
from ..solvers import solve
from ..structures import Independent, Structure
from ..structures.factored_matrix import FactoredStructure
from ..tables import as_table, shown
from .approximate_kernel import map_rows
from .decision import decision_values
from .fitted import FittedState
from .target_encoding import TargetScale
from .validation import as_matrix, entries_by_task, new_inputs

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Joining:
    """How a task joins: the old tasks' weights in its mean, the root of what it may borrow, and its own variance."""

    mean: Array  # beta0, one number for each old task
    borrow: Array  # M, T x q
    own: float

    def padded(self, n_tasks: int) -> Joining:
        """The same among more tasks, of which the later ones have no part in it."""
        more = n_tasks - len(self.mean)
        if more == 0:
            return self
        return Joining(np.pad(self.mean, (0, more)), np.pad(self.borrow, ((0, more), (0, 0))), self.own)

    def ridged(self, rho: float, gram: Callable[[], Array]) -> Joining:
        """With a ridge: ``D`` becomes ``(D^-1 + rho)^-1``, eigenvalue by eigenvalue, and the mean shrinks with it."""
        if rho == 0:
            return self
        e, V = psd_eigh(self.borrow.T @ gram() @ self.borrow)
        own = self.own / (1 + rho * self.own)
        after = (self.own + e) / (1 + rho * (self.own + e)) - own
        stretch = np.sqrt(np.divide(after, e, out=np.zeros_like(e), where=e > 0))
        return Joining(self.mean / (1 + rho * self.own), self.borrow @ (V * stretch), own)


def joining(
    structure: Structure, A: Array, gram: Callable[[], Array], relation: Array | None = None, weights: Array | None = None
) -> Joining:
    """What the frozen structure says about one more task; ``gram`` gives the inner products of the tasks' functions.

    With ``weights`` (``T x d``), fewer features than tasks make the decomposition smaller.
    """
    T = len(A)
    if relation is not None:
        return _related(A, relation)
    given = structure.new_task_conditional(T)
    if given is not None:
        return Joining(given[0], np.zeros((T, 0)), given[1])
    if structure.either_side:
        if weights is not None and weights.shape[1] < T:
            d, V = psd_eigh(weights.T @ weights)
            g, V = d, weights @ (V / np.sqrt(np.maximum(d, np.finfo(float).tiny)))
        else:
            g, V = psd_eigh(gram())
        keep = g > 1e-12 * max(g[-1], np.finfo(float).tiny)
        g, V = g[keep], V[:, keep]
        a = np.sum(V * (A @ V), axis=0)  # A and W'W share their eigenvectors at the optimum
        return Joining(np.zeros(T), V * np.sqrt(np.maximum(a, 0.0) / g), 0.0)
    a, V = psd_eigh(A)
    keep = a > 1e-10 * max(a[-1], np.finfo(float).tiny)
    root = V[:, keep] / np.sqrt(a[keep])  # W root root' W' = W A^+ W'
    size = float(np.sum(root * (gram() @ root)))
    borrow = root * np.sqrt(a.sum() / size) if size > 0 else root[:, :0]
    own = float(np.mean(1 / np.einsum("tq,tq->t", root, root))) if keep.all() else 0.0
    return Joining(np.zeros(T), borrow, own)


def _related(A: Array, relation: Array) -> Joining:
    """Relations that a user knows: the conditional law of a Gaussian with covariance ``A``, bordered by them."""
    a, V = psd_eigh(A)
    keep = a > 1e-10 * max(a[-1], np.finfo(float).tiny)
    beta = V[:, keep] @ ((V[:, keep].T @ relation) / a[keep])
    left = float(np.mean(np.diag(A)) - beta @ A @ beta)
    if not left > 0:
        raise ValueError(
            f"relation is too strong: the others would determine the new task (its own variance would be {left:.3g}); "
            "scale relation down"
        )
    return Joining(beta, np.zeros((len(A), 0)), left)


@dataclass(frozen=True, eq=False)
class NewTask:
    """A task at the door: its inputs and observations in the units of the fit, its loss, and how to undo the units."""

    name: Any
    inputs: Any
    seen: Observations
    loss: Loss
    mean: float
    spread: float
    classes: Any  # of all tasks, with this one


@dataclass(frozen=True)
class OneSolve:
    """How the new task's own small problem is solved."""

    fit_intercept: bool
    tol: float
    max_iter: int


def add_task(state: FittedState, new: NewTask, relation: Any, how: OneSolve) -> FittedState:
    """The state with one more task, the last one; the old ones stay as they are."""
    if state.learned.on_features:
        return _with_selected(state, new, how)
    join = _join(state, _relation(state, relation))
    if join.own != 0 and state.kernel.precomputed:
        raise ValueError(
            'under this structure add_task needs the kernel between the new inputs, which kernel="precomputed" does not '
            "give; pass a kernel function"
        )
    functions = (decision_values(state, new.inputs) - state.intercept_).astype(float) / state.scale.spread  # old tasks
    inputs = new.inputs if state.feature_map_ is None else map_rows(state.feature_map_, new.inputs)
    beta, own, b = _learn_one(state, inputs, functions, new, join, how)
    old = beta / state.scale.spread  # the functions of the old tasks, in the units of theirs
    if state.coef_ is not None:
        row = np.asarray((old @ state.coef_ + own @ inputs) * new.spread)
        predictor: dict[str, Any] = {"coef_": np.vstack([state.coef_, row.reshape(1, -1)]).astype(state.dtype)}
    else:
        products = _with_inner_products(state, inputs, functions, beta, own)
        predictor = _with_dual(state, inputs, state.dual_coef_ @ old * new.spread, own * new.spread)
        predictor["inner_products"] = products
    A = _with_newcomer(state.structure_.astype(float, copy=False), beta, join.own).astype(state.dtype)
    keep = None if relation is not None else join
    return _appended(state, new, b, structure_=A, joining=keep or state.joining, **predictor)


def _with_selected(state: FittedState, new: NewTask, how: OneSolve) -> FittedState:
    """Under a structure on the features the new task has the same ``D``, and nothing to do with other tasks otherwise."""
    d = np.diag(state.feature_structure_).astype(float)
    root = np.sqrt(d / (1 + state.ridge / state.alpha * d))
    W, b = _solve_one(np.asarray(new.inputs @ np.diag(root)), new.seen, new.loss, state.alpha, how)
    weights = root * W[:, 0]
    everyone = np.vstack([state.weights, weights])
    coef = np.vstack([state.coef_, weights * new.spread]).astype(state.dtype)
    A = implied_tasks(everyone.T, state.feature_structure_.astype(float)).astype(state.dtype)
    return _appended(state, new, b, coef_=coef, structure_=A)


def _appended(state: FittedState, new: NewTask, b: float, **fields: Any) -> FittedState:
    """The new task becomes the last one, in the units of its targets."""
    names = [*state.tasks_.tolist(), new.name]
    same = np.array(names)
    scale = TargetScale(np.append(state.scale.mean, new.mean), np.append(state.scale.spread, new.spread))
    return replace(
        state,
        tasks_=same if same.dtype.kind == state.tasks_.dtype.kind else _objects(names),
        classes_=new.classes,
        intercept_=np.append(state.intercept_, b * new.spread + new.mean).astype(state.dtype),
        scale=scale,
        added_tasks_=[*(state.added_tasks_ or []), new.name],
        **fields,
    )


def _join(state: FittedState, relation: Array | None) -> Joining:
    """How a task joins the tasks of the fit; what was added since has no say, so the order of additions does not matter."""
    if relation is None and state.joining is not None:
        return state.joining.padded(state.n_tasks)
    n_old = state.n_tasks - (0 if relation is not None else len(state.added_tasks_ or []))
    A, W = state.structure_[:n_old, :n_old].astype(float, copy=False), state.weights
    if W is None and isinstance(state.inner_products, FactoredStructure):
        W = state.inner_products.L  # weights, in coordinates of their own
    W = None if W is None else W[:n_old]
    gram = partial(_inner_products_of, state, n_old)
    return joining(state.learned, A, gram, relation, W).ridged(state.ridge / state.alpha, gram).padded(state.n_tasks)


def _relation(state: FittedState, relation: Any) -> Array | None:
    if relation is None:
        return None
    a = np.asarray(entries_by_task(relation, state.tasks_, "relation"), dtype=float)
    if not (a.shape == (state.n_tasks,) and bool(np.isfinite(a).all())):
        raise ValueError(f"relation needs one finite number for each of the {state.n_tasks} tasks, got shape {a.shape}")
    return a


def _inner_products_of(state: FittedState, n_tasks: int) -> Array:
    """Of the functions of the first tasks."""
    W = state.weights
    return state.inner_products[:n_tasks, :n_tasks] if W is None else W[:n_tasks] @ W[:n_tasks].T


def _learn_one(
    state: FittedState, inputs: Any, functions: Array, new: NewTask, join: Joining, how: OneSolve
) -> tuple[Array, Array, float]:
    """The weights of the old tasks, of the kernel at the new inputs, and the intercept."""
    borrowed, offset, seen, loss = functions @ join.borrow, functions @ join.mean, new.seen, new.loss
    features: LinearFeatures | KernelFeatures
    if join.own == 0:
        features = LinearFeatures(borrowed, keep_columns=True)
    else:
        K = state.kernel(inputs, inputs) if state.feature_map_ is None else inputs @ inputs.T
        features = KernelFeatures(borrowed @ borrowed.T + join.own * K)
    if loss.targets == "signs":
        loss = Shifted(loss, offset[seen.row])
    else:
        seen = replace(seen, y=seen.y - offset[seen.row])
    W, b = _solve_one(features.phi, seen, loss, state.alpha, how)
    if isinstance(features, LinearFeatures):
        return join.mean + join.borrow @ features.coef(W)[:, 0], np.zeros(len(functions)), b
    dual = features.dual_coef(W)[:, 0]
    return join.mean + join.borrow @ (borrowed.T @ dual), join.own * dual, b


def _solve_one(phi: Any, seen: Observations, loss: Loss, alpha: float, how: OneSolve) -> tuple[Array, float]:
    """One small system for the squared loss, a certified solve for others."""
    if not loss.quadratic:
        problem = Problem(phi, seen, loss, Independent(), alpha, 0.0, how.fit_intercept)
        solution = solve(problem, tol=how.tol, max_iter=how.max_iter)
        if not solution.certificate.optimal:
            warn(solution.certificate.message, ConvergenceWarning)
        return solution.W, solution.b[0]
    rows, share = phi[seen.row], seen.weight / seen.weight.sum()
    x_mean, y_mean = (share @ rows, share @ seen.y) if how.fit_intercept else (np.zeros(phi.shape[1]), 0.0)
    root = np.sqrt(seen.weight)
    X, y = root[:, None] * (rows - x_mean), root * (seen.y - y_mean)
    if X.shape[0] < X.shape[1]:
        w = X.T @ np.linalg.solve(X @ X.T + alpha * np.eye(len(X)), y)
    else:
        w = np.linalg.solve(X.T @ X + alpha * np.eye(X.shape[1]), X.T @ y)
    return w[:, None], y_mean - x_mean @ w


def _with_inner_products(state: FittedState, inputs: Any, functions: Array, beta: Array, own: Array) -> Any:
    g, cross = state.inner_products, own @ functions
    if isinstance(g, FactoredStructure):
        if np.any(own):
            raise ValueError("a task with a part of its own cannot be added to so many tasks of a kernel; fit again")
        return g.bordered(beta, 0.0)
    norm = float(beta @ g @ beta + 2 * cross @ beta)
    norm += float(own @ state.kernel(inputs, inputs) @ own) if np.any(own) else 0.0
    return _bordered(g, g @ beta + cross, norm)


def _with_dual(state: FittedState, inputs: Any, old: Array, own: Array) -> dict[str, Any]:
    """A column for the new task; rows for its inputs, if it has a part of its own."""
    C, X = np.column_stack([state.dual_coef_, old]), state.X_fit_
    if np.any(own):
        C = np.vstack([C, np.zeros((len(own), C.shape[1]))])
        C[-len(own) :, -1] = own
        X = (sparse_vstack if issparse(inputs) else np.vstack)([X, inputs])
    return {"dual_coef_": C.astype(state.dtype), "X_fit_": X}


def check_new_name(state: FittedState, name: Any) -> None:
    """A label that no task has."""
    if state.kernel.several:
        raise ValueError("add_task needs one kernel; with a list of them, fit again")
    if not isinstance(name, Hashable):
        raise ValueError(f"a task is named by a label, got {type(name).__name__}; call add_task(X, y, name)")
    if name in state.tasks_.tolist():
        raise ValueError(f"there is a task {shown(name)} already; choose another name")


def inputs_of_task(model: Any, X: Any) -> Any:
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


def observations_of_task(name: Any, values: Array, weight: Array | None) -> Observations:
    """What was seen of a new task, alone."""
    row = np.flatnonzero(~np.isnan(values))
    live = row.size > 0 if weight is None else bool((weight[row] > 0).any())
    if not live:
        raise ValueError(f"task {shown(name)} has no observation (all NaN, or all of weight 0)")
    return Observations.build(row, np.zeros(row.size, int), values[row], 1, None if weight is None else weight[row])


def _with_newcomer(A: Any, beta: Array, own: float) -> Any:
    """``A`` with the task that is ``beta`` times the others, plus something of its own."""
    if isinstance(A, FactoredStructure):
        return A.bordered(beta, own)
    return _bordered(A, A @ beta, float(beta @ A @ beta) + own)


def _bordered(A: Array, edge: Array, corner: float) -> Array:
    """``A`` with one more row and column."""
    return np.block([[A, edge[:, None]], [edge[None, :], np.array([[corner]])]])


def _objects(names: list) -> Array:
    out = np.empty(len(names), dtype=object)
    out[:] = names
    return out
