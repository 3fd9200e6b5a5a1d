"""Searches over alpha and the weights of terms, with and without a common part, on the same folds."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    TaskKFold,
    Term,
    compare_to_single_task,
    structures,
)
from taskloom.design import Observations
from taskloom.estimators.cross_validation.compass_search import CompassSearch
from taskloom.estimators.cross_validation.explained_loss import ExplainedLoss
from taskloom.estimators.cross_validation.sum_start import first_alpha
from taskloom.estimators.terms.fit_sum import prepared_sum
from taskloom.losses import Absolute, Logistic, Squared
from taskloom.metrics import TaskScores


def panel(n_groups=40, rows=5, seed=0, own=0.3, level=1.0):
    """Groups with a level and a slope of their own around a common function."""
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(n_groups), rows)
    X = pd.DataFrame({"a": rng.normal(2, 1, g.size), "b": rng.normal(size=g.size), "g": [f"g{k:03d}" for k in g]})
    b, w = level * rng.normal(size=n_groups), own * rng.normal(size=n_groups)
    y = 1 + X["a"] - X["b"] + b[g] + w[g] * X["b"] + 0.5 * rng.normal(size=g.size)
    return X, y.to_numpy()


def wide(n=40, tasks=4, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    Y = X @ (np.ones((3, tasks)) + 0.3 * rng.normal(size=(3, tasks))) + 0.5 * rng.normal(size=(n, tasks))
    Y[rng.random(Y.shape) < 0.2] = np.nan
    return X, Y


FOLDS = TaskKFold(3, task_column="g")


def pooled_r2(model, X, y, cv):
    """The score of the search by its definition, with the plain estimator."""
    null = np.mean((y - y.mean()) ** 2)
    scores = []
    for train, test in cv.split(X, y):
        values = clone(model).fit(X.iloc[train], y[train]).predict(X.iloc[test])
        scores.append(1 - np.mean((y[test] - values) ** 2) / null)
    return np.mean(scores)


# --- the search by its definition ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", ["independent", "trace"])
def test_the_score_is_that_of_the_plain_estimator_on_the_folds(structure):
    X, y = panel()
    search = MultiTaskRegressorCV(structure, common=True, task_column="g", alphas=3, cv=FOLDS, tol=1e-7, kernels=None).fit(X, y)
    plain = MultiTaskRegressor(task_column="g", tol=1e-7).set_params(**search.best_params_)
    assert search.best_score_ == pytest.approx(pooled_r2(plain, X, y, FOLDS), abs=1e-5)
    np.testing.assert_allclose(plain.fit(X, y).predict(X), search.predict(X), atol=1e-3)
    assert search.best_weights_["own"] == 1
    assert search.best_weights_["common"] == pytest.approx(search.best_params_["common"].weight)
    assert search.best_weights_["intercept"] == pytest.approx(search.best_params_["intercept_scaling"] ** 2)


def test_every_setting_has_the_score_of_the_plain_estimator():
    X, y = panel(15)
    search = MultiTaskRegressorCV(
        "independent", common="rbf", gamma=0.3, task_column="g", alphas=1, cv=FOLDS, kernels=None
    ).fit(X, y)
    results = search.cv_results_
    assert 2 <= len(results["params"]) <= 8
    for params, score in zip(results["params"], results["mean_test_score"], strict=True):
        plain = MultiTaskRegressor(gamma=0.3, task_column="g").set_params(**params)
        assert score == pytest.approx(pooled_r2(plain, X, y, FOLDS), abs=1e-3)
    assert search.best_score_ == results["mean_test_score"][search.best_index_] == results["mean_test_score"].max()


def test_terms_search_over_alpha_and_weights():
    X, y = panel()
    X["region"] = np.arange(len(X)) % 7
    y = y + np.array([3.0, -1, 0, 1, -3, 0.5, 2])[X["region"]]
    terms = [
        Term("linear", columns=["a", "b"], weight=np.inf),
        Term("linear", by="g", columns=["b"], intercept=True),
        Term("constant", by="region"),
    ]
    search = MultiTaskRegressorCV(terms=terms, alphas=4, cv=FOLDS).fit(X, y)
    weights = list(search.best_weights_.values())
    assert weights[0] == np.inf
    assert weights[1] == 1  # the unit: the term with the most weights
    assert weights[2] > 1  # regions differ by more than groups
    assert search.best_score_ == pytest.approx(pooled_r2(MultiTaskRegressor(**search.best_params_), X, y, FOLDS), abs=1e-3)
    first = pooled_r2(MultiTaskRegressor(terms=terms, alpha=search.alpha_), X, y, FOLDS)
    assert search.best_score_ > first
    assert [term.weight for term in search.best_params_["terms"]] == weights
    assert search.summary().weights == pytest.approx(weights)
    assert not hasattr(search, "transfer_")
    np.testing.assert_allclose(sum(search.predict_terms(X)) + search.intercept_[0], search.predict(X))


def test_weights_that_were_given_stay():
    X, y = panel(20)
    options = {"common": True, "task_column": "g", "alphas": 2, "cv": FOLDS}
    search = MultiTaskRegressorCV("independent", weights={"common": 5.0}, **options, kernels=None).fit(X, y)
    assert search.best_weights_["common"] == 5
    assert {params["common"].weight for params in search.cv_results_["params"]} == {5.0}
    fixed = MultiTaskRegressorCV("independent", weights=[2.0, 1.0, 3.0], **options, kernels=None).fit(X, y)
    assert fixed.best_weights_ == {"common": 2.0, "own": 1.0, "intercept": 3.0}
    assert len(set(fixed.cv_results_["param_alpha"])) == len(fixed.cv_results_["param_alpha"])
    terms = [Term("linear", columns=["a", "b"], weight=4.0), Term("constant", by="g")]
    mixed = MultiTaskRegressorCV(terms=terms, alphas=2, cv=FOLDS).fit(X, y)
    assert next(iter(mixed.best_weights_.values())) == 4  # the unit was given, so that of the other term is searched
    assert len({setting["terms"][1].weight for setting in mixed.cv_results_["params"]}) > 1


def test_alphas_that_were_given_are_all_that_is_tried():
    X, y = panel(20)
    search = MultiTaskRegressorCV("independent", common=True, task_column="g", alphas=[1.0, 0.1], cv=FOLDS, kernels=None).fit(
        X, y
    )
    assert set(np.round(search.cv_results_["param_alpha"], 9)) == {0.1, 1.0}
    assert list(search.path_["alphas"]) == pytest.approx([1.0, 0.1])
    assert len(search.cv_results_["params"]) <= 16  # two values say what to compare: no warning that the best may lie beyond


# --- with or without a common part -------------------------------------------------------------------------------------------


def test_a_common_part_is_compared_by_default_and_chosen_where_it_helps():
    X, y = panel()
    test = np.arange(len(X)) % 5 == 0
    search = MultiTaskRegressorCV(task_column="g", alphas=6, kernels=None).fit(X[~test], y[~test])
    without = MultiTaskRegressorCV(task_column="g", alphas=6, common=None, scoring="steady", kernels=None).fit(
        X[~test], y[~test]
    )
    assert "beside a common part" in search.selection_
    assert np.mean((search.predict(X[test]) - y[test]) ** 2) < 0.8 * np.mean((without.predict(X[test]) - y[test]) ** 2)
    kinds = {params.get("common") is None for params in search.cv_results_["params"]}
    assert kinds == {True, False}
    assert set(search.transfer_) == {"task", "alone", "together", "gain", "standard_error", "model"}
    new = search.predict(X[:1].assign(g="new"))
    np.testing.assert_allclose(new, search.predict(X[:1]) - search.predict_terms(X[:1])[1])


def test_no_common_part_where_nothing_is_common():
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(4), 40)
    X = np.column_stack([rng.normal(size=(160, 3)), g])
    y = np.einsum("ij,ij->i", X[:, :3], rng.normal(size=(4, 3))[g]) * 3 + 0.1 * rng.normal(size=160)
    search = MultiTaskRegressorCV(task_column=-1, alphas=8, kernels=None).fit(X, y)
    assert search.best_score_ > 0.99
    assert np.mean((search.predict(X) - y) ** 2) < 0.02
    if "without a common part" in search.selection_:
        with pytest.warns(UserWarning, match="task 9.0 was not seen"):
            mean = search.predict(np.array([[1.0, 0, 0, 9]]))
        assert mean == pytest.approx(np.mean(search.predict(np.column_stack([np.tile([1.0, 0, 0], (4, 1)), np.arange(4)]))))


def test_without_a_common_part_everything_is_as_before():
    X, y = panel(10)
    search = MultiTaskRegressorCV(common=None, task_column="g", alphas=3, cv=FOLDS, scoring="steady", kernels=None).fit(X, y)
    assert search.best_params_ == {"structure": search.best_structure_, "alpha": search.alpha_}
    assert not hasattr(search, "best_weights_")
    assert "without a common part" in search.selection_


def test_wide_tables_score_every_task_alike():
    X, Y = wide()
    Y = Y * [1, 1, 1, 1000]  # another unit
    search = MultiTaskRegressorCV(common=True, alphas=3, cv=4, kernels=None).fit(X, Y)
    assert search.predict(X).shape == Y.shape
    assert search.predict(X[0:1]).shape == (1, 4)
    assert search.coef_.shape == (4, 3)
    scale = np.nanmean((Y - np.nanmean(Y, axis=0)) ** 2, axis=0)
    assert 1 - np.mean(np.nanmean((Y - search.predict(X)) ** 2, axis=0) / scale) > 0


def test_tasks_of_one_class_are_fitted_with_a_common_part():
    X, y = panel(30, 6, level=0.5)
    labels = np.where(y > np.median(y), "yes", "no").astype(object)
    labels[X["g"] == "g000"] = "no"
    with pytest.raises(ValueError, match=r"g000. has one class only"):
        MultiTaskClassifierCV(task_column="g", common=None, alphas=2, kernels=None).fit(X, labels)
    search = MultiTaskClassifierCV(task_column="g", alphas=2, cv=3, kernels=None).fit(X, labels)
    assert "common part" in search.selection_
    assert np.mean(search.predict(X) == labels) > 0.8
    assert not hasattr(search, "transfer_")
    with pytest.raises(ValueError, match="one class only"):
        compare_to_single_task(search, X, labels)
    plain = MultiTaskClassifier(task_column="g").set_params(**search.best_params_).fit(X, labels)
    np.testing.assert_allclose(plain.predict_proba(X), search.predict_proba(X), atol=1e-3)


def test_a_scorer_of_scikit_learn_decides_if_it_was_given():
    X, y = panel(20)
    search = MultiTaskRegressorCV(task_column="g", alphas=2, cv=FOLDS, scoring="neg_mean_absolute_error", kernels=None).fit(
        X, y
    )
    assert search.best_score_ < 0
    terms = [Term("linear", columns=["a", "b"]), Term("constant", by="g")]
    named = MultiTaskRegressorCV(terms=terms, alphas=1, cv=FOLDS, scoring="r2").fit(X, y)
    assert 0 < named.best_score_ < 1


def test_comparison_with_single_task_models_works_for_a_common_part():
    X, y = panel(12, 6)
    model = MultiTaskRegressorCV("independent", common=True, task_column="g", alphas=1, cv=3, kernels=None)
    found = compare_to_single_task(model, X, y)
    assert set(found) == {"task", "alone", "together", "gain", "standard_error"}
    assert len(found["task"]) == 12


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"common": True, "cv": "loo"}, "loo"),
        ({"common": True, "fallback": "single"}, "fallback= is for fits without"),
        ({"common": True, "weights": {"nothing": 1.0}}, "'nothing', which is no term of this model; the terms are common, own"),
        ({"common": True, "weights": [1.0]}, "list of 3"),
        ({"common": True, "weights": {"common": -1.0}}, "positive numbers, got -1.0 for 'common'"),
        ({"common": True, "weights": {"common": np.inf}}, "weight=np.inf"),
        ({"common": True, "structure": structures.Robust()}, "sum"),
        ({"common": True, "loss": {"g0": "squared"}}, "one loss"),
        ({"terms": [Term("constant", by="g")], "structures": ["trace"], "task_column": None}, "leave structures"),
        ({"terms": [Term("constant", by="g")], "common": True, "task_column": None}, "leave common"),
        ({"terms": [Term("constant", by="g")], "structure": "trace", "task_column": None}, "leave structure"),
        ({"common": True, "alphas": [-1.0]}, "positive numbers"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    X, y = panel(6)
    with pytest.raises(ValueError, match=message):
        MultiTaskRegressorCV(**{"task_column": "g", "alphas": 2, **given}, kernels=None).fit(X, y)


def test_settings_that_no_sum_knows_leave_the_common_part_out():
    X, Y = wide()
    search = MultiTaskRegressorCV(standardize_targets=True, alphas=2, cv=2, kernels=None).fit(X, Y)
    assert "no common part was tried: common= does not standardize targets" in search.selection_
    assert "no common part was tried" in MultiTaskRegressorCV(alphas=2, cv="loo", kernels=None).fit(X, Y).selection_


def test_an_interrupted_search_chooses_by_what_was_tried(monkeypatch):
    X, y = panel(10)
    calls = []
    from taskloom.estimators.cross_validation import sum_search

    solve = sum_search.solve

    def stopping(*args, **kwargs):
        calls.append(1)
        if len(calls) > 10:
            raise KeyboardInterrupt
        return solve(*args, **kwargs)

    monkeypatch.setattr(sum_search, "solve", stopping)
    with pytest.warns(UserWarning, match="settings that were tried on all folds"):
        search = MultiTaskRegressorCV("independent", common=True, task_column="g", alphas=4, cv=FOLDS, kernels=None).fit(X, y)
    assert len(search.cv_results_["params"]) == 3
    calls.clear()
    calls.extend([1] * 10)
    untouched = MultiTaskRegressorCV("independent", common=True, task_column="g", alphas=4, cv=FOLDS, kernels=None)
    with pytest.raises(KeyboardInterrupt):
        untouched.fit(X, y)
    assert not hasattr(untouched, "coef_")


def test_verbose_shows_every_setting(capsys):
    X, y = panel(8)
    MultiTaskRegressorCV("independent", common=True, task_column="g", alphas=1, cv=FOLDS, verbose=1, kernels=None).fit(X, y)
    assert "setting 1: alpha" in capsys.readouterr().out


# --- parts -------------------------------------------------------------------------------------------------------------------


def test_compass_search_finds_the_maximum_within_its_step():
    found = CompassSearch(lambda points: [-((x - 1.3) ** 2) - 2 * (z + 2.1) ** 2 for x, z in points], 200)
    found.try_points([(0.0, 0.0)])
    found.run([0, 1])
    assert np.allclose(found.best, (1.3, -2.1), atol=0.13)
    few = CompassSearch(lambda points: [0.0 if x > 2 else np.nan for (x,) in points], 9)
    few.try_points([(3.0,)])
    few.run([0])
    assert few.best == (3.0,)
    assert len(few.scores) <= 9


def test_compass_search_crosses_plateaus_and_leaves_flat_axes_alone():
    calls = []

    def score(points):
        calls.extend(points)
        return [min(x, 5.0) if x > 2 else 1e-5 * x for x, _ in points]  # hardly rises before the hill

    found = CompassSearch(score, 200, lambda point: 0.01)
    found.try_points([(0.0, 0.0)])
    found.run([0, 1])
    assert found.scores[found.best] == 5
    assert all(z in (-1.0, 0.0, 1.0) for _, z in calls)  # the second axis says nothing: no smaller steps
    assert len(calls) < 20


@pytest.mark.parametrize("common", [True, "unpenalised", None])
@pytest.mark.parametrize("structure", [structures.Trace(), structures.FeatureSelection()], ids=repr)
def test_a_search_begins_where_learned_terms_vanish_beside_known_ones(structure, common):
    X, y = panel(12, 6)
    known = [] if common is None else [Term("linear", columns=["a", "b"], weight=1.0 if common is True else np.inf)]
    terms = [*known, Term("linear", by="g", columns=["a", "b"], structure=structure, intercept=True)]
    alpha = first_alpha(prepared_sum(MultiTaskRegressor(terms=terms, tol=1e-7), X, y, None))

    def own(alpha):
        return np.abs(MultiTaskRegressor(terms=terms, alpha=alpha, tol=1e-7).fit(X, y).predict_terms(X)[-1]).max()

    assert own(1.2 * alpha) < 1e-3
    assert own(0.5 * alpha) > 0.01


def test_a_search_under_kinks_begins_somewhere():
    X, y = panel(8)
    search = MultiTaskRegressorCV("trace", common=True, loss="absolute", task_column="g", alphas=1, cv=FOLDS, kernels=None).fit(
        X, y
    )
    assert search.best_score_ > 0.2


def test_a_search_leaves_the_plateau_of_learned_terms_that_are_zero():
    X, y = panel(25, 8, own=2.0, level=3.0)
    terms = [Term("linear", columns=["a", "b"]), Term("linear", by="g", columns=["a", "b"], structure="trace", intercept=True)]
    search = MultiTaskRegressorCV(terms=terms, alphas=4, cv=FOLDS).fit(X, y)
    known = MultiTaskRegressorCV(
        terms=[terms[0], Term("linear", by="g", columns=["a", "b"], intercept=True)], alphas=4, cv=FOLDS
    )
    first = search.cv_results_["mean_test_score"][np.argmax(search.cv_results_["param_alpha"])]
    assert search.best_score_ > 0.8 > 0.5 > first
    assert search.best_score_ > known.fit(X, y).best_score_ - 0.02


def test_explained_loss_is_r2_of_all_rows():
    rng = np.random.default_rng(0)
    y, z, w = rng.normal(size=30), rng.normal(size=30), rng.random(30) + 0.1
    seen = Observations(np.arange(30), np.repeat([0, 1, 2], 10), y, w, 3)
    scored = TaskScores(y, seen.task, ["a", "b", "c"], np.zeros(3, bool), w)
    centre = np.average(y, weights=w)
    expected = 1 - np.sum(w * (y - z) ** 2) / np.sum(w * (y - centre) ** 2)
    assert ExplainedLoss.of(Squared(), seen, w, wide=False)(scored, z) == pytest.approx(expected)
    by_task = []
    for t in np.split(np.arange(30), 3):
        variance = np.average((y[t] - np.average(y[t], weights=w[t])) ** 2, weights=w[t])
        by_task.append(1 - np.average((y[t] - z[t]) ** 2, weights=w[t]) / variance)
    assert ExplainedLoss.of(Squared(), seen, w, wide=True)(scored, z) == pytest.approx(np.mean(by_task))
    signs = np.sign(y)
    labelled = Observations(np.arange(30), np.zeros(30, int), signs, np.ones(30), 1)
    share = np.mean(signs > 0)
    null = -(share * np.log(share) + (1 - share) * np.log(1 - share))
    scored = TaskScores(signs, labelled.task, ["a"], np.ones(1, bool), None)
    expected = 1 - np.mean(np.log1p(np.exp(-signs * z))) / null
    assert ExplainedLoss.of(Logistic(), labelled, np.ones(30), wide=False)(scored, z) == pytest.approx(expected, rel=1e-6)
    flat = Observations(np.arange(4), np.zeros(4, int), np.ones(4), np.ones(4), 1)
    scored = TaskScores(np.ones(4), flat.task, ["a"], np.zeros(1, bool), None)
    exact = ExplainedLoss.of(Absolute(), flat, np.ones(4), wide=False)
    assert exact(scored, np.ones(4)) == 1
    assert exact(scored, np.zeros(4)) == 0
