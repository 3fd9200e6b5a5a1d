"""The one loop: it counts, certifies, records, stops and reports. Solvers only move."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import issparse

from .._component import is_number, require, resolve
from .._linalg import one_thread
from ..problem import Problem
from ..solution import Certificate, History, Solution, Start, sentence
from .addends import in_addends
from .alternating import Alternating
from .base import Iterate, Solver
from .block import Block
from .choose import choose
from .factored import Factored
from .multipliers import Multipliers
from .partial import Partial
from .projected import Projected
from .proximal import Proximal
from .repair import repaired_pair
from .reweighted import Reweighted
from .smooth import Smooth
from .stationarity import stationarity

Array = np.ndarray
HIDDEN = 1e-6  # a loss this much smaller than a constant of the penalty is measured without it
REPAIRS, NEARLY = 2, 30  # a bound that misses the tolerance by less than so many times is worth another repair
PATIENCE = 300  # iterations without any progress of the gap after which a fit admits that it is stuck


def as_solver(solver: str | Solver, problem: Problem) -> Solver:
    """The solver object for a name; ``"auto"`` picks by structure, loss and shape."""
    if isinstance(solver, str) and solver == "auto":
        return choose(problem)
    return resolve(solver, Solver, [Alternating, Block, Factored, Projected, Proximal, Reweighted, Smooth], "solver")


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
    solver : {"auto", "alternating", "block", "factored"} or Solver
    tol : float
        Relative duality gap at which to stop.
    max_iter : int
    time_limit : float, optional
        Seconds after which to stop with the best iterate so far.
    start : tuple of arrays, optional
        Weights (``r x T``) and intercepts to start from, as after a fit at another strength.
    callback : callable, optional
        Called with the history after each iteration; returning True stops the fit.

    Returns
    -------
    Solution
        The best certified iterate, whatever ended the fit; Ctrl-C is one of the ways.
    """
    require(is_number(tol) and tol >= 0, f"tol must be a number >= 0, got tol={tol!r}")
    require(max_iter >= 1, f"max_iter must be at least 1, got max_iter={max_iter!r}")
    apart = problem.structure.above_constant(problem.n_tasks)
    if apart is not None and problem.scale < HIDDEN * abs(apart[1]):
        inner = problem.with_structure(apart[0])
        found = solve(inner, solver, tol=tol, max_iter=max_iter, time_limit=time_limit, start=start, callback=callback)
        return _raised(found, apart[1])
    chosen = as_solver(solver, problem)
    if (structure := problem.structure.remembering()) is not problem.structure:
        problem = problem.with_structure(structure)  # what it remembers belongs to this run alone
    refusal = chosen.accepts(problem)
    require(refusal is None, str(refusal))
    if start is not None and not np.any(start[0]):
        start = None  # a structure made from weights of zero has nowhere to go
    limits = _Limits(max_iter, time_limit, callback, time.perf_counter())  # what is prepared below counts, too
    if (inner := problem.unfolded()).structure.parted:
        return in_addends(
            problem, inner, lambda begin: _solve_centred(inner, chosen, tol, begin, limits, solver == "auto"), start
        )
    reduced = Partial.of(problem) if problem.structure.convex else None
    while reduced is not None and chosen.accepts(inner := reduced.at(problem.alpha, problem.structure)) is None:
        first, status = _run(
            inner, chosen, reduced.share * tol, reduced.inward(start), limits, reduced.outward, reduced.constant
        )
        book = _Book(problem, tol)
        book.take_over(first, reduced.outward)
        if status != "optimal" or book.relative_gap <= tol:
            return book.close(status, chosen, solver == "auto")
        start, limits = (book.W, book.b), limits.after(len(first.history))  # finer than the reduced problem can tell
        reduced = reduced.finer(problem, book.G, book.W, tol)
    return _solve_centred(problem, chosen, tol, start, limits, solver == "auto")


def _raised(found: Solution, constant: float) -> Solution:
    """Both bounds with a constant of the penalty that was left out; their difference is known better than they are."""
    said, history = found.certificate, found.history
    for column in (history.objective, history.dual):
        column[:] = [value + constant for value in column]
    return replace(found, certificate=replace(said, primal=said.primal + constant, dual=said.dual + constant))


@dataclass(frozen=True)
class _Limits:
    """When to stop short of the tolerance."""

    max_iter: int
    time_limit: float | None
    callback: Callable[[History], bool | None] | None
    began: float

    def after(self, n_iter: int) -> _Limits:
        return replace(self, max_iter=max(self.max_iter - n_iter, 1))


