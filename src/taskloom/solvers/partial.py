"""A part of the features first: the leading columns of a pivoted Cholesky factor, as many as the certificate asks for.

Weights of zero on the other columns are weights of the problem that was posed, so its objective is exact at what the part
finds; its dual bound uses all columns. With ``Z = Phi'G`` and the structure at hand, the columns ``j`` that were left out are
worth about

    sum_j Z_j A Z_j' / (4 alpha),

which tells how many columns the next part needs. Where that is most of them, all are taken.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import issparse

from .._linalg import psd_root
from ..problem import Problem
from ..solution import Start
from .reduced import Reduced
from .shared import SharedInputs, separable_weights

Array = np.ndarray
WORTHWHILE = 200  # below this many features all are as cheap as some
MOST = 0.7  # the largest share of the features that is worth a part: its decomposition costs the cube
SAFE = 0.1  # how far below the tolerance the worth of what is left out should be


class Partial(Reduced):
    """The reduced problem of the first ``q`` features."""

    def __init__(self, problem: Problem, q: int):
        some = replace(problem, features=problem.features[:, :q])
        weights = separable_weights(some)
        assert weights is not None
        self.q, self.whole = q, problem.n_features
        super().__init__(some, SharedInputs(some, *weights))

    @staticmethod
    def of(problem: Problem) -> Reduced | None:
        """The largest part that was asked for so far; all features, where parts do not pay or all were asked for."""
        if problem.structure.keeps_columns or problem.structure.parted:
            return None
        return problem.once("partial", lambda: Partial._first(problem)) or Reduced.of(problem)

    @staticmethod
    def _first(problem: Problem) -> Partial | None:
        r = problem.n_features
        if r < WORTHWHILE or issparse(problem.features) or not problem.loss.quadratic or "reduced" in problem._memo:
            return None
        energy = np.einsum("ij,ij->j", problem.features, problem.features)
        left = 1 - np.cumsum(energy) / energy.sum()
        q = max(int(np.searchsorted(-left, -1e-3)) + 1, r // 10)
        return Partial(problem, q) if q <= MOST / 2 * r and separable_weights(problem) is not None else None

    def inward(self, start: tuple | None) -> Start | None:
        return super().inward(start and Start(start[0][: self.q], start[1], getattr(start, "length", None)))

    def outward(self, W: Array, b: Array) -> tuple[Array, Array]:
        some, b = super().outward(W, b)
        outside = np.zeros((self.whole, some.shape[1]))
        outside[: self.q] = some
        return outside, b

    def finer(self, problem: Problem, G: Array, W: Array, tol: float) -> Reduced | None:
        Z = problem.correlate(G)[self.q :]
        root = psd_root(problem.best_penalty(W)[1])
        worth = np.square(Z @ root).sum(axis=1) / (4 * problem.alpha)
        left = np.cumsum(worth[::-1])[::-1]  # what would be left out by a part that ends before each column
        q = self.q + max(int(np.count_nonzero(left > SAFE * tol * problem.scale)), self.q // 4)
        problem._memo["partial"] = Partial(problem, q) if q <= MOST * self.whole else None
        return problem._memo["partial"] or Reduced.of(problem)
