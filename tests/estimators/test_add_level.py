"""A new level beside a common part, or of a grouping of ``terms=``: the minimum over its weights, all else held where it is."""

import numpy as np
import pytest
from scipy.linalg import block_diag
from scipy.optimize import minimize

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Term, structures

pd = pytest.importorskip("pandas")
SHOPS, N, NEW = 6, 150, 12
INPUTS = ["x1", "x2"]


def table(n, seed, shops=SHOPS):
    rng = np.random.default_rng(seed)
    shop, region = rng.integers(0, shops, n), rng.integers(0, 3, n)
    size = np.random.default_rng(7).normal(size=shops)
    x1, x2 = rng.normal(1.0, 1.0, size=(2, n))
    y = 1 + x1 - x2 + size[shop] * (1 + 0.5 * x1) + 0.5 * region + 0.3 * rng.normal(size=n)
    frame = pd.DataFrame({"x1": x1, "x2": x2, "shop": [f"s{k}" for k in shop], "region": region, "size": size[shop]})
    return frame, y


X, Y = table(N, 0)
X_NEW, Y_NEW = table(NEW, 1)
X_NEW, Y_NEW = X_NEW.assign(shop="new", size=0.9), Y_NEW + 1.5
S_NEW = np.random.default_rng(3).uniform(0.5, 2.0, NEW)
CHAIN = structures.TaskGraph([(f"s{k}", f"s{k + 1}", 1.0) for k in range(SHOPS - 1)])


# --- the oracle: the objective of one level, written out --------------------------------------------------------------------


def squared(y, z):
    return (y - z) ** 2


def logistic(y, z):
    return np.log1p(np.exp(-y * z))


def penalty_of_level(structure, A, W, alpha, ridge):
    """A root ``L`` of ``D``, and what ``w = Lc`` costs under a structure: ``A`` on the levels, or ``D`` on the features."""
    if structure == "independent":
        return np.eye(len(W)), lambda w: (alpha + ridge) * w @ w
    if structure == "shared_mean":
        inverse = np.linalg.inv(structures.SharedMean(1.0).matrix(W.shape[1] + 1))

        def of_all(w):
            whole = np.column_stack([W, w])
            return alpha * np.trace(whole @ inverse @ whole.T) + ridge * w @ w

        return np.eye(len(W)), of_all
    D = A
    if structure is CHAIN:  # docs/estimators.md, case 3
        inverse = np.linalg.inv(A)
        shared = W @ inverse @ W.T
        D = np.trace(A) * shared / np.trace(shared) + np.mean(1 / np.diag(inverse)) * np.eye(len(W))
    d, V = np.linalg.eigh(D)
    V, d = V[:, d > 1e-10 * d[-1]], d[d > 1e-10 * d[-1]]
    return V * np.sqrt(d), lambda w: alpha * np.sum((V.T @ w) ** 2 / d) + ridge * w @ w


def best_weights(loss, y, v, offset, phi, L, penalty):
    def objective(c):
        return v @ loss(y, offset + phi @ (L @ c)) + penalty(L @ c)

    return L @ minimize(objective, np.zeros(L.shape[1]), method="BFGS", options={"gtol": 1e-9}).x


def features(frame, mean, columns=INPUTS):
    return np.hstack([frame[columns].to_numpy() - mean, np.ones((len(frame), 1))])


