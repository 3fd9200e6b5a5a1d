"""A fit leaves one value: refused fits write nothing, models hold what they need, and there is no tower of classes."""

import copy
import gc
import pickle
import sys

import numpy as np
import pytest

from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    stack,
    structures,
)
from taskloom.design import Inputs
from taskloom.estimators.fitted import FittedState
from taskloom.estimators.state_of_fit import fitted_state

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 5))
Y = X @ rng.normal(size=(5, 2)) @ rng.normal(size=(2, 4)) + 0.1 * rng.normal(size=(60, 4))
LABELS = np.where(Y > 0, "yes", "no")
NEW = rng.normal(size=(7, 5))
ESTIMATORS = [MultiTaskRegressor, MultiTaskRegressorCV, MultiTaskClassifier, MultiTaskClassifierCV]


def held(value, seen=None):
    """The bytes that a value holds, everything once."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type):
        return 0
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return held(value.base, seen) if value.base is not None else sys.getsizeof(value)
    return sys.getsizeof(value, 0) + sum(held(each, seen) for each in gc.get_referents(value) if not callable(each))


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_at_most_three_classes_of_ours_stand_above_an_estimator(cls):
    ours = [each for each in cls.__mro__ if each.__module__.startswith("taskloom")]
    assert len(ours) <= 4, ours


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_a_fit_leaves_its_state_and_nothing_else(cls):
    targets = Y if "Regressor" in cls.__name__ else LABELS
    model = cls(**({"alphas": 2, "cv": 2} if "CV" in cls.__name__ else {}))
    before = set(vars(model))
    model.fit(X, targets)
    assert set(vars(model)) - before == ({"_state", "_search"} if "CV" in cls.__name__ else {"_state"})
    assert isinstance(model._state, FittedState)


def refuse(model, **settings):
    with pytest.raises(ValueError, match=r"must not be negative|describes 9 tasks|a device"):
        model.fit(X[:, :3], rng.normal(size=(60, 2)), **settings)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_a_refused_fit_leaves_the_very_state(device):
    model = MultiTaskRegressor(alpha=0.1, device=device).fit(X, Y)
    state = model._state
    refuse(model, sample_weight=-np.ones(60))
    assert model._state is state
    refuse(model.set_params(structure=structures.Fixed(np.eye(9))))
    assert model._state is state


def test_whatever_stops_a_fit_it_leaves_the_very_state(monkeypatch):
    model = MultiTaskRegressor(alpha=0.1).fit(X, Y)
    search = MultiTaskRegressorCV(alphas=2, cv=2, kernels=None).fit(X, Y)
    states = model._state, search._state, search._search

    def stop(*args, **settings):
        raise KeyboardInterrupt

    monkeypatch.setattr("taskloom.estimators.base.fitted_state", stop)
    monkeypatch.setattr("taskloom.estimators.cross_validation.search.path_table", stop)
    for each in (model, search):
        with pytest.raises(KeyboardInterrupt):
            each.fit(X[:, :3], Y[:, :2])
    assert (model._state, search._state, search._search) == states
    assert model.predict(NEW).shape == search.predict(NEW).shape == (7, 4)


def test_a_task_that_is_refused_leaves_the_very_state():
    model = MultiTaskRegressor(kernel="rbf", alpha=0.1).fit(X, Y)
    state = model._state
    with pytest.raises(ValueError, match="no observation"):
        model.add_task(X, np.full(60, np.nan), "new")
    assert model._state is state
    twin = copy.copy(model).add_task(X, Y[:, 0], "new")
    assert (twin._state.n_tasks, model._state.n_tasks) == (5, 4)
    assert model._state is state


def test_a_linear_model_holds_no_training_problem():
    """Of 100 tasks with 30 rows each: the rows themselves for return_std, and no copy of them nor anything computed."""
    Xs, ys = [rng.normal(size=(30, 50)) for _ in range(100)], [rng.normal(size=30) for _ in range(100)]
    table, y = stack(Xs, ys)
    inputs = 8 * 3000 * 50
    squared = MultiTaskRegressor(task_column=-1, alpha=0.1).fit(table, y)
    assert held(vars(squared)) < 1.35 * inputs
    assert len(pickle.dumps(squared)) < 1.35 * inputs
    other = MultiTaskRegressor(task_column=-1, alpha=0.1, loss="huber").fit(table, y)
    for size in (held(vars(other)), len(pickle.dumps(other))):
        assert size < 10 * other.coef_.nbytes
    assert sum(other.explain(0.0).values()) == pytest.approx(1.0)


def test_pickles_and_copies_hold_no_caches():
    model = MultiTaskRegressor(alpha=0.1).fit(X, Y)
    size, found = len(pickle.dumps(model)), model.predict(NEW, return_std=True)
    shares = model.explain(0)
    assert len(pickle.dumps(model)) == size
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert "contributions" not in vars(twin._state)
        assert np.array_equal(twin.predict(NEW, return_std=True), found)
        assert twin.explain(0) == shares


def test_attributes_that_a_model_does_not_have_are_not_there():
    model = MultiTaskRegressor()
    assert not any(hasattr(model, name) for name in ("coef_", "tasks_", "classes_", "certificate_", "n_features_in_"))
    assert "coef_" not in dir(model)
    model.fit(X, Y)
    assert "coef_" in dir(model)
    assert "dual_coef_" not in dir(model)
    with pytest.raises(AttributeError, match="no attribute 'dual_coef_'"):
        _ = model.dual_coef_


def test_assigning_a_fitted_attribute_makes_another_state():
    model = MultiTaskRegressor().fit(X, Y)
    twin = copy.copy(model)
    twin.coef_ = 2 * model.coef_
    assert np.allclose(twin.predict(NEW) - twin.intercept_, 2 * (model.predict(NEW) - model.intercept_))
    with pytest.raises(AttributeError, match="not fitted"):
        MultiTaskRegressor().coef_ = np.eye(2)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_explain_is_the_same_before_and_after_tasks_are_added(kernel, loss):
    model = MultiTaskRegressor("frobenius", kernel=kernel, loss=loss, alpha=0.1, ridge=0.01).fit(X, Y)
    twin = copy.copy(model).add_task(X[:9], Y[:9, 0], "new")
    before, after = model.explain(1), twin.explain(1)
    assert before.keys() == after.keys()
    assert np.allclose(list(before.values()), list(after.values()))


@pytest.mark.parametrize("loss", ["huber", "absolute", "squared"])
def test_no_fit_makes_a_pass_over_the_data_for_a_later_explain(loss, monkeypatch):
    """The products that contributions need are those of the certificate."""
    passes = []

    def fitted(*given, **settings):
        with monkeypatch.context() as patch:
            patch.setattr(Inputs, "correlate", lambda *_: passes.append(1))
            return fitted_state(*given, **settings)

    monkeypatch.setattr("taskloom.estimators.base.fitted_state", fitted)
    model = MultiTaskRegressor(loss=loss, alpha=0.1).fit(X, Y)
    assert not passes
    assert sum(model.explain(0).values()) == pytest.approx(1.0)
