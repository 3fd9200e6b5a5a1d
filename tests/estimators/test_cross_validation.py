"""Cross-validated estimators: what ``GridSearchCV`` finds on the same folds, for every layout; folds; the transfer ledger."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone, is_regressor
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    PredefinedSplit,
    ShuffleSplit,
    TimeSeriesSplit,
)

import taskloom
from taskloom import (
    MultiTaskClassifier,
    MultiTaskRegressor,
    alpha_max,
    compare_to_single_task,
    metrics,
    stack,
    structures,
)
from taskloom.estimators.cross_validation.folds_fit import N_SINGLE_TASK_ALPHAS
from taskloom.tables.task_folds import task_folds

# The searches of this file are without a common part; those with one are in test_sum_search.py.
MultiTaskRegressorCV = partial(taskloom.MultiTaskRegressorCV, common=None)
MultiTaskClassifierCV = partial(taskloom.MultiTaskClassifierCV, common=None)

rng = np.random.default_rng(0)
n, d, T = 36, 4, 3
X = rng.normal(size=(n, d))
Y = X @ rng.normal(size=(d, 1)) @ np.array([[1.0, -1.5, 2.0]]) + 0.7 * rng.normal(size=(n, T)) + 1.0
GONE = np.where(rng.random(Y.shape) < 0.25, np.nan, Y)
LABELS = np.where(np.median(Y, axis=0) < Y, "yes", "no")
CLASSES = np.argmax(Y + rng.normal(size=Y.shape), axis=1)
LONG, LONG_Y = stack({"a": X[:12], "b": X[8:26], "c": X[20:]}, {"a": Y[:12, 0], "b": Y[8:26, 1], "c": Y[20:, 2]})
FOLDS = KFold(3, shuffle=True, random_state=0)
ALPHAS = [1.0, 0.1, 0.01]


# --- the same as a grid search ------------------------------------------------------------------------------------------

TOL = 1e-10
# A relative gap of TOL leaves the squared loss with predictions within sqrt(TOL) of the best, in units of the targets' spread;
# both searches may be that far off, on either side, and R2 is twice as sensitive as the predictions.
CLOSE = 10 * np.sqrt(TOL)
AUC = metrics.scorer(metrics.macro_auc, response="decision_function")
NMSE = metrics.scorer(metrics.macro_nmse, greater_is_better=False)


def own_score(model, X, y, sample_weight=None):
    """``score``, which a grid search takes by default; a search takes the share of the loss that is explained."""
    return model.score(X, y, sample_weight)


SEARCHES = {
    "wide": (MultiTaskRegressor(), X, Y, None),
    "missing": (MultiTaskRegressor("frobenius"), X, GONE, None),
    "rbf": (MultiTaskRegressor(kernel="rbf"), X, Y, None),
    "rbf missing": (MultiTaskRegressor("shared_mean", kernel="rbf"), X, GONE, None),
    "long": (MultiTaskRegressor("frobenius", task_column=-1), LONG, LONG_Y, None),
    "long rbf": (MultiTaskRegressor(kernel="rbf", task_column=-1), LONG, LONG_Y, None),
    "one task": (MultiTaskRegressor("independent"), X, Y[:, 0], None),
    "more columns than rows": (MultiTaskRegressor("frobenius"), np.hstack([X, X**2, X**3, np.sin(3 * X)] * 3), Y, None),
    "ridge, sizes, units": (
        MultiTaskRegressor(ridge=0.1, task_weight="size", standardize_targets=True),
        X,
        GONE * [1, 9, 1],
        None,
    ),
    "no intercept": (MultiTaskRegressor(fit_intercept=False), X, Y, None),
    "huber": (MultiTaskRegressor("independent", loss="huber"), X, Y, None),
    "precomputed": (MultiTaskRegressor("frobenius", kernel="precomputed"), X @ X.T, Y, None),
    "string": (MultiTaskRegressor(), X, Y, "neg_mean_squared_error"),
    "string, long": (MultiTaskRegressor("frobenius", task_column=-1), LONG, LONG_Y, "r2"),
    "our scorer": (MultiTaskRegressor(), X, GONE, NMSE),
    "our scorer, long": (MultiTaskRegressor("frobenius", task_column=-1), LONG, LONG_Y, NMSE),
    "labels": (MultiTaskClassifier("frobenius"), X, LABELS, None),
    "labels, decisions": (MultiTaskClassifier("frobenius", kernel="rbf"), X, LABELS, AUC),
    "labels, long": (MultiTaskClassifier("frobenius", loss="squared", task_column=-1), LONG, LONG_Y > 1, None),
    "classes": (MultiTaskClassifier("frobenius"), X, CLASSES, None),
    "classes, probabilities": (MultiTaskClassifier("frobenius"), X, CLASSES, "neg_log_loss"),
    "simplex": (MultiTaskClassifier("frobenius", coding="simplex", loss="squared"), X, CLASSES, "accuracy"),
    "losses by task": (MultiTaskRegressor("frobenius", loss={0: "squared", 1: "huber", 2: "squared"}), X, Y, None),
}


def searched(plain, **options):
    """The cross-validated twin of a plain estimator."""
    cls = MultiTaskRegressorCV if isinstance(plain, MultiTaskRegressor) else MultiTaskClassifierCV
    kept = {
        name: value for name, value in plain.get_params(deep=False).items() if name not in ("alpha", "warm_start", "device")
    }
    return cls(**{**kept, **options})


@pytest.mark.parametrize("case", [*SEARCHES])
def test_it_finds_what_a_grid_search_finds(case):
    plain, inputs, targets, scoring = SEARCHES[case]
    plain, scoring = clone(plain).set_params(tol=TOL), scoring or own_score
    ours = searched(plain, alphas=ALPHAS, cv=FOLDS, scoring=scoring).fit(inputs, targets)
    grid = GridSearchCV(plain, {"alpha": ALPHAS}, cv=FOLDS, scoring=scoring).fit(inputs, targets)
    for column in ("split0_test_score", "split2_test_score", "mean_test_score", "std_test_score"):
        assert np.allclose(ours.cv_results_[column], grid.cv_results_[column], atol=CLOSE), column
    assert ours.cv_results_["param_alpha"].tolist() == grid.cv_results_["param_alpha"].tolist() == ALPHAS
    assert ours.alpha_ == grid.best_params_["alpha"]
    assert np.isclose(ours.best_score_, grid.best_score_, atol=CLOSE)
    if isinstance(plain, MultiTaskRegressor):
        assert np.allclose(ours.predict(inputs), grid.predict(inputs), atol=1e-3)
    else:
        assert np.allclose(ours.decision_function(inputs), grid.decision_function(inputs), atol=1e-3)
    assert ours.cv_results_["max_relative_gap"].max() <= TOL


@pytest.mark.parametrize(
    ("cv", "groups"),
    [
        (GroupKFold(3), np.arange(n) // 4),
        (TimeSeriesSplit(3), None),
        (ShuffleSplit(2, random_state=0), None),
        (PredefinedSplit(np.where(np.arange(n) < 12, 0, -1)), None),
        ([(np.arange(12, n), np.arange(12)), (np.arange(20), np.arange(20, n))], None),
    ],
    ids=["grouped", "time-ordered", "shuffled", "predefined", "iterable"],
)
def test_any_splitter(cv, groups):
    ours = MultiTaskRegressorCV(alphas=ALPHAS, cv=cv, tol=TOL, scoring=own_score, kernels=None).fit(X, Y, groups=groups)
    grid = GridSearchCV(MultiTaskRegressor(tol=TOL), {"alpha": ALPHAS}, cv=cv).fit(X, Y, groups=groups)
    assert np.allclose(ours.cv_results_["mean_test_score"], grid.cv_results_["mean_test_score"], atol=CLOSE)
    assert ours.n_splits_ == grid.n_splits_


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_the_score_by_default_is_the_share_of_the_loss_of_the_best_constant(wide, weighted):
    """Of each task of a wide table, and of all rows of a long one."""
    plain = MultiTaskRegressor("frobenius", task_column=None if wide else -1, tol=TOL)
    inputs, targets = (X, GONE * [1, 1, 100]) if wide else (LONG, LONG_Y)
    weight = np.random.default_rng(0).uniform(0.5, 2, size=len(targets)) if weighted else np.ones(len(targets))
    given = weight if weighted else None
    ours = searched(plain, alphas=ALPHAS, cv=FOLDS).fit(inputs, targets, sample_weight=given)
    columns = targets.T if wide else targets[None]
    centres = [np.average(y[s], weights=weight[s]) for y in columns for s in [~np.isnan(y)]]
    pairs = zip(columns, centres, strict=True)
    null = [np.average((y[s] - c) ** 2, weights=weight[s]) for y, c in pairs for s in [~np.isnan(y)]]
    scores = []
    for train, test in FOLDS.split(inputs):
        fitted = clone(plain).set_params(alpha=ALPHAS[1])
        fitted.fit(inputs[train], targets[train], sample_weight=None if given is None else weight[train])
        values = np.atleast_2d(fitted.predict(inputs[test]).T)
        each = []
        for y, z, loss in zip(columns[:, test], values, null, strict=True):
            s = ~np.isnan(y)
            each.append(1 - np.average((y[s] - z[s]) ** 2, weights=weight[test][s]) / loss)
        scores.append(np.mean(each))
    assert np.isclose(ours.cv_results_["mean_test_score"][1], np.mean(scores), atol=CLOSE)


def test_folds_of_one_row_of_a_task_have_a_score_by_default():
    found = MultiTaskRegressorCV(alphas=ALPHAS, cv=n, kernels=None).fit(X, Y)
    assert np.isfinite(found.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize("scoring", [None, "steady"])
def test_a_task_whose_targets_hardly_differ_does_not_decide(scoring):
    """A variance that is rounding, or tiny by chance, in one task of a long table."""
    flat = np.where(LONG[:, -1] == "a", 0.1 + 0.2, LONG_Y)
    for targets in (flat, flat + 1e-8 * np.random.default_rng(0).normal(size=len(flat))):
        found = MultiTaskRegressorCV("frobenius", task_column=-1, alphas=ALPHAS, cv=FOLDS, scoring=scoring, kernels=None).fit(
            LONG, targets
        )
        assert (np.abs(found.cv_results_["mean_test_score"]) < 1e4).all()
    wide = np.column_stack([Y[:, :2], np.full(n, 0.1 + 0.2)])
    found = MultiTaskRegressorCV("frobenius", alphas=ALPHAS, cv=FOLDS, scoring=scoring, kernels=None).fit(X, wide)
    assert (np.abs(found.cv_results_["mean_test_score"]) < 10).all()


def test_a_generator_of_splits():
    listed = list(FOLDS.split(X))
    ours = MultiTaskRegressorCV(alphas=2, cv=(split for split in listed), kernels=None).fit(X, Y)
    assert np.array_equal(
        ours.cv_results_["mean_test_score"],
        MultiTaskRegressorCV(alphas=2, cv=listed, kernels=None).fit(X, Y).cv_results_["mean_test_score"],
    )


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("cv", [LeaveOneGroupOut(), GroupKFold(2)], ids=["one task out", "one or two tasks out"])
def test_testing_on_tasks_that_are_new(kernel, cv):
    """Leave-task-out needs ``unseen="mean"``; folds may hold different numbers of tasks."""
    plain = MultiTaskRegressor("frobenius", kernel=kernel, task_column=-1, unseen="mean", tol=TOL)
    table = LONG.copy()
    ours = searched(plain, alphas=ALPHAS, cv=cv, scoring=own_score).fit(table, LONG_Y, groups=table[:, -1])
    grid = GridSearchCV(plain, {"alpha": ALPHAS}, cv=cv).fit(table, LONG_Y, groups=table[:, -1])
    assert np.allclose(ours.cv_results_["mean_test_score"], grid.cv_results_["mean_test_score"], atol=20 * CLOSE)
    assert ours.path_["spectrum"].shape == (3, 2)
    assert np.isfinite(ours.path_["spectrum"]).all()
    assert np.isfinite(ours.transfer_["gain"]).all()
    with pytest.raises(ValueError, match=r"training part of fold 0 has no observation of task '[abc]'.*unseen=\"mean\""):
        searched(plain, unseen="raise", cv=cv).fit(table, LONG_Y, groups=table[:, -1])


def test_weights_of_zero_are_rows_removed():
    """In the training parts and in the scores, with the folds given."""
    keep = np.arange(n) >= 5
    weight = keep * np.random.default_rng(0).uniform(0.5, 2, size=n)
    fold = np.arange(n) % 3
    whole = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(3)]
    part = [(np.flatnonzero(fold[keep] != k), np.flatnonzero(fold[keep] == k)) for k in range(3)]
    one = MultiTaskRegressorCV(alphas=ALPHAS, cv=whole, tol=TOL, kernels=None).fit(X, GONE, sample_weight=weight)
    other = MultiTaskRegressorCV(alphas=ALPHAS, cv=part, tol=TOL, kernels=None).fit(
        X[keep], GONE[keep], sample_weight=weight[keep]
    )
    assert np.allclose(one.cv_results_["mean_test_score"], other.cv_results_["mean_test_score"], atol=CLOSE)
    assert np.allclose(one.coef_, other.coef_, atol=1e-4)
    by_entry = np.where(np.isnan(GONE), 1.0, weight[:, None])
    assert np.allclose(
        MultiTaskRegressorCV(alphas=ALPHAS, cv=whole, tol=TOL, kernels=None).fit(X, GONE, sample_weight=by_entry).coef_,
        one.coef_,
        atol=1e-4,
    )


# --- what is searched, and what is kept -----------------------------------------------------------------------------------


def test_several_structures():
    candidates = ["trace", structures.SharedMean(2.0), "independent"]
    model = MultiTaskRegressorCV(structures=candidates, alphas=3, cv=3, tol=1e-8, kernels=None).fit(X, Y)
    each = [MultiTaskRegressorCV(F, alphas=3, cv=3, tol=1e-8, kernels=None).fit(X, Y) for F in candidates]
    scores = np.concatenate([one.cv_results_["mean_test_score"] for one in each])
    assert np.allclose(model.cv_results_["mean_test_score"], scores)
    winner = max(each, key=lambda one: one.best_score_)
    assert type(model.best_structure_) is type(winner.best_structure_)
    assert model.alpha_ == winner.alpha_
    assert np.allclose(model.structure_, winner.structure_)
    assert model.structure_.shape == (T, T)  # the matrix, not the candidate
    assert len(model.cv_results_["params"]) == 9
    assert [type(setting["structure"]).__name__ for setting in model.cv_results_["params"]][::3] == [
        "Trace",
        "SharedMean",
        "Independent",
    ]
    assert MultiTaskRegressorCV(structures="trace", alphas=3, cv=3, kernels=None).fit(X, Y).best_structure_.get_params() == {}


def test_the_columns_of_the_results():
    model = MultiTaskRegressorCV(structures=["trace", "frobenius"], alphas=3, cv=4, kernels=None).fit(X, Y)
    table = pd.DataFrame(model.cv_results_)
    assert {f"split{k}_test_score" for k in range(4)} <= set(table)
    splits = table[[f"split{k}_test_score" for k in range(4)]].to_numpy()
    assert np.allclose(table["mean_test_score"], splits.mean(axis=1))
    assert np.allclose(table["std_test_score"], splits.std(axis=1))
    assert table["rank_test_score"].min() == 1
    best = table["rank_test_score"].argmin()
    assert table["param_alpha"][best] == model.alpha_
    assert table["param_structure"][best] is model.best_structure_
    assert np.isclose(table["mean_test_score"][best], model.best_score_)
    assert model.best_index_ == best
    assert model.best_params_ == table["params"][best] == {"structure": model.best_structure_, "alpha": model.alpha_}
    assert (table["mean_fit_time"] > 0).all()
    assert (table["max_relative_gap"] <= model.tol).all()


def test_the_path_of_the_chosen_structure():
    model = MultiTaskRegressorCV("trace", alphas=4, cv=3, kernels=None).fit(X, Y)
    assert np.array_equal(model.path_["alphas"], model.cv_results_["param_alpha"])
    vanishing = alpha_max(MultiTaskRegressor("trace")._prepare(X, Y).problem)  # the smallest at which there is no structure
    assert np.allclose(model.path_["alphas"], np.geomspace(vanishing, 1e-5 * vanishing, 4))
    assert np.array_equal(model.path_["score"], model.cv_results_["mean_test_score"])
    assert np.allclose(model.path_["standard_error"], model.cv_results_["std_test_score"] / np.sqrt(2))
    assert model.path_["spectrum"].shape == (4, T)
    assert (np.diff(model.path_["spectrum"], axis=1) <= 1e-12).all()
    assert (model.path_["n_iter"] >= 1).all()


def test_given_strengths_may_come_in_any_order():
    one = MultiTaskRegressorCV(alphas=[0.01, 1.0, 0.1, 0.1], cv=3, kernels=None).fit(X, Y)
    assert one.cv_results_["param_alpha"].tolist() == ALPHAS
    assert one.alpha_ in ALPHAS
    assert MultiTaskRegressorCV(alphas=(0.05,), cv=2, kernels=None).fit(X, Y).alpha_ == 0.05
    assert np.allclose(
        MultiTaskRegressorCV(alphas=[0.1], cv=2, kernels=None).fit(X, Y).coef_, MultiTaskRegressor(alpha=0.1).fit(X, Y).coef_
    )


@pytest.mark.parametrize("case", ["missing", "long", "labels"])
def test_folds_in_threads_give_the_same(case):
    plain, inputs, targets, _ = SEARCHES[case]
    one, two = (searched(plain, alphas=3, cv=3, n_jobs=jobs).fit(inputs, targets) for jobs in (None, 2))
    assert np.array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    assert one.alpha_ == two.alpha_
    assert np.array_equal(one.coef_, two.coef_)


def test_a_second_fit_forgets_the_first():
    """Another kernel, other inputs, no more names: nothing of the last fit may answer for this one."""
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = MultiTaskRegressorCV(alphas=2, cv=2, fallback="single", kernels=None).fit(frame, Y)
    model.set_params(kernel="rbf", fallback=None).fit(X, Y)
    fresh = MultiTaskRegressorCV(kernel="rbf", alphas=2, cv=2).fit(X, Y)
    assert set(vars(model)) == set(vars(fresh))
    assert np.array_equal(model.predict(X), fresh.predict(X))
    model.add_task(X, Y[:, 0], name="new").fit(X, Y)
    assert model.predict(X, return_std=True)[1].shape == Y.shape


def test_it_is_a_complete_estimator_afterwards():
    model = MultiTaskRegressorCV(alphas=3, cv=3, kernels=None).fit(X, Y)
    plain = MultiTaskRegressor(alpha=model.alpha_).fit(X, Y)
    assert np.allclose(model.coef_, plain.coef_)
    assert np.allclose(model.predict(X, return_std=True)[1], plain.predict(X, return_std=True)[1])
    assert np.allclose(model.noise_, plain.noise_)
    assert np.allclose(model.add_task(X, Y[:, 0] + 1, name="new").coef_, plain.add_task(X, Y[:, 0] + 1, name="new").coef_)


# --- default folds --------------------------------------------------------------------------------------------------------


@st.composite
def observed(draw, layout):
    """Rows and strata of a table: each row in one stratum (long), in all tasks (wide), or in some of them (missing)."""
    n_splits, n_tasks, n_rows = draw(st.integers(2, 5)), draw(st.integers(1, 8)), draw(st.integers(6, 30))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    if layout == "long":
        row, task = np.arange(n_rows), random.integers(n_tasks, size=n_rows)
    else:
        seen = random.random((n_rows, n_tasks)) < (1.0 if layout == "wide" else draw(st.floats(0.05, 0.5)))
        row, task = np.nonzero(seen)
    classes = random.integers(2, size=row.size) if draw(st.booleans()) else 0
    return n_splits, n_rows, row, 2 * task + classes, draw(st.sampled_from([None, seed % 1000]))


def folds_of(case):
    n_splits, n_rows, row, stratum, seed = case
    try:
        return task_folds(n_rows, row, stratum, n_splits, seed)
    except ValueError as error:
        assert "too few" in str(error) or "at least as many rows" in str(error)  # noqa: PT017 (the only excuse)
        assume(False)


@pytest.mark.parametrize("layout", ["long", "wide", "missing"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_every_training_part_holds_every_task_and_class(layout, data):
    case = data.draw(observed(layout))
    splits = folds_of(case)
    n_splits, n_rows, row, stratum, _ = case
    assert len(splits) == n_splits
    tested = np.concatenate([test for _, test in splits])
    assert np.unique(tested).size == tested.size
    for train, test in splits:
        assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(n_rows))
        assert set(stratum[np.isin(row, train)]) == set(stratum)


@pytest.mark.parametrize(
    ("row", "stratum"),
    [
        ([0, 2, 0, 1, 2], [0, 0, 1, 1, 1]),  # as few observations as rows, but rows with two of them
        ([0, 1, 1, 2, 0, 2], [0, 0, 1, 1, 2, 2]),  # three pairs: no two folds split them all
    ],
    ids=["sparse", "no way out"],
)
def test_rows_of_many_tasks(row, stratum):
    for train, _ in task_folds(8, np.array(row), np.array(stratum), 2):
        assert set(np.array(stratum)[np.isin(row, train)]) == set(stratum)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_test_part_of_a_long_table_holds_every_task_and_class_evenly(data):
    case = data.draw(observed("long"))
    splits = folds_of(case)
    n_splits, _, row, stratum, _ = case
    for s in np.unique(stratum):
        counts = [np.isin(row[stratum == s], test).sum() for _, test in splits]
        size = (stratum == s).sum()
        assert max(counts) - min(counts) <= 1
        assert min(counts) == (size // n_splits if size > 1 else 0)


def test_the_default_folds_hold_every_task_and_class():
    """Five folds of tables with holes: every test part of every fold can score every task."""
    table = LONG.copy()
    for model, inputs, targets in (
        (MultiTaskRegressorCV(alphas=1, kernels=None), X, GONE),
        (MultiTaskRegressorCV(alphas=1, task_column=-1, kernels=None), table[::-1], LONG_Y[::-1]),
        (MultiTaskClassifierCV(alphas=1, kernels=None), X, LABELS),
    ):
        model.fit(inputs, targets)
        assert model.n_splits_ == 5
        assert np.isfinite(model.transfer_["standard_error"]).all()
    rare = np.array([0] * 28 + [1] * 5 + [2] * 3)  # three of one class: three folds each have one of them
    assert MultiTaskClassifierCV(alphas=1, cv=3, kernels=None).fit(X, rare).n_splits_ == 3


# --- the transfer ledger ----------------------------------------------------------------------------------------------------


def planted():
    """Seven noisy tasks that are alike, and one, the fourth, that is their opposite."""
    random = np.random.default_rng(3)
    w, inputs = random.normal(size=8), random.normal(size=(20, 8))
    wide = (inputs @ w)[:, None] + 3.0 * random.normal(size=(20, 8)) + 3.0
    wide[:, 3] = -inputs @ w + 0.1 * random.normal(size=20)
    return inputs, pd.DataFrame(wide, columns=["odd" if t == 3 else f"shop {t}" for t in range(8)])


@pytest.mark.parametrize(("kernel", "gamma"), [("linear", None), ("rbf", 0.02)])
def test_a_task_that_is_hurt_keeps_a_model_of_its_own(kernel, gamma):
    inputs, wide = planted()
    options = {"kernel": kernel, "gamma": gamma, "cv": 5, "tol": 1e-9}
    joint = MultiTaskRegressorCV(structures.SharedMean(100.0), alphas=[0.1, 0.01, 0.001], **options, kernels=None).fit(
        inputs, wide
    )
    ledger = pd.DataFrame(joint.transfer_).set_index("task")
    assert ledger.loc["odd", "gain"] < -3 * ledger.loc["odd", "standard_error"]
    assert (ledger.drop(index="odd")["gain"] > 0).all()
    assert np.allclose(ledger["gain"], ledger["together"] - ledger["alone"])
    assert (ledger["model"] == "together").all()
    model = clone(joint).set_params(fallback="single").fit(inputs, wide)
    assert model.fallback_tasks_.tolist() == ["odd"]
    assert "1 of 8 tasks fell back to a model of their own ('odd')" in model.certificate_.message
    assert dict(zip(model.transfer_["task"], model.transfer_["model"], strict=True))["odd"] == "alone"
    alone = MultiTaskRegressorCV("independent", alphas=N_SINGLE_TASK_ALPHAS, **options, kernels=None).fit(inputs, wide)
    assert np.allclose(model.predict(inputs)[:, 3], alone.predict(inputs)[:, 3], atol=1e-4)
    assert np.array_equal(np.delete(model.predict(inputs), 3, axis=1), np.delete(joint.predict(inputs), 3, axis=1))
    if kernel == "linear":
        assert np.allclose(model.coef_[3], alone.coef_[3], atol=1e-4)
    assert np.isclose(ledger.loc["odd", "alone"], alone.transfer_["together"][3])
    with pytest.raises(AttributeError, match="fallback gave some a model of their own"):
        model.predict(inputs, return_std=True)
    assert model.add_task(inputs, wide["odd"] + 1, name="odder").predict(inputs).shape == (20, 9)


def test_nothing_falls_back_where_everything_helps():
    inputs, wide = planted()
    model = MultiTaskRegressorCV(structures.SharedMean(100.0), alphas=[0.1, 0.01, 0.001], cv=5, fallback="single", kernels=None)
    model.fit(inputs, wide.drop(columns="odd"))
    assert (model.transfer_["gain"] > 0).all()
    assert model.fallback_tasks_.size == 0
    assert "fell back" not in model.certificate_.message


def test_without_standard_errors_nothing_falls_back():
    with pytest.raises(ValueError, match='cv="loo" has none'):
        MultiTaskRegressorCV("shared_mean", alphas=2, cv="loo", fallback="single", kernels=None).fit(X, Y)


def test_steady_scores_are_those_of_the_transfer_table():
    model = MultiTaskRegressorCV("trace", alphas=4, scoring="steady", cv=3, kernels=None).fit(X, Y)
    assert np.isclose(model.best_score_, np.mean(model.transfer_["together"]), atol=1e-9)


def _task_variances(inputs, targets, rows=slice(None)):
    """Of each task: columns of a wide table, or the values of the column that is last in a long one."""
    y = np.asarray(targets)[rows]
    if y.ndim == 2:
        return np.nanvar(y, axis=0)
    task = np.asarray(inputs)[rows][:, -1]
    return np.array([np.var(y[task == name]) for name in np.unique(np.asarray(inputs)[:, -1])])


def test_the_transfer_table_is_steady_where_folds_hold_two_rows_of_a_task():
    """The variance of two targets may be next to nothing; that of the task is not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12 * 10, 3))
    task = np.repeat(np.arange(12), 10)
    y = X @ [1.0, -1.0, 0.5] + rng.normal(size=120)
    model = MultiTaskRegressor(structures.SharedMean(20.0), alpha=0.05, task_column=-1)
    ledger = compare_to_single_task(model, np.column_stack([X, task]), y)
    assert ledger["together"].mean() > 0.3  # the mean over folds of each fold's own R2 is far below zero here
    assert ledger["gain"].mean() > 0


