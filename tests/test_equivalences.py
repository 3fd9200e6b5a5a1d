"""One model rewritten as another, and the corrections to the paper, each against the printed formula."""

from dataclasses import replace

import numpy as np
import pytest
import zoo
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskRegressor, Problem, losses, path, solve, structures
from taskloom import equivalences as maps
from taskloom.solvers import Alternating, alpha_max
from taskloom.structures import Clusters, Fixed, Independent, Schatten, SharedMean, TaskGraph, Trace, UnitTrace

rng = np.random.default_rng(0)


def squared_problem(F, alpha=0.05, layout="own", **options):
    return Problem(*zoo.data(losses.Squared(), layout), "squared", F, alpha, **options)


def nuclear(W):
    return np.linalg.svd(W, compute_uv=False).sum()


class TestKnownModels:
    def test_fixed_identity_is_ridge_task_by_task(self):
        """Our loss is a mean over the n_t observations of a task, scikit-learn's a sum: its alpha is n_t times ours."""
        X, Y = zoo.data(losses.Squared(), "missing")
        model = MultiTaskRegressor(Fixed(np.eye(zoo.T)), alpha=0.3).fit(X, Y)
        for t in range(zoo.T):
            seen = ~np.isnan(Y[:, t])
            twin = Ridge(alpha=0.3 * seen.sum()).fit(X[seen], Y[seen, t])
            assert np.allclose(model.coef_[t], twin.coef_)
            assert np.isclose(model.intercept_[t], twin.intercept_)

    def test_fixed_identity_is_kernel_ridge_task_by_task(self):
        X, Y = zoo.data(losses.Squared(), "shared")
        model = MultiTaskRegressor(Independent(), kernel="rbf", gamma=0.4, alpha=0.01, fit_intercept=False).fit(X, Y)
        twin = KernelRidge(kernel="rbf", gamma=0.4, alpha=0.01 * len(X)).fit(X, Y)
        assert np.allclose(model.predict(X), twin.predict(X))
        assert np.allclose(model.dual_coef_, twin.dual_coef_, atol=1e-6)

    def test_trace_is_the_nuclear_norm(self):
        problem = squared_problem(Trace())
        s = solve(problem, tol=1e-9)
        direct = problem.loss_term(problem.predict(s.W, s.b)) + 2 * np.sqrt(problem.alpha) * nuclear(s.W)
        assert np.isclose(direct, s.certificate.primal, rtol=1e-9)

    def test_unit_trace_is_the_squared_nuclear_norm(self):
        problem = squared_problem(UnitTrace())
        s = solve(problem, tol=1e-9)
        direct = problem.loss_term(problem.predict(s.W, s.b)) + problem.alpha * nuclear(s.W) ** 2
        assert np.isclose(direct, s.certificate.primal, rtol=1e-9)

    def test_one_task_is_single_task_learning(self):
        X, Y = zoo.data(losses.Squared(), "shared")
        problem = Problem(X, Y[:, :1], "squared", "frobenius", 0.05)
        s = solve(problem, tol=1e-10)
        alone = solve(replace(problem, structure=Independent(), alpha=problem.alpha / s.A[0, 0]))
        assert np.allclose(s.W, alone.W, atol=1e-5)

    @pytest.mark.parametrize("F", list(zoo.LEARNED), ids=zoo.name)
    def test_permuting_the_tasks_permutes_the_structure(self, F):
        X, Y = zoo.data(losses.Squared(), "missing")
        order = np.array([2, 0, 3, 1])
        one, other = (solve(Problem(X, targets, "squared", F, 0.05), tol=1e-10) for targets in (Y, Y[:, order]))
        assert np.isclose(one.certificate.primal, other.certificate.primal, rtol=1e-8)
        assert np.allclose(one.A[np.ix_(order, order)], other.A, atol=1e-3 * np.abs(one.A).max())

    def test_both_sides_have_the_same_minimum(self):
        for F in (Trace(), Schatten(1.5), structures.Frobenius(), UnitTrace()):
            problem = squared_problem(F)
            features = solve(problem, "factored", tol=1e-8)
            tasks = solve(problem, Alternating(A0=np.eye(zoo.T)), tol=1e-6, max_iter=3000)
            assert abs(features.certificate.primal - tasks.certificate.primal) <= max(features.gap, tasks.gap)


