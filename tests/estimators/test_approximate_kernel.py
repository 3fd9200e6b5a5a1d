"""Approximate kernels: equal to scikit-learn's maps, exact with enough landmarks, and honest about how far they are."""

import contextlib
import copy
import pickle

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.gaussian_process.kernels import Matern
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import rbf_kernel

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressor, MultiTaskRegressorCV
from taskloom.features import approximate as approximation
from taskloom.features.approximate import Approximation, Landmarks, Reservoir, leverage_scores, mapped
from taskloom.persistence import archive

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
Y = np.sin(X @ rng.normal(size=(3, 4))) + 0.1 * rng.normal(size=(120, 4))
GONE = np.where(rng.random(Y.shape) < 0.2, np.nan, Y)
LABELS = np.nan_to_num(Y) > 0
RBF = {"gamma": None, "degree": 3, "coef0": 1}
KINDS = pytest.mark.parametrize("kind", ["nystroem", "leverage", "fourier"])


def model(kind="nystroem", n_components=40, cls=MultiTaskRegressor, **options):
    return cls(**{"kernel": "rbf", "approximation": kind, "n_components": n_components, **options})


def relative_error(feature_map, rows=X):
    K, phi = rbf_kernel(rows), mapped(feature_map, rows)
    return np.linalg.norm(K - phi @ phi.T) / np.linalg.norm(K)


# --- the maps ------------------------------------------------------------------------------------------------------


def test_landmarks_are_scikit_learns_nystroem():
    """The same kernel from the same landmarks; here also for kernels of two matrices, which scikit-learn's does not take."""
    theirs = Nystroem(n_components=30, random_state=0).fit(X)
    ours = Landmarks(theirs.components_, "rbf", RBF)
    assert np.allclose(mapped(ours, X) @ mapped(ours, X).T, theirs.transform(X) @ theirs.transform(X).T, atol=1e-9)
    kernel = Matern(nu=1.5)
    phi = mapped(Landmarks(X, kernel, {}), X)
    assert np.allclose(phi @ phi.T, kernel(X, X), atol=1e-9)


def test_waves_are_scikit_learns():
    fitted = model("fourier", 50, gamma=0.3).fit(X, Y)
    assert isinstance(fitted.feature_map_, RBFSampler)
    assert fitted.feature_map_.gamma == 0.3
    assert np.isclose(model("fourier").fit(X, Y).feature_map_.gamma, 1 / 3)  # as kernel="rbf" has it
    few, many = (relative_error(model("fourier", n).fit(X, Y).feature_map_) for n in (50, 3200))
    assert many < few / 4  # falls with the square root of the number


def test_leverage_finds_the_rare_rows():
    """A hundredth of the rows lies elsewhere in many places: uniform landmarks miss it, leverage scores do not."""
    far = np.vstack([0.1 * rng.normal(size=(990, 2)), 8 * rng.normal(size=(10, 2))])
    far = far[np.random.default_rng(1).permutation(1000)]
    rare = np.linalg.norm(far, axis=1) > 1
    scores = leverage_scores(far, 30, rbf_kernel)
    assert scores[rare].min() > 5 * np.median(scores[~rare])
    left = {}
    for kind in ("nystroem", "leverage"):
        drawn = [_drawn(Approximation(kind, 30, "rbf", {"gamma": 1.0}), far, seed) for seed in range(5)]
        left[kind] = np.mean([1 - np.sum(mapped(made, far[rare]) ** 2, axis=1) for made in drawn])
    assert left["leverage"] < left["nystroem"] / 2


def _drawn(settings, rows, seed):
    reservoir = Reservoir(settings.sample_size * 10, seed)
    reservoir.add(rows)
    return settings.draw(reservoir.kept, reservoir.seed)[0]


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly", Matern()], ids=str)
def test_every_row_a_landmark_is_exact(kernel):
    exact = MultiTaskRegressor(kernel=kernel, tol=1e-8).fit(X, GONE)
    close = model(n_components=500, kernel=kernel, tol=1e-8).fit(X, GONE)
    assert np.isclose(close.certificate_.primal, exact.certificate_.primal, rtol=1e-7)
    assert np.allclose(close.predict(X), exact.predict(X), atol=1e-4)
    mean, deviation = close.predict(X[:5] + 0.3, return_std=True)
    assert np.allclose(deviation, exact.predict(X[:5] + 0.3, return_std=True)[1], rtol=1e-3)
    assert mean.shape == (5, 4)


