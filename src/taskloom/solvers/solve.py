"""The loop of all solvers: iterate, certify, record, stop and report; and the choice of ``solver="auto"``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .._component import is_number, resolve
from .._linalg import one_thread
from ..design.table_with_gaps import TableWithGaps
from ..problem import Problem
from ..problem.solution import History, Solution, Start
from ..structures import Clusters
from .alternating import Alternating
from .base import Solver
from .block_descent import Block
from .cluster_newton import Smooth
from .factor.factored import Factored
from .factor.projected import Projected
from .factor.reweighted import Reweighted
from .proximal import Proximal
from .record import Record
from .smoothing import SmoothedProblem
from .stacked_terms import solve_stacked
from .subspaces import AllFeatures, KrylovBasis, first_form

Array = np.ndarray
MIN_RELATIVE_SCALE = 1e-6  # a loss smaller than this share of the penalty's constant is measured without that constant
MAX_STALLED_ITERATIONS = 300  # iterations without a decrease of the gap after which a fit stops as stalled


def as_solver(solver: str | Solver, problem: Problem) -> Solver:
    """The solver of this name; ``"auto"`` chooses by structure, loss and shape."""
    if isinstance(solver, str) and solver == "auto":
        return choose(problem)
    solvers: list[type] = [Alternating, Block, Factored, Projected, Proximal, Reweighted, Smooth]
    return resolve(solver, Solver, solvers, "solver", also=["auto"])


def solve(
    problem: Problem,
    solver: str | Solver = "auto",
    *,
    tol: float = 1e-4,
    max_iter: int = 1000,
    time_limit: float | None = None,
    start: tuple | None = None,
    callback: Callable[[History], bool | None] | None = None,
) -> Solution:
    """Minimise the problem until its relative duality gap is at most ``tol``.

    Under a structure that is not convex there is no gap: until the stationarity residual is (see ``Certificate``).

    Parameters
    ----------
    problem : Problem
        The problem to minimise.
    solver : str or Solver, default="auto"
        ``"auto"`` picks by structure, loss and shape; or one of ``"projected"``, ``"smooth"``, ``"reweighted"``,
        ``"proximal"``, ``"factored"``, ``"alternating"``, ``"block"``, or an object of :mod:`taskloom.solvers`.
    tol : float, default=1e-4
        Relative duality gap at which to stop.
    max_iter : int, default=1000
        The most iterations.
    time_limit : float, default=None
        Seconds after which to stop with the best iterate so far.
    start : tuple of ndarray, default=None
        Weights of shape (n_features, n_tasks) and intercepts of shape (n_tasks,) to start from, as after a fit at another
        strength.
    callback : callable, default=None
        Called with the history after each iteration; returning True stops the fit.

    Returns
    -------
    Solution
        The best certified iterate, also if the fit was stopped early, as by Ctrl-C.
    """
    if not (is_number(tol) and tol >= 0):
        raise ValueError(f"tol must be a number >= 0, got tol={tol!r}")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got max_iter={max_iter!r}")
    above_constant = problem.structure.shifted_to_zero(problem.n_tasks)
    if above_constant is not None and problem.scale < MIN_RELATIVE_SCALE * abs(above_constant[1]):
        inner = problem.with_structure(above_constant[0])
        found = solve(inner, solver, tol=tol, max_iter=max_iter, time_limit=time_limit, start=start, callback=callback)
        return _plus_constant(found, above_constant[1])
    chosen = as_solver(solver, problem)
    if (structure := problem.structure.for_run()) is not problem.structure:
        problem = problem.with_structure(structure)  # with a cache for this run
    refusal = chosen.accepts(problem)
    if refusal is not None:
        raise ValueError(str(refusal))
    start = None if start is None or not np.any(start[0]) else Start(*start)  # zero may be a saddle point of a factor
    limits = _Limits(max_iter, time_limit, callback, time.perf_counter())  # includes the preparation below
    if (inner := problem.stacked()).structure.is_sum:
        return solve_stacked(
            problem, inner, lambda begin: _solve_centred(inner, chosen, tol, begin, limits, solver == "auto"), start
        )
    record, basis = Record(problem, tol), None
    form = first_form(problem, start) if problem.structure.convex else None
    while form is not None:
        basis = form if isinstance(form, KrylovBasis) else AllFeatures(problem.targets)
        inner = form.apply(problem)
        chosen_inner = as_solver(solver, inner) if form.same_rows else chosen  # chosen anew for fewer features
        if chosen_inner.accepts(inner) is not None:
            break
        before = len(record.history)
        original_dual = None if form.whole else record.dual
        first, status = _run(
            inner,
            chosen_inner,
            form.share * tol,
            form.to_inner(start),
            limits,
            form.to_original,
            form.constant,
            before,
            original_dual,
        )
        record.update_from(first, form)
        if status != "optimal" or record.relative_gap <= tol:
            return replace(record.close(status, chosen_inner, solver == "auto"), basis=basis)
        start, limits = Start(record.W, record.b), limits.after(len(record.history) - before)
        form = form.enlarged(problem, record.correlations, record.structure, tol)
    last = _solve_centred(problem, chosen, tol, start, limits, solver == "auto", len(record.history))
    last = replace(last, basis=basis and AllFeatures(problem.targets))
    if not len(record.history):
        return last
    record.history.follow(last.history)
    return replace(last, history=record.history)


def _plus_constant(found: Solution, constant: float) -> Solution:
    """Add a constant of the penalty to primal and dual values; the gap is unchanged."""
    said, history = found.certificate, found.history
    for column in (history.objective, history.dual):
        column[:] = [value + constant for value in column]
    return replace(found, certificate=replace(said, primal=said.primal + constant, dual=said.dual + constant))


@dataclass(frozen=True)
class _Limits:
    """Stopping criteria other than the tolerance."""

    max_iter: int
    time_limit: float | None
    callback: Callable[[History], bool | None] | None
    began: float

    def after(self, n_iter: int) -> _Limits:
        return replace(self, max_iter=max(self.max_iter - n_iter, 1))


def _solve_centred(
    problem: Problem, solver: Solver, tol: float, start: Start | None, limits: _Limits, automatic: bool, earlier: int = 0
) -> Solution:
    """Solve with centred features and targets, where centring improves the conditioning."""
    centering = problem.targets.centering
    if centering is None:
        record, status = _run(problem, solver, tol, start, limits, earlier=earlier)
        return record.close(status, solver, automatic)
    inner = Problem.of(problem.model.centred, problem.alpha, problem.ridge)
    if start is not None:
        W, b = centering.to_inner(start.W, start.b)
        start = start._replace(W=W, b=b)
    record, status = _run(inner, solver, tol, start, limits, centering.to_original, earlier=earlier)
    solution = record.close(status, solver, automatic)
    W, b = centering.to_original(solution.W, solution.b)
    return replace(solution, W=W, b=problem.loss.intercepts(b))


def _run(
    problem: Problem,
    solver: Solver,
    tol: float,
    start: Start | None,
    limits: _Limits,
    to_original: Callable[[Array, Array], tuple[Array, Array]] | None = None,
    constant: float = 0.0,
    earlier: int = 0,
    original_dual: float | None = None,
) -> tuple[Record, str]:
    """Iterate until a stopping criterion; ``to_original`` maps weights and intercepts to those of the original problem."""
    record = Record(problem, tol, constant)
    record.began, record.earlier, record.original_dual = limits.began, earlier, original_dual
    record.history.read_best = lambda: to_original(record.W, record.b) if to_original else (record.W, record.b)
    status = "interrupted"
    with one_thread():
        try:
            status = _iterate(record, solver, start, limits)
        except KeyboardInterrupt:
            if record.A is None and not record.convex:
                raise  # there is no iterate to return
    record.history.read_best = None  # release the data
    return record, status


def _iterate(
    record: Record,
    solver: Solver,
    start: Start | None,
    limits: _Limits,
) -> str:
    if record.constants_are_optimal():
        return "optimal"
    smoothing = None if record.problem.loss.smooth else SmoothedProblem(record.problem, *solver.smoothing_schedule)
    run = solver.begin(record.problem if smoothing is None else smoothing.problem, start, record.tol)
    gap = np.inf
    for _ in range(limits.max_iter):
        point = run.step(gap)
        gap = record.update(point)
        record.length = run.length
        if record.contradicted:
            return "contradiction"
        stop = limits.callback is not None and limits.callback(record.history)
        if record.residual <= record.tol and run.finished != "change":
            return "optimal" if record.convex else "stationary"
        if record.stalled_iterations >= MAX_STALLED_ITERATIONS:
            return "stalled"
        if smoothing is not None:
            gap = min(smoothing.gap(point), gap)
            if smoothing.update(point, gap, record.last_gap, run.finished is not None):
                run.retarget(smoothing.problem)
                gap = record.last_gap  # the gap of the next smoothed problem is unknown
        if run.finished is not None:
            return run.finished
        if stop:
            return "callback"
        if limits.time_limit is not None and record.history.seconds[-1] >= limits.time_limit:
            return "time_limit"
        if record.left_better_point:  # return to it, with the loss smoothed there
            if smoothing is not None:
                smoothing.recenter(-record.G / record.problem.observations.weight)
            run = solver.begin(
                record.problem if smoothing is None else smoothing.problem, Start(record.W, record.b), record.tol
            )
            gap = np.inf
    return "max_iter"


MAX_COPIED_ENTRIES = 2e8  # entries of a copy of the inputs with one row for each observation
MAX_SYSTEM_ENTRIES = 3e7  # entries of the linear systems of all tasks
MIN_TASKS_FOR_PROXIMAL = 50  # with fewer tasks and a nonsmooth loss, L-BFGS on a factor converges faster than proximal steps


def choose(problem: Problem) -> Solver:
    """The solver of ``solver="auto"``.

    Newton's method, on the factor (trace) or on the weights (clusters), is the fastest where it applies: under the squared loss
    with any inputs (trace: benchmarks/fig1.py and shared_inputs.py) or with task-specific ones (clusters), and under other
    losses, smooth or not, with any inputs (benchmarks/losses.py). Otherwise proximal steps take the fewest iterations
    (benchmarks/core.py). L-BFGS on a factor needs no prox of the structure, which counts if the structure is large, and
    converges
    better to a low-rank optimum under a nonsmooth loss. Alternation needs a single step if ``A`` is known.
    """
    structure = problem.stacked().structure
    if structure.task_factor:
        return Factored()
    if structure.known or not structure.convex:
        return Alternating()
    if isinstance(structure, Clusters) and structure.is_singleton(problem.n_tasks):
        return Proximal()  # the structure is determined: one coupled fit
    shared, several = problem.targets.shared_inputs is not None, problem.n_tasks > 1
    if (
        several
        and (shared or TableWithGaps.suits(problem.design) or _copies_fit(problem))
        and Projected().accepts(problem) is None
    ):
        return Projected()
    if not shared and _copies_fit(problem) and Smooth().accepts(problem) is None:
        return Smooth()
    if _models_pay(problem):
        return Reweighted()
    if structure.either_side:
        large = min(problem.n_tasks, problem.n_features) > 300
        if large or (structure.low_rank and not problem.loss.smooth and problem.n_tasks < MIN_TASKS_FOR_PROXIMAL):
            return Factored()
    return Proximal()


def _copies_fit(problem: Problem) -> bool:
    """Whether a copy of the inputs with one row for each observation fits in memory."""
    return problem.observations.y.size * problem.n_features <= MAX_COPIED_ENTRIES


def _models_pay(problem: Problem) -> bool:
    """Whether the inputs and the systems of ``Reweighted`` fit in memory."""
    if problem.n_tasks < 2 or problem.loss.quadratic or Reweighted().accepts(problem) is not None:
        return False
    columns = max(40, min(problem.n_tasks, problem.n_features) // 2)
    return _copies_fit(problem) and problem.n_tasks * columns**2 <= MAX_SYSTEM_ENTRIES
