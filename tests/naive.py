"""Textbook twins of the fast paths: slow, short, independent."""

from __future__ import annotations

import numpy as np


def kronecker_supervised_step(problem, A):
    """The coupled supervised step of the squared loss as one dense system in ``vec(W)`` and ``b``."""
    seen, r, T = problem.observations, problem.n_features, problem.n_tasks
    design = np.zeros((seen.y.size, r * T + T))
    for i, (row, t) in enumerate(zip(seen.row, seen.task, strict=True)):
        design[i, t * r : (t + 1) * r] = problem.features[row]
        design[i, r * T + t] = 1.0 if problem.fit_intercept else 0.0
    penalty = np.zeros((r * T + T, r * T + T))
    penalty[: r * T, : r * T] = problem.alpha * np.kron(np.linalg.inv(A), np.eye(r)) + problem.ridge * np.eye(r * T)
    system = design.T @ (seen.weight[:, None] * design) + penalty
    solution = np.linalg.lstsq(system, design.T @ (seen.weight * seen.y), rcond=None)[0]
    return solution[: r * T].reshape(T, r).T, solution[r * T :]


def gram(k, X):
    """A kernel matrix entry by entry."""
    return np.array([[k(x[None], z[None])[0, 0] for z in X] for x in X])


def l1_prox(structure, l1, A, step, n_steps=3000):
    """The prox of ``structure`` plus ``l1`` off the diagonal by plain projected ascent on the dual."""
    N = np.zeros_like(A)
    for _ in range(n_steps):
        N = np.clip(N + structure.prox(A - step * N, step) / step, -l1, l1)
        np.fill_diagonal(N, 0.0)
    return structure.prox(A - step * N, step)


def projected_objective(problem, Q):
    """``||Q||^2 + sum_t min_{b, c} v ||y_t - X_t Q b - c||^2 + alpha ||b||^2``, one least squares problem after the other."""
    seen, total = problem.observations, float(np.vdot(Q, Q))
    for t in range(problem.n_tasks):
        mine = seen.task == t
        root = np.sqrt(seen.weight[mine])
        P = root[:, None] * (problem.features[seen.row[mine]] @ Q)
        edge = root[:, None] * (1.0 if problem.fit_intercept else 0.0)
        ridge = np.hstack([np.sqrt(problem.alpha) * np.eye(Q.shape[1]), np.zeros((Q.shape[1], 1))])
        system = np.vstack([np.hstack([P, edge]), ridge])
        target = np.concatenate([root * seen.y[mine], np.zeros(Q.shape[1])])
        total += float(np.sum((target - system @ np.linalg.lstsq(system, target, rcond=None)[0]) ** 2))
    return total


def check_point(problem, point, Q, step):
    """``point(Q)`` has the value, gradient and Hessian of ``projected_objective`` along ``step``."""

    def at(t):
        return point(Q + t * step)

    def h(t):
        return projected_objective(problem, Q + t * step)

    assert np.isclose(at(0.3).value - at(0).value, h(0.3) - h(0), rtol=1e-9)
    eps = 1e-4
    assert np.isclose(np.vdot(at(0).gradient, step), (h(eps) - h(-eps)) / (2 * eps), rtol=1e-5)
    here = at(0)
    here.lift = 0.0  # the plain Hessian
    assert np.allclose(here.hessian(step), (at(eps).gradient - at(-eps).gradient) / (2 * eps), rtol=1e-4, atol=1e-5)


def cluster_norm(structure, W):
    """``min_A tr(A^-1 W'W)`` over those of ``Clusters``, and its gradient, for weights ``T x r``: as one big matrix."""
    A = structure.best_structure(W @ W.T)
    return float(np.trace(np.linalg.solve(A, W @ W.T))), 2 * np.linalg.solve(A, W)
