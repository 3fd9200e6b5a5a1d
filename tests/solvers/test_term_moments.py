"""The supervised step of a sum of terms from moments, against elimination at the rows; sums over levels against loops."""

from dataclasses import replace

import numpy as np
import pytest
from term_cases import LAYOUTS, STRUCTURES, case

from taskloom import losses, solve, structures
from taskloom.design import level_blocks
from taskloom.design.free_basis import FreeBasis, is_independent
from taskloom.design.level_blocks import FewFeatures, FewRows, ManyRows, inverse_of_entries
from taskloom.design.levels import LevelIndex
from taskloom.design.same_rows import SameRows
from taskloom.design.term_inputs import TermData
from taskloom.problem.term_problem import PosedTerm, term_problem
from taskloom.solvers.supervised.term_stack_side import TermStackSide
from taskloom.structures.terms import FeatureMatrix, TaskMatrix

KINDS = {"few features": (2, 8, None), "many rows": (6, 30, ManyRows), "few rows": (6, 3, FewRows), "mixed": (6, 7, None)}


def some_problem(kind, rng, free=True, ridge=0.0, fit_intercept=True, units=False):
    """An eliminated grouping of one kind of levels, a common function, a crossed grouping, fixed effects."""
    k, rows, _ = KINDS[kind]
    codes = np.repeat(np.arange(9), rows if kind != "mixed" else [1, 2, 3, 5, 6, 7, 9, 12, 20])
    codes = rng.permutation(codes)
    n = len(codes)
    X, y, v = rng.normal(size=(n, k)), 3 + rng.normal(size=n), rng.uniform(0.5, 2, n) / n
    scale = np.linspace(0.5, 2, k) if units else 1.0
    terms = [
        PosedTerm(TermData(X[:, :2]), structures.Independent(), 2.0),
        PosedTerm(TermData(X, codes, 10), structures.Trace(), 0.7, scale),  # the last level has no rows
        PosedTerm(TermData(np.ones((n, 1)), rng.integers(0, 4, n), 4), structures.Independent(), 0.3),
        PosedTerm(TermData(X[:, :1], codes, 10, rng.normal(size=(10, 2))), structures.Frobenius(), 1.5),
    ]
    if free:
        terms.append(PosedTerm(TermData(rng.normal(size=(n, 2)) + 4, free=True), structures.Independent()))
    return term_problem(terms, y, v, "squared", 0.05, ridge, fit_intercept)


def some_roots(side, rng, q):
    """A root for each term: of rank ``q`` where it is that of the eliminated grouping."""
    roots = []
    for variable, shape in zip(side.stack.variables, side.stack.shapes, strict=True):
        on = isinstance(variable, (FeatureMatrix, TaskMatrix))
        size = variable.shape(*shape)[0]
        roots.append(rng.normal(size=(size, min(q, size))) if on else np.zeros(0))
    return roots


