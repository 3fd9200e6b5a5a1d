"""Lower and upper bounds on the minimum of the problem with the exact kernel, after a fit with an approximate one.

Let ``G`` be the dual point of the approximate fit (``n x T``, zero where unobserved) and ``g_t = sum_i G_it k(x_i, .)``, with
the exact kernel. In an orthonormal basis of the span of the ``g_t`` (``Z'Z = G'KG``) the rows have the features ``K G Z^+``.
The problem with these features is the exact one, restricted to the span:

- its minimum is attained by functions of the exact space, so it is an upper bound of the exact minimum;
- its dual at ``G`` is ``- sum v loss*(y, -G/v) - F*(G'KG / (4 alpha))``, the exact dual at ``G``: a lower bound.

Both come from one small problem and one pass over the kernel matrix, in pieces. At the exact optimum they are equal. The
objective of a Nystroem predictor is an upper bound, too: it is in the exact space, with the same norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._component import warn
from .._linalg import psd_eigh
from ..features.approximate import Landmarks, pieces
from ..features.kernels import to_dense
from ..problem import Problem
from ..solvers import solve
from .fitted import FittedState

Array = np.ndarray


@dataclass(frozen=True)
class ExactBound:
    """``lower <= minimum with the exact kernel <= upper``; ``approximate`` is the objective of the approximate fit.

    ``gap = upper - lower``, and ``relative_gap`` is in the units of the certificate.
    """

    lower: float
    upper: float
    approximate: float
    gap: float
    relative_gap: float

    @property
    def message(self) -> str:
        """What the numbers say."""
        return (
            f"The minimum with the exact kernel is proved to lie between {self.lower:.6g} and {self.upper:.6g} "
            f"(relative gap {self.relative_gap:.1e}); the approximate fit has {self.approximate:.6g}."
        )


def restricted(problem: Problem, KG: Array, G: Array) -> Problem:
    """The exact problem restricted to the span of ``G``, where ``KG`` is the kernel matrix times ``G``."""
    scattered = problem.observations.scatter(G, problem.n_rows)
    s, V = psd_eigh(scattered.T @ KG)
    keep = s > 1e-14 * max(float(s[-1]), np.finfo(float).tiny)
    keep[-1] = True
    inverse = np.divide(1.0, np.sqrt(s[keep]), out=np.zeros(int(keep.sum())), where=s[keep] > 0)
    return problem.with_features(KG @ (V[:, keep] * inverse))


def bound_exact(model: Any, state: FittedState, X: Any, y: Any, sample_weight: Any = None) -> ExactBound:
    """Bound the minimum of the problem with the exact kernel, after a fit with an approximate one."""
    if state.feature_map_ is None:
        raise ValueError("bound_exact is for fits with approximation=; this one is exact")
    if state.kernel.linear:
        raise ValueError(
            f'bound_exact needs kernel= to say which kernel {model.approximation!r} approximates, got kernel="linear"'
        )
    twin = model._chosen()
    data = twin._prepare(X, y, sample_weight, feature_map=state.feature_map_)
    if not np.array_equal(data.targets.tasks_, state.tasks_):
        raise ValueError(f"bound_exact needs the tasks of the fit, got {data.targets.tasks_[:10].tolist()}")
    problem, inputs = data.problem, data.inputs
    solution = solve(problem, twin.solver, **twin._settings(data, last=state))
    if not solution.certificate.converged:
        warn(solution.certificate.message, ConvergenceWarning)
    G = problem.observations.scatter(solution.G, problem.n_rows)
    some = pieces(inputs.shape[0], inputs.shape[0])
    KG = np.concatenate([to_dense(state.kernel(inputs[rows], inputs)) @ G for rows in some])
    exact = restricted(problem, KG, solution.G)
    best = solve(exact, tol=min(model.tol, 1e-6), max_iter=model.max_iter)
    lower = exact.dual(solution.G, best.W, None if problem.structure.on_features else best.A)
    upper = best.certificate.primal
    if isinstance(state.feature_map_, Landmarks):
        upper = min(upper, solution.certificate.primal)
    lower = min(lower, upper)
    return ExactBound(lower, upper, solution.certificate.primal, upper - lower, problem.relative(upper - lower, abs(upper)))
