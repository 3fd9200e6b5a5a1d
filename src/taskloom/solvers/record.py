"""The record of a fit: best primal point, best dual bound, certificate and history."""

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
    """The best primal and dual points so far. They may come from different iterations: both bounds hold."""

    def __init__(self, problem: Problem, tol: float, constant: float = 0.0):
        self.problem, self.tol = problem, tol
        self.constant = constant  # constant part of the objective
        self.history, self.earlier = History(), 0  # number of iterations of earlier runs
        self.original_dual: float | None = None  # bound on the original problem, if this is a restriction of it
        self.began = time.perf_counter()
        self.primal, self.dual = np.inf, -np.inf
        self.convex, self.stationarity, self.last_residual = problem.structure.convex, np.inf, np.inf
        self.W = np.zeros((problem.n_features, problem.n_tasks))
        self.A: Array | None
        self.G = np.zeros(problem.observations.y.size)
        self.Z: Array | None = None  # ``Phi'G`` of the best dual point
        self.last_candidate: tuple[Array, Array | None] = self.G, None  # the last ``G`` and ``Phi'G``
        self.z: Array | None = None  # predictions of the best weights
        self.dual_iterate: Iterate | None = None  # the iterate behind the best bound
        self.length: float | None = None
        self.penalty: float | None = None  # of the best weights with their structure
        self.best_penalty: Callable[[], tuple[float, Array]] | None = None  # see ``Iterate``
        self.stalled_iterations, self._last_improved = 0, np.inf
        self.b, self.A = problem.best_constants, None
        if self.convex:  # the intercept-only model is optimal at large alpha; else it may be stationary and no minimum
            penalty, self.A = problem.model.penalty_at_zero
            self.primal = problem.scale + penalty + constant

    def constants_are_optimal(self) -> bool:
        """Whether the intercept-only model fits up to rounding; solvers need a positive scale and must not start."""
        problem = self.problem
        if not self.convex or problem.scale > problem.rounding_floor:
            return False
        self.update(Iterate(self.W, self.b, z := problem.predict(self.W, self.b), np.zeros(z.size)))
        return self.residual <= self.tol

    @property
    def correlations(self) -> Array:
        """``Phi'G`` of the last dual candidate, the best or not."""
        G, Z = self.last_candidate
        return self.problem.correlate(G) if Z is None else Z

    @property
    def structure(self) -> Array:
        """The structure of the best weights."""
        return self.problem.best_penalty(self.W)[1] if self.A is None else self.A

    @property
    def gap(self) -> float:
        """Primal minus dual value, at least the rounding error of their difference."""
        rounding = 4 * np.finfo(float).eps * (abs(self.primal) + abs(self.dual)) if np.isfinite(self.dual) else 0.0
        return max(abs(self.primal - self.dual), rounding)

    @property
    def contradicted(self) -> bool:
        """Whether the dual bound exceeds the primal value by more than rounding: then one of them is wrong."""
        if not (self.convex and np.isfinite(self.dual) and np.isfinite(self.primal)):
            return False
        problem = self.problem
        numeric = 100 if problem.structure.proof or problem.loss.proof else 1  # numerical conjugates are less accurate
        room = BOUND_ROUNDING * (abs(self.primal) + abs(self.dual)) + 1e-3 * self.tol * problem.scale
        return self.dual - self.primal > numeric * room + problem.rounding_floor

    @property
    def relative_gap(self) -> float:
        return self.problem.relative(self.gap, abs(self.primal) + abs(self.dual))

    @property
    def left_better_point(self) -> bool:
        """If not convex: whether the last iterate is stationary, but the best one has a lower objective and is not."""
        return not self.convex and self.last_residual <= self.tol < self.stationarity

    @property
    def residual(self) -> float:
        """What ``tol`` bounds: the relative gap, or the stationarity residual if the problem is not convex."""
        return self.relative_gap if self.convex else self.stationarity

    def update(self, point: Iterate) -> float:
        """Certify an iterate, store it if it is the best, and return its duality gap."""
        self.last_gap = self._certify(point)
        count = self.earlier + len(self.history) + 1
        dual, gap = (
            (self.dual, self.gap) if self.original_dual is None else (self.original_dual, self.primal - self.original_dual)
        )
        self.history.add(count, self.primal, dual, gap, time.perf_counter() - self.began)
        left = self.gap if self.convex else self.stationarity
        if left < 0.999 * self._last_improved:
            self.stalled_iterations, self._last_improved = 0, left
        else:
            self.stalled_iterations += 1
        return self.last_gap

    def _certify(self, point: Iterate) -> float:
        problem = self.problem
        primal = point.objective(problem) + self.constant
        if not self.convex:
            return self._update_stationary(point, primal)
        if primal < self.primal:
            self.primal, self.W, self.b, self.z = primal, point.W, point.b, point.z
            self.A = None if point.penalty is None else point.A
            self.penalty, self.best_penalty = point.penalty, point.best_penalty
        G = problem.dual_candidate(point.gradients)
        Z = None if point.Z is None else problem.targets.shifted_correlations(point.gradients, G, point.Z)
        dual = -np.inf
        for k in range(MAX_DUAL_PROJECTIONS):
            projected, projected_Z = (None, None) if Z is None else project_dual_pair(problem, G, Z, point.W, lift=k == 0)
            if projected is None and np.isfinite(dual):
                break
            G, Z = (
                (G, Z)
                if projected is None
                else (projected, problem.correlate(projected) if projected_Z is None else projected_Z)
            )
            correlations = problem.correlate(G) if Z is None else Z
            dual = max(problem.dual(G, point.W, point.A, correlations) + self.constant, dual)
            if dual > self.dual:
                self.dual, self.G, self.Z, self.dual_iterate = dual, G, correlations, point
            if projected is None or not self.tol < problem.relative(primal - dual) < MAX_GAP_TO_PROJECT_AGAIN * self.tol:
                break
        self.last_candidate = G, Z
        return max(primal - dual, 0.0)

    def _update_stationary(self, point: Iterate, primal: float) -> float:
        """If not convex: the squared stationarity residual takes the place of the gap. Ties go to the smaller residual."""
        residual, G = stationarity(self.problem, point)
        self.last_residual = residual
        same = 1e-12 * abs(primal)
        if primal < self.primal - same or (primal <= self.primal + same and residual < self.stationarity):
            self.primal, self.stationarity = min(primal, self.primal), residual
            self.W, self.b, self.z, self.A, self.G = point.W, point.b, point.z, point.A, G
        return residual**2 * self.problem.scale

    def update_from(self, other: Record, form: KrylovBasis | EigenbasisForm) -> None:
        """Certify on this problem the best weights and the best bound of a reformulation of it.

        The dual point carries over if the rows are the same. Otherwise dual candidates come from the best weights and from
        those
        behind the best bound.
        """
        self.began, self.length = other.began, other.length
        points = [(other.W, other.b, other.A, other.penalty)]
        if (one := other.dual_iterate) is not None and one.W is not other.W and not form.same_rows:
            points.append((one.W, one.b, one.A, one.penalty))
        obs = self.problem.observations
        for W, b, A, penalty in points:
            W, b, z = form.original(self.problem, W, b)
            G = other.G if form.same_rows else -obs.weight * self.problem.loss.gradient(obs.y, z)
            self._certify(Iterate(W, b, z, -G / obs.weight, A, penalty, self.problem.correlate(G)))
        self.history.follow(other.history)
        if len(self.history):
            self.history.objective[-1], self.history.dual[-1], self.history.gap[-1] = self.primal, self.dual, self.gap

    def close(self, status: str, solver: Solver, automatic: bool) -> Solution:
        problem = self.problem
        if not len(self.history):  # interrupted before the first step
            z = problem.predict(self.W, self.b)
            self.update(Iterate(self.W, self.b, z, np.zeros(z.size)))
        if self.convex:
            self._use_best_structure()
        relative, gradient = self.relative_gap, None if self.convex else self.stationarity
        if self.convex and status in ("stalled", "max_iter") and relative <= self.tol:
            status = "optimal"  # with the best structure
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
        return Solution(self.W, self.b, self.A, self.G, certificate, self.history, solver.name, self.length, Z=self.Z)

    def _notes(self) -> list[str]:
        """Remarks on the certificate."""
        if not self.convex:
            return []
        if not np.isfinite(self.dual):
            return ["No certificate is available: no finite bound on the conjugates of the loss and the penalty was found."]
        return [f"{part.proof}." for part in (self.problem.structure, self.problem.loss) if part.proof]

    def _use_best_structure(self) -> None:
        """Return the best structure for the best weights, unless that has no closed form."""
        if self.A is not None and self.problem.structure.iterative:
            return
        penalty, A = self.problem.best_penalty(self.W) if self.best_penalty is None else self.best_penalty()
        z = self.problem.predict(self.W, self.b) if self.z is None else self.z
        primal = self.problem.loss_term(z) + penalty + self.constant
        if self.A is None or primal <= self.primal:
            self.primal, self.A = primal, A
            self.history.objective[-1], self.history.gap[-1] = self.primal, self.gap