@pytest.mark.parametrize("settings", [{}, {"units": True}, {"free": False, "ridge": 0.1}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("q", [0, 1, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_moments_give_the_step_of_elimination(kind, q, settings):
    rng = np.random.default_rng(0)
    problem = some_problem(kind, rng, **settings)
    side = TermStackSide(problem)
    root = some_roots(side, rng, q)
    metrics = side._with_ridge(root)
    fit, expected = side._by_moments(metrics), side._by_elimination(metrics)
    blocks, kind_of_block = side.moments().blocks, KINDS[kind][2]
    assert kind != "few features" or {type(block) for block in blocks} == {FewFeatures}
    assert kind_of_block is None or {type(block) for block in blocks} == {kind_of_block}
    assert kind != "mixed" or {type(block) for block in blocks} == {FewRows, ManyRows}
    at_rows = fit.on_rows(problem)
    for found in (fit, at_rows):
        assert found.norm == pytest.approx(expected.norm, rel=1e-9, abs=1e-13)
        assert np.allclose(found.W, expected.W, rtol=1e-8, atol=1e-10)
        assert np.allclose(found.Z, expected.Z, rtol=1e-8, atol=1e-10)
        assert found.loss_term(problem) == pytest.approx(expected.loss_term(problem), rel=1e-10)
    assert np.allclose(at_rows.b, expected.b)
    assert np.allclose(problem.correlate(-problem.observations.weight * at_rows.gradients), at_rows.Z, atol=1e-14)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(("k", "rows"), [(6, 30), (6, 3), (9, 9)])
def test_levels_with_the_same_rows_are_kept_once(monkeypatch, k, rows, shuffled):
    """As the tasks of a wide table without gaps; the twin keeps every level."""
    rng = np.random.default_rng(0)
    T = 12
    X, codes = np.tile(rng.normal(size=(rows, k)), (T, 1)), np.repeat(np.arange(T), rows)
    y, v = rng.normal(size=T * rows) + codes, np.tile(rng.uniform(0.5, 2, rows), T) / (T * rows)
    mixed = rng.permutation(T * rows)
    if shuffled:
        X, codes, y, v = X[mixed], codes[mixed], y[mixed], v[mixed]
    terms = [
        PosedTerm(TermData(X), structures.Independent(), 2.0),
        PosedTerm(TermData(X, codes, T), structures.Trace(), 0.7, np.linspace(0.5, 2, k)),
    ]
    problem = term_problem(terms, y, v, "squared", 0.05)
    side = TermStackSide(problem)
    (block,) = side.moments().blocks
    metrics = side._with_ridge(some_roots(side, rng, k))
    fit = side._by_moments(metrics)
    monkeypatch.setattr(SameRows, "of", lambda *_: None)
    other = TermStackSide(term_problem(terms, y, v, "squared", 0.05))
    twin = other._by_moments(metrics)
    if not shuffled:
        assert isinstance(block, SameRows)
        assert not any(isinstance(each, SameRows) for each in other.moments().blocks)
    for found, expected in ((fit, twin), (fit.on_rows(problem), twin.on_rows(problem))):
        assert found.norm == pytest.approx(expected.norm, rel=1e-10)
        assert np.allclose(found.W, expected.W, rtol=1e-9, atol=1e-12)
        assert np.allclose(found.Z, expected.Z, rtol=1e-9, atol=1e-12)
        assert found.loss_term(problem) == pytest.approx(expected.loss_term(problem), rel=1e-10)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("own", STRUCTURES)
def test_moments_and_rows_find_the_same_optimum(monkeypatch, own, layout):
    some = case(losses.Squared(), own, layout)
    tol = 1e-7 if own in ("clusters", "sparse", "sum") else 1e-9
    with_moments = solve(some.problem, tol=tol).certificate
    monkeypatch.setattr(TermStackSide, "moments", lambda _: None)
    with_rows = solve(some.problem, tol=tol).certificate
    assert with_moments.status == with_rows.status == "optimal"
    assert with_moments.primal == pytest.approx(with_rows.primal, rel=10 * tol)


@pytest.mark.parametrize("kind", KINDS)
def test_a_known_optimum_is_that_of_the_rows_to_rounding(monkeypatch, kind):
    problem = some_problem(kind, np.random.default_rng(1))
    known = replace_structures(problem)
    with_moments = solve(known, tol=1e-12).certificate
    monkeypatch.setattr(TermStackSide, "moments", lambda _: None)
    assert with_moments.primal == pytest.approx(solve(known, tol=1e-12).certificate.primal, rel=1e-12)
    assert with_moments.relative_gap <= 1e-12


def replace_structures(problem):
    data = problem.design.data
    terms = [PosedTerm(each, structures.Independent(), 0.5) for each in data.terms]
    return term_problem(terms, data.observations.y, data.observations.weight, "squared", 0.05)


def test_the_estimated_gap_is_the_certified_one():
    problem = some_problem("mixed", np.random.default_rng(2))
    side = TermStackSide(problem)
    A = np.concatenate([0.1 * np.eye(shape[0]).ravel() for shape in side.stack._variable_shapes if len(shape) == 2])
    fit = side.supervise(problem.structure.root(A))
    at_rows = fit.on_rows(problem)
    penalty = fit.norm + problem.structure.value(A)
    primal = problem.loss_term(at_rows.z) + penalty
    G = problem.dual_candidate(at_rows.gradients)
    assert fit.gap(problem, A) == pytest.approx(primal - problem.dual(G, at_rows.W), rel=1e-8)


def test_weak_penalties_are_refined_at_the_rows():
    """Columns that are nearly dependent: moments alone lose their digits."""
    rng = np.random.default_rng(3)
    n, codes = 300, rng.integers(0, 20, 300)
    x = 1e4 + rng.normal(size=(n, 1))
    phi = np.hstack([x, np.ones((n, 1)), x + 1e-5 * rng.normal(size=(n, 1))])
    terms = [PosedTerm(TermData(phi), structures.Independent()), PosedTerm(TermData(phi, codes, 20), structures.Trace())]
    found = solve(term_problem(terms, rng.normal(size=n), np.full(n, 1 / n), alpha=1e-7), tol=1e-6).certificate
    assert found.status == "optimal"


def test_levels_are_solved_in_parts(monkeypatch):
    problem = some_problem("few features", np.random.default_rng(4))
    expected = solve(problem, tol=1e-9).certificate.primal
    monkeypatch.setattr(level_blocks, "LEVELS_AT_ONCE", 3)
    again = some_problem("few features", np.random.default_rng(4))
    assert len(TermStackSide(again).moments().blocks) == 4
    assert solve(again, tol=1e-9).certificate.primal == pytest.approx(expected, rel=1e-12)


def test_data_of_other_weights_and_strengths_share_their_moments():
    problem = some_problem("many rows", np.random.default_rng(5))
    first = TermStackSide(problem).moments()
    assert TermStackSide(problem.at(0.7)).moments() is first
    with_loss = problem.with_loss(losses.Huber(1.0))
    assert TermStackSide(with_loss).moments() is None


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_inverses_entry_by_entry(k):
    rng = np.random.default_rng(k)
    B = rng.normal(size=(7, k, k))
    A = B @ B.mT + np.eye(k)
    found = inverse_of_entries(A.transpose(1, 2, 0).copy())
    assert np.allclose(found.transpose(2, 0, 1), np.linalg.inv(A))


@pytest.mark.parametrize("m", [1, 3, 7, 20])
def test_sums_over_levels_are_loops(monkeypatch, m):
    monkeypatch.setattr("taskloom.design.levels.CACHED_SUMS", 0)
    rng = np.random.default_rng(m)
    index, Y, B, u = (
        LevelIndex(rng.integers(0, 5, 40), 6),
        rng.normal(size=(40, m)),
        rng.normal(size=(6, m)),
        rng.normal(size=40),
    )
    sums = np.array([Y[index.codes == level].sum(axis=0) for level in range(6)])
    assert np.allclose(index.sums(Y), sums)
    assert np.allclose(index.sums(Y[:, 0]), sums[:, 0])
    assert np.allclose(index.products(Y, B), [Y[i] @ B[index.codes[i]] for i in range(40)])
    assert np.allclose(index.correlations(Y, u), [u[index.codes == t] @ Y[index.codes == t] for t in range(6)])
    assert np.array_equal(index.order, np.argsort(index.codes, kind="stable"))


@pytest.mark.parametrize("kind", ["plain", "nearly dependent", "dependent", "units"])
@pytest.mark.parametrize("k", [2, 12])
def test_the_basis_of_free_columns(kind, k):
    rng = np.random.default_rng(0)
    columns = np.hstack([np.ones((50, 1)), rng.normal(size=(50, k))])
    if "dependent" in kind:
        columns[:, -1] = columns[:, 1] + (1e-7 * rng.normal(size=50) if kind == "nearly dependent" else 0)
    columns = columns * (10.0 ** rng.uniform(-6, 6, k + 1) if kind == "units" else 1.0)
    v = rng.uniform(0.1, 2, 50)
    basis = FreeBasis.of(columns, v)
    assert basis.E.shape[1] == (k if kind == "dependent" else k + 1)
    assert np.allclose(basis.E.T @ (v[:, None] * basis.E), np.eye(basis.E.shape[1]), atol=1e-12)
    assert np.allclose(columns @ basis.back, basis.E, atol=1e-6)
    outside = columns - basis.E @ (basis.E.T @ (v[:, None] * columns))
    assert np.all(np.abs(outside).max(axis=0) <= 1e-6 * np.abs(columns).max(axis=0))
    assert kind == "units" or is_independent(columns) == (kind == "plain")


@pytest.mark.parametrize("mu", [0.3, 2.0])
def test_log_det_of_the_tasks_is_a_penalty_of_the_features(monkeypatch, mu):
    some = case(losses.Squared(), "log det", "common")
    own = replace(some.terms[1], structure=structures.LogDet(mu))
    posed = replace(some, terms=[some.terms[0], own])
    on_features = solve(posed.problem, tol=1e-9)
    assert isinstance(own.variable, FeatureMatrix)
    monkeypatch.setattr(structures.LogDet, "moved_to_features", lambda *_: None)
    on_tasks = solve(posed.problem, tol=1e-9)
    assert isinstance(own.variable, TaskMatrix)
    assert on_features.certificate.primal == pytest.approx(on_tasks.certificate.primal, rel=1e-9)
    assert np.allclose(on_features.W, on_tasks.W, atol=1e-4)
