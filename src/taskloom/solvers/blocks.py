"""Inputs of the tasks' own, stacked for tasks of similar size: what Newton's methods on the squared loss work on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._array_api import row_products, times_transposed
from ..problem import Problem
from .sides import BUCKET, buckets, lined_up
from .task_blocks import Stack

Array = np.ndarray
TALL = 2  # so many times more rows than features: then a triangle in their place soon pays
WORTHWHILE = 20_000  # numbers, below which single precision saves nothing
INDEPENDENT = 1e-4  # the least share of a column that the others do not explain, for its triangle to come from products


@dataclass(frozen=True, eq=False)
class Block(Stack):
    """A stack that knows whose inputs it holds."""

    tasks: Array | slice

    def single(self) -> Block:
        """In single precision."""
        X, y, size, rest = (np.asarray(part, dtype=np.float32) for part in (self.X, self.y, self.size, self.rest))
        return Block(X, y, size, rest, self.tasks)


def blocks(problem: Problem) -> list[Block]:
    """``sum_t ||y_t - X_t w_t||^2`` is the loss term at the best intercepts, up to a constant."""
    seen, out = problem.observations, []
    for bucket in problem.once("buckets", lambda: buckets(seen.counts, seen.starts)):
        v = seen.weight[bucket.place] * bucket.mask
        root = np.sqrt(v)
        X, y = root[:, :, None] * bucket.take(lined_up(problem), problem), root * seen.y[bucket.place]
        if problem.fit_intercept:
            share = (root / v.sum(axis=1)[:, None])[:, None, :]
            X -= root[:, :, None] * np.matmul(share, X)
            y -= root * np.matmul(share, y[:, :, None])[:, :, 0]
        rest = np.zeros(len(y))
        if y.shape[1] >= TALL * X.shape[2]:
            X, y, rest = shortened(X, y)
        out.append(Block(X, y, np.einsum("bmr,bmr->b", X, X), rest, bucket.tasks))
    out = _gathered(out)
    whole = len(out) == 1 and np.array_equal(out[0].tasks, np.arange(problem.n_tasks))  # type: ignore[arg-type]
    filled = directions([block.X for block in out])
    return [replace(b, size=b.size / filled, tasks=slice(None) if whole else b.tasks) for b in out]


def shortened(X: Array, y: Array) -> tuple[Array, Array, Array]:
    """As many rows as features, with the same products: ``R`` and ``Q'y`` of ``X = QR``, and what ``y`` has off the range.

    From the products themselves (Cholesky) where the columns of every task are clearly independent, which costs a tenth.
    """
    gram = np.matmul(X.transpose(0, 2, 1), X)
    squares = np.einsum("bii->bi", gram)
    try:
        L = np.linalg.cholesky(gram)
        sound = bool(np.all(np.einsum("bii->bi", L) ** 2 > INDEPENDENT * squares))
    except np.linalg.LinAlgError:
        sound = False
    if sound:
        short = np.linalg.solve(L, times_transposed(X, y)[:, :, None])[:, :, 0]
        triangle = np.ascontiguousarray(L.transpose(0, 2, 1))
    else:
        both: Any = np.linalg.qr(np.concatenate([X, y[:, :, None]], axis=2), mode="r")
        triangle, short = np.ascontiguousarray(both[:, :-1, :-1]), both[:, :-1, -1].copy()
    return triangle, short, np.maximum(row_products(y, y) - row_products(short, short), 0.0)


def _gathered(data: list[Block]) -> list[Block]:
    """Neighbours of the same length in one block, as large as buckets are: long tasks came in small ones."""
    out: list[list[Block]] = []
    for block in data:
        m = block.y.shape[1]
        if out and out[-1][0].y.shape[1] == m:
            count = sum(other.n_tasks for other in out[-1]) + block.n_tasks
            if count * m * max(m, 32) <= BUCKET:
                out[-1].append(block)
                continue
        out.append([block])
    return [_merged(group) if len(group) > 1 else group[0] for group in out]


def _merged(group: list[Block]) -> Block:
    names = ("X", "y", "size", "rest", "tasks")
    return Block(**{name: np.concatenate([getattr(block, name) for block in group]) for name in names})


def directions(inputs: list[Array]) -> float:
    """How many directions the inputs fill: all features if they are alike, and the same if rows are repeated or turned."""
    moments = sum(rows.T @ rows for rows in (X.reshape(-1, X.shape[2]) for X in inputs))
    total = float(np.trace(moments))
    shares = moments / total if total > 0 else np.ones((1, 1))  # fourth powers of the inputs themselves may overflow
    return 1 / float(np.vdot(shares, shares))


def rough(data: list[Block]) -> list[Block] | None:
    """The blocks in single precision, where their units leave room for it and there is traffic to be spared."""
    if sum(block.X.size for block in data) < WORTHWHILE:
        return None
    seen = np.concatenate([part for block in data for part in (block.size, row_products(block.y, block.y))])
    safe = bool(np.all((seen < 1e8) & ((seen > 1e-8) | (seen == 0))))
    return [block.single() for block in data] if safe else None


def means(problem: Problem) -> tuple[Array, Array]:
    """The means of the features (``r x T``) and of the targets; 0 where there are no intercepts."""
    if not problem.fit_intercept:
        return np.zeros((problem.n_features, problem.n_tasks)), np.zeros(problem.n_tasks)
    seen = problem.observations
    total = seen.sum_by_task(seen.weight)
    return problem.correlate(seen.weight) / total, seen.sum_by_task(seen.weight * seen.y) / total
