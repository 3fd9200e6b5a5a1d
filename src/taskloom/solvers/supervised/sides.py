"""The supervised step on the two sides on which a structure may act (problems (U) and (T) of the paper).

Task side: ``A`` (``T x T``) couples the tasks, one system holds all observations. Feature side: ``D`` (``r x r``), and every
task is a separate small problem. A ridge changes the metric only: ``alpha A^-1 + ridge I`` is ``alpha`` times the inverse of
``A (I + ridge/alpha A)^-1``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy.sparse import issparse

from ..._array_api import times_transposed
from ..._linalg import compose, psd_eigh
from ...design import TaskBatch
from ...losses import RowLoss
from ...problem import Problem
from ...structures.factored_matrix import FactoredStructure
from .batched_newton import Batch, newton
from .coupled import Coupled, CoupledSquares, SlowConvergenceError, Tally, grams_pay
from .multiclass_newton import RowDesign, RowInputs
from .newton_systems import BatchDesign, DenseColumns, Gram, OneEach, OnePerTask, SparseColumns
from .task_elimination import TaskElimination

Array = np.ndarray
LARGE_SYSTEM = 300  # observations, from which the time of a dense system counts
BatchInputs: TypeAlias = Callable[[TaskBatch], Array | SparseColumns]


@dataclass(frozen=True)
class SideTuning:
    """The limits at which the supervised step takes another way."""

    min_features_for_tasks: int = 40  # with fewer features, the systems of single tasks are small
    max_dense_unknowns: int = 600  # of one dense system for all tasks
    max_dense_multiplications: float = 2e8  # to assemble it
    max_forced_observations: int = 1500  # in a dense system that is taken because conjugate gradients were slow,
    max_surrogate_steps: int = 30  # or because a smoothed piecewise loss took more Newton steps than this
    multiplications_per_cg_call: float = 5e5  # in the time of the function calls of one conjugate-gradient step
    min_narrow_ratio: int = 8  # of features to columns of a factor, from which sparse inputs times the factor are dense
    max_dense_sum_observations: int = 2000  # in the dense system of a sum of terms
    max_shared_unknowns: int = 4000  # of the system that is left when all tasks are eliminated
    max_multiplications_by_tasks: float = 1e9  # of the systems of tasks on their own that share most of their rows


@dataclass(eq=False)
class Supervised:
    """The fitted tasks at a metric: weights, intercepts, predictions, gradients of the loss, ``Z = Phi'G`` and the norm."""

    W: Array
    b: Array
    z: Array
    gradients: Array
    Z: Array
    norm: float  # alpha tr(A^+ W'W) + ridge ||W||^2
    steps: int = 0  # Newton steps of all tasks together

    def on_rows(self, problem: Problem) -> Supervised:
        """The fit with its predictions, which others have on demand only."""
        return self

    def loss_term(self, problem: Problem) -> float:
        return problem.loss_term(self.z)

    def gap(self, problem: Problem, A: Any) -> float:
        """An estimate of the duality gap with this structure that costs less than a certificate, where there is one."""
        return 0.0


@dataclass(frozen=True)
class Strategy:
    """One way to take the supervised step: where it applies (in words, and as a function), and the step."""

    name: str
    where: str
    step: Callable[[Any, Any], Any] = field(repr=False)
    applies: Callable[[Any, Any], bool] = field(repr=False, default=lambda *_: True)


def ridged(root: Any, rho: float) -> Any:
    """The root of ``D (I + rho D)^-1`` for ``D = root root'``; of a factored ``D``, that matrix."""
    if isinstance(root, FactoredStructure):
        return root.shrunk(rho)
    if rho == 0:
        return root
    d, V = psd_eigh(root.T @ root)
    return root @ compose(1 / np.sqrt(1 + rho * d), V)


def as_root(metric: Any) -> Array:
    """A root of a metric, which may be in factored form."""
    if not isinstance(metric, FactoredStructure):
        return metric
    return metric.L if not metric.own.any() else np.hstack([np.diag(np.sqrt(metric.own)), metric.L])


def tasks_pay(problem: Problem) -> bool:
    """Whether systems of single tasks take less time than passes over rows that most tasks share."""
    if issparse(problem.features) or isinstance(problem.loss, RowLoss) or problem.targets.shared_inputs is not None:
        return False
    counts, r = problem.observations.counts.astype(float), problem.n_features
    work = float((np.minimum(counts, r) * counts * r + np.minimum(counts, r) ** 3).sum())
    return not problem.inputs.mostly_observed or work <= Side.tuning.max_multiplications_by_tasks


