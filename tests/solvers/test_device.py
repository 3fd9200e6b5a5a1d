"""The code for devices, run on the host: the same optimum as the ordinary solvers, certificates that hold, clear refusals."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import taskloom
from taskloom import MultiTaskRegressor, _array_api, structures
from taskloom.design.task_data import Rows
from taskloom.engines.local import LocalEngine
from taskloom.estimators import base
from taskloom.solvers.device import kernel_inputs as kernel
from taskloom.solvers.engine_run import RemoteNewtonRun
from taskloom.solvers.factor.newton import Point
from taskloom.tables.layout import as_table

STRUCTURES = ["trace", "frobenius", "independent"]


@pytest.fixture(params=["numpy", "torch", "array_api_strict"])
def array(request):
    """Makes arrays of the library; all but NumPy are tested where they are installed."""
    return pytest.importorskip(request.param).asarray


def wide(n=60, d=7, T=9, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    Y = X @ rng.normal(size=(d, 3)) @ rng.normal(size=(3, T)) + 0.5 * rng.normal(size=(n, T)) + 2
    return X, Y


def long(counts=(4, 9, 3, 7, 5, 30, 1, 12), d=6, seed=0):
    rng = np.random.default_rng(seed)
    task = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    X = rng.normal(size=(task.size, d)) + 0.3
    W = rng.normal(size=(d, 2)) @ rng.normal(size=(2, len(counts)))
    return np.column_stack([X, task]), np.einsum("ij,ji->i", X, W[:, task]) + 0.3 * rng.normal(size=task.size)


def with_gaps():
    X, Y = wide()
    return X, np.where(np.random.default_rng(1).uniform(size=Y.shape) < 0.3, np.nan, Y)


CASES = {
    "linear": (wide(), {"alpha": 0.05}),
    "more columns than rows": (wide(8, 12), {"alpha": 0.05}),
    "rbf": (wide(), {"alpha": 0.01, "kernel": "rbf", "gamma": 0.2}),
    "polynomial, no intercept": (wide(), {"alpha": 0.01, "kernel": "poly", "degree": 2, "fit_intercept": False}),
    "task weights": (wide(T=3), {"alpha": 0.05, "task_weight": [1.0, 2.0, 0.5]}),
    "long": (long(), {"alpha": 0.05, "task_column": -1}),
    "long, no intercept": (long(), {"alpha": 0.05, "task_column": -1, "fit_intercept": False, "task_weight": "size"}),
    "missing targets": (with_gaps(), {"alpha": 0.05}),
    "one target": ((wide()[0], wide()[1][:, 0]), {"alpha": 0.05}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("case", CASES)
def test_a_device_finds_the_optimum_of_the_ordinary_solvers(case, structure, weighted, array):
    (X, y), settings = CASES[case]
    weight = np.random.default_rng(2).uniform(0.2, 2, size=len(X)) if weighted else None
    plain = MultiTaskRegressor(structure, tol=1e-12, **settings)
    there = clone(plain).set_params(device="cpu").fit(array(X), array(y), weight)
    here = plain.set_params(max_iter=20_000).fit(X, y, weight)
    assert there.certificate_.optimal, there.certificate_.message
    assert "on cpu" in there.certificate_.message
    room = here.certificate_.gap + there.certificate_.gap + 1e-12 * here.certificate_.primal
    assert abs(there.certificate_.primal - here.certificate_.primal) <= room
    assert there.certificate_.dual <= here.certificate_.primal + 1e-12 * here.certificate_.primal
    guess, truth = there.predict(array(X)), here.predict(X)
    assert isinstance(guess, type(array(X)))  # predictions follow X
    assert np.allclose(np.asarray(guess), truth, rtol=1e-6, atol=3e-6 * np.nanstd(y))
    assert np.allclose(there.structure_, here.structure_, atol=1e-5 * np.abs(here.structure_).max())
    problem = plain._prepare(X, y, weight)
    coef = there.coef_.T if hasattr(there, "coef_") else there.dual_coef_
    W = problem.features.weights(coef)
    assert np.isclose(problem.problem.best_primal(W, there.intercept_)[0], there.certificate_.primal, rtol=1e-9)


@pytest.mark.parametrize("case", ["linear", "rbf", "long"])
def test_single_precision_reaches_its_gap_and_says_so(case, array):
    (X, y), settings = CASES[case]
    best = MultiTaskRegressor(tol=1e-9, **settings).fit(np.float32(X), y).certificate_
    model = MultiTaskRegressor(tol=1e-4, device="cpu", **settings).fit(array(np.float32(X)), array(y))
    assert model.certificate_.optimal
    assert model.certificate_.relative_gap <= 1e-4
    assert model.certificate_.dual <= best.primal * (1 + 1e-12)  # certified in double precision
    assert model.certificate_.primal >= best.dual * (1 - 1e-12)
    assert ("single precision" in model.certificate_.message) == (case != "linear")  # moments are added up in double
    assert model.predict(array(np.float32(X))).dtype == array(np.float32(X)).dtype


def test_what_single_precision_cannot_reach_is_admitted():
    (X, y), settings = CASES["long"]
    with pytest.warns(UserWarning, match="single precision"):
        MultiTaskRegressor(tol=1e-11, device="cpu", **settings).fit(np.float32(X), y)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss": "huber"}, "squared loss only"),
        ({"loss": {0: "squared", 1: "huber"}}, "one loss for all tasks"),
        ({"structure": "unit_trace"}, "Trace"),
        ({"structure": structures.Schatten(1.5)}, "Trace"),
        ({"ridge": 0.1}, "no ridge"),
        ({"solver": "proximal"}, "one solver"),
        ({"kernel": "laplacian"}, "kernels linear, rbf and poly"),
        ({"kernel": ["linear", "rbf"]}, "kernels linear, rbf and poly"),
        ({"kernel": "rbf", "task_column": -1}, "targets in columns"),
        ({"standardize_targets": True}, "scale y"),
        ({"kernel": "rbf", "approximation": "nystroem"}, "approximate kernels"),
    ],
)
def test_what_a_device_cannot_do_is_refused_with_a_remedy(settings, words, monkeypatch):
    (X, Y), model = wide(T=2), MultiTaskRegressor(device="cpu", **settings)
    with pytest.raises(ValueError, match=words) as error:
        model.fit(X, Y)
    assert "device=None" in str(error.value)
    if "task_column" in settings or "loss" in settings:
        return
    monkeypatch.setattr(base, "on_card", lambda array: isinstance(array, np.ndarray))  # as if X lay on a card
    with pytest.warns(UserWarning, match=words):  # nobody asked for a device: the fit goes on without it
        assert model.set_params(device=None).fit(X, Y).certificate_.optimal


def test_a_kernel_needs_complete_targets():
    with pytest.raises(ValueError, match="observed in all rows"):
        MultiTaskRegressor(kernel="rbf", device="cpu").fit(*with_gaps())


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "mps"])
def test_a_device_that_does_not_exist_is_named(device):
    with pytest.raises(ValueError, match=f"got device='{device}'"):
        MultiTaskRegressor(device=device).fit(*wide())


def test_without_a_card_cuda_is_refused_in_one_sentence(monkeypatch):
    def absent(name):
        raise ImportError(name)

    monkeypatch.setattr(_array_api, "import_module", absent)
    with pytest.raises(ValueError, match=r"device='cuda' needs PyTorch or CuPy and a CUDA device, but none is installed"):
        MultiTaskRegressor(device="cuda").fit(*wide())


def test_a_model_with_a_device_predicts_where_there_is_none():
    X, Y = wide()
    model = MultiTaskRegressor(kernel="rbf", device="cpu").fit(X, Y)
    elsewhere = copy.deepcopy(model).set_params(device="cuda:7")
    assert np.array_equal(elsewhere.predict(X), model.predict(X))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_stay_outside(bad, array):
    X, Y = wide()
    X[3, 2] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        MultiTaskRegressor(device="cpu").fit(array(X), array(Y))
    X, Y = wide()
    Y[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        MultiTaskRegressor(device="cpu").fit(array(X), array(Y))
    with pytest.raises(ValueError, match="rows"):
        MultiTaskRegressor(device="cpu").fit(array(wide()[0]), array(wide()[1][1:]))


def test_a_kernel_that_is_none_is_refused():
    X, Y = wide()
    with pytest.raises(ValueError, match="not positive semidefinite"):
        MultiTaskRegressor(kernel="poly", degree=1, coef0=-50, fit_intercept=False, device="cpu").fit(X, Y)


@pytest.mark.parametrize("case", ["linear", "rbf", "long"])
def test_nothing_to_learn_is_certified_at_once(case, array):
    (X, y), settings = CASES[case]
    model = MultiTaskRegressor(device="cpu", **{**settings, "alpha": 1e6}).fit(array(X), array(y))
    assert model.certificate_.relative_gap <= 1e-12
    assert not np.any(model.structure_)
    flat = MultiTaskRegressor(device="cpu", **settings).fit(array(X), array(np.full_like(y, 0.1)))
    assert flat.certificate_.relative_gap == 0


def test_many_tasks_hand_back_a_factored_structure():
    X, y = long(counts=(5, 3) * 1050, d=4)
    settings = {"alpha": 2.0, "task_column": -1, "tol": 1e-10}
    there, here = (MultiTaskRegressor(device=device, **settings).fit(X, y) for device in ("cpu", None))
    assert isinstance(there.structure_, taskloom.FactoredStructure)
    some = np.arange(40)
    assert np.allclose(there.structure_[some][:, some], here.structure_[some][:, some], rtol=1e-4, atol=1e-6)
    assert next(iter(there.explain(3.0))) == next(iter(here.explain(3.0)))


@pytest.mark.parametrize("case", ["linear", "rbf", "long"])
def test_a_model_from_a_device_is_like_any_other(case, tmp_path):
    (X, y), settings = CASES[case]
    model = MultiTaskRegressor(device="cpu", **settings).fit(X, y)
    plain = MultiTaskRegressor(**settings).fit(X, y)
    assert model.device_ == "cpu"
    model.save(tmp_path / "model.taskloom")
    for again in (taskloom.load(tmp_path / "model.taskloom"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(again.predict(X), model.predict(X))
    assert np.isclose(model.score(X, y), plain.score(X, y), atol=1e-3)
    task = model.tasks_[2]
    assert np.isclose(model.explain(task)[task], plain.explain(task)[task], atol=0.02)
    rows = X[:20] if "task_column" not in settings else X[:20, :-1]
    for one in (model, plain):
        one.add_task(rows, rows[:, 0], "new")
    assert np.allclose(model.structure_[-1], plain.structure_[-1], atol=0.02 * np.abs(plain.structure_).max())
    with pytest.raises(AttributeError, match="device=None"):
        MultiTaskRegressor(device="cpu", **settings).fit(X, y).predict(X, return_std=True)
    assert not hasattr(clone(model).set_params(device=None).fit(X, y), "device_")


def test_progress_is_shown_and_limits_hold(capsys):
    (X, y), settings = CASES["long"]
    MultiTaskRegressor(device="cpu", verbose=1, **settings).fit(X, y)
    assert "gap" in capsys.readouterr().out
    with pytest.warns(UserWarning, match="max_iter=1"):
        MultiTaskRegressor(device="cpu", max_iter=1, tol=1e-14, **settings).fit(X, y)


def test_gradients_are_not_recorded():
    torch = pytest.importorskip("torch")
    X, Y = (torch.as_tensor(each).requires_grad_() for each in wide())
    assert MultiTaskRegressor(device="cpu").fit(X, Y).certificate_.optimal
    assert not MultiTaskRegressor().fit(X, Y).predict(X).requires_grad


def test_tensors_go_through_every_other_door():
    torch = pytest.importorskip("torch")
    X, Y = wide()
    plain, tensors = MultiTaskRegressor(loss="huber").fit(X, Y), (torch.as_tensor(X), torch.as_tensor(Y))
    model = MultiTaskRegressor(loss="huber").fit(*tensors)
    assert np.array_equal(model.coef_, plain.coef_)
    assert isinstance(model.predict(tensors[0]), torch.Tensor)
    assert model.score(*tensors) == plain.score(X, Y)
    masked = np.ma.masked_invalid(with_gaps()[1])
    assert np.isnan(as_table(masked)).sum() == masked.mask.sum()  # masks are NumPy's own business


@pytest.mark.parametrize("p", [1, 2])
def test_rows_have_the_gradient_and_the_hessian_of_their_value(p):
    rng = np.random.default_rng(0)
    data = [Rows(rng.uniform(0.1, 2, size=12), rng.normal(size=(12, 5)), rng.uniform(0.5, 2, size=5))]
    Q, step, eps = rng.normal(size=(5, 3)), rng.normal(size=(5, 3)), 1e-5

    def at(t):
        return Point(LocalEngine(data, 0.3).eliminate(Q + t * step), Q + t * step, 0.3, p)

    here = at(0)
    here.lift = 0.0
    assert np.isclose(np.vdot(here.gradient, step), (at(eps).value - at(-eps).value) / (2 * eps), rtol=1e-6)
    assert np.allclose(here.hessian(step), (at(eps).gradient - at(-eps).gradient) / (2 * eps), rtol=1e-5, atol=1e-6)
    naive = here.charge
    for d, y in zip(data[0].d, data[0].y, strict=True):
        P = d * data[0].root[:, None] * Q
        b = np.linalg.solve(P.T @ P + 0.3 * np.eye(3), P.T @ y)
        naive += np.sum((y - P @ b) ** 2) + 0.3 * b @ b
    assert np.isclose(here.value, naive)


@pytest.fixture
def growing(monkeypatch):
    """Kernels of few rows go the way of large ones, and what they become is kept."""
    obs = []
    build = kernel.KernelInputs.__init__

    def watched(self, *arguments, **more):
        build(self, *arguments, **more)
        obs.append(self)

    monkeypatch.setattr(kernel, "GROWING", 20)
    monkeypatch.setattr(kernel.KernelInputs, "__init__", watched)
    return obs


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_few_directions_of_a_kernel_are_enough(structure, fit_intercept, weighted, array, growing):
    """The optimum of the ordinary solver, certified on the whole kernel, in the span of a part of it."""
    X, Y = wide(n=150, d=3, T=4)
    weight = np.random.default_rng(2).uniform(0.2, 2, size=len(X)) if weighted else None
    for alpha, tol in ((0.03, 1e-6), (0.001, 1e-6), (1e-5, 1e-9)):
        plain = MultiTaskRegressor(structure, kernel="rbf", gamma=0.5, alpha=alpha, tol=tol, fit_intercept=fit_intercept)
        there = clone(plain).set_params(device="cpu").fit(array(X), array(Y), weight)
        here = plain.fit(X, Y, weight)
        assert there.certificate_.optimal, there.certificate_.message
        room = here.certificate_.gap + there.certificate_.gap + 1e-12 * here.certificate_.primal
        assert abs(there.certificate_.primal - here.certificate_.primal) <= room
        assert there.certificate_.dual <= here.certificate_.primal * (1 + 1e-12)
        assert here.certificate_.dual <= there.certificate_.primal * (1 + 1e-12)
        assert np.allclose(np.asarray(there.predict(array(X))), here.predict(X), atol=0.02 * Y.std())
    sizes = [inputs.data[0].d.shape[0] for inputs in growing]
    assert not growing[0].whole
    assert sizes[0] < sizes[1] < sizes[2] <= 150
    assert sizes[0] < 75


def test_directions_are_orthonormal_and_are_kept_when_more_are_asked_for(growing):
    X, Y = wide(n=150, d=3, T=4)
    MultiTaskRegressor("trace", kernel="rbf", gamma=0.5, alpha=0.003, tol=1e-7, device="cpu").fit(X, Y)
    inputs = growing[0]
    K = inputs._centred()
    assert np.allclose(inputs._times(inputs.Y), K @ inputs.Y, atol=1e-14)  # which takes no centred matrix
    block = inputs.data[0]
    assert np.allclose(block.S.T @ K @ block.S, np.eye(block.d.size), atol=1e-10)
    assert np.allclose(inputs.P, K @ block.S, atol=1e-10)
    assert np.allclose(inputs.P.T @ inputs.P, np.diag(block.d**2), atol=1e-10 * float(block.d.max()) ** 2)
    assert 0 < block.slack < 1e-11
    point = Point(inputs.engine.eliminate(np.eye(4)), np.eye(4), 0.003)
    W = point.tasks.weights()
    exact = 0.003 * np.trace(W.T @ block.S.T @ K @ block.S @ W) + 4  # at the structure of the point, the unit matrix
    assert exact <= inputs.terms(point)[1] <= exact * (1 + 1e-9)
    C, before = inputs.coefficients(point)[0], block.d.size
    start = inputs.enlarged(point, 1e-12, moved=True, stalled=False)
    assert before < inputs.data[0].d.size
    assert np.allclose(inputs.data[0].S @ start, C, atol=1e-8 * np.abs(C).max())
    whole = inputs.enlarged(point, 1e-12, moved=True, stalled=True)
    assert inputs.whole
    assert np.allclose(K @ (inputs.S @ whole), K @ C, atol=1e-8)
    assert inputs.enlarged(point, 1e-12, moved=False, stalled=True) is None


def test_noise_of_single_precision_is_not_taken_in_for_ever(growing):
    X, Y = (part.astype(np.float32) for part in wide(n=150, d=3, T=4))
    model = MultiTaskRegressor("trace", kernel="rbf", gamma=0.5, alpha=1e-6, tol=1e-9, device="cpu")
    with pytest.warns(ConvergenceWarning):
        model.fit(X, Y)
    assert model.certificate_.status == "stalled"
    assert model.n_iter_ < 50


def test_kernels_that_are_definite_are_known():
    assert kernel.is_definite("linear", None, 3, 1)
    assert kernel.is_definite("rbf", 0.1, 3, 1)
    assert kernel.is_definite("poly", None, 3.0, 0.0)
    assert not kernel.is_definite("poly", None, 2.5, 1)
    assert not kernel.is_definite("poly", None, 3, -1)
    assert not kernel.is_definite("poly", -1.0, 3, 1)
    assert not kernel.is_definite("rbf", -1.0, 3, 1)


def test_directions_of_tasks_are_looked_for_after_each_enlargement(growing, monkeypatch):
    """A start keeps half of them; under a weak penalty the gap is in the others, and not in directions of the inputs."""
    calls = []
    for name, method in [(name, getattr(RemoteNewtonRun, name)) for name in ("_enlarge", "_grow")]:

        def watched(self, *given, name=name, method=method, **more):
            calls.append((name, method(self, *given, **more)))
            return calls[-1][1]

        monkeypatch.setattr(RemoteNewtonRun, name, watched)
    noise = np.random.default_rng(0)
    X, signal = noise.normal(size=(600, 20)), noise.normal(size=(20, 3)) / 4
    Y = np.tanh(X @ signal) @ noise.normal(size=(3, 20)) + 0.5 * noise.normal(size=(600, 20))
    MultiTaskRegressor("trace", kernel="rbf", alpha=1e-6, tol=1e-4, device="cpu").fit(X, Y)
    enlarged = [k for k, call in enumerate(calls) if call == ("_enlarge", True)]
    assert len(enlarged) > 1
    assert all(calls[k + 1][0] == "_grow" for k in enlarged)
