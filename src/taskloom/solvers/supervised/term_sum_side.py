"""The supervised step for a sum of terms: one system with the features of every term, each in its metric.

If no term couples the tasks, every task is a separate small problem; else one system holds all observations, dense if it is
small, by conjugate gradients otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...problem import Problem
from ...structures.term_sum import TermSum
from ...structures.terms import EntryNorms, FeatureMatrix, TaskNorms
from .batched_newton import Batch, newton
from .newton_systems import BatchDesign, DenseColumns, Direction, Gram, Intercepts, IterativeDirection, OneEach, OnePerTask
from .sides import Side, Supervised, ridged, smaller

Array = np.ndarray


class TermSumSide(Side):
    """``root`` is a list with the root of the variable of each term, in the shape of the variable."""

    bounds_near_structure = True
    dense_limit: int = 2000  # most observations, or weights, in one dense system

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.terms: TermSum = problem.structure  # type: ignore[assignment]
        self.dim = max(*self.terms.widths, problem.n_tasks)
        features = problem.inputs.for_batches
        self.blocks = [np.ascontiguousarray(features[:, term.columns]) for term in problem.terms]
        self.coupled = any(variable.couples for variable in self.terms.variables)

    def moment_root(self, W: Array) -> Array:
        return W

    def plain_root(self) -> list[Array]:
        shapes = [m.shape(r, self.problem.n_tasks) for m, r in zip(self.terms.variables, self.terms.widths, strict=True)]
        square = [isinstance(m, FeatureMatrix) or m.couples for m in self.terms.variables]
        return [np.eye(shape[0]) if matrix else np.ones(shape) for shape, matrix in zip(shapes, square, strict=True)]

    def supervise(self, root: Any) -> Supervised:
        scaled = [self._scaled(variable, r) for variable, r in zip(self.terms.variables, root, strict=True)]
        return self._coupled(scaled) if self.coupled else self._decoupled(scaled)

    def _scaled(self, variable: Any, root: Array) -> Array:
        """The root of the metric, ridge included, over ``sqrt(2 alpha)``."""
        matrix = variable.couples or isinstance(variable, FeatureMatrix)
        L = ridged(root, self.rho) if matrix else root / np.sqrt(1 + self.rho * root**2)
        return L / np.sqrt(2 * self.problem.alpha)

    # --- tasks on their own -------------------------------------------------------------------------------------

    def _decoupled(self, roots: list[Array]) -> Supervised:
        problem, obs = self.problem, self.problem.observations
        turned = [
            block @ L if isinstance(variable, FeatureMatrix) else block
            for variable, block, L in zip(self.terms.variables, self.blocks, roots, strict=True)
        ]
        ends = np.cumsum([P.shape[1] for P in turned])[:-1]
        weights = [np.zeros((r, problem.n_tasks)) for r in self.terms.widths]
        b, norm = np.zeros(problem.n_tasks), 0.0
        for batch in obs.grouping.batches:
            inputs = []
            for variable, P, L in zip(self.terms.variables, turned, roots, strict=True):
                X = problem.inputs.take(batch, P)
                inputs.append(
                    X if isinstance(variable, FeatureMatrix) else X * _by_weight(variable, L, batch.tasks)[:, None, :]
                )
            X = np.concatenate(inputs, axis=2)
            design = smaller(X)
            y, v = obs.y[batch.place], obs.weight[batch.place] * batch.mask
            u = self._dual[batch.place] * batch.mask
            intercepts = OneEach(batch.mask.astype(float)) if problem.fit_intercept else None
            b0 = self._b[batch.tasks][:, None] if problem.fit_intercept else np.zeros((len(y), 0))
            fit = newton(Batch(problem.loss.pick(batch.place), y, v, design, intercepts), design.start(u), b0)
            beta = fit.coef if isinstance(design, DenseColumns) else np.einsum("bmq,bm->bq", X, fit.coef)
            norm += fit.norm
            if problem.fit_intercept:
                b[batch.tasks] = fit.b[:, 0]
            for variable, W, L, part in zip(self.terms.variables, weights, roots, np.split(beta, ends, axis=1), strict=True):
                on_features = isinstance(variable, FeatureMatrix)
                W[:, batch.tasks] = L @ part.T if on_features else (part * _by_weight(variable, L, batch.tasks)).T
        return self._read(np.vstack(weights), b, norm)

    # --- tasks coupled ------------------------------------------------------------------------------------------

    def _coupled(self, roots: list[Array]) -> Supervised:
        problem, obs = self.problem, self.problem.observations
        whole = Stacked(self, roots)
        design: BatchDesign = whole
        if obs.y.size <= self.dense_limit:
            design = Gram(whole.gram()[None])
        intercepts = OnePerTask(obs.task, problem.n_tasks) if problem.fit_intercept else None
        b = self._b[None] if problem.fit_intercept else np.zeros((1, 0))
        loss = problem.loss.pick(np.arange(obs.y.size)[None])
        fit = newton(Batch(loss, obs.y[None], obs.weight[None], design, intercepts), design.start(self._dual[None]), b)
        coef = whole.start(fit.coef) if isinstance(design, Gram) else fit.coef
        return self._read(
            np.vstack(whole.weights(coef[0])), fit.b[0] if problem.fit_intercept else np.zeros(problem.n_tasks), fit.norm
        )


def _by_weight(variable: Any, L: Array, tasks: Array) -> Array:
    """The root of the metric of each weight of some tasks (``B x r``), or one for all weights of a task (``B x 1``)."""
    return L[tasks][:, None] if isinstance(variable, TaskNorms) else L[:, tasks].T


class Stacked(BatchDesign):
    """All tasks and all terms in one batch element; the coefficients of the terms follow each other."""

    def __init__(self, side: TermSumSide, roots: list[Array]):
        self.side, self.roots = side, roots
        self.problem = side.problem
        T = self.problem.n_tasks
        self.shapes = [
            (r, L.shape[1]) if variable.couples else (L.shape[1], T) if isinstance(variable, FeatureMatrix) else (r, T)
            for variable, r, L in zip(side.terms.variables, side.terms.widths, roots, strict=True)
        ]
        self.ends = np.cumsum([a * b for a, b in self.shapes])

    def weights(self, coef: Array) -> list[Array]:
        """The weights of each term."""
        parts = np.split(coef, self.ends[:-1])
        out = []
        for variable, L, shape, part in zip(self.side.terms.variables, self.roots, self.shapes, parts, strict=True):
            B = part.reshape(shape)
            out.append(
                B @ L.T if variable.couples else L @ B if isinstance(variable, FeatureMatrix) else B * _expanded(variable, L)
            )
        return out

    def start(self, u: Array) -> Array:
        Z = self.side.terms.features_of(self.problem.correlate(u[0]))
        out = []
        for variable, L, z in zip(self.side.terms.variables, self.roots, Z, strict=True):
            B = z @ L if variable.couples else L.T @ z if isinstance(variable, FeatureMatrix) else z * _expanded(variable, L)
            out.append(B.ravel())
        return np.concatenate(out)[None]

    def predict(self, coef: Array) -> Array:
        return self.problem.predict(np.vstack(self.weights(coef[0])), np.zeros(self.problem.n_tasks))[None]

    def gram(self) -> Array:
        """``sum_q k_q(x_i, x_j) A_q[t_i, t_j]`` over the observations."""
        obs = self.problem.observations
        same = obs.task[:, None] == obs.task[None, :]
        K = np.zeros((obs.y.size, obs.y.size))
        for variable, L, block in zip(self.side.terms.variables, self.roots, self.side.blocks, strict=True):
            phi = block[obs.row] if self.problem.inputs.by_observation is None else block
            if variable.couples:
                expanded = L[obs.task]
                K += (phi @ phi.T) * (expanded @ expanded.T)
                continue
            P = phi @ L if isinstance(variable, FeatureMatrix) else phi * _by_weight(variable, L, obs.task)
            K += (P @ P.T) * same
        return K

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        total = np.ones(1) if intercepts is None or damping is None else intercepts.gather(h) + damping
        return IterativeDirection(
            self,
            curved=lambda z: h * z,
            intercepts=intercepts,
            solved=lambda gathered: gathered / total,
            max_residual=lambda rhs, *_: 1e-10 * float(np.linalg.norm(rhs)),
            max_steps=2000,
        )


def _expanded(variable: Any, L: Array) -> Array:
    return L if isinstance(variable, EntryNorms) else L[None, :]
