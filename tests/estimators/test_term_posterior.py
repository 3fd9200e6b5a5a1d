"""``return_std`` of ``common=`` and ``terms=`` against a Gaussian process that is written out from its definition."""

from dataclasses import replace

import numpy as np
import pytest

from taskloom import MultiTaskRegressor, Term, structures

pd = pytest.importorskip("pandas")
SHOPS, REGIONS, N = 7, 3, 60
INPUTS = ["x1", "x2"]


def table(n=N, seed=0, shops=SHOPS):
    rng = np.random.default_rng(seed)
    shop, region = rng.integers(0, shops, n), rng.integers(0, REGIONS, n)
    size = np.random.default_rng(9).normal(size=shops + 3)
    x1, x2 = rng.normal(2.0, 1.0, size=(2, n))
    y = 1 + x1 - 0.5 * x2 + size[shop] * (1 + 0.4 * x1) + 0.5 * region + 0.4 * rng.normal(size=n)
    frame = pd.DataFrame({"x1": x1, "x2": x2, "shop": [f"s{k}" for k in shop], "region": region, "size": size[shop]})
    return frame, y, rng.uniform(0.5, 2.0, n)


TRAIN, Y, S = table()
NEW = pd.concat([table(9, 1)[0], table(6, 2)[0].assign(shop="new", size=0.7)], ignore_index=True)
BOTH = pd.concat([TRAIN, NEW], ignore_index=True)


# --- the oracle: covariances of rows, and the conditional variance under a flat prior on the columns E --------------------


def linear(X, Z, mean):
    return (X - mean) @ (Z - mean).T


