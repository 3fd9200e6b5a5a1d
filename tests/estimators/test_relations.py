"""Reading a structure: planted groups come back, shares add up to what was learned, intervals hold what is true."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import adjusted_rand_score
from sklearn.svm import LinearSVC

from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, Term, stability, stack, structures


def wide(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 5))
    return X, X @ rng.normal(size=(5, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(40, 4))


rng = np.random.default_rng(0)
X, Y = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))


KINDS = np.array([0, 1, 2] * 4)


def planted(noise, missing=0.3, seed=0, n=25, d=8):
    """Twelve tasks of three kinds, with inputs of their own and some targets missing."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(3, d))
    W = centres[KINDS] + 0.1 * rng.normal(size=(12, d))
    Xs = {f"task {t:02d}": rng.normal(size=(n, d)) for t in range(12)}
    ys = {name: X @ W[t] + noise * rng.normal(size=n) for t, (name, X) in enumerate(Xs.items())}
    for y in ys.values():
        y[rng.random(n) < missing] = np.nan
    return stack(Xs, ys)


@pytest.mark.parametrize("structure", [structures.Clusters(3), structures.Trace(), structures.Frobenius()], ids=repr)
def test_planted_groups_come_back(structure):
    clear = MultiTaskRegressor(structure, alpha=0.02, task_column=-1).fit(*planted(noise=0.2))
    assert adjusted_rand_score(KINDS, clear.task_clusters()) == 1.0
    noisy = MultiTaskRegressor(structure, alpha=0.1, task_column=-1).fit(*planted(noise=2.0))
    assert adjusted_rand_score(KINDS, noisy.task_clusters(3)) > 0.9


def test_labels_count_from_zero_in_the_order_of_the_tasks():
    model = MultiTaskRegressor(structures.Clusters(3), alpha=0.02, task_column=-1).fit(*planted(noise=0.2))
    assert model.task_clusters().tolist() == KINDS.tolist()
    assert model.task_clusters(1).tolist() == [0] * 12
    assert sorted(model.task_clusters(12).tolist()) == list(range(12))
    with pytest.raises(ValueError, match="between 1 and the number of tasks, 12"):
        model.task_clusters(13)


def test_correlations_and_edges():
    model = MultiTaskRegressor("frobenius", alpha=0.02, task_column=-1).fit(*planted(noise=0.2))
    C = model.task_correlation()
    assert np.allclose(np.diag(C), 1)
    assert np.allclose(C, C.T)
    assert np.abs(C).max() <= 1
    edges = model.task_graph(0.5)
    related = {(t, s) for t in range(12) for s in range(t + 1, 12) if KINDS[t] == KINDS[s]}
    places = {name: t for t, name in enumerate(model.tasks_.tolist())}
    assert {(places[a], places[b]) for a, b, _ in edges} == related
    weights = [weight for *_, weight in edges]
    assert weights == sorted(weights, reverse=True)
    assert structures.TaskGraph(edges).bind(model.tasks_).adjacency.shape == (12, 12)


@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("structure", ["trace", "frobenius", structures.SharedMean(2.0), structures.Clusters(3)], ids=str)
def test_shares_are_a_decomposition_of_the_task(structure, ridge):
    model = MultiTaskRegressor(structure, alpha=0.05, ridge=ridge, task_column=-1, tol=1e-8).fit(*planted(noise=0.5))
    assert np.allclose(model._state.contributions.sum(axis=0), np.sum(model.coef_**2, axis=1), rtol=1e-3)
    shares = model.explain("task 04")
    assert np.isclose(sum(shares.values()), 1)
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    siblings = sum(share for name, share in shares.items() if KINDS[int(name[-2:])] == KINDS[4])
    assert siblings > 0.5


def test_independent_tasks_owe_nothing():
    model = MultiTaskRegressor("independent", task_column=-1).fit(*planted(noise=0.5))
    shares = model.explain("task 03")
    assert np.isclose(shares["task 03"], 1)
    assert np.allclose(sorted(shares.values())[:-1], 0)
    with pytest.raises(ValueError, match="no task 'task 99'"):
        model.explain("task 99")


def test_kernels_classifiers_and_searches_can_be_read():
    X, y = planted(noise=0.3, missing=0.0)
    assert np.isclose(sum(MultiTaskRegressor(kernel="rbf", task_column=-1).fit(X, y).explain("task 00").values()), 1)
    model = MultiTaskClassifier(task_column=-1, alpha=1e-3).fit(X, np.where(y > 0, "yes", "no"))
    assert adjusted_rand_score(KINDS, model.task_clusters(3)) == 1.0
    search = MultiTaskRegressorCV("trace", alphas=3, cv=3, task_column=-1, kernels=None).fit(X, y)
    assert search.task_correlation().shape == (12, 12)


