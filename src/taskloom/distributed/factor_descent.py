"""Variable projection from sums over tasks: limited-memory BFGS on ``Q``, and a certificate.

    h(Q) = F(QQ') + sum_t min_b [ loss of task t with weights Q b + alpha ||b||^2 ],     grad h = -ZZ'Q / (2 alpha) + grad F
    D(c) = 2 c <y, r> - c^2 ||r||^2 - F*(c^2 ZZ' / (4 alpha)),   r the residuals,  Z = 2 X'r

(with a ridge, minus ``c^2 ridge ||W||^2``, and with ``Z - 2 ridge W`` for ``Z``). An iteration needs the loss, two inner
products and the second moments of ``Z``, whatever the number of tasks. ``h`` is not convex in ``Q``, but in ``D = QQ'``:
where L-BFGS on ``Q`` ends and the gap is not closed, a proximal step on ``D`` finds the directions that are not in the range
of ``Q``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._linalg import compose, psd_eigh, symmetric
from ..problem.problem import best_scaling
from ..solvers.factor.factored import Memory
from ..solvers.supervised.sides import ridged
from .worker_sums import Statistic, unpacked

Array = np.ndarray
CERTIFY_EVERY = 3  # iterations between certificates, whose messages may be larger than a gradient
SMALL_COLUMN = 0.1  # share of the mean squared norm below which a column may be dropped, if the dual agrees
TRIM_DELAY = 8  # steps without dropping columns after a failure
TINY = np.finfo(float).tiny
PAIRS = 20  # memory of L-BFGS


@dataclass(frozen=True, eq=False)
class DescentPoint:
    """``h`` at ``Q``, its gradient, and the sums; ``moments`` of ``Z`` if requested."""

    Q: Array
    value: float
    gradient: Array
    scalars: Array
    moments: Array | None


@dataclass(eq=False)
class Objective:
    """``h``, given ``sums(Q, statistic)`` over the tasks, as in ``WorkerTasks``."""

    sums: Callable[[Array, Statistic], Array]
    structure: Any  # spectral
    alpha: float
    ridge: float
    n_features: int
    n_tasks: int
    curvature: float  # the mean over tasks and inputs of the weighted sums of squares

    def at(self, Q: Array, due: bool = True) -> DescentPoint:
        """The objective at ``Q``; with moments if ``due``, or if they are no larger than the gradient."""
        structure, (d, q) = self.structure, Q.shape
        landed = structure.project_factor(Q)
        squared_norm, V = psd_eigh(landed.T @ landed)
        statistic: Statistic = "moments" if due or d + 1 <= 2 * q else "correlation"
        scalars, matrix = unpacked(self.sums(self.root(Q), statistic), Q.shape, statistic)
        if statistic == "moments":
            correlation = matrix @ landed
        else:  # undo the ridge in the factor
            correlation = matrix @ compose(np.sqrt(1 + self.ridge / self.alpha * squared_norm), V)
        value = float(scalars[0] + scalars[2] / 2) + structure.f(squared_norm)
        gradient = structure.pull_back(Q, -correlation / (2 * self.alpha))
        return DescentPoint(Q, value, gradient, scalars, matrix if statistic == "moments" else None)

    def root(self, Q: Array) -> Array:
        """The factor with the ridge, for the tasks."""
        landed = Q if self.structure.known else self.structure.project_factor(Q)
        return ridged(landed, self.ridge / self.alpha)

    def metric(self, Q: Array) -> Array:
        """A preconditioner: the inverse of an approximate Hessian of ``h``, applied from the right.

        At an optimum under the trace penalty the second moments of ``b`` over the tasks are ``Q'Q / alpha``, so that it needs
        only the mean curvature of the tasks. It saves two iterations of three.
        """
        landed = self.structure.project_factor(Q)
        return np.linalg.inv(0.4 * np.eye(Q.shape[1]) + self.curvature / self.alpha * (landed.T @ landed))

    def single_task(self) -> DescentPoint:
        """The solution for a known structure: every task independently."""
        eye = np.eye(self.n_features)
        scalars, moments = unpacked(self.sums(self.root(eye), "moments"), eye.shape, "moments")
        return DescentPoint(eye, float(scalars[0] + scalars[2] / 2), np.zeros_like(eye), scalars, moments)

    def bound(self, scalars: Array, moments: Array) -> float:
        """The lower bound: the best ``D(c)`` over ``0 <= c <= 1``."""
        loss, product, _, size = scalars.tolist()
        max_scale, conjugate = self.structure.ray(moments / (4 * self.alpha))

        def at(c: float) -> float:
            return 2 * c * product - c * c * (loss + self.ridge * size) - conjugate(c * c)

        return best_scaling(at, max_scale)

    def at_zero(self) -> tuple[Array, Array]:
        """Scalars and moments of ``Z`` at zero weights."""
        empty = np.zeros((self.n_features, 0))
        return unpacked(self.sums(empty, "moments"), empty.shape, "moments")

    def initial_factor(self) -> Array:
        """The initial factor: that of single-task weights, with a small value in the other directions."""
        eye = np.eye(self.n_features)
        _, moments = unpacked(self.sums(self.root(eye), "weights"), eye.shape, "weights")
        w, U = psd_eigh(moments)
        q = min(self.n_features, self.n_tasks)
        squared_norm = self.alpha * w[-q:]
        return U[:, -q:] * np.sqrt(self.structure.f_best(squared_norm + 1e-2 * squared_norm.mean() + 1e-300))


class ScaledMemory(Memory):
    """L-BFGS with a preconditioner, whose columns may be rotated or dropped."""

    def rotate(self, by: Array) -> None:
        if by.shape[1] < len(by):
            pairs, self.pairs = self.pairs, []
            for s, y, _ in pairs:
                self.add(s @ by, y @ by)

    def direction_in(self, metric: Array, gradient: Array) -> Array:
        q, taken = gradient.copy(), []
        for s, y, sy in reversed(self.pairs):
            taken.append(float(np.vdot(s, q)) / sy)
            q -= taken[-1] * y
        q = q @ metric
        if self.pairs:
            _, y, sy = self.pairs[-1]
            q *= sy / float(np.vdot(y, y @ metric))
        for (s, y, sy), a in zip(self.pairs, reversed(taken), strict=True):
            q += s * (a - float(np.vdot(y, q)) / sy)
        return -q


class Descent:
    """Steps on ``Q``; a checkpoint holds the whole state."""

    def __init__(self, objective: Objective, Q: Array):
        self.objective, self.here = objective, objective.at(Q)
        self.memory = ScaledMemory(PAIRS)
        self.proximal_step = float(np.vdot(Q, Q)) / max(Q.shape[1], 1)
        self.trim_delay = 0  # steps in which no column is dropped
        self.finished = False

    def step(self, due: bool) -> DescentPoint:
        grown = self._missing_direction() and self._proximal()
        if not grown and not self._quasi_newton(due) and not self._proximal():
            self.finished = True
        return self.here

    def _missing_direction(self) -> bool:
        """Whether the dual constraint is violated in a direction outside the range of ``Q``, more than inside it."""
        M, Q = self.here.moments, self.here.Q
        if M is None or Q.shape[1] >= len(Q) or not self.objective.structure.low_rank:
            return False
        U = np.linalg.qr(Q)[0]
        outside = M - U @ (U.T @ M)
        outside -= (outside @ U) @ U.T
        inside = float(np.linalg.eigvalsh(symmetric(U.T @ M @ U))[-1])
        return float(np.linalg.eigvalsh(symmetric(outside))[-1]) > (1 + 1e-9) * inside

    def _quasi_newton(self, due: bool) -> bool:
        here, memory = self.here, self.memory
        direction = memory.direction_in(self.objective.metric(here.Q), here.gradient)
        fall = float(np.vdot(direction, here.gradient))
        if fall >= 0:
            memory.pairs = []
            direction = -here.gradient
            fall = float(np.vdot(direction, here.gradient))
        t = 1.0
        if not memory.pairs:
            t = min(1.0, float(np.linalg.norm(here.Q)) / max(float(np.linalg.norm(direction)), 1e-300))
        self.trim_delay -= 1
        trim_failed = False  # whether the last step failed after columns were dropped
        for _ in range(20):
            Q, turn = self._trimmed(here.Q + t * direction, keep=trim_failed)
            there, along = self.objective.at(Q, due), direction @ turn
            low = there.value <= here.value + 1e-4 * t * fall
            # where rounding hides the decrease, the gradient along the step decides (Hager and Zhang)
            flat = there.value <= here.value + 1e-12 * abs(here.value)
            if low or (flat and float(np.vdot(there.gradient, along)) <= -0.9 * fall):
                memory.rotate(turn)
                memory.add(Q - here.Q @ turn, there.gradient - here.gradient @ turn)
                self.here = there
                self.trim_delay = TRIM_DELAY if trim_failed else self.trim_delay
                return True
            trim_failed = turn.shape[1] < len(turn)
            t = t if trim_failed else t / 3
        if not memory.pairs:
            return False
        memory.pairs = []
        return self._quasi_newton(due)

    def _proximal(self) -> bool:
        """A proximal step on ``D``, in which the problem is convex."""
        here, objective = self.here, self.objective
        if here.moments is None:
            here = objective.at(here.Q)
        landed = objective.structure.project_factor(here.Q)
        assert here.moments is not None
        D, correlation = landed @ landed.T, here.moments / (4 * objective.alpha)
        for _ in range(12):
            squared_norm, U = np.linalg.eigh(symmetric(D + self.proximal_step * correlation))
            squared_norm = objective.structure.f_prox(squared_norm, self.proximal_step)
            keep = squared_norm > 0
            if keep.any() and (there := objective.at(U[:, keep] * np.sqrt(squared_norm[keep]))).value < here.value:
                self.here, self.memory.pairs = there, []
                self.proximal_step *= 2
                return True
            self.proximal_step /= 4
        return False

    def _trimmed(self, Q: Array, keep: bool) -> tuple[Array, Array]:
        """``Q`` without small columns that vanish at the optimum, by the dual: work and traffic are proportional to the rank.

        ``h`` is invariant to rotations of the columns, so they are made orthogonal first; the rotation is returned, too.
        """
        M = self.here.moments
        if keep or self.trim_delay > 0 or M is None or not self.objective.structure.low_rank:
            return Q, np.eye(Q.shape[1])
        squared_norm, V = psd_eigh(Q.T @ Q)
        share, along = squared_norm / max(float(squared_norm.mean()), TINY), Q @ V
        correlation = np.einsum("dq,dq->q", along, M @ along)
        level = float(correlation.sum()) / max(float(squared_norm.sum()), TINY)  # of nonzero columns, at the optimum
        stay = (share >= SMALL_COLUMN) | (correlation >= (1 - 2 * share) * level * squared_norm)
        return (Q, np.eye(Q.shape[1])) if stay.all() or not stay.any() else (along[:, stay], V[:, stay])
