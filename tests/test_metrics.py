"""Scores that know what a missing target is."""

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from taskloom import MultiTaskClassifier, MultiTaskRegressor, metrics

rng = np.random.default_rng(0)
Y = rng.normal(size=(20, 3))
P = Y + 0.5 * rng.normal(size=Y.shape)
GONE = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)


def test_complete_targets_agree_with_scikit_learn():
    assert np.isclose(metrics.macro_r2(Y, P), r2_score(Y, P))
    assert np.isclose(metrics.macro_nmse(Y, P), 1 - r2_score(Y, P))
    labels = (Y > 0).astype(int)
    assert np.isclose(
        metrics.macro_accuracy(labels, P > 0), np.mean([accuracy_score(labels[:, t], P[:, t] > 0) for t in range(3)])
    )
    assert np.isclose(metrics.macro_auc(labels, P), roc_auc_score(labels, P, average="macro"))


def test_missing_targets_are_left_out():
    expected = [r2_score(GONE[~np.isnan(GONE[:, t]), t], P[~np.isnan(GONE[:, t]), t]) for t in range(3)]
    assert np.isclose(metrics.macro_r2(GONE, P), np.mean(expected))
    GONE2 = GONE.copy()
    GONE2[:, 1] = np.nan
    assert np.isclose(metrics.macro_r2(GONE2, P), np.mean([expected[0], expected[2]]))
    with pytest.raises(ValueError, match="nothing to score"):
        metrics.macro_r2(np.full((3, 2), np.nan), np.zeros((3, 2)))


def test_long_tables_are_scored_by_task():
    rows, task = np.nonzero(~np.isnan(GONE))
    assert np.isclose(metrics.macro_r2(GONE[rows, task], P[rows, task], task=task), metrics.macro_r2(GONE, P))


def test_weights():
    w = rng.uniform(size=20)
    assert np.isclose(metrics.macro_r2(Y, P, sample_weight=w), r2_score(Y, P, sample_weight=w))
    assert np.isclose(metrics.macro_r2(GONE, P, sample_weight=np.ones_like(Y)), metrics.macro_r2(GONE, P))


def test_pooled_nmse_is_matmtls():
    """The mean over all test points of all tasks of squared error over the (ddof 1) variance of that task's targets."""
    points = [
        (GONE[i, t] - P[i, t]) ** 2 / np.var(GONE[~np.isnan(GONE[:, t]), t], ddof=1)
        for i in range(20)
        for t in range(3)
        if not np.isnan(GONE[i, t])
    ]
    assert np.isclose(metrics.pooled_nmse(GONE, P), np.mean(points))
    rows, task = np.nonzero(~np.isnan(GONE))
    assert np.isclose(metrics.pooled_nmse(GONE[rows, task], P[rows, task], task=task), np.mean(points))
    assert not np.isclose(metrics.pooled_nmse(GONE, P), metrics.macro_nmse(GONE, P))  # other sizes, other degrees of freedom
    assert np.isclose(metrics.pooled_nmse(Y, P), 19 / 20 * metrics.macro_nmse(Y, P))
    twice = np.where(np.arange(20) < 5, 2.0, 1.0)
    by_hand = sum(twice @ (Y[:, t] - P[:, t]) ** 2 / np.var(Y[:, t], ddof=1) for t in range(3)) / (3 * twice.sum())
    assert np.isclose(metrics.pooled_nmse(Y, P, sample_weight=twice), by_hand)


def test_normalised_improvement_is_the_papers():
    assert np.isclose(metrics.normalized_improvement([0.2, 0.4], [0.1, 0.4]), np.mean([0.1 / np.sqrt(0.02), 0.0]))
    with pytest.raises(ValueError, match="same experiments"):
        metrics.normalized_improvement([0.1], [0.1, 0.2])


def test_scorers_work_in_searches():
    X = rng.normal(size=(20, 4))
    rows, task = np.nonzero(~np.isnan(GONE))
    long_X, long_y = np.column_stack([X[rows], task]), GONE[rows, task]
    nmse = metrics.scorer(metrics.macro_nmse, greater_is_better=False)
    search = GridSearchCV(MultiTaskRegressor(task_column=-1), {"alpha": [0.1, 10.0]}, scoring=nmse, cv=2).fit(long_X, long_y)
    assert search.best_score_ < 0
    auc = metrics.scorer(metrics.macro_auc, response="decision_function")
    assert cross_val_score(MultiTaskClassifier(), X, Y > 0, scoring=auc, cv=2).shape == (2,)
    assert "macro_auc" in repr(auc)


def test_scorers_find_the_tasks_inside_pipelines_and_searches():
    X = rng.normal(size=(20, 4))
    rows, task = np.nonzero(~np.isnan(GONE))
    long_X, long_y = np.column_stack([task, X[rows]]), GONE[rows, task]
    move = FunctionTransformer(lambda table: np.roll(table, -1, axis=1))  # the task column is the last one only inside
    pipe = make_pipeline(move, MultiTaskRegressor(task_column=-1)).fit(long_X, long_y)
    expected = metrics.macro_r2(long_y, pipe.predict(long_X), task=task)
    score = metrics.scorer(metrics.macro_r2)
    assert np.isclose(score(pipe, long_X, long_y), expected)
    assert np.isclose(expected, pipe.score(long_X, long_y))
    search = GridSearchCV(pipe, {"multitaskregressor__alpha": [0.01]}, cv=KFold(2, shuffle=True, random_state=0))
    assert np.isclose(score(search.fit(long_X, long_y), long_X, long_y), expected)
    scaled = TransformedTargetRegressor(MultiTaskRegressor(task_column=0), transformer=StandardScaler()).fit(long_X, long_y)
    assert np.isclose(score(scaled, long_X, long_y), metrics.macro_r2(long_y, scaled.predict(long_X), task=task))
    assert np.isclose(score(LinearRegression().fit(X, Y), X, Y), metrics.macro_r2(Y, LinearRegression().fit(X, Y).predict(X)))


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="must be equal"):
        metrics.macro_r2(Y, P[:, :2])


def test_tasks_with_one_row_have_no_r2():
    task = np.array([0, 0, 0, 1])
    assert np.isclose(metrics.macro_r2([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 9.0], task=task), 1.0)


def test_a_constant_target_that_is_no_power_of_two():
    assert metrics.r2(np.full(3, 0.1), np.full(3, 0.2), None) == 0.0
    assert metrics.r2(np.full(3, 0.1), np.full(3, 0.1), None) == 1.0


@pytest.mark.parametrize("weighted", [False, True])
def test_areas_of_all_tasks_are_those_of_each(weighted):
    """The naive twin: scikit-learn, a task at a time; with ties, weights, missing labels and a task of one class."""
    rng = np.random.default_rng(0)
    task, decision = rng.integers(0, 6, size=200), rng.integers(0, 8, size=200).astype(float)
    labels = np.where(rng.random(200) < 0.4, "yes", "no").astype(object)
    labels[task == 5] = "no"
    labels[::17] = None
    weight = rng.random(200) if weighted else None
    seen = metrics.observed(labels)
    expected = [
        roc_auc_score(labels[mine] == "yes", decision[mine], sample_weight=weight[mine] if weighted else None)
        for mine in ((task == t) & seen for t in range(5))
    ]
    assert np.isclose(metrics.macro_auc(labels, decision, task, weight), np.mean(expected), rtol=1e-12)
