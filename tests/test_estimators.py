"""The estimators: scikit-learn's own checks, the layouts, the fitted attributes, and errors that help."""

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import zoo
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from taskloom import MultiTaskClassifier, MultiTaskRegressor, losses, methods, structures

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 4))
Y = 2 * X @ rng.normal(size=(4, 1)) @ np.array([[1.0, -1.5, 2.0]]) + 0.2 * rng.normal(size=(40, 3)) + 1.0
LABELS = np.where(np.median(Y, axis=0) < Y, "yes", "no")


@parametrize_with_checks(
    [
        MultiTaskRegressor(),
        MultiTaskRegressor(structures.Frobenius(), kernel="rbf"),
        MultiTaskRegressor("independent", loss="huber"),
        MultiTaskClassifier(),
        MultiTaskClassifier("unit_trace", loss="squared_hinge"),
    ]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


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
        assert "auto picked" in c.message
        assert np.allclose(model.predict(X), X @ model.coef_.T + model.intercept_)
        assert model.score(X, Y) > 0.8

    def test_wide_frames_name_the_tasks(self):
        for frame in (pd.DataFrame(Y, columns=["u", "v", "w"]), pl.DataFrame(Y, schema=["u", "v", "w"])):
            model = MultiTaskRegressor().fit(pd.DataFrame(X, columns=list("abcd")), frame)
            assert model.tasks_.tolist() == ["u", "v", "w"]
            assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]

    def test_missing_targets_are_weights_of_zero(self):
        gone = Y.copy()
        gone[::3, 1] = np.nan
        weights = np.where(np.isnan(gone), 0.0, 1.0)
        one = MultiTaskRegressor(tol=1e-9).fit(X, gone)
        other = MultiTaskRegressor(tol=1e-9).fit(X, Y, sample_weight=weights)
        assert np.allclose(one.coef_, other.coef_, atol=1e-7)
        assert one.score(X, gone) > 0.8

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

    def test_long_tables_work_with_scikit_learn(self):
        frame, y = long_frame()
        search = GridSearchCV(MultiTaskRegressor(task_column="shop"), {"alpha": [1e-3, 1.0]}, cv=3).fit(frame, y)
        assert search.best_score_ > 0.7
        assert cross_val_predict(MultiTaskRegressor(task_column="shop"), frame, y, cv=3).shape == y.shape

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

    def test_weight_two_is_a_repeated_row(self):
        weights = np.ones(40)
        weights[:5] = 2
        one = MultiTaskRegressor(tol=1e-9).fit(X, Y, sample_weight=weights)
        other = MultiTaskRegressor(tol=1e-9).fit(np.vstack([X, X[:5]]), np.vstack([Y, Y[:5]]))
        assert np.allclose(one.coef_, other.coef_, atol=1e-7)

    def test_too_few_iterations_warn_with_the_gap_and_the_remedy(self):
        with pytest.warns(ConvergenceWarning, match="relative duality gap of .* Raise max_iter"):
            MultiTaskRegressor(tol=1e-12, max_iter=2).fit(X, Y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            MultiTaskRegressor().fit(X, Y)

    def test_warm_start_goes_on_from_the_last_fit(self):
        for kernel in ("linear", "rbf"):
            model = MultiTaskRegressor(kernel=kernel, warm_start=True, tol=1e-6).fit(X, Y)
            first = model.n_iter_
            assert model.fit(X, Y).n_iter_ < first
            assert model.fit(X[:, :3], Y[:, :2]).predict(X[:, :3]).shape == (40, 2)  # other shapes: it starts afresh

    def test_verbose_prints_the_gap(self, capsys):
        MultiTaskRegressor(verbose=1).fit(X, Y)
        assert "gap" in capsys.readouterr().out
        MultiTaskRegressor().fit(X, Y)
        assert capsys.readouterr().out == ""

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
        assert solver in model.certificate_.message.lower()

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
def test_losses_with_kinks_through_the_estimator(loss):
    model = (MultiTaskClassifier if loss.targets == "signs" else MultiTaskRegressor)(loss=loss, tol=1e-6)
    assert model.fit(X, LABELS if loss.targets == "signs" else Y).certificate_.optimal
