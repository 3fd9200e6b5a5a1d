"""The supervised step on the two sides on which a structure may act (problems (U) and (T) of the paper).

Task side: ``A`` (``T x T``) couples the tasks, one system holds all observations. Feature side: ``D`` (``r x r``), and every
task is a separate small problem. A ridge changes the metric only: ``alpha A^-1 + ridge I`` is ``alpha`` times the inverse of
``A (I + ridge/alpha A)^-1``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from ..._linalg import compose, psd_eigh
from ...design import TaskBatch
from ...losses import RowLoss
from ...problem import Problem
from .batched_newton import Batch, Fit, newton
from .coupled import Coupled, CoupledSquares, SlowConvergenceError, Tally
from .multiclass_newton import RowInputs, row_fit
from .newton_systems import BatchDesign, DenseColumns, Gram, OneEach, OnePerTask, SparseColumns

Array = np.ndarray
FLOPS_PER_CG_CALL = 5e5  # multiplications in the time of the function calls of one conjugate-gradient iteration


@dataclass(eq=False)
class Supervised:
    """The fitted tasks at a metric: weights, intercepts, predictions, gradients of the loss, ``Z = Phi'G`` and the norm."""

    W: Array
    b: Array
    z: Array
    gradients: Array
    Z: Array
    norm: float  # alpha tr(A^+ W'W) + ridge ||W||^2


def ridged(root: Array, rho: float) -> Array:
    """The root of ``D (I + rho D)^-1`` for ``D = root root'``."""
    if rho == 0:
        return root
    d, V = psd_eigh(root.T @ root)
    return root @ compose(1 / np.sqrt(1 + rho * d), V)


class Side(ABC):
    """Common part of both sides: warm starts and evaluation of a solution."""

    dim: int  # the size of the structure that sits here
    bounds_near_structure = False  # whether numerical bounds on F* are computed near the current structure
    tolerance: float = 0.0  # how far above its minimum a large supervised step may stop

    def __init__(self, problem: Problem):
        self.problem = problem
        self.rho = problem.ridge / problem.alpha
        self.shared = problem.targets.shared_inputs
        self._dual = np.zeros(problem.observations.y.size)
        self._W: Array | None = None
        self._b = problem.best_constants

    def plain_root(self) -> Any:
        """The root of the identity: independent tasks."""
        return np.eye(self.dim)

    @abstractmethod
    def moment_root(self, W: Array) -> Array:
        """``R`` with ``R'R`` the matrix on which the structure acts: ``W'W`` or ``WW'``."""

    @abstractmethod
    def supervise(self, root: Any) -> Supervised:
        """The supervised step at the metric ``root root'``."""

    def _read(self, W: Array, b: Array, norm: float) -> Supervised:
        problem = self.problem
        z = problem.predict(W, b)
        gradients = problem.loss.gradient(problem.observations.y, z)
        dual = -problem.observations.weight * gradients
        self._dual, self._W, self._b = dual, W, b
        return Supervised(W, b, z, gradients, problem.correlate(dual), norm)


class TaskSide(Side):
    """``root`` is ``T x q`` with ``A = root root'``.

    One dense system if it is small (in observations or in weights, whichever are fewer), else conjugate gradients.
    """

    bounds_near_structure = True
    dense_limit: int = 600  # unknowns of the largest dense system
    work_limit: float = 2e8  # multiplications to assemble it
    max_newton_steps: int = 30  # under a smoothed piecewise loss; with more, the next systems are dense,
    forced_dense_limit: int = 1500  # up to this many observations

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.dim = problem.n_tasks
        self._gram: Array | None = None
        self._force_dense = False
        self._tally: Tally | None = None
        self._Z: Array | None = None
        self._row_inputs: RowInputs | None = None

    def moment_root(self, W: Array) -> Array:
        return W

    def supervise(self, root: Array) -> Supervised:
        problem = self.problem
        L = ridged(root, self.rho)
        if self.shared is not None:
            return self._read(*self.shared.on_tasks(L, problem.alpha))
        if isinstance(problem.loss, RowLoss):
            self._row_inputs = self._row_inputs or RowInputs.of(problem)
            return self._read(*row_fit(problem, None, L, self._dual, self._W, self._b, self._row_inputs))
        N, r, q = problem.observations.y.size, problem.n_features, L.shape[1]
        work = N * (r * q) ** 2 if r * q <= N else N * N * (r + q + N)
        large = min(N, r * q) > self.dense_limit or work > self.work_limit
        large = large and not self._force_dense
        if large or issparse(problem.features):
            self._tally = self._tally or self._worth(q)
            design: BatchDesign = (coupled := Coupled(problem, L, self.tolerance, self._tally))
            if (squares := CoupledSquares.of(coupled)) is not None:
                return self._hold(*squares.solve(self._Z))
        elif r * q <= (N / 2 if self._force_dense else N):
            phi = problem.features[problem.observations.row]
            design = DenseColumns((phi[:, :, None] * self._expanded(L)[:, None, :]).reshape(1, N, r * q))
        else:
            expanded = self._expanded(L)
            design = Gram((self._observation_gram() * (expanded @ expanded.T))[None])
        try:
            fit = self._newton(design)
        except SlowConvergenceError:
            self._force_dense = True
            return self.supervise(root)
        self._force_dense |= (
            large and problem.loss.is_surrogate and fit.steps > self.max_newton_steps and self.forced_dense_limit >= N
        )
        b = fit.b[0] if problem.fit_intercept else np.zeros(problem.n_tasks)
        if isinstance(design, Gram):
            W = (problem.correlate(fit.coef[0]) @ L) @ L.T / (2 * problem.alpha)
        else:
            W = fit.coef[0].reshape(r, q) @ L.T / np.sqrt(2 * problem.alpha)
        return self._read(W, b, fit.norm)

    def _worth(self, q: int) -> Tally | None:
        """The number of iterations that take as long as half a dense system; ``None`` if that is too large."""
        problem = self.problem
        N, n, r, T = problem.observations.y.size, problem.n_rows, problem.n_features, problem.n_tasks
        if self.forced_dense_limit < N or issparse(problem.features):
            return None
        dense = N * N * (N / 3 + r + q)
        iteration = 4 * r * (min(n * T, 4 * N) + q * q + r * q) + FLOPS_PER_CG_CALL
        return Tally(dense / 2 / iteration)

    def _hold(self, W: Array, b: Array, z: Array, Z: Array, norm: float) -> Supervised:
        """Store a solution whose predictions and ``Z`` are known."""
        gradients = self.problem.loss.gradient(self.problem.observations.y, z)
        self._W, self._b, self._Z, self._dual = W, b, Z, -self.problem.observations.weight * gradients
        return Supervised(W, b, z, gradients, Z, norm)

    def _expanded(self, L: Array) -> Array:
        """The row of ``L / sqrt(2 alpha)`` that belongs to each observation."""
        return L[self.problem.observations.task] / np.sqrt(2 * self.problem.alpha)

    def _observation_gram(self) -> Array:
        if self._gram is None:
            phi = self.problem.features[self.problem.observations.row]
            self._gram = phi @ phi.T
        return self._gram

    def _newton(self, design: BatchDesign) -> Fit:
        problem, obs = self.problem, self.problem.observations
        intercepts = OnePerTask(obs.task, problem.n_tasks) if problem.fit_intercept else None
        b = self._b[None] if problem.fit_intercept else np.zeros((1, 0))
        loss = problem.loss.pick(np.arange(obs.y.size)[None])
        tolerance = design.tolerance if isinstance(design, Coupled) else 0.0
        batch = Batch(loss, obs.y[None], obs.weight[None], design, intercepts, tolerance)
        return newton(batch, design.start(self._dual[None]), b)


