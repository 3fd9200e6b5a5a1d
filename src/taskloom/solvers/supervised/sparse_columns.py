"""The sparse inputs of one task in the coordinates of a metric: as they are, never multiplied out to observations x columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from ...features import weighted_gram
from .newton_systems import PrimalDesign

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class SparseColumns(PrimalDesign):
    """``X Q`` of a single batch element, kept as its factors: ``X`` (``m x d``, sparse) and ``Q`` (``d x q``)."""

    X: csr_array
    Q: Array

    def gather(self, U: Array) -> Array:
        return (self.Q.T @ (self.X.T @ U[0]))[None]

    def gram(self, h: Array) -> Array:
        return (self.Q.T @ weighted_gram(self.X, h[0]) @ self.Q)[None]

    def predict(self, coef: Array) -> Array:
        return (self.X @ (self.Q @ coef[0]))[None]

    def pick(self, which: Array) -> SparseColumns:
        return self
