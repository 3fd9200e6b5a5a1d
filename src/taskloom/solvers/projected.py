"""Variable projection by Newton's method, for the squared loss and the trace penalty: few steps, of few cheap products each.

    h(Q) = ||Q||^2 + sum_t min_b [ ||y_t - X_t Q b||^2 + alpha ||b||^2 ],     D = QQ',   w_t = Q b_t

with the weights of the observations inside ``X_t`` and ``y_t``. The tasks are eliminated exactly, so that the Hessian of ``h``
sees how they answer to a change of ``Q``; a product with it costs two passes over the data and no decomposition, where a
proximal step on ``W`` costs a singular value decomposition. ``h`` is not convex in ``Q``, and what it lacks is looked for in
``D``, in which the problem is: a proximal step there finds every direction that is missing (``ProjectedRun._grow``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import issparse

from .._component import require
from ..problem import Problem
from ..structures import Schatten
from .base import Iterate, Run, Solver
from .blocks import Block, apply, apply_transposed, blocks, inverse_roots, means, rough
from .proximal import Proximal

Array = np.ndarray
STEPS = 8  # Newton steps after which a certificate is due, whatever they think of themselves
PROMISE = 0.05  # the share of the tolerance below which a promise is worth a certificate
ROUNDING = 1e-5  # of single precision, relative to the loss
COARSE = 3e-5  # relative promises above this are for single precision: half the traffic, and all the accuracy they need
SHRINK = 0.25  # of what the penalty takes off the first weights: with more, directions go that are missed later
SMALL = 0.1  # columns below this share of the mean energy may go, if the dual says that they should vanish


@dataclass(eq=False, repr=False)
class Projected(Solver):
    """Newton's method on the factor of the structure, with conjugate gradients; for the trace penalty and the squared loss.

    Parameters
    ----------
    forcing : float
        Conjugate gradients stop when the residual of the Newton system has fallen to this share.
    single : bool
        Whether the first steps are taken in single precision. They cost less; equal problems that are written differently (a
        row twice, or with weight 2) then end equal within the tolerance, not to the last digits.
    """

    forcing: float = 0.05
    single: bool = True

    def check(self) -> None:
        require(0 < self.forcing < 1, f"Projected needs 0 < forcing < 1, got forcing={self.forcing!r}")

    def accepts(self, problem: Problem) -> str | None:
        trace = isinstance(problem.structure, Schatten) and problem.structure.p == 1
        if trace and problem.loss.quadratic and problem.ridge == 0 and not issparse(problem.features):
            return None
        return 'solver="projected" needs Trace(), the squared loss, dense features and no ridge; use solver="auto"'

    def begin(self, problem: Problem, start: tuple[Array, Array] | None, tol: float) -> Run:
        return ProjectedRun(self, problem, start, tol)


class _Solved:
    """The tasks of a block at ``Q``, and how they answer to a change of it.

    The systems are those of ``P'P + alpha`` or of ``PP' + alpha``, ``P = XQ``, whichever are smaller.
    """

    def __init__(self, block: Block, Q: Array, alpha: float):
        self.block, self.alpha = block, alpha
        n, m, d = block.X.shape
        self.P = P = (block.X.reshape(n * m, d) @ Q).reshape(n, m, -1)
        q = P.shape[2]
        self.wide = q > m
        K = np.matmul(P, P.transpose(0, 2, 1)) if self.wide else np.matmul(P.transpose(0, 2, 1), P)
        K[:, np.arange(K.shape[1]), np.arange(K.shape[1])] += alpha
        self.R = inverse_roots(K)
        if self.wide:
            u = self._solve(block.y)
            self.B, self.left = apply_transposed(P, u), alpha * u
        else:
            self.B = self._solve(apply_transposed(P, block.y))
            self.left = block.y - apply(P, self.B)
        self.Z = 2 * apply_transposed(block.X, self.left)
        total = np.einsum("bm,bm->b", block.y, block.y)
        left = np.einsum("bm,bm->b", block.y, self.left)
        # How much of a direction the task cannot take up: between what it leaves of its targets and all of it.
        self.free = np.sqrt(np.divide(left, total, out=np.ones_like(total), where=total > 0))

    def _solve(self, x: Array) -> Array:
        return apply_transposed(self.R, apply(self.R, x))

    def answer(self, dW: Array, dZ: Array) -> tuple[Array, Array]:
        """The change of ``B`` and of ``-Z``, when ``Q`` moves ``QB`` by ``dW`` and ``Q'Z`` by ``dZ``."""
        e = apply(self.block.X, dW)
        pull = dZ / 2 - apply_transposed(self.P, e)
        if self.wide:
            through = self._solve(apply(self.P, pull))
            dB = (pull - apply_transposed(self.P, through)) / self.alpha
            e = e + through
        else:
            dB = self._solve(pull)
            e = e + apply(self.P, dB)
        return dB, 2 * apply_transposed(self.block.X, e)


