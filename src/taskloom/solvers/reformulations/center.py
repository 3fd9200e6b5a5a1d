"""Data that lie far from zero, moved there: the same problem, better conditioned."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse

from ...problem import Problem
from ...problem.solution import Start

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Centering:
    """Features, and targets of losses that see differences only, moved to zero where they lie far from it.

    With intercepts that is the same problem, better conditioned: nothing large cancels any more.
    """

    features: Array  # what is taken off every row
    targets: Array  # what is taken off the targets of each task

    @classmethod
    def of(cls, problem: Problem) -> Centering | None:
        """The move that pays, if any does."""
        features, targets = _offset(problem), _target_offset(problem)
        if features is None and targets is None:
            return None
        nothing = np.zeros(problem.n_features), np.zeros(problem.n_tasks)
        return cls(nothing[0] if features is None else features, nothing[1] if targets is None else targets)

    def inner(self, problem: Problem) -> Problem:
        seen = problem.observations
        features = problem.features - self.features if np.any(self.features) else problem.features
        return replace(problem, features=features, observations=replace(seen, y=seen.y - self.targets[seen.task]))

    def inward(self, start: tuple | None) -> Start | None:
        if start is None:
            return None
        return Start(start[0], start[1] + self.features @ start[0] - self.targets, getattr(start, "length", None))

    def outward(self, W: Array, b: Array) -> tuple[Array, Array]:
        return W, b - self.features @ W + self.targets


def _target_offset(problem: Problem) -> Array | None:
    """The best constants, where targets lie far from zero; a squared loss is solved in one step and needs no help."""
    if not problem.fit_intercept or problem.loss.quadratic or not problem.loss.of_differences:
        return None
    seen, constants = problem.observations, problem.best_constants
    spread = seen.sum_by_task(np.abs(seen.y - constants[seen.task])) / seen.counts
    return constants if np.any(np.abs(constants) > 10 * spread) else None


def _offset(problem: Problem) -> Array | None:
    """Where the features lie far from zero: with intercepts, moving them to zero is the same problem, better conditioned.

    Sparse features stay where they are: moved, they would be dense.
    """
    if not problem.fit_intercept or issparse(problem.features):
        return None
    seen, rows = problem.features, problem.observations.row
    if not np.array_equal(rows, np.arange(problem.n_rows)):
        rows = np.unique(rows)  # rows that nobody observed have no say
        seen = seen if rows.size == problem.n_rows else seen[rows]
    mean = seen.mean(axis=0)
    squares = np.einsum("ij,ij->j", seen, seen) / len(seen)  # what cancels here lies far from zero anyway
    spread = np.sqrt(np.maximum(squares - mean**2, 0.0))
    return mean if np.any(np.abs(mean) > 3 * spread) else None
