"""Fits at the same time, in threads and processes, are the fits that they would be alone, and leave nothing behind."""

import copy
import importlib
import multiprocessing
import os
import pkgutil
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from joblib import Parallel, delayed
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV
from taskloom._linalg import _OneThread, one_thread
from taskloom.structures import CustomStructure

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 6))
Y = X @ RNG.normal(size=(6, 2)) @ RNG.normal(size=(2, 5)) + 0.3 * RNG.normal(size=(60, 5))
LABELS = np.where(Y > 0, 1, -1)
TASK = np.arange(60) % 5
LONG = np.column_stack([X, TASK])
ESTIMATORS = [
    (MultiTaskRegressor("trace", alpha=0.1), X, Y),
    (MultiTaskRegressor("frobenius", alpha=0.1, kernel="rbf"), X, Y),
    (MultiTaskRegressor("trace", alpha=0.1, task_column=-1), LONG, Y[np.arange(60), TASK]),
    (MultiTaskRegressor("trace", alpha=0.1, loss="huber"), X, Y),
    (MultiTaskClassifier("trace", alpha=0.1), X, LABELS),
    (MultiTaskRegressor(alpha=0.1, kernel="rbf", approximation="nystroem", n_components=20), X, Y),
]


def answer(k):
    """The numbers of fit ``k``, in which one different bit would show."""
    estimator, inputs, targets = ESTIMATORS[k]
    model = clone(estimator).fit(inputs, targets)
    decision = model.decision_function(inputs) if hasattr(model, "decision_function") else model.predict(inputs)
    return decision.tobytes(), np.asarray(model.structure_).tobytes(), model.certificate_.gap, model.n_iter_


@pytest.fixture(scope="module")
def alone():
    """The answers of one fit after the other."""
    return [answer(k) for k in range(len(ESTIMATORS))]


@pytest.fixture
def two_threads():
    """A limit other than the one that fits set, so that a limit left behind shows."""
    with threadpool_limits(2, user_api="blas"):
        if {pool["num_threads"] for pool in blas()} != {2}:
            pytest.skip("this BLAS cannot have more threads than it began with")
        yield


def blas():
    return [pool for pool in threadpool_info() if pool["user_api"] == "blas"]


# --- the same answers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_fits_in_parallel_are_the_serial_fits(alone, backend):
    many = list(range(len(ESTIMATORS))) * 2
    with threadpool_limits(1, user_api="blas"):
        found = Parallel(n_jobs=4 if backend == "threading" else 2, backend=backend)(delayed(answer)(k) for k in many)
    assert found == [alone[k] for k in many]


def in_child(k, queue):
    queue.put(answer(k))


def test_a_forked_child_fits_as_its_parent_did(alone):
    """The parent has used BLAS and its threads; OpenBLAS must start again in the child, and so must our counting."""
    fork = multiprocessing.get_context("fork")
    queues = [fork.SimpleQueue() for _ in ESTIMATORS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 dislikes forks of processes with threads
        children = [fork.Process(target=in_child, args=(k, queue)) for k, queue in enumerate(queues)]
        for child in children:
            child.start()
    found = [queue.get() for queue in queues]
    for child in children:
        child.join(60)
    assert found == alone


def test_one_model_predicts_in_many_threads():
    """Whatever a first prediction keeps for the next ones is kept whole or not at all."""
    long = MultiTaskRegressor("trace", alpha=0.1, task_column=-1).fit(LONG, Y[np.arange(60), TASK])
    wide = MultiTaskRegressor(alpha=0.1, kernel="rbf").fit(X, Y)
    for model, inputs in ((long, LONG), (wide, X)):
        fresh = copy.deepcopy(model)
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _, model=fresh, inputs=inputs: model.predict(inputs, return_std=True), range(12)))
        expected, spread = model.predict(inputs, return_std=True)
        assert all(np.array_equal(a, expected) and np.array_equal(b, spread) for a, b in found)


def test_a_search_in_threads_is_the_serial_search():
    def search(_):
        return MultiTaskRegressorCV("trace", alphas=[1.0, 0.1, 0.01], cv=3, kernels=None).fit(X, Y).coef_

    with ThreadPoolExecutor(3) as pool:
        assert all(np.array_equal(coef, search(0)) for coef in pool.map(search, range(3)))


