"""The Gaussian-process posterior of a squared-loss fit: the separable kernel with the learned structure.

The objective ``sum_i v_i (y_i - z_i)^2 + alpha tr(A^+ W'W) + ridge ||W||^2`` is, up to the factor ``1 / tau``, the negative log
posterior of a Gaussian process with covariance ``tau/(2 alpha) k(x, z) R`` (``R = A (I + ridge/alpha A)^-1``), noise of
variance ``tau/(2 v_i)`` and a flat prior on the intercepts: its mean is the fit, whatever ``tau``. The scale ``tau`` comes from
the residuals (their weighted squares over the residual degrees of freedom), or from a given noise level. Tasks between which
``A`` is zero are independent, so each connected component of tasks has its own posterior.

That takes ``A`` as known. A joint prior (``prior.py``) also accounts for the uncertainty of a learned structure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.sparse.csgraph import connected_components

from .._component import is_number
from .._linalg import one_thread, psd_eigh
from ..design import Observations
from ..features.kernels import Matrix, row_squares, to_dense, weighted_gram
from ..problem import Problem
from .prior import Prior, structure_directions

Array = np.ndarray
MAX_DENSE_ROWS = 6000  # rows of the largest dense system that a posterior factors
MAX_ENTRIES = 1 << 22  # numbers in the largest right-hand side at a time


def check_noise(noise: float | None) -> None:
    """Raise for what is no standard deviation."""
    if noise is not None and not (is_number(noise) and 0 < noise < 1e150):
        raise ValueError(f"noise must be None or a positive number whose square is one, got {noise!r}")


class Posterior:
    """Standard deviations of the tasks' functions after a squared-loss fit.

    Parameters
    ----------
    problem : Problem
        With the squared loss.
    W, b, A : arrays
        Its solution.
    noise : float, optional
        Standard deviation of the noise (its root mean square over the observations, where weights make it differ); estimated
        from the residuals when not given.
    joint : bool
        Whether the structure is as uncertain as the weights, or known.
    """

    def __init__(self, problem: Problem, W: Array, b: Array, A: Array, noise: float | None = None, joint: bool = False):
        check_noise(noise)
        seen = problem.observations
        rho = problem.ridge / problem.alpha
        directions = structure_directions(W, A) if joint and not problem.structure.known else ()
        self.n_tasks = problem.n_tasks
        with one_thread():
            self.groups = []
            n_groups, self.label = connected_components(np.abs(A) > 0, directed=False)  # of the tasks under A
            for tasks in (np.flatnonzero(self.label == g) for g in range(n_groups)):
                prior = Prior(A[np.ix_(tasks, tasks)], rho, *directions)
                self.groups.append((tasks, _group(problem, prior, tasks), np.diag(prior.R) / problem.alpha))
        used = sum(group.degrees_of_freedom for _, group, _ in self.groups)
        if noise is None:
            residual = max(seen.y.size - used, 1.0)
            self.tau = 2 * problem.loss_term(problem.predict(W, b)) / residual
        else:
            self.tau = 2 * noise**2 / float(np.mean(1 / seen.weight))
        per_task = seen.sum_by_task(1 / seen.weight) / seen.counts
        self.noise = np.sqrt(self.tau / 2 * per_task)

    def deviation(self, phi: Matrix, size: Array, task: Array | None = None) -> Array:
        """Standard deviation of every task, or of the task of each row, at features ``phi`` (``m x r``).

        ``size`` is ``k(x, x)``.
        """
        outside = np.maximum(size - row_squares(phi), 0.0)  # where nothing is learned
        outside[outside < 1e-10 * size] = 0.0
        variance = np.empty((phi.shape[0], self.n_tasks) if task is None else phi.shape[0])
        with one_thread():
            if task is None:
                for tasks, group, prior in self.groups:
                    variance[:, tasks] = group.variance(phi) + outside[:, None] * prior
            else:
                order = np.argsort(self.label[task], kind="stable")
                ends = np.searchsorted(self.label[task[order]], np.arange(len(self.groups) + 1))
                for (tasks, group, prior), rows in zip(self.groups, np.split(order, ends[1:-1]), strict=True):
                    if rows.size:
                        mine = np.searchsorted(tasks, task[rows])
                        variance[rows] = group.variance_of(phi[rows], mine) + outside[rows] * prior[mine]
        return np.sqrt(self.tau / 2 * np.maximum(variance, 0.0))


def _group(problem: Problem, prior: Prior, tasks: Array) -> _Shared | _SharedJoint | _Dense:
    """The posterior of some of the tasks, in units of ``tau / 2``.

    It has the effective degrees of freedom of the fit, and ``variance(phi)`` of every task of the group at features ``phi``
    (``m x T_g``), inside the span of the training inputs.
    """
    every = problem.observations
    mine, n, T = np.isin(every.task, tasks), problem.n_rows, len(tasks)
    seen = Observations(every.row[mine], np.searchsorted(tasks, every.task[mine]), every.y[mine], every.weight[mine], T)
    if seen.grouping.full_rows == n:
        by_task = seen.weight.reshape(T, n)
        c = by_task.sum(axis=1)
        s = by_task[0] / c[0]
        if np.allclose(by_task, c[:, None] * s, rtol=1e-12, atol=0.0):
            if prior.directions is None:
                return _Shared(problem, prior, s, c)
            if np.allclose(c, c[0], rtol=1e-12, atol=0.0):
                return _SharedJoint(problem, prior, s, float(c[0]))
    N, columns = seen.row.size, problem.n_features * prior.root.shape[1]  # without those of one task
    if min(N, columns) > MAX_DENSE_ROWS:
        raise ValueError(
            f"return_std would need a dense system of {min(N, columns)} rows for {T} related tasks (the limit is "
            f"{MAX_DENSE_ROWS}); fit a subset of the rows, or use fewer features"
        )
    return _ByObservation(problem, prior, seen) if columns > N else _ByWeight(problem, prior, seen)


class _Centred:
    """Features along the eigenvectors of their covariance, whose eigenvalues are ``k``."""

    def __init__(self, problem: Problem, s: Array):
        features = problem.features
        self.mean = np.asarray(s @ features) if problem.fit_intercept else np.zeros(problem.n_features)
        self.k, self.V = psd_eigh(weighted_gram(features, s) - np.outer(self.mean, self.mean))

    def __call__(self, phi: Matrix) -> Array:
        return np.asarray(phi @ self.V) - self.mean @ self.V


class _Diagonal(ABC):
    """Base of the forms that give the variance of all tasks at once."""

    @abstractmethod
    def variance(self, phi: Matrix) -> Array:
        """The variance of every task at each row of features."""

    def variance_of(self, phi: Matrix, task: Array) -> Array:
        """The variance of the task of each row."""
        return np.asarray(self.variance(phi)[np.arange(len(task)), task])


class _Shared(_Diagonal):
    """Shared, fully observed inputs: everything diagonalises, as in the fit."""

    def __init__(self, problem: Problem, prior: Prior, s: Array, c: Array):
        self.inner = _Centred(problem, s)
        root_c = np.sqrt(c)
        a, P = psd_eigh(root_c[:, None] * prior.R * root_c)
        self.weights = a / (problem.alpha + self.inner.k[:, None] * a)  # r x T
        self.task_shares = (P**2 / c[:, None]).T
        self.flat = 1 / c if problem.fit_intercept else np.zeros(len(c))
        self.degrees_of_freedom = float((self.inner.k[:, None] * self.weights).sum()) + (len(c) if problem.fit_intercept else 0)

    def variance(self, phi: Matrix) -> Array:
        return self.inner(phi) ** 2 @ self.weights @ self.task_shares + self.flat


class _SharedJoint(_Diagonal):
    """The same with an uncertain structure and equal task weights: a diagonal system for each eigenvector of the tasks, and a
    small one for the directions of the structure.

    With ``w = w_0 + U z`` and data of precision ``h``: given ``z``, ``w_0`` has the variances ``q`` along the eigenvectors. The
    precision of ``z`` is ``h (1 - h q)``, and the derivative of a prediction at ``x`` is ``x'(1 - q h) U``.
    """

    def __init__(self, problem: Problem, prior: Prior, s: Array, c: float):
        alpha, own = problem.alpha, prior.own
        self.inner = _Centred(problem, s)
        h, U = c * self.inner.k, self.inner.V.T @ prior.directions
        self.flat = 1 / c if problem.fit_intercept else 0.0
        self.degrees_of_freedom = float(len(prior.a)) if problem.fit_intercept else 0.0
        self.terms = []
        # eigenvectors without task-specific variance share one system
        alike = [np.flatnonzero(own == 0), *np.flatnonzero(own)[:, None]]
        for j in (j for j in alike if j.size):
            q = own[j[0]] / (alpha + h * own[j[0]])
            left = 1 - h * q
            precision = U.T @ ((h * left)[:, None] * U)
            shrunk = np.sqrt(prior.extra_variance[:, j[0]] / alpha)
            system = np.eye(len(precision)) + shrunk[:, None] * precision * shrunk
            half = np.linalg.solve(np.linalg.cholesky(system), np.diag(shrunk))
            moved = half @ (U * left[:, None]).T  # k x r: its squares are the variance that the directions add
            self.terms.append((q, moved, (prior.V[:, j] ** 2).sum(axis=1)))
            self.degrees_of_freedom += j.size * float((h * q).sum() + np.einsum("kr,r,kr->", moved, h, moved))

    def variance(self, phi: Matrix) -> Array:
        inner = self.inner(phi)
        terms = (np.outer(inner**2 @ q + ((inner @ moved.T) ** 2).sum(axis=1), share) for q, moved, share in self.terms)
        return sum(terms, np.asarray(self.flat))


def finite(covariance: Array) -> Array:
    """Raise where the covariance of new rows with the training data overflows."""
    if not np.isfinite(covariance).all():
        raise ValueError("the covariance of new rows with the training data overflows; rescale X, or leave out return_std")
    return covariance


class _Dense(ABC):
    """Base of the two dense forms."""

    degrees_of_freedom: float

    def __init__(self, problem: Problem, prior: Prior, seen: Observations):
        self.alpha, self.n_tasks = problem.alpha, len(prior.R)
        self.prior = prior
        self.phi = to_dense(problem.features[seen.row])
        self.seen = seen

    def variance(self, phi: Matrix) -> Array:
        phi = to_dense(phi)
        out = np.empty((len(phi), self.n_tasks))
        for t in range(self.n_tasks):
            out[:, t] = self._in_parts(phi, t)
        return out

    def variance_of(self, phi: Matrix, task: Array) -> Array:
        """The variance of the task of each row."""
        phi, out = to_dense(phi), np.empty(len(task))
        for t in np.unique(task):
            out[task == t] = self._in_parts(phi[task == t], int(t))
        return out

    def _in_parts(self, phi: Array, t: int) -> Array:
        """The variance of one task, some rows at a time."""
        height = max(1, MAX_ENTRIES // max(self.seen.row.size, phi.shape[1] * self.prior.root.shape[1]))
        return np.concatenate([self._of_task(phi[k : k + height], t) for k in range(0, len(phi), height)] or [np.zeros(0)])

    @abstractmethod
    def _of_task(self, phi: Array, t: int) -> Array:
        """The variance of one task at features ``phi``, inside the span of the training inputs."""


class _ByWeight(_Dense):
    """Fewer weights than observations: the precision matrix of weights and intercepts.

    What a task has for itself (its intercept, and its part of an uncertain structure) is eliminated, a task at a time.
    """

    def __init__(self, problem: Problem, prior: Prior, seen: Observations):
        super().__init__(problem, prior, seen)
        self.intercepts = problem.fit_intercept
        self.halves, self.moved = [], []  # of each task: the inverse root of its block, and that times the block beside it
        precision: Any = 0.0
        for t in range(self.n_tasks):
            rows = slice(seen.starts[t], seen.starts[t + 1])
            shared, own = self._columns(self.phi[rows], t)
            root = np.sqrt(seen.weight[rows])[:, None]
            shared, own = root * shared, root * own
            block = own.T @ own
            penalised = np.arange(block.shape[0] - self.intercepts)
            block[penalised, penalised] += self.alpha
            half = np.linalg.inv(np.linalg.cholesky(block))
            moved = half @ (own.T @ shared)
            precision = precision + shared.T @ shared - moved.T @ moved
            self.halves.append(half)
            self.moved.append(moved)
        self.root = np.linalg.cholesky(precision + self.alpha * np.eye(len(precision)))
        parts = (slice(*ends) for ends in pairwise(seen.starts))
        self.degrees_of_freedom = sum(
            float(seen.weight[rows] @ self._of_task(self.phi[rows], t)) for t, rows in enumerate(parts)
        )

    def _columns(self, phi: Array, t: int) -> tuple[Array, Array]:
        shared, own = self.prior.columns(phi, np.array([t]))
        return shared, np.hstack([own, np.ones((len(phi), 1))]) if self.intercepts else own

    def _of_task(self, phi: Array, t: int) -> Array:
        shared, own = self._columns(phi, t)
        own = own @ self.halves[t].T
        left = finite(shared - own @ self.moved[t])
        return np.square(own).sum(axis=1) + np.square(solve_triangular(self.root, left.T, lower=True)).sum(axis=0)


class _ByObservation(_Dense):
    """Fewer observations than weights: the covariance matrix of the observations, bordered by the intercepts."""

    def __init__(self, problem: Problem, prior: Prior, seen: Observations):
        super().__init__(problem, prior, seen)
        self.E = np.eye(self.n_tasks)[seen.task] if problem.fit_intercept else np.zeros((seen.row.size, 0))
        covariance = prior.covariance(self.phi, seen.task, self.phi, seen.task) / self.alpha
        total = covariance + np.diag(1 / seen.weight)
        self.factor = cho_factor(total)
        inverse = cho_solve(self.factor, np.eye(len(total)))
        self.through = inverse @ self.E
        self.border = np.linalg.inv(self.E.T @ self.through)
        hat = np.trace(inverse @ covariance)
        spent = self.E.shape[1] - np.trace(self.border @ self.through.T @ covariance @ self.through)
        self.degrees_of_freedom = float(hat + spent)

    def _of_task(self, phi: Array, t: int) -> Array:
        k = self.prior.covariance(phi, np.array([t]), self.phi, self.seen.task) / self.alpha  # m x N
        left = np.einsum("ij,ji->i", k, cho_solve(self.factor, finite(k).T))
        variance = self.prior.variance(phi, t) / self.alpha - left
        rest = -k @ self.through
        rest[:, t : t + 1] += 1.0  # without intercepts there are no columns
        return variance + np.einsum("ij,jk,ik->i", rest, self.border, rest)
