"""The conventions of scikit-learn: parameters, attributes, inputs, weights, scores, pipelines, copies, metadata, threads."""

import copy
import inspect
import io
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_predict, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    losses,
    metrics,
    structures,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 4))
Y = 2 * X @ rng.normal(size=(4, 1)) @ np.array([[1.0, -1.5, 2.0]]) + 0.2 * rng.normal(size=(40, 3)) + 1.0
GONE = np.where(rng.random(Y.shape) < 0.2, np.nan, Y)
LABELS = np.where(np.median(Y, axis=0) < Y, "yes", "no")
NAMES = ["a", "b", "c", "d"]
ESTIMATORS = [MultiTaskRegressor, MultiTaskRegressorCV, MultiTaskClassifier, MultiTaskClassifierCV]
QUICK = [
    MultiTaskRegressor(),
    MultiTaskRegressor("frobenius", kernel="rbf"),
    MultiTaskRegressorCV(alphas=3, cv=3, kernels=None),
    MultiTaskClassifier(),
    MultiTaskClassifierCV(alphas=[0.1, 0.01], cv=3, kernels=None),
]
EACH = pytest.mark.parametrize("model", QUICK, ids=lambda model: type(model).__name__ + "-" + str(model.kernel))


def targets(model):
    return LABELS if "Classifier" in type(model).__name__ else Y


def decision(model, inputs=X):
    return model.decision_function(inputs) if hasattr(model, "decision_function") else model.predict(inputs)


def long_frame():
    """A long table whose task column is neither the last one nor a number, with a column of words to encode."""
    frames = [
        pd.DataFrame(X, columns=NAMES).assign(shop=f"shop {t}", kind=np.where(X[:, 0] > 0, "big", "small")) for t in range(3)
    ]
    frame = pd.concat(frames, ignore_index=True)
    order = np.random.default_rng(1).permutation(len(frame))
    return frame.iloc[order], Y.T.ravel()[order]


# --- scikit-learn's own checks ----------------------------------------------------------------------------------------


@parametrize_with_checks(
    [
        MultiTaskRegressor(),
        MultiTaskRegressor(structures.Frobenius(), kernel="rbf"),
        MultiTaskRegressor("independent", loss="huber"),
        MultiTaskRegressor("shared_mean", standardize_targets=True),
        MultiTaskClassifier(),
        MultiTaskClassifier("unit_trace", loss="squared_hinge"),
        MultiTaskClassifier("frobenius", kernel="rbf", loss="squared"),
        MultiTaskClassifier(coding="simplex"),
        MultiTaskRegressor("frobenius", kernel="rbf", approximation="nystroem"),
        MultiTaskClassifier("frobenius", kernel="rbf", approximation="leverage"),
        MultiTaskRegressorCV(alphas=4, cv=3, kernels=None),
        MultiTaskClassifierCV(alphas=[0.1, 0.01], cv=3, kernels=None),
    ]
)
def test_scikit_learns_checks(estimator, check):
    """Every check, for every estimator and main setting, with no expected failures."""
    check(estimator)


# --- parameters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_init_stores_parameters_untouched(cls):
    """All parameters are keywords with defaults, and ``__init__`` stores the very objects."""
    parameters = inspect.signature(cls.__init__).parameters
    names = [name for name in parameters if name != "self"]
    assert all(parameters[name].default is not inspect.Parameter.empty for name in names)
    assert all(parameters[name].kind is inspect.Parameter.KEYWORD_ONLY for name in names if name != "structure")
    marks = {name: object() for name in names}
    model = cls(**marks)
    assert all(getattr(model, name) is mark for name, mark in marks.items())
    assert set(vars(model)) == set(names)
    assert set(cls._parameter_constraints) <= set(names)


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_parameters_go_round(cls):
    """Get_params, set_params and clone, into structures and losses."""
    loss = losses.Huber(1.0) if "Regressor" in cls.__name__ else losses.Logistic()
    model = cls(structures.Schatten(2), loss=loss, tol=1e-3)
    assert clone(model).get_params(deep=False).keys() == model.get_params(deep=False).keys()
    assert clone(model).structure is not model.structure
    assert clone(model).structure.p == 2
    twin = clone(model).set_params(structure__p=3, tol=1e-2)
    assert (twin.structure.p, twin.tol, model.structure.p) == (3, 1e-2, 2)
    if "Regressor" in cls.__name__:
        assert clone(model).set_params(loss__width=2.0).loss.width == 2.0
    with pytest.raises(ValueError, match="nonsense"):
        model.set_params(nonsense=1)