def smaller(X: Array) -> DenseColumns | Gram:
    """The form of dense inputs (``B x m x q``) that makes the smaller systems."""
    return DenseColumns(X) if X.shape[2] <= X.shape[1] else Gram(np.matmul(X, X.transpose(0, 2, 1)))


class FeatureSide(Side):
    """``root`` is ``r x q`` with ``D = root root'``; for structures that ignore zero eigenvalues.

    Tasks of similar size are solved in batches. Sparse features are handled one task at a time, so that the inputs of at most
    one
    task are dense, and only if they have few columns (``narrow`` times fewer than features) or few rows.
    """

    narrow: int = 8

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.dim = problem.n_features
        grouping = problem.observations.grouping
        self.batches = grouping.single_tasks if issparse(problem.features) else grouping.batches

    def moment_root(self, W: Array) -> Array:
        return W.T

    def supervise(self, root: Array) -> Supervised:
        problem = self.problem
        Q = ridged(root, self.rho)
        if self.shared is not None:
            return self._read(*self.shared.on_features(Q, problem.alpha))
        if isinstance(problem.loss, RowLoss):
            return self._read(*row_fit(problem, Q, None, self._dual, self._W, self._b))
        inputs = self._sparse_inputs(Q) if issparse(problem.features) else self._dense_inputs(Q)
        B = np.zeros((Q.shape[1], problem.n_tasks))
        b = np.zeros(problem.n_tasks)
        norm = 0.0
        for batch in self.batches:
            fit, beta = self._solve_batch(batch, inputs(batch))
            norm += fit.norm
            B[:, batch.tasks] = beta.T
            if problem.fit_intercept:
                b[batch.tasks] = fit.b[:, 0]
        return self._read(Q @ B / np.sqrt(2 * problem.alpha), b, norm)

    def _dense_inputs(self, Q: Array) -> Callable[[TaskBatch], Array]:
        """For a batch, ``Phi Q / sqrt(2 alpha)`` (``B x m x q``)."""
        return self.problem.inputs.times(Q / np.sqrt(2 * self.problem.alpha))

    def _sparse_inputs(self, Q: Array) -> Callable[[TaskBatch], Array | SparseColumns]:
        """The same for a batch of one task, dense only if that is the smaller system."""
        d, q = Q.shape
        scaled = Q / np.sqrt(2 * self.problem.alpha)

        def inputs(batch: TaskBatch) -> Array | SparseColumns:
            X = self.problem.inputs.by_task[int(batch.tasks[0])][1]
            small = self.narrow * q <= d or X.shape[0] <= q
            return (X @ scaled)[None] if small else SparseColumns(X, scaled)

        return inputs

    def _solve_batch(self, batch: TaskBatch, X: Array | SparseColumns) -> tuple[Fit, Array]:
        problem, obs = self.problem, self.problem.observations
        place, mask = batch.place, batch.mask
        y, v, u = obs.y[place], obs.weight[place] * mask, self._dual[place] * mask
        design = X if isinstance(X, SparseColumns) else smaller(X)
        intercepts = OneEach(mask.astype(float)) if problem.fit_intercept else None
        b0 = self._b[batch.tasks][:, None] if problem.fit_intercept else np.zeros((len(y), 0))
        tolerance = self.tolerance / problem.n_tasks if problem.loss.quadratic else 0.0  # one step is exact up to rounding
        fit = newton(Batch(problem.loss.pick(place), y, v, design, intercepts, tolerance), design.start(u), b0)
        if isinstance(X, SparseColumns) or isinstance(design, DenseColumns):
            return fit, fit.coef
        return fit, np.einsum("bmq,bm->bq", X, fit.coef)
