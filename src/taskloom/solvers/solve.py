"""The loop of all solvers: step, certify, record, stop and report; on the host, on a device and on a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._component import is_number
from .._linalg import one_thread
from .._time_limit import TimeLimitError, no_time_limit, time_is_up
from .._time_limit import time_limit as limited_time
from ..problem import Problem
from ..problem.evidence import Iterate
from ..problem.solution import History, Solution, Start
from .auto import alternatives, as_solver
from .base import Run, Solver
from .record import MAX_STALLED_BEFORE_NEXT, Record
from .reformulations import ATTEMPTS, EQUIVALENT, Centring, Chain, Smoothing
from .reformulations.subspaces import AllFeatures

Array = np.ndarray
Callback = Callable[[History], bool | None]


@dataclass(frozen=True)
class LoopTuning:
    """When a certificate is computed, and what is tried where every solver stalls."""

    gap_decay: float = 0.25  # after a certificate above the tolerance, the next one waits for this share of the estimated gap
    smoothed_gap_share: float = 0.2  # a smoothed problem is certified at an estimated gap of this share of the last gap,
    max_smoothed_gap: float = 0.02  # and at most this share of the scale
    strength_factor: float = 100  # between the strengths of two attempts under a weak penalty
    max_strength_factor: float = 1e6  # of the strength of the last one


TUNING = LoopTuning()


def solve(
    problem: Problem,
    solver: str | Solver = "auto",
    *,
    tol: float = 1e-4,
    max_iter: int = 1000,
    time_limit: float | None = None,
    start: tuple | None = None,
    callback: Callback | None = None,
) -> Solution:
    """Minimise the problem until its relative duality gap is at most ``tol``.

    Under a structure that is not convex there is no gap: until the stationarity residual is (see ``Certificate``).

    Parameters
    ----------
    problem : Problem
        The problem to minimise.
    solver : str or Solver, default="auto"
        ``"auto"`` picks by structure, loss and shape; or one of ``"factored"``, ``"proximal"``, ``"alternating"``, ``"block"``,
        or an object of :mod:`taskloom.solvers`.
    tol : float, default=1e-4
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        The most steps of the solver.
    time_limit : float, default=None
        Seconds after which to stop with the best iterate so far.
    start : tuple of ndarray, default=None
        Weights of shape (n_features, n_tasks) and intercepts of shape (n_tasks,) to start from, as after a fit at another
        strength.
    callback : callable, default=None
        Called with the history after each step; returning True stops the fit.

    Returns
    -------
    Solution
        The best certified iterate, also if the fit was stopped early, as by Ctrl-C.
    """
    limits = Limits(max_iter, callback)
    if not (is_number(tol) and tol >= 0):
        raise ValueError(f"tol must be a number >= 0, got tol={tol!r}")
    problem = problem.with_structure(problem.structure.for_run())  # with a cache for this run, where it needs one
    chosen = as_solver(solver, problem)
    if (refusal := chosen.accepts(problem)) is not None:
        raise ValueError(refusal)
    begin = None if start is None or not np.any(start[0]) else Start(*start)  # zero may be a saddle point of a factor
    with limited_time(time_limit):
        outer = Chain(problem, begin, EQUIVALENT)
        record = Record(outer.inner, tol)
        automatic = isinstance(solver, str) and solver == "auto"
        attempt = _Attempt(record, record, Chain(outer.inner, outer.start, ()), chosen, automatic)  # nothing was tried yet

        def read(point: Iterate) -> tuple[Array, Array]:
            return outer.to_original(*attempt.chain.to_original(point.W, point.b))

        try:
            while attempt.next(solver, chosen) or attempt.under_stronger_penalty():
                attempt.run(limits, read)
        except (KeyboardInterrupt, TimeLimitError) as stopped:  # in a preparation
            if not (record.convex or record.found):
                raise
            attempt.status = "time_limit" if isinstance(stopped, TimeLimitError) else "interrupted"
    with no_time_limit():
        return outer.invert(attempt.solution())


def unsolved(problem: Problem, tol: float) -> Solution:
    """The intercept-only model, with the bound of a zero dual point, which needs no features.

    For a fit whose time is up before its features are known.

    Parameters
    ----------
    problem : Problem
        The problem; its features do not matter.
    tol : float
        The relative duality gap that was asked for.

    Returns
    -------
    Solution
        Weights of zero, with the status ``"time_limit"``.
    """
    record = Record(problem, tol)
    record.point = replace(record.point, gradients=np.zeros(problem.observations.y.size))
    with no_time_limit():
        found = record.close("time_limit", "no solver has begun")
    point, G = found.point, np.zeros(problem.observations.y.size)
    return Solution(point.W, problem.loss.intercepts(point.b), point.A, G, found.certificate, found.history, "none")


@dataclass(frozen=True)
class Limits:
    """Stopping criteria of the loop; a time limit comes with the context."""

    max_iter: int
    callback: Callback | None = None

    def __post_init__(self) -> None:
        if self.max_iter < 1:
            raise ValueError(f"max_iter must be at least 1, got max_iter={self.max_iter!r}")


@dataclass(eq=False)
class _Attempt:
    """The reformulations that are tried one after the other, each certified on the problem itself (``record``)."""

    record: Record
    stage: Record  # of the current attempt
    chain: Chain
    solver: Solver
    automatic: bool  # whether solvers are chosen, and others tried where one stalls
    status: str | None = None
    tried: set[type] = field(default_factory=set)
    factor: float = 1.0  # of the strength in the current attempt

    def next(self, solver: str | Solver, chosen: Solver) -> bool:
        """Prepare the next attempt; False once the problem is solved, a limit was reached, or nothing is left to try."""
        problem, record, start = self.record.problem, self.record, self.chain.start
        if self.status is not None:
            if self.factor > 1:
                return False
            if self.stage is record or (self.chain.exact and not record.found):
                return False
            self._certify()
            if self.status != "optimal" or self.chain.exact or record.residual <= record.tol:
                return False
            step = self.chain.steps[0]
            if not step.restricted:
                self.tried.add(type(step))
            basis = step.enlarged(problem, record.last.Z, record.point.structure(problem), record.tol)
            start = Start(record.point.W, record.point.b, basis=basis)
        while True:
            chain = Chain(problem, start, ATTEMPTS, self.tried)
            self.solver = as_solver(solver, chain.inner) if chain.restricted and chain.same_rows else chosen
            if chain.exact or self.solver.accepts(chain.inner) is None:
                break
            self.tried.update(type(step) for step in chain.steps)
        self.chain, self.stage = chain, record
        if chain.steps:
            dual = record.dual if chain.restricted else None
            tol = chain.tolerance_share * record.tol
            self.stage = Record(chain.inner, tol, chain.constant, record.history, record.began, dual)
        return True

    def under_stronger_penalty(self) -> bool:
        """Where all solvers stall under a weak penalty, prepare an attempt at a larger strength; False if that cannot help.

        If the penalty is a small share of the gap, its solution is as good as that of the problem itself, and easier to find.
        """
        record, problem = self.record, self.record.problem
        if not (self.automatic and record.convex and (self.status == "stalled" or self.factor > 1)):
            return False
        if self.stage is not record:
            self._certify()
        if self.status in ("optimal", "stalled"):  # of the attempt
            self.status = "optimal" if record.relative_gap <= record.tol else "stalled"
        penalty = record.primal - problem.loss_term(record.point.z) - problem.model.penalty_at_zero[0]
        if self.status != "stalled" or self.factor >= TUNING.max_strength_factor or not penalty < record.gap:
            return False
        self.factor *= TUNING.strength_factor
        self.chain = Chain(problem.at(self.factor * problem.alpha), None, (Centring,))
        self.solver = as_solver("auto", self.chain.inner)
        # its own bounds are not those of the problem
        self.stage = Record(self.chain.inner, record.tol, 0.0, record.history, record.began, original_dual=record.dual)
        return True

    def run(self, limits: Limits, read: Callable[[Any], tuple[Array, Array]]) -> None:
        """Iterate until a stopping criterion holds; where the solver of ``"auto"`` stalls, others are tried in turn."""
        start, others = self.chain.start, alternatives(self.stage.problem, self.solver) if self.automatic else []
        for solver in (self.solver, *others):
            self.stage.stalled_certificates, self.stage.patience = 0, MAX_STALLED_BEFORE_NEXT if others else self.stage.patience
            self.status, self.solver = iterate(self.stage, solver, start, limits, read), solver
            if self.status != "stalled":
                break
            start = None  # from the point of a solver that stalled another one may stall as well

    def _certify(self) -> None:
        """Certify on the problem itself the best weights and the best bound of the stage.

        The dual point carries over if the rows are the same. Otherwise dual candidates come from the best weights and from
        those behind the best bound.
        """
        stage, record, chain = self.stage, self.record, self.chain
        if not stage.found:
            return
        problem, dual_point = record.problem, stage.dual_point
        obs, points = problem.observations, [stage.point]
        if not chain.same_rows and dual_point.iterate is not stage.point:
            points.append(dual_point.iterate)
        for point in points:
            W, b, z = chain.original_point(point.W, point.b)
            G = dual_point.G if chain.same_rows else -obs.weight * problem.loss.gradient(obs.y, z)
            A, penalty = (point.A, point.penalty) if self.factor == 1 else (None, None)  # else of another strength
            A = A if chain.same_tasks else None
            record.update(Iterate(W, b, z, -G / obs.weight, A, penalty, problem.correlate(G)))
        record.length = stage.length
        if len(record.history):  # else Ctrl-C came before the first row
            record.history.correct(record.primal, record.dual)

    def solution(self) -> Solution:
        """The best certified point, in the form of the problem itself."""
        record, problem = self.record, self.record.problem
        mine = self.stage if self.chain.exact and not record.found else record
        found = mine.close(self.status or "time_limit", f"{'auto picked ' if self.automatic else ''}solver {self.solver!r}")
        point, dual = found.point, found.dual_point
        subspace = self.chain.steps[0] if self.chain.restricted else AllFeatures(problem.targets)
        G, Z = (np.zeros(problem.observations.y.size), None) if dual is None else (dual.G, dual.Z)
        b, name = problem.loss.intercepts(point.b), self.solver.name
        solution = Solution(point.W, b, point.A, G, found.certificate, found.history, name, mine.length, basis=subspace, Z=Z)
        return solution if mine is record else self.chain.invert(solution)


def iterate(record: Record, solver: Solver, start: Any, limits: Limits, read: Callable[[Any], tuple[Array, Array]]) -> str:
    """Steps of a solver until a stopping criterion holds; the record keeps the best points.

    Parameters
    ----------
    record : Record
        Of the problem to solve, on any engine.
    solver : Solver
        Whose steps are made.
    start : Start or None
        A warm start.
    limits : Limits
        The most steps, and a callback.
    read : callable
        Weights and intercepts of a point, for callbacks that ask for them.

    Returns
    -------
    str
        The status of the certificate.
    """
    moved: Run | None = None  # the run that has made a step
    record.history.read_best = lambda: read(record.point)
    try:
        with one_thread():
            if record.constants_are_optimal():
                return "optimal"
            smoothing = None if record.problem.loss.smooth else Smoothing(*solver.smoothing_schedule(record.problem))
            run = solver.begin(record.problem if smoothing is None else smoothing.apply(record.problem), start, record.tol)
            schedule, gap = _Schedule(record, smoothing is not None), None
            while len(record.history) < limits.max_iter:
                run.step(gap)
                moved = run
                point: Any = run.point() if schedule.due(run) else None
                gap = None if point is None else record.update(point)
                record.add_to_history()
                record.length = run.length
                stop = limits.callback is not None and limits.callback(record.history)
                if gap is not None:
                    if (status := record.status(run.finished)) is not None:
                        return status
                    gap = gap if smoothing is None else smoothing.follow(run, point, gap, record.last_gap)
                    schedule.certified(run, gap)
                if run.finished is not None:
                    return run.finished
                if stop or time_is_up():
                    return _certified("callback" if stop else "time_limit", run, record, gap)
                if gap is not None:
                    run, gap = _continued(run, point, record, solver, smoothing, gap)
            return _certified("max_iter", moved, record, gap)
    except (KeyboardInterrupt, TimeLimitError) as stopped:
        if not record.found and not record.convex:
            raise  # there is no iterate to return
        if isinstance(stopped, KeyboardInterrupt):
            return "interrupted" if record.found else _certified("interrupted", moved, record, None)
        return _certified("time_limit", moved, record, None)
    finally:
        record.history.read_best = None  # release the data


class _Schedule:
    """When to compute a certificate: once the run estimates a small gap, at the latest after its interval of steps."""

    def __init__(self, record: Record, smoothed: bool):
        self.scale, self.smoothed, self.steps = record.problem.scale, smoothed, 0
        self.goal = (TUNING.max_smoothed_gap if smoothed else record.tol) * self.scale

    def due(self, run: Run) -> bool:
        self.steps += 1
        at_the_latest = self.steps >= run.certificate_interval or run.finished is not None or run.successor is not None
        return at_the_latest or run.estimated_gap() <= self.goal

    def certified(self, run: Run, gap: float) -> None:
        """A certificate left this gap: the next one waits until the estimate is smaller."""
        self.steps = 0
        if run.certificate_interval == 1:
            return
        estimate = run.estimated_gap()
        if self.smoothed:
            self.goal = min(TUNING.smoothed_gap_share * gap, TUNING.max_smoothed_gap * self.scale, TUNING.gap_decay * estimate)
        elif estimate <= self.goal:
            self.goal = TUNING.gap_decay * estimate


def _certified(status: str, run: Run | None, record: Record, gap: float | None) -> str:
    """The status, after the last point was certified where it was not."""
    if run is not None and gap is None and len(record.history):
        with no_time_limit():
            record.update(run.point())
            record.history.correct(record.primal, record.dual if record.original_dual is None else record.original_dual)
    return status


def _continued(
    run: Run, point: Any, record: Record, solver: Solver, smoothing: Smoothing | None, gap: float | None
) -> tuple[Run, float | None]:
    """The run that goes on: the same, its successor, or one that returns to a better point that was left."""
    problem = record.problem if smoothing is None else smoothing.problem
    if run.successor is not None:
        return run.successor.begin(problem, Start(point.W, point.b), record.tol), gap
    if not record.left_better_point:
        return run, gap
    if smoothing is not None:
        problem = smoothing.recenter(-record.dual_point.G / problem.observations.weight)
    return solver.begin(problem, Start(record.point.W, record.point.b), record.tol), None
