"""The recipes of ``methods`` against the papers' own definitions, on inputs of their own for each task and 30 % missing.

Each definition is written from its paper: in CVXPY, and where the paper has an algorithm, that algorithm run to the end.
"""

import cvxpy as cp
import numpy as np
import pytest
from cells import Found, assert_same, cells, minimise, squares
from scipy.linalg import solve_sylvester
from scipy.optimize import minimize
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import methods
from taskloom.structures import Clusters

SEEDS = [0, 1, 2]


def weights(data):
    return cp.Variable((data.d, data.T))


def root(M):
    m, V = np.linalg.eigh(M)
    return (V * np.sqrt(np.maximum(m, 0.0))) @ V.T


class TestMTCL:
    """Jacob, Bach and Vert (2008): lambda (e_M tr W U W' + ||W P||_c^2), P = I - U, with the cluster norm

    ||V||_c^2 = min tr V Sigma^-1 V'  over  a I <= Sigma <= b I, tr Sigma = (T - r + 1) a + (r - 1) b,  a = 1/e_W, b = 1/e_B.

    Their averaged loss plus this is ``MTCL(r, mean=e_M, between=e_B, within=e_W, alpha=lambda)``. ``Sigma`` has one
    eigenvalue more than ours across the mean; ``W P`` has no energy there, so the least, ``a``, goes to it.
    """

    r, mean, between, within, lam = 2, 0.3, 1.0, 9.0, 0.05

    def recipe(self, **options):
        return methods.MTCL(self.r, mean=self.mean, between=self.between, within=self.within, alpha=self.lam, **options)

    def set_of(self, T):
        a, b = 1 / self.within, 1 / self.between
        return a, b, (T - self.r + 1) * a + (self.r - 1) * b

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("intercept", [True, False])
    def test_objective_and_minimiser(self, seed, intercept):
        data = cells(seed, (18, 12, 22, 15, 13))
        T, W, c = data.T, weights(data), cp.Variable(data.T) if intercept else None
        P, (a, b, gamma) = np.eye(T) - 1 / T, self.set_of(T)
        Sigma, Q = cp.Variable((T, T), symmetric=True), cp.Variable((data.d, data.d), symmetric=True)
        schur = cp.bmat([[Sigma, (W @ P).T], [W @ P, Q]]) >> 0
        constraints = [schur, a * np.eye(T) << Sigma, Sigma << b * np.eye(T), cp.trace(Sigma) == gamma]
        mean = T * cp.sum_squares(cp.sum(W, axis=1) / T)
        norm = self.lam * (self.mean * mean + cp.trace(Q))
        theirs = minimise(squares(data, W, c, mean=True) + norm, W, c, constraints)
        assert_same(self.recipe(fit_intercept=intercept), data, theirs, 1.0)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_the_norm_itself(self, seed):
        """The cluster norm is a function of singular values: their closed form, minimised by SciPy, at any weights."""
        rng = np.random.default_rng(seed)
        W, T = rng.normal(size=(7, 5)), 5
        a, b, gamma = self.set_of(T)
        s = np.linalg.svd(W - W.mean(axis=1, keepdims=True), compute_uv=False)
        found = minimize(
            lambda x: np.sum(s**2 / x),
            np.full(T, gamma / T),
            jac=lambda x: -(s**2) / x**2,
            bounds=[(a, b)] * T,
            constraints={"type": "eq", "fun": lambda x: x.sum() - gamma, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 500},
        )
        theirs = self.mean * T * np.sum(W.mean(axis=1) ** 2) + found.fun
        structure = Clusters(self.r, mean=self.mean, between=self.between, within=self.within)
        assert np.isclose(structure.best_of_root(W)[1], theirs, rtol=1e-7)

    def test_it_lies_below_every_clustering(self):
        """A relaxation: no partition into r groups is cheaper, under Omega = e_M mean + e_B between + e_W within."""
        rng = np.random.default_rng(0)
        W = np.repeat(rng.normal(size=(7, 2)), (2, 3), axis=1) + 0.1 * rng.normal(size=(7, 5))
        relaxed = Clusters(self.r, mean=self.mean, between=self.between, within=self.within).best_of_root(W)[1]
        mean = W.mean(axis=1, keepdims=True)
        cheapest = np.inf
        for code in range(1, 2**4):
            group = np.array([code >> t & 1 for t in range(5)])
            centres = np.stack([W[:, group == group[t]].mean(axis=1) for t in range(5)], axis=1)
            cost = (
                self.mean * 5 * np.sum(mean**2)
                + self.between * np.sum((centres - mean) ** 2)
                + self.within * np.sum((W - centres) ** 2)
            )
            cheapest = min(cheapest, cost)
        assert relaxed <= cheapest <= 1.1 * relaxed


