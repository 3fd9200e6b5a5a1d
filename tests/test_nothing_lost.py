"""What fails, is changed or is used again must not spoil what is there: refused fits, components that are written to."""

import pickle
import tracemalloc

import numpy as np
import pytest
from scipy.sparse import csr_array, hstack
from scipy.sparse import random as sparse_random
from sklearn.exceptions import ConvergenceWarning

from taskloom import (
    FactoredStructure,
    MultiTaskClassifier,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    Problem,
    metrics,
    solve,
    solvers,
    stack,
    structures,
)
from taskloom.design import Observations
from taskloom.losses import CustomLoss, Huber
from taskloom.structures import CustomStructure
from taskloom.uncertainty.leave_one_out import leave_one_out

rng = np.random.default_rng(0)
INPUTS, TASK = rng.normal(size=(90, 3)), np.repeat([0.0, 1.0, 2.0], 30)
TARGET = np.einsum("ij,ij->i", INPUTS, np.array([[1, 0, 0], [0, 5, 0], [0, 0, -9.0]])[TASK.astype(int)])
LONG = np.column_stack([INPUTS, TASK])
X, Y = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))


# --- fits that are refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_a_fit_that_is_refused_leaves_the_model_as_it_was(method):
    model = MultiTaskRegressor("independent", alpha=1e-4, task_column=-1)
    getattr(model, method)(LONG, TARGET)
    found, before = model.predict(LONG), vars(model).copy()
    with pytest.raises(ValueError, match="must not be negative"):
        getattr(model, method)(LONG[30:], TARGET[30:], sample_weight=-np.ones(60))
    assert vars(model).keys() == before.keys()
    assert np.array_equal(model.predict(LONG), found)


def test_a_refused_fit_of_labels_or_of_a_search_leaves_the_model_as_it_was():
    labels = (Y > 0).astype(int)
    model = MultiTaskClassifier(alpha=0.1).fit(X, labels)
    found = model.predict(X)
    with pytest.raises(ValueError, match="must not be negative"):
        model.fit(X, np.where(Y > 0, "b", "a"), sample_weight=-np.ones(60))
    assert np.array_equal(model.predict(X), found)
    search = MultiTaskRegressorCV(alphas=2, cv=2).fit(X, Y)
    found = search.predict(X)
    with pytest.raises(ValueError, match="must not be negative"):
        search.fit(X[:, :2], Y, sample_weight=-np.ones(60))
    assert np.array_equal(search.predict(X), found)


def test_a_first_fit_that_is_refused_leaves_nothing_behind():
    model = MultiTaskRegressor()
    before = vars(model).copy()
    with pytest.raises(ValueError, match="must not be negative"):
        model.fit(X, Y, sample_weight=-np.ones(60))
    assert vars(model) == before


def test_a_block_that_fails_is_not_counted():
    task = np.repeat([0.0, 1.0, 1.0, 2.0], 30)
    inputs = rng.normal(size=(120, 3))
    table, y = np.column_stack([inputs, task]), inputs[:, 0] + task + rng.normal(size=120)
    first, second = slice(0, 60), slice(60, 120)
    options = {"alpha": 0.5, "task_column": -1}
    model = MultiTaskRegressor("trace", task_weight={0.0: 1.0, 1.0: 1.0}, **options).partial_fit(table[first], y[first])
    with pytest.raises(ValueError, match=r"no entry for task 2\.0"):
        model.partial_fit(table[second], y[second])
    model.set_params(task_weight="equal").partial_fit(table[second], y[second])
    assert np.allclose(model.coef_, MultiTaskRegressor("trace", **options).fit(table, y).coef_, atol=1e-8)


# --- components that are written to ----------------------------------------------------------------------------------


class Offset:
    """The trace, plus a constant that may be changed from outside."""

    def __init__(self, off):
        self.off = off

    def value(self, A):
        return float(np.trace(A)) + self.off if np.linalg.eigvalsh(A)[0] >= -1e-9 else np.inf

    def prox(self, A, step):
        a, V = np.linalg.eigh(A)
        return (V * np.maximum(a - step, 0.0)) @ V.T


