"""Dual candidates moved into the domain of ``F*`` where they leave it, and nowhere else.

Under a trace penalty ``F*`` is finite only where no singular value of ``Z = Phi'G`` (in units of ``2 sqrt(alpha)``) exceeds 1.
Near the optimum a few do, by a little. Shrinking all of ``G`` until they fit costs the bound in proportion to the excess;
cutting only the excess costs its square. With shared inputs that is a multiplication of ``G`` from the right. With inputs of
their own, each task changes its ``G`` as little as possible so that ``Z`` has the right components along the directions that
touch the bound. A structure that bounds ``Z`` in other units says in which. Whatever comes out is only a candidate: its bound
is computed like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.sparse import issparse

from .._array_api import times
from .._linalg import symmetric
from .problem import Problem

Array = np.ndarray
RELATIVE_RIDGE = 1e-4  # of the least-squares systems of the tasks, which may be underdetermined; relative to the mean diagonal
MAX_SINGULAR_VALUE = 1.5  # beyond this the iterate is too far from the optimum for a projection to pay
CG_TOLERANCE = 1e-3  # relative residual; what remains of the excess is removed by scaling the candidate
ACTIVE_SINGULAR_VALUE = 0.97  # singular values above this reach the bound 1, or may once the others have changed
LARGEST_COPY = 2e8  # numbers in the inputs of all observations, up to which they may be stacked by task


def project_dual(problem: Problem, G: Array, Z: Array, W: Array, prepare: bool = True) -> Array | None:
    """A candidate near ``G`` with a finite ``F*``, or ``None`` where there is nothing to gain or no way to get it."""
    return project_dual_pair(problem, G, Z, W, prepare=prepare)[0]


def project_dual_pair(
    problem: Problem, G: Array, Z: Array, W: Array, lifts: bool = True, prepare: bool = True
) -> tuple[Array | None, Array | None]:
    """The candidate, and its own ``Z`` where that follows from the old one.

    ``lifts`` is for the first projection of a candidate: what was lifted as far as it pays must not be lifted again.
    ``prepare`` uses the stacked data of the design, which are computed once; for a design that serves once, it costs more.
    """
    if not problem.loss.quadratic:
        return None, None
    root = (Z - 2 * problem.ridge * W) / (2 * np.sqrt(problem.alpha))
    units = problem.structure.whitened(root)
    if units is None:
        return None, None
    shared = units is root and problem.observations.grouping.same_rows
    squares, vectors = _left_vectors(root.T if shared else units)
    touching = squares > ACTIVE_SINGULAR_VALUE**2
    s, vectors = np.sqrt(squares[touching]), vectors[:, touching]
    own = units is root and not shared
    if s.size == 0 or not (own or s[-1] > 1) or s[-1] >= MAX_SINGULAR_VALUE:
        return None, None
    cut = np.maximum(1 - 1 / s, 0.0)
    if shared:
        by_task = G.reshape(problem.n_tasks, -1)
        return (by_task - (vectors * cut) @ (vectors.T @ by_task)).ravel(), Z - (Z @ vectors) @ (vectors * cut).T
    if own:
        return _turned_back(problem, G, vectors, s, root, W if lifts else 0 * W, prepare), None
    return _own(problem, G, vectors, cut[:, None] * (vectors.T @ root) * (2 * np.sqrt(problem.alpha))), None


def _left_vectors(units: Array) -> tuple[Array, Array]:
    """Squared singular values and left vectors, from the smaller Gram matrix (only those close to 1 or beyond are of use)."""
    if units.shape[0] <= units.shape[1]:
        return np.linalg.eigh(units @ units.T)
    squares, V = np.linalg.eigh(units.T @ units)
    return squares, (units @ V) / np.sqrt(np.maximum(squares, np.finfo(float).tiny))


def _turned_back(problem: Problem, G: Array, U: Array, s: Array, root: Array, W: Array, prepare: bool) -> Array:
    """The least change of ``G`` (at the price ``dG^2 / v``) that cuts the excess of the singular values, to first order.

    Of the singular values ``s`` with vectors ``U`` and ``V``, a change of ``root`` sees the symmetric part of ``U' d(root) V``
    alone. That asks far less of a task than to mend its whole column, for which it may have too few observations. The
    multiplier ``M`` of the condition solves ``sym(sum_t U'X_t'X_t U M v_t v_t') = excess``, by conjugate gradients, in units
    of ``4 alpha``.
    """
    V = (root.T @ U) / s
    parts = [(K, V[tasks].astype(K.dtype, copy=False)) for tasks, K in _moments_along(problem, U, prepare)]

    def product(M: Array) -> Array:
        M = M.astype(parts[0][0].dtype, copy=False)
        return symmetric(sum(times(K, V_part @ M).T @ V_part for K, V_part in parts))

    # A value below 1 that carries weight is worth lifting to 1, and by how much tells what it costs: a square.
    ease = sum(np.einsum("bkk,bk->k", K, V_part**2) for K, V_part in parts)
    weight = np.maximum(np.einsum("tk,tk->k", W.T @ U, V), 0.0)
    lift = np.minimum(np.maximum(1 - s, 0.0), ease / np.sqrt(problem.alpha) * weight)
    M = conjugate_gradients(product, np.diag(np.maximum(s - 1, 0.0) - lift), CG_TOLERANCE)
    change = problem.predict(2 * np.sqrt(problem.alpha) * (V @ M @ U.T).T, np.zeros(problem.n_tasks))
    if problem.fit_intercept:  # the changes of each task must add up to zero
        change = change - problem.observations.task_means(change)[problem.observations.task]
    return G - problem.observations.weight * change


def _moments_along(problem: Problem, U: Array, prepare: bool) -> Iterator[tuple[Array | slice, Array]]:
    """``U'X'XU`` for the centred, weighted inputs of each task, a batch at a time.

    In single precision where the design has it: multipliers are only as good as first order anyway.
    """
    if prepare and not issparse(problem.features) and problem.observations.y.size * problem.n_features <= LARGEST_COPY:
        stacks = problem.design.task_data_single or problem.design.task_data[0]
        yield from ((stack.tasks, stack.moments_along(U)) for stack in stacks)
        return
    seen, projected = problem.observations, problem.inputs.times(U)
    for batch in seen.grouping.batches:
        v, X = seen.weight[batch.place] * batch.mask, projected(batch)
        if problem.fit_intercept:
            X = X - np.matmul(v[:, None, :], X) / v.sum(axis=1)[:, None, None]
        yield batch.tasks, np.matmul(X.transpose(0, 2, 1), v[:, :, None] * X)


def conjugate_gradients(product: Callable[[Array], Array], target: Array, tol: float, limit: int = 30) -> Array:
    """``M`` with ``product(M) = target``, until the residual has fallen to a share ``tol`` of the target."""
    x, r = np.zeros_like(target), target
    p, size = r, float(np.vdot(r, r))
    enough = tol**2 * size
    for _ in range(limit):
        Hp = product(p)
        curvature = float(np.vdot(p, Hp))
        if curvature <= 0:
            break
        x, r = x + (size / curvature) * p, r - (size / curvature) * Hp
        size, last = float(np.vdot(r, r)), size
        if size <= enough:
            break
        p = r + (size / last) * p
    return x


def _own(problem: Problem, G: Array, U: Array, excess: Array) -> Array:
    """Take ``excess`` out of ``U'Z``, each task with the change of its own ``G`` that costs least (a change has the price
    ``dG^2 / v``, so that a row of weight 2 moves as two rows would)."""
    seen = problem.observations
    projected = problem.inputs.times(U)
    out = G.copy()
    for batch in seen.grouping.batches:
        v = seen.weight[batch.place] * batch.mask
        X = projected(batch)
        if problem.fit_intercept:  # the changes of each task must add up to zero
            X = X - np.matmul(v[:, None, :], X) / v.sum(axis=1)[:, None, None]
        root = np.sqrt(v)
        step = root * _least_change(root[:, :, None] * X, excess[:, batch.tasks].T[:, :, None])
        out[batch.place[batch.mask]] -= step[batch.mask]
    return out


def _least_change(X: Array, target: Array) -> Array:
    """``X (X'X + soft)^-1 target`` for each batch element, by the smaller of the two systems."""
    m, q = X.shape[1:]
    Xt = X.transpose(0, 2, 1)
    gram = np.matmul(X, Xt) if q > m else np.matmul(Xt, X)
    lift = (
        RELATIVE_RIDGE * np.trace(gram, axis1=1, axis2=2) / q + np.finfo(float).tiny
    )  # one observation alone has nothing to move
    gram = gram + lift[:, None, None] * np.eye(gram.shape[-1])
    return (np.linalg.solve(gram, np.matmul(X, target)) if q > m else np.matmul(X, np.linalg.solve(gram, target)))[..., 0]
