"""Incremental fits: sufficient statistics of the squared loss, summed over blocks of rows, then one small solve.

The statistics become a data set of a few rows with the same moments (``design.sufficient_statistics``). Weights, task weights,
standardization, intercepts and the certificate are those of the fit in memory.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from .._component import warn
from ..design import Observations
from ..design.sufficient_statistics import Moments
from ..features.approximate import mapped, pieces
from ..features.kernels import to_dense
from ..losses import as_loss
from ..solvers import solve
from ..tables.layout import as_table, rows_by_task, shown, sorted_labels
from .approximate_kernel import approximation_of, mapped_features, reservoir_of
from .fitted import FittedState, with_state
from .state_of_fit import fitted_state
from .terms.fit_sum import is_sum
from .validation import InputColumns, TargetInfo, entries_by_task, new_inputs, read_targets, sample_weights, training_inputs

Array = np.ndarray
NO_OBSERVATION = "y holds nothing but NaN, or has weights of 0 only: no task was observed"


class Statistics:
    """Moments by task, in the features of the model; one Gram for all tasks while every row has seen every task."""

    def __init__(self, columns: InputColumns, width: int, dtype: Any, feature_map: Any = None, error: float | None = None):
        self.columns, self.width, self.dtype, self.map, self.error = columns, width, dtype, feature_map, error
        self.wide = False
        self.names: Array = np.zeros(0)  # names of the tasks
        self.shared: Moments | None = None
        self.own: dict[Any, Moments] = {}

    def copy(self) -> Statistics:
        """A copy to which blocks can be added: moments are replaced, never changed."""
        twin = copy.copy(self)
        twin.own = dict(self.own)
        return twin

    def features(self, inputs: Any) -> Array:
        return to_dense(inputs) if self.map is None else mapped(self.map, inputs)

    def add_long(self, inputs: Any, labels: Array, y: Array, s: Array) -> None:
        """Rows of one task each."""
        self.names = sorted_labels(labels if not len(self.names) else np.concatenate([self.names, labels]))
        for some in pieces(len(y), self.width):
            phi, here = self.features(inputs[some]), sorted_labels(labels[some])
            for name, rows in zip(here.tolist(), rows_by_task(labels[some], here), strict=True):
                self._add(name, phi[rows], y[some][rows], s[some][rows])

    def add_wide(self, inputs: Any, names: Array, Y: Array, S: Array) -> None:
        """Rows that may have seen any of the tasks; ``S`` has the shape of ``Y``."""
        seen, before = ~np.isnan(Y), self.names.tolist()
        same = np.array_equal(self.names, names)
        if not (same or not before or names.dtype.kind == "O"):
            raise ValueError(
                f"y has {len(names)} columns, the blocks before had {len(before)}; data frames may bring new tasks by name"
            )
        if not same:
            known = set(before)
            new = [name for name in names.tolist() if name not in known]
            self.names = np.array([*before, *new], dtype=object) if before else names
        together = bool(seen.all()) and bool((S[:, :1] == S).all()) and not self.own
        if self.shared is None and together:
            self.shared = Moments.empty(self.width, len(names))
        elif self.shared is not None and not (together and same):
            self.own = dict(zip(before, self.shared.split(), strict=True))
            self.shared = None
        for some in pieces(len(Y), self.width):
            phi = self.features(inputs[some])
            if self.shared is not None:
                self.shared = self.shared.plus(phi, Y[some], S[some, 0])
                continue
            for t, name in enumerate(names.tolist()):
                rows = seen[some, t]
                self._add(name, phi if rows.all() else phi[rows], Y[some, t][rows], S[some, t][rows])

    def _add(self, name: Any, phi: Array, y: Array, s: Array) -> None:
        if np.any(s > 0):
            before = self.own.get(name) or Moments.empty(self.width, 1)
            self.own[name] = before.plus(phi, y[:, None], s)

    def tasks(self) -> Array:
        """The tasks that were seen so far."""
        if self.shared is not None:
            return self.names
        return self.names[[name in self.own for name in self.names.tolist()]]

    def small(self, tasks: Array, task_weight: Any) -> tuple[Array, Observations]:
        """Features and observations that have these moments."""
        if self.shared is not None:
            X, Y = self.shared.rows()
            return X, Observations.from_wide(Y, np.full(len(X), self.shared.weight / len(X)), task_weight)
        Xs, ys = zip(*(self.own[name].rows() for name in tasks.tolist()), strict=True)
        sizes = [len(y) for y in ys]
        weight = np.repeat([self.own[name].weight for name in tasks.tolist()], sizes) / np.repeat(sizes, sizes)
        task = np.repeat(np.arange(len(tasks)), sizes)
        y = np.concatenate(ys)[:, 0]
        return np.vstack(Xs), Observations.build(np.arange(len(y)), task, y, len(tasks), weight, task_weight)


def is_incremental(estimator: Any) -> bool:
    """Whether statistics of blocks can be summed; the error says why not."""
    if is_sum(estimator):
        raise AttributeError("rows in blocks do not know terms= and common= yet; use fit")
    if hasattr(estimator, "alphas"):
        raise AttributeError("rows in blocks need one alpha: choose it on a part of the rows, then use MultiTaskRegressor")
    if isinstance(estimator.loss, dict) or not as_loss(estimator.loss).quadratic:
        raise AttributeError(
            f"only the squared loss has statistics that add up over blocks, got loss={estimator.loss!r}; use fit, or "
            'loss="squared"'
        )
    if isinstance(estimator.gamma, str):
        raise AttributeError(f"gamma={estimator.gamma!r} needs all rows at once; give rows in blocks a number")
    if estimator.approximation is None and not (isinstance(estimator.kernel, str) and estimator.kernel == "linear"):
        raise AttributeError(
            f"rows in blocks need features, which kernel={estimator.kernel!r} does not have; set approximation= "
            '("nystroem", "leverage", "fourier"), or kernel="linear"'
        )
    return True


def with_block(model: Any, X: Any, y: Any, sample_weight: Any = None) -> FittedState:
    """The state of a fit to all blocks so far, and this one."""
    model._validate_params()
    last = vars(model).get("_state")
    statistics = None if last is None else last.statistics
    if statistics is not None and last.added_tasks_ is not None:
        raise ValueError(
            f"partial_fit would forget task {shown(last.added_tasks_[0])}, whose rows add_task did not keep; pass them to "
            "partial_fit"
        )
    if last is not None and statistics is None:
        warn(
            "partial_fit begins anew with this block: the model was made by fit, or loaded, and holds no statistics to add "
            "to; make it with partial_fit or fit_blocks to go on from it",
        )
    before = None if statistics is None else statistics.copy()  # a block that is refused later must not be counted
    return _solved(model, _add_block(model, before, X, y, sample_weight))


def of_blocks(model: Any, blocks: Any) -> FittedState:
    """The state of a fit to all blocks; with an approximation, its map is drawn from a sample of all rows first."""
    model._validate_params()
    statistics = reservoir = columns = None
    if model.approximation is not None:
        if not callable(blocks) and iter(blocks) is blocks:
            raise ValueError(
                "blocks is a generator, which can be read once, and approximation= takes two passes: pass the function "
                "that makes it (lambda: ...), a list, or parquet_blocks(...)"
            )
        reservoir = reservoir_of(model)
        for given in _read(blocks):
            inputs, _, Y, weights, columns, _ = _validated(model, columns, *given)
            reservoir.add(_observed_rows(inputs, Y, weights))
    for X, y, sample_weight in _read(blocks):
        statistics = _add_block(model, statistics, X, y, sample_weight, reservoir)
    if statistics is None:
        raise ValueError("blocks is empty: there is nothing to learn from")
    return _solved(model, statistics)


def _read(blocks):
    """Blocks as inputs, targets and weights, or ``None`` for those."""
    for block in blocks() if callable(blocks) else blocks:
        if not (isinstance(block, (tuple, list)) and len(block) in (2, 3)):
            raise ValueError(
                f"a block is (X, y) or (X, y, sample_weight), got {type(block).__name__}"
                f"{f' of length {len(block)}' if isinstance(block, (tuple, list)) else ''}"
            )
        yield (*block, None)[:3]


def _validated(model: Any, columns: InputColumns | None, X: Any, y: Any, sample_weight: Any) -> tuple:
    """Validate one block: inputs, task labels, targets and weights of the same shape; then columns and targets."""
    if getattr(model, "device", None) is not None:
        raise ValueError("partial_fit and fit_blocks run on the CPU; leave device=None, or call fit")
    if columns is None:
        inputs, labels, columns = training_inputs(model, X)
    else:
        inputs, labels = new_inputs(with_state(model, columns), X)
    Y, targets = read_targets(model, y, labels)
    check_consistent_length(inputs, Y)
    weights = np.ones(Y.shape)
    if sample_weight is not None:  # unlike a fit, a block may have zero weight
        weights = sample_weights(sample_weight, as_table(y), Y, targets)
    return inputs, labels, Y, weights, columns, targets


def _observed_rows(inputs: Any, Y: Array, weights: Array) -> Any:
    """The rows in which something was observed."""
    live = np.any(~np.isnan(Y) & (weights > 0), axis=1)
    return inputs if live.all() else inputs[live]


def _add_block(
    model: Any, statistics: Statistics | None, X: Any, y: Any, sample_weight: Any, reservoir: Any = None
) -> Statistics:
    """Add one block to the statistics; the map of an approximation is drawn from ``reservoir``, or from the first block."""
    before = None if statistics is None else statistics.columns
    inputs, labels, Y, weights, columns, targets = _validated(model, before, X, y, sample_weight)
    if statistics is None and model.approximation is None:
        statistics = Statistics(columns, inputs.shape[1], inputs.dtype)
    elif statistics is None:
        if reservoir is None:
            reservoir = reservoir_of(model)
            reservoir.add(_observed_rows(inputs, Y, weights))
        if len(reservoir.keys) == 0:
            raise ValueError(NO_OBSERVATION)
        feature_map, error = approximation_of(model, model._kernel()).draw(reservoir.kept, reservoir.seed)
        statistics = Statistics(columns, mapped(feature_map, inputs[:1]).shape[1], inputs.dtype, feature_map, error)
    if len(statistics.names) and statistics.wide != targets.wide:
        raise ValueError("y must be one-dimensional in every block, or in none")
    statistics.wide = targets.wide
    statistics.dtype = np.result_type(statistics.dtype, inputs.dtype)
    if not np.any(weights[~np.isnan(Y)]):
        return statistics
    if labels is None:
        statistics.add_wide(inputs, targets.tasks_, Y, weights)
    else:
        rows = np.flatnonzero(~np.isnan(Y[:, 0]))
        statistics.add_long(inputs[rows], labels[rows], Y[rows, 0], weights[rows, 0])
    return statistics


def _solved(model: Any, statistics: Statistics) -> FittedState:
    """Solve the small problem of the statistics."""
    targets = TargetInfo(tasks_=statistics.tasks(), wide=statistics.wide)
    if len(targets.tasks_) == 0:
        raise ValueError(NO_OBSERVATION)
    rows, seen = statistics.small(targets.tasks_, entries_by_task(model.task_weight, targets.tasks_, "task_weight"))
    features = None if statistics.map is None else mapped_features(model, statistics.map, rows, statistics.error)
    data = model._pose(statistics.columns, targets, rows, seen, features)
    data = replace(data, inputs=np.zeros((0, rows.shape[1]), statistics.dtype))
    solution = solve(data.problem, model.solver, **model._settings(data))
    return replace(fitted_state(data, solution, model.tol, rows=False), statistics=statistics)
