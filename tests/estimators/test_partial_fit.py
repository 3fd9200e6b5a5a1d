"""Rows in blocks: the same model as in memory, whatever the cuts, the layout, the weights and the order of the tasks."""

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow.parquet import write_table
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem

import taskloom
from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, parquet_blocks, stack, structures
from taskloom.design.sufficient_statistics import Moments
from taskloom.features import approximate as approximation

rng = np.random.default_rng(0)
N, D, T = 240, 5, 4
X = rng.normal(size=(N, D)) + 2
Y = X @ rng.normal(size=(D, 2)) @ rng.normal(size=(2, T)) + 0.5 * rng.normal(size=(N, T)) + 10
GONE = np.where(rng.random(Y.shape) < 0.3, np.nan, Y)
WEIGHT = rng.integers(0, 3, size=N) * rng.random(N)
LONG, LONG_Y = stack({f"task {t}": X[t::T] for t in range(T)}, {f"task {t}": Y[t::T, t] for t in range(T)})
CUTS = np.array_split(np.arange(N), [7, 50, 120, 121])


def blocks(*tables, cuts=CUTS):
    return [tuple(table[rows] for table in tables) for rows in cuts]


def same(one, other, atol=1e-8):
    """Tasks, weights, structure and both ends of the certificate."""
    assert one.tasks_.tolist() == other.tasks_.tolist()
    assert np.allclose(one.coef_, other.coef_, atol=atol)
    assert np.allclose(one.intercept_, other.intercept_, atol=atol)
    assert np.allclose(one.structure_, other.structure_, atol=10 * atol)
    assert np.isclose(one.certificate_.primal, other.certificate_.primal, rtol=1e-9)
    assert np.isclose(one.certificate_.relative_gap, other.certificate_.relative_gap, atol=one.tol)  # floors may differ


# --- the law behind it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 3, D])
def test_a_few_rows_have_the_same_moments(rank):
    """Of (1, x, y): then the loss is the same function of weights and intercept, constant included."""
    basis = rng.normal(size=(rank, D))
    inputs = rng.normal(size=(60, rank)) @ basis + 1e3
    targets = inputs[:, :2] + rng.normal(size=(60, 2))
    s = rng.random(60)
    moments = Moments.empty(D, 2)
    for rows in np.array_split(np.arange(60), 9):
        moments = moments.plus(inputs[rows], targets[rows], s[rows])
    few, small = moments.rows()
    assert len(few) == rank + 2
    w, b = rng.normal(size=(D, 2)), rng.normal(size=2)
    whole = s @ (targets - inputs @ w - b) ** 2 / s.sum()
    assert np.allclose(np.mean((small - few @ w - b) ** 2, axis=0), whole, rtol=1e-10)


def test_against_the_normal_equations():
    """Independent tasks in closed form, from all rows at once."""
    alpha = 0.3
    fitted = MultiTaskRegressor("independent", alpha=alpha).fit_blocks(blocks(X, Y, WEIGHT))
    s = WEIGHT / WEIGHT.sum()
    inputs, targets = X - s @ X, Y - s @ Y
    W = np.linalg.solve(inputs.T @ (s[:, None] * inputs) + alpha * np.eye(D), inputs.T @ (s[:, None] * targets))
    assert np.allclose(fitted.coef_, W.T, atol=1e-10)
    assert np.allclose(fitted.intercept_, s @ Y - s @ X @ W, atol=1e-9)
    value = s @ (Y - fitted.predict(X)) ** 2
    assert np.isclose(fitted.certificate_.primal, value.sum() + T + alpha * np.sum(W**2) - T, rtol=1e-9)


# --- equal to the fit in memory ----------------------------------------------------------------------------------------