# --- terms= -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "ridge"), [("squared", 0.0), ("squared", 0.005), ("logistic", 0.005)])
@pytest.mark.parametrize("structure", ["independent", "trace", "shared_mean", CHAIN], ids=str)
def test_it_minimises_the_objective_of_the_level_over_all_its_terms(structure, ridge, loss):
    """Two terms of the level are found together; the common part, another grouping and descriptors are offsets."""
    alpha, omega = 0.01, np.array([0.7, 2.0])
    terms = [
        Term("linear", columns=INPUTS),
        Term("linear", by="shop", columns=INPUTS, intercept=True, structure=structure, weight=omega[0]),
        Term("constant", by="shop", weight=omega[1]),
        Term("constant", by="region"),
        Term("constant", by="shop", described_by=["size"]),
    ]
    label = {"squared": lambda y: y, "logistic": lambda y: np.where(y > 2, 1.0, -1.0)}[loss]
    model = MultiTaskRegressor(terms=terms, loss=loss, alpha=alpha, ridge=ridge, tol=1e-11, max_iter=5000).fit(X, label(Y))
    before, fitted = model.predict(X), model._state.fitted_terms[1]
    offset = model._decision(X_NEW)[:, 0]
    mean, W = X[INPUTS].to_numpy().mean(axis=0), fitted.weights / np.sqrt(omega[0])
    L, own = penalty_of_level(structure, fitted.structure, W, alpha, ridge)
    phi = features(X_NEW, mean)
    both = np.hstack([np.sqrt(omega[0]) * phi, np.sqrt(omega[1]) * np.ones((NEW, 1))])

    def penalty(w):
        return own(w[:3]) + (alpha + ridge) * w[3] ** 2

    function = {"squared": squared, "logistic": logistic}[loss]
    w = best_weights(function, label(Y_NEW), S_NEW / N, offset, both, block_diag(L, 1.0), penalty)
    model.add_task(X_NEW, label(Y_NEW), "new", sample_weight=S_NEW)
    slopes, constant = (model._state.fitted_terms[k].weights[:, -1] for k in (1, 2))
    assert np.allclose(np.append(slopes, constant), np.sqrt(omega[[0, 0, 0, 1]]) * w, atol=2e-5)
    assert np.allclose(model.predict(X_NEW), offset + both @ w, atol=1e-4)
    assert np.allclose(model.predict(X), before, atol=1e-12)
    assert model.added_tasks_ == ["new"]


def test_a_level_that_was_held_out_comes_back():
    """Where all else stays and penalties are known, the refit has the same weights for it."""
    settings = {"alpha": 0.02, "fit_intercept": False, "tol": 1e-12}
    terms = [Term("linear", by="shop", columns=INPUTS, intercept=True)]
    held = (X["shop"] == "s3").to_numpy()
    part = MultiTaskRegressor(terms=terms, **settings).fit(X[~held], Y[~held])
    part.add_task(X[held], Y[held], "s3")
    mean = part._state.fitted_terms[0].inputs.mean
    phi, n = features(X[held], mean), (~held).sum()
    w = np.linalg.solve(phi.T @ phi / n + 0.02 * np.eye(3), phi.T @ Y[held] / n)
    assert np.allclose(part.predict(X[held]), phi @ w)


def test_an_unpenalised_term_of_the_level_is_least_squares():
    terms = [Term("linear", by="shop", columns=["x1"], weight=np.inf), Term("constant", by="shop")]
    model = MultiTaskRegressor(terms=terms, alpha=0.01).fit(X, Y)
    offset = model.predict(X_NEW)
    model.add_task(X_NEW, Y_NEW, "new")
    one = np.ones((NEW, 1))
    columns = np.hstack([X_NEW[["x1"]] - X["x1"].mean(), one])
    G = columns.T @ columns / N + np.diag([0.0, 0.01])
    w = np.linalg.solve(G, columns.T @ (Y_NEW - offset) / N)
    assert np.allclose(model.predict(X_NEW), offset + columns @ w)
    with pytest.raises(ValueError, match=r"weights without a penalty .* do not determine"):
        model.add_task(X_NEW[:1].assign(shop="newer"), [np.nan], "newer")


def test_descriptors_alone_say_what_a_level_without_data_is_like():
    terms = [
        Term("linear", columns=INPUTS),
        Term("constant", by="shop", described_by=["size"]),
        Term("constant", by="shop"),
    ]
    model = MultiTaskRegressor(terms=terms, alpha=0.001).fit(X, Y)
    before = model.predict(X_NEW)
    model.add_task(X_NEW, np.full(NEW, np.nan), "new")
    assert np.allclose(model.predict(X_NEW), before)
    frame = model.coef_frame()
    described = frame[frame["term"].str.contains("described") & (frame["level"] == "new")]
    assert np.allclose(described["coefficient"], model.predict_terms(X_NEW)[1][0])
    with pytest.raises(ValueError, match="'size' describes the levels of 'shop', but varies within level 'newer'"):
        model.add_task(X_NEW.assign(shop="newer", size=np.arange(NEW)), Y_NEW, "newer")