def _solve_centred(
    problem: Problem, solver: Solver, tol: float, start: tuple | None, limits: _Limits, automatic: bool
) -> Solution:
    """Solve with the features moved to zero, where they lie far from it."""
    move = problem.once("offset", lambda: _Move.of(problem))
    if move is None:
        book, status = _run(problem, solver, tol, start, limits)
        return book.close(status, solver, automatic)
    inner = problem.once("centred", lambda: move.inner(problem)).at(problem.alpha)
    book, status = _run(inner, solver, tol, move.inward(start), limits, move.outward)
    solution = book.close(status, solver, automatic)
    W, b = move.outward(solution.W, solution.b)
    return replace(solution, W=W, b=problem.loss.intercepts(b))


@dataclass(frozen=True, eq=False)
class _Move:
    """Features, and targets of losses that see differences only, moved to zero where they lie far from it.

    With intercepts that is the same problem, better conditioned: nothing large cancels any more.
    """

    features: Array  # what is taken off every row
    targets: Array  # what is taken off the targets of each task

    @classmethod
    def of(cls, problem: Problem) -> _Move | None:
        """The move that pays, if any does."""
        features, targets = _offset(problem), _target_offset(problem)
        if features is None and targets is None:
            return None
        nothing = np.zeros(problem.n_features), np.zeros(problem.n_tasks)
        return cls(nothing[0] if features is None else features, nothing[1] if targets is None else targets)

    def inner(self, problem: Problem) -> Problem:
        seen = problem.observations
        features = problem.features - self.features if np.any(self.features) else problem.features
        return replace(problem, features=features, observations=replace(seen, y=seen.y - self.targets[seen.task]))

    def inward(self, start: tuple | None) -> Start | None:
        if start is None:
            return None
        return Start(start[0], start[1] + self.features @ start[0] - self.targets, getattr(start, "length", None))

    def outward(self, W: Array, b: Array) -> tuple[Array, Array]:
        return W, b - self.features @ W + self.targets


def _target_offset(problem: Problem) -> Array | None:
    """The best constants, where targets lie far from zero; a squared loss is solved in one step and needs no help."""
    if not problem.fit_intercept or problem.loss.quadratic or not problem.loss.of_differences:
        return None
    seen, constants = problem.observations, problem.best_constants
    spread = seen.sum_by_task(np.abs(seen.y - constants[seen.task])) / seen.counts
    return constants if np.any(np.abs(constants) > 10 * spread) else None


def _offset(problem: Problem) -> Array | None:
    """Where the features lie far from zero: with intercepts, moving them to zero is the same problem, better conditioned.

    Sparse features stay where they are: moved, they would be dense.
    """
    if not problem.fit_intercept or issparse(problem.features):
        return None
    seen, rows = problem.features, problem.observations.row
    if not np.array_equal(rows, np.arange(problem.n_rows)):
        rows = np.unique(rows)  # rows that nobody observed have no say
        seen = seen if rows.size == problem.n_rows else seen[rows]
    mean = seen.mean(axis=0)
    squares = np.einsum("ij,ij->j", seen, seen) / len(seen)  # what cancels here lies far from zero anyway
    spread = np.sqrt(np.maximum(squares - mean**2, 0.0))
    return mean if np.any(np.abs(mean) > 3 * spread) else None


def _run(
    problem: Problem,
    solver: Solver,
    tol: float,
    start: tuple | None,
    limits: _Limits,
    outward: Callable[[Array, Array], tuple[Array, Array]] | None = None,
    constant: float = 0.0,
) -> tuple[_Book, str]:
    """Iterate until something stops it; ``outward`` turns weights and intercepts into those of the problem that was posed."""
    book = _Book(problem, tol, constant)
    book.began = limits.began
    book.history.best = lambda: outward(book.W, book.b) if outward else (book.W, book.b)  # type: ignore[method-assign]
    status = "interrupted"
    with one_thread():
        try:
            status = _iterate(book, solver, start, limits)
        except KeyboardInterrupt:
            if book.A is None and not book.convex:
                raise  # no iterate yet, and none that needs no work: there is nothing to keep
    del book.history.best  # it holds the book, which holds the data: they are free when the fit is, not at some later time
    return book, status


