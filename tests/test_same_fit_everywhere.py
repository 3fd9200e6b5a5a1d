"""One model on the host, with the code of a device and on a Dask cluster: the same bracket, callbacks, limits, warm starts."""

import time
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskRegressor, distributed
from taskloom.engines.local import LocalTasks

dask_distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

ENGINES = ["host", "device", "cluster"]
TOL = 1e-7


@pytest.fixture(scope="module")
def client():
    """Two workers in threads of this process: quick to start."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with dask_distributed.LocalCluster(**options) as cluster, dask_distributed.Client(cluster) as client:
        yield client


def table(layout):
    """Inputs (with a task column where the table is long), targets, and the settings that say so."""
    rng = np.random.default_rng(0)
    n, d, T = 120, 6, 8
    X = rng.normal(size=(n, d)) + 0.5
    W, task = rng.normal(size=(d, 2)) @ rng.normal(size=(2, T)), rng.permutation(np.arange(n) % T)
    if layout == "long":
        return np.column_stack([X, task]), np.einsum("ij,ji->i", X, W[:, task]) + rng.normal(size=n), {"task_column": -1}
    Y = X @ W + rng.normal(size=(n, T)) + 2
    return X, np.where(rng.random(Y.shape) < 0.3, np.nan, Y) if layout == "gaps" else Y, {}


def fit(model, engine, X, y, client):
    if engine == "cluster":
        return distributed.fit(model, da.from_array(X, chunks=(50, -1)), da.from_array(y, chunks=50), client)
    return model.set_params(device="cpu" if engine == "device" else None).fit(X, y)


@pytest.mark.parametrize("layout", ["long", "gaps", "shared"])
@pytest.mark.parametrize("structure", ["trace", "frobenius", "independent"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_brackets_overlap(layout, structure, fit_intercept, client):
    X, y, settings = table(layout)
    settings |= {"structure": structure, "alpha": 0.02, "tol": TOL, "fit_intercept": fit_intercept}
    models = {engine: fit(MultiTaskRegressor(**settings), engine, X, y, client) for engine in ENGINES}
    proofs = {engine: model.certificate_ for engine, model in models.items()}
    for engine, proof in proofs.items():
        assert proof.optimal, (engine, proof.message)
        assert proof.relative_gap <= TOL, engine
    lowest, highest = min(proof.primal for proof in proofs.values()), max(proof.dual for proof in proofs.values())
    assert highest <= lowest * (1 + 1e-12)
    host = models["host"]
    problem = host._prepare(X, y).problem
    for model in models.values():  # the point is within its bracket; on a device and a cluster its best structure may be better
        value = problem.primal(model.coef_.T, model.intercept_, model.structure_)
        assert model.certificate_.dual * (1 - 1e-12) <= value <= model.certificate_.primal * (1 + 1e-12)
        assert np.abs(model.predict(X) - host.predict(X)).max() <= 0.01 * np.nanstd(y)


class Recorder:
    """Counts the parts of a fit; may stop it, or be Ctrl-C."""

    def __init__(self, stop_at=np.inf, raise_at=np.inf):
        self.stop_at, self.raise_at, self.ended, self.begun, self.order, self.models = stop_at, raise_at, 0, 0, [], []

    def setup(self, estimator, context):
        self.order.append("setup")

    def teardown(self, estimator, context):
        self.order.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.begun += context.task_name == "iteration"

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        if context.task_name != "iteration":
            return False
        self.ended += 1
        self.models.append(fitted_estimator)
        if self.ended == self.raise_at:
            raise KeyboardInterrupt
        return self.ended >= self.stop_at


@pytest.mark.parametrize("layout", ["long", "shared"])
@pytest.mark.parametrize("engine", ENGINES)
def test_callbacks_of_scikit_learn_see_every_step(engine, layout, client):
    X, y, settings = table(layout)
    watch = Recorder()
    model = MultiTaskRegressor(alpha=1e-3, tol=1e-9, **settings).set_callbacks(watch)
    fit(model, engine, X, y, client)
    assert model.certificate_.optimal
    assert watch.begun == watch.ended == model.n_iter_ == len(model.history_["gap"]) > 1
    assert watch.order == ["setup", "teardown"]
    assert len(watch.models) == model.n_iter_
    for one in watch.models:  # what the fit would be at that step
        assert np.isfinite(one.predict(X)).all()
    scores = [one.score(X, y) for one in watch.models]
    assert np.isclose(scores[-1], model.score(X, y), atol=1e-6)


@pytest.mark.parametrize("layout", ["long", "shared"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_callback_stops_the_fit_and_ctrl_c_keeps_the_best_point(engine, layout, client):
    X, y, settings = table(layout)
    for watch, status in ((Recorder(stop_at=2), "callback"), (Recorder(raise_at=2), "interrupted")):
        model = MultiTaskRegressor(alpha=1e-3, tol=1e-13, **settings).set_callbacks(watch)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(model, engine, X, y, client)
        assert model.certificate_.status == status
        assert model.n_iter_ == 2
        assert len(caught) == (status == "interrupted"), [str(each.message) for each in caught]
        assert watch.order == ["setup", "teardown"]
        assert model.certificate_.dual <= model.certificate_.primal
        assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("layout", ["long", "gaps", "shared"])
@pytest.mark.parametrize("structure", ["trace", "frobenius"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_warm_start_takes_no_more_steps(engine, structure, layout, client):
    X, y, settings = table(layout)
    model = MultiTaskRegressor(structure, alpha=2e-3, tol=1e-8, warm_start=True, **settings)
    cold = fit(model, engine, X, y, client).n_iter_
    first = model.certificate_
    assert fit(model, engine, X, y, client).n_iter_ <= cold
    assert model.certificate_.optimal
    assert abs(model.certificate_.primal - first.primal) <= first.gap + model.certificate_.gap
    near = fit(model.set_params(alpha=1.9e-3), engine, X, y, client)
    assert near.certificate_.optimal
    assert near.n_iter_ <= cold


@pytest.mark.parametrize("layout", ["long", "gaps", "shared"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_time_limit_ends_a_slow_fit(engine, layout, client, monkeypatch):
    """Every product with the Hessian takes a while, on the workers as well."""
    plain, calls = LocalTasks.hessian, []

    def slow(tasks, dQ):
        calls.append(engine)
        time.sleep(0.2)
        return plain(tasks, dQ)

    monkeypatch.setattr(LocalTasks, "hessian", slow)
    X, y, settings = table(layout)
    limit = 2.0 if engine == "cluster" else 0.5  # the tables are read first
    model = MultiTaskRegressor(alpha=1e-3, tol=0.0, max_iter=10**6, time_limit=limit, **settings)
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        fit(model, engine, X, y, client)
    assert time.perf_counter() - began < limit + 1.5
    assert calls
    assert model.certificate_.status == "time_limit"
    assert model.certificate_.dual <= model.certificate_.primal
    assert np.isfinite(model.predict(X)).all()