class TestMTRL:
    """Zhang and Yeung (2010): sum_t (1/n_t) sum (y - w_t'x - b_t)^2 + l1/2 tr W W' + l2/2 tr W Omega^-1 W', tr Omega = 1.

    It is ``MTRL(alpha=l2/2, ridge=l1/2)``: a larger ``Omega`` is never dearer, so ``tr Omega <= 1`` is the same.
    """

    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize(("l1", "l2"), [(0.2, 0.05), (0.0, 0.05), (0.02, 0.4)])
    def test_definition(self, l1, l2, seed):
        data = cells(seed)
        T, W, b = data.T, weights(data), cp.Variable(data.T)
        Omega, Q = cp.Variable((T, T), symmetric=True), cp.Variable((data.d, data.d), symmetric=True)
        constraints = [cp.bmat([[Omega, W.T], [W, Q]]) >> 0, cp.trace(Omega) == 1]
        norm = l1 / 2 * cp.sum_squares(W) + l2 / 2 * cp.trace(Q)
        theirs = minimise(squares(data, W, b, mean=True) + norm, W, b, constraints)
        model = methods.MTRL(alpha=l2 / 2, ridge=l1 / 2)
        assert_same(model, data, theirs, 1.0)
        assert np.allclose(model.structure_, Omega.value, atol=1e-3)

    def test_their_alternation(self):
        """Omega = (W'W)^(1/2) / tr (W'W)^(1/2), then W and b from one linear system; without intercepts it is shorter."""
        l1, l2, data = 0.2, 0.05, cells(0, (20, 18, 24, 19), noise=1.0)
        T, d = data.T, data.d
        grams = [X.T @ X / len(X) for X in data.X]
        pulls = np.concatenate([X.T @ y / len(y) for X, y in zip(data.X, data.y, strict=True)])
        Omega = np.eye(T) / T
        for _ in range(3000):
            system = np.kron(l1 / 2 * np.eye(T) + l2 / 2 * np.linalg.inv(Omega), np.eye(d))
            for t, gram in enumerate(grams):
                system[t * d : (t + 1) * d, t * d : (t + 1) * d] += gram
            W = np.linalg.solve(system, pulls).reshape(T, d).T
            Omega = root(W.T @ W)
            Omega /= np.trace(Omega)
        loss = sum(np.mean((y - X @ w) ** 2) for X, y, w in zip(data.X, data.y, W.T, strict=True))
        value = loss + l1 / 2 * np.sum(W**2) + l2 / 2 * np.trace(W @ np.linalg.solve(Omega, W.T))
        model = methods.MTRL(alpha=l2 / 2, ridge=l1 / 2, fit_intercept=False)
        assert_same(model, data, Found(value, W, np.zeros(T)), 1.0)
        assert np.allclose(model.structure_, Omega, atol=1e-3)

    def test_the_second_parameter_matters(self):
        """Without it the weights are larger and the relations others."""
        data = cells(0)
        one, other = (methods.MTRL(alpha=0.025, ridge=r, task_column=-1).fit(data.table, data.targets) for r in (0.0, 0.3))
        assert np.linalg.norm(one.coef_) > 1.1 * np.linalg.norm(other.coef_)