def test_more_landmarks_are_never_worse():
    """Landmarks are nested and their functions belong to the exact space: the objective falls to the exact one."""
    primal = [model(n_components=n, tol=1e-8).fit(X, Y).certificate_.primal for n in (5, 20, 60, 120)]
    exact = MultiTaskRegressor(kernel="rbf", tol=1e-8).fit(X, Y).certificate_.primal
    assert np.all(np.diff(primal) < 1e-9)
    assert np.isclose(primal[-1], exact, rtol=1e-7)


@KINDS
def test_the_number_grows_until_the_error_is_small(kind):
    rows = np.random.default_rng(2).normal(size=(1500, 3))
    y = rows[:, 0] ** 2
    loose, tight = (model(kind, n).fit(rows, y) for n in (0.3, 0.1))
    assert loose.approximation_error_ <= 0.3
    assert tight.approximation_error_ <= 0.1
    assert relative_error(tight.feature_map_, rows) < 0.13  # measured on some rows, true for all of them
    assert loose.coef_.shape[1] <= tight.coef_.shape[1]
    assert kind != "fourier" or loose.coef_.shape[1] < tight.coef_.shape[1]
    automatic = model("nystroem", "auto").fit(rows, y)
    assert automatic.approximation_error_ <= approximation.TARGET
    assert not hasattr(tight.set_params(n_components=20).fit(rows, y), "approximation_error_")


def test_a_target_out_of_reach_is_reported(monkeypatch):
    monkeypatch.setattr(approximation, "MOST", 100)
    with pytest.warns(UserWarning, match="100 features leaves a relative error of the kernel"):
        model("fourier", 0.01).fit(X, Y)


def test_a_sample_does_not_depend_on_the_cuts():
    whole, parts = Reservoir(17, 3), Reservoir(17, 3)
    whole.add(X)
    for part in np.array_split(X, 7):
        parts.add(part)
    assert np.array_equal(whole.kept, parts.kept)
    sparse = Reservoir(17, 3)
    for part in np.array_split(X, 7):
        sparse.add(csr_array(part))
    assert np.array_equal(sparse.kept.toarray(), whole.kept)
    draws = [np.flatnonzero((X[:, None] == r.kept[None]).all(axis=2).any(axis=1)) for r in map(_filled, range(300))]
    assert np.abs(np.bincount(np.concatenate(draws), minlength=120) / 300 - 17 / 120).max() < 0.1  # uniform


def _filled(seed):
    reservoir = Reservoir(17, seed)
    reservoir.add(X)
    return reservoir


# --- the estimators ------------------------------------------------------------------------------------------------


@KINDS
def test_fits_are_certified_and_repeat_themselves(kind):
    fitted = model(kind).fit(X, GONE)
    assert fitted.certificate_.optimal
    assert "certifies the problem with the approximate kernel (40 features" in fitted.certificate_.message
    assert fitted.coef_.shape == (4, 40)
    assert np.array_equal(model(kind).fit(X, GONE).predict(X), fitted.predict(X))
    assert not np.array_equal(model(kind, random_state=1).fit(X, GONE).predict(X), fitted.predict(X))
    exact = fitted.set_params(approximation=None).fit(X, GONE)
    assert not hasattr(exact, "feature_map_")
    assert not hasattr(exact, "coef_")


@KINDS
def test_rows_without_weight_have_no_part_in_it(kind):
    """Weight 0, or nothing observed, is the same as no row, also where landmarks are drawn."""
    weight = np.arange(120) % 4 > 0
    without = model(kind, 20).fit(X[weight], Y[weight])
    assert np.allclose(model(kind, 20).fit(X, Y, weight.astype(float)).predict(X), without.predict(X), atol=1e-9)
    assert np.allclose(model(kind, 20).fit(X, np.where(weight[:, None], Y, np.nan)).predict(X), without.predict(X), atol=1e-9)


def test_a_transformer_of_ones_own():
    fitted = MultiTaskRegressor(approximation=RBFSampler(gamma=0.3, n_components=80, random_state=0)).fit(X, Y)
    by_hand = RBFSampler(gamma=0.3, n_components=80, random_state=0).fit_transform(X)
    assert np.allclose(fitted.predict(X), MultiTaskRegressor().fit(by_hand, Y).predict(by_hand), atol=1e-8)
    assert "RBFSampler" in fitted.certificate_.message
    with pytest.raises(ValueError, match=r"which kernel .* approximates"):
        fitted.bound_exact(X, Y)
    fitted.set_params(approximation__n_components=20).fit(X, Y)
    assert fitted.coef_.shape == (4, 20)