@pytest.mark.parametrize("case", ["missing", "long", "labels", "classes", "precomputed"])
def test_comparison_with_single_task_learning(case):
    plain, inputs, targets, _ = SEARCHES[case]
    plain = clone(plain).set_params(alpha=0.05, tol=1e-8)
    ledger = compare_to_single_task(plain, inputs, targets, cv=3)
    search = searched(plain, alphas=[0.05], cv=3)
    assert set(ledger) == {"task", "alone", "together", "gain", "standard_error"}
    other = compare_to_single_task(search, inputs, targets)
    kept = search.fit(inputs, targets).transfer_
    for column in ledger:
        if column == "task":
            assert ledger[column].tolist() == other[column].tolist() == kept[column].tolist()
        else:
            assert np.allclose(ledger[column], kept[column], atol=1e-6)
            assert np.array_equal(other[column], kept[column], equal_nan=True)
    folds = [test for _, test in FOLDS.split(inputs)]
    given = [(np.setdiff1d(np.arange(len(inputs)), test), test) for test in folds]
    again = compare_to_single_task(plain, inputs, targets, cv=given, n_jobs=2)
    scores = []
    for train, test in given:
        K = (train, test) if case == "precomputed" else None
        fit = clone(plain).fit(inputs[np.ix_(train, train)] if K else inputs[train], targets[train])
        there = inputs[np.ix_(test, train)] if K else inputs[test]
        own = list(fit.score_per_task(there, targets[test]).values())
        if is_regressor(plain):  # errors against the variance of all targets of a task, not of those in the fold
            own = 1 - (1 - np.array(own)) * _task_variances(inputs, targets, test) / _task_variances(inputs, targets)
        scores.append(own)
    assert np.allclose(again["together"], np.mean(scores, axis=0), atol=1e-3)


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match="needs a taskloom estimator, got KFold"):
        compare_to_single_task(KFold(), X, Y)
    with pytest.raises(ValueError, match="the tasks are the classes of one target"):
        MultiTaskClassifierCV(alphas=1, cv=2, fallback="single", kernels=None).fit(X, CLASSES)


