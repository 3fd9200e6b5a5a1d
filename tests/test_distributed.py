"""Fits over a Dask cluster of two processes: equal to those of one, whatever dies, is cut short or lies scattered."""

import os
import pickle
import sys

import joblib
import numpy as np
import pytest

from taskloom import MultiTaskClassifier, MultiTaskRegressor, MultiTaskRegressorCV, distributed, load, structures
from taskloom.distributed.dask_workers import owners
from taskloom.distributed.task_summaries import PooledRows, merge, summarise

dask_distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

ALPHA = 0.2


def table(n_tasks=20, n=12, d=6, seed=0, mixed=True, offset=2.0):
    """Inputs, targets and the task of each row; two planted directions, rows in no order."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(n_tasks), n)
    task = rng.permutation(task) if mixed else task
    X = rng.normal(size=(task.size, d)) + offset
    W = rng.normal(size=(n_tasks, 2)) @ rng.normal(size=(2, d))
    return X, np.einsum("ij,ij->i", X, W[task]) + 0.3 * rng.normal(size=task.size) + 5, task


def lazily(X, y, rows=100):
    return da.from_array(X, chunks=(rows, 4)), da.from_array(y, chunks=(rows + 50, *y.shape[1:]))


@pytest.fixture(scope="module")
def client():
    """Two worker processes with a nanny each."""
    options = {"n_workers": 2, "processes": True, "threads_per_worker": 1, "dashboard_address": ":0"}
    with dask_distributed.LocalCluster(**options) as cluster, dask_distributed.Client(cluster) as client:
        yield client


# --- what a worker keeps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("centre", [True, False])
def test_statistics_of_parts_are_those_of_the_whole(centre):
    X, y, task = table(n_tasks=5, n=40, offset=1e4)
    rows = np.column_stack([X, y])
    whole = summarise(rows, task, np.arange(5), centre)
    parts = [
        summarise(rows[cut], *np.unique(task[cut], return_inverse=True)[::-1], centre)
        for cut in np.array_split(np.arange(200), 7)
    ]
    merged = merge(parts, centre)
    assert np.array_equal(merged.counts, whole.counts)
    assert np.allclose(merged.means, whole.means, rtol=1e-14)
    for t in range(5):
        own = rows[task == t]
        own = own - own.mean(axis=0) if centre else own
        for found in (whole, merged):
            root = found.rows[found.starts[t] : found.starts[t + 1]]
            assert len(root) <= 7  # as many as columns, whatever the number of rows
            assert np.allclose(root.T @ root, own.T @ own, rtol=1e-9, atol=1e-7)


def test_statistics_are_never_larger_than_the_rows():
    for n in (1, 3, 7, 50):
        X, y, task = table(n_tasks=4, n=n)
        found = summarise(np.column_stack([X, y]), task, np.arange(4), True)
        assert found.rows.size <= min(n, 7) * 4 * 7


@pytest.mark.parametrize("offset", [0.0, 3.0, 1e4])
def test_shared_statistics_of_parts_are_those_of_the_whole(offset):
    X, Y = np.random.default_rng(0).normal(offset, size=(60, 4)), np.random.default_rng(1).normal(offset, size=(60, 3))
    cuts = slice(0, 2), slice(2, 2), slice(2, 40), slice(40, 60)
    parts = [PooledRows.merged([PooledRows(X[cut], Y[cut], len(X[cut]))]) for cut in cuts]
    assert [len(part.X) for part in parts] == [2, 0, 6, 6]
    for one in (PooledRows.merged(parts), PooledRows.merged([PooledRows(X, Y, 60)])):
        assert (len(one.X), one.count) == (6, 60)
        assert np.allclose(one.X.mean(axis=0), X.mean(axis=0))
        assert np.allclose(one.Y.mean(axis=0), Y.mean(axis=0))
        few_X, few_Y, Xc, Yc = (rows - rows.mean(axis=0) for rows in (one.X, one.Y, X, Y))
        for few, many in ((few_X.T @ few_X, Xc.T @ Xc), (few_X.T @ few_Y, Xc.T @ Yc)):
            assert np.allclose(10 * few, many, rtol=1e-8, atol=1e-8)
        assert np.allclose(10 * (few_Y**2).sum(axis=0), (Yc**2).sum(axis=0))


def test_a_task_goes_where_most_of_its_rows_are_and_equals_take_turns():
    present = [np.array([0, 1, 2, 3]), np.array([0, 1, 2, 3]), np.array([3, 4])]
    counts = [np.array([5, 1, 1, 1]), np.array([1, 1, 1, 1]), np.array([9, 2])]
    assert owners(present, counts, 5).tolist() == [0, 1, 0, 2, 2]


# --- on the cluster --------------------------------------------------------------------------------------------------------


def twins(structure, **settings):
    return [MultiTaskRegressor(structure, alpha=ALPHA, **settings) for _ in range(2)]


def assert_same_fit(far, near, X, tol=1e-8):
    assert far.certificate_.optimal, far.certificate_.message
    assert abs(far.certificate_.primal - near.certificate_.primal) <= far.certificate_.gap + near.certificate_.gap
    size = np.abs(near.predict(X)).max()
    assert np.abs(far.predict(X) - near.predict(X)).max() <= tol * size
    assert (
        np.abs(np.asarray(far.structure_) - np.asarray(near.structure_)).max()
        <= tol * np.abs(np.asarray(near.structure_)).max()
    )
    assert far.tasks_.tolist() == near.tasks_.tolist()


@pytest.mark.parametrize(("mixed", "fit_intercept"), [(True, True), (False, False)])
def test_equal_to_the_local_fit(client, mixed, fit_intercept):
    X, y, task = table(mixed=mixed)
    long = np.column_stack([X, task])
    far, near = twins("trace", task_column=-1, tol=1e-13, fit_intercept=fit_intercept)
    assert distributed.fit(far, *lazily(long, y), client) is far
    near.fit(long, y)
    assert_same_fit(far, near, long)
    assert np.allclose(far.intercept_, near.intercept_, rtol=1e-7, atol=1e-7)
    assert far.explain(3.0).keys() == near.explain(3.0).keys()
    problem = near._prepare(long, y).problem  # what is certified is what the definition says
    assert np.isclose(problem.primal(far.coef_.T, far.intercept_, far.structure_), far.certificate_.primal, rtol=1e-10)
    assert far.certificate_.dual <= near.certificate_.primal * (1 + 1e-14)
    assert far.history_["dual"][-1] == far.certificate_.dual


@pytest.mark.parametrize(
    ("structure", "ridge"), [("frobenius", 0.05), ("unit_trace", 0.05), ("unit_trace", 0.0), ("independent", 0.05)]
)
def test_other_structures_are_solved_to_the_same_minimum(client, structure, ridge):
    X, y, task = table(n_tasks=10)
    long = np.column_stack([X, task])
    far, near = twins(structure, task_column=-1, tol=1e-12, ridge=ridge, task_weight="size")
    distributed.fit(far, *lazily(long, y), client)
    assert_same_fit(far, near.fit(long, y), long, tol=1e-5)  # the root of the tolerance


@pytest.mark.parametrize("whole", [True, False])
def test_frames_with_names(client, tmp_path, whole):
    pd = pytest.importorskip("pandas")
    X, y, task = table(n_tasks=8)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(shop=[f"shop {t}" for t in task], sales=y)
    frame.loc[5, "sales"] = np.nan
    lazy = dd.from_pandas(frame, npartitions=3)
    far, near = twins("trace", tol=1e-13, task_column=None)
    inputs = frame.drop(columns="sales")
    distributed.fit(
        far, lazy if whole else lazy.drop(columns="sales"), "sales" if whole else lazy["sales"], client, task="shop"
    )
    near.set_params(task_column="shop", tol=1e-15).fit(inputs, frame["sales"])  # two gaps of 1e-13 leave seven digits
    assert_same_fit(far, near, inputs)
    assert far.feature_names_in_.tolist() == near.feature_names_in_.tolist()
    far.save(tmp_path / "m.taskloom")
    assert np.array_equal(load(tmp_path / "m.taskloom").predict(inputs), far.predict(inputs))
    with pytest.raises(AttributeError, match="training data"):
        far.predict(inputs, return_std=True)


@pytest.mark.parametrize("structure", ["trace", structures.Clusters(2, between=0.5, within=2.0), "feature_selection"], ids=repr)
def test_shared_inputs_take_any_structure(client, structure):
    rng = np.random.default_rng(0)
    X = rng.normal(1, size=(300, 5))
    Y = X @ rng.normal(size=(5, 2)) @ rng.normal(size=(2, 6)) + rng.normal(size=(300, 6))
    far, near = twins(structure, tol=1e-12)
    distributed.fit(far, *lazily(X, Y), client)
    assert_same_fit(far, near.fit(X, Y), X, tol=1e-5)
    assert np.isclose(far.certificate_.primal, near.certificate_.primal, rtol=1e-10)
    assert np.isclose(far.certificate_.relative_gap, 0, atol=1e-12)


@pytest.mark.parametrize("as_frame", [True, False])
def test_targets_with_gaps(client, as_frame):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.normal(1, size=(200, 5))
    Y = X @ rng.normal(size=(5, 1)) @ rng.normal(size=(1, 6)) + rng.normal(size=(200, 6))
    Y[rng.random(Y.shape) < 0.4] = np.nan
    Y[:100, 2] = np.nan  # a task that one partition never saw
    far, near = twins("trace", tol=1e-13)
    lazy = lazily(X, Y)
    if as_frame:
        X, Y = pd.DataFrame(X, columns=list("abcde")), pd.DataFrame(Y, columns=list("pqrstu"))
        lazy = dd.from_pandas(X, npartitions=2), dd.from_pandas(Y, npartitions=2)
    distributed.fit(far, *lazy, client)
    assert_same_fit(far, near.fit(X, Y), X, tol=1e-6)  # the root of the gap: more is not proved


@pytest.mark.parametrize("task_column", ["shop", None])
def test_partitions_may_be_empty_and_inputs_single(client, task_column):
    pd = pytest.importorskip("pandas")
    X, y, task = table(n_tasks=3)
    frame = pd.DataFrame(X.astype("f4"), columns=list("abcdef")).assign(shop=task)
    frame, Y = (frame, pd.Series(y)) if task_column else (frame.drop(columns="shop"), pd.DataFrame({"y": y, "z": X[:, 0]}))
    late = [dd.from_pandas(each, npartitions=3).map_partitions(lambda part: part[part.index >= 15]) for each in (frame, Y)]
    for tol in (1e-4, 1e-8):  # which single precision cannot always hold
        far, near = twins("trace", task_column=task_column, tol=tol)
        distributed.fit(far, *late, client)
        near.fit(frame[15:], Y[15:])
        assert far.coef_.dtype == near.coef_.dtype
        assert tol < 1e-4 or far.coef_.dtype == np.float32
    assert_same_fit(far, near, frame, tol=1e-4)


def test_the_certificate_is_that_of_the_rounded_weights(client):
    X, y, task = table(n_tasks=5)
    for offset, precision in ((0.0, np.float32), (1e6, np.float64)):
        long = np.column_stack([X + offset, task]).astype(np.float32)
        far, near = twins("trace", task_column=-1, tol=1e-6)
        distributed.fit(far, *lazily(long, y), client)
        near.fit(long, y)
        left = y - np.einsum("ij,ij->i", long[:, :-1].astype(float), far.coef_[task].astype(float)) - far.intercept_[task]
        counts, norms = np.bincount(task), np.linalg.svd(far.coef_.astype(float), compute_uv=False)
        held = float((np.bincount(task, left**2) / counts).sum()) + 2 * np.sqrt(far.alpha) * norms.sum()
        assert held == pytest.approx(far.certificate_.primal, rel=1e-7)
        assert held <= near.certificate_.primal + far.certificate_.gap
        assert far.coef_.dtype == precision


def test_many_tasks_come_factored(client):
    X, y, task = table(n_tasks=2100, n=5, d=4, mixed=False)
    long = np.column_stack([X, task])
    far, near = twins("trace", task_column=-1)
    distributed.fit(far, *lazily(long, y, rows=2000), client)
    near.fit(long, y)
    assert abs(far.certificate_.primal - near.certificate_.primal) <= far.certificate_.gap + near.certificate_.gap
    assert far.structure_.L.shape == (2100, 4)
    assert np.isclose(far.structure_.trace(), near.structure_.trace(), rtol=1e-2)


@pytest.mark.parametrize("gaps", [True, False])
def test_targets_may_be_columns_of_an_array(client, gaps):
    rng = np.random.default_rng(0)
    both = rng.normal(1, size=(60, 6))
    both[::7, 0] = np.nan if gaps else 0.5
    far, near = twins("trace", tol=1e-8)
    distributed.fit(far, da.from_array(both, chunks=(40, 3)), [0, -1], client)
    assert_same_fit(far, near.fit(both[:, 1:-1], both[:, [0, -1]]), both[:, 1:-1], tol=1e-4)
    with pytest.raises(ValueError, match="y=6 is no column of X; it has 6 columns without names"):
        distributed.fit(far, da.from_array(both), 6, client)


def test_where_nothing_is_learned_that_is_proved_at_once(client):
    X, y, task = table(n_tasks=4)
    far = MultiTaskRegressor("trace", alpha=1e6, task_column=-1, tol=1e-8)
    distributed.fit(far, *lazily(np.column_stack([X, task]), y), client)
    assert far.certificate_.optimal
    assert not far.coef_.any()
    assert np.allclose(far.intercept_, [y[task == t].mean() for t in range(4)])


def test_what_comes_back_does_not_grow_with_the_tasks(client, monkeypatch):
    """Sums of a pass: an ``r x q`` matrix and the triangle of a ``q x q`` one with two numbers, or that of an ``r x r`` one."""
    sizes, gather = [], client.gather
    monkeypatch.setattr(client, "gather", lambda futures: (sizes.append(found := gather(futures)), found)[1])
    d, messages = 12, {}
    for n_tasks in (40, 400):
        X, y, task = table(n_tasks=n_tasks, d=d, mixed=False)
        sizes.clear()
        model = MultiTaskRegressor("trace", alpha=ALPHA * n_tasks, task_column=-1)
        distributed.fit(model, *lazily(np.column_stack([X, task]), y, rows=n_tasks * 6), client)
        messages[n_tasks] = [len(found) for found in sizes if isinstance(found, np.ndarray)]
    for each in messages.values():
        assert max(each) <= 2 + d * d + d * (d + 1) // 2
    assert min(messages[400][2:]) <= 4 + d * 4


def test_an_interrupted_fit_goes_on(client, tmp_path):
    X, y, task = table()
    lazy, file = lazily(np.column_stack([X, task]), y), tmp_path / "fit.npz"
    whole, cut = twins("trace", task_column=-1, tol=1e-9)
    distributed.fit(whole, *lazy, client)
    distributed.fit(cut, *lazy, client, checkpoint=file, progress=lambda history: len(history) == 3)
    assert cut.certificate_.status == "callback"
    distributed.fit(cut, *lazy, client, checkpoint=file)
    assert cut.certificate_.optimal
    assert 3 < cut.n_iter_ <= whole.n_iter_ + 3
    assert np.all(np.diff(cut.history_["objective"]) <= 1e-12)
    assert np.allclose(cut.coef_, whole.coef_, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"another fit: its alpha was 0\.2, here it is 0\.3"):
        distributed.fit(cut.set_params(alpha=0.3), *lazy, client, checkpoint=file)
    other = lazily(np.column_stack([X, task]), y + X[:, 0])
    with pytest.raises(ValueError, match="loss of the best constants was"):
        distributed.fit(cut.set_params(alpha=ALPHA), *other, client, checkpoint=file)
    file.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="is no checkpoint of a fit"):
        distributed.fit(cut, *lazy, client, checkpoint=file)


def test_progress_and_names(client, capsys):
    X, y, task = table(n_tasks=4)
    lazy = lazily(np.column_stack([X, task]), y)
    distributed.fit(MultiTaskRegressor("trace", task_column=-1), *lazy, client, progress=True)
    assert "relative gap" in capsys.readouterr().err
    named = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert {"taskloom-statistics", "taskloom-tasks", "taskloom-factor", "taskloom-solve", "taskloom-sum"} <= set(named)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (MultiTaskRegressor(structures.LogDet(0.1), task_column=-1), "need a spectral structure"),
        (MultiTaskRegressor(loss="huber", task_column=-1), "squared loss"),
        (MultiTaskRegressor(kernel="rbf", task_column=-1), 'kernel="linear"'),
        (MultiTaskRegressor(solver="block", task_column=-1), 'leave solver="auto"'),
        (MultiTaskRegressor(standardize_targets=True, task_column=-1), "scale y before"),
        (MultiTaskRegressor(task_column="shop"), "no column names"),
        (MultiTaskClassifier(task_column=-1), "takes a MultiTaskRegressor, got MultiTaskClassifier"),
        (MultiTaskRegressorCV(task_column=-1, kernels=None), "joblib"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_cannot_be_done_is_refused(client, model, words):
    X, y, task = table(n_tasks=3)
    with pytest.raises(ValueError, match=words):
        distributed.fit(model, *lazily(np.column_stack([X, task]), y), client)


def test_bad_data_are_refused(client):
    X, y, task = table(n_tasks=3)
    long = np.column_stack([X, task])
    model = MultiTaskRegressor(task_column=-1)
    with pytest.raises(ValueError, match="must be a Dask array or data frame, got ndarray"):
        distributed.fit(model, long, y, client)
    with pytest.raises(ValueError, match="X has 36 rows and y has 35"):
        distributed.fit(model, *lazily(long, y[1:]), client)
    long[20, 2] = np.nan
    with pytest.raises(ValueError, match="X holds NaN or infinity in partition 2"):
        distributed.fit(model, *lazily(long, y, rows=10), client)
    with pytest.raises(ValueError, match="nothing but NaN"):
        distributed.fit(model, *lazily(np.column_stack([X, task]), np.full(36, np.nan)), client)


@pytest.mark.parametrize("layout", ["long", "shared", "gaps"])
def test_a_refused_fit_leaves_the_model_as_it_was(client, layout):
    """It wrote the columns and the tasks of the data that it refused: the model would not predict any more."""
    X, y, task = table(n_tasks=3)
    long = np.column_stack([X, task])
    wide = np.column_stack([y, 2 * y])
    if layout == "gaps":
        wide[:9, 0] = np.nan
    inputs, targets, column = (long, y, -1) if layout == "long" else (X, wide, None)
    model = distributed.fit(MultiTaskRegressor(alpha=ALPHA, task_column=column), *lazily(inputs, targets), client)
    found = model.predict(inputs)
    for other, nothing in ((inputs[:, 2:], np.full_like(targets, np.nan)), (inputs[:, 2:] * np.nan, targets)):
        with pytest.raises(ValueError, match=r"NaN|missing value"):
            distributed.fit(model, *lazily(other, nothing), client)
        assert np.array_equal(model.predict(inputs), found)


def stop(error):
    def stopped(*_, **__):
        raise error

    return stopped


class Stopping:
    """A callback of scikit-learn that fails at one of its hooks."""

    def __init__(self, hook):
        self.hook = hook

    def setup(self, estimator, context):
        self.reached("setup")

    def on_fit_task_begin(self, estimator, context, **_):
        self.reached("begin")

    def on_fit_task_end(self, estimator, context, **_):
        self.reached("iteration" if context.parent is not None else "end")

    def teardown(self, estimator, context):
        self.reached("teardown")

    def reached(self, hook):
        if hook == self.hook:
            raise RuntimeError(hook)


REFUSALS = {  # parameters of the model, changes of the call, the words of the error
    "client": ({}, {"client": 3}, "distributed.Client"),
    "structure": ({"structure": structures.Sparse()}, {}, "spectral structure"),
    "structure of other tasks": ({"structure": structures.Fixed(np.eye(9))}, {"task": None}, "describes 9"),
    "loss": ({"loss": "huber"}, {}, "squared loss"),
    "kernel": ({"kernel": "rbf"}, {}, 'kernel="linear"'),
    "device": ({"device": "cpu"}, {}, "no use for device"),
    "standardized": ({"standardize_targets": True}, {}, "standardize"),
    "alpha": ({"alpha": -1.0}, {}, "'alpha' parameter"),
    "solver": ({"solver": "block"}, {}, "one distributed solver"),
    "task weights": ({"task_weight": [1.0, 2.0]}, {}, "task_weight needs one number"),
    "warm start": ({"warm_start": True, "task_weight": [1.0, -2.0, 1.0]}, {}, "must be positive"),
    "rows": ({}, {"y": lambda y: y[1:]}, "36 rows and y has 35"),
    "NaN": ({}, {"X": lambda X: X * np.nan}, "NaN"),
    "units of X": ({}, {"X": lambda X: 1e200 * X}, "largest entry of X in partition 0"),
    "units of y": ({}, {"y": lambda y: 1e90 * y}, "largest entry of y in partition 0"),
    "infinity": ({}, {"y": lambda y: y / 0.0}, "infinity"),
    "no targets": ({}, {"y": lambda y: y * np.nan}, "nothing but NaN"),
    "no targets of a task": ({}, {"task": None, "y": lambda y: np.column_stack([y, y * np.nan])}, "has no observation"),
    "task column": ({}, {"task": 77}, "outside the 7 columns"),
    "another task column": ({"task_column": 0}, {}, "give one"),
    "checkpoint": ({}, {"checkpoint": "nowhere/at_all.npz", "checkpoint_every": 1}, "no folder"),
    "progress": ({}, {"progress": stop(RuntimeError("progress"))}, "progress"),
    "time limit": ({"time_limit": 1e-9}, {}, "time_limit was reached"),
    "worker": ({}, {"patch": ("taskloom.distributed.dask_workers.Workers.gather", RuntimeError("worker"))}, "worker"),
    "interrupt": ({}, {"patch": ("taskloom.distributed.dask_workers.Workers.gather", KeyboardInterrupt("ctrl"))}, "ctrl"),
    "state": ({}, {"patch": ("taskloom.distributed.fit_context.fitted_state", MemoryError("state"))}, "state"),
    **{f"callback {hook}": ({}, {"callback": hook}, hook) for hook in ("setup", "begin", "iteration", "end", "teardown")},
}


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("why", REFUSALS)
@pytest.mark.filterwarnings("ignore:invalid value|divide by zero:RuntimeWarning")
def test_whatever_refuses_a_fit_nothing_of_the_model_changes(client, monkeypatch, why, fitted):
    """Parameters, fitted state and callbacks are the very objects, with the same contents."""
    parameters, changes, words = REFUSALS[why]
    X, y, task = table(n_tasks=3)
    model = MultiTaskRegressor(alpha=ALPHA)
    if fitted:
        model.fit(X[:, :4], np.column_stack([y, y]))
    model.set_params(**parameters)
    if "callback" in changes:
        model.set_callbacks(Stopping(changes["callback"]))
    column = changes.get("task", -1)
    targets = changes.get("y", lambda y: y)(y)
    if column is None and targets.ndim == 1:
        targets = np.column_stack([y, 2 * y])
    inputs = changes.get("X", lambda X: X)(X)
    call = lazily(inputs if column is None else np.column_stack([inputs, task]), targets)
    options = {name: value for name, value in changes.items() if name in ("checkpoint", "checkpoint_every", "progress")}
    before, contents = dict(vars(model)), pickle.dumps({name: each for name, each in vars(model).items() if "_skl" not in name})
    if "patch" in changes:
        monkeypatch.setattr(changes["patch"][0], stop(changes["patch"][1]))
    with pytest.raises(BaseException, match=words):  # an interrupt is one, too
        distributed.fit(model, *call, changes.get("client", client), task=column, **options)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is each for name, each in before.items())
    assert pickle.dumps({name: each for name, each in vars(model).items() if "_skl" not in name}) == contents


def test_a_refused_fit_does_not_name_a_task_column(client):
    X, y, task = table(n_tasks=3)
    model = MultiTaskRegressor(alpha=ALPHA)
    with pytest.raises(ValueError, match="nothing but NaN"):
        distributed.fit(model, *lazily(np.column_stack([X, task]), np.full(36, np.nan)), client, task=-1)
    assert model.task_column is None
    assert distributed.fit(model, *lazily(np.column_stack([X, task]), y), client, task=-1).task_column == -1


def test_without_dask_or_a_client_a_sentence_says_so(monkeypatch):
    X, y, _ = table(n_tasks=3)
    with pytest.raises(ValueError, match=r"client must be a distributed\.Client"):
        distributed.fit(MultiTaskRegressor(), *lazily(X, y), "tcp://here")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r'pip install "taskloom\[distributed\]"'):
        distributed.fit(MultiTaskRegressor(), *lazily(X, y))


def test_model_selection_runs_on_the_cluster(client):
    X, y, task = table(n_tasks=4)
    long = np.column_stack([X, task])
    search = {"alphas": [0.01, 0.1, 1.0], "cv": 3, "task_column": -1}
    near = MultiTaskRegressorCV("trace", **search, kernels=None).fit(long, y)
    with joblib.parallel_config(backend="dask"):  # it finds the client by itself
        far = MultiTaskRegressorCV("trace", n_jobs=2, **search, kernels=None).fit(long, y)
    assert far.alpha_ == near.alpha_
    assert np.array_equal(far.coef_, near.coef_)


def test_a_killed_worker_does_not_change_the_result(client):
    X, y, task = table()
    lazy = lazily(np.column_stack([X, task]), y)
    calm, shaken = twins("trace", task_column=-1, tol=1e-8)
    distributed.fit(calm, *lazy, client)
    before = client.run(os.getpid)

    def kill(history):
        if len(history) == 4:
            os.kill(next(iter(before.values())), 9)

    distributed.fit(shaken, *lazy, client, progress=kill)
    client.wait_for_workers(2, timeout=60)
    assert set(client.run(os.getpid).values()) != set(before.values())
    assert np.array_equal(calm.coef_, shaken.coef_)
    assert calm.n_iter_ == shaken.n_iter_
