"""Variable projection without a factor: tasks eliminated exactly, proximal steps on the structure itself.

    min_A h(A) + F(A),   h(A) = min over the tasks,   grad h(A) = -Z1'Z1 / (4 alpha)

``h`` is convex and stays smooth where ``A`` is singular, so a rank-deficient optimum is no special case, and a structure needs
nothing but its ``value``, ``prox`` and ``conjugate``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..problem import Problem
from ..problem.solution import Start
from ..structures import Clusters
from .base import Iterate, Run, Solver, needs_convex
from .reformulations.eliminated_weights import Eliminated
from .supervised.choose_side import choose_side
from .supervised.sides import Supervised

Array = np.ndarray
MOVES = 16  # cheap moves after which a certificate is due, whatever their own estimate of the gap says
EXACT, CURVED = 1e-6, 1e-7  # the shares of the gap that conjugate gradients may leave: in all, and in each Newton step
TROUBLE = 4  # halvings of a step after which it may be the tasks, not the step, that are not good enough
SLOW, SELDOM = 64, 4  # moves before the first alternating step that is a search, and how many times fewer these are
LITTLE = 1e-3  # of the objective: smaller structures take steps as long as those of this size
CLOSE = 0.5  # the share of the tolerance at which an estimate of the gap is worth a certificate


@dataclass(eq=False, repr=False)
class Proximal(Solver):
    """Proximal gradient steps on ``A`` with Barzilai and Borwein's length (SpaRSA), and now and then an alternating step.

    Proximal steps find the rank and are slow where the eigenvalues of ``A`` differ in size by much; alternation, which
    multiplies them, is the other way round. Together they take about half the supervised steps of either.

    Parameters
    ----------
    look_back : int, default=5
        The objective must fall below its largest value over this many past steps.
    alternate : int, default=4
        After how many proximal steps an alternating one follows.
    """

    look_back: int = 5
    alternate: int = 4

    def check(self) -> None:
        if self.look_back < 1:
            raise ValueError(f"Proximal needs look_back >= 1, got look_back={self.look_back!r}")
        if self.alternate < 1:
            raise ValueError(f"Proximal needs alternate >= 1, got alternate={self.alternate!r}")

    def accepts(self, problem: Problem) -> str | None:
        return None if problem.structure.convex else needs_convex(self.name, problem)

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        return _ProximalRun(self, problem, start, tol)


@dataclass(frozen=True, eq=False)
class _Point:
    """A structure, the objective with the tasks learned at it, and the gradient of ``h``; the tasks, unless they can wait."""

    A: Array
    value: float
    gradient: Array
    fit: Supervised | None = None
    candidate: tuple[Array, Array] | None = None  # the dual one, where the tasks can wait


class _ProximalRun(Run):
    def __init__(self, settings: Proximal, problem: Problem, start: Start | None, tol: float):
        self.settings, self.problem = settings, problem
        self.side = choose_side(problem)
        self.quick, self.goal = Eliminated.of(problem, self.side), CLOSE * tol * problem.scale
        self.exact = EXACT if problem.loss.quadratic else CURVED
        self.side.enough = 1e-4 * problem.scale
        if start is not None:
            W = start[0]
        elif isinstance(problem.structure, Clusters) and problem.structure.is_singleton(problem.n_tasks):
            W = np.zeros((problem.n_features, problem.n_tasks))  # any weights have the same structure
        else:
            W = self.side.supervise(self.side.plain_root()).W
        root = np.sqrt(problem.alpha) * self.side.moment_root(W)
        length = None if start is None else start.length
        # A share of the squared_norm for directions that the weights lack: some, a trace along a path, none from a fit of the
        # same.
        share = 1e-2 if start is None else 1e-5 if length else 0.0
        floor = share * float(np.vdot(root, root)) / self.side.dim
        A = problem.structure.first_structure(root, floor)
        self.here = self._at(A)
        steep = float(np.linalg.norm(self.here.gradient))
        self.length = length or (float(np.linalg.norm(A)) / steep if steep > 0 and np.any(A) else 1.0)
        self.values = [self.here.value]
        self.fresh = not length  # along a path the first point is a guess: it is not worth a certificate
        self.moves = 0

    def _at(self, A: Array) -> _Point:
        problem = self.problem
        if self.quick is not None:
            value, gradient, P, shrunk = self.quick.at(A)
            return _Point(A, value + problem.structure.value(A), gradient, candidate=(P, shrunk))
        fit = self.side.supervise(problem.structure.root(A))
        root = self.side.moment_root(fit.Z - 2 * problem.ridge * fit.W)
        value = problem.loss_term(fit.z) + fit.norm + problem.structure.value(A)
        return _Point(A, value, -problem.structure.moments(root) / (4 * problem.alpha), fit)

    def retarget(self, problem: Problem) -> None:
        self.problem = self.side.problem = problem
        self.here = self._at(self.here.A)
        self.values = [self.here.value]
        self.finished = None

    def step(self, gap: float) -> Iterate:
        if np.isfinite(gap):
            self.side.enough = self.exact * gap
        for _ in range(MOVES):
            if not self.fresh and not self.problem.structure.known:
                self._move()
                self.moves += 1
                if self._alternation_is_due():
                    self._alternate()
            self.fresh = False
            if self.finished is not None or self._close():
                break
        if self.problem.structure.known:
            self.finished = "stalled"
        A, fit = self.here.A, self.here.fit or self.side.supervise(self.problem.structure.root(self.here.A))
        penalty = fit.norm + self.problem.structure.value(A)
        return Iterate(fit.W, fit.b, fit.z, fit.gradients, A if self.side.near_counts else None, penalty, fit.Z)

    def _alternation_is_due(self) -> bool:
        """Where the best structure is a search of its own: seldom, and only once proximal steps alone have proved slow."""
        if not self.problem.structure.iterative:
            return self.moves % self.settings.alternate == 0
        return self.moves >= SLOW and self.moves % (SELDOM * self.settings.alternate) == 0

    def _close(self) -> bool:
        """Whether a certificate is due: always, where the fit that it needs is at hand."""
        here = self.here
        if self.quick is None or here.candidate is None:
            return True
        return self.quick.gap(here.A, here.gradient, *here.candidate) <= self.goal

    def _alternate(self) -> None:
        """The best structure for the weights at hand, ``W = ZA / (2 alpha)``: the objective cannot rise."""
        structure, here = self.problem.structure, self.here
        if here.fit is None:
            there = self._at(structure.best_structure(-here.A @ here.gradient @ here.A))
        else:
            root = np.sqrt(self.problem.alpha) * self.side.moment_root(here.fit.W)
            there = self._at(structure.best_of_root(root)[0])
        if there.value < here.value:
            self.here = there
            self.values.append(there.value)

    def _refine(self) -> bool:
        """Learn the tasks better from here on; whether that is possible."""
        if self.quick is not None or self.exact <= CURVED:
            return False
        self.side.enough, self.exact = self.side.enough * CURVED / self.exact, CURVED
        self.here = self._at(self.here.A)
        self.values = [self.here.value]
        return True

    def _move(self) -> None:
        here, worst = self.here, max(self.values[-self.settings.look_back :])
        for k in range(60):
            if k == TROUBLE and self._refine():
                here, worst = self.here, self.here.value
            # A structure that is nearly nothing by accident must be able to grow: its trace may be a share of the objective.
            self.length = min(self.length, self.problem.structure.longest_step(here.A, LITTLE * abs(here.value)))
            if not self.length > 0:
                self.finished = "stalled"
                return
            A = self.problem.structure.proximal_step(here.A, here.gradient, self.length)
            move = A - here.A
            there = self._at(A)
            size, curvature = float(np.vdot(move, move)), float(np.vdot(move, there.gradient - here.gradient))
            if there.value <= worst - 1e-4 * size / (2 * self.length):
                break
            # Where rounding hides the decrease, the gradients tell whether the quadratic bound holds along the step.
            if there.value <= worst + 1e-11 * abs(worst) and curvature <= size / self.length:
                break
            self.length /= 2
        else:
            self.finished = "stalled"
            return
        best = size / curvature if curvature > 0 else 2 * self.length
        self.length = min(max(best, 1e-2 * self.length), 1e2 * self.length)
        self.here = there
        self.values.append(there.value)
