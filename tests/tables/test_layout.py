"""One data set a task becomes a long table, and back."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from taskloom import MultiTaskRegressor, stack, unstack
from taskloom.tables.layout import code_labels, sorted_labels

rng = np.random.default_rng(0)
XS = [rng.normal(size=(n, 3)) for n in (4, 6, 5)]
YS = [rng.normal(size=n) for n in (4, 6, 5)]


def test_lists_become_numbered_tasks_and_come_back():
    X, y = stack(XS, YS)
    assert X.shape == (15, 4)
    assert X.dtype == float
    back_X, back_y = unstack(X, y)
    for t in range(3):
        assert np.array_equal(back_X[t], XS[t])
        assert np.array_equal(back_y[t], YS[t])


def test_dicts_keep_their_names():
    names = ["b", "a", "c"]
    X, y = stack(dict(zip(names, XS, strict=True)), dict(zip(names, YS, strict=True)))
    model = MultiTaskRegressor(task_column=-1, alpha=0.1).fit(X, y)
    assert model.tasks_.tolist() == ["a", "b", "c"]
    Xs, ys = unstack(X, y)
    assert sorted(Xs) == ["a", "b", "c"]
    assert np.array_equal(ys["b"], YS[0])
    assert np.allclose(Xs["b"], XS[0])


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_frames_get_a_task_column(frame):
    frames = {name: frame({"u": X[:, 0], "v": X[:, 1]}) for name, X in zip("xyz", XS, strict=True)}
    X, y = stack(frames, dict(zip("xyz", YS, strict=True)))
    assert isinstance(X, frame)
    assert list(X.columns) == ["u", "v", "task"]
    model = MultiTaskRegressor(task_column="task", alpha=0.1).fit(X, y)
    assert model.tasks_.tolist() == ["x", "y", "z"]
    assert model.predict(X).shape == y.shape
    Xs, _ = unstack(X, y, "task")
    assert list(Xs["y"].columns) == ["u", "v"]


@pytest.mark.parametrize(
    ("Xs", "ys", "words"),
    [
        ([], [], "at least one task"),
        (XS, YS[:2], "3 inputs and 2 targets"),
        (XS, dict(enumerate(YS)), "both be dicts"),
        ({"a": XS[0]}, {"b": YS[0]}, "no task 'a'"),
        ([XS[0], XS[1][:, :2]], YS[:2], "task 1 has 2 columns"),
        ([XS[0][0]], [YS[0]], "must be a matrix"),
        ([XS[0]], [YS[1]], "4 rows of inputs and 6 targets"),
        ([XS[0]], [XS[0]], "one-dimensional"),
    ],
)
def test_what_does_not_fit_together_is_refused(Xs, ys, words):
    with pytest.raises(ValueError, match=words):
        stack(Xs, ys)


def test_stacked_tasks_stay_apart_in_single_precision():
    many = {16777216: np.ones((2, 2), np.float32), 16777217: np.ones((2, 2), np.float32)}
    table, _ = stack(many, {name: np.arange(2.0) for name in many})
    assert np.unique(table[:, -1]).tolist() == [16777216, 16777217]
    assert stack([np.ones((2, 2), np.float32)], [np.ones(2)])[0].dtype == np.float32
    with pytest.raises(ValueError, match="name the tasks by strings"):
        stack({2**53 + 1: np.ones((2, 2))}, {2**53 + 1: np.ones(2)})


LABELS = {
    "small range": np.array([3, 5, 3, 4, 9]),
    "negative": np.array([-3, 5, -3, 0]),
    "large range": np.array([10**12, -(10**12), 7]),
    "largest": np.array([2**63 - 1, 2**63 - 2, 2**63 - 1]),
    "bytes": np.array([-128, 127, 0, -128], dtype=np.int8),
    "unsigned": np.array([200, 3, 255], dtype=np.uint8),
    "unsigned, largest": np.array([2**64 - 1, 3], dtype=np.uint64),
    "numbers": np.array([0.5, -2.0, 0.5]),
    "booleans": np.array([True, False, True]),
    "words": np.array(["b", "a", "b", "c"], dtype=object),
    "pairs": np.fromiter([(1, 2), (0, 5), (1, 2)], dtype=object),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_are_coded_in_their_order(kind):
    labels = LABELS[kind]
    known = sorted_labels(labels)
    assert known.tolist() == sorted(set(labels.tolist()))
    assert known.dtype == labels.dtype
    codes = code_labels(labels, known)
    assert [known[code] for code in codes] == labels.tolist()
    assert code_labels(labels, known[1:]).tolist() == [code - 1 for code in codes.tolist()]


def test_labels_outside_the_range_of_the_known_ones_have_no_code():
    assert code_labels(np.array([0, 3, 4, 100, -(10**15)]), np.array([3, 5])).tolist() == [-1, 0, -1, -1, -1]


def test_labels_that_do_not_compare_are_ordered_as_text():
    assert sorted_labels(np.array(["b", 1, "a", 1], dtype=object)).tolist() == [1, "a", "b"]
