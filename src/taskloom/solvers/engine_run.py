"""Newton's method on the factor of a problem whose data are elsewhere, on a device or a cluster, in the loop of all solvers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._time_limit import no_time_limit
from .._time_limit import time_limit as limited_time
from ..engines.local import WeightSpectrum
from ..losses import Squared
from ..problem.evidence import Evidence
from ..problem.problem import relative_gap
from ..problem.solution import History
from .base import Run, Solver
from .factor.newton import FactorNewton, NewtonTuning, Point
from .record import Outcome, Record
from .solve import Callback, Limits, iterate

TUNING = NewtonTuning(forcing=0.05, max_stalled_certificates=3)  # then a basis is enlarged to all directions


class RemoteProblem:
    """A problem of an engine that is not this process's memory, under the squared loss; for the loop it is ``Certifiable``."""

    loss: ClassVar[Squared] = Squared()
    structure: Any
    alpha: float
    ridge: float = 0.0
    engine: Any  # an ``engines.base.Engine``
    scale: float  # the loss of the intercept-only model
    rounding_floor: float  # what rounding alone may leave of it
    notes: Any = ()  # remarks for the message of the certificate

    def relative(self, gap: float, size: float = 0.0) -> float:
        return relative_gap(gap, size, self.scale, self.rounding_floor)

    def evidence(self, point: Any, tol: float = 0.0) -> Evidence:
        """What a point proves; ``None`` stands for zero weights."""
        raise NotImplementedError

    def evidence_of_constants(self) -> Evidence:
        return self.evidence(None)

    def settled(self, point: Any) -> tuple[Any, float]:
        return point, 0.0

    def component_error(self, point: Any, dual: Any, room: float) -> str:
        """The loss is the library's own, and the structure one of its spectral ones."""
        return ""

    def enlarged(self, point: Point, tol: float, moved: bool, stalled: bool) -> Any | None:
        """Enlarge the basis of the features, if it is a restriction, and return weights to continue from; else ``None``.

        ``moved`` tells whether the last step changed the point, ``stalled`` that enlarging did not reduce the gap.
        """
        return None


@dataclass(eq=False, repr=False)
class RemoteFactored(Solver):
    """Steps on the factor through an engine; ``run`` is the current one, for checkpoints."""

    run: Any = None
    other: Callable[[Any, Any], Run] | None = None  # the method for structures without Newton's method

    def begin(self, problem: Any, start: Any, tol: float) -> Run:
        newton = problem.structure.known or (problem.structure.schatten_power in (1, 2) and not problem.ridge)
        assert newton or self.other is not None
        self.run = RemoteNewtonRun(problem, start, tol) if newton else self.other(problem, start)  # type: ignore[misc]
        return self.run


class RemoteNewtonRun(FactorNewton):
    """Newton steps along a basis of the features that may grow with the certificate; one exact step for a known structure."""

    def __init__(self, problem: RemoteProblem, start: Any, tol: float):
        self.problem, self.tol = problem, tol
        self.last, self.idle = np.inf, 0
        self._set_out(start)

    def _set_out(self, start: WeightSpectrum | Any | None) -> None:
        problem, self.finished = self.problem, None
        engine, power = problem.engine, problem.structure.schatten_power
        if problem.structure.known:
            self.begun, self.certificate_interval = False, 1
            tasks = engine.eliminate(engine.known_factor())
            self.here = Point(tasks, tasks.Q, problem.alpha, p=0)
            return
        super().__init__(engine, problem.alpha, int(power or 1), problem.scale, self.tol, TUNING, start)

    def step(self, gap: float | None) -> None:
        known, stalled = self.problem.structure.known, False
        if gap is not None:
            self.idle, self.last = self.idle + 1 if gap > 0.9 * self.last else 0, gap
            stalled = self.idle >= TUNING.max_stalled_certificates
            if self._enlarge(moved=not known, stalled=stalled):
                self.begun = known  # a start may lack directions of the tasks: the next step looks for them
                return
        if known:
            self.finished = "stalled" if gap is not None else None
            return
        super().step(gap)
        if self.finished is not None:
            self._enlarge(moved=False, stalled=stalled)

    def _enlarge(self, moved: bool, stalled: bool) -> bool:
        weights = self.problem.enlarged(self.here, self.tol, moved, stalled)
        if weights is not None:
            self._set_out(WeightSpectrum.of(weights))
        return weights is not None


def solve_remote(
    problem: RemoteProblem,
    solver: RemoteFactored,
    *,
    tol: float = 1e-4,
    max_iter: int = 1000,
    time_limit: float | None = None,
    start: WeightSpectrum | Any | None = None,
    callback: Callback | None = None,
    history: History | None = None,
    name: str,
) -> Outcome:
    """Steps on the factor until the relative duality gap is at most ``tol``; parameters as in ``solve``.

    ``start`` are weights or a factor, ``history`` that of an interrupted fit, which goes on.
    """
    limits = Limits(max_iter, callback)
    with limited_time(time_limit):
        record = Record(problem, tol, history=history)
        if history is not None and len(history):
            record.began -= history.seconds[-1]
            record.dual = max(record.dual, history.dual[-1])
        status = "optimal" if record.relative_gap <= tol else None  # zero weights
        status = status or iterate(record, solver, start, limits, lambda point: point)
    with no_time_limit():
        return record.close(status, name)