BAD_PARAMETERS = {
    "ridge": -1.0,
    "gamma": -1.0,
    "degree": "two",
    "coef0": None,
    "fit_intercept": "yes",
    "unseen": "guess",
    "tol": -1e-3,
    "max_iter": 0,
    "time_limit": 0.0,
    "verbose": -1,
    "random_state": "seed",
}


@pytest.mark.parametrize("name", [*BAD_PARAMETERS])
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_bad_parameters_are_named(cls, name):
    """Errors of parameter constraints name the parameter."""
    model = cls(**{name: BAD_PARAMETERS[name]})
    with pytest.raises(ValueError, match=f"'{name}' parameter of {cls.__name__}"):
        model.fit(X, targets(model))


# --- fitted attributes ------------------------------------------------------------------------------------------------


@EACH
def test_fitted_attributes_end_in_an_underscore(model):
    """And there are those that design.md names, with their shapes."""
    model = clone(model)
    before = set(vars(model))
    model.fit(pd.DataFrame(X, columns=NAMES), pd.DataFrame(targets(model), columns=["u", "v", "w"]))
    new = set(vars(model)) - before
    assert all(name.endswith("_") != name.startswith("_") for name in new)
    assert model.structure_.shape == (3, 3)
    assert model.intercept_.shape == (3,)
    assert (model.coef_.shape == (3, 4)) if model.kernel in ("linear", None) else (model.dual_coef_.shape == (40, 3))
    assert model.n_features_in_ == 4
    assert model.feature_names_in_.tolist() == NAMES
    assert model.tasks_.tolist() == ["u", "v", "w"]
    assert model.n_iter_ >= 1
    assert model.certificate_.dual <= model.certificate_.primal
    assert hasattr(model, "classes_") == ("Classifier" in type(model).__name__)
    assert not hasattr(clone(model).fit(X, targets(model)), "feature_names_in_")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_frames_name_tasks_and_features(make):
    """Task names from the columns of Y, in pandas, polars and pyarrow."""
    inputs, wide = (make(dict(zip(names, table.T, strict=True))) for names, table in ((NAMES, X), ("uvw", Y)))
    model = MultiTaskRegressor().fit(inputs, wide)
    assert model.tasks_.tolist() == ["u", "v", "w"]
    assert model.feature_names_in_.tolist() == NAMES
    assert np.allclose(model.predict(inputs), MultiTaskRegressor().fit(X, Y).predict(X))


# --- errors and warnings ----------------------------------------------------------------------------------------------


@EACH
def test_names_that_differ_between_fit_and_predict_are_refused(model):
    """Wrong column names, and columns in another order."""
    frame = pd.DataFrame(X, columns=NAMES)
    model = clone(model).fit(frame, targets(model))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[NAMES[::-1]])
    with pytest.raises(ValueError, match="3 features"):
        model.fit(X, targets(model)).predict(X[:, :3])


def test_targets_with_other_names_are_refused_by_name():
    """A frame of targets is matched by name, not by position."""
    model = MultiTaskRegressor().fit(X, pd.DataFrame(Y, columns=["u", "v", "w"]))
    shuffled = pd.DataFrame(Y, columns=["u", "v", "w"])[["w", "u", "v"]]
    assert np.isclose(model.score(X, shuffled), model.score(X, Y))
    with pytest.raises(ValueError, match="no column for task 'v'"):
        model.score(X, pd.DataFrame(Y, columns=["u", "x", "w"]))
    with pytest.raises(ValueError, match="2 columns, but the model has 3 tasks"):
        model.score(X, Y[:, :2])


