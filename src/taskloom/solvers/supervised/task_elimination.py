"""The coupled supervised step where ``A = diag(own) + LL'`` with few columns ``L``: all tasks are eliminated in closed form.

In the coefficients ``x_t`` of the tasks and ``X`` (``r x q``) of what they share, ``w_t = sqrt(s_t) x_t + X l_t`` with ``s``
the diagonal and ``l_t`` the rows of ``L`` (both over ``2 alpha``). At curvatures ``H``, with the intercepts eliminated and
``G_t = Phi_t'H_t Phi_t``, a Newton step solves

    x_t + sqrt(s_t) G_t w_t = r_t,        X + sum_t G_t w_t l_t' = R.

With ``C_t = G_t (I + s_t G_t)^-1`` the tasks leave one system of size ``r q``:

    X + sum_t C_t X l_t l_t' = R - sum_t sqrt(s_t) C_t r_t l_t',        x_t = r_t - sqrt(s_t) C_t (sqrt(s_t) r_t + X l_t).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._array_api import inverse_roots, times, times_transposed
from ..._linalg import Positive
from ..._time_limit import check_time
from ...design import TaskBatch
from ...problem import Problem
from ...structures.factored_matrix import FactoredStructure
from .newton_systems import BatchDesign, Direction, Intercepts, direction_without_intercepts, eliminated_entries

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class TaskCurvatures:
    """``C_t`` of the tasks of a batch."""

    tasks: Array
    C: Array  # B x r x r; for tasks of few rows its root, B x m x r
    few_rows: bool

    @classmethod
    def of(cls, tasks: Array, rows: Array, s: Array) -> TaskCurvatures:
        """From ``rows`` (``B x m x r``) with ``G_t = rows'rows``."""
        few_rows = rows.shape[1] < rows.shape[2]
        G = rows @ rows.mT if few_rows else rows.mT @ rows
        root = inverse_roots(s[:, None, None] * G, 1.0)
        if few_rows:
            return cls(tasks, root @ rows, True)
        C = root.mT @ (root @ G)
        return cls(tasks, (C + C.mT) / 2, False)

    def times(self, x: Array) -> Array:
        """``C_t x_t`` (``B x r``)."""
        return times_transposed(self.C, times(self.C, x)) if self.few_rows else times(self.C, x)

    def shared(self, L: Array) -> Array:
        """``sum_t l_t l_t' (x) C_t`` (``q x q x r x r``)."""
        q, r = L.shape[1], self.C.shape[2]
        if not self.few_rows:
            pairs = (L[:, :, None] * L[:, None, :]).reshape(len(L), q * q)
            return (pairs.T @ self.C.reshape(len(L), r * r)).reshape(q, q, r, r)
        out, flat = np.empty((q, q, r, r)), self.C.reshape(-1, r)
        for i in range(q):
            for j in range(i + 1):
                weighted = (self.C * (L[:, i] * L[:, j])[:, None, None]).reshape(-1, r)
                out[i, j] = weighted.T @ flat
                out[j, i] = out[i, j].T
        return out


class EliminatedTasks:
    """The system at curvatures ``h`` of the observations, factored; ``damping`` is the curvature added to each intercept."""

    def __init__(self, problem: Problem, h: Array, damping: Array | None, s: Array, L: Array):
        self.root_s, self.L, (r, q) = np.sqrt(s), L, (problem.n_features, L.shape[1])
        self.parts, S = [], np.zeros((q, q, r, r))
        for batch in problem.observations.grouping.batches:
            check_time()
            rows = weighted_rows(problem, batch, h, damping)
            self.parts.append(TaskCurvatures.of(batch.tasks, rows, s[batch.tasks]))
            S += self.parts[-1].shared(L[batch.tasks])
        system = S.transpose(0, 2, 1, 3).reshape(q * r, q * r)
        system[np.diag_indices_from(system)] += 1.0
        self.remaining = Positive(system[None])

    def _curved(self, W: Array) -> Array:
        """``C_t w_t`` (``r x T``)."""
        out = np.empty(W.shape[::-1])
        for part in self.parts:
            out[part.tasks] = part.times(W.T[part.tasks])
        return out.T

    def solve(self, r: Array, R: Array) -> tuple[Array, Array]:
        """The coefficients of the tasks (``r x T``) and of what they share (``r x q``)."""
        right = R - self._curved(r * self.root_s) @ self.L
        X = right
        if right.size:
            X = self.remaining.solve(np.ravel(right.T)[None, :, None])[0, :, 0].reshape(right.T.shape).T
        return r - self._curved(r * self.root_s + X @ self.L.T) * self.root_s, X

    def weights(self, Z: Array) -> Array:
        """``W`` with ``Ã^-1 W + [G_t w_t]_t = Z``, where ``Ã = diag(s) + LL'``."""
        r, R = self.solve(Z * self.root_s, Z @ self.L)
        return r * self.root_s + R @ self.L.T


def weighted_rows(problem: Problem, batch: TaskBatch, h: Array, damping: Array | None) -> Array:
    """``V`` (``B x m x r``) with ``V_t'V_t = Phi_t'H_t Phi_t`` of each task, its intercept eliminated.

    Damping of an intercept is one more observation, of zero inputs.
    """
    X, h = problem.inputs.take(batch), h[batch.place] * batch.mask
    if not problem.fit_intercept:
        return np.sqrt(h)[:, :, None] * X
    lift = None if damping is None else damping[batch.tasks]
    mean = (h[:, None, :] @ X)[:, 0] / (h.sum(axis=1) + (0.0 if lift is None else lift))[:, None]
    rows = np.sqrt(h)[:, :, None] * (X - mean[:, None, :])
    return rows if lift is None else np.concatenate([rows, (np.sqrt(lift)[:, None] * mean)[:, None, :]], axis=1)


class TaskElimination(BatchDesign):
    """All tasks in one batch element; the coefficients are those of the tasks and of what they share (``r x (T + q)``)."""

    def __init__(self, problem: Problem, A: FactoredStructure, tolerance: float = 0.0):
        self.problem, self.tolerance = problem, tolerance
        self.s, self.L = A.own / (2 * problem.alpha), A.L / np.sqrt(2 * problem.alpha)
        self.root_s, self.shape = np.sqrt(self.s), (problem.n_features, problem.n_tasks + A.L.shape[1])

    def _split(self, coef: Array) -> tuple[Array, Array]:
        both = coef.reshape(self.shape)
        return both[:, : len(self.s)], both[:, len(self.s) :]

    def weights(self, coef: Array) -> Array:
        """``W`` for coefficients."""
        own, shared = self._split(coef)
        return own * self.root_s + shared @ self.L.T

    def start(self, u: Array) -> Array:
        Z = self.problem.correlate(u[0])
        return np.hstack([Z * self.root_s, Z @ self.L]).reshape(1, -1)

    def predict(self, coef: Array) -> Array:
        return self.problem.predict(self.weights(coef), np.zeros(self.problem.n_tasks))[None]

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        lift = None if damping is None or self.problem.loss.quadratic else damping[0]  # of a quadratic one it is rounding
        tasks = EliminatedTasks(self.problem, h[0], lift, self.s, self.L)
        return direction_without_intercepts(
            self,
            intercepts,
            *eliminated_entries(h, intercepts, damping),
            solve=lambda rhs, *_: np.hstack(tasks.solve(*self._split(rhs))).reshape(1, -1),
        )