class TestOKL:
    """Dinuzzo, Ong, Gehler and Pillonetto (2011): ||Y - K C L||^2 / (2 lam) + tr(C'K C L) / 2 + ||L||^2 / 2, shared inputs.

    Times ``2 lam / n`` it is ours with ``alpha = (lam/n)^(3/2)`` and ``A = (lam/n)^(1/2) L``; our ``C`` is their ``C L``.
    """

    @pytest.mark.parametrize("lam", [0.5, 3.0])
    def test_their_block_coordinate_descent(self, lam):
        """Both blocks are Sylvester equations: K C L + lam C = Y for C; for a symmetric L, with E = K C,

        (E'E + lam I) L + L (E'E + lam I) = E'Y + Y'E - lam E'C.
        """
        rng = np.random.default_rng(0)
        n, T = 24, 4
        X = rng.normal(size=(n, 3))
        Y = np.sin(X @ rng.normal(size=(3, 2))) @ rng.normal(size=(2, T)) + 0.2 * rng.normal(size=(n, T))
        K, L = rbf_kernel(X, gamma=0.5), np.eye(T)
        for _ in range(500):
            C = solve_sylvester(lam * np.linalg.inv(K), L, np.linalg.solve(K, Y))
            E = K @ C
            left = E.T @ E + lam * np.eye(T)
            L = solve_sylvester(left, left, E.T @ Y + Y.T @ E - lam * E.T @ C)
        value = np.sum((Y - K @ C @ L) ** 2) / (2 * lam) + np.trace(C.T @ K @ C @ L) / 2 + np.sum(L**2) / 2
        assert np.linalg.eigvalsh(L)[0] > 0
        scale = lam / n
        model = methods.OKL(kernel="rbf", gamma=0.5, alpha=scale**1.5, fit_intercept=False, tol=1e-10, max_iter=5000).fit(X, Y)
        assert np.isclose(model.certificate_.primal, 2 * scale * value, rtol=1e-6)
        assert np.allclose(model.structure_, np.sqrt(scale) * L, atol=1e-4 * np.abs(model.structure_).max())
        assert np.allclose(model.predict(X), K @ C @ L, atol=1e-4)
        assert np.allclose(model.dual_coef_, C @ L, atol=1e-3 * np.abs(C @ L).max())

    @pytest.mark.parametrize("seed", SEEDS)
    def test_inputs_of_their_own(self, seed):
        """Past the paper: each task its inputs, n_t for n. Eliminating L by hand leaves 3/2^(5/3) sum s^(4/3)."""
        data, lam = cells(seed), 0.4
        W = weights(data)
        L, Q = cp.Variable((data.T, data.T), symmetric=True), cp.Variable((data.d, data.d), symmetric=True)
        schur = cp.bmat([[L, W.T], [W, Q]]) >> 0
        theirs = minimise(squares(data, W, mean=True) / (2 * lam) + cp.trace(Q) / 2 + cp.sum_squares(L) / 2, W, None, [schur])
        assert_same(methods.OKL(alpha=lam**1.5, fit_intercept=False), data, theirs, 2 * lam)
        s = np.linalg.svd(theirs.W, compute_uv=False)
        by_hand = squares(data, theirs.W, mean=True).value / (2 * lam) + 3 / 2 ** (5 / 3) * np.sum(s ** (4 / 3))
        assert np.isclose(by_hand, theirs.value, rtol=1e-6)


class TestMTFL:
    """Argyriou, Evgeniou and Pontil (2008): sum of losses + gamma tr(W' D^+ W), tr D <= 1, that is gamma ||W||_*^2.

    The squared norm is ``UnitTrace`` (``MTRL`` without its ridge) at ``alpha = gamma T/N``; ``MTFL`` is the norm itself,
    with the same solution at ``sqrt(alpha) = gamma T/N ||W*||_*``.
    """

    gamma = 0.3

    def theirs(self, data):
        W = weights(data)
        return minimise(squares(data, W) + self.gamma * cp.square(cp.normNuc(W)), W)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_squared_and_plain_norm(self, seed):
        data = cells(seed)
        theirs, strength = self.theirs(data), self.gamma * data.share
        plain = {"task_weight": "size", "fit_intercept": False}
        assert_same(methods.MTRL(alpha=strength, **plain), data, theirs, data.share)
        size = np.linalg.svd(theirs.W, compute_uv=False).sum()
        W = weights(data)
        norm = minimise(squares(data, W) + 2 * self.gamma * size * cp.normNuc(W), W)
        assert np.allclose(norm.W, theirs.W, atol=1e-4)
        assert_same(methods.MTFL(alpha=(strength * size) ** 2, **plain), data, norm, data.share)

    def test_their_alternation(self):
        """D = (W W' + eps I)^(1/2) / its trace, then each task on its own; eps goes to zero."""
        data = cells(0, noise=1.0)
        D = np.eye(data.d) / data.d
        for step in range(3000):
            inverse = np.linalg.inv(D)
            W = np.stack(
                [np.linalg.solve(X.T @ X + self.gamma * inverse, X.T @ y) for X, y in zip(data.X, data.y, strict=True)], axis=1
            )
            D = root(W @ W.T + max(0.1 * 0.9**step, 1e-10) * np.eye(data.d))
            D /= np.trace(D)
        size = np.linalg.svd(W, compute_uv=False).sum()
        value = squares(data, W).value + self.gamma * size**2
        model = methods.MTRL(alpha=self.gamma * data.share, task_weight="size", fit_intercept=False)
        assert_same(model, data, Found(value, W, np.zeros(data.T)), data.share)


class TestSTL:
    def test_ridge_on_what_each_task_has(self):
        """scikit-learn adds squares up, we average: its alpha is n_t times ours, n_t the observed targets of the task."""
        data = cells(0)
        model = methods.STL(alpha=0.3, task_column=-1).fit(data.table, data.targets)
        for t, (X, y) in enumerate(zip(data.X, data.y, strict=True)):
            twin = Ridge(alpha=0.3 * len(y)).fit(X, y)
            assert np.allclose(model.coef_[t], twin.coef_)
            assert np.isclose(model.intercept_[t], twin.intercept_)
