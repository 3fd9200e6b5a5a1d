"""What a fit knows so far: its best point, its best bound, and the certificate that they make."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from ..problem import Problem
from ..problem.dual_projection import project_dual_pair
from ..problem.solution import Certificate, History, Solution, sentence
from .base import Iterate, Solver, stationarity
from .subspaces import EigenbasisForm, KrylovBasis

Array = np.ndarray
BOUND_ROUNDING = 1e-9  # relative rounding error that primal and dual values may have
MAX_DUAL_PROJECTIONS = 2  # of one dual candidate
MAX_GAP_TO_PROJECT_AGAIN = 30  # multiple of the tolerance below which a second projection may close the gap


class Record:
    """The best primal and dual points so far. They may come from different iterations: both bounds stay true."""

    def __init__(self, problem: Problem, tol: float, constant: float = 0.0):
        self.problem, self.tol = problem, tol
        self.constant = constant  # part of the objective, and out of reach
        self.history, self.earlier = History(), 0  # iterations of earlier runs are counted, too
        self.proved: float | None = None  # of the problem that was posed, by earlier runs, where bounds of this one are not its
        self.began = time.perf_counter()
        self.primal, self.dual = np.inf, -np.inf
        self.convex, self.stationarity, self.last_residual = problem.structure.convex, np.inf, np.inf
        self.W, self.b = np.zeros((problem.n_features, problem.n_tasks)), np.zeros(problem.n_tasks)
        self.G = np.zeros(problem.observations.y.size)
        self.latest: tuple[Array, Array | None] = self.G, None  # the last candidate, and what the features make of it
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
        self.b = problem.best_constants
        self.A: Array | None = None
        if not self.convex:  # nothing tells whether zero is more than stationary
            return
        penalty, self.A = problem.model.penalty_at_zero
        self.primal = problem.scale + penalty + self.constant

    def nothing_to_learn(self) -> bool:
        """Whether constants leave no loss but rounding: solvers measure everything by that loss, and must not start."""
        problem = self.problem
        if not self.convex or problem.scale > problem.rounding_floor:
            return False
        self.take(Iterate(self.W, self.b, z := problem.predict(self.W, self.b), np.zeros(z.size)))
        return self.shortfall <= self.tol

    @property
    def correlations(self) -> Array:
        """``Phi'G`` of the last candidate for a bound, the best or not: what it says has not been heard yet."""
        G, Z = self.latest
        return self.problem.correlate(G) if Z is None else Z

    @property
    def structure(self) -> Array:
        """The structure at hand, or the best one for the best weights."""
        return self.problem.best_penalty(self.W)[1] if self.A is None else self.A

    @property
    def gap(self) -> float:
        """Primal minus dual, and never less than what rounding may hide: a proof cannot be finer than its arithmetic."""
        rounding = 4 * np.finfo(float).eps * (abs(self.primal) + abs(self.dual)) if np.isfinite(self.dual) else 0.0
        return max(abs(self.primal - self.dual), rounding)

    @property
    def contradicted(self) -> bool:
        """Whether the best bound lies above the best point, by more than rounding: then one of the two is false."""
        if not (self.convex and np.isfinite(self.dual) and np.isfinite(self.primal)):
            return False
        problem = self.problem
        numeric = 100 if problem.structure.proof or problem.loss.proof else 1  # a bound that is found is as good as its finder
        room = BOUND_ROUNDING * (abs(self.primal) + abs(self.dual)) + 1e-3 * self.tol * problem.scale
        return self.dual - self.primal > numeric * room + problem.rounding_floor

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

    def take(self, point: Iterate) -> float:
        """Certify an iterate, remember it if it is the best, and return its own gap."""
        self.last_gap = self._certify(point)
        count = self.earlier + len(self.history) + 1
        dual, gap = (self.dual, self.gap) if self.proved is None else (self.proved, self.primal - self.proved)
        self.history.add(count, self.primal, dual, gap, time.perf_counter() - self.began)
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
        G = problem.dual_candidate(point.gradients)
        Z = None if point.Z is None else problem.targets.shifted_correlations(point.gradients, G, point.Z)
        dual = -np.inf
        for k in range(MAX_DUAL_PROJECTIONS):
            better, its_own = (None, None) if Z is None else project_dual_pair(problem, G, Z, point.W, lifts=k == 0)
            if better is None and np.isfinite(dual):
                break
            G, Z = (G, Z) if better is None else (better, problem.correlate(better) if its_own is None else its_own)
            dual = max(problem.dual(G, point.W, point.A, Z) + self.constant, dual)
            if dual > self.dual:
                self.dual, self.G, self.witness = dual, G, point
            if better is None or not self.tol < problem.relative(primal - dual) < MAX_GAP_TO_PROJECT_AGAIN * self.tol:
                break
        self.latest = G, Z
        return max(primal - dual, 0.0)

    def _measure(self, point: Iterate, primal: float) -> float:
        """Where there is no dual: the gradient, and its square in place of a gap. Of points that cost the same the flattest."""
        residual, G = stationarity(self.problem, point)
        self.last_residual = residual
        same = 1e-12 * abs(primal)
        if primal < self.primal - same or (primal <= self.primal + same and residual < self.stationarity):
            self.primal, self.stationarity = min(primal, self.primal), residual
            self.W, self.b, self.z, self.A, self.G = point.W, point.b, point.z, point.A, G
        return residual**2 * self.problem.scale

    def take_over(self, other: Record, form: KrylovBasis | EigenbasisForm) -> None:
        """Certify here what was found on another form of this problem: its best weights, and its best bound.

        That is its dual point, where rows are the same; else the duals of its weights, and of those behind its bound.
        """
        self.began, self.length = other.began, other.length
        points = [(other.W, other.b, other.A, other.penalty)]
        if (one := other.witness) is not None and one.W is not other.W and not form.same_rows:
            points.append((one.W, one.b, one.A, one.penalty))
        seen = self.problem.observations
        for W, b, A, penalty in points:
            W, b, z = form.original(self.problem, W, b)
            G = other.G if form.same_rows else -seen.weight * self.problem.loss.gradient(seen.y, z)
            self._certify(Iterate(W, b, z, -G / seen.weight, A, penalty, self.problem.correlate(G)))
        self.history.follow(other.history)
        if len(self.history):
            self.history.objective[-1], self.history.dual[-1], self.history.gap[-1] = self.primal, self.dual, self.gap

    def close(self, status: str, solver: Solver, automatic: bool) -> Solution:
        problem = self.problem
        if not len(self.history):  # interrupted before the first step: a bound that needs no work
            z = problem.predict(self.W, self.b)
            self.take(Iterate(self.W, self.b, z, np.zeros(z.size)))
        if self.convex:
            self._settle()
        relative, gradient = self.relative_gap, None if self.convex else self.stationarity
        if self.convex and status in ("stalled", "max_iter") and relative <= self.tol:
            status = "optimal"  # by the structure that is handed back
        status = "contradiction" if self.contradicted else status
        picked = f"{'auto picked ' if automatic else ''}solver {solver!r}"
        primal, dual, gap = (float(number) for number in (self.primal, self.dual, self.gap))
        message = sentence(
            status, relative, gradient, self.earlier + len(self.history), self.tol, picked, primal=primal, dual=dual
        )
        if status == "contradiction":
            dual, gap, relative = -np.inf, np.inf, np.inf
        message = " ".join([message, *self._notes()])
        relative = float(relative)
        certificate = Certificate(primal, dual, gap, relative, status, message, gradient)
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
        if self.A is not None and self.problem.structure.iterative:
            return
        penalty, A = self.problem.best_penalty(self.W) if self.settle is None else self.settle()
        z = self.problem.predict(self.W, self.b) if self.z is None else self.z
        primal = self.problem.loss_term(z) + penalty + self.constant
        if self.A is None or primal <= self.primal:
            self.primal, self.A = primal, A
            self.history.objective[-1], self.history.gap[-1] = self.primal, self.gap
