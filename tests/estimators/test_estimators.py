"""The estimators: the layouts, the fitted attributes, and errors that help."""

import pickle

import cvxpy as cp
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import zoo
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    losses,
    methods,
    metrics,
    stack,
    structures,
    unstack,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 4))
Y = 2 * X @ rng.normal(size=(4, 1)) @ np.array([[1.0, -1.5, 2.0]]) + 0.2 * rng.normal(size=(40, 3)) + 1.0
LABELS = np.where(np.median(Y, axis=0) < Y, "yes", "no")


def long_frame():
    rows = [(*X[i], f"task {t}", Y[i, t]) for i in range(len(X)) for t in range(3) if (i + t) % 3]
    frame = pd.DataFrame(rows, columns=["a", "b", "c", "d", "shop", "y"])
    return frame.drop(columns="y"), frame["y"].to_numpy()


class TestRegressor:
    def test_fitted_attributes(self):
        model = MultiTaskRegressor().fit(X, Y)
        assert model.structure_.shape == (3, 3)
        assert model.coef_.shape == (3, 4)
        assert model.intercept_.shape == (3,)
        assert model.tasks_.tolist() == [0, 1, 2]
        assert model.n_features_in_ == 4
        assert model.n_iter_ >= 1
        assert not hasattr(model, "dual_coef_")
        assert set(model.history_) == {"iteration", "objective", "dual", "gap", "seconds"}
        c = model.certificate_
        assert c.status == "optimal"
        assert c.relative_gap <= model.tol
        assert "relative to the intercept-only model" in c.message
        assert np.allclose(model.predict(X), X @ model.coef_.T + model.intercept_)
        assert model.score(X, Y) > 0.8

    def test_long_and_wide_are_the_same_problem(self):
        frame, y = long_frame()
        model = MultiTaskRegressor(task_column="shop", tol=1e-9).fit(frame, y)
        wide = np.array([[Y[i, t] if (i + t) % 3 else np.nan for t in range(3)] for i in range(len(X))])
        twin = MultiTaskRegressor(tol=1e-9).fit(X, wide)
        assert model.tasks_.tolist() == ["task 0", "task 1", "task 2"]
        assert np.allclose(model.coef_, twin.coef_, atol=1e-6)
        assert np.isclose(model.certificate_.primal, twin.certificate_.primal)
        assert model.predict(frame).shape == y.shape
        assert model.n_features_in_ == 5
        assert model.score(frame, y) > 0.8

    def test_a_task_column_by_position(self):
        frame, y = long_frame()
        array = frame.assign(shop=frame["shop"].astype("category").cat.codes).to_numpy()
        model = MultiTaskRegressor(task_column=-1).fit(array, y)
        assert model.tasks_.tolist() == [0.0, 1.0, 2.0]
        assert np.allclose(model.predict(array), MultiTaskRegressor(task_column="shop").fit(frame, y).predict(frame), atol=1e-8)
        assert np.allclose(
            MultiTaskRegressor(task_column=4).fit(frame.to_numpy(), y).predict(frame.to_numpy()), model.predict(array)
        )

    def test_one_dimensional_targets_are_one_task(self):
        model = MultiTaskRegressor().fit(X, Y[:, 0])
        assert model.predict(X).shape == (40,)
        assert model.coef_.shape == (1, 4)
        assert MultiTaskRegressor().fit(X, Y[:, :1]).predict(X).shape == (40, 1)

    def test_task_weights(self):
        by_name = MultiTaskRegressor(task_weight={"u": 2.0, "v": 1.0, "w": 0.5}, tol=1e-8).fit(
            X, pd.DataFrame(Y, columns=list("uvw"))
        )
        as_array = MultiTaskRegressor(task_weight=[2.0, 1.0, 0.5], tol=1e-8).fit(X, Y)
        assert np.allclose(by_name.coef_, as_array.coef_)
        with pytest.raises(ValueError, match="no entry for task 'w'"):
            MultiTaskRegressor(task_weight={"u": 1, "v": 1}).fit(X, pd.DataFrame(Y, columns=list("uvw")))

    def test_warm_start_goes_on_from_the_last_fit(self):
        for kernel in ("linear", "rbf"):
            model = MultiTaskRegressor("frobenius", loss="huber", kernel=kernel, warm_start=True, tol=1e-6).fit(X, Y)
            first = model.n_iter_
            assert model.fit(X, Y).n_iter_ < first
            assert model.fit(X[:, :3], Y[:, :2]).predict(X[:, :3]).shape == (40, 2)  # other shapes: it starts afresh

    def test_components_can_be_searched_cloned_and_pickled(self):
        model = MultiTaskRegressor(structures.Schatten(2), loss=losses.Huber(1.0), kernel=RBF(2.0))
        assert clone(model).set_params(structure__p=3, loss__width=2.0).structure.p == 3
        search = GridSearchCV(model, {"structure__p": [1, 2]}, cv=2).fit(X, Y)
        assert search.best_params_["structure__p"] in (1, 2)
        fitted = clone(model).fit(X, Y)
        assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))
        make_pipeline(StandardScaler(), MultiTaskRegressor()).fit(X, Y).predict(X)

    @pytest.mark.parametrize("solver", ["alternating", "block", "factored", "proximal"])
    def test_every_solver_by_name(self, solver):
        model = MultiTaskRegressor("frobenius", solver=solver, tol=1e-6).fit(X, Y)
        assert model.certificate_.optimal

    def test_methods_are_recipes(self):
        for recipe, F in [
            (methods.STL, structures.Independent),
            (methods.MTFL, structures.Trace),
            (methods.MTRL, structures.UnitTrace),
            (methods.OKL, structures.Frobenius),
            (methods.MTCL, structures.Clusters),
        ]:
            model = recipe(alpha=0.1).fit(X, Y)
            assert isinstance(model.structure, F)
            assert model.certificate_.optimal


