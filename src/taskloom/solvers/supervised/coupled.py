"""The coupled supervised step when it is large: conjugate gradients with a Kronecker preconditioner.

In the coordinates ``W = B L' / sqrt(2 alpha)`` a Newton step solves ``B + [Phi_t' H_t Phi_t w_t]_t L / sqrt(2 alpha) = rhs``,
with each task's intercept eliminated. Nothing of size (observations)^2 or (features x tasks)^2 is formed. Replacing every
task's Gram matrix by the mean one makes a Kronecker sum, which two eigendecompositions solve: the preconditioner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import issparse
from scipy.sparse.linalg import LinearOperator, cg

from ..._linalg import psd_eigh
from ...problem import Problem
from .newton_systems import Design, Direction, Intercepts

Array = np.ndarray
MIN_DIRECTIONS = 20  # directions before the mean number of iterations is judged


class SlowConvergenceError(Exception):
    """Conjugate gradients take longer than systems that are solved would."""


@dataclass(eq=False)
class Tally:
    """How many iterations conjugate gradients took for how many directions; ``worth`` is what a solved system is worth."""

    worth: float
    directions: int = 0
    iterations: int = 0

    def add(self, iterations: int) -> None:
        self.directions, self.iterations = self.directions + 1, self.iterations + iterations
        if self.iterations > self.worth * max(self.directions, MIN_DIRECTIONS):
            raise SlowConvergenceError


class Coupled(Design):
    """All tasks in one batch element; the coefficients are ``B`` (``r x q``), flattened."""

    direct: ClassVar[bool] = False

    def __init__(self, problem: Problem, L: Array, enough: float = 0.0, tally: Tally | None = None):
        self.problem, self.L, self.enough = problem, L / np.sqrt(2 * problem.alpha), enough
        self.mean = problem.design.mean_gram
        self.tally = tally
        self.l, self.V = psd_eigh(self.L.T @ self.L)
        self.shape = (problem.n_features, L.shape[1])

    def weights(self, coef: Array) -> Array:
        """``W`` for coefficients."""
        return coef.reshape(self.shape) @ self.L.T

    def start(self, u: Array) -> Array:
        return (self.problem.correlate(u[0]) @ self.L).reshape(1, -1)

    def predict(self, coef: Array) -> Array:
        return self.problem.predict(self.weights(coef), np.zeros(self.problem.n_tasks))[None]

    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        return np.einsum("bi,bi->b", coef, other)

    def pick(self, which: Array) -> Coupled:
        return self

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        return _CoupledDirection(self, h[0], None if damping is None else damping[0])

    def preconditioned(self, X: Array, level: float) -> Array:
        """The system with every task's Gram matrix replaced by the mean one, solved; ``level`` is the loss's mean curvature."""
        scale = 1 + level * self.mean.g[:, None] * self.l
        return self.mean.outward((self.mean.inward(X) @ self.V) / scale) @ self.V.T

    def grams_pay(self) -> bool:
        """Whether a product with the Gram matrices takes fewer multiplications than one with the features and one back.

        Where most places are observed those are two products of matrices, whose multiplications are far quicker.
        """
        problem, N = self.problem, self.problem.observations.y.size
        held = problem.features.size / problem.n_rows * N  # numbers in the rows of all observations
        quick = problem.n_rows * problem.n_tasks <= 4 * N
        return problem.n_features**2 * problem.n_tasks <= (held / 4 if quick else 2 * held)


class _CoupledDirection(Direction):
    def __init__(self, design: Coupled, h: Array, damping: Array | None):
        self.design, self.h, self.damping = design, h, damping
        problem = design.problem
        seen = problem.observations
        self.total = seen.sum_by_task(h) + (0.0 if damping is None else damping)
        self.grams = self._grams() if design.grams_pay() else None
        level = float(h.sum() / seen.weight.sum())  # how curved the loss is here, on average
        size = design.L.shape[1] * problem.n_features
        self.operator = LinearOperator((size, size), matvec=self._apply, dtype=float)
        self.preconditioner = LinearOperator(
            (size, size),
            matvec=lambda x: design.preconditioned(x.reshape(design.shape), level).ravel(),
            dtype=float,
        )

    def _grams(self) -> Array:
        """``Phi_t' H_t Phi_t`` of every task with its intercept eliminated; for the squared loss they never change."""
        problem = self.design.problem
        if problem.loss.quadratic:
            return problem.design.task_grams
        return problem.design.weighted_grams(self.h, 0.0 if self.damping is None else self.damping)

    def _apply(self, x: Array) -> Array:
        design = self.design
        if self.grams is not None:
            correlated = np.matmul(self.grams, design.weights(x).T[:, :, None])[..., 0].T
        else:
            correlated = design.problem.correlate(self._centred(self.h * design.predict(x)[0]))
        return x + (correlated @ design.L).ravel()

    def _centred(self, g: Array) -> Array:
        """Take out what each task's intercept would absorb."""
        if self.damping is None:
            return g
        seen = self.design.problem.observations
        return g - self.h * (seen.sum_by_task(g) / self.total)[seen.task]

    def __call__(self, coef: Array, g: Array) -> tuple[Array, Array]:
        design, seen = self.design, self.design.problem.observations
        rhs = -(design.start(self._centred(g[0])[None]) + coef)[0]
        # What a residual leaves above the minimum is at most half its square: the system is the identity and more.
        enough = design.enough
        rtol = 1e-11 if enough == 0 or design.problem.loss.quadratic else 1e-3
        taken: list[None] = []
        step, _ = cg(
            self.operator, rhs, rtol=rtol, atol=np.sqrt(enough), maxiter=1000, M=self.preconditioner,
            callback=lambda _: taken.append(None),
        )  # fmt: skip
        if design.tally is not None:
            design.tally.add(len(taken))
        if self.damping is None:
            return step[None], np.zeros((1, 0))
        bent = seen.sum_by_task(g[0] + self.h * design.predict(step)[0])
        return step[None], (-bent / self.total)[None]


MAX_CG_ITERATIONS = 1000


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
        for _ in range(MAX_CG_ITERATIONS):
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
