"""What ``solver="auto"`` runs."""

from __future__ import annotations

from ..problem import Problem
from .alternating import Alternating
from .base import Solver
from .factored import Factored
from .proximal import Proximal


def choose(problem: Problem) -> Solver:
    """Variable projection, with proximal steps on the structure or quasi-Newton steps on its factor; or one exact step.

    Proximal steps take the fewest iterations on smooth losses. A factor is cheaper when the structure is large, and it
    copes better with a low-rank optimum under a loss with kinks. Alternation is best where ``F`` keeps ``A`` well conditioned,
    and it is a single step where ``A`` is known. Measured in benchmarks/core.py.
    """
    structure = problem.structure
    if structure.known or structure.interior:
        return Alternating()
    if structure.either_side:
        large = min(problem.n_tasks, problem.n_features) > 300
        if large or (structure.low_rank and not problem.loss.smooth):
            return Factored()
    return Proximal()