class Side(ABC):
    """Common part of both sides: the choice of a strategy, warm starts and evaluation of a solution."""

    strategies: ClassVar[tuple[Strategy, ...]]  # the first that applies is taken; ``print(*Side.strategies, sep="\n")``
    tuning = SideTuning()
    dim: int  # the size of the structure that sits here
    bounds_near_structure = False  # whether numerical bounds on F* are computed near the current structure
    estimates = False  # whether its fits estimate their gap
    tolerance: float = 0.0  # how far above its minimum a large supervised step may stop

    def __init__(self, problem: Problem):
        self.problem = problem
        self.rho = problem.ridge / problem.alpha
        self.shared: Any = problem.targets.shared_inputs  # or None
        self._dual = np.zeros(problem.observations.y.size)
        self._W: Array | None = None
        self._b = problem.best_constants

    def plain_root(self) -> Any:
        """The root of the identity: independent tasks."""
        return np.eye(self.dim)

    @abstractmethod
    def moment_root(self, W: Array) -> Array:
        """``R`` with ``R'R`` the matrix on which the structure acts: ``W'W`` or ``WW'``."""

    def supervise(self, root: Any) -> Any:
        """The supervised step at the metric ``root root'``: a ``Supervised``, or what makes one by ``on_rows``."""
        L = self._with_ridge(root)
        for strategy in self.strategies:
            if strategy.applies(self, L):
                try:
                    return strategy.step(self, L)
                except SlowConvergenceError:  # the next ones are dense
                    continue
        raise AssertionError("the last strategy always applies")

    def has_shared_inputs(self, L: Any) -> bool:
        return self.shared is not None

    def has_row_loss(self, L: Any) -> bool:
        return isinstance(self.problem.loss, RowLoss)

    def _with_ridge(self, root: Any) -> Any:
        return ridged(root, self.rho)

    def _read(self, W: Array, b: Array, norm: float) -> Supervised:
        return self._hold(W, b, self.problem.predict(W, b), None, norm)

    def _hold(self, W: Array, b: Array, z: Array, Z: Array | None, norm: float) -> Supervised:
        """Store a solution whose predictions are known, and perhaps ``Z``."""
        gradients = self.problem.loss.gradient(self.problem.observations.y, z)
        self._dual, self._W, self._b = -self.problem.observations.weight * gradients, W, b
        return Supervised(W, b, z, gradients, self.problem.correlate(self._dual) if Z is None else Z, norm)

    def _fit_together(
        self,
        design: BatchDesign,
        weights: Callable[[Array], Array],
        other: Array | None = None,
        primal: Callable[[Array], Array] | None = None,
    ) -> Supervised:
        """All tasks in one batch element, from the better start if there are two; ``weights`` are ``W`` for coefficients.

        Where the coefficients of the design are dual ones, ``primal`` makes those that ``weights`` takes. The norm is theirs:
        ``u'Ku`` would lose its digits where ``K`` is large.
        """
        problem, obs = self.problem, self.problem.observations
        intercepts = OnePerTask(obs.task, problem.n_tasks) if problem.fit_intercept else None
        b = self._b[None] if problem.fit_intercept else np.zeros((1, 0))
        loss = problem.loss.pick(np.arange(obs.y.size)[None])
        batch = Batch(loss, obs.y[None], obs.weight[None], design, intercepts, design.tolerance)
        coef = design.start(self._dual[None])
        if other is not None and batch.value(other, b) < batch.value(coef, b):
            coef = other
        fit = newton(batch, coef, b)
        b = problem.loss.intercepts(fit.b[0]) if problem.fit_intercept else np.zeros(problem.n_tasks)
        coef = fit.coef if primal is None else primal(fit.coef)
        norm = fit.norm if primal is None else float(np.vdot(coef, coef)) / 2
        return replace(self._read(weights(coef), b, norm), steps=fit.steps)

    def _fit_rows(self, inputs: RowInputs, R: Array | None) -> Supervised:
        """All classes together, from the better of the last duals and the last weights."""
        design = RowDesign(inputs, R)
        return self._fit_together(design, design.weights, None if self._W is None else design.coefficients(self._W))

    def _fit_batches(self, batches: Sequence[TaskBatch], inputs: BatchInputs, width: int) -> tuple[Array, Array, float]:
        """Tasks on their own: coefficients (``width x T``), intercepts and the norm."""
        problem, obs = self.problem, self.problem.observations
        tolerance = self.tolerance / problem.n_tasks if problem.loss.quadratic else 0.0  # one step is exact up to rounding
        B, b, norm = np.zeros((width, problem.n_tasks)), np.zeros(problem.n_tasks), 0.0
        for batch in batches:
            X, place = inputs(batch), batch.place
            dual_form = not isinstance(X, SparseColumns) and X.shape[2] > X.shape[1]  # the smaller systems
            design = X if isinstance(X, SparseColumns) else Gram(X @ X.mT) if dual_form else DenseColumns(X)
            intercepts = OneEach(batch.mask.astype(float)) if problem.fit_intercept else None
            b0 = self._b[batch.tasks][:, None] if problem.fit_intercept else np.zeros((len(place), 0))
            part = Batch(problem.loss.pick(place), obs.y[place], obs.weight[place] * batch.mask, design, intercepts, tolerance)
            fit = newton(part, design.start(self._dual[place] * batch.mask), b0)
            coef = times_transposed(X, fit.coef) if dual_form else fit.coef
            B[:, batch.tasks] = coef.T
            norm += float(np.vdot(coef, coef)) / 2 if dual_form else fit.norm
            if problem.fit_intercept:
                b[batch.tasks] = fit.b[:, 0]
        return B, b, norm


