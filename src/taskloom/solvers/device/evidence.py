"""The terms of a certificate that a device returns: a few sums and a spectrum.

For the squared loss and a dual candidate ``c G``, ``D(c G) = c sum G y - c^2 sum G^2 / (4 v) - F*(c^2 Z'Z / (4 alpha))``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar

from ...structures import Structure

Array = np.ndarray


class DualCandidate(NamedTuple):
    """``sum G y``, ``sum G^2 / (4 v)``, and the eigenvalues of ``Z'Z / (4 alpha)``."""

    gain: float
    cost: float
    spectrum: Array


@dataclass(frozen=True)
class Evidence:
    """The two terms of the objective at some weights, and dual candidates."""

    loss: float
    penalty: float
    candidates: list[DualCandidate]

    @property
    def primal(self) -> float:
        return self.loss + self.penalty

    def dual(self, structure: Structure) -> float:
        return max(best_bound(structure, candidate) for candidate in self.candidates)


def best_penalty(structure: Structure, squared_norm: Array) -> float:
    """``min_A tr(A^-1 S) + F(A)`` for an ``S`` with these eigenvalues."""
    if structure.known:
        return float(squared_norm.sum())
    a = structure.f_best(squared_norm)  # type: ignore[attr-defined]
    return float(np.divide(squared_norm, a, out=np.zeros_like(a), where=a > 0).sum()) + structure.f(a)  # type: ignore[attr-defined]


def best_bound(structure: Structure, candidate: DualCandidate) -> float:
    """The best ``D(c G)`` over ``c``."""
    gain, cost, s = candidate
    max_scale = np.inf if structure.known else structure.f_max_scale(s)  # type: ignore[attr-defined]

    def bound(c: float) -> float:
        conjugate = c * c * float(s.sum()) if structure.known else structure.f_conjugate(c * c * s)  # type: ignore[attr-defined]
        return c * gain - c * c * cost - conjugate

    top = min(2.0, float(np.sqrt(max_scale)) * (1 - 1e-15))
    inner = minimize_scalar(lambda c: -bound(c), bounds=(0.0, top), method="bounded", options={"xatol": 1e-10 * top})
    return max(bound(top), bound(min(top, 1.0)), float(-inner.fun), 0.0)
