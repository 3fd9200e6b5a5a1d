"""Losses of a whole row: their laws, the optimum by other roads, and what the estimators make of them."""

import itertools

import numpy as np
import oracle
import pytest
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, linprog, minimize
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    Problem,
    alpha_max,
    losses,
    path,
    solve,
    solvers,
    structures,
)
from taskloom.problem import Observations
from taskloom.problem.whole_rows import row_gradients
from taskloom.solvers.supervised import multiclass_newton as row_steps
from taskloom.solvers.supervised.sides import FeatureSide, TaskSide

EVERY = pytest.mark.parametrize("loss", zoo.ROW_LOSSES, ids=zoo.name)
T = zoo.T
_GUESS = np.random.default_rng(5).dirichlet(np.ones(T))
SMOOTH = [losses.Softmax(), losses.MulticlassHinge().smoothed(_GUESS - np.eye(T)[1], 0.4)]


def one_row(label):
    return np.where(np.arange(T) == label, 1.0, -1.0)


def by_hand(loss, label, z):
    """The definitions, one class at a time."""
    if isinstance(loss, losses.Softmax):
        return np.log(sum(np.exp(z[k]) for k in range(T))) - z[label]
    return max((k != label) + z[k] for k in range(T)) - z[label]


numbers = st.lists(st.floats(-4, 4), min_size=T, max_size=T).map(np.array)
chances = st.lists(st.floats(0.001, 1), min_size=T, max_size=T).map(lambda p: np.array(p) / np.sum(p))
labels = st.integers(0, T - 1)


