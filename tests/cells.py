"""Data as MALSAR and matMTL hold them, one ``(X_t, y_t)`` for each task, and the minimum of a peer's objective on them.

Tasks have inputs of their own and unequal sizes, and 30 % of the targets are missing: taskloom gets the long table with
NaN, the peer gets the rows that are left. Nothing of the peer's objective comes from taskloom.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
import oracle

from taskloom import stack

Array = np.ndarray


class Cells(NamedTuple):
    """What a peer sees (``X``, ``y``: lists), and the same as a long table with NaN."""

    X: list[Array]
    y: list[Array]
    table: Array
    targets: Array

    @property
    def T(self) -> int:
        return len(self.y)

    @property
    def d(self) -> int:
        return self.X[0].shape[1]

    @property
    def sizes(self) -> Array:
        return np.array([len(y) for y in self.y])

    @property
    def share(self) -> float:
        """``T / N``: with ``task_weight="size"`` each of the ``N`` observations weighs this much in our objective."""
        return self.T / int(self.sizes.sum())


class Found(NamedTuple):
    """A minimum of a peer's objective and the weights (``d x T``) that reach it."""

    value: float
    W: Array
    b: Array


def cells(seed: int = 0, sizes=(18, 12, 22, 15), W: Array | None = None, *, d=5, noise=0.4, missing=0.3, signs=False) -> Cells:
    """Tasks whose weights have rank two (or are given), with inputs of their own."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(d, 2)) @ rng.normal(size=(2, len(sizes))) if W is None else W
    Xs = [rng.normal(size=(n, len(W))) for n in sizes]
    ys = [X @ w + noise * rng.normal(size=len(X)) for X, w in zip(Xs, W.T, strict=True)]
    if signs:
        ys = [np.where(y > np.median(y), 1.0, -1.0) for y in ys]
    table, targets = stack(Xs, ys)
    targets[rng.random(targets.size) < missing] = np.nan
    seen = ~np.isnan(targets)
    rows = [seen & (table[:, -1] == t) for t in range(len(sizes))]
    return Cells([table[r, :-1] for r in rows], [targets[r] for r in rows], table, targets)


def squares(data: Cells, W: Any, b: Any = None, *, mean: bool = False) -> cp.Expression:
    """``sum_t ||y_t - X_t w_t - b_t||^2``, each task divided by its size if ``mean``."""
    return sum(
        cp.sum_squares(y - X @ W[:, t] - (0 if b is None else b[t])) / (len(y) if mean else 1)
        for t, (X, y) in enumerate(zip(data.X, data.y, strict=True))
    )


def logistic(data: Cells, W: Any, c: Any) -> cp.Expression:
    """``sum_t (1/n_t) sum_i log(1 + exp(-y_i (x_i w_t + c_t)))``."""
    return sum(
        cp.sum(cp.logistic(-cp.multiply(y, X @ W[:, t] + c[t]))) / len(y)
        for t, (X, y) in enumerate(zip(data.X, data.y, strict=True))
    )


def rows_of(W: Any) -> cp.Expression:
    """The (2,1) norm: the norms of the rows of ``W``, added up."""
    return cp.sum(cp.norm(W, 2, axis=1))


def minimise(objective: cp.Expression, W: Any, b: Any = None, constraints=()) -> Found:
    """The least value to about eight digits, by Clarabel."""
    value = oracle.solve(cp.Problem(cp.Minimize(objective), list(constraints)), "a peer's objective")
    return Found(value, W.value, np.zeros(W.shape[1]) if b is None else b.value)


def assert_same(model: Any, data: Cells, theirs: Found, factor: float) -> None:
    """Our minimum is ``factor`` times theirs, to 1e-6, and the minimisers agree."""
    model.set_params(task_column=-1, tol=1e-9, max_iter=5000).fit(data.table, data.targets)
    assert model.certificate_.relative_gap <= 1e-9
    assert np.isclose(model.certificate_.primal, factor * theirs.value, rtol=1e-6)
    assert np.abs(model.coef_.T - theirs.W).max() <= 1e-3 * np.abs(theirs.W).max()
    assert np.abs(model.intercept_ - theirs.b).max() <= 1e-3 * max(1.0, np.abs(theirs.b).max())
