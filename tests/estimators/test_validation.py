"""Arguments and data that make no sense are refused in a sentence that names the value and the remedy."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, structures

rng = np.random.default_rng(0)
n, d, T = 30, 5, 4
X = rng.normal(size=(n, d))
Y = X @ rng.normal(size=(d, T)) + 0.3 * rng.normal(size=(n, T)) + 1
INPUTS, TARGETS = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))


def wide(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(40, 5))
    return X, X @ rng.normal(size=(5, 2)) @ rng.normal(size=(2, 4)) + 0.5 * rng.normal(size=(40, 4))


def long():
    X, Y = wide()
    frames = [pd.DataFrame(X, columns=list("abcde")).assign(shop=name) for name in ("u", "v")]
    return pd.concat(frames, ignore_index=True), np.concatenate([Y[:, 0], Y[:, 1]])


def test_a_forgotten_task_column():
    X, y = long()
    with pytest.raises(ValueError, match=r"column 'shop' of X holds no numbers .*'u'.* or pass task_column='shop'"):
        MultiTaskRegressor().fit(X, y)
    with pytest.raises(ValueError, match=r"column 5 of X holds no numbers .* task_column=5"):
        MultiTaskRegressor().fit(X.to_numpy(), y)


def test_categories_and_dates_beside_the_task_column():
    X, y = long()
    for column in (["red", "blue"] * 40, pd.date_range("2026-01-01", periods=80)):
        with pytest.raises(ValueError, match=r"column 'other' of X holds no numbers .* leave it out$"):
            MultiTaskRegressor(task_column="shop").fit(X.assign(other=column), y)


def test_a_column_of_numbers_for_the_task():
    X, Y = wide()
    with pytest.raises(ValueError, match=r"40 of 40 are the only one of their task .* right column"):
        MultiTaskRegressorCV(task_column=0, cv=2, alphas=3, kernels=None).fit(X, Y[:, 0])


def test_structures_where_one_was_expected():
    with pytest.raises(ValueError, match=r"MultiTaskRegressorCV\(structures="):
        MultiTaskRegressorCV(["trace", "frobenius"], kernels=None).fit(*wide())


def test_scores_of_scikit_learn_and_missing_targets():
    X, Y = wide()
    Y[::3, 0] = np.nan
    with pytest.raises(ValueError, match=r"scoring='neg_mean_squared_error' cannot read missing targets .*\"steady\""):
        MultiTaskRegressorCV(scoring="neg_mean_squared_error", alphas=3, kernels=None).fit(X, Y)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"structure": "tracee"}, "did you mean 'trace'"),
        ({"loss": "hubr"}, "did you mean 'huber'"),
        ({"solver": "lbfgs"}, "'alternating', 'auto', 'block'"),
    ],
)
def test_names_that_are_nearly_right(given, words):
    with pytest.raises(ValueError, match=words):
        MultiTaskRegressor(**given).fit(*wide())


def test_names_of_classes_are_names():
    X, Y = wide()
    one, other = (MultiTaskRegressor(name).fit(X, Y) for name in ("UnitTrace", "unit_trace"))
    np.testing.assert_array_equal(one.coef_, other.coef_)


def test_parameters_of_a_structure_that_was_given_by_name():
    X, Y = wide()
    search = GridSearchCV(MultiTaskRegressor("clusters", alpha=0.1), {"structure__n_clusters": [1, 2]}, cv=3).fit(X, Y)
    assert isinstance(search.best_estimator_.structure, structures.Clusters)
    assert search.best_estimator_.structure.n_clusters == search.best_params_["structure__n_clusters"]
    assert MultiTaskRegressor(loss="huber").set_params(loss__width=2.0).loss.width == 2.0
    model = MultiTaskRegressor("clusters")
    assert model.set_params(alpha=0.5).structure == "clusters"  # nothing asked for an object


@pytest.mark.parametrize("column", [1.5, True])
def test_a_task_column_is_a_name_or_a_whole_number(column):
    with pytest.raises(ValueError, match="column name or an integer"):
        MultiTaskRegressor(task_column=column).fit(X, Y[:, 0])


def test_unknown_task_weights_are_refused():
    with pytest.raises(ValueError, match="not a task of the data"):
        MultiTaskRegressor(task_weight={0: 1, 1: 1, 2: 1, 3: 1, "x": 2}).fit(X, Y)


def test_warnings_point_at_the_line_that_called():
    for call in (
        lambda: MultiTaskRegressor(max_iter=1, tol=1e-14).fit(INPUTS, TARGETS),
        lambda: MultiTaskRegressor(max_iter=1, tol=1e-14, solver="block").partial_fit(INPUTS, TARGETS),
    ):
        with pytest.warns(ConvergenceWarning) as caught:
            call()
        assert caught[0].filename == __file__


def test_a_wrong_argument_names_the_class_that_was_used():
    with pytest.raises(
        TypeError, match=r"MultiTaskRegressor\.fit\(\) got an unexpected keyword argument 'task'; the task of each"
    ):
        MultiTaskRegressor().fit(INPUTS, TARGETS, task=np.arange(60))
    with pytest.raises(TypeError, match=r"MultiTaskRegressorCV\.fit\(\) missing a required argument: 'y'"):
        MultiTaskRegressorCV(kernels=None).fit(INPUTS)


def test_one_table_for_each_task_and_lazy_frames_are_refused_with_a_remedy():
    frame = pd.DataFrame(X[:, :3], columns=list("pqr"))
    named = pd.DataFrame(Y[:, :3], columns=["z", "m", "a"])
    for several in ([frame.to_numpy(), frame.to_numpy()], {"a": frame, "b": frame}):
        with pytest.raises(ValueError, match=r"taskloom\.stack\(Xs, ys\)"):
            MultiTaskRegressor().fit(several, [1, 2])
    assert MultiTaskRegressor().fit(frame.to_numpy().tolist(), named.to_numpy().tolist()).coef_.shape == (
        3,
        3,
    )  # rows in a list are fine
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"X\.collect\(\)"):
        MultiTaskRegressor().fit(polars.DataFrame({"a": [1.0, 2.0]}).lazy(), [1.0, 2.0])