@pytest.mark.parametrize("structure", ["trace", CHAIN, "shared_mean"], ids=str)
def test_the_fitted_model_has_the_level_everywhere_and_the_order_does_not_matter(structure):
    terms = [
        Term("linear", columns=INPUTS, weight=np.inf),
        Term("linear", by="shop", columns=INPUTS, intercept=True, structure=structure),
        Term("constant", by="region"),
    ]
    more = (X_NEW[:5].assign(shop="newer"), Y_NEW[:5] - 2)
    region = (X_NEW.assign(region=9, shop="s2"), Y_NEW)
    one, other = (MultiTaskRegressor(terms=terms, alpha=0.01, tol=1e-9).fit(X, Y) for _ in range(2))
    one.add_task(X_NEW, Y_NEW, "new").add_task(*more, "newer").add_task(*region, 9)
    other.add_task(*region, 9).add_task(*more, "newer").add_task(X_NEW, Y_NEW, "new")
    rows = pd.concat([X, X_NEW, more[0], region[0]], ignore_index=True)
    assert np.allclose(one.predict(rows), other.predict(rows))
    parts = one.predict_terms(rows)
    assert np.allclose(np.sum(parts, axis=0) + one.intercept_[0], one.predict(rows))
    frame = one.coef_frame()
    assert frame[frame["by"] == "shop"]["level"].drop_duplicates().tolist() == [
        *(f"s{k}" for k in range(SHOPS)),
        "new",
        "newer",
    ]
    assert frame[frame["by"] == "region"]["level"].tolist() == [0, 1, 2, 9]
    coef = frame[frame["level"] == "newer"].set_index("feature")["coefficient"]
    own = more[0][INPUTS].to_numpy() @ coef[INPUTS] + coef["intercept"]
    assert np.allclose(own, one.predict_terms(more[0])[1])
    if structure is not CHAIN and structure != "shared_mean":
        assert one._state.fitted_terms[1].on_features
    else:
        A = one.relations_frame()["(1 + x1 + x2 | shop)"]
        assert A.index.tolist()[-2:] == ["new", "newer"]
        assert np.linalg.eigvalsh(A)[0] > 0
    with pytest.raises(AttributeError, match="fit again with the tasks that were added"):
        one.predict(rows, return_std=True)


def test_a_summary_counts_added_levels_and_says_what_it_lacks():
    terms = [Term("linear", columns=INPUTS), Term("constant", by="shop"), Term("constant", by="region")]
    model = MultiTaskRegressor(terms=terms, alpha=0.01).fit(X, Y)
    before = model.summary()
    after = model.add_task(X_NEW, Y_NEW, "new").summary()
    assert after.groups == {"shop": SHOPS + 1, "region": 3}
    assert after.notes == [*before.notes, after.notes[-1]]
    assert after.notes[-1].startswith("Added after the fit: 'new'. Observations, variance components")
    assert after.residual_variance == before.residual_variance


def test_a_kernel_of_each_level_is_exact_at_the_new_rows():
    """Ridge regression with the kernel on what the rest leaves, also outside of the span of the fit."""
    terms = [Term("linear", columns=INPUTS), Term("rbf", by="shop", columns=INPUTS, intercept=True, weight=1.5)]
    model = MultiTaskRegressor(terms=terms, alpha=0.001, tol=1e-9).fit(X, Y)
    before, offset, far = model.predict(X), model.predict(X_NEW), X_NEW.assign(x1=X_NEW["x1"] + 5)
    assert np.allclose(model.predict(far.assign(shop="s0")), model.predict(far) + model.predict_terms(far.assign(shop="s0"))[1])
    offset, test = model.predict(far), far[:4].assign(x2=0.3)
    base = model.predict(test)
    Z, Q = far[INPUTS].to_numpy(), test[INPUTS].to_numpy()

    def kernel(a, b):
        return 1.5 * (np.exp(-0.5 * ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)) + 1)

    dual = np.linalg.solve(kernel(Z, Z) + 0.001 * N * np.eye(NEW), Y_NEW - offset)
    model.add_task(far, Y_NEW, "new")
    assert np.allclose(model.predict(test), base + kernel(Q, Z) @ dual, atol=1e-6)
    assert np.allclose(model.predict(X), before, atol=1e-9)