@EACH
def test_unfitted_models_say_so(model):
    """``NotFittedError`` from every method that needs a fit."""
    model = clone(model)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(NotFittedError):
        model.score(X, targets(model))
    with pytest.raises(NotFittedError):
        model.add_task(X, targets(model)[:, 0], name="new")
    if hasattr(model, "decision_function"):
        with pytest.raises(NotFittedError):
            model.predict_proba(X)


@EACH
def test_too_few_iterations_warn(model):
    """``ConvergenceWarning`` when iterations run out, and none when the fit converged (warnings are errors here)."""
    plain = {"common": None} if hasattr(model, "alphas") else {}  # known structures beside a common part need no iterations
    short = clone(model).set_params(max_iter=1, tol=1e-13, solver="proximal", **plain)
    with pytest.warns(ConvergenceWarning, match=r"relative duality gap of .* Raise max_iter"):
        short.fit(X, targets(model))
    assert not short.certificate_.optimal
    assert clone(model).fit(X, targets(model)).certificate_.optimal


# --- inputs of every kind ---------------------------------------------------------------------------------------------


@EACH
def test_fit_returns_self_and_repeats_itself(model):
    """Twice gives equal numbers, and inputs are left as they were."""
    inputs, wide = X.copy(), targets(model).copy()
    model = clone(model)
    assert model.fit(inputs, wide) is model
    first = decision(model).copy()
    assert np.array_equal(decision(model.fit(inputs, wide)), first)
    assert np.array_equal(inputs, X)
    assert np.array_equal(wide, targets(model))


@EACH
def test_memory_maps_lists_and_column_order(model, tmp_path):
    """Read-only memory maps, lists, Fortran order."""
    wide = targets(model)
    expected = decision(clone(model).fit(X, wide))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", wide)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r"), np.load(tmp_path / "Y.npy", mmap_mode="r")
    for inputs, outputs in (mapped, (X.tolist(), wide.tolist()), (np.asfortranarray(X), np.asfortranarray(wide))):
        assert np.allclose(decision(clone(model).fit(inputs, outputs), inputs), expected, atol=1e-10)


def test_a_long_memory_map(tmp_path):
    """The task column is taken out of a read-only memory map too."""
    table = np.column_stack([np.vstack([X] * 3), np.repeat(np.arange(3.0), 40)])
    np.save(tmp_path / "long.npy", table)
    mapped = np.load(tmp_path / "long.npy", mmap_mode="r")
    model = MultiTaskRegressor(task_column=-1)
    assert np.array_equal(model.fit(mapped, Y.T.ravel()).predict(mapped), model.fit(table, Y.T.ravel()).predict(table))


@pytest.mark.parametrize("make", [np.asarray, csr_array], ids=["dense", "sparse"])
@EACH
def test_float32_stays_float32(model, make):
    """Weights, structure, predictions and standard deviations, before and after a task is added."""
    single = make(X.astype(np.float32))
    fitted = clone(model).fit(single, targets(model))
    first = fitted.add_task(single[:12], targets(model)[:12, 0], name="new")
    for part in (getattr(first, "coef_", getattr(first, "dual_coef_", None)), first.intercept_, first.structure_):
        assert part.dtype == np.float32
    assert decision(first, single).dtype == np.float32
    if "Regressor" in type(model).__name__:
        assert [part.dtype for part in clone(model).fit(single, Y).predict(single, return_std=True)] == [np.float32] * 2
    close = decision(clone(model).fit(make(X), targets(model)), make(X))
    assert np.allclose(decision(clone(model).fit(single, targets(model)), single), close, atol=1e-2 * np.abs(close).max())


# --- predictions ------------------------------------------------------------------------------------------------------