class TestLaws:
    @EVERY
    @given(z=numbers, label=labels)
    def test_the_value_is_the_definition(self, loss, z, label):
        assert np.isclose(loss.value(one_row(label), z).sum(), by_hand(loss, label, z), atol=1e-12)

    @EVERY
    @given(z=numbers, p=chances, label=labels)
    def test_fenchel_and_young(self, loss, z, p, label):
        y = one_row(label)
        s = p - (y > 0)
        assert s @ z <= loss.value(y, z).sum() + loss.conjugate(y, s).sum() + 1e-10

    @EVERY
    @given(p=chances, label=labels)
    @settings(max_examples=25)
    def test_the_conjugate_is_the_supremum(self, loss, p, label):
        """By brute force: on the unit simplex ``<s, z> - l(z)`` is concave and comes as near as we like to its supremum."""
        y = one_row(label)
        s = p - (y > 0)
        best = minimize(lambda z: by_hand(loss, label, z) - s @ z, np.log(p), method="Powell", options={"xtol": 1e-10})
        start = -(by_hand(loss, label, np.where(y > 0, 1.0, 0.0)) - s @ np.where(y > 0, 1.0, 0.0))  # a corner of the hinge
        assert np.isclose(loss.conjugate(y, s).sum(), max(-best.fun, start), atol=1e-6)

    @EVERY
    @pytest.mark.parametrize("s", [[0.1, 0, 0, 0], [-1.2, 1.2, 0, 0], [-0.1, 0.2, -0.1, 0]])
    def test_the_conjugate_is_infinite_where_gradients_and_class_are_not_probabilities(self, loss, s):
        assert np.isinf(loss.conjugate(one_row(0), np.array(s)).sum())

    @pytest.mark.parametrize("loss", SMOOTH, ids=["softmax", "smoothed hinge"])
    @given(z=numbers, shift=st.floats(-3, 3))
    @settings(max_examples=30)
    def test_gradient_and_equality_in_fenchel_and_young(self, loss, z, shift):
        y = one_row(1)
        gradient = loss.gradient(y, z)
        assert np.allclose(gradient, approx_fprime(z, lambda z: loss.value(y, z).sum(), 1e-7), atol=1e-5)
        assert np.isclose(gradient @ z, loss.value(y, z).sum() + loss.conjugate(y, gradient).sum(), atol=1e-10)
        assert np.allclose(loss.gradient(y, z + shift), gradient, atol=1e-12)  # a constant on the whole row says nothing
        assert abs(gradient.sum()) < 1e-15

    @pytest.mark.parametrize("loss", SMOOTH, ids=["softmax", "smoothed hinge"])
    def test_the_hessian_is_what_curvature_says_and_lies_under_the_bound(self, loss):
        rng = np.random.default_rng(0)
        for _ in range(20):
            z, y = rng.normal(size=T), one_row(1)
            h = loss.curvature(y, z)
            hessian = np.diag(h) - np.outer(h, h) / max(h.sum(), 1e-300)
            steps = np.array([loss.gradient(y, z + 1e-6 * e) - loss.gradient(y, z - 1e-6 * e) for e in np.eye(T)]) / 2e-6
            assert np.allclose(hessian, steps, atol=1e-4)
            bound = loss.max_curvature * (np.eye(T) - 1 / T)
            assert np.linalg.eigvalsh(bound - hessian)[0] >= -1e-12

    def test_the_smoothed_hinge_is_the_supremum_it_says(self):
        loss, rng = losses.MulticlassHinge(), np.random.default_rng(1)
        z, y, guess = rng.normal(size=T), one_row(2), rng.dirichlet(np.ones(T)) - np.eye(T)[2]
        import cvxpy as cp

        s = cp.Variable(T)
        inside = [cp.sum(s) == 0, s + np.eye(T)[2] >= 0]
        gain = s @ z + (1 - np.eye(T)[2]) @ (s + np.eye(T)[2]) - 0.3 * cp.sum_squares(s - guess) / 2
        best = cp.Problem(cp.Maximize(gain), inside).solve(solver=cp.CLARABEL)
        assert np.isclose(loss.smoothed(guess, 0.3).value(y, z).sum(), best, atol=1e-7)

    @EVERY
    @pytest.mark.parametrize("shares", [[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.5, 0.5 - 2e-3, 1e-3, 1e-3]])
    def test_the_best_constants(self, loss, shares):
        shares = np.array(shares)
        b = loss.best_constants(shares)
        found = sum(p * by_hand(loss, k, b) for k, p in enumerate(shares))
        if isinstance(loss, losses.Softmax):
            truth = -shares @ np.log(shares)  # the entropy
        else:  # min sum_k p_k (u_k - b_k) with u_k >= 1[j != k] + b_j
            A = np.array([np.eye(T)[j].tolist() + (-np.eye(T)[k]).tolist() for k in range(T) for j in range(T)])
            bound = np.array([-float(j != k) for k in range(T) for j in range(T)])
            truth = linprog(np.concatenate([-shares, shares]), A, bound, bounds=(None, None)).fun
        assert np.isclose(found, truth)
        assert abs(b.sum()) < 1e-14

    @given(seed=st.integers(0, 1000), wild=st.floats(0, 3), balance=st.booleans())
    @settings(max_examples=40)
    def test_any_gradients_make_a_dual_candidate(self, seed, wild, balance):
        rng = np.random.default_rng(seed)
        Y = zoo.classes(seed)[2]
        seen = Observations.from_wide(Y, rng.uniform(0.1, 2, size=len(Y)))
        s = row_gradients(seen, wild * rng.normal(size=Y.size), balance).reshape(T, -1).T
        p = s + (Y > 0)
        assert p.min() >= -1e-15
        assert np.allclose(p.sum(axis=1), 1)
        assert not balance or np.abs(seen.weight[: len(Y)] @ s).max() < 1e-14

    def test_balance_leaves_certain_rows_certain(self):
        """Gradients of a hinge are mostly zero: what balances them must not wake all of them up."""
        rng = np.random.default_rng(0)
        Y = zoo.classes(1, n=200)[2]
        seen = Observations.from_wide(Y)
        own = (Y > 0).T
        p = np.where(rng.random(200) < 0.5, own, np.where(rng.random(own.shape) < 0.5, 0.0, 1.0) + own)
        s = (p / p.sum(axis=0) - own).ravel()
        balanced = row_gradients(seen, row_gradients(seen, s, True) * (1 + 1e-7 * rng.normal(size=s.size)), True).reshape(T, -1)
        assert np.abs(balanced @ np.full(200, 1 / 200)).max() < 1e-15
        once = row_gradients(seen, s, True).reshape(T, -1)
        assert np.abs(balanced - once).max() < 1e-6
        assert np.median(balanced[~own & (p == 0)]) < 1e-12

    @EVERY
    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_any_candidate_is_below_any_point(self, loss, fit_intercept):
        """Weak duality, far from the optimum: random gradients, random weights."""
        rng = np.random.default_rng(0)
        for seed, F in enumerate(zoo.STRUCTURES):
            X, _, Y = zoo.classes(seed)
            problem = Problem(X, Y, loss, F, 0.05, 0.02, fit_intercept)
            for size in (0.01, 0.3, 2.0):
                W = size * rng.normal(size=(X.shape[1], T))
                W = W @ F.best_structure(np.eye(T)) if F.known else W
                b = rng.normal(size=T) * fit_intercept
                G = problem.dual_candidate(size * rng.normal(size=Y.size))
                assert problem.dual(G, W) <= problem.best_primal(W, b)[0] + 1e-12


