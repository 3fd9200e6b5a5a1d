"""A part of the features first: the leading columns of a pivoted Cholesky factor, as many as the certificate asks for.

Weights of zero on the other columns are weights of the problem that was posed, so its objective is exact at what the part
finds; its dual bound uses all columns. With ``Z = Phi'G`` and the structure at hand, the columns ``j`` that were left out are
worth about

    sum_j Z_j A Z_j' / (4 alpha),

which tells how many columns the next part needs. Where that is most of them, all are taken.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from scipy.sparse import issparse

from .._linalg import psd_root
from ..problem import Problem
from ..solution import Start
from ..structures import Structure
from .reduced import Reduced

Array = np.ndarray
WORTHWHILE = 200  # below this many features all are as cheap as some
MOST = 0.7  # the largest share of the features that is worth a part: its decomposition costs the cube
SAFE = 0.1  # how far below the tolerance the worth of what is left out should be


class Partial:
    """The problem of the first ``q`` features, reduced where tasks share all rows; the way there and back."""

    share: ClassVar[float] = 0.5  # of the tolerance, for the part: the rest is for the columns that were left out

    def __init__(self, problem: Problem, q: int):
        self.q, self.whole = q, problem.n_features
        self.problem = replace(problem, features=problem.features[:, :q])
        self.inner = Reduced.of(self.problem)
        self.constant = 0.0 if self.inner is None else self.inner.constant

    @staticmethod
    def of(problem: Problem) -> Partial | Reduced | None:
        """The largest part that was asked for so far; all features, where parts do not pay or all were asked for."""
        if problem.structure.keeps_columns or problem.structure.parted:
            return None
        return problem.once("partial", lambda: Partial._first(problem)) or Reduced.of(problem)

    @staticmethod
    def _first(problem: Problem) -> Partial | None:
        r, seen = problem.n_features, problem.observations
        shared = 4 * seen.y.size >= problem.n_rows * problem.n_tasks  # else tasks are small problems of their own
        if (
            r < WORTHWHILE
            or issparse(problem.features)
            or not (shared and problem.loss.quadratic)
            or "reduced" in problem._memo
        ):
            return None
        energy = np.einsum("ij,ij->j", problem.features, problem.features)
        left = 1 - np.cumsum(energy) / energy.sum()
        q = max(int(np.searchsorted(-left, -1e-3)) + 1, r // 10)
        return Partial(problem, q) if q <= MOST / 2 * r else None

    def at(self, alpha: float, structure: Structure) -> Problem:
        """The problem of the part at another strength, under another structure."""
        if self.inner is not None:
            return self.inner.at(alpha, structure)
        return self.problem.with_structure(structure).at(alpha)

    def inward(self, start: tuple | None) -> Start | None:
        if start is None:
            return None
        some = Start(start[0][: self.q], start[1], getattr(start, "length", None))
        return some if self.inner is None else self.inner.inward(some)

    def outward(self, W: Array, b: Array) -> tuple[Array, Array]:
        if self.inner is not None:
            W, b = self.inner.outward(W, b)
        outside = np.zeros((self.whole, W.shape[1]))
        outside[: self.q] = W
        return outside, b

    def finer(self, problem: Problem, G: Array, W: Array, tol: float) -> Partial | Reduced | None:
        """A larger part, as large as this one's certificate says, or all features."""
        Z = problem.correlate(G)[self.q :]
        root = psd_root(problem.best_penalty(W)[1])
        worth = np.square(Z @ root).sum(axis=1) / (4 * problem.alpha)
        left = np.cumsum(worth[::-1])[::-1]  # what would be left out by a part that ends before each column
        q = self.q + max(int(np.count_nonzero(left > SAFE * tol * problem.scale)), self.q // 4)
        problem._memo["partial"] = Partial(problem, q) if q <= MOST * self.whole else None
        return problem._memo["partial"] or Reduced.of(problem)
