"""Along the strength: where everything vanishes, and solutions warm-started from one strength to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from ..features import entries, to_dense
from ..losses import RowLoss
from ..problem import Problem
from ..problem.intercepts import balanced
from ..problem.solution import Solution, Start
from ..structures.base import Ray, Structure
from .base import Solver
from .smoothing import SmoothedProblem
from .solve import solve
from .supervised.sides import FeatureSide

Array = np.ndarray
NUMERIC_CONJUGATE_TOLERANCE = 1e-6  # accuracy of a numerical conjugate, relative to the loss of the intercept-only model


def alpha_max(problem: Problem) -> float:
    """The smallest strength at which everything vanishes; ``inf`` for structures under which nothing ever does.

    ``W = 0`` is optimal when ``F*(Z'Z / (4 alpha))`` is what it is at 0, with ``Z`` from the best constant predictor. That
    happens at a finite strength for ``Trace``, ``SchattenNorm`` and ``Sparse``. Losses with kinks have many dual solutions
    there; the one with the smallest ``||Z||`` is used, which gives a strength that is large enough, if not always smallest.
    Where ``F*`` is found numerically (custom penalties), "nothing" is what is worth less than a millionth of the loss.

    Parameters
    ----------
    problem : Problem
        The problem; its ``alpha`` does not matter.

    Returns
    -------
    float
        The strength.
    """
    problem = problem.stacked()
    structure = problem.structure
    if not structure.convex:
        instead, share = _convex_instead(problem)
        return alpha_max(instead) / share
    root = _root_at_zero(problem)
    size = float(np.vdot(root, root))
    if size == 0:
        return 0.0

    nothing = structure.ray_of_root(0 * root).conjugate(1.0)
    if _numeric(structure):
        conjugate, room = _found_along(structure, root, size), NUMERIC_CONJUGATE_TOLERANCE * problem.scale
    else:
        conjugate, room = lambda alpha: structure.ray_of_root(root / np.sqrt(alpha)).conjugate(1.0), 0.0

    def vanishes(alpha: float) -> bool:
        return conjugate(alpha) <= nothing + room

    high = size * 1e6
    if not vanishes(high):
        return np.inf
    low = high
    while vanishes(low):
        high, low = low, low / 4
    slow = structure.iterative or _numeric(structure)
    for _ in range(16 if slow else 60):  # a search is exact to a few digits where it barely succeeds
        middle = np.sqrt(low * high)
        low, high = (low, middle) if vanishes(middle) else (middle, high)
    return float(high)


def _numeric(structure: Structure) -> bool:
    """Whether nothing is known of ``F*`` but what gradients of ``F`` say, and no search of its own makes these good."""
    return bool(structure.proof) and not structure.iterative


def _found_along(structure: Structure, root: Array, size: float) -> Callable[[float], float]:
    """``alpha -> F*(R'R / alpha)`` where it is bounded numerically: what was found at one strength holds at all larger ones."""

    def ray(base: float) -> tuple[float, Ray]:
        R = root / np.sqrt(base)
        return base, structure.ray_of_root(
            R, structure.best_of_root(R)[0]
        )  # a structure in whose units gradients are looked for

    rays = [ray(base) for base in (size, 0.1 * size, 0.01 * size)]

    def conjugate(alpha: float) -> float:
        if alpha < size:
            rays.append(ray(alpha))
        return min(ray.conjugate(base / alpha) for base, ray in rays if base <= alpha)

    return conjugate


def strength_grid(problem: Problem, size: int = 30, decades: float = 5.0) -> Array:
    """Strengths to try, largest first: from where (almost) nothing is learned, downward in equal steps of the logarithm.

    The first is ``alpha_max`` where there is one. Under structures that never vanish it is the strength at which the duality
    gap of learning nothing is 1 % of the loss: no predictor lowers the objective by more than that.

    Parameters
    ----------
    problem : Problem
        The problem; its ``alpha`` does not matter.
    size : int, default=30
        The number of strengths.
    decades : float, default=5.0
        How many powers of ten they span.

    Returns
    -------
    ndarray of shape (size,)
        The strengths, in descending order.
    """
    if size < 1:
        raise ValueError(f"a grid needs at least one strength, got {size}")
    top = alpha_max(problem)
    if np.isinf(top) or _numeric(problem.structure):  # found numerically, "nothing" is known to a few digits only
        top = min(_little_to_learn(problem), top)
    return max(top, 1e-300) * np.logspace(0, -decades, size)


def _little_to_learn(problem: Problem, share: float = 0.01) -> float:
    """The strength at which ``F*(Z'Z / (4 alpha)) - F*(0)`` is a share of the loss of the best constant."""
    if not problem.structure.convex:
        instead, by = _convex_instead(problem)
        return _little_to_learn(instead, share) / by
    problem = problem.stacked()
    structure, root = problem.structure, _root_at_zero(problem)
    size = max(float(np.vdot(root, root)), 1e-100)
    if _numeric(structure):
        conjugate, nothing = _found_along(structure, root, size), structure.ray_of_root(0 * root).conjugate(1.0)
    elif structure.iterative:  # a bound found along a ray holds on all of it, and is tight at one place only: search at each
        S = root.T @ root
        start = structure.best_structure(0 * S)
        conjugate, nothing = lambda alpha: structure.conjugate(S / alpha, start), structure.conjugate(0 * S, start)
    else:
        along = structure.ray_of_root(root).conjugate
        conjugate, nothing = lambda alpha: along(1 / alpha), along(0.0)
    slow = _numeric(structure) or structure.iterative
    low, high = (1e-12 * size, 1e12 * size) if slow else (1e-100, 1e100)
    for _ in range(16 if slow else 200):
        middle = float(np.sqrt(low * high))
        worth = conjugate(middle) - nothing
        low, high = (middle, high) if worth > share * problem.scale else (low, middle)
    return high


def _root_at_zero(problem: Problem) -> Array:
    """``R`` with ``R'R = Z'Z / 4`` as the structure sees it, ``Z`` from the best constant predictor."""
    Z, structure = _correlations_at_zero(problem), problem.structure
    return (Z.T if structure.on_features or (structure.either_side and problem.n_features < problem.n_tasks) else Z) / 2


def _convex_instead(problem: Problem) -> tuple[Problem, float]:
    """The problem under a convex structure that learns at least as much from little, and the factor on ``alpha`` there."""
    structure: Any = problem.structure
    instead, share = structure.convex_bound()
    return problem.with_structure(instead), share


def _correlations_at_zero(problem: Problem) -> Array:
    """``Z`` at ``W = 0``: learn each task with a metric so small that nothing but the intercepts moves.

    So small that it may have a single direction: which one, nobody can tell.
    """
    Q = np.eye(problem.n_features, 1) * 1e-10 / max(float(np.abs(entries(problem.features)).max(initial=0.0)), 1e-150)
    if problem.loss.smooth:
        return FeatureSide(problem).supervise(Q).Z
    if not isinstance(problem.loss, RowLoss) and (gradients := least_gradients(problem)) is not None:
        return problem.correlate(-problem.observations.weight * gradients)
    kinks = SmoothedProblem(problem)
    fit = FeatureSide(kinks.problem).supervise(Q)
    for _ in range(50):
        kinks.renew(fit.gradients)
        fit = FeatureSide(kinks.problem).supervise(Q)
    return fit.Z


def path(problem: Problem, alphas: Iterable[float], solver: str | Solver = "auto", **options: Any) -> list[Solution]:
    """A certified solution for each strength, in the order given; each starts where the one before it ended.

    ``options`` are those of :func:`solve`. Ctrl-C ends the walk with a ``KeyboardInterrupt``.

    Parameters
    ----------
    problem : Problem
        The problem; its ``alpha`` does not matter.
    alphas : iterable of float
        The strengths, best in descending order.
    solver : str or Solver, default="auto"
        As in :func:`solve`.
    **options : object
        The other parameters of :func:`solve`.

    Returns
    -------
    list of Solution
        One for each strength.
    """
    start = options.pop("start", None)
    solutions: list[Solution] = []
    alphas = [float(alpha) for alpha in alphas]
    for k, alpha in enumerate(alphas):
        solutions.append(solve(problem.at(alpha), solver, start=start, **options))
        if solutions[-1].certificate.status == "interrupted":
            raise KeyboardInterrupt  # it was meant for the walk, not for one step of it
        if k + 1 < len(alphas):
            start = _ahead(solutions, alphas[: k + 2])
        solutions[-1] = replace(solutions[-1], basis=None)  # as large as the data, and of use to the next start alone
    return solutions


def _ahead(solutions: list[Solution], alphas: list[float]) -> Start:
    """Where the next solution should be, by extrapolation on the logarithmic scale; damped, for solutions are not exact.

    Two points give a line, three in equal steps a parabola.
    """
    last, steps = solutions[-1], np.diff(np.log(alphas[-4:]))
    W, b = last.W, last.b
    if last.terms is not None:
        return Start(np.vstack(last.terms.weights), b, last.length)
    if len(solutions) > 1 and np.any(solutions[-2].W) and steps[-2] != 0:
        share = min(max(steps[-1] / steps[-2], 0.0), 2.0)
        first = (last.W - solutions[-2].W, last.b - solutions[-2].b)
        W, b = W + 0.8 * share * first[0], b + 0.8 * share * first[1]
        if len(steps) == 3 and np.allclose(steps, steps[0], rtol=0.01):
            before = (solutions[-2].W - solutions[-3].W, solutions[-2].b - solutions[-3].b)
            W, b = W + 0.1 * first[0] + 0.5 * (first[0] - before[0]), b + 0.1 * first[1] + 0.5 * (first[1] - before[1])
    return Start(W, b, last.length, last.basis)


SUBGRADIENT_OFFSET = 1e-7  # distance from a nonsmooth point at which one-sided derivatives are taken, relative to the residuals
BALANCE_WEIGHT = 1e3  # weight of the equation that the gradients of a task add up to zero, relative to the others
MAX_NONSMOOTH_PER_TASK = 2000  # predictions of one task at nonsmooth points; a least-squares problem over more is too large


def least_gradients(problem: Problem) -> Array | None:
    """Of the gradients that make the best constants optimal, those whose ``Z`` is shortest; ``None`` where there are too many.

    Tasks are on their own here: least squares in a box, and with intercepts the gradients of a task add up to zero.
    """
    seen = problem.observations
    constants = problem.best_constants
    z = constants[seen.task]
    beside = SUBGRADIENT_OFFSET * SmoothedProblem(problem).width
    steep = problem.loss.smoothed(np.zeros(seen.y.size), 1e-2 * beside)  # nearly the loss itself, with a gradient everywhere
    lower, upper = steep.gradient(seen.y, z - beside), steep.gradient(seen.y, z + beside)
    free = upper - lower > 1e-6 * np.maximum(np.abs(lower), np.abs(upper))
    if seen.sum_by_task(free.astype(float)).max() > MAX_NONSMOOTH_PER_TASK:
        return None
    s = np.where(free, (lower + upper) / 2, lower)
    for t in np.flatnonzero(seen.sum_by_task(free.astype(float)) > 0):
        mine = slice(seen.starts[t], seen.starts[t + 1])
        rows = to_dense(problem.features[seen.row[mine]]) * seen.weight[mine, None]
        if problem.fit_intercept:
            rows = np.column_stack([rows, BALANCE_WEIGHT * seen.weight[mine] * np.abs(rows).max(initial=1e-300)])
        own = free[mine]
        fixed = -(s[mine] * ~own) @ rows
        found = lsq_linear(rows[own].T, fixed, (lower[mine][own], upper[mine][own]), tol=1e-12)
        s[mine][own] = found.x
    return balanced(seen, s, lower, upper) if problem.fit_intercept else s