class TaskSide(Side):
    """``root`` is ``T x q`` with ``A = root root'``.

    One dense system if it is small (in observations or in weights, whichever are fewer), else conjugate gradients.
    """

    bounds_near_structure = True

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.dim = problem.n_tasks
        self._force_dense = False
        self._tally: Tally | None = None
        self._Z: Array | None = None

    def moment_root(self, W: Array) -> Array:
        return W

    @cached_property
    def _row_inputs(self) -> RowInputs:
        return RowInputs(self.problem)

    @cached_property
    def _observation_gram(self) -> Array:
        phi = self.problem.features[self.problem.observations.row]
        return phi @ phi.T

    def _is_large(self, L: Array) -> bool:
        N, unknowns = self.problem.observations.y.size, self.problem.n_features * L.shape[1]
        work = N * unknowns**2 if unknowns <= N else N * N * (self.problem.n_features + L.shape[1] + N)
        large = min(N, unknowns) > self.tuning.max_dense_unknowns or work > self.tuning.max_dense_multiplications
        return large and not self._force_dense

    def _is_iterative(self, L: Array) -> bool:
        return self._is_large(L) or issparse(self.problem.features)

    def _is_iterative_and_squared(self, L: Array) -> bool:
        """If Gram matrices of the tasks would not be cheaper."""
        dense_squares = self.problem.loss.quadratic and not issparse(self.problem.features)
        return dense_squares and self._is_large(L) and not grams_pay(self.problem)

    def _has_fewer_weights(self, L: Array) -> bool:
        """Systems of the weights keep more digits at weak penalties; those of the observations are cheaper from ``N / 2``."""
        N = self.problem.observations.y.size
        cheaper = self._force_dense or N >= LARGE_SYSTEM
        return self.problem.n_features * L.shape[1] <= (N / 2 if cheaper else N)

    def _coupled(self, L: Array) -> Coupled:
        self._tally = self._tally or Tally(self._worth(L.shape[1]))
        return Coupled(self.problem, L, self.tolerance, self._tally)

    def _with_ridge(self, root: Any) -> Any:
        """In factored form only where the tasks are eliminated, which should leave fewer unknowns than observations."""
        A = super()._with_ridge(root)
        if not isinstance(A, FactoredStructure):
            return A
        left = self.problem.n_features * A.L.shape[1]
        few = left <= min(self.problem.observations.y.size, self.tuning.max_shared_unknowns)
        return A if few and tasks_pay(self.problem) else as_root(A)

    def _is_diagonal(self, A: Any) -> bool:
        return isinstance(A, FactoredStructure) and A.L.shape[1] == 0

    def _is_factored(self, A: Any) -> bool:
        return isinstance(A, FactoredStructure)

    def _in_closed_form(self, L: Array) -> Supervised:
        return self._read(*self.shared.on_tasks(L, self.problem.alpha))

    def _by_rows(self, L: Array) -> Supervised:
        return self._fit_rows(self._row_inputs, L / np.sqrt(2 * self.problem.alpha))

    def _by_tasks(self, A: FactoredStructure) -> Supervised:
        scale, inputs = np.sqrt(A.own / (2 * self.problem.alpha)), self.problem.inputs
        batches = self.problem.observations.grouping.batches
        B, b, norm = self._fit_batches(
            batches, lambda batch: inputs.take(batch) * scale[batch.tasks, None, None], inputs.n_features
        )
        return self._read(B * scale, b, norm)

    def _by_elimination(self, A: FactoredStructure) -> Supervised:
        design = TaskElimination(self.problem, A, self.tolerance)
        return self._fit_together(design, design.weights)

    def _by_normal_equations(self, L: Array) -> Supervised:
        fit = self._hold(*CoupledSquares(self._coupled(L)).solve(self._Z))
        self._Z = fit.Z
        return fit

    def _by_conjugate_gradients(self, L: Array) -> Supervised:
        design, surrogate = self._coupled(L), self.problem.loss.is_surrogate
        few = self.problem.observations.y.size <= self.tuning.max_forced_observations
        try:
            fit = self._fit_together(design, design.weights)
            if surrogate and few and self._is_large(L) and fit.steps > self.tuning.max_surrogate_steps:
                raise SlowConvergenceError  # Newton's method may not have arrived; dense systems have the interior-point method
        except SlowConvergenceError:
            self._force_dense = True
            raise
        return fit

    def _by_weights(self, L: Array) -> Supervised:
        phi, expanded = self.problem.features[self.problem.observations.row], self._expanded(L)
        pairs = (phi[:, :, None] * expanded[:, None, :]).reshape(1, len(phi), -1)
        unit = np.sqrt(2 * self.problem.alpha)
        return self._fit_together(DenseColumns(pairs), lambda coef: coef.reshape(phi.shape[1], -1) @ L.T / unit)

    def _by_observations(self, L: Array) -> Supervised:
        expanded, scaled = self._expanded(L), L / np.sqrt(2 * self.problem.alpha)
        design = Gram((self._observation_gram * (expanded @ expanded.T))[None])
        return self._fit_together(design, lambda B: B @ scaled.T, primal=lambda u: self.problem.correlate(u[0]) @ scaled)

    def _expanded(self, L: Array) -> Array:
        """The row of ``L / sqrt(2 alpha)`` that belongs to each observation."""
        return L[self.problem.observations.task] / np.sqrt(2 * self.problem.alpha)

    def _worth(self, q: int) -> float:
        """The number of iterations that take as long as half a dense system; ``inf`` if that is too large."""
        problem = self.problem
        N, n, r, T = problem.observations.y.size, problem.n_rows, problem.n_features, problem.n_tasks
        if self.tuning.max_forced_observations < N or issparse(problem.features):
            return np.inf
        dense = N * N * (N / 3 + r + q)
        iteration = 4 * r * (min(n * T, 4 * N) + q * q + r * q) + self.tuning.multiplications_per_cg_call
        return dense / 2 / iteration

    strategies = (
        Strategy("closed form", "squared loss, all tasks on the same rows", _in_closed_form, Side.has_shared_inputs),
        Strategy("rows", "a loss of whole rows", _by_rows, Side.has_row_loss),
        Strategy("tasks on their own", "a diagonal A, own inputs", _by_tasks, _is_diagonal),
        Strategy("elimination", "a diagonal and few columns make up A, own inputs", _by_elimination, _is_factored),
        Strategy("normal equations", "large or sparse, squared loss", _by_normal_equations, _is_iterative_and_squared),
        Strategy("conjugate gradients", "large or sparse, unless they were slow", _by_conjugate_gradients, _is_iterative),
        Strategy("dense, by weights", "fewer weights than observations", _by_weights, _has_fewer_weights),
        Strategy("dense, by observations", "otherwise", _by_observations),
    )


