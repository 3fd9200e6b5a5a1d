"""The Gaussian posterior of a sum of terms after a fit with the squared loss, at a cost that is linear in the levels.

The objective ``sum_i v_i (y_i - f_i)^2 + sum_q alpha/omega_q tr(A_q^+ W_q'W_q) + ridge/omega_q ||W_q||^2`` is, up to the factor
``1 / tau``, a negative log posterior: ``W_q`` has the covariance ``tau omega_q/(2 alpha) R_q`` on the side of its structure
(``R = A (I + ridge/alpha A)^-1``), noise has the variance ``tau/(2 v_i)``, intercept and unpenalised weights have a flat prior.

In coefficients with the prior variance ``tau/2`` the weights of level ``l`` of the largest grouping have the block
``B_l = I + X_l'VX_l``. They are eliminated as in the fit. ``S`` is the Schur complement on all other columns, and
``C_l = X_l'VX_1``. A row with the columns ``x_0`` in level ``l`` and ``x_1`` has the variance

    x_0'B_l^-1 x_0 + d'S^-1 d,    d = x_1 - C_l'B_l^-1 x_0.

What the data say nothing about has its prior variance: levels that were not seen, and kernels outside of the span of the fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array, hstack, issparse

from .._linalg import one_thread, psd_root
from ..design.free_basis import FreeBasis
from ..design.term_inputs import SumData, TermData
from ..features.kernels import row_squares
from ..solvers.supervised.elimination import MAX_DENSE, EliminatedSystem
from ..solvers.supervised.sides import ridged
from ..solvers.supervised.term_columns import TermColumns
from ..solvers.supervised.term_stack_side import largest_eliminated
from .posterior import MAX_ENTRIES, check_noise

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class GivenTerm:
    """A term of a fit, with its structure as known."""

    data: TermData
    weight: float = 1.0  # omega
    matrix: Array | None = None  # ``A``, or ``D``; ``None`` is the identity
    on_features: bool = False

    def columns(self, alpha: float, rho: float) -> TermColumns:
        """The term in coefficients of unit prior variance."""
        if self.data.free:
            return TermColumns(self.data, None, None, 1.0)
        scale = float(np.sqrt(self.weight / alpha))
        if self.matrix is None:
            return TermColumns(self.data, None, None, scale / float(np.sqrt(1 + rho)))
        root = ridged(psd_root(self.matrix), rho)
        return TermColumns(self.data, root, None, scale) if self.on_features else TermColumns(self.data, None, root, scale)


@dataclass(frozen=True, eq=False)
class NewRows:
    """New rows as a term sees them: features, and levels (-1: not seen) or descriptors.

    Where they are features of a kernel, ``outside`` is the part of ``k(x, x)`` that they do not have.
    """

    phi: Array
    codes: Array | None = None
    side: Array | None = None
    outside: Array | None = None
    side_outside: Array | None = None  # of a kernel on the descriptors

    def take(self, rows: slice) -> NewRows:
        parts: dict[str, Any] = {name: None if value is None else value[rows] for name, value in vars(self).items()}
        return NewRows(**parts)

    @property
    def seen(self) -> Array:
        return np.ones(len(self.phi), dtype=bool) if self.codes is None else self.codes >= 0

    def columns(self, term: TermColumns) -> TermColumns:
        """The rows in the coefficients of a term; zero where their level was not seen."""
        if self.side is not None:
            data = TermData(self.phi, np.arange(len(self.phi)), len(self.phi), self.side)
        elif self.codes is None:
            data = TermData(self.phi)
        else:
            phi = np.where(self.seen[:, None], self.phi, 0.0)
            data = TermData(phi, np.maximum(self.codes, 0), term.term.n_levels)
        return replace(term, term=data)

    def prior_variance(self, term: TermColumns) -> Array:
        """The variance that is not in ``columns``."""
        n, left, right = len(self.phi), term.left, term.right
        inside = row_squares(term.scale * (self.phi if left is None else self.phi @ left))
        outside = np.zeros(n) if self.outside is None or left is not None else term.scale**2 * self.outside
        side, beyond = np.ones(n), np.zeros(n)
        if self.side is not None:
            side = row_squares(self.side if right is None else self.side @ right)
            beyond = beyond if self.side_outside is None or right is not None else self.side_outside
        elif right is not None:
            of_level = row_squares(right)
            side = np.where(self.seen, of_level[self.codes], of_level.mean())
        return (inside + outside) * (side + beyond) - np.where(self.seen, inside * side, 0.0)


class TermPosterior:
    """Standard deviations of a sum of terms after a squared-loss fit.

    Parameters
    ----------
    terms : list of GivenTerm
        The terms with their structures.
    y, fitted, weight : ndarray of shape (n,)
        Targets, fitted values, and the weights ``v_i`` of the objective.
    task : ndarray of shape (n,)
        The task of each observation, for which ``noise`` has one number each.
    alpha, ridge : float
        The strengths of the fit.
    fit_intercept : bool
        Whether there is a free intercept.
    given_noise : float, optional
        The standard deviation of the noise (its root mean square over the observations); estimated when not given.
    """

    def __init__(
        self,
        terms: list[GivenTerm],
        y: Array,
        fitted: Array,
        weight: Array,
        task: Array,
        alpha: float,
        ridge: float,
        fit_intercept: bool,
        given_noise: float | None = None,
    ):
        check_noise(given_noise)
        self.fit_intercept = fit_intercept
        data = SumData.of(tuple(each.data for each in terms), y, weight, fit_intercept)
        self.basis: FreeBasis | None = data.free_basis
        self.terms = [each.columns(alpha, ridge / alpha) for each in terms]
        design, self.ordered = largest_eliminated(self.terms, len(y))
        E = np.zeros((len(y), 0)) if self.basis is None else self.basis.E
        if (size := design.others.size + E.shape[1]) > MAX_DENSE:
            raise ValueError(
                f"standard deviations would need a dense system of {size} columns besides the largest grouping (the limit is "
                f"{MAX_DENSE}); leave a term out, or group it more coarsely"
            )
        with one_thread():
            penalty = np.repeat([1.0, 0.0], [design.others.size, E.shape[1]])
            self._keep(EliminatedSystem(design, weight, E, penalty))
        if given_noise is None:
            self.tau = 2 * float(weight @ (y - fitted) ** 2) / max(len(y) - self.degrees_of_freedom, 1.0)
        else:
            self.tau = 2 * given_noise**2 / float(np.mean(1 / weight))
        self.noise = np.sqrt(self.tau / 2 * np.bincount(task, 1 / weight) / np.bincount(task))

    def _keep(self, system: EliminatedSystem) -> None:
        """What variances need of a system; the degrees of freedom are the trace of the hat matrix, ``tr(M^-1 X'VX)``."""
        L = np.linalg.cholesky(system.schur())
        self.half = solve_triangular(L, np.eye(len(L)), lower=True).T  # S^-1 = half half'
        penalised = system.design.others.size
        left_over = float(np.sum(self.half[:penalised] ** 2))  # tr M^-1, over the penalised coefficients
        self.inverse = None
        if system.design.levels is not None:
            self.inverse = system.inverse
            self.cross = system.cross(system.rest)
            moved = system.eliminated(self.cross)
            inner = moved.T @ moved
            inner = inner.toarray() if issparse(inner) else inner
            left_over += float(np.trace(self.inverse, axis1=1, axis2=2).sum() + np.vdot(self.half, inner @ self.half))
        self.degrees_of_freedom = system.design.size + len(L) - left_over

    def deviation(self, rows: list[NewRows]) -> Array:
        """The standard deviation of the function at new rows, given as each term sees them."""
        n, k = len(rows[0].phi), 0 if self.inverse is None else self.inverse.shape[1]
        height = max(1, MAX_ENTRIES // max(k * k, len(self.half), 1))
        variance = np.empty(n)
        with one_thread():
            for first in range(0, n, height):
                some = slice(first, first + height)
                variance[some] = self._variance([each.take(some) for each in rows])
        if not np.isfinite(variance[~np.isinf(variance)]).all():
            raise ValueError("the variance of new rows overflows; rescale X, or leave out return_std")
        return np.sqrt(self.tau / 2 * np.maximum(variance, 0.0))

    def _variance(self, rows: list[NewRows]) -> Array:
        """In units of ``tau / 2``."""
        new = {id(term): each.columns(term) for each, term in zip(rows, self.terms, strict=True)}
        ordered = [new[id(term)] for term in self.ordered]
        first, others = (None, ordered) if self.inverse is None else (ordered[0], ordered[1:])
        n = len(rows[0].phi)
        d = _beside(_joined([each.columns for each in others], n), self._border(new, n))
        variance = np.zeros(n)
        if first is not None and self.inverse is not None:
            codes, X = first.levels.index.codes, first.features
            moved = np.matmul(self.inverse[codes], X[:, :, None])[:, :, 0]
            variance += np.einsum("ij,ij->i", X, moved)
            k = X.shape[1]
            places = (codes[:, None] * k + np.arange(k)).ravel()
            picked = csr_array((moved.ravel(), places, np.arange(0, n * k + 1, k)), shape=(n, self.cross.shape[0]))
            d = d - picked @ self.cross
        variance += row_squares(d @ self.half)
        for each, term in zip(rows, self.terms, strict=True):
            if term.term.free:  # of a level that was not seen nothing is known
                variance[~each.seen & np.any(each.phi != 0, axis=1)] = np.inf
            else:
                variance += each.prior_variance(term)
        return variance

    def _border(self, new: dict[int, TermColumns], n: int) -> Array:
        """The intercept and the columns of the unpenalised terms, in the basis of the fit."""
        if self.basis is None:
            return np.zeros((n, 0))
        free = [new[id(term)].term.columns for term in self.terms if term.term.free]
        return np.hstack([np.ones((n, int(self.fit_intercept))), *free]) @ self.basis.back


def _joined(columns: list[Any], n_rows: int) -> Any:
    """Columns of several terms beside each other; sparse if some are."""
    sparse = any(issparse(each) for each in columns)
    return hstack(columns, format="csr") if sparse else np.hstack([np.zeros((n_rows, 0)), *columns])


def _beside(columns: Any, border: Array) -> Any:
    return hstack([columns, csr_array(border)], format="csr") if issparse(columns) else np.hstack([columns, border])