class TestClassifier:
    def test_wide_binary_tasks(self):
        model = MultiTaskClassifier().fit(X, LABELS)
        assert model.predict(X).shape == LABELS.shape
        assert set(np.unique(model.predict(X))) <= {"yes", "no"}
        assert model.predict_proba(X).shape == LABELS.shape
        assert np.array_equal(model.decision_function(X) > 0, model.predict(X) == "yes")
        assert model.classes_.tolist() == ["no", "yes"]
        assert model.score(X, LABELS) > 0.8

    def test_tasks_with_labels_of_their_own(self):
        mixed = LABELS.astype(object)
        mixed[:, 1] = np.where(LABELS[:, 1] == "yes", 5, 7)
        mixed[::4, 0] = None
        mixed[1::4, 1] = np.nan
        model = MultiTaskClassifier().fit(X, mixed)
        assert [c.tolist() for c in model.classes_] == [["no", "yes"], [5, 7], ["no", "yes"]]
        assert set(model.predict(X)[:, 1].tolist()) <= {5, 7}
        assert model.score(X, mixed) > 0.7

    def test_the_classes_of_one_target_become_tasks(self):
        y = np.argmax(Y + rng.normal(size=Y.shape), axis=1)
        model = MultiTaskClassifier().fit(X, y)
        assert model.tasks_.tolist() == [0, 1, 2]
        assert model.predict(X).shape == (40,)
        assert np.allclose(model.predict_proba(X).sum(axis=1), 1)

    def test_long_tables(self):
        frame, y = long_frame()
        labels = np.where(y > 1, "high", "low")
        model = MultiTaskClassifier(task_column="shop", loss="hinge").fit(frame, labels)
        assert model.predict(frame).shape == labels.shape
        assert model.score(frame, labels) > 0.7
        assert not hasattr(model, "predict_proba")

    def test_squared_loss_on_signs(self):
        assert MultiTaskClassifier(loss="squared").fit(X, LABELS).score(X, LABELS) > 0.8


NAN = np.where(np.arange(40)[:, None] < 40, np.nan, Y)
BAD = [
    (MultiTaskRegressor(), X, NAN, "nothing but NaN"),
    (MultiTaskRegressor(), X, np.where(np.arange(3) == 1, np.nan, Y), "task 1 has no observation"),
    (MultiTaskRegressor(), X[:10], Y, "inconsistent numbers of samples"),
    (MultiTaskRegressor(), np.where(X > 2, np.nan, X), Y, "NaN"),
    (MultiTaskRegressor(), np.where(X > 2, np.inf, X), Y, "infinity"),
    (MultiTaskRegressor(), X, np.where(Y > 2, np.inf, Y), "infinity"),
    (MultiTaskRegressor(alpha=0), X, Y, "alpha"),
    (MultiTaskRegressor(alpha=-1.0), X, Y, "alpha"),
    (MultiTaskRegressor(ridge=-1.0), X, Y, "ridge"),
    (MultiTaskRegressor("traces"), X, Y, "'traces'"),
    (MultiTaskRegressor(loss="squares"), X, Y, "'squares'"),
    (MultiTaskRegressor(kernel="gauss"), X, Y, "'gauss'"),
    (MultiTaskRegressor(solver="magic"), X, Y, "'magic'"),
    (MultiTaskRegressor(structures.Fixed(np.eye(2))), X, Y, "describes 2 tasks"),
    (MultiTaskRegressor(structures.Clusters(9)), X, Y, "the data have 3"),
    (MultiTaskRegressor(task_weight="fair"), X, Y, "'fair'"),
    (MultiTaskRegressor(task_column="shop"), X, Y[:, 0], "no column names"),
    (MultiTaskRegressor(task_column=9), X, Y[:, 0], "outside the 4 columns"),
    (MultiTaskRegressor(task_column="shop"), pd.DataFrame(X, columns=list("abcd")), Y[:, 0], "no column 'shop'"),
    (MultiTaskRegressor(loss="hinge"), X, Y, "use MultiTaskClassifier"),
    (MultiTaskClassifier(), X, np.where(np.arange(3) == 2, "yes", LABELS), "task 2 needs exactly 2 classes, got 1"),
    (MultiTaskClassifier(), X, rng.integers(0, 3, size=(40, 2)), "task 0 needs exactly 2 classes, got 3"),
    (MultiTaskRegressor(), X, pd.DataFrame(Y, columns=["u", "u", "v"]), "unique"),
]