def test_classifiers_take_a_level_of_one_class():
    terms = [Term("linear", columns=INPUTS), Term("constant", by="shop")]
    labels = np.where(np.median(Y) < Y, "yes", "no")
    model = MultiTaskClassifier(terms=terms, alpha=0.001).fit(X, labels)
    before = model.decision_function(X_NEW)
    model.add_task(X_NEW, ["yes"] * NEW, "new")
    assert (model.decision_function(X_NEW) > before).all()
    with pytest.raises(ValueError, match="has the classes"):
        model.add_task(X_NEW.assign(shop="newer"), ["maybe"] * NEW, "newer")


@pytest.mark.parametrize(
    ("change", "name", "options", "message"),
    [
        ({"shop": "s1"}, "s1", {}, "there is a level of 'shop' 's1' already"),
        ({}, "other", {}, r"needs 'other' in every row of a column that terms are grouped by: 'shop', 'region'"),
        ({"region": "new"}, "new", {}, "in every row of 'shop' and 'region'"),
        ({}, "new", {"relation": [1.0]}, "relation= is for tasks"),
        ({}, ["new"], {}, "named by a label"),
    ],
)
def test_levels_that_make_no_sense_are_refused(change, name, options, message):
    terms = [Term("linear", columns=INPUTS), Term("constant", by="shop"), Term("constant", by="region")]
    model = MultiTaskRegressor(terms=terms, alpha=0.001).fit(X.assign(region=X["region"].astype(str)), Y)
    with pytest.raises(ValueError, match=message):
        model.add_task(X_NEW.assign(region="0").assign(**change), Y_NEW, name, **options)


def test_a_level_of_another_grouping_may_be_unseen():
    terms = [Term("linear", columns=INPUTS), Term("constant", by="shop"), Term("constant", by="region")]
    model = MultiTaskRegressor(terms=terms, alpha=0.001).fit(X, Y)
    unseen = X_NEW.assign(region=7)
    model.add_task(unseen, Y_NEW, "new")
    assert np.array_equal(model.predict_terms(unseen)[2], np.zeros(NEW))


# --- common= ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "ridge", "task_weight"), [("squared", 0.0, "size"), ("squared", 0.01, "equal"), ("logistic", 0.01, "equal")]
)
@pytest.mark.parametrize("structure", ["independent", "trace", "shared_mean", CHAIN], ids=str)
def test_a_task_beside_a_common_part_minimises_its_own_objective(structure, task_weight, ridge, loss):
    alpha, frame, new = 0.02, X[[*INPUTS, "shop"]], X_NEW[INPUTS]
    label = {"squared": lambda y: y, "logistic": lambda y: np.where(y > 2, 1.0, -1.0)}[loss]
    model = MultiTaskRegressor(
        structure, common=True, task_column="shop", loss=loss, alpha=alpha, ridge=ridge, task_weight=task_weight, tol=1e-11,
        max_iter=5000,
    ).fit(frame, label(Y))  # fmt: skip
    part, before = model._state.common_part, model.predict(frame)
    offset = part.intercept + part.shared(new.to_numpy())
    L, penalty = penalty_of_level(structure, part.structure, part.own_weights, alpha, ridge)
    v = S_NEW / S_NEW.sum() if task_weight == "equal" else S_NEW * SHOPS / N
    phi = features(new, part.own.mean)
    w = best_weights({"squared": squared, "logistic": logistic}[loss], label(Y_NEW), v, offset, phi, L, penalty)
    A = model.structure_.copy()
    model.add_task(new, label(Y_NEW), "new", sample_weight=S_NEW)
    assert np.allclose(model._state.common_part.own_weights[:, -1], w, atol=2e-5)
    assert np.allclose(model.predict(X_NEW[[*INPUTS, "shop"]]), offset + phi @ w, atol=1e-4)
    assert np.allclose(model.predict(frame), before, atol=1e-12)
    assert model.tasks_.tolist() == [*(f"s{k}" for k in range(SHOPS)), "new"]
    assert np.allclose(model.coef_[-1], part.common_weights + w[:2], atol=2e-5)
    assert np.allclose(model.structure_[:-1, :-1], A)
    assert np.linalg.eigvalsh(model.structure_)[0] > -1e-8 * np.linalg.norm(A)
    assert model.coef_frame().index.tolist() == model.tasks_.tolist()


