"""How sure a squared-loss fit is: the Gaussian-process posterior of the separable kernel with the learned structure.

The objective ``sum_i v_i (y_i - z_i)^2 + alpha tr(A^+ W'W) + ridge ||W||^2`` is, up to the factor ``1 / tau``, the negative log
posterior of a Gaussian process with covariance ``tau/(2 alpha) k(x, z) R`` (``R = A (I + ridge/alpha A)^-1``), noise of
variance ``tau/(2 v_i)`` and a flat prior on the intercepts: its mean is the fit, whatever ``tau``. The scale ``tau`` comes from
the residuals (their weighted squares over the degrees of freedom that are left), or from a noise level that is given.
Tasks between which ``A`` is zero are independent, so each connected group of tasks is a posterior of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.csgraph import connected_components

from ._component import is_number, require
from ._linalg import one_thread, psd_eigh, psd_root
from .features import Matrix, densely, row_squares, weighted_gram
from .problem import Problem

Array = np.ndarray
LARGEST = 6000  # rows of the largest dense system that a posterior factors
BLOCK = 1 << 22  # numbers in the largest right-hand side at a time


class Group(Protocol):
    """The posterior of some of the tasks, in units of ``tau / 2``."""

    freedom: float  # degrees of freedom that the fit used

    def variance(self, phi: Matrix, outside: Array) -> Array:
        """Of every task of the group at features ``phi`` (``m x T_g``); ``outside`` is ``k(x, x)`` less ``||phi||^2``."""


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
    """

    def __init__(self, problem: Problem, W: Array, b: Array, A: Array, noise: float | None = None):
        require(
            noise is None or (is_number(noise) and 0 < noise < 1e150),
            f"noise must be None or a positive number whose square is one, got {noise!r}",
        )
        seen = problem.observations
        rho = problem.ridge / problem.alpha
        self.n_tasks = problem.n_tasks
        with one_thread():
            self.groups = [(tasks, _group(problem, A[np.ix_(tasks, tasks)], tasks, rho)) for tasks in _connected(A)]
        spent = sum(group.freedom for _, group in self.groups)
        if noise is None:
            left = max(seen.y.size - spent, 1.0)
            self.tau = 2 * problem.loss_term(problem.predict(W, b)) / left
        else:
            self.tau = 2 * noise**2 / float(np.mean(1 / seen.weight))
        per_task = seen.sum_by_task(1 / seen.weight) / seen.counts
        self.noise = np.sqrt(self.tau / 2 * per_task)

    def deviation(self, phi: Matrix, size: Array) -> Array:
        """Standard deviation of every task at features ``phi`` (``m x r``), where ``size`` is ``k(x, x)``."""
        outside = np.maximum(size - row_squares(phi), 0.0)
        outside[outside < 1e-10 * size] = 0.0
        variance = np.empty((phi.shape[0], self.n_tasks))
        with one_thread():
            for tasks, group in self.groups:
                variance[:, tasks] = group.variance(phi, outside)
        return np.sqrt(self.tau / 2 * np.maximum(variance, 0.0))


def _connected(A: Array) -> list[Array]:
    """The groups of tasks that ``A`` relates."""
    n_groups, label = connected_components(np.abs(A) > 0, directed=False)
    return [np.flatnonzero(label == g) for g in range(n_groups)]


def _group(problem: Problem, A: Array, tasks: Array, rho: float) -> Group:
    a, V = psd_eigh(A)
    R = (V * (a / (1 + rho * a))) @ V.T
    mine = np.isin(problem.observations.task, tasks)
    seen = _Seen(
        problem.observations.row[mine],
        np.searchsorted(tasks, problem.observations.task[mine]),
        problem.observations.weight[mine],
    )
    n, T = problem.features.shape[0], len(tasks)
    if seen.row.size == n * T and np.array_equal(seen.row, np.tile(np.arange(n), T)):
        by_task = seen.weight.reshape(T, n)
        c = by_task.sum(axis=1)
        s = by_task[0] / c[0]
        if np.allclose(by_task, c[:, None] * s, rtol=1e-12, atol=0.0):
            return _Shared(problem, R, s, c)
    N, columns = seen.row.size, problem.n_features * np.linalg.matrix_rank(R, hermitian=True)
    require(
        min(N, columns + T) <= LARGEST,
        f"return_std would need a dense system of {min(N, columns + T)} rows for {T} related tasks (the limit is {LARGEST}); "
        "fit a subset of the rows, or use fewer features",
    )
    return _ByObservation(problem, R, seen) if columns + T > N else _ByWeight(problem, R, seen)


@dataclass(frozen=True, eq=False)
class _Seen:
    row: Array
    task: Array
    weight: Array