STRUCTURES = [
    structures.Trace(),
    structures.Frobenius(),
    zoo.KNOWN[1],
    structures.SharedMean(2.0),
    structures.Clusters(2),
    structures.UnitTrace(),
]


class TestTheOptimum:
    @EVERY
    @pytest.mark.parametrize("F", STRUCTURES, ids=zoo.name)
    @pytest.mark.parametrize("fit_intercept", [True, False])
    def test_cvxpy_lies_in_the_certified_bracket(self, loss, F, fit_intercept):
        X, _, Y = zoo.classes(STRUCTURES.index(F), n=16)
        ridge = 0.02 if fit_intercept else 0.0
        problem = Problem(X, Y, loss, F, 0.05, ridge, fit_intercept)
        certificate = solve(problem, tol=1e-8 if loss.smooth else 1e-7, max_iter=3000).certificate
        truth = oracle.minimum(X, Y, loss, F, 0.05, ridge=ridge, fit_intercept=fit_intercept)
        noise = 1e-7 * max(1.0, abs(truth))
        assert certificate.optimal, certificate.message
        assert certificate.dual - noise <= truth <= certificate.primal + noise
        assert abs(certificate.primal - truth) <= 1e-6 * abs(truth)

    @EVERY
    @pytest.mark.parametrize("F", STRUCTURES, ids=zoo.name)
    def test_all_solvers_arrive(self, loss, F):
        X, _, Y = zoo.classes(3)
        problem = Problem(X, Y, loss, F, 0.05)
        found = []
        for solver in ("alternating", "block", "proximal", "factored"):
            if solvers.Factored().accepts(problem) is None or solver != "factored":
                found.append(solve(problem, solver, tol=1e-5))
                assert found[-1].certificate.optimal, found[-1].certificate.message
                assert abs(found[-1].b.sum()) < 1e-12
        values = [solution.certificate.primal for solution in found]
        assert np.ptp(values) <= 1e-5 * problem.scale

    def test_softmax_is_multinomial_logistic_regression(self):
        """scikit-learn minimises ``C sum_i loss_i + ||W||^2 / 2``: that is ``2 alpha n C = 1``."""
        X, y = load_iris(return_X_y=True)
        ours = MultiTaskClassifier("independent", loss="softmax", alpha=0.02, tol=1e-12).fit(X, y)
        theirs = LogisticRegression(C=1 / (2 * 0.02 * len(y)), tol=1e-10, max_iter=10000).fit(X, y)
        assert np.allclose(ours.coef_, theirs.coef_, atol=1e-5)
        assert np.allclose(ours.intercept_, theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4)
        assert np.allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-5)

    def test_the_multiclass_hinge_is_the_machine_of_crammer_and_singer(self):
        """LIBLINEAR minimises ``C sum_i loss_i + ||W||^2 / 2``: that is ``2 alpha n C = 1``."""
        X, y, _ = zoo.classes(1, n=60)
        ours = MultiTaskClassifier(
            "independent", loss="multiclass_hinge", alpha=0.05, fit_intercept=False, tol=1e-8, max_iter=3000
        ).fit(X, y)
        theirs = LinearSVC(
            multi_class="crammer_singer", C=1 / (2 * 0.05 * 60), fit_intercept=False, tol=1e-8, max_iter=100000
        ).fit(X, y)
        assert np.allclose(ours.coef_, theirs.coef_, atol=1e-4)

    def test_two_classes_are_logistic_regression(self):
        """``log(1 + exp(z_1 - z_2))`` sees ``w_2 - w_1`` alone, whose norm is shared equally: half the strength."""
        X, y, _ = zoo.classes(2, n=60)
        rows = MultiTaskClassifier("independent", loss="softmax", alpha=0.04, tol=1e-11).fit(X, y > 1)
        logistic = MultiTaskClassifier("independent", alpha=0.02, tol=1e-11).fit(X, y > 1)
        assert np.allclose(rows.decision_function(X), logistic.decision_function(X), atol=1e-5)
        assert np.array_equal(rows.predict(X), logistic.predict(X))
        assert np.allclose(rows.predict_proba(X), logistic.predict_proba(X), atol=1e-5)


