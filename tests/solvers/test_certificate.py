"""Certificates where numbers are awkward: singular structures, rounding, constant targets."""

from types import SimpleNamespace

import numpy as np
import pytest
import zoo

from taskloom import MultiTaskRegressor, Problem, solve, structures
from taskloom.design import Observations
from taskloom.problem.evidence import Evidence
from taskloom.solvers.record import Record

rng = np.random.default_rng(0)
n, d, T = 30, 5, 4
X = rng.normal(size=(n, d))
Y = X @ rng.normal(size=(d, T)) + 0.3 * rng.normal(size=(n, T)) + 1


@pytest.mark.parametrize("solver", ["auto", "block"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
def test_a_singular_known_structure_has_a_true_bracket(scale, missing, solver):
    """Energy outside the range of A was free, and <A, S> was a difference of large numbers."""
    L = np.random.default_rng(1).normal(size=(2, T))
    targets = np.where(np.random.default_rng(2).random(Y.shape) < 0.2, np.nan, Y) if missing else Y
    problem = Problem(X * scale, targets, "squared", structures.OutputCode(L), 0.01)
    certificate = solve(problem, solver, max_iter=300).certificate
    # the minimum at no penalty, over W = B L: nothing in the model can be below it
    obs = problem.observations
    design = np.einsum("ni,nk->nik", X[obs.row], L.T[obs.task]).reshape(obs.y.size, -1)
    design = np.hstack([design, np.eye(T)[obs.task]]) * np.sqrt(obs.weight)[:, None]
    floor = np.linalg.lstsq(design, np.sqrt(obs.weight) * obs.y, rcond=None)[1][0]
    assert certificate.primal >= floor * (1 - 1e-9)
    assert certificate.dual <= certificate.primal * (1 + 1e-9)
    if scale == 1e8 and certificate.optimal:
        assert np.isclose(certificate.primal, floor, rtol=1e-3)


def test_eigenvalues_that_are_slightly_negative_do_not_raise_the_dual():
    F = structures.Fixed(np.diag([1, 1, 1, -1e-9]))
    certificate = MultiTaskRegressor(F, alpha=1e-8).fit(X, Y).certificate_
    clipped = MultiTaskRegressor(structures.Fixed(np.diag([1, 1, 1, 0.0])), alpha=1e-8).fit(X, Y).certificate_
    assert np.isclose(certificate.primal, clipped.primal)
    assert certificate.dual <= certificate.primal * (1 + 1e-9)


def test_a_gap_is_never_smaller_than_rounding():
    """With tiny targets the least value of this penalty, which no formula gives, swallows the loss: no proof to claim."""
    certificate = solve(Problem(X, 1e-9 * Y, "squared", structures.LogDet(1.0, 0.1), 1e-3), max_iter=50).certificate
    assert not certificate.optimal
    assert certificate.gap > 0


def test_the_structure_has_the_size_of_the_tasks_when_there_are_as_many_features():
    square = rng.normal(size=(40, T))
    model = MultiTaskRegressor("trace", tol=1e-8).fit(square, Y[np.arange(40) % n])
    problem = Problem(square, Y[np.arange(40) % n], "squared", "trace", 0.01)
    assert np.isclose(problem.primal(model.coef_.T, model.intercept_, model.structure_), model.certificate_.primal, rtol=1e-8)


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


@pytest.mark.parametrize("first", ["factored", "block", "alternating"])
def test_a_bound_does_not_depend_on_what_was_solved_before(first):
    """The dual projection read the data that another solver had left with the problem: the bound moved by 3e-11."""
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(20), 15)
    X = rng.normal(size=(task.size, 30))
    y = np.einsum("ij,ji->i", X, (rng.normal(size=(30, 3)) @ rng.normal(size=(3, 20)))[:, task]) + rng.normal(size=task.size)
    seen = Observations.build(np.arange(task.size), task, y, 20)

    def bound(problem):
        return solve(problem, "proximal", tol=1e-6).certificate

    used = Problem(X, seen, alpha=0.1)
    solve(used, first, tol=1e-4)
    assert bound(used) == bound(Problem(X, seen, alpha=0.1))


def test_a_record_keeps_the_best_bound_of_an_engine_that_has_no_dual_points():
    """A later point with a weaker bound does not replace a better one."""
    problem = Problem(np.eye(4), np.arange(8.0).reshape(4, 2), alpha=0.1)
    record = Record(problem, 1e-4)
    for primal, dual in ((3.0, 1.0), (2.0, 0.5), (2.5, 0.8)):
        record.problem = SimpleNamespace(
            evidence=lambda point, tol, primal=primal, dual=dual: Evidence(point, primal, dual),
            structure=problem.structure,
        )
        record.update("a point")
    assert (record.primal, record.dual) == (2.0, 1.0)