def _iterate(
    book: _Book,
    solver: Solver,
    start: tuple | None,
    limits: _Limits,
) -> str:
    if book.nothing_to_learn():
        return "optimal"
    kinks = None if book.problem.loss.smooth else Multipliers(book.problem, *solver.narrowing)
    run = solver.begin(book.problem if kinks is None else kinks.problem, start, book.tol)
    gap = np.inf
    for _ in range(limits.max_iter):
        point = run.step(gap)
        gap = book.record(point)
        book.length = run.length
        stop = limits.callback is not None and limits.callback(book.history)
        if book.shortfall <= book.tol and run.finished != "change":
            return "optimal" if book.convex else "stationary"
        if book.idle >= PATIENCE:
            return "stalled"
        if kinks is not None:
            gap = min(kinks.gap(point), gap)
            if kinks.update(point, gap, book.last_gap, run.finished is not None):
                run.retarget(kinks.problem)
                gap = book.last_gap  # that of the stand-in says nothing about the next one
        if run.finished is not None:
            return run.finished
        if stop:
            return "callback"
        if limits.time_limit is not None and book.history.seconds[-1] >= limits.time_limit:
            return "time_limit"
        if book.passed_a_better_point:  # a stand-in for a loss with kinks led past it: go back, with a stand-in that fits there
            if kinks is not None:
                kinks.renew(-book.G / book.problem.observations.weight)
            run = solver.begin(book.problem if kinks is None else kinks.problem, (book.W, book.b), book.tol)
            gap = np.inf
    return "max_iter"


