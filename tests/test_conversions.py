"""Parameters of other packages turned into ours: each peer's objective, minimised as it is stated, has our minimum.

The rows of docs/methods.md name these tests. Wherever a peer adds up squares over the observations instead of averaging
them over each task, ``task_weight="size"`` gives each observation the weight ``T/N`` that makes the two agree.
"""

import cvxpy as cp
import numpy as np
import pytest
from cells import assert_same, cells, logistic, minimise, rows_of, squares
from sklearn.linear_model import MultiTaskElasticNet
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskClassifier, MultiTaskRegressor, structures
from taskloom.structures import Clusters, FeatureSelection, Fixed, Frobenius, Independent, SharedMean, TaskGraph, Trace

DATA = cells()
SIGNS = cells(1, (34, 26, 38, 30), d=4, signs=True)
T, d, share = DATA.T, DATA.d, DATA.share
EDGES = [(0, 1, 1.0), (1, 2, 0.5), (0, 3, 2.0)]
# one column for each edge: ||W R||^2 = sum over edges of weight ||w_t - w_s||^2, and R R' is the Laplacian
R = np.stack([np.sqrt(w) * (np.eye(T)[a] - np.eye(T)[b]) for a, b, w in EDGES], axis=1)


def weights(rows=d, tasks=T):
    return cp.Variable((rows, tasks))


def regressor(structure, alpha, **options):
    """As most peers: no intercept."""
    return MultiTaskRegressor(structure, alpha=alpha, **{"fit_intercept": False, **options})


def energy(W, A, constraints):
    """``tr(A^-1 W'W)`` as an expression; adds the condition that defines it."""
    Q = cp.Variable((W.shape[0], W.shape[0]), symmetric=True)
    constraints.append(cp.bmat([[A, W.T], [W, Q]]) >> 0)
    return cp.trace(Q)


class TestMatMTL:
    """sum_t (1/n_t) ||y_t - X_t w_t||^2 + T lambda tr(A^-1 W'W) + T F(A), no intercept: our loss term, as it stands."""

    lam, g = 0.02, 0.05

    def test_ind(self):
        W = weights()
        theirs = minimise(squares(DATA, W, mean=True) + T * self.lam * cp.sum_squares(W), W)
        assert_same(regressor(Independent(), T * self.lam), DATA, theirs, 1.0)

    def test_fix(self):
        B = np.random.default_rng(3).normal(size=(T, T))
        A, W = B @ B.T + 0.1 * np.eye(T), weights()
        norm = T * self.lam * cp.sum_squares(W @ np.linalg.cholesky(np.linalg.inv(A)))
        theirs = minimise(squares(DATA, W, mean=True) + norm, W)
        assert_same(regressor(Fixed(A), T * self.lam), DATA, theirs, 1.0)

    @pytest.mark.parametrize(
        ("F", "penalty", "alpha", "scale"),
        [
            (Trace(), cp.trace, T**2 * lam * g, T * g),
            (Frobenius(), cp.sum_squares, T * lam * np.sqrt(T * g), np.sqrt(T * g)),
        ],
        ids=["trace", "frobenius"],
    )
    def test_learned(self, F, penalty, alpha, scale):
        """Their A times ``scale`` is ours."""
        W, A, constraints = weights(), cp.Variable((T, T), symmetric=True), []
        norm = T * self.lam * energy(W, A, constraints) + T * self.g * penalty(A)
        theirs = minimise(squares(DATA, W, mean=True) + norm, W, constraints=constraints)
        model = regressor(F, alpha)
        assert_same(model, DATA, theirs, 1.0)
        assert np.allclose(model.structure_, scale * A.value, atol=1e-3 * np.abs(model.structure_).max())

    def test_cluster(self):
        """A^-1 = mu (11'/T + P S^-1 P), a I <= S <= b I with b = a / bwr, tr S = a ((r - 1)/bwr + T - r + 1)."""
        mu, a, bwr, r = 0.3, 0.2, 0.1, 2
        P, W, S = np.eye(T) - 1 / T, weights(), cp.Variable((T, T), symmetric=True)
        constraints = [a * np.eye(T) << S, S << a / bwr * np.eye(T), cp.trace(S) == a * ((r - 1) / bwr + T - r + 1)]
        norm = T * self.lam * mu * (T * cp.sum_squares(cp.sum(W, axis=1) / T) + energy(W @ P, S, constraints))
        theirs = minimise(squares(DATA, W, mean=True) + norm, W, constraints=constraints)
        assert_same(regressor(Clusters(r, mean=1.0, between=bwr / a, within=1 / a), T * self.lam * mu), DATA, theirs, 1.0)


