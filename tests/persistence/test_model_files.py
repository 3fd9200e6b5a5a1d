"""Model files: whatever can be fitted can be saved, and comes back to the last bit."""

import copy
import datetime
import os
import pickle
import stat
import sys
import time

import numpy as np
import pandas as pd
import pytest
import zoo
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, Matern, RationalQuadratic, WhiteKernel
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import taskloom
from taskloom import (
    ModelFileError,
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    TablePreprocessor,
    losses,
    metrics,
    solvers,
    structures,
)

pytest.importorskip("safetensors")

rng = np.random.default_rng(0)
X = rng.normal(size=(30, 4))
Y = X @ rng.normal(size=(4, 2)) @ rng.normal(size=(2, zoo.T)) + 0.3 * rng.normal(size=(30, zoo.T))
GONE = np.where(rng.random(Y.shape) < 0.2, np.nan, Y)
LABELS = np.where(np.median(Y, axis=0) < Y, "yes", "no")
NEW = rng.normal(size=(7, 4))
FRAME = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("pqr"))


def again(model, path, **options):
    """Through a file and back."""
    taskloom.save(model, path, **options)
    return taskloom.load(path)


def same(one, other):
    """Whether two values are alike to the last bit, whatever they are made of."""
    if isinstance(one, np.ndarray):
        if one.dtype.kind == "O" or one.dtype.kind == "U":
            return isinstance(other, np.ndarray) and one.shape == other.shape and same(one.tolist(), other.tolist())
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "tocsr"):
        return type(one) is type(other) and all(same(getattr(one, p), getattr(other, p)) for p in ("data", "indices", "indptr"))
    if hasattr(one, "get_params"):
        return type(one) is type(other) and same(one.get_params(), other.get_params())
    if isinstance(one, KFold):
        return same(vars(one), vars(other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


def assert_same(model, twin, inputs=NEW):
    """Predictions, parameters and everything public that the fit left."""
    assert type(twin) is type(model)
    assert same(model.get_params(deep=False), twin.get_params(deep=False))
    assert same(model.predict(inputs), twin.predict(inputs))
    for name in ("decision_function", "predict_proba"):
        if hasattr(model, name):
            assert same(getattr(model, name)(inputs), getattr(twin, name)(inputs))
    left = {name for name in vars(model) if not name.startswith("_") and name not in ("_training",)}
    assert left == {name for name in vars(twin) if not name.startswith("_")}
    for name in left:
        assert same(getattr(model, name), getattr(twin, name)), name


# --- everything goes round ------------------------------------------------------------------------------------------------


OURS = [s for s in zoo.STRUCTURES + zoo.ON_FEATURES + zoo.SUMS if not isinstance(s, structures.CustomStructure)]


@pytest.mark.parametrize("structure", OURS, ids=zoo.name)
def test_every_structure(structure, tmp_path):
    model = MultiTaskRegressor(structure, alpha=0.1, tol=1e-3).fit(X, GONE)
    twin = again(model, tmp_path / "m")
    assert_same(model, twin)
    assert same(model._state.learned, twin._state.learned)
    if not structure.keeps_columns:
        assert same(model.predict(NEW, return_std=True), twin.predict(NEW, return_std=True))
        assert model.explain(0) == twin.explain(0)
    assert same(model.add_task(X[:6], Y[:6, 0], "new").predict(NEW), twin.add_task(X[:6], Y[:6, 0], "new").predict(NEW))
    assert_same(model, again(twin, tmp_path / "n"))


@pytest.mark.parametrize("structure", zoo.NON_CONVEX, ids=zoo.name)
def test_structures_that_are_not_convex(structure, tmp_path):
    model = MultiTaskRegressor(structure, alpha=0.1, tol=1e-2).fit(X, GONE)
    twin = again(model, tmp_path / "m")
    assert_same(model, twin)
    assert twin.certificate_.stationarity == model.certificate_.stationarity


def test_lists_of_kernels(tmp_path):
    model = MultiTaskRegressor(["trace", structures.Clusters(2)], kernel=["linear", "rbf"], alpha=0.1).fit(X, GONE)
    twin = again(model, tmp_path / "m")
    assert_same(model, twin)
    assert same(model.predict_addends(NEW), twin.predict_addends(NEW))
    assert model.explain(0) == twin.explain(0)


@pytest.mark.parametrize("loss", zoo.ROW_LOSSES, ids=zoo.name)
def test_multiclass_losses(loss, tmp_path):
    model = MultiTaskClassifier(loss=loss, alpha=0.1, tol=1e-2).fit(X, np.arange(len(X)) % 3)
    assert_same(model, again(model, tmp_path / "m"))


WRITTEN = {
    "structure": structures.CustomStructure(zoo.TraceAndSize()),
    "loss": next(loss for loss in zoo.LOSSES if "Custom" in repr(loss)),
}


@pytest.mark.parametrize("options", [{name: written} for name, written in WRITTEN.items()], ids=WRITTEN)
def test_what_users_write_is_code_and_stays_out(options, tmp_path):
    model = MultiTaskRegressor(**options, tol=1e-2).fit(X, Y)
    with pytest.raises(ValueError, match="data, no code"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("loss", [x for x in zoo.LOSSES if "Custom" not in repr(x)], ids=zoo.name)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_every_loss(loss, kernel, tmp_path):
    inputs, wide = zoo.data(loss, "missing")
    options = {"kernel": kernel, "alpha": 0.1, "tol": 1e-2, "loss": loss}
    model = MultiTaskRegressor(**options).fit(inputs, wide)
    assert_same(model, again(model, tmp_path / "m"), inputs)
    if loss.targets == "signs":
        classifier = MultiTaskClassifier(**options).fit(inputs, wide)
        assert_same(classifier, again(classifier, tmp_path / "m"), inputs)


GP = ConstantKernel(2.0) * RBF([1.0, 2.0, 1.0, 1.0]) + WhiteKernel(0.1) + Matern(nu=1.5) ** 2
GP += ExpSineSquared() * RationalQuadratic()


@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian", "cosine", "precomputed", GP], ids=str)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_kernel(kernel, dtype, tmp_path):
    inputs = (X @ X.T if kernel == "precomputed" else X).astype(dtype)
    model = MultiTaskRegressor("frobenius", kernel=kernel, alpha=0.1, gamma=0.3).fit(inputs, Y)
    twin = again(model, tmp_path / "m")
    assert_same(model, twin, inputs[:7])
    if kernel != "precomputed":
        assert same(model.predict(inputs, return_std=True), twin.predict(inputs, return_std=True))
        assert same(model.noise_, twin.noise_)


@pytest.mark.parametrize("make", [csr_array, csr_matrix])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_sparse_inputs(make, kernel, tmp_path):
    sparse = make(np.where(np.abs(X) > 0.7, X, 0.0))
    wider = make(np.hstack([sparse.toarray()] * 10))  # more columns than rows: features of the kernel matrix
    for inputs in (sparse, wider):
        model = MultiTaskRegressor(kernel=kernel).fit(inputs, GONE)
        twin = again(model, tmp_path / "m")
        assert_same(model, twin, inputs)
        assert same(model.predict(inputs, return_std=True), twin.predict(inputs, return_std=True))


LONG = np.column_stack([np.repeat(X, zoo.T, axis=0), np.tile(np.arange(zoo.T), len(X))])
MODELS = {
    "long": (MultiTaskRegressor(task_column=-1, unseen="mean"), LONG, Y.ravel()),
    "long classifier": (MultiTaskClassifier(task_column=-1), LONG, LABELS.ravel()),
    "one task": (MultiTaskRegressor("independent"), X, Y[:, 0]),
    "more columns than rows": (MultiTaskRegressor(), np.hstack([X] * 10), Y),
    "standardized": (MultiTaskRegressor(standardize_targets=True, task_weight=[1, 2, 3, 4]), X, Y),
    "mixed": (
        MultiTaskRegressor(
            loss={"a": "squared", "b": losses.Huber(0.5), "c": "logistic"}, task_weight={"a": 1.0, "b": 2.0, "c": 1}
        ),
        X,
        pd.DataFrame({"a": Y[:, 0], "b": Y[:, 1], "c": LABELS[:, 2]}),
    ),
    "classes": (MultiTaskClassifier("frobenius"), X, np.argmax(Y, axis=1)),
    "simplex": (MultiTaskClassifier(coding="simplex", loss="squared"), X, np.argmax(Y, axis=1)),
    "own classes": (MultiTaskClassifier(loss="hinge"), X, pd.DataFrame({"a": LABELS[:, 0], "b": LABELS[:, 1] == "yes"})),
    "solver": (MultiTaskRegressor(solver=solvers.Alternating(delta=1e-3, A0=np.eye(zoo.T))), X, Y),
    "search": (MultiTaskRegressorCV(structures=["trace", structures.Clusters(2)], alphas=3, cv=2, kernels=None), X, GONE),
    "search with folds": (
        MultiTaskRegressorCV("shared_mean", alphas=[0.1, 1.0], cv=KFold(3), fallback="single", kernels=None),
        X,
        Y,
    ),
    "rbf search, fallback": (
        MultiTaskRegressorCV(structures.SharedMean(100.0), kernel="rbf", alphas=3, cv=3, fallback="single"),
        X,
        np.column_stack([Y[:, 0], Y[:, 0], -Y[:, 0]]),
    ),
    "leave one out": (MultiTaskRegressorCV("shared_mean", alphas=3, cv="loo", kernels=None), X, Y),
    "classifier search": (MultiTaskClassifierCV(alphas=[1.0, 0.1], cv=2, kernels=None), X, LABELS[:, :2]),
    "graph by name": (
        MultiTaskRegressor(structures.TaskGraph([("a", "b"), ("b", "c", 0.5)])),
        X,
        pd.DataFrame(Y[:, :3], columns=["a", "b", "c"]),
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # the paper's barrier, as printed
@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_fit(name, tmp_path):
    model, inputs, targets = MODELS[name]
    model = copy.deepcopy(model).set_params(tol=1e-3).fit(inputs, targets)
    twin = again(model, tmp_path / "m")
    assert_same(model, twin, inputs)
    assert same(model.score_per_task(inputs, targets), twin.score_per_task(inputs, targets))
    assert same(model.task_clusters(), twin.task_clusters())
    refit = twin.fit(inputs, targets)
    assert np.allclose(refit.intercept_, model.intercept_, rtol=1e-6)


def test_frames_and_names_of_columns(tmp_path):
    frame = pd.DataFrame(X, columns=list("pqrs"))
    model = MultiTaskRegressor().fit(frame, pd.DataFrame(Y, columns=["<b>", "it's \"", "ταξί 🚕", "=1+1"]))
    twin = again(model, tmp_path / "m")
    assert_same(model, twin, frame)
    with pytest.raises(ValueError, match="feature names"):
        twin.predict(frame[list("qprs")])


scalars = st.one_of(
    st.text(max_size=6),
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.floats(allow_nan=False),
    st.dates().map(lambda day: day),
    st.datetimes(),
    st.datetimes(min_value=datetime.datetime(1700, 1, 1), max_value=datetime.datetime(2200, 1, 1)).map(pd.Timestamp),
    st.floats(allow_nan=False).map(np.float64),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(names=st.lists(scalars, min_size=2, max_size=4, unique=True))
def test_tasks_may_be_called_anything(names, tmp_path):
    """Texts (lone surrogates too), numbers, truth values, dates and times, pandas' and NumPy's own."""
    tasks = np.empty(len(names), dtype=object)
    tasks[:] = names
    model = MultiTaskRegressor("independent").fit(X, Y[:, : len(names)])
    model.tasks_ = tasks
    twin = again(model, tmp_path / "m", training=False)
    assert [(type(a), a) for a in twin.tasks_.tolist()] == [(type(a), a) for a in names]


@pytest.mark.parametrize("dtype", ["datetime64[D]", "timedelta64[us]", "U3", "int16", "uint8", "bool", "float16"])
def test_tasks_of_every_type_of_array(dtype, tmp_path):
    model = MultiTaskRegressor("independent").fit(X, Y[:, :2])
    model.tasks_ = np.array([0, 1]).astype(dtype)
    twin = again(model, tmp_path / "m")
    assert twin.tasks_.tolist() == model.tasks_.tolist()
    assert twin.tasks_.dtype.kind == model.tasks_.dtype.kind


def test_a_small_file_without_training_data(tmp_path):
    model = MultiTaskRegressor().fit(np.tile(X, (50, 1)), np.tile(Y, (50, 1)))
    model.save(tmp_path / "large")
    model.save(tmp_path / "small", training=False)
    assert (tmp_path / "small").stat().st_size < 8000 < 48000 < (tmp_path / "large").stat().st_size
    small = taskloom.load(tmp_path / "small")
    assert same(model.predict(NEW), small.predict(NEW))
    with pytest.raises(AttributeError, match="training data, which were not saved"):
        small.predict(NEW, return_std=True)
    assert same(small.predict(NEW), again(small, tmp_path / "once more").predict(NEW))


def test_added_tasks(tmp_path):
    model = MultiTaskRegressor("frobenius", kernel="rbf").fit(X, Y).add_task(X[:5], Y[:5, 1], "hull")
    twin = again(model, tmp_path / "m")
    assert_same(model, twin)
    assert twin.added_tasks_ == ["hull"]


def test_a_pipeline_with_its_preprocessing(tmp_path):
    frame = pd.DataFrame(X, columns=list("pqrs")).assign(kind=np.where(X[:, 0] > 0, "big", None), shop=["a", "b"] * 15)
    frame.loc[3, "q"] = np.nan
    pipe = make_pipeline(TablePreprocessor(task_column="shop"), MultiTaskRegressor(task_column="shop")).fit(frame, Y[:, 0])
    twin = again(pipe, tmp_path / "m")
    assert same(pipe.predict(frame), twin.predict(frame))
    assert same(pipe.predict(frame), twin.predict(frame[["s", "r", "q", "p", "shop", "kind"]].assign(more=1)))
    with pytest.raises(ModelFileError, match="TablePreprocessor"):
        taskloom.save(make_pipeline(PCA(2), MultiTaskRegressor()).fit(X, Y), tmp_path / "m")


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(
    "scaler",
    [
        StandardScaler(),
        StandardScaler(with_mean=False),
        MinMaxScaler((-1, 1)),
        MaxAbsScaler(),
        RobustScaler(with_scaling=False),
    ],
    ids=repr,
)
def test_a_pipeline_with_scalers(tmp_path, scaler, names):
    inputs = pd.DataFrame(X, columns=list("pqrs")) if names else X
    pipe = make_pipeline(clone(scaler), MinMaxScaler(), MultiTaskRegressor()).fit(inputs, Y)
    twin = again(pipe, tmp_path / "m")
    assert same(pipe.predict(inputs), twin.predict(inputs))
    assert [name for name, _ in twin.steps] == [name for name, _ in pipe.steps]
    with pytest.raises(ValueError, match="feature"):
        twin.predict(inputs.drop(columns="s") if names else X[:, :3])


def test_a_scaler_from_a_file_is_checked(tmp_path):
    pipe = make_pipeline(StandardScaler(), MultiTaskRegressor()).fit(X, Y)
    for spoil, words in [
        ({"mean_": np.array([1.0, np.nan, 0.0, 0.0])}, "mean_ of the StandardScaler is not readable"),
        ({"scale_": np.ones(3)}, "scale_ of the StandardScaler is not readable"),
        ({"mean_": np.zeros(5), "var_": np.ones(5), "scale_": np.ones(5), "n_features_in_": 5}, "not those that the next one"),
        ({"with_mean": "yes"}, "with_mean"),
    ]:
        wrong = copy.deepcopy(pipe)
        wrong[0].__dict__.update(spoil)
        taskloom.save(wrong, tmp_path / "m")
        with pytest.raises(ModelFileError, match=words):
            taskloom.load(tmp_path / "m")


def test_loading_takes_milliseconds(tmp_path):
    model = MultiTaskRegressorCV(alphas=10, cv=3, kernels=None).fit(X, Y)
    model.save(tmp_path / "m")
    taskloom.load(tmp_path / "m")
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        taskloom.load(tmp_path / "m")
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.05


def test_pickle_works_as_in_scikit_learn():
    model = MultiTaskRegressor().fit(X, Y)
    assert same(pickle.loads(pickle.dumps(model)).predict(NEW), model.predict(NEW))


# --- what cannot be saved -------------------------------------------------------------------------------------------------


def quiet(X, Z):
    return X @ Z.T


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (MultiTaskRegressor(kernel=quiet), "kernel of this MultiTaskRegressor is the function quiet"),
        (MultiTaskRegressor(random_state=np.random.RandomState(0)), "random_state of this .* type RandomState"),
        (MultiTaskRegressorCV(alphas=2, cv=2, scoring=metrics.scorer(metrics.macro_r2), kernels=None), "scoring of this"),
    ],
)
def test_code_is_not_saved(model, words, tmp_path):
    with pytest.raises(ModelFileError, match=words):
        model.fit(X, Y).save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_only_fitted_models_of_ours_are_saved(tmp_path):
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        MultiTaskRegressor().save(tmp_path / "m")
    with pytest.raises(ModelFileError, match="not one of type StandardScaler"):
        taskloom.save(StandardScaler().fit(X), tmp_path / "m")

    class Mine(MultiTaskRegressor):
        pass

    with pytest.raises(ModelFileError, match="not one of type Mine"):
        Mine().fit(X, Y).save(tmp_path / "m")


def test_a_core_install_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ImportError, match=r"taskloom\[files\]"):
        taskloom.load(tmp_path / "m")


# --- writing --------------------------------------------------------------------------------------------------------------


def test_a_write_is_all_or_nothing(tmp_path, monkeypatch):
    model, path = MultiTaskRegressor().fit(X, Y), tmp_path / "m"
    model.save(path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        MultiTaskRegressor(alpha=1.0).fit(X, Y).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"]


def test_writing_keeps_permissions_and_follows_links(tmp_path):
    model, path, link = MultiTaskRegressor().fit(X, Y), tmp_path / "m", tmp_path / "link"
    path.write_bytes(b"")
    path.chmod(0o640)
    link.symlink_to(path)
    model.save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert same(taskloom.load(link).predict(NEW), model.predict(NEW))
    with pytest.raises(IsADirectoryError, match="is a folder"):
        model.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder"):
        model.save(tmp_path / "nowhere" / "m")


def test_a_pickle_holds_data_and_not_what_was_computed_from_them():
    inputs, targets = rng.normal(size=(500, 20)), rng.normal(size=(500, 10))
    model = MultiTaskRegressor(alpha=0.1).fit(inputs, targets)
    data = inputs.nbytes + targets.nbytes
    assert len(pickle.dumps(model)) < 4 * data  # observations have their row, task and weight
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(inputs, return_std=True)[1], model.predict(inputs, return_std=True)[1])


def test_a_scorer_that_cannot_be_saved_says_what_to_do(tmp_path):
    scorer = metrics.scorer(metrics.macro_auc, response="decision_function")
    model = MultiTaskClassifierCV(alphas=2, cv=2, scoring=scorer, kernels=None).fit(FRAME, (FRAME.p > 0).astype(int))
    with pytest.raises(taskloom.ModelFileError, match=r"set_params\(scoring=None\)"):
        model.save(tmp_path / "model")
    model.set_params(scoring=None).save(tmp_path / "model")
    assert np.array_equal(taskloom.load(tmp_path / "model").predict(FRAME), model.predict(FRAME))


@pytest.mark.parametrize("kind", ["common", "graph", "terms"])
def test_added_levels_and_searches_come_back(tmp_path, kind):
    """``add_task`` beside a common part and in terms; and what a search over weights chose."""
    rng = np.random.default_rng(0)
    g = np.repeat(np.arange(6), 8)
    X = pd.DataFrame({"a": rng.normal(size=48), "r": g % 3, "size": g * 1.0, "g": [f"g{k}" for k in g]})
    y = X["a"].to_numpy() + rng.normal(size=6)[g] + 0.1 * rng.normal(size=48)
    options = {
        "common": {"common": True, "task_column": "g"},
        "graph": {"common": "rbf", "task_column": "g", "structure": "shared_mean"},
        "terms": {
            "terms": [
                taskloom.Term("linear", columns=["a"]),
                taskloom.Term("linear", by="g", columns=["a"], structure="trace", intercept=True),
                taskloom.Term("constant", by="r"),
                taskloom.Term("constant", by="g", described_by=["size"]),
            ]
        },
    }[kind]
    rows = X[:4].assign(g="new")
    added = MultiTaskRegressor(**options).fit(X, y).add_task(rows, y[:4] + 2, "new")
    searched = MultiTaskRegressorCV(**options, alphas=1, cv=3, kernels=None).fit(X, y)
    for model in (added, searched):
        model.save(tmp_path / "m.taskloom")
        again = taskloom.load(tmp_path / "m.taskloom")
        assert np.array_equal(again.predict(rows), model.predict(rows))
        assert np.array_equal(again.predict_terms(X)[0], model.predict_terms(X)[0])
    assert again.best_weights_ == searched.best_weights_
    assert again.selection_ == searched.selection_
    assert repr(again.best_params_) == repr(searched.best_params_)
