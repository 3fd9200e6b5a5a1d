"""Newton's method on the factor of a problem on a device, in the loop of all solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._array_api import like
from ..._time_limit import no_time_limit
from ..._time_limit import time_limit as limited_time
from ...engines.base import WeightSpectrum
from ...engines.local import LocalEngine
from ...losses import Squared
from ...structures import Structure
from ..base import Solver
from ..factor.newton import FactorNewton, NewtonTuning
from ..factor.objective import Point
from ..record import Outcome, Record
from ..solve import Callback, Limits, iterate
from .device_problem import DeviceProblem

TUNING = NewtonTuning(forcing=0.05)
MAX_STALLED_CERTIFICATES = 3  # without progress, after which the basis is enlarged to all directions
SINGLE_PRECISION_NOTE = (
    "Iterations ran in single precision (float32), the certificate in double: for gaps below about 1e-5 pass float64."
)


def refusal(structure: Structure, loss: Any, ridge: float, solver: Any) -> str | None:
    """``None``, or the reason why a device cannot solve this problem."""
    remedy = "; leave device=None to fit on the CPU"
    if not isinstance(loss, Squared):
        return f'a device fits the squared loss only, got loss={loss!r}; take loss="squared", or device=None for the CPU'
    if not ((structure.known and structure.either_side) or structure.schatten_power in (1, 2)):
        return f"a device knows the structures Trace(), Frobenius() and Independent(), got structure={structure!r}{remedy}"
    if ridge != 0:
        return f"a device takes no ridge, got ridge={ridge!r}{remedy}"
    if solver not in ("auto", "factored"):
        return f'a device has one solver, got solver={solver!r}; take solver="auto", or device=None for the CPU'
    return None


@dataclass(eq=False, repr=False)
class DeviceNewton(Solver):
    """Newton's method on the factor, for data on a device."""

    def begin(self, problem: Any, start: Any, tol: float) -> DeviceRun:
        return DeviceRun(problem, start, tol)


class DeviceRun(FactorNewton):
    """Newton steps along a basis of the features that may grow with the certificate; one exact step for a known structure."""

    def __init__(self, problem: DeviceProblem, start: Any, tol: float):
        self.problem, self.tol = problem, tol
        self.last, self.idle = np.inf, 0
        self._set_out(start)

    def _set_out(self, start: Any) -> None:
        problem, self.finished = self.problem, None
        engine = LocalEngine(problem.data, problem.alpha)
        if problem.structure.known:
            self.begun, self.certificate_interval = False, 1
            Q = like(np.eye(engine.n_features), problem.data[0].squares)
            self.here = Point(engine.eliminate(Q), Q, problem.alpha, p=0)
            return
        weights = None if start is None else WeightSpectrum.of(start)
        super().__init__(engine, problem.alpha, int(problem.structure.schatten_power or 1), problem.scale, TUNING, weights)

    def step(self, gap: float | None) -> None:
        known, stalled = self.problem.structure.known, False
        if gap is not None:
            self.idle, self.last = self.idle + 1 if gap > 0.9 * self.last else 0, gap
            stalled = self.idle >= MAX_STALLED_CERTIFICATES
            if self._enlarge(moved=not known, stalled=stalled):
                self.begun = True
                return
        if known:
            self.finished = "stalled" if gap is not None else None
            return
        super().step(gap)
        if self.finished is not None:
            self._enlarge(moved=False, stalled=stalled)

    def _enlarge(self, moved: bool, stalled: bool) -> bool:
        start = self.problem.enlarged(self.here, self.tol, moved, stalled)
        if start is not None:
            self._set_out(start)
        return start is not None


def solve_on_device(
    problem: DeviceProblem,
    *,
    tol: float = 1e-4,
    max_iter: int = 1000,
    time_limit: float | None = None,
    start: np.ndarray | None = None,
    callback: Callback | None = None,
    read: Callable[[Any], Any] = lambda point: point,
) -> Outcome:
    """Newton's method on the factor until the relative duality gap is at most ``tol``; parameters as in ``solve``."""
    limits = Limits(max_iter, callback)
    with limited_time(time_limit):
        record = Record(problem, tol)
        status = "optimal" if record.relative_gap <= tol else None  # zero weights
        status = status or iterate(record, DeviceNewton(), None if start is None else problem.to_inner(start), limits, read)
    with no_time_limit():
        found = record.close(status, "Newton's method on the factor")
    notes = [f"Computed on {problem.place}.", *([SINGLE_PRECISION_NOTE] if problem.single else [])]
    certificate = replace(found.certificate, message=" ".join([found.certificate.message, *notes]))
    return replace(found, certificate=certificate)
