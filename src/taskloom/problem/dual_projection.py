"""Projection of a dual candidate onto the domain of the conjugate ``F*``.

Under a trace penalty ``F*`` is finite only if no singular value of ``Z = Phi'G / (2 sqrt(alpha))`` exceeds 1. Near the
optimum a few exceed it slightly. Scaling all of ``G`` costs the dual bound in proportion to the excess; removing only the
excess costs its square. With shared inputs the projection multiplies ``G`` by a matrix from the right. With task-specific
inputs, each task changes its part of ``G`` by a least-norm step, so that ``Z`` has the required components along the active
singular vectors. A structure that bounds ``Z`` in another metric provides it (``whitened``). The result is a candidate like
any other: its bound is computed by ``Problem.dual``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from .._array_api import left_vectors, times
from .._linalg import conjugate_gradient, symmetric
from ..design.observations import TaskBatch

if TYPE_CHECKING:
    from .problem import Problem

Array = np.ndarray


@dataclass(frozen=True)
class ProjectionTuning:
    """The constants of the projection."""

    min_active_singular_value: float = 0.97  # larger ones reach the bound 1, or may once the others have changed
    max_singular_value: float = 1.5  # beyond this the iterate is too far from the optimum for a projection to pay
    relative_residual: float = 1e-3  # of conjugate gradients; what remains of the excess is removed by scaling the candidate
    max_cg_steps: int = 30
    relative_ridge: float = 1e-4  # of least-squares systems, which may be underdetermined; relative to the mean diagonal
    max_stacked_entries: float = 2e8  # of the inputs of all observations, up to which they may be stacked by task


TUNING = ProjectionTuning()


def project_dual(problem: Problem, G: Array, Z: Array, W: Array, prepare: bool = True) -> Array | None:
    """A dual candidate near ``G`` with finite ``F*``; ``None`` where no projection applies or none is needed."""
    return project_dual_pair(problem, G, Z, W, prepare=prepare)[0]


def project_dual_pair(
    problem: Problem, G: Array, Z: Array, W: Array, lift: bool = True, prepare: bool = True
) -> tuple[Array | None, Array | None]:
    """The projected candidate, and its ``Phi'G`` where it follows from ``Z`` without a pass over the data.

    ``lift`` also raises active singular values below 1 towards 1. It applies to the first projection of a candidate only.
    ``prepare`` uses the stacked data of the design, which are computed once; for a design that serves once, it costs more.
    """
    if not problem.loss.quadratic:
        return None, None
    root = (Z - 2 * problem.ridge * W) / (2 * np.sqrt(problem.alpha))
    units = problem.structure.whitened(root)
    if units is None:
        return None, None
    shared = units is root and problem.observations.grouping.same_rows
    squares, vectors = left_vectors(root.T if shared else units)
    active = squares > TUNING.min_active_singular_value**2
    s, vectors = np.sqrt(squares[active]), vectors[:, active]
    separate = units is root and not shared
    if s.size == 0 or not (separate or s[-1] > 1) or s[-1] >= TUNING.max_singular_value:
        return None, None
    cut = np.maximum(1 - 1 / s, 0.0)
    if shared:
        by_task = G.reshape(problem.n_tasks, -1)
        return (by_task - (vectors * cut) @ (vectors.T @ by_task)).ravel(), Z - (Z @ vectors) @ (vectors * cut).T
    if separate:
        return _project_singular_values(problem, G, vectors, s, root, W if lift else 0 * W, prepare), None
    return _project_columns(problem, G, vectors, cut[:, None] * (vectors.T @ root) * (2 * np.sqrt(problem.alpha))), None


def _project_singular_values(problem: Problem, G: Array, U: Array, s: Array, root: Array, W: Array, prepare: bool) -> Array:
    """The smallest change of ``G``, in the norm ``sum dG^2 / v``, that cuts singular values above 1, to first order.

    With singular vectors ``U`` and ``V`` of ``root``, the singular values change by the diagonal of ``U' d(root) V``, so only
    its symmetric part is constrained. That is feasible even for tasks with few observations. The multiplier ``M`` of the
    constraint solves ``sym(sum_t U'X_t'X_t U M v_t v_t') = excess`` (in units of ``4 alpha``) by conjugate gradients.
    """
    V = (root.T @ U) / s
    parts = [(K, V[tasks].astype(K.dtype, copy=False)) for tasks, K in _moments_along(problem, U, prepare)]

    def product(M: Array) -> Array:
        M = M.astype(parts[0][0].dtype, copy=False)
        return symmetric(sum(times(K, V_part @ M).T @ V_part for K, V_part in parts))

    # Raising an active singular value below 1 increases the bound to first order and costs a square: balance the two.
    diagonal = sum(np.einsum("bkk,bk->k", K, V_part**2) for K, V_part in parts)
    weight = np.maximum(np.einsum("tk,tk->k", W.T @ U, V), 0.0)
    lift = np.minimum(np.maximum(1 - s, 0.0), diagonal / np.sqrt(problem.alpha) * weight)
    M = conjugate_gradient(
        product, np.diag(np.maximum(s - 1, 0.0) - lift), tol=TUNING.relative_residual, max_steps=TUNING.max_cg_steps
    )
    change = problem.predict(2 * np.sqrt(problem.alpha) * (V @ M @ U.T).T, np.zeros(problem.n_tasks))
    if problem.fit_intercept:  # the dual variables of each task must add up to zero
        change = change - problem.observations.task_means(change)[problem.observations.task]
    return G - problem.observations.weight * change


def _moments_along(problem: Problem, U: Array, prepare: bool) -> Iterator[tuple[Array | slice, Array]]:
    """``U'X'XU`` for the centred, weighted inputs of each task, one batch at a time.

    In single precision where the design has it: multipliers are only accurate to first order.
    """
    if (
        prepare
        and not issparse(problem.features)
        and problem.observations.y.size * problem.n_features <= TUNING.max_stacked_entries
    ):
        stacks = problem.design.task_data_single or problem.design.task_data[0]
        yield from ((stack.tasks, stack.moments_along(U)) for stack in stacks)
        return
    for batch, v, X in _centred_batches(problem, U):
        yield batch.tasks, np.matmul(X.transpose(0, 2, 1), v[:, :, None] * X)


def _centred_batches(problem: Problem, U: Array) -> Iterator[tuple[TaskBatch, Array, Array]]:
    """The weights and the inputs along ``U`` of each batch of tasks; centred, as dual variables of a task add up to zero."""
    projected = problem.inputs.times(U)
    for batch in problem.observations.grouping.batches:
        v, X = problem.observations.weight[batch.place] * batch.mask, projected(batch)
        yield batch, v, X - np.matmul(v[:, None, :], X) / v.sum(axis=1)[:, None, None] if problem.fit_intercept else X


def _project_columns(problem: Problem, G: Array, U: Array, excess: Array) -> Array:
    """Subtract ``excess`` from ``U'Z`` by the smallest change of the ``G`` of each task, in the norm ``sum dG^2 / v``.

    In that norm a row of weight 2 changes as two equal rows would.
    """
    out = G.copy()
    for batch, v, X in _centred_batches(problem, U):
        root = np.sqrt(v)
        step = root * _least_change(root[:, :, None] * X, excess[:, batch.tasks].T[:, :, None])
        out[batch.place[batch.mask]] -= step[batch.mask]
    return out


def _least_change(X: Array, target: Array) -> Array:
    """The least-norm solution ``X (X'X + ridge)^-1 target`` for each batch element, by the smaller of the two systems."""
    m, q = X.shape[1:]
    Xt = X.transpose(0, 2, 1)
    gram = np.matmul(X, Xt) if q > m else np.matmul(Xt, X)
    lift = TUNING.relative_ridge * np.trace(gram, axis1=1, axis2=2) / q + np.finfo(float).tiny  # a centred single row is zero
    gram = gram + lift[:, None, None] * np.eye(gram.shape[-1])
    return (np.linalg.solve(gram, np.matmul(X, target)) if q > m else np.matmul(X, np.linalg.solve(gram, target)))[..., 0]