class TestSupervisedStep:
    @pytest.mark.parametrize("d", [2, 40])
    @pytest.mark.parametrize("fit_intercept", [True, False])
    @pytest.mark.parametrize("kind", ["softmax", "smoothed hinge"])
    def test_dense_and_iterative_and_both_sides_agree(self, d, fit_intercept, kind, monkeypatch):
        X, _, Y = zoo.classes(4, d=d)
        loss = losses.Softmax() if kind == "softmax" else losses.MulticlassHinge()
        problem = Problem(X, Y, loss, structures.Independent(), 0.05, 0.02, fit_intercept)
        if kind != "softmax":
            problem = problem.with_loss(loss.smoothed(np.zeros(Y.size), 0.3))
        dense = TaskSide(problem).supervise(np.eye(T))
        feature = FeatureSide(problem).supervise(np.eye(d))
        monkeypatch.setattr(row_steps, "TUNING", row_steps.RowTuning(max_dense_unknowns=0))
        iterative = TaskSide(problem).supervise(np.eye(T))
        for other in (feature, iterative, FeatureSide(problem).supervise(np.eye(d))):
            assert np.allclose(dense.W, other.W, atol=1e-6)
            assert np.allclose(dense.z, other.z, atol=1e-6)
            assert np.isclose(dense.norm, other.norm, rtol=1e-6)
        gradient = problem.correlate(problem.observations.weight * dense.gradients) + 2 * (0.05 + 0.02) * dense.W
        assert np.abs(gradient).max() < 1e-9
        if fit_intercept:
            assert np.abs(problem.observations.sum_by_task(problem.observations.weight * dense.gradients)).max() < 1e-9

    @EVERY
    def test_sparse_features_give_the_dense_solution(self, loss):
        from scipy.sparse import csr_array

        X, _, Y = zoo.classes(6, d=6)
        X[np.abs(X) < 0.7] = 0.0
        for F in (structures.Trace(), structures.SharedMean(1.0)):
            one, other = (solve(Problem(features, Y, loss, F, 0.05), tol=1e-8) for features in (X, csr_array(X)))
            assert np.allclose(one.W, other.W, atol=1e-3)
            assert np.isclose(one.certificate.primal, other.certificate.primal, rtol=1e-7)

    def test_many_classes_and_few_features(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(60, 3))
        label = np.append(np.arange(10), np.argmax(X[10:] @ rng.normal(size=(3, 10)) + rng.gumbel(size=(50, 10)), axis=1))
        Y = np.where(label[:, None] == np.arange(10), 1.0, -1.0)
        for loss in zoo.ROW_LOSSES:
            solution = solve(Problem(X, Y, loss, structures.Trace(), 0.01), tol=1e-6)
            assert solution.certificate.optimal

    @EVERY
    @pytest.mark.parametrize("F", [structures.Frobenius(), structures.Clusters(2)], ids=zoo.name)
    def test_a_weak_penalty_is_no_trap(self, loss, F):
        """Almost no curvature is left, and duals no longer tell the weights."""
        X, _, Y = zoo.classes(7, n=80, noise=0.0)
        assert solve(Problem(X, Y, loss, F, 1e-6), tol=1e-5, max_iter=100).certificate.optimal

    def test_features_far_from_zero_change_nothing(self):
        X, _, Y = zoo.classes(5)
        near, far = (solve(Problem(X + shift, Y, "softmax", alpha=0.05), tol=1e-9) for shift in (0.0, 50.0))
        assert np.allclose(near.W, far.W, atol=1e-4)
        assert abs(far.b.sum()) < 1e-9