class TestMALSAR:
    """Least_*: squares added up over all observations, no intercept; Logistic_*: means, free intercepts."""

    r1, ridge = 3.0, 0.4

    @pytest.mark.parametrize("ridge", [0.0, ridge])
    def test_least_trace(self, ridge):
        W = weights()
        theirs = minimise(squares(DATA, W) / 2 + self.r1 * cp.normNuc(W) + ridge * cp.sum_squares(W), W)
        model = regressor(Trace(), (share * self.r1) ** 2, ridge=2 * share * ridge, task_weight="size")
        assert_same(model, DATA, theirs, 2 * share)
        # the same with the sizes as strengths: our objective is then twice theirs
        model = regressor(Trace(), self.r1**2, ridge=2 * ridge, task_weight=DATA.sizes)
        assert_same(model, DATA, theirs, 2.0)

    def test_averaging_needs_task_weight_when_sizes_differ(self):
        """Without it, the strength that belongs to the mean size gives another solution."""
        W = weights()
        theirs = minimise(squares(DATA, W) / 2 + self.r1 * cp.normNuc(W), W)
        model = regressor(Trace(), (self.r1 * share) ** 2, task_column=-1, tol=1e-9).fit(DATA.table, DATA.targets)
        assert np.abs(model.coef_.T - theirs.W).max() > 0.01 * np.abs(theirs.W).max()

    @pytest.mark.parametrize("ridge", [0.0, ridge])
    def test_least_l21(self, ridge):
        W = weights()
        theirs = minimise(squares(DATA, W) / 2 + self.r1 * rows_of(W) + ridge * cp.sum_squares(W), W)
        model = regressor(FeatureSelection(), (share * self.r1) ** 2, ridge=2 * share * ridge, task_weight="size")
        assert_same(model, DATA, theirs, 2 * share)

    def test_least_srmtl_with_a_graph(self):
        W = weights()
        theirs = minimise(squares(DATA, W) / 2 + self.r1 * cp.sum_squares(W @ R) + self.ridge * cp.sum_squares(W), W)
        graph = TaskGraph(EDGES, gamma=2 * self.ridge / self.r1)
        assert_same(regressor(graph, share * self.r1, task_weight="size"), DATA, theirs, 2 * share)

    def test_least_srmtl_with_the_mean(self):
        W, off_mean = weights(), np.eye(T) - 1 / T
        theirs = minimise(squares(DATA, W) / 2 + self.r1 * cp.sum_squares(W @ off_mean) + self.ridge * cp.sum_squares(W), W)
        model = regressor(SharedMean(self.r1 / self.ridge), 2 * share * self.ridge, task_weight="size")
        assert_same(model, DATA, theirs, 2 * share)

    @pytest.mark.parametrize(("F", "norm"), [(Trace(), cp.normNuc), (FeatureSelection(), rows_of)], ids=["trace", "l21"])
    def test_logistic(self, F, norm):
        r1, ridge = 0.08, 0.01
        W, c = weights(SIGNS.d, SIGNS.T), cp.Variable(SIGNS.T)
        theirs = minimise(logistic(SIGNS, W, c) + r1 * norm(W) + ridge * cp.sum_squares(W), W, c)
        assert_same(MultiTaskClassifier(F, alpha=r1**2 / 4, ridge=ridge), SIGNS, theirs, 1.0)

    def test_least_rmtl(self):
        """The squares of Least_RMTL, Least_rMTFL and Least_Dirty are not halved."""
        data = cells(2, (30, 25, 28, 24, 27), d=4)
        L, S, r1, r2 = weights(4, 5), weights(4, 5), 4.0, 3.0
        objective = squares(data, L + S) + r1 * cp.normNuc(L) + r2 * cp.sum(cp.norm(S, 2, axis=0))
        theirs = minimise(objective, L + S)
        model = regressor(structures.Robust(outliers=r2 / r1), (data.share * r1 / 2) ** 2, task_weight="size")
        assert_same(model, data, theirs, data.share)

    def test_least_rmtfl_is_another_problem(self):
        """Its common part picks features (rows), that of Least_RMTL and Robust looks for a low rank."""
        P, Q = weights(), weights()
        common = {"rows": rows_of(P), "rank": cp.normNuc(P)}
        lonely = 3 * cp.sum(cp.norm(Q, 2, axis=0))
        found = {name: minimise(squares(DATA, P + Q) + 4 * norm + lonely, P + Q) for name, norm in common.items()}
        assert found["rank"].value < 0.99 * found["rows"].value
        assert np.abs(found["rank"].W - found["rows"].W).max() > 1e-2

    def test_least_dirty_is_another_problem(self):
        """Its rows are charged by their largest entry, mutar's (and ours) by their length."""
        P, Q = weights(), weights()
        shared = {"malsar": cp.sum(cp.max(cp.abs(P), axis=1)), "mutar": rows_of(P)}
        found = {
            name: minimise(squares(DATA, P + Q) + 4 * norm + 3 * cp.sum(cp.abs(Q)), P + Q) for name, norm in shared.items()
        }
        assert found["malsar"].value < 0.99 * found["mutar"].value
        assert np.abs(found["malsar"].W - found["mutar"].W).max() > 1e-2


