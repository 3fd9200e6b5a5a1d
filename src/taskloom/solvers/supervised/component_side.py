"""The supervised step where the predictor is a sum: one system that holds the features of every addend, each in its metric.

Where no addend couples the tasks, every task is a small problem of its own; else one system holds all observations, dense while
it is small, by conjugate gradients beyond.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from ...problem import Problem
from ...structures.members import ByEntry, ByTask, OnFeatures
from ...structures.parts import Parts
from .batched_newton import Batch, newton
from .newton_systems import Columns, Design, Direction, Gram, Intercepts, OneEach, OnePerTask
from .sides import Side, Supervised, buckets, lined_up, ridged, smaller

Array = np.ndarray


class PartsSide(Side):
    """``root`` is a list: for each addend the root of its variable, in the shape that the variable has."""

    near_counts = True
    dense_limit: int = 2000  # most observations, or weights, in one dense system

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.parts: Parts = problem.structure  # type: ignore[assignment]
        self.dim = max(*self.parts.widths, problem.n_tasks)
        seen = problem.observations
        self.blocks = problem.once("blocks of parts", self._blocks)
        self.buckets = problem.once("buckets", lambda: buckets(seen.counts, seen.starts))
        self.coupled = any(member.couples for member in self.parts.members)

    def _blocks(self) -> list[Array]:
        """The features of each addend, lined up for buckets."""
        ends = np.cumsum(self.parts.widths)[:-1]
        return [np.ascontiguousarray(block) for block in np.split(lined_up(self.problem), ends, axis=1)]

    def moment_root(self, W: Array) -> Array:
        return W

    def plain_root(self) -> list[Array]:
        shapes = [m.shape(r, self.problem.n_tasks) for m, r in zip(self.parts.members, self.parts.widths, strict=True)]
        square = [isinstance(m, OnFeatures) or m.couples for m in self.parts.members]
        return [np.eye(shape[0]) if matrix else np.ones(shape) for shape, matrix in zip(shapes, square, strict=True)]

    def supervise(self, root: Any) -> Supervised:
        scaled = [self._scaled(member, r) for member, r in zip(self.parts.members, root, strict=True)]
        return self._coupled(scaled) if self.coupled else self._decoupled(scaled)

    def _scaled(self, member: Any, root: Array) -> Array:
        """The root of the metric, ridge included, over ``sqrt(2 alpha)``."""
        matrix = member.couples or isinstance(member, OnFeatures)
        L = ridged(root, self.rho) if matrix else root / np.sqrt(1 + self.rho * root**2)
        return L / np.sqrt(2 * self.problem.alpha)

    # --- tasks on their own -------------------------------------------------------------------------------------

    def _decoupled(self, roots: list[Array]) -> Supervised:
        problem, seen = self.problem, self.problem.observations
        turned = [
            block @ L if isinstance(member, OnFeatures) else block
            for member, block, L in zip(self.parts.members, self.blocks, roots, strict=True)
        ]
        ends = np.cumsum([P.shape[1] for P in turned])[:-1]
        weights = [np.zeros((r, problem.n_tasks)) for r in self.parts.widths]
        b, norm = np.zeros(problem.n_tasks), 0.0
        for bucket in self.buckets:
            inputs = []
            for member, P, L in zip(self.parts.members, turned, roots, strict=True):
                X = bucket.take(P, problem)
                inputs.append(X if isinstance(member, OnFeatures) else X * _by_weight(member, L, bucket.tasks)[:, None, :])
            X = np.concatenate(inputs, axis=2)
            design = smaller(X)
            y, v = seen.y[bucket.place], seen.weight[bucket.place] * bucket.mask
            u = self._dual[bucket.place] * bucket.mask
            intercepts = OneEach(bucket.mask.astype(float)) if problem.fit_intercept else None
            b0 = self._b[bucket.tasks][:, None] if problem.fit_intercept else np.zeros((len(y), 0))
            fit = newton(Batch(problem.loss.pick(bucket.place), y, v, design, intercepts), design.start(u), b0)
            beta = fit.coef if isinstance(design, Columns) else np.einsum("bmq,bm->bq", X, fit.coef)
            norm += fit.norm
            if problem.fit_intercept:
                b[bucket.tasks] = fit.b[:, 0]
            for member, W, L, part in zip(self.parts.members, weights, roots, np.split(beta, ends, axis=1), strict=True):
                on_features = isinstance(member, OnFeatures)
                W[:, bucket.tasks] = L @ part.T if on_features else (part * _by_weight(member, L, bucket.tasks)).T
        return self._read(np.vstack(weights), b, norm)

    # --- tasks coupled ------------------------------------------------------------------------------------------

    def _coupled(self, roots: list[Array]) -> Supervised:
        problem, seen = self.problem, self.problem.observations
        whole = Stacked(self, roots)
        design: Design = whole
        if seen.y.size <= self.dense_limit:
            design = Gram(whole.gram()[None])
        intercepts = OnePerTask(seen.task, problem.n_tasks) if problem.fit_intercept else None
        b = self._b[None] if problem.fit_intercept else np.zeros((1, 0))
        loss = problem.loss.pick(np.arange(seen.y.size)[None])
        fit = newton(Batch(loss, seen.y[None], seen.weight[None], design, intercepts), design.start(self._dual[None]), b)
        coef = whole.start(fit.coef) if isinstance(design, Gram) else fit.coef
        return self._read(
            np.vstack(whole.weights(coef[0])), fit.b[0] if problem.fit_intercept else np.zeros(problem.n_tasks), fit.norm
        )


def _by_weight(member: Any, L: Array, tasks: Array) -> Array:
    """The root of the metric of each weight of some tasks (``B x r``), or one for all weights of a task (``B x 1``)."""
    return L[tasks][:, None] if isinstance(member, ByTask) else L[:, tasks].T


class Stacked(Design):
    """All tasks and all addends in one batch element; the coefficients of the addends follow each other."""

    def __init__(self, side: PartsSide, roots: list[Array]):
        self.side, self.roots = side, roots
        self.problem = side.problem
        T = self.problem.n_tasks
        self.shapes = [
            (r, L.shape[1]) if member.couples else (L.shape[1], T) if isinstance(member, OnFeatures) else (r, T)
            for member, r, L in zip(side.parts.members, side.parts.widths, roots, strict=True)
        ]
        self.ends = np.cumsum([a * b for a, b in self.shapes])

    def weights(self, coef: Array) -> list[Array]:
        """The weights of each addend."""
        parts = np.split(coef, self.ends[:-1])
        out = []
        for member, L, shape, part in zip(self.side.parts.members, self.roots, self.shapes, parts, strict=True):
            B = part.reshape(shape)
            out.append(B @ L.T if member.couples else L @ B if isinstance(member, OnFeatures) else B * _spread(member, L))
        return out

    def start(self, u: Array) -> Array:
        Z = self.side.parts.features_of(self.problem.correlate(u[0]))
        out = []
        for member, L, z in zip(self.side.parts.members, self.roots, Z, strict=True):
            B = z @ L if member.couples else L.T @ z if isinstance(member, OnFeatures) else z * _spread(member, L)
            out.append(B.ravel())
        return np.concatenate(out)[None]

    def predict(self, coef: Array) -> Array:
        return self.problem.predict(np.vstack(self.weights(coef[0])), np.zeros(self.problem.n_tasks))[None]

    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        return np.einsum("bi,bi->b", coef, other)

    def pick(self, which: Array) -> Stacked:
        return self

    def gram(self) -> Array:
        """``sum_q k_q(x_i, x_j) A_q[t_i, t_j]`` over the observations."""
        seen = self.problem.observations
        same = seen.task[:, None] == seen.task[None, :]
        K = np.zeros((seen.y.size, seen.y.size))
        for member, L, block in zip(self.side.parts.members, self.roots, self.side.blocks, strict=True):
            phi = block[seen.row] if self.problem.by_observation() is None else block
            if member.couples:
                spread = L[seen.task]
                K += (phi @ phi.T) * (spread @ spread.T)
                continue
            P = phi @ L if isinstance(member, OnFeatures) else phi * _by_weight(member, L, seen.task)
            K += (P @ P.T) * same
        return K

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        return _StackedDirection(self, h[0], None if damping is None else damping[0])


def _spread(member: Any, L: Array) -> Array:
    return L if isinstance(member, ByEntry) else L[None, :]


class _StackedDirection(Direction):
    """``(I + X'HX) d = -(X'g + beta)`` with each task's intercept eliminated, by conjugate gradients."""

    def __init__(self, design: Stacked, h: Array, damping: Array | None):
        self.design, self.h, self.damping = design, h, damping
        seen = design.problem.observations
        self.total = seen.sum_by_task(h) + (0.0 if damping is None else damping)
        size = int(design.ends[-1])
        self.operator = LinearOperator((size, size), matvec=self._apply, dtype=float)

    def _centred(self, g: Array) -> Array:
        """Take out what each task's intercept would absorb."""
        if self.damping is None:
            return g
        seen = self.design.problem.observations
        return g - self.h * (seen.sum_by_task(g) / self.total)[seen.task]

    def _apply(self, x: Array) -> Array:
        return x + self.design.start(self._centred(self.h * self.design.predict(x[None])[0])[None])[0]

    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]:
        design, seen = self.design, self.design.problem.observations
        rhs = -(design.start(self._centred(g[0])[None]) + coef)[0]
        step, _ = cg(self.operator, rhs, rtol=1e-10, atol=0.0, maxiter=2000)
        if self.damping is None:
            return step[None], np.zeros((1, 0))
        bent = seen.sum_by_task(g[0] + self.h * design.predict(step[None])[0])
        return step[None], (-bent / self.total)[None]
