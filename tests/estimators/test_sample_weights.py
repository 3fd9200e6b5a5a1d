"""Sample weights have one rule everywhere: one for each row, or one for each entry of a two-dimensional ``y``."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning

from taskloom import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 3))
LONG = np.column_stack([X, np.arange(30) % 3])
NUMBERS = X[:, 0] + rng.normal(size=30)
TWO, THREE = (NUMBERS > 0).astype(int), np.digitize(NUMBERS, [-0.5, 0.5])
WEIGHT = rng.uniform(0.5, 2, size=30)
SEARCH = {"alphas": 2, "cv": 2}
CASES = {
    "regressor": (MultiTaskRegressor(), X, NUMBERS),
    "regressor on a device": (MultiTaskRegressor(device="cpu"), X, NUMBERS),
    "regressor, long": (MultiTaskRegressor(task_column=-1), LONG, NUMBERS),
    "regressor, search": (MultiTaskRegressorCV(**SEARCH, kernels=None), X, NUMBERS),
    "two classes": (MultiTaskClassifier(), X, TWO),
    "two classes, long": (MultiTaskClassifier(task_column=-1), LONG, TWO),
    "two classes, search": (MultiTaskClassifierCV(**SEARCH, kernels=None), X, TWO),
    "three classes": (MultiTaskClassifier(), X, THREE),
    "three classes, softmax": (MultiTaskClassifier(loss="softmax"), X, THREE),
    "three classes, search": (MultiTaskClassifierCV(**SEARCH, kernels=None), X, THREE),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("case", CASES)
def test_a_column_of_weights_beside_a_column_of_targets_is_a_vector_beside_a_vector(case):
    model, inputs, y = CASES[case]
    coef = model.fit(inputs, y, sample_weight=WEIGHT).coef_
    score = model.score(inputs, y, WEIGHT)
    model.fit(inputs, y[:, None], sample_weight=WEIGHT[:, None])
    assert np.array_equal(model.coef_, coef)
    assert model.score(inputs, y[:, None], WEIGHT[:, None]) == score != model.score(inputs, y)


@pytest.mark.parametrize("case", CASES)
def test_a_column_of_weights_beside_a_vector_of_targets_is_refused(case):
    model, inputs, y = CASES[case]
    with pytest.raises(ValueError, match="does not match y of shape"):
        model.fit(inputs, y, sample_weight=WEIGHT[:, None])
    model.fit(inputs, y)
    with pytest.raises(ValueError, match="does not match y of shape"):
        model.score(inputs, y, WEIGHT[:, None])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones((30, 2)), "does not match y of shape"),
        (-WEIGHT, "negative"),
        (np.full((30, 1), np.nan), "NaN"),
        ([1.0], "shape"),
    ],
)
def test_wrong_weights_are_refused_in_fits_and_scores(case, weight, words):
    model, inputs, y = CASES[case]
    with pytest.raises(ValueError, match=words):
        model.fit(inputs, y[:, None], sample_weight=weight)
    model.fit(inputs, y)
    with pytest.raises(ValueError, match=words):
        model.score(inputs, y[:, None], weight)


def test_blocks_and_new_tasks_take_a_column_of_weights():
    whole = MultiTaskRegressor().fit(X, NUMBERS, WEIGHT)
    blocks = MultiTaskRegressor().partial_fit(X[:9], NUMBERS[:9, None], WEIGHT[:9, None])
    blocks.partial_fit(X[9:], NUMBERS[9:, None], WEIGHT[9:, None])
    assert np.allclose(blocks.coef_, whole.coef_, atol=1e-12)
    with pytest.raises(ValueError, match="does not match y of shape"):
        blocks.partial_fit(X, NUMBERS[:, None], np.zeros((30, 2)))  # zeros, too, have a shape
    for model, y in ((whole, NUMBERS), (MultiTaskClassifier().fit(X, np.column_stack([TWO, 1 - TWO])), TWO)):
        added = model.add_task(X, y, "vector", sample_weight=WEIGHT)
        added = added.add_task(X, y[:, None], "column", sample_weight=WEIGHT[:, None])
        assert np.allclose(added.coef_[-1], added.coef_[-2])


def test_weights_of_a_search_go_by_name_in_every_fold():
    Y = pd.DataFrame(X @ rng.normal(size=(3, 2)) + rng.normal(size=(30, 2)), columns=["a", "b"])
    weight = pd.DataFrame(rng.uniform(0.1, 9, size=(30, 2)), columns=["a", "b"])
    found = [
        MultiTaskRegressorCV(**SEARCH, kernels=None).fit(X, Y, sample_weight=each) for each in (weight, weight[["b", "a"]])
    ]
    assert found[0].best_score_ == found[1].best_score_


def test_a_column_of_labels_is_still_worth_a_warning():
    with pytest.warns(DataConversionWarning):
        MultiTaskClassifier().fit(X, TWO[:, None], sample_weight=WEIGHT[:, None])
