"""Every reformulation: what solves the inner problem solves the original one, and objectives differ by a known constant."""

from dataclasses import replace

import numpy as np
import pytest
import zoo
from scipy.sparse import csr_array

import taskloom.features.kernels
from taskloom import Problem, alpha_max, losses, solve, structures
from taskloom.design import Observations
from taskloom.problem import Start
from taskloom.problem.solution import Solution
from taskloom.solvers import Proximal
from taskloom.solvers.record import Record
from taskloom.solvers.reformulations import (
    ATTEMPTS,
    EQUIVALENT,
    REFORMULATIONS,
    Centring,
    Chain,
    PenaltyConstant,
    StackedTerms,
    subspaces,
)
from taskloom.solvers.reformulations.smoothing import Smoothing
from taskloom.solvers.reformulations.subspaces import (
    EigenbasisForm,
    KrylovSubspace,
    OnFeatures,
    SpanOfRows,
    TaskSpanForm,
    UngrownSpan,
)
from taskloom.solvers.solve import Limits, iterate

rng = np.random.default_rng(0)
N, D, T = 60, 40, 4
X = rng.normal(size=(N, D)) * 0.8 ** np.arange(D) + 0.3
Y = X @ rng.normal(size=(D, 2)) @ rng.normal(size=(2, T)) + rng.normal(size=(N, T)) + 2
GAPS = np.where(np.random.default_rng(1).random(Y.shape) < 0.3, np.nan, Y)


def problem_of(targets=Y, loss="squared", structure="trace", **options):
    options = {"alpha": 0.02, **options}
    return Problem(X, targets, loss, structure, **options)


def in_eigenbasis(**options):
    """Thirty tasks and four inputs, along the eigenvectors of these."""
    many = np.random.default_rng(2)
    targets = X[:, :4] @ many.normal(size=(4, 30)) + many.normal(size=(N, 30)) + 2
    posed = Problem(X[:, :4], targets, "squared", **{"alpha": 0.02, **options})
    return EigenbasisForm().apply(posed)


def many_with_gaps(loss="squared", mu=0.5):
    """Thirty tasks, four inputs and missing targets."""
    many = np.random.default_rng(3)
    targets = X[:, :4] @ many.normal(size=(4, 30)) + many.normal(size=(N, 30))
    targets = np.where(many.random(targets.shape) < 0.2, np.nan, targets if loss == "squared" else np.sign(targets))
    return Problem(X[:, :4], targets, loss, structures.LogDet(mu), 0.02)


# sparse, with more columns than rows
THIN = csr_array(np.where(np.random.default_rng(2).random((30, 45)) < 0.3, X[:30, :1] + rng.normal(size=(30, 45)), 0.0))
WIDE = [
    Problem(THIN, Y[:30], "squared", "trace", 0.02),
    Problem(THIN, np.sign(Y[:30] - 2), "hinge", "frobenius", 0.02),
]
PROBLEMS = {
    SpanOfRows: [*WIDE, Problem(THIN, GAPS[:30], "huber", "trace", 0.02)],
    UngrownSpan: [WIDE[1], Problem(THIN, Y[:30], "absolute", "trace", 0.02)],
    PenaltyConstant: [
        problem_of(1e-4 * Y, structure=structures.LogDet(1.0)),
        problem_of(1e-4 * GAPS, structure=structures.LogDet(2.0)),
    ],
    StackedTerms: [problem_of(structure=structures.Robust()), problem_of(GAPS, structure=structures.Dirty())],
    KrylovSubspace: [
        problem_of(),
        problem_of(GAPS),
        problem_of(Y, "huber", "frobenius"),
        problem_of(GAPS, fit_intercept=False),
    ],
    EigenbasisForm: [
        problem_of(),
        problem_of(structure=structures.Clusters(2)),
        problem_of(structure="frobenius", fit_intercept=False),
        problem_of(Observations.from_wide(Y, task_weight=np.arange(1.0, T + 1)), ridge=0.05),
    ],
    TaskSpanForm: [
        in_eigenbasis(structure="trace"),
        in_eigenbasis(structure=structures.Clusters(3)),
        in_eigenbasis(structure=structures.Clusters(12)),
        in_eigenbasis(structure=structures.LogDet(0.5)),
        in_eigenbasis(structure=structures.SchattenNorm(3.0), fit_intercept=False),
        in_eigenbasis(structure="unit_trace", ridge=0.05),
    ],
    OnFeatures: [
        many_with_gaps(),
        many_with_gaps(loss="logistic"),
        in_eigenbasis(structure=structures.LogDet(0.5), ridge=0.05),
    ],
    Centring: [Problem(X + 1e4, Y, "squared", "trace", 0.02), Problem(X, GAPS + 1e4, "huber", "frobenius", 0.02)],
    Smoothing: [problem_of(loss="absolute"), problem_of(np.sign(Y - 2), "hinge", "frobenius")],
}
EXACT = [kind for kind in REFORMULATIONS if kind is not Smoothing]
CASES = [pytest.param(kind, problem, id=f"{kind.__name__}-{k}") for kind in EXACT for k, problem in enumerate(PROBLEMS[kind])]


