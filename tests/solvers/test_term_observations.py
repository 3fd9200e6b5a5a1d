"""The supervised step of a sum of terms from a system of the observations, against elimination at the weights."""

from dataclasses import replace

import numpy as np
import pytest
from term_cases import LAYOUTS, LOSSES, STRUCTURES, case

from taskloom import losses, solve, structures
from taskloom.design.term_inputs import TermData
from taskloom.problem.term_problem import PosedTerm, term_problem
from taskloom.solvers.supervised.sides import as_root
from taskloom.solvers.supervised.term_stack_side import TermStackSide
from taskloom.structures.terms import FeatureMatrix, TaskMatrix


def kernel_problem(rng, loss="squared", free=True, ridge=0.0, fit_intercept=True, units=False, on_tasks=True):
    """As many features as rows: a common function, own ones with a constant, descriptors, a crossed grouping, fixed effects."""
    n = 40
    codes, X, y = rng.integers(0, 5, n), rng.normal(size=(n, 2)), 3 + rng.normal(size=n)
    v = rng.uniform(0.5, 2, n) / n
    phi = np.linalg.cholesky(np.exp(-((X[:, None] - X) ** 2).sum(axis=2)) + 1e-6 * np.eye(n))
    own = np.hstack([phi, np.ones((n, 1))])
    scale = np.append(np.ones(n), 0.3) if units else 1.0
    structure = structures.Frobenius() if on_tasks else structures.FeatureSelection()
    terms = [
        PosedTerm(TermData(phi), structures.Independent(), 2.0),
        PosedTerm(TermData(own, codes, 6), structure, 0.7, scale),  # the last level has no rows
        PosedTerm(TermData(np.ones((n, 1)), rng.integers(0, 4, n), 4), structures.Independent(), 0.3),
        PosedTerm(TermData(X[:, :1], codes, 6, rng.normal(size=(6, 2))), structures.Frobenius(), 1.5),
        PosedTerm(TermData(own, codes, 6), structures.SharedMean(2.0), 0.5),
    ]
    if free:
        terms.append(PosedTerm(TermData(rng.normal(size=(n, 2)) + 4, free=True), structures.Independent()))
    if not isinstance(loss, str) and loss.targets == "signs":
        y = np.where(y > 3, 1.0, -1.0)
    return term_problem(terms, y, v, loss, 0.05, ridge, fit_intercept)


def some_roots(side, rng, q):
    roots = []
    for variable, shape in zip(side.stack.variables, side.stack.shapes, strict=True):
        size = variable.shape(*shape)[0]
        on = isinstance(variable, (FeatureMatrix, TaskMatrix))
        if variable.structure.known and on:
            roots.append(as_root(variable.structure.factored(size)))
        else:
            roots.append(rng.normal(size=(size, min(q, size))) if on else np.zeros(0))
    return roots


@pytest.mark.parametrize(
    "settings",
    [{}, {"units": True}, {"free": False, "ridge": 0.1}, {"fit_intercept": False}, {"on_tasks": False}],
    ids=str,
)
@pytest.mark.parametrize("q", [0, 2, 50])
def test_observations_give_the_step_of_elimination(q, settings):
    rng = np.random.default_rng(0)
    problem = kernel_problem(rng, **settings)
    metrics = TermStackSide(problem)._with_ridge(some_roots(TermStackSide(problem), rng, q))
    fit, expected = TermStackSide(problem)._by_observations(metrics), TermStackSide(problem)._by_elimination(metrics)
    assert fit.norm == pytest.approx(expected.norm, rel=1e-8)
    for found, of_weights in ((fit.z, expected.z), (fit.b, expected.b), (fit.Z, expected.Z), (fit.W, expected.W)):
        assert np.allclose(found, of_weights, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_observations_and_weights_find_the_same_optimum(monkeypatch, loss):
    found = certificates(monkeypatch, kernel_problem(np.random.default_rng(1), loss), 1e-6)
    assert found[0].primal == pytest.approx(found[1].primal, rel=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("own", STRUCTURES)
def test_they_do_so_under_every_structure(monkeypatch, own, layout):
    tol = 1e-6
    found = certificates(monkeypatch, case(losses.Squared(), own, layout).problem, tol)
    assert found[0].primal == pytest.approx(found[1].primal, rel=10 * tol)


def certificates(monkeypatch, problem, tol):
    """By observations, and by the other ways."""
    found, by_name = [], {each.name: each for each in TermStackSide.strategies}
    of_observations = replace(by_name["by observations"], applies=lambda *_: True)
    for strategies in ([of_observations], [by_name["moments"], by_name["elimination"]]):
        monkeypatch.setattr(TermStackSide, "strategies", tuple(strategies))
        found.append(solve(problem, tol=tol).certificate)
        assert found[-1].status == "optimal"
    return found


def test_the_system_is_one_of_the_fewer_unknowns():
    rng = np.random.default_rng(2)
    problem = kernel_problem(rng)
    side = TermStackSide(problem)
    assert side._has_few_observations(side._with_ridge(side.plain_root()))
    assert not side.estimates
    small = case(losses.Squared(), "trace", "crossed").problem
    side = TermStackSide(small)
    assert not side._has_few_observations(side._with_ridge(side.plain_root()))
    assert side.estimates


def test_gram_matrices_of_the_features_serve_at_all_weights():
    problem = kernel_problem(np.random.default_rng(3))
    side, other = TermStackSide(problem), TermStackSide(problem.at(2.0))
    metrics, others = (each._with_ridge(each.plain_root()) for each in (side, other))
    for metric, again in zip(metrics, others, strict=True):
        columns = metric.columns.toarray() if hasattr(metric.columns, "toarray") else metric.columns
        assert np.allclose(metric.gram, columns @ columns.T)
        assert not metric.keeps_gram or metric.term.gram is again.term.gram
