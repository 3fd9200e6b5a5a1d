"""Sparse task covariances: ``Sparse`` and ``LogDet``, an l1 penalty on the off-diagonal entries of ``A``.

    F(A) = tr A - mu log det A + l1 sum_{t != s} |A_ts| = max_N  <I + N, A> - mu log det A

over the symmetric ``N`` with zero diagonal and ``|N_ts| <= l1``. Best structure, prox and conjugate are smooth concave maximum
problems in ``N`` whose inner minimum over ``A`` has a closed form. Every feasible ``N`` gives an upper bound on ``F*``.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from .._linalg import column_squares, compose, gram_spectrum, psd_eigh, sum_of_ratios, symmetric
from .base import TINY, Array, IterativeStructure, Ray, Structure, penalty_with
from .factored_matrix import DENSE_TASKS
from .inner_solvers import accelerated, proximal_gradient
from .spectral import SpectralStructure

SHRINKAGE = (np.inf, *range(10, 0, -1))  # digits up to which N is kept, that are tried for a bound,
FINER_SHRINKAGE = (0.5, 0.25)  # and steps from the best of them
RELATIVE_RIDGE = 1e-14  # added to a singular R'R, relative to its trace; the penalty rises by the square root of it, 1e-7
INNER_STEPS = 10  # eigendecompositions of an inexact proximal step, which starts from the N of the step before


def off_diagonal(A: Array) -> Array:
    """``A`` with a diagonal of zeros."""
    A = A.copy()
    np.fill_diagonal(A, 0.0)
    return A


class L1Structure(IterativeStructure, SpectralStructure):
    """``F(A) = tr A - mu log det A + l1 sum_{t != s} |A_ts|`` with ``mu >= 0``; subclasses define ``mu`` and ``l1``.

    The copy of one run keeps the last ``N`` as a warm start: it changes little between proximal steps of any length, and at the
    optimum it gives the exact dual bound.
    """

    mu: float
    l1: float

    mu_and_l1 = property(attrgetter("mu", "l1"), doc="``mu`` and ``l1``.")

    @property
    def iterative(self) -> bool:  # type: ignore[override]
        """Whether ``l1`` is not zero."""
        return self.l1 > 0

    @property
    def spectral(self) -> bool:  # type: ignore[override]
        """Whether ``l1`` is zero."""
        return not self.iterative

    def f(self, a: Array) -> float:
        if self.mu == 0:
            return float(np.sum(a))
        return float(np.sum(a - self.mu * np.log(a))) if np.all(a > 0) else np.inf

    def f_best(self, s: Array) -> Array:
        return (self.mu + np.sqrt(self.mu**2 + 4 * s)) / 2

    def f_conjugate(self, s: Array) -> float:
        mu = self.mu
        if mu == 0:
            return 0.0 if np.max(s, initial=0.0) <= 1 else np.inf
        return float(np.sum(mu * np.log(mu / (1 - s)) - mu)) if np.all(s < 1) else np.inf

    def f_max_scale(self, s: Array) -> float:
        return (1 - 1e-15 if self.mu > 0 else 1.0) / max(float(np.max(s, initial=0.0)), TINY)

    def f_prox(self, a: Array, step: float) -> Array:
        shifted, mu = a - step, self.mu
        if mu == 0:
            return np.maximum(shifted, 0.0)
        root = np.hypot(shifted, 2 * np.sqrt(step * mu))  # the other form below avoids cancellation where shifted < 0
        return np.where(shifted >= 0, (shifted + root) / 2, 2 * step * mu / np.where(shifted >= 0, 1.0, root - shifted))

    def value(self, A: Array) -> float:
        plain = float(np.trace(A)) if self.mu == 0 else self.f(np.linalg.eigvalsh(symmetric(A)))
        return plain + self.l1 * float(np.abs(off_diagonal(A)).sum())

    # --- best structure -----------------------------------------------------------------------------------------------

    def best_structure(self, S: Array) -> Array:
        if not self.iterative:
            return super().best_structure(S)
        s, V = np.linalg.eigh(symmetric(S))
        return self._maximise_dual(np.sqrt(np.maximum(s, 0.0))[:, None] * V.T)

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        """The better one of what the iteration finds and the best diagonal structure (where ``R'R`` is nearly singular)."""
        if not self.iterative:
            return super().best_of_root(R, floor)
        # For mu = 0 a small ridge is added, because I + N must be definite on the null space of R too.
        lift = max(floor, RELATIVE_RIDGE * float(np.vdot(R, R))) if self.mu == 0 else floor
        lifted = np.vstack([R, np.sqrt(lift) * np.eye(R.shape[1])]) if lift > 0 else R
        _, s, Vt = np.linalg.svd(lifted, full_matrices=False)
        keep = s > 1e-14 * s[0]
        A = self._maximise_dual(s[keep, None] * Vt[keep])
        penalty = penalty_with(self, R, A)
        squares = column_squares(R)
        d = self.f_best(squares + floor)
        diagonal_penalty = sum_of_ratios(squares, d) + self.f(d)
        return (A, penalty) if penalty <= diagonal_penalty else (np.diag(d), diagonal_penalty)

    def first_structure(self, R: Array, floor: float) -> Array:
        """The best structure without ``l1``, in closed form."""
        return super().best_of_root(R, floor)[0]

    def _maximise_dual(self, R: Array) -> Array:
        if len(R) == 0:
            return np.diag(self.f_best(np.zeros(R.shape[1])))
        start = self._last_multipliers
        if start is None or not np.isfinite(self._dual(start, R)[0]):
            start = np.zeros((R.shape[1], R.shape[1]))

        def cost(N: Array) -> tuple[float, Array]:
            value, A = self._dual(N, R)
            return -value, -off_diagonal(A)  # N has no diagonal

        l1, length = self.l1, 1 / max(float(np.abs(cost(start)[1]).max()), 1e-30)
        N = proximal_gradient(cost, lambda N, _: (np.clip(N, -l1, l1), 0.0), start, 0.0, length, rtol=0.0)
        self._keep(N)
        return self._dual(N, R)[1]

    def _dual(self, N: Array, R: Array) -> tuple[float, Array]:
        """The dual function ``min_A tr(A^-1 R'R) + <I + N, A> - mu log det A``, and the minimiser ``A``.

        With ``I + N = CC'``, the condition ``A (I + N) A = R'R + mu A`` is a quadratic equation for the eigenvalues of
        ``C'AC``. For ``mu = 0``, ``A = R'(R(I + N)R')^(-1/2)R``, and ``I + N`` must be definite on the row space of ``R`` only.
        """
        if self.mu == 0:
            e, E = np.linalg.eigh(symmetric(R @ R.T + R @ N @ R.T))
            if e[0] <= -1e-13 * e[-1]:
                return -np.inf, np.zeros_like(N)
            e = np.maximum(e, 1e-16 * max(e[-1], TINY))
            RE = R.T @ E
            return 2 * float(np.sqrt(e).sum()), (RE / np.sqrt(e)) @ RE.T
        C = _cholesky(np.eye(len(N)) + N)
        if C is None:
            return -np.inf, np.zeros_like(N)
        RC = R @ C
        s, V = psd_eigh(RC.T @ RC)
        x = self.f_best(s)
        value = sum_of_ratios(s, x) + self.f(x) + 2 * self.mu * float(np.log(np.diag(C)).sum())
        half = solve_triangular(C, V, lower=True, trans="T", check_finite=False)
        return value, compose(x, half)

    # --- prox -----------------------------------------------------------------------------------------------

    def _prox_and_multipliers(
        self, A: Array, step: float, N: Array | None = None, origin: Array | None = None
    ) -> tuple[Array, Array | None]:
        """The prox ``B(N)``, which is the prox without ``l1`` at ``A - step N``, at the optimal ``N``; and that ``N``.

        With an ``origin`` the prox is inexact: its duality gap is at most a tenth of ``||B - origin||^2 / step``.
        """
        l1 = self.l1
        if l1 == 0:
            return SpectralStructure.prox(self, A, step), None

        def ascend(N: Array) -> tuple[Array, tuple[Array, Array], bool]:
            N = np.clip(N, -l1, l1)
            a, V = np.linalg.eigh(symmetric(A - step * N))
            B = compose(self.f_prox(a, step), V)
            gradient = off_diagonal(B)
            new, support = np.clip(N + gradient / step, -l1, l1), l1 * float(np.abs(gradient).sum())
            enough = 0.0 if origin is None else 0.1 * float(np.sum((B - origin) ** 2)) / step
            done = support - float(np.vdot(N, gradient)) <= max(enough, 1e-14 * support)
            return new, (B, N), done or float(np.abs(new - N).max(initial=0.0)) <= 1e-14 * l1

        start = off_diagonal(A) / step if N is None else N
        return accelerated(ascend, start, 500 if origin is None else INNER_STEPS)[0]

    # --- dual bound ----------------------------------------------------------------------------------------------

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        s, V = np.linalg.eigh(symmetric(S))
        if not self.iterative:  # in a sum S may be indefinite, and the log det depends on negative eigenvalues
            return Ray(self.f_max_scale(s), lambda c: float(self.f_conjugate(c * s)))
        return self.ray_of_root(np.sqrt(np.maximum(s, 0.0))[:, None] * V.T, near)

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        """``F*(cS) <= -mu log det(I + N - cS) + constant`` for every ``N`` with ``c S < I + N``.

        The bound is exact at the optimum, with the ``N`` of the prox around ``near``.
        """
        if not self.iterative:
            return super().ray_of_root(R)
        mu = self.mu
        C, s = self._feasible_factor(R, near)
        level = R.shape[1] * (mu * np.log(mu) - mu) - 2 * mu * float(np.log(np.diag(C)).sum()) if mu > 0 else 0.0
        max_scale = self.f_max_scale(s)

        def bound(c: float) -> float:
            if c > max_scale:
                return np.inf
            return level - mu * float(np.log1p(-c * s).sum()) if mu > 0 else 0.0

        return Ray(max_scale, bound)

    def whitened(self, R: Array) -> Array | None:
        """For ``mu = 0`` and the ``N`` of the last proximal step: ``R'R <= I + N = CC'`` bounds the values of ``R C^-T``."""
        if self._last_multipliers is None or not self._run.from_prox or self.mu > 0:  # type: ignore[union-attr]
            return None
        return solve_triangular(self._feasible_factor(R, None)[0], R.T, lower=True, check_finite=False).T

    def _feasible_factor(self, R: Array, near: Array | None) -> tuple[Array, Array]:
        """``C`` with ``CC' = I + N``, and the eigenvalues of ``C^-1 R'R C^-T``: the largest one bounds ``c``.

        ``I + N`` is singular at the optimum where ``R'R`` is, and may be indefinite before: ``N`` is shrunk as long as the
        bound on ``c`` improves.
        """
        N, eye = self._multipliers_for_bound(R.T @ R, near), np.eye(R.shape[1])
        best = eye, gram_spectrum(R)
        if N is None:
            return best

        def shrunk(digits: float) -> tuple[Array, Array] | None:
            """With ``N`` less a share of ``10^-digits``."""
            C = _cholesky(eye + (1 - 10.0**-digits) * N)
            return None if C is None else (C, gram_spectrum(solve_triangular(C, R.T, lower=True, check_finite=False).T))

        last, best_digits = np.inf, np.inf
        for digits in SHRINKAGE:
            if (found := shrunk(digits)) is None:
                continue
            if found[1][-1] > last:
                break
            last = found[1][-1]
            if last < best[1][-1]:
                best, best_digits = found, digits
        for step in FINER_SHRINKAGE if np.isfinite(best_digits) else ():
            for digits in (best_digits + step, best_digits - step):
                if (found := shrunk(digits)) is not None and found[1][-1] < best[1][-1]:
                    best, best_digits = found, digits
                    break
        return best


def _cholesky(R: Array) -> Array | None:
    """The lower Cholesky factor; ``None`` where ``R`` is not positive definite by a margin of 1e-12."""
    try:
        C = np.linalg.cholesky(R)
    except np.linalg.LinAlgError:
        return None
    return C if float(np.diag(C).min()) > 1e-6 else None


@dataclass(eq=False, repr=False)
class Sparse(L1Structure):
    """``F(A) = tr A + l1 sum_{t != s} |A_ts|``: a trace penalty that also sets covariances of tasks to zero.

    Parameters
    ----------
    l1 : float, default=0.1
        Regularisation strength of the off-diagonal entries of ``A``; at least 0.
    """

    l1: float = 0.1
    mu = 0.0
    ranges: ClassVar[dict[str, str]] = {"l1": ">= 0"}
    zeroes_relations: ClassVar[bool] = True


@dataclass(eq=False, repr=False)
class LogDet(L1Structure):
    """``F(A) = tr A - mu log det A + l1 sum_{t != s} |A_ts|``: a nonsingular, sparse covariance of the tasks.

    A convex form of the penalty of Lozano and Sindhwani. With ``l1=0`` it is a function of the eigenvalues of ``A``.

    Parameters
    ----------
    mu : float, default=1.0
        Weight of the barrier ``-log det A``; greater than 0.
    l1 : float, default=0.0
        Regularisation strength of the off-diagonal entries of ``A``; at least 0.
    """

    mu: float = 1.0
    l1: float = 0.0
    ranges: ClassVar[dict[str, str]] = {"mu": "> 0", "l1": ">= 0"}
    interior: ClassVar[bool] = True

    @property
    def zeroes_relations(self) -> bool:  # type: ignore[override]
        return self.l1 > 0

    def shifted_to_zero(self, n_tasks: int) -> tuple[Structure, float] | None:
        if self.l1 > 0:
            return None
        return _ShiftedLogDet(self.mu), n_tasks * (self.mu - self.mu * float(np.log(self.mu)))

    def moved_to_features(self, n_tasks: int) -> Structure | None:
        return None if self.l1 > 0 else _LogDetOnFeatures(self.mu, n_tasks)

    def in_task_span(self, n_tasks: int, n_directions: int) -> Structure | None:
        return None if self.l1 > 0 else _SmallLogDet(self.mu, n_tasks)

    def final_structure(self, R: Array) -> tuple[Any, float]:
        rows, T = R.shape
        return self.best_of_root(R) if self.l1 > 0 or rows >= T or T <= DENSE_TASKS else self._best_by_svd(R, dense=False)


class _ShiftedLogDet(LogDet):
    """``F(A) - min F = sum (a - mu - mu log(a / mu))``, zero at ``A = mu I``: a loss of 1e-30 is not lost in the sum."""

    def f(self, a: Array) -> float:
        more = a / self.mu - 1
        return self.mu * float(np.sum(more - np.log1p(more))) if np.all(a > 0) else np.inf

    def f_conjugate(self, s: Array) -> float:
        return -self.mu * float(np.log1p(-s).sum()) if np.all(s < 1) else np.inf

    def shifted_to_zero(self, n_tasks: int) -> tuple[Structure, float] | None:
        return None

    def moved_to_features(self, n_tasks: int) -> Structure | None:
        return _ShiftedOnFeatures(self.mu)

    def in_task_span(self, n_tasks: int, n_directions: int) -> Structure | None:
        return self  # other eigenvalues are mu, and cost nothing


class _ShiftedOnFeatures(_ShiftedLogDet):
    """The shifted penalty of a matrix on the features."""

    on_features: ClassVar[bool] = True

    def moved_to_features(self, n_tasks: int) -> Structure | None:
        return None


class _SmallLogDet(LogDet):
    """``LogDet`` of the tasks on a smaller space: all other eigenvalues of ``A`` are ``mu``, and cost a constant."""

    def __init__(self, mu: float, n_tasks: int):
        super().__init__(mu)
        self.n_tasks = n_tasks

    def moved_to_features(self, n_tasks: int) -> Structure | None:
        return None  # it has been moved

    def in_task_span(self, n_tasks: int, n_directions: int) -> Structure | None:
        return None

    def _others(self, a: Array) -> float:
        return (self.n_tasks - a.size) * (self.mu - self.mu * float(np.log(self.mu)))

    def f(self, a: Array) -> float:
        return super().f(a) + self._others(a)

    def f_conjugate(self, s: Array) -> float:
        return super().f_conjugate(s) - self._others(s)


class _LogDetOnFeatures(_SmallLogDet):
    """``LogDet`` of the tasks as a penalty of a matrix on the features."""

    on_features: ClassVar[bool] = True
