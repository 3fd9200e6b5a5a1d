"""Along the strength: where everything vanishes, and solutions warm-started from one strength to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..problem import Problem
from ..solution import Solution
from .base import Solver
from .loop import solve
from .multipliers import Multipliers
from .sides import FeatureSide

Array = np.ndarray


def alpha_max(problem: Problem) -> float:
    """The smallest strength at which everything vanishes; ``inf`` for structures under which nothing ever does.

    ``W = 0`` is optimal when ``F*(Z'Z / (4 alpha))`` is what it is at 0, with ``Z`` from the best constant predictor. That
    happens at a finite strength for ``Trace``, ``SchattenNorm`` and ``Sparse``. Losses with kinks have many dual solutions
    there; the one with the smallest ``||Z||`` is used, which gives a strength that is large enough, if not always smallest.
    """
    structure = problem.structure
    Z = _correlations_at_zero(problem)
    if problem.structure.either_side and problem.n_features < problem.n_tasks:
        Z = Z.T
    S = Z.T @ Z / 4
    size = float(np.trace(S))
    if size == 0:
        return 0.0

    def vanishes(alpha: float) -> bool:
        return structure.conjugate(S / alpha) == structure.conjugate(0 * S)

    high = size * 1e6
    if not vanishes(high):
        return np.inf
    low = high
    while vanishes(low):
        high, low = low, low / 4
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if vanishes(middle) else (middle, high)
    return float(high)


def _correlations_at_zero(problem: Problem) -> Array:
    """``Z`` at ``W = 0``: learn each task with a metric so small that nothing but the intercepts moves."""
    tiny = 1e-10 / max(float(np.abs(problem.features).max(initial=0.0)), 1e-150)
    if problem.loss.smooth:
        return FeatureSide(problem).supervise(tiny * np.eye(problem.n_features)).Z
    kinks = Multipliers(problem)
    fit = FeatureSide(kinks.problem).supervise(tiny * np.eye(problem.n_features))
    for _ in range(50):
        kinks.renew(fit.slopes)
        fit = FeatureSide(kinks.problem).supervise(tiny * np.eye(problem.n_features))
    return fit.Z


def path(problem: Problem, alphas: Iterable[float], solver: str | Solver = "auto", **options: Any) -> list[Solution]:
    """A certified solution for each strength, in the order given; each starts where the one before it ended.

    ``options`` are those of :func:`solve`.
    """
    start = options.pop("start", None)
    solutions = []
    for alpha in alphas:
        solution = solve(problem.at(alpha), solver, start=start, **options)
        start = (solution.W, solution.b)
        solutions.append(solution)
    return solutions
