"""Names of tasks win over positions wherever data carry them; files are not written over; newcomers are told the way."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

import taskloom
from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    TablePreprocessor,
    cli,
    metrics,
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
    assert MultiTaskRegressorCV(alphas=2, cv=2).fit(X, targets).transfer_["task"].tolist() == model.tasks_.tolist()


def test_a_task_that_is_a_whole_number_stays_the_same_task_as_a_float():
    table = pd.DataFrame(rng.normal(size=(90, 2)), columns=["a", "b"]).assign(t=np.repeat([0, 1, 2], 30))
    pipe = make_pipeline(TablePreprocessor(task_column="t"), MultiTaskRegressor(task_column="t", unseen="mean"))
    pipe.fit(table, table.a * (table.t - 1))
    assert np.array_equal(pipe.predict(table.astype({"t": float})), pipe.predict(table))


def test_partial_fit_does_not_forget_a_task_that_was_added():
    model = MultiTaskRegressor().partial_fit(X[:20], Y[:20]).add_task(X[:9], Y["z"][:9], name="new")
    with pytest.raises(ValueError, match="would forget task 'new'"):
        model.partial_fit(X[20:], Y[20:])
    assert "new" in model.tasks_.tolist()


@pytest.mark.parametrize("kind", ["string", "Int64 columns"])
def test_missing_labels_of_pandas_are_missing_in_scores_and_searches(kind):
    if kind == "string":
        y = pd.Series(["yes", "no", pd.NA, "no"] * 10, dtype="string")
    else:
        whole, truth = pd.array([0, 1, None, 1] * 10, dtype="Int64"), pd.array([True, False, None, True] * 10, dtype="boolean")
        y = pd.DataFrame({"a": whole, "b": truth})
    model = MultiTaskClassifier().fit(X, y)
    assert 0.4 <= model.score(X, y) <= 1
    assert MultiTaskClassifierCV(alphas=2, cv=2).fit(X, y).alpha_ > 0


def test_scores_of_labels_of_another_type_are_refused():
    y = (X.p > 0).astype(int)
    for targets in (y, pd.DataFrame({"u": y, "v": 1 - y}), (X.p > 0).astype(int) + (X.q > 0)):
        model = MultiTaskClassifier().fit(X, targets)
        with pytest.raises(ValueError, match="none of the labels in y is a class of the model"):
            model.score(X, targets.astype(str))


def test_logarithms_of_probabilities():
    y = (X.p > 0).astype(int)
    model = MultiTaskClassifier().fit(X, y)
    assert np.allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    assert not hasattr(MultiTaskClassifier(loss="hinge").fit(X, y), "predict_log_proba")


def test_one_table_for_each_task_and_tables_without_data_are_told_the_way():
    for several in ([X.to_numpy(), X.to_numpy()], {"a": X, "b": X}):
        with pytest.raises(ValueError, match=r"taskloom\.stack\(Xs, ys\)"):
            MultiTaskRegressor().fit(several, [1, 2])
    assert MultiTaskRegressor().fit(X.to_numpy().tolist(), Y.to_numpy().tolist()).coef_.shape == (
        3,
        3,
    )  # rows in a list are fine
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"X\.collect\(\)"):
        MultiTaskRegressor().fit(polars.DataFrame({"a": [1.0, 2.0]}).lazy(), [1.0, 2.0])


def test_a_kernel_matrix_with_a_task_column_cannot_be_searched():
    K = np.column_stack([X @ X.T, np.arange(40) % 2])
    with pytest.raises(ValueError, match="cannot be split by rows and columns"):
        MultiTaskRegressorCV(kernel="precomputed", task_column=-1, alphas=2, cv=2).fit(K, Y["z"])


def test_a_scorer_that_cannot_be_saved_says_what_to_do(tmp_path):
    scorer = metrics.scorer(metrics.macro_auc, response="decision_function")
    model = MultiTaskClassifierCV(alphas=2, cv=2, scoring=scorer).fit(X, (X.p > 0).astype(int))
    with pytest.raises(taskloom.ModelFileError, match=r"set_params\(scoring=None\)"):
        model.save(tmp_path / "model")
    model.set_params(scoring=None).save(tmp_path / "model")
    assert np.array_equal(taskloom.load(tmp_path / "model").predict(X), model.predict(X))


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    many = LONG.assign(y=TARGET, colour=np.where(np.arange(120) % 2, "red", "blue"), **{"price, eur": 1.0 + np.arange(120)})
    many.to_csv("a.csv", index=False)
    return ["a.csv", "--target", "y", "--task", "t", "--alphas", "2", "--cv", "2", "--quiet"]


def test_no_output_is_written_over_an_input_or_another_output(table, capsys, tmp_path):
    before = (tmp_path / "a.csv").read_bytes()
    assert cli.run(["fit", *table, "--save", "a.csv"]) == cli.FAILED
    assert "a.csv is the table already" in capsys.readouterr().err
    assert cli.run(["fit", *table, "--save", "s", "--report", "s"]) == cli.FAILED
    assert "s is the model already" in capsys.readouterr().err
    assert (tmp_path / "a.csv").read_bytes() == before
    assert cli.run(["fit", *table, "--save", "m"]) == 0
    model = (tmp_path / "m").read_bytes()
    for to, words in (
        ("m", "m is the model already"),
        ("a.csv", "a.csv is the table already"),
        ("o.xlsx", "o.xlsx ends in .xlsx"),
    ):
        assert cli.run(["predict", "m", "a.csv", "-o", to]) == cli.FAILED
        assert words in capsys.readouterr().err
    assert (tmp_path / "m").read_bytes() == model


def test_a_name_with_a_comma_stands_in_quotes(table):
    assert cli.run(["fit", *table, "--drop", '"price, eur",colour']) == 0


def test_the_report_does_it_again_from_the_table(table, tmp_path):
    assert cli.run(["fit", *table, "--report", "r.html"]) == 0
    page = (tmp_path / "r.html").read_text()
    assert "TablePreprocessor(task_column=" in page
    assert ".fit_transform(X)" in page


def test_a_bad_cell_of_the_target_is_not_told_to_be_an_input(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    LONG.assign(y=[*map(str, TARGET[:-1]), "n.d."]).to_csv("a.csv", index=False)
    assert cli.run(["fit", "a.csv", "--target", "y", "--task", "t"]) == cli.FAILED
    said = capsys.readouterr().err
    assert "--classify" in said
    assert "--categorical" not in said


def test_the_score_of_a_class_is_its_recall(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X.assign(kind=np.array(["lo", "mid", "hi"])[np.digitize(X.p, [-0.5, 0.5])]).to_csv("a.csv", index=False)
    assert cli.run(["fit", "a.csv", "--target", "kind", "--alphas", "2", "--cv", "2"]) == 0
    assert "recall of rows left out" in capsys.readouterr().out