@pytest.mark.parametrize(("model", "inputs", "targets", "words"), BAD, ids=[case[3] for case in BAD])
def test_bad_input_is_refused_at_the_door(model, inputs, targets, words):
    with pytest.raises(ValueError, match=words):
        model.fit(inputs, targets)


def test_bad_weights():
    for weights, words in [(-np.ones(40), "negative"), (np.zeros(40), "zero"), (np.ones((40, 2)), "shape")]:
        with pytest.raises(ValueError, match=words):
            MultiTaskRegressor().fit(X, Y, sample_weight=weights)


def test_predicting_needs_a_fit_and_known_tasks():
    with pytest.raises(NotFittedError):
        MultiTaskRegressor().predict(X)
    frame, y = long_frame()
    model = MultiTaskRegressor(task_column="shop").fit(frame, y)
    with pytest.raises(ValueError, match="'task 9' was not seen in training"):
        model.predict(frame.assign(shop="task 9"))
    with pytest.raises(ValueError, match="features"):
        MultiTaskRegressor().fit(X, Y).predict(X[:, :2])
    with pytest.raises(ValueError, match="missing value in row 0"):
        model.fit(frame.assign(shop=None), y)


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.Absolute()], ids=zoo.name)
def test_nonsmooth_losses_through_the_estimator(loss):
    model = (MultiTaskClassifier if loss.targets == "signs" else MultiTaskRegressor)(loss=loss, tol=1e-6)
    assert model.fit(X, LABELS if loss.targets == "signs" else Y).certificate_.optimal


# --- tasks that were not seen ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("make", [MultiTaskRegressor, MultiTaskClassifier])
def test_an_unseen_task_is_the_mean_of_the_others(make, kernel):
    frame, y = long_frame()
    targets = y if make is MultiTaskRegressor else np.where(y > 1, "high", "low")
    model = make(structures.SharedMean(2.0), task_column="shop", kernel=kernel, unseen="mean").fit(frame, targets)
    respond = model.predict if make is MultiTaskRegressor else model.decision_function
    every = np.mean([respond(frame.assign(shop=name)) for name in model.tasks_], axis=0)
    assert np.allclose(respond(frame.assign(shop="new shop")), every)
    odd = np.arange(len(frame)) // 2 % 2 == 1
    mixed = frame.assign(shop=np.where(odd, frame["shop"], "new shop"))
    assert np.allclose(respond(mixed), np.where(odd, respond(frame), every))
    scores = model.score_per_task(mixed, targets)
    assert set(scores) == {*model.tasks_, "new shop"}
    if make is MultiTaskClassifier:
        assert np.array_equal(model.predict(mixed) == "low", respond(mixed) > 0)
        assert np.allclose(model.predict_proba(mixed).sum(axis=1), 1)
    else:
        with pytest.raises(ValueError, match="no posterior"):
            model.predict(mixed, return_std=True)


# --- tables ---------------------------------------------------------------------------------------------------------------


class TestArrow:
    inputs = pa.table(dict(zip("abcd", X.T, strict=True)))
    wide = pa.table(
        {name: pa.array(column, mask=np.arange(40) % 7 == t) for t, (name, column) in enumerate(zip("uvw", Y.T, strict=True))}
    )

    def test_wide_tables_with_nulls(self):
        gone = np.where(np.arange(40)[:, None] % 7 == np.arange(3), np.nan, Y)
        model, twin = MultiTaskRegressor().fit(self.inputs, self.wide), MultiTaskRegressor().fit(X, gone)
        assert model.tasks_.tolist() == ["u", "v", "w"]
        assert np.array_equal(model.predict(self.inputs), twin.predict(X))
        assert np.isclose(model.score(self.inputs, self.wide), twin.score(X, gone))
        search = MultiTaskRegressorCV(alphas=2, cv=3, kernels=None).fit(self.inputs, self.wide)
        assert np.array_equal(
            search.predict(self.inputs), MultiTaskRegressorCV(alphas=2, cv=3, kernels=None).fit(X, gone).predict(X)
        )
        assert model.add_task(self.inputs, pa.array(Y[:, 0]), name="x").tasks_.tolist() == ["u", "v", "w", "x"]

    def test_labels(self):
        words = pa.table(
            {
                name: pa.array(column.tolist(), mask=np.arange(40) == t)
                for t, (name, column) in enumerate(zip("uvw", LABELS.T, strict=True))
            }
        )
        model = MultiTaskClassifier().fit(self.inputs, words)
        assert model.classes_.tolist() == ["no", "yes"]
        assert model.score(self.inputs, words) > 0.8

    def test_long_tables(self):
        frame, y = long_frame()
        table = pa.Table.from_pandas(frame, preserve_index=False)
        twin = MultiTaskRegressor(task_column="shop").fit(frame, y)
        for shop in (table["shop"], table["shop"].dictionary_encode()):
            long = table.set_column(4, "shop", shop)
            model = MultiTaskRegressor(task_column="shop").fit(long, pa.array(y))
            assert model.tasks_.tolist() == ["task 0", "task 1", "task 2"]
            assert model.feature_names_in_.tolist() == ["a", "b", "c", "d", "shop"]
            assert np.array_equal(model.predict(long), twin.predict(frame))
            assert np.isclose(metrics.scorer(metrics.macro_r2)(model, long, y), twin.score(frame, y))
        Xs, ys = unstack(table, y, "shop")
        again, _ = stack({name: pa.Table.from_pandas(part, preserve_index=False) for name, part in Xs.items()}, ys)
        assert again.column_names == ["a", "b", "c", "d", "task"]


