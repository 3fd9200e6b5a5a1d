"""The one loop: whatever makes the steps, on the host, on a device or on workers, it stops, records and reports alike."""

import importlib
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zoo
from sklearn.exceptions import ConvergenceWarning
from synchronous_workers import engine_over

import taskloom
from taskloom import MultiTaskRegressor, Problem, losses, solve, structures
from taskloom.distributed.cluster_problem import ClusterLbfgs, ClusterProblem
from taskloom.engines.local import LocalEngine, LocalTasks
from taskloom.solvers import ClusterNewton
from taskloom.solvers.block_descent import _BlockRun
from taskloom.solvers.device import EigenbasisInputs, KernelInputs, OwnInputs, TaskRows
from taskloom.solvers.engine_run import RemoteFactored, solve_remote
from taskloom.solvers.factor.lbfgs import FactorRun
from taskloom.solvers.factor.newton import Point
from taskloom.solvers.reformulations import EigenbasisForm, subspaces
from taskloom.solvers.supervised.sides import TaskSide
from taskloom.solvers.supervised.term_sum_side import TermSumSide

loop = importlib.import_module("taskloom.solvers.solve")
SOURCE = str(Path(taskloom.__file__).parent)


def problem_of(loss="squared", structure="trace", layout="own", alpha=0.01, **options):
    loss = losses.as_loss(loss)
    return Problem(*zoo.data(loss, layout), loss, structure, alpha, **options)


class OnHost:
    """A problem, and the solver or its name."""

    def __init__(self, solver="auto", **options):
        self.solver, self.options = solver, options

    def __call__(self, **limits):
        self.problem = problem_of(**self.options)
        found = solve(self.problem, self.solver, **limits)
        return found.certificate, found.history

    def objective(self, best):
        W, b = best
        assert W.shape == (self.problem.n_features, self.problem.n_tasks)
        if self.problem.stacked() is not self.problem:  # the penalty needs the weights of each term
            return self.problem.loss_term(self.problem.predict(W, b))
        return self.problem.best_primal(W, b)[0]


class Elsewhere:
    """The code for devices or for workers, in this process."""

    def __init__(self, make):
        self.make = make

    def __call__(self, **limits):
        self.problem = self.make()
        found = solve_remote(self.problem, RemoteFactored(other=ClusterLbfgs), name="solver", **limits)
        return found.certificate, found.history

    def objective(self, best):
        return self.problem.evidence(best).primal


def on_device(structure="trace"):
    problem = problem_of()
    obs = problem.observations
    rows = TaskRows(obs.row, obs.y, obs.weight, obs.counts, obs.task_weights)
    return OwnInputs(problem.features, rows, structures.as_structure(structure), problem.alpha)


def shared_on_device(kind):
    X, Y = zoo.data(losses.Squared(), "shared")
    n, T = Y.shape
    settings = np.full(n, 1 / n), np.ones(T), structures.Trace(), 0.01, True
    if kind == "linear":
        return EigenbasisInputs(X, Y, *settings)
    return KernelInputs(X, lambda x, z: (1 + x @ z.T) ** 2, Y, *settings, definite=True)


def on_workers(structure="trace", ridge=0.0):
    problem = problem_of(ridge=ridge)
    return ClusterProblem(engine_over(problem), structures.as_structure(structure), problem.alpha, ridge)


