"""The original algorithms, from their papers, for comparison: squared loss, task-specific inputs, no intercepts.

All minimise ``sum_t 1/n_t ||y_t - X_t w_t||^2`` plus a penalty of ``W`` (``d x T``), and return the weights with a trace of
``(CPU seconds, objective)``. They stop at ``target`` (an objective value) or after ``time_limit`` seconds. With
``proves`` they also stop where ``proves(W)`` certifies their weights, checked every ``EVERY`` iterations. Nothing is tuned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve

from .._linalg import project_box_sum, symmetric

Array = np.ndarray
Trace = list[tuple[float, float]]
Proof = Callable[[Array], bool]
EVERY = 10


@dataclass(eq=False)
class TaskList:
    """One data set for each task."""

    Xs: list[Array]
    ys: list[Array]

    def loss(self, W: Array) -> float:
        return float(sum(np.mean((y - X @ w) ** 2) for X, y, w in zip(self.Xs, self.ys, W.T, strict=True)))

    def supervised(self, A: Array, alpha: float) -> Array:
        """``argmin_W loss(W) + alpha tr(A^-1 W'W)``: all tasks at once, in the smaller of the primal and the dual system."""
        X, n = np.concatenate(self.Xs), np.array([len(y) for y in self.ys])
        d, T = X.shape[1], len(n)
        if d * T <= len(X):
            system = block_diag(*[x.T @ x / len(x) for x in self.Xs]) + alpha * np.kron(np.linalg.inv(A), np.eye(d))
            right = np.concatenate([x.T @ y / len(y) for x, y in zip(self.Xs, self.ys, strict=True)])
            return cho_solve(cho_factor(system), right).reshape(T, d).T
        task = np.repeat(np.arange(T), n)
        K = (X @ X.T) * A[np.ix_(task, task)]
        K[np.diag_indices(len(K))] += alpha * n[task]
        c = cho_solve(cho_factor(K, overwrite_a=True), np.concatenate(self.ys))
        B = np.stack([x.T @ part for x, part in zip(self.Xs, np.split(c, np.cumsum(n)[:-1]), strict=True)], axis=1)
        return B @ A


class Clock:
    """Measures CPU seconds (independent of the load of the machine), keeps the trace, and tells when to stop."""

    def __init__(self, target: float, time_limit: float, proves: Proof | None = None):
        self.target, self.time_limit, self.proves, self.began = target, time_limit, proves, time.process_time()
        self.trace: Trace = []

    def done(self, objective: float, W: Array | None = None) -> bool:
        due = W is not None and self.proves is not None and len(self.trace) % EVERY == EVERY - 1
        proved = due and self.proves(W)  # type: ignore[misc, arg-type]
        self.trace.append((time.process_time() - self.began, objective))
        return proved or objective <= self.target or self.trace[-1][0] > self.time_limit


def nuclear(W: Array) -> float:
    return float(np.linalg.svd(W, compute_uv=False).sum())


def argyriou_alternation(
    tasks: TaskList, gamma: float, target: float, time_limit: float, proves: Proof | None = None, epsilon: float = 1e-8
) -> tuple[Array, Trace]:
    """Convex multi-task feature learning (Argyriou, Evgeniou and Pontil 2008), Algorithm 1 with its perturbation.

    Minimises ``loss + gamma ||W||_*^2`` by alternation: each task with the metric ``D`` on the features, then
    ``D = (W W' + epsilon I)^(1/2)``, scaled to trace 1.
    """
    d, T = tasks.Xs[0].shape[1], len(tasks.Xs)
    D, W, clock = np.eye(d) / d, np.zeros((d, T)), Clock(target, time_limit, proves)
    while not clock.done(tasks.loss(W) + gamma * nuclear(W) ** 2, W):
        for t, (X, y) in enumerate(zip(tasks.Xs, tasks.ys, strict=True)):
            XD = X @ D
            W[:, t] = XD.T @ np.linalg.solve(XD @ X.T + gamma * len(y) * np.eye(len(y)), y)
        s, U = np.linalg.eigh(symmetric(W @ W.T) + epsilon * np.eye(d))
        root = np.sqrt(np.maximum(s, 0.0))
        D = (U * (root / root.sum())) @ U.T
    return W, clock.trace


def accelerated_proximal_gradient(tasks: TaskList, tau: float, target: float, time_limit: float) -> tuple[Array, Trace]:
    """FISTA (Beck and Teboulle 2009; Ji and Ye 2009 for the trace norm): ``loss + tau ||W||_*``."""
    d, T = tasks.Xs[0].shape[1], len(tasks.Xs)
    lipschitz = max(2 * np.linalg.norm(X, 2) ** 2 / len(X) for X in tasks.Xs)
    W = V = np.zeros((d, T))
    momentum, clock = 1.0, Clock(target, time_limit)
    while not clock.done(tasks.loss(W) + tau * nuclear(W)):
        gradient = np.stack([2 * X.T @ (X @ v - y) / len(y) for X, y, v in zip(tasks.Xs, tasks.ys, V.T, strict=True)], axis=1)
        U, s, Vt = np.linalg.svd(V - gradient / lipschitz, full_matrices=False)
        new = (U * np.maximum(s - tau / lipschitz, 0.0)) @ Vt
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        W, V, momentum = new, new + (momentum - 1) / grown * (new - W), grown
    return W, clock.trace


@dataclass(frozen=True)
class ClusterSet:
    """The relaxed set of Jacob, Bach and Vert: ``A = 11'/(T mean)`` plus a centred matrix with eigenvalues in a box."""

    n_clusters: int
    mean: float
    between: float
    within: float

    def assemble(self, off: Array) -> Array:
        T = len(off)
        return np.full((T, T), 1 / (T * self.mean)) + off

    def with_eigenvalues(self, values: Array, vectors: Array, choose: Callable[[Array, float, float, float], Array]) -> Array:
        """The centred matrix with these eigenvectors and the eigenvalues that ``choose(values, low, high, sum)`` finds."""
        low, high = 1 / self.within, 1 / self.between
        total = (self.n_clusters - 1) * high + (len(values) + 1 - self.n_clusters) * low
        return (vectors * choose(values, low, high, total)) @ vectors.T

    def off_mean(self, S: Array) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors on the orthogonal complement of the mean."""
        T = len(S)
        basis = np.linalg.svd(np.eye(T) - 1 / T)[0][:, : T - 1]
        s, V = np.linalg.eigh(symmetric(basis.T @ S @ basis))
        return s, basis @ V


def _water_filling(s: Array, low: float, high: float, total: float) -> Array:
    """``argmin sum s/a`` over the box with a given sum: ``a = sqrt(s)/nu`` inside, by bisection on ``nu``."""
    root = np.sqrt(np.maximum(s, 0.0)) + 1e-300
    least, most = -700.0, 700.0
    for _ in range(200):
        middle = (least + most) / 2
        least, most = (middle, most) if np.clip(root * np.exp(middle), low, high).sum() < total else (least, middle)
    return np.clip(root * np.exp(most), low, high)


def jacob_gradient(
    tasks: TaskList, alpha: float, clusters: ClusterSet, target: float, time_limit: float, proves: Proof | None = None
) -> tuple[Array, Trace]:
    """Clustered multi-task learning (Jacob, Bach and Vert 2008, section 4): projected gradient on the structure alone.

    The tasks are eliminated by an exact fit at each structure, whose value is convex and smooth in the structure; the
    projection onto the set acts on eigenvalues. Step length by backtracking.
    """
    T = len(tasks.Xs)
    off = clusters.with_eigenvalues(*clusters.off_mean(np.eye(T)), project_box_sum)  # all eigenvalues equal
    clock = Clock(target, time_limit, proves)

    def value(part: Array) -> tuple[float, Array]:
        A = clusters.assemble(part)
        W = tasks.supervised(A, alpha)
        return tasks.loss(W) + alpha * float(np.trace(np.linalg.solve(A, W.T @ W))), W

    objective, W = value(off)
    length = 1.0 / max(float(np.linalg.norm(W)) ** 2 * alpha, 1e-12)
    while not clock.done(objective, W):
        inverse = np.linalg.inv(clusters.assemble(off))
        gradient = -alpha * inverse @ (W.T @ W) @ inverse
        for _ in range(60):
            a, V = clusters.off_mean(off - length * gradient)
            trial = clusters.with_eigenvalues(a, V, project_box_sum)
            new, W_new = value(trial)
            step = trial - off
            expected = objective + float(np.vdot(gradient, step)) + float(np.vdot(step, step)) / (2 * length)
            if new <= expected or clock.done(objective):
                break
            length /= 2
        if new >= objective:
            break  # rounding: no step length lowers it
        off, objective, W, length = trial, new, W_new, 1.5 * length
    return W, clock.trace


def paper_alternation(
    tasks: TaskList, alpha: float, target: float, time_limit: float, clusters: ClusterSet | None = None, delta: float = 1e-4
) -> tuple[Array, Trace]:
    """Algorithm 1 of the paper with ``A_0 = I``: the trace penalty, or clusters; both steps exact, a fixed barrier.

    The objective in the trace is that without the barrier, ``loss + 2 sqrt(alpha) ||W||_*`` for the trace penalty.
    """
    T = len(tasks.Xs)
    A, clock = np.eye(T), Clock(target, time_limit)
    while True:
        W = tasks.supervised(A, alpha)
        S = alpha * (symmetric(W.T @ W) + delta**2 * np.eye(T))
        if clusters is None:
            s, V = np.linalg.eigh(S)
            A = (V * np.sqrt(s)) @ V.T
            objective = tasks.loss(W) + 2 * np.sqrt(alpha) * nuclear(W)
        else:
            A = clusters.assemble(clusters.with_eigenvalues(*clusters.off_mean(S), _water_filling))
            objective = tasks.loss(W) + alpha * float(np.trace(np.linalg.solve(A, W.T @ W)))
        if clock.done(objective):
            return W, clock.trace