class Point:
    """``h`` at ``Q``, up to a constant: value, slope, products with the Hessian and a metric that resembles it."""

    def __init__(self, data: list[Block], Q: Array, alpha: float, n_tasks: int):
        self.Q, self.alpha = Q, alpha
        self.parts = [_Solved(block, Q, alpha) for block in data]
        self.B, self.Z = np.empty((n_tasks, Q.shape[1]), Q.dtype), np.empty((n_tasks, Q.shape[0]), Q.dtype)
        for part in self.parts:
            self.B[part.block.tasks], self.Z[part.block.tasks] = part.B, part.Z
        self.value = float(np.vdot(Q, Q)) + sum(float(np.vdot(part.block.y, part.left)) for part in self.parts)
        self.slope = 2 * Q - self.Z.T @ self.B

    def hessian(self, dQ: Array) -> Array:
        """The product of the Hessian of ``h`` with ``dQ``."""
        dW, dZ = self.B @ dQ.T, self.Z @ dQ
        dB, pull = np.empty_like(self.B), np.empty_like(self.Z)
        for part in self.parts:
            tasks = part.block.tasks
            dB[tasks], pull[tasks] = part.answer(dW[tasks], dZ[tasks])
        return (2 + self.lift) * dQ + pull.T @ self.B - self.Z.T @ dB

    @cached_property
    def lift(self) -> float:
        """What makes up for a negative slope in ``D`` along a direction of ``Q``: Newton's method would run away with it.

        The columns of ``Q`` are orthogonal wherever the solver goes.
        """
        energy = np.einsum("rq,rq->q", self.Q, self.Q)
        pull = self.Z @ (self.Q / np.sqrt(energy + np.finfo(self.Q.dtype).tiny))
        return max(float(np.linalg.eigvalsh(pull.T @ pull)[-1]) / (4 * self.alpha) - 1, 0.0)

    def metric(self) -> Callable[[Array], Array]:
        """The inverse of what the Hessian would be, were the inputs of all tasks alike in all directions."""
        K = (0.4 + self.lift) * np.eye(self.B.shape[1], dtype=self.Q.dtype)
        for part in self.parts:
            K += (part.B * (2 * part.free * part.block.size)[:, None]).T @ part.B
        inverse = np.linalg.inv(K)
        return lambda slope: slope @ inverse


def newton_direction(point: Point, metric: Callable[[Array], Array], forcing: float, limit: int = 100) -> Array:
    """Conjugate gradients on the Newton system, until the residual has fallen or the curvature turns out negative."""
    x, r = np.zeros_like(point.slope), -point.slope
    z = metric(r)
    p, size = z, float(np.vdot(r, z))
    enough = forcing**2 * size
    for k in range(limit):
        Hp = point.hessian(p)
        bend = float(np.vdot(p, Hp))
        if bend <= 1e-14 * float(np.vdot(p, p)):
            return x if k else p
        x = x + (size / bend) * p
        r = r - (size / bend) * Hp
        z = metric(r)
        size, last = float(np.vdot(r, z)), size
        if size <= enough:
            break
        p = z + (size / last) * p
    return x