@pytest.fixture(autouse=True)
def _few_features_are_enough(monkeypatch):
    monkeypatch.setattr(subspaces, "GROWING", 20)
    monkeypatch.setattr(subspaces, "TUNING", replace(subspaces.TUNING, min_krylov_features=20, min_krylov_observations=20))
    monkeypatch.setattr(taskloom.features.kernels, "GROWING", 20)


def test_every_reformulation_is_tested():
    assert set(PROBLEMS) == set(REFORMULATIONS) == {*EQUIVALENT, *ATTEMPTS, Smoothing}
    for kind, problems in PROBLEMS.items():
        assert all(kind.applies(problem) for problem in problems), kind


@pytest.mark.parametrize(("kind", "problem"), CASES)
def test_a_solution_of_the_inner_problem_attains_its_value_in_the_original_one(kind, problem):
    """The original objective at the inverted solution is the inner one and the constant."""
    form = kind()
    inner = form.apply(problem, None)
    found = proximal_solution(inner)
    assert found.certificate.optimal, found.certificate.message
    back, (W, b) = form.invert(found), form.to_original(found.W, found.b)
    value = back.certificate.primal + form.constant
    if kind is StackedTerms:  # its penalty needs the weights of each term
        assert np.allclose(back.W, sum(back.terms.weights))
        assert np.allclose(problem.predict(back.W, back.b), inner.predict(found.W, found.b))
    else:
        assert np.isclose(problem.primal(W, b, back.A), value, rtol=1e-8)
    if kind is not KrylovSubspace:  # whose points are certified on all features one by one
        assert np.array_equal(back.W, W)
        assert np.allclose(back.b, b)
    whole = solve(problem, tol=1e-6)
    assert whole.certificate.dual <= value * (1 + 1e-8)
    if not form.restricted:
        assert abs(value - whole.certificate.primal) <= found.gap + whole.gap + 1e-8 * abs(value)


def proximal_solution(problem):
    """The problem as it is, solved without any reformulation."""
    record = Record(problem, 1e-6)
    found = record.close(iterate(record, Proximal(), None, Limits(3000), lambda point: point), "proximal")
    point, dual = found.point, found.dual_point
    return Solution(point.W, point.b, point.A, dual.G, found.certificate, found.history, "proximal", Z=dual.Z)


@pytest.mark.parametrize("kind", [KrylovSubspace, SpanOfRows, EigenbasisForm, TaskSpanForm, OnFeatures, Centring])
def test_weights_go_in_and_come_back(kind):
    for problem in PROBLEMS[kind]:
        form = kind()
        inner = form.apply(problem, None)
        W, b = rng.normal(size=(inner.n_features, inner.n_tasks)), rng.normal(size=inner.n_tasks)
        original = form.to_original(W, b)
        if kind in (EigenbasisForm, TaskSpanForm):  # intercepts are eliminated: the best ones come back
            b = np.zeros(inner.n_tasks)
        again = form.to_inner(Start(*original))
        assert np.allclose(again.W, W, atol=1e-9)
        assert np.allclose(again.b, b, atol=1e-6)