@EACH
def test_predictions_have_the_shape_of_the_targets(model):
    """1-D targets give 1-D predictions, frames give arrays, and predictors have no ``set_output``."""
    one = targets(model)[:, 0]
    assert clone(model).fit(X, one).predict(X).shape == (40,)
    wide = clone(model).fit(X, pd.DataFrame(targets(model), columns=["u", "v", "w"])).predict(X)
    assert type(wide) is np.ndarray
    assert wide.shape == (40, 3)
    assert not hasattr(model, "set_output")


@EACH
def test_row_order_and_subsets_do_not_matter(model):
    """Predictions are made row by row, and a fit does not depend on the order of its rows."""
    model = clone(model).set_params(tol=1e-9)
    wide, order = targets(model), np.random.default_rng(0).permutation(40)
    splits = [(np.arange(40)[k % 2 :: 2], np.arange(40)[(k + 1) % 2 :: 2]) for k in range(2)]
    if hasattr(model, "cv"):
        model.set_params(cv=splits, alphas=[0.1, 0.01])
    fitted = clone(model).fit(X, wide)
    whole = decision(fitted)
    assert np.allclose(decision(fitted, X[order]), whole[order])
    assert np.allclose(np.vstack([decision(fitted, X[i : i + 1]) for i in range(40)]), whole)
    if hasattr(model, "cv"):
        back = np.argsort(order)
        model.set_params(cv=[(back[train], back[test]) for train, test in splits])
    assert np.allclose(decision(model.fit(X[order], wide[order])), whole, atol=1e-5)


# --- sample weights ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("cls", [MultiTaskRegressor, MultiTaskClassifier])
def test_sample_weights_mean_what_they_say(cls, kernel):
    """Ones are none, two is a repeated row, zero is a removed row, NaN in Y is weight 0 for that entry.

    The path of a fit is the same in each case, so the tolerance of the fit does not matter.
    """
    model = cls(kernel=kernel)
    wide = targets(model)

    def fitted(*data, **options):
        return decision(clone(model).fit(*data, **options))

    assert np.allclose(fitted(X, wide, sample_weight=np.ones(40)), fitted(X, wide), atol=1e-6)
    weight = np.ones(40)
    weight[:5] = 2
    assert np.allclose(
        fitted(X, wide, sample_weight=weight), fitted(np.vstack([X, X[:5]]), np.vstack([wide, wide[:5]])), atol=1e-6
    )
    weight[:5] = 0
    assert np.allclose(fitted(X, wide, sample_weight=weight), fitted(X[5:], wide[5:]), atol=1e-6)
    each = np.ones(Y.shape)
    each[::3, 1] = 0
    gone = wide.astype(object)
    gone[::3, 1] = np.nan
    gone = gone.astype(float) if wide.dtype.kind == "f" else gone
    assert np.allclose(fitted(X, wide, sample_weight=each), fitted(X, gone), atol=1e-6)


def test_complete_targets_equal_the_complete_data_solver():
    """Without a hole in Y, single tasks are ridge regressions."""
    model = MultiTaskRegressor("independent", alpha=0.1, tol=1e-12).fit(X, Y)
    ridge = Ridge(alpha=0.1 * len(X)).fit(X, Y)
    assert np.allclose(model.coef_, ridge.coef_, atol=1e-8)
    assert np.allclose(model.intercept_, ridge.intercept_, atol=1e-8)


# --- scores -----------------------------------------------------------------------------------------------------------


def test_score_is_the_mean_over_tasks():
    """R2, or macro accuracy, with missing targets left out task by task."""
    model = MultiTaskRegressor().fit(X, GONE)
    seen = ~np.isnan(GONE)
    each = [r2_score(GONE[seen[:, t], t], model.predict(X)[seen[:, t], t]) for t in range(3)]
    assert np.isclose(model.score(X, GONE), np.mean(each))
    assert np.allclose(list(model.score_per_task(X, GONE).values()), each)
    assert np.isclose(model.score(X, Y), r2_score(Y, model.predict(X)))
    classifier = MultiTaskClassifier().fit(X, LABELS)
    right = [accuracy_score(LABELS[:, t], classifier.predict(X)[:, t]) for t in range(3)]
    assert np.isclose(classifier.score(X, LABELS), np.mean(right))
    weight = np.random.default_rng(0).uniform(size=40)
    assert np.isclose(model.score(X, Y, weight), r2_score(Y, model.predict(X), sample_weight=weight))


