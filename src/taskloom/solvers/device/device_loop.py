"""The loop on a device: walk, certify, record, stop; what comes back is NumPy's."""

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


class Inputs(Protocol):
    """Data on a device, in one of the shapes that can be solved there."""

    data: list[TaskBlock]
    scale: float  # the loss of the best constants
    rounding_floor: float  # what rounding may leave of it
    single: bool  # whether iterations run in single precision
    place: str  # the device, in words

    def evidence(self, point: Point | None) -> Evidence:
        """For the weights at a point of the walk; at ``None``, for weights of zero."""
        ...

    def finer(self, point: Point, structure: Structure, tol: float, moved: bool, tired: bool) -> Any | None:
        """Data of more detail, where there is more, and the weights at a point to go on from there; else ``None``.

        ``moved`` says whether the walk goes on without, ``tired`` that more detail did not help.
        """
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """The best point, its certificate, and the way there."""

    point: Point | None
    certificate: Certificate
    history: History


def refusal(structure: Structure, loss: Any, ridge: float, solver: Any) -> str | None:
    """``None``, or the sentence that says what a device does not do."""
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
    inputs: Inputs,
    structure: Structure,
    alpha: float,
    *,
    tol: float = 1e-4,
    max_iter: int = 1000,
    time_limit: float | None = None,
    callback: Callable[[History], Any] | None = None,
) -> Outcome:
    """Newton's method on the factor until the relative duality gap is at most ``tol``; an iteration is several Newton steps."""
    book = _Book(inputs, structure, tol)
    status = "interrupted"
    with one_thread():
        try:
            book.record(None)
            status = _iterate(book, alpha, max_iter, time_limit, callback)
        except KeyboardInterrupt:
            pass
    return book.close(status)


def _iterate(book: _Book, alpha: float, max_iter: int, time_limit: float | None, callback: Callable | None) -> str:
    inputs, structure = book.inputs, book.structure
    if book.relative_gap <= book.tol:
        return "optimal"  # nothing is to be learned at this strength

    def set_out(start: Any | None = None) -> FactorNewton | _Known:
        if structure.known:
            return _Known(inputs.data, alpha)
        return FactorNewton(inputs.data, alpha, int(structure.p), inputs.scale, book.tol, FORCING, start)  # type: ignore[attr-defined]

    walk, idle, last = set_out(), 0, np.inf
    for _ in range(max_iter):
        moved = walk.advance()
        while not moved and not walk.stuck and walk.enough > MIN_RELATIVE_DECREASE * inputs.scale:
            moved = walk.advance()  # the gap asks for more than the last predicted decrease: go on until a step pays
        book.record(walk.here)
        if callback is not None:
            callback(book.history)
        if book.relative_gap <= book.tol:
            return "optimal"
        idle, last = idle + 1 if book.relative_gap > 0.9 * last else 0, book.relative_gap
        start = inputs.finer(walk.here, structure, book.tol, moved, tired=idle >= MAX_STALLED_ROUNDS)
        if start is not None:
            walk = set_out(start)
        elif not moved:
            return "stalled"
        if time_limit is not None and book.history.seconds[-1] >= time_limit:
            return "time_limit"
    return "max_iter"


class _Known:
    """A structure that is known leaves one step to make."""

    stuck, enough = True, 0.0

    def __init__(self, data: list[TaskBlock], alpha: float):
        self.here = Point(data, like(np.eye(data[0].n_features), data[0].squares), alpha, p=0)

    def advance(self) -> bool:
        return False


class _Book:
    """The best primal and dual values so far, which may come from different points."""

    def __init__(self, inputs: Inputs, structure: Structure, tol: float):
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
        picked = f"Newton on the factor, on {self.inputs.place}"
        message = sentence(status, self.relative_gap, None, len(self.history), self.tol, picked)
        message = f"{message} {SINGLE_PRECISION_NOTE}" if self.inputs.single else message
        certificate = Certificate(self.primal, self.dual, self.gap, self.relative_gap, status, message)
        return Outcome(self.point, certificate, self.history)
