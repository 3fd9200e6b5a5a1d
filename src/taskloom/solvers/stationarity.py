"""How nearly an iterate of a problem that is not convex is stationary: a dimensionless gradient in both variables.

At a given structure the tasks are a convex problem with a dual of its own: ``(J - D) / scale`` bounds what they could still
gain, and its square root is the norm of the gradient of ``J`` in the weights, ``||dJ/dV|| / (2 sqrt(alpha scale))`` with ``W =
VL'`` and ``A = LL'`` (for losses with kinks, of a gradient that is nearly one). In the structure it is the norm of the
gradient of the objective with the tasks eliminated, in the parameters of the structure and projected on their constraints.
Neither looks at how the solver stopped; neither says anything about other stationary points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..problem import Problem
from ..structures.known import Rooted
from .base import Iterate

Array = np.ndarray


def stationarity(problem: Problem, point: Iterate) -> tuple[float, Array]:
    """The larger of the two gradients, and the dual candidate of the tasks behind it."""
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
    return max(float(np.sqrt(gap / unit)), in_structure), G
