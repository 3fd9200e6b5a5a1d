"""Spectral structures: ``F(A)`` is a symmetric function ``f`` of the eigenvalues of ``A``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from .._linalg import compose, gram_spectrum, project_simplex, psd_eigh, spectrum, sum_of_ratios, symmetric
from . import factored_matrix as factors
from .base import TINY, Array, Ray, Structure


class SpectralStructure(Structure):
    """``F(A) = f(a)``, a symmetric convex function of the eigenvalues. Subclasses define ``f`` and its four operations."""

    spectral: ClassVar[bool] = True

    @abstractmethod
    def f(self, a: Array) -> float:
        """``F`` of a matrix with eigenvalues ``a >= 0``.

        Parameters
        ----------
        a : ndarray of shape (n_tasks,)
            Eigenvalues, not negative.

        Returns
        -------
        float
            The penalty.
        """

    @abstractmethod
    def f_best(self, s: Array) -> Array:
        """``argmin_a sum(s / a) + f(a)``.

        Parameters
        ----------
        s : ndarray of shape (n_tasks,)
            Eigenvalues of ``S``, not negative.

        Returns
        -------
        ndarray of shape (n_tasks,)
            Eigenvalues of the best structure.
        """

    @abstractmethod
    def f_conjugate(self, s: Array) -> float:
        """``sup_a <s, a> - f(a)`` over ``a >= 0``.

        Parameters
        ----------
        s : ndarray of shape (n_tasks,)
            Eigenvalues of ``S``, not negative.

        Returns
        -------
        float
            ``F*(S)``.
        """

    @abstractmethod
    def f_prox(self, a: Array, step: float) -> Array:
        """``argmin_b step f(b) + ||b - a||^2 / 2`` over ``b >= 0``; ``a`` may be negative.

        Parameters
        ----------
        a : ndarray of shape (n_tasks,)
            Eigenvalues, of either sign.
        step : float
            Step length.

        Returns
        -------
        ndarray of shape (n_tasks,)
            Eigenvalues of the proximal point.
        """

    def f_max_scale(self, s: Array) -> float:
        """The largest ``c`` with a finite ``f_conjugate(c s)``.

        Parameters
        ----------
        s : ndarray of shape (n_tasks,)
            Eigenvalues of ``S``, not negative.

        Returns
        -------
        float
            The largest ``c``; ``inf`` where there is none.
        """
        return np.inf

    def value(self, A: Any) -> float:
        return float(self.f(A.spectrum() if isinstance(A, factors.FactoredStructure) else spectrum(A)))

    def best_structure(self, S: Array) -> Array:
        s, V = psd_eigh(S)
        return compose(self.f_best(s), V)

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        return self._best_by_svd(R, floor)

    def _best_by_svd(self, R: Array, floor: float = 0.0, dense: bool = True) -> tuple[Any, float]:
        """The best structure from the singular values of ``R``, as an array or in factored form, and the penalty."""
        rows, T = R.shape
        if dense and not np.any(R):  # the start of every fit: all eigenvectors are equivalent
            a = self.f_best(np.full(T, floor))
            return np.diag(a), self.f(a)
        _, values, Vt = np.linalg.svd(np.linalg.qr(R, mode="r") if rows > 2 * T else R, full_matrices=False)
        squared_norm, k = np.zeros(T), values.size
        squared_norm[:k] = values**2
        a = self.f_best(squared_norm + floor)
        penalty = sum_of_ratios(squared_norm, a) + self.f(a)
        rest = float(a[-1]) if k < T else 0.0  # all other eigenvalues are equal
        if not dense:
            return factors.by_eigen(a[:k], Vt.T, rest), penalty
        A = compose(a[:k] - rest, Vt.T)
        A.flat[:: T + 1] += rest
        return A, penalty

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return float(self.f_conjugate(spectrum(S)))

    def prox(self, A: Array, step: float) -> Array:
        a, V = np.linalg.eigh(symmetric(A))
        return compose(self.f_prox(a, step), V)

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        s = spectrum(S)
        return Ray(self.f_max_scale(s), lambda c: float(self.f_conjugate(c * s)))

    def ray_of_root(self, R: Array, near: Array | None = None) -> Ray:
        squares = gram_spectrum(R)
        s = np.append(np.zeros(R.shape[1] - squares.size), squares)
        return Ray(self.f_max_scale(s), lambda c: float(self.f_conjugate(c * s)))


class EitherSide(SpectralStructure):
    """A spectral structure with ``f(0) = 0`` in every eigenvalue, so that it can penalise the features as ``D = QQ'``.

    The factored solver iterates on ``Q``: ``project_factor`` maps ``Q`` to the domain of ``F``, and ``pull_back`` is the chain
    rule of that map.
    """

    either_side: ClassVar[bool] = True

    def final_structure(self, R: Array) -> tuple[Any, float]:
        rows, T = R.shape
        return self._best_by_svd(R, dense=rows >= T or factors.few(T))

    @abstractmethod
    def f_gradient(self, a: Array) -> Array:
        """``df/da`` (zero inside the domain of an indicator function).

        Parameters
        ----------
        a : ndarray of shape (n_tasks,)
            Eigenvalues, not negative.

        Returns
        -------
        ndarray of shape (n_tasks,)
            The derivative in each eigenvalue.
        """

    def project_factor(self, Q: Array) -> Array:
        """Map a factor ``Q`` to one with ``QQ'`` in the domain of ``F``.

        Parameters
        ----------
        Q : ndarray of shape (n_features, rank)
            An unconstrained factor.

        Returns
        -------
        ndarray of shape (n_features, rank)
            A factor of a structure in the domain of ``F``.
        """
        return Q

    def pull_back(self, Q: Array, gradient: Array) -> Array:
        """The gradient in ``Q`` of a function of ``project_factor(Q)``, plus that of ``F``.

        Parameters
        ----------
        Q : ndarray of shape (n_features, rank)
            An unconstrained factor.
        gradient : ndarray of shape (n_features, rank)
            The gradient of the smooth part at ``project_factor(Q)``.

        Returns
        -------
        ndarray of shape (n_features, rank)
            The gradient at ``Q``.
        """
        a, V = psd_eigh(Q.T @ Q)
        return gradient + 2 * Q @ compose(self.f_gradient(a), V)


def _bracketed_root(a: Array, rise: float, power: float) -> Array:
    """The root ``x >= 0`` of ``x + rise x^power = a`` for ``a > 0``, by Newton steps inside a shrinking bracket."""
    low, high = np.zeros_like(a), a.copy()
    if rise == 0:
        return a
    x = np.minimum(a, (a / rise) ** (1 / power))
    for _ in range(80):
        residual = x + rise * x**power - a
        low, high = np.where(residual < 0, x, low), np.where(residual >= 0, x, high)
        x = x - residual / (1 + rise * power * np.maximum(x, TINY) ** (power - 1))
        x = np.where((x > low) & (x < high), x, (low + high) / 2)
        if np.all(high - low <= 1e-15 * a):
            break
    return x


@dataclass(eq=False, repr=False)
class _PowerStructure(EitherSide):
    """A function of ``tr A^p``."""

    p: float
    ranges: ClassVar[dict[str, str]] = {"p": ">= 1 to be convex"}

    @property
    def low_rank(self) -> bool:  # type: ignore[override]
        """Whether ``p`` is 1."""
        return self.p == 1

    @property
    def mu_and_l1(self) -> tuple[float, float] | None:  # type: ignore[override]
        """That of ``tr A``, if ``p`` is 1."""
        return (0.0, 0.0) if self.p == 1 else None


@dataclass(eq=False, repr=False)
class Schatten(_PowerStructure):
    """``F(A) = tr A^p``, ``p >= 1``: the paper's spectral penalties (its Proposition on p-Schatten penalties).

    The best structure is ``(S / p)^(1/(p+1))``; the formula printed in the paper has an error (docs/notation.md).

    Parameters
    ----------
    p : float
        The power of the eigenvalues, at least 1; ``Trace`` is 1 and ``Frobenius`` is 2.
    """

    schatten_power = property(attrgetter("p"), doc="The power ``p``.")

    def f(self, a: Array) -> float:
        return float(np.sum(a**self.p))

    def f_gradient(self, a: Array) -> Array:
        return self.p * a ** (self.p - 1)

    def f_best(self, s: Array) -> Array:
        return (s / self.p) ** (1 / (self.p + 1))

    def f_conjugate(self, s: Array) -> float:
        p = self.p
        if p == 1:
            return 0.0 if np.max(s, initial=0.0) <= 1 else np.inf
        with np.errstate(over="ignore"):
            return float((p - 1) * np.sum((s / p) ** (p / (p - 1))))

    def f_prox(self, a: Array, step: float) -> Array:
        a = np.maximum(a, 0.0)
        if self.p == 1:
            return np.maximum(a - step, 0.0)
        if self.p == 2:
            return a / (1 + 2 * step)
        return np.where(a > 0, _bracketed_root(np.maximum(a, TINY), step * self.p, self.p - 1), 0.0)

    def f_max_scale(self, s: Array) -> float:
        return 1 / max(float(np.max(s, initial=0.0)), TINY) if self.p == 1 else np.inf


@dataclass(eq=False, repr=False)
class Trace(Schatten):
    """``F(A) = tr A``: multi-task feature learning, the trace norm of the weights (MTFL)."""

    p: float = field(default=1.0, init=False)

    def value(self, A: Any) -> float:
        return float(A.trace())

    def whitened(self, R: Array) -> Array:
        return R


@dataclass(eq=False, repr=False)
class Frobenius(Schatten):
    """``F(A) = tr A^2``: output kernel learning (OKL)."""

    p: float = field(default=2.0, init=False)


@dataclass(eq=False, repr=False)
class SchattenNorm(_PowerStructure):
    """``F(A) = ||A||_p``, the norm itself: the same solutions as ``Schatten(p)`` at other values of ``alpha``.

    Parameters
    ----------
    p : float
        The order of the norm, at least 1.
    """

    def _norm(self, a: Array, p: float) -> float:
        largest = float(np.max(a, initial=0.0))
        return largest * float(np.linalg.norm(a / largest, p)) if largest > 0 else 0.0

    def f(self, a: Array) -> float:
        return self._norm(a, self.p)

    def f_gradient(self, a: Array) -> Array:
        norm = self._norm(a, self.p)
        return (a / norm) ** (self.p - 1) if norm > 0 else np.ones_like(a)

    def f_best(self, s: Array) -> Array:
        p = self.p
        norm = self._norm(s ** (1 / (p + 1)), p) ** ((p + 1) / 2)
        return s ** (1 / (p + 1)) * norm ** ((p - 1) / (p + 1))

    def _dual_power(self) -> float:
        return self.p / (self.p - 1) if self.p > 1 else np.inf

    def f_conjugate(self, s: Array) -> float:
        return 0.0 if self._norm(s, self._dual_power()) <= 1 else np.inf

    def f_max_scale(self, s: Array) -> float:
        return 1 / max(self._norm(s, self._dual_power()), TINY)

    def f_prox(self, a: Array, step: float) -> Array:
        a = np.maximum(a, 0.0)
        if self.p == 1:
            return np.maximum(a - step, 0.0)
        if self._norm(a, self._dual_power()) <= step:
            return np.zeros_like(a)
        if self.p == 2:
            return a * (1 - step / self._norm(a, 2))

        # b + step (b / m)^(p-1) = a entrywise, where m is the norm of b: one equation in m
        def b(m: float) -> Array:
            return np.where(a > 0, _bracketed_root(np.maximum(a, TINY), step / m ** (self.p - 1), self.p - 1), 0.0)

        def excess(share: float) -> float:
            return self._norm(b(share * norm), self.p) / (share * norm) - 1

        norm, low = self._norm(a, self.p), 1.0
        while excess(low) < 0 and low > 1e-12:
            low /= 8
        if not excess(low) > 0 > excess(1.0):
            return b(low * norm)
        return b(float(brentq(excess, low, 1.0, xtol=1e-15, rtol=1e-14)) * norm)


@dataclass(eq=False, repr=False)
class UnitTrace(EitherSide):
    """The indicator function of ``tr A <= 1``: relation learning (MTRL; its second parameter is the estimator's ``ridge``)."""

    low_rank: ClassVar[bool] = True

    def f(self, a: Array) -> float:
        return 0.0 if np.sum(a) <= 1 + 1e-9 else np.inf

    def f_gradient(self, a: Array) -> Array:
        return np.zeros_like(a)

    def f_best(self, s: Array) -> Array:
        root = np.sqrt(s)
        total = float(np.sum(root))
        return root / total if total > 0 else np.full_like(s, 1 / s.size)

    def f_conjugate(self, s: Array) -> float:
        return float(np.max(s, initial=0.0))

    def f_prox(self, a: Array, step: float) -> Array:
        inside = np.maximum(a, 0.0)
        return inside if np.sum(inside) <= 1 else project_simplex(a[:, None])[:, 0]

    def project_factor(self, Q: Array) -> Array:
        return Q / max(float(np.linalg.norm(Q)), TINY)

    def pull_back(self, Q: Array, gradient: Array) -> Array:
        norm = max(float(np.linalg.norm(Q)), TINY)
        unit = Q / norm
        return (gradient - np.vdot(gradient, unit) * unit) / norm
