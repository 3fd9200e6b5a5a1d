"""One more task, against the structure that was learned: no refit, one small system (docs/estimators.md derives it).

The new task is a combination of the old ones plus something of its own, ``f = sum_t beta_t f_t + e``, and joins the structure
with ``A beta`` as its relations and ``beta'A beta + own`` as its variance. With the old tasks frozen, it minimises

    sum_i v_i loss(y_i, f(x_i) + b) + alpha <f - f0, D^+ (f - f0)> + ridge ||f||^2,       D = W M M'W' + own I

with ``f0 = sum_t beta0_t f_t``. The structure says what ``beta0``, ``M`` and ``own`` are.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from scipy.sparse import vstack as sparse_vstack
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, check_is_fitted

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
from .base import MultiTaskEstimator
from .target_encoding import TargetScale

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
    given = structure.newcomer(T)
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


class AddTask(MultiTaskEstimator):
    """``add_task`` for the estimators."""

    coef_: Any
    dual_coef_: Any
    intercept_: Any
    structure_: Any
    feature_structure_: Any
    _scale: TargetScale
    _inner_products: Array
    _joining: tuple[Any, Joining]

    def _targets_of_task(self, y, name, weight):
        """The targets of a new task as the fit reads them, its loss, the mean and spread that undo the reading, and the
        attributes that change with it."""
        raise NotImplementedError

    def add_task(
        self,
        X: Any,
        y: Any,
        name: Any,
        *,
        sample_weight: ArrayLike | None = None,
        relation: ArrayLike | Mapping[Any, float] | None = None,
    ) -> Self:
        """Learn one new task against the frozen structure, without a refit; it becomes the last one.

        Structures that may sit on the features (trace, Frobenius, unit trace, ...) hand the new task the features ``D`` that
        the old ones share. ``SharedMean`` draws it to their mean. Under any other structure it may borrow what the old tasks
        have in common, and keeps as much of its own as they have on average.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Inputs of the new task; a task column is not needed, and ignored.
        y : array-like of shape (n_samples,)
            Targets, NaN where unobserved; labels of the same two classes for a classifier.
        name : object
            The name of the new task, which no other has.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the observations.
        relation : array-like of shape (n_tasks,) or dict, default=None
            Covariances of the new task with the old ones, in units of ``structure_``, where they are known.

        Returns
        -------
        self
            The model with one more task.
        """
        check_is_fitted(self, "certificate_")
        if isinstance(self.kernel, (list, tuple)):
            raise ValueError("add_task needs one kernel; with a list of them, fit again")
        names = self.tasks_.tolist()
        if not isinstance(name, Hashable):
            raise ValueError(f"a task is named by a label, got {type(name).__name__}; call add_task(X, y, name)")
        if name in names:
            raise ValueError(f"there is a task {shown(name)} already; choose another name")
        inputs = self._inputs_of_task(X)
        y = np.asarray(as_table(y)).ravel()
        check_consistent_length(inputs, y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, inputs, dtype=np.float64)
        values, loss, scale, attributes = self._targets_of_task(y, name, weight)
        row = np.flatnonzero(~np.isnan(values))
        live = row.size > 0 if weight is None else bool((weight[row] > 0).any())
        if not live:
            raise ValueError(f"task {shown(name)} has no observation (all NaN, or all of weight 0)")
        seen = Observations.build(row, np.zeros(row.size, int), values[row], 1, None if weight is None else weight[row])
        if self._learned.on_features:
            self._append_selected(name, inputs, seen, loss, scale)
            self.__dict__.update(attributes)
            return self
        A, join = self.structure_.astype(float, copy=False), self._join(self._relation(relation))
        if join.own != 0 and isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError(
                'under this structure add_task needs the kernel between the new inputs, which kernel="precomputed" does not '
                "give; pass a kernel function"
            )
        functions = (self._values(inputs) - self.intercept_).astype(float) / self._scale.spread  # old tasks, new inputs
        inputs = self._map(inputs) if hasattr(self, "feature_map_") else inputs
        beta, own, b = self._learn_one(inputs, functions, seen, loss, join)
        if not hasattr(self, "coef_"):
            self._append_inner_products(inputs, functions, beta, own)
        self._append(name, inputs, beta, own, b, scale)
        self.structure_ = _with_newcomer(A, beta, join.own).astype(self._dtype)
        self.__dict__.update(attributes)
        return self

    def _append_selected(self, name, inputs, seen: Observations, loss: Loss, scale):
        """Under a structure on the features the new task has the same ``D``, and nothing to do with other tasks otherwise."""
        d = np.diag(self.feature_structure_).astype(float)
        root = np.sqrt(d / (1 + self._ridge() / self._alpha() * d))
        W, b = self._solve_one(np.asarray(inputs @ np.diag(root)), seen, loss)
        everyone = np.vstack([self._weights_of_tasks(), root * W[:, 0]])
        self._append(name, inputs, np.zeros(len(self.tasks_)), np.zeros(inputs.shape[0]), b, scale)
        self.coef_[-1] = root * W[:, 0] * scale[1]
        self.structure_ = implied_tasks(everyone.T, self.feature_structure_.astype(float)).astype(self._dtype)

    def _join(self, relation) -> Joining:
        """How a task joins the tasks of the fit; what was added since has no say, so the order of additions does not matter."""
        n_old = len(self.tasks_) - (0 if relation is not None else len(getattr(self, "added_tasks_", [])))
        key = self.certificate_ if relation is None else None
        if key is not None and getattr(self, "_joining", (None, None))[0] is key:
            join = self._joining[1]
        else:
            A, W = self.structure_[:n_old, :n_old].astype(float, copy=False), self._weights_of_tasks()
            if W is None and isinstance(self._inner_products, FactoredStructure):
                W = self._inner_products.L  # weights, in coordinates of their own
            W = None if W is None else W[:n_old]
            gram = partial(self._inner_products_of, n_old)
            join = joining(self._learned, A, gram, relation, W).ridged(self._ridge() / self._alpha(), gram)
            self._joining = (key, join)
        return join.padded(len(self.tasks_))

    def _alpha(self):
        return float(getattr(self, "alpha_", None) or self.alpha)

    def _ridge(self):
        return float(self.ridge)

    def _inputs_of_task(self, X):
        """Inputs without the task column, whether or not they came with one."""
        X = as_table(X)
        if self.task_column is None or np.shape(X)[1] == self.n_features_in_:
            return self._inputs(X, reset=False)[0]
        inputs = self._matrix(X)
        if inputs.shape[1] != self.n_features_in_ - 1:
            raise ValueError(f"X has {inputs.shape[1]} features, the fit had {self.n_features_in_} with the task column")
        if hasattr(X, "columns") and hasattr(self, "feature_names_in_"):
            names = self.feature_names_in_.tolist()
            del names[names.index(self.task_column) if isinstance(self.task_column, str) else self.task_column]
            if list(X.columns) != names:
                raise ValueError(f"X must have the columns {names} (the task column is not needed)")
        return inputs

    def _relation(self, relation):
        if relation is None:
            return None
        a = np.asarray(self._by_task(relation, "relation"), dtype=float)
        if not (a.shape == (len(self.tasks_),) and bool(np.isfinite(a).all())):
            raise ValueError(f"relation needs one finite number for each of the {len(self.tasks_)} tasks, got shape {a.shape}")
        return a

    def _inner_products_of(self, n_tasks):
        """Of the functions of the first tasks."""
        W = self._weights_of_tasks()
        return self._inner_products[:n_tasks, :n_tasks] if W is None else W[:n_tasks] @ W[:n_tasks].T

    def _weights_of_tasks(self):
        """Their weights in units of their standardized targets, if the kernel is linear."""
        return self.coef_.astype(float) / self._scale.spread[:, None] if hasattr(self, "coef_") else None

    def _learn_one(self, inputs, functions: Array, seen: Observations, loss: Loss, join: Joining):
        """The weights of the old tasks, of the kernel at the new inputs, and the intercept."""
        borrowed = functions @ join.borrow
        offset = functions @ join.mean
        features: LinearFeatures | KernelFeatures
        if join.own == 0:
            features = LinearFeatures(borrowed, keep_columns=True)
        else:
            K = inputs @ inputs.T if hasattr(self, "feature_map_") else self._kernel(inputs, inputs)
            features = KernelFeatures(borrowed @ borrowed.T + join.own * K)
        if loss.targets == "signs":
            loss = Shifted(loss, offset[seen.row])
        else:
            seen = replace(seen, y=seen.y - offset[seen.row])
        W, b = self._solve_one(features.phi, seen, loss)
        if isinstance(features, LinearFeatures):
            return join.mean + join.borrow @ features.coef(W)[:, 0], np.zeros(len(functions)), b
        dual = features.dual_coef(W)[:, 0]
        return join.mean + join.borrow @ (borrowed.T @ dual), join.own * dual, b

    def _solve_one(self, phi: Array, seen: Observations, loss: Loss):
        """One small system for the squared loss, a certified solve for others."""
        if not loss.quadratic:
            solution = solve(
                Problem(phi, seen, loss, Independent(), self._alpha(), 0.0, self.fit_intercept),
                tol=self.tol,
                max_iter=self.max_iter,
            )
            if not solution.certificate.optimal:
                warn(solution.certificate.message, ConvergenceWarning)
            return solution.W, solution.b[0]
        rows, share = phi[seen.row], seen.weight / seen.weight.sum()
        x_mean, y_mean = (share @ rows, share @ seen.y) if self.fit_intercept else (np.zeros(phi.shape[1]), 0.0)
        root = np.sqrt(seen.weight)
        X, y = root[:, None] * (rows - x_mean), root * (seen.y - y_mean)
        if X.shape[0] < X.shape[1]:
            w = X.T @ np.linalg.solve(X @ X.T + self._alpha() * np.eye(len(X)), y)
        else:
            w = np.linalg.solve(X.T @ X + self._alpha() * np.eye(X.shape[1]), X.T @ y)
        return w[:, None], y_mean - x_mean @ w

    def _append(self, name, inputs, beta, own, b, scale):
        """The new task becomes the last one, in the units of its targets."""
        mean, spread = scale
        old = beta / self._scale.spread  # the functions of the old tasks, in the units of theirs
        if hasattr(self, "coef_"):
            row = (old @ self.coef_ + own @ inputs) * spread
            self.coef_ = np.vstack([self.coef_, np.asarray(row).reshape(1, -1)]).astype(self._dtype)
        else:
            self._append_dual(inputs, self.dual_coef_ @ old * spread, own * spread)
        self.intercept_ = np.append(self.intercept_, b * spread + mean).astype(self._dtype)
        self._scale = type(self._scale)(np.append(self._scale.mean, mean), np.append(self._scale.spread, spread))
        names = [*self.tasks_.tolist(), name]
        same = np.array(names)
        self.tasks_ = same if same.dtype.kind == self.tasks_.dtype.kind else _objects(names)
        self.added_tasks_ = [*getattr(self, "added_tasks_", []), name]
        self._training = None
        self._wide = self._wide or self.task_column is None  # two tasks have two columns

    def _append_inner_products(self, inputs, functions, beta, own):
        g, cross = self._inner_products, own @ functions
        if isinstance(g, FactoredStructure):
            if np.any(own):
                raise ValueError("a task with a part of its own cannot be added to so many tasks of a kernel; fit again")
            self._inner_products = g.bordered(beta, 0.0)
            return
        norm = float(beta @ g @ beta + 2 * cross @ beta)
        norm += float(own @ self._kernel(inputs, inputs) @ own) if np.any(own) else 0.0
        self._inner_products = _bordered(g, g @ beta + cross, norm)

    def _append_dual(self, inputs, old, own):
        """A column for the new task; rows for its inputs, if it has a part of its own."""
        C = np.column_stack([self.dual_coef_, old])
        if np.any(own):
            C = np.vstack([C, np.zeros((len(own), C.shape[1]))])
            C[-len(own) :, -1] = own
            self.X_fit_ = (sparse_vstack if issparse(inputs) else np.vstack)([self.X_fit_, inputs])
        self.dual_coef_ = C.astype(self._dtype)


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
