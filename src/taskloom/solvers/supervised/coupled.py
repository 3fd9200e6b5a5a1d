"""The coupled supervised step of large problems: conjugate gradients with a Kronecker preconditioner.

In the coordinates ``W = B L' / sqrt(2 alpha)`` a Newton step solves ``B + [Phi_t' H_t Phi_t w_t]_t L / sqrt(2 alpha) = rhs``,
with the intercept of each task eliminated. Nothing of size (observations)^2 or (features x tasks)^2 is formed.

There are two preconditioners. With the Gram matrix of every task replaced by the mean one, the system is a Kronecker sum, which
two eigendecompositions solve: the relations of the tasks are exact, their differences are not. With the small eigenvalues of
``A`` replaced by one number, every task is eliminated: their differences are exact, their relations are not. Under a known
structure of full rank, which takes one solution to the end, the second one pays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.sparse import issparse

from ..._linalg import compose, conjugate_gradient, psd_basis, psd_eigh
from ...problem import Problem
from .newton_systems import TUNING, BatchDesign, Direction, Intercepts, iterative_direction_of_entries
from .task_elimination import EliminatedTasks

Array = np.ndarray
MIN_SYSTEMS = 20  # before the mean number of steps is judged
MAX_SHARED_UNKNOWNS = 1000  # of the system that a preconditioner leaves when all tasks are eliminated
STEPS_PER_ROOT = 25  # conjugate-gradient steps to the end over the square root of the condition of the preconditioned system
MULTIPLICATIONS_PER_STEP = 5e5  # in the time of the function calls of a step
MAX_CONDITION = 1e3  # of the other eigenvalues, from which eliminating the tasks does not pay


class SlowConvergenceError(Exception):
    """Conjugate gradients take longer than a dense system would."""


@dataclass(eq=False)
class Tally:
    """Counts systems and conjugate-gradient steps; a dense system is worth ``worth`` steps."""

    worth: float
    systems: int = 0
    steps: int = 0

    def count(self, length: float) -> None:
        """One more step, of this length."""
        self.steps += 1
        if self.steps > self.worth * max(self.systems, MIN_SYSTEMS):
            raise SlowConvergenceError


class Coupled(BatchDesign):
    """All tasks in one batch element; the coefficients are ``B`` (``r x q``), flattened."""

    direct: ClassVar[bool] = False

    def __init__(self, problem: Problem, L: Array, tolerance: float = 0.0, tally: Tally | None = None):
        self.problem, self.L, self.tolerance = problem, L / np.sqrt(2 * problem.alpha), tolerance
        self.mean, self.tally = problem.design.mean_gram, tally or Tally(np.inf)
        self.l, self.V = psd_basis(self.L.T @ self.L)
        self.shape = (problem.n_features, L.shape[1])

    def weights(self, coef: Array) -> Array:
        """``W`` for coefficients."""
        return coef.reshape(self.shape) @ self.L.T

    def start(self, u: Array) -> Array:
        return (self.problem.correlate(u[0]) @ self.L).reshape(1, -1)

    def predict(self, coef: Array) -> Array:
        return self.problem.predict(self.weights(coef), np.zeros(self.problem.n_tasks))[None]

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        level = float(h.sum() / self.problem.observations.weight.sum())  # mean curvature of the loss
        exact = self.tolerance == 0 or self.problem.loss.quadratic
        share = TUNING.relative_residual if exact else TUNING.relative_residual_above_minimum
        self.tally.systems += 1
        preconditioned = self.preconditioner(h[0], None if damping is None else damping[0], level)
        # The suboptimality is at most half the squared residual, since all eigenvalues of the system are at least 1.
        return iterative_direction_of_entries(
            self,
            h,
            intercepts,
            damping,
            max_residual=lambda rhs, *_: max(share * float(np.linalg.norm(rhs)), self.tolerance**0.5),
            product=self._gram_product(h[0], 0.0 if damping is None else damping[0]) if grams_pay(self.problem) else None,
            preconditioner=lambda x: preconditioned(x.reshape(self.shape)).reshape(1, -1),
            checkpoint=self.tally.count,
        )

    def _gram_product(self, h: Array, damping: Array | float) -> Callable[[Array], Array]:
        """With ``Phi_t' H_t Phi_t`` of every task, its intercept eliminated; constant for the squared loss."""
        design = self.problem.design
        grams = design.task_grams if self.problem.loss.quadratic else design.weighted_grams(h, damping)
        return lambda x: x + ((grams @ self.weights(x).T[:, :, None])[..., 0].T @ self.L).reshape(1, -1)

    def preconditioner(self, h: Array, damping: Array | None, level: float) -> Callable[[Array], Array]:
        """An approximate inverse of the system at curvatures ``h`` of the observations, with the mean ``level``."""
        if self.problem.structure.known and not issparse(self.problem.features):
            eliminated = self._without_tasks(h, damping)
            if eliminated is not None:
                return eliminated
        scale, V = 1 + level * self.mean.g[:, None] * self.l, self.V
        if V is None:
            return lambda X: self.mean.to_original(self.mean.to_inner(X) / scale)
        return lambda X: self.mean.to_original((self.mean.to_inner(X) @ V) / scale) @ V.T

    def _without_tasks(self, h: Array, damping: Array | None) -> Callable[[Array], Array] | None:
        """Tasks eliminated, with the largest eigenvalues of ``A`` exact, and one number ``s`` in place of the others.

        The condition is at most that of the others; ``None`` where it stays large, as under eigenvalues that decay to 0.
        """
        (r, q), T, N = self.shape, self.problem.n_tasks, self.problem.observations.y.size
        if q < T or not self.l.min() > 0:
            return None
        rising, U = psd_eigh(self.L.T @ self.L) if self.V is None else (self.l, self.V)
        a, V = rising[::-1], U[:, ::-1]
        exact = np.arange(min(q, MAX_SHARED_UNKNOWNS // max(r, 1) + 1))  # how many
        steps = STEPS_PER_ROOT * np.sqrt(a[exact] / a[-1]) * (4 * r * (N + q * T) + MULTIPLICATIONS_PER_STEP)
        k = int(np.argmin(steps + (r * exact) ** 3 / 3 + (r * exact) ** 2 * T / 2))
        if a[k] > MAX_CONDITION * a[-1]:
            return None
        s = float(np.sqrt(a[k] * a[-1]))
        columns = self.L @ (V[:, :k] * np.sqrt(np.maximum(1 - s / a[:k], 0.0)))
        tasks = EliminatedTasks(self.problem, h, damping, np.full(T, s), columns)
        inverse = self.L @ compose(1 / rising, U)  # the transposed inverse of L
        return lambda X: tasks.weights(X @ inverse.T) @ inverse


def grams_pay(problem: Problem) -> bool:
    """Whether a product with the Gram matrices takes less time than two passes over the features.

    If most positions are observed, the two passes are matrix products, which have a higher throughput.
    """
    N = problem.observations.y.size
    held = problem.features.size / problem.n_rows * N  # entries in the rows of all observations
    return problem.n_features**2 * problem.n_tasks <= (held / 4 if problem.inputs.mostly_observed else 2 * held)


class CoupledSquares:
    """The coupled supervised step under the squared loss, with two passes over the features for each iteration.

    With ``W = B L' / sqrt(2 alpha)`` and the intercepts eliminated, the normal equations are

        B + N(W) L / sqrt(2 alpha) = c L / sqrt(2 alpha),     N(W) = Phi' centred(2 v Phi W),     c = Phi' centred(2 v y),

    and ``Z = c - N(W)``. Conjugate gradients update ``N(W)`` and the predictions by recurrence together with ``B``, so that
    nothing has to be evaluated at the solution.
    """

    def __init__(self, design: Coupled):
        self.design, self.problem = design, design.problem
        self.h, self.total, self.c = self.problem.design.normal_equations

    def _centred(self, g: Array) -> Array:
        """Eliminate the intercept of each task."""
        if not self.problem.fit_intercept:
            return g
        obs = self.problem.observations
        return g - self.h * (obs.sum_by_task(g) / self.total)[obs.task]

    def _products(self, B: Array) -> tuple[Array, Array]:
        """``Phi W`` at the observations, and ``N(W)``."""
        z = self.problem.predict(B @ self.design.L.T, np.zeros(self.problem.n_tasks))
        return z, self.problem.correlate(self._centred(self.h * z))

    def solve(self, Z: Array | None) -> tuple[Array, Array, Array, Array, float]:
        """Weights, intercepts, predictions, ``Z`` and the norm, from a warm start for ``Z`` if given."""
        design, L, obs = self.design, self.design.L, self.problem.observations
        R = target = self.c @ L
        B, z, N = np.zeros_like(R), np.zeros(obs.y.size), np.zeros_like(self.c)
        if Z is not None:
            guess = Z @ L
            z_guess, N_guess = self._products(guess)
            R_guess = target - N_guess @ L - guess
            if np.vdot(R_guess, R_guess) < np.vdot(R, R):  # else zero is the better start
                B, z, N, R = guess, z_guess, N_guess, R_guess
        dz, dN = z, N  # of the last direction

        def product(P: Array) -> Array:
            nonlocal dz, dN
            dz, dN = self._products(P)
            return P + dN @ L

        def follow(length: float) -> None:
            nonlocal z, N
            z, N = z + length * dz, N + length * dN

        # The suboptimality is at most half the squared residual, since all eigenvalues of the system are at least 1.
        B = B + conjugate_gradient(
            product,
            R,
            preconditioner=design.preconditioner(self.h, None, 2.0),
            max_residual=max(design.tolerance**0.5, TUNING.relative_residual * float(np.linalg.norm(target))),
            max_steps=TUNING.max_cg_steps,
            checkpoint=follow,
        )
        b = np.zeros(self.problem.n_tasks)
        if self.problem.fit_intercept:
            b = obs.sum_by_task(self.h * (obs.y - z)) / self.total
        return B @ L.T, b, z + b[obs.task], self.c - N, float(np.vdot(B, B)) / 2