# --- pipelines and searches -------------------------------------------------------------------------------------------


def shop_pipeline(last):
    """Numbers are scaled, words are encoded, and the task column goes through to the end."""
    columns = make_column_transformer(
        (StandardScaler(), NAMES), (OneHotEncoder(sparse_output=False), ["kind"]), ("passthrough", ["shop"])
    )
    return make_pipeline(columns, last)


def test_long_tables_in_a_pipeline_with_a_column_transformer():
    """By position in an array of objects, or by name in a frame."""
    frame, y = long_frame()
    by_position = shop_pipeline(MultiTaskRegressor(task_column=-1, tol=1e-8)).fit(frame, y)
    assert by_position[-1].tasks_.tolist() == ["shop 0", "shop 1", "shop 2"]
    by_name = shop_pipeline(MultiTaskRegressor(task_column="shop", tol=1e-8))
    by_name[0].set_params(verbose_feature_names_out=False).set_output(transform="pandas")
    assert np.allclose(by_name.fit(frame, y).predict(frame), by_position.predict(frame))
    encoded = np.column_stack([StandardScaler().fit_transform(frame[NAMES]), frame["kind"] == "big", frame["kind"] == "small"])
    plain = pd.DataFrame(encoded.astype(float)).rename(columns=str).assign(shop=frame["shop"].to_numpy())
    alone = MultiTaskRegressor(task_column="shop", tol=1e-8).fit(plain, y)
    assert np.allclose(by_position.predict(frame), alone.predict(plain), atol=1e-6)


@pytest.mark.parametrize("scoring", [None, "r2", "neg_mean_squared_error", metrics.scorer(metrics.macro_r2)], ids=str)
def test_grid_search_over_a_pipeline(scoring):
    """GridSearchCV, string scorers and our own, which find the task column inside the pipeline."""
    frame, y = long_frame()
    folds = KFold(3)
    search = GridSearchCV(
        shop_pipeline(MultiTaskRegressor(task_column=-1)),
        {"multitaskregressor__alpha": [10.0, 1e-3]},
        cv=folds,
        scoring=scoring,
    ).fit(frame, y)
    assert search.best_params_["multitaskregressor__alpha"] == 1e-3
    assert search.predict(frame).shape == y.shape
    by_hand = []
    for train, test in folds.split(frame):
        model = clone(search.best_estimator_).fit(frame.iloc[train], y[train])
        guess, task = model.predict(frame.iloc[test]), frame["shop"].iloc[test]
        by_hand.append(
            {
                "r2": r2_score(y[test], guess),
                "neg_mean_squared_error": -np.mean((y[test] - guess) ** 2),
            }.get(str(scoring), metrics.macro_r2(y[test], guess, task=task))
        )
    assert np.isclose(search.best_score_, np.mean(by_hand))
    if callable(scoring):
        assert np.isclose(scoring(search, frame, y), metrics.macro_r2(y, search.predict(frame), task=frame["shop"]))


def test_cross_val_predict_and_searches_over_wide_targets():
    """Wide targets with holes go through scikit-learn's tools too."""
    assert cross_val_predict(MultiTaskRegressor(), X, GONE, cv=3).shape == Y.shape
    assert np.all(cross_val_score(MultiTaskRegressor(), X, GONE, cv=3) > 0.9)
    search = GridSearchCV(MultiTaskRegressor(), {"alpha": [1e-3, 10.0], "structure": ["trace", "frobenius"]}, cv=3).fit(X, GONE)
    assert search.best_params_["alpha"] == 1e-3
    frame, y = long_frame()
    guess = cross_val_predict(MultiTaskClassifier(task_column="shop"), frame.drop(columns="kind"), y > 1, cv=3)
    assert np.mean(guess == (y > 1)) > 0.85


