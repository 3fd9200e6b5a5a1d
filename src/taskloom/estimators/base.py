"""The base class of the estimators: validate, state the problem, solve, and assign the fitted state."""

from __future__ import annotations

import os
import sys
from numbers import Integral, Real
from operator import attrgetter
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import HasMethods, Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted

from .._array_api import on_card
from .._time_limit import time_limit
from ..features.kernel_width import WIDTHS, resolved_gamma
from ..features.kernels import SumFeatures, UnknownFeatures, build_features
from ..losses import as_loss, mixed_loss
from ..metrics import TaskScores, mean_score
from ..problem import Problem
from ..problem.solution import History
from ..solvers import solve
from ..solvers.solve import unsolved
from ..structures import Structure, TermSum, as_structure
from ..structures.factored_matrix import FactoredStructure
from ..structures.simplex import SumToZero
from ..tables.layout import as_table, code_labels, sorted_labels, split_table
from .add_task import add_task
from .approximate_kernel import approximate_features, map_rows, mapped_features
from .callbacks import CallbackSupportMixin, Watch, show, with_callbacks
from .decision import decision_values, own_task, responses
from .device_fit import device_for, fit_on_device
from .exact_kernel_bound import ExactBound, bound_exact
from .fitted import Features, FittedAttribute, FittedState, Kernel, Prepared, show_fields
from .inspection import relations
from .inspection.task_model import task_model
from .model_files.save_load import save
from .parameter_types import Relation
from .state_of_fit import fitted_state, predictor
from .target_encoding import TargetScale
from .terms import coefficient_frames
from .terms.fit_sum import fit_sum, is_sum, predict_terms_of, refuse_sum, sum_decision
from .terms.level_of_terms import add_level
from .terms.summary import Summary, summary_of
from .terms.task_beside_common import add_to_common
from .validation import TargetInfo, as_structures, losses_by_task, names_its_class, new_rows, sample_weights, training_data

Array = np.ndarray
_WHOLE = Interval(Integral, 1, None, closed="left")
_TAKE_SPARSE = {"linear", "poly", "polynomial", "rbf", "laplacian", "sigmoid", "cosine"}


