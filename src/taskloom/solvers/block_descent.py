"""Block descent: one first-order step on each block (the paper's Corollary on block coordinate methods, part b)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from scipy.sparse import issparse

from .._linalg import psd_eigh, psd_root, spectrum, symmetric
from .._time_limit import check_time
from ..features.kernels import weighted_gram
from ..problem import Problem
from ..problem.evidence import Iterate
from ..problem.solution import Start
from ..structures import factored_matrix as factors
from .alternating import Extrapolation, UnsupervisedStep, check_barrier_and_memory
from .base import Run, Solver, needs_convex
from .supervised.sides import FeatureSide, TaskSide

Array = np.ndarray
Solve: TypeAlias = Callable[[Array, Array], Array]  # ``(lipschitz + 2 alpha A^-1)^-1`` times a target, at some structure


@dataclass(frozen=True)
class BlockTuning:
    """The constants of block descent."""

    relative_rounding: float = 1e-13  # of the objective
    steps_per_curvature: int = 100  # after which the curvature of a loss without a bound on it is measured again
    max_doublings: int = 60  # of that curvature, in one step
    max_halvings: int = 80  # of the length of a proximal step on the structure
    min_lipschitz_share: float = 1e-12  # of the largest Lipschitz constant of a task, for one without inputs


TUNING = BlockTuning()


@dataclass(eq=False, repr=False)
class Block(Solver):
    """One proximal gradient step on the weights, then one step on the structure; no linear system in the data.

    The step on the weights minimises a quadratic bound of the loss (its Lipschitz constant task by task) plus the
    structured norm. The step on the structure is its closed form, the proximal step of infinite length, or with
    ``structure_step="gradient"`` one proximal gradient step on (S^delta). A structure of low rank that may sit on either
    side is put on the tasks and on the features in turn, with both steps on each.

    Parameters
    ----------
    delta : float, default=None
        The barrier of (S^delta). ``None`` ties it to the gap.
    structure_step : {"closed", "gradient"}, default="closed"
        The step on the structure: its closed form, or one proximal gradient step.
    memory : int, default=15
        How many past steps Anderson's extrapolation may combine; 0 is plain descent.
    """

    delta: float | None = None
    structure_step: str = "closed"
    memory: int = 15

    def check(self) -> None:
        check_barrier_and_memory(self)
        if self.structure_step not in ("closed", "gradient"):
            raise ValueError(f'Block needs structure_step="closed" or "gradient", got {self.structure_step!r}')

    def accepts(self, problem: Problem) -> str | None:
        if not problem.structure.convex:
            return needs_convex(self.name, problem)
        if problem.n_tasks > factors.LARGEST_ARRAY:
            T = problem.n_tasks
            return (
                f'solver="block" needs matrices of {T} x {T} tasks ({factors.gibibytes(T)} each), and stops at '
                f'{factors.LARGEST_ARRAY} tasks; use solver="auto"'
            )
        if not problem.stacked().structure.is_sum:
            return None
        return f'solver="block" works on one structure; for {type(problem.structure).__name__} use solver="proximal" or "auto"'

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        return _BlockRun(self, problem, start)


def _lipschitz_constants(problem: Problem) -> Array:
    """Of the squared loss of each task, with its features centred, so that intercepts and weights decouple."""
    same, obs = problem.design.separable_weights, problem.observations  # Gram matrices of the tasks are then proportional
    found = []
    for (part, phi), mean, total in zip(problem.inputs.by_task, problem.design.means[0].T, obs.task_weights, strict=True):
        v = obs.weight[part]
        if issparse(phi):
            found.append(spectrum(weighted_gram(phi, v) - total * np.outer(mean, mean))[-1])
        else:
            root = np.sqrt(v)[:, None] * (phi - mean)
            found.append(np.linalg.norm(root, 2) ** 2 if root.size else 0.0)
        if same is not None:
            return found[0] / same[1][0] * same[1]
    return np.array(found)


class _BlockRun(Run):
    def __init__(self, settings: Block, problem: Problem, start: Start | None):
        self.settings, self.problem = settings, problem
        self.lipschitz, self.mean = _lipschitz_constants(problem), problem.design.means[0]
        self.side = FeatureSide(problem) if problem.structure.on_features else TaskSide(problem)
        self.structure_step = UnsupervisedStep(problem, self.side, settings.delta)
        self.extrapolate = Extrapolation(settings.memory)
        r, T = problem.n_features, problem.n_tasks
        W, b = start[:2] if start is not None else (np.zeros((r, T)), np.zeros(T))
        self.x = np.vstack([W, b + np.einsum("rt,rt->t", self.mean, W)])
        self.steps, self.curvature = 0, 0.0  # of the last step, for a loss of unbounded curvature
        two_sided = problem.structure.either_side and problem.structure.low_rank
        self.two_sided = two_sided and settings.structure_step == "closed"
        self.A = np.eye(self.side.dim)
        if start is None and not problem.structure.known:
            self.x = self._weights_step(self.x, self._at_structure)
        self.A = self.structure_step(self.x[:-1])
        self.length = 0.0

    def retarget(self, problem: Problem) -> None:
        self.problem = self.structure_step.problem = problem
        self.extrapolate.clear()

    def _at(self, x: Array) -> tuple[Array, Array, Array]:
        """Weights, intercepts and predictions of a stacked point (its last row holds the centred intercepts)."""
        W = x[:-1]
        b = x[-1] - np.einsum("rt,rt->t", self.mean, W) if self.problem.fit_intercept else np.zeros(x.shape[1])
        return W, b, self.problem.predict(W, b)

    def _sweep(self) -> Array:
        """A step on the weights at the structure; if that is of low rank, another one with the structure on the other side.

        A small eigenvalue of ``A`` (``D``) all but freezes rotations of the right (left) singular vectors of the weights, and
        leaves those of the left (right) ones free: after both steps no rotation is frozen.
        """
        image = self._weights_step(self.x, self._at_structure)
        if not self.two_sided:
            return image
        U, s, _ = np.linalg.svd(image[:-1], full_matrices=False)
        squares = np.pad(s**2, (0, self.problem.n_tasks - s.size))
        d = self.problem.structure.f_best(self.problem.alpha * (squares + self.structure_step.height))  # type: ignore[attr-defined]
        return self._weights_step(image, partial(self._along, d[: s.size], U, d.min()))

    def _at_structure(self, target: Array, lipschitz: Array) -> Array:
        """``target (lipschitz + 2 alpha A^-1)^-1`` in the coordinates of a root of ``A``: a singular ``A`` needs no inverse."""
        if self.problem.structure.on_features:
            return self._along(*psd_eigh(self.A), 0.0, target, lipschitz)
        root = psd_root(self.A)
        inner = root.T @ (lipschitz[:, None] * root) + 2 * self.problem.alpha * np.eye(root.shape[1])
        return np.linalg.solve(symmetric(inner), (target @ root).T).T @ root.T

    def _along(self, d: Array, U: Array, rest: float, target: Array, lipschitz: Array) -> Array:
        """The same for ``D`` with eigenvalues ``d`` along ``U``, and ``rest`` elsewhere."""

        def inverse(d: Array) -> Array:
            return d[:, None] / (np.outer(d, lipschitz) + 2 * self.problem.alpha)

        elsewhere = inverse(np.array([rest]))
        return elsewhere * target + U @ ((inverse(d) - elsewhere) * (U.T @ target))

    def _weights_step(self, x: Array, solve: Solve) -> Array:
        """One proximal gradient step from ``x``, with a backtracked curvature if the loss has no bound on it."""
        problem, obs = self.problem, self.problem.observations
        z = self._at(x)[2]
        g = obs.weight * problem.loss.gradient(obs.y, z)
        if np.isfinite(problem.loss.max_curvature):
            return self._bounded_step(x, g, solve, problem.loss.max_curvature)
        before, now = self.curvature, problem.loss_term(z)
        self.steps += 1
        if self.curvature == 0 or self.steps % TUNING.steps_per_curvature == 0:  # rarely, since it changes the fixed-point map
            self.curvature = float(problem.loss.curvature(obs.y, z).max())
        for _ in range(TUNING.max_doublings):
            check_time()
            image = self._bounded_step(x, g, solve, self.curvature)
            move = self._at(image)[2] - z
            with np.errstate(over="ignore"):
                there = problem.loss_term(z + move)
            bound = now + float(g @ move) + self.curvature / 2 * float(obs.weight @ move**2)
            if there <= bound + TUNING.relative_rounding * abs(now):
                break
            self.curvature *= 2
        if self.curvature != before:
            self.extrapolate.clear()
        return image

    def _bounded_step(self, x: Array, g: Array, solve: Solve, curvature: float) -> Array:
        """The proximal gradient step for a loss whose second derivative is at most ``curvature``."""
        problem, obs = self.problem, self.problem.observations
        total = obs.sum_by_task(g)
        gradient = problem.correlate(g) - self.mean * total
        lipschitz = curvature * np.maximum(self.lipschitz, TUNING.min_lipschitz_share * self.lipschitz.max() + 1e-300)
        new = solve(x[:-1] * lipschitz - gradient, lipschitz + 2 * problem.ridge)
        return np.vstack([new, x[-1] - total / (curvature * obs.task_weights) if problem.fit_intercept else x[-1]])

    def step(self, gap: float | None) -> None:
        image, problem, A, penalty = self._sweep(), self.problem, self.A, None
        W, b, z = self._at(image)
        if problem.structure.iterative:  # the best structure has no closed form
            penalty = problem.alpha * problem.structure.squared_norm(W, A) + problem.structure.value(A)
            penalty += problem.ridge * float(np.vdot(W, W))
        self.x, accepted = self.extrapolate(self.x, image, self._value(W, z))
        closed = self.settings.structure_step == "closed" or problem.structure.known
        self.A = (self.structure_step if closed else self._proximal_step)(self.x[:-1])
        if accepted and gap is not None and self.structure_step.lower(self.A, gap):
            self.extrapolate.clear()
        self.here = Iterate(W, b, z, problem.loss.gradient(problem.observations.y, z), A, penalty)

    def _value(self, W: Array, z: Array) -> float:
        """The objective of (S^delta) at these weights and the best structure for them."""
        problem = self.problem
        root = np.sqrt(problem.alpha) * self.side.moment_root(W)
        A, penalty = problem.structure.best_of_root(root, problem.alpha * self.structure_step.height)
        value = problem.loss_term(z) + penalty + problem.ridge * float(np.vdot(W, W))
        return value + self.structure_step.cost(A)

    def _proximal_step(self, W: Array) -> Array:
        """One proximal gradient step on ``A``, its length halved until the objective falls and doubled after."""
        problem = self.problem
        root = self.side.moment_root(W)
        M = problem.alpha * (root.T @ root + self.structure_step.height * np.eye(len(self.A)))

        def squared_norm(A: Array) -> float:
            a, V = np.linalg.eigh(symmetric(A))
            return float((np.einsum("ij,ji->i", V.T @ M, V) / a).sum()) if a[0] > 0 else np.inf

        inverse = np.linalg.inv(self.A)
        gradient = -inverse @ M @ inverse
        now = squared_norm(self.A)
        self.length = 4 * self.length or float(np.linalg.norm(self.A)) / max(float(np.linalg.norm(gradient)), 1e-300)
        for _ in range(TUNING.max_halvings):
            check_time()
            A = problem.structure.prox(self.A - self.length * gradient, self.length)
            move = A - self.A
            if squared_norm(A) <= now + float(np.vdot(gradient, move)) + float(np.vdot(move, move)) / (2 * self.length):
                return A
            self.length /= 2
        return self.A