def test_transformed_targets():
    """``TransformedTargetRegressor`` with complete targets."""
    twice = FunctionTransformer(lambda y: 2 * y, inverse_func=lambda y: y / 2)
    model = TransformedTargetRegressor(MultiTaskRegressor("independent", alpha=0.1, tol=1e-10), transformer=twice).fit(X, Y)
    assert np.allclose(
        model.predict(X), MultiTaskRegressor("independent", alpha=0.1, tol=1e-10).fit(X, Y).predict(X), atol=1e-6
    )


def test_comparison_with_one_model_for_each_output():
    """Single-task learning is what ``MultiOutputRegressor`` does with one of our single-task models."""
    alone = MultiTaskRegressor("independent", tol=1e-10)
    assert np.allclose(MultiOutputRegressor(clone(alone)).fit(X, Y).predict(X), clone(alone).fit(X, Y).predict(X), atol=1e-6)


def test_joblib_backends():
    """Results under the threading backend are those of one process."""
    search = GridSearchCV(MultiTaskRegressor(), {"alpha": [1e-3, 0.1]}, cv=3)
    expected = clone(search).fit(X, Y).cv_results_["mean_test_score"]
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert np.array_equal(clone(search).fit(X, Y).cv_results_["mean_test_score"], expected)


# --- randomness and output --------------------------------------------------------------------------------------------


def test_randomness_is_only_in_the_folds():
    """An int gives identical results, ``n_jobs`` is None by default; plain fits do not draw at all."""
    first, again, other = (
        MultiTaskRegressorCV(alphas=3, cv=4, random_state=seed, kernels=None).fit(X, Y).cv_results_["mean_test_score"]
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(
        MultiTaskRegressor(random_state=0).fit(X, Y).coef_, MultiTaskRegressor(random_state=1).fit(X, Y).coef_
    )
    assert MultiTaskRegressorCV(kernels=None).n_jobs is None


@EACH
def test_nothing_is_printed_unless_asked(model, capsys):
    """``verbose=0`` prints nothing, 1 prints progress."""
    clone(model).fit(X, targets(model))
    assert capsys.readouterr().out == ""
    clone(model).set_params(verbose=1).fit(X, targets(model))
    assert ("fold 1 of 3" if hasattr(model, "cv") else "gap") in capsys.readouterr().out


# --- copies -----------------------------------------------------------------------------------------------------------


def through_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


@pytest.mark.parametrize(
    "there_and_back",
    [lambda model: pickle.loads(pickle.dumps(model)), through_joblib, copy.deepcopy],
    ids=["pickle", "joblib", "deepcopy"],
)
@EACH
def test_copies_predict_the_same(model, there_and_back):
    """Pickle, joblib and deepcopy; the copy can still be extended, and the original stays as it was."""
    model = clone(model).fit(X, targets(model))
    new = X + 1  # scikit-learn's rbf kernel rounds otherwise where it is given the same object twice
    expected = decision(model, new).copy()
    twin = there_and_back(model)
    assert np.array_equal(decision(twin, new), expected)
    twin.add_task(X, targets(model)[:, 0], name="new")
    assert decision(twin, new).shape == (40, 4)
    assert np.array_equal(decision(model, new), expected)
    if "Regressor" in type(model).__name__:
        assert np.array_equal(there_and_back(model).predict(new, return_std=True)[1], model.predict(new, return_std=True)[1])


# --- representation and tags ------------------------------------------------------------------------------------------


@EACH
def test_the_html_representation_links_to_the_documentation(model):
    """With the parameters and a link to the class; ``print_changed_only`` gives short text."""
    html = clone(model).fit(X, targets(model))._repr_html_()
    assert f"https://taskloom.readthedocs.io/en/latest/estimators.html#{type(model).__name__.lower()}" in html
    assert "Documentation for" in html
    assert "task_weight" in html
    with sklearn.config_context(print_changed_only=True):
        assert repr(MultiTaskRegressor(alpha=0.5)) == "MultiTaskRegressor(alpha=0.5)"


def test_tags():
    """What scikit-learn may ask about an estimator."""
    regressor, classifier = get_tags(MultiTaskRegressor()), get_tags(MultiTaskClassifier())
    assert (regressor.estimator_type, classifier.estimator_type) == ("regressor", "classifier")
    for tags in (
        regressor,
        classifier,
        get_tags(MultiTaskRegressorCV(kernels=None)),
        get_tags(MultiTaskClassifierCV(kernels=None)),
    ):
        assert tags.target_tags.required
        assert tags.target_tags.multi_output
        assert tags.input_tags.sparse
        assert not tags.input_tags.pairwise
    assert classifier.classifier_tags.multi_class
    assert classifier.classifier_tags.multi_label
    assert get_tags(MultiTaskRegressor(kernel="precomputed")).input_tags.pairwise
    assert not get_tags(MultiTaskRegressor(kernel="chi2")).input_tags.sparse
    assert not get_tags(MultiTaskRegressor(task_column="shop")).target_tags.multi_output


# --- inputs that make no sense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "wide", "words"),
    [
        (X.astype(complex), Y, "Complex data not supported"),
        (np.where(X > 0, "high", "low"), Y, "could not convert string to float"),
        (X[:0], Y[:0], r"0 sample\(s\)"),
        (X[:, :0], Y, r"0 feature\(s\)"),
        (X[:, 0], Y, "Expected 2D array"),
    ],
    ids=["complex", "words", "no rows", "no columns", "1-D"],
)
@EACH
def test_inputs_that_make_no_sense(model, inputs, wide, words):
    """The messages are scikit-learn's own."""
    with pytest.raises(ValueError, match=words):
        clone(model).fit(inputs, targets(model)[: len(wide)])