class MultiTaskEstimator(CallbackSupportMixin, BaseEstimator):
    """Fit, predict, inspect, save; subclasses encode the targets.

    A fit assigns one value, ``_state``; predictions, inspection and model files are functions of it.
    """

    _state: FittedState
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "ridge": [Interval(Real, 0, None, closed="left")],
        "gamma": [Interval(Real, 0, None, closed="left"), StrOptions(set(WIDTHS)), None],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
        "approximation": [StrOptions({"nystroem", "leverage", "fourier"}), HasMethods(["fit", "transform"]), None],
        "n_components": [_WHOLE, Interval(RealNotInt, 0, 1, closed="neither"), StrOptions({"auto"})],
        "fit_intercept": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "unseen": [StrOptions({"auto", "raise", "mean"})],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [_WHOLE],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }
    _doc_link_module = "taskloom"
    _doc_link_template = "https://taskloom.readthedocs.io/en/latest/estimators.html#{anchor}"

    def _doc_link_url_param_generator(self) -> dict[str, str]:
        return {"anchor": type(self).__name__.lower()}

    def _keep(self, parameters: dict[str, Any]) -> None:
        """Store parameters as they were given: the ``locals()`` of a constructor, whose signature names each of them."""
        self.__dict__.update({name: value for name, value in parameters.items() if name != "self"})

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

    def __sklearn_is_fitted__(self) -> bool:
        return "_state" in vars(self)

    def __dir__(self) -> list[str]:
        """Without the fitted attributes that this model does not have."""
        absent = (name for name in super().__dir__() if isinstance(getattr(type(self), name, None), FittedAttribute))
        return sorted(set(super().__dir__()) - {name for name in absent if not hasattr(self, name)})

    def _fitted(self) -> FittedState:
        """The state of the last fit; raises ``NotFittedError`` if there was none."""
        check_is_fitted(self)
        return self._state

    # --- fit ----------------------------------------------------------------------------------------------------

    @names_its_class
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
        on_device = hasattr(self, "device") and (self.device is not None or on_card(X)) and not is_sum(self)
        device = device_for(self, X) if on_device else None
        watch = Watch.over(self, X, y, self.max_iter) if getattr(self, "_skl_callbacks", None) else None
        if device is not None:
            self._state = fit_on_device(self, X, y, sample_weight, device, watch)
        elif is_sum(self):
            self._state = fit_sum(self, X, y, sample_weight, watch)
        else:
            with time_limit(self.time_limit):
                data = self._prepare(X, y, sample_weight)
                if isinstance(data.features, UnknownFeatures):
                    solution = unsolved(data.problem, self.tol)
                else:
                    solution = solve(data.problem, self.solver, **self._settings(data, watch))
            self._state = fitted_state(data, solution, self.tol)
        if watch is not None:
            watch.end(dict)
        return self

    def _prepare(self, X, y, sample_weight=None, feature_map=None) -> Prepared:
        """Validate data and parameters, and state the problem; with the features of ``feature_map`` if one is given."""
        self._validate_params()
        columns, targets, inputs, observations = training_data(self, X, y, sample_weight)
        features = None if feature_map is None else mapped_features(self, feature_map, map_rows(feature_map, inputs))
        return self._pose(columns, targets, inputs, observations, features)

    def _chosen(self) -> MultiTaskEstimator:
        """The estimator with the alpha and the structure of the fit, which a search may have chosen."""
        return self

    def _kernel(self, inputs: Any = None) -> Kernel:
        """The kernel; where ``gamma`` is a word, with the number that follows from the inputs of the fit."""
        from_inputs = isinstance(self.gamma, str) and inputs is not None
        gamma = resolved_gamma(self.gamma, inputs) if from_inputs else self.gamma
        return Kernel("linear" if self.kernel is None else self.kernel, gamma, self.degree, self.coef0, from_inputs)

    def _pose(self, columns, targets, inputs, observations, features: Features | None = None) -> Prepared:
        """The problem of these observations; with the features of the kernel on the inputs, unless others are given."""
        structure, n_tasks = as_structures(self.structure, self.kernel), len(targets.tasks_)
        kernel = self._kernel(inputs[np.unique(observations.row)] if isinstance(self.gamma, str) else None)
        keep = any(each.keeps_columns for each in structure) if isinstance(structure, list) else structure.keeps_columns
        if keep and not (kernel.linear and self.approximation is None):
            raise ValueError(
                f"{structure!r} acts on the columns of X and needs kernel='linear', got kernel={self.kernel!r} "
                f"and approximation={self.approximation!r}"
            )
        if features is None and self.approximation is not None:
            features = approximate_features(self, kernel, inputs, np.unique(observations.row))
        elif features is None:
            X = inputs.astype(np.float64, copy=False)
            features = build_features(
                X, keep_columns=keep, centred=self.fit_intercept, n_tasks=n_tasks, kernel=kernel.kernel, **kernel.parameters
            )
        losses = losses_by_task(self.loss, targets.tasks_)
        scale = TargetScale(np.zeros(n_tasks), np.ones(n_tasks))
        if getattr(self, "standardize_targets", False):  # a regressor
            scale = TargetScale.of(observations, losses)
            observations = scale.apply(observations)
        problem = Problem(
            features.phi,
            observations,
            mixed_loss(losses, observations.task) if isinstance(self.loss, dict) else losses[0],
            self._coded_structure(structure, columns, targets, features),
            float(self.alpha),
            float(self.ridge),
            self.fit_intercept,
        )
        return Prepared(columns, targets, inputs, features, problem, scale, kernel)

    def _coded_structure(self, structure: Any, columns: Any, targets: TargetInfo, features: Any = None) -> Structure:
        """The structure of the problem: bound to the names of the tasks and inputs, and to the coding of classes.

        With several kernels there is one for each, or the same one for all. With simplex coding the functions of the classes
        add up to zero, and the structure acts on that subspace.
        """
        several = isinstance(features, SumFeatures)
        bound = []
        for each in structure if isinstance(structure, list) else [structure] * (len(features.widths) if several else 1):
            each.check_size(len(targets.tasks_))
            bound.append(each.bind(targets.tasks_.tolist()).bind_features(columns.input_names(self.task_column)))
        if targets.one_vs_rest and self.coding == "simplex":
            bound = [SumToZero(each) for each in bound]
        return TermSum.of(bound, features.widths, len(targets.tasks_)) if several else bound[0]

    def _under(self, structure: Any, data: Prepared) -> Problem:
        """The problem of the same data under another structure."""
        return data.problem.with_structure(self._coded_structure(structure, data.columns, data.targets, data.features))

    def _settings(self, data: Prepared, watch: Watch | None = None, last: FittedState | None = None) -> dict[str, Any]:
        """How far to solve, from where (with ``warm_start``: the last fit), and whom to tell about each iteration."""

        def report(history: History) -> bool:
            if self.verbose and (line := show(history)):
                sys.stdout.write(line + "\n")
            return watch is not None and watch.part("iteration").end(lambda: {"_state": predictor(data, *history.best())})

        last = vars(self).get("_state") if last is None and self.warm_start else last
        return {
            "tol": self.tol,
            "max_iter": self.max_iter,
            "time_limit": self.time_limit,
            "start": None if last is None else data.weights_of(last),
            "callback": report if self.verbose or watch is not None else None,
        }

    # --- targets, encoded by subclasses ------------------------------------------------------------------------

    def _targets(self, y, labels) -> tuple[Array, TargetInfo]:
        """Targets as numbers, NaN where unobserved, and their description."""
        raise NotImplementedError

    def _labelled(self, known: TargetInfo) -> Array:
        """Which tasks have two labels."""
        return np.array(list(map(attrgetter("targets"), losses_by_task(self.loss, known.tasks_)))) == "signs"

    def _coded(self, known: TargetInfo, y, labels) -> Array:
        """The targets of known tasks as numbers, NaN where unobserved: ``n x T``, or ``n`` for a long table."""
        raise NotImplementedError

    def _targets_of_task(self, state: FittedState, y, name) -> tuple[Array, Any]:
        """The encoded targets of a new task, and the classes of all tasks including it."""
        raise NotImplementedError

    # --- predictions and scores -----------------------------------------------------------------------------------

    def _decision(self, X):
        """Predicted values, ``n x T`` or one for each row of a long table."""
        state = self._fitted()
        if state.decision_values is not None:  # of the test rows of a fold
            return state.decision_values
        if state.is_sum:
            return sum_decision(self, state, X).astype(state.dtype, copy=False)
        return decision_values(state, *new_rows(self, state, X), getattr(self, "device", None))

    def predict_terms(self, X: Any) -> list[np.ndarray]:
        """What each term adds to a prediction: of ``terms=``, of ``common=`` (the common and the own part), or of each kernel.

        Their sum plus the intercept (those of the tasks, for several kernels) is the prediction.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.

        Returns
        -------
        list of ndarray
            For each term ``(n_samples, n_tasks)``, or ``(n_samples,)`` for a long table and for ``terms=``.
        """
        state = self._fitted()
        if state.is_sum:
            return predict_terms_of(self, state, X)
        if not state.kernel.several:
            raise ValueError(
                f"predict_terms needs several terms: common=, terms= or a list of kernels, got kernel={self.kernel!r} alone"
            )
        inputs, task = new_rows(self, state, X)
        return [own_task(term, task) for term in responses(state, inputs)]

    predict_addends = predict_terms  # the former name

    def score_per_task(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> dict[Any, float]:
        """The coefficient of determination of each task (accuracy, where a task has labels), by name; NaN is left out.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.
        y : array-like or data frame of shape (n_samples,) or (n_samples, n_tasks)
            Targets; NaN where unobserved.
        sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
            Weights of the observations.

        Returns
        -------
        dict
            By task; tasks without any observed target are left out.
        """
        values = self._decision(X)
        scores, seen = self._task_scores(self._state, X, y, sample_weight)
        return scores(values[seen])

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The mean over tasks of the coefficient of determination, or of the accuracy, where a task has labels.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            Inputs, with the task column where the model has one.
        y : array-like or data frame of shape (n_samples,) or (n_samples, n_tasks)
            Targets; NaN (or None, for labels) where unobserved: these are left out.
        sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
            Weights of the observations.

        Returns
        -------
        float
            The mean; 1 is best.
        """
        return mean_score(self.score_per_task(X, y, sample_weight))

    def _task_scores(self, known: TargetInfo, X, y, sample_weight=None) -> tuple[TaskScores, Array]:
        """A scorer of predictions for these targets, and where these are observed; kept where many are scored."""
        labels = split_table(X, self.task_column).labels
        y = as_table(y)
        Y = self._coded(known, y, labels)
        weight = None
        if sample_weight is not None:
            weight = sample_weights(sample_weight, y, Y.reshape(len(Y), -1), known).reshape(Y.shape)
        seen, kinds = ~np.isnan(Y), self._labelled(known)
        if labels is None:
            names, task, labelled = known.tasks_.tolist(), np.nonzero(seen)[1], kinds
        else:
            tasks = sorted_labels(labels)
            names, task = tasks.tolist(), code_labels(labels, tasks)[seen]
            kind, all_labelled = dict(zip(known.tasks_.tolist(), kinds, strict=True)), bool(kinds.all())
            labelled = np.array([kind.get(name, all_labelled) for name in names])
        if not seen.any():
            raise ValueError("y holds nothing but missing values: there is nothing to score")
        return TaskScores(Y[seen], task, names, labelled, None if weight is None else weight[seen]), seen

    # --- model files, new tasks, inspection --------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike, *, training: bool = True) -> None:
        """Write the fitted model to a file that :func:`taskloom.load` reads.

        The file holds data only (safetensors and JSON): nothing in it can run, and it is written all at once or not at all.

        Parameters
        ----------
        path : str or path
            Where the file is to be.
        training : bool, default=True
            Whether to keep the training data of a squared-loss fit, which ``predict(X, return_std=True)`` needs, and those of
            ``terms=`` and ``common=``, which ``summary()`` needs. Without them the file of a linear model is small and holds
            no observations; kernel models need their training inputs anyway.
        """
        save(self, path, training=training)

    def add_task(self, X: Any, y: Any, name: Any, *, sample_weight: ArrayLike | None = None, relation: Relation = None) -> Self:
        """Add one task to the fitted model without a refit: the structure is kept, and the new task is the last one.

        With ``common=`` the new task gets its own function beside the common part. With ``terms=`` it is a level of the
        grouping whose column holds ``name`` in every row of ``X``, which has all columns: the weights of all terms by that
        column are found together, given the rest. Descriptors are those in ``X``, and ``y`` may be NaN throughout.

        Under spectral structures (trace, Frobenius, unit trace, ...) the new task has the feature covariance ``D`` of the
        fitted tasks. Under ``SharedMean`` its prior mean is their mean. Under any other structure its prior has the covariance
        of the fitted tasks' functions, and a task-specific variance that is the mean of theirs.

        Parameters
        ----------
        X : array or data frame of shape (n_samples, n_features)
            Inputs of the new task; a task column is not needed, and ignored.
        y : array-like of shape (n_samples,)
            Targets, NaN where unobserved; labels of the same two classes for a classifier.
        name : object
            The name of the new task; it must be unique.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the observations.
        relation : array-like of shape (n_tasks,) or dict, default=None
            Known covariances of the new task with the others, in units of ``structure_``.

        Returns
        -------
        self
            The model with one more task.
        """
        state = self._fitted()
        add = add_level if state.fitted_terms is not None else add_to_common if state.common_part is not None else add_task
        self._state = add(self, state, X, y, name, sample_weight, relation)
        return self

    def bound_exact(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> ExactBound:
        """Bound the minimum of the problem with the exact kernel, after a fit with ``approximation=``.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n_samples, n_features)
            The inputs of the fit. Every pair of rows is visited, in pieces: quadratic in the rows, not in memory.
        y : array-like or data frame of shape (n_samples,) or (n_samples, n_tasks)
            The targets of the fit.
        sample_weight : array-like of shape (n_samples,) or (n_samples, n_tasks), default=None
            The weights of the fit.

        Returns
        -------
        ExactBound
            ``lower``, ``upper``, ``approximate``, ``gap``, ``relative_gap``, ``message``.
        """
        return bound_exact(self, self._fitted(), X, y, sample_weight)

    def task_correlation(self) -> Array | FactoredStructure:
        """The learned relations as correlations, in the order of ``tasks_``; with several kernels, those of the sum.

        Returns
        -------
        ndarray of shape (n_tasks, n_tasks), or FactoredStructure where ``structure_`` is one
        """
        return relations.task_correlation(self._fitted())

    def summary(self) -> Summary:
        """Terms, groups, variance components, coefficients of the common part, and certificate, as a table to print.

        Variance components are from the restricted likelihood of the Gaussian mixed model (squared loss, ``common=`` or
        ``terms=``), not from the learned structure, whose scale depends on alpha.

        Returns
        -------
        Summary
            ``print`` shows it; its attributes hold the numbers.
        """
        return summary_of(self, self._fitted())

    def coef_frame(self) -> Any:
        """The coefficients of a linear model as a data frame, in the units of the inputs.

        Returns
        -------
        pandas.DataFrame
            One row for each task, with a column for each input and ``"intercept"``: totals, common and own. With ``terms=`` one
            row for each coefficient: ``term``, ``by``, ``level``, ``feature``, ``coefficient``, of linear and constant terms.
        """
        return coefficient_frames.coef_frame(self, self._fitted())

    def relations_frame(self) -> Any:
        """The learned relations as a data frame.

        Returns
        -------
        pandas.DataFrame, or dict of them
            The correlations of the tasks. With ``terms=`` one frame for each penalised grouping, by the text of the term: the
            learned matrix of its features or of its levels, or the mean square of its weights over levels if none is learned.
        """
        return coefficient_frames.relations_frame(self, self._fitted())

    def task_model(self, name: Any) -> Any:
        """One task of a linear model as a plain estimator of scikit-learn, with copies of its total coefficients.

        For tools that know those alone (SHAP, exports). It takes the inputs without the task column.

        Parameters
        ----------
        name : object
            The name of a task. Where the tasks are the classes of one target, it is that class against the rest.

        Returns
        -------
        LinearRegression, LogisticRegression or LinearSVC
            The latter for the classifiers' losses without probabilities; the former's predictions are decision values.

        Examples
        --------
        >>> import numpy as np
        >>> from taskloom import MultiTaskRegressor
        >>> X = np.random.default_rng(0).normal(size=(20, 3))
        >>> model = MultiTaskRegressor(common=True).fit(X, X[:, :2])
        >>> bool(np.allclose(model.task_model(1).predict(X), model.predict(X)[:, 1]))
        True
        """
        return task_model(self, self._fitted(), name)

    def task_clusters(self, n: int | None = None) -> Array:
        """Groups of tasks that are alike, by average linkage of ``1 - correlation``.

        Under ``Clusters`` by Ward's linkage in the leading eigenvectors of the structure: what it relaxes is the projection
        onto them, and single correlations are noisier.

        Parameters
        ----------
        n : int, default=None
            How many groups. ``None`` is as many as the structure was told (``Clusters``), else as many as make
            the best mean silhouette.

        Returns
        -------
        ndarray of shape (n_tasks,)
            A label for each task, counted from 0 in the order in which groups first appear in ``tasks_``.
        """
        return relations.task_clusters(self._fitted(), n)

    def task_graph(self, threshold: float | None = None) -> list[tuple[Any, Any, float]]:
        """The pairs of tasks whose correlation is at least ``threshold`` in size, strongest first.

        Under ``LearnedGraph`` and ``SparsePrecision`` the edges are those that were learned, with the correlation of two tasks
        given all others (from ``A^-1``).

        Parameters
        ----------
        threshold : float, default=None
            ``None`` is 0.5; less for structures that set relations to zero themselves (0.01; 0.05 for edges), where what is
            left counts, however much it was shrunk.

        Returns
        -------
        list of (task, task, correlation)
            Edges as :class:`~taskloom.structures.TaskGraph` and networkx's ``add_weighted_edges_from`` take them.
        """
        return relations.task_graph(self._fitted(), threshold)

    def explain(self, task: Any) -> dict[Any, float]:
        """The contribution of the data of each task to the function of one task.

        At the optimum ``f_t = sum_s R_ts g_s / (2 alpha)``, where ``g_s`` is the dual function of task ``s`` (from its
        residuals) and ``R = A (I + ridge/alpha A)^-1``. The contribution of task ``s`` is ``R_ts <g_s, f_t> / (2 alpha)``,
        relative to ``||f_t||^2``.

        Parameters
        ----------
        task : object
            The name of a task of the fit.

        Returns
        -------
        dict
            The contribution of each task, itself included, largest first; they add up to 1, and may be negative.
        """
        refuse_sum(self, "explain")
        return relations.explain(self._fitted(), task)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = self.task_column is None
        kernels = self.kernel if isinstance(self.kernel, (list, tuple)) else ["linear" if self.kernel is None else self.kernel]
        named = all(isinstance(kernel, str) for kernel in kernels)
        tags.input_tags.pairwise = named and list(kernels) == ["precomputed"]
        tags.input_tags.sparse = named and set(kernels) <= _TAKE_SPARSE
        return tags


show_fields(MultiTaskEstimator, FittedState, "_state")
