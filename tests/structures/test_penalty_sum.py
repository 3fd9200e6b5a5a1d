"""Sums of penalties: their arithmetic, what they refuse, and their certificates."""

from __future__ import annotations

import numpy as np
import pytest
import zoo

from taskloom import MultiTaskRegressor, Problem, solve, structures
from taskloom.structures import Clusters, CustomStructure, Dirty, Frobenius, LogDet, Robust, Sparse, Sum, Trace, UnitTrace


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


class TestArithmetic:
    def test_arithmetic(self):
        F = Trace() + 0.5 * (Sparse(0.1) + 2 * Frobenius())
        assert [type(member) for member in F.members] == [Trace, Sparse, Frobenius]
        assert F.weights == [1.0, 0.5, 1.0]
        A = zoo.random_psd(np.random.default_rng(0))
        assert np.isclose(F.value(A), Trace().value(A) + 0.5 * Sparse(0.1).value(A) + Frobenius().value(A))
        with pytest.raises(TypeError):
            Trace() + 1

    @pytest.mark.parametrize(
        ("F", "same"),
        [
            (Sum([Sparse(0.3)]), Sparse(0.3)),
            (Trace() + LogDet(0.6), 2 * LogDet(0.3)),
            (Trace() + LogDet(0.6, l1=0.4), Sum([LogDet(0.3, l1=0.2)], [2.0])),
            (Sum([Clusters(2)], [3.0]), Clusters(2)),
            (UnitTrace() + Trace() + 0.5 * Trace(), Sum([UnitTrace(), Trace()], [7.0, 1.5])),
        ],
        ids=zoo.name,
    )
    def test_sums_that_are_something_else(self, F, same):
        rng = np.random.default_rng(1)
        B, S = rng.normal(size=(4, 4)), zoo.random_psd(rng) + 0.1 * np.eye(4)
        assert np.allclose(F.prox(B + B.T, 0.7), same.prox(B + B.T, 0.7), atol=1e-6)
        assert np.allclose(F.best_structure(S), same.best_structure(S), atol=1e-4)

    def test_a_frobenius_part_only_scales_the_prox(self):
        B = np.random.default_rng(2).normal(size=(5, 5))
        A, step = B + B.T, 0.4
        shrunk = Sparse(0.3).prox(A / (1 + 2 * step), step / (1 + 2 * step))
        assert np.allclose((Frobenius() + Sparse(0.3)).prox(A, step), shrunk, atol=1e-6)

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: Sum([]), "list of structures"),
            (lambda: Sum([Trace(), 3]), "got 3"),
            (lambda: Trace() + structures.Independent(), "Independent fixes A"),
            (lambda: Trace() + structures.FeatureSelection(), "FeatureSelection penalises the features"),
            (lambda: Sum([Trace()], [0.0]), r"weights=\[0.0\]"),
            (lambda: Sum([Trace(), Trace()], [1.0]), "2 members"),
            (lambda: Sum([Trace() + Trace()]), "does not nest"),
            (lambda: -1 * Trace(), "positive number, got -1"),
            (lambda: (Trace() + Clusters(5)).check_tasks(3), "the data have 3"),
            (lambda: LogDet(1.0, l1=-1), "l1=-1"),
        ],
    )
    def test_what_cannot_be_added_is_refused_by_name(self, make, words):
        with pytest.raises(ValueError, match=words):
            make()

    def test_a_member_that_is_not_convex_is_refused_by_name(self):
        class Crooked(Trace):
            convex = False

        with pytest.raises(ValueError, match="Crooked is not convex"):
            Trace() + Crooked()