WAYS = {
    "alternating": OnHost("alternating"),
    "block": OnHost("block"),
    "proximal": OnHost("proximal"),
    "factored": OnHost("factored", alpha=1e-3),
    "factored, shared inputs": OnHost("factored", layout="shared", alpha=1e-3),
    "factored, L-BFGS": OnHost("factored", structure="frobenius"),
    "factored, other loss": OnHost("factored", loss="logistic"),
    "factored, smoothed": OnHost("factored", loss="absolute"),
    "proximal, smoothed": OnHost("proximal", loss="hinge", layout="missing"),
    "on the weights of clusters": OnHost(ClusterNewton(), structure=structures.Clusters(2)),
    "sum": OnHost(structure=structures.Robust()),
    "on features": OnHost(structure=structures.FeatureSelection()),
    "not convex": OnHost(structure=structures.LowRank(2)),
    "device": Elsewhere(on_device),
    "device, frobenius": Elsewhere(lambda: on_device("frobenius")),
    "device, shared inputs": Elsewhere(lambda: shared_on_device("linear")),
    "device, kernel": Elsewhere(lambda: shared_on_device("kernel")),
    "workers": Elsewhere(on_workers),
    "workers, L-BFGS": Elsewhere(lambda: on_workers("unit_trace", 0.05)),
}
EACH = pytest.mark.parametrize("fit", WAYS.values(), ids=list(WAYS))
ROUNDING = 1 + 1e-12


def convex(fit):
    return fit.problem.structure.convex


@EACH
@pytest.mark.parametrize("max_iter", [1, 3])
def test_a_fit_ends_after_max_iter_steps_with_a_certified_point(fit, max_iter):
    certificate, history = fit(tol=1e-15, max_iter=max_iter)
    assert certificate.status == "max_iter"
    assert f"max_iter={max_iter} " in certificate.message
    assert len(history) == max_iter
    assert np.isfinite(certificate.primal)
    if convex(fit):
        assert np.isfinite(certificate.dual)
        assert certificate.dual <= certificate.primal * ROUNDING
        assert history.dual[-1] == certificate.dual
    assert history.objective[-1] == certificate.primal


@EACH
def test_the_history_has_a_row_for_each_step_and_bounds_that_only_improve(fit):
    seen = []
    certificate, history = fit(tol=1e-6, max_iter=40, callback=lambda history: seen.append(len(history)))
    assert seen == history.iteration == list(range(1, len(history) + 1))
    columns = history.as_dict()
    for name, sign in (("objective", -1), ("dual", 1), ("gap", -1), ("seconds", 1)):
        moves = np.diff(np.nan_to_num(columns[name], neginf=-1e300, posinf=1e300))
        assert np.all(sign * moves >= -1e-12 * np.abs(columns["objective"][0])), name
    assert columns["objective"][-1] == certificate.primal
    with pytest.raises(RuntimeError, match="no solve is running"):
        history.best()


@EACH
@pytest.mark.parametrize("after", [1, 2])
def test_a_callback_stops_the_fit_and_sees_its_best_point(fit, after):
    values = []

    def stop(history):
        values.append((fit.objective(history.best()), history.objective[-1]))
        return len(history) == after

    certificate, history = fit(tol=1e-15, max_iter=40, callback=stop)
    assert certificate.status == "callback"
    assert len(history) == len(values) == after
    for value, told in values:
        assert value <= told * ROUNDING or not convex(fit)
    assert certificate.primal <= values[-1][1] * ROUNDING


@EACH
@pytest.mark.parametrize("after", [1, 2])
def test_ctrl_c_in_a_callback_returns_the_best_point(fit, after):
    def interrupt(history):
        if len(history) == after:
            raise KeyboardInterrupt

    certificate, history = fit(tol=1e-15, max_iter=40, callback=interrupt)
    assert certificate.status == "interrupted"
    assert len(history) == after
    assert np.isfinite(certificate.primal)
    assert certificate.dual <= certificate.primal * ROUNDING


class CtrlC:
    """Raises at the given call of a function of the package within the loop."""

    def __init__(self, at):
        self.at, self.seen = at, 0

    def __call__(self, frame, event, arg):
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCE) or frame.f_code is loop.iterate.__code__:
            return
        above = frame
        while above is not None and above.f_code is not loop.iterate.__code__:
            above = above.f_back
        self.seen += above is not None
        if self.seen == self.at:
            self.at = None
            raise KeyboardInterrupt