SETTINGS = {
    "trace": {},
    "no intercept": {"fit_intercept": False},
    "ridge": {"structure": "frobenius", "ridge": 0.1},
    "clusters": {"structure": structures.Clusters(2)},
    "columns": {"structure": "feature_selection", "alpha": 0.1},
    "standardized": {"standardize_targets": True, "task_weight": "size"},
    "given strengths": {"task_weight": [1.0, 2.0, 3.0, 4.0]},
    "sum": {"structure": "robust", "alpha": 0.1},
    "not convex": {"structure": structures.LowRank(2), "tol": 1e-4},
    "nystroem": {"kernel": "rbf", "approximation": "nystroem", "n_components": 30},
    "leverage": {"kernel": "poly", "approximation": "leverage", "n_components": 12},
    "fourier": {"kernel": "rbf", "approximation": "fourier", "n_components": 60},
}


@pytest.mark.parametrize("setting", [*SETTINGS])
@pytest.mark.parametrize("weights", [None, WEIGHT], ids=["plain", "weighted"])
def test_wide_blocks(setting, weights):
    """Every row has seen every task: one Gram for all of them."""
    model = MultiTaskRegressor(**{"tol": 1e-11, **SETTINGS[setting]})
    tables = (X, Y) if weights is None else (X, Y, weights)
    in_memory = clone(model).fit(*tables)
    same(clone(model).fit_blocks(blocks(*tables)), in_memory, 1e-5)
    assert np.array_equal(in_memory.predict(X).shape, Y.shape)


@pytest.mark.parametrize("setting", ["trace", "no intercept", "clusters", "standardized", "given strengths", "nystroem"])
def test_wide_blocks_with_holes(setting):
    """A Gram for each task, also where the first blocks had none; weights may differ by entry."""
    model = MultiTaskRegressor(**{"tol": 1e-11, **SETTINGS[setting]})
    late = np.where(np.arange(N)[:, None] < 60, Y, GONE)
    for targets, weights in ((GONE, np.ones(N)), (late, WEIGHT), (Y, rng.random(Y.shape))):
        same(clone(model).fit_blocks(blocks(X, targets, weights)), clone(model).fit(X, targets, weights), 1e-5)


def test_partial_fit_is_the_fit_of_all_rows_so_far():
    """In every layout, after every block; the model is fitted in between."""
    model = MultiTaskRegressor()
    for k, rows in enumerate(CUTS, start=1):
        so_far = np.concatenate(CUTS[:k])
        same(model.partial_fit(X[rows], Y[rows]), MultiTaskRegressor().fit(X[so_far], Y[so_far]))
    assert np.allclose(MultiTaskRegressor(warm_start=True).partial_fit(X, Y).partial_fit(X, Y).coef_, model.coef_, atol=1e-2)
    one = MultiTaskRegressor().partial_fit(X[:90], Y[:90, 0]).partial_fit(X[90:], Y[90:, 0])
    assert one.predict(X).shape == (N,)
    same(one, MultiTaskRegressor().fit(X, Y[:, 0]))


def test_tasks_appear_in_later_blocks():
    """A long table with one task after the other; names stay in order, strengths are those of all rows."""
    backwards = np.arange(len(LONG))[::-1]
    model = MultiTaskRegressor(task_column=-1, task_weight="size", tol=1e-11)
    fitted, seen = clone(model), []
    for rows in np.array_split(backwards, 5):
        fitted.partial_fit(LONG[rows], LONG_Y[rows])
        seen.append(len(fitted.tasks_))
    assert seen == sorted(seen)
    assert seen[0] < seen[-1] == T
    same(fitted, model.fit(LONG, LONG_Y), 1e-5)
    assert np.allclose(fitted.predict(LONG), model.predict(LONG), atol=1e-4)


def test_columns_appear_in_later_blocks():
    """Frames name their tasks: a column that is new is a new task, one that is absent was not observed."""
    frame = pd.DataFrame(Y, columns=list("uvwx"))
    model = MultiTaskRegressor(tol=1e-11)
    parts = [(X[:80], frame.loc[:79, ["u", "v"]]), (X[80:], frame.loc[80:, ["v", "x", "u"]])]
    whole = pd.DataFrame(Y, columns=list("uvwx")).drop(columns="w")[["u", "v", "x"]]
    whole.loc[:79, "x"] = np.nan
    same(clone(model).fit_blocks(parts), clone(model).fit(X, whole), 1e-6)
    array = np.where(np.arange(T) == 2, np.nan, Y)
    assert clone(model).partial_fit(X, array).tasks_.tolist() == [0, 1, 3]  # not seen so far
    assert clone(model).partial_fit(X, array).partial_fit(X, Y).tasks_.tolist() == [0, 1, 2, 3]