def rbf(X, Z, gamma=None):
    gamma = 1 / X.shape[1] if gamma is None else gamma
    return np.exp(-gamma * ((X[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2))


def ridged(A, rho):
    return A @ np.linalg.inv(np.eye(len(A)) + rho * A)


def same_level(column, levels, A=None):
    """The covariance of levels for each pair of rows; a level that was not seen is on its own, with the mean variance."""
    code = np.array([levels.index(value) if value in levels else -1 for value in column])
    A = np.eye(len(levels)) if A is None else A
    whole = np.block([[A, np.zeros((len(A), 1))], [np.zeros((1, len(A))), np.mean(np.diag(A))]])
    return whole[np.ix_(code, code)]


def gaussian_process(K, E, y, v, n, noise=None):
    """Mean, standard deviation and noise (by row) for the covariance ``K`` of all rows, in units of ``tau / 2``."""
    seen, new = slice(0, n), slice(n, len(K))
    inverse = np.linalg.inv(K[seen, seen] + np.diag(1 / v))
    border = np.linalg.inv(E[seen].T @ inverse @ E[seen]) if E.shape[1] else np.zeros((0, 0))
    through = inverse @ E[seen]
    P = inverse - through @ border @ through.T
    hat = np.eye(n) - np.diag(1 / v) @ P
    residual = y - hat @ y
    tau = 2 * (v @ residual**2) / (n - np.trace(hat)) if noise is None else 2 * noise**2 / np.mean(1 / v)
    k = K[new, seen]
    rest = E[new] - k @ through
    mean = k @ (P @ y) + E[new] @ (border @ (through.T @ y))
    variance = np.diag(K[new, new]) - np.einsum("ij,jk,ik->i", k, inverse, k)
    variance = variance + np.einsum("ij,jk,ik->i", rest, border, rest)
    return mean, np.sqrt(tau / 2 * variance), tau / 2 / v


def check(model, X, K, E, weight, v, noise=None):
    model = model.fit(X, Y, S if weight else None)
    mean, std, noises = gaussian_process(K(model), E, Y, v, N, noise)
    ours, deviation = model.predict(NEW[X.columns], return_std=True)
    assert np.allclose(ours, mean, atol=1e-5)
    assert np.allclose(deviation, std, rtol=1e-6)
    return model, noises


def row_weights(weight):
    s = S if weight else np.ones(N)
    return s / s.sum()


def inputs(frame=BOTH):
    return frame[INPUTS].to_numpy()


def centred_linear(weight):
    return linear(inputs(), inputs(), row_weights(weight) @ inputs(TRAIN))


def levels(column):
    return sorted(set(TRAIN[column]))


ONE, NONE = np.ones((len(BOTH), 1)), np.zeros((len(BOTH), 0))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weight", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 0.02])
def test_crossed_groupings(fit_intercept, weight, ridge):
    terms = [
        Term("linear", columns=INPUTS, weight=2.0),
        Term("linear", by="shop", columns=["x1"], intercept=True, weight=0.5),
        Term("constant", by="region", weight=1.5),
    ]
    v, alpha = row_weights(weight), 0.01
    x1 = BOTH[["x1"]].to_numpy()
    own = linear(x1, x1, v @ x1[:N] if fit_intercept else 0.0) + 1
    shop, region = same_level(BOTH["shop"], levels("shop")), same_level(BOTH["region"], levels("region"))
    both = BOTH[["x1", "x2"]].to_numpy()
    common = centred_linear(weight) if fit_intercept else linear(both, both, 0.0)
    K = (2.0 * common + 0.5 * own * shop + 1.5 * region) / alpha / (1 + ridge / alpha)
    model = MultiTaskRegressor(terms=terms, alpha=alpha, ridge=ridge, fit_intercept=fit_intercept, tol=1e-11)
    model, noises = check(model, TRAIN.drop(columns="size"), lambda _: K, ONE if fit_intercept else NONE, weight, v)
    assert np.allclose(model.noise_, np.sqrt(np.mean(noises)))
    X = NEW.drop(columns="size")
    assert np.array_equal(model.predict(X, return_std="joint")[1], model.predict(X, return_std=True)[1])


def test_a_given_noise_and_many_levels():
    """Beyond 64 columns a grouping is a sparse matrix; the largest one is eliminated."""
    rng = np.random.default_rng(5)
    n, m = 200, 40
    frame = pd.DataFrame({"x1": rng.normal(size=n + m), "x2": rng.normal(size=n + m)})
    frame["item"], frame["user"] = rng.integers(0, 70, n + m), rng.integers(0, 80, n + m)
    frame["region"] = frame["item"] % 3
    y, v = rng.normal(size=n), np.full(n, 1 / n)
    terms = [Term("constant", by="item"), Term("linear", by="user", columns=INPUTS), Term("constant", by="region")]
    both = linear(inputs(frame), inputs(frame), v @ inputs(frame[:n]))
    item, user, region = (same_level(frame[c], sorted(set(frame[c][:n]))) for c in ("item", "user", "region"))
    K = (both * user + item + region) / 0.02
    model = MultiTaskRegressor(terms=terms, alpha=0.02, noise=0.3, tol=1e-11).fit(frame[:n], y)
    mean, std, _ = gaussian_process(K, np.ones((n + m, 1)), y, v, n, 0.3)
    ours, deviation = model.predict(frame[n:], return_std=True)
    assert np.allclose(ours, mean, atol=1e-6)
    assert np.allclose(deviation, std, rtol=1e-6)
    assert np.allclose(model.noise_, 0.3)


CHAIN = structures.TaskGraph([(f"s{k}", f"s{k + 1}", 1.0) for k in range(SHOPS - 1)])


@pytest.mark.parametrize("structure", ["trace", "frobenius", CHAIN, structures.Clusters(2)], ids=repr)
@pytest.mark.parametrize("ridge", [0.0, 0.02])
def test_structures_on_both_sides_beside_free_terms(structure, ridge):
    terms = [Term("linear", columns=INPUTS), Term("linear", by="shop", columns=INPUTS, intercept=True, structure=structure)]
    free = ridge == 0
    terms[0] = Term("linear", columns=INPUTS, weight=np.inf if free else 1.0)
    alpha, v = 0.003, row_weights(True)
    mean = v @ inputs(TRAIN)
    phi = np.hstack([inputs() - mean, np.ones((len(BOTH), 1))])

    def covariance(model):
        fitted = model._state.fitted_terms[1]
        R = ridged(fitted.structure, ridge / alpha)
        if fitted.on_features:
            assert len(R) == 3
            K = (phi @ R @ phi.T) * same_level(BOTH["shop"], levels("shop"))
        else:
            K = (phi @ phi.T) * same_level(BOTH["shop"], levels("shop"), R)
        return (K + (0 if free else centred_linear(True) / (1 + ridge / alpha))) / alpha

    E = np.hstack([ONE, inputs() - mean]) if free else ONE
    model = MultiTaskRegressor(terms=terms, alpha=alpha, ridge=ridge, tol=1e-11, max_iter=5000)
    model, _ = check(model, TRAIN[[*INPUTS, "shop"]], covariance, E, True, v)
    if model._state.learned is None and not structures.as_structure(structure).known:
        with pytest.raises(ValueError, match=r"joint.* needs known structures"):
            model.predict(NEW[[*INPUTS, "shop"]], return_std="joint")


@pytest.mark.parametrize("structure", [None, "trace"])
@pytest.mark.parametrize("descriptor_kernel", [None, "rbf"])
def test_descriptors_and_kernels_on_inputs_and_on_descriptors(structure, descriptor_kernel):
    terms = [
        Term("rbf", columns=INPUTS),
        Term("rbf", by="shop", columns=["x1"], weight=0.5),
        Term(
            "linear", by="shop", columns=["x2"], intercept=True, structure=structure, described_by=["size"],
            descriptor_kernel=descriptor_kernel,
        ),
    ]  # fmt: skip
    alpha, v = 0.01, row_weights(False)
    x1, x2, size = (BOTH[[name]].to_numpy() for name in ("x1", "x2", "size"))

    def covariance(model):
        K = rbf(inputs(), inputs()) + 0.5 * rbf(x1, x1) * same_level(BOTH["shop"], levels("shop"))
        phi = np.hstack([x2 - v @ x2[:N], ONE])
        U = rbf(size, size) if descriptor_kernel else size @ size.T
        fitted = model._state.fitted_terms[2]
        if structure is None:
            return (K + (phi @ phi.T) * U) / alpha
        if fitted.on_features:
            return (K + (phi @ fitted.structure @ phi.T) * U) / alpha
        return (K + (phi @ phi.T) * float(fitted.structure[0, 0]) * U) / alpha

    model = MultiTaskRegressor(terms=terms, alpha=alpha, tol=1e-11)
    check(model, TRAIN.drop(columns="region"), covariance, ONE, False, v)


@pytest.mark.parametrize("task_weight", ["equal", "size"])
@pytest.mark.parametrize("structure", ["independent", "trace", structures.SharedMean(2.0)], ids=repr)
@pytest.mark.parametrize(
    ("kernel", "common"), [("linear", True), ("linear", "free"), ("linear", "rbf"), ("rbf", True), ("rbf", "linear")]
)
def test_a_common_part_of_a_long_table(task_weight, structure, kernel, common):
    shops, alpha, ridge = levels("shop"), 0.02, 0.0 if common == "free" else 0.01
    task = np.array([shops.index(shop) for shop in TRAIN["shop"]])
    total = np.bincount(task, S)
    v = (S / total[task] if task_weight == "equal" else S * SHOPS / S.sum()).astype(float)
    mean = v @ inputs(TRAIN) / v.sum()

    def covariance(model):
        part = model._state.common_part
        kernels = {"linear": linear(inputs(), inputs(), mean), "rbf": rbf(inputs(), inputs())}
        shared = 0 if common == "free" else kernels[kernel if common is True else common] / (1 + ridge / alpha)
        own, A = kernels[kernel] + 4.0, None
        R = ridged(part.structure, ridge / alpha) if np.size(part.structure) else None
        if R is not None and part.on_features:
            assert kernel == "linear"
            phi = np.hstack([inputs() - mean, 2.0 * ONE])
            own = phi @ R @ phi.T
        elif R is not None:
            A = R
        else:
            own = own / (1 + ridge / alpha)
        return (shared + own * same_level(BOTH["shop"], shops, A)) / alpha

    model = MultiTaskRegressor(
        structure, kernel=kernel, task_column="shop", alpha=alpha, ridge=ridge, task_weight=task_weight, tol=1e-11,
        common={"free": Term("linear", weight=np.inf)}.get(common, common), intercept_scaling=2.0, max_iter=5000,
    )  # fmt: skip
    E = np.hstack([ONE, inputs() - mean]) if common == "free" else ONE
    model, noises = check(model, TRAIN[[*INPUTS, "shop"]], covariance, E, True, v)
    assert np.allclose(model.noise_, np.sqrt(np.bincount(task, noises) / np.bincount(task)))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_a_common_part_of_a_wide_table_is_that_of_the_long_one(kernel):
    X, shops = TRAIN[[*INPUTS, "shop"]], levels("shop")
    wide_Y = np.full((N, SHOPS), np.nan)
    wide_Y[np.arange(N), [shops.index(shop) for shop in X["shop"]]] = Y
    settings = {"common": True, "kernel": kernel, "alpha": 0.02, "tol": 1e-11}
    wide = MultiTaskRegressor("independent", **settings).fit(X[INPUTS], wide_Y)
    long = MultiTaskRegressor("independent", task_column="shop", **settings).fit(X, Y)
    std = wide.predict(NEW[INPUTS], return_std=True)[1]
    assert std.shape == (len(NEW), SHOPS)
    for t, shop in enumerate(shops):
        assert np.allclose(std[:, t], long.predict(NEW[[*INPUTS, "shop"]].assign(shop=shop), return_std=True)[1])


def test_a_level_that_was_not_seen_of_a_term_without_a_penalty():
    terms = [Term("linear", by="region", columns=["x1"], weight=np.inf), Term("constant", by="shop")]
    X = TRAIN[["x1", "shop", "region"]]
    model = MultiTaskRegressor(terms=terms, alpha=0.01).fit(X, Y)
    std = model.predict(X[:2].assign(region=[0, 9]), return_std=True)[1]
    assert np.isfinite(std).tolist() == [True, False]


def test_what_has_no_standard_deviations_says_so():
    X = TRAIN[[*INPUTS, "shop"]]
    with pytest.raises(AttributeError, match="need a fit with the squared loss"):
        MultiTaskRegressor(common=True, task_column="shop", loss="huber").fit(X, Y).predict(X, return_std=True)
    model = MultiTaskRegressor(common=True, task_column="shop").fit(X, Y)
    model._state = replace(model._state, term_rows=None)
    with pytest.raises(AttributeError, match="need the training data"):
        model.predict(X, return_std=True)
    with pytest.raises(ValueError, match=r"joint.* needs known structures"):
        MultiTaskRegressor(common=True, task_column="shop").fit(X, Y).predict(X, return_std="joint")


@pytest.mark.parametrize("seed", range(3))
def test_intervals_of_a_mixed_model_cover(seed):
    """With ``alpha = sigma^2 / n`` and the true covariances, 90 % of the functions are inside of 90 % intervals."""
    rng = np.random.default_rng(seed)
    n, groups, more, sigma = 1500, 150, 1000, 0.7
    D = np.array([[0.5, 0.2], [0.2, 1.0]])
    x, region = rng.normal(size=n + more), rng.integers(0, 12, n + more)
    group = np.concatenate([rng.integers(0, groups, n), groups + np.arange(more)])
    W, b = rng.multivariate_normal([0, 0], D, size=groups + more), 0.6 * rng.normal(size=12)
    terms = [
        Term("linear", columns=["x"], weight=np.inf),
        Term("linear", by="group", columns=["x"], intercept=True, structure=structures.Fixed(D, side="features")),
        Term("constant", by="region", weight=0.36),
    ]
    x -= x[:n].mean()
    f = 1 + 2 * x + W[group, 0] * x + W[group, 1] + b[region]
    frame = pd.DataFrame({"x": x, "group": group, "region": region})
    model = MultiTaskRegressor(terms=terms, alpha=sigma**2 / n).fit(frame[:n], f[:n] + sigma * rng.normal(size=n))
    assert np.isclose(model.noise_[0], sigma, rtol=0.1)
    mean, std = model.predict(frame, return_std=True)
    inside = np.abs(mean - f) < 1.645 * std
    assert 0.87 < np.mean(inside[:n]) < 0.93
    assert 0.87 < np.mean(inside[n:]) < 0.93