@pytest.mark.parametrize("structure", ["independent", "trace", "shared_mean", CHAIN], ids=str)
def test_the_order_of_tasks_beside_a_common_part_does_not_matter(structure):
    frame, more = X[[*INPUTS, "shop"]], (X_NEW[:5][INPUTS], Y_NEW[:5] - 2)
    settings = {"common": True, "task_column": "shop", "alpha": 0.02, "tol": 1e-9}
    one, other = (MultiTaskRegressor(structure, **settings).fit(frame, Y) for _ in range(2))
    one.add_task(X_NEW[INPUTS], Y_NEW, "a").add_task(*more, "b")
    other.add_task(*more, "b").add_task(X_NEW[INPUTS], Y_NEW, "a")
    order = [*range(SHOPS), SHOPS + 1, SHOPS]
    assert np.allclose(one.coef_, other.coef_[order])
    assert np.allclose(one.structure_, other.structure_[np.ix_(order, order)])
    assert one.added_tasks_ == ["a", "b"]
    assert "Added after the fit: 'a', 'b'." in one.summary().notes[-1]


@pytest.mark.parametrize("structure", ["independent", "trace"])
def test_wide_tables_and_kernels(structure):
    """The linear kernel as a function, under which features are those of the fit and of the new rows."""
    inputs = X[INPUTS].to_numpy() - X[INPUTS].to_numpy().mean(axis=0)
    targets = np.column_stack([Y + k * inputs[:, 0] for k in range(3)])

    def dot(a, b):
        return a @ b.T

    models = [MultiTaskRegressor(structure, kernel=kernel, common=True, alpha=0.05, tol=1e-10) for kernel in ("linear", dot)]
    linear, kernel = (model.fit(inputs, targets).add_task(X_NEW[INPUTS].to_numpy(), Y_NEW, "new") for model in models)
    assert linear.predict(inputs).shape == (N, 4)
    assert np.allclose(linear.predict(inputs), kernel.predict(inputs), atol=1e-4)
    assert np.allclose(linear.structure_, kernel.structure_, atol=1e-4)


def test_an_rbf_kernel_beside_a_common_part_is_ridge_regression_on_the_rest():
    frame, far = X[[*INPUTS, "shop"]], X_NEW[INPUTS] + 4.0
    model = MultiTaskRegressor("independent", kernel="rbf", gamma=0.5, common=True, task_column="shop", alpha=0.02).fit(
        frame, Y
    )
    part, Z = model._state.common_part, far.to_numpy()
    offset = part.intercept + part.shared(Z)
    K = np.exp(-0.5 * ((Z[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)) + 1
    fitted = K @ np.linalg.solve(K + 0.02 * NEW * np.eye(NEW), Y_NEW - offset)
    model.add_task(far, Y_NEW, "new")
    assert np.allclose(model.predict(far.assign(shop="new")), offset + fitted, atol=1e-6)


def test_relations_of_tasks_that_are_known():
    frame = X[[*INPUTS, "shop"]]
    model = MultiTaskRegressor("shared_mean", common=True, task_column="shop", alpha=5.0, tol=1e-9).fit(frame, Y)
    twin = model.structure_[:, 2] * 0.99
    model.add_task(X_NEW[INPUTS], Y_NEW, "twin", relation=twin)
    assert np.allclose(model.structure_[-1, :-1], twin)
    own = model._state.common_part.own_weights
    assert np.linalg.norm(own[:, -1] - own[:, 2]) < 0.3 * np.linalg.norm(own[:, 2])
    on_features = structures.Fixed(np.eye(3), side="features")
    model = MultiTaskRegressor(on_features, common=True, task_column="shop").fit(frame, Y)
    with pytest.raises(ValueError, match="relation= needs a structure on the tasks"):
        model.add_task(X_NEW[INPUTS], Y_NEW, "twin", relation=twin)
    model.add_task(X_NEW[INPUTS], Y_NEW, "twin")
    with pytest.raises(ValueError, match=r"has no observation .* predict takes unseen tasks"):
        model.add_task(X_NEW[INPUTS], np.full(NEW, np.nan), "x")
