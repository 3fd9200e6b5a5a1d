"""What ``solver="auto"`` runs."""

from __future__ import annotations

from ..design.table_with_gaps import TableWithGaps
from ..problem import Problem
from ..structures import Clusters
from .alternating import Alternating
from .base import Solver
from .cluster_newton import Smooth
from .factor.factored import Factored
from .factor.projected import Projected
from .factor.reweighted import Reweighted
from .proximal import Proximal

COPY = 2e8  # the most numbers that a copy of the inputs, one block for each task, may hold
SYSTEMS = 3e7  # the most numbers that the systems of all tasks may hold
FEW = 50  # tasks, below which a factor copes better with kinks than the structure does


def choose(problem: Problem) -> Solver:
    """Variable projection, with Newton, proximal or quasi-Newton steps on the structure or its factor; or one exact step.

    Newton's method, on the factor (trace) or on the weights (clusters), is the fastest by far where it applies: under the
    squared loss on any inputs (trace: benchmarks/fig1.py and shared_inputs.py), or on those that tasks do not share (clusters);
    under other losses, and with kinks, on any inputs (benchmarks/losses.py).

    Proximal steps take the fewest iterations on smooth losses (benchmarks/core.py measures it for the squared loss). A factor
    has no prox of the whole structure to compute, which counts when the structure is large, and in trials it coped better
    with a low-rank optimum under a loss with kinks. Alternation needs a single step where ``A`` is known.
    """
    structure = problem.stacked().structure
    if structure.task_factor:
        return Factored()
    if structure.known or not structure.convex:
        return Alternating()
    if isinstance(structure, Clusters) and structure.is_singleton(problem.n_tasks):
        return Proximal()  # one coupled fit
    shared, several = problem.targets.shared_inputs is not None, problem.n_tasks > 1
    if (
        several
        and (shared or TableWithGaps.suits(problem.design) or _copies_fit(problem))
        and Projected().accepts(problem) is None
    ):
        return Projected()
    if not shared and _copies_fit(problem) and Smooth().accepts(problem) is None:
        return Smooth()
    if _models_pay(problem):
        return Reweighted()
    if structure.either_side:
        large = min(problem.n_tasks, problem.n_features) > 300
        if large or (structure.low_rank and not problem.loss.smooth and problem.n_tasks < FEW):
            return Factored()
    return Proximal()


def _copies_fit(problem: Problem) -> bool:
    """Whether there is room for the inputs once for each observation: where tasks share rows but see different ones."""
    return problem.observations.y.size * problem.n_features <= COPY


def _models_pay(problem: Problem) -> bool:
    """Whether Newton's method on the factor has room for the inputs and for the systems of the tasks."""
    if problem.n_tasks < 2 or problem.loss.quadratic or Reweighted().accepts(problem) is not None:
        return False
    columns = max(40, min(problem.n_tasks, problem.n_features) // 2)
    return _copies_fit(problem) and problem.n_tasks * columns**2 <= SYSTEMS