class ProjectedRun(Run):
    """Newton steps until they promise less than the tolerance; a proximal step where the certificate disagrees."""

    def __init__(self, settings: Projected, problem: Problem, start: tuple[Array, Array] | None, tol: float):
        self.settings, self.problem, self.tol = settings, problem, tol
        self.data = problem.once("blocks", lambda: blocks(problem))
        self.rough: list[Block] | None = problem.once("rough blocks", lambda: rough(self.data)) if settings.single else None
        self.means = problem.once("means", lambda: means(problem))
        self.here = self._at(self._factor_of(self._alone(), SHRINK) if start is None else self._factor_of(start[0]))
        self.enough = PROMISE * tol * problem.scale
        self.doubtful = start is not None  # a fit at another strength may lack directions
        self.jump = float(np.vdot(self.here.Q, self.here.Q)) / self.here.Q.shape[1]
        self.fallback: Run | None = None

    def _at(self, Q: Array) -> Point:
        if self.rough is not None:
            try:
                return Point(self.rough, Q.astype(np.float32), self.problem.alpha, self.problem.n_tasks)
            except np.linalg.LinAlgError:  # too many digits between the strength and the data
                self.rough = None
        return Point(self.data, Q.astype(float), self.problem.alpha, self.problem.n_tasks)

    def _alone(self) -> Array:
        """Every task on its own, with a little shrinkage."""
        data = self.rough or self.data
        W = np.empty((self.problem.n_features, self.problem.n_tasks), data[0].X.dtype)
        for block in data:
            _, m, r = block.X.shape
            across = block.X.transpose(0, 2, 1)
            wide = r > m
            gram = np.matmul(block.X, across) if wide else np.matmul(across, block.X)
            gram[:, np.arange(min(m, r)), np.arange(min(m, r))] += (0.3 * block.size + np.finfo(block.X.dtype).tiny)[:, None]
            target = block.y if wide else apply_transposed(block.X, block.y)
            solved = np.linalg.solve(gram, target[:, :, None])[:, :, 0]
            W[:, block.tasks] = (apply_transposed(block.X, solved) if wide else solved).T
        return W

    def _factor_of(self, W: Array, shrink: float = 0.0) -> Array:
        """The best factor for the weights, on the larger ones of their directions; ``shrink`` is in units of the penalty."""
        U, s, _ = np.linalg.svd(W, full_matrices=False)
        there = int(np.count_nonzero(s > 1e-10 * s[0]))  # what is below is rounding, and would point anywhere
        q, root = max(min(max(40, s.size // 2), there), 1), np.sqrt(self.problem.alpha)
        size = float(np.mean(np.concatenate([block.size for block in self.data])))
        if shrink > 0 and size > 0:  # a penalty takes ``root / size`` off the singular values, were all inputs alike
            left = s - shrink * root / size
            q, s = min(q, 2 + int(1.3 * np.count_nonzero(left > 0))), np.maximum(left, 0.1 * s)
        return U[:, :q] * np.sqrt(root * s[:q])

    def retarget(self, problem: Problem) -> None:
        raise AssertionError("the squared loss is smooth: nothing smooths it anew")

    def step(self, gap: float) -> Iterate:
        if self.fallback is not None:
            return self.fallback.step(gap)
        moved = self.doubtful and self._lacks() and self._grow()
        for _ in range(STEPS):
            metric = self.here.metric()
            promise = float(np.vdot(self.here.slope, metric(self.here.slope))) / 2
            coarse, settled = self.here.Q.dtype == np.float32, promise <= self.enough
            if settled and not (coarse and self.enough < ROUNDING * self.problem.scale):
                break
            if promise <= COARSE * self.problem.scale:
                self.rough = None  # from the next point on
            if settled or not self._newton_step(metric, promise):
                if not coarse:
                    break
                self.rough, moved = None, True
                self.here = self._at(self.here.Q)
            else:
                moved = True
        self.doubtful, self.enough = True, self.enough / 10
        iterate = self._iterate()
        if not moved:
            self.fallback = Proximal().begin(self.problem, (iterate.W, iterate.b), self.tol)
        return iterate

    def _newton_step(self, metric: Callable[[Array], Array], promise: float) -> bool:
        here = self.here
        forcing = float(np.clip((promise / self.problem.scale) ** 0.25, self.settings.forcing, 0.3))
        move = newton_direction(here, metric, forcing)
        fall, t = float(np.vdot(here.slope, move)), 1.0
        while t > 1e-6:
            there = self._at(self._trimmed(here.Q + t * move))
            if there.value < here.value + 1e-4 * t * fall:
                self.here = there
                return True
            t /= 4
        return False

    def _trimmed(self, Q: Array) -> Array:
        """``Q`` without columns that are small and that the dual at hand wants to vanish: the work falls with the rank."""
        energy, V = np.linalg.eigh(Q.T @ Q)
        share = energy / energy.mean()
        pull = self.here.Z @ (Q @ V)
        size = np.einsum("tq,tq->q", pull, pull) / (4 * self.problem.alpha)  # times the energy
        go = (share < SMALL) & (size < (1 - 2 * share) * energy)
        return Q @ V[:, ~go]

    def _lacks(self) -> bool:
        """Whether the dual constraint is violated in a direction outside the range of ``Q``."""
        U = np.linalg.qr(self.here.Q)[0]
        outside = self.here.Z - (self.here.Z @ U) @ U.T
        return bool(np.linalg.norm(outside, 2) > 2 * np.sqrt(self.problem.alpha))

    def _grow(self) -> bool:
        """A proximal step on ``D``, where the problem is convex: it finds directions that ``Q`` lacks."""
        here = self.here
        for _ in range(12):
            both = np.hstack([here.Q, np.sqrt(self.jump / (4 * self.problem.alpha)) * here.Z.T])
            U, s, _ = np.linalg.svd(both, full_matrices=False)
            energy = s**2 - self.jump
            Q = U[:, energy > 0] * np.sqrt(energy[energy > 0])
            if Q.shape[1] and (there := self._at(Q)).value < here.value:
                self.here = there
                self.jump *= 2
                return True
            self.jump /= 4
        return False

    def _iterate(self) -> Iterate:
        problem, (mean, mean_y) = self.problem, self.means
        Q, B = self.here.Q.astype(float), self.here.B.astype(float)
        W, penalty = Q @ B.T, float(np.vdot(Q, Q)) + problem.alpha * float(np.vdot(B, B))
        b = mean_y - np.einsum("rt,rt->t", mean, W)
        z = problem.predict(W, b)
        slopes = problem.loss.slope(problem.observations.y, z)
        Z = problem.correlate(-problem.observations.weight * slopes)
        return Iterate(W, b, z, slopes, penalty=penalty, Z=Z)
