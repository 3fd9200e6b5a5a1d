"""Newton's method on the factor (``factor.newton``) for the squared loss and the trace penalty.

The first steps, and all directions, are computed in single precision if the range of the data allows it. If no step decreases
the objective although the gap is too large, proximal steps take over.
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


class TaskLayout:
    """Task-specific inputs, or a table with missing targets: the structure acts on the features."""

    def __init__(self, problem: Problem, single: bool):
        design = problem.design
        self.data, spectrum = design.task_data
        self.single_data = design.task_data_single if single else None
        self.spectrum = None if spectrum.even else spectrum
        self.means = design.means
        self.order = self.data[0].tasks if len(self.data) == 1 else np.concatenate([block.tasks for block in self.data])

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

    single_data = spectrum = None

    def __init__(self, inputs: SharedInputs):
        inputs.decompose()
        d = np.sqrt(np.maximum(inputs.k, 0.0))
        self.inputs, self.kept = inputs, d > 1e-10 * d.max()
        self.kept[np.argmax(d)] = True  # keep one row if all inputs are zero
        d = d[self.kept]
        y = inputs.projected[self.kept] / np.where(d > 0, d, 1.0)[:, None]
        self.data = [Rows(d, y, np.sqrt(inputs.c))]

    def to_inner(self, W: Array) -> Array:
        return (W if self.inputs.V is None else self.inputs.V.T @ W)[self.kept]

    def to_original(self, Q: Array, B: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        W = np.zeros((self.kept.size, len(Q)))
        W[self.kept] = B @ Q.T
        W = self.inputs.from_eigenbasis(W)
        return W, self.inputs.intercepts(W), (B, Q)


class ProjectedRun(Run):
    """Rounds of Newton steps, each followed by a certificate; proximal steps if a round changes nothing."""

    def __init__(self, settings: Projected, problem: Problem, start: Start | None, tol: float):
        self.problem, self.tol = problem, tol
        shared = problem.targets.shared_inputs
        self.layout = TaskLayout(problem, settings.single) if shared is None else EigenvectorLayout(shared)
        layout, begin = self.layout, None if start is None else self.layout.to_inner(start[0])
        self.newton = FactorNewton(
            layout.data, problem.alpha, 1, problem.scale, tol, settings.forcing, begin, layout.single_data, layout.spectrum
        )
        self.fallback: Run | None = None

    def retarget(self, problem: Problem) -> None:
        raise AssertionError("the squared loss needs no smoothing")

    def step(self, gap: float) -> Iterate:
        if self.fallback is not None:
            return self.fallback.step(gap)
        first = not self.newton.certified  # the certificate may accept the starting point
        moved = self.newton.advance()
        iterate = self._iterate()
        if not (moved or first):
            self.fallback = Proximal().begin(self.problem, Start(iterate.W, iterate.b), self.tol)
        return iterate

    def _iterate(self) -> Iterate:
        problem, here = self.problem, self.newton.here
        W, b, (left, right) = self.layout.to_original(here.Q.astype(float, copy=False), here.B.astype(float, copy=False))

        def best_penalty() -> tuple[float, Array]:
            A, penalty = problem.structure.final_structure(np.sqrt(problem.alpha) * (np.linalg.qr(left, mode="r") @ right.T))
            return penalty, A

        z = problem.predict(W, b)
        gradients = problem.loss.gradient(problem.observations.y, z)
        Z = problem.correlate(-problem.observations.weight * gradients)
        return Iterate(W, b, z, gradients, penalty=here.penalty, Z=Z, best_penalty=best_penalty)
