"""Variance components of a Gaussian mixed model by restricted maximum likelihood.

    y = X b + sum_q Z_q u_q + e,    u_q ~ N(0, D_q) for each level of grouping q,    e_i ~ N(0, sigma^2 / s_i)

With ``D_q = sigma^2 F_q F_q'`` the deviance, profiled over ``b`` and ``sigma^2``, follows from one Cholesky factor of the mixed
model equations (Bates et al., 2015). The levels of the largest grouping are eliminated, one small block each, from sums that
are formed once. What is left has the columns of the other groupings, of ``X``, and of ``y``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag, solve_triangular
from scipy.optimize import minimize
from scipy.sparse import block_diag as sparse_block_diag
from scipy.sparse import bsr_array, csr_array, eye_array, kron

Array = np.ndarray
LARGEST_FULL = 4  # features of a term that has a full covariance
LARGEST_DIAGONAL = 12  # features of a term that has one variance for each
LOG_RANGE = 12.0  # of standard deviations relative to sigma and to the size of the features
STEP = 1e-4  # of central differences
COLLAPSED = -5.0  # log of a relative standard deviation from which the search starts again


@dataclass(frozen=True)
class CovarianceShape:
    """A covariance of ``size`` features: ``"full"``, ``"diagonal"``, or ``"scale"`` (a multiple of the identity)."""

    size: int
    kind: str

    @classmethod
    def of(cls, size: int) -> CovarianceShape:
        return cls(size, "full" if size <= LARGEST_FULL else "diagonal" if size <= LARGEST_DIAGONAL else "scale")

    @property
    def n_logs(self) -> int:
        return 1 if self.kind == "scale" else self.size

    @property
    def n_parameters(self) -> int:
        return self.n_logs + (self.size * (self.size - 1) // 2 if self.kind == "full" else 0)

    def factor(self, theta: Array) -> Array:
        """The lower triangular factor; its diagonal is given by logarithms."""
        F = np.diag(np.broadcast_to(np.exp(theta[: self.n_logs]), self.size))
        if self.kind == "full":
            F[np.tril_indices(self.size, -1)] = theta[self.n_logs :]
        return F

    def units(self, phi: Array, weight: Array) -> Array:
        """The size of each feature, which makes the parameters free of units; one for all under ``"scale"``."""
        squares = weight @ phi**2 / weight.sum()
        squares = np.full(self.size, squares.mean()) if self.kind == "scale" else squares
        return np.sqrt(np.where(squares > 0, squares, 1.0))


@dataclass(frozen=True, eq=False)
class RandomEffects:
    """The random effects of one grouping: features, the level of each row, and the covariance of each part of the features."""

    phi: Array
    codes: Array
    n_levels: int
    shapes: tuple[CovarianceShape, ...]

    @property
    def k(self) -> int:
        return self.phi.shape[1]

    @property
    def ends(self) -> Array:
        return np.cumsum([shape.size for shape in self.shapes])

    @cached_property
    def design(self) -> csr_array:
        """``Z``, with the features of a level beside each other."""
        n, k = self.phi.shape
        columns = (self.codes[:, None] * k + np.arange(k)).ravel()
        return csr_array((self.phi.ravel(), columns, np.arange(0, n * k + 1, k)), shape=(n, self.n_levels * k))

    def in_units(self, weight: Array) -> tuple[RandomEffects, Array]:
        """The same effects of features of size one, and the sizes."""
        parts = np.split(self.phi, self.ends[:-1], axis=1)
        units = np.concatenate([shape.units(part, weight) for shape, part in zip(self.shapes, parts, strict=True)])
        return RandomEffects(self.phi / units, self.codes, self.n_levels, self.shapes), units

    @property
    def sizes(self) -> list[int]:
        return [shape.n_parameters for shape in self.shapes]

    def factor(self, theta: Array) -> Array:
        parts = np.split(theta, np.cumsum(self.sizes)[:-1])
        return block_diag(*(shape.factor(part) for shape, part in zip(self.shapes, parts, strict=True)))

    @property
    def is_log(self) -> Array:
        """Which parameters are logarithms of standard deviations."""
        return np.concatenate([np.arange(shape.n_parameters) < shape.n_logs for shape in self.shapes])


class Components(NamedTuple):
    """What maximises the restricted likelihood; ``coef`` are generalised least squares, with their covariance."""

    sigma2: float
    covariances: list[Array]  # of each grouping, in the units of its features
    coef: Array
    coef_covariance: Array
    log_likelihood: float


class ProfiledDeviance:
    """Minus twice the restricted log likelihood, as a function of the relative factors of all groupings."""

    def __init__(self, X: Array, y: Array, weight: Array, effects: list[RandomEffects]):
        self.effects = sorted(effects, key=lambda each: -each.n_levels)
        self.n, self.p = X.shape
        self.log_weight = float(np.log(weight).sum())
        fixed = np.column_stack([X, y])
        self.gram = fixed.T @ (weight[:, None] * fixed)
        if not effects:
            return
        first, rest = self.effects[0], self.effects[1:]
        L, k = first.n_levels, first.k
        by_level = csr_array((weight, (first.codes, np.arange(self.n))), shape=(L, self.n))
        self.squares = np.stack([by_level @ (first.phi[:, [j]] * first.phi) for j in range(k)], axis=1)  # L x k x k
        self.cross = (first.design.T @ (weight[:, None] * fixed)).reshape(L, k, self.p + 1)
        self.rest = rest
        if rest:
            Z = [each.design for each in rest]
            weighted = [csr_array(each.multiply(weight[:, None])) for each in Z]
            self.rest_gram = np.block([[(a.T @ b).toarray() for b in weighted] for a in Z])
            self.rest_fixed = np.vstack([a.T @ fixed for a in weighted])
            self.rest_cross = [csr_array(first.design.T @ b) for b in weighted]

    @property
    def is_log(self) -> Array:
        return np.concatenate([each.is_log for each in self.effects]) if self.effects else np.zeros(0, bool)

    def factors(self, theta: Array) -> list[Array]:
        parts = np.split(theta, np.cumsum([sum(each.sizes) for each in self.effects])[:-1])
        return [each.factor(part) for each, part in zip(self.effects, parts, strict=True)]

    def reduced(self, theta: Array) -> tuple[Array, float, int]:
        """The Cholesky factor after the elimination, the log determinant of what was eliminated, and the columns left of X."""
        if not self.effects:
            return np.linalg.cholesky(self.gram), 0.0, 0
        first, *others = self.factors(theta)
        k = len(first)
        block = np.linalg.cholesky(first.T @ self.squares @ first + np.eye(k))
        log_det = 2 * float(np.log(np.einsum("lii->li", block)).sum())
        half = np.linalg.solve(block, np.broadcast_to(first.T, block.shape))
        cross = (half @ self.cross).reshape(-1, self.p + 1)
        gram = self.gram - cross.T @ cross
        if not self.rest:
            return np.linalg.cholesky(gram), log_det, 0
        L = len(block)
        halves = bsr_array((half, np.arange(L), np.arange(L + 1)), shape=(L * k, L * k))
        scale = [kron(eye_array(each.n_levels), F, format="csr") for each, F in zip(self.rest, others, strict=True)]
        eliminated = [csr_array(halves @ C @ S) for C, S in zip(self.rest_cross, scale, strict=True)]
        whole = csr_array(sparse_block_diag(scale))
        m = whole.shape[0]
        top = whole.T @ (self.rest_gram @ whole) + np.eye(m)
        top -= np.block([[(a.T @ b).toarray() for b in eliminated] for a in eliminated])
        side = whole.T @ self.rest_fixed - np.vstack([a.T @ cross for a in eliminated])
        return np.linalg.cholesky(np.block([[top, side], [side.T, gram]])), log_det, m

    def __call__(self, theta: Array) -> float:
        try:
            R, log_det, _ = self.reduced(theta)
        except np.linalg.LinAlgError:  # factors too large for double precision
            return np.inf
        pivots, free = np.diag(R), self.n - self.p
        profiled = free * (1 + np.log(2 * np.pi * pivots[-1] ** 2 / free))
        return float(log_det + 2 * np.log(pivots[:-1]).sum() + profiled - self.log_weight)

    def gradient(self, theta: Array) -> Array:
        steps = STEP * np.eye(len(theta))
        return np.array([(self(theta + step) - self(theta - step)) / (2 * STEP) for step in steps])


def _best(deviance: ProfiledDeviance) -> Array:
    """The parameters of the least deviance; where a variance collapsed at once, the search starts again from a small one."""
    is_log, n = deviance.is_log, deviance.n
    bounds = [(-LOG_RANGE, LOG_RANGE) if each else (None, None) for each in is_log]

    def search(start: Array) -> tuple[float, Array]:
        found = minimize(
            lambda theta: deviance(theta) / n,
            start,
            jac=lambda theta: deviance.gradient(theta) / n,
            method="L-BFGS-B",
            bounds=bounds,
            options={"ftol": 1e-11, "gtol": 1e-7, "maxiter": 200},
        )
        return float(found.fun), found.x

    value, theta = search(np.zeros(len(is_log)))
    collapsed = is_log & (theta < COLLAPSED)
    if collapsed.any():
        again = search(np.where(collapsed, -2.0, theta))
        theta = again[1] if again[0] < value else theta
    return theta


def variance_components(X: Array, y: Array, weight: Array, effects: list[RandomEffects]) -> Components:
    """Restricted maximum likelihood.

    Parameters
    ----------
    X : ndarray of shape (n, p)
        Columns of the fixed effects, linearly independent.
    y : ndarray of shape (n,)
        Targets.
    weight : ndarray of shape (n,)
        ``s_i``, positive: the variance of the noise is ``sigma^2 / s_i``.
    effects : list of RandomEffects
        One for each grouping.

    Returns
    -------
    Components
        Variances in the units of ``y`` and of the features.
    """
    size = float(np.sqrt(weight @ y**2 / weight.sum())) or 1.0
    lengths = np.sqrt(weight @ X**2 / weight.sum())
    scaled = [each.in_units(weight) for each in effects]
    deviance = ProfiledDeviance(X / lengths, y / size, weight, [each for each, _ in scaled])
    deviance.reduced(np.zeros(len(deviance.is_log)))  # raises where X fits y exactly: there is no maximum
    theta = _best(deviance) if effects else np.zeros(0)
    R, _, m = deviance.reduced(theta)
    n, p = X.shape
    sigma2 = float(R[-1, -1] ** 2) / (n - p)
    fixed = R[m:-1, m:-1]
    inverse = solve_triangular(fixed, np.eye(p), lower=True)
    coef = inverse.T @ R[-1, m:-1]
    factors = dict(zip(map(id, deviance.effects), deviance.factors(theta) if effects else [], strict=True))
    roots = [factors[id(each)] / units[:, None] for each, units in scaled]
    return Components(
        sigma2 * size**2,
        [sigma2 * size**2 * F @ F.T for F in roots],
        coef * size / lengths,
        sigma2 * size**2 * (inverse.T @ inverse) / np.outer(lengths, lengths),
        -0.5 * deviance(theta) - (n - p) * np.log(size) - float(np.log(lengths).sum()),
    )
