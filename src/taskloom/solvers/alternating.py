"""Alternating minimisation: the paper's Algorithm 1 with exact steps (its Corollary on block coordinate methods, part a)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._component import require
from .._linalg import psd_root, symmetric
from ..problem import Problem
from .base import Iterate, Run, Solver
from .sides import FeatureSide, Side, Supervised, TaskSide

Array = np.ndarray


def choose_side(problem: Problem) -> Side:
    """The feature side decouples the tasks; only structures that ignore zero eigenvalues may sit there."""
    return FeatureSide(problem) if problem.structure.either_side else TaskSide(problem)


@dataclass(eq=False, repr=False)
class Alternating(Solver):
    """``W <- supervised step at A``, ``A <- argmin tr(A^-1 alpha (W'W + delta^2 I)) + F(A)``, both exact.

    Parameters
    ----------
    delta : float, optional
        The barrier of (S^delta). ``None`` ties it to the gap: it shrinks as the certificate does, because one that
        shrinks faster freezes directions that died too early.
    A0 : array of shape (T, T), optional
        First structure. ``None`` starts from the tasks learned each on its own.
    stop : {"gap", "change"}
        ``"change"`` stops as the algorithm is printed, when the objective of (S^delta) changes by less than ``tol`` times
        the scale of the loss; it also switches extrapolation off.
    memory : int
        How many past steps extrapolation (Anderson's) may combine; 0 is the plain alternation. A combined step is kept
        only when it lowers the objective.
    """

    delta: float | None = None
    A0: Any = None
    stop: str = "gap"
    memory: int = 10

    def check(self) -> None:
        require(self.delta is None or self.delta >= 0, f"Alternating needs delta >= 0 or None, got delta={self.delta!r}")
        require(self.stop in ("gap", "change"), f'Alternating needs stop="gap" or "change", got stop={self.stop!r}')
        require(self.memory >= 0, f"Alternating needs memory >= 0, got memory={self.memory!r}")

    def begin(self, problem: Problem, start: tuple[Array, Array] | None) -> Run:
        return _AlternatingRun(self, problem, start)


class _Extrapolation:
    """Anderson's acceleration of a fixed-point iteration ``x -> g(x)``."""

    def __init__(self, memory: int):
        self.memory = memory
        self.clear()

    def clear(self) -> None:
        self.points: list[Array] = []
        self.images: list[Array] = []

    def __call__(self, x: Array, gx: Array) -> Array:
        self.points = [*self.points, x][-self.memory - 1 :]
        self.images = [*self.images, gx][-self.memory - 1 :]
        if len(self.points) < 2:
            return gx
        residuals = [(g - p).ravel() for p, g in zip(self.points, self.images, strict=True)]
        differences = np.stack([residuals[-1] - r for r in residuals[:-1]], axis=1)
        gram = differences.T @ differences
        gram += 1e-12 * np.trace(gram) * np.eye(len(gram))
        try:
            share = np.linalg.solve(gram, differences.T @ residuals[-1])
        except np.linalg.LinAlgError:
            return gx
        for weight, image in zip(share, self.images[:-1], strict=True):
            gx = gx + weight * (image - self.images[-1])
        return gx


class _AlternatingRun(Run):
    def __init__(self, settings: Alternating, problem: Problem, start: tuple[Array, Array] | None):
        self.settings, self.problem = settings, problem
        self.side = TaskSide(problem) if settings.A0 is not None else choose_side(problem)
        self.plain = settings.stop == "change" or settings.memory == 0
        self.extrapolate = _Extrapolation(settings.memory)
        self.barrier = 0.0 if settings.delta is None else settings.delta**2
        self.objective = np.inf
        self.fallback: Array | None = None
        self.W = np.zeros((problem.n_features, problem.n_tasks))
        self.A = self._first(start)

    def _first(self, start: tuple[Array, Array] | None) -> Array:
        settings, problem = self.settings, self.problem
        if settings.A0 is not None:
            A = np.asarray(settings.A0, dtype=float)
            require(A.shape == (problem.n_tasks,) * 2, f"A0 must be {problem.n_tasks} x {problem.n_tasks}, got {A.shape}")
            return A
        if problem.structure.known or (settings.stop == "change" and start is None):
            return problem.structure.best_structure(np.eye(self.side.dim))
        self.W = start[0] if start is not None else self.side.supervise(np.eye(self.side.dim)).W
        return self._structure(self.W)

    def _structure(self, W: Array) -> Array:
        """The unsupervised step at ``W``."""
        alpha = self.problem.alpha
        if self.settings.delta is None and self.barrier == 0.0 and not self.problem.structure.interior:
            self.barrier = 1e-4 * float(np.vdot(W, W)) / self.side.dim
        return self.problem.structure.best_of_root(np.sqrt(alpha) * self.side.moment_root(W), alpha * self.barrier)[0]

    def step(self, gap: float) -> Iterate:
        problem = self.problem
        fit = self.side.supervise(psd_root(self.A))
        if problem.structure.known:
            return Iterate(fit.W, fit.b, fit.slopes)
        objective = self._objective(fit)
        if self.settings.stop == "change":
            settled = abs(self.objective - objective) < self.tolerance
            self.finished = "change" if settled else None
        elif not self.plain and objective > self.objective * (1 + 1e-13) and self.fallback is not None:
            self.W, self.fallback = self.fallback, None
            self.A = self._structure(self.W)  # the combined step did not pay: take the plain one
            self.extrapolate.clear()
            return Iterate(fit.W, fit.b, fit.slopes)
        self.objective = objective
        self._next_structure(fit)
        self._lower_barrier(gap)
        return Iterate(fit.W, fit.b, fit.slopes)

    def retarget(self, problem: Problem) -> None:
        self.problem = self.side.problem = problem
        self.objective = np.inf
        self.extrapolate.clear()

    tolerance = 0.0

    def _objective(self, fit: Supervised) -> float:
        """``h(A) + F(A)``: the value of (R) at this structure, tasks eliminated."""
        problem = self.problem
        a, V = np.linalg.eigh(symmetric(self.A))
        RV = self.side.moment_root(fit.W) @ V
        inside = a > 1e-14 * a[-1]
        norm = problem.alpha * float((np.einsum("ij,ij->j", RV, RV)[inside] / a[inside]).sum())
        value = problem.loss_term(fit.z) + norm + problem.ridge * float(np.vdot(fit.W, fit.W)) + problem.structure.value(self.A)
        return value + problem.alpha * self.barrier * float((1 / a[inside]).sum())

    def _lower_barrier(self, gap: float) -> None:
        """Lower the barrier once it is what keeps the gap open (at the minimum of (S^delta) the gap is twice its cost).

        Lowered earlier, it would freeze directions that still have to turn.
        """
        if self.settings.delta is None and self.barrier > 0 and gap <= 3 * self.barrier_cost:
            self.barrier *= 0.2
            self.objective = np.inf
            self.extrapolate.clear()

    def _next_structure(self, fit: Supervised) -> None:
        """The exact unsupervised step, at the weights just learned or at a combination of the last few."""
        W = fit.W if self.plain else self.extrapolate(self.W, fit.W)
        self.fallback = None if W is fit.W else fit.W
        self.W, self.A = W, self._structure(W)
        if self.barrier > 0:
            a = np.maximum(np.linalg.eigvalsh(symmetric(self.A)), 1e-300)
            self.barrier_cost = self.problem.alpha * self.barrier * float((1 / a).sum())