class TestCorrections:
    """Section 2 of the design: what the paper prints does not hold; what we use does."""

    @pytest.mark.parametrize("p", [1, 2, 3])
    def test_schatten_step(self, p):
        alpha, M = 0.3, zoo.random_psd(rng) + 0.1 * np.eye(zoo.T)

        def power(B, q):
            b, V = np.linalg.eigh(B)
            return (V * b**q) @ V.T

        def value(A):
            return alpha * np.trace(np.linalg.solve(A, M)) + np.trace(power(A, p))

        ours, printed = Schatten(p).best_structure(alpha * M), power(M / alpha, 1 / (p + 1))
        assert np.allclose(ours, power(alpha * M / p, 1 / (p + 1)))
        for _ in range(50):
            assert (
                value(ours) <= value(ours + 0.1 * np.linalg.eigvalsh(ours)[0] * (np.eye(zoo.T) - zoo.random_psd(rng))) + 1e-12
            )
        assert value(printed) > 1.05 * value(ours)

    def test_mean_variance(self):
        gamma, W = 3.0, rng.normal(size=(5, zoo.T))
        spread = np.sum(W**2) + gamma * np.sum((W - W.mean(axis=1, keepdims=True)) ** 2)
        inverse = np.linalg.inv(SharedMean(gamma).matrix(zoo.T))
        printed = np.eye(zoo.T) + gamma * np.ones((zoo.T, zoo.T)) / zoo.T
        assert np.isclose(np.trace(inverse @ W.T @ W), spread)
        assert not np.isclose(np.trace(printed @ W.T @ W), spread)

    def test_graph(self):
        adjacency = np.array([[0, 1, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0.5], [0, 0, 0.5, 0]])
        gamma, W = 0.7, rng.normal(size=(5, 4))
        pairs = sum(adjacency[t, s] * np.sum((W[:, t] - W[:, s]) ** 2) for t in range(4) for s in range(4))
        wanted = pairs + gamma * np.sum(W**2)
        inverse = np.linalg.inv(TaskGraph(adjacency, gamma).matrix(4))
        printed = np.diag(adjacency.sum(axis=0)) - adjacency + gamma * np.eye(4)
        assert np.isclose(np.trace(inverse @ W.T @ W), wanted)
        assert not np.isclose(np.trace(printed @ W.T @ W), wanted)

    def test_clusters(self):
        """At a true partition A(M) inverts to the penalty that means clusters; its convex set holds every partition."""
        F, T = Clusters(2, mean=0.5, between=2.0, within=8.0), 5
        E = np.array([[1, 0], [1, 0], [0, 1], [0, 1], [0, 1]], dtype=float)
        M, U, eye = E @ np.linalg.pinv(E), np.ones((T, T)) / T, np.eye(T)
        A = U / 0.5 + (M - U) / 2.0 + (eye - M) / 8.0
        W = rng.normal(size=(4, T))
        mean, centres = W @ U, W @ M
        wanted = 0.5 * np.sum(mean**2) + 2.0 * np.sum((centres - mean) ** 2) + 8.0 * np.sum((W - centres) ** 2)
        assert F.value(A) == 0.0
        assert np.isclose(np.trace(np.linalg.solve(A, W.T @ W)), wanted)
        assert np.isclose(np.trace(M), 2)
        printed = eye - np.linalg.pinv(E).T @ E.T
        assert not np.isclose(np.trace(printed), 2)
        other = np.array([[1, 0], [0, 1], [1, 0], [0, 1], [0, 1]], dtype=float)
        halfway = (A + U / 0.5 + (other @ np.linalg.pinv(other) - U) / 2.0 + (eye - other @ np.linalg.pinv(other)) / 8.0) / 2
        assert F.value(halfway) == 0.0  # convex in A(M)
        inverse_of_mean = np.linalg.inv(
            0.5 * U
            + 2.0 * ((M + other @ np.linalg.pinv(other)) / 2 - U)
            + 8.0 * (eye - (M + other @ np.linalg.pinv(other)) / 2)
        )
        assert F.value(inverse_of_mean) == np.inf  # A^-1 linear in M is another set

    def test_feature_learning_strengths(self):
        """gamma ||W||_*^2 has the solution of 2 sqrt(lam) ||W||_* at sqrt(lam) = gamma ||W*||_*, not at lam = gamma^2/4."""
        gamma = 0.05
        squared = solve(squared_problem(UnitTrace(), gamma), tol=1e-10)
        plain = solve(squared_problem(Trace(), (gamma * nuclear(squared.W)) ** 2), tol=1e-10)
        printed = solve(squared_problem(Trace(), gamma**2 / 4), tol=1e-10)
        assert np.allclose(squared.W, plain.W, atol=1e-4)
        assert not np.allclose(squared.W, printed.W, atol=1e-2)

    def test_the_norm_and_its_power_share_solutions_at_other_strengths(self):
        norm = solve(squared_problem(structures.SchattenNorm(2), 0.05), tol=1e-10)
        size = np.linalg.norm(norm.A)
        # ||A|| is tr(A^2) / (2 size) up to a constant at the solution; rescaling A turns the factor into a strength
        power = solve(squared_problem(structures.Frobenius(), 0.05 * (2 * size) ** -0.5), tol=1e-10)
        same = solve(squared_problem(structures.Frobenius(), 0.05), tol=1e-10)
        assert np.allclose(norm.W, power.W, atol=1e-3)
        assert not np.allclose(norm.W, same.W, atol=1e-3)

    def test_a_code_is_not_a_structure_for_least_squares(self):
        """(Y - F)L' in squared norm with plain ridge is not squared loss with A = L'L."""
        X, Y = zoo.data(losses.Squared(), "shared")
        L, alpha = rng.normal(size=(3, zoo.T)), 0.1
        structured = MultiTaskRegressor(structures.OutputCode(L), alpha=alpha, fit_intercept=False).fit(X, Y)
        coded = MultiTaskRegressor(Independent(), alpha=alpha, fit_intercept=False).fit(X, Y @ L.T)
        assert not np.allclose(structured.predict(X) @ L.T, coded.predict(X), atol=1e-2)