class TestSparse:
    """Through the estimators, a sparse ``X`` gives what the dense one gives (tests/test_sparse.py has the solvers)."""

    dense = np.where(np.abs(X) < 0.5, 0.0, X)
    sparse = csr_array(dense)

    @pytest.mark.parametrize("kernel", ["linear", "rbf"])
    def test_wide_targets(self, kernel):
        models = [MultiTaskRegressor(kernel=kernel, tol=1e-8).fit(inputs, Y) for inputs in (self.sparse, self.dense)]
        (one, one_std), (other, other_std) = (
            model.predict(inputs, return_std=True) for model, inputs in zip(models, (self.sparse, self.dense), strict=True)
        )
        assert np.allclose(one, other, atol=1e-8)
        assert np.allclose(one_std, other_std, atol=1e-8)
        assert np.isclose(models[0].score(self.sparse, Y), models[1].score(self.dense, Y))
        for model, inputs in zip(models, (self.sparse, self.dense), strict=True):
            model.add_task(inputs[:10], Y[:10, 0] + 1, name="new")
        assert np.allclose(models[0].predict(self.sparse), models[1].predict(self.dense), atol=1e-6)

    @pytest.mark.parametrize("make", [csr_array, csr_matrix], ids=["array", "matrix"])
    def test_searches_and_labels(self, make):
        one, other = (
            MultiTaskRegressorCV(alphas=[0.1, 0.01], common=None, cv=3, tol=1e-8, kernels=None).fit(inputs, Y)
            for inputs in (make(self.dense), self.dense)
        )
        assert np.allclose(one.cv_results_["mean_test_score"], other.cv_results_["mean_test_score"], atol=1e-6)
        assert np.allclose(one.coef_, other.coef_, atol=1e-6)
        one, other = (MultiTaskClassifier(tol=1e-8).fit(inputs, LABELS) for inputs in (make(self.dense), self.dense))
        assert np.allclose(one.predict_proba(make(self.dense)), other.predict_proba(self.dense), atol=1e-5)

    @pytest.mark.parametrize("kernel", ["linear", "rbf"])
    def test_long_tables_hold_their_tasks_as_numbers(self, kernel):
        Xs, ys = [self.sparse[:20], self.sparse[10:]], [Y[:20, 0], Y[10:, 1]]
        table, y = stack(Xs, ys)
        plain, _ = stack([part.toarray() for part in Xs], ys)
        assert isinstance(table, csr_array)
        assert np.array_equal(table.toarray(), plain)
        one, other = (
            MultiTaskRegressor(kernel=kernel, task_column=-1, tol=1e-12, solver="proximal").fit(inputs, y)
            for inputs in (table, plain)
        )
        assert one.tasks_.tolist() == [0.0, 1.0]
        for mine, theirs in zip(one.predict(table, return_std=True), other.predict(plain, return_std=True), strict=True):
            assert np.allclose(mine, theirs, atol=1e-7)
        assert np.isclose(one.score(table, y), other.score(plain, y))
        parts, _ = unstack(table, y)
        assert np.array_equal(parts[1].toarray(), self.dense[10:])
        search = MultiTaskRegressorCV(kernel=kernel, task_column=-1, alphas=[0.1], cv=3).fit(table, y)
        assert search.predict(table).shape == y.shape
        assert one.add_task(self.sparse[:9], Y[:9, 2], name=2.0).tasks_.tolist() == [0.0, 1.0, 2.0]

    def test_names_are_not_numbers(self):
        with pytest.raises(ValueError, match="name the tasks by numbers, not 'a'"):
            stack({"a": self.sparse}, {"a": Y[:, 0]})


# --- a loss for each task ---------------------------------------------------------------------------------------------------


