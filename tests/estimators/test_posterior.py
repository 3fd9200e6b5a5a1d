"""``return_std`` against Gaussian processes written out from their definition, and closed-form leave-one-out against refits."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import LeaveOneOut

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, Problem, stack, structures
from taskloom.design import Observations
from taskloom.solvers import solve
from taskloom.uncertainty import posterior
from taskloom.uncertainty.leave_one_out import leave_one_out

BOTH_SIDES = [
    structures.Trace(),
    structures.Frobenius(),
    structures.Schatten(1.5),
    structures.SchattenNorm(1.5),
    structures.UnitTrace(),
]
rng = np.random.default_rng(0)
X = rng.normal(size=(18, 4))
Y = X @ rng.normal(size=(4, 2)) @ rng.normal(size=(2, 3)) + 0.3 * rng.normal(size=(18, 3)) + 1.0
NEW = rng.normal(size=(7, 4))
FLAT = 1e7  # the prior variance that stands for a flat one


def gaussian_process(model, kernel, X, Y, new, noise, joint=False):
    """Mean and standard deviation by conditioning the joint Gaussian of all weights; intercepts have a huge variance.

    Rows have features whose products are the kernel, so that the weights of all tasks are one vector. Where the structure
    turns with them, each task also has the covariance of the features that the structure implies, on its own.
    """
    rows, tasks = np.nonzero(~np.isnan(Y))
    T, A = Y.shape[1], model.structure_
    counts = np.bincount(tasks, minlength=T)
    variance = counts[tasks].astype(float)  # noise variances are in proportion to 1 / v = n_t, whatever the scale
    tau = noise**2 / variance.mean()
    variance *= tau
    K = kernel(both := np.vstack([X, new]), both)
    k, V = np.linalg.eigh(K)
    phi = V[:, k > 1e-13 * k[-1]] * np.sqrt(k[k > 1e-13 * k[-1]])
    prior = np.kron(np.eye(phi.shape[1]), A)
    if joint:
        C = model.dual_coef_ if hasattr(model, "dual_coef_") else np.linalg.lstsq(X.T, model.coef_.T, rcond=None)[0]
        U, _, Vt = np.linalg.svd(phi[: len(X)].T @ C, full_matrices=False)
        prior += np.kron(U @ Vt @ A @ Vt.T @ U.T, np.eye(T))
    prior = tau / model.alpha * prior @ np.linalg.inv(np.eye(len(prior)) + model.ridge / model.alpha * prior)

    def design(features, task):
        own = np.eye(T)[task]
        return np.einsum("ir,it->irt", features, own).reshape(len(task), -1), own if model.fit_intercept else 0 * own

    (seen, seen_b), (asked, asked_b) = (
        design(phi[rows], tasks),
        design(np.repeat(phi[len(X) :], T, 0), np.tile(range(T), len(new))),
    )
    total = seen @ prior @ seen.T + FLAT * seen_b @ seen_b.T + np.diag(variance)
    cross = asked @ prior @ seen.T + FLAT * asked_b @ seen_b.T
    mean = cross @ np.linalg.solve(total, Y[rows, tasks])
    own = np.einsum("ij,jk,ik->i", asked, prior, asked) + FLAT * (asked_b**2).sum(axis=1)
    spread = own - np.einsum("ij,ji->i", cross, np.linalg.solve(total, cross.T))
    return mean.reshape(len(new), T), np.sqrt(np.maximum(spread, 0)).reshape(len(new), T)


def linear(X, Z):
    return X @ Z.T


@pytest.mark.parametrize("layout", ["shared", "missing", "few"])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("structure", [structures.Frobenius(), structures.SharedMean(2.0), structures.Trace()], ids=repr)
@pytest.mark.parametrize("ridge", [0.0, 0.2])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_posterior_is_the_gaussian_process(layout, kernel, structure, ridge, intercept):
    targets = Y.copy()
    if layout != "shared":
        targets[rng.random(Y.shape) < (0.3 if layout == "missing" else 0.6)] = np.nan
        targets[:2] = Y[:2]
    model = MultiTaskRegressor(
        structure, kernel=kernel, gamma=0.2, alpha=0.05, ridge=ridge, fit_intercept=intercept, noise=0.5, tol=1e-10
    ).fit(X, targets)
    function = linear if kernel == "linear" else RBF(np.sqrt(1 / 0.4))
    mean, std = model.predict(NEW, return_std=True)
    expected_mean, expected_std = gaussian_process(model, function, X, targets, NEW, 0.5)
    assert np.allclose(mean, model.predict(NEW))
    assert np.allclose(mean, expected_mean, atol=1e-4)
    assert np.allclose(std, expected_std, atol=1e-4)
    joint = model.predict(NEW, return_std="joint")[1]
    if structure.known:
        assert np.allclose(joint, std)
    else:
        assert np.allclose(joint, gaussian_process(model, function, X, targets, NEW, 0.5, joint=True)[1], atol=1e-4)
        assert np.all(joint > std)


@pytest.mark.parametrize("structure", [s for s in BOTH_SIDES if not s.known], ids=repr)
def test_a_learned_structure_turns_as_freely_as_the_tasks(structure):
    """Out of the span of the tasks, the penalty bends by ``2 / a_i`` along the ``i``-th direction of the features."""
    deep = np.random.default_rng(3)
    W = deep.normal(size=(5, 2)) @ deep.normal(size=(2, 6))
    U, _, Vt = np.linalg.svd(W)
    A, penalty = structure.best_of_root(W)
    for i in range(2):
        turn = np.outer(U[:, i], Vt[4])
        bend = sum(structure.best_of_root(W + h * turn)[1] - penalty for h in (1e-3, -1e-3)) / 1e-6
        assert np.isclose(bend, 2 / (Vt[i] @ A @ Vt[i]), rtol=1e-4)


@pytest.mark.parametrize("structure", ["trace", "frobenius", "unit_trace"])
def test_joint_intervals_cover_where_the_structure_was_learned(structure):
    """Nearly 95 %, where bands given the structure hold 80 to 85 %: benchmarks/coverage.py."""
    hits = {True: [], "joint": []}
    for seed in range(12):
        deep = np.random.default_rng(seed)
        W = deep.normal(size=(5, 2)) @ deep.normal(size=(2, 8))
        inputs, points = deep.normal(size=(60, 5)), deep.normal(size=(50, 5))
        targets = inputs @ W
        targets += 0.5 * targets.std() * deep.normal(size=targets.shape)
        model = MultiTaskRegressorCV(structure, alphas=8, scoring="steady", common=None, kernels=None).fit(inputs, targets)
        for how, found in hits.items():
            mean, std = model.predict(points, return_std=how)
            found.append(np.abs(mean - points @ W) <= 1.96 * std)
    assert np.mean(hits[True]) < 0.88
    assert 0.89 < np.mean(hits["joint"]) < 0.97


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("weights", ["alike", "uneven"])
def test_all_forms_of_a_joint_posterior_agree(monkeypatch, intercept, ridge, weights):
    """By directions of the tasks where these weigh the same, else by dense systems over weights or observations."""
    deep = np.random.default_rng(4)
    inputs, W = deep.normal(size=(30, 3)), deep.normal(size=(3, 2)) @ deep.normal(size=(2, 5))
    targets = inputs @ W + 0.3 * deep.normal(size=(30, 5))
    problem = MultiTaskRegressor("trace", alpha=0.05, ridge=ridge, fit_intercept=intercept)._prepare(inputs, targets).problem
    if weights == "uneven":
        seen = problem.observations
        problem = replace(problem, observations=replace(seen, weight=seen.weight * (1.0 + seen.task)))
    found = solve(problem, tol=1e-10)
    phi, size = problem.features[:7], np.square(problem.features[:7]).sum(axis=1) + 0.5

    def joint(kind):
        with monkeypatch.context() as patch:
            if kind is not None:
                patch.setattr(
                    posterior, "_SharedJoint", lambda problem, prior, s, c: kind(problem, prior, problem.observations)
                )
            one = posterior.Posterior(problem, found.W, found.b, found.A, joint=True)
        return one.tau, one.deviation(phi, size), type(one.groups[0][1])

    tau, std, form = joint(None)
    assert form is (posterior._SharedJoint if weights == "alike" else posterior._ByWeight)
    if weights == "alike":
        for kind in (posterior._ByWeight, posterior._ByObservation):
            other_tau, other_std, _ = joint(kind)
            assert np.isclose(tau, other_tau)
            assert np.allclose(std, other_std)


def test_joint_deviations_say_where_they_end():
    with pytest.raises(ValueError, match=r'True, False or "joint"'):
        MultiTaskRegressor().fit(X, Y).predict(NEW, return_std="both")
    with pytest.raises(ValueError, match="Trace, Schatten"):
        MultiTaskRegressor("clusters").fit(X, Y).predict(NEW, return_std="joint")
    model = MultiTaskRegressor("trace", alpha=0.05).fit(X, Y)
    first = model.predict(NEW, return_std="joint")[1], model.predict(NEW, return_std=True)[1]
    model.set_params(noise=2.0)
    second = model.predict(NEW, return_std="joint")[1], model.predict(NEW, return_std=True)[1]
    for before, after in zip(first, second, strict=True):  # nothing of the old level is kept
        assert np.all(after > before)


def test_one_task_is_scikit_learns_gaussian_process():
    y = Y[:, 0] - Y[:, 0].mean()
    model = MultiTaskRegressor("independent", kernel=RBF(1.5), alpha=0.02, fit_intercept=False, noise=0.4).fit(X, y)
    prior = 0.4**2 / (0.02 * len(X))
    twin = GaussianProcessRegressor(ConstantKernel(prior) * RBF(1.5), alpha=0.4**2, optimizer=None).fit(X, y)
    mean, std = model.predict(NEW, return_std=True)
    expected = twin.predict(NEW, return_std=True)
    assert np.allclose(mean, expected[0])
    assert np.allclose(std, expected[1])


def test_the_noise_level_is_found():
    deep = np.random.default_rng(1)
    inputs = deep.normal(size=(400, 5))
    targets = inputs @ deep.normal(size=(5, 2)) @ deep.normal(size=(2, 6)) + 0.7 * deep.normal(size=(400, 6))
    assert np.allclose(MultiTaskRegressor("frobenius", alpha=1e-3).fit(inputs, targets).noise_, 0.7, rtol=0.05)
    holes = np.where(deep.random(targets.shape) < 0.5, np.nan, targets)
    assert np.allclose(MultiTaskRegressor("frobenius", alpha=1e-3).fit(inputs, holes).noise_, 0.7, rtol=0.15)


def test_intervals_cover():
    """Under the model itself, 95 % intervals hold 95 % of the functions' values."""
    deep = np.random.default_rng(2)
    B = deep.normal(size=(4, 4))
    A = B @ B.T + 0.1 * np.eye(4)
    hits = []
    for _ in range(40):
        inputs = deep.normal(size=(15, 3))
        W = deep.normal(size=(3, 4)) @ np.linalg.cholesky(A).T
        targets = inputs @ W + 0.5 * deep.normal(size=(15, 4))
        alpha = 0.5**2 / 15  # prior variance 1: noise^2 v / alpha with v = 1/n
        model = MultiTaskRegressor(structures.Fixed(A), alpha=alpha, fit_intercept=False).fit(inputs, targets)
        points = deep.normal(size=(20, 3))
        mean, std = model.predict(points, return_std=True)
        hits.append(np.abs(mean - points @ W) <= 1.96 * std)
    assert 0.92 < np.mean(hits) < 0.98


