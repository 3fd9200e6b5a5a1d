"""The weights eliminated: shared inputs in their eigenvectors, as a function of the structure alone.

With ``y_i`` the rows of the targets in the eigenvectors of the features (``Eigenbasis``), ``k_i`` the eigenvalues and no ridge,

    h(A) = sum_i alpha y_i' (k_i A + alpha I)^-1 y_i,     grad h(A) = -Z'Z / (4 alpha),     W = ZA / (2 alpha),

so that a move on the structure needs one product with the targets and one of their Gram matrices; weights, predictions and
dual candidates can wait until they are asked for. With ``S = -grad h(A)`` the duality gap is ``F(A) + F*(S) - <A, S>``.
"""

from __future__ import annotations

import numpy as np

from ..._linalg import symmetric
from ...design.eigenbasis import DiagonalInputs
from ...problem import Problem
from ..supervised.sides import Side, TaskSide

Array = np.ndarray
RANGE = 1e-14  # eigenvalues below this share of the largest are rounding


class Eliminated:
    """``h`` of a reduced problem, its gradient, and the gap there."""

    def __init__(self, problem: Problem, inputs: DiagonalInputs):
        self.problem, self.inputs = problem, inputs
        self.root_c = np.sqrt(inputs.c)

    @staticmethod
    def of(problem: Problem, side: Side) -> Eliminated | None:
        """Where the problem is a reduced one and its structure sits on the tasks."""
        if not isinstance(side, TaskSide) or not isinstance(side.shared, DiagonalInputs):
            return None
        structure = problem.structure
        return None if problem.ridge or structure.known or structure.iterative else Eliminated(problem, side.shared)

    def at(self, A: Array) -> tuple[float, Array, Array, Array]:
        """``h(A)``, its gradient, and the dual candidate ``G' / (2 alpha)`` as a product of two matrices."""
        inputs, alpha = self.inputs, self.problem.alpha
        a, P = np.linalg.eigh(symmetric(self.root_c[:, None] * A * self.root_c))
        a = np.where(a > RANGE * a[-1], a, 0.0)
        turned = P.T @ inputs.rows  # T x r: the layout in which every operation runs along the rows
        shrunk = np.multiply.outer(a, inputs.k)
        shrunk += alpha
        np.divide(turned, shrunk, out=shrunk)
        value = alpha * float(np.vdot(turned, shrunk))
        np.multiply(shrunk, inputs.d, out=turned)
        P *= self.root_c[:, None]
        return value, -alpha * (P @ (turned @ turned.T) @ P.T), P, shrunk

    def gap(self, A: Array, gradient: Array, P: Array, shrunk: Array) -> float:
        """The duality gap at ``A``; under a trace penalty that of the mended dual candidate, to second order."""
        structure, S = self.problem.structure, -gradient
        if structure.whitened(S) is not S:
            max_scale, conjugate = structure.ray(S)
            share = min(max_scale, 1.0)
            return abs(structure.value(A) + conjugate(share) - share * float(np.vdot(A, S)))
        s, V = np.linalg.eigh(S)
        complementary = float(np.trace(A)) - float(np.einsum("ij,ij->j", V, A @ V) @ np.minimum(s, 1.0))
        s, V = s[s > 1], V[:, s > 1]
        squared_norm = np.square((V.T @ P) @ shrunk).sum(axis=1) * (1 / self.inputs.c @ V**2)
        return abs(complementary) + self.problem.alpha**2 * float((1 - 1 / np.sqrt(s)) ** 2 @ squared_norm)