class TestLossesByTask:
    frame = pd.DataFrame({"churned": LABELS[:, 0], "spend": Y[:, 1], "risk": np.where(LABELS[:, 2] == "yes", 1, -1)})
    loss = {"spend": "squared", "churned": "logistic", "risk": losses.Hinge()}  # noqa: RUF012 (nobody changes it)

    def test_wide_frames(self):
        model = MultiTaskRegressor("frobenius", loss=self.loss).fit(X, self.frame)
        assert model.certificate_.optimal
        assert [None if c is None else c.tolist() for c in model.classes_] == [["no", "yes"], None, [-1, 1]]
        guess = model.predict(X)
        assert guess.dtype == float
        scores = model.score_per_task(X, self.frame)
        assert scores["churned"] == np.mean((guess[:, 0] > 0) == (self.frame["churned"] == "yes"))
        assert scores["risk"] == np.mean(np.sign(guess[:, 2]) == self.frame["risk"])
        assert np.isclose(scores["spend"], 1 - np.mean((guess[:, 1] - Y[:, 1]) ** 2) / np.var(Y[:, 1]))
        assert np.isclose(model.score(X, self.frame), np.mean([*scores.values()]))

    @pytest.mark.parametrize("standardize", [False, True])
    def test_independent_tasks_are_separate_fits(self, standardize):
        """A logistic or hinge task is the classifier's, a squared one the regressor's."""
        options = {"alpha": 0.05, "tol": 1e-10}
        model = MultiTaskRegressor("independent", loss=self.loss, standardize_targets=standardize, **options).fit(X, self.frame)
        churned = MultiTaskClassifier("independent", loss="logistic", **options).fit(X, self.frame["churned"])
        spend = MultiTaskRegressor("independent", standardize_targets=standardize, **options).fit(X, self.frame["spend"])
        risk = MultiTaskClassifier("independent", loss="hinge", **options).fit(X, self.frame["risk"])
        alone = np.column_stack([churned.decision_function(X), spend.predict(X), risk.decision_function(X)])
        assert np.allclose(model.predict(X), alone, atol=1e-4)

    def test_missing_labels_and_numbers(self):
        gone = self.frame.astype({"churned": object, "risk": float})
        gone.loc[::5, "churned"] = None
        gone.loc[1::5, "spend"] = np.nan
        gone.loc[2::5, "risk"] = np.nan
        model = MultiTaskRegressor("frobenius", loss=self.loss).fit(X, gone)
        weight = 1.0 - gone.isna().to_numpy()
        weighed = MultiTaskRegressor("frobenius", loss=self.loss).fit(X, self.frame, sample_weight=weight)
        assert np.allclose(model.coef_, weighed.coef_, atol=1e-6)
        assert model.score(X, gone) > 0.8

    def test_plain_arrays(self):
        table = np.column_stack([np.where(LABELS[:, 0] == "yes", 1.0, -1.0), Y[:, 1]])
        model = MultiTaskRegressor("frobenius", loss={0: "logistic", 1: "squared"}).fit(X, table)
        twin = MultiTaskRegressor("frobenius", loss={"churned": "logistic", "spend": "squared"}).fit(
            X, self.frame[["churned", "spend"]]
        )
        assert np.allclose(model.coef_, twin.coef_)

    def test_long_tables(self):
        inputs, _ = stack({"churned": X, "spend": X}, {"churned": Y[:, 0], "spend": Y[:, 1]})
        y = np.concatenate([LABELS[:, 0].astype(object), Y[:, 1]])
        loss = {"churned": "logistic", "spend": "squared"}
        model = MultiTaskRegressor("frobenius", loss=loss, task_column=-1).fit(inputs, y)
        twin = MultiTaskRegressor("frobenius", loss=loss).fit(X, self.frame[["churned", "spend"]])
        assert np.allclose(model.coef_, twin.coef_, atol=1e-6)
        assert np.isclose(model.score(inputs, y), twin.score(X, self.frame[["churned", "spend"]]))
        search = MultiTaskRegressorCV("frobenius", loss=loss, task_column=-1, alphas=[0.1, 0.01], cv=3, kernels=None).fit(
            inputs, y
        )
        assert search.score(inputs, y) > 0.8

    @pytest.mark.parametrize(
        ("loss", "words"),
        [
            ({"churned": "logistic", "spend": "squared"}, "loss has no entry for task 'risk'"),
            ({**loss, "age": "squared"}, "loss names 'age', which is not a task"),
            ({**loss, "churned": "squared"}, "y of task 'churned': could not convert string to float"),
            ({**loss, "spend": "hinge"}, "task 'spend' needs exactly 2 classes|Unknown label type"),
            ({**loss, "spend": "squares"}, "'squares'"),
        ],
        ids=["missing", "unknown", "words as numbers", "numbers as labels", "no such loss"],
    )
    def test_losses_that_do_not_fit_the_tasks(self, loss, words):
        with pytest.raises(ValueError, match=words):
            MultiTaskRegressor(loss=loss).fit(X, self.frame)

    def test_what_needs_one_loss(self):
        with pytest.raises(ValueError, match="a classifier has one loss"):
            MultiTaskClassifier(loss=self.loss).fit(X, self.frame)
        model = MultiTaskRegressor("frobenius", loss=self.loss).fit(X, self.frame)
        with pytest.raises(ValueError, match="cannot know the loss of a new task"):
            model.add_task(X, Y[:, 0], name="new")
        with pytest.raises(AttributeError, match="squared loss for all tasks"):
            model.predict(X, return_std=True)


