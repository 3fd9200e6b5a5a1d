"""Alternating minimisation: the paper's Algorithm 1 with exact steps (its Corollary on block coordinate methods, part a)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..problem import Problem
from ..problem.evidence import Iterate
from ..problem.solution import Start
from .base import Run, Solver
from .supervised import choose_side
from .supervised.sides import Side, TaskSide

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Alternating(Solver):
    """``W <- supervised step at A``, ``A <- argmin alpha tr(A^-1 (W'W + delta^2 I)) + F(A)``, both exact.

    Parameters
    ----------
    delta : float, default=None
        The barrier of (S^delta). ``None`` ties it to the gap.
    A0 : array-like of shape (n_tasks, n_tasks), default=None
        First structure. ``None`` starts from independent fits of the tasks.
    stop : {"gap", "change"}, default="gap"
        ``"change"`` is the algorithm exactly as printed: no extrapolation, and it stops when the objective of (S^delta)
        changes by less than ``tol`` times the scale of the loss.
    memory : int, default=10
        How many past steps Anderson's extrapolation may combine; 0 is the plain alternation. A combined step that
        does not lower the objective is taken back.
    """

    delta: float | None = None
    A0: Any = None
    stop: str = "gap"
    memory: int = 10

    def check(self) -> None:
        check_barrier_and_memory(self)
        if self.stop not in ("gap", "change"):
            raise ValueError(f'Alternating needs stop="gap" or "change", got stop={self.stop!r}')

    def accepts(self, problem: Problem) -> str | None:
        if self.stop == "change" and not problem.loss.smooth:
            return 'Alternating(stop="change") needs a smooth loss: its rule cannot tell a new smoothing from progress'
        if problem.structure.task_factor:
            other = 'use solver="factored" or "auto"'
            return f'solver="alternating" needs exact steps, which {problem.structure!r} has not; {other}'
        return None

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        return _AlternatingRun(self, problem, start, tol)


class _AlternatingRun(Run):
    def __init__(self, settings: Alternating, problem: Problem, start: Start | None, tol: float):
        self.settings, self.problem = settings, problem
        self.side = TaskSide(problem) if settings.A0 is not None else choose_side(problem)
        self.structure_step = UnsupervisedStep(problem, self.side, settings.delta)
        self.extrapolate = Extrapolation(0 if settings.stop == "change" else settings.memory)
        self.tolerance = tol * problem.scale
        self.W = np.zeros((problem.n_features, problem.n_tasks))
        self.A = self._first(start)

    def _first(self, start: Start | None) -> Any:
        T = self.problem.n_tasks
        if self.settings.A0 is not None:
            A = np.asarray(self.settings.A0, dtype=float)
            if A.shape != (T, T):
                raise ValueError(f"A0 must be of shape {(T, T)}, got {A.shape}")
            return A
        if self.problem.structure.known:
            return self.problem.structure.final_structure(self.side.moment_root(self.W))[0]
        self.W = start[0] if start is not None else self.side.supervise(self.side.plain_root()).W
        return self.structure_step(self.W)

    def retarget(self, problem: Problem) -> None:
        self.problem = self.side.problem = self.structure_step.problem = problem
        self._map_changed()

    def _map_changed(self) -> None:
        self.finished = None
        self.extrapolate.clear()

    def step(self, gap: float | None) -> None:
        fit = self.side.supervise(self.problem.structure.metric(self.A)).on_rows(self.problem)
        near = self.A if self.side.bounds_near_structure else None
        here = Iterate(fit.W, fit.b, fit.z, fit.gradients, near, Z=fit.Z if self.problem.structure.is_stack else None)
        # The best structure may not be unique, or have no closed form.
        if not self.problem.structure.convex or self.problem.structure.iterative:
            here = replace(here, penalty=fit.norm + self.problem.structure.value(self.A), norm=fit.norm)
        self.here = here
        if self.problem.structure.known:
            self.finished = "stalled"
            return
        # The objective of (S^delta) at this structure, with the tasks eliminated.
        value = fit.loss_term(self.problem) + fit.norm + self.problem.structure.value(self.A)
        value += self.structure_step.cost(self.A)
        if self.settings.stop == "change" and abs(self.extrapolate.objective - value) < self.tolerance:
            self.finished = "change"
        self.W, accepted = self.extrapolate(self.W, fit.W, value)
        self.A = self.structure_step(self.W)
        if accepted and gap is not None and self.structure_step.lower(self.A, gap):
            self._map_changed()


class UnsupervisedStep:
    """``A <- argmin alpha tr(A^-1 (W'W + delta^2 I)) + F(A)``; the barrier ``delta`` is given, or tied to the gap.

    Tied to the gap, the barrier is lowered only once it dominates the gap: at the minimum of (S^delta) the gap is about twice
    the barrier term. Lowered earlier, it would freeze directions that have not converged, and alternation stalls. Structures
    that keep ``A`` nonsingular need no barrier.
    """

    def __init__(self, problem: Problem, side: Side, delta: float | None):
        self.problem, self.side = problem, side
        self.tied_to_gap = delta is None
        self.height = 0.0 if delta is None else delta**2
        self.used = self.tied_to_gap and not (problem.structure.known or problem.structure.interior)

    def __call__(self, W: Array) -> Array:
        """The structure for these weights."""
        if self.used and self.height == 0.0:
            self.height = 1e-4 * float(np.vdot(W, W)) / self.side.dim
        root = np.sqrt(self.problem.alpha) * self.side.moment_root(W)
        return self.problem.structure.best_of_root(root, self.problem.alpha * self.height)[0]

    def cost(self, A: Array) -> float:
        """The barrier term of the objective, ``alpha delta^2 tr(A^-1)``."""
        if self.height == 0.0:
            return 0.0
        return self.problem.alpha * self.height * self.problem.structure.inverse_trace(A)

    def lower(self, A: Array, gap: float) -> bool:
        if not self.used or gap > 3 * self.cost(A):
            return False
        self.height *= 0.2
        return True


def check_barrier_and_memory(solver: Any) -> None:
    """Raise ``ValueError`` if one of them is negative."""
    if solver.delta is not None and not solver.delta >= 0:
        raise ValueError(f"{type(solver).__name__} needs delta >= 0 or None, got delta={solver.delta!r}")
    if solver.memory < 0:
        raise ValueError(f"{type(solver).__name__} needs memory >= 0, got memory={solver.memory!r}")


class Extrapolation:
    """Anderson acceleration of a fixed-point iteration ``x -> g(x)``; a combination that raises the objective is taken back.

    It combines weights, not structures: a line between two structures may leave the cone of positive semidefinite matrices.
    """

    def __init__(self, memory: int):
        self.memory = memory
        self.clear()

    def clear(self) -> None:
        """Drop all past points, since the map has changed."""
        self.points: list[Array] = []
        self.images: list[Array] = []
        self.plain: Array | None = None  # the last image, if the last point is a combination
        self.objective = np.inf  # after the last step

    def __call__(self, x: Array, image: Array, objective: float) -> tuple[Array, bool]:
        """The next point, given ``image = g(x)`` and the objective there, and whether ``x`` was accepted."""
        if self.plain is not None and objective > self.objective + 1e-13 * abs(self.objective):
            plain = self.plain
            self.clear()
            return plain, False
        combined = self._combined(x, image)
        self.objective, self.plain = objective, None if combined is image else image
        return combined, True

    def _combined(self, x: Array, image: Array) -> Array:
        """``image`` itself if there are no past points."""
        if self.memory == 0:
            return image
        self.points = [*self.points, x][-self.memory - 1 :]
        self.images = [*self.images, image][-self.memory - 1 :]
        if len(self.points) < 2:
            return image
        residuals = [(g - p).ravel() for p, g in zip(self.points, self.images, strict=True)]
        differences = np.stack([residuals[-1] - r for r in residuals[:-1]], axis=1)
        gram = differences.T @ differences
        gram += 1e-12 * np.trace(gram) * np.eye(len(gram))
        try:
            shares = np.linalg.solve(gram, differences.T @ residuals[-1])
        except np.linalg.LinAlgError:  # equal residuals
            return image
        return sum((share * (past - image) for share, past in zip(shares, self.images[:-1], strict=True)), start=image)
