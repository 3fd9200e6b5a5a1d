"""Defects that an adversarial review found, each with the smallest case that showed it."""

import numpy as np
import pandas as pd
import pytest

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, metrics, solve, structures

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
    seen = problem.observations
    design = np.einsum("ni,nk->nik", X[seen.row], L.T[seen.task]).reshape(seen.y.size, -1)
    design = np.hstack([design, np.eye(T)[seen.task]]) * np.sqrt(seen.weight)[:, None]
    floor = np.linalg.lstsq(design, np.sqrt(seen.weight) * seen.y, rcond=None)[1][0]
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


@pytest.mark.parametrize("offset", [1e3, 1e5])
def test_huber_with_targets_far_from_zero(offset):
    for F in ("independent", "trace"):
        model = MultiTaskRegressor(F, loss="huber").fit(X, Y + offset)
        assert model.certificate_.optimal, model.certificate_.message
        assert model.score(X, Y + offset) > 0.5


def test_huber_with_targets_that_spread_far_beyond_its_width():
    model = MultiTaskRegressor("trace", loss="huber").fit(X, 2e5 + 5e4 * Y)
    assert model.certificate_.optimal, model.certificate_.message


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_features_far_from_zero_change_nothing_but_the_intercepts(loss):
    near = MultiTaskRegressor(loss=loss, tol=1e-7).fit(X, Y)
    far = MultiTaskRegressor(loss=loss, tol=1e-7, warm_start=True).fit(X + 1e5, Y)
    assert np.isclose(near.certificate_.primal, far.certificate_.primal, rtol=1e-6)
    assert np.allclose(near.predict(X), far.predict(X + 1e5), atol=1e-2)
    assert far.fit(X + 1e5, Y).certificate_.optimal  # and from a warm start


def test_the_structure_has_the_size_of_the_tasks_when_there_are_as_many_features():
    square = rng.normal(size=(40, T))
    model = MultiTaskRegressor("trace", tol=1e-8).fit(square, Y[np.arange(40) % n])
    problem = Problem(square, Y[np.arange(40) % n], "squared", "trace", 0.01)
    assert np.isclose(problem.primal(model.coef_.T, model.intercept_, model.structure_), model.certificate_.primal, rtol=1e-8)


def test_sparse_falls_back_on_a_diagonal_structure():
    _, penalty = structures.Sparse(0.5).best_of_root(np.outer([1.0, 0], [1.0, 0.8]))
    assert penalty <= 2 * (1.0 + 0.8) + 1e-9


def test_warm_start_across_kernels():
    model = MultiTaskRegressor(warm_start=True).fit(X, Y)
    model.set_params(kernel="rbf").fit(X, Y)
    assert model.set_params(kernel="linear").fit(X, Y).coef_.shape == (T, d)


def test_scores_follow_the_names_of_the_tasks():
    frame = pd.DataFrame(Y, columns=list("pqrs"))
    model = MultiTaskRegressor().fit(X, frame)
    assert model.score(X, frame[list("srqp")]) == model.score(X, frame)
    with pytest.raises(ValueError, match="2 columns, but the model has 4 tasks"):
        model.score(X, Y[:, :2])
    with pytest.raises(ValueError, match="no column for task 's'"):
        model.score(X, frame[list("pqr")])
    assert np.isfinite(model.score(X, Y, sample_weight=np.ones_like(Y)))


def test_tasks_with_one_row_have_no_r2():
    task = np.array([0, 0, 0, 1])
    assert np.isclose(metrics.macro_r2([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 9.0], task=task), 1.0)


def test_nullable_labels():
    labels = pd.DataFrame({"a": pd.array((Y[:, 0] > 1).astype(int), dtype="Int64"), "b": (Y[:, 1] > 1).astype(int)})
    labels.loc[0, "a"] = pd.NA
    assert MultiTaskClassifier().fit(X, labels).predict(X).shape == (n, 2)


@pytest.mark.parametrize("column", [1.5, True])
def test_a_task_column_is_a_name_or_a_whole_number(column):
    with pytest.raises(ValueError, match="whole number"):
        MultiTaskRegressor(task_column=column).fit(X, Y[:, 0])


def test_unknown_task_weights_are_refused():
    with pytest.raises(ValueError, match="not a task of the data"):
        MultiTaskRegressor(task_weight={0: 1, 1: 1, 2: 1, 3: 1, "x": 2}).fit(X, Y)


@pytest.mark.parametrize("loss", ["absolute", "quantile", "epsilon_insensitive", "huber"])
def test_targets_far_from_zero(loss):
    """Mean 1000, spread 1: rounding in the line search once left losses with kinks short of their tolerance."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 5))
        Y = X @ rng.normal(size=(5, 4)) * 0.5 + rng.standard_t(3, size=(40, 4))
        near, far = (solve(Problem(X, Y + shift, loss, "trace", 1e-3), tol=1e-6) for shift in (0.0, 1000.0))
        assert far.certificate.optimal
        assert abs(near.certificate.primal - far.certificate.primal) <= near.gap + far.gap + 1e-9
        assert np.allclose(far.b, near.b + 1000, atol=0.2)