class Bent:
    """Huber's loss, of which nothing is known but value and gradient."""

    def __init__(self, width):
        self.width = width

    def value(self, y, z):
        r = np.abs(z - y)
        return np.where(r <= self.width, r**2, self.width * (2 * r - self.width))

    def gradient(self, y, z):
        return 2 * np.clip(z - y, -self.width, self.width)


class Parabola:
    def value(self, y, z):
        return (y - z) ** 2

    def gradient(self, y, z):
        return 2 * (z - y)


def test_a_penalty_that_was_changed_is_not_remembered():
    penalty = Offset(5.0)
    structure = CustomStructure(penalty)
    first = MultiTaskRegressor(structure, alpha=0.1).fit(X, Y).certificate_
    penalty.off = 1.0
    second = MultiTaskRegressor(structure, alpha=0.1).fit(X, Y).certificate_
    assert second.dual <= second.primal
    assert np.isclose(first.primal - second.primal, 4.0)


def test_a_loss_that_was_changed_is_not_remembered_and_does_not_carry_data():
    bent = Bent(1.0)
    loss = CustomLoss(bent)
    MultiTaskRegressor("frobenius", loss=loss, alpha=0.1).fit(X, Y)
    for width in (5.0, 0.2):
        bent.width = width
        said = MultiTaskRegressor("frobenius", loss=loss, alpha=0.1).fit(X, Y).certificate_
        fresh = MultiTaskRegressor("frobenius", loss=CustomLoss(Bent(width)), alpha=0.1).fit(X, Y).certificate_
        assert said.primal == fresh.primal
        assert said.dual == fresh.dual
    assert len(pickle.dumps(loss)) < 1000
    assert np.allclose(pickle.loads(pickle.dumps(loss)).gradient_bounds(np.array([0.5]))[1], 0.4)


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


def test_a_parameter_that_is_set_anew_does_not_change_what_was_learned():
    model = MultiTaskRegressor(structures.Clusters(2), alpha=0.1).fit(X, rng.normal(size=(60, 6)))
    groups = model.task_clusters()
    model.set_params(structure__n_clusters=4)
    assert np.array_equal(model.task_clusters(), groups)


def test_set_params_that_fails_changes_nothing():
    """Whatever it fails with."""
    solver = solvers.Alternating()
    with pytest.raises(TypeError):
        solver.set_params(memory="x")
    assert solver.memory == solvers.Alternating().memory


# --- problems that are used again ------------------------------------------------------------------------------------


def test_one_sparse_problem_on_both_sides_in_turn():
    features = sparse_random(48, 30, density=0.3, random_state=0, format="csr")
    seen = Observations.build(np.arange(48), np.repeat(np.arange(6), 8), np.random.default_rng(1).normal(size=48), 6)
    problem = Problem(features, seen, "squared", structures.Trace(), 0.01)
    solve(problem, "proximal")
    for structure, solver in ((structures.FeatureSelection(), "proximal"), (structures.Trace(), "factored")):
        again = solve(problem.with_structure(structure), solver).certificate
        fresh = solve(Problem(features, seen, "squared", structure, 0.01), solver).certificate
        assert again.optimal
        assert np.isclose(again.primal, fresh.primal)


# --- losses of one's own in any units, and without a bound on curvature ----------------------------------------------


@pytest.mark.parametrize("width", [0.1, 0.03, 0.01])
@pytest.mark.parametrize("structure", ["trace", "clusters", "independent"])
def test_a_loss_of_straight_pieces_needs_no_bound_on_its_curvature(structure, width):
    inputs = np.random.default_rng(0).normal(size=(60, 4))
    w = np.random.default_rng(1).normal(size=4)
    targets = np.column_stack([inputs @ w, inputs @ w, -inputs @ w]) + 0.1 * np.random.default_rng(2).normal(size=(60, 3))
    own = MultiTaskRegressor(structure, loss=CustomLoss(Bent(width)), alpha=0.1).fit(inputs, targets).certificate_
    ours = MultiTaskRegressor(structure, loss=Huber(width), alpha=0.1).fit(inputs, targets).certificate_
    assert own.optimal
    assert np.isclose(own.primal, ours.primal, rtol=2e-4)


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e-20])
def test_a_conjugate_that_is_found_closes_in_any_units(unit):
    said = MultiTaskRegressor("trace", loss=CustomLoss(Parabola()), alpha=0.1 * unit**2).fit(X, unit * Y).certificate_
    assert said.optimal, said.message