class FeatureSide(Side):
    """``root`` is ``r x q`` with ``D = root root'``; for structures that ignore zero eigenvalues.

    Tasks of similar size are solved in batches. Sparse features are handled one task at a time, so that the inputs of at most
    one task are dense, and only if they have few columns (far fewer than features) or few rows.
    """

    def __init__(self, problem: Problem):
        super().__init__(problem)
        self.dim = problem.n_features
        grouping = problem.observations.grouping
        self.batches = grouping.single_tasks if issparse(problem.features) else grouping.batches

    def moment_root(self, W: Array) -> Array:
        return W.T

    def _with_ridge(self, root: Any) -> Array:
        return super()._with_ridge(as_root(root))

    def _in_closed_form(self, Q: Array) -> Supervised:
        return self._read(*self.shared.on_features(Q, self.problem.alpha))

    def _by_rows(self, Q: Array) -> Supervised:
        return self._fit_rows(RowInputs(self.problem, Q / np.sqrt(2 * self.problem.alpha)), None)

    def _by_tasks(self, Q: Array) -> Supervised:
        scaled = Q / np.sqrt(2 * self.problem.alpha)
        sparse = issparse(self.problem.features)
        inputs = partial(self._sparse_inputs, scaled) if sparse else self.problem.inputs.times(scaled)
        B, b, norm = self._fit_batches(self.batches, inputs, Q.shape[1])
        return self._read(scaled @ B, b, norm)

    def _sparse_inputs(self, scaled: Array, batch: TaskBatch) -> Array | SparseColumns:
        """``Phi Q / sqrt(2 alpha)`` for a batch of one task, dense only if that is the smaller system."""
        (d, q), X = scaled.shape, self.problem.inputs.by_task[int(batch.tasks[0])][1]
        small = self.tuning.min_narrow_ratio * q <= d or X.shape[0] <= q
        return (X @ scaled)[None] if small else SparseColumns(X, scaled)

    strategies = (
        Strategy("closed form", "squared loss, all tasks on the same rows", _in_closed_form, Side.has_shared_inputs),
        Strategy("rows", "a loss of whole rows", _by_rows, Side.has_row_loss),
        Strategy("tasks on their own", "otherwise", _by_tasks),
    )