# --- one object in many threads -------------------------------------------------------------------------------------------


SHARED = {
    "trace": lambda: MultiTaskRegressor("trace", alpha=0.1),
    "warm start": lambda: MultiTaskRegressor("trace", alpha=0.1, tol=1e-9, warm_start=True),
    "kernel": lambda: MultiTaskRegressor("frobenius", alpha=0.1, kernel="rbf"),
    "custom structure": lambda: MultiTaskRegressor(of_a_user(), alpha=0.1),
    "search": lambda: MultiTaskRegressorCV("trace", alphas=[1.0, 0.1], cv=2, kernels=None),
}


def of_a_user():
    """A structure whose compiled problems hold parameters and a unit of their own."""
    cp = pytest.importorskip("cvxpy")
    return CustomStructure(lambda A: cp.trace(A) + cp.sum_squares(A) / 2)


def held(model):
    """What the last fit left: its numbers, and those of the search."""
    arrays = [getattr(model, name) for name in ("coef_", "dual_coef_", "intercept_", "structure_") if hasattr(model, name)]
    searched = [model.best_score_, model.cv_results_["mean_test_score"].tolist()] if hasattr(model, "best_score_") else []
    return [np.asarray(array).tolist() for array in arrays], model.certificate_.primal, model.n_features_in_, searched


@pytest.fixture
def eager_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("kind", SHARED)
def test_one_model_fitted_by_many_threads_is_one_of_their_fits(kind, eager_switches):
    """Which one is not defined; but never the coefficients of one with the certificate of another."""
    units = [0.3, 1.0, 3.0, 10.0]  # a structure with the units of another fit would show
    data = [(X[:20, : 3 + i], unit * Y[:20, :3]) for i, unit in enumerate(units)]
    alone = [held(SHARED[kind]().fit(*each)) for each in data]
    model, began = SHARED[kind](), threading.Barrier(len(data))

    def fit(k):
        began.wait(30)
        model.fit(*data[k])

    with ThreadPoolExecutor(len(data)) as pool:
        list(pool.map(fit, range(len(data))))
    assert held(model) in alone


def test_fits_that_share_a_structure_of_a_user_are_the_fits_of_their_own(eager_switches):
    shared, units = of_a_user(), [0.01, 0.1, 1.0, 10.0]

    def fit(unit, structure):
        return MultiTaskRegressor(structure, alpha=0.1).fit(X[:20], unit * Y[:20, :3]).coef_.tolist()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda unit: fit(unit, shared), units)) == [fit(unit, of_a_user()) for unit in units]


def test_a_search_keeps_its_model_and_its_results_at_once():
    """An interrupt between two assignments would leave the model of one fit with the search of another."""

    class Interrupted(MultiTaskRegressorCV):
        def __setattr__(self, name, value):
            if name == "_search":
                raise RuntimeError("stopped here")
            super().__setattr__(name, value)

    model = Interrupted("trace", alphas=[1.0, 0.1], cv=2).fit(X, Y)
    assert len(model.tasks_) == len(model.transfer_["task"]) == 5


# --- thread limits --------------------------------------------------------------------------------------------------------


class ThrownError(Exception):
    pass


def test_limits_are_restored_after_a_fit_and_after_an_exception_inside_it(two_threads):
    seen = []

    class Spy(MultiTaskRegressor):
        def _settings(self, data, watch=None, last=None):
            def throw(history):
                seen.append({pool["num_threads"] for pool in blas()})
                raise ThrownError

            return {"callback": throw}

    MultiTaskRegressor("trace", alpha=0.1).fit(X, Y)
    assert {pool["num_threads"] for pool in blas()} == {2}
    with pytest.raises(ThrownError):
        Spy("trace", alpha=0.1).fit(X, Y)
    assert seen == [{1}]  # the exception came from inside
    assert {pool["num_threads"] for pool in blas()} == {2}


def test_overlapping_fits_restore_what_the_first_one_found(two_threads):
    """The first to enter leaves first: had each restored what it found, the limit of 1 would stay."""
    entered, leave = threading.Event(), threading.Event()

    def second():
        with one_thread():
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=second)
    with one_thread():
        thread.start()
        assert entered.wait(30)
    assert {pool["num_threads"] for pool in blas()} == {1}  # the second is still inside
    leave.set()
    thread.join(30)
    assert {pool["num_threads"] for pool in blas()} == {2}


