"""Files that ask for more work or memory than their size: each is refused, or used, within three seconds and a gibibyte."""

import json
import os
import resource
import struct
import sys
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.gaussian_process.kernels import RBF
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.pipeline import make_pipeline

import taskloom
from taskloom import ModelFileError, MultiTaskRegressor, MultiTaskRegressorCV, TablePreprocessor, cli, structures
from taskloom.persistence import limits, read, write

pytest.importorskip("safetensors")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is counted in other units elsewhere")

X = np.random.default_rng(0).normal(size=(12, 2))
Y = np.column_stack([X[:, 0], X.sum(axis=1), -X[:, 1]])


def table():
    return pd.DataFrame(X, columns=list("pq")).assign(kind=["x", "y"] * 6, shop=["a", "b", "c"] * 4)


MODELS = {
    "linear": lambda: MultiTaskRegressor().fit(X, Y),
    "kernel": lambda: MultiTaskRegressor(kernel="rbf").fit(X, Y),
    "map": lambda: MultiTaskRegressor(kernel="poly", approximation=PolynomialCountSketch(n_components=8, random_state=0)).fit(
        X, Y
    ),
    "nystroem": lambda: MultiTaskRegressor(kernel="rbf", approximation="nystroem", n_components=4).fit(X, Y),
    "table": lambda: make_pipeline(TablePreprocessor(task_column="shop"), MultiTaskRegressor(task_column="shop")).fit(
        table(), X.sum(axis=1)
    ),
}


def forged(name, path, change):
    """A real file of a model, with a change and a right checksum."""
    taskloom.save(MODELS[name](), path)
    tree, arrays, _ = read(path)
    change(tree, arrays)
    write(path, tree, arrays, "a forger")
    return path