# --- the classes of one target ------------------------------------------------------------------------------------------------


class TestSimplex:
    y = np.array(["red", "green", "blue", "grey"])[np.argmax(np.column_stack([Y, X[:, 0]]) + rng.normal(size=(40, 4)), axis=1)]

    @pytest.mark.parametrize("loss", ["logistic", "squared", "squared_hinge"])
    @pytest.mark.parametrize("structure", ["independent", "trace", "frobenius", "unit_trace"])
    def test_the_functions_of_the_classes_add_up_to_zero(self, structure, loss):
        model = MultiTaskClassifier(structure, coding="simplex", loss=loss).fit(X, self.y)
        assert model.certificate_.optimal
        assert np.abs(model.coef_.sum(axis=0)).max() < 1e-8 * np.abs(model.coef_).max()
        assert np.abs(model.structure_.sum(axis=0)).max() < 1e-8 * np.abs(model.structure_).max()
        assert model.predict(X).shape == (40,)
        assert model.score(X, self.y) > 0.5
        dual = MultiTaskClassifier(structure, coding="simplex", loss=loss, kernel="rbf", alpha=1e-3).fit(X, self.y).dual_coef_
        assert np.abs(dual.sum(axis=1)).max() < 1e-6 * np.abs(dual).max()

    @pytest.mark.parametrize("structure", ["independent", "trace"])
    def test_least_squares_on_the_corners_of_a_simplex(self, structure):
        """The corners are the classes' unit vectors less their mean, in any basis of what they span; here, from a QR."""
        K, alpha, classes = 4, 0.05, np.unique(self.y)
        basis = np.linalg.qr(np.column_stack([np.ones(K), np.eye(K)[:, :-1]]))[0][:, 1:]  # K x (K - 1), orthogonal to 1
        corners = 2 * basis[np.searchsorted(classes, self.y)]  # -1/+1 codes less their mean are twice the centred unit vectors
        if structure == "independent":
            inputs = X - X.mean(axis=0)
            V = np.linalg.solve(inputs.T @ inputs / 40 + alpha * np.eye(4), inputs.T @ corners / 40)
        else:
            W, b = cp.Variable((4, K - 1)), cp.Variable((1, K - 1))
            fit = cp.sum_squares(corners - X @ W - np.ones((40, 1)) @ b) / 40
            cp.Problem(cp.Minimize(fit + 2 * np.sqrt(alpha) * cp.normNuc(W))).solve(
                solver="CLARABEL", tol_gap_rel=1e-11, tol_gap_abs=1e-11
            )
            V = W.value
        model = MultiTaskClassifier(structure, coding="simplex", loss="squared", alpha=alpha, tol=1e-11).fit(X, self.y)
        assert np.allclose(model.coef_, basis @ V.T, atol=2e-5)
        scores = (X @ V + (corners - X @ V).mean(axis=0)) @ basis.T
        assert np.array_equal(model.predict(X), classes[np.argmax(scores, axis=1)])

    def test_two_classes_are_one_task(self):
        simplex, plain = (MultiTaskClassifier(coding=coding).fit(X, LABELS[:, 0]) for coding in ("simplex", "one_vs_rest"))
        assert np.array_equal(simplex.coef_, plain.coef_)

    def test_it_needs_a_structure_that_treats_classes_alike(self):
        with pytest.raises(ValueError, match="simplex coding needs a spectral structure"):
            MultiTaskClassifier("clusters", coding="simplex").fit(X, self.y)
        with pytest.raises(ValueError, match="'coding' parameter"):
            MultiTaskClassifier(coding="binary").fit(X, self.y)


def test_one_against_the_rest_is_one_binary_task_for_each_class():
    y = TestSimplex.y
    model = MultiTaskClassifier("independent", tol=1e-9).fit(X, y)
    assert model.tasks_.tolist() == model.classes_.tolist() == sorted(set(y))
    for t, name in enumerate(model.classes_):
        alone = MultiTaskClassifier("independent", tol=1e-9).fit(X, y == name)
        assert np.allclose(model.coef_[t], alone.coef_[0], atol=1e-4)
    p = 1 / (1 + np.exp(-model.decision_function(X)))
    assert np.allclose(model.predict_proba(X), p / p.sum(axis=1, keepdims=True))
    assert model.score_per_task(X, y) == {0: np.mean(model.predict(X) == y)}


