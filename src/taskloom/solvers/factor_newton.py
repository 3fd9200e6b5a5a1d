"""Newton's method on the factor of a structure, tasks eliminated; written once for NumPy, PyTorch and CuPy.

    h(Q) = tr (QQ')^p + sum_t min_b [ ||y_t - X_t Q b||^2 + alpha ||b||^2 ],     D = QQ',   w_t = Q b_t,   p = 1 or 2

with the weights of the observations inside ``X_t`` and ``y_t``. The tasks are eliminated exactly, so that the Hessian of ``h``
sees how they answer to a change of ``Q``; a product with it costs two passes over the data and no decomposition. ``h`` is not
convex in ``Q``, and what it lacks is looked for in ``D``, in which the problem is (``Walk._grow``).

Tasks come in blocks (``task_blocks``). The rows of ``B``, ``Z`` and ``W`` are the tasks in the order of the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .._array_api import double, eigh, inner, like, namespace, to_numpy
from .task_blocks import TaskBlock, eye_like

Array = Any  # of any of the libraries
STEPS = 8  # Newton steps after which a certificate is due, whatever they think of themselves
PROMISE = 0.2  # the share of the tolerance below which a promise is worth a certificate
ROUNDING = 100  # a promise below so many roundings of the value: only the slope can tell whether a step was good
SMALL = 0.1  # columns below this share of the mean energy may go, if the dual says that they should vanish


def _joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(list(parts))


class Point:
    """``h`` at ``Q``, up to a constant: value, slope, products with the Hessian and a metric that resembles it."""

    def __init__(self, data: Sequence[TaskBlock], Q: Array, alpha: float, p: int = 1):
        self.Q, self.alpha, self.p = Q, alpha, p
        self.parts = [block.at(Q, alpha) for block in data]
        ends = np.cumsum([0, *(block.n_tasks for block in data)]).tolist()
        self.places = [slice(*pair) for pair in pairwise(ends)]
        self.B, self.Z = _joined([part.B for part in self.parts]), _joined([part.Z for part in self.parts])
        self.E = Q.T @ Q
        self.value = self.charge + sum(inner(part.y, part.left) for part in self.parts)
        self.slope = 2 * p * (Q if p == 1 else Q @ self.E) - self.Z.T @ self.B

    @property
    def charge(self) -> float:
        """``tr (QQ')^p``; nothing where ``D`` is known, which ``p = 0`` stands for."""
        Q = double(self.Q)
        return (0.0, inner(Q, Q), inner(E := Q.T @ Q, E))[self.p]

    @property
    def penalty(self) -> float:
        return self.charge + self.alpha * inner(self.B, self.B)

    def weights(self) -> Array:
        """``W`` with a row for each task."""
        return self.B @ self.Q.T

    def hessian(self, dQ: Array) -> Array:
        """The product of the Hessian of ``h`` with ``dQ``."""
        dW, dZ = self.B @ dQ.T, self.Z @ dQ
        both = [part.answer(dW[place, :], dZ[place, :]) for part, place in zip(self.parts, self.places, strict=True)]
        dB, pull = _joined([one for one, _ in both]), _joined([other for _, other in both])
        bend = 2 * dQ if self.p == 1 else 4 * (dQ @ self.E + self.Q @ (dQ.T @ self.Q) + self.Q @ (self.Q.T @ dQ))
        return bend + self.lift * dQ + pull.T @ self.B - self.Z.T @ dB

    @cached_property
    def lift(self) -> float:
        """What makes up for a negative slope in ``D`` along a direction of ``Q``: Newton's method would run away with it."""
        energy, V = eigh(self.E)
        large = energy > 1e-12 * energy[-1]
        if not large.any():
            return 0.0
        energy = energy[large]
        pull = self.Z @ (self.Q @ like(V[:, large] / np.sqrt(energy), self.Q))
        slope = to_numpy(pull.T @ pull).astype(float) / (4 * self.alpha) - np.diag(self.p * energy ** (self.p - 1))
        return max(float(np.linalg.eigvalsh(slope)[-1]), 0.0)

    def metric(self) -> Callable[[Array], Array]:
        """The inverse of what the Hessian would be, were the inputs of all tasks alike in all directions."""
        xp = namespace(self.Q)
        floor = 0.4 if self.p == 1 else 1e-9 * self.charge**0.5
        K = (floor + self.lift) * eye_like(self.E) + (0.0 if self.p == 1 else 4 * self.E)
        for part in self.parts:
            total, left = xp.sum(part.y * part.y, axis=1), xp.sum(part.y * part.left, axis=1)
            # How much of a direction the task cannot take up: between what it leaves of its targets and all of it.
            share = xp.where(total > 0, left, xp.ones_like(left)) / xp.where(total > 0, total, xp.ones_like(total))
            free = xp.sqrt(xp.where(share > 0, share, xp.zeros_like(share)))
            K = K + (part.B * (2 * free * part.size)[:, None]).T @ part.B
        inverse = xp.linalg.inv(K)
        return lambda slope: slope @ inverse


def newton_direction(point: Point, metric: Callable[[Array], Array], forcing: float, limit: int = 100) -> Array:
    """Conjugate gradients on the Newton system, until the residual has fallen or the curvature turns out negative."""
    x, r = 0 * point.slope, -point.slope
    z = metric(r)
    p, size = z, inner(r, z)
    enough = forcing**2 * size
    for k in range(limit):
        Hp = point.hessian(p)
        bend = inner(p, Hp)
        if bend <= 1e-14 * inner(p, p):
            return x if k else p
        x = x + (size / bend) * p
        r = r - (size / bend) * Hp
        z = metric(r)
        size, last = inner(r, z), size
        if size <= enough:
            break
        p = z + (size / last) * p
    return x


def _flatter(point: Point, metric: Callable[[Array], Array], promise: float) -> bool:
    """Whether a step that values cannot judge any more brought the slope down."""
    return inner(point.slope, metric(point.slope)) / 2 < promise / 4


class Walk:
    """Newton steps until they promise less than the tolerance; a proximal step where the dual says that directions lack.

    Parameters
    ----------
    data : blocks of tasks
    alpha, p : float, int
        Strengths and power of the penalty: 1 for the trace, 2 for Frobenius.
    scale : float
        What gaps are relative to.
    start : array, optional
        Weights to start from, a row for each task; by default those of every task on its own.
    """

    def __init__(
        self,
        data: Sequence[TaskBlock],
        alpha: float,
        p: int,
        scale: float,
        tol: float,
        forcing: float,
        start: Array | None = None,
    ):
        self.data, self.alpha, self.p, self.scale, self.forcing = data, alpha, p, scale, forcing
        self.here = self._at(self._factor_of(_joined([block.alone() for block in data]) if start is None else start))
        self.enough = PROMISE * tol * scale
        self.stuck = False  # whether the last Newton step found nothing lower
        self.doubtful = start is not None  # a fit at another strength may lack directions
        self.jump = inner(self.here.Q, self.here.Q) / self.here.Q.shape[1]

    def _at(self, Q: Array) -> Point:
        return Point(self.data, Q, self.alpha, self.p)

    def _factor_of(self, W: Array) -> Array:
        """The best factor for the weights; under the trace penalty on the larger ones of their directions."""
        energy, U = (side[..., ::-1] for side in eigh(W.T @ W))
        energy = self.alpha * np.maximum(energy, 1e-14 * max(energy[0], np.finfo(float).tiny))
        q = min(*W.shape)
        q = min(q, max(40, q // 2)) if self.p == 1 else q
        return like(U[:, :q] * (energy[:q] / self.p) ** (0.5 / (self.p + 1)), W)

    def advance(self) -> bool:
        """Up to ``STEPS`` Newton steps, after a proximal one where it is needed; whether anything moved."""
        moved = self.doubtful and self._lacks() and self._grow()
        for _ in range(STEPS):
            metric = self.here.metric()
            promise = inner(self.here.slope, metric(self.here.slope)) / 2
            self.stuck = promise > self.enough and not self._newton_step(metric, promise)
            if self.stuck or promise <= self.enough:
                break
            moved = True
        self.doubtful, self.enough = True, self.enough / 10
        return moved

    def _newton_step(self, metric: Callable[[Array], Array], promise: float) -> bool:
        here = self.here
        forcing = float(np.clip((promise / self.scale) ** 0.25, self.forcing, 0.3))
        move = newton_direction(here, metric, forcing)
        fall, t = inner(here.slope, move), 1.0
        blind = promise < ROUNDING * float(namespace(here.Q).finfo(here.Q.dtype).eps) * abs(here.value)
        while t > 1e-6:
            Q = here.Q + t * move
            trimmed = self._trimmed(Q)
            for each in [trimmed] if trimmed is Q else [trimmed, Q]:  # a column may be missed: then it stays
                there = self._at(each)
                if there.value < here.value + 1e-4 * t * fall or (blind and each is Q and _flatter(there, metric, promise)):
                    self.here = there
                    return True
            t /= 4
        return False

    def _trimmed(self, Q: Array) -> Array:
        """``Q`` without columns that are small and that the dual at hand wants to vanish: the work falls with the rank."""
        if self.p != 1:
            return Q
        energy, V = eigh(Q.T @ Q)
        share = energy / energy.mean()
        pull = self.here.Z @ (Q @ like(V, Q))
        size = to_numpy(namespace(Q).sum(pull * pull, axis=0)) / (4 * self.alpha)  # times the energy
        go = (share < SMALL) & (size < (1 - 2 * share) * energy)
        return Q @ like(V[:, ~go], Q) if go.any() else Q

    def _lacks(self) -> bool:
        """Whether the dual constraint is violated in a direction outside the range of ``Q``."""
        if self.p != 1:
            return False
        energy, V = eigh(self.here.E)
        keep = energy > 1e-15 * energy[-1]
        U = self.here.Q @ like(V[:, keep] / np.sqrt(energy[keep]), self.here.Q)
        outside = self.here.Z - (self.here.Z @ U) @ U.T
        return bool(eigh(outside.T @ outside)[0][-1] > 4 * self.alpha)

    def _grow(self) -> bool:
        """A proximal step on ``D``, where the problem is convex: it finds directions that ``Q`` lacks."""
        here = self.here
        for _ in range(12):
            energy, U = eigh(here.Q @ here.Q.T + (self.jump / (4 * self.alpha)) * (here.Z.T @ here.Z))
            energy = energy - self.jump
            Q = like(U[:, energy > 0] * np.sqrt(energy[energy > 0]), here.Q)
            if Q.shape[1] and (there := self._at(Q)).value < here.value:
                self.here = there
                self.jump *= 2
                return True
            self.jump /= 4
        return False
