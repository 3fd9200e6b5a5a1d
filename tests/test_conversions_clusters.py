"""Clusters as MALSAR and RMTL pose them: what is equal to ours, what is not, and why their iteration misses the minimum.

    1/2 sum_t ||y_t - X_t w_t||^2 + r1 e (1 + e) tr(W (e I + M)^-1 W'),   0 <= M <= I, tr M = k, e = r2/r1

``M`` relaxes the projection onto cluster indicators, whose range holds the vector of ones, but ``M 1 = 1`` is not asked
for. With it, the problem is ``Clusters(k, mean=1/(1+e), between=1/(1+e), within=1/e)``; without it the set is larger and
the minimum lower.
"""

import cvxpy as cp
import numpy as np
import pytest
from cells import assert_same, cells, minimise, squares

from taskloom import MultiTaskRegressor
from taskloom.structures import Clusters

T, K, R1, R2 = 6, 2, 1.0, 0.1
E = R2 / R1
COST = R1 * E * (1 + E)
DATA = cells(2, (9, 8, 10, 7, 9, 8), W=np.repeat(np.random.default_rng(2).normal(size=(5, K)), 3, axis=1))
OURS = Clusters(K, mean=1 / (1 + E), between=1 / (1 + E), within=1 / E)


def constrained(data_term, cost, *, ones: bool, intercept: bool = False):
    """The minimum over ``W`` and ``M`` by Clarabel; ``ones`` adds ``M 1 = 1``: ``M`` is then written across the mean."""
    W, b = cp.Variable((DATA.d, T)), cp.Variable(T) if intercept else None
    if ones:
        H = np.linalg.svd(np.ones((1, T)))[2][1:].T
        N = cp.Variable((T - 1, T - 1), symmetric=True)
        free, rotated, trace = N, W @ H, K - 1
        along = cp.sum_squares(W @ np.full(T, T**-0.5)) / (1 + E)
    else:
        free, rotated, trace, along = cp.Variable((T, T), symmetric=True), W, K, 0.0
    size = free.shape[0]
    Q = cp.Variable((DATA.d, DATA.d), symmetric=True)
    schur = cp.bmat([[E * np.eye(size) + free, rotated.T], [rotated, Q]]) >> 0
    constraints = [schur, free >> 0, np.eye(size) >> free, cp.trace(free) == trace]
    return minimise(data_term(W, b) + cost * (along + cp.trace(Q)), W, b, constraints)


def least_squares(W, b):
    return squares(DATA, W) / 2


def loss_of(W):
    return sum(np.sum((y - X @ w) ** 2) for X, y, w in zip(DATA.X, DATA.y, W.T, strict=True)) / 2


def bisect(excess, low, high):
    """Where a decreasing function crosses zero."""
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def value(W):
    """Their objective at ``W`` and the best ``M`` for it: ``e + m_i`` is a clipped multiple of the singular value ``s_i``."""
    s = np.concatenate([np.linalg.svd(W, compute_uv=False), np.zeros(max(T - len(W), 0))])
    inverse_level = bisect(lambda x: np.clip(s / x, E, 1 + E).sum() - (K + T * E), 1e-12, 1e6)
    return loss_of(W) + COST * np.sum(s**2 / np.clip(s / inverse_level, E, 1 + E))


def within_trace(m):
    """The nearest numbers in ``[0, 1]`` that add up to ``k``."""
    return np.clip(m - bisect(lambda shift: np.clip(m - shift, 0, 1).sum() - K, m.min() - 1, m.max()), 0, 1)


def slope_as_coded(W, inverse):
    """The derivative in ``M`` of MALSAR's Least_CMTL and RMTL's CMTL: ``W'W`` times the square of the inverse."""
    return -COST * W.T @ W @ inverse @ inverse


def project_as_coded(M):
    """That derivative is not symmetric, and its eigenvectors are used as if they were orthogonal all the same."""
    m, V = np.linalg.eig(M)
    return V.real, within_trace(m.real)


def gradient(W, inverse):
    return -COST * inverse @ W.T @ W @ inverse


def project(M):
    m, V = np.linalg.eigh((M + M.T) / 2)
    return V, within_trace(m)


