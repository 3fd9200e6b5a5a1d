"""Names of tasks win over positions wherever data carry them: structures, weights, relations, scores."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import taskloom
from taskloom import (
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    TablePreprocessor,
)
from taskloom.structures import Fixed, OutputCode, OutputMetric, TaskGraph

rng = np.random.default_rng(0)
NAMES = ["z", "m", "a"]
X = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("pqr"))
Y = pd.DataFrame(rng.normal(size=(40, 3)), columns=NAMES)
LONG, TARGET = pd.concat([X.assign(t=name) for name in NAMES]), Y.to_numpy().T.ravel()


def frame(rows):
    return pd.DataFrame(rows, index=NAMES, columns=NAMES)


RELATED = frame([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 0.1]])
CODE = pd.DataFrame(rng.normal(size=(2, 3)), columns=NAMES)


@pytest.mark.parametrize(
    "structure",
    [Fixed(RELATED), OutputMetric(RELATED), TaskGraph(frame([[0, 1.0, 0], [1.0, 0, 0], [0, 0, 0]])), OutputCode(CODE)],
    ids=lambda structure: type(structure).__name__,
)
def test_a_structure_in_a_frame_goes_by_the_names_of_tasks(structure):
    """A long table sorts its tasks: a, m, z."""
    wide = MultiTaskRegressor(structure, alpha=1.0, tol=1e-8).fit(X, Y)
    long = MultiTaskRegressor(structure, alpha=1.0, tol=1e-8, task_column="t").fit(LONG, TARGET)
    assert long.tasks_.tolist() == ["a", "m", "z"]
    assert np.allclose(long.coef_[::-1], wide.coef_, atol=1e-6)
    assert np.allclose(long.structure_[::-1, ::-1], wide.structure_)


def test_a_structure_in_a_frame_of_other_names_is_refused_and_positions_are_positions():
    other = RELATED.rename(index={"z": "y"}, columns={"z": "y"})
    with pytest.raises(ValueError, match=r"labels \['y', 'm', 'a'\], but the tasks are \['z', 'm', 'a'\]"):
        MultiTaskRegressor(Fixed(other)).fit(X, Y)
    plain = pd.DataFrame(RELATED.to_numpy())
    assert np.allclose(MultiTaskRegressor(Fixed(plain)).fit(X, Y).structure_, RELATED)


def test_weights_and_relations_with_labels_go_by_them():
    strengths = pd.Series([1.0, 2.0, 3.0], index=["a", "m", "z"])
    by_series = MultiTaskRegressor(task_weight=strengths).fit(X, Y)
    by_dict = MultiTaskRegressor(task_weight=strengths.to_dict()).fit(X, Y)
    assert np.array_equal(by_series.coef_, by_dict.coef_)
    weights = pd.DataFrame(rng.random((40, 3)), columns=["a", "z", "m"])
    by_frame = MultiTaskRegressor().fit(X, Y, sample_weight=weights)
    by_array = MultiTaskRegressor().fit(X, Y, sample_weight=weights[NAMES].to_numpy())
    assert np.array_equal(by_frame.coef_, by_array.coef_)
    with pytest.raises(ValueError, match="sample_weight has no column for task 'z'"):
        MultiTaskRegressor().fit(X, Y, sample_weight=weights.rename(columns={"z": "y"}))
    relation = pd.Series([0.001, 0.002, 0.003], index=["a", "m", "z"])
    models = [MultiTaskRegressor("frobenius").fit(X, Y) for _ in range(2)]
    for model, given in zip(models, (relation, relation.to_dict()), strict=True):
        model.add_task(X, Y["z"], name="new", relation=given)
    assert np.array_equal(models[0].coef_, models[1].coef_)


def test_columns_with_names_of_several_levels(tmp_path):
    targets = Y[["z", "m"]].set_axis(pd.MultiIndex.from_tuples([("q", "z"), ("q", "m")]), axis=1)
    model = MultiTaskRegressor().fit(X, targets)
    assert model.tasks_.tolist() == [("q", "z"), ("q", "m")]
    model.save(tmp_path / "model")
    again = taskloom.load(tmp_path / "model")
    assert again.tasks_.tolist() == model.tasks_.tolist()
    assert again.score(X, targets) == model.score(X, targets)
    assert (
        MultiTaskRegressorCV(alphas=2, cv=2, kernels=None).fit(X, targets).transfer_["task"].tolist() == model.tasks_.tolist()
    )


def test_a_task_that_is_a_whole_number_stays_the_same_task_as_a_float():
    table = pd.DataFrame(rng.normal(size=(90, 2)), columns=["a", "b"]).assign(t=np.repeat([0, 1, 2], 30))
    pipe = make_pipeline(TablePreprocessor(task_column="t"), MultiTaskRegressor(task_column="t", unseen="mean"))
    pipe.fit(table, table.a * (table.t - 1))
    assert np.array_equal(pipe.predict(table.astype({"t": float})), pipe.predict(table))


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many = LONG.assign(y=TARGET, colour=np.where(np.arange(120) % 2, "red", "blue"), **{"price, eur": 1.0 + np.arange(120)})
    many.to_csv("a.csv", index=False)
    return ["a.csv", "--target", "y", "--task", "t", "--alphas", "2", "--cv", "2", "--quiet"]


def test_scores_follow_the_names_of_the_tasks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 5))
    Y = X @ rng.normal(size=(5, 4)) + 0.3 * rng.normal(size=(30, 4)) + 1
    frame = pd.DataFrame(Y, columns=list("pqrs"))
    model = MultiTaskRegressor().fit(X, frame)
    assert model.score(X, frame[list("srqp")]) == model.score(X, frame)
    with pytest.raises(ValueError, match="2 columns, but the model has 4 tasks"):
        model.score(X, Y[:, :2])
    with pytest.raises(ValueError, match="no column for task 's'"):
        model.score(X, frame[list("pqr")])
    assert np.isfinite(model.score(X, Y, sample_weight=np.ones_like(Y)))
