"""A known covariance of the features, ``Fixed(D, side="features")``: slopes of a mixed model whose covariance is given."""

import cvxpy as cp
import numpy as np
import pytest

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, Problem, Term, alpha_max, path, solve
from taskloom.solvers.path import strength_grid
from taskloom.structures import FeatureSelection, Fixed, Independent

d, T, N = 4, 5, 60
rng = np.random.default_rng(0)
B = rng.normal(size=(d, d))
FULL, SINGULAR = B @ B.T, B[:, :2] @ B[:, :2].T
X = rng.normal(size=(N, d)) + 0.5
Y = X @ rng.normal(size=(d, T)) + 0.3 * rng.normal(size=(N, T))
GAPS = np.where(rng.random((N, T)) < 0.4, np.nan, Y)
LABELS = np.where(np.isnan(GAPS), np.nan, np.where(np.median(Y) < GAPS, 1.0, -1.0))
COVARIANCES = pytest.mark.parametrize("D", [FULL, SINGULAR], ids=["full", "singular"])


def root_of(D):
    a, V = np.linalg.eigh(D)
    return V * np.sqrt(np.maximum(a, 0.0))


def on_features(D):
    return Fixed(D, side="features")


# --- optima ---------------------------------------------------------------------------------------------------------------


@COVARIANCES
@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("solver", ["auto", "alternating", "block", "proximal"])
def test_the_minimum_is_that_of_independent_tasks_on_scaled_inputs(D, ridge, solver):
    problem = Problem(X, GAPS, "squared", on_features(D), 0.1, ridge)
    solution = solve(problem, solver, tol=1e-9)
    a, V = np.linalg.eigh(D)
    a = np.where(a > 1e-12 * a[-1], a, 0.0)
    shrunk = (V * np.sqrt(a / (1 + ridge / 0.1 * a))) @ V.T
    twin = solve(Problem(X @ shrunk, GAPS, "squared", Independent(), 0.1), tol=1e-9)
    assert solution.certificate.optimal
    assert np.isclose(solution.certificate.primal, twin.certificate.primal, rtol=1e-8)
    assert np.allclose(solution.W, shrunk @ twin.W, atol=1e-3 if solver == "block" else 1e-6)  # steps on the weights
    assert np.allclose(solution.A, D)
    assert np.isclose(problem.primal(solution.W, solution.b, D), solution.certificate.primal, rtol=1e-8)


@COVARIANCES
@pytest.mark.parametrize("loss", ["squared", "absolute", "huber", "logistic", "hinge"])
def test_the_bracket_holds_the_minimum_of_cvxpy(D, loss):
    """With the penalty ``alpha tr(D^+ W W')``, from its definition: ``W = L V`` for a root ``L`` of ``D``."""
    target = LABELS if loss in ("logistic", "hinge") else GAPS
    V, b = cp.Variable((d, T)), cp.Variable(T)
    z, value = X @ root_of(D) @ V, 0.0
    for t in range(T):
        rows = np.flatnonzero(~np.isnan(target[:, t]))
        y, at = target[rows, t], z[rows, t] + b[t]
        value += {
            "squared": lambda y=y, at=at: cp.sum_squares(y - at),
            "absolute": lambda y=y, at=at: cp.norm1(y - at),
            "huber": lambda y=y, at=at: cp.sum(cp.huber(y - at, 1.0)),
            "logistic": lambda y=y, at=at: cp.sum(cp.logistic(-cp.multiply(y, at))),
            "hinge": lambda y=y, at=at: cp.sum(cp.pos(1 - cp.multiply(y, at))),
        }[loss]() / len(rows)
    oracle = cp.Problem(cp.Minimize(value + 0.05 * cp.sum_squares(V))).solve(solver="CLARABEL")
    certificate = solve(Problem(X, target, loss, on_features(D), 0.05), tol=1e-7).certificate
    assert certificate.optimal
    assert np.isclose(certificate.primal, oracle, rtol=1e-6)
    assert certificate.dual <= oracle + 1e-6 * abs(oracle)


def test_a_path_is_that_of_independent_tasks_on_scaled_inputs():
    problem = Problem(X, GAPS, "squared", on_features(FULL), 0.1)
    twin = Problem(X @ root_of(FULL), GAPS, "squared", Independent(), 0.1)
    assert alpha_max(problem) == alpha_max(twin) == np.inf  # no strength is enough under a known structure
    alphas = strength_grid(problem, 5)
    assert np.allclose(alphas, strength_grid(twin, 5), rtol=1e-6)
    ours, theirs = path(problem, alphas), path(twin, alphas)
    assert np.allclose([s.certificate.primal for s in ours], [s.certificate.primal for s in theirs], rtol=1e-6)


# --- estimators -----------------------------------------------------------------------------------------------------------


@COVARIANCES
def test_an_estimator_keeps_both_matrices(D):
    model = MultiTaskRegressor(on_features(D), alpha=0.1, tol=1e-9).fit(X, GAPS)
    plain = MultiTaskRegressor("independent", alpha=0.1, tol=1e-9).fit(X @ root_of(D), GAPS)
    assert np.allclose(model.predict(X), plain.predict(X @ root_of(D)), atol=1e-6)
    assert np.allclose(model.feature_structure_, D)
    assert np.allclose(model.structure_, np.eye(T))  # given D, nothing relates the tasks


