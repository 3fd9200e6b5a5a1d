"""Rows that come in blocks: exact statistics of the squared loss, added up block by block, then one small solve.

The statistics become a data set of a few rows with the same moments (``design.sufficient_statistics``), which goes the
way of any other: weights, strengths of tasks, standardization, intercepts and the certificate are those of the fit in memory.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length

from .._component import warn
from ..design import Observations
from ..design.sufficient_statistics import Moments
from ..features import densely
from ..features.approximate import MappedFeatures, mapped, pieces
from ..losses import as_loss
from ..tables import as_table, rows_by_task, shown, sorted_labels
from .available import available_if
from .base import MultiTaskEstimator
from .rollback import all_or_nothing

Array = np.ndarray
NOTHING = "y holds nothing but NaN, or has weights of 0 only: no task was observed"


class Statistics:
    """Moments by task, in the features of the model; one Gram for all tasks while every row has seen every task."""

    def __init__(self, width: int, dtype: Any, feature_map: Any = None, error: float | None = None):
        self.width, self.dtype, self.map, self.error = width, dtype, feature_map, error
        self.names: Array = np.zeros(0)  # the tasks, as they are to be called
        self.shared: Moments | None = None
        self.own: dict[Any, Moments] = {}

    def twin(self) -> Statistics:
        """The same, to which more can be added: moments are never changed, but replaced."""
        twin = copy.copy(self)
        twin.own = dict(self.own)
        return twin

    def features(self, inputs: Any) -> Array:
        return densely(inputs) if self.map is None else mapped(self.map, inputs)

    def add_long(self, inputs: Any, labels: Array, y: Array, s: Array) -> None:
        """Rows of one task each."""
        self.names = sorted_labels(labels if not len(self.names) else np.concatenate([self.names, labels]))
        for some in pieces(len(y), self.width):
            phi, here = self.features(inputs[some]), sorted_labels(labels[some])
            for name, rows in zip(here.tolist(), rows_by_task(labels[some], here), strict=True):
                self._add(name, phi[rows], y[some][rows], s[some][rows])

    def add_wide(self, inputs: Any, names: Array, Y: Array, S: Array) -> None:
        """Rows that may have seen any of the tasks; ``S`` has the shape of ``Y``."""
        seen = ~np.isnan(Y)
        known = set(self.names.tolist())
        new = [name for name in names.tolist() if name not in known]
        same = np.array_equal(self.names, names)
        first = not len(self.names)
        if not (same or first or names.dtype.kind == "O"):
            raise ValueError(
                f"y has {len(names)} columns, the blocks before had {len(self.names)}; data frames may bring new tasks by name"
            )
        if not same:
            self.names = names if first else np.array([*self.names.tolist(), *new], dtype=object)
        together = bool(seen.all()) and bool((S[:, :1] == S).all()) and not self.own
        if self.shared is None and together:
            self.shared = Moments.empty(self.width, len(names))
        elif self.shared is not None and not (together and same):
            before = [name for name in self.names.tolist() if name not in set(new)]
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


def _streams(estimator: Any) -> bool:
    """Whether blocks can be added up; the sentence says why not."""
    if hasattr(estimator, "alphas"):
        raise AttributeError("rows in blocks need one strength: choose it on a part of the rows, then use MultiTaskRegressor")
    if isinstance(estimator.loss, dict) or not as_loss(estimator.loss).quadratic:
        raise AttributeError(
            f"only the squared loss has statistics that add up over blocks, got loss={estimator.loss!r}; use fit, or "
            'loss="squared"'
        )
    if estimator.approximation is None and not (isinstance(estimator.kernel, str) and estimator.kernel == "linear"):
        raise AttributeError(
            f"rows in blocks need features, which kernel={estimator.kernel!r} does not have; set approximation= "
            '("nystroem", "leverage", "fourier"), or kernel="linear"'
        )
    return True


class Streaming(MultiTaskEstimator):
    """``partial_fit`` and ``fit_blocks``."""

    _statistics: Statistics

    @available_if(_streams)
    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> Self:
        """Learn from one more block of rows; the model is then that of all blocks so far, as ``fit`` on them together.

        Squared loss only. Statistics are exact: one Gram matrix of the features for each task, or one for all of them while
        every row has seen every task. New tasks may appear in any block; a task without an observation so far is not among
        ``tasks_``. Landmarks of an approximation come from the first block (``fit_blocks`` draws them from all rows). Each call
        solves, from the last solution with ``warm_start=True``. After ``fit`` or ``load`` it begins anew, with a warning.

        Parameters
        ----------
        X, y, sample_weight
            As in ``fit``.

        Returns
        -------
        self
            The fitted model.
        """
        self._validate_params()
        statistics = getattr(self, "_statistics", None)
        if statistics is not None and (added := getattr(self, "added_tasks_", None)):
            raise ValueError(
                f"partial_fit would forget task {shown(added[0])}, whose rows add_task did not keep; pass them to partial_fit"
            )
        if statistics is None and hasattr(self, "certificate_"):
            warn(
                "partial_fit begins anew with this block: the model was made by fit, or loaded, and holds no statistics to add "
                "to; make it with partial_fit or fit_blocks to go on from it",
            )
        before = None if statistics is None else statistics.twin()  # a block that fails later on must not be counted
        self._finish(self._absorb(before, X, y, sample_weight))
        return self

    @available_if(_streams)
    @all_or_nothing
    def fit_blocks(self, blocks: Iterable[tuple] | Callable[[], Iterable[tuple]]) -> Self:
        """Learn from rows that need not fit in memory; equal to ``fit`` on all of them.

        Squared loss only. Memory holds a block, its features some rows at a time, and the statistics of ``partial_fit``.

        Parameters
        ----------
        blocks : iterable of tuples, or callable
            Tuples ``(X, y)`` or ``(X, y, sample_weight)``, or a function without arguments that makes such an iterable. A
            generator can be read once. With an approximation there are two passes, the first for a uniform sample of rows
            from which the map is drawn: pass a list, a function that makes the generator, or
            :func:`taskloom.parquet_blocks`.

        Returns
        -------
        self
            The fitted model.
        """
        self._validate_params()
        statistics = None
        if self.approximation is not None:
            if not callable(blocks) and iter(blocks) is blocks:
                raise ValueError(
                    "blocks is a generator, which can be read once, and approximation= takes two passes: pass the function "
                    "that "
                    "makes it (lambda: ...), a list, or parquet_blocks(...)"
                )
            statistics = self._first_pass(_read(blocks))
        for block in _read(blocks):
            statistics = self._absorb(statistics, *block)
        if statistics is None:
            raise ValueError("blocks is empty: there is nothing to learn from")
        self._finish(statistics)
        return self

    def _first_pass(self, blocks) -> Statistics | None:
        """The map, drawn from a sample of all rows; nothing else is kept."""
        reservoir, first = self._reservoir(), None
        for block in blocks:
            inputs, _, Y, weights = self._enter(*block, reset=first is None)
            first = inputs[:1] if first is None else first
            reservoir.add(_live(inputs, Y, weights))
        return None if first is None else self._begin(first, reservoir)

    def _begin(self, inputs, reservoir=None) -> Statistics:
        """Statistics of nothing yet; ``reservoir`` has seen the rows from which a map is drawn."""
        if reservoir is None:
            return Statistics(inputs.shape[1], inputs.dtype)
        if len(reservoir.keys) == 0:
            raise ValueError(NOTHING)
        feature_map, error = self._drawn(reservoir)
        return Statistics(mapped(feature_map, inputs[:1]).shape[1], inputs.dtype, feature_map, error)

    def _enter(self, X, y, sample_weight=None, *, reset):
        """One block through the door: inputs, labels of tasks, targets and weights of the same shape."""
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None")
        if getattr(self, "device", None) is not None:
            raise ValueError("partial_fit and fit_blocks run on the CPU; leave device=None, or call fit")
        inputs, labels = self._inputs(X, reset=reset)
        self.tasks_ = None if labels is None else sorted_labels(labels)
        Y = self._targets(as_table(y), labels)
        check_consistent_length(inputs, Y)
        if sample_weight is None:
            return inputs, labels, Y, np.ones(Y.shape)
        if not np.any(np.asarray(sample_weight, dtype=float)):  # a block may have no weight, a fit may not
            return inputs, labels, Y, np.zeros(Y.shape)
        return inputs, labels, Y, self._weights(sample_weight, inputs, Y)

    def _absorb(self, statistics: Statistics | None, X, y, sample_weight=None) -> Statistics:
        """One block, into the statistics."""
        before = None if statistics is None or not len(statistics.names) else self._wide
        inputs, labels, Y, weights = self._enter(X, y, sample_weight, reset=statistics is None)
        if before is not None and before != self._wide:
            raise ValueError("y must be one-dimensional in every block, or in none")
        if statistics is None:
            reservoir = None if self.approximation is None else self._reservoir()
            if reservoir is not None:
                reservoir.add(_live(inputs, Y, weights))
            statistics = self._begin(inputs, reservoir)
        statistics.dtype = np.result_type(statistics.dtype, inputs.dtype)
        if not np.any(weights[~np.isnan(Y)]):
            return statistics
        if labels is None:
            statistics.add_wide(inputs, self.tasks_, Y, weights)
        else:
            rows = np.flatnonzero(~np.isnan(Y[:, 0]))
            statistics.add_long(inputs[rows], labels[rows], Y[rows, 0], weights[rows, 0])
        return statistics

    def _finish(self, statistics: Statistics) -> None:
        """Solve the small problem, and keep what it found."""
        self.tasks_ = statistics.tasks()
        if len(self.tasks_) == 0:
            raise ValueError(NOTHING)
        rows, observations = statistics.small(self.tasks_, self._by_task(self.task_weight, "task_weight"))
        features: Any = self._features(rows, ()) if statistics.map is None else None
        if features is None:
            features = MappedFeatures(statistics.map, rows, statistics.error)
        data = self._pose(np.zeros((0, rows.shape[1]), statistics.dtype), features, observations)
        self._store(data, self._solve(data))
        self.__dict__.pop("_training", None)  # standard deviations need the rows themselves
        self._statistics = statistics


def _live(inputs, Y: Array, weights: Array):
    """The rows in which something was observed."""
    live = np.any(~np.isnan(Y) & (weights > 0), axis=1)
    return inputs if live.all() else inputs[live]


def _read(blocks):
    """Blocks as inputs, targets and perhaps weights."""
    for block in blocks() if callable(blocks) else blocks:
        if not (isinstance(block, (tuple, list)) and len(block) in (2, 3)):
            raise ValueError(
                f"a block is (X, y) or (X, y, sample_weight), got {type(block).__name__}"
                f"{f' of length {len(block)}' if isinstance(block, (tuple, list)) else ''}"
            )
        yield block
