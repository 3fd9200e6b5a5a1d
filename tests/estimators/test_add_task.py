"""A new task against a frozen structure: what it minimises, in which form, and what it becomes part of."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, structures

rng = np.random.default_rng(0)
T, d, n = 6, 5, 40
W = rng.normal(size=(d, 2)) @ rng.normal(size=(2, T + 1))
X = rng.normal(size=(n, d))
Y = X @ W[:, :T] + 0.3 * rng.normal(size=(n, T)) + 2.0
X_NEW = rng.normal(size=(8, d))
Y_NEW = X_NEW @ W[:, T] + 0.3 * rng.normal(size=8) - 1.0
TEST = rng.normal(size=(200, d))


def linear(A, B):
    return np.asarray(A) @ np.asarray(B).T


def frozen_objective(model, prior, ridge=0.0):
    """``w, b -> mean squared error + alpha (w - f0)'D^+(w - f0) + ridge ||w||^2`` written out for the new task."""
    V = model.coef_[:T].T.astype(float)
    D = V @ prior.loadings @ prior.loadings.T @ V.T + prior.own_variance * np.eye(d)
    inverse = np.linalg.pinv(D, rcond=1e-10)
    inside = D @ inverse

    def value(theta):
        w = V @ prior.mean + inside @ (theta[:d] - V @ prior.mean)
        rest = w - V @ prior.mean
        error = np.mean((Y_NEW - X_NEW @ w - theta[d]) ** 2)
        return error + model.alpha * rest @ inverse @ rest + ridge * w @ w + 1e-9 * theta[:d] @ theta[:d]

    return value


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize(
    "structure",
    [
        structures.Trace(),
        structures.Frobenius(),
        structures.UnitTrace(),
        structures.Independent(),
        structures.SharedMean(2.0),
        structures.Clusters(2),
        structures.LogDet(0.3),
    ],
    ids=repr,
)
def test_it_minimises_the_objective_with_the_old_tasks_frozen(structure, ridge):
    from taskloom.estimators.new_task_prior import new_task_prior

    model = MultiTaskRegressor(structure, alpha=0.1, ridge=ridge, tol=1e-9).fit(X, Y)
    before, A = model.coef_.copy(), model.structure_.copy()
    prior = new_task_prior(structure, A, lambda: before @ before.T)
    model.add_task(X_NEW, Y_NEW, "new")
    objective = frozen_objective(model, prior, ridge)
    best = minimize(objective, np.zeros(d + 1), method="BFGS", options={"gtol": 1e-10})
    ours = objective(np.append(model.coef_[-1], model.intercept_[-1]))
    assert ours <= best.fun + 1e-6
    assert np.array_equal(model.coef_[:T], before)
    assert np.allclose(model.structure_[:T, :T], A)
    assert np.linalg.eigvalsh(model.structure_)[0] > -1e-8 * np.linalg.norm(A)


def test_the_feature_side_is_the_learned_metric():
    """Under the trace structure ``D = sqrt(alpha) (WW')^(1/2)``: the new task stays in the span of the old ones."""
    model = MultiTaskRegressor("trace", alpha=0.1, tol=1e-10).fit(X, Y)
    V = model.coef_.T
    u, s, _ = np.linalg.svd(V, full_matrices=False)
    keep = s > 1e-6 * s[0]
    root = u[:, keep] * np.sqrt(np.sqrt(0.1) * s[keep])  # D = root root'
    Z = np.column_stack([X_NEW @ root, np.ones(8)])
    solution = np.linalg.solve(Z.T @ Z / 8 + 0.1 * np.diag([1.0] * keep.sum() + [0.0]), Z.T @ Y_NEW / 8)
    model.add_task(X_NEW, Y_NEW, name="new")
    assert np.allclose(model.coef_[-1], root @ solution[:-1], atol=1e-5)
    assert np.isclose(model.intercept_[-1], solution[-1], atol=1e-5)


