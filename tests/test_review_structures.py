"""What a review of structures, losses and kernels in combination found: each case was wrong once."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import oracle
import pytest
import zoo
from scipy.special import xlogy

from taskloom import MultiTaskRegressor, Problem, solve
from taskloom.structures import Clusters, CustomStructure, Dirty, Frobenius, LogDet, Robust, Sparse, Trace, UnitTrace


class Poisson:
    """As in docs/custom.md: curvatures come from differences of gradients."""

    def value(self, y, z):
        return np.exp(z) - y * z + xlogy(y, y) - y

    def gradient(self, y, z):
        return np.exp(z) - y


class TestNothingToLearn:
    """Constant targets: the loss of the best constants is rounding, and no gap can be measured in units of it."""

    @pytest.mark.parametrize("structure", [*zoo.STRUCTURES, *zoo.SUMS, *zoo.ON_FEATURES], ids=zoo.name)
    @pytest.mark.parametrize("rows", [1, 5])
    def test_constant_targets_are_optimal_at_once(self, structure, rows):
        X = np.random.default_rng(0).normal(size=(rows, 3))
        model = MultiTaskRegressor(structure).fit(X, np.tile([0.1, 0.7, 3.0, 4.0], (rows, 1)))
        assert model.certificate_.optimal
        assert model.n_iter_ <= 2
        np.testing.assert_allclose(model.predict(X), np.tile([0.1, 0.7, 3.0, 4.0], (rows, 1)))

    def test_absolute_loss_of_a_constant(self):
        X = np.random.default_rng(0).normal(size=(40, 3))
        assert MultiTaskRegressor("trace", loss="absolute").fit(X, np.full((40, 2), 0.1)).certificate_.optimal

    def test_small_targets_are_not_nothing(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(30, 3))
        y = 1.0 + 1e-6 * (X @ rng.normal(size=(3, 2)))
        certificate = MultiTaskRegressor("trace", alpha=1e-16).fit(X, y).certificate_
        assert certificate.optimal
        assert 0 < certificate.relative_gap <= 1e-4


def test_exponentials_find_the_way_back_from_far_out():
    """A start from the duals of another structure may lie where ``exp`` overflows."""
    rng = np.random.default_rng(15)
    X = rng.normal(size=(8, 4))
    Y = rng.poisson(np.exp(np.clip(2 * X @ rng.normal(size=(4, 6)), -3, 2))).astype(float)
    for alpha in (1e-3, 5e-4):
        solution = solve(Problem(X, Y, Poisson(), Sparse(0.3), alpha), tol=1e-6)
        assert solution.certificate.optimal


class TestSums:
    def test_sets_without_a_common_point_are_refused(self):
        X = np.random.default_rng(0).normal(size=(12, 3))
        with pytest.raises(ValueError, match=r"no A satisfies Clusters.* and UnitTrace"):
            Problem(X, np.zeros((12, 4)), structure=Clusters(2) + UnitTrace())

    def test_sets_with_a_common_point_are_certified(self):
        rng = np.random.default_rng(0)
        X, Y = rng.normal(size=(12, 3)), rng.normal(size=(12, 4))
        structure = Clusters(2, mean=4.0, between=4.0, within=40.0) + UnitTrace()
        assert solve(Problem(X, Y, structure=structure), tol=1e-6).certificate.optimal

    def test_a_penalty_of_ones_own_in_a_sum(self):
        """What the other members leave of ``S`` may be indefinite, of negative trace even."""
        rng = np.random.default_rng(43)
        X, Y = rng.normal(size=(8, 2)), rng.normal(size=(8, 3))
        structure = CustomStructure(zoo.TraceAndSize()) + Sparse(0.2)
        for alpha in (1e-2, 1e3):
            assert solve(Problem(X, Y, "squared", structure, alpha), tol=1e-6).certificate.optimal

    @pytest.mark.parametrize("structure", [Robust(), Dirty()], ids=zoo.name)
    def test_structures_that_split_the_weights_are_refused(self, structure):
        with pytest.raises(ValueError, match=f"{type(structure).__name__} splits the weights"):
            structure + Trace()
        with pytest.raises(ValueError, match=f"{type(structure).__name__} splits the weights"):
            2 * structure

    @pytest.mark.parametrize("alpha", [10.0, 1e3])
    @pytest.mark.parametrize(
        "structure",
        [Frobenius() + LogDet(0.2, l1=0.2), CustomStructure(zoo.TraceAndSize()) + LogDet(0.2), LogDet(0.2, l1=0.2)],
        ids=["frobenius", "custom", "alone"],
    )
    def test_strong_penalties(self, structure, alpha):
        """Where the tasks hardly bend, proximal steps grew until the search for their multipliers could not follow."""
        rng = np.random.default_rng(43)
        solution = solve(Problem(rng.normal(size=(8, 2)), rng.normal(size=(8, 3)), "squared", structure, alpha), tol=1e-6)
        assert solution.certificate.optimal
        assert solution.n_iter <= 20

    @pytest.mark.parametrize("solver", ["alternating", "block"])
    def test_alternation_proves_sums_of_eigenvalues(self, solver):
        """Without proximal steps nothing was remembered, and the bound took an empty split for ever."""
        rng = np.random.default_rng(0)
        X, Y = rng.normal(size=(16, 5)), rng.normal(size=(16, 4))
        structure = Trace() + 0.5 * LogDet(0.3) + 2 * UnitTrace()
        solution = solve(Problem(X, Y, "squared", structure, 0.05), solver, max_iter=150)
        assert solution.certificate.optimal, solution.certificate.message

    def test_the_certificate_says_what_was_bounded_numerically(self):
        rng = np.random.default_rng(0)
        structure = CustomStructure(zoo.TraceAndSize()) + Trace()
        model = MultiTaskRegressor(structure).fit(rng.normal(size=(8, 2)), rng.normal(size=(8, 3)))
        assert "bounded numerically" in model.certificate_.message


class TestFewFeatures:
    """Fewer features than tasks: ``W'W`` is singular, and the best structure may reach beyond its range."""

    @pytest.mark.parametrize("rank", [1, 2])
    @pytest.mark.parametrize("l1", [0.05, 0.3])
    def test_step_of_sparse(self, rank, l1):
        R = 0.1 * np.random.default_rng(0).normal(size=(rank, 6))
        A = cp.Variable((6, 6), symmetric=True)
        energy, schur = oracle.quadratic_over_structure(cp.Constant(R), A)
        value, constraints = oracle.structure_value(Sparse(l1), A)
        expected = oracle.solve(cp.Problem(cp.Minimize(energy + value), [*constraints, schur]), "the step")
        _, found = Sparse(l1).best_of_root(R)
        assert found == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("solver", ["alternating", "block"])
    def test_what_is_called_optimal_is(self, solver):
        """The best structure was searched again at the end, badly, and replaced the one that had been certified."""
        rng = np.random.default_rng(0)
        X = rng.normal(size=(14, 2))
        Y = X @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(14, 6))
        problem = Problem(X, Y, "squared", Sparse(0.3), 4e-4, fit_intercept=False)
        solution = solve(problem, solver)
        assert solution.certificate.optimal
        assert solution.certificate.relative_gap <= 1e-4
        assert problem.primal(solution.W, solution.b, solution.A) == pytest.approx(solution.certificate.primal, rel=1e-9)
