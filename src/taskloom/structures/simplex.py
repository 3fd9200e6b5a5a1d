"""Structures on functions whose sum over the tasks is zero: the simplex coding of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import helmert

from .base import Array, Ray, Structure


@dataclass(eq=False, repr=False)
class SumToZero(Structure):
    """``F(C'AC)`` for ``A = C (C'AC) C'``, where the columns of ``C`` are an orthonormal basis of the vectors with sum 0.

    Only spectral structures are accepted, for which the choice of the basis does not matter. With the squared loss on -1/+1
    codes it is least squares on the corners of a simplex: the component of the codes along ``1`` is equal for all classes.
    """

    structure: Any
    low_rank: ClassVar[bool] = True  # singular along 1

    def check(self) -> None:
        if not (isinstance(self.structure, Structure) and self.structure.either_side):
            raise ValueError(
                "simplex coding needs a spectral structure, which treats classes alike (trace, Schatten, Frobenius, unit "
                f"trace, independent), got {self.structure!r}"
            )

    def _restricted(self, A: Array) -> Array:
        C = helmert(len(A)).T
        return C.T @ A @ C

    def _extended(self, B: Array) -> Array:
        C = helmert(len(B) + 1).T
        return C @ B @ C.T

    def value(self, A: Array) -> float:
        ones = np.full(len(A), 1 / np.sqrt(len(A)))
        if float(np.abs(A @ ones).max()) > 1e-9 * max(float(np.abs(A).max()), 1e-300):
            return np.inf
        return self.structure.value(self._restricted(A))

    def best_structure(self, S: Array) -> Array:
        return self._extended(self.structure.best_structure(self._restricted(S)))

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        total = R.sum(axis=1)
        A, penalty = self.structure.best_of_root(R @ helmert(R.shape[1]).T, floor)
        return self._extended(A), penalty if float(total @ total) <= 1e-20 * float(np.vdot(R, R)) else np.inf

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return self.structure.conjugate(self._restricted(S))

    def prox(self, A: Array, step: float) -> Array:
        return self._extended(self.structure.prox(self._restricted(A), step))

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        return self.structure.ray(self._restricted(S))

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        return self.structure.ray_of_root(R @ helmert(R.shape[1]).T)