def test_multi_label_indicators():
    """A matrix of zeros and ones is one binary task for each label; macro accuracy, not subset accuracy, is the score."""
    indicator = (np.median(Y, axis=0) < Y).astype(int)
    model = MultiTaskClassifier().fit(X, indicator)
    guess = model.predict(X)
    assert guess.dtype == indicator.dtype
    assert model.classes_.tolist() == [0, 1]
    assert np.isclose(model.score(X, indicator), np.mean(guess == indicator))
    assert np.array_equal(model.predict_proba(X) > 0.5, guess == 1)
    assert MultiTaskClassifierCV(alphas=[0.1, 0.01], cv=3, kernels=None).fit(X, indicator).predict(X).shape == indicator.shape


def test_shapes_of_probabilities():
    """As in scikit-learn for one target; of the second class, for many."""
    assert MultiTaskClassifier().fit(X, LABELS[:, 0]).predict_proba(X).shape == (40, 2)
    assert MultiTaskClassifier().fit(X, TestSimplex.y).predict_proba(X).shape == (40, 4)
    assert MultiTaskClassifier().fit(X, LABELS).predict_proba(X).shape == (40, 3)
    frame, y = long_frame()
    p = MultiTaskClassifier(task_column="shop").fit(frame, y > 1).predict_proba(frame)
    assert p.shape == (len(y), 2)
    with pytest.raises(AttributeError, match="predict_proba"):
        MultiTaskClassifier(loss="hinge").predict_proba  # noqa: B018


# --- units, scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_standardized_targets_are_scaled_by_hand(kernel):
    gone = np.where(rng.random(Y.shape) < 0.2, np.nan, Y) * [1.0, 100.0, 0.01] + [0.0, 5.0, -3.0]
    mean, spread = np.nanmean(gone, axis=0), np.nanstd(gone, axis=0)
    model = MultiTaskRegressor(kernel=kernel, standardize_targets=True, tol=1e-8).fit(X, gone)
    twin = MultiTaskRegressor(kernel=kernel, tol=1e-8).fit(X, (gone - mean) / spread)
    assert np.allclose(model.predict(X), twin.predict(X) * spread + mean)
    assert np.allclose(model.structure_, twin.structure_)
    assert np.isclose(model.certificate_.primal, twin.certificate_.primal)
    assert np.allclose(model.predict(X, return_std=True)[1], twin.predict(X, return_std=True)[1] * spread)
    assert np.allclose(model.noise_, twin.noise_ * spread)
    flat = np.column_stack([Y[:, 0], np.full(40, 7.0)])
    assert np.allclose(MultiTaskRegressor(standardize_targets=True).fit(X, flat).predict(X)[:, 1], 7.0)


def test_standardized_targets_with_weights_and_long_tables():
    frame, y = long_frame()
    weight = rng.integers(1, 3, size=len(y))
    model = MultiTaskRegressor(task_column="shop", standardize_targets=True, tol=1e-9).fit(frame, y, sample_weight=weight)
    again = np.repeat(np.arange(len(y)), weight)
    twin = MultiTaskRegressor(task_column="shop", standardize_targets=True, tol=1e-9).fit(frame.iloc[again], y[again])
    assert np.allclose(model.predict(frame), twin.predict(frame), atol=1e-4)


def test_scores_of_each_task_by_name():
    frame, y = long_frame()
    model = MultiTaskRegressor(task_column="shop").fit(frame, y)
    scores = model.score_per_task(frame, y)
    guess = model.predict(frame)
    for name in ("task 0", "task 1", "task 2"):
        mine = (frame["shop"] == name).to_numpy()
        assert np.isclose(scores[name], 1 - np.mean((y - guess)[mine] ** 2) / np.var(y[mine]))
    assert np.isclose(model.score(frame, y), np.mean([*scores.values()]))
    some = frame["shop"] != "task 1"
    assert set(model.score_per_task(frame[some], y[some])) == {"task 0", "task 2"}
    wide = MultiTaskRegressor().fit(X, pd.DataFrame(Y, columns=["u", "v", "w"]))
    assert set(wide.score_per_task(X, np.where(np.arange(3) == 1, np.nan, Y))) == {"u", "w"}
    with pytest.raises(ValueError, match="nothing to score"):
        wide.score(X, np.full(Y.shape, np.nan))


def test_a_model_of_one_task_may_grow():
    """A 1-D fit that was given a second task has two columns."""
    model = MultiTaskRegressor("independent", tol=1e-9).fit(X, Y[:, 0]).add_task(X, Y[:, 1], name=1)
    assert np.allclose(model.predict(X), MultiTaskRegressor("independent", tol=1e-9).fit(X, Y[:, :2]).predict(X), atol=1e-5)
    assert np.isclose(model.score(X, Y[:, :2]), np.mean([*model.score_per_task(X, Y[:, :2]).values()]))
    words = MultiTaskClassifier().fit(X, LABELS[:, 0]).add_task(X, LABELS[:, 1], name=1)
    assert words.predict(X).shape == words.predict_proba(X).shape == (40, 2)