def test_many_overlapping_fits_some_of_which_fail_restore_the_limits(two_threads):
    def work(k):
        try:
            with one_thread(), one_thread():
                if k % 3 == 0:
                    raise ThrownError
                return answer(0)
        except ThrownError:
            return None

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(24)))
    assert {pool["num_threads"] for pool in blas()} == {2}


class OwnPool:
    """A BLAS whose limit belongs to the thread, as that of OpenBLAS on top of OpenMP."""

    def __init__(self):
        self.of_thread = threading.local()

    @property
    def num_threads(self):
        return getattr(self.of_thread, "number", 2)

    def set_num_threads(self, number):
        self.of_thread.number = number


def test_a_limit_that_belongs_to_a_thread_is_restored_by_that_thread():
    held, pool, seen = _OneThread(), OwnPool(), {}
    held._pools = ([], [(pool, 1)])
    inside, out = threading.Barrier(2), threading.Event()

    def fit(name):
        with held():
            inside.wait(30)
            if name == "second":
                out.wait(30)
            within = pool.num_threads
        seen[name] = within, pool.num_threads
        out.set()

    threads = [threading.Thread(target=fit, args=(name,)) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == {"first": (1, 2), "second": (1, 2)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_during_a_fit_of_another_thread_leaves_no_limit_in_the_child(two_threads):
    entered, leave = threading.Event(), threading.Event()

    def fit():
        with one_thread():
            entered.set()
            leave.wait(30)

    thread = threading.Thread(target=fit)
    thread.start()
    assert entered.wait(30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:  # no assertion may leave the child: pytest is in it twice
        code = 1
        try:
            restored = {pool["num_threads"] for pool in blas()} == {2}
            with one_thread():
                limited = {pool["num_threads"] for pool in blas()} == {1}
            code = 0 if restored and limited and {pool["num_threads"] for pool in blas()} == {2} else 2
        finally:
            os._exit(code)
    leave.set()
    thread.join(30)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {pool["num_threads"] for pool in blas()} == {2}


# --- no global state ------------------------------------------------------------------------------------------------------


def mutable_globals():
    """Every mutable object that a module of taskloom holds by name, as text."""
    found = {}
    for module in pkgutil.walk_packages(taskloom.__path__, "taskloom."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, (dict, list, set, bytearray, np.ndarray)) and not name.startswith("__"):
                found[f"{module.name}.{name}"] = repr(value)
    return found


def test_fits_leave_no_trace_in_the_process():
    before = mutable_globals()
    assert any(name.endswith("READERS") for name in before)  # the walk does see tables of the modules
    state, filters, errors = np.random.get_state(), list(warnings.filters), np.geterr()  # noqa: NPY002 (that one)
    environment, options = dict(os.environ), np.get_printoptions()
    for k in range(len(ESTIMATORS)):
        answer(k)
    after = np.random.get_state()  # noqa: NPY002
    assert all(np.array_equal(a, b) for a, b in zip(state, after, strict=True))
    assert list(warnings.filters) == filters
    assert np.geterr() == errors
    assert dict(os.environ) == environment
    assert np.get_printoptions() == options
    assert mutable_globals() == before


def test_an_exception_inside_a_fit_restores_numpys_settings():
    before, filters = np.geterr(), list(warnings.filters)

    def throw(history):
        raise ThrownError

    data = MultiTaskRegressor("trace", alpha=0.1)._prepare(X, Y)
    with pytest.raises(ThrownError):
        taskloom.solve(data.problem, callback=throw)
    assert np.geterr() == before
    assert list(warnings.filters) == filters


def test_a_fit_changes_neither_its_structure_nor_its_loss():
    """One object of a structure or a loss may serve many estimators at the same time."""
    structure, loss = taskloom.structures.Trace(), taskloom.losses.Huber()
    before = repr(vars(structure)), repr(vars(loss))
    for targets in (Y, Y[:, :2]):
        MultiTaskRegressor(structure, loss=loss, alpha=0.1).fit(X, targets)
    assert (repr(vars(structure)), repr(vars(loss))) == before