class TestMaps:
    def test_r_to_q_and_back(self):
        """(C A^+, A) has in (Q) the value that (C, A) has in (R), and back."""
        X, Y = zoo.data(losses.Squared(), "shared")
        K = rbf_kernel(X, gamma=0.3)
        model = MultiTaskRegressor("frobenius", kernel="precomputed", alpha=0.02, fit_intercept=False, tol=1e-9).fit(K, Y)
        C, A, v = model.dual_coef_, model.structure_, 1 / len(X)

        def q_value(C, A):
            return v * np.sum((Y - K @ C @ A) ** 2) + 0.02 * np.trace(A @ C.T @ K @ C) + np.sum(A**2)

        Cq, Aq = maps.r_to_q(C, A)
        assert np.isclose(q_value(Cq, Aq), model.certificate_.primal, rtol=1e-6)
        back, _ = maps.q_to_r(Cq, Aq)
        assert np.allclose(back, C, atol=1e-6)

    def test_tasks_to_features_and_back(self):
        problem = squared_problem(structures.Frobenius())
        s = solve(problem, tol=1e-10)
        D = maps.tasks_to_features(s.W, s.A)
        assert np.isclose(
            np.trace(np.linalg.pinv(D, rcond=1e-8) @ s.W @ s.W.T), np.trace(np.linalg.pinv(s.A) @ s.W.T @ s.W), rtol=1e-5
        )
        assert np.isclose(problem.structure.value(D), problem.structure.value(s.A), rtol=1e-6)
        assert np.allclose(maps.features_to_tasks(s.W, D), s.A, atol=1e-4)

    def test_dual_coefficients_to_weights_and_back(self):
        Phi = rng.normal(size=(9, 4))
        W = Phi.T @ rng.normal(size=(9, 3))
        C = maps.weights_to_dual(Phi, W)
        assert np.allclose(maps.dual_to_weights(Phi, C), W)
        assert np.allclose(Phi @ Phi.T @ C, Phi @ W)