def test_a_task_that_cannot_be_added_changes_nothing():
    own = LABELS.astype(object)
    own[:, 1] = np.where(LABELS[:, 1] == "yes", 5, 7)
    model = MultiTaskClassifier("shared_mean").fit(X, own)
    with pytest.raises(ValueError, match="relation"):
        model.add_task(X, LABELS[:, 0], name="new", relation=[1.0])
    assert len(model.classes_) == 3
    assert model.add_task(X, np.where(LABELS[:, 0] == "yes", "up", "down"), name="new").classes_[3].tolist() == ["down", "up"]
    assert set(model.predict(X)[:, 3]) == {"down", "up"}
    with pytest.raises(ValueError, match='which kernel="precomputed" does not give'):
        MultiTaskRegressor("shared_mean", kernel="precomputed").fit(X @ X.T, Y).add_task(X[:9] @ X.T, Y[:9, 0], name="new")


# --- bad input that names the task -------------------------------------------------------------------------------------------


def test_errors_name_the_task():
    frame, y = long_frame()
    labels = np.where((frame["shop"] == "task 1") | (y > 1), "high", "low")
    with pytest.raises(ValueError, match="task 'task 1' has one class only"):
        MultiTaskClassifier(task_column="shop").fit(frame, labels)
    with pytest.raises(ValueError, match="task 'task 2' has no observation"):
        MultiTaskRegressor(task_column="shop").fit(frame, y, sample_weight=(frame["shop"] != "task 2").astype(float))
    one_class = np.where(LABELS[:, 1] == "yes", 1.0, 0.0)
    words = pd.DataFrame(LABELS, columns=["u", "v", "w"])
    with pytest.raises(ValueError, match="task 'v' has one class only"):
        MultiTaskClassifier().fit(X, words, sample_weight=one_class)
    with pytest.raises(ValueError, match="task 'v' needs exactly 2 classes, got 1 class"):
        MultiTaskClassifier().fit(X, words.assign(v="yes"))
    with pytest.raises(ValueError, match=r"same two labels for all tasks.* got 3 classes"):
        MultiTaskClassifier(task_column="shop").fit(frame, np.arange(len(y)) % 3)
    with pytest.raises(ValueError, match=r"now missing:\n- shop"):
        MultiTaskRegressor(task_column="shop").fit(frame, y).predict(frame.drop(columns="shop"))
    with pytest.raises(ValueError, match="zero"):
        MultiTaskClassifier().fit(X, LABELS, sample_weight=np.zeros(40))
    with pytest.raises(ValueError, match="task_weight names 'x', which is not a task"):
        MultiTaskRegressor(task_weight={"x": 1.0}).fit(X, words == "yes")


def test_a_masked_array_marks_what_is_missing():
    gone = np.zeros(Y.shape, bool)
    gone[::3, 1] = True
    one = MultiTaskRegressor(tol=1e-9).fit(X, np.ma.masked_array(np.where(gone, 1e6, Y), gone))
    other = MultiTaskRegressor(tol=1e-9).fit(X, np.where(gone, np.nan, Y))
    assert np.array_equal(one.coef_, other.coef_)


def test_the_noise_level_may_be_given_later():
    model = MultiTaskRegressor().fit(X, Y)
    estimated = model.predict(X, return_std=True)[1]
    doubled = model.set_params(noise=2 * float(np.sqrt(np.mean(model.noise_**2)))).predict(X, return_std=True)[1]
    assert np.allclose(doubled, 2 * estimated)
    with pytest.raises(NotFittedError):
        MultiTaskRegressor().noise_  # noqa: B018


def test_task_graphs_know_tasks_by_name():
    frame = pd.DataFrame(Y, columns=["north", "south", "west"])
    edges = [("north", "west", 2.0)]
    matrix = np.zeros((3, 3))
    matrix[0, 2] = matrix[2, 0] = 2.0
    by_name = MultiTaskRegressor(structures.TaskGraph(edges), tol=1e-9).fit(X, frame)
    by_place = MultiTaskRegressor(structures.TaskGraph([(0, 2, 2.0)]), tol=1e-9).fit(X, frame)
    given = MultiTaskRegressor(structures.TaskGraph(matrix), tol=1e-9).fit(X, Y)
    assert np.allclose(by_name.coef_, given.coef_)
    assert np.allclose(by_place.coef_, given.coef_)
    with pytest.raises(ValueError, match="node 'east', which is not a task"):
        MultiTaskRegressor(structures.TaskGraph([("north", "east")])).fit(X, frame)


def test_warm_start_across_kernels():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 5)), rng.normal(size=(30, 4))
    model = MultiTaskRegressor(warm_start=True).fit(X, Y)
    model.set_params(kernel="rbf").fit(X, Y)
    assert model.set_params(kernel="linear").fit(X, Y).coef_.shape == (4, 5)


def test_logarithms_of_probabilities():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=list("pqr"))
    y = (frame.p > 0).astype(int)
    model = MultiTaskClassifier().fit(frame, y)
    assert np.allclose(np.exp(model.predict_log_proba(frame)), model.predict_proba(frame))
    assert not hasattr(MultiTaskClassifier(loss="hinge").fit(frame, y), "predict_log_proba")
