"""The unsupervised step of (S^delta), and when its barrier may fall."""

from __future__ import annotations

import numpy as np

from ..problem import Problem
from .supervised.sides import Side

Array = np.ndarray


class UnsupervisedStep:
    """``A <- argmin alpha tr(A^-1 (W'W + delta^2 I)) + F(A)``; ``delta`` is given, or tied to the gap.

    Tied to the gap, the barrier falls only once it is what keeps the gap open: at the minimum of (S^delta) the gap is
    about twice what the barrier adds. A barrier that falls earlier freezes directions that still have to turn, which is
    how alternation comes to stall. Structures that keep ``A`` away from singular need no barrier at all.
    """

    def __init__(self, problem: Problem, side: Side, delta: float | None):
        self.problem, self.side = problem, side
        self.tied = delta is None
        self.height = 0.0 if delta is None else delta**2
        self.wanted = self.tied and not (problem.structure.known or problem.structure.interior)

    def __call__(self, W: Array) -> Array:
        """The structure for these weights."""
        if self.wanted and self.height == 0.0:
            self.height = 1e-4 * float(np.vdot(W, W)) / self.side.dim
        root = np.sqrt(self.problem.alpha) * self.side.moment_root(W)
        return self.problem.structure.best_of_root(root, self.problem.alpha * self.height)[0]

    def cost(self, A: Array) -> float:
        """``alpha delta^2 tr(A^-1)``: what the barrier adds to the objective at ``A``."""
        if self.height == 0.0:
            return 0.0
        return self.problem.alpha * self.height * self.problem.structure.inverse_trace(A)

    def lower(self, A: Array, gap: float) -> bool:
        """Lower a tied barrier if it is time; True when it fell, for then the map of the iteration is another one."""
        if not self.wanted or gap > 3 * self.cost(A):
            return False
        self.height *= 0.2
        return True
