"""Corrections to formulas of the paper, each with numbers: ``python -m taskloom.experiments corrections``.

Each entry evaluates the printed and the corrected formula (``ours``); the corrected one has the smaller error, or none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

from ..design import Observations
from ..losses import Squared
from ..problem import Problem
from ..problem.solution import Solution
from ..solvers import solve
from ..structures import Schatten, SchattenNorm, Structure, Trace, UnitTrace

Array = np.ndarray
Evidence = dict[str, float]
SCENES = (241, 360, 328, 260, 308, 374, 410, 292, 356, 215, 216, 311, 210, 289, 315)  # images of each class


def _fit(structure: Structure, alpha: float, seed: int = 0) -> Solution:
    rng = np.random.default_rng(seed)
    X, W = rng.normal(size=(30, 6)), rng.normal(size=(6, 4))
    seen = Observations.from_wide(X @ W + rng.normal(size=(30, 4)))
    problem = Problem(X, seen, Squared(), structure, alpha, fit_intercept=False)
    return solve(problem, tol=1e-10, max_iter=5000)


def _difference(one: Array, other: Array) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def _both(what: str, ours: float, printed: float) -> Evidence:
    return {f"{what}, ours": float(ours), f"{what}, printed": float(printed)}


def schatten_step() -> Evidence:
    """1. The minimiser of ``alpha tr(A^-1 M) + tr(A^p)`` is ``(alpha M/p)^(1/(p+1))``, not ``(M/alpha)^(1/(p+1))``."""
    alpha, p, M = 0.3, 2.0, np.array([2.0, 0.7, 0.1])  # all matrices commute: eigenvalues suffice

    def objective(a: Array) -> float:
        return float(np.sum(alpha * M / a + a**p))

    best = minimize(lambda log_a: objective(np.exp(log_a)), np.zeros(3), tol=1e-14).fun
    ours, printed = (objective(step ** (1 / (p + 1))) - best for step in (alpha * M / p, M / alpha))
    return _both("above the minimum", ours, printed)


def mean_variance() -> Evidence:
    """2. ``sum ||f_t||^2 + gamma sum ||f_t - mean||^2`` is ``A^+ = I + gamma (I - 11'/T)``, not ``I + gamma 11'/T``."""
    W, gamma, T = np.random.default_rng(0).normal(size=(5, 4)), 3.0, 4
    mean = W.mean(axis=1, keepdims=True)
    meant = np.sum(W**2) + gamma * np.sum((W - mean) ** 2)
    U = np.full((T, T), 1 / T)
    ours, printed = (abs(np.trace((np.eye(T) + gamma * P) @ W.T @ W) - meant) for P in (np.eye(T) - U, U))
    return _both("error of the penalty", ours, printed)


def graph() -> Evidence:
    """3. ``sum_{t,s} W_ts ||f_t - f_s||^2 + gamma sum ||f_t||^2`` is ``A^+ = 2L + gamma I``, not ``L + gamma I``."""
    rng, T, gamma = np.random.default_rng(0), 4, 0.5
    F, S = rng.normal(size=(5, T)), np.triu(rng.random((T, T)), 1)
    S = S + S.T
    L = np.diag(S.sum(axis=1)) - S
    meant = sum(S[t, s] * np.sum((F[:, t] - F[:, s]) ** 2) for t in range(T) for s in range(T)) + gamma * np.sum(F**2)
    ours, printed = (abs(np.trace((P + gamma * np.eye(T)) @ F.T @ F) - meant) for P in (2 * L, L))
    return _both("error of the penalty", ours, printed)


def clusters() -> Evidence:
    """4. ``M = E E^+`` has trace ``r``; the penalty is convex for ``A`` linear in ``M``, not for ``A^-1`` linear in ``M``.

    The figures are the largest excess of the penalty at the middle of two points over the mean at the points.
    """
    rng, T, e_mean, e_between, e_within = np.random.default_rng(0), 6, 0.1, 1.0, 10.0
    U, eye = np.full((T, T), 1 / T), np.eye(T)

    def partition() -> Array:
        E = np.eye(3)[rng.permutation(np.arange(T) % 3)]
        return E @ np.linalg.pinv(E)

    def ours(W: Array, M: Array) -> float:
        A = U / e_mean + (M - U) / e_between + (eye - M) / e_within
        return float(np.trace(np.linalg.solve(A, W.T @ W)))

    def printed(W: Array, M: Array) -> float:
        return float(np.trace((e_mean * U + e_between * (M - U) + e_within * (eye - M)) @ W.T @ W))

    def excess(penalty: Callable[[Array, Array], float]) -> float:
        worst = -np.inf
        for _ in range(200):
            one, other = ((rng.normal(size=(4, T)) @ M, M) for M in (partition(), partition()))
            middle = penalty((one[0] + other[0]) / 2, (one[1] + other[1]) / 2)
            worst = max(worst, middle - (penalty(*one) + penalty(*other)) / 2)
        return worst

    trace = abs(float(np.trace(partition())) - 3)
    return {"error of tr M = r, ours": trace, **_both("excess at the middle", excess(ours), excess(printed))}


def feature_learning() -> Evidence:
    """5. ``gamma ||B||_*^2`` and ``2 sqrt(lam) ||B||_*`` agree at ``sqrt(lam) = gamma ||B*||_*``, not at ``gamma^2/4``."""
    gamma = 0.05
    squared = _fit(UnitTrace(), gamma)
    norm = float(np.linalg.svd(squared.W, compute_uv=False).sum())
    ours, printed = (_difference(_fit(Trace(), alpha).W, squared.W) for alpha in ((gamma * norm) ** 2, gamma**2 / 4))
    return _both("solutions apart", ours, printed)


def images() -> Evidence:
    """6. A test set of 7500 images is impossible: 15-Scenes has 4485 images in all."""
    return {"images in all": float(sum(SCENES)), "test images, printed": 7500.0}


def norm_and_power() -> Evidence:
    """7. ``||A||_p`` (the theorem) and ``tr A^p`` (the proposition): the same solutions at different values of alpha.

    The structure scales by ``k``, and so does alpha: ``k^p = 1/(p ||A||_p^(p-1))``.
    """
    p, alpha = 2.0, 0.05
    norm = _fit(SchattenNorm(p), alpha)
    size = float(np.sum(np.linalg.eigvalsh(norm.A) ** p) ** (1 / p))
    k = (1 / (p * size ** (p - 1))) ** (1 / p)
    ours, printed = (_difference(_fit(Schatten(p), strength).W, norm.W) for strength in (k * alpha, alpha))
    return _both("solutions apart", ours, printed)


def coding() -> Evidence:
    """8. For least squares, coding by ``L`` is not ``k L'L``; a metric is ``k Theta`` if it acts on the loss alone."""
    rng, n, T, lam = np.random.default_rng(0), 20, 3, 0.5
    Z, Y = rng.normal(size=(n, n)), rng.normal(size=(n, T))
    K, L = Z @ Z.T / n, rng.normal(size=(4, T))

    def with_kernel(A: Array) -> Array:
        """Predictions of ``min ||Y - KCA||^2 + lam tr(A C'KC)``."""
        C = np.linalg.solve(np.kron(A, K) + lam * np.eye(n * T), Y.T.ravel()).reshape(T, n).T
        return K @ C @ A

    ridge = K @ np.linalg.inv(K + lam * np.eye(n))
    theta = L.T @ L
    weighted = np.linalg.solve(np.kron(theta, K) + lam * np.eye(n * T), (Y @ theta).T.ravel()).reshape(T, n).T
    return {
        "metric on the loss alone, apart from k Theta, ours": _difference(K @ weighted, with_kernel(theta)),
        "metric on loss and norm, apart from k Theta, printed": _difference(ridge @ Y, with_kernel(theta)),
        "coded least squares, apart from k L'L, printed": _difference(ridge @ Y @ L.T, with_kernel(theta) @ L.T),
    }


CORRECTIONS = (schatten_step, mean_variance, graph, clusters, feature_learning, images, norm_and_power, coding)


def show() -> None:
    """Print each correction with its figures."""
    for correction in CORRECTIONS:
        sys.stdout.write((correction.__doc__ or "").strip().split("\n")[0] + "\n")
        for name, value in correction().items():
            sys.stdout.write(f"    {name + ':':<56}{value:.4g}\n")
