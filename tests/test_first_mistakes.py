"""What a newcomer does wrong first: the sentence names the value and the remedy."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, structures
from taskloom.cli import sentence


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


def test_words_and_dates_beside_the_task_column():
    X, y = long()
    for column in (["red", "blue"] * 40, pd.date_range("2026-01-01", periods=80)):
        with pytest.raises(ValueError, match=r"column 'other' of X holds no numbers .* leave it out$"):
            MultiTaskRegressor(task_column="shop").fit(X.assign(other=column), y)


def test_a_column_of_numbers_for_the_task():
    X, Y = wide()
    with pytest.raises(ValueError, match=r"40 of 40 are the only one of theirs .* right column"):
        MultiTaskRegressorCV(task_column=0, cv=2, alphas=3).fit(X, Y[:, 0])


def test_structures_where_one_was_expected():
    with pytest.raises(ValueError, match=r"MultiTaskRegressorCV\(structures="):
        MultiTaskRegressorCV(["trace", "frobenius"]).fit(*wide())


def test_scores_of_scikit_learn_and_missing_targets():
    X, Y = wide()
    Y[::3, 0] = np.nan
    with pytest.raises(ValueError, match=r"scoring='neg_mean_squared_error' cannot read missing targets .*\"steady\""):
        MultiTaskRegressorCV(scoring="neg_mean_squared_error", alphas=3).fit(X, Y)


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


def test_explaining_a_structure_on_the_features_and_an_added_task():
    X, Y = wide()
    with pytest.raises(ValueError, match="explain needs a structure on the tasks, got FeatureSelection"):
        MultiTaskRegressor("feature_selection").fit(X, Y).explain(0)
    with pytest.raises(ValueError, match="'new' was added"):
        MultiTaskRegressor().fit(X, Y).add_task(X, Y[:, 0], "new").explain("new")


def test_remedies_on_the_command_line_are_those_of_the_command_line():
    X, y = long()
    model = MultiTaskRegressor(task_column="shop").fit(X, y)
    with pytest.raises(ValueError) as error:
        model.predict(X.assign(shop="w"))
    assert "--unseen mean" in sentence(error.value)
    assert "add_task" not in sentence(error.value)
    with pytest.raises(ValueError) as error:
        MultiTaskRegressor("tracee").fit(*wide())
    assert "object" not in sentence(error.value)