def test_under_shared_mean_it_is_the_exact_conditional_problem():
    """All tasks at once, with the old ones held where they are: the objective of the structure with one more task."""
    model = MultiTaskRegressor(structures.SharedMean(3.0), alpha=0.2, tol=1e-10).fit(X, Y)
    V = model.coef_.T.copy()
    inverse = np.linalg.inv(structures.SharedMean(3.0).matrix(T + 1))

    def objective(theta):
        everything = np.column_stack([V, theta[:d]])
        error = np.mean((Y_NEW - X_NEW @ theta[:d] - theta[d]) ** 2)
        return error + 0.2 * np.trace(everything @ inverse @ everything.T)

    best = minimize(objective, np.zeros(d + 1), method="BFGS", options={"gtol": 1e-10})
    model.add_task(X_NEW, Y_NEW, name="new")
    assert np.allclose(np.append(model.coef_[-1], model.intercept_[-1]), best.x, atol=1e-5)


def test_independent_tasks_learn_nothing_from_each_other():
    model = MultiTaskRegressor("independent", alpha=0.1, tol=1e-9).fit(X, Y).add_task(X_NEW, Y_NEW, name="new")
    alone = MultiTaskRegressor("independent", alpha=0.1, tol=1e-9).fit(X_NEW, Y_NEW)
    assert np.allclose(model.coef_[-1], alone.coef_[0], atol=1e-7)


@pytest.mark.parametrize("structure", ["trace", "clusters", structures.SharedMean(1.0), "independent"])
def test_a_kernel_gives_what_the_weights_give(structure):
    one = MultiTaskRegressor(structure, alpha=0.1, tol=1e-9).fit(X, Y).add_task(X_NEW, Y_NEW, name="new")
    other = MultiTaskRegressor(structure, kernel=linear, alpha=0.1, tol=1e-9).fit(X, Y).add_task(X_NEW, Y_NEW, name="new")
    assert np.allclose(one.predict(TEST), other.predict(TEST), atol=1e-4)
    assert np.allclose(one.structure_, other.structure_, atol=1e-4)
    third, fourth = (m.add_task(X_NEW[:5], Y_NEW[:5] + 1, name="newer").predict(TEST) for m in (one, other))
    assert third.shape == (200, T + 2)
    assert np.allclose(third, fourth, atol=1e-4)


def test_it_is_better_than_starting_from_nothing():
    truth = TEST @ W[:, T] - 1.0
    alone = MultiTaskRegressor("independent", alpha=0.02).fit(X_NEW, Y_NEW).predict(TEST)
    for structure in ("trace", "frobenius", "unit_trace"):
        model = MultiTaskRegressor(structure, alpha=0.02).fit(X, Y).add_task(X_NEW, Y_NEW, name="new")
        assert np.mean((model.predict(TEST)[:, -1] - truth) ** 2) < 0.8 * np.mean((alone - truth) ** 2)


def test_relations_that_are_known():
    base = MultiTaskRegressor(structures.SharedMean(1.0), alpha=5.0, tol=1e-9)
    twin = base.fit(X, Y).structure_[:, 2] * 0.99
    model = base.fit(X, Y).add_task(X_NEW, Y_NEW, name="twin", relation=twin)
    assert np.allclose(model.structure_[-1, :T], twin)
    assert np.linalg.norm(model.coef_[-1] - model.coef_[2]) < 0.3 * np.linalg.norm(model.coef_[2])
    with pytest.raises(ValueError, match="too strong"):
        base.fit(X, Y).add_task(X_NEW, Y_NEW, name="twin", relation=10 * twin)
    with pytest.raises(ValueError, match="no entry for task 1"):
        base.fit(X, Y).add_task(X_NEW, Y_NEW, name="twin", relation={0: 1.0})


