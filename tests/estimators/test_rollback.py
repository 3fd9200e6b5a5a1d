"""A fit that is refused or fails leaves the model as it was."""

import numpy as np
import pytest

from taskloom import (
    MultiTaskClassifier,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
)

rng = np.random.default_rng(0)
INPUTS, TASK = rng.normal(size=(90, 3)), np.repeat([0.0, 1.0, 2.0], 30)
TARGET = np.einsum("ij,ij->i", INPUTS, np.array([[1, 0, 0], [0, 5, 0], [0, 0, -9.0]])[TASK.astype(int)])
LONG = np.column_stack([INPUTS, TASK])
X, Y = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_fit_that_is_refused_leaves_the_model_as_it_was(method):
    model = MultiTaskRegressor("independent", alpha=1e-4, task_column=-1)
    getattr(model, method)(LONG, TARGET)
    found, before = model.predict(LONG), vars(model).copy()
    with pytest.raises(ValueError, match="must not be negative"):
        getattr(model, method)(LONG[30:], TARGET[30:], sample_weight=-np.ones(60))
    assert vars(model).keys() == before.keys()
    assert np.array_equal(model.predict(LONG), found)


def test_a_refused_fit_of_labels_or_of_a_search_leaves_the_model_as_it_was():
    labels = (Y > 0).astype(int)
    model = MultiTaskClassifier(alpha=0.1).fit(X, labels)
    found = model.predict(X)
    with pytest.raises(ValueError, match="must not be negative"):
        model.fit(X, np.where(Y > 0, "b", "a"), sample_weight=-np.ones(60))
    assert np.array_equal(model.predict(X), found)
    search = MultiTaskRegressorCV(alphas=2, cv=2, kernels=None).fit(X, Y)
    found = search.predict(X)
    with pytest.raises(ValueError, match="must not be negative"):
        search.fit(X[:, :2], Y, sample_weight=-np.ones(60))
    assert np.array_equal(search.predict(X), found)


def test_a_first_fit_that_is_refused_leaves_nothing_behind():
    model = MultiTaskRegressor()
    before = vars(model).copy()
    with pytest.raises(ValueError, match="must not be negative"):
        model.fit(X, Y, sample_weight=-np.ones(60))
    assert vars(model) == before


def test_a_block_that_fails_is_not_counted():
    task = np.repeat([0.0, 1.0, 1.0, 2.0], 30)
    inputs = rng.normal(size=(120, 3))
    table, y = np.column_stack([inputs, task]), inputs[:, 0] + task + rng.normal(size=120)
    first, second = slice(0, 60), slice(60, 120)
    options = {"alpha": 0.5, "task_column": -1}
    model = MultiTaskRegressor("trace", task_weight={0.0: 1.0, 1.0: 1.0}, **options).partial_fit(table[first], y[first])
    with pytest.raises(ValueError, match=r"no entry for task 2\.0"):
        model.partial_fit(table[second], y[second])
    model.set_params(task_weight="equal").partial_fit(table[second], y[second])
    assert np.allclose(model.coef_, MultiTaskRegressor("trace", **options).fit(table, y).coef_, atol=1e-8)
