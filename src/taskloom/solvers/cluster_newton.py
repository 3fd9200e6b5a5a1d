"""Newton's method on the weights, if the penalty of the best structure is a smooth function of them.

    min_W  sum_t ||y_t - X_t w_t||^2 + alpha phi(W) + ridge ||W||^2,     phi(W) = min_A tr(A^-1 W'W)

That holds for ``Clusters``, whose ``A`` is bounded from below. The inverse of the Hessian of ``phi`` has a closed form, which
preconditions conjugate gradients: a Newton step takes 2 to 5 products with the data. The first structure is the best one for
the gradient of the loss at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from scipy.sparse import issparse

from .._array_api import times, times_transposed
from .._linalg import conjugate_gradient
from .._time_limit import check_time
from ..design.task_data import Grams
from ..problem import Problem
from ..problem.evidence import Iterate
from ..problem.solution import Start
from .base import Run, Solver
from .proximal import Proximal

Array = np.ndarray
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class ClusterNewtonTuning:
    """Constants of Newton's method on the weights."""

    max_newton_decrease: float = 1e-2  # over the scale; with a larger predicted one steps use the majorant, not the Hessian
    certificate_interval: int = 12  # Newton steps after which a certificate is computed, whatever the predicted decrease
    max_cg_steps: int = 100  # for one Newton direction
    max_forcing: float = 0.1  # largest relative residual of a Newton system
    goal_share: float = 0.03  # share of the decrease at which a certificate is due that a residual may leave
    decrease_per_gap: float = 0.2  # share of the tolerance at which the predicted decrease is worth a certificate


TUNING = ClusterNewtonTuning()


@dataclass(eq=False, repr=False)
class ClusterNewton(Solver):
    """Newton's method on the weights, with conjugate gradients; for ``Clusters`` and the squared loss.

    Parameters
    ----------
    forcing : float, default=0.02
        Conjugate gradients stop when the residual of the Newton system has fallen to this share, or earlier far from the end.
    """

    forcing: float = 0.02

    def check(self) -> None:
        if not (0 < self.forcing < 1):
            raise ValueError(f"ClusterNewton needs 0 < forcing < 1, got forcing={self.forcing!r}")

    def accepts(self, problem: Problem) -> str | None:
        fits = problem.structure.smooth_norm and problem.loss.quadratic and problem.n_tasks > 1
        if fits and not issparse(problem.features):
            return None
        return 'solver="smooth" needs Clusters(), the squared loss, dense features and two tasks or more; use solver="auto"'

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        return ClusterNewtonRun(self, problem, start, tol)


Operator: TypeAlias = "tuple[Array | slice, Array, Array | None]"  # tasks, their inputs, and Gram matrices if these are used


