"""The supervised step of a sum of terms over shared rows, by Kronecker products, against a system of the observations."""

from dataclasses import replace

import numpy as np
import pytest

from taskloom import MultiTaskRegressor, solve, structures
from taskloom.design.shared_rows import SharedRows
from taskloom.design.term_inputs import TermData
from taskloom.problem.term_problem import PosedTerm, term_problem
from taskloom.solvers.supervised.sides import as_root
from taskloom.solvers.supervised.term_stack_side import TermStackSide

N, T = 25, 6


def wide_problem(
    rng, structure="trace", free=False, ridge=0.0, fit_intercept=True, units=False, weighted=False, shuffled=False, alpha=0.05
):
    """A common function, own ones with a constant, descriptors, a narrow term; every level has the same rows."""
    X = rng.normal(size=(N, 3))
    phi = np.linalg.cholesky(np.exp(-((X[:, None] - X) ** 2).sum(axis=2)) + 1e-6 * np.eye(N))
    rows, codes = np.tile(np.arange(N), T), np.repeat(np.arange(T), N)
    if shuffled:  # the levels one among the other, one of them without rows
        order = rng.permuted(np.tile(np.arange(T), (N, 1)), axis=1).ravel()
        rows, codes = np.repeat(np.arange(N), T), order + (order > 2)
    common, own = phi[rows], np.hstack([phi, np.ones((N, 1))])[rows]
    s, c = (rng.uniform(0.5, 2, size) if weighted else np.ones(size) for size in (N, T + 1))
    weight, levels = s[rows] * c[codes], int(codes.max()) + 1
    which = {"trace": structures.Trace(), "mean": structures.SharedMean(2.0), "independent": structures.Independent()}
    terms = [
        PosedTerm(TermData(common), structures.Independent(), 2.0),
        PosedTerm(TermData(own, codes, levels), which[structure], 0.7, np.append(np.ones(N), 0.3) if units else 1.0),
        PosedTerm(TermData(common, codes, levels, rng.normal(size=(levels, 2))), structures.Frobenius(), 1.5),
        PosedTerm(TermData(X[rows, :1], codes, levels), structures.Trace(), 0.4),
    ]
    if free:
        terms.append(PosedTerm(TermData(rng.normal(size=(N * T, 2)) + 4, free=True), structures.Independent()))
    y = common @ rng.normal(size=N) + rng.normal(size=N * T)
    return term_problem(terms, y, weight / weight.sum(), "squared", alpha, ridge, fit_intercept)


SETTINGS = [
    {},
    {"structure": "mean"},
    {"structure": "independent", "units": True},
    {"ridge": 0.1},
    {"free": True},
    {"fit_intercept": False},
    {"weighted": True},
    {"shuffled": True},
    {"shuffled": True, "weighted": True, "free": True},
    {"alpha": 1e-6},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("q", [0, 2, 50])
def test_shared_rows_give_the_step_of_all_observations(q, settings):
    rng = np.random.default_rng(0)
    problem = wide_problem(rng, **settings)
    side, roots = TermStackSide(problem), []
    for variable, shape in zip(side.stack.variables, side.stack.shapes, strict=True):
        size = (*variable.shape(*shape), 0)[0]
        known = variable.structure.known and size > 0
        roots.append(as_root(variable.structure.factored(size)) if known else rng.normal(size=(size, min(q, size))))
        if size == 0:
            roots[-1] = np.zeros(0)
    metrics = side._with_ridge(roots)
    fit, expected = TermStackSide(problem)._by_shared_rows(metrics), TermStackSide(problem)._by_observations(metrics)
    assert fit.norm == pytest.approx(expected.norm, rel=1e-6)
    for found, other in ((fit.z, expected.z), (fit.b, expected.b), (fit.Z, expected.Z), (fit.W, expected.W)):
        assert np.allclose(found, other, rtol=1e-5, atol=1e-7 * np.abs(other).max(initial=1.0))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_both_find_the_same_optimum(monkeypatch, settings):
    problem, found = wide_problem(np.random.default_rng(1), **settings), []
    shared, *others = TermStackSide.strategies
    for strategies in ([replace(shared, applies=lambda *_: True)], others):
        monkeypatch.setattr(TermStackSide, "strategies", tuple(strategies))
        found.append(solve(problem, tol=1e-6).certificate)
        assert found[-1].status == "optimal"
    assert found[0].primal == pytest.approx(found[1].primal, rel=1e-5)


def test_rows_are_shared_or_not():
    problem = wide_problem(np.random.default_rng(2), shuffled=True)
    data = problem.design.data
    shared, weight = data.shared_rows, data.observations.weight
    assert shared.wide == (True, True, True, False)
    assert np.array_equal(shared.levels, [0, 1, 2, 4, 5, 6])
    k, Q = shared.eigenbasis
    assert np.allclose((Q * k) @ Q.T, shared.phi @ shared.phi.T / N)
    assert SharedRows.of(data.terms, weight * np.random.default_rng(0).uniform(size=weight.size)) is None
    assert SharedRows.of(data.terms[:1], weight) is None  # no levels
    assert SharedRows.of(data.terms[3:], weight) is None  # no wide term
    moved = replace(data.terms[0], phi=np.roll(data.terms[0].phi, 1, axis=0))
    assert SharedRows.of([moved, *data.terms[1:]], weight) is None
    fewer = [TermData(term.phi[1:], None if term.codes is None else term.codes[1:], term.n_levels) for term in data.terms]
    assert SharedRows.of(fewer, weight[1:]) is None


def test_a_common_part_of_a_complete_table_takes_them(monkeypatch):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 3))
    Y = np.sin(X) @ rng.normal(size=(3, 5)) + 0.3 * rng.normal(size=(40, 5))
    taken, shared = [], TermStackSide.strategies[0]
    counted = replace(shared, step=lambda *given: taken.append(1) or shared.step(*given))
    monkeypatch.setattr(TermStackSide, "strategies", (counted, *TermStackSide.strategies[1:]))
    model = MultiTaskRegressor(kernel="rbf", common=True, alpha=0.1).fit(X, Y)
    assert taken
    assert model.certificate_.optimal
    taken.clear()
    Y[0, 0] = np.nan
    MultiTaskRegressor(kernel="rbf", common=True, alpha=0.1).fit(X, Y)
    assert not taken
