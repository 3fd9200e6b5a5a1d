"""Regularisation paths: the smallest strength at which all weights vanish, grids, and warm-started solutions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from ..features.kernels import entries, to_dense
from ..losses import RowLoss
from ..problem import Problem
from ..problem.intercepts import balanced
from ..problem.solution import Solution, Start
from ..structures.base import Ray, Structure
from .base import Solver
from .reformulations.smoothing import Smoothing
from .solve import solve
from .supervised.sides import FeatureSide

Array = np.ndarray


@dataclass(frozen=True)
class PathTuning:
    """Constants of strengths at which weights vanish."""

    numeric_conjugate_tolerance: float = 1e-6  # of a numerical conjugate, relative to the loss of the intercept-only model
    subgradient_offset: float = 1e-7  # from a nonsmooth point to one-sided derivatives, relative to the residuals
    balance_weight: float = 1e3  # weight of the equation that the gradients of a task add up to zero, relative to the others
    max_nonsmooth_per_task: int = 2000  # predictions of a task at nonsmooth points; least squares over more are too large


TUNING = PathTuning()


def alpha_max(problem: Problem) -> float:
    """The smallest regularisation strength at which all weights are zero; ``inf`` if there is none.

    ``W = 0`` is optimal if ``F*(Z'Z / (4 alpha)) = F*(0)``, with ``Z`` from the intercept-only model. That happens at a finite
    strength for ``Trace``, ``SchattenNorm`` and ``Sparse``. Nonsmooth losses have many subgradients there; the one with the
    smallest ``||Z||`` is used, which gives an upper bound that is usually tight. If ``F*`` is computed numerically (custom
    penalties), weights count as zero if they lower the objective by less than a millionth of the loss.

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
        convex, share = _convex_majorant(problem)
        return alpha_max(convex) / share
    return _vanishing_strength(structure, _root_at_zero(problem), problem.scale)


def _vanishing_strength(structure: Structure, root: Array, scale: float) -> float:
    """The smallest strength at which ``F*(R'R / alpha) = F*(0)``; ``inf`` if there is none."""
    size = float(np.vdot(root, root))
    if size == 0:
        return 0.0

    at_zero = structure.ray_of_root(0 * root).conjugate(1.0)
    if _numeric(structure):
        conjugate, tolerance = _numeric_conjugate_along(structure, root, size), TUNING.numeric_conjugate_tolerance * scale
    else:
        conjugate, tolerance = lambda alpha: structure.ray_of_root(root / np.sqrt(alpha)).conjugate(1.0), 0.0

    def vanishes(alpha: float) -> bool:
        return conjugate(alpha) <= at_zero + tolerance

    high = size * 1e6
    if not vanishes(high):
        return np.inf
    low = high
    while vanishes(low):
        high, low = low, low / 4
    numeric = structure.iterative or _numeric(structure)
    for _ in range(16 if numeric else 60):  # numerical bounds have a few digits only
        middle = np.sqrt(low * high)
        low, high = (low, middle) if vanishes(middle) else (middle, high)
    return float(high)


def _numeric(structure: Structure) -> bool:
    """Whether ``F*`` is bounded numerically from gradients of ``F``."""
    return bool(structure.proof) and not structure.iterative


def _numeric_conjugate_along(structure: Structure, root: Array, size: float) -> Callable[[float], float]:
    """``alpha -> F*(R'R / alpha)`` for a numerical bound; a bound found at one strength holds at all larger ones."""

    def ray(base: float) -> tuple[float, Ray]:
        R = root / np.sqrt(base)
        return base, structure.ray_of_root(R, structure.best_of_root(R)[0])

    rays = [ray(base) for base in (size, 0.1 * size, 0.01 * size)]

    def conjugate(alpha: float) -> float:
        if alpha < size:
            rays.append(ray(alpha))
        return min(ray.conjugate(base / alpha) for base, ray in rays if base <= alpha)

    return conjugate


def strength_grid(problem: Problem, size: int = 30, decades: float = 5.0) -> Array:
    """Regularisation strengths in descending order, equally spaced on a logarithmic scale.

    The first is ``alpha_max`` if that is finite. Otherwise it is the strength at which the duality gap of the intercept-only
    model is 1 % of its loss: no predictor lowers the objective by more than that.

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
    problem, share = problem.stacked(), 1.0
    if not problem.structure.convex:
        convex, share = _convex_majorant(problem)
        problem = convex.stacked()
    top = first_strength(problem.structure, _root_at_zero(problem), problem.scale) / share
    return max(top, 1e-300) * np.logspace(0, -decades, size)


def first_strength(structure: Structure, root: Array, scale: float) -> float:
    """Where a grid begins: the weights vanish there, or lower the objective by 1 % of the loss at most.

    Parameters
    ----------
    structure : Structure
        A convex structure.
    root : ndarray
        ``R`` with ``R'R = Z'Z / 4`` on the side of the structure, where the weights are zero.
    scale : float
        The loss of the intercept-only model.

    Returns
    -------
    float
        The strength.
    """
    top = _vanishing_strength(structure, root, scale)
    if np.isinf(top) or _numeric(structure):  # a numerical bound is known to a few digits only
        top = min(_strength_of_small_gain(structure, root, scale), top)
    return top


def _strength_of_small_gain(structure: Structure, root: Array, scale: float, share: float = 0.01) -> float:
    """The strength at which ``F*(R'R / alpha) - F*(0)`` is a share of the loss of the intercept-only model."""
    size = max(float(np.vdot(root, root)), 1e-100)
    if _numeric(structure):
        conjugate, at_zero = _numeric_conjugate_along(structure, root, size), structure.ray_of_root(0 * root).conjugate(1.0)
    elif structure.iterative:  # a bound along a ray is tight at one point only
        S = root.T @ root
        start = structure.best_structure(0 * S)
        conjugate, at_zero = lambda alpha: structure.conjugate(S / alpha, start), structure.conjugate(0 * S, start)
    else:
        along = structure.ray_of_root(root).conjugate
        conjugate, at_zero = lambda alpha: along(1 / alpha), along(0.0)
    numeric = _numeric(structure) or structure.iterative
    low, high = (1e-12 * size, 1e12 * size) if numeric else (1e-100, 1e100)
    for _ in range(16 if numeric else 200):
        middle = float(np.sqrt(low * high))
        worth = conjugate(middle) - at_zero
        low, high = (middle, high) if worth > share * scale else (low, middle)
    return high


def _root_at_zero(problem: Problem) -> Array:
    """``R`` with ``R'R = Z'Z / 4`` on the side of the structure, ``Z`` at the intercept-only model."""
    Z, structure = _correlations_at_zero(problem), problem.structure
    return (Z.T if structure.on_features or (structure.either_side and problem.n_features < problem.n_tasks) else Z) / 2


def _convex_majorant(problem: Problem) -> tuple[Problem, float]:
    """The problem under a convex structure with weaker shrinkage of small weights, and its factor on ``alpha``."""
    structure: Any = problem.structure
    convex, share = structure.convex_bound()
    return problem.with_structure(convex), share


def _correlations_at_zero(problem: Problem) -> Array:
    """``Z`` at ``W = 0``: fit the intercepts, with a metric (of rank one) so small that the weights stay at zero."""
    Q = np.eye(problem.n_features, 1) * 1e-10 / max(float(np.abs(entries(problem.features)).max(initial=0.0)), 1e-150)
    if problem.loss.smooth:
        return FeatureSide(problem).supervise(Q).Z
    if not isinstance(problem.loss, RowLoss) and (gradients := least_gradients(problem)) is not None:
        return problem.correlate(-problem.observations.weight * gradients)
    smoothing = Smoothing()
    fit = FeatureSide(smoothing.apply(problem)).supervise(Q)
    for _ in range(50):
        smoothing.recenter(fit.gradients)
        fit = FeatureSide(smoothing.problem).supervise(Q)
    return fit.Z


def path(problem: Problem, alphas: Iterable[float], solver: str | Solver = "auto", **options: Any) -> list[Solution]:
    """A certified solution for each strength, in the order given; each starts where the one before it ended.

    ``options`` are those of :func:`solve`. Ctrl-C ends the path with a ``KeyboardInterrupt``.

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
            raise KeyboardInterrupt  # it ends the path, not one solution
        if k + 1 < len(alphas):
            start = _extrapolated(solutions, alphas[: k + 2])
        solutions[-1] = replace(solutions[-1], basis=None, Z=None)  # large, and used by the next warm start only
    return solutions


def _extrapolated(solutions: list[Solution], alphas: list[float]) -> Start:
    """The predicted next solution, by damped extrapolation in ``log(alpha)``: linear, or quadratic for equal steps."""
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


def least_gradients(problem: Problem) -> Array | None:
    """Of all subgradients at the intercept-only model, those with the smallest ``||Z||``; ``None`` if there are too many.

    For each task this is bounded least squares; with intercepts the gradients of a task add up to zero.
    """
    obs = problem.observations
    constants = problem.best_constants
    z = constants[obs.task]
    smoothing = Smoothing()
    smoothing.apply(problem)
    beside = TUNING.subgradient_offset * smoothing.width
    steep = problem.loss.smoothed(np.zeros(obs.y.size), 1e-2 * beside)  # almost the loss itself
    lower, upper = steep.gradient(obs.y, z - beside), steep.gradient(obs.y, z + beside)
    free = upper - lower > 1e-6 * np.maximum(np.abs(lower), np.abs(upper))
    if obs.sum_by_task(free.astype(float)).max() > TUNING.max_nonsmooth_per_task:
        return None
    s = np.where(free, (lower + upper) / 2, lower)
    for t in np.flatnonzero(obs.sum_by_task(free.astype(float)) > 0):
        mine = slice(obs.starts[t], obs.starts[t + 1])
        rows = to_dense(problem.features[obs.row[mine]]) * obs.weight[mine, None]
        if problem.fit_intercept:
            rows = np.column_stack([rows, TUNING.balance_weight * obs.weight[mine] * np.abs(rows).max(initial=1e-300)])
        own = free[mine]
        fixed = -(s[mine] * ~own) @ rows
        found = lsq_linear(rows[own].T, fixed, (lower[mine][own], upper[mine][own]), tol=1e-12)
        s[mine][own] = found.x
    return balanced(obs, s, lower, upper) if problem.fit_intercept else s
