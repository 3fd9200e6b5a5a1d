"""Inputs of the tasks' own, stacked for tasks of similar size: what Newton's methods on the squared loss work on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dtrtri, strtri

from ..problem import Problem
from .sides import buckets, lined_up

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Block:
    """Tasks of similar size: inputs (``B x m x r``) and targets (``B x m``), centred, times the roots of the weights."""

    tasks: Array | slice
    X: Array
    y: Array
    size: Array  # the mean over the directions of the inputs of the sum of squares, for each task

    def single(self) -> Block:
        """In single precision."""
        return Block(self.tasks, *(np.asarray(part, dtype=np.float32) for part in (self.X, self.y, self.size)))


def blocks(problem: Problem) -> list[Block]:
    """``sum_t ||y_t - X_t w_t||^2`` is the loss term at the best intercepts."""
    seen, out = problem.observations, []
    groups = problem.once("buckets", lambda: buckets(seen.counts, seen.starts))
    for bucket in groups:
        v = seen.weight[bucket.place] * bucket.mask
        root = np.sqrt(v)
        X, y = root[:, :, None] * bucket.take(lined_up(problem), problem), root * seen.y[bucket.place]
        if problem.fit_intercept:
            share = (root / v.sum(axis=1)[:, None])[:, None, :]
            X -= root[:, :, None] * np.matmul(share, X)
            y -= root * np.matmul(share, y[:, :, None])[:, :, 0]
        size = np.einsum("bmr,bmr->b", X, X)
        out.append(Block(bucket.tasks if len(groups) > 1 else slice(None), X, y, size))
    directions = _directions(out)
    return [replace(block, size=block.size / directions) for block in out]


def _directions(data: list[Block]) -> float:
    """How many directions the inputs fill: all features if they are alike, and the same if rows are repeated or turned."""
    moments = sum(rows.T @ rows for rows in (block.X.reshape(-1, block.X.shape[2]) for block in data))
    total = float(np.trace(moments))
    shares = moments / total if total > 0 else np.ones((1, 1))  # fourth powers of the inputs themselves may overflow
    return 1 / float(np.vdot(shares, shares))


def rough(data: list[Block]) -> list[Block] | None:
    """The blocks in single precision, where their units leave room for it."""
    squares = [np.concatenate([block.size, np.einsum("bm,bm->b", block.y, block.y)]) for block in data]
    seen = np.concatenate(squares)
    safe = bool(np.all((seen < 1e8) & ((seen > 1e-8) | (seen == 0))))
    return [block.single() for block in data] if safe else None


def inverse_roots(K: Array) -> Array:
    """``R`` with ``K^-1 = R'R``, for each of the positive definite matrices ``K``."""
    L = np.linalg.cholesky(K)
    invert = dtrtri if L.dtype == np.float64 else strtri
    for matrix in L:
        invert(matrix.T, lower=0, overwrite_c=1)  # in place: the transpose of a C matrix is what LAPACK calls one
    return L


def apply(M: Array, x: Array) -> Array:
    return np.matmul(M, x[:, :, None])[:, :, 0]


def apply_transposed(M: Array, x: Array) -> Array:
    return np.matmul(x[:, None, :], M)[:, 0]


def means(problem: Problem) -> tuple[Array, Array]:
    """The means of the features (``r x T``) and of the targets; 0 where there are no intercepts."""
    if not problem.fit_intercept:
        return np.zeros((problem.n_features, problem.n_tasks)), np.zeros(problem.n_tasks)
    seen = problem.observations
    total = seen.sum_by_task(seen.weight)
    return problem.correlate(seen.weight) / total, seen.sum_by_task(seen.weight * seen.y) / total
