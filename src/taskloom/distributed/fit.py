"""``fit``: an estimator, Dask collections and a client in; the fitted estimator out."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import _check_feature_names

from .._component import require
from ..estimators import MultiTaskRegressor, MultiTaskRegressorCV
from ..estimators.base import Prepared
from ..estimators.targets import TargetScale
from ..features import LinearFeatures, build_features
from ..losses import Loss, as_loss
from ..problem import Problem
from ..solution import History, Solution
from ..solvers import solve
from ..structures import Independent, Structure, as_structure
from ..structures.spectral import EitherSide
from ..tables import code_labels, column_names, column_position, shown, sorted_labels
from ..tasks import Observations, task_strengths
from .checkpoint import Checkpoint
from .descent import Objective
from .loop import Book, Limits, run
from .partitions import count_observed, is_frame, names_of, read_long, read_shared, read_wide, row_blocks
from .progress import watched
from .statistics import Shared
from .workers import Tasks, Workers

Array = np.ndarray
INSTALL = 'taskloom.distributed needs Dask; install it with pip install "taskloom[distributed]"'


def fit(
    model: MultiTaskRegressor,
    X: Any,
    y: Any,
    client: Any = None,
    *,
    task: Any = None,
    checkpoint: Any = None,
    checkpoint_every: int = 10,
    progress: Any = None,
) -> MultiTaskRegressor:
    """Fit a regressor to Dask collections, where the rows are.

    The model, its objective and its certificate are those of ``model.fit``; so are its fitted attributes. No row leaves the
    workers: the client sees the names and sizes of the tasks, sums over tasks, and in the end the weights. A worker that dies is
    replaced by the others, which compute again what it held; the result does not change.

    Parameters
    ----------
    model : MultiTaskRegressor
        With the squared loss and the linear kernel. Tasks with inputs of their own (a task column, or targets with gaps) need a
        structure that may sit on the features: ``Trace``, ``Frobenius``, ``Schatten``, ``SchattenNorm``, ``UnitTrace``,
        ``Independent``. Tasks that share all their inputs take any structure, for theirs is a small problem after one pass.
    X : dask array or dask data frame
        Inputs, partitioned by rows; with a task column where tasks have rows of their own. A table sorted by task is best.
    y : dask array, series or data frame
        Targets, partitioned like ``X``; NaN where unobserved.
    client : distributed.Client, optional
        By default the current one.
    task : str or int, optional
        The task column, where the model does not name one; it becomes the model's ``task_column``.
    checkpoint : path, optional
        A file that is written every ``checkpoint_every`` iterations and when the fit ends, however it ends. A fit that finds it
        goes on from there. That of another problem is refused.
    progress : bool or callable, optional
        True shows a bar or lines on stderr; a callable gets the history after each iteration, and stops the fit by returning
        True. By default as ``model.verbose`` says.

    Returns
    -------
    model
        Itself, fitted.
    """
    client = _client(client)
    _accept(model)
    if task is not None:
        require(
            model.task_column in (None, task), f"task={task!r}, but the model has task_column={model.task_column!r}; give one"
        )
        model.task_column = task
    require(checkpoint_every >= 1, f"checkpoint_every must be at least 1, got {checkpoint_every!r}")
    limits = Limits(model.tol, model.max_iter, model.time_limit, checkpoint_every)
    blocks = row_blocks(X, y)
    sight = X._meta if is_frame(X) else np.empty((0, X.shape[1]), dtype=X.dtype)
    _check_feature_names(model, sight, reset=True)
    model.n_features_in_ = int(sight.shape[1])
    d = model.n_features_in_ - (model.task_column is not None)
    with watched(bool(model.verbose) if progress is None else progress, model.tol) as report:
        found = _Fit(model, Workers(client), d, _precision(sight), limits, report)
        if model.task_column is not None:
            column_position(sight, model.task_column)
            model._wide = False
            found.long(blocks, checkpoint)
        else:
            found.wide(blocks, y, checkpoint)
    if not model.certificate_.converged and model.certificate_.status != "callback":
        warnings.warn(model.certificate_.message, ConvergenceWarning, stacklevel=2)
    return model


def _client(client: Any) -> Any:
    try:
        import dask
        import distributed
    except ImportError as error:
        raise ImportError(INSTALL) from error
    del dask
    if client is not None:
        require(isinstance(client, distributed.Client), f"client must be a distributed.Client, got {type(client).__name__}")
        require(not client.asynchronous, "client is asynchronous; fit waits for its results, give it a Client of its own")
        return client
    try:
        return distributed.Client.current()
    except ValueError:
        raise ValueError("no Dask client is running; start one with distributed.Client(...) and pass it as client=") from None


def _accept(model: Any) -> None:
    """What a distributed fit cannot do is refused before anything is read."""
    name = type(model).__name__
    require(
        isinstance(model, MultiTaskRegressor) and not isinstance(model, MultiTaskRegressorCV),
        f"distributed.fit takes a MultiTaskRegressor, got {name}; to search over many models on a cluster, fit {name} under "
        'joblib.parallel_config(backend="dask")',
    )
    model._validate_params()
    squared = not isinstance(model.loss, dict) and as_loss(model.loss).quadratic
    require(squared, f"distributed.fit needs the squared loss, got loss={model.loss!r}")
    linear = isinstance(model.kernel, str) and model.kernel == "linear"
    require(linear, f'distributed.fit needs kernel="linear", got kernel={model.kernel!r}; map the inputs to features first')
    require(not model.standardize_targets, "distributed.fit does not standardize targets; scale y before the fit")
    require(not model.warm_start, "distributed.fit has no warm start; a checkpoint file does that")


def _precision(sight: Any) -> np.dtype:
    """Predictions are in single precision where all inputs are."""
    kinds = set(map(str, sight.dtypes)) if hasattr(sight, "dtypes") else {str(sight.dtype)}
    return np.dtype("float32" if kinds == {"float32"} else "float64")


@dataclass(eq=False)
class Afar:
    """What a fitted estimator asks of its problem, where the observations are elsewhere."""

    loss: Loss
    structure: Structure
    alpha: float
    ridge: float
    n_tasks: int
    Z: Array

    def correlate(self, _: Array) -> Array:
        """``Z = Phi'G`` at the end of the fit."""
        return self.Z