def interrupted(fit, at, **limits):
    hook, before = CtrlC(at), sys.getprofile()
    sys.setprofile(hook)
    try:
        return fit(**limits), hook.seen
    finally:
        sys.setprofile(before)


STAGES = {
    "two stages, alternating": OnHost("alternating", structure="frobenius", layout="many features"),
    "two stages, proximal": OnHost("proximal", structure="frobenius", layout="many features"),
    "L-BFGS, smoothed": OnHost("factored", loss="absolute", structure="frobenius"),
}


@pytest.mark.parametrize("fit", [*WAYS.values(), *STAGES.values()], ids=[*WAYS, *STAGES])
def test_ctrl_c_may_come_anywhere(fit, monkeypatch):
    """Between the first step and the second, within them, in a certificate, while a loss is smoothed or a stage begins."""
    monkeypatch.setattr(EigenbasisForm, "tolerance_share", 1e3)  # so that a second stage follows
    monkeypatch.setattr(zoo, "data", many_features(zoo.data))
    limits = {"tol": 1e-7, "max_iter": 12}
    calls = interrupted(fit, None, **limits)[1]
    for at in np.unique(np.geomspace(1, calls, 25).astype(int)):
        try:
            (certificate, _), seen = interrupted(fit, at, **limits)
        except KeyboardInterrupt:
            assert not convex(fit)  # there is neither a point nor a bound
            continue
        assert certificate.status == "interrupted" or seen < at
        assert np.isfinite(certificate.primal)
        assert certificate.dual <= certificate.primal * ROUNDING