def measured(work):
    """What a function says in a process of its own, its CPU seconds, and the MiB that it took."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
            resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            try:
                said = work()
            except ModelFileError as error:
                said = f"refused: {error}"
            except BaseException as error:
                said = f"{type(error).__name__}: {error}"
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            os.write(writing, json.dumps([said[:2000], time.process_time() - began, grown / 1024]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else ["killed", 20.0, 0.0]


def loaded(path):
    taskloom.load(path)
    return "loaded"


def on(*way, to):
    """The value at a place of the tree becomes another one."""

    def change(tree, arrays):
        for key in way[:-1]:
            tree = tree[key]
        tree[way[-1]] = to(arrays) if callable(to) else to

    return change


def sketch(tree, arrays):
    tree["fitted"]["feature_map_"]["params"] |= {"n_components": 10**8}


def columns(tree, arrays):
    tree["fitted"]["n_features_in_"] = 10**9


def long_texts(tree, arrays):
    one = {"@": "strings", "shape": [2001], "values": ["x" * 100_000, *(f"{k}" for k in range(2000))]}
    tree["params"]["loss"] = [json.loads(json.dumps(one)) for _ in range(7)]


def one_hash(tree, arrays):
    step = (1 << 61) - 1
    tree["params"]["loss"] = {"@": "dict", "items": [[k * step, 1] for k in range(60_000)]}


def smaller_integers_of_one_hash(tree, arrays):
    step = ((1 << 61) - 1) << 50
    values = [k * step for k in range(60_000)]
    tree["fitted"]["tasks_"] = {"@": "objects", "shape": [len(values)], "values": values}


def tuple_of_one_hash(k):
    return {"@": "tuple", "values": [k * ((1 << 61) - 1)]}


def part(k):
    return {"@": "kernel", "class": "RBF", "params": {"length_scale": 1.0 + k}}


def wide_kernel(tree, arrays):
    row = [part(k) for k in range(1 << 16)]
    while len(row) > 1:
        pairs = zip(row[::2], row[1::2], strict=True)
        row = [{"@": "kernel", "class": "Sum", "params": {"k1": a, "k2": b}} for a, b in pairs]
    tree["params"]["kernel"] = row[0]


def long_name(tree, arrays):
    fitted, long = tree["steps"][0]["fitted"], "x" * 100_000
    items = fitted["levels_"]["items"]
    fitted["feature_names_in_"]["values"] = [long if v == items[0][0] else v for v in fitted["feature_names_in_"]["values"]]
    items[0] = [long, [f"{k:x}" for k in range(40_000)]]


def references(tree, arrays):
    arrays["long"] = np.arange(2000.0)
    tree["params"]["alpha"] = [{"@": "array", "name": "long"}] * 100_000


def one_row_many_columns(tree, arrays):
    arrays["code"] = np.ones((1, 12_000))
    code = {"@": "structure", "class": "OutputCode", "params": {"L": {"@": "array", "name": "code"}}}
    tree["params"]["structure"] = tree["fitted"]["_learned"] = code


def same_matrix(tree, arrays):
    arrays["A"] = np.eye(1500, dtype=bool)
    many = [{"@": "structure", "class": "Fixed", "params": {"A": {"@": "array", "name": "A", "x": k}}} for k in range(20)]
    tree["params"]["structure"] = many


def empty_arrays(arrays, count):
    arrays |= {f"empty {k}": np.zeros(0, np.uint8) for k in range(count)}


def one_graph_of_many_strengths(tree, arrays):
    arrays["A"] = np.ones((1700, 1700), np.float32)
    empty_arrays(arrays, 15_000)
    one = {"adjacency": {"@": "array", "name": "A"}}
    many = [{"@": "structure", "class": "TaskGraph", "params": one | {"gamma": k}} for k in range(1, 60_000)]
    tree["params"]["structure"] = many


def one_sparse_matrix_often(tree, arrays):
    n = 1_000_000
    arrays |= {"data": np.ones(n, np.int8), "indices": np.arange(n, dtype=np.int32), "indptr": np.array([0, n], np.int32)}
    empty_arrays(arrays, 36_000)
    parts = {part: {"@": "array", "name": part} for part in ("data", "indices", "indptr")}
    tree["params"]["loss"] = [{"@": "sparse", "class": "csr_array", "shape": [1, n], **parts}] * 48_000


def threads(tree, arrays):
    more = {"@": "dict", "items": [["n_jobs", 10**6]]}
    tree["params"]["kernel"] = {"@": "kernel", "class": "PairwiseKernel", "params": {"pairwise_kernels_kwargs": more}}


def sparse(tree, arrays):
    arrays |= {"d": np.zeros(0), "i": np.zeros(0, np.int32), "p": np.zeros(13, np.int32)}
    parts = {part: {"@": "array", "name": part[0] if part != "indptr" else "p"} for part in ("data", "indices", "indptr")}
    tree["fitted"]["X_fit_"] = {"@": "sparse", "class": "csr_array", "shape": [12, 1 << 29], **parts}
    tree["fitted"]["n_features_in_"] = 1 << 29


HEAVY = {
    "a map with components that are not there": ("map", sketch),
    "texts that take the room of the longest": ("linear", long_texts),
    "integers of one hash": ("linear", one_hash),
    "integers of one hash and 127 bits": ("linear", smaller_integers_of_one_hash),
    "a kernel of many parts": ("kernel", wide_kernel),
    "a long name times many levels": ("table", long_name),
    "an array named very often": ("linear", references),
    "a code of many outputs": ("linear", one_row_many_columns),
    "one matrix under many names": ("linear", same_matrix),
    "a sparse matrix of many columns": ("kernel", sparse),
    "one graph of many strengths": ("linear", one_graph_of_many_strengths),
    "one sparse matrix very often": ("linear", one_sparse_matrix_often),
    "texts of many dimensions": (
        "linear",
        on("params", "loss", to=[{"@": "strings", "shape": [1] * 32, "values": ["a"]}] * 100_000),
    ),
    "tuples of one hash": (
        "linear",
        on("params", "loss", to={"@": "dict", "items": [[tuple_of_one_hash(k), 1] for k in range(30_000)]}),
    ),
    "a product of a million sizes": (
        "linear",
        on("fitted", "tasks_", to={"@": "strings", "shape": [(1 << 47) + 1] * 200_000, "values": ["a"]}),
    ),
    "very many lists": ("linear", on("params", "loss", to=lambda _: [[]] * 6_000_000)),
}


@pytest.mark.parametrize("name", HEAVY)
def test_files_that_ask_for_more_than_their_size(name, tmp_path):
    """The five of an independent review, and their relatives."""
    path = forged(*HEAVY[name][:1], tmp_path / "m", HEAVY[name][1])
    assert path.stat().st_size < 25e6
    said, seconds, mebibytes = measured(lambda: loaded(path))
    assert said == "loaded" or said.startswith("refused: ")
    assert seconds < 3
    assert mebibytes < 1024


@pytest.mark.parametrize(("name", "change", "words"), [("kernel", threads, "threads"), ("nystroem", columns, "2 columns")])
def test_threads_and_columns_that_a_file_asks_for(name, change, words, tmp_path):
    path = forged(name, tmp_path / "m", change)
    with pytest.raises(ModelFileError, match=words):
        taskloom.load(path)


def test_arrays_and_words_without_end(tmp_path):
    """In the header, which the writer of the library does not make."""
    for more in (
        {f"{k}": {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]} for k in range(200_000)},
        {"x": {"dtype": "F64", "shape": [1] * 100, "data_offsets": [0, 8]}},
        {"x": {"dtype": "F64", "shape": [0, 1 << 40], "data_offsets": [0, 0]}},
        {"__metadata__": {f"{k}": "" for k in range(60_000)}},
    ):
        words = {"format": "taskloom", "version": "1", "model": "{}", "sha256": ""} | more.get("__metadata__", {})
        text = json.dumps(more | {"__metadata__": words}).encode()
        (tmp_path / "m").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
        said, seconds, mebibytes = measured(lambda: loaded(tmp_path / "m"))
        assert said.startswith("refused: ")
        assert seconds < 3
        assert mebibytes < 1024


@pytest.mark.parametrize("way", [("params", "alpha"), ("params", "ridge"), ("params", "max_iter"), ("fitted", "n_iter_")])
@pytest.mark.parametrize("number", [10**400, -(10**400), 10**30, 2**126])
def test_numbers_beyond_every_type(way, number, tmp_path, capsys):
    """A number is refused, or the model predicts and can be inspected."""
    path = forged("linear", tmp_path / "m", on(*way, to=number))
    try:
        model = taskloom.load(path)
    except ModelFileError:
        assert cli.run(["inspect", str(path)]) == cli.FAILED
        assert capsys.readouterr().err.count("\n") == 1
        return
    assert abs(number) < 1 << 127
    assert np.isfinite(model.predict(X)).all()
    assert cli.run(["inspect", str(path)]) == 0


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    kernel = RBF(1.0)
    for k in range(300):
        kernel = kernel + RBF(1.0 + k) if k % 3 else kernel
    model = MultiTaskRegressor(kernel="rbf").fit(X, Y)
    model.kernel = kernel
    with pytest.raises(ModelFileError, match="nested more than 200 levels deep; pickle it"):
        model.save(tmp_path / "m")
    model.kernel = [RBF(1.0 + k) for k in range(300)]
    with pytest.raises(ModelFileError, match="300 parts, more than 256; pickle it"):
        model.save(tmp_path / "m")
    model.kernel, model.tasks_ = "rbf", np.array([*"abc"], dtype=object)
    model.random_state = 10**50
    with pytest.raises(ModelFileError, match="127 bits"):
        model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_a_known_matrix_of_a_file_is_checked_in_the_next_fit(tmp_path):
    """Its eigenvalues take the cube of its size; predictions do not need them."""
    good, bad = np.eye(3), np.diag([1.0, 1.0, -1.0])
    model = MultiTaskRegressor(structures.Fixed(good)).fit(X, Y)
    model.save(tmp_path / "m")
    tree, arrays, _ = read(tmp_path / "m")
    name = tree["params"]["structure"]["params"]["A"]["name"]
    write(tmp_path / "m", tree, arrays | {name: bad}, "a forger")
    twin = taskloom.load(tmp_path / "m")
    assert np.array_equal(twin.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="positive semidefinite"):
        twin.fit(X, Y)
    for wrong, words in ((np.eye(3)[:2], "numbers, got shape"), (np.full((3, 3), np.nan), "finite")):
        write(tmp_path / "m", tree, arrays | {name: wrong}, "a forger")
        with pytest.raises(ModelFileError, match=words):
            taskloom.load(tmp_path / "m")


def test_one_matrix_in_many_candidates_of_a_search(tmp_path):
    """A valid file names one array in each candidate: a structure with its own strength at every alpha."""
    graph = np.ones((3, 3)) - np.eye(3)
    candidates = [structures.TaskGraph(graph, gamma=g) for g in np.geomspace(0.1, 10, 30).tolist()]
    model = MultiTaskRegressorCV(structures=candidates, alphas=[0.1, 1.0], cv=2, kernels=None).fit(X, Y)
    big = np.zeros((2000, 2000))
    model.save(tmp_path / "m")
    tree, small, _ = read(tmp_path / "m")
    limits.check_tree(tree, {name: big if array.shape == (3, 3) else array for name, array in small.items()}, 10**6)
    twin = taskloom.load(tmp_path / "m")
    assert np.array_equal(twin.predict(X), model.predict(X))


@pytest.mark.parametrize("count", [2500, 10_000])
def test_many_tasks_with_tuples_as_names(count, tmp_path):
    names = [("shop", k // 7, k % 7) for k in range(count)]
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(5, 2)), pd.DataFrame(rng.normal(size=(5, count)))
    targets.columns = pd.Index(names, tupleize_cols=False)
    model = MultiTaskRegressor(structures.Frobenius()).fit(inputs, targets)
    model.save(tmp_path / "m")
    twin = taskloom.load(tmp_path / "m")
    assert twin.tasks_.tolist() == model.tasks_.tolist() == names
    assert np.array_equal(twin.predict(inputs), model.predict(inputs))