def test_sparse_single_precision_and_weights_of_zero():
    sparse = MultiTaskRegressor().fit_blocks([(csr_array(x), y) for x, y in blocks(X, Y)])
    same(sparse, MultiTaskRegressor().fit(X, Y))
    single = MultiTaskRegressor().fit_blocks(blocks(X.astype(np.float32), Y))
    assert single.predict(X.astype(np.float32)).dtype == np.float32
    mask = (np.arange(N) % 3 > 0).astype(float)
    same(MultiTaskRegressor().fit_blocks(blocks(X, Y, mask)), MultiTaskRegressor().fit(X[mask > 0], Y[mask > 0]))


def test_the_rest_of_a_model_works():
    fitted = MultiTaskRegressor().fit_blocks(blocks(X, GONE))
    whole = MultiTaskRegressor().fit(X, GONE)
    assert fitted.score(X, GONE) == pytest.approx(whole.score(X, GONE), abs=1e-4)
    assert fitted.explain(1) == pytest.approx(whole.explain(1), abs=1e-3)
    assert fitted.add_task(X[:30], Y[:30, 0], name="new").predict(X).shape == (N, T + 1)
    with pytest.raises(AttributeError, match="partial_fit and fit_blocks do not keep"):
        MultiTaskRegressor().partial_fit(X, Y).predict(X, return_std=True)


def test_files_and_refits_begin_anew(tmp_path):
    fitted = MultiTaskRegressor().partial_fit(X, Y)
    fitted.save(tmp_path / "m.taskloom")
    loaded = taskloom.load(tmp_path / "m.taskloom")
    assert np.array_equal(loaded.predict(X), fitted.predict(X))
    for model in (loaded, MultiTaskRegressor().fit(X, Y), fitted.fit(X, Y)):
        with pytest.warns(UserWarning, match="begins anew"):
            model.partial_fit(X[:50], Y[:50])
        same(model, MultiTaskRegressor().fit(X[:50], Y[:50]))
    going_on = pickle.loads(pickle.dumps(MultiTaskRegressor().partial_fit(X[:90], Y[:90])))
    same(going_on.partial_fit(X[90:], Y[90:]), MultiTaskRegressor().fit(X, Y))


# --- blocks ------------------------------------------------------------------------------------------------------------


def test_generators_and_functions_that_make_them():
    same(MultiTaskRegressor().fit_blocks(iter(blocks(X, Y))), MultiTaskRegressor().fit(X, Y))
    model = MultiTaskRegressor(kernel="rbf", approximation="nystroem", n_components=30)
    with pytest.raises(ValueError, match="read once"):
        clone(model).fit_blocks(iter(blocks(X, Y)))
    same(clone(model).fit_blocks(lambda: iter(blocks(X, Y))), clone(model).fit(X, Y))
    own = clone(model).set_params(approximation=Nystroem(n_components=30, random_state=0))
    same(clone(own).fit_blocks([(X, Y)]), clone(own).set_params(random_state=0).fit_blocks([(X, Y)]))


