"""Block coordinate descent on the rows of the weights, for penalties that are a sum over rows of a norm.

    min_W  sum_t c_t ||y_t - X w_t||^2 + 2 sqrt(alpha) sum_j norm(W_j) + ridge ||W||^2

Most rows are zero at the optimum. So sweeps go over a working set: the rows that are not zero, and as many of the others whose
correlation with the residuals is largest. A certificate on all rows follows, which has these correlations for the next set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.blas import dger

from .._time_limit import check_time
from ..design.shared_inputs import DiagonalInputs
from ..problem import Problem
from ..problem.evidence import Iterate
from ..problem.solution import Start
from ..structures.terms import RowNorm
from .base import Run, Solver
from .proximal import Proximal

Array = np.ndarray


@dataclass(frozen=True)
class RowDescentTuning:
    """Constants of descent on rows."""

    min_working_set: int = 100
    growth: float = 1.3  # of the working set, as a multiple of the rows that are not zero
    sweeps: int = 5  # over the working set for each certificate
    slow_steps: int = 20  # in which the gap has to halve; else columns are so alike that other solvers are faster


TUNING = RowDescentTuning()


@dataclass(eq=False, repr=False)
class RowDescent(Solver):
    """Block coordinate descent on rows of the weights; for the squared loss, shared inputs, and norms of single rows."""

    def accepts(self, problem: Problem) -> str | None:
        problem = problem.stacked()
        norms, shared = row_norms(problem), problem.targets.shared_inputs
        if norms is not None and shared is not None and not isinstance(shared, DiagonalInputs):
            return None
        return "descent on rows needs the squared loss, inputs that all tasks share, and FeatureSelection or Dirty"

    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        return RowDescentRun(problem, start)


def row_norms(problem: Problem) -> list[tuple[slice, RowNorm]] | None:
    """The rows of the weights of each term and the norm of such a row; ``None`` unless the penalty is a sum over rows."""
    norms = [(term.columns, norm) for term in problem.terms if (norm := term.variable.row_norm) is not None]
    return norms if len(norms) == len(problem.terms) else None


class RowDescentRun(Run):
    """Weights, residuals (centred, one row for each row of the inputs) and correlations; the first step is the start."""

    def __init__(self, problem: Problem, start: Start | None):
        shared, norms = problem.targets.shared_inputs, row_norms(problem)
        assert shared is not None
        assert norms is not None
        self.problem, self.shared, self.norms = problem, shared, norms
        self.strength = 2 * np.sqrt(problem.alpha)
        self.W = np.zeros((problem.n_features, problem.n_tasks)) if start is None else start.W.copy()
        rows = np.flatnonzero(self.W.any(axis=1))
        self.residuals = np.asfortranarray(self.shared.residuals(self.W[rows], rows))  # which dger changes in place
        self.gaps: list[float] = []
        self.here = self._at()

    def step(self, gap: float | None) -> None:
        if gap is None:  # the first step
            return
        self.gaps.append(gap)
        if len(self.gaps) > TUNING.slow_steps and gap > 0.5 * self.gaps[-TUNING.slow_steps - 1]:
            self.successor = Proximal()
            return
        rows = self._working_set()
        columns = self.shared.columns(rows)
        curvatures = 2 * self.shared.c.max() * np.einsum("ji,ji->j", columns, columns)
        for _ in range(TUNING.sweeps):
            check_time()
            for term, norm in self.norms:
                inside = (rows >= term.start) & (rows < term.stop) & (curvatures > 0)
                self._sweep(rows[inside], columns[inside], curvatures[inside], norm)
        self.here = self._at()

    def _at(self) -> Iterate:
        problem, W = self.problem, self.W
        b = self.shared.intercepts(W)
        z = problem.predict(W, b)
        gradients = problem.loss.gradient(problem.observations.y, z)
        penalty = self.strength * float(np.sum([norm.value(W[term]) for term, norm in self.norms]))
        self.Z = problem.correlate(-problem.observations.weight * gradients)
        return Iterate(W.copy(), b, z, gradients, penalty=penalty + problem.ridge * float(np.vdot(W, W)), Z=self.Z)

    def _working_set(self) -> Array:
        """The rows that are not zero, and those that violate their condition of optimality the most."""
        excess = np.concatenate([norm.dual(self.Z[term]) for term, norm in self.norms])
        active = self.W.any(axis=1)
        size = max(TUNING.min_working_set, int(TUNING.growth * active.sum()))
        if size >= active.size:
            return np.arange(active.size)
        excess[active] = np.inf
        return np.sort(np.argpartition(excess, -size)[-size:])

    def _sweep(self, rows: Array, columns: Array, curvatures: Array, norm: RowNorm) -> None:
        """One pass of exact minimisation over some rows of one term (if tasks have one weight; else of a majorant)."""
        E, W, ridge = self.residuals, self.W, 2 * self.problem.ridge
        by_task, scale = E.T, 2 * self.shared.c
        for j, x, curvature in zip(rows.tolist(), columns, curvatures.tolist(), strict=True):
            w = W[j]
            new = norm.shrink(scale * (by_task @ x) + curvature * w, self.strength)
            new /= curvature + ridge
            change = new - w
            if np.count_nonzero(change):
                dger(-1.0, x, change, a=E, overwrite_a=1)
                W[j] = new
