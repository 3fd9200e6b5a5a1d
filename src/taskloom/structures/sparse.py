"""An l1 penalty on the relations between tasks: the machinery that ``Sparse`` and ``LogDet(l1=...)`` share.

    F(A) = tr A - mu log det A + l1 sum_{t != s} |A_ts| = max_N  <I + N, A> - mu log det A

over the symmetric ``N`` with zero diagonal and entries within ``l1``. Every question about ``F`` is a smooth concave problem in
``N`` with a closed form inside, and any such ``N`` proves a bound.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular

from .._component import is_number
from .._linalg import compose, symmetric
from .base import Array, Ray, Remembering, Structure
from .box_solvers import climb, maximise_in_box
from .spectral import TINY, SpectralStructure

SHARES = (1.0, *(1 - 10.0**-k for k in range(10, 0, -1)))  # of N
FAINT = 1e-14  # share of the squared_norm that makes a singular one regular: the step costs its root, 1e-7, too much
FEW = 10  # eigenproblems that a proximal step may take: N is remembered, so the next step goes on where this one stopped


def off_diagonal(A: Array) -> Array:
    """``A`` with a diagonal of zeros."""
    A = A.copy()
    np.fill_diagonal(A, 0.0)
    return A


def _with_l1(method: Callable[..., Any]) -> Callable[..., Any]:
    """Without ``l1`` the structure is spectral, and has closed forms for everything."""

    @wraps(method)
    def either(self: Relations, *args: Any, **options: Any) -> Any:
        if self.strengths[1] > 0:
            return method(self, *args, **options)
        return getattr(super(Relations, self), method.__name__)(*args, **options)

    return either


class Relations(Remembering, SpectralStructure):
    """``tr A - mu log det A + l1 sum_{t != s} |A_ts|`` with ``mu >= 0``; subclasses say what ``mu`` and ``l1`` are.

    A copy made by ``remembering`` keeps the last ``N``: from one proximal step to the next it hardly changes, whatever their
    lengths, and at the optimum it is also the one that proves the bound.
    """

    @property
    @abstractmethod
    def strengths(self) -> tuple[float, float]:
        """``mu`` and ``l1``."""

    @property
    def iterative(self) -> bool:
        return self.strengths[1] > 0

    def f(self, a: Array) -> float:
        mu = self.strengths[0]
        if mu == 0:
            return float(np.sum(a))
        return float(np.sum(a - mu * np.log(a))) if np.all(a > 0) else np.inf

    def f_best(self, s: Array) -> Array:
        mu = self.strengths[0]
        return (mu + np.sqrt(mu**2 + 4 * s)) / 2

    def f_conjugate(self, s: Array) -> float:
        mu = self.strengths[0]
        if mu == 0:
            return 0.0 if np.max(s, initial=0.0) <= 1 else np.inf
        return float(np.sum(mu * np.log(mu / (1 - s)) - mu)) if np.all(s < 1) else np.inf

    def f_max_scale(self, s: Array) -> float:
        return (1 - 1e-15 if self.strengths[0] > 0 else 1.0) / max(float(np.max(s, initial=0.0)), TINY)

    def f_prox(self, a: Array, step: float) -> Array:
        shifted, mu = a - step, self.strengths[0]
        if mu == 0:
            return np.maximum(shifted, 0.0)
        root = np.hypot(shifted, 2 * np.sqrt(step * mu))  # where shifted < 0 the sum would cancel, and A must not be singular
        return np.where(shifted >= 0, (shifted + root) / 2, 2 * step * mu / np.where(shifted >= 0, 1.0, root - shifted))

    def for_run(self) -> Structure:
        return super().for_run() if self.iterative else self

    @_with_l1
    def value(self, A: Array) -> float:
        mu, l1 = self.strengths
        plain = float(np.trace(A)) if mu == 0 else self.f(np.linalg.eigvalsh(symmetric(A)))
        return plain + l1 * float(np.abs(off_diagonal(A)).sum())

    # --- the step -----------------------------------------------------------------------------------------------

    @_with_l1
    def best_structure(self, S: Array) -> Array:
        s, V = np.linalg.eigh(symmetric(S))
        return self._search_step(np.sqrt(np.maximum(s, 0.0))[:, None] * V.T)

    @_with_l1
    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        """What the search finds, or the best diagonal structure where that is cheaper (as when ``R'R`` is nearly singular)."""
        A = self._search_step(self._lifted(R, floor))
        a, V = np.linalg.eigh(symmetric(A))
        squared_norm = np.einsum("ij,ij->j", RV := R @ V, RV)
        inside = a > 0
        penalty = (
            float((squared_norm[inside] / a[inside]).sum()) + self.value(A) if not np.any(squared_norm[~inside]) else np.inf
        )
        own = np.einsum("ij,ij->j", R, R)
        d = self.f_best(own + floor)
        plain = float(np.divide(own, d, out=np.zeros_like(d), where=d > 0).sum()) + self.f(d)
        return (A, penalty) if penalty <= plain else (np.diag(d), plain)

    @_with_l1
    def first_structure(self, R: Array, floor: float) -> Array:
        """The step without ``l1``: a start needs no search."""
        return super().best_of_root(R, floor)[0]

    def _lifted(self, R: Array, floor: float) -> Array:
        """A root of ``R'R + floor I`` with as few rows as it takes."""
        if self.strengths[0] == 0:  # a trace of squared_norm everywhere: I + N must be definite even where R does not look
            floor = max(floor, FAINT * float(np.vdot(R, R)))
        if floor > 0:
            R = np.vstack([R, np.sqrt(floor) * np.eye(R.shape[1])])
        _, s, Vt = np.linalg.svd(R, full_matrices=False)
        keep = s > 1e-14 * s[0]
        return s[keep, None] * Vt[keep]

    def _search_step(self, R: Array) -> Array:
        if len(R) == 0:
            return np.diag(self.f_best(np.zeros(R.shape[1])))
        dual = self._step_dual(R)
        start = np.zeros((R.shape[1], R.shape[1])) if self._N is None else self._N
        start = start if np.isfinite(dual(start)[0]) else np.zeros_like(start)
        N = maximise_in_box(lambda N: _masked(dual(N)), start, self.strengths[1])
        if self._remembers:
            self._N = N
        return dual(N)[1]

    def _step_dual(self, R: Array) -> Callable[[Array], tuple[float, Array]]:
        """``min_A tr(A^-1 R'R) + <I + N, A> - mu log det A`` and its ``A``, as a function of ``N``.

        ``A (I + N) A = R'R + mu A`` is a quadratic equation in the eigenvalues of ``C'AC`` for ``I + N = CC'``. Without ``mu``,
        ``I + N`` need not be definite where ``R`` does not look, and ``A`` is ``R'(R(I + N)R')^(-1/2)R``.
        """
        mu = self.strengths[0]

        def without(N: Array) -> tuple[float, Array]:
            e, E = np.linalg.eigh(symmetric(R @ R.T + R @ N @ R.T))
            if e[0] <= -1e-13 * e[-1]:
                return -np.inf, np.zeros_like(N)
            e = np.maximum(e, 1e-16 * max(e[-1], TINY))
            RE = R.T @ E
            return 2 * float(np.sqrt(e).sum()), (RE / np.sqrt(e)) @ RE.T

        def along(N: Array) -> tuple[float, Array]:
            C = _cholesky(np.eye(len(N)) + N)
            if C is None:
                return -np.inf, np.zeros_like(N)
            RC = R @ C
            s, V = np.linalg.eigh(symmetric(RC.T @ RC))
            s = np.maximum(s, 0.0)
            x = (mu + np.sqrt(mu**2 + 4 * s)) / 2
            value = float((s / x + x - mu * np.log(x)).sum()) + 2 * mu * float(np.log(np.diag(C)).sum())
            half = solve_triangular(C, V, lower=True, trans="T", check_finite=False)
            return value, (half * x) @ half.T

        return along if mu > 0 else without

    # --- the prox -----------------------------------------------------------------------------------------------

    @_with_l1
    def prox(self, A: Array, step: float) -> Array:
        return self._prox_and_dual(A, step)[0]

    @_with_l1
    def proximal_step(self, A: Array, gradient: Array, step: float) -> Array:
        """As exact as a step of this size deserves, from the ``N`` of the step before."""
        B, self._N = self._prox_and_dual(A - step * gradient, step, self._N, A)
        self._proves = True
        return B

    def _prox_and_dual(self, A: Array, step: float, N: Array | None = None, origin: Array | None = None) -> tuple[Array, Array]:
        """The prox is ``B(N)``, the prox without ``l1`` at ``A - step N``, at the best ``N``.

        With an ``origin``, near enough to it: what is left to gain is a small share of what a step from the origin gains.
        """
        l1 = self.strengths[1]

        def B(N: Array) -> Array:
            a, V = np.linalg.eigh(symmetric(A - step * N))
            return compose(self.f_prox(a, step), V)

        def enough(B: Array) -> float:
            return 0.1 * float(np.sum((B - origin) ** 2)) / step if origin is not None else 0.0

        start = np.clip(off_diagonal(A) / step, -l1, l1) if N is None else N
        return climb(B, off_diagonal, start, l1, 1 / step, enough, 500 if origin is None else FEW)

    # --- the bound ----------------------------------------------------------------------------------------------

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        s, V = np.linalg.eigh(symmetric(S))
        if not self.iterative:  # in a sum, S may have negative eigenvalues, and a log det sees them
            return Ray(self.f_max_scale(s), lambda c: float(self.f_conjugate(c * s)))
        return self.ray_of_root(np.sqrt(np.maximum(s, 0.0))[:, None] * V.T, near)

    @_with_l1
    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        """``F*(cS) <= -mu log det(I + N - cS) + constant`` while ``c S < I + N``, for any ``N``.

        The ``N`` of the prox around ``near`` is the best one at the optimum.
        """
        mu = self.strengths[0]
        C, s = self._widest(R, near)
        level = R.shape[1] * (mu * np.log(mu) - mu) - 2 * mu * float(np.log(np.diag(C)).sum()) if mu > 0 else 0.0
        max_scale = self.f_max_scale(s)

        def bound(c: float) -> float:
            if c > max_scale:
                return np.inf
            return level - mu * float(np.log1p(-c * s).sum()) if mu > 0 else 0.0

        return Ray(max_scale, bound)

    def whitened(self, R: Array) -> Array | None:
        """Without ``mu`` and with an ``N`` at hand: ``R'R <= I + N`` is ``R C^-T`` with singular values up to 1."""
        if self._N is None or not self._proves or self.strengths[0] > 0:
            return None
        return solve_triangular(self._widest(R, None)[0], R.T, lower=True, check_finite=False).T

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return self.ray(S, near).conjugate(1.0)

    def _dual_point(self, R: Array, near: Array | None) -> Array:
        """An ``N`` for a bound: the one at hand, or the one of the prox around ``near``."""
        if self._N is not None and self._proves:
            return self._N
        if self._N is None and self._remembers:  # before the first step any N will do
            return np.zeros((R.shape[1], R.shape[1]))
        near = np.zeros((R.shape[1], R.shape[1])) if near is None else near
        size = max(float(np.trace(near)), 1e-12)
        N = self._prox_and_dual(near + size * R.T @ R, size, self._N)[1]
        if self._remembers:
            self._N = N
        return N

    def _widest(self, R: Array, near: Array | None) -> tuple[Array, Array]:
        """``C`` with ``CC' = I + N`` and the eigenvalues of ``C^-1 R'R C^-T``, where ``c R'R`` reaches furthest.

        At the optimum ``I + N`` may be as singular as ``R'R``, and a little indefinite before: ``N`` is shrunk as much as pays.
        """
        N = self._dual_point(R, near)
        best, last = (np.eye(len(N)), _squares(R)), np.inf
        for share in SHARES:
            C = _cholesky(np.eye(len(N)) + share * N)
            if C is None:
                continue
            s = _squares(solve_triangular(C, R.T, lower=True, check_finite=False).T)
            if s[-1] > last:
                break
            best, last = ((C, s) if s[-1] < best[1][-1] else best), s[-1]
        return best


def _masked(found: tuple[float, Array]) -> tuple[float, Array]:
    """A dual value, and its gradient: ``A`` without the diagonal, which ``N`` does not have."""
    return found[0], off_diagonal(found[1])


def _cholesky(R: Array) -> Array | None:
    """The lower factor, or ``None`` where ``R`` is not safely positive definite."""
    try:
        C = np.linalg.cholesky(R)
    except np.linalg.LinAlgError:
        return None
    return C if float(np.diag(C).min()) > 1e-6 else None


def _squares(R: Array) -> Array:
    """The squared singular values of ``R``, ascending."""
    return np.maximum(np.linalg.eigvalsh(R @ R.T if len(R) < R.shape[1] else R.T @ R), 0.0)


@dataclass(eq=False, repr=False)
class Sparse(Relations):
    """``F(A) = tr A + l1 sum_{t != s} |A_ts|``: a trace penalty that also zeroes relations.

    Parameters
    ----------
    l1 : float, default=0.1
        Price of relations between tasks (off the diagonal); at least 0.
    """

    l1: float = 0.1
    zeroes_relations: ClassVar[bool] = True

    def check(self) -> None:
        if not (is_number(self.l1) and self.l1 >= 0):
            raise ValueError(f"Sparse needs l1 >= 0, got l1={self.l1!r}")

    @property
    def strengths(self) -> tuple[float, float]:
        return 0.0, self.l1


@dataclass(eq=False, repr=False)
class LogDet(Relations):
    """``F(A) = tr A - mu log det A + l1 sum_{t != s} |A_ts|``: no task direction dies, and few relations live.

    Lozano and Sindhwani's penalty, made convex. Without ``l1`` it sees the eigenvalues of ``A`` alone.

    Parameters
    ----------
    mu : float, default=1.0
        Strength of the barrier ``-log det A``; greater than 0.
    l1 : float, default=0.0
        Price of relations between tasks (off the diagonal); at least 0.
    """

    mu: float = 1.0
    l1: float = 0.0
    interior: ClassVar[bool] = True

    def check(self) -> None:
        if not (is_number(self.mu) and self.mu > 0):
            raise ValueError(f"LogDet needs mu > 0, got mu={self.mu!r}")
        if not (is_number(self.l1) and self.l1 >= 0):
            raise ValueError(f"LogDet needs l1 >= 0, got l1={self.l1!r}")

    @property
    def zeroes_relations(self) -> bool:  # type: ignore[override]
        return self.l1 > 0

    @property
    def strengths(self) -> tuple[float, float]:
        return self.mu, self.l1

    def shifted_to_zero(self, n_tasks: int) -> tuple[Structure, float] | None:
        if self.l1 > 0:
            return None
        return _LogDetAboveLeast(self.mu), n_tasks * (self.mu - self.mu * float(np.log(self.mu)))


class _LogDetAboveLeast(LogDet):
    """``sum (a - mu - mu log(a / mu))``: zero at ``A = mu I``, so that beside it a loss of 1e-30 is still seen."""

    def f(self, a: Array) -> float:
        more = a / self.mu - 1
        return self.mu * float(np.sum(more - np.log1p(more))) if np.all(a > 0) else np.inf

    def f_conjugate(self, s: Array) -> float:
        return -self.mu * float(np.log1p(-s).sum()) if np.all(s < 1) else np.inf

    def shifted_to_zero(self, n_tasks: int) -> tuple[Structure, float] | None:
        return None