def test_rows_are_mapped_in_pieces(monkeypatch):
    long = np.column_stack([np.tile(X, (4, 1)), np.repeat(np.arange(4.0), len(X))])
    for fitted, rows in ((model().fit(X, Y), X), (model(task_column=-1).fit(long, Y.T.ravel()), long)):
        whole, sizes, transform = fitted.predict(rows), [], fitted.feature_map_.transform
        monkeypatch.setattr(approximation, "BLOCK", fitted.coef_.shape[1] * 7)
        monkeypatch.setattr(fitted.feature_map_, "transform", lambda Z, t=transform, s=sizes: s.append(len(Z)) or t(Z))
        assert np.allclose(fitted.predict(rows), whole, atol=1e-10)
        assert max(sizes) == 7
        monkeypatch.undo()


@pytest.mark.parametrize("cls", [MultiTaskClassifier, MultiTaskClassifierCV, MultiTaskRegressorCV])
def test_every_estimator_takes_it(cls):
    y = Y if "Regressor" in cls.__name__ else LABELS
    search = {"alphas": [0.1, 0.01], "cv": 2, "common": None} if cls.__name__.endswith("CV") else {}
    fitted = model(cls=cls, **search).fit(X, y)
    assert fitted.certificate_.optimal
    assert fitted.score(X, y) > 0.5
    if cls is MultiTaskRegressorCV:
        exact = cls(kernel="rbf", **search).fit(X, y)
        assert np.isclose(model(n_components=500, cls=cls, **search).fit(X, y).best_score_, exact.best_score_, atol=0.02)
        assert fitted.bound_exact(X, y).relative_gap < 0.05


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "nystroem"},
        {"kind": "leverage", "kernel": Matern()},
        {"kind": "fourier"},
        {"kind": Nystroem(n_components=20, random_state=0)},
    ],
    ids=["nystroem", "leverage", "fourier", "transformer"],
)
def test_files_and_pickles_hold_the_map(options, tmp_path):
    fitted = model(**options).fit(X, Y)
    fitted.save(tmp_path / "m.taskloom")
    for twin in (taskloom.load(tmp_path / "m.taskloom"), pickle.loads(pickle.dumps(fitted))):
        assert np.array_equal(twin.predict(X + 0.1), fitted.predict(X + 0.1))
        assert twin.certificate_ == fitted.certificate_
        assert np.allclose(twin.fit(X, Y).predict(X), fitted.predict(X))


def test_files_refuse_maps_that_are_code(tmp_path):
    class Own(RBFSampler):
        pass

    with pytest.raises(taskloom.ModelFileError, match="pickle"):
        model(Own(random_state=0)).fit(X, Y).save(tmp_path / "m.taskloom")
    with pytest.raises(taskloom.ModelFileError, match="the function"):
        model(kernel=rbf_kernel).fit(X, Y).save(tmp_path / "m.taskloom")


def forged(fitted, path, change):
    """The file of a model with a right checksum, after somebody changed the map in it."""
    fitted.save(path, training=False)
    tree, arrays, _ = archive.read(path)
    tree, arrays = copy.deepcopy(tree), dict(arrays)
    change(tree["fitted"]["feature_map_"], arrays)
    archive.write(path, tree, arrays, "a forger")
    return path


FORGERIES = {
    "another class": lambda m, a: m.update({"class": "Pipeline"}),
    "a parameter too many": lambda m, a: m["params"].update(shell="rm"),
    "a method": lambda m, a: m["fitted"].update(transform=1),
    "a dunder": lambda m, a: m["fitted"].update(__class__="x"),
    "nothing of a fit": lambda m, a: m["fitted"].clear(),
    "fewer features": lambda m, a: m["fitted"].update(components_={"@": "array", "name": _put(a, np.ones((3, 3)))}),
    "not finite": lambda m, a: m["fitted"].update(normalization_={"@": "array", "name": _put(a, np.full((20, 20), np.nan))}),
    "landmarks of nothing": lambda m, a: (m.clear(), m.update({"@": "landmarks"})),
    "a number": lambda m, a: (m.clear(), m.update({"@": "float", "value": "inf"})),
}


def _put(arrays, array):
    arrays["forged"] = array
    return "forged"


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_maps_are_refused(name, tmp_path):
    fitted = model(Nystroem(n_components=20, random_state=0)).fit(X, Y)
    with pytest.raises(taskloom.ModelFileError, match="is not usable"):
        taskloom.load(forged(fitted, tmp_path / "m", FORGERIES[name]))


@pytest.mark.parametrize("part", ["points", "root", "kernel", "parameters"])
@pytest.mark.parametrize("strange", [None, -1, "", "rbf", [], {"@": "array", "name": "0"}, {"@": "float", "value": "inf"}])
def test_landmarks_changed_at_random_are_refused_or_work(part, strange, tmp_path):
    path = forged(model(n_components=9).fit(X, Y), tmp_path / "m", lambda m, a: m.update({part: strange}))
    with contextlib.suppress(taskloom.ModelFileError):
        assert np.isfinite(taskloom.load(path).predict(X)).all()


