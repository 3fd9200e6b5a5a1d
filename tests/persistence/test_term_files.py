"""Models with ``common=`` or ``terms=`` come back from a file, and from a pickle, to the last bit."""

import pickle
from dataclasses import fields
from functools import cache

import numpy as np
import pandas as pd
import pytest
import zoo
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.pipeline import make_pipeline

import taskloom
from taskloom import (
    ModelFileError,
    MultiTaskClassifier,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    TablePreprocessor,
    Term,
    structures,
)

pytest.importorskip("safetensors")

T, N = 6, 120
INPUTS = ["x1", "x2"]


def panel(n=N, seed=0):
    """Shops in towns, crossed with regions; a size and a kind of each shop; and a target."""
    rng = np.random.default_rng(seed)
    shop, region = rng.integers(0, T, n), rng.integers(0, 3, n)
    size, kind = np.random.default_rng(9).normal(size=T), np.array(["mall", "street", "station"])[np.arange(T) % 3]
    x1, x2 = rng.normal(3.0, 1.0, size=(2, n))
    y = 2 + 1.5 * x1 - x2 + size[shop] * (1 + 0.5 * x1) + 0.2 * region + 0.3 * rng.normal(size=n)
    named = {"shop": [f"s{k}" for k in shop], "town": shop // 2, "region": region, "size": size[shop], "kind": kind[shop]}
    return pd.DataFrame({"x1": x1, "x2": x2, **named}), y


def unseen(frame):
    """Rows with levels and a category that no fit has seen."""
    new = frame.head(9).copy()
    new.loc[new.index[:3], "shop"] = "new"
    new["region"] = [9, 0, 1] * 3
    new.loc[new.index[2:5], "kind"] = "kiosk"
    return new


FREE = Term("linear", columns=INPUTS, weight=np.inf)
SLOPES = Term("linear", by="shop", columns=INPUTS, structure="trace", intercept=True)
REGION = Term("constant", by="region")
TERMS = {
    "fixed, own, crossed": [FREE, SLOPES, REGION],
    "nested": [FREE, Term("constant", by="town"), Term("constant", by="shop", weight=0.5)],
    "unpenalised levels": [Term("constant", by="region", described_by=["region"], weight=np.inf), SLOPES],
    "kernels": [
        Term("rbf", columns=["x1"], weight=2.0),
        Term(ConstantKernel(2.0) * RBF(1.5), columns=INPUTS),
        Term("laplacian", by="shop", columns=["x2"]),
    ],
    "described by a number and a category": [FREE, Term("linear", by="shop", columns=INPUTS, described_by=["size", "kind"])],
    "a kernel on descriptors": [
        FREE,
        Term("constant", by="shop", described_by=["size", "kind"], descriptor_kernel="rbf", structure="frobenius"),
    ],
    "a structure of the levels": [FREE, Term("linear", by="shop", columns=INPUTS, structure=structures.Clusters(2))],
    "a structure of the features": [
        FREE,
        Term("linear", by="shop", columns=INPUTS, structure=structures.FeatureSelection(), intercept=True),
    ],
    "a graph by name": [
        FREE,
        Term("constant", by="shop", structure=structures.TaskGraph([("s0", "s1"), ("s1", "s2")], 0.5)),
    ],
    "a function of some levels alone": [Term("linear", columns=("x1",)), Term("linear", by="region", columns=np.array(INPUTS))],
}
COMMON = {
    "the same kernel": {"common": True},
    "unpenalised": {"common": Term("linear", weight=np.inf), "structure": "frobenius"},
    "a weight": {"common": Term("linear", weight=np.float64(0.3)), "structure": structures.Clusters(2)},
    "a kernel beside linear parts": {"common": "rbf", "gamma": 0.3},
    "a process beside linear parts": {"common": Term(RBF(2.0), weight=2.0)},
    "linear beside kernels": {"common": "linear", "kernel": "poly", "degree": 2},
    "kernels": {"common": True, "kernel": "rbf", "structure": structures.SharedMean(2.0)},
    "no intercepts": {"common": True, "fit_intercept": False},
    "scaled intercepts": {"common": True, "intercept_scaling": 3.0, "loss": "huber"},
    "a structure of the features": {"common": True, "structure": structures.FeatureSelection()},
}


@cache
def fitted(kind, name, cls=MultiTaskRegressor):
    """A model and rows to predict."""
    frame, y = panel()
    y = y if cls is MultiTaskRegressor else np.where(y > np.median(y), "high", "low")
    if kind == "terms":
        return cls(terms=TERMS[name], alpha=0.01).fit(frame, y), unseen(frame)
    if kind == "long":
        X = frame[[*INPUTS, "shop"]]
        return cls(**{"task_column": "shop", "alpha": 0.01} | COMMON[name]).fit(X, y), unseen(frame)[[*INPUTS, "shop"]]
    X = frame[INPUTS].to_numpy()
    Y = np.column_stack([y, y[::-1], np.roll(y, 1)])
    return cls(**{"alpha": 0.01} | COMMON[name]).fit(X, Y), X


CASES = [("terms", name) for name in TERMS] + [(layout, name) for name in COMMON for layout in ("long", "wide")]


def bits(value):
    """A value as something that compares to the last bit."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tolist() if value.dtype.kind in "OU" else value.tobytes()
    if isinstance(value, pd.DataFrame):
        return list(value.index), list(value.columns), [bits(value[name].to_numpy()) for name in value]
    if isinstance(value, dict):
        return {key: bits(entry) for key, entry in value.items()}
    return [bits(entry) for entry in value] if isinstance(value, (list, tuple)) else value


def everything(model, X):
    """What users can ask of a model, and the rows that its summary is made of."""
    found = {"parameters": repr(model.get_params(deep=False)), "predict": model.predict(X), "terms": model.predict_terms(X)}
    for name in ("decision_function", "predict_proba"):
        if hasattr(model, name):
            found[name] = getattr(model, name)(X)
    for name in ("coef_", "intercept_", "tasks_", "structure_", "n_iter_", "n_features_in_", "feature_names_in_", "classes_"):
        found[name] = getattr(model, name, None)
    found |= {"certificate": vars(model.certificate_), "history": model.history_, "relations": model.relations_frame()}
    if model.terms is not None or model._state.coef_ is not None:
        found["coefficients"] = model.coef_frame()
    rows = model._state.term_rows
    found["data"] = [[getattr(data, each.name) for each in fields(data)] for data in rows.terms]
    return bits(found | {"targets": [rows.y, rows.sample_weight, repr(rows.loss), rows.fit_intercept]})


def summary(model):
    """The summary, and its numbers to the last bit."""
    found = model.summary()
    components = [(*each[:3], each.covariance, each.kind) for each in found.variance_components]
    return bits([str(found), components, [list(map(str, each)) for each in found.coefficients]])


def again(model, path, **options):
    model.save(path, **options)
    return taskloom.load(path)


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind}, {name}" for kind, name in CASES])
def test_everything_comes_back(kind, name, tmp_path):
    model, X = fitted(kind, name)
    expected = everything(model, X)
    twin = again(model, tmp_path / "m")
    assert everything(twin, X) == expected
    assert everything(again(twin, tmp_path / "n"), X) == expected
    assert everything(pickle.loads(pickle.dumps(model)), X) == expected
    assert everything(pickle.loads(pickle.dumps(twin)), X) == expected


@pytest.mark.parametrize(
    ("kind", "name"), [("terms", "fixed, own, crossed"), ("long", "the same kernel"), ("wide", "a kernel beside linear parts")]
)
def test_classifiers_come_back(kind, name, tmp_path):
    model, X = fitted(kind, name, MultiTaskClassifier)
    assert everything(again(model, tmp_path / "m"), X) == everything(model, X)
    assert set(np.ravel(model.predict(X))) <= {"high", "low"}


SEARCHES = {
    "terms": {"terms": [FREE, Term("constant", by="shop"), REGION]},
    "common": {"common": "rbf", "task_column": "shop"},
    "perhaps a common part": {"structures": ["independent", "trace"], "task_column": "shop"},
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_come_back_with_what_they_chose(name, tmp_path):
    frame, y = panel()
    X = frame if name == "terms" else frame[[*INPUTS, "shop"]]
    model = MultiTaskRegressorCV(alphas=[0.1, 0.001], cv=2, **SEARCHES[name], kernels=None).fit(X, y)
    twin = again(model, tmp_path / "m")
    new = unseen(frame)[X.columns]
    assert bits([twin.predict(new), twin.coef_frame() if name == "terms" else 0]) == bits(
        [model.predict(new), model.coef_frame() if name == "terms" else 0]
    )
    for attribute in ("best_weights_", "selection_", "alpha_", "best_score_", "n_splits_"):
        assert getattr(twin, attribute, None) == getattr(model, attribute, None)
    for attribute in ("best_params_", "cv_results_", "best_structure_"):
        assert repr(getattr(twin, attribute, None)) == repr(getattr(model, attribute, None))
    assert hasattr(model, "best_weights_") == model._state.is_sum
    assert str(twin.summary()) == str(model.summary())


@pytest.mark.parametrize(
    ("kind", "name"), [("terms", "nested"), ("terms", "unpenalised levels"), ("long", "unpenalised"), ("wide", "kernels")]
)
def test_summaries_come_back_with_their_data(kind, name, tmp_path):
    model, _ = fitted(kind, name)
    assert summary(again(model, tmp_path / "m")) == summary(model)
    with_rows = (tmp_path / "m").stat().st_size
    bare = again(model, tmp_path / "m", training=False)
    assert (tmp_path / "m").stat().st_size < with_rows
    assert bare._state.term_rows is None
    said = bare.summary()
    assert "need the data of the fit, which this model does not hold" in said.notes[0]
    assert (said.terms, said.weights, said.groups) == (model.summary().terms, model.summary().weights, model.summary().groups)
    assert "not counted" in str(said)


def test_a_model_without_its_rows_predicts_the_same(tmp_path):
    model, X = fitted("terms", "described by a number and a category")
    bare = again(model, tmp_path / "m", training=False)
    assert bits([bare.predict(X), bare.predict_terms(X)]) == bits([model.predict(X), model.predict_terms(X)])
    with pytest.raises(ValueError, match="needs the data of the fit"):
        bare.coef_frame()


def test_kernels_beyond_5000_rows_keep_their_landmarks(tmp_path):
    frame, y = panel(5200)
    model = MultiTaskRegressor(terms=[FREE, Term("rbf", columns=INPUTS), REGION], alpha=0.01, tol=1e-2).fit(frame, y)
    assert not model._state.fitted_terms[1].inputs.kernel.exact
    bare = again(model, tmp_path / "m", training=False)
    assert bits([bare.predict(frame), bare.predict_terms(frame)]) == bits([model.predict(frame), model.predict_terms(frame)])
    assert bare.certificate_.message == model.certificate_.message
    assert (tmp_path / "m").stat().st_size < 5200 * 400 * 8 / 2  # the landmarks, not the features of the rows


def test_arrays_and_labels_of_any_kind(tmp_path):
    frame, y = panel()
    X = frame[["x1", "x2", "town"]].to_numpy()
    model = MultiTaskRegressor(terms=[Term("linear", columns=[0, 1]), Term("constant", by=-1)], alpha=0.01).fit(X, y)
    new = np.vstack([X[:5], [[1.0, 2.0, 99.0]]])
    assert bits(again(model, tmp_path / "m").predict(new)) == bits(model.predict(new))
    labels = np.array([None, 3, "x", 2.5, True, (1, "b")], dtype=object)[np.arange(N) % 6]
    labels[labels == None] = pd.Timestamp("2020-01-01")  # noqa: E711 (of an array)
    odd = frame[INPUTS].assign(shop=pd.Series(labels, dtype=object))
    model = MultiTaskRegressor(terms=[Term("linear", by="shop", columns=["x1"], intercept=True)], alpha=0.01).fit(odd, y)
    assert bits(again(model, tmp_path / "m").predict(odd)) == bits(model.predict(odd))
    assert np.unique(model.predict_terms(odd)[0]).size > 6


def test_the_inputs_of_the_fit_may_change_afterwards(tmp_path):
    """A kernel keeps inputs of its own: the model, and its file, are those of the fit."""
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0)
    model = MultiTaskRegressor(common=True, kernel="rbf", alpha=0.01).fit(X, np.column_stack([y, -y]))
    before = model.predict(X)
    twin = again(model, tmp_path / "m")
    assert bits(twin.predict(X)) == bits(before)
    inputs = X.copy()
    X[:] = 0.0
    assert bits(model.predict(inputs)) == bits(before)


def test_pipelines_hold_models_with_terms(tmp_path):
    frame, y = panel()
    for step in (
        MultiTaskRegressor(common=True, task_column="shop", alpha=0.01),
        MultiTaskRegressor(terms=[Term("linear"), Term("linear", by="shop", structure="trace")], alpha=0.01),
    ):
        pipe = make_pipeline(TablePreprocessor(task_column="shop"), step).fit(frame.drop(columns="region"), y)
        taskloom.save(pipe, tmp_path / "m")
        new = unseen(frame).drop(columns="region")
        assert bits(taskloom.load(tmp_path / "m").predict(new)) == bits(pipe.predict(new))


def k(X, Z):
    return X @ Z.T + 1.0


@pytest.mark.parametrize(
    "settings",
    [
        {"terms": [Term(k, columns=INPUTS)]},
        {"terms": [Term("constant", by="shop", described_by=["size"], descriptor_kernel=k)]},
        {"common": k, "task_column": "shop"},
        {"common": Term(k), "task_column": "shop"},
        {"terms": [Term("constant", by="shop", structure=structures.CustomStructure(zoo.TraceAndSize()))]},
    ],
    ids=["kernel", "descriptor kernel", "common", "common term", "structure"],
)
def test_what_users_write_is_code_and_stays_out(settings, tmp_path):
    frame, y = panel()
    X = frame if "terms" in settings else frame[[*INPUTS, "shop"]]
    model = MultiTaskRegressor(**settings, alpha=0.1, tol=1e-2).fit(X, y)
    with pytest.raises(ModelFileError, match=r"^(terms|common) of this MultiTaskRegressor[. ].*data, no code"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
    twin = pickle.loads(pickle.dumps(model))
    assert bits(twin.predict(X)) == bits(model.predict(X))
