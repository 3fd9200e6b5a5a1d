"""Dual candidates where the penalty is weak.

A dual candidate ``G`` must make ``Z = Phi'G`` small: the bound is finite, or high, only then. The usual remedy scales all of
``G``, and the bound with it. Where the penalty is weak, that loses nearly everything although the objective has converged. A
candidate of the problem without its penalty has ``Z = 0``. There is one close to ``G``,

    G0 = G - dG,    Phi_t' dG_t = Z_t,    1'dG_t = 0,    sum dG^2 / (v h) least,

with ``h`` the room that gradients have within the domain of ``loss*``. Along the line ``G0 + c (G - G0)``, ``Z`` is ``c Z`` and
the bound is concave in ``c``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import issparse

from .._array_api import times, times_transposed
from ..features.kernels import row_squares
from ..losses import RowLoss

if TYPE_CHECKING:
    from .problem import Problem

Array = np.ndarray
MAX_PENALTY_SHARE = 0.3  # of the gap; with a larger penalty, other candidates are as good
MAX_OPERATIONS = 3e9  # of the systems of all tasks
MAX_CHANGES = 12  # gradients at the edge of their domain give way one after the other
MAX_ROOM_SHARE = 0.99  # of the way to the edge that one change may take
MAX_LEFT_SHARE = 1e-7  # of the correlations of a task
RELATIVE_ROUNDING = 1e-13  # of correlations; and eigenvalues below this share of the largest are left out


def applies(problem: Problem, penalty: float, gap: float) -> bool:
    """Whether the penalty is small beside the gap, and the systems of all tasks are cheap."""
    above_zero = penalty - problem.model.penalty_at_zero[0]
    wrong_layout = isinstance(problem.loss, RowLoss) or issparse(problem.features) or problem.structure.is_stack
    if wrong_layout or not above_zero < MAX_PENALTY_SHARE * gap:
        return False
    r, sizes = problem.n_features, problem.observations.counts
    return bool(r <= 2 * sizes.max() and float(r * r * (sizes.sum() + 10 * r * sizes.size)) <= MAX_OPERATIONS)


def without_correlations(problem: Problem, G: Array, Z: Array) -> tuple[Array, Array]:
    """A candidate near ``G`` with ``Phi'G`` close to zero, and that product; it is zero for tasks that have no other.

    Such are tasks whose labels can be separated, or that fit their targets exactly.
    """
    obs = problem.observations
    lower, upper = (np.broadcast_to(edge, G.shape) for edge in problem.loss.gradient_bounds(obs.y))
    size = obs.sum_by_task(np.abs(G) * np.sqrt(row_squares(problem.features))[obs.row])
    goal = np.maximum(MAX_LEFT_SHARE * np.linalg.norm(Z, axis=0), RELATIVE_ROUNDING * size)
    for _ in range(MAX_CHANGES):
        s = -G / obs.weight
        below, above = np.maximum(s - lower, 0.0), np.maximum(upper - s, 0.0)
        change = _least_change(problem, obs.weight * _room(below, above), Z, obs.sum_by_task(G)) / obs.weight
        s = np.clip(s + change, s - MAX_ROOM_SHARE * below, s + MAX_ROOM_SHARE * above)
        G = -obs.weight * s
        Z = problem.correlate(G)
        open_ = ~(np.linalg.norm(Z, axis=0) <= goal)  # gradients of a wrong loss may overflow
        if not open_.any():
            break
    return np.where(open_[obs.task], 0.0, G), np.where(open_, 0.0, Z)


def _room(below: Array, above: Array) -> Array:
    """How far gradients may move: the distance to the edge of their domain, and 1 where it has none."""
    distance = np.minimum(below, above)
    finite = np.isfinite(distance)
    return np.where(finite, distance, distance[finite].mean() if finite.any() else 1.0)


def _least_change(problem: Problem, room: Array, Z: Array, total: Array) -> Array:
    """``dG`` with ``Phi_t'dG_t = Z_t`` and, where there are intercepts, ``1'dG_t = total_t``, least in ``sum dG^2 / room``."""
    out = np.zeros(room.size)
    for batch in problem.observations.grouping.batches:
        X, w, target = problem.inputs.take(batch), room[batch.place] * batch.mask, Z.T[batch.tasks]
        w = w / np.maximum(w.max(axis=1, keepdims=True), np.finfo(float).tiny)  # the change does not depend on its unit
        share = np.zeros(len(w))
        if problem.fit_intercept:
            size = np.maximum(w.sum(axis=1), 1.0)  # at least that of the largest, unless none has any room
            mean, share = times_transposed(X, w) / size[:, None], total[batch.tasks] / size
            X, target = X - mean[:, None, :], target - mean * total[batch.tasks][:, None]
        K = np.matmul(X.transpose(0, 2, 1), w[:, :, None] * X)
        if not np.isfinite(K).all():
            continue
        values, V = np.linalg.eigh(K)
        kept = values > RELATIVE_ROUNDING * np.maximum(values[:, -1:], np.finfo(float).tiny)
        along = np.divide(times_transposed(V, target), values, out=np.zeros_like(target), where=kept)
        out[batch.place[batch.mask]] = (w * (times(X, times(V, along)) + share[:, None]))[batch.mask]
    return out