def test_sparse_and_single_precision():
    sparse, dense = model().fit(csr_array(X), Y), model().fit(X, Y)
    assert np.allclose(sparse.predict(csr_array(X)), dense.predict(X), atol=1e-7)
    single = model().fit(X.astype(np.float32), Y)
    assert single.coef_.dtype == single.predict(X.astype(np.float32)).dtype == np.float32
    assert np.allclose(single.predict(X.astype(np.float32)), dense.predict(X), atol=1e-2)


@pytest.mark.parametrize("structure", ["trace", "shared_mean"])
def test_tasks_can_be_added(structure):
    """With every row a landmark as to the exact kernel."""
    exact = MultiTaskRegressor(structure, kernel="rbf", tol=1e-9).fit(X, Y[:, :3]).add_task(X[:60], Y[:60, 3], name="new")
    close = model(n_components=200, structure=structure, tol=1e-9).fit(X, Y[:, :3]).add_task(X[:60], Y[:60, 3], name="new")
    assert np.allclose(close.predict(X), exact.predict(X), atol=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"kernel": "precomputed"}, "maps rows of X"),
        ({"kernel": "linear"}, "nothing to approximate"),
        ({"kernel": ["rbf", "poly"]}, "one kernel"),
        ({"kernel": "poly", "kind": "fourier"}, 'is for kernel="rbf"'),
        ({"structure": "feature_selection"}, "acts on the columns of X"),
        ({"kind": "magic"}, "'approximation' parameter"),
        ({"n_components": 0}, "'n_components' parameter"),
        ({"n_components": 1.5}, "'n_components' parameter"),
    ],
)
def test_refusals(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        model(**options).fit(X, Y)


# --- the exact problem ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.01},
        {"alpha": 0.01, "structure": "frobenius", "ridge": 0.02},
        {"alpha": 0.01, "structure": "independent", "fit_intercept": False, "standardize_targets": True},
        {"alpha": 0.03, "loss": "absolute"},
        {"alpha": 0.01, "structure": "shared_mean", "cls": MultiTaskClassifier, "loss": "hinge"},
    ],
    ids=["trace", "ridge", "independent", "absolute", "hinge"],
)
@KINDS
def test_the_exact_minimum_lies_between_the_bounds(kind, options):
    """Against the certificate of the exact fit; both ends close in as features are added."""
    options = dict(options)
    cls = options.pop("cls", MultiTaskRegressor)
    smooth = options.get("loss") is None
    rows = slice(None, 120 if smooth else 60)
    inputs, y = X[rows], (GONE if cls is MultiTaskRegressor else LABELS)[rows]
    exact = cls(kernel="rbf", tol=1e-7 if smooth else 1e-5, **options).fit(inputs, y).certificate_
    gaps = []
    for number in (10, 1000 if kind == "fourier" else len(inputs) * 2 // 3):
        bound = model(kind, number, cls=cls, tol=1e-6 if smooth else 1e-4, **options).fit(inputs, y).bound_exact(inputs, y)
        assert bound.lower <= exact.primal
        assert bound.upper >= exact.dual
        assert np.isclose(bound.gap, bound.upper - bound.lower)
        gaps.append(bound.relative_gap)
    assert gaps[1] < gaps[0]
    assert gaps[1] < (0.1 if kind == "fourier" else 0.03)
    assert f"{bound.relative_gap:.1e}" in bound.message


def test_the_bounds_meet_where_the_kernel_is_exact():
    bound = model(n_components=200, tol=1e-7).fit(X, GONE).bound_exact(X, GONE)
    assert bound.relative_gap < 2e-6
    assert bound.upper <= bound.approximate


def test_bounds_are_for_approximations():
    with pytest.raises(ValueError, match="this one is exact"):
        MultiTaskRegressor(kernel="rbf").fit(X, Y).bound_exact(X, Y)
    with pytest.raises(ValueError, match="the tasks of the fit"):
        model().fit(X, Y).bound_exact(X, Y[:, :2])


def test_standard_deviations_of_a_saved_approximation(tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 2))
    model = MultiTaskRegressor(kernel="rbf", approximation="nystroem", n_components=5).fit(X, np.sin(X))
    model.save(tmp_path / "m")
    mean, spread = taskloom.load(tmp_path / "m").predict(X[:4] + 0.1, return_std=True)
    assert np.array_equal(mean, model.predict(X[:4] + 0.1))
    assert np.allclose(spread, model.predict(X[:4] + 0.1, return_std=True)[1])