# --- what is read of data --------------------------------------------------------------------------------------------


def test_stacked_tasks_stay_apart_in_single_precision():
    many = {16777216: np.ones((2, 2), np.float32), 16777217: np.ones((2, 2), np.float32)}
    table, _ = stack(many, {name: np.arange(2.0) for name in many})
    assert np.unique(table[:, -1]).tolist() == [16777216, 16777217]
    assert stack([np.ones((2, 2), np.float32)], [np.ones(2)])[0].dtype == np.float32
    with pytest.raises(ValueError, match="name the tasks by words"):
        stack({2**53 + 1: np.ones((2, 2))}, {2**53 + 1: np.ones(2)})


def test_leave_one_out_sees_weights_in_any_units():
    weight = np.where(np.arange(60) < 30, 1.0, 3.0)
    seen = Observations.from_wide(Y, weight, task_weight=np.full(3, 1e-7))
    problem = Problem(X, seen, "squared", structures.Independent(), 1e-8)
    assert leave_one_out(problem, [1e-8], rows=True, by_size=False) is None


def test_weights_below_the_estimators_are_checked():
    with pytest.raises(ValueError, match="not negative"):
        Observations.from_wide(Y, -np.ones(60))
    with pytest.raises(ValueError, match="finite"):
        Observations.from_wide(Y, np.full(60, np.nan))


def test_whole_numbers_in_a_factor_do_not_cut_variances():
    assert FactoredStructure(np.array([[1], [2]]), own=0.5).own.tolist() == [0.5, 0.5]


def test_a_constant_target_that_is_no_power_of_two():
    assert metrics.r2(np.full(3, 0.1), np.full(3, 0.2), None) == 0.0
    assert metrics.r2(np.full(3, 0.1), np.full(3, 0.1), None) == 1.0


def test_predictions_from_a_sparse_long_table_need_no_dense_one():
    inputs = sparse_random(500, 20_000, density=1e-4, random_state=0, format="csr")
    task = np.arange(500) % 5
    table = csr_array(hstack([inputs, task[:, None].astype(float)]))
    model = MultiTaskRegressor("independent", task_column=-1).fit(table, rng.normal(size=500))
    by_hand = np.einsum("ij,ij->i", inputs.toarray(), model.coef_[task]) + model.intercept_[task]
    tracemalloc.start()
    found = model.predict(table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.allclose(found, by_hand)
    assert peak < 0.1 * 8 * inputs.shape[0] * inputs.shape[1]


def test_warnings_point_at_the_line_that_called():
    for call in (
        lambda: MultiTaskRegressor(max_iter=1, tol=1e-14).fit(X, Y),
        lambda: MultiTaskRegressor(max_iter=1, tol=1e-14, solver="block").partial_fit(X, Y),
    ):
        with pytest.warns(ConvergenceWarning) as caught:
            call()
        assert caught[0].filename == __file__


def test_a_wrong_argument_names_the_class_that_was_used():
    with pytest.raises(
        TypeError, match=r"MultiTaskRegressor\.fit\(\) got an unexpected keyword argument 'task'; the task of each"
    ):
        MultiTaskRegressor().fit(X, Y, task=np.arange(60))
    with pytest.raises(TypeError, match=r"MultiTaskRegressorCV\.fit\(\) missing a required argument: 'y'"):
        MultiTaskRegressorCV().fit(X)


def test_a_pickle_holds_data_and_not_what_was_computed_from_them():
    inputs, targets = rng.normal(size=(500, 20)), rng.normal(size=(500, 10))
    model = MultiTaskRegressor(alpha=0.1).fit(inputs, targets)
    data = inputs.nbytes + targets.nbytes
    assert len(pickle.dumps(model)) < 4 * data  # observations have their row, task and weight
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(inputs, return_std=True)[1], model.predict(inputs, return_std=True)[1])