class TestWhatIsRefused:
    X, label, Y = zoo.classes(0)

    @EVERY
    def test_tables_that_are_not_classes(self, loss):
        missing, two, numbers = self.Y.copy(), self.Y.copy(), self.Y.copy()
        missing[3, 1], two[2], numbers[0, 0] = np.nan, 1.0, 2.0
        for Y, message in ((missing, "whole rows"), (two, "row 2"), (numbers, "got 2.0"), (self.Y[:, :1], "at least 2")):
            with pytest.raises(ValueError, match=message):
                Problem(self.X, Y, loss)
        with pytest.raises(ValueError, match="task_weight='equal'"):
            Problem(self.X, Observations.from_wide(self.Y, task_weight=np.arange(1, T + 1)), loss)
        some = self.label < 3
        with pytest.raises(ValueError, match="class 3 never occurs"):
            Problem(self.X[some], self.Y[some], loss)
        assert solve(Problem(self.X[some], self.Y[some], loss, alpha=0.05, fit_intercept=False)).certificate.optimal

    @pytest.mark.parametrize("loss", ["softmax", "multiclass_hinge"])
    def test_targets_that_are_not_one_target(self, loss):
        model = MultiTaskClassifier(loss=loss)
        with pytest.raises(ValueError, match="one-dimensional y"):
            model.fit(self.X, self.Y)
        with pytest.raises(ValueError, match="a task column"):
            clone(model).set_params(task_column=0).fit(self.X, self.label)
        with pytest.raises(ValueError, match="1 class"):
            model.fit(self.X, np.ones(len(self.X)))
        with pytest.raises(ValueError, match="MultiTaskClassifier"):
            MultiTaskRegressor(loss=loss).fit(self.X, self.Y)
        with pytest.raises(ValueError, match="MultiTaskClassifier"):
            MultiTaskRegressor(loss=dict.fromkeys(range(T), loss)).fit(self.X, self.Y)
        with pytest.raises(ValueError, match="equal over the classes"):
            model.set_params(task_weight=np.arange(1, T + 1)).fit(self.X, self.label)
        with pytest.raises(ValueError, match="does not mix"):
            losses.mixed_loss([losses.as_loss(loss), losses.Hinge()], np.array([0, 1]))

    def test_a_new_class(self):
        model = MultiTaskClassifier(loss="softmax").fit(self.X, self.label)
        with pytest.raises(ValueError, match="add_task needs binary tasks"):
            model.add_task(self.X, self.label > 1, name="other")


class TestEstimator:
    X, label, Y = zoo.classes(7, n=80, noise=0.3)
    names = np.array(["ash", "beech", "cedar", "dogwood"])[label]

    @pytest.mark.parametrize("loss", ["softmax", "multiclass_hinge"])
    @pytest.mark.parametrize("kernel", ["linear", "rbf"])
    def test_it_learns_the_classes(self, loss, kernel):
        model = MultiTaskClassifier(loss=loss, alpha=1e-3, kernel=kernel).fit(self.X, self.names)
        assert model.certificate_.optimal
        assert model.tasks_.tolist() == model.classes_.tolist()
        assert model.score(self.X, self.names) == np.mean(model.predict(self.X) == self.names) > 0.7
        assert model.decision_function(self.X).shape == (80, T)
        assert model.structure_.shape == (T, T)
        assert hasattr(model, "predict_proba") == (loss == "softmax")
        if loss == "softmax":
            assert np.allclose(model.predict_proba(self.X).sum(axis=1), 1)
            assert np.array_equal(model.classes_[model.predict_proba(self.X).argmax(axis=1)], model.predict(self.X))

    @pytest.mark.parametrize("loss", ["softmax", "multiclass_hinge"])
    def test_weights_are_repetitions_and_zeros_are_absences(self, loss):
        weight = np.arange(80) % 3
        options = {"loss": loss, "alpha": 0.01, "tol": 1e-8}
        weighted = MultiTaskClassifier(**options).fit(self.X, self.names, sample_weight=weight)
        repeated = MultiTaskClassifier(**options).fit(np.repeat(self.X, weight, axis=0), np.repeat(self.names, weight))
        assert np.allclose(weighted.coef_, repeated.coef_, atol=1e-3)
        assert np.isclose(weighted.certificate_.primal, repeated.certificate_.primal, rtol=1e-7)

    def test_missing_labels_are_rows_left_out(self):
        holes = np.where(np.arange(80) % 5 == 0, np.nan, self.label.astype(float))
        one = MultiTaskClassifier(loss="softmax", tol=1e-9).fit(self.X, holes)
        other = MultiTaskClassifier(loss="softmax", tol=1e-9).fit(self.X[~np.isnan(holes)], holes[~np.isnan(holes)])
        assert np.allclose(one.coef_, other.coef_, atol=1e-5)

    @pytest.mark.parametrize("loss", ["softmax", "multiclass_hinge"])
    def test_the_simplex_code_is_there_already(self, loss):
        """A function that all classes share costs norm and changes no loss, so classes add up to zero by themselves."""
        plain = MultiTaskClassifier("frobenius", loss=loss, tol=1e-9).fit(self.X, self.names)
        coded = MultiTaskClassifier("frobenius", loss=loss, tol=1e-9, coding="simplex").fit(self.X, self.names)
        assert np.allclose(plain.coef_.sum(axis=0), 0, atol=1e-5)
        assert np.allclose(plain.coef_, coded.coef_, atol=1e-4)

    def test_a_warm_start_is_at_the_end_already(self):
        model = MultiTaskClassifier(loss="softmax", warm_start=True, tol=1e-6).fit(self.X, self.names)
        cold = model.n_iter_
        assert model.fit(self.X, self.names).n_iter_ < cold

    @pytest.mark.parametrize("loss", ["softmax", "multiclass_hinge"])
    def test_cross_validation_scores_as_a_grid_search_does(self, loss):
        folds, alphas = StratifiedKFold(2), [0.1, 0.003]
        options = {"structure": "shared_mean", "loss": loss, "tol": 1e-5}
        quick = MultiTaskClassifierCV(alphas=alphas, cv=folds, **options, kernels=None).fit(self.X, self.names)
        slow = GridSearchCV(MultiTaskClassifier(**options), {"alpha": alphas}, cv=folds).fit(self.X, self.names)
        assert np.allclose(quick.cv_results_["mean_test_score"], slow.cv_results_["mean_test_score"], atol=1e-9)
        own_grid = MultiTaskClassifierCV("frobenius", loss=loss, alphas=2, cv=2, tol=1e-3, kernels=None).fit(self.X, self.names)
        assert 0.2 < own_grid.best_score_ <= 1

    @pytest.mark.parametrize("loss", ["softmax", "multiclass_hinge"])
    def test_two_classes_have_one_decision_value(self, loss):
        model = MultiTaskClassifier(loss=loss, alpha=1e-3).fit(self.X, self.label > 1)
        assert model.decision_function(self.X).shape == (80,)
        assert np.array_equal(model.predict(self.X), model.decision_function(self.X) > 0)
        assert model.score(self.X, self.label > 1) > 0.7


