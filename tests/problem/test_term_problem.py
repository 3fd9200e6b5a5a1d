"""Sums of terms: optima against an independent oracle, dual bounds, unpenalised terms."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import terms_oracle
from term_cases import LAYOUTS, LOSSES, STRUCTURES, Case, case

from taskloom import losses, solve, structures
from taskloom.design.term_inputs import TermData
from taskloom.problem.evidence import Iterate
from taskloom.problem.term_problem import PosedTerm, term_problem
from taskloom.structures.terms import FeatureMatrix

ORACLE_ERROR = 1e-7  # relative


def settings(layout, seed):
    """Strengths and intercept, each value with each loss, structure and layout."""
    rng = np.random.default_rng(seed)
    ridge = 0.0 if layout == "free" else float(rng.choice([0.0, 0.05]))
    return {"alpha": float(rng.choice([0.003, 0.02, 0.2])), "ridge": ridge, "fit_intercept": bool(rng.integers(2))}


def check_optimum(sum_of_terms: Case):
    problem = sum_of_terms.problem
    solution = solve(problem, tol=1e-7)
    expected = terms_oracle.optimum(
        sum_of_terms.oracle_terms, sum_of_terms.y, sum_of_terms.v, sum_of_terms.loss, **sum_of_terms.settings
    )
    found, room = solution.certificate, ORACLE_ERROR * max(problem.scale, expected.value)
    assert found.status == "optimal"
    assert found.primal == pytest.approx(expected.value, rel=1e-6)
    assert found.dual <= expected.value + room
    assert expected.value <= found.primal + room
    assert problem.primal(solution.W, solution.b, solution.A) == pytest.approx(found.primal, rel=1e-9)


# Every structure with every layout, and with seven of the eight losses.
COVERING = [
    (LOSSES[(3 * i + j) % len(LOSSES)], own, layout)
    for (i, own), (j, layout) in product(enumerate(STRUCTURES), enumerate(LAYOUTS))
    if own != "sum"  # a conjugate by iterations: a second each, among the slow tests
]


@pytest.mark.parametrize(("loss", "own", "layout"), COVERING, ids=str)
def test_optimum_of_a_sum_of_terms(loss, own, layout):
    seed = COVERING.index((loss, own, layout))
    check_optimum(case(loss, own, layout, seed=seed, **settings(layout, seed)))


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("own", STRUCTURES)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_optimum_of_every_sum_of_terms(loss, own, layout, fit_intercept):
    seed = 1000 + 8 * list(STRUCTURES).index(own) + LOSSES.index(loss)
    check_optimum(case(loss, own, layout, seed=seed, **settings(layout, seed) | {"fit_intercept": fit_intercept}))


def rescaled(some: Case, kind: str) -> Case:
    """A case at the edge of what floating-point numbers allow."""
    rng = np.random.default_rng(0)
    scales = 10 ** rng.uniform(-3, 3, size=3)
    if kind == "units":
        terms = [replace(t, data=replace(t.data, phi=t.data.phi * scales[: t.data.r])) for t in some.terms]
    elif kind == "far from zero":
        terms = [replace(t, data=replace(t.data, phi=t.data.phi + 50.0)) for t in some.terms]
    elif kind == "weights":
        terms = [replace(t, weight=float(10 ** rng.uniform(-4, 4))) for t in some.terms]
    else:
        terms = some.terms
    return replace(some, terms=terms, alpha={"weak": 1e-8, "strong": 1e3}.get(kind, some.alpha))


@pytest.mark.parametrize("kind", ["weak", "strong", "units", "far from zero", "weights"])
@pytest.mark.parametrize("own", ["independent", "shared mean", "trace", "log det"])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_weak_and_strong_penalties_and_mixed_units(loss, own, kind):
    """The gap is proved, and true: here the oracle has six digits."""
    some = rescaled(case(loss, own, "crossed"), kind)
    problem = some.problem
    found = solve(problem, tol=1e-6).certificate
    expected = terms_oracle.optimum(some.oracle_terms, some.y, some.v, some.loss, **some.settings).value
    assert found.status == "optimal"
    assert found.dual - 1e-6 * problem.scale <= expected <= found.primal + 1e-6 * problem.scale


@pytest.mark.parametrize("weights", [(1.0, 1.0), (100.0, 0.01), (0.01, 100.0)], ids=str)
@pytest.mark.parametrize("loss", ["huber", "squared", "logistic"])
def test_two_learned_structures_of_different_size_converge_fast(loss, weights):
    """A trace of any size beside a trace of at most 1: each has a step length of its own."""
    some = case(losses.as_loss(loss), "trace", "common", alpha=1e-3)
    X, codes = some.terms[1].data.phi, np.random.default_rng(1).integers(0, 3, len(some.y))
    own = replace(some.terms[1], weight=weights[0])
    other = PosedTerm(TermData(X, codes, 3), structures.UnitTrace(), weights[1])
    solution = solve(replace(some, terms=[some.terms[0], own, other]).problem, tol=1e-6)
    assert solution.certificate.status == "optimal"
    assert len(solution.history.objective) <= 100


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_objective_is_the_one_that_is_written_down(layout):
    """``J`` row by row, in the weights of the user and the structures on their side."""
    some = case(losses.Huber(0.7), "frobenius", layout, ridge=0.0 if layout == "free" else 0.1)
    problem, rng = some.problem, np.random.default_rng(0)
    W, b = rng.normal(size=(problem.n_features, 1)), rng.normal(size=1)
    value, A = problem.best_primal(W, b)
    expected = 0.0
    for i in range(len(some.y)):
        f = float(b[0])
        for term, weights in zip(some.oracle_terms, some.weights(W), strict=True):
            f += float(term.phi[i] @ weights @ term.u[i])
        expected += some.v[i] * float(some.loss.value(some.y[i], f))
    parts = zip(some.oracle_terms, problem.structure.variables, problem.structure.split(A), some.weights(W), strict=True)
    for term, variable, matrix, weights in parts:
        if np.isinf(term.omega):
            continue
        root = variable.oriented(weights)
        inverse = np.linalg.pinv(matrix) if matrix.ndim == 2 else np.eye(root.shape[1])
        expected += some.alpha / term.omega * float(np.trace(inverse @ root.T @ root))
        expected += variable.structure.value(matrix) + some.ridge / term.omega * float(np.sum(weights**2))
    assert value == pytest.approx(expected, rel=1e-9)
    assert problem.primal(W, b, A) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "four"])
@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_the_dual_bound_is_the_one_that_is_written_down(layout, ridge):
    """``D(G)`` row by row, with ``W = omega Z1 A / (2 alpha)`` and ``Z2 = 2 ridge W / omega``; either side is equal."""
    ridge = 0.0 if layout == "free" else ridge
    some = case(losses.Logistic(), "frobenius", layout, ridge=ridge)
    problem = some.problem
    solution = solve(problem, tol=1e-11)
    s = some.loss.gradient(some.y, problem.predict(solution.W, solution.b))
    G, bound = -some.v * s, -float(some.v @ some.loss.conjugate(some.y, s))
    assert abs(G.sum()) <= 1e-6
    structures_found = problem.structure.split(solution.A)
    parts = zip(some.oracle_terms, some.weights(solution.W), problem.structure.variables, structures_found, strict=True)
    for term, W, variable, A in parts:
        Z = sum(G[i] * np.outer(term.phi[i], term.u[i]) for i in range(len(G)))
        if np.isinf(term.omega):
            assert np.abs(Z).max() <= 1e-6
            continue
        Z2 = 2 * ridge * W / term.omega
        Z1 = Z - Z2
        scale = term.omega / (4 * some.alpha)
        if A.ndim == 2:  # tr A^2
            on_features = isinstance(variable, FeatureMatrix)
            assert np.allclose(W, 2 * scale * (A @ Z1 if on_features else Z1 @ A), atol=1e-5)
            values = [float(np.sum((scale * S) ** 2)) / 4 for S in (Z1.T @ Z1, Z1 @ Z1.T)]
            assert values[0] == pytest.approx(values[1])
            bound -= values[on_features]
        else:  # A = I
            assert np.allclose(W, 2 * scale * Z1, atol=1e-5)
            bound -= scale * float(np.sum(Z1**2))
        bound -= term.omega * float(np.sum(Z2**2)) / (4 * ridge) if ridge else 0.0
    assert bound == pytest.approx(solution.certificate.primal, rel=1e-7)
    assert bound == pytest.approx(problem.dual(problem.dual_candidate(s), solution.W), rel=1e-7)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_no_dual_candidate_exceeds_the_minimum(loss, layout, fit_intercept):
    rng = np.random.default_rng(1)
    for own in ("independent", "trace", "log det"):
        problem = case(loss, own, layout, fit_intercept=fit_intercept).problem
        solution = solve(problem, tol=1e-6)
        room = 1e-12 * problem.scale
        for size in (0.1, 1.0, 10.0):
            G = problem.dual_candidate(size * rng.normal(size=problem.n_rows))
            left = problem.inputs.split(problem.correlate(G))
            assert not problem.fit_intercept or abs(G.sum()) <= 1e-11 * np.abs(G).sum()
            for term, Z in zip(problem.inputs.terms, left, strict=True):
                assert not term.free or np.abs(Z).max() <= 1e-11 * np.abs(G).sum()
            W = solution.W + 0.3 * rng.normal(size=solution.W.shape)
            assert problem.dual(G, W) <= solution.certificate.primal + room
            assert problem.dual(G) <= problem.best_primal(W, solution.b)[0] + room


# --- unpenalised terms --------------------------------------------------------------------------------------------------


def free_terms(rng, n=60):
    X, codes = rng.normal(size=(n, 3)), np.arange(n) % 4
    free = [PosedTerm(TermData(X, free=True), structures.Independent())]
    free.append(PosedTerm(TermData(np.ones((n, 1)), codes, 4, free=True), structures.Independent()))
    return X, codes, free


@pytest.mark.parametrize("v", ["equal", "unequal"])
def test_free_terms_alone_are_least_squares(v):
    rng = np.random.default_rng(3)
    X, codes, free = free_terms(rng)
    y, v = rng.normal(size=60), np.full(60, 1 / 60) if v == "equal" else rng.uniform(0.2, 2, 60) / 60
    problem = term_problem(free, y, v, alpha=0.1, fit_intercept=False)
    solution = solve(problem, tol=1e-9)
    columns, root = np.hstack([X, np.eye(4)[codes]]), np.sqrt(v)
    expected = np.linalg.lstsq(root[:, None] * columns, root * y)[0]
    assert np.allclose(np.concatenate([np.ravel(W) for W in problem.structure.features_of(solution.W)]), expected, atol=1e-9)
    assert solution.certificate.relative_gap <= 1e-9


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_free_terms_of_every_loss(loss, fit_intercept):
    """Fixed effects with an own part, with and without an intercept, and fixed effects alone."""
    rng = np.random.default_rng(4)
    X, _, free = free_terms(rng)
    y = X @ [0.4, 0.0, -0.3] + rng.standard_t(3, size=60)
    y = np.where(y > 0, 1.0, -1.0) if loss.targets == "signs" else y
    own = PosedTerm(TermData(X, rng.integers(0, 5, 60), 5), structures.Trace())
    for terms in ([*free[:1], own], free[: 1 if fit_intercept else 2]):
        check_optimum(Case(terms, y, np.full(60, 1 / 60), loss, fit_intercept=fit_intercept))


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_free_columns_far_from_zero_and_in_small_units(loss, offset):
    """A year, or a price in millions: the same problem as with centred columns of size 1."""
    rng = np.random.default_rng(5)
    X, codes, (free, _) = free_terms(rng)
    y = X @ [1.0, 2.0, 0.0] + rng.normal(size=60)
    y = np.where(y > 0, 1.0, -1.0) if loss.targets == "signs" else y
    own, v = PosedTerm(TermData(X, codes, 4), structures.Independent()), np.full(60, 1 / 60)
    far = PosedTerm(TermData(1e-3 * X + [0.0, offset / 1e3, 0.0], free=True), structures.Independent())
    expected = solve(term_problem([free, own], y, v, loss), tol=1e-6).certificate
    found = solve(term_problem([far, own], y, v, loss), tol=1e-6).certificate
    assert found.status == "optimal"
    assert found.primal == pytest.approx(expected.primal, abs=2e-6 * found.primal)


def test_the_bound_beside_free_columns_is_that_of_its_candidate():
    """Far from the optimum, under the squared loss without intercepts, as well."""
    rng = np.random.default_rng(6)
    X, codes, free = free_terms(rng)
    own = PosedTerm(TermData(X, codes, 4), structures.Independent())
    problem = term_problem([*free, own], rng.normal(size=60), np.full(60, 1 / 60), alpha=0.1, fit_intercept=False)
    W, b = rng.normal(size=(problem.n_features, 1)), np.zeros(1)
    z = problem.predict(W, b)
    gradients = problem.loss.gradient(problem.observations.y, z)
    point = Iterate(W, b, z, gradients, Z=problem.correlate(-problem.observations.weight * gradients))
    found = problem.evidence(point, 1e-6)
    assert np.allclose(found.dual_point.Z, problem.correlate(found.dual_point.G), atol=1e-12)
    assert found.dual == pytest.approx(problem.dual(problem.dual_candidate(gradients), W), rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_free_columns_that_depend_on_each_other(loss):
    """Constants of all levels beside an intercept, and the same column twice: the objective is that without the copies."""
    rng = np.random.default_rng(7)
    X, _, (free, constants) = free_terms(rng)
    y = X @ [0.4, 0.0, -0.3] + rng.standard_t(3, size=60)
    y = np.where(y > 0, 1.0, -1.0) if loss.targets == "signs" else y
    own, v = PosedTerm(TermData(X, np.arange(60) % 7, 7), structures.Independent()), np.full(60, 1 / 60)
    twice = PosedTerm(TermData(np.hstack([X, 1e3 * X[:, :1]]), free=True), structures.Independent())
    found = solve(term_problem([twice, constants, own], y, v, loss), tol=1e-6).certificate
    expected = solve(term_problem([free, constants, own], y, v, loss, fit_intercept=False), tol=1e-6).certificate
    assert found.status == "optimal"
    assert found.primal == pytest.approx(expected.primal, rel=4e-6)


def test_a_ridge_beside_a_free_term_is_an_error():
    _, _, free = free_terms(np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"ridge=0\.1 and a term with weight=inf"):
        term_problem(free, np.zeros(60), np.full(60, 1 / 60), ridge=0.1)


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        (structures.Robust(), "Robust is a sum already and cannot be one term of another"),
        (structures.LowRank(2), "LowRank is not convex and cannot be one term of a sum"),
        (structures.Fixed(np.eye(3)), "Fixed describes 3 tasks, but the data have 4"),
    ],
    ids=str,
)
def test_a_structure_that_cannot_be_that_of_a_term_is_an_error(structure, message):
    X, codes, _ = free_terms(np.random.default_rng(0))
    with pytest.raises(ValueError, match=message):
        term_problem([PosedTerm(TermData(X, codes, 4), structure)], np.zeros(60), np.full(60, 1 / 60))


def test_one_structure_may_serve_several_terms():
    """Of different sizes: what a structure holds for one problem must not be taken for that of another term."""
    X, codes, _ = free_terms(np.random.default_rng(8))
    y, v, loss = X[:, 0] + np.random.default_rng(9).normal(size=60), np.full(60, 1 / 60), losses.Huber(0.7)
    for structure in (structures.SharedMean(2.0), structures.Clusters(2), structures.LogDet(0.3), structures.Trace()):
        terms = [PosedTerm(TermData(X, codes, 4), structure), PosedTerm(TermData(X, np.arange(60) % 7, 7), structure, 0.5)]
        check_optimum(Case(terms, y, v, loss))


def test_a_weight_is_the_scale_of_the_features():
    some = case(losses.Logistic(), "clusters", "crossed")
    scaled = [replace(t, weight=1.0, data=replace(t.data, phi=np.sqrt(t.weight) * t.data.phi)) for t in some.terms]
    expected = solve(term_problem(scaled, some.y, some.v, some.loss, some.alpha), tol=1e-8)
    found = solve(some.problem, tol=1e-8)
    assert found.certificate.primal == pytest.approx(expected.certificate.primal, rel=1e-7)
    assert np.allclose(found.W, expected.W, atol=1e-4)