def test_bad_blocks_are_named():
    model = MultiTaskRegressor()
    with pytest.raises(ValueError, match="blocks is empty"):
        model.fit_blocks([])
    with pytest.raises(ValueError, match=r"a block is \(X, y\)"):
        model.fit_blocks([X])
    with pytest.raises(ValueError, match="5 features"):
        model.fit_blocks([(X, Y), (X[:, :3], Y)])
    with pytest.raises(ValueError, match="nothing but NaN"):
        model.fit_blocks([(X, np.full_like(Y, np.nan))])
    with pytest.raises(ValueError, match="3 columns, the blocks before had 4"):
        model.fit_blocks([(X, Y), (X, Y[:, :3])])
    with pytest.raises(ValueError, match="one-dimensional in every block"):
        model.fit_blocks([(X, Y), (X, Y[:, 0])])


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (MultiTaskRegressor(loss="huber"), "only the squared loss"),
        (MultiTaskRegressor(loss={0: "squared"}), "only the squared loss"),
        (MultiTaskRegressor(kernel="rbf"), "set approximation="),
        (MultiTaskRegressor(kernel=["linear"]), "set approximation="),
        (MultiTaskRegressorCV(kernels=None), "one alpha"),
    ],
)
@pytest.mark.parametrize("method", ["partial_fit", "fit_blocks"])
def test_what_does_not_add_up_is_refused(model, sentence, method):
    assert not hasattr(model, method)
    with pytest.raises(AttributeError, match=method) as caught:
        getattr(model, method)
    assert sentence in str(caught.value.__cause__)
    assert not hasattr(MultiTaskClassifier(), method)


def test_memory_is_bounded(monkeypatch):
    """Mapped features of all rows would take 64 MB."""
    monkeypatch.setattr(approximation, "BLOCK", 1 << 18)
    inputs = rng.normal(size=(40_000, 3))
    targets = np.sin(inputs)
    model = MultiTaskRegressor(kernel="rbf", approximation="nystroem", n_components=200, alpha=1e-3)
    tracemalloc.start()
    model.fit_blocks(blocks(inputs, targets, cuts=np.array_split(np.arange(40_000), 4)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25e6
    assert model.score(inputs[:2000], targets[:2000]) > 0.9


# --- Parquet -----------------------------------------------------------------------------------------------------------


def test_a_folder_of_parquet_files(tmp_path):
    names = list("abcde")
    table = pd.DataFrame(np.column_stack([X, GONE, WEIGHT]), columns=[*names, *"uvwx", "weight"])
    for k, rows in enumerate(CUTS):
        write_table(pa.Table.from_pandas(table.iloc[rows], preserve_index=False), tmp_path / f"{k}.parquet")
    read = parquet_blocks(tmp_path, list("uvwx"), sample_weight="weight", rows=50)
    model = MultiTaskRegressor(kernel="rbf", approximation="nystroem", n_components=20, tol=1e-11)
    fitted = clone(model).fit_blocks(read)
    whole = clone(model).fit(table[names], table[list("uvwx")], table["weight"])
    same(fitted, whole, 1e-6)
    assert fitted.feature_names_in_.tolist() == names
    sizes = [len(y) for _, y, _ in read]
    assert sum(sizes) == N
    assert max(sizes) <= 50
    some = parquet_blocks(tmp_path / "2.parquet", "u", columns=["b", "a"])
    assert [X.column_names for X, _ in some] == [["b", "a"]]
    with pytest.raises(ValueError, match="no column 'q'"):
        parquet_blocks(tmp_path, "q")


def test_a_long_parquet_file(tmp_path):
    """The task is in a column of X, as in fit."""
    frame = pd.DataFrame(LONG[:, :-1].astype(float), columns=list("abcde")).assign(shop=LONG[:, -1], y=LONG_Y)
    write_table(pa.Table.from_pandas(frame), tmp_path / "long.parquet")
    model = MultiTaskRegressor(task_column="shop", tol=1e-11)
    fitted = clone(model).fit_blocks(parquet_blocks(tmp_path / "long.parquet", "y", rows=64))
    same(fitted, clone(model).fit(frame.drop(columns="y"), frame["y"]), 1e-5)
    assert fitted.tasks_.tolist() == [f"task {t}" for t in range(T)]


def test_partial_fit_does_not_forget_a_task_that_was_added():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 3)), columns=list("pqr"))
    targets = pd.DataFrame(rng.normal(size=(40, 3)), columns=["z", "m", "a"])
    model = MultiTaskRegressor().partial_fit(frame[:20], targets[:20]).add_task(frame[:9], targets["z"][:9], name="new")
    with pytest.raises(ValueError, match="would forget task 'new'"):
        model.partial_fit(frame[20:], targets[20:])
    assert "new" in model.tasks_.tolist()