@parametrize_with_checks([MultiTaskClassifier(loss="softmax", tol=1e-6)])
def test_scikit_learn_approves(estimator, check):
    check(estimator)


class TestPath:
    @EVERY
    def test_everything_vanishes_at_alpha_max(self, loss):
        X, _, Y = zoo.classes(8, n=40)
        problem = Problem(X, Y, loss, structures.Trace())
        top = alpha_max(problem)
        assert not np.any(np.abs(solve(problem.at(1.01 * top), tol=1e-6).W) > 1e-5)
        assert solve(problem.at(1.01 * top), tol=1e-6).certificate.optimal
        if loss.smooth:  # with kinks the strength is large enough, if not always smallest
            assert np.abs(solve(problem.at(0.9 * top), tol=1e-8).W).max() > 1e-4

    @EVERY
    def test_a_path_is_certified_at_each_point(self, loss):
        X, _, Y = zoo.classes(8, n=40)
        problem = Problem(X, Y, loss, structures.Trace())
        for alpha, solution in zip(alphas := [0.1, 0.03, 0.01], path(problem, alphas, tol=1e-6), strict=True):
            assert solution.certificate.optimal
            cold = solve(problem.at(alpha), tol=1e-6).certificate
            assert abs(cold.primal - solution.certificate.primal) <= 2e-6 * problem.scale


def test_every_pair_is_certified():
    """Each row loss with each structure of the zoo, also those that the tests above leave out."""
    X, _, Y = zoo.classes(9)
    for loss, F in itertools.product(zoo.ROW_LOSSES, zoo.STRUCTURES):
        certificate = solve(Problem(X, Y, loss, F, 0.05, 0.01), tol=1e-5).certificate
        assert certificate.optimal, f"{F!r}: {certificate.message}"


def test_classes_that_are_nearly_separated_converge():
    """Intercepts with little curvature were damped as if they had much, and Newton gave up on the way."""
    draw = np.random.default_rng(3)
    inputs, labels = draw.normal(size=(22, 7)), np.arange(22) % 8
    B = draw.normal(size=(8, 8))
    model = MultiTaskClassifier(structures.OutputMetric(B @ B.T + 0.1 * np.eye(8)), loss="softmax", alpha=2e-5)
    said = model.fit(inputs, labels, sample_weight=draw.uniform(0.3, 3, size=22)).certificate_
    assert said.optimal, said.message
