"""What a careful user would write in numpy for the Figure 1 problems: FISTA for the trace norm, L-BFGS for the cluster norm.

Squared loss, tasks of equal size with inputs of their own, no intercepts. Each keeps a trace of (CPU seconds, objective, dual
bound). With a ``target`` it stops where the objective falls below, told by an oracle, and computes no bound; without one it
proves its own accuracy: every ``EVERY`` iterations a dual bound from the scaled residual, until the gap is small enough.
Both take the eigendecomposition of the smaller Gram matrix in place of a singular value decomposition (half the time), and
Gram matrices of the inputs where a task has fewer features than rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from taskloom import Problem
from taskloom.structures import Clusters

Array = np.ndarray
EVERY = 10


class ArrivedError(Exception):
    """The end of a run inside somebody else's loop."""


@dataclass(eq=False)
class Trip:
    """A run: when to stop, and what it passed."""

    problem: Problem
    target: float | None = None
    tolerance: float = 1e-6
    time_limit: float = 10.0
    began: float = field(default_factory=time.process_time)
    trace: list[tuple[float, float, float]] = field(default_factory=list)
    best: float = np.inf
    bound: float = -np.inf
    W: Array | None = None

    def arrived(self, value: float, W: Array) -> bool:
        """Note the objective at ``W`` (``T x d``)."""
        seconds = time.process_time() - self.began
        if value < self.best:
            self.best, self.W = value, W
        self.trace.append((seconds, self.best, self.bound))
        if self.target is not None:
            return value <= self.target or seconds > self.time_limit
        return self.best - self.bound <= self.tolerance * self.problem.scale or seconds > self.time_limit

    def due(self) -> bool:
        """Whether a bound is due; it counts from the next note on."""
        return self.target is None and len(self.trace) % EVERY == EVERY - 1


class Data:
    """``sum_t ||y_t - X_t w_t||^2`` with the weights inside: residuals and gradients."""

    def __init__(self, problem: Problem):
        T, d = problem.n_tasks, problem.n_features
        root = np.sqrt(problem.observations.weight).reshape(T, -1)
        self.X, self.y = root[:, :, None] * problem.features.reshape(T, -1, d), root * problem.observations.y.reshape(T, -1)
        self.shape, self.total = (T, d), float(np.vdot(self.y, self.y))
        self.gram = np.matmul(self.X.transpose(0, 2, 1), self.X) if d <= self.X.shape[1] else None
        self.right = np.matmul(self.y[:, None, :], self.X)[:, 0]

    def fit(self, W: Array) -> Array:
        """What the loss needs to know of ``W``: predictions, or ``gram w`` where that is smaller. Linear in ``W``."""
        return np.matmul(self.X if self.gram is None else self.gram, W[:, :, None])[:, :, 0]

    def loss(self, W: Array, fit: Array) -> float:
        if self.gram is None:
            left = fit - self.y
            return float(np.vdot(left, left))
        return self.total + float(np.vdot(W, fit - 2 * self.right))

    def gradient(self, fit: Array) -> Array:
        if self.gram is None:
            return 2 * np.matmul((fit - self.y)[:, None, :], self.X)[:, 0]
        return 2 * (fit - self.right)

    def lipschitz(self) -> float:
        """The largest curvature, by power iterations on all tasks at once."""
        w = self.right.copy()
        for _ in range(12):
            w /= np.linalg.norm(w, axis=1)[:, None]
            w = self.gradient(self.fit(w)) + 2 * self.right
        return 1.05 * float(np.linalg.norm(w, axis=1).max())

    def bound(self, loss: float, W: Array, gradient: Array, conjugate: float, reach: float) -> float:
        """The best ``D(cG)`` for ``G`` the residual at ``W``: ``c <Gy> - c^2 (||G||^2/4 + conjugate)``, ``c <= reach``."""
        linear = 2 * loss - float(np.vdot(W, gradient))  # <G, y> with G = 2 (y - XW)
        square = loss + conjugate
        c = min(reach, linear / (2 * square))
        return c * linear - c * c * square


def smaller_gram(M: Array) -> Array:
    return M.T @ M if M.shape[1] <= M.shape[0] else M @ M.T


def fista(problem: Problem, **options) -> Trip:
    """Accelerated proximal gradient with restarts; predictions are extrapolated along with the weights."""
    trip = Trip(problem, **options)
    data, tau = Data(problem), 2 * np.sqrt(problem.alpha)
    length = 1 / data.lipschitz()
    W = V = np.zeros(data.shape)
    fit_W = fit_V = data.fit(W)
    momentum, last = 1.0, np.inf
    while True:
        gradient = data.gradient(fit_V)
        if trip.due():
            steepest = float(np.sqrt(np.linalg.eigvalsh(smaller_gram(gradient))[-1]))
            trip.bound = max(trip.bound, data.bound(data.loss(V, fit_V), V, gradient, 0.0, tau / steepest))
        M = V - length * gradient
        energy, basis = np.linalg.eigh(smaller_gram(M))
        keep = energy > (tau * length) ** 2
        sigma, basis = np.sqrt(energy[keep]), basis[:, keep]
        share = 1 - tau * length / sigma
        new = (M @ (basis * share)) @ basis.T if M.shape[1] <= M.shape[0] else (basis * share) @ (basis.T @ M)
        fit = data.fit(new)
        value = data.loss(new, fit) + tau * float((sigma - tau * length).sum())
        if trip.arrived(value, new):
            return trip
        momentum = 1.0 if value > last else momentum
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        part = (momentum - 1) / grown
        V, fit_V = new + part * (new - W), fit + part * (fit - fit_W)
        W, fit_W, momentum, last = new, fit, grown, value


