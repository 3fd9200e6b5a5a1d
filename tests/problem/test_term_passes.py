"""The passes over the data of a sum of terms against loops, and elimination against dense systems."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from term_cases import case

from taskloom import losses, solve
from taskloom.design.levels import LevelIndex
from taskloom.design.term_inputs import SumData, TermData, TermInputs
from taskloom.solvers.supervised import elimination
from taskloom.solvers.supervised.elimination import Eliminated, Levels, OtherColumns
from taskloom.solvers.supervised.newton_systems import FreeColumns


def some_terms(rng, n=30):
    codes, other, U = rng.integers(0, 4, n), rng.integers(0, 6, n), rng.normal(size=(6, 3))
    return (
        TermData(rng.normal(size=(n, 3))),
        TermData(rng.normal(size=(n, 2)), codes, 5),  # a level without rows
        TermData(rng.normal(size=(n, 2)), other, 6, U),
        TermData(np.ones((n, 1)), other, 6),
        TermData(rng.normal(size=(n, 1)), free=True),
    )


def side(term, i):
    """``u`` of one row."""
    if term.codes is None:
        return np.ones(1)
    return np.eye(term.n_levels)[term.codes[i]] if term.descriptors is None else term.descriptors[term.codes[i]]


def test_predict_and_correlate_equal_loops():
    rng = np.random.default_rng(0)
    terms = some_terms(rng)
    inputs = TermInputs(np.zeros((30, 0)), None, terms)
    W, b, G = rng.normal(size=(inputs.n_features, 1)), rng.normal(size=1), rng.normal(size=30)
    parts = inputs.split(W)
    z = [b[0] + sum(t.phi[i] @ part @ side(t, i) for t, part in zip(terms, parts, strict=True)) for i in range(30)]
    assert np.allclose(inputs.predict(W, b), z, rtol=1e-12)
    for term, part, Z in zip(terms, parts, inputs.split(inputs.correlate(G)), strict=True):
        assert np.allclose(Z, sum(G[i] * np.outer(term.phi[i], side(term, i)) for i in range(30)), rtol=1e-12, atol=1e-13)
        assert np.allclose(term.side, [side(term, i) for i in range(30)])
        assert part.shape == Z.shape == (term.r, term.p)
    assert np.allclose(SumData(terms, None, True).free_columns, terms[-1].phi)


def test_correlate_is_the_adjoint_of_predict():
    rng = np.random.default_rng(1)
    terms = some_terms(rng)
    inputs = TermInputs(np.zeros((30, 0)), None, terms)
    W, G = rng.normal(size=(inputs.n_features, 1)), rng.normal(size=30)
    assert inputs.predict(W, np.zeros(1)) @ G == pytest.approx(float(np.vdot(W, inputs.correlate(G))), rel=1e-12)


def expanded(levels):
    """The columns of all levels, by loops."""
    n, k = levels.X.shape
    out = np.zeros((n, levels.n_levels, k))
    for i in range(n):
        out[i, levels.index.codes[i]] = levels.X[i]
    return out.reshape(n, -1)


@pytest.mark.parametrize("border", [0, 1, 3])
@pytest.mark.parametrize("others", ["none", "dense", "sparse", "both"])
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("dense", [True, False], ids=["cholesky", "conjugate gradients"])
def test_elimination_solves_the_whole_newton_system(monkeypatch, dense, grouped, others, border):
    if not dense:
        monkeypatch.setattr(elimination, "MAX_DENSE", 0)
    rng, n = np.random.default_rng(2), 50
    levels = Levels(rng.normal(size=(n, 2)), LevelIndex(rng.integers(0, 7, n), 8)) if grouped else None
    second = Levels(rng.normal(size=(n, 2)), LevelIndex(rng.integers(0, 4, n), 4))
    dense_others = {"none": np.zeros((n, 0)), "sparse": expanded(second)}.get(others, rng.normal(size=(n, 5)))
    columns = [] if others == "none" else [csr_array(dense_others)] if others == "sparse" else [dense_others]
    if others == "both":
        columns, dense_others = [dense_others, csr_array(expanded(second))], np.hstack([dense_others, expanded(second)])
    design = Eliminated(levels, OtherColumns.of(n, columns))
    E, h, g = rng.normal(size=(n, border)), rng.uniform(0, 2, n) * (rng.random(n) < 0.8), rng.normal(size=n)
    damping = rng.uniform(0, 0.1, border)
    X = np.hstack([np.zeros((n, 0)) if levels is None else expanded(levels), dense_others])
    coef = rng.normal(size=(1, X.shape[1]))
    intercepts = FreeColumns(E) if border else None
    step, b = design.factor(h[None], intercepts, damping[None] if border else None)(coef, g[None])
    both = np.hstack([X, E])
    system = both.T @ (h[:, None] * both) + np.diag(np.concatenate([np.ones(X.shape[1]), damping]))
    expected = np.linalg.solve(system, -both.T @ g - np.concatenate([coef[0], np.zeros(border)]))
    assert np.allclose(np.concatenate([step[0], b[0]]), expected, rtol=1e-8, atol=1e-9)
    assert np.allclose(design.predict(coef)[0], X @ coef[0])
    assert np.allclose(design.start(g[None])[0], X.T @ g)


def test_what_is_left_does_not_grow_with_the_levels():
    """The largest grouping is a block for each level; crossed groupings, common columns and the border are what is left."""
    rng, n = np.random.default_rng(3), 400
    for n_levels in (20, 200):
        levels = Levels(rng.normal(size=(n, 2)), LevelIndex(np.arange(n) % n_levels, n_levels))
        design = Eliminated(levels, OtherColumns.of(n, [rng.normal(size=(n, 7))]))
        system = design.factor(np.ones((1, n)), FreeColumns(np.ones((n, 1))), np.zeros((1, 1)))
        assert system.inverse.shape == (n_levels, 2, 2)
        assert system.schur().shape == (8, 8)


@pytest.mark.parametrize("m", [3, 20])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_sums_within_levels_are_those_of_all_columns(k, m):
    """Also without features, as at a structure of rank 0."""
    rng = np.random.default_rng(4)
    levels, h, Y = (
        Levels(rng.normal(size=(30, k)), LevelIndex(rng.integers(0, 5, 30), 6)),
        rng.random(30),
        rng.normal(size=(30, m)),
    )
    assert np.allclose(levels.sums(h, Y).reshape(6 * k, m), expanded(levels).T @ (h[:, None] * Y))


@pytest.mark.parametrize("loss", ["squared", "logistic", "absolute"])
def test_conjugate_gradients_and_sparse_columns_find_the_same_optimum(monkeypatch, loss):
    some = case(losses.as_loss(loss), "trace", "four")
    expected = solve(some.problem, tol=1e-7).certificate
    monkeypatch.setattr(elimination, "MAX_DENSE", 0)
    monkeypatch.setattr("taskloom.solvers.supervised.term_stack_side.MAX_DENSE_COLUMNS", 0)
    found = solve(some.problem, tol=1e-7).certificate
    assert found.status == "optimal"
    assert found.primal == pytest.approx(expected.primal, rel=1e-6)
