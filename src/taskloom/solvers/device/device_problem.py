"""A problem on a device: what the loop asks of any problem, from a few sums and a spectrum.

For the squared loss and a dual candidate ``c G``, ``D(c G) = c sum G y - c^2 sum G^2 / (4 v) - F*(c^2 Z'Z / (4 alpha))``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from ..._array_api import namespace, place
from ...design.task_data import TaskBlock
from ...engines.local import LocalEngine
from ...problem.evidence import Evidence
from ...problem.problem import scaled_bound
from ...structures import Structure
from ...structures.base import Ray
from ..engine_run import RemoteProblem
from ..factor.newton import Point

Array = Any


SINGLE_PRECISION_NOTE = (
    "Iterations ran in single precision (float32), the certificate in double: for gaps below about 1e-5 pass float64."
)


class DualCandidate(NamedTuple):
    """``sum G y``, ``sum G^2 / (4 v)``, and the eigenvalues of ``Z'Z / (4 alpha)``."""

    gain: float
    cost: float
    spectrum: np.ndarray

    def bound(self, structure: Structure) -> float:
        """The dual bound at the best scaling of the candidate."""
        s: Any = self.spectrum
        if structure.known:
            ray = Ray(np.inf, lambda c: c * float(s.sum()))
        else:
            ray = Ray(structure.f_max_scale(s), lambda c: structure.f_conjugate(c * s))  # type: ignore[attr-defined]
        return max(scaled_bound(self.gain, self.cost, ray), 0.0)


class DeviceProblem(RemoteProblem, ABC):
    """Data on a device in one of the supported layouts."""

    data: list[TaskBlock]
    n_tasks: int
    single: bool  # whether iterations run in single precision

    def __init__(self, X: Array, structure: Structure, alpha: float, fit_intercept: bool):
        self.X, self.structure, self.alpha, self.fit_intercept = X, structure, alpha, fit_intercept
        self.xp, self.place = namespace(X), place(X)

    @property
    def engine(self) -> LocalEngine:
        return LocalEngine(self.data, self.alpha)

    @abstractmethod
    def terms(self, point: Point | None) -> tuple[float, float, list[DualCandidate]]:
        """Loss, penalty and dual candidates at a point; ``None`` stands for zero weights."""

    def evidence(self, point: Point | None, tol: float = 0.0) -> Evidence:
        loss, penalty, candidates = self.terms(point)
        return Evidence(point, loss + penalty, max(candidate.bound(self.structure) for candidate in candidates))

    @property
    def notes(self) -> list[str]:
        """Remarks for the message of a certificate."""
        return [f"Computed on {self.place}.", *([SINGLE_PRECISION_NOTE] if self.single else [])]

    def objective(self, coef: np.ndarray, b: np.ndarray) -> float:
        """The objective of coefficients of the inputs (``T x d``) and intercepts."""
        W = self.xp.asarray(np.ascontiguousarray(coef, dtype=float), device=self.X.device)
        penalty = self.structure.final_structure(np.sqrt(self.alpha) * coef.T.astype(float))[1]
        return self.loss_of(W, self.xp.asarray(b.astype(float), device=self.X.device)) + penalty

    @abstractmethod
    def loss_of(self, W: Array, b: Array) -> float:
        """The loss of coefficients (``T x d``) and intercepts, in double precision on the device."""

    @abstractmethod
    def to_inner(self, coef: np.ndarray) -> Array:
        """Weights of an earlier fit (coefficients, or dual coefficients of a kernel) in the coordinates of ``data``."""
