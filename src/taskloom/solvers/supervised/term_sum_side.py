"""The supervised step for a sum of terms: one system with the features of every term, each in its metric.

If no term couples the tasks, every task is a separate small problem; else one system holds all observations, dense if it is
small, by conjugate gradients otherwise.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ...design import TaskBatch
from ...problem import Problem
from ...structures.term_sum import TermSum
from ...structures.terms import FeatureMatrix
from .newton_systems import TUNING, BatchDesign, Direction, Gram, Intercepts, iterative_direction_of_entries
from .sides import Side, Strategy, Supervised, ridged

Array = np.ndarray


class TermMetric:
    """The root ``L`` of the metric of a term: on its tasks, on its features, or one number for each weight."""

    def __init__(self, variable: Any, root: Array, rho: float, scale: float):
        self.on = "tasks" if variable.couples else "features" if isinstance(variable, FeatureMatrix) else "weights"
        L = ridged(root, rho) if self.on != "weights" else np.atleast_2d(root / np.sqrt(1 + rho * root**2))
        self.L = L / scale

    def weights(self, B: Array) -> Array:
        """``W`` for coefficients ``B``."""
        return B @ self.L.T if self.on == "tasks" else self.L @ B if self.on == "features" else B * self.L

    def adjoint(self, Z: Array) -> Array:
        return Z @ self.L if self.on == "tasks" else self.L.T @ Z if self.on == "features" else Z * self.L


class TermSumSide(Side):
    """``root`` is a list with the root of the variable of each term, in the shape of the variable."""

    bounds_near_structure = True

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.terms: TermSum = problem.structure  # type: ignore[assignment]
        self.dim = max(*self.terms.widths, problem.n_tasks)
        features = problem.inputs.for_batches
        self.blocks = [np.ascontiguousarray(features[:, term.columns]) for term in problem.terms]

    @cached_property
    def rows(self) -> list[Array]:
        """The features of each term with one row for each observation."""
        shared = self.problem.inputs.by_observation is None
        return [block[self.problem.observations.row] if shared else block for block in self.blocks]

    @cached_property
    def kernels(self) -> list[Array]:
        """The kernel matrix of each term over the observations."""
        return [phi @ phi.T for phi in self.rows]

    def moment_root(self, W: Array) -> Array:
        return W

    def plain_root(self) -> list[Array]:
        shapes = [m.shape(r, self.problem.n_tasks) for m, r in zip(self.terms.variables, self.terms.widths, strict=True)]
        square = [isinstance(m, FeatureMatrix) or m.couples for m in self.terms.variables]
        return [np.eye(shape[0]) if matrix else np.ones(shape) for shape, matrix in zip(shapes, square, strict=True)]

    def _with_ridge(self, root: Any) -> list[TermMetric]:
        scale = np.sqrt(2 * self.problem.alpha)
        return [TermMetric(variable, r, self.rho, scale) for variable, r in zip(self.terms.variables, root, strict=True)]

    def _is_decoupled(self, metrics: list[TermMetric]) -> bool:
        return not any(metric.on == "tasks" for metric in metrics)

    def _is_small(self, metrics: list[TermMetric]) -> bool:
        return self.problem.observations.y.size <= self.tuning.max_dense_sum_observations

    def _by_tasks(self, metrics: list[TermMetric]) -> Supervised:
        problem, both = self.problem, list(zip(metrics, self.blocks, strict=True))
        turned = [block @ metric.L if metric.on == "features" else block for metric, block in both]

        def inputs(batch: TaskBatch) -> Array:
            parts = [problem.inputs.take(batch, P) for P in turned]
            scales = [metric.L[:, batch.tasks].T[:, None, :] if metric.on == "weights" else 1.0 for metric in metrics]
            return np.concatenate([X * scale for X, scale in zip(parts, scales, strict=True)], axis=2)

        ends = np.cumsum([P.shape[1] for P in turned])
        B, b, norm = self._fit_batches(problem.observations.grouping.batches, inputs, int(ends[-1]))
        W = [metric.weights(part) for metric, part in zip(metrics, np.split(B, ends[:-1]), strict=True)]
        return self._read(np.vstack(W), b, norm)

    def _by_observations(self, metrics: list[TermMetric]) -> Supervised:
        whole = Stacked(self, metrics)
        return self._fit_together(Gram(self._gram(metrics)[None]), whole.weights, primal=whole.start)

    def _gram(self, metrics: list[TermMetric]) -> Array:
        """``sum_q k_q(x_i, x_j) A_q[t_i, t_j]`` over the observations."""
        obs = self.problem.observations
        same = obs.task[:, None] == obs.task[None, :]
        K = np.zeros((obs.y.size, obs.y.size))
        for q, metric in enumerate(metrics):
            if metric.on == "tasks":
                expanded = metric.L[obs.task]
                K += self.kernels[q] * (expanded @ expanded.T)
                continue
            P = self.rows[q] @ metric.L if metric.on == "features" else self.rows[q] * metric.L[:, obs.task].T
            K += (P @ P.T) * same
        return K

    def _by_conjugate_gradients(self, metrics: list[TermMetric]) -> Supervised:
        whole = Stacked(self, metrics)
        return self._fit_together(whole, whole.weights)

    strategies = (
        Strategy("tasks on their own", "no term couples the tasks", _by_tasks, _is_decoupled),
        Strategy("dense, by observations", "few observations", _by_observations, _is_small),
        Strategy("conjugate gradients", "otherwise", _by_conjugate_gradients),
    )


class Stacked(BatchDesign):
    """All tasks and all terms in one batch element; the coefficients of the terms follow each other."""

    def __init__(self, side: TermSumSide, metrics: list[TermMetric]):
        self.problem, self.metrics, self.blocks, self.split = side.problem, metrics, side.blocks, side.terms.features_of
        zero = self.split(np.zeros((self.problem.n_features, self.problem.n_tasks)))
        self.shapes = [metric.adjoint(Z).shape for metric, Z in zip(metrics, zero, strict=True)]
        self.ends = np.cumsum([np.prod(shape) for shape in self.shapes])[:-1]

    def weights(self, coef: Array) -> Array:
        """The weights of all terms."""
        parts = zip(self.metrics, self.shapes, np.split(coef[0], self.ends), strict=True)
        return np.vstack([metric.weights(part.reshape(shape)) for metric, shape, part in parts])

    def start(self, u: Array) -> Array:
        Z = self.split(self.problem.correlate(u[0]))
        return np.concatenate([metric.adjoint(z).ravel() for metric, z in zip(self.metrics, Z, strict=True)])[None]

    def predict(self, coef: Array) -> Array:
        return self.problem.predict(self.weights(coef), np.zeros(self.problem.n_tasks))[None]

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        return iterative_direction_of_entries(
            self, h, intercepts, damping, max_residual=lambda rhs, *_: TUNING.relative_residual * float(np.linalg.norm(rhs))
        )