# --- errors -----------------------------------------------------------------------------------------------------------------

NAMED = pd.DataFrame(Y, columns=["u", "v", "w"])
WORDS = pd.DataFrame(LABELS, columns=["u", "v", "w"])
ONE_CLASS = np.flatnonzero(LABELS[:, 1] == "yes")
HOLE = NAMED.assign(v=np.where(np.arange(n) < 12, NAMED["v"], np.nan))
BAD = [
    (MultiTaskRegressorCV(cv=[(np.arange(n), [])], kernels=None), NAMED, "test part of fold 0 is empty"),
    (
        MultiTaskRegressorCV(cv=[(np.arange(9), np.arange(9, n)), ([], np.arange(9))], kernels=None),
        NAMED,
        "training part of fold 1 is empty",
    ),
    (MultiTaskRegressorCV(cv=[], kernels=None), NAMED, "gave no folds"),
    (MultiTaskRegressorCV(cv=KFold(3), kernels=None), HOLE, "training part of fold 0 has no observation of task 'v'"),
    (
        MultiTaskClassifierCV(cv=[(ONE_CLASS, np.delete(np.arange(n), ONE_CLASS))], kernels=None),
        WORDS[["v"]].assign(w=WORDS["w"]),
        "training part of fold 0 has one class only of task 'v'",
    ),
    (MultiTaskRegressorCV(cv=n + 1, kernels=None), NAMED, f"cv={n + 1} folds need at least as many rows, got n_samples = {n}"),
    (MultiTaskRegressorCV(cv=1, kernels=None), NAMED, "at least 2 folds"),
    (MultiTaskRegressorCV(cv=n, alphas=1, scoring=own_score, kernels=None), NAMED, 'every score is NaN.*scoring="steady"'),
    (MultiTaskRegressorCV(cv="many", kernels=None), NAMED, "cv"),
    (
        MultiTaskRegressorCV(cv="loo", kernels=None),
        NAMED.assign(v=np.where(np.arange(n) == 3, 1.0, np.nan)),
        "one row .* of task 'v'",
    ),
    (MultiTaskRegressorCV(alphas=[1.0, -0.1], kernels=None), NAMED, "alphas must be a whole number or positive numbers"),
    (MultiTaskRegressorCV(alphas=[1.0, np.nan], kernels=None), NAMED, "alphas must be a whole number or positive numbers"),
    (MultiTaskRegressorCV(alphas=[], kernels=None), NAMED, "alphas must be a whole number or positive numbers"),
    (MultiTaskRegressorCV(alphas=0, kernels=None), NAMED, "'alphas' parameter"),
    (MultiTaskRegressorCV(alphas=0.1, kernels=None), NAMED, "'alphas' parameter"),
    (MultiTaskRegressorCV("trace", structures=["trace"], kernels=None), NAMED, "not both"),
    (MultiTaskRegressorCV(structures=[], kernels=None), NAMED, "structures is empty"),
    (MultiTaskRegressorCV(structures=["trace", "traces"], kernels=None), NAMED, "'traces'"),
    (MultiTaskRegressorCV("traces", kernels=None), NAMED, "'traces'"),
    (MultiTaskRegressorCV(scoring="r3", alphas=1, kernels=None), NAMED, "'r3'"),
    (MultiTaskRegressorCV(fallback="none", kernels=None), NAMED, "'fallback' parameter"),
    (MultiTaskRegressorCV(loss="hinges", kernels=None), NAMED, "'hinges'"),
    (MultiTaskRegressorCV(n_jobs="two", kernels=None), NAMED, "'n_jobs' parameter"),
    (MultiTaskRegressorCV(structures=["trace", structures.Fixed(np.eye(2))], kernels=None), NAMED, "describes 2 tasks"),
]


