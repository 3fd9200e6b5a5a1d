"""Known structures: the matrix that was given is read anew for each fit, and decomposed a few times only."""

import pickle

import numpy as np
import pytest

from taskloom import MultiTaskRegressor, structures

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))


def test_a_matrix_that_was_written_to_is_read_again():
    A = np.eye(3)
    structure = structures.Fixed(A)
    apart = MultiTaskRegressor(structure, alpha=0.1).fit(X, Y)
    A[0, 1] = A[1, 0] = 0.9
    together = MultiTaskRegressor(structure, alpha=0.1).fit(X, Y)
    assert np.allclose(apart.structure_, np.eye(3))
    assert np.allclose(together.structure_, A)
    structure.set_params(A=2 * np.eye(3))
    assert np.isclose(structure.conjugate(np.eye(3)), 6.0)  # outside of any fit, too
    assert "_held" not in pickle.loads(pickle.dumps(structure)).__dict__


def test_a_known_matrix_is_decomposed_a_few_times_for_a_fit(monkeypatch):
    count, eigh = [0], np.linalg.eigh

    def counted(*args, **settings):
        count[0] += 1
        return eigh(*args, **settings)

    root = rng.normal(size=(3, 3))
    structure = structures.Fixed(root @ root.T)
    monkeypatch.setattr(np.linalg, "eigh", counted)
    MultiTaskRegressor(structure, alpha=0.1).fit(X, Y)
    assert count[0] <= 6


def test_a_shared_mean_of_many_tasks_is_factored_and_takes_new_tasks(monkeypatch):
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(6), 4)
    X, y = np.column_stack([task, rng.normal(size=(24, 2))]), rng.normal(size=24)
    few = MultiTaskRegressor(structures.SharedMean(2.0), task_column=0).fit(X, y)
    monkeypatch.setattr("taskloom.structures.factored_matrix.DENSE_TASKS", 5)
    many = MultiTaskRegressor(structures.SharedMean(2.0), task_column=0).fit(X, y)
    assert many.structure_.rank == 6
    assert np.allclose(many.structure_.to_array(), few.structure_)
    new = rng.normal(size=(3, 2)), rng.normal(size=3)
    for model in (few, many):
        model.add_task(*new, name=9)
    assert np.allclose(many.coef_, few.coef_)
    assert np.allclose(np.asarray(many.structure_), few.structure_)


@pytest.mark.parametrize("given", [{}, {"loss": "huber"}, {"ridge": 0.05}])
def test_beside_a_common_part_a_shared_mean_is_the_matrix_that_it_stands_for(given):
    rng = np.random.default_rng(1)
    T = 20
    task = np.repeat(np.arange(T), 6)  # more columns than a small grouping has
    X, y = np.column_stack([task, rng.normal(size=(6 * T, 4))]), rng.normal(size=6 * T)
    named, matrix = structures.SharedMean(2.0), structures.Fixed(structures.SharedMean(2.0).matrix(T))
    fits = [MultiTaskRegressor(F, common=True, task_column=0, alpha=0.05, tol=1e-8, **given).fit(X, y) for F in (named, matrix)]
    one, other = (fit.certificate_ for fit in fits)
    assert one.dual <= other.primal * (1 + 1e-12)
    assert abs(one.primal - other.primal) <= max(one.gap, other.gap) + 1e-12 * other.primal
    assert np.allclose(fits[0].coef_, fits[1].coef_, atol=1e-6)
