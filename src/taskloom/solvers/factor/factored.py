"""The solver on a factor of the structure: Newton's method where tasks can be eliminated, else limited-memory BFGS."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import issparse

from ..._array_api import double, row_products
from ...design.shared_inputs import SharedInputs
from ...design.table_with_gaps import TableWithGaps
from ...design.task_data import Rows
from ...engines.local import LocalEngine, WeightSpectrum
from ...losses import RowLoss, Squared
from ...problem import Problem, Targets
from ...problem.dual_projection import project_dual
from ...problem.evidence import Iterate
from ...problem.solution import Start
from ..base import Run, Solver
from ..proximal import Proximal
from .fitted_tasks import FittedEngine
from .lbfgs import FactorRun, LowRankRun
from .newton import TUNING, FactorNewton, NewtonTuning

Array = np.ndarray
MAX_COPIED_ENTRIES = 2e8  # entries of a copy of the inputs with one row for each observation
MAX_SYSTEM_ENTRIES = 3e7  # entries of the linear systems of all tasks
OTHER = NewtonTuning(
    forcing=0.05,
    certificate_interval=20,
    decrease_per_gap=0.05,
    max_step_share=1.0,
    max_dropped_gradient=0.9,
    max_dropped_column_ratio=np.inf,
    weak_penalty_share=0.0,
)


@dataclass(eq=False, repr=False)
class Factored(Solver):
    """Steps on a factor of the structure, with the tasks eliminated.

    Under ``Trace`` and a loss of single outputs these are Newton steps; under other functions of the nonzero eigenvalues, with
    a ridge, and for ``LowRank``, those of limited-memory BFGS.

    Parameters
    ----------
    memory : int, default=20
        Number of past steps that the quasi-Newton direction remembers.
    forcing : float, default=None
        Conjugate gradients stop when the residual of a Newton system has fallen to this share. By default 0.1 under the squared
        loss, where a product costs less, and 0.05 under others.
    single : bool, default=True
        Whether the first Newton steps under the squared loss, and the directions of all, are computed in single precision. They
        cost less; equal problems that are written differently (a row twice, or with weight 2) then end equal within the
        tolerance, not exactly.
    """

    memory: int = 20
    forcing: float | None = None
    single: bool = True

    def check(self) -> None:
        if self.memory < 1:
            raise ValueError(f"Factored needs memory >= 1, got memory={self.memory!r}")
        if self.forcing is not None and not 0 < self.forcing < 1:
            raise ValueError(f"Factored needs 0 < forcing < 1, got forcing={self.forcing!r}")

    def accepts(self, problem: Problem) -> str | None:
        if problem.structure.either_side or problem.structure.task_factor:
            return None
        name = type(problem.structure).__name__
        if problem.structure.on_features:
            return f'solver="factored" needs a structure of eigenvalues; for {name} use solver="proximal" or "auto"'
        return (
            f'solver="factored" needs a structure that ignores zero eigenvalues (trace, Schatten, unit trace, independent); '
            f'for {name} use solver="alternating" or "auto"'
        )

    def smoothing_schedule(self, problem: Problem) -> tuple[float, float]:
        return (0.1, 4.0) if newton_applies(problem) else (0.5, 3.0)

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        if problem.structure.task_factor:
            return LowRankRun(self.memory, problem, start)
        if not newton_applies(problem):
            return FactorRun(self.memory, problem, start)
        try:
            return (SquaredLossRun if problem.loss.quadratic else FittedTasksRun)(self, problem, start, tol)
        except np.linalg.LinAlgError:  # the systems are singular in double precision
            return Proximal().begin(problem, start, tol)


def newton_applies(problem: Problem) -> bool:
    """Whether tasks can be eliminated at a factor, and the inputs and systems of all tasks fit in memory."""
    if problem.structure.schatten_power != 1 or problem.ridge or problem.n_tasks < 2 or isinstance(problem.loss, RowLoss):
        return False
    if problem.loss.quadratic and problem.targets.shared_inputs is not None:
        return True
    if issparse(problem.features):
        return False
    if problem.loss.quadratic:
        return TableWithGaps.suits(problem.design) or copies_fit(problem)
    columns = max(40, min(problem.n_tasks, problem.n_features) // 2)
    return copies_fit(problem) and problem.n_tasks * columns**2 <= MAX_SYSTEM_ENTRIES


def copies_fit(problem: Problem) -> bool:
    """Whether a copy of the inputs with one row for each observation fits in memory."""
    return problem.observations.y.size * problem.n_features <= MAX_COPIED_ENTRIES


class TaskLayout:
    """Task-specific inputs, or a table with missing targets: the structure acts on the features."""

    def __init__(self, problem: Problem, single: bool):
        design = problem.design
        data, spectrum = design.task_data
        single_data = design.task_data_single if single else None
        self.engine = LocalEngine(data, problem.alpha, single_data, None if spectrum.even else spectrum)
        self.means = design.means
        self.order = data[0].tasks if len(data) == 1 else np.concatenate([block.tasks for block in data])

    def to_inner(self, W: Array) -> Array:
        return W.T[self.order]

    def to_original(self, Q: Array, B: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        """Weights, intercepts, and the factors of the weights."""
        ordered = np.empty_like(B)
        ordered[self.order] = B
        W, (mean, mean_y) = ordered @ Q.T, self.means
        return W.T, mean_y - np.einsum("rt,tr->t", mean, W), (Q, ordered)


class EigenvectorLayout:
    """Shared inputs along their eigenvectors: rows take the place of tasks, and the structure acts on the tasks."""

    def __init__(self, shared: SharedInputs, alpha: float):
        self.basis, inputs = shared.eigenbasis, shared.eigenbasis.diagonal
        self.to_inner = self.basis.to_inner
        self.engine = LocalEngine([Rows(inputs.d, inputs.targets, np.sqrt(inputs.c))], alpha)

    def to_original(self, Q: Array, B: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        return *self.basis.to_original(B @ Q.T), (B, Q)


class SquaredLossRun(FactorNewton):
    """Under the squared loss: the first steps, and all directions, in single precision if the range of the data allows it."""

    when_stuck = Proximal()

    def __init__(self, settings: Any, problem: Problem, start: Start | None, tol: float):
        self.problem, shared = problem, problem.targets.shared_inputs
        self.layout = TaskLayout(problem, settings.single) if shared is None else EigenvectorLayout(shared, problem.alpha)
        weights = None if start is None else WeightSpectrum.of(self.layout.to_inner(start[0]))
        tuning = replace(TUNING, forcing=settings.forcing or TUNING.forcing)
        super().__init__(self.layout.engine, problem.alpha, 1, problem.scale, tol, tuning, weights)

    def point(self) -> Iterate:
        problem, here = self.problem, self.here
        W, b, (left, right) = self.layout.to_original(double(here.Q), double(here.tasks.B))

        def best_penalty() -> tuple[float, Array]:
            A, penalty = problem.structure.final_structure(np.sqrt(problem.alpha) * (np.linalg.qr(left, mode="r") @ right.T))
            return penalty, A

        z = problem.predict(W, b)
        gradients = problem.loss.gradient(problem.observations.y, z)
        Z = problem.correlate(-problem.observations.weight * gradients)
        return Iterate(W, b, z, gradients, penalty=here.penalty, Z=Z, best_penalty=best_penalty)


class FittedTasksRun(FactorNewton):
    """Under other losses: the tasks are fitted by Newton's method at every factor, each from its last solution.

    The quadratic model of the loss at the current predictions, a weighted squared loss, serves for the dual projection.
    Nonsmooth losses are smoothed, and smoothed anew around their gradients after a few steps.
    """

    when_stuck = Proximal()
    engine: FittedEngine

    def __init__(self, settings: Any, problem: Problem, start: Start | None, tol: float):
        self.problem, engine = problem, FittedEngine(problem)
        weights = first = None
        if start is not None:
            W = start[0].T[engine.order]
            weights, first = WeightSpectrum.of(W), (W, start[1][engine.order] + row_products(engine.mean, W))
        self.last, self.idle = np.inf, 0
        super().__init__(
            engine,
            problem.alpha,
            1,
            problem.scale,
            tol,
            replace(OTHER, forcing=settings.forcing or OTHER.forcing),
            weights,
            first,
        )

    def retarget(self, problem: Problem) -> None:
        self.problem = self.engine.problem = problem
        self.last, self.idle, self.finished = np.inf, 0, None
        self.here = self._at(self.here.Q)

    def step(self, gap: float | None) -> None:
        if gap is not None:
            self.idle = self.idle + 1 if gap > 0.5 * self.last else 0
            self.last = gap
        if self.begun:
            self.engine.accuracy = 0.1 * self.here.predicted_decrease
        try:
            super().step(gap)
        except np.linalg.LinAlgError:
            self.successor = self.when_stuck
        if self.idle == self.tuning.max_stalled_certificates:
            self.successor = self.when_stuck

    def _model(self, z: Array) -> Problem | None:
        """The squared loss that equals the loss at the current predictions to second order; ``None`` without curvature."""
        problem, obs = self.problem, self.problem.observations
        h = np.maximum(
            problem.loss.curvature(obs.y, z), self.tuning.min_model_curvature_share * problem.loss.majorant(obs.y, z)
        )
        if not np.all(h > 0):
            return None
        target = z - problem.loss.gradient(obs.y, z) / h
        design = problem.design.with_observations(obs.with_targets(target, obs.weight * h / 2))
        return problem.with_targets(Targets(design, Squared()))

    def point(self) -> Iterate:
        problem, obs, tasks, engine = self.problem, self.problem.observations, self.here.tasks, self.engine
        W, b = np.empty_like(tasks.W), np.empty_like(tasks.c)
        W[engine.order], b[engine.order] = tasks.W, tasks.c - row_products(engine.mean, tasks.W)
        z = tasks.by_observation(lambda part: part.z, obs.y.size)
        gradients = problem.loss.gradient(obs.y, z)
        G = problem.dual_candidate(gradients)
        model = self._model(z)
        projected = None if model is None else project_dual(model, G, problem.correlate(G), W.T, prepare=False)
        return Iterate(W.T, b, z, gradients if projected is None else -projected / obs.weight, penalty=self.here.penalty)