def test_long_tables_standardized_targets_and_float32():
    frame, y = stack([X[:8], X[5:]], [Y[:8, 0], Y[5:, 1]])
    model = MultiTaskRegressor(task_column=-1, standardize_targets=True, alpha=0.1).fit(frame, y)
    mean, std = model.predict(frame, return_std=True)
    assert mean.shape == std.shape == y.shape
    bigger = MultiTaskRegressor(task_column=-1, standardize_targets=True, alpha=0.1).fit(frame, 1000 * y)
    assert np.allclose(bigger.predict(frame, return_std=True)[1], 1000 * std, rtol=1e-3)
    assert (
        MultiTaskRegressor().fit(X.astype(np.float32), Y).predict(NEW.astype(np.float32), return_std=True)[1].dtype
        == np.float32
    )


def test_what_has_no_posterior_says_so(monkeypatch):
    with pytest.raises(AttributeError, match="squared loss"):
        MultiTaskRegressor(loss="huber").fit(X, Y).predict(NEW, return_std=True)
    K = X @ X.T
    with pytest.raises(ValueError, match="precomputed"):
        MultiTaskRegressor(kernel="precomputed").fit(K, Y).predict(K, return_std=True)
    monkeypatch.setattr(posterior, "MAX_DENSE_ROWS", 5)
    with pytest.raises(ValueError, match="the limit is 5"):
        MultiTaskRegressor("frobenius").fit(X, np.where(rng.random(Y.shape) < 0.3, np.nan, Y)).predict(NEW, return_std=True)