class TestTheorems:
    def test_minima_of_the_perturbed_problems_decrease_to_the_minimum(self):
        """Theorem on (S^delta): as delta falls, minima fall to that of (R) and minimisers converge."""
        for F in (structures.Frobenius(), Trace()):
            problem = squared_problem(F, layout="shared")
            limit = solve(problem, tol=1e-10)
            values, distances = [], []
            for delta in (0.3, 0.1, 0.03, 0.01):
                s = solve(problem, Alternating(delta=delta, A0=np.eye(zoo.T)), tol=0.0, max_iter=600)
                A, penalty = F.best_of_root(np.sqrt(problem.alpha) * s.W, problem.alpha * delta**2)
                barrier = problem.alpha * delta**2 * np.trace(np.linalg.inv(A))
                values.append(problem.loss_term(problem.predict(s.W, s.b)) + penalty + barrier)
                distances.append(np.linalg.norm(s.W - limit.W))
            assert np.all(np.diff(values) < 0)
            assert np.all(np.array(values) >= limit.certificate.dual)
            assert values[-1] - limit.certificate.primal < 0.1 * (values[0] - limit.certificate.primal)
            assert distances[-1] < 0.3 * distances[0]

    def test_a_stationary_point_of_q_inside_the_cone_is_global_and_one_on_the_boundary_need_not_be(self):
        X, Y = zoo.data(losses.Squared(), "shared")
        K, alpha, v = X @ X.T, 0.05, 1 / len(X)

        def q(C, A):
            return v * np.sum((Y - K @ C @ A) ** 2) + alpha * np.trace(A @ C.T @ K @ C) + np.sum(A**2)

        def gradients(C, A):
            R = K @ C @ A - Y
            inA = 2 * v * (K @ C).T @ R
            return 2 * v * K @ R @ A + 2 * alpha * K @ C @ A, (inA + inA.T) / 2 + alpha * C.T @ K @ C + 2 * A

        problem = Problem(X, Y, "squared", structures.Frobenius(), alpha, 0.0, False)
        best = solve(problem, tol=1e-12, max_iter=5000)
        assert np.linalg.eigvalsh(best.A)[0] > 0
        C, A = maps.r_to_q(maps.weights_to_dual(X, best.W), best.A)
        assert all(np.abs(gradient).max() < 1e-3 for gradient in gradients(C, A))
        assert np.isclose(q(C, A), best.certificate.primal, rtol=1e-6)
        zero = np.zeros_like(C), np.zeros_like(A)
        assert all(np.abs(gradient).max() == 0 for gradient in gradients(*zero))  # stationary, on the boundary
        assert q(*zero) > 1.5 * best.certificate.primal  # and not global


class TestPath:
    def test_everything_vanishes_at_alpha_max_and_not_below(self):
        for loss in (losses.Squared(), losses.Logistic(), losses.Huber()):
            for F in (Trace(), structures.SchattenNorm(2), structures.Sparse(0.3)):
                problem = Problem(*zoo.data(loss, "missing"), loss, F)
                top = alpha_max(problem)
                assert np.all(solve(replace(problem, alpha=1.01 * top), tol=1e-9).W == 0)
                assert np.abs(solve(replace(problem, alpha=0.97 * top), tol=1e-9).W).max() > 1e-4

    def test_nothing_ever_vanishes_under_a_smooth_penalty(self):
        assert alpha_max(squared_problem(structures.Frobenius())) == np.inf
        assert alpha_max(squared_problem(Independent())) == np.inf

    def test_alpha_max_of_nothing(self):
        assert alpha_max(Problem(np.zeros((5, 2)), np.arange(10.0).reshape(5, 2))) == 0.0

    def test_alpha_max_is_large_enough_for_nonsmooth_losses(self):
        problem = Problem(*zoo.data(losses.Hinge(), "missing"), "hinge", "trace")
        solution = solve(replace(problem, alpha=1.01 * alpha_max(problem)), tol=1e-7)
        assert np.abs(solution.W).max() < 1e-6

    def test_a_path_is_certified_at_each_point_and_equal_to_single_fits(self):
        problem = squared_problem(Trace())
        alphas = alpha_max(problem) * np.array([0.5, 0.1, 0.02])
        for alpha, s in zip(alphas, path(problem, alphas, tol=1e-7), strict=True):
            alone = solve(replace(problem, alpha=alpha), tol=1e-7)
            assert s.certificate.optimal
            assert abs(s.certificate.primal - alone.certificate.primal) <= max(s.gap, alone.gap)
