"""``return_std`` against Gaussian processes written out from their definition, and closed-form leave-one-out against refits."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import LeaveOneOut

from taskloom import MultiTaskRegressor, MultiTaskRegressorCV, posterior, stack, structures
from taskloom.leave_one_out import leave_one_out
from taskloom.solvers import solve

rng = np.random.default_rng(0)
X = rng.normal(size=(18, 4))
Y = X @ rng.normal(size=(4, 2)) @ rng.normal(size=(2, 3)) + 0.3 * rng.normal(size=(18, 3)) + 1.0
NEW = rng.normal(size=(7, 4))
FLAT = 1e7  # the prior variance that stands for a flat one


def gaussian_process(model, kernel, X, Y, new, noise):
    """Mean and standard deviation by conditioning the joint Gaussian, entry by entry; intercepts have a huge variance."""
    rows, tasks = np.nonzero(~np.isnan(Y))
    T, A = Y.shape[1], model.structure_
    counts = np.bincount(tasks, minlength=T)
    ridge = model.ridge / model.alpha
    R = A @ np.linalg.inv(np.eye(T) + ridge * A)
    variance = counts[tasks].astype(float)  # noise variances are in proportion to 1 / v = n_t, whatever the scale
    tau = noise**2 / variance.mean()
    variance *= tau
    prior = tau / model.alpha

    def covariance(X1, t1, X2, t2):
        same = (t1[:, None] == t2[None, :]).astype(float)
        return prior * kernel(X1, X2) * R[np.ix_(t1, t2)] + (FLAT * same if model.fit_intercept else 0)

    K = covariance(X[rows], tasks, X[rows], tasks) + np.diag(variance)
    new_rows, new_tasks = np.repeat(np.arange(len(new)), T), np.tile(np.arange(T), len(new))
    cross = covariance(new[new_rows], new_tasks, X[rows], tasks)
    mean = cross @ np.linalg.solve(K, Y[rows, tasks])
    own = covariance(new[new_rows], new_tasks, new[new_rows], new_tasks)
    spread = np.diag(own - cross @ np.linalg.solve(K, cross.T))
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
    mean, std = model.predict(NEW, return_std=True)
    expected_mean, expected_std = gaussian_process(
        model, linear if kernel == "linear" else RBF(np.sqrt(1 / 0.4)), X, targets, NEW, 0.5
    )
    assert np.allclose(mean, model.predict(NEW))
    assert np.allclose(mean, expected_mean, atol=1e-4)
    assert np.allclose(std, expected_std, atol=1e-4)


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
    monkeypatch.setattr(posterior, "LARGEST", 5)
    with pytest.raises(ValueError, match="the limit is 5"):
        MultiTaskRegressor("frobenius").fit(X, np.where(rng.random(Y.shape) < 0.3, np.nan, Y)).predict(NEW, return_std=True)


# --- leave one out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", [structures.Independent(), structures.SharedMean(3.0)], ids=repr)
@pytest.mark.parametrize("layout", ["wide", "long"])
@pytest.mark.parametrize("options", [{}, {"ridge": 0.3}, {"task_weight": "size"}, {"fit_intercept": False}, {"kernel": "rbf"}])
def test_leave_one_out_is_what_refits_predict(structure, layout, options):
    if layout == "wide":
        model, inputs, targets = MultiTaskRegressor(structure, tol=1e-9, **options), X, Y
    else:
        model = MultiTaskRegressor(structure, task_column=-1, tol=1e-9, **options)
        inputs, targets = stack([X[:5], X[3:12], X[11:]], [Y[:5, 0], Y[3:12, 1], Y[11:, 2]])
    alphas = [0.3, 0.01]
    data = clone(model)._prepare(inputs, targets)
    quick = leave_one_out(data.problem, alphas, rows=layout == "wide", by_size=options.get("task_weight") == "size")
    seen = data.problem.observations
    for k, alpha in enumerate(alphas):
        slow = np.full(np.shape(targets), np.nan)
        for train, test in LeaveOneOut().split(inputs):
            slow[test] = clone(model).set_params(alpha=alpha).fit(inputs[train], targets[train]).predict(inputs[test])
        expected = slow[seen.row, seen.task] if layout == "wide" else slow[seen.row]
        assert np.allclose(quick[k], expected, atol=1e-7)


def test_leave_one_out_in_the_estimator(monkeypatch):
    """The closed form and the slow way give the same scores; a learned structure takes the slow way."""
    quick = MultiTaskRegressorCV("shared_mean", cv="loo", alphas=[0.1, 1.0], tol=1e-9).fit(X, Y)
    again = MultiTaskRegressorCV("shared_mean", cv=LeaveOneOut(), alphas=[0.1, 1.0], tol=1e-9)
    monkeypatch.setattr("taskloom.estimators.selection.leave_one_out", lambda *_, **__: None)
    again.fit(X, Y)
    assert np.allclose(quick.cv_results_["mean_test_score"], again.cv_results_["mean_test_score"], atol=1e-7)
    assert quick.n_splits_ == len(X)
    learned = MultiTaskRegressorCV("trace", cv="loo", alphas=[0.1]).fit(X, Y)
    assert learned.best_score_ > 0.8


def test_leave_one_out_knows_when_there_is_no_short_cut():
    data = MultiTaskRegressor("trace")._prepare(X, Y)
    assert leave_one_out(data.problem, [0.1], rows=True, by_size=False) is None
    weighted = MultiTaskRegressor("independent")._prepare(X, Y, rng.random(len(X)))
    assert leave_one_out(weighted.problem, [0.1], rows=True, by_size=False) is None
    assert solve(weighted.problem).certificate.optimal
