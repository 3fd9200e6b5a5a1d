"""Feature selection shared by all tasks: the (2,1) norm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._linalg import column_squares, sum_of_ratios
from .base import TINY, Array, Ray, Structure, indicator_ray


@dataclass(eq=False, repr=False)
class FeatureSelection(Structure):
    """``F(D) = tr D`` for a diagonal ``D`` on the features: the (2,1) norm ``2 sqrt(alpha) sum_j ||row j of W||``.

    All tasks select the same features. With shared inputs this is scikit-learn's ``MultiTaskLasso``, whose ``alpha`` is the
    square root of ours; here tasks may also have different inputs.
    """

    on_features: ClassVar[bool] = True
    keeps_columns: ClassVar[bool] = True
    low_rank: ClassVar[bool] = True
    sums_row_norms: ClassVar[bool] = True

    def value(self, A: Array) -> float:
        d = np.diag(A)
        off = float(np.abs(A - np.diag(d)).max(initial=0.0))
        return float(d.sum()) if off <= 1e-12 * max(float(np.abs(d).max(initial=0.0)), TINY) and np.all(d >= 0) else np.inf

    def best_structure(self, S: Array) -> Array:
        return np.diag(np.sqrt(np.maximum(np.diag(S), 0.0)))

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        d = np.sqrt((squares := column_squares(R)) + floor)
        return np.diag(d), sum_of_ratios(squares, d) + float(d.sum())

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return 0.0 if np.diag(S).max(initial=0.0) <= 1 else np.inf

    def prox(self, A: Array, step: float) -> Array:
        return np.diag(np.maximum(np.diag(A) - step, 0.0))

    def root(self, A: Array) -> Array:
        d = np.diag(A)
        return np.diag(np.sqrt(d))[:, d > 0]

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        return indicator_ray(float(np.diag(S).max(initial=0.0)))

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        return indicator_ray(float(column_squares(R).max(initial=0.0)))