def test_the_bootstrap_holds_what_is_true_and_doubts_what_is_not():
    X, y = planted(noise=0.5, missing=0.0)
    model = MultiTaskRegressor("frobenius", alpha=0.05, task_column=-1)
    found = stability(model, X, y, n_resamples=12)
    assert found.lower.shape == found.median.shape == found.upper.shape == (12, 12)
    assert np.all(found.lower <= found.median)
    assert np.all(found.median <= found.upper)
    same = (KINDS[:, None] == KINDS[None, :]) & ~np.eye(12, dtype=bool)
    assert np.all(found.lower[same] > 0.5)
    assert found.certain[same].all()
    again = stability(model, X, y, n_resamples=12, n_jobs=2)
    assert np.array_equal(found.median, again.median)
    wider = stability(model, X, y, n_resamples=12, level=0.5)
    assert np.all(wider.upper - wider.lower <= found.upper - found.lower + 1e-12)


def test_the_bootstrap_shows_its_progress_and_refuses_nonsense(capsys):
    X, y = planted(noise=0.5, missing=0.0)
    stability(MultiTaskRegressor("independent", task_column=-1), X, y, n_resamples=2, verbose=1)
    out = capsys.readouterr().out
    assert out.startswith("\r[")
    assert out.endswith("] 2 of 2\n")
    for options, words in [({"n_resamples": 1}, "n_resamples"), ({"level": 1.0}, "level")]:
        with pytest.raises(ValueError, match=words):
            stability(MultiTaskRegressor(task_column=-1), X, y, **options)
    with pytest.raises(ValueError, match="taskloom estimator"):
        stability(object(), X, y)


def test_tasks_that_are_all_alike_are_one_group():
    """Merges of one height cannot be told apart by a cut."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 3))
    model = MultiTaskRegressor(structures.SharedMean(100.0)).fit(X, rng.normal(size=(20, 6)))
    assert model.task_clusters().tolist() == [0] * 6


def test_a_parameter_that_is_set_anew_does_not_change_what_was_learned():
    model = MultiTaskRegressor(structures.Clusters(2), alpha=0.1).fit(X, rng.normal(size=(60, 6)))
    groups = model.task_clusters()
    model.set_params(structure__n_clusters=4)
    assert np.array_equal(model.task_clusters(), groups)


def test_explaining_a_structure_on_the_features_and_an_added_task():
    X, Y = wide()
    with pytest.raises(ValueError, match="explain needs a structure on the tasks, got FeatureSelection"):
        MultiTaskRegressor("feature_selection").fit(X, Y).explain(0)
    with pytest.raises(ValueError, match="'new' was added"):
        MultiTaskRegressor().fit(X, Y).add_task(X, Y[:, 0], "new").explain("new")


@pytest.mark.parametrize("common", [None, True])
def test_a_task_alone_is_a_plain_estimator(common):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(90, 3)), columns=["x1", "x2", "x3"])
    inputs, table = frame.copy(), frame.assign(shop=[f"s{t}" for t in np.arange(90) % 3])
    z = frame["x1"] - frame["x2"] * (np.arange(90) % 3) + rng.normal(size=90)
    model = MultiTaskRegressor(common=common, task_column="shop").fit(table, z)
    alone = model.task_model("s1")
    assert isinstance(alone, LinearRegression)
    assert np.allclose(alone.predict(inputs), model.predict(table.assign(shop="s1")))
    for loss, kind in (("logistic", LogisticRegression), ("hinge", LinearSVC)):
        labels = np.where(z > 0, "up", "down")
        classifier = MultiTaskClassifier(common=common, loss=loss, task_column="shop").fit(table, labels)
        alone = classifier.task_model("s2")
        assert isinstance(alone, kind)
        assert (alone.predict(inputs) == classifier.predict(table.assign(shop="s2"))).all()
    probabilities = MultiTaskClassifier(common=common, task_column="shop").fit(table, labels)
    expected = probabilities.predict_proba(table.assign(shop="s0"))
    assert np.allclose(probabilities.task_model("s0").predict_proba(inputs), expected)


def test_a_class_alone_is_told_from_the_rest():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = MultiTaskClassifier().fit(X, np.arange(60) % 3)
    alone = model.task_model(2)
    assert np.allclose(alone.decision_function(X), model.decision_function(X)[:, 2])
    assert (alone.predict(X) == (model.decision_function(X)[:, 2] > 0)).all()


def test_what_has_no_plain_estimator_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    with pytest.raises(ValueError, match=r"no task 9; the tasks are \[0, 1\]"):
        MultiTaskRegressor().fit(X, X).task_model(9)
    with pytest.raises(ValueError, match="needs a linear model, got kernel='rbf'"):
        MultiTaskRegressor(kernel="rbf").fit(X, X).task_model(0)
    with pytest.raises(ValueError, match=r"coef_frame\(\) has the coefficients of each level"):
        MultiTaskRegressor(terms=[Term("linear")]).fit(X, X[:, 0]).task_model(0)
    with pytest.raises(ValueError, match="loss of single outputs, got loss='softmax'"):
        MultiTaskClassifier(loss="softmax").fit(X, np.arange(30) % 3).task_model(0)