def test_more_features_than_rows_keep_their_columns():
    wide = rng.normal(size=(12, 30))
    D = np.diag(np.r_[np.ones(5), np.zeros(25)])
    model = MultiTaskRegressor(on_features(D), alpha=0.1).fit(wide, Y[:12])
    some = MultiTaskRegressor("independent", alpha=0.1).fit(wide[:, :5], Y[:12])
    assert not model.coef_[:, 5:].any()
    assert np.allclose(model.coef_[:, :5], some.coef_, atol=1e-6)


def test_a_classifier_and_its_classes():
    label = np.argmax(Y[:, :3], axis=1)
    model = MultiTaskClassifier(on_features(FULL), alpha=0.05).fit(X, label)
    plain = MultiTaskClassifier("independent", alpha=0.05).fit(X @ root_of(FULL), label)
    assert model.certificate_.optimal
    assert np.allclose(model.decision_function(X), plain.decision_function(X @ root_of(FULL)), atol=1e-2)
    with pytest.raises(ValueError, match="simplex coding needs a spectral structure"):
        MultiTaskClassifier(on_features(FULL), coding="simplex").fit(X, label)


def test_a_frame_is_matched_by_the_names_of_the_columns():
    pd = pytest.importorskip("pandas")
    names, order = list("abcd"), [2, 0, 3, 1]
    frame = pd.DataFrame(X, columns=names)
    D = pd.DataFrame(FULL, names, names).iloc[order, order]
    by_name = MultiTaskRegressor(on_features(D), alpha=0.1).fit(frame, Y)
    assert np.allclose(by_name.feature_structure_, FULL)
    long = pd.concat([frame, frame]).assign(shop=np.repeat([0, 1], N))[["a", "shop", "b", "c", "d"]]
    model = MultiTaskRegressor(on_features(D), alpha=0.1, task_column="shop").fit(long, Y[:, :2].T.ravel())
    assert np.allclose(model.feature_structure_, FULL)
    with pytest.raises(ValueError, match=r"labels \['c', 'a', 'd', 'b'\], but the features are \[0, 1, 2, 3\]"):
        MultiTaskRegressor(on_features(D)).fit(X, Y)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"structure": on_features(np.eye(3))}, "describes 3 features, but the data have 4; give a row"),
        ({"structure": on_features(FULL), "kernel": "rbf"}, "acts on the columns of X and needs kernel='linear'"),
        (
            {"structure": on_features(FULL), "kernel": "rbf", "common": True},
            "linear or constant term, got kernel='rbf'",
        ),
        ({"structure": FeatureSelection(), "kernel": "rbf", "common": True}, "needs a linear or constant term"),
        ({"structure": on_features(FULL), "common": True}, "describes 4 features, but the data have 5; .* intercept=True"),
    ],
)
def test_what_does_not_fit_is_said(settings, words):
    with pytest.raises(ValueError, match=words):
        MultiTaskRegressor(**settings).fit(X, Y)


def test_what_needs_a_structure_on_the_tasks_says_so():
    model = MultiTaskRegressor(on_features(FULL)).fit(X, Y)
    with pytest.raises(ValueError, match="standard deviations need one kernel and a structure on the tasks"):
        model.predict(X, return_std=True)
    with pytest.raises(ValueError, match="explain needs a structure on the tasks"):
        model.explain(0)
    with pytest.raises(ValueError, match="Fixed"):
        on_features(FULL) + Independent()


@pytest.mark.parametrize("ridge", [0.0, 0.2])
@COVARIANCES
def test_a_task_that_is_added_is_fitted_under_the_same_covariance(D, ridge):
    """The diagonal of ``D`` alone was read."""
    settings = {"structure": on_features(D), "alpha": 0.1, "ridge": ridge, "tol": 1e-10}
    later = MultiTaskRegressor(**settings).fit(X, Y[:, :-1]).add_task(X, Y[:, -1], "new")
    at_once = MultiTaskRegressor(**settings).fit(X, Y)
    assert np.allclose(later.coef_, at_once.coef_, atol=1e-6)
    assert np.allclose(later.structure_, np.eye(T))


def test_leave_one_out_refits():
    """The closed form knows structures on the tasks."""
    few, alphas = slice(0, 14), [0.01, 1.0]
    search = MultiTaskRegressorCV(structures=[on_features(FULL)], alphas=alphas, cv="loo", tol=1e-8, kernels=None).fit(
        X[few], Y[few]
    )
    twin = MultiTaskRegressorCV(structures=["independent"], alphas=alphas, cv="loo", tol=1e-8, kernels=None)
    twin.fit(X[few] @ root_of(FULL), Y[few])
    assert np.allclose(search.cv_results_["mean_test_score"], twin.cv_results_["mean_test_score"], atol=1e-5)


