"""A problem whose tasks are on the workers of a cluster, under the squared loss and a spectral structure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..problem.evidence import Evidence
from ..problem.problem import scaled_bound
from ..problem.solution import Solution
from ..solvers.engine_run import RemoteProblem
from ..solvers.factor.lbfgs import LbfgsRun
from ..solvers.supervised.sides import ridged
from .dask_engine import DaskEngine, DaskTasks

Array = np.ndarray
MEMORY = 20  # past steps of L-BFGS


@dataclass(frozen=True, eq=False)
class ClusterPoint:
    """The tasks at a factor of the structure, and the penalty there."""

    tasks: DaskTasks
    Q: Array
    penalty: float


class ClusterProblem(RemoteProblem):
    """What the loop asks of any problem, from sums over the tasks.

    D(c) = 2 c <y, r> - c^2 (||r||^2 + ridge ||W||^2) - F*(c^2 Z1'Z1 / (4 alpha)),   r the residuals,  Z1 = 2 X'r - 2 ridge W
    """

    def __init__(self, engine: DaskEngine, structure: Any, alpha: float, ridge: float):
        self.engine, self.structure, self.alpha, self.ridge = engine, structure, alpha, ridge
        self.scale, self.rounding_floor = engine.target_squares, engine.rounding_floor

    def evidence(self, point: Any, tol: float = 0.0) -> Evidence:
        if point is None:
            objective, product, cost, correlations = self.scale, self.scale, self.scale, self.engine.correlations_at_zero
        else:
            tasks: DaskTasks = point.tasks
            (size, correlations), product = tasks.moments, tasks.minimum
            loss = product - self.alpha * tasks.squared_norm
            objective, cost = loss + point.penalty, loss + self.ridge * size
        return Evidence(point, objective, scaled_bound(2 * product, cost, self.structure.ray(correlations / (4 * self.alpha))))

    def settled(self, point: Any) -> tuple[Any, float]:
        """The same point: with the best structure for its weights, which are gathered for that, its objective is lower."""
        if point is None:
            return None, 0.0
        W = point.tasks.weights[0]
        penalty = self.structure.final_structure(np.sqrt(self.alpha) * W)[1] + self.ridge * float(np.vdot(W, W))
        return point, max(point.penalty - penalty, 0.0)

    def excess(self, solution: Solution, W: Array, b: Array, **_: Any) -> float:
        """The objective of weights close to those of a solution, minus the certified one."""
        penalty = self.structure.final_structure(np.sqrt(self.alpha) * W)[1] + self.ridge * float(np.vdot(W, W))
        return self.engine.loss(W, b) + penalty - solution.certificate.primal


class ClusterLbfgs(LbfgsRun):
    """L-BFGS on the factor, for a ridge and for structures other than the trace and Frobenius penalties."""

    def __init__(self, problem: ClusterProblem, start: Any):
        super().__init__(MEMORY)
        self.problem, self.structure = problem, problem.structure
        self.Q = self._first_factor(start)

    def _root(self, Q: Array) -> Array:
        """The factor with the ridge, for the tasks."""
        return ridged(self.structure.project_factor(Q), self.problem.ridge / self.problem.alpha)

    def _first_factor(self, start: Any) -> Array:
        """The best factor for starting weights or for independent tasks, with a small value in the other directions."""
        problem, engine = self.problem, self.problem.engine
        if isinstance(start, np.ndarray):
            return start
        weights = start
        if start is None:
            weights = engine.eliminate(ridged(np.eye(engine.n_features), problem.ridge / problem.alpha)).weight_spectrum()
        q = min(engine.n_features, engine.n_tasks)
        squared_norm = problem.alpha * np.maximum(weights.squares[-q:], 0.0)
        share = 1e-2 if start is None else 1e-4
        return weights.vectors[:, -q:] * np.sqrt(self.structure.f_best(squared_norm + share * squared_norm.mean() + 1e-300))

    def _evaluate(self, Q: Array) -> tuple[float, Array, DaskTasks]:
        problem, landed = self.problem, self.structure.project_factor(Q)
        tasks = problem.engine.eliminate(self._root(Q))
        value = tasks.minimum + self.structure.f(np.linalg.svd(landed, compute_uv=False) ** 2)
        gradient = self.structure.pull_back(Q, -tasks.moments[1] @ landed / (2 * problem.alpha))
        return value, gradient, tasks

    def _metric(self) -> Array:
        """The inverse of an approximate Hessian of ``h``.

        At an optimum under the trace penalty the second moments of ``b`` over the tasks are ``Q'Q / alpha``, so that it needs
        only the mean curvature of the tasks. It saves two iterations of three.
        """
        landed = self.structure.project_factor(self.Q)
        curvature = self.problem.engine.mean_size / self.problem.alpha
        return np.linalg.inv(0.4 * np.eye(self.Q.shape[1]) + curvature * (landed.T @ landed))

    @property
    def here(self) -> ClusterPoint:
        penalty = self.value - self.fit.minimum + self.problem.alpha * self.fit.squared_norm
        return ClusterPoint(self.fit, self.Q, penalty)