def test_the_smallest_inputs():
    """One sample and one feature either work or say why not; object columns of numbers work."""
    one = MultiTaskRegressor().fit(X[:1], Y[:1])
    assert np.allclose(one.predict(X[:1]), Y[:1])
    assert MultiTaskRegressor().fit(X[:, :1], Y).coef_.shape == (3, 1)
    with pytest.raises(ValueError, match="1 class"):
        MultiTaskClassifier().fit(X[:1], LABELS[:1])
    with pytest.raises(ValueError, match="n_samples = 1"):
        MultiTaskRegressorCV(kernels=None).fit(X[:1], Y[:1])
    assert np.array_equal(MultiTaskRegressor().fit(X.astype(object), Y).coef_, MultiTaskRegressor().fit(X, Y).coef_)
    with pytest.raises(ValueError, match=r"kernel='chi2' cannot take a sparse X .* pass X.toarray\(\)"):
        MultiTaskRegressor(kernel="chi2").fit(csr_array(X), Y)


# --- metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [MultiTaskRegressor, MultiTaskRegressorCV])
def test_metadata_is_routed_through_a_pipeline(cls):
    """``set_fit_request(sample_weight=True)`` brings weights to the last step."""
    options = {"alphas": [0.1, 0.01], "cv": [(np.arange(20), np.arange(20, 40)), (np.arange(20, 40), np.arange(20))]}
    last = cls(tol=1e-9, **(options if cls is MultiTaskRegressorCV else {}))
    weight = np.random.default_rng(0).uniform(0.1, 3, size=40)
    expected = clone(last).fit(X, Y, sample_weight=weight).coef_
    with sklearn.config_context(enable_metadata_routing=True):
        asked = make_pipeline(FunctionTransformer(), clone(last).set_fit_request(sample_weight=True))
        assert np.array_equal(asked.fit(X, Y, sample_weight=weight)[-1].coef_, expected)
        scaled = make_pipeline(
            StandardScaler().set_fit_request(sample_weight=True), clone(last).set_fit_request(sample_weight=False)
        )
        inputs = StandardScaler().fit(X, sample_weight=weight).transform(X)
        assert np.allclose(scaled.fit(X, Y, sample_weight=weight)[-1].coef_, clone(last).fit(inputs, Y).coef_)
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError, match="sample_weight"):
            make_pipeline(FunctionTransformer(), clone(last)).fit(X, Y, sample_weight=weight)


