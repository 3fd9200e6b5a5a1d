"""What the estimators share: data at the door, features, a certified solve, fitted attributes."""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import HasMethods, Interval, RealNotInt, StrOptions

from .._component import warn
from .._linalg import fits_single
from ..equivalences import implied_tasks
from ..features import KernelFeatures, LinearFeatures, SumFeatures, build_features
from ..features.approximate import MappedFeatures
from ..losses import as_loss, mixed_loss
from ..metrics import TaskScores
from ..problem import Problem
from ..problem.solution import History
from ..solvers import solve
from ..structures import Structure, TermSum, as_structure
from ..structures import factored_matrix as factors
from ..tables import as_table, code_labels, sorted_labels
from .callbacks import CallbackSupportMixin, Watch, show, with_callbacks
from .decision import Predicting, double
from .kernel_rounding import as_predicted
from .model_files.save_load import Saving
from .rollback import all_or_nothing
from .sums import as_structures, fitted_addends
from .target_encoding import TargetScale

Array = np.ndarray
_TAKE_SPARSE = {"linear", "poly", "polynomial", "rbf", "laplacian", "sigmoid", "cosine"}
_STALE = (  # what a fit may have left behind that the next one does not set
    "feature_structure_",
    "coef_",
    "dual_coef_",
    "X_fit_",
    "feature_map_",
    "approximation_error_",
    "added_tasks_",
    "outlier_tasks_",
    "shared_coef_",
    "own_coef_",
    "_posterior",
    "_joining",
    "_statistics",
)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Data that have passed the door: what a solver needs, and what a fitted estimator keeps."""

    inputs: Any
    features: LinearFeatures | KernelFeatures | SumFeatures
    problem: Problem
    scale: TargetScale


class MultiTaskEstimator(CallbackSupportMixin, Saving, Predicting):
    """Fit, store, predict; subclasses say what targets mean."""

    _parameter_constraints: ClassVar[dict[str, list]] = {
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="left"), None],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "approximation": [StrOptions({"nystroem", "leverage", "fourier"}), HasMethods(["fit", "transform"]), None],
        "n_components": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, 1, closed="neither"),
            StrOptions({"auto"}),
        ],
        "fit_intercept": ["boolean"],
        "unseen": [StrOptions({"raise", "mean"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }
    _doc_link_module = "taskloom"
    _doc_link_template = "https://taskloom.readthedocs.io/en/latest/estimators.html#{anchor}"

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        return {"anchor": type(self).__name__.lower()}

    def __init__(
        self,
        structure=None,
        *,
        kernel="linear",
        alpha=0.01,
        loss="squared",
        ridge=0.0,
        task_weight="equal",
        fit_intercept=True,
        task_column=None,
        unseen="raise",
        gamma=None,
        degree=3,
        coef0=1,
        approximation=None,
        n_components=100,
        solver="auto",
        tol=1e-4,
        max_iter=1000,
        time_limit=None,
        warm_start=False,
        verbose=0,
        random_state=None,
    ):
        self.structure = structure
        self.kernel = kernel
        self.alpha = alpha
        self.loss = loss
        self.ridge = ridge
        self.task_weight = task_weight
        self.fit_intercept = fit_intercept
        self.task_column = task_column
        self.unseen = unseen
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.approximation = approximation
        self.n_components = n_components
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    classes_: Any

    def set_params(self, **params: Any) -> Self:
        """As any estimator's; a parameter of a structure or a loss that was given by name makes it an object first.

        Parameters
        ----------
        **params : object
            New values by parameter name; ``structure__p`` is the parameter ``p`` of the structure.

        Returns
        -------
        self
            The estimator itself.
        """
        for name, make in (("structure", as_structure), ("loss", as_loss)):
            nested = any(key.startswith(f"{name}__") for key in params) and name not in params
            if nested and isinstance(getattr(self, name, None), (str, type(None))):
                setattr(self, name, make(getattr(self, name)))
        return super().set_params(**params)

    def score_per_task(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> dict[Any, float]:
        """The score of each task, by name."""
        raise NotImplementedError

    def _coded(self, y, labels):
        """The targets of a fitted model's tasks as numbers, NaN where unobserved: ``n x T``, or ``n`` for a long table."""
        raise NotImplementedError

    def _task_scores(self, X, y, sample_weight=None) -> TaskScores:
        """What ``score_per_task`` needs of the truth; it is worth keeping where many predictions are scored."""
        labels = self._tasks_of_rows(X)
        Y = self._coded(as_table(y), labels)
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=float)
        seen = ~np.isnan(Y)
        if labels is None:
            names, task = self.tasks_.tolist(), np.nonzero(seen)[1]
            labelled = self._labelled()
            weight = None if weight is None else np.broadcast_to(weight[:, None] if weight.ndim == 1 else weight, Y.shape)
        else:
            tasks = sorted_labels(labels)
            names, task = tasks.tolist(), code_labels(labels, tasks)[seen]
            kinds = self._labelled()
            kind, all_labelled = dict(zip(self.tasks_.tolist(), kinds, strict=True)), bool(kinds.all())
            labelled = np.array([kind.get(name, all_labelled) for name in names])
        if not seen.any():
            raise ValueError("y holds nothing but missing values: there is nothing to score")
        return TaskScores(Y[seen], task, names, labelled, None if weight is None else weight[seen])

    # --- fit ----------------------------------------------------------------------------------------------------

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the tasks and their structure.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs; with ``task_column`` set, one of the columns names the task of each row.
        y : array-like or data frame of shape (n_samples,) or (n_samples, n_tasks)
            Targets; NaN where a task was not observed.
        sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
            Weights of the observations; 0 is the same as leaving the observation out.

        Returns
        -------
        self
            The fitted model.
        """
        data = self._prepare(X, y, sample_weight)
        watch = Watch.over(self, X, y, self.max_iter)
        solution = self._solve(data, watch)
        self._store(data, solution)
        if watch is not None:
            watch.end(lambda: self._fitted(data, solution.W, solution.b))
        return self

    def _prepare(self, X, y, sample_weight=None) -> Prepared:
        """Check everything, and state the problem."""
        self._validate_params()
        inputs, labels = self._inputs(X, reset=True)
        observations = self._observations(inputs, labels, y, sample_weight)
        return self._pose(inputs, self._features(inputs, np.unique(observations.row)), observations)

    def _features(self, inputs, live) -> LinearFeatures | KernelFeatures | SumFeatures:
        """The features of the kernel on the training inputs, exact, or approximate by the rows that are ``live``."""
        structure = as_structures(self.structure, self.kernel)
        keep = any(each.keeps_columns for each in (structure if isinstance(structure, list) else [structure]))
        if keep and not (isinstance(self.kernel, str) and self.kernel == "linear" and self.approximation is None):
            raise ValueError(
                f"{structure!r} sits on the columns of X and needs kernel='linear', got kernel={self.kernel!r} "
                f"and approximation={self.approximation!r}"
            )
        if self.approximation is not None:
            return self._approximate(inputs, live)
        settings = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return build_features(double(inputs), self.kernel, keep, self.fit_intercept, len(self.tasks_), **settings)

    def _pose(self, inputs, features, observations) -> Prepared:
        """The problem of these features and observations."""
        losses = self._losses()
        scale = self._target_scale(observations, losses)
        observations = scale.apply(observations)
        problem = Problem(
            features.phi,
            observations,
            mixed_loss(losses, observations.task),
            self._posed(as_structures(self.structure, self.kernel), features),
            float(self.alpha),
            float(self.ridge),
            self.fit_intercept,
        )
        return Prepared(inputs, features, problem, scale)

    def _solve(self, data: Prepared, watch: Watch | None = None, start: tuple[Array, Array] | None = None):
        """The certified solution; a fit that did not get there warns."""

        def report(history: History) -> bool:
            if self.verbose and (line := show(history)):
                sys.stdout.write(line + "\n")
            return watch is not None and watch.part("iteration").end(lambda: self._fitted(data, *history.best()))

        solution = solve(
            data.problem,
            self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            time_limit=self.time_limit,
            start=start if start is not None else self._start(data),
            callback=report if self.verbose or watch is not None else None,
        )
        if not solution.certificate.converged and solution.certificate.status != "callback":
            warn(solution.certificate.message, ConvergenceWarning)
        return solution

    def _posed(self, structure: Any, features: Any) -> Structure:
        """The structure of the problem; with several kernels each has its own, or they all have the one that was given."""
        if not isinstance(features, SumFeatures):
            return self._coded_structure(structure)
        each = structure if isinstance(structure, list) else [structure] * len(features.widths)
        return TermSum.of([self._coded_structure(one) for one in each], features.widths, len(self.tasks_))

    def _coded_structure(self, structure: Structure) -> Structure:
        """The structure of the problem for the structure that was asked for: tasks by name, targets coded."""
        structure.check_size(len(self.tasks_))
        return structure.bind(self.tasks_.tolist())

    def _target_scale(self, observations, losses) -> TargetScale:
        """How targets are scaled before the fit; here, not at all."""
        return TargetScale.none(observations.n_tasks)

    def _start(self, data: Prepared):
        """With ``warm_start``, the weights of the last fit, when they still fit the data."""
        if not self.warm_start or not hasattr(self, "certificate_"):
            return None
        linear = isinstance(data.features, LinearFeatures)
        last = getattr(self, "coef_" if linear else "dual_coef_", None)
        if last is None:
            return None
        if isinstance(last, list):
            return None  # a sum has many ways to be split: a fit from scratch is as quick as to find the best one
        last = (last.T if linear else last).astype(float)
        if last.shape != (data.features.n_inputs, data.problem.n_tasks):
            return None
        scale = data.scale
        return data.features.weights(last / scale.spread), (self.intercept_ - scale.mean) / scale.spread

    def _fitted(self, data: Prepared, W: Array, b: Array, dtype: np.dtype | None = None) -> dict[str, Any]:
        """The attributes that predictions need, for these weights; in the precision of the inputs where they fit it."""
        spread, b = data.scale.spread, b * data.scale.spread + data.scale.mean
        C: Any = data.features.coef(W) if isinstance(data.features, LinearFeatures) else data.features.dual_coef(W)
        each = [c * spread for c in (C if isinstance(C, list) else [C])]
        self._dtype = dtype or (data.inputs.dtype if all(map(fits_single, (*each, b))) else np.dtype(float))
        attributes: dict[str, Any] = {"intercept_": b.astype(self._dtype)}
        if isinstance(data.features, MappedFeatures):
            attributes["feature_map_"] = data.features.map
        if isinstance(data.features, LinearFeatures):
            attributes["coef_"] = np.ascontiguousarray(each[0].T, dtype=self._dtype)
        else:
            each = [c.astype(self._dtype) for c in each]
            attributes["dual_coef_"] = each if isinstance(C, list) else each[0]
            attributes["X_fit_"] = data.inputs
            many = W.shape[1] > max(factors.DENSE_TASKS, W.shape[0])
            attributes["_inner_products"] = factors.FactoredStructure(W.T) if many else W.T @ W  # of functions, in fitted units
        return attributes

    def _store(self, data: Prepared, solution) -> None:
        for stale in _STALE:
            self.__dict__.pop(stale, None)
        self.__dict__.update(self._fitted(data, solution.W, solution.b))
        A = solution.A
        if data.problem.structure.on_features:
            self.feature_structure_ = A.astype(self._dtype if fits_single(A) else float)
            A = implied_tasks(solution.W, A)
        self.structure_ = A.astype(self._dtype if fits_single(A) else float)
        if solution.terms is not None:
            self.__dict__.update(fitted_addends(data, solution, self.tasks_, self._dtype))
        certificate = as_predicted(self, self._of_the_approximation(solution.certificate, data.features), data, solution)
        if certificate.status == "rounding":
            warn(certificate.message, ConvergenceWarning)
        self.certificate_ = replace(certificate, message=" ".join(filter(None, (certificate.message, data.features.note))))
        self.n_iter_ = solution.n_iter
        self.history_ = solution.history.as_dict()
        self._scale = data.scale
        self._learned = copy.copy(data.problem.structure)  # what add_task extends; the parameter may be set anew

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = self.task_column is None
        kernels = self.kernel if isinstance(self.kernel, (list, tuple)) else [self.kernel]
        named = all(isinstance(kernel, str) for kernel in kernels)
        tags.input_tags.pairwise = named and list(kernels) == ["precomputed"]
        tags.input_tags.sparse = named and set(kernels) <= _TAKE_SPARSE
        return tags
