"""What a point proves: an upper bound on the minimum (its objective) and a lower one (its dual candidate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .._time_limit import time_is_up
from ..structures.known import Rooted
from . import weak_penalty
from .dual_projection import project_dual_pair

if TYPE_CHECKING:
    from .problem import Problem
    from .solution import Solution

Array = np.ndarray
MAX_DUAL_PROJECTIONS = 2  # of one dual candidate
MAX_GAP_TO_PROJECT_AGAIN = 30  # multiple of the tolerance below which a second projection may close the gap


@dataclass(frozen=True, eq=False)
class Iterate:
    """A primal point: enough to evaluate the objective and to build a dual candidate.

    ``A`` is the current structure on the tasks; a numerical bound on ``F*`` is computed near it. ``penalty = alpha tr(A^+ W'W)
    + ridge ||W||^2 + F(A)`` is given if ``W`` belongs to the current structure; otherwise the best structure for ``W`` is
    computed. ``Z = Phi'G`` with ``G = -v gradients`` is given where it is known. ``factor`` holds the parameters of ``A`` for
    structures with a factor. ``norm`` is ``penalty`` without ``F(A)``, given for problems that are not convex. ``best_penalty``
    returns the penalty of the best structure for ``W`` and that structure, where there is a cheaper way than from ``W``.
    """

    W: Array
    b: Array
    z: Array
    gradients: Array
    A: Array | None = None
    penalty: float | None = None
    Z: Array | None = None
    factor: Array | None = None
    norm: float | None = None
    best_penalty: Callable[[], tuple[float, Array]] | None = None

    def objective(self, problem: Problem) -> float:
        """``J`` at this point, with the current structure or else the best one."""
        penalty = problem.best_penalty(self.W)[0] if self.penalty is None else self.penalty
        return problem.loss_term(self.z) + penalty

    def structure(self, problem: Problem) -> Any:
        """The structure that belongs to the penalty: the current one, or the best one for the weights."""
        return problem.best_penalty(self.W)[1] if self.A is None or self.penalty is None else self.A


class DualPoint(NamedTuple):
    """A dual candidate with ``Z = Phi'G``, the iterate that it was made from, and the ``c`` of its bound ``D(c G)``."""

    G: Array
    Z: Array
    iterate: Iterate | None = None
    scale: float = 1.0


class Evidence(NamedTuple):
    """Objective and dual bound of a point; ``dual_point`` attains the bound.

    ``last`` is the last candidate that was tried. ``stationarity`` takes the place of the bound if the problem is not convex.
    """

    point: Any
    primal: float
    dual: float = -np.inf
    dual_point: Any = None
    last: Any = None
    stationarity: float | None = None


def evidence(problem: Problem, point: Iterate, tol: float) -> Evidence:
    """What a point proves: its objective, and the bound of its dual candidate.

    Parameters
    ----------
    point : Iterate
        Weights, intercepts, predictions and gradients of the loss.
    tol : float
        The relative gap that is asked for: the dual candidate is projected while that may reach it.

    Returns
    -------
    Evidence
        Primal and dual values, and the dual point.
    """
    primal = point.objective(problem)
    if not problem.structure.convex:
        residual, candidate = stationarity(problem, point)
        return Evidence(point, primal, dual_point=candidate, stationarity=residual)
    G = problem.dual_candidate(point.gradients)
    Z = None if point.Z is None else problem.targets.shifted_correlations(point.gradients, G, point.Z)
    dual, best = -np.inf, None
    hurried = time_is_up()  # a projection may need decompositions
    for k in range(MAX_DUAL_PROJECTIONS):
        projected = projected_Z = None
        if Z is not None and not hurried:
            projected, projected_Z = project_dual_pair(problem, G, Z, point.W, lift=k == 0)
        if projected is not None:
            G, Z = projected, projected_Z
        elif best is not None:
            break
        Z = problem.correlate(G) if Z is None else Z
        bound, scale = problem.best_on_line(G, point.W, point.A, Z)
        if best is None or bound > dual:
            dual, best = bound, DualPoint(G, Z, point, scale)
        if projected is None or not tol < problem.relative(primal - dual) < MAX_GAP_TO_PROJECT_AGAIN * tol:
            break
    assert Z is not None
    assert best is not None
    gap = primal - dual
    if gap > tol * problem.scale and not hurried and weak_penalty.applies(problem, primal - problem.loss_term(point.z), gap):
        bound, candidate = _near_unpenalised(problem, best, point)
        if bound > dual:
            dual, best = bound, candidate
    return Evidence(point, primal, dual, best, DualPoint(G, Z, point))


def _near_unpenalised(problem: Problem, found: DualPoint, point: Iterate) -> tuple[float, DualPoint]:
    """The best bound on the line from a candidate to a close one of the problem without its penalty."""
    origin, left = weak_penalty.without_correlations(problem, found.G, found.Z)
    _, c = problem.best_on_line(found.G, point.W, point.A, found.Z - left, origin)
    G = problem.dual_candidate(-(origin + c * (found.G - origin)) / problem.observations.weight)
    Z = problem.correlate(G)
    bound, scale = problem.best_on_line(G, point.W, point.A, Z)
    return bound, DualPoint(G, Z, point, scale)


def evidence_of_constants(problem: Problem) -> Evidence:
    """The objective of the intercept-only model, without a bound.

    It is optimal at large ``alpha``. If the problem is not convex it may be stationary without being a minimum: it does not
    count then.

    Returns
    -------
    Evidence
        The point and its objective.
    """
    W, b, obs = np.zeros((problem.n_features, problem.n_tasks)), problem.best_constants, problem.observations
    z = b[obs.task]
    gradients = problem.loss.gradient(obs.y, z) if problem.loss.smooth else np.zeros(z.size)
    if not problem.structure.convex:
        return Evidence(Iterate(W, b, z, gradients), np.inf)
    penalty, A = problem.model.penalty_at_zero
    return Evidence(Iterate(W, b, z, gradients, A, penalty), problem.scale + penalty)


def settled(problem: Problem, point: Iterate) -> tuple[Iterate, float]:
    """The point with the best structure for its weights, unless that has no closed form.

    Parameters
    ----------
    point : Iterate
        The best point of a fit.

    Returns
    -------
    tuple of (Iterate, float)
        The point, and by how much its objective is lower.
    """
    held = None if point.penalty is None else point.A
    if held is not None and problem.structure.iterative:
        return point, 0.0
    penalty, A = problem.best_penalty(point.W) if point.best_penalty is None else point.best_penalty()
    before = problem.best_penalty(point.W)[0] if point.penalty is None else point.penalty
    if held is not None and penalty > before:
        return point, 0.0
    return replace(point, A=A, penalty=penalty), before - penalty


def excess(
    problem: Problem, solution: Solution, W: Array, b: Array, z: Array | None = None, root: Array | None = None
) -> float:
    """The objective of weights close to those of a solution, with the best structure for them, minus the certified one.

    Parameters
    ----------
    solution : Solution
        A solution of this problem.
    W : ndarray of shape (r, T)
        Weights, as the solution's but for rounding.
    b : ndarray of shape (T,)
        Intercepts.
    z : ndarray of shape (n_observations,), default=None
        Predictions, where they are not those of the weights.
    root : ndarray of shape (k, T), default=None
        What the penalty is computed from in place of ``W``: coefficients of inputs that are more than the features.

    Returns
    -------
    float
        The difference.
    """
    loss = problem.loss_term(problem.predict(W, b) if z is None else z)
    certified, structure, root = solution.certificate.primal, problem.structure, W if root is None else root
    if not structure.convex:  # the best structure is not known: that of the solution, which the weights hardly leave
        return loss - problem.loss_term(problem.predict(solution.W, solution.b))
    if structure.splits_weights:  # the first term takes the difference
        assert solution.terms is not None
        first, *others = solution.terms.weights
        return loss + problem.stacked().best_penalty(np.vstack([first + W - solution.W, *others]))[0] - certified
    if structure.iterative and not structure.is_sum:
        seen, A = problem.seen_by_structure(root), solution.A
        norm = problem.alpha * structure.squared_norm(seen, A) + problem.ridge * float(np.vdot(root, root))
        if np.isfinite(norm):
            return loss + norm + structure.value(A) - certified
    return loss + problem.best_penalty(root)[0] - certified


def stationarity(problem: Problem, point: Iterate) -> tuple[float, DualPoint]:
    """The stationarity residual of an iterate of a problem that is not convex, and the dual candidate of its tasks.

    At a fixed structure the tasks are a convex problem with its own dual: ``(J - D) / scale`` bounds their possible decrease,
    and its square root is the norm of the gradient of ``J`` in the weights, ``||dJ/dV|| / (2 sqrt(alpha scale))`` with
    ``W = VL'`` and ``A = LL'``. For the structure it is the norm of the gradient of the objective with the tasks eliminated,
    projected on the constraints. The residual is the larger of the two.
    """
    structure: Any = problem.structure
    assert point.A is not None
    assert point.norm is not None
    G = problem.dual_candidate(point.gradients)
    Z = problem.correlate(G)
    primal = problem.loss_term(point.z) + point.norm
    dual = problem.with_structure(Rooted(structure.root(point.A))).dual(G, point.W, Z=Z)
    gap = max(primal - dual, 4 * np.finfo(float).eps * abs(primal))
    Z1 = Z - 2 * problem.ridge * point.W
    unit = problem.targets.gradient_unit
    in_structure = structure.residual(point.A, Z1.T @ Z1 / (4 * problem.alpha), unit, point.factor)
    return max(float(np.sqrt(gap / unit)), in_structure), DualPoint(G, Z, point)
