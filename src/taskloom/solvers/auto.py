"""The choice of ``solver="auto"``, as a table; and solvers by name."""

from __future__ import annotations

from collections.abc import Callable

from .._component import resolve
from ..problem import Problem
from .alternating import Alternating
from .base import Solver
from .block_descent import Block
from .cluster_newton import ClusterNewton
from .factor.factored import Factored, copies_fit, newton_applies
from .proximal import Proximal
from .row_descent import RowDescent

MIN_TASKS_FOR_PROXIMAL = 50  # with fewer tasks and a nonsmooth loss, L-BFGS on a factor converges faster than proximal steps
MIN_LARGE_STRUCTURE = 300  # from this size on, a proximal step on the structure costs more than one on a factor

SOLVERS: list[type] = [Alternating, Block, Factored, Proximal]
DEPRECATED: dict[str, type] = {"projected": Factored, "reweighted": Factored, "low_rank": Factored, "smooth": ClusterNewton}


def as_solver(solver: str | Solver, problem: Problem) -> Solver:
    """The solver of this name; ``"auto"`` chooses by structure, loss and shape. Former names stand for their successors."""
    if not isinstance(solver, str):
        return resolve(solver, Solver, SOLVERS, "solver", also=["auto"])
    if solver == "auto":
        return choose(problem)
    return DEPRECATED[solver]() if solver in DEPRECATED else resolve(solver, Solver, SOLVERS, "solver", also=["auto"])


def choose(problem: Problem) -> Solver:
    """The solver of ``solver="auto"``: the first row of the table that fits.

    Newton's method, on the factor (trace) or on the weights (clusters), is the fastest where it applies: under the squared loss
    with any inputs (trace: benchmarks/fig1.py and shared_inputs.py) or with task-specific ones (clusters), and under other
    losses, smooth or not, with any inputs (benchmarks/losses.py). Otherwise proximal steps take the fewest iterations
    (benchmarks/core.py). L-BFGS on a factor needs no prox of the structure, which counts if the structure is large, and
    converges better to a low-rank optimum under a nonsmooth loss. Alternation needs a single step if ``A`` is known. Where the
    penalty is a sum of norms of rows and the inputs are shared, descent on one row after the other needs no structure at all.
    """
    for fits, solver in TABLE:
        if fits(problem):
            return solver()
    raise AssertionError("the last row fits every problem")


def alternatives(problem: Problem, solver: Solver) -> list[Solver]:
    """The solvers that ``"auto"`` tries where this one stalls, in turn; known structures take one step whatever the solver."""
    if problem.structure.known or not problem.structure.convex:
        return []
    others: list[Solver] = [each() for each in (Proximal, Alternating, Factored) if not isinstance(solver, each)]
    return [other for other in others if other.accepts(problem) is None]


def _has_task_factor(problem: Problem) -> bool:
    return problem.stacked().structure.task_factor


def _one_step_or_not_convex(problem: Problem) -> bool:
    structure = problem.stacked().structure
    return structure.known or not structure.convex


def _determined(problem: Problem) -> bool:
    """Whether only one structure is feasible: one coupled fit."""
    return problem.structure.is_singleton(problem.n_tasks)


def _newton_on_weights(problem: Problem) -> bool:
    own_inputs = problem.targets.shared_inputs is None
    return own_inputs and copies_fit(problem) and ClusterNewton().accepts(problem) is None


def _large_or_low_rank(problem: Problem) -> bool:
    structure = problem.stacked().structure
    if not structure.either_side:
        return False
    large = min(problem.n_tasks, problem.n_features) > MIN_LARGE_STRUCTURE
    return large or (structure.low_rank and not problem.loss.smooth and problem.n_tasks < MIN_TASKS_FOR_PROXIMAL)


TABLE: list[tuple[Callable[[Problem], bool], type]] = [
    (newton_applies, Factored),
    (lambda problem: RowDescent().accepts(problem) is None, RowDescent),
    (_has_task_factor, Factored),
    (_one_step_or_not_convex, Alternating),
    (_determined, Proximal),
    (_newton_on_weights, ClusterNewton),
    (_large_or_low_rank, Factored),
    (lambda _: True, Proximal),
]