def test_long_tables_names_and_units():
    frame = pd.DataFrame(np.vstack([X, X]), columns=list("abcde")).assign(shop=["u"] * n + ["v"] * n)
    y = np.concatenate([Y[:, 0], 100 * Y[:, 1]])
    model = MultiTaskRegressor(task_column="shop", standardize_targets=True).fit(frame, y)
    new = pd.DataFrame(X_NEW, columns=list("abcde"))
    model.add_task(new, Y_NEW, name="w")
    assert model.tasks_.tolist() == ["u", "v", "w"]
    assert model.predict(new.assign(shop="w")).shape == (8,)
    other = MultiTaskRegressor(task_column="shop", standardize_targets=True).fit(frame, y)
    other.add_task(new.assign(shop="whatever"), 1000 * Y_NEW, name="w")
    assert np.allclose(other.coef_[-1], 1000 * model.coef_[-1], rtol=1e-6)
    assert model.n_features_in_ == 6
    with pytest.raises(ValueError, match="task 'w' already"):
        model.add_task(new, Y_NEW, name="w")
    with pytest.raises(AttributeError, match="fit again"):
        model.predict(new.assign(shop="w"), return_std=True)
    with pytest.raises(ValueError, match="task 'x' has no observation"):
        model.add_task(new, np.full(8, np.nan), name="x")


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
@pytest.mark.parametrize("structure", ["trace", structures.SharedMean(2.0), "clusters"])
def test_classifiers(loss, structure):
    labels = np.where(np.median(Y, axis=0) < Y, "yes", "no")
    model = MultiTaskClassifier(structure, loss=loss).fit(X, labels)
    model.add_task(X, np.where(X @ W[:, T] > 0, "yes", "no"), name=T)
    assert model.predict(TEST).shape == (200, T + 1)
    assert np.mean(model.predict(TEST)[:, -1] == np.where(TEST @ W[:, T] > 0, "yes", "no")) > 0.75
    with pytest.raises(ValueError, match="needs exactly 2 classes"):
        model.add_task(X_NEW, ["yes"] * 8, name="new")
    with pytest.raises(ValueError, match="the others have"):
        model.add_task(X_NEW, ["a", "b"] * 4, name="new")


def test_weights_and_searched_models():
    weights = np.array([1.0] * 6 + [0.0] * 2)
    one = MultiTaskRegressor(tol=1e-9).fit(X, Y).add_task(X_NEW, Y_NEW, name="new", sample_weight=weights)
    other = MultiTaskRegressor(tol=1e-9).fit(X, Y).add_task(X_NEW[:6], Y_NEW[:6], name="new")
    assert np.allclose(one.coef_[-1], other.coef_[-1])
    search = MultiTaskRegressorCV(alphas=4, kernels=None).fit(X, Y).add_task(X_NEW, Y_NEW, name="new")
    assert search.predict(TEST).shape == (200, T + 1)


@pytest.mark.parametrize("structure", ["trace", "frobenius", "clusters", structures.SharedMean(2.0)])
def test_the_order_of_additions_does_not_matter(structure):
    """What was frozen is the fit: a task that was added has no say in the next one."""
    more = (X_NEW[:6] + 1, Y_NEW[:6] * 2)
    one = MultiTaskRegressor(structure, alpha=0.1).fit(X, Y).add_task(X_NEW, Y_NEW, name="a").add_task(*more, name="b")
    other = MultiTaskRegressor(structure, alpha=0.1).fit(X, Y).add_task(*more, name="b").add_task(X_NEW, Y_NEW, name="a")
    assert np.allclose(one.coef_[-2:], other.coef_[[-1, -2]])
    order = [*range(T), T + 1, T]
    assert np.allclose(one.structure_, other.structure_[np.ix_(order, order)])
    assert np.linalg.eigvalsh(one.structure_)[0] > -1e-8 * np.linalg.norm(one.structure_)


def test_a_name_that_is_no_label_is_refused():
    """Arguments in the wrong order are the likely cause."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 2)), rng.normal(size=(12, 3))
    model = MultiTaskRegressor("trace", alpha=0.1).fit(X, Y)
    with pytest.raises(ValueError, match=r"named by a label, got ndarray; call add_task\(X, y, name\)"):
        model.add_task("new", X, Y[:, 0])
