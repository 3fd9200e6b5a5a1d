"""What ``solver="auto"`` runs."""

from __future__ import annotations

from ..problem import Problem
from .alternating import Alternating
from .base import Solver
from .factored import Factored
from .proximal import Proximal


def choose(problem: Problem) -> Solver:
    """Variable projection, with proximal steps on the structure or quasi-Newton steps on its factor; or one exact step.

    Proximal steps take the fewest iterations on smooth losses (benchmarks/core.py measures it for the squared loss). A factor
    has no prox of the whole structure to compute, which counts when the structure is large, and in trials it coped better
    with a low-rank optimum under a loss with kinks. Alternation needs a single step where ``A`` is known.
    """
    structure = problem.unfolded().structure
    if structure.task_factor:
        return Factored()
    if structure.known or not structure.convex:
        return Alternating()
    if structure.either_side:
        large = min(problem.n_tasks, problem.n_features) > 300
        if large or (structure.low_rank and not problem.loss.smooth):
            return Factored()
    return Proximal()