@pytest.mark.parametrize("kind", [KrylovSubspace, SpanOfRows, EigenbasisForm, TaskSpanForm, OnFeatures, Centring])
def test_a_bound_on_an_inner_problem_that_is_not_restricted_is_one_on_the_original(kind):
    for problem in PROBLEMS[kind]:
        form = kind()
        inner = solve(form.apply(problem, None), tol=1e-6).certificate
        whole = solve(problem, tol=1e-6).certificate
        assert whole.dual <= inner.primal + form.constant + 1e-9 * abs(inner.primal)
        if not form.restricted:
            assert inner.dual + form.constant <= whole.primal * (1 + 1e-8)


@pytest.mark.parametrize("problem", PROBLEMS[Smoothing], ids=["absolute", "hinge"])
def test_a_smoothed_loss_lies_below_the_loss_and_close_to_it(problem):
    smoothing, obs = Smoothing(), problem.observations
    smoothed = smoothing.apply(problem)
    assert smoothed.loss.smooth
    for _ in range(3):
        W, b = 0.3 * rng.normal(size=(D, T)), rng.normal(size=T)
        z = problem.predict(W, b)
        values = [posed.loss.value(obs.y, z) for posed in (smoothed, problem)]
        assert np.all(values[0] <= values[1] + 1e-12)
        assert np.all(values[1] - values[0] <= 2 * np.max(smoothing.width))
    found = solve(smoothed, tol=1e-6, max_iter=3000)
    below = found.certificate.dual
    whole = solve(problem, tol=1e-6)
    assert below <= whole.certificate.primal  # the smoothed minimum is a bound from below
    assert problem.best_primal(found.W, found.b)[0] >= whole.certificate.dual


def test_reformulations_go_together_and_come_apart_in_turn():
    """A subspace whose problem is written in its eigenbasis: predictions, weights and the constant of the whole chain."""
    problem = problem_of(alpha=0.05 * alpha_max(problem_of()))
    chain = Chain(problem, None, ATTEMPTS)
    assert [type(step) for step in chain.steps] == [KrylovSubspace, EigenbasisForm]
    assert (chain.exact, chain.same_rows, chain.restricted) == (False, False, True)
    found = solve(chain.inner, "proximal", tol=1e-7)
    W, b, z = chain.original_point(found.W, found.b)
    assert np.allclose(z, problem.predict(W, b))
    assert np.isclose(problem.primal(W, b, found.A), found.certificate.primal + chain.constant, rtol=1e-9)
    near = chain.to_original(found.W, found.b)
    assert np.array_equal(near[0], W)
    assert np.array_equal(near[1], b)


def test_terms_of_a_wide_sparse_problem_are_stacked_in_the_span_of_its_rows():
    problem = Problem(THIN, Y[:30], "squared", structures.Robust(), 0.02)
    assert [type(step) for step in Chain(problem, None, EQUIVALENT).steps] == [UngrownSpan, StackedTerms]
    found, dense = (
        solve(problem, tol=1e-6),
        solve(Problem(THIN.toarray(), Y[:30], "squared", structures.Robust(), 0.02), tol=1e-6),
    )
    assert found.W.shape == (THIN.shape[1], T)
    assert abs(found.certificate.primal - dense.certificate.primal) <= found.gap + dense.gap


def test_a_chain_of_nothing_is_the_problem():
    problem = Problem(*zoo.data(losses.Logistic(), "own"), "logistic", "trace", 0.02)
    chain = Chain(problem, None, (*EQUIVALENT, *ATTEMPTS))
    assert not chain.steps
    assert chain.inner is problem
    assert (chain.exact, chain.same_rows, chain.restricted, chain.constant) == (True, True, False, 0.0)
