"""The parts of benchmarks/real.py: closed forms against their naive twins, splits, and what is skipped."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from real_data import loaders
from real_data.loaders import Part, data_sets, powers, some_of_each
from real_data.method import each_task
from real_data.plain import STRENGTHS, ShrunkIntercepts, kernel_ridge
from real_data.scoring import average_relative_rmse, one_minus_auc, paired, unexplained


def test_one_ridge_with_shrunk_intercepts_is_the_minimum_of_its_objective():
    rng = np.random.default_rng(0)
    X, task, y = rng.normal(size=(60, 3)), rng.integers(0, 7, 60), rng.normal(size=60)
    model, level = ShrunkIntercepts(X, y, task), 2.0
    dense = np.column_stack([X, np.ones(60), task[:, None] == np.unique(task)])
    for strength, (w, u) in zip(STRENGTHS, model.solve(level), strict=True):
        penalty = np.diag([strength] * 3 + [0] + [level] * 7)
        expected = np.linalg.solve(dense.T @ dense + penalty, dense.T @ y)
        np.testing.assert_allclose(np.concatenate([w, u]), expected, atol=1e-6)


def test_a_task_that_was_not_seen_gets_no_intercept_of_its_own():
    X, y = np.zeros((4, 1)), np.array([1.0, 1.0, 5.0, 5.0])
    model = ShrunkIntercepts(X, y, np.array([0, 0, 2, 2]))
    w, u = model.solve(1e-3)[0]
    np.testing.assert_allclose(model.predict(np.zeros((3, 1)), np.array([0, 1, 2]), w, u), [1, 3, 5], atol=1e-2)


def test_kernel_ridge_follows_a_smooth_function():
    X = np.linspace(0, 1, 60)[:, None]
    guess = kernel_ridge(X, np.sin(6 * X), X[::7] + 0.005)
    np.testing.assert_allclose(guess, np.sin(6 * (X[::7] + 0.005)), atol=1e-3)


def test_splits_take_so_many_rows_of_each_task():
    task = np.random.default_rng(0).integers(0, 5, 200)
    train, test = some_of_each(task, 10)(3)
    assert (np.bincount(task[train]) == 10).all()
    assert len(train) + len(test) == 200
    assert not set(train) & set(test)
    assert abs(len(some_of_each(task, 0.75)(0)[0]) - 150) <= 3


def test_every_task_has_its_model_or_a_mean():
    train = Part(np.zeros((5, 1)), np.array([1.0, 3.0, 4.0, 5.0, 7.0]), np.array([0, 0, 1, 1, 1]))
    new = Part(np.zeros((3, 1)), np.zeros(3), np.array([1, 9, 0]))
    guess = each_task(train, new, lambda X, y, X_new: np.full(len(X_new), y.max()), fewest=3)
    np.testing.assert_allclose(guess, [7, 4, 2])


def test_errors_are_those_of_the_field():
    train, test = Part(np.zeros((2, 1)), np.array([[0.0, 0], [2, 2]])), Part(np.zeros((2, 1)), np.array([[0.0, 0], [2, 4]]))
    np.testing.assert_allclose(average_relative_rmse(train, test, np.tile([1.0, 1.0], (2, 1))), 1.0)
    np.testing.assert_allclose(unexplained(train, Part(train.X, np.array([0.0, 2])), np.array([1.0, 1.0])), 1.0)
    labels = Part(np.zeros((4, 1)), np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1]))  # task 1 has one class
    assert one_minus_auc(labels, labels, np.array([0.1, 0.9, 0.0, 0.0])) == 0
    assert paired({0: 1.0, 1: 3.0, 2: 9.0}, {0: 0.0, 1: 1.0}) == (1.5, 0.5)


def test_slopes_in_time_are_scaled_by_the_training_rows():
    rng = np.random.default_rng(0)
    part = Part(rng.normal(size=(50, 3)), np.zeros(50), np.zeros(50, dtype=int))
    data = loaders.DataSet("made", "long", "unexplained", part, some_of_each(part.task, 0.5), time=1)
    found = powers(data, part, part)
    np.testing.assert_allclose(found.mean(axis=0), [0, 1], atol=1e-12)
    np.testing.assert_allclose(found[:, 1], found[:, 0] ** 2)


def test_data_that_is_not_there_is_skipped_with_a_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(loaders, "ARCHIVES", tmp_path)
    assert [data.name for data in data_sets(["school", "linnerud"])] == ["linnerud"]
    assert capsys.readouterr().out == "school: skipped, school.npz is not in ../shared/data\n"


@pytest.mark.parametrize("name", ["linnerud", "digits_300"])
def test_bundled_data_sets_split_into_training_and_test_rows(name):
    (data,) = data_sets([name])
    train, test = data.split(0)
    assert len(train)
    assert len(test)
