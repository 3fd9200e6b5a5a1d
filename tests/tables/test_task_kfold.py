"""``TaskKFold``: folds of long tables that leave out rows, whole tasks, or both."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_val_score

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, TaskKFold

rng = np.random.default_rng(0)
SIZES = [9, 1, 2, 30, 4, 11, 2, 5]
TASK = rng.permutation(np.repeat(np.arange(len(SIZES)), SIZES))
N = len(TASK)
X = np.column_stack([rng.normal(size=(N, 2)), TASK])
SHUFFLED = pytest.mark.parametrize("settings", [{}, {"shuffle": True, "random_state": 0}], ids=["in order", "shuffled"])


def times_tested(splits):
    """How often each row is tested; training and test parts hold every row together."""
    count = np.zeros(N, int)
    for train, test in splits:
        assert np.array_equal(np.sort(np.r_[train, test]), np.arange(N))
        count[test] += 1
    return count


# --- what is left out -------------------------------------------------------------------------------------------------------


@SHUFFLED
@pytest.mark.parametrize("n_splits", [2, 5])
def test_rows_are_tested_once_and_every_task_is_in_every_training_part(n_splits, settings):
    splits = list(TaskKFold(n_splits, task_column=2, **settings).split(X))
    assert len(splits) == n_splits
    assert np.array_equal(times_tested(splits), np.where(np.array(SIZES)[TASK] == 1, 0, 1))
    for train, test in splits:
        assert np.unique(TASK[train]).size == len(SIZES)
        assert np.ptp([N / n_splits, test.size]) <= len(SIZES)


def test_two_labels_are_in_every_training_part_of_their_task():
    y = np.where(np.arange(N) % 3 == 0, "yes", "no")
    for train, _ in TaskKFold(3, task_column=2).split(X, y):
        for t in np.unique(TASK):
            assert set(y[t == TASK]) == set(y[train][TASK[train] == t])


@SHUFFLED
@pytest.mark.parametrize("n_splits", [2, 5, 8])
def test_tasks_are_left_out_whole_and_rows_tested_once(n_splits, settings):
    splits = list(TaskKFold(n_splits, leave="tasks", task_column=2, **settings).split(X))
    assert (times_tested(splits) == 1).all()
    for train, test in splits:
        assert test.size
        assert not set(TASK[train]) & set(TASK[test])


@SHUFFLED
@pytest.mark.parametrize("n_splits", [3, 5])
def test_both_tests_a_row_with_and_without_its_task(n_splits, settings):
    splits = list(TaskKFold(n_splits, leave="both", task_column=2, **settings).split(X))
    new, seen = np.zeros(N, int), np.zeros(N, int)
    for train, test in splits:
        known = np.isin(TASK[test], TASK[train])
        np.add.at(seen, test[known], 1)
        np.add.at(new, test[~known], 1)
        assert known.any()
        assert not known.all()
    assert (new == 1).all()
    assert np.array_equal(seen, np.where(np.array(SIZES)[TASK] == 1, 0, 1))
    assert np.array_equal(times_tested(splits), new + seen)


def test_folds_of_tasks_have_similar_numbers_of_rows():
    sizes = [test.size for _, test in TaskKFold(2, leave="tasks", task_column=2).split(X)]
    assert np.ptp(sizes) <= 2
    shuffled = [test for _, test in TaskKFold(4, leave="tasks", task_column=2, shuffle=True).split(X)]
    assert {np.unique(TASK[test]).size for test in shuffled} == {2}  # with it, of tasks


@pytest.mark.parametrize("leave", ["rows", "tasks", "both"])
def test_the_seed_decides_and_groups_name_the_tasks_as_well(leave):
    def folds(seed, **settings):
        splitter = TaskKFold(3, leave=leave, shuffle=True, random_state=seed, **settings)
        return [test.tolist() for _, test in splitter.split(X, groups=[f"task {t}" for t in TASK])]

    assert folds(0) == folds(0, task_column=2) == folds(0)
    assert folds(0) != folds(1)
    in_order = TaskKFold(3, leave=leave, task_column=2)
    assert [test.tolist() for _, test in in_order.split(X)] == [test.tolist() for _, test in in_order.split(X)]


# --- inside scikit-learn and the cross-validated estimators ----------------------------------------------------------------


def shops():
    pd = pytest.importorskip("pandas")
    shop, x = rng.integers(0, 12, 240), rng.normal(size=(240, 2))
    y = 1 + x @ [1.0, -1.0] + rng.normal(size=12)[shop] + 0.2 * rng.normal(size=240)
    return pd.DataFrame({"a": x[:, 0], "shop": [f"s{k}" for k in shop], "b": x[:, 1]}), y


@pytest.mark.parametrize("leave", ["rows", "tasks", "both"])
def test_a_grid_search_over_a_named_task_column(leave):
    frame, y = shops()
    model = MultiTaskRegressor(common=True, task_column="shop")
    cv = TaskKFold(3, task_column="shop", leave=leave)
    search = GridSearchCV(model, {"alpha": [0.01, 10.0]}, cv=cv, scoring="r2", error_score="raise").fit(frame, y)
    assert search.n_splits_ == 3
    assert search.best_params_ == {"alpha": 0.01}
    assert search.best_score_ > 0.5


def test_new_tasks_are_harder_than_new_rows():
    frame, y = shops()
    model = MultiTaskRegressor(common=True, task_column="shop", alpha=0.01)
    rows, tasks = (
        cross_val_score(model, frame, y, cv=TaskKFold(4, task_column="shop", leave=leave), scoring="r2").mean()
        for leave in ("rows", "tasks")
    )
    assert rows > tasks + 0.1


def test_groups_arrive_with_and_without_routing():
    frame, y = shops()
    model, cv = MultiTaskRegressor(common=True, task_column="shop"), TaskKFold(3, leave="tasks")
    plain = cross_val_score(model, frame, y, groups=frame["shop"], cv=cv, scoring="r2")
    with config_context(enable_metadata_routing=True):
        routed = cross_val_score(model, frame, y, params={"groups": frame["shop"]}, cv=cv, scoring="r2")
    assert np.array_equal(plain, routed)


def test_the_folds_of_a_search_and_its_file(tmp_path):
    frame, y = shops()
    cv = TaskKFold(3, task_column="shop", leave="tasks", shuffle=True, random_state=1)
    search = MultiTaskRegressorCV(
        cv=cv, structures=["independent"], alphas=[0.1, 1.0], task_column="shop", unseen="mean", common=None, kernels=None
    )
    search.fit(frame, y).save(tmp_path / "m")
    twin = taskloom.load(tmp_path / "m")
    assert repr(twin.cv) == repr(cv)
    assert np.array_equal(twin.predict(frame), search.predict(frame))
    with pytest.raises(ValueError, match="has no observation of task"):
        search.set_params(unseen="raise").fit(frame, y)


def test_a_classifier_finds_both_classes_in_every_fold():
    frame, y = shops()
    model = MultiTaskClassifier(task_column="shop", alpha=0.1)
    scores = cross_val_score(model, frame, y > np.median(y), cv=TaskKFold(3, task_column="shop"), error_score="raise")
    assert scores.mean() > 0.6


# --- bad input --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TaskKFold(1), r"TaskKFold\(leave='rows'\) needs n_splits >= 2, got n_splits=1"),
        (lambda: TaskKFold(2.5), "got n_splits=2.5"),
        (lambda: TaskKFold(2, leave="both"), "needs n_splits >= 3, got n_splits=2"),
        (lambda: TaskKFold(leave="groups"), 'leave="rows", "tasks" or "both", got leave=\'groups\''),
        (lambda: TaskKFold(random_state=3), "random_state=3 has no effect without shuffle=True"),
        (lambda: TaskKFold(shuffle="yes"), "got shuffle='yes'"),
        (lambda: next(TaskKFold().split(X)), r"does not know the task of each row: pass TaskKFold\(task_column=...\)"),
        (lambda: next(TaskKFold().split(X, groups=TASK[1:])), rf"each of the {N} rows, got shape \({N - 1},\)"),
        (lambda: next(TaskKFold().split(X[:3], groups=["a", None, "b"])), "groups holds a missing value in row 1"),
        (lambda: next(TaskKFold(task_column=7).split(X)), "task_column=7 is outside the 3 columns"),
        (
            lambda: next(TaskKFold(9, leave="tasks", task_column=2).split(X)),
            "n_splits=9 .* as many tasks, got 8; lower",
        ),
        (lambda: next(TaskKFold(9, leave="both", task_column=2).split(X)), "n_splits=9 .* as many tasks, got 8"),
        (lambda: next(TaskKFold(5, task_column=2).split(X[:4])), "n_splits=5 folds need at least as many rows, got 4"),
        (lambda: next(TaskKFold(2, task_column=0).split(X)), "are the only one of their task"),
    ],
)
def test_bad_input_is_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()