class SquaredLoss:
    """The loss term at the best intercepts, as a function of the weights (``T x r``)."""

    def __init__(self, problem: Problem):
        self.blocks, _ = problem.design.stacked_tasks
        self.shape = (problem.n_tasks, problem.n_features)
        narrow = 2 * min(block.inputs.shape[1] for block in self.blocks) >= problem.n_features
        # With few features, a product with the Gram matrix of a task is cheaper than two passes over its rows.
        known = [block.G if isinstance(block, Grams) else None for block in self.blocks]
        grams: Sequence[Array | None] = problem.design.stacked_grams if narrow else known
        self.operators = [(block.tasks, block.inputs, G) for block, G in zip(self.blocks, grams, strict=True)]
        self.single = self._in_single(problem)
        self.curvature = 2 * float(np.mean(np.concatenate([block.size for block in self.blocks])))

    def _in_single(self, problem: Problem) -> list[Operator] | None:
        """The operators in single precision, for directions, which need two digits; ``None`` where that is not safe."""
        blocks = problem.design.stacked_single
        if blocks is None:
            return None
        cast = [None if G is None else G.astype(np.float32) for _, _, G in self.operators]
        return [(block.tasks, block.inputs, G) for block, G in zip(blocks, cast, strict=True)]

    @property
    def dtype(self) -> type:
        """The precision of directions."""
        return float if self.single is None else np.float32

    def at(self, W: Array) -> tuple[float, Array]:
        """The loss, and ``Z``, its negative gradient."""
        value, Z = 0.0, np.empty(self.shape)
        for block in self.blocks:
            w = W[block.tasks]
            if isinstance(block, Grams):
                residual = block.c - times(block.G, w)
                value += float(block.squares.sum()) - float(np.vdot(w, block.c + residual))
                Z[block.tasks] = 2 * residual
            else:
                residual = block.y - times(block.X, w)
                value += float(np.vdot(residual, residual))
                Z[block.tasks] = 2 * times_transposed(block.X, residual)
        return value, Z

    def correlations(self) -> Array:
        """``Z`` at zero."""
        Z = np.empty(self.shape)
        for block in self.blocks:
            Z[block.tasks] = 2 * (block.c if isinstance(block, Grams) else times_transposed(block.X, block.y))
        return Z

    def product(self, E: Array) -> Array:
        """The Hessian times ``E``, in the precision of ``E``."""
        out = np.empty(self.shape, E.dtype)
        for tasks, inputs, G in self.operators if self.single is None or E.dtype == float else self.single:
            part = E[tasks]
            out[tasks] = times_transposed(inputs, times(inputs, part)) if G is None else times(G, part)
        out *= 2
        return out


class ClusterPoint:
    """The objective at ``W``: value, gradient, and an approximate inverse Hessian (equal curvature of the loss in all
    directions).
    """

    def __init__(self, problem: Problem, loss: SquaredLoss, W: Array):
        self.problem, self.loss, self.W = problem, loss, W
        self.norm = problem.structure.weight_norm(W)
        residual, self.Z = loss.at(W)
        self.penalty = problem.alpha * self.norm.value + problem.ridge * float(np.vdot(W, W))
        self.value = residual + self.penalty
        self.gradient = problem.alpha * self.norm.gradient + 2 * problem.ridge * W - self.Z
        self.shift = loss.curvature + 2 * problem.ridge + TINY

    @cached_property
    def metric(self) -> Callable[[Array], Array]:
        alpha, shift = self.problem.alpha, self.shift
        majorant = self.norm.majorant(alpha, shift)
        far = float(np.vdot(self.gradient, majorant(self.gradient))) / 2 > TUNING.max_newton_decrease * self.problem.scale
        return majorant if far else self.norm.inverse(alpha, shift, self.loss.dtype)

    @cached_property
    def predicted_decrease(self) -> float:
        """The decrease of the quadratic model along the preconditioned gradient."""
        unit = self.unit_gradient
        return self.size**2 * float(np.vdot(unit, self.metric(unit))) / 2

    @cached_property
    def size(self) -> float:
        """The norm of the gradient."""
        return max(float(np.linalg.norm(self.gradient)), TINY)

    @cached_property
    def unit_gradient(self) -> Array:
        """The gradient over its norm, in the precision of directions."""
        return (self.gradient / self.size).astype(self.loss.dtype, copy=False)


class _NewtonSystem:
    """The Hessian at a point and its preconditioner, which inverts ``alpha phi'' + shift``.

    So ``alpha phi'' z = r - shift z`` for the preconditioned ``z`` of ``r``; other products follow by recurrence.
    """

    def __init__(self, point: ClusterPoint):
        self.point = point
        self.last: tuple[Array, Array] | None = None  # the last direction and its product

    def precondition(self, r: Array) -> Array:
        z = self.point.metric(r)
        self.fresh = z, r - self.point.shift * z
        return z

    def product(self, p: Array) -> Array:
        (z, along), ridge = self.fresh, self.point.problem.ridge
        if self.last is not None:
            before, curved = self.last
            along = along + float(np.vdot(p - z, before) / np.vdot(before, before)) * curved
        self.last = p, along
        return self.point.loss.product(p) + along + 2 * ridge * p