# --- leave one out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "structure", [structures.Independent(), structures.SharedMean(3.0), structures.Fixed(np.diag([1.0, 0.5, 0.0]))], ids=repr
)
@pytest.mark.parametrize("layout", ["wide", "long", "gaps"])
@pytest.mark.parametrize("options", [{}, {"ridge": 0.3}, {"task_weight": "size"}, {"fit_intercept": False}, {"kernel": "rbf"}])
def test_leave_one_out_is_what_refits_predict(structure, layout, options):
    unrelated = not isinstance(structure, structures.SharedMean)
    if layout == "gaps" and (not unrelated or "task_weight" in options):
        pytest.skip("no closed form")
    if layout == "long":
        model = MultiTaskRegressor(structure, task_column=-1, tol=1e-9, **options)
        inputs, targets = stack([X[:5], X[3:12], X[11:]], [Y[:5, 0], Y[3:12, 1], Y[11:, 2]])
    else:
        model, inputs, targets = MultiTaskRegressor(structure, tol=1e-9, **options), X, Y.copy()
        if layout == "gaps":
            targets[1::3, 1:] = np.nan
    alphas = [0.3, 0.01]
    data = clone(model)._prepare(inputs, targets)
    quick = leave_one_out(data.problem, alphas, rows=layout != "long", by_size=options.get("task_weight") == "size")
    seen = data.problem.observations
    for k, alpha in enumerate(alphas):
        slow = np.full(np.shape(targets), np.nan)
        for train, test in LeaveOneOut().split(inputs):
            slow[test] = clone(model).set_params(alpha=alpha).fit(inputs[train], targets[train]).predict(inputs[test])
        expected = slow[seen.row] if layout == "long" else slow[seen.row, seen.task]
        assert np.allclose(quick[k], expected, atol=1e-7)


