"""Newton's method on the factor (``factor_newton``) for a problem with the squared loss and the trace penalty: the fastest way.

The first steps, and the directions of all, are computed in single precision, where units leave room for it. Where nothing moves
any more although the certificate asks for it, proximal steps take over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import issparse

from ...design.shared_inputs import SharedInputs
from ...design.task_data import Rows
from ...problem import Problem
from ...problem.solution import Start
from ...structures import Schatten
from ..base import Iterate, Run, Solver
from ..proximal import Proximal
from .newton import FactorNewton

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Projected(Solver):
    """Newton's method on the factor of the structure, with conjugate gradients; for the trace penalty and the squared loss.

    Parameters
    ----------
    forcing : float, default=0.1
        Conjugate gradients stop when the residual of the Newton system has fallen to this share.
    single : bool, default=True
        Whether the first steps, and the directions of all, are computed in single precision. They cost less; equal problems
        that are written differently (a row twice, or with weight 2) then end equal within the tolerance, not exactly.
    """

    forcing: float = 0.1
    single: bool = True

    def check(self) -> None:
        if not (0 < self.forcing < 1):
            raise ValueError(f"Projected needs 0 < forcing < 1, got forcing={self.forcing!r}")

    def accepts(self, problem: Problem) -> str | None:
        trace = isinstance(problem.structure, Schatten) and problem.structure.p == 1
        fits = trace and problem.loss.quadratic and problem.ridge == 0
        if fits and (not issparse(problem.features) or problem.targets.shared_inputs is not None):
            return None
        return (
            'solver="projected" needs Trace(), the squared loss, no ridge, and dense features or targets without gaps; '
            'use solver="auto"'
        )

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        return ProjectedRun(self, problem, start, tol)


class _ByTask:
    """Tasks with inputs of their own, or of a table with gaps: the structure sits on the features."""

    def __init__(self, problem: Problem, single: bool):
        design = problem.design
        self.data, spread = design.task_data
        self.rough = design.task_data_single if single else None
        self.spread = None if spread.even else spread
        self.means = design.means
        self.order = self.data[0].tasks if len(self.data) == 1 else np.concatenate([block.tasks for block in self.data])

    def inward(self, W: Array) -> Array:
        return W.T[self.order]

    def outward(self, Q: Array, B: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        """Weights and intercepts, and the factors of the weights."""
        ordered = np.empty_like(B)
        ordered[self.order] = B
        W, (mean, mean_y) = ordered @ Q.T, self.means
        return W.T, mean_y - np.einsum("rt,tr->t", mean, W), (Q, ordered)


class _ByRow:
    """Shared inputs in their eigenvectors: their rows are what tasks were, and the structure sits on the tasks."""

    rough = spread = None

    def __init__(self, inputs: SharedInputs):
        inputs.decompose()
        d = np.sqrt(np.maximum(inputs.k, 0.0))
        self.inputs, self.kept = inputs, d > 1e-10 * d.max()
        self.kept[np.argmax(d)] = True  # inputs of zero: a row has to be there
        d = d[self.kept]
        y = inputs.projected[self.kept] / np.where(d > 0, d, 1.0)[:, None]
        self.data = [Rows(d, y, np.sqrt(inputs.c))]

    def inward(self, W: Array) -> Array:
        return (W if self.inputs.V is None else self.inputs.V.T @ W)[self.kept]

    def outward(self, Q: Array, B: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        W = np.zeros((self.kept.size, len(Q)))
        W[self.kept] = B @ Q.T
        W = self.inputs.turned(W)
        return W, self.inputs.intercepts(W), (B, Q)


class ProjectedRun(Run):
    """Newton steps until they predict a decrease below the tolerance; a proximal step where the certificate disagrees."""

    def __init__(self, settings: Projected, problem: Problem, start: Start | None, tol: float):
        self.problem, self.tol = problem, tol
        shared = problem.targets.shared_inputs
        self.view = _ByTask(problem, settings.single) if shared is None else _ByRow(shared)
        view, begin = self.view, None if start is None else self.view.inward(start[0])
        self.walk = FactorNewton(
            view.data, problem.alpha, 1, problem.scale, tol, settings.forcing, begin, view.rough, view.spread
        )
        self.fallback: Run | None = None

    def retarget(self, problem: Problem) -> None:
        raise AssertionError("the squared loss is smooth: nothing smooths it anew")

    def step(self, gap: float) -> Iterate:
        if self.fallback is not None:
            return self.fallback.step(gap)
        first = not self.walk.refused  # a good start need not move; whether it is one is for the certificate to say
        moved = self.walk.advance()
        iterate = self._iterate()
        if not (moved or first):
            self.fallback = Proximal().begin(self.problem, Start(iterate.W, iterate.b), self.tol)
        return iterate

    def _iterate(self) -> Iterate:
        problem, here = self.problem, self.walk.here
        W, b, (left, right) = self.view.outward(here.Q.astype(float, copy=False), here.B.astype(float, copy=False))

        def settle() -> tuple[float, Array]:
            A, penalty = problem.structure.final_structure(np.sqrt(problem.alpha) * (np.linalg.qr(left, mode="r") @ right.T))
            return penalty, A

        z = problem.predict(W, b)
        gradients = problem.loss.gradient(problem.observations.y, z)
        Z = problem.correlate(-problem.observations.weight * gradients)
        return Iterate(W, b, z, gradients, penalty=here.penalty, Z=Z, settle=settle)