class TestRMTL:
    """sum_t (1/(2 n_t)) ||y_t - X_t w_t - c_t||^2 + Lam1 Omega(W) + Lam2 ||W||^2, free intercepts: half our loss term."""

    lam1, lam2 = 0.15, 0.03

    def theirs(self, penalty):
        W, c = weights(), cp.Variable(T)
        return minimise(squares(DATA, W, c, mean=True) / 2 + self.lam1 * penalty(W) + self.lam2 * cp.sum_squares(W), W, c)

    @pytest.mark.parametrize(("F", "norm"), [(Trace(), cp.normNuc), (FeatureSelection(), rows_of)], ids=["trace", "l21"])
    def test_norms(self, F, norm):
        model = regressor(F, self.lam1**2, ridge=2 * self.lam2, fit_intercept=True)
        assert_same(model, DATA, self.theirs(norm), 2.0)

    def test_graph(self):
        model = regressor(TaskGraph(EDGES, gamma=2 * self.lam2 / self.lam1), self.lam1, fit_intercept=True)
        assert_same(model, DATA, self.theirs(lambda W: cp.sum_squares(W @ R)), 2.0)


class TestMutar:
    """1/(2n) sum_t ||y_t - X_t w_t||^2 + penalties, n observations in each task: half our loss term."""

    data = cells(4, (20, 20, 20, 20), missing=0.0)

    def test_group_lasso(self):
        """It is their dirty model at beta = 10 alpha: from beta = alpha on, nothing is private."""
        a, P, Q = 0.2, weights(), weights()
        theirs = minimise(squares(self.data, P + Q) / (2 * 20) + a * rows_of(P) + 10 * a * cp.sum(cp.abs(Q)), P + Q)
        assert np.abs(Q.value).max() < 1e-5
        assert_same(regressor(FeatureSelection(), a**2), self.data, theirs, 2.0)

    @pytest.mark.parametrize("own", [0.6, 0.8])
    def test_dirty_model(self, own):
        a, P, Q = 0.2, weights(), weights()
        theirs = minimise(squares(self.data, P + Q) / (2 * 20) + a * rows_of(P) + own * a * cp.sum(cp.abs(Q)), P + Q)
        assert_same(regressor(structures.Dirty(private=own), a**2), self.data, theirs, 2.0)


class TestScikitLearn:
    """MultiTaskLasso, Ridge and KernelRidge have tests of their own (test_feature_selection.py, test_equivalences.py)."""

    def test_multi_task_elastic_net(self):
        """1/(2n) ||Y - XW||^2 + a l ||W||_21 + a (1 - l)/2 ||W||^2: half our objective."""
        rng = np.random.default_rng(5)
        X = rng.normal(size=(30, 6))
        Y = 1 + X @ rng.normal(size=(6, 3)) + rng.normal(size=(30, 3))
        theirs = MultiTaskElasticNet(alpha=0.3, l1_ratio=0.7, tol=1e-10, max_iter=20000).fit(X, Y)
        ours = MultiTaskRegressor(FeatureSelection(), alpha=(0.3 * 0.7) ** 2, ridge=0.3 * 0.3, tol=1e-9).fit(X, Y)
        assert np.allclose(ours.coef_, theirs.coef_, atol=1e-5)
        assert np.allclose(ours.intercept_, theirs.intercept_, atol=1e-5)


class TestGaussianProcesses:
    def test_the_posterior_mean_of_a_known_covariance(self):
        """Covariance A x K with noise sigma^2, in full: only a task matrix that is given converts, not the learning of one."""
        rng = np.random.default_rng(6)
        X, B = rng.normal(size=(15, 2)), rng.normal(size=(3, 3))
        Y, A, K, variance = rng.normal(size=(15, 3)), B @ B.T, rbf_kernel(X, gamma=0.5), 0.3
        covariance = np.kron(A, K)
        mean = covariance @ np.linalg.solve(covariance + variance * np.eye(45), Y.T.ravel())
        model = regressor(Fixed(A), variance / 15, kernel="rbf", gamma=0.5).fit(X, Y)
        assert np.allclose(model.predict(X), mean.reshape(3, 15).T, atol=1e-6)