def test_leave_one_out_in_the_estimator(monkeypatch):
    """The closed form and the slow way give the same scores; a learned structure takes the slow way."""
    quick = MultiTaskRegressorCV("shared_mean", cv="loo", alphas=[0.1, 1.0], tol=1e-9, common=None, kernels=None).fit(X, Y)
    again = MultiTaskRegressorCV("shared_mean", cv=LeaveOneOut(), alphas=[0.1, 1.0], tol=1e-9, common=None, kernels=None)
    monkeypatch.setattr("taskloom.estimators.cross_validation.folds_fit.leave_one_out", lambda *_, **__: None)
    again.fit(X, Y)
    assert np.allclose(quick.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"], atol=1e-7)
    assert quick.n_splits_ == len(X)
    learned = MultiTaskRegressorCV("trace", cv="loo", alphas=[0.1], common=None, kernels=None).fit(X, Y)
    assert learned.best_score_ > 0.8


def test_leave_one_out_knows_when_there_is_no_short_cut():
    data = MultiTaskRegressor("trace")._prepare(X, Y)
    assert leave_one_out(data.problem, [0.1], rows=True, by_size=False) is None
    weighted = MultiTaskRegressor("independent")._prepare(X, Y, rng.random(len(X)))
    assert leave_one_out(weighted.problem, [0.1], rows=True, by_size=False) is None
    assert solve(weighted.problem).certificate.optimal


def test_leave_one_out_sees_weights_in_any_units():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 4)), rng.normal(size=(60, 3))
    weight = np.where(np.arange(60) < 30, 1.0, 3.0)
    seen = Observations.from_wide(Y, weight, task_weight=np.full(3, 1e-7))
    problem = Problem(X, seen, "squared", structures.Independent(), 1e-8)
    assert leave_one_out(problem, [1e-8], rows=True, by_size=False) is None


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize(
    "structure", [structures.Trace(), structures.Independent(), structures.Fixed(np.diag([1.0, 2.0, 0.5]))]
)
def test_deviations_of_one_task_a_row_are_those_of_all_tasks(structure, joint):
    inputs, targets = stack([X[:5], X[3:12], X[11:]], [Y[:5, 0], Y[3:12, 1], Y[11:, 2]])
    model = MultiTaskRegressor(structure, alpha=0.01, task_column=-1).fit(inputs, targets)
    problem, training = model._state.training.problem(), model._state.training
    each = posterior.Posterior(problem, training.W, training.b, training.A, joint=joint)
    size, task = np.square(NEW).sum(axis=1), np.array([2, 0, 1, 1, 0, 2, 1])
    phi = training.features.project(NEW)
    own = each.deviation(phi, size, task)
    assert np.allclose(own, each.deviation(phi, size)[np.arange(len(task)), task], rtol=1e-12)