def descend(slope_in_M, into_the_set, n_steps):
    """Accelerated projected gradients in ``(W, M)`` with backtracking, as those packages do; every ``W`` on the way."""

    def charge(W, inverse):
        return loss_of(W) + COST * np.trace(W @ inverse @ W.T)

    W, M = np.zeros((DATA.d, T)), K / T * np.eye(T)
    previous, momentum, bend, visited = (W, M), 1.0, 1.0, []
    for _ in range(n_steps):
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        V, N = (new + (momentum - 1) / faster * (new - old) for new, old in zip((W, M), previous, strict=True))
        momentum, previous = faster, (W, M)
        inverse = np.linalg.inv(E * np.eye(T) + N)
        pull = [X.T @ (X @ v - y) for X, y, v in zip(DATA.X, DATA.y, V.T, strict=True)]
        in_W, in_M = np.stack(pull, axis=1) + 2 * COST * V @ inverse, slope_in_M(V, inverse)
        here = charge(V, inverse)
        for _ in range(60):
            W = V - in_W / bend
            U, m = into_the_set(N - in_M / bend)
            M = (U * m) @ U.T
            move = np.sum((W - V) ** 2) + np.sum((M - N) ** 2)
            bound = here + np.sum(in_W * (W - V)) + np.sum(in_M * (M - N)) + bend / 2 * move
            if charge(W, (U / (E + m)) @ U.T) <= bound:
                break
            bend *= 2
        visited.append(W)
    return visited


@pytest.fixture(scope="module")
def minimum():
    return constrained(least_squares, COST, ones=False)


@pytest.fixture(scope="module")
def certified():
    model = MultiTaskRegressor(
        OURS, alpha=2 * DATA.share * COST, task_weight="size", fit_intercept=False, task_column=-1, tol=1e-9, max_iter=5000
    )
    return model.fit(DATA.table, DATA.targets)


def test_least_cmtl_with_the_condition_on_ones():
    model = MultiTaskRegressor(OURS, alpha=2 * DATA.share * COST, task_weight="size", fit_intercept=False)
    assert_same(model, DATA, constrained(least_squares, COST, ones=True), 2 * DATA.share)


def test_rmtl_cmtl_with_the_condition_on_ones():
    """RMTL halves the mean over each task, and has intercepts."""
    theirs = constrained(lambda W, b: squares(DATA, W, b, mean=True) / 2, 0.05, ones=True, intercept=True)
    assert_same(MultiTaskRegressor(OURS, alpha=2 * 0.05), DATA, theirs, 2.0)


def test_without_the_condition_the_minimum_is_lower(minimum, certified):
    assert minimum.value < 0.98 * certified.certificate_.dual / (2 * DATA.share)


def test_the_derivative_as_coded_does_not_reach_the_minimum(minimum, certified):
    """The true derivative gets to the minimum; the coded one ends above even the higher minimum that we certify."""
    assert value(minimum.W) == pytest.approx(minimum.value, rel=1e-6)
    assert value(descend(gradient, project, 300)[-1]) == pytest.approx(minimum.value, rel=1e-6)
    ends = [value(W) for W in descend(slope_as_coded, project_as_coded, 600)]
    assert min(ends) > 1.1 * minimum.value
    assert 2 * DATA.share * min(ends) > 1.1 * certified.certificate_.primal


def test_the_derivative_itself():
    """Finite differences side with the inverse on both sides."""
    rng = np.random.default_rng(1)
    W, (U, m), step = rng.normal(size=(DATA.d, T)), project(rng.normal(size=(T, T))), 1e-6
    M, direction = (U * m) @ U.T, rng.normal(size=(T, T))
    direction += direction.T

    def penalty(M):
        return COST * np.trace(W @ np.linalg.solve(E * np.eye(T) + M, W.T))

    inverse = np.linalg.inv(E * np.eye(T) + M)
    change = (penalty(M + step * direction) - penalty(M - step * direction)) / (2 * step)
    assert np.sum(gradient(W, inverse) * direction) == pytest.approx(change, rel=1e-6)
    assert np.sum(slope_as_coded(W, inverse) * direction) != pytest.approx(change, rel=0.1)
