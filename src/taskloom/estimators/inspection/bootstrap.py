"""Bootstrap intervals of the correlations between tasks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.parallel import Parallel, delayed

from ...tables.layout import as_table, code_labels, split_table
from ..base import MultiTaskEstimator
from ..terms.fit_sum import refuse_sum
from .task_order import every_pair

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Stability:
    """Intervals for the correlation of each pair of tasks (``T x T`` each), in the order of ``tasks``."""

    tasks: Array
    lower: Array
    median: Array
    upper: Array
    n_resamples: int

    @property
    def certain(self) -> Array:
        """Where the interval does not hold 0."""
        return (self.lower > 0) | (self.upper < 0)


def stability(
    model: Any,
    X: Any,
    y: Any,
    n_resamples: int = 50,
    *,
    level: float = 0.9,
    n_jobs: int | None = None,
    random_state: Any = 0,
    verbose: int = 0,
) -> Stability:
    """Bootstrap the relations between tasks: fit again and again to rows drawn with replacement.

    In a long table rows are drawn within each task. A resample in which a task has no observation, or one class only, is an
    error: such tasks are too small for a bootstrap.

    Parameters
    ----------
    model : estimator
        A multi-task estimator, fitted or not.
    X : array, sparse matrix or data frame of shape (n_samples, n_features)
        Inputs, as for its ``fit``.
    y : array-like or data frame of shape (n_samples,) or (n_samples, n_tasks)
        Targets, as for its ``fit``.
    n_resamples : int, default=50
        The number of fits.
    level : float, default=0.9
        What share of the resamples an interval holds.
    n_jobs : int, default=None
        Fits that run at the same time, in threads.
    random_state : int, RandomState or None, default=0
        Draws the resamples.
    verbose : int, default=0
        Whether to show a bar of progress on standard output.

    Returns
    -------
    Stability
        ``lower``, ``median``, ``upper`` (each ``T x T``) and ``tasks``.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import MultiTaskRegressor, stability
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 4))
    >>> w = rng.normal(size=4)
    >>> Y = np.column_stack([X @ w, X @ w, -X @ w]) + 0.1 * rng.normal(size=(60, 3))
    >>> found = stability(MultiTaskRegressor("frobenius"), X, Y, n_resamples=20)
    >>> bool(found.lower[0, 1] > 0.5 and found.upper[0, 2] < -0.5)
    True
    """
    if not isinstance(model, MultiTaskEstimator):
        raise ValueError(f"stability needs a taskloom estimator, got {type(model).__name__}")
    refuse_sum(model, "stability")
    if not n_resamples >= 2:
        raise ValueError(f"n_resamples must be at least 2, got {n_resamples!r}")
    if not (0 < level < 1):
        raise ValueError(f"level must be between 0 and 1, got {level!r}")
    X, y = as_table(X), as_table(y)
    whole = clone(model).fit(X, y)
    every_pair(whole)
    rng = check_random_state(random_state)
    labels = split_table(X, whole.task_column).labels
    group = np.zeros(len(y), int) if labels is None else code_labels(labels, whole.tasks_)
    draws = [_draw(group, rng) for _ in range(n_resamples)]
    runs = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(_refit)(model, X, y, rows) for rows in draws
    )
    found = []
    for k, relations in enumerate(runs, start=1):
        found.append(relations)
        if verbose:
            done = round(30 * k / n_resamples)
            sys.stdout.write(f"\r[{'#' * done}{'.' * (30 - done)}] {k} of {n_resamples}" + ("\n" if k == n_resamples else ""))
    lower, median, upper = np.quantile(np.array(found), [(1 - level) / 2, 0.5, (1 + level) / 2], axis=0)
    return Stability(whole.tasks_, lower, median, upper, n_resamples)


def _draw(group: Array, rng: np.random.RandomState) -> Array:
    """Rows with replacement, as many of each group as there are; at least two different ones where there are two."""
    rows = []
    for g in np.unique(group):
        members = np.flatnonzero(group == g)
        drawn = rng.choice(members, size=members.size)
        if members.size > 1 and np.all(drawn == drawn[0]):
            drawn[0] = members[members != drawn[0]][0]
        rows.append(drawn)
    return np.sort(np.concatenate(rows))


def _refit(model: Any, X: Any, y: Any, rows: Array) -> Array:
    fitted = clone(model).fit(_safe_indexing(X, rows), _safe_indexing(y, rows))
    if fitted.certificate_.status == "interrupted":
        raise KeyboardInterrupt  # Ctrl-C ends all resamples
    return fitted.task_correlation()
