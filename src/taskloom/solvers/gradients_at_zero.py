"""Gradients at the best constants under a loss with kinks: on a kink, any gradient between its sides will do."""

from __future__ import annotations

import numpy as np
from scipy.optimize import lsq_linear

from ..features import to_dense
from ..problem import Problem
from ..problem.intercepts import balanced
from .smoothing import SmoothedProblem

Array = np.ndarray
BESIDE = 1e-7  # how far from a kink its sides are looked at, in units of the residuals
HEAVY = 1e3  # of the equation that gradients add up to zero, beside the others: what it leaves over is balanced afterwards
MOST = 2000  # predictions of one task on kinks, beyond which a system over them is too large


def least_gradients(problem: Problem) -> Array | None:
    """Of the gradients that make the best constants optimal, those whose ``Z`` is shortest; ``None`` where there are too many.

    Tasks are on their own here: least squares in a box, and with intercepts the gradients of a task add up to zero.
    """
    seen = problem.observations
    constants = problem.best_constants
    z = constants[seen.task]
    beside = BESIDE * SmoothedProblem(problem).width
    steep = problem.loss.smoothed(np.zeros(seen.y.size), 1e-2 * beside)  # nearly the loss itself, with a gradient everywhere
    lower, upper = steep.gradient(seen.y, z - beside), steep.gradient(seen.y, z + beside)
    free = upper - lower > 1e-6 * np.maximum(np.abs(lower), np.abs(upper))
    if seen.sum_by_task(free.astype(float)).max() > MOST:
        return None
    s = np.where(free, (lower + upper) / 2, lower)
    for t in np.flatnonzero(seen.sum_by_task(free.astype(float)) > 0):
        mine = slice(seen.starts[t], seen.starts[t + 1])
        rows = to_dense(problem.features[seen.row[mine]]) * seen.weight[mine, None]
        if problem.fit_intercept:
            rows = np.column_stack([rows, HEAVY * seen.weight[mine] * np.abs(rows).max(initial=1e-300)])
        own = free[mine]
        fixed = -(s[mine] * ~own) @ rows
        found = lsq_linear(rows[own].T, fixed, (lower[mine][own], upper[mine][own]), tol=1e-12)
        s[mine][own] = found.x
    return balanced(seen, s, lower, upper) if problem.fit_intercept else s
