"""Leave-one-out predictions in closed form, for the squared loss and a known structure on the tasks.

With ``C = (1/alpha) K o R + diag(1/v)`` over the observations and ``P`` its inverse with the intercepts projected out, the fit
without observation ``i`` has the residual ``(P y)_i / P_ii``. Leaving an observation out also changes the weights of the
others: ``c_t / S_t`` is taken over the rest. For shared inputs that changes alpha. For task-specific inputs it rescales one
task's block of ``C``, and a system of the size of that task updates ``P``. A task that ``A`` relates to no other is a ridge
regression of its own, for which rescaling the others changes alpha.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from .._linalg import compose, one_thread, psd_eigh
from ..features.kernels import is_wide
from ..problem import Problem
from ..structures import Independent, Structure
from ..structures.factored_matrix import LARGEST_ARRAY

Array = np.ndarray
MAX_DENSE_ROWS = 3000
MAX_ENTRIES = 1 << 24  # numbers in the rows of the tasks that are decomposed together


def leave_one_out(problem: Problem, alphas: Sequence[float], *, rows: bool, by_size: bool) -> Array | None:
    """The prediction for each observation by the fit without it (``len(alphas) x N``), or ``None`` without a closed form.

    ``rows`` leaves out a row with all its tasks (wide tables), else a single observation. ``by_size`` says that task weights
    are proportional to sizes, so that every weight changes.
    """
    if is_wide(problem.features) and not problem.structure.keeps_columns:
        problem = problem.with_targets(problem.targets.in_span[1])
    seen = problem.observations
    n, T = problem.features.shape[0], problem.n_tasks
    known = problem.structure.known and not (problem.structure.is_sum or problem.structure.on_features)
    if not (known and problem.loss.quadratic and isinstance(problem.features, np.ndarray)):
        return None
    first = seen.weight[np.minimum(seen.starts[:-1], seen.y.size - 1)]
    if not np.allclose(seen.weight, first[seen.task], rtol=1e-12, atol=0.0) or seen.counts.min() < 2:
        return None  # with sample weights the rest is rescaled in another way
    each_row = rows and T > 1
    shared = each_row and seen.grouping.full_rows == n
    with one_thread():
        variances = _variances_of_unrelated(problem.structure, T)
        if variances is not None and not shared and not (each_row and by_size):
            return _by_task(problem, variances, np.asarray(alphas), by_size)
        if T > LARGEST_ARRAY or (not shared if each_row else seen.y.size > MAX_DENSE_ROWS):
            return None
        a, V = psd_eigh(problem.structure.best_structure(np.eye(T)))
        predict = _shared if each_row else partial(_own, by_size=by_size)
        return np.stack([predict(problem, compose(a / (1 + problem.ridge / alpha * a), V), alpha) for alpha in alphas])


def _variances_of_unrelated(structure: Structure, n_tasks: int) -> Array | None:
    """The diagonal of ``A`` if it relates no two tasks."""
    if isinstance(structure, Independent):
        return np.ones(n_tasks)
    A = structure.best_structure(np.eye(n_tasks)) if n_tasks <= LARGEST_ARRAY else None
    return None if A is None or np.count_nonzero(A) > np.count_nonzero(np.diag(A)) else np.diag(A)


def _by_task(problem: Problem, variances: Array, alphas: Array, by_size: bool) -> Array:
    """One ridge regression for each task: ``e_i / (1 - H_ii)`` from one decomposition for all alphas; equal sizes together."""
    seen = problem.observations
    N, counts = seen.y.size, np.asarray(seen.counts)
    out = np.empty((len(alphas), N))
    share = np.full(len(counts), (N - 1) / N) if by_size else (counts - 1) / counts  # what is left changes the weights
    with np.errstate(divide="ignore"):
        penalty = (alphas[:, None] / variances + problem.ridge) * (share / seen.weight[seen.starts[:-1]])  # of weight 1
    for n in np.unique(counts):
        tasks = np.flatnonzero(counts == n)
        width = max(1, MAX_ENTRIES // (n * problem.n_features))
        for some in (tasks[first : first + width] for first in range(0, len(tasks), width)):
            place = seen.starts[some][:, None] + np.arange(n)
            X, y = problem.features[seen.row[place]], seen.y[place]
            centre = y.mean(axis=1, keepdims=True) if problem.fit_intercept else np.zeros((len(some), 1))
            if problem.fit_intercept:
                X = X - X.mean(axis=1, keepdims=True)
            M, k = _principal(X)
            along, used = (M * (y - centre)[:, :, None]).sum(axis=1), problem.fit_intercept / n
            for found, of_task in zip(out, penalty[:, some], strict=True):
                shrunk = 1 / (k + of_task[:, None])
                residual = y - centre - np.matmul(M, (along * shrunk)[:, :, None])[:, :, 0]
                left = 1 - used - np.matmul(M**2, shrunk[:, :, None])[:, :, 0]
                found[place] = y - residual / left
    return out


def _principal(X: Array) -> tuple[Array, Array]:
    """The rows of each task along the eigenvectors of their second moments, and the eigenvalues."""
    if X.shape[1] < X.shape[2]:
        k, U = np.linalg.eigh(np.matmul(X, X.transpose(0, 2, 1)))
        k = np.maximum(k, 0.0)
        return U * np.sqrt(k)[:, None, :], k
    k, V = np.linalg.eigh(np.matmul(X.transpose(0, 2, 1), X))
    return np.matmul(X, V), np.maximum(k, 0.0)


def _shared(problem: Problem, R: Array, alpha: float) -> Array:
    """Every task observed in every row: diagonal in the eigenvectors of the features and of the structure.

    ``R`` is ``A (I + ridge/alpha A)^-1``.
    """
    seen = problem.observations
    n, T = len(problem.features), problem.n_tasks
    c = seen.weight[seen.starts[:-1]] * n
    Y = seen.y.reshape(T, n).T
    U, d, _ = problem.design.centred_svd
    k = d**2
    a, V = psd_eigh(np.sqrt(c)[:, None] * R * np.sqrt(c))
    y = (Y - Y.mean(axis=0) if problem.fit_intercept else Y) * np.sqrt(c) @ V
    penalty = alpha * (n - 1)  # without a row, in units where every observation has weight 1
    inside = U.T @ y
    shrunk = 1 / (k[:, None] * a + penalty)
    P_y = U @ (inside * shrunk) + (y - U @ inside) / penalty
    rest = 1 - (1 / n if problem.fit_intercept else 0.0) - np.sum(U**2, axis=1)
    P_ii = U**2 @ shrunk + rest[:, None] / penalty
    residual = (P_y / P_ii) @ V.T / np.sqrt(c)
    return (Y - residual).T.ravel()


def _own(problem: Problem, R: Array, alpha: float, by_size: bool) -> Array:
    """One observation at a time, with the weights of its task (or of all tasks) as they are without it."""
    seen = problem.observations
    N = seen.y.size
    scaled_alpha = alpha * (N - 1) / N if by_size else alpha
    phi = problem.features[seen.row]
    C = (phi @ phi.T) * R[np.ix_(seen.task, seen.task)] / scaled_alpha + np.diag(1 / seen.weight)
    P = cho_solve(cho_factor(C), np.eye(N))
    if problem.fit_intercept:
        E = np.eye(problem.n_tasks)[seen.task]
        PE = P @ E
        P = P - PE @ np.linalg.solve(E.T @ PE, PE.T)
    P_y = P @ seen.y
    if by_size:
        return seen.y - P_y / np.diag(P)
    out = np.empty(N)
    for t in range(problem.n_tasks):
        part = slice(seen.starts[t], seen.starts[t + 1])
        block = P[part, part]
        change = -1 / (seen.weight[part] * seen.counts[t])  # 1/v of the task's others times 1 - 1/n_t
        updated = np.linalg.solve(np.eye(len(block)) + block * change, np.column_stack([block, P_y[part]]))
        out[part] = seen.y[part] - updated[:, -1] / np.diag(updated)
    return out
