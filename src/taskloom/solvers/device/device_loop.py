"""The loop on a device: Newton steps, certificate, record, stop. Results are NumPy arrays."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..._array_api import like
from ..._linalg import one_thread
from ...design.task_data import TaskBlock
from ...losses import Squared
from ...problem.solution import Certificate, History, sentence
from ...structures import Independent, Schatten, Structure
from ..factor.newton import FactorNewton
from ..factor.objective import Point
from .evidence import Evidence

FORCING = 0.05  # relative residual of the Newton systems
MAX_STALLED_ROUNDS = 3  # rounds without progress after which the basis is enlarged to all directions
MIN_RELATIVE_DECREASE = 1e-26  # predicted decrease, relative to the scale, below which steps stop
SINGLE_PRECISION_NOTE = (
    "Iterations ran in single precision (float32), the certificate in double: for gaps below about 1e-5 pass float64."
)


class DeviceInputs(Protocol):
    """Data on a device, in one of the supported layouts."""

    data: list[TaskBlock]
    scale: float  # the loss of the intercept-only model
    rounding_floor: float  # its rounding error
    single: bool  # whether iterations run in single precision
    place: str  # name of the device

    def evidence(self, point: Point | None) -> Evidence:
        """The terms of a certificate at a point; ``None`` stands for zero weights."""
        ...

    def enlarged(self, point: Point, structure: Structure, tol: float, moved: bool, stalled: bool) -> Any | None:
        """Enlarge the basis of the features, if it is a restriction, and return weights to continue from; else ``None``.

        ``moved`` tells whether the last round changed the point, ``stalled`` that enlarging did not reduce the gap.
        """
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """The best point, its certificate, and the history."""

    point: Point | None
    certificate: Certificate
    history: History


def refusal(structure: Structure, loss: Any, ridge: float, solver: Any) -> str | None:
    """``None``, or the reason why a device cannot solve this problem."""
    remedy = "; leave device=None to fit on the CPU"
    if not isinstance(loss, Squared):
        return f'a device fits the squared loss only, got loss={loss!r}; take loss="squared", or device=None for the CPU'
    if not (isinstance(structure, Independent) or (isinstance(structure, Schatten) and structure.p in (1, 2))):
        return f"a device knows the structures Trace(), Frobenius() and Independent(), got structure={structure!r}{remedy}"
    if ridge != 0:
        return f"a device takes no ridge, got ridge={ridge!r}{remedy}"
    if solver != "auto":
        return f'a device has one solver, got solver={solver!r}; take solver="auto", or device=None for the CPU'
    return None


def solve_on_device(
    inputs: DeviceInputs,
    structure: Structure,
    alpha: float,
    *,
    tol: float = 1e-4,
    max_iter: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[History], Any] | None = None,
) -> Outcome:
    """Newton's method on the factor until the relative duality gap is at most ``tol``; an iteration is several Newton steps."""
    record = _DeviceRecord(inputs, structure, tol)
    status = "interrupted"
    with one_thread():
        try:
            record.record(None)
            status = _iterate(record, alpha, max_iter, time_limit, callback)
        except KeyboardInterrupt:
            pass
    return record.close(status)


def _iterate(record: _DeviceRecord, alpha: float, max_iter: int, time_limit: float | None, callback: Callable | None) -> str:
    inputs, structure = record.inputs, record.structure
    if record.relative_gap <= record.tol:
        return "optimal"  # zero weights are optimal

    def set_out(start: Any | None = None) -> FactorNewton | _Known:
        if structure.known:
            return _Known(inputs.data, alpha)
        return FactorNewton(inputs.data, alpha, int(structure.p), inputs.scale, record.tol, FORCING, start)  # type: ignore[attr-defined]

    newton, idle, last = set_out(), 0, np.inf
    for _ in range(max_iter):
        moved = newton.advance()
        while not moved and not newton.no_decrease and newton.target_decrease > MIN_RELATIVE_DECREASE * inputs.scale:
            moved = newton.advance()  # lower the target until a step is made
        record.record(newton.here)
        if callback is not None:
            callback(record.history)
        if record.relative_gap <= record.tol:
            return "optimal"
        idle, last = idle + 1 if record.relative_gap > 0.9 * last else 0, record.relative_gap
        start = inputs.enlarged(newton.here, structure, record.tol, moved, stalled=idle >= MAX_STALLED_ROUNDS)
        if start is not None:
            newton = set_out(start)
        elif not moved:
            return "stalled"
        if time_limit is not None and record.history.seconds[-1] >= time_limit:
            return "time_limit"
    return "max_iter"


class _Known:
    """A known structure: one exact step."""

    no_decrease, target_decrease = True, 0.0

    def __init__(self, data: list[TaskBlock], alpha: float):
        self.here = Point(data, like(np.eye(data[0].n_features), data[0].squares), alpha, p=0)

    def advance(self) -> bool:
        return False


class _DeviceRecord:
    """The best primal and dual values so far, possibly from different points."""

    def __init__(self, inputs: DeviceInputs, structure: Structure, tol: float):
        self.inputs, self.structure, self.tol = inputs, structure, tol
        self.history, self.began = History(), time.perf_counter()
        self.primal, self.dual = np.inf, -np.inf
        self.point: Point | None = None

    @property
    def gap(self) -> float:
        rounding = 4 * np.finfo(float).eps * (abs(self.primal) + abs(self.dual))
        return max(abs(self.primal - self.dual), rounding)

    @property
    def relative_gap(self) -> float:
        scale, rounding_floor = self.inputs.scale, self.inputs.rounding_floor
        if scale <= rounding_floor:
            return 0.0 if self.gap <= rounding_floor else np.inf
        return self.gap / scale

    def record(self, point: Point | None) -> None:
        found = self.inputs.evidence(point)
        if found.primal < self.primal:
            self.primal, self.point = found.primal, point
        self.dual = max(self.dual, found.dual(self.structure))
        if point is not None:
            count, seconds = len(self.history) + 1, time.perf_counter() - self.began
            self.history.add(count, self.primal, self.dual, self.gap, seconds)

    def close(self, status: str) -> Outcome:
        if not len(self.history):
            self.history.add(1, self.primal, self.dual, self.gap, time.perf_counter() - self.began)
        message = sentence(status, self.relative_gap, None, len(self.history), self.tol, "Newton's method on the factor")
        message = f"{message} Computed on {self.inputs.place}."
        message = f"{message} {SINGLE_PRECISION_NOTE}" if self.inputs.single else message
        certificate = Certificate(self.primal, self.dual, self.gap, self.relative_gap, status, message)
        return Outcome(self.point, certificate, self.history)
