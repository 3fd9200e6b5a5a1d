"""Contributions of the data of each task to the function of every task.

At the optimum ``f_t = sum_s R_ts g_s / (2 alpha)`` with the dual functions ``g_s = sum_i G_is k(x_i, .)`` of the dual point
``G``, and ``R = A (I + ridge/alpha A)^-1``. The contribution of task ``s`` to ``||f_t||^2`` is ``R_ts <g_s, f_t> / (2 alpha)``.
A fit keeps ``g`` in the coordinates of its coefficients; contributions are computed on request.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...structures.factored_matrix import LARGEST_ARRAY, FactoredStructure
from ...uncertainty.prior import Prior

Array = np.ndarray


def contributions_of(state: Any) -> Any:
    """``T x T`` for the tasks of the fit; for many tasks the factors ``(R, Z, W)``; ``None`` where they are not defined."""
    if state.stored_contributions is not None:
        return state.stored_contributions
    if state.learned is None or state.learned.keeps_columns or state.dual is None:
        return None
    T, rho = state.n_tasks - len(state.added_tasks_ or ()), state.ridge / state.alpha
    A, sides = state.structure_, _sides(state, T)
    if isinstance(A, FactoredStructure):
        if state.term_structures is not None or len(sides) > 1:
            return None
        (g, f), of_fit = sides[0], FactoredStructure(A.L[:T].astype(float), A.own[:T].astype(float))
        return of_fit.shrunk(rho), g / (2 * state.alpha), f
    if T > LARGEST_ARRAY:
        return None
    parts = A if isinstance(A, list) else state.term_structures or [A]
    metrics = [Prior(each[:T, :T].astype(float), rho).R if rho else each[:T, :T].astype(float) for each in parts]
    if len(sides) < len(metrics):  # on the same features metrics add up
        metrics = [np.sum(metrics, axis=0)]
    return sum(metric * (g.T @ f) for metric, (g, f) in zip(metrics, sides, strict=True)) / (2 * state.alpha)


def _sides(state: Any, T: int) -> list[tuple[Array, Array]]:
    """Matrices whose products are ``<g_s, f_t>``: one pair, or one for each kernel."""
    if state.coef_ is not None:
        return [(state.dual, state.weights[:T].T)]
    G, C = state.dual, state.dual_coef_
    X = state.X_fit_[: len(G)]
    K = state.kernel(X, X)
    pairs = zip(K, C, strict=True) if isinstance(C, list) else [(K, C)]
    return [(G, k @ (c[: len(G), :T].astype(float) / state.scale.std[:T])) for k, c in pairs]
