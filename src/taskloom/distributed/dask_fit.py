"""``fit``: an estimator, Dask collections and a client in; the fitted estimator out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import _get_feature_names

from .._time_limit import time_limit as limited_time
from ..design import Observations
from ..estimators import MultiTaskRegressor, MultiTaskRegressorCV
from ..estimators.callbacks import Watch, with_callbacks
from ..estimators.fitted import FittedState
from ..estimators.validation import InputColumns, TargetInfo
from ..features.kernels import build_features
from ..losses import as_loss
from ..problem import Problem
from ..problem.solution import History, Solution
from ..solvers import solve
from ..tables.layout import column_names, column_position, shown
from .checkpoint import Checkpoint
from .dask_workers import Workers
from .fit_context import FitContext
from .partitions import count_observed, empty_tables, names_columns, read_shared, row_blocks
from .progress_bar import progress_report
from .task_summaries import PooledRows
from .tasks_by_worker import NOTHING, fit_own

UNUSED = {"approximation", "n_components", "standardize_targets", "device", "common", "terms"}  # must have their defaults
SETTINGS = {*MultiTaskRegressor._get_param_names()} - UNUSED
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
    workers: the client sees the names and sizes of the tasks, sums over tasks, and in the end the weights. When a worker dies,
    the others compute again what it held; the result does not change.

    Parameters
    ----------
    model : MultiTaskRegressor
        With the squared loss and the linear kernel. Tasks with inputs of their own (a task column, or missing targets) need a
        spectral structure: ``Trace``, ``Frobenius``, ``Schatten``, ``SchattenNorm``, ``UnitTrace``,
        ``Independent``. Tasks that share all their inputs take any structure: theirs is a small problem after one pass.
    X : dask array or dask data frame
        Inputs, partitioned by rows; with a task column where tasks have rows of their own. A table sorted by task is best.
    y : dask array, series or data frame; or str, int, or a list of these
        Targets, partitioned like ``X``; NaN where unobserved. Or the names or positions of their columns in ``X``, which are
        then no inputs.
    client : distributed.Client, optional
        By default the current one.
    task : str or int, optional
        The task column, where the model does not name one; it becomes the model's ``task_column``.
    checkpoint : path, optional
        A file that is written every ``checkpoint_every`` iterations and when the fit ends, however it ends. A fit that finds it
        goes on from there. That of another problem is refused.
    checkpoint_every : int, default=10
        Iterations between two checkpoints.
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
    given = model
    if task is not None:
        if model.task_column not in (None, task):
            raise ValueError(f"task={task!r}, but the model has task_column={model.task_column!r}; give one")
        model = clone(model).set_params(task_column=task)
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every!r}")
    file = None if checkpoint is None else Checkpoint(checkpoint, checkpoint_every)
    empty_X, targets = empty_tables(X, y)
    blocks = row_blocks(X, y)
    columns = InputColumns(n_features_in_=int(empty_X.shape[1]), feature_names_in_=_get_feature_names(empty_X))
    if model.task_column is not None:
        column_position(empty_X, model.task_column)  # raises if there is none
    precision = _precision(empty_X, model.task_column)

    @with_callbacks
    def fitted(estimator: Any) -> FittedState:
        watch = Watch.over(estimator, X, y, model.max_iter) if getattr(estimator, "_skl_callbacks", None) else None
        with progress_report(bool(model.verbose) if progress is None else progress, model.tol) as report:
            context = FitContext(model, columns, Workers(client), precision, report, watch, vars(estimator).get("_state"))
            with limited_time(model.time_limit):
                long = model.task_column is not None
                state = fit_own(context, None, blocks, file) if long else _fit_wide(context, targets, blocks, file)
        if watch is not None:
            watch.end(dict)
        return state

    state = fitted(given)
    given.__dict__.update(task_column=model.task_column, _state=state)  # at once: an interrupt must not part them
    return given


def _client(client: Any) -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError(INSTALL) from error
    if client is not None:
        if not isinstance(client, distributed.Client):
            raise ValueError(f"client must be a distributed.Client, got {type(client).__name__}")
        if client.asynchronous:
            raise ValueError("client is asynchronous; fit waits for its results, give it a Client of its own")
        return client
    try:
        return distributed.Client.current()
    except ValueError:
        raise ValueError("no Dask client is running; start one with distributed.Client(...) and pass it as client=") from None


def _accept(model: Any) -> None:
    """Refuse unsupported settings before any data are read."""
    name = type(model).__name__
    if not (isinstance(model, MultiTaskRegressor) and not isinstance(model, MultiTaskRegressorCV)):
        raise ValueError(
            f"distributed.fit takes a MultiTaskRegressor, got {name}; to search over many models on a cluster, fit {name} "
            'under joblib.parallel_config(backend="dask")'
        )
    model._validate_params()
    if isinstance(model.loss, dict) or not as_loss(model.loss).quadratic:
        raise ValueError(f"distributed.fit needs the squared loss, got loss={model.loss!r}")
    if not (isinstance(model.kernel, str) and model.kernel == "linear"):
        raise ValueError(
            f'distributed.fit needs kernel="linear", got kernel={model.kernel!r}; map the inputs to features first'
        )
    if model.standardize_targets:
        raise ValueError("distributed.fit does not standardize targets; scale y before the fit")
    usual = type(model)().get_params(deep=False)
    for name, value in model.get_params(deep=False).items():
        if not (name in SETTINGS or value is usual[name] or value == usual[name]):
            raise ValueError(f"distributed.fit has no use for {name}={value!r}; leave it as it is by default")


def _precision(empty_X: Any, task_column: Any) -> np.dtype:
    """Predictions are in single precision where all inputs are."""
    frame = hasattr(empty_X, "dtypes")
    kinds = [str(kind) for kind in (empty_X.dtypes if frame else [empty_X.dtype])]
    if frame and task_column is not None:
        kinds.pop(column_position(empty_X, task_column))
    return np.dtype("float32" if set(kinds) == {"float32"} else "float64")


def _fit_wide(context: FitContext, empty_y: Any, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    """Fit to wide tables: shared inputs if no target is missing."""
    counted = context.workers.read("count", count_observed, [(X if names_columns(y) else None, y) for X, y in blocks])
    total = np.sum(context.workers.gather(counted), axis=0)
    rows, observed = int(total[0]), total[1:]
    if rows == 0:
        raise ValueError("X has no rows")
    targets = TargetInfo(tasks_=column_names(empty_y, len(observed)), wide=empty_y.ndim == 2)
    if not observed.all():
        raise ValueError(f"task {shown(targets.tasks_[int(np.argmin(observed))])} has no observation (all NaN); leave it out")
    fit_tasks = _fit_shared if (observed == rows).all() else fit_own
    return fit_tasks(context, targets, blocks, checkpoint)


def _fit_shared(context: FitContext, targets: TargetInfo, blocks: Sequence[tuple], checkpoint: Any) -> FittedState:
    """Tasks that share all inputs: one pass over the rows, and a small problem on the client."""
    if checkpoint is not None:
        raise ValueError(
            "tasks that share all their inputs are read in one pass and solved on the client: there is nothing to checkpoint"
        )
    model, n_tasks, structure = context.model, len(targets.tasks_), context.structure(targets)
    parts = context.workers.read("statistics", read_shared, blocks)
    rows: PooledRows = context.workers.gather(context.workers.total("sum", parts, PooledRows.merged))
    seen = Observations.from_wide(rows.Y, None, context.task_weights(targets, np.full(n_tasks, float(rows.count))))
    features: Any = build_features(rows.X, "linear", structure.keeps_columns)
    problem = Problem(features.phi, seen, model.loss, structure, float(model.alpha), float(model.ridge), context.centre)
    start = context.start(targets)

    def state(point: tuple[Any, Any]) -> FittedState:
        A, nothing = problem.best_penalty(point[0])[1], np.zeros(seen.y.size)
        return context.fitted(targets, features, problem, Solution(*point, A, nothing, NOTHING, History(), "auto"))

    solution = solve(
        problem,
        model.solver,
        start=None if start is None else (features.weights(start[0].T), start[1]),
        callback=context.callback(problem.relative, state),
        **context.limits,
    )
    return context.fitted(targets, features, problem, solution)