@dataclass(eq=False)
class _Fit:
    model: Any
    workers: Workers
    n_features: int
    dtype: np.dtype
    limits: Limits
    report: Any

    @property
    def _centre(self) -> bool:
        return bool(self.model.fit_intercept)

    # --- tasks with inputs of their own ---------------------------------------------------------------------------

    def long(self, blocks: Sequence[tuple], checkpoint: Any) -> None:
        statistics = self.workers.read("statistics", read_long, blocks, self.model.task_column, self._centre)
        names = self._names(statistics)
        labels = [label for label, _ in names if len(label)]
        require(bool(labels), "y holds nothing but NaN: no task was observed")
        self.model.tasks_ = tasks = sorted_labels(np.concatenate(labels))
        self._own(statistics, [code_labels(label, tasks) for label, _ in names], [n for _, n in names], checkpoint)

    def _names(self, statistics: Sequence[Any]) -> list[tuple[Array, Array]]:
        return self.workers.gather([self.workers.submit("names", names_of, each) for each in statistics])

    def _own(self, statistics: Sequence[Any], present: list[Array], counts: list[Array], checkpoint: Any) -> None:
        model, n_tasks = self.model, len(self.model.tasks_)
        structure = self._structure()
        fits = isinstance(structure, (EitherSide, Independent))
        require(
            fits,
            f"tasks with inputs of their own need a structure that may sit on the features (Trace, Frobenius, Schatten, "
            f"SchattenNorm, UnitTrace, Independent) to be fitted on a cluster, got {structure!r}",
        )
        require(
            isinstance(model.solver, str) and model.solver == "auto",
            f'tasks with inputs of their own have one distributed solver; leave solver="auto", got solver={model.solver!r}',
        )
        total = np.zeros(n_tasks)
        for tasks, n in zip(present, counts, strict=True):
            total[tasks] += n
        tasks = Tasks(self.workers, statistics, present, counts)
        tasks.settle(task_strengths(model._by_task(model.task_weight, "task_weight"), total), self._centre)
        alpha, ridge = float(model.alpha), float(model.ridge)
        d, (blur, squares) = self.n_features, tasks.sizes().tolist()
        objective = Objective(
            lambda Q, what: tasks.sums(Q, alpha, ridge, what), structure, alpha, ridge, d, n_tasks, squares / (d * n_tasks)
        )
        scalars, moments = objective.nothing()
        book = Book(float(scalars[0]), blur, float(scalars[0]), objective.bound(scalars, moments))
        file = None if checkpoint is None else Checkpoint(checkpoint, self._described(structure, total, scalars, moments))
        status = run(objective, book, file, self.limits, self.report)
        self._hand_back(objective, tasks, book, status)

    def _structure(self) -> Structure:
        return self.model._coded_structure(as_structure(self.model.structure))

    def _described(self, structure: Structure, total: Array, scalars: Array, moments: Array) -> dict[str, Any]:
        """Settings and data of a problem, in as few words as tell it from others."""
        model = self.model
        names = hashlib.sha256(repr(model.tasks_.tolist()).encode()).hexdigest()[:16]
        weights = model.task_weight if isinstance(model.task_weight, str) else "given"
        return {
            "structure": repr(structure),
            "alpha": float(model.alpha),
            "ridge": float(model.ridge),
            "fit_intercept": bool(model.fit_intercept),
            "task_weight": weights,
            "number of inputs": self.n_features,
            "number of tasks": len(model.tasks_),
            "names of the tasks": names,
            "number of observations": int(total.sum()),
            "loss of constants": float(scalars[0]),
            "correlations of inputs and targets": float(np.linalg.norm(moments)),
        }

    def _hand_back(self, objective: Objective, tasks: Tasks, book: Book, status: str) -> None:
        """The weights come to the client; the best structure for them is what is certified."""
        d, n_tasks, ridge = self.n_features, len(self.model.tasks_), objective.ridge
        root = objective.root(book.point.Q) if book.point is not None else np.zeros((d, 0))
        W, Z, b = tasks.weights(root, objective.alpha, n_tasks)
        A, penalty = objective.structure.handed_back(np.sqrt(objective.alpha) * W)
        if book.point is not None:
            primal = float(book.point.scalars[0]) + penalty + ridge * float(np.vdot(W, W))
            book.primal = min(book.primal, primal) if np.isfinite(primal) else book.primal
        loss = as_loss(self.model.loss)
        places = f"solver Distributed on {len(self.workers.client.scheduler_info(n_workers=-1)['workers'])} workers"
        certificate = book.certificate(status, self.limits.tol, places)
        problem: Any = Afar(loss, objective.structure, objective.alpha, ridge, n_tasks, Z)
        features = LinearFeatures(np.empty((0, d)), keep_columns=True)
        data = Prepared(np.empty((0, d), dtype=self.dtype), features, problem, TargetScale.none(n_tasks))
        self._store(data, Solution(W, b, A, np.zeros(0), certificate, book.history, "distributed"))

    def _store(self, data: Prepared, solution: Solution) -> None:
        self.model._store(data, solution)
        self.model.__dict__.pop("_training", None)  # it is with the workers

    # --- tasks that share their inputs ----------------------------------------------------------------------------

    def wide(self, blocks: Sequence[tuple], y: Any, checkpoint: Any) -> None:
        model = self.model
        seen = self.workers.read("count", count_observed, [(targets,) for _, targets in blocks])
        seen = [each for each in self.workers.gather(seen) if each[0]]
        require(bool(seen), "X has no rows")
        rows, observed = int(sum(each[0] for each in seen)), np.sum([each[1:] for each in seen], axis=0)
        model._wide = y.ndim == 2
        model.tasks_ = column_names(y._meta if is_frame(y) else y, len(observed))
        if not observed.all():
            raise ValueError(f"task {shown(model.tasks_[int(np.argmin(observed))])} has no observation (all NaN); leave it out")
        if (observed == rows).all():
            self._shared(blocks, checkpoint)
            return
        statistics = self.workers.read("statistics", read_wide, blocks, self._centre)
        names = self._names(statistics)
        self._own(statistics, [label for label, _ in names], [n for _, n in names], checkpoint)

    def _shared(self, blocks: Sequence[tuple], checkpoint: Any) -> None:
        """One pass over the rows; what is left is a problem of ``d + 1`` rows, for the solvers that there are."""
        require(
            checkpoint is None,
            "tasks that share all their inputs are read in one pass and solved on the client: there is nothing to checkpoint",
        )
        model = self.model
        parts = self.workers.read("statistics", read_shared, blocks, self._centre)
        shared: Shared = self.workers.gather(self.workers.total("sum", parts, Shared.merged, self._centre))
        n_tasks = len(model.tasks_)
        inputs = np.vstack([shared.root, np.zeros(self.n_features)])  # the last row holds what no weights could explain
        targets = np.vstack([shared.targets, np.sqrt(shared.rest)])
        strength = task_strengths(model._by_task(model.task_weight, "task_weight"), np.full(n_tasks, float(shared.count)))
        r = len(inputs)
        seen = Observations(
            np.tile(np.arange(r), n_tasks),
            np.repeat(np.arange(n_tasks), r),
            targets.T.ravel(),
            np.repeat(strength / shared.count, r),
            n_tasks,
        )
        structure = self._structure()
        features: Any = build_features(inputs, "linear", structure.keeps_columns)
        problem = Problem(features.phi, seen, model.loss, structure, float(model.alpha), float(model.ridge), False)
        solution = solve(
            problem,
            model.solver,
            tol=self.limits.tol,
            max_iter=self.limits.max_iter,
            time_limit=self.limits.time_limit,
            callback=lambda history: self.report(history, _relative(problem, history)),
        )
        b = shared.target_mean - shared.mean @ features.coef(solution.W)
        empty = np.empty((0, self.n_features), dtype=self.dtype)
        self._store(Prepared(empty, features, problem, TargetScale.none(n_tasks)), replace(solution, b=b))


def _relative(problem: Problem, history: History) -> float:
    return problem.relative(history.gap[-1], abs(history.objective[-1]) + abs(history.dual[-1]))