def many_features(plain):
    """A further layout: shared inputs with enough features for an eigenbasis."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 40)) + 5
    Y = X @ rng.normal(size=(40, 2)) @ rng.normal(size=(2, zoo.T)) + rng.normal(size=(60, zoo.T))
    return lambda loss, layout: (X, Y) if layout in ("many features", "krylov") else plain(loss, layout)


@pytest.mark.parametrize("solver", ["alternating", "block", "proximal"])
def test_max_iter_may_be_reached_where_a_second_stage_would_begin(solver, monkeypatch):
    monkeypatch.setattr(EigenbasisForm, "tolerance_share", 1e3)
    monkeypatch.setattr(zoo, "data", many_features(zoo.data))
    problem = problem_of(structure="frobenius", layout="many features")
    whole = solve(problem, solver, tol=1e-7)
    assert whole.certificate.optimal
    for max_iter in range(1, whole.n_iter):
        found = solve(problem, solver, tol=1e-7, max_iter=max_iter)
        assert found.n_iter == max_iter
        assert found.certificate.status == "max_iter"
        assert np.isclose(problem.primal(found.W, found.b, found.A), found.certificate.primal, rtol=1e-9)


# --- time limits ----------------------------------------------------------------------------------------------------------

PAUSE, LIMIT, ROOM = 0.2, 0.3, 1.5


def slowly(monkeypatch, owner, name, calls):
    """Every call of a function takes a while."""
    plain = getattr(owner, name)

    def slow(*given, **more):
        calls.append(name)
        time.sleep(PAUSE)
        return plain(*given, **more)

    monkeypatch.setattr(owner, name, slow)


def slow_products(monkeypatch, calls):
    """Every product in conjugate gradients takes a while; those of certificates are not changed."""
    for module in [each for name, each in sys.modules.items() if name.startswith("taskloom.solvers.")]:
        if (plain := getattr(module, "conjugate_gradient", None)) is None:
            continue

        def slow(product, *given, plain=plain, **more):
            def wait(x):
                calls.append("product")
                time.sleep(PAUSE)
                return product(x)

            return plain(wait, *given, **more)

        monkeypatch.setattr(module, "conjugate_gradient", slow)


COUPLED = {"structure": structures.LogDet(0.3), "layout": "missing"}
PRODUCTS = {
    "alternating": OnHost("alternating", **COUPLED),
    "alternating, other loss": OnHost("alternating", loss="logistic", **COUPLED),
    "proximal": OnHost("proximal", **COUPLED),
    "proximal, smoothed": OnHost("proximal", loss="absolute", **COUPLED),
    **{name: WAYS[name] for name in ("factored", "factored, other loss", "on the weights of clusters")},
    **{name: WAYS[name] for name in ("device", "device, frobenius", "device, shared inputs", "device, kernel", "workers")},
}


def ends_in_time(fit):
    began = time.perf_counter()
    certificate, _ = fit(tol=0.0, max_iter=10**6, time_limit=LIMIT)
    assert time.perf_counter() - began < LIMIT + ROOM
    assert certificate.status == "time_limit"
    assert certificate.dual <= certificate.primal * ROUNDING


@pytest.mark.parametrize("fit", PRODUCTS.values(), ids=list(PRODUCTS))
def test_a_time_limit_ends_conjugate_gradients(fit, monkeypatch):
    calls = []
    monkeypatch.setattr(TaskSide, "tuning", replace(TaskSide.tuning, max_dense_unknowns=0))
    slow_products(monkeypatch, calls)
    ends_in_time(fit)
    assert calls


@pytest.mark.parametrize(
    ("fit", "owner", "name"),
    [
        (WAYS["block"], _BlockRun, "_weights_step"),
        (WAYS["factored, L-BFGS"], FactorRun, "_evaluate"),
        (WAYS["workers, L-BFGS"], ClusterLbfgs, "_evaluate"),
        (WAYS["factored, shared inputs"], Point, "hessian"),
        (WAYS["workers"], LocalTasks, "hessian"),
        (WAYS["factored"], LocalEngine, "eliminate"),
        (WAYS["proximal"], TaskSide, "supervise"),
        (WAYS["alternating"], TaskSide, "supervise"),
        (WAYS["sum"], TermSumSide, "supervise"),
        (OnHost("factored", alpha=1e-3, layout="krylov"), subspaces, "_directions"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_a_time_limit_ends_long_steps_and_preparations(fit, owner, name, monkeypatch):
    calls = []
    few = replace(subspaces.TUNING, min_krylov_features=20, min_krylov_observations=20)
    monkeypatch.setattr(subspaces, "TUNING", few)
    monkeypatch.setattr(subspaces, "GROWING", 20)
    monkeypatch.setattr(zoo, "data", many_features(zoo.data))
    slowly(monkeypatch, owner, name, calls)
    ends_in_time(fit)
    assert calls


def test_without_a_limit_the_same_fits_take_longer(monkeypatch):
    """The tests above would see a loop that looks at no clock."""
    calls = []
    slow_products(monkeypatch, calls)
    monkeypatch.setattr("taskloom._linalg.check_time", lambda: None)
    began = time.perf_counter()
    WAYS["factored"](tol=0.0, max_iter=6)
    assert time.perf_counter() - began > LIMIT + ROOM
    assert len(calls) > (LIMIT + ROOM) / PAUSE


def test_a_kernel_matrix_that_takes_longer_than_the_limit_leaves_constants_with_a_valid_bound():
    def slow(A, B):
        time.sleep(2.0)
        return np.exp(-((A[:, None, :] - B[None, :, :]) ** 2).sum(-1))

    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(30, 3)), rng.normal(size=(30, 4))
    model = MultiTaskRegressor(kernel=slow, time_limit=0.3)
    began = time.perf_counter()
    with pytest.warns(ConvergenceWarning, match="time limit passed before the kernel matrix was decomposed"):
        model.fit(X, Y)
    assert time.perf_counter() - began < 1.8
    assert model.certificate_.status == "time_limit"
    assert np.allclose(model.intercept_, Y.mean(axis=0))
    assert not model.dual_coef_.any()
    best = MultiTaskRegressor(kernel=slow, tol=1e-8).fit(X, Y).certificate_
    assert model.certificate_.dual <= best.primal <= model.certificate_.primal
