"""Data that lie far from zero, moved there: the same problem, better conditioned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse

from ..design import Design
from ..losses import Loss

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Centering:
    """Features, and targets of losses that see differences only, moved to zero where they lie far from it.

    With intercepts that is the same problem, better conditioned: nothing large cancels any more.
    """

    features: Array  # what is taken off every row
    targets: Array  # what is taken off the targets of each task

    @classmethod
    def of(cls, design: Design, loss: Loss, constants: Array) -> Centering | None:
        """The shift that pays, if any does; ``constants`` are the best constant predictions."""
        if not design.fit_intercept:
            return None
        features, targets = _feature_offset(design), _target_offset(design, loss, constants)
        if features is None and targets is None:
            return None
        nothing = np.zeros(design.n_features), np.zeros(design.n_tasks)
        return cls(nothing[0] if features is None else features, nothing[1] if targets is None else targets)

    def apply(self, design: Design) -> Design:
        """The shifted data."""
        seen = design.observations
        features = design.features - self.features if np.any(self.features) else design.features
        return Design.build(features, seen.with_targets(seen.y - self.targets[seen.task]), design.fit_intercept)

    def inward(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights and intercepts for the shifted data."""
        return W, b + self.features @ W - self.targets

    def outward(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights and intercepts for the original data."""
        return W, b - self.features @ W + self.targets


def _target_offset(design: Design, loss: Loss, constants: Array) -> Array | None:
    """The best constants, where targets lie far from zero; a squared loss is solved in one step and needs no help."""
    if loss.quadratic or not loss.of_differences:
        return None
    seen = design.observations
    deviation = seen.sum_by_task(np.abs(seen.y - constants[seen.task])) / seen.counts
    return constants if np.any(np.abs(constants) > 10 * deviation) else None


def _feature_offset(design: Design) -> Array | None:
    """The mean of the features, where they lie far from zero. Sparse features stay where they are: moved, they are dense."""
    if issparse(design.features):
        return None
    seen, rows = design.features, design.observations.row
    if not np.array_equal(rows, np.arange(design.n_rows)):
        rows = np.unique(rows)  # rows that nobody observed have no say
        seen = seen if rows.size == design.n_rows else seen[rows]
    mean = seen.mean(axis=0)
    squares = np.einsum("ij,ij->j", seen, seen) / len(seen)  # what cancels here lies far from zero anyway
    deviation = np.sqrt(np.maximum(squares - mean**2, 0.0))
    return mean if np.any(np.abs(mean) > 3 * deviation) else None