@COVARIANCES
def test_a_model_file_keeps_the_side(D, tmp_path):
    model = MultiTaskRegressor(on_features(D), alpha=0.1).fit(X, GAPS)
    model.save(tmp_path / "m")
    twin = taskloom.load(tmp_path / "m")
    assert twin.structure.side == twin._state.learned.side == "features"
    assert np.array_equal(twin.predict(X), model.predict(X))
    assert np.array_equal(twin.feature_structure_, model.feature_structure_)
    assert np.allclose(twin.add_task(X, Y[:, 0], "new").coef_, model.add_task(X, Y[:, 0], "new").coef_)


def test_files_from_before_the_side_have_structures_on_the_tasks():
    restored = Fixed.restored(A=np.eye(2))
    assert restored.side == "tasks"
    assert not restored.on_features
    with pytest.raises(ValueError, match="got side='inputs'"):
        Fixed.restored(A=np.eye(2), side="inputs")


# --- terms ----------------------------------------------------------------------------------------------------------------


def blup(x, group, y, D, noise):
    """Fixed and random effects of ``y = b + x beta + (x, 1) u_g + e``, ``u_g ~ N(0, D)``, by generalised least squares."""
    own = np.column_stack([x, np.ones(len(x))])
    K = np.where(group[:, None] == group, own @ D @ own.T, 0.0)
    V = K + noise**2 * np.eye(len(x))
    E = np.column_stack([np.ones(len(x)), x])
    beta = np.linalg.solve(E.T @ np.linalg.solve(V, E), E.T @ np.linalg.solve(V, y))
    return E @ beta + K @ np.linalg.solve(V, y - E @ beta), beta


@pytest.mark.parametrize("singular", [False, True])
@pytest.mark.parametrize("named", [False, True])
def test_predictions_are_those_of_a_mixed_model_with_this_covariance(singular, named):
    pd = pytest.importorskip("pandas")
    rng, n, groups, noise = np.random.default_rng(1), 150, 12, 0.4
    x, g = rng.normal(size=(n, 2)) * [1.0, 3.0] + [2.0, -1.0], rng.integers(0, groups, n)
    L = rng.normal(size=(3, 2 if singular else 3))
    D = L @ L.T
    x = x - x.mean(axis=0)
    effects = rng.normal(size=(groups, L.shape[1])) @ L.T
    y = 1 + x @ [1.0, -0.5] + np.sum(np.column_stack([x, np.ones(n)]) * effects[g], axis=1) + noise * rng.normal(size=n)
    frame = pd.DataFrame({"x1": x[:, 0], "x2": x[:, 1], "g": [f"g{k:02}" for k in g]})
    names, order = ["x1", "x2", "intercept"], [2, 0, 1]
    given = pd.DataFrame(D, names, names).iloc[order, order] if named else D
    terms = [
        Term("linear", columns=["x1", "x2"], weight=np.inf),
        Term("linear", by="g", columns=["x1", "x2"], intercept=True, structure=Fixed(given, side="features")),
    ]
    model = MultiTaskRegressor(terms=terms, alpha=noise**2 / n, tol=1e-10).fit(frame, y)
    expected, beta = blup(x, g, y, D, noise)
    assert model.certificate_.optimal
    assert np.allclose(model.predict(frame), expected, atol=1e-5)
    assert np.allclose(model.predict_terms(frame)[0], x @ beta[1:], atol=1e-4)


def test_a_common_part_beside_slopes_of_a_known_covariance():
    """As the terms that it stands for; without ``by`` a matrix on the features scales the common function."""
    long = np.column_stack([np.tile(X, (T, 1)), np.repeat(np.arange(T), N)])
    y, D = Y.T.ravel(), np.diag([1.0, 0.5, 2.0, 0.0, 3.0])
    common = MultiTaskRegressor(Fixed(D, "features"), common=True, task_column=-1, alpha=0.1, tol=1e-9).fit(long, y)
    terms = [Term("linear"), Term("linear", by=d, structure=Fixed(D, "features"), intercept=True)]
    summed = MultiTaskRegressor(terms=terms, alpha=0.1 / T, tol=1e-9).fit(long, y)
    assert np.allclose(common.predict(long), summed.predict(long), atol=1e-4)
    assert np.allclose(common.structure_, np.eye(T))
    scaled = MultiTaskRegressor(terms=[Term("linear", structure=Fixed(4 * np.eye(d), "features"))], alpha=0.4).fit(X, Y[:, 0])
    plain = MultiTaskRegressor(terms=[Term("linear")], alpha=0.1).fit(X, Y[:, 0])
    assert np.allclose(scaled.predict(X), plain.predict(X), atol=1e-4)


def test_a_term_of_the_wrong_size_is_refused():
    long = np.column_stack([np.tile(X, (T, 1)), np.repeat(np.arange(T), N)])
    terms = [Term("linear", by=d, structure=Fixed(FULL, "features"), intercept=True)]
    with pytest.raises(ValueError, match=r"describes 4 features, but the data have 5; .* intercept=True"):
        MultiTaskRegressor(terms=terms).fit(long, Y.T.ravel())
