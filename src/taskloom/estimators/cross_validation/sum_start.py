"""Where a search over alpha begins: where learned terms vanish, known terms kept; without any, above the curvature of the loss.

A learned term is zero above some strength, and its score is the same everywhere there: a search that begins on that plateau
has nothing to climb. So the strength at its edge is computed, and the search scans from there down before it climbs.
"""

from __future__ import annotations

import numpy as np

from ...problem import Problem
from ...problem.term_problem import PosedTerm, problem_of_targets
from ...solvers import solve
from ...solvers.path import first_strength
from ..terms.prepared_sum import PreparedSum, rows_of

Array = np.ndarray
ABOVE_CURVATURE = 1e2  # from there down, where no term is learned
BELOW_LARGEST = 1e-8  # of the strength without known terms: noise is all that is left
ROUNDS = 8  # of known terms fitted at the strength where the learned ones vanished beside the last fit
BESIDE = 1e-6  # a kink, relative to the range of the targets
CLOSE = 0.1  # change of a strength in these rounds, relative; the scan is coarse


def first_alpha(data: PreparedSum) -> float:
    """The largest alpha of a scan."""
    learned = [q for q, term in enumerate(data.posed) if not (term.data.free or term.variable.structure.known)]
    return vanishing_alpha(data, learned) if learned else ABOVE_CURVATURE * curvature(data)


def curvature(data: PreparedSum) -> float:
    """Where the penalty is of the size of the curvature of a squared loss, for the term with the most weights."""
    sizes = [0 if term.data.free else term.data.r * term.data.p for term in data.posed]
    term = data.posed[int(np.argmax(sizes))]
    squares = float(data.seen.weight @ np.einsum("ij,ij->i", term.data.phi, term.data.phi))
    side = 1.0 if term.data.descriptors is None else float(np.mean(term.data.descriptors**2)) * term.data.p
    return max(squares * side / max(sizes), 1e-300)


def vanishing_alpha(data: PreparedSum, learned: list[int]) -> float:
    """The strength above which the learned terms are zero beside the known ones, which are fitted at that strength.

    Known terms explain the more the weaker the penalty, and leave the less: from the strength at which the learned terms
    vanish beside a constant, downward.
    """
    problem = data.problem(1.0)
    largest = alpha = max(_vanishing(problem, _of_constant(problem), learned), curvature(data) * BELOW_LARGEST)
    known = [term for q, term in enumerate(data.posed) if q not in learned]
    if not known:
        return alpha
    rows = rows_of(known, data.seen, data.model)
    for _ in range(ROUNDS):
        last, alpha = alpha, max(_vanishing(problem, _residuals(data, known, rows, alpha), learned), BELOW_LARGEST * largest)
        if abs(alpha - last) <= CLOSE * last:
            break
    return alpha


def _of_constant(problem: Problem) -> Array:
    """A dual point of the best constant; at a kink the mean of the slopes beside it."""
    obs, loss, z = problem.observations, problem.loss, np.full(problem.n_rows, float(problem.best_constants[0]))
    if loss.smooth:
        return -obs.weight * loss.gradient(obs.y, z)
    beside = BESIDE * max(float(np.ptp(obs.y)), 1e-300)
    return -obs.weight * (loss.value(obs.y, z + beside) - loss.value(obs.y, z - beside)) / (2 * beside)


def _residuals(data: PreparedSum, known: list[PosedTerm], rows: object, alpha: float) -> Array:
    """The dual point of a fit of the known terms alone."""
    model = data.model
    problem = problem_of_targets(rows, known, alpha, float(model.ridge))  # type: ignore[arg-type]
    return solve(problem, model.solver, tol=10 * model.tol, max_iter=model.max_iter).G


def _vanishing(problem: Problem, G: Array, learned: list[int]) -> float:
    """The largest strength at which one of the learned terms is zero for this dual point."""
    by_root = problem.structure.by_root(problem.correlate(G) / 2)  # type: ignore[attr-defined]
    return max(first_strength(structure, root, problem.scale) for structure, root in (by_root[q] for q in learned))