def test_groups_are_routed_to_the_folds():
    """The cross-validated estimators take ``groups`` by the same way."""
    from sklearn.model_selection import GroupKFold

    groups = np.repeat(np.arange(8), 5)
    expected = (
        MultiTaskRegressorCV(alphas=3, cv=GroupKFold(4), kernels=None).fit(X, Y, groups=groups).cv_results_["mean_test_score"]
    )
    with sklearn.config_context(enable_metadata_routing=True):
        search = MultiTaskRegressorCV(alphas=3, cv=GroupKFold(4), kernels=None).set_fit_request(groups=True)
        pipe = make_pipeline(FunctionTransformer(), search).fit(X, Y, groups=groups)
    assert np.array_equal(pipe[-1].cv_results_["mean_test_score"], expected)


# --- precision --------------------------------------------------------------------------------------------------------


def test_single_and_double_precision_agree():
    """Fits are certified in double precision whatever the data's, so they agree to rounding."""
    single = X.astype(np.float32)
    one = MultiTaskRegressor(tol=1e-9).fit(single, Y).predict(single)
    other = MultiTaskRegressor(tol=1e-9).fit(single.astype(float), Y).predict(single.astype(float))
    assert np.abs(one - other).max() < 1e-6 * np.abs(other).max()


# --- documentation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_every_parameter_and_public_method_is_documented(cls):
    """The numpydoc sections name every parameter, and every public method has a docstring."""
    text = inspect.getdoc(cls).replace("\\\n", "")
    described = text.split("Parameters\n----------")[1].split("Attributes\n----------")[0]
    for name in inspect.signature(cls.__init__).parameters:
        assert name == "self" or name in described.replace(",", " ").split(), f"{cls.__name__} does not describe {name}"
    for name, method in inspect.getmembers(cls, callable):
        if not name.startswith("_") and getattr(method, "__module__", "").startswith("taskloom"):
            assert method.__doc__, f"{cls.__name__}.{name} has no docstring"


# --- threads ----------------------------------------------------------------------------------------------------------


@EACH
def test_threads_change_neither_results_nor_limits(model):
    """1 and 2 BLAS threads agree to 1e-10, and a fit leaves the limits as they were."""
    inputs = np.random.default_rng(2).normal(size=(120, 4))
    wide = np.tile(targets(model), (3, 1))
    results = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, user_api="blas"):
            before = [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()]
            results.append(decision(clone(model).fit(inputs, wide), inputs))
            assert [(pool["filepath"], pool["num_threads"]) for pool in threadpool_info()] == before
    assert np.allclose(*results, rtol=0, atol=1e-10 * np.abs(results[0]).max())


# --- names of tasks ---------------------------------------------------------------------------------------------------


def test_task_names_may_be_anything_but_alike():
    """HTML, quotes and unicode are names like any other; duplicates are refused."""
    names = ["<b>x</b>", 'it\'s "quoted"', "ταξί 🚕"]
    frame = pd.DataFrame(Y, columns=names)
    model = MultiTaskRegressor(task_weight=dict.fromkeys(names, 1.0)).fit(X, frame)
    assert model.tasks_.tolist() == names
    assert list(model.score_per_task(X, frame)) == names
    long = pd.DataFrame(np.vstack([X] * 3), columns=NAMES).assign(shop=np.repeat(names, 40))
    assert sorted(MultiTaskRegressor(task_column="shop").fit(long, Y.T.ravel()).tasks_.tolist()) == sorted(names)
    with pytest.raises(ValueError, match="unique"):
        MultiTaskRegressor().fit(X, pd.DataFrame(Y, columns=["u", "u", "v"]))


def test_warnings_are_errors_in_these_tests():
    """What the tests above rely on where they say that nothing warns."""
    with pytest.raises(UserWarning, match="loud"):
        warnings.warn("loud", UserWarning, stacklevel=1)
