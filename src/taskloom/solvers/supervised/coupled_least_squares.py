"""The coupled supervised step for the squared loss, with no product that is not needed.

With ``W = B L' / sqrt(2 alpha)``, ``u`` the balanced residuals and the intercepts eliminated, the normal equations are

    B + N(W) L / sqrt(2 alpha) = c L / sqrt(2 alpha),     N(W) = Phi' centred(2 v Phi W),     c = Phi' centred(2 v y),

and ``Z = c - N(W)`` is what the structure and the certificate ask for. Conjugate gradients carry ``N(W)`` and the predictions
along with ``B``: two passes over the features to set out and two for each step, where the general Newton step takes a dozen
more to evaluate, to compare with zero and to read the solution back.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import issparse

from .coupled import Coupled

Array = np.ndarray
STEPS = 1000


class CoupledSquares:
    """The products that the normal equations are made of, and their solution."""

    def __init__(self, design: Coupled):
        self.design, self.problem = design, design.problem
        self.h, self.total, self.c = self.problem.design.normal_equations

    @staticmethod
    def of(design: Coupled) -> CoupledSquares | None:
        """Where the loss is a square and Gram matrices of the tasks would not be cheaper."""
        problem = design.problem
        if not problem.loss.quadratic or issparse(problem.features) or design.grams_pay():
            return None
        return CoupledSquares(design)

    def _centred(self, g: Array) -> Array:
        """Take out what each task's intercept would absorb."""
        if not self.problem.fit_intercept:
            return g
        seen = self.problem.observations
        return g - self.h * (seen.sum_by_task(g) / self.total)[seen.task]

    def _products(self, B: Array) -> tuple[Array, Array]:
        """``Phi W`` at the observations, and ``N(W)``."""
        z = self.problem.predict(B @ self.design.L.T, np.zeros(self.problem.n_tasks))
        return z, self.problem.correlate(self._centred(self.h * z))

    def solve(self, Z: Array | None) -> tuple[Array, Array, Array, Array, float]:
        """Weights, intercepts, predictions, ``Z`` and the norm, from a guess at ``Z`` where there is one."""
        design, L, seen = self.design, self.design.L, self.problem.observations
        R = target = self.c @ L
        B, z, N = np.zeros_like(R), np.zeros(seen.y.size), np.zeros_like(self.c)
        if Z is not None:
            guess = Z @ L
            z_guess, N_guess = self._products(guess)
            R_guess = target - N_guess @ L - guess
            if np.vdot(R_guess, R_guess) < np.vdot(R, R):  # else it lies so far out that zero is better
                B, z, N, R = guess, z_guess, N_guess, R_guess
        # What a residual leaves above the minimum is at most half its square: the system is the identity and more.
        enough = max(design.enough, 1e-22 * float(np.vdot(target, target)))
        D = P = design.preconditioned(R, 2.0)
        gradient = float(np.vdot(R, D))
        for _ in range(STEPS):
            if float(np.vdot(R, R)) <= enough:
                break
            dz, dN = self._products(P)
            bent = P + dN @ L
            length = gradient / float(np.vdot(P, bent))
            B, z, N, R = B + length * P, z + length * dz, N + length * dN, R - length * bent
            D = design.preconditioned(R, 2.0)
            gradient, last = float(np.vdot(R, D)), gradient
            P = D + (gradient / last) * P
        b = np.zeros(self.problem.n_tasks)
        if self.problem.fit_intercept:
            b = seen.sum_by_task(self.h * (seen.y - z)) / self.total
        return B @ L.T, b, z + b[seen.task], self.c - N, float(np.vdot(B, B)) / 2