def cluster_norm(structure: Clusters, W: Array) -> tuple[float, Array]:
    """``min_A tr(A^-1 W'W)`` over the structures, for weights ``T x d``, and half its gradient: one eigendecomposition."""
    T, d = W.shape
    mean = W.mean(axis=0)
    C = W - mean
    energy, basis = np.linalg.eigh(smaller_gram(C))
    sigma = np.sqrt(np.maximum(energy, 0.0))
    a, _ = structure.water_filling(sigma, T)
    turned = (C @ (basis / a)) @ basis.T if d <= T else (basis / a) @ (basis.T @ C)
    return float((sigma**2 / a).sum()) + structure.mean * T * float(mean @ mean), turned + structure.mean * mean


def cluster_conjugate(structure: Clusters, alpha: float, Z: Array) -> float:
    """What the penalty takes off the dual bound."""
    mean = Z.mean(axis=0)
    s = np.linalg.eigvalsh(smaller_gram(Z - mean))
    low, high = 1 / structure.within, 1 / structure.between
    off = low * s.sum() + (high - low) * s[::-1][: structure.n_clusters - 1].sum()
    return float(off + len(Z) * float(mean @ mean) / structure.mean) / (4 * alpha)


def lbfgs(problem: Problem, **options) -> Trip:
    """scipy's L-BFGS-B on the weights: the cluster norm and its gradient from one eigendecomposition."""
    trip = Trip(problem, **options)
    data, structure, alpha = Data(problem), problem.structure, problem.alpha
    T, d = data.shape

    def objective(flat: Array) -> tuple[float, Array]:
        W = flat.reshape(T, d)
        norm, turned = cluster_norm(structure, W)
        fit = data.fit(W)
        loss, gradient = data.loss(W, fit), data.gradient(fit)
        if trip.due():
            trip.bound = max(trip.bound, data.bound(loss, W, gradient, cluster_conjugate(structure, alpha, gradient), 1.0))
        value = loss + alpha * norm
        if trip.arrived(value, W):
            raise ArrivedError
        return value, (gradient + 2 * alpha * turned).ravel()

    with suppress(ArrivedError):
        minimize(
            objective,
            np.zeros(T * d),
            jac=True,
            method="L-BFGS-B",
            options={"maxcor": 10, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0, "gtol": 0},
        )
    return trip


def proof(problem: Problem, tolerance: float = 1e-6) -> Callable[[Array], bool]:
    """Whether weights (``d x T``) are proved to be so close to the minimum, by the bound of their scaled residual."""
    data, structure, alpha = Data(problem), problem.structure, problem.alpha
    tau = 2 * np.sqrt(alpha)

    def proves(W: Array) -> bool:
        W = np.ascontiguousarray(W.T)
        fit = data.fit(W)
        loss, gradient = data.loss(W, fit), data.gradient(fit)
        if structure.low_rank:
            penalty = tau * float(np.sqrt(np.maximum(np.linalg.eigvalsh(smaller_gram(W)), 0.0)).sum())
            steepest = float(np.sqrt(np.linalg.eigvalsh(smaller_gram(gradient))[-1]))
            bound = data.bound(loss, W, gradient, 0.0, tau / steepest)
        else:
            penalty = alpha * cluster_norm(structure, W)[0]
            bound = data.bound(loss, W, gradient, cluster_conjugate(structure, alpha, gradient), 1.0)
        return loss + penalty - bound <= tolerance * problem.scale

    return proves


def by_cvxpy(problem: Problem, solver: str) -> Array | None:
    """The weights (``T x d``) that CVXPY finds with Clarabel or SCS, or ``None`` where it gives up."""
    import cvxpy as cp

    data, structure = Data(problem), problem.structure
    T, d = data.shape
    W = cp.Variable((T, d))
    loss = sum(cp.sum_squares(data.X[t] @ W[t] - data.y[t]) for t in range(T))
    if structure.low_rank:
        posed = cp.Problem(cp.Minimize(loss + 2 * np.sqrt(problem.alpha) * cp.normNuc(W)))
    else:
        M, N, flat = cp.Variable((T, T), symmetric=True), cp.Variable((d, d), symmetric=True), np.full((T, T), 1 / T)
        A = flat / structure.mean + (M - flat) / structure.between + (np.eye(T) - M) / structure.within
        inside = [M >> 0, np.eye(T) - M >> 0, cp.trace(M) == structure.n_clusters, cp.sum(M, axis=1) == 1]
        posed = cp.Problem(cp.Minimize(loss + problem.alpha * cp.trace(N)), [*inside, cp.bmat([[A, W], [W.T, N]]) >> 0])
    settings = {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 50_000} if solver == "SCS" else {}
    try:
        posed.solve(solver=solver, **settings)
    except cp.SolverError:
        return None
    return W.value