@pytest.mark.parametrize(("model", "targets", "words"), BAD, ids=[f"{k}: {case[2]}" for k, case in enumerate(BAD)])
def test_what_cannot_be_searched_is_refused(model, targets, words):
    with pytest.raises(ValueError, match=words):
        model.fit(X, targets)


def test_a_long_table_whose_folds_lose_a_task():
    """Rows sorted by task, cut into folds without shuffling."""
    with pytest.raises(ValueError, match="no observation of task 'a'"):
        MultiTaskRegressorCV(task_column=-1, cv=KFold(3), unseen="raise", kernels=None).fit(LONG, LONG_Y)
    by_the_mean = MultiTaskRegressorCV(task_column=-1, cv=KFold(3), alphas=2, scoring="neg_mean_squared_error", kernels=None)
    told = clone(by_the_mean).set_params(unseen="mean").fit(LONG, LONG_Y)
    assert by_the_mean.fit(LONG, LONG_Y).best_score_ == told.best_score_
    assert MultiTaskRegressorCV(task_column=-1, cv=3, alphas=2, kernels=None).fit(LONG, LONG_Y).n_splits_ == 3


def test_a_kernel_matrix_with_a_task_column_cannot_be_searched():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    K = np.column_stack([X @ X.T, np.arange(40) % 2])
    with pytest.raises(ValueError, match="cannot be split by rows and columns"):
        MultiTaskRegressorCV(kernel="precomputed", task_column=-1, alphas=2, cv=2).fit(K, y)