class ClusterNewtonRun(Run):
    """Newton steps; proximal ones follow if no step decreases the objective."""

    certificate_interval = TUNING.certificate_interval

    def __init__(self, settings: ClusterNewton, problem: Problem, start: Start | None, tol: float):
        self.settings, self.problem, self.tol = settings, problem, tol
        self.loss = SquaredLoss(problem)
        self.means = problem.design.means
        self.here = ClusterPoint(problem, self.loss, self._first() if start is None else np.ascontiguousarray(start[0].T))
        self.first_step = True

    def _first(self) -> Array:
        """Weights proportional to the gradient at zero, scaled by the structure that is best for it."""
        problem, structure = self.problem, self.problem.structure
        Z = self.loss.correlations()
        mean = Z.mean(axis=0)
        C = Z - mean
        wide = C.shape[1] >= C.shape[0]
        _, vectors = np.linalg.eigh(C @ C.T if wide else C.T @ C)
        n = min(structure.n_clusters, problem.n_tasks) - 1  # type: ignore[attr-defined]
        top = vectors[:, max(len(vectors) - n, 0) :]
        shift = self.loss.curvature + 2 * problem.ridge
        low, high, whole = (
            1 / (2 * problem.alpha * price + shift)
            for price in (structure.within, structure.between, structure.mean)  # type: ignore[attr-defined]
        )
        best = top @ (top.T @ C) if wide else (C @ top) @ top.T
        return low * C + (high - low) * best + whole * mean

    def step(self, gap: float | None) -> None:
        if self.first_step:
            self.first_step = False
        elif not self._newton_step():
            self.successor = Proximal()

    def estimated_gap(self) -> float:
        return self.here.predicted_decrease / TUNING.decrease_per_gap

    def _newton_step(self) -> bool:
        here = self.here
        left, goal = here.predicted_decrease / self.problem.scale, TUNING.decrease_per_gap * self.tol
        # What a residual leaves of the predicted decrease is its square: at the end no more than the tolerance asks for.
        enough = (TUNING.goal_share * goal / left) ** 0.5 if left > 0 else 0.0
        forcing = min(max(left**0.5, enough, self.settings.forcing), TUNING.max_forcing)
        system = _NewtonSystem(here)
        move = here.size * conjugate_gradient(
            system.product, -here.unit_gradient, preconditioner=system.precondition, tol=forcing, max_steps=TUNING.max_cg_steps
        ).astype(float, copy=False)
        directional_derivative, t = float(np.vdot(here.gradient, move)), 1.0
        while t > 1e-6:
            check_time()
            there = ClusterPoint(self.problem, self.loss, here.W + t * move)
            if there.value < here.value + 1e-4 * t * directional_derivative:
                self.here = there
                return True
            # Where the value exceeds the linear model: minimise the interpolating parabola.
            excess = there.value - here.value - t * directional_derivative
            t *= float(np.clip(-t * directional_derivative / (2 * excess), 0.1, 0.5)) if excess > 0 else 0.5
        if self.loss.single is None:
            return False
        self.loss.single = None  # rounding may be what hides the decrease: once more in double precision
        self.here = ClusterPoint(self.problem, self.loss, here.W)
        return self._newton_step()

    def point(self) -> Iterate:
        problem, here, (mean, mean_y) = self.problem, self.here, self.means
        W = here.W.T
        b = mean_y - np.einsum("rt,rt->t", mean, W)
        z = problem.predict(W, b)
        gradients = problem.loss.gradient(problem.observations.y, z)
        best_penalty = (lambda: (here.penalty, here.norm.best())) if here.norm.clear else None
        return Iterate(W, b, z, gradients, penalty=here.penalty, Z=here.Z.T, best_penalty=best_penalty)