class _Shared:
    """Shared, fully observed inputs: everything diagonalises, as in the fit."""

    def __init__(self, problem: Problem, R: Array, s: Array, c: Array):
        features, alpha = problem.features, problem.alpha
        self.mean = np.asarray(s @ features) if problem.fit_intercept else np.zeros(problem.n_features)
        k, self.V = psd_eigh(weighted_gram(features, s) - np.outer(self.mean, self.mean))
        root_c = np.sqrt(c)
        a, P = psd_eigh(root_c[:, None] * R * root_c)
        self.weights = a / (alpha + k[:, None] * a)  # r x T
        self.spread = (P**2 / c[:, None]).T
        self.prior = np.diag(R) / alpha
        self.flat = 1 / c if problem.fit_intercept else np.zeros(len(c))
        self.freedom = float((k[:, None] * self.weights).sum()) + (len(c) if problem.fit_intercept else 0)

    def variance(self, phi: Matrix, outside: Array) -> Array:
        inner = np.asarray(phi @ self.V) - self.mean @ self.V
        return inner**2 @ self.weights @ self.spread + outside[:, None] * self.prior + self.flat


class _Dense(ABC):
    """What the two dense forms share: the joint features of observations and of predictions."""

    def __init__(self, problem: Problem, R: Array, seen: _Seen):
        self.alpha, self.n_tasks = problem.alpha, len(R)
        self.root = psd_root(R)  # T x q
        self.prior = np.einsum("tq,tq->t", self.root, self.root) / self.alpha
        self.phi = densely(problem.features[seen.row])
        self.seen = seen
        self.intercept = problem.fit_intercept
        self.E = np.eye(self.n_tasks)[seen.task] if self.intercept else np.zeros((seen.row.size, 0))

    def variance(self, phi: Matrix, outside: Array) -> Array:
        phi = densely(phi)
        out = np.empty((len(phi), self.n_tasks))
        height = max(1, BLOCK // max(self.seen.row.size, phi.shape[1] * self.root.shape[1]))
        for first in range(0, len(phi), height):
            rows = slice(first, first + height)
            for t in range(self.n_tasks):
                out[rows, t] = self._of_task(phi[rows], t)
        return out + outside[:, None] * self.prior

    @abstractmethod
    def _of_task(self, phi: Array, t: int) -> Array:
        """The variance of one task at features ``phi``, inside the span of the training inputs."""


class _ByWeight(_Dense):
    """Fewer weights than observations: the precision matrix of weights and intercepts."""

    def __init__(self, problem: Problem, R: Array, seen: _Seen):
        super().__init__(problem, R, seen)
        X = (self.phi[:, :, None] * self.root[seen.task][:, None, :]).reshape(seen.row.size, -1)
        joint = np.hstack([X, self.E])
        data = joint.T @ (seen.weight[:, None] * joint)
        precision = data.copy()
        size = X.shape[1]
        precision[np.arange(size), np.arange(size)] += self.alpha
        self.factor = cho_factor(precision)
        self.freedom = float(np.trace(cho_solve(self.factor, data)))

    def _of_task(self, phi: Array, t: int) -> Array:
        x = (phi[:, :, None] * self.root[t][None, None, :]).reshape(len(phi), -1)
        e = np.zeros((len(phi), self.E.shape[1]))
        e[:, t : t + 1] = 1.0
        joint = np.hstack([x, e])
        return np.einsum("ij,ji->i", joint, cho_solve(self.factor, joint.T))


class _ByObservation(_Dense):
    """Fewer observations than weights: the covariance matrix of the observations, bordered by the intercepts."""

    def __init__(self, problem: Problem, R: Array, seen: _Seen):
        super().__init__(problem, R, seen)
        covariance = (self.phi @ self.phi.T) * (self.root @ self.root.T)[np.ix_(seen.task, seen.task)] / self.alpha
        total = covariance + np.diag(1 / seen.weight)
        self.factor = cho_factor(total)
        inverse = cho_solve(self.factor, np.eye(len(total)))
        self.through = inverse @ self.E
        self.border = np.linalg.inv(self.E.T @ self.through)
        hat = np.trace(inverse @ covariance)
        spent = self.E.shape[1] - np.trace(self.border @ self.through.T @ covariance @ self.through)
        self.freedom = float(hat + spent)

    def _of_task(self, phi: Array, t: int) -> Array:
        relation = (self.root @ self.root[t])[self.seen.task]
        k = (phi @ self.phi.T) * relation / self.alpha  # m x N
        left = np.einsum("ij,ji->i", k, cho_solve(self.factor, k.T))
        variance = np.einsum("ij,ij->i", phi, phi) * self.prior[t] - left
        if not self.intercept:
            return variance
        rest = -k @ self.through
        rest[:, t] += 1.0
        return variance + np.einsum("ij,jk,ik->i", rest, self.border, rest)