class _Book:
    """The best primal and dual points so far. They may come from different iterations: both bounds stay true."""

    def __init__(self, problem: Problem, tol: float, constant: float = 0.0):
        self.problem, self.tol = problem, tol
        self.constant = constant  # part of the objective, and out of reach
        self.history = History()
        self.began = time.perf_counter()
        self.primal, self.dual = np.inf, -np.inf
        self.convex, self.stationarity, self.last_residual = problem.structure.convex, np.inf, np.inf
        self.W, self.b = np.zeros((problem.n_features, problem.n_tasks)), np.zeros(problem.n_tasks)
        self.G = np.zeros(problem.observations.y.size)
        self.z: Array | None = None  # what the best weights predict
        self.witness: Iterate | None = None  # where the best bound comes from
        self.length: float | None = None
        self.penalty: float | None = None  # of the best weights with the structure at hand
        self.settle: Callable[[], tuple[float, Array]] | None = None  # to the best structure for them, where that is known
        self.idle, self._milestone = 0, np.inf
        self._predict_constants()

    def _predict_constants(self) -> None:
        """The first candidate is to learn nothing: where the strength is that large, zero is the exact answer."""
        problem = self.problem
        self.b = problem.best_constants if problem.fit_intercept else np.zeros(problem.n_tasks)
        self.A: Array | None = None
        if not self.convex:  # nothing tells whether zero is more than stationary
            return
        penalty, self.A = problem.once("nothing", lambda: problem.best_penalty(self.W))
        self.primal = problem.scale + penalty + self.constant

    def nothing_to_learn(self) -> bool:
        """Whether constants leave no loss but rounding: solvers measure everything by that loss, and must not start."""
        problem = self.problem
        if not self.convex or problem.scale > problem.blur:
            return False
        self.record(Iterate(self.W, self.b, z := problem.predict(self.W, self.b), np.zeros(z.size)))
        return self.shortfall <= self.tol

    @property
    def gap(self) -> float:
        """Primal minus dual, and never less than what rounding may hide: a proof cannot be finer than its arithmetic."""
        rounding = 4 * np.finfo(float).eps * (abs(self.primal) + abs(self.dual)) if np.isfinite(self.dual) else 0.0
        return max(abs(self.primal - self.dual), rounding)

    @property
    def relative_gap(self) -> float:
        return self.problem.relative(self.gap, abs(self.primal) + abs(self.dual))

    @property
    def passed_a_better_point(self) -> bool:
        """Where there is no gap: whether the last iterate is stationary, and above another that is not."""
        return not self.convex and self.last_residual <= self.tol < self.stationarity

    @property
    def shortfall(self) -> float:
        """What ``tol`` is about: the relative gap, or how far from stationary where there is no gap."""
        return self.relative_gap if self.convex else self.stationarity

    def record(self, point: Iterate) -> float:
        """Certify an iterate, remember it if it is the best, and return its own gap."""
        self.last_gap = self._certify(point)
        self.history.add(len(self.history) + 1, self.primal, self.dual, self.gap, time.perf_counter() - self.began)
        left = self.gap if self.convex else self.stationarity
        if left < 0.999 * self._milestone:
            self.idle, self._milestone = 0, left
        else:
            self.idle += 1
        return self.last_gap

    def _certify(self, point: Iterate) -> float:
        problem = self.problem
        primal = point.objective(problem) + self.constant
        if not self.convex:
            return self._measure(point, primal)
        if primal < self.primal:
            self.primal, self.W, self.b, self.z = primal, point.W, point.b, point.z
            self.A = None if point.penalty is None else point.A
            self.penalty, self.settle = point.penalty, point.settle
        G = problem.dual_candidate(point.slopes)
        Z = None if point.Z is None else problem.shifted_correlations(point.slopes, G, point.Z)
        dual = -np.inf
        for k in range(REPAIRS):
            better, its_own = (None, None) if Z is None else repaired_pair(problem, G, Z, point.W, lifts=k == 0)
            if better is None and np.isfinite(dual):
                break
            G, Z = (G, Z) if better is None else (better, problem.correlate(better) if its_own is None else its_own)
            dual = max(problem.dual(G, point.W, point.A, Z) + self.constant, dual)
            if dual > self.dual:
                self.dual, self.G, self.witness = dual, G, point
            if better is None or not self.tol < problem.relative(primal - dual) < NEARLY * self.tol:
                break
        return max(primal - dual, 0.0)

    def _measure(self, point: Iterate, primal: float) -> float:
        """Where there is no dual: the slope, and its square in place of a gap. Of points that cost the same the flattest."""
        residual, G = stationarity(self.problem, point)
        self.last_residual = residual
        same = 1e-12 * abs(primal)
        if primal < self.primal - same or (primal <= self.primal + same and residual < self.stationarity):
            self.primal, self.stationarity = min(primal, self.primal), residual
            self.W, self.b, self.z, self.A, self.G = point.W, point.b, point.z, point.A, G
        return residual**2 * self.problem.scale

    def take_over(self, other: _Book, outward: Callable[[Array, Array], tuple[Array, Array]]) -> None:
        """Certify here what was found on another form of this problem: its best weights, and those behind its best bound."""
        self.history, self.began, self.length = other.history, other.began, other.length
        points = [(other.W, other.b, other.A, other.penalty)]
        if (one := other.witness) is not None and one.W is not other.W:
            points.append((one.W, one.b, one.A, one.penalty))
        for W, b, A, penalty in points:
            W, b = outward(W, b)
            z = self.problem.predict(W, b)
            slopes = self.problem.loss.slope(self.problem.observations.y, z)
            Z = self.problem.correlate(-self.problem.observations.weight * slopes)
            self._certify(Iterate(W, b, z, slopes, A, penalty, Z))
        for column, value in (("objective", self.primal), ("dual", self.dual), ("gap", self.gap)):
            getattr(self.history, column)[-1:] = [value]

    def close(self, status: str, solver: Solver, automatic: bool) -> Solution:
        problem = self.problem
        if not len(self.history):  # interrupted before the first step: a bound that needs no work
            z = problem.predict(self.W, self.b)
            self.record(Iterate(self.W, self.b, z, np.zeros(z.size)))
        if self.convex:
            self._settle()
        relative, slope = self.relative_gap, None if self.convex else self.stationarity
        if self.convex and status in ("stalled", "max_iter") and relative <= self.tol:
            status = "optimal"  # by the structure that is handed back
        picked = f"{'auto picked ' if automatic else ''}solver {solver!r}"
        message = sentence(status, relative, slope, len(self.history), self.tol, picked)
        message = " ".join([message, *self._notes()])
        primal, dual, gap, relative = (float(number) for number in (self.primal, self.dual, self.gap, relative))
        certificate = Certificate(primal, dual, gap, relative, status, message, slope)
        assert self.A is not None
        self.b = problem.loss.intercepts(self.b)
        return Solution(self.W, self.b, self.A, self.G, certificate, self.history, solver.name, self.length)

    def _notes(self) -> list[str]:
        """What a reader of the certificate must know besides the gap."""
        if not self.convex:
            return []
        if not np.isfinite(self.dual):
            return ["No certificate is available: no finite bound on the conjugates of the loss and the penalty was found."]
        return [f"{part.proof}." for part in (self.problem.structure, self.problem.loss) if part.proof]

    def _settle(self) -> None:
        """Hand back the best structure for the weights: what is certified is then what is returned."""
        if self.A is not None and self.problem.structure.searched:
            return
        penalty, A = self.problem.best_penalty(self.W) if self.settle is None else self.settle()
        z = self.problem.predict(self.W, self.b) if self.z is None else self.z
        primal = self.problem.loss_term(z) + penalty + self.constant
        if self.A is None or primal <= self.primal:
            self.primal, self.A = primal, A
            self.history.objective[-1], self.history.gap[-1] = self.primal, self.gap
