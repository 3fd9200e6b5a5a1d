"""Estimators whose predictor is a sum of terms: ``common=`` and ``terms=``."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

from taskloom import (
    MultiTaskClassifier,
    MultiTaskRegressor,
    Term,
    compare_to_single_task,
    stability,
)

pd = pytest.importorskip("pandas")
T, N = 8, 240


def panel(seed=0, labels=False):
    """Shops with intercepts and slopes of their own, in regions; a descriptor of each shop."""
    rng = np.random.default_rng(seed)
    shop, region = rng.integers(0, T, N), rng.integers(0, 3, N)
    size = rng.normal(size=T)
    x1, x2 = rng.normal(3.0, 1.0, size=(2, N))
    y = 2 + 1.5 * x1 - x2 + size[shop] * (1 + 0.5 * x1) + rng.normal(size=3)[region] + 0.3 * rng.normal(size=N)
    frame = pd.DataFrame({"x1": x1, "x2": x2, "shop": [f"s{k}" for k in shop], "region": region, "size": size[shop]})
    return frame, (y > np.median(y)).astype(int) if labels else y


INPUTS = ["x1", "x2"]
MIXED = [
    Term("linear", columns=INPUTS, weight=np.inf),
    Term("linear", by="shop", columns=INPUTS, structure="trace", intercept=True),
    Term("constant", by="region"),
]


# --- a common part ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", [None, "independent", "frobenius", "shared_mean", "clusters"])
def test_coefficients_are_totals_and_predictions_their_products(structure):
    frame, y = panel()
    X = frame[["x1", "x2", "shop"]]
    settings = {"structure": structure, "task_column": "shop", "common": True, "alpha": 0.05}
    if structure == "clusters":
        from taskloom.structures import Clusters

        settings["structure"] = Clusters(2)
    model = MultiTaskRegressor(**settings).fit(X, y)
    assert model.certificate_.optimal
    code = np.searchsorted(model.tasks_, frame["shop"])
    own = (X[INPUTS].to_numpy() * model.coef_[code]).sum(axis=1) + model.intercept_[code]
    assert np.allclose(model.predict(X), own)
    common, rest = model.predict_terms(X)
    assert np.allclose(common + rest + model._state.common_part.intercept, model.predict(X))
    assert model.structure_.shape == (T, T)
    assert model.score(X, y) > 0.7  # without the regions


def test_wide_and_long_tables_agree():
    frame, y = panel()
    X, shops = frame[INPUTS].to_numpy(), np.unique(frame["shop"])
    Y = np.full((N, T), np.nan)
    Y[np.arange(N), np.searchsorted(shops, frame["shop"])] = y
    wide = MultiTaskRegressor(common=True, alpha=0.05, tol=1e-9).fit(X, Y)
    long = MultiTaskRegressor(common=True, alpha=0.05, tol=1e-9, task_column="shop").fit(frame[["x1", "x2", "shop"]], y)
    assert np.isclose(wide.certificate_.primal, long.certificate_.primal, rtol=1e-8)
    assert np.allclose(wide.coef_, long.coef_, atol=1e-4)
    assert wide.predict(X).shape == (N, T)


def test_the_origin_of_the_inputs_does_not_matter():
    """Intercepts are penalised, so that linear terms see centred inputs."""
    frame, y = panel()
    X = frame[["x1", "x2", "shop"]]
    far = X.assign(x1=X["x1"] + 1000.0)
    settings = {"common": True, "task_column": "shop", "alpha": 0.05, "tol": 1e-9}
    near, moved = (MultiTaskRegressor(**settings).fit(each, y) for each in (X, far))
    assert np.allclose(near.predict(X), moved.predict(far), atol=1e-6)


def test_strong_own_penalties_leave_one_ridge_for_all():
    frame, y = panel()
    X, n = frame[["x1", "x2", "shop"]], np.bincount(np.unique(frame["shop"], return_inverse=True)[1])
    model = MultiTaskRegressor("independent", common=True, task_column="shop", alpha=1e-3, task_weight="size").fit(X, y)
    pooled = MultiTaskRegressor("independent", alpha=1e-3).fit(X[INPUTS], y)
    assert model.score(X, y) > pooled.score(X[INPUTS], y)
    one = MultiTaskRegressor(terms=[Term("linear", columns=INPUTS)], alpha=0.02).fit(X[INPUTS], y)
    centred = X[INPUTS] - X[INPUTS].mean()
    ridge = Ridge(alpha=0.02 * N).fit(centred, y)
    assert np.allclose(one.predict(X[INPUTS]), ridge.predict(centred), atol=1e-6)
    assert n.min() > 0


def test_an_unseen_task_gets_the_common_part():
    frame, y = panel()
    X = frame[["x1", "x2", "shop"]]
    model = MultiTaskRegressor(common=True, task_column="shop", alpha=0.05).fit(X, y)
    new = X.assign(shop="new")
    common = model.predict_terms(X)[0]
    assert np.allclose(model.predict(new), common + model._state.common_part.intercept)
    with pytest.raises(ValueError, match="was not seen in training"):
        clone(model).set_params(unseen="raise").fit(X, y).predict(new)
    with pytest.raises(ValueError, match="was not seen in training"):
        MultiTaskRegressor(task_column="shop").fit(X, y).predict(new)


def test_another_kernel_for_the_common_part():
    frame, y = panel()
    X = frame[["x1", "x2", "shop"]]
    model = MultiTaskRegressor(common="rbf", task_column="shop", alpha=0.01).fit(X, y)
    assert model.certificate_.optimal
    assert model.score(X, y) > 0.75
    assert not hasattr(model, "coef_")


def test_tasks_of_one_class_are_fitted_with_the_help_of_the_others():
    frame, y = panel(labels=True)
    y[frame["shop"].to_numpy() == "s0"] = 1
    X = frame[["x1", "x2", "shop"]]
    model = MultiTaskClassifier(common=True, task_column="shop", alpha=0.01).fit(X, y)
    assert model.certificate_.optimal
    assert model.score(X, y) > 0.8
    assert np.isfinite(model.decision_function(X)).all()


def test_columns_of_one_class_are_those_of_a_long_table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    Y = np.where(X @ rng.normal(size=(2, 3)) + rng.normal(size=(40, 3)) > 0, "up", "down")
    Y[:, 1] = "up"
    wide = MultiTaskClassifier(common=True, alpha=0.01).fit(X, Y)
    rows = np.column_stack([np.tile(X, (3, 1)), np.repeat(np.arange(3), 40)])
    long = MultiTaskClassifier(common=True, alpha=0.01, task_column=2).fit(rows, Y.T.ravel())
    assert np.allclose(wide.decision_function(X).T.ravel(), long.decision_function(rows), atol=1e-3)
    assert (wide.predict(X)[:, 1] == "up").all()
    with pytest.raises(ValueError, match="task 1 needs exactly 2 classes"):
        MultiTaskClassifier(alpha=0.01).fit(X, Y)


# --- terms ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "huber", "absolute"])
def test_fixed_effects_own_slopes_and_a_crossed_grouping(loss):
    frame, y = panel()
    X = frame.drop(columns="size")
    model = MultiTaskRegressor(terms=MIXED, loss=loss, alpha=1e-3).fit(X, y)
    assert model.certificate_.optimal
    parts = model.predict_terms(X)
    assert np.allclose(np.sum(parts, axis=0) + model.intercept_[0], model.predict(X))
    assert model.score(X, y) > 0.95
    assert model.predict(X.assign(shop="new", region=99)).shape == (N,)


def test_descriptors_predict_levels_without_any_data():
    frame, y = panel()
    terms = [
        Term("linear", columns=INPUTS, weight=np.inf),
        Term("linear", by="shop", columns=INPUTS, described_by=["size"], intercept=True),
        Term("constant", by="region"),
    ]
    held = frame["shop"].to_numpy() == "s3"
    model = MultiTaskRegressor(terms=terms, alpha=1e-4).fit(frame[~held], y[~held])
    blind = MultiTaskRegressor(terms=[terms[0], terms[2]], alpha=1e-4).fit(frame[~held], y[~held])
    assert model.score(frame[held], y[held]) > blind.score(frame[held], y[held])
    assert model.score(frame[held], y[held]) > 0.9


def test_arrays_have_positions_and_classifiers_have_terms():
    frame, y = panel(labels=True)
    X = frame.assign(shop=np.unique(frame["shop"], return_inverse=True)[1]).to_numpy(dtype=float)
    terms = [Term("linear", columns=[0, 1]), Term("constant", by=2)]
    model = MultiTaskClassifier(terms=terms, alpha=1e-3).fit(X, y)
    assert model.certificate_.optimal
    assert set(model.predict(X)) == {0, 1}
    assert model.predict_proba(X).shape == (N, 2)
    assert model.score(X, y) > 0.8


def test_missing_targets_and_weights_of_zero_are_left_out():
    frame, y = panel()
    X, holes = frame.drop(columns="size"), np.arange(N) % 5 == 0
    with_holes, weight = np.where(holes, np.nan, y), np.where(holes, 0.0, 1.0)
    settings = {"terms": MIXED, "alpha": 1e-3, "tol": 1e-9}
    kept = MultiTaskRegressor(**settings).fit(X[~holes], y[~holes]).certificate_.primal
    assert np.isclose(MultiTaskRegressor(**settings).fit(X, with_holes).certificate_.primal, kept, rtol=1e-9)
    assert np.isclose(MultiTaskRegressor(**settings).fit(X, y, weight).certificate_.primal, kept, rtol=1e-9)


def test_scikit_learn_searches_and_clones():
    frame, y = panel()
    X = frame.drop(columns="size")
    model = MultiTaskRegressor(terms=MIXED)
    assert repr(clone(model)) == repr(model)
    search = GridSearchCV(model, {"alpha": [1e-4, 1e-2, 1.0]}, cv=3).fit(X, y)
    assert search.best_params_["alpha"] < 1.0


# --- refusals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"terms": [Term("linear", by="shop")], "structure": "trace"}, "leave structure as it is"),
        ({"terms": [Term("linear", by="shop")], "task_column": "shop"}, "leave task_column as it is"),
        ({"terms": []}, "list of taskloom.Term"),
        ({"terms": [Term("linear", columns=["x1", "shop"]), Term("constant", by="shop")]}, "is an input and a grouping"),
        ({"terms": [Term("linear", by="shopp", columns=INPUTS)]}, "did you mean 'shop'"),
        ({"terms": [Term("linear", columns=["region", "shop"])]}, "'shop' of X holds no numbers"),
        ({"terms": [Term("linear", by="shop", columns=INPUTS, described_by=["region"])]}, "'region'.*varies within level"),
        ({"terms": [Term("linear", columns=["x1", "double"], weight=np.inf)]}, "linearly dependent"),
        ({"terms": [Term("linear", columns=INPUTS)], "approximation": "nystroem"}, "approximation"),
    ],
)
def test_bad_terms_are_refused_in_a_sentence(change, message):
    frame, y = panel()
    with pytest.raises(ValueError, match=message):
        MultiTaskRegressor(**change).fit(frame.assign(double=2 * frame["x1"]), y)


def test_bad_tables_are_refused_in_a_sentence():
    frame, y = panel()
    broken = frame.copy()
    broken.loc[7, "shop"] = None
    with pytest.raises(ValueError, match=r"'shop'.*missing value in row 7"):
        MultiTaskRegressor(terms=MIXED).fit(broken.drop(columns="size"), y)
    broken = frame.copy()
    broken.loc[3, "x1"] = np.nan
    with pytest.raises(ValueError, match="'x1' of X holds NaN"):
        MultiTaskRegressor(terms=MIXED).fit(broken, y)
    with pytest.raises(ValueError, match="one-dimensional y"):
        MultiTaskRegressor(terms=MIXED).fit(frame, np.column_stack([y, y]))
    tasks = frame[["x1", "shop"]].astype({"shop": object})
    tasks.loc[7, "shop"] = None
    with pytest.raises(ValueError, match=r"task column 'shop' holds a missing value in row 7; drop the row"):
        MultiTaskRegressor(common=True, task_column="shop").fit(tasks, y)
    model = MultiTaskRegressor(terms=MIXED).fit(frame, y)
    with pytest.raises(ValueError, match=r"feature names|features"):
        model.predict(frame.drop(columns="x2"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": None}, "needs by="),
        ({"by": "a", "weight": 0.0}, "weight > 0"),
        ({"by": "a", "columns": ["b"]}, "neither columns="),
        ({"by": "a", "descriptor_kernel": "rbf"}, "needs described_by"),
        ({"by": "a", "weight": np.inf, "structure": "trace"}, "takes no structure"),
    ],
)
def test_a_term_that_makes_no_sense_is_refused_at_birth(given, message):
    with pytest.raises(ValueError, match=message):
        Term("constant", **given)
    with pytest.raises(ValueError, match="weight=inf needs a linear"):
        Term("rbf", weight=np.inf)


def test_what_does_not_know_terms_yet_says_so():
    frame, y = panel()
    X = frame[["x1", "x2", "shop"]]
    model = MultiTaskRegressor(common=True, task_column="shop").fit(X, y)
    for what in (
        lambda: model.explain("s0"),
        lambda: stability(model, X, y),
        lambda: compare_to_single_task(model, X, y),
    ):
        with pytest.raises(ValueError, match="does not know common= yet"):
            what()
    assert not hasattr(model, "partial_fit")
    with pytest.raises(ValueError, match="predict_terms needs several terms: common=, terms="):
        MultiTaskRegressor(task_column="shop").fit(X, y).predict_terms(X)
    with pytest.raises(ValueError, match='unseen="auto" to predict with the common part'):
        model.set_params(unseen="raise").predict(X.assign(shop="new"))


def test_labels_that_fixed_effects_separate_have_no_minimiser():
    """The logistic loss falls for ever along them, and the fit says so."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=60), "shop": np.arange(60) % 6})
    labels = np.where(X["x"] > 0.1, "up", "down")
    terms = [Term("linear", columns=["x"], weight=np.inf), Term("constant", by="shop")]
    with pytest.warns(UserWarning, match="no minimiser.*finite weight"):
        model = MultiTaskClassifier(terms=terms, alpha=0.1).fit(X, labels)
    assert "no minimiser" in model.certificate_.message
    mixed = np.where(rng.random(60) < 0.2, labels[::-1], labels)
    assert "no minimiser" not in MultiTaskClassifier(terms=terms, alpha=0.1).fit(X, mixed).certificate_.message
    finite = [Term("linear", columns=["x"]), Term("constant", by="shop")]
    assert "no minimiser" not in MultiTaskClassifier(terms=finite, alpha=0.1).fit(X, labels).certificate_.message


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_hinges_have_a_minimiser_beside_fixed_effects(loss):
    """They are flat from a margin of 1 on, so that labels which fixed effects separate need no infinite coefficients."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x": rng.normal(size=60), "shop": np.arange(60) % 6})
    terms = [Term("linear", columns=["x"], weight=np.inf), Term("constant", by="shop")]
    for flipped in (0, 9):
        labels = np.where(X["x"] > 0.1, "up", "down")
        labels[:flipped] = labels[:flipped][::-1]
        model = MultiTaskClassifier(terms=terms, loss=loss, alpha=0.1).fit(X, labels)
        assert model.certificate_.optimal
        assert "no minimiser" not in model.certificate_.message
