"""Files of models with terms that others wrote: every part of a term is checked, and none can do harm."""

import copy
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF

import taskloom
from taskloom import ModelFileError, MultiTaskRegressor, MultiTaskRegressorCV, Term
from taskloom.persistence import archive, limits

pytest.importorskip("safetensors")

N = 24
rng = np.random.default_rng(0)
FRAME = pd.DataFrame(rng.normal(size=(N, 2)), columns=list("pq")).assign(
    shop=["a", "b", "c"] * 8, size=[1.0, 2.0, 5.0] * 8, kind=["mall", "street", "mall"] * 8
)
y = FRAME["p"].to_numpy() + rng.normal(size=N)
LINEAR, OWN, KERNEL, DESCRIBED = range(4)
MODELS = {
    "terms": lambda: MultiTaskRegressor(
        terms=[
            Term("linear", columns=["p", "q"], weight=np.inf),
            Term("linear", by="shop", columns=["p"], structure="trace", intercept=True),
            Term(RBF(2.0), columns=["p", "q"]),
            Term("constant", by="shop", described_by=["size", "kind"], descriptor_kernel="rbf"),
        ],
        alpha=0.1,
    ).fit(FRAME, y),
    "common": lambda: MultiTaskRegressor(common=Term("rbf", weight=0.5), task_column="shop", alpha=0.1).fit(
        FRAME[["p", "q", "shop"]], y
    ),
    "linear": lambda: MultiTaskRegressor(common=True, task_column="shop", alpha=0.1).fit(FRAME[["p", "q", "shop"]], y),
    "plain": lambda: MultiTaskRegressor(task_column="shop", alpha=0.1).fit(FRAME[["p", "q", "shop"]], y),
}
MODELS["search"] = lambda: MultiTaskRegressorCV(terms=[Term("constant", by="shop")], alphas=[0.1], cv=2).fit(FRAME, y)
ROWS = {"terms": FRAME, "search": FRAME, **dict.fromkeys(("common", "linear", "plain"), FRAME[["p", "q", "shop"]])}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The tree and the arrays of a file of each model."""
    folder = tmp_path_factory.mktemp("good")
    for name, make in MODELS.items():
        make().save(folder / name)
    return {name: archive.read(folder / name)[:2] for name in MODELS}


def forge(good, path, name, change):
    """A file with a right checksum, and a model of the forger's making."""
    tree, arrays = copy.deepcopy(good[name][0]), dict(good[name][1])
    change(tree, arrays)
    archive.write(path, tree, arrays, "a forger")
    return path


def refused(path, words="is not usable"):
    with pytest.raises(ModelFileError, match=words) as caught:
        taskloom.load(path)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def term(number, change):
    return "terms", lambda tree, arrays: change(tree["fitted"]["_fitted_terms"]["values"][number], arrays)


def part(change, name="common"):
    return name, lambda tree, arrays: change(tree["fitted"]["_common_part"], arrays)


def rows(change, name="terms"):
    return name, lambda tree, arrays: change(tree["rows"], arrays)


def swap(*way, make):
    """Another array in place of one."""

    def change(node, arrays):
        *first, last = way
        for key in first:
            node = node[key]
        arrays["forged"] = make(arrays[node[last]["name"]])
        node[last] = {"@": "array", "name": "forged"}

    return change


def put(*way, value):
    def change(node, arrays):
        *first, last = way
        for key in first:
            node = node[key]
        node[last] = value

    return change


def nan(array):
    return np.full_like(array, np.nan)


TEXTS = {"@": "tuple", "values": ["mall", "mall"]}
FORGERIES = {
    # of terms as a whole
    "no terms": ("terms", put("fitted", "_fitted_terms", value={"@": "tuple", "values": []})),
    "a term less": ("terms", lambda tree, arrays: tree["fitted"]["_fitted_terms"]["values"].pop()),
    "a list of terms": ("terms", put("fitted", "_fitted_terms", value=[])),
    "terms that are none": ("terms", put("fitted", "_fitted_terms", "values", value=[1, 2, 3, 4])),
    "no terms in the parameter": ("terms", put("params", "terms", value=None)),
    "a parameter that is no list": ("terms", put("params", "terms", value="abcd")),
    "terms and a common part": ("terms", put("params", "common", value=True)),
    "terms and a task column": ("terms", put("params", "task_column", value="shop")),
    "terms and coefficients": (
        "terms",
        lambda t, a: t["fitted"].update(tasks_={"@": "strings", "shape": [2], "values": ["a", "b"]}),
    ),
    "terms in the parameter alone": (
        "plain",
        put("params", "terms", value=[{"@": "term", "class": "Term", "params": {"kernel": "rbf"}}]),
    ),
    "a common part in the parameter alone": ("plain", put("params", "common", value=True)),
    "a term that no one may state": term(OWN, put("term", "params", "weight", value=-1.0)),
    "another class": term(OWN, put("term", value={"@": "term", "class": "os.system", "params": {"kernel": "rm"}})),
    "a term by a structure": term(OWN, put("term", value={"@": "structure", "class": "Trace", "params": {}})),
    # of one term
    "a column that is not there": term(LINEAR, put("inputs", "columns", "values", value=[0, 5])),
    "a negative column": term(LINEAR, put("inputs", "columns", "values", value=[0, -1])),
    "a column that is true": term(LINEAR, put("inputs", "columns", "values", value=[0, True])),
    "a column less": term(LINEAR, put("inputs", "columns", "values", value=[0])),
    "columns that are none": term(LINEAR, put("inputs", "columns", value="pq")),
    "a mean that is not finite": term(LINEAR, swap("inputs", "mean", make=nan)),
    "no mean": term(LINEAR, put("inputs", "mean", value=None)),
    "a constant that is not finite": term(OWN, put("inputs", "constant", value={"@": "float", "value": "nan"})),
    "a constant of less than nothing": term(OWN, put("inputs", "constant", value=-1.0)),
    "a constant that is a text": term(OWN, put("inputs", "constant", value="1")),
    "a grouping that is not there": term(OWN, put("by", value=77)),
    "a grouping by name": term(OWN, put("by", value="shop")),
    "no grouping": term(OWN, put("by", value=None)),
    "a grouping of a term of all rows": term(LINEAR, put("by", value=2)),
    "levels twice": term(OWN, put("levels", value={"@": "objects", "shape": [3], "values": ["a", "a", "b"]})),
    "a level more": term(OWN, put("levels", value={"@": "objects", "shape": [4], "values": ["a", "b", "c", "d"]})),
    "no levels": term(OWN, put("levels", value=None)),
    "levels that are a matrix": term(OWN, put("levels", value={"@": "objects", "shape": [3, 1], "values": ["a", "b", "c"]})),
    "levels of one hash": term(
        OWN,
        put(
            "levels",
            value={"@": "objects", "shape": [200], "values": [k * (2**61 - 1) for k in range(200)]},
        ),
    ),
    "weights of another shape": term(OWN, swap("weights", make=lambda W: W[:, :-1])),
    "weights in single precision": term(OWN, swap("weights", make=lambda W: W.astype("f4"))),
    "weights that are not finite": term(OWN, swap("weights", make=nan)),
    "weights of whole numbers": term(OWN, swap("weights", make=lambda W: W.astype(int))),
    "no weights": term(OWN, put("weights", value=None)),
    "a structure of another size": term(OWN, swap("structure", make=lambda A: np.eye(9))),
    "a structure on the other side": term(OWN, lambda node, arrays: node.update(on_features=not node["on_features"])),
    "a structure that is not finite": term(OWN, swap("structure", make=nan)),
    "no structure": term(OWN, put("structure", value=None)),
    "a side that is none": term(OWN, put("on_features", value="features")),
    # of kernels and descriptors
    "a kernel that is none": term(KERNEL, put("inputs", "kernel", "kernel", value="no such kernel")),
    "a kernel that gives nothing": term(
        KERNEL, put("inputs", "kernel", "kernel", value={"@": "structure", "class": "Trace", "params": {}})
    ),
    "a kernel and a mean": term(KERNEL, put("inputs", "mean", value={"@": "array", "name": "0"})),
    "a kernel without a weight": term(
        KERNEL, put("term", "params", value={"kernel": "linear", "weight": {"@": "float", "value": "inf"}})
    ),
    "points of other columns": term(KERNEL, swap("inputs", "kernel", "points", make=lambda P: P[:, :1])),
    "points less": term(KERNEL, swap("inputs", "kernel", "points", make=lambda P: P[:-1])),
    "no points": term(
        KERNEL,
        lambda node, arrays: arrays.update(
            {node["inputs"]["kernel"][name]["name"]: np.zeros((0, size)) for name, size in (("points", 2), ("root", N))}
        ),
    ),
    "points that are not finite": term(KERNEL, swap("inputs", "kernel", "points", make=nan)),
    "a root that is not finite": term(KERNEL, swap("inputs", "kernel", "root", make=nan)),
    "a root of one dimension": term(KERNEL, swap("inputs", "kernel", "root", make=lambda R: R[:, 0])),
    "a root that overflows": term(KERNEL, swap("inputs", "kernel", "root", make=lambda R: np.full_like(R, 1e308))),
    "a parameter too many": term(
        KERNEL, put("inputs", "kernel", "parameters", value={"@": "dict", "items": [["n_jobs", 10_000_000]]})
    ),
    "a parameter that is none": term(
        DESCRIBED, put("descriptors", "kernel", "parameters", value={"@": "dict", "items": [["gamma", "wide"]]})
    ),
    "exact or not": term(KERNEL, put("inputs", "kernel", "exact", value=1)),
    "categories twice": term(DESCRIBED, put("descriptors", "categories", "values", 1, value=TEXTS)),
    "categories that are numbers": term(
        DESCRIBED, put("descriptors", "categories", "values", 1, value={"@": "tuple", "values": [1, 2]})
    ),
    "no categories": term(DESCRIBED, put("descriptors", "categories", "values", 1, value={"@": "tuple", "values": []})),
    "numbers in place of categories": term(DESCRIBED, put("descriptors", "categories", "values", 1, value=None)),
    "categories of fewer columns": term(DESCRIBED, lambda node, arrays: node["descriptors"]["categories"]["values"].pop()),
    "a descriptor that is not there": term(DESCRIBED, put("descriptors", "columns", "values", value=[3, 99])),
    "no descriptors": term(DESCRIBED, put("descriptors", value=None)),
    "descriptors of a term that has none": (
        "terms",
        lambda tree, arrays: tree["fitted"]["_fitted_terms"]["values"][OWN].update(
            descriptors=tree["fitted"]["_fitted_terms"]["values"][DESCRIBED]["descriptors"]
        ),
    ),
    "a class of another package": term(DESCRIBED, put("descriptors", "kernel", value={"@": "OneHotEncoder"})),
    # of common parts
    "no common part": ("common", lambda tree, arrays: tree["fitted"].pop("_common_part")),
    "no common part in the parameter": ("common", put("params", "common", value=None)),
    "a common part that is none": ("common", put("fitted", "_common_part", value=5)),
    "common columns that are not there": part(put("common", "columns", "values", value=[0, 7])),
    "own columns in another order": part(put("own", "columns", "values", value=[1, 0])),
    "common weights less": part(swap("common_weights", make=lambda w: w[:-1])),
    "own weights of other tasks": part(swap("own_weights", make=lambda W: W[:, :-1])),
    "own weights of other features": part(swap("own_weights", make=lambda W: W[:-1])),
    "own weights that are a number": part(swap("own_weights", make=lambda W: np.float64(1.0).reshape(()))),
    "common weights that are not finite": part(swap("common_weights", make=nan)),
    "an intercept that is not finite": part(put("intercept", value={"@": "float", "value": "inf"})),
    "a common part of no weight": part(put("weight", value={"@": "float", "value": "nan"})),
    "an unpenalised kernel": part(put("weight", value={"@": "float", "value": "inf"})),
    "an input map that is none": part(put("own", value=None)),
    "coefficients of a kernel": (
        "common",
        lambda t, a: t["fitted"].update(coef_=t["fitted"]["_common_part"]["common_weights"]),
    ),
    "no coefficients": ("linear", lambda tree, arrays: tree["fitted"].pop("coef_")),
    "other coefficients": ("linear", swap("fitted", "coef_", make=lambda C: C[:, :-1])),
    "no structure of the tasks": ("linear", lambda tree, arrays: tree["fitted"].pop("structure_")),
    "no learned structure": ("linear", lambda tree, arrays: tree["fitted"].pop("_learned")),
    # of a search
    "a weight of nothing": ("search", lambda tree, arrays: tree["fitted"]["best_weights_"]["items"][0].__setitem__(1, 0.0)),
    "weights that are none": ("search", put("fitted", "best_weights_", value=[1.0])),
    "a choice that is none": ("search", put("fitted", "selection_", value=5)),
    "a search for terms that has none": ("search", put("params", "terms", value=None)),
    # of the rows of the fit
    "rows that are none": ("terms", put("rows", value=[1])),
    "rows of a plain model": ("plain", lambda tree, arrays: tree.update(rows=tree["training"])),
    "rows of fewer terms": rows(lambda node, arrays: node["terms"]["values"].pop()),
    "rows in another order": rows(lambda node, arrays: node["terms"]["values"].reverse()),
    "a level outside": rows(swap("terms", "values", OWN, "codes", make=lambda codes: codes + 1)),
    "a negative level": rows(swap("terms", "values", OWN, "codes", make=lambda codes: codes - 1)),
    "levels that are fractions": rows(swap("terms", "values", OWN, "codes", make=lambda codes: codes.astype(float))),
    "no level": rows(put("terms", "values", OWN, "n_levels", value=0)),
    "levels without end": rows(put("terms", "values", OWN, "n_levels", value=10**15)),
    "features that are not finite": rows(swap("terms", "values", OWN, "phi", make=nan)),
    "features of fewer rows": rows(swap("terms", "values", OWN, "phi", make=lambda phi: phi[:-1])),
    "features less": rows(swap("terms", "values", OWN, "phi", make=lambda phi: phi[:, :-1])),
    "descriptors of fewer levels": rows(swap("terms", "values", DESCRIBED, "descriptors", make=lambda U: U[:-1])),
    "a target less": rows(swap("y", make=lambda y: y[:-1])),
    "a target that is not finite": rows(swap("y", make=nan)),
    "a row without weight": rows(swap("sample_weight", make=np.zeros_like)),
    "a loss that is none": rows(put("loss", value="squared")),
    "perhaps an intercept": rows(put("fit_intercept", value="yes")),
    "rows of other tasks": rows(put("terms", "values", 1, "n_levels", value=4), "linear"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_files_are_refused(name, good, tmp_path):
    refused(forge(good, tmp_path / "m", *FORGERIES[name]))


def test_a_file_that_was_not_changed_is_read(good, tmp_path):
    for name, rows_of in ROWS.items():
        model = taskloom.load(forge(good, tmp_path / "m", name, lambda tree, arrays: None))
        assert np.array_equal(model.predict(rows_of), MODELS[name]().predict(rows_of))


STRANGE = [
    None,
    True,
    -1,
    10**30,
    1.5,
    "",
    "trace",
    [],
    [1, 2],
    {},
    {"@": "array", "name": "0"},
    {"@": "float", "value": "inf"},
]


def places(node, at=()):
    """Where something could be changed."""
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        yield (*at, key)
        yield from places(value, (*at, key))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_model_changed_at_random_is_refused_or_works(good, data, tmp_path):
    name = data.draw(st.sampled_from(["terms", "common", "linear"]))

    def change(tree, arrays):
        *way, last = data.draw(st.sampled_from(list(places(tree))))
        for key in way:
            tree = tree[key]
        tree[last] = data.draw(st.sampled_from(STRANGE))

    forge(good, tmp_path / "m", name, change)
    try:
        model = taskloom.load(tmp_path / "m")
    except ModelFileError as error:
        assert "\n" not in str(error)  # noqa: PT017 (either outcome is right, a third is not)
        return
    try:
        assert np.isfinite(model.predict(ROWS[name])).all()
        assert np.isfinite(model.predict_terms(ROWS[name])).all()
    except ValueError as error:
        known = "not seen in training|feature names|no column|task_column must be|holds no numbers|could not convert"
        assert re.search(known, str(error))  # noqa: PT017


def test_the_number_of_kernels_is_limited(good, tmp_path, monkeypatch):
    """Each is evaluated on trial."""
    model = MODELS["terms"]()
    forge(good, tmp_path / "m", "terms", lambda tree, arrays: None)
    monkeypatch.setattr(limits, "KERNELS", 3)
    with pytest.raises(ModelFileError, match="too much for a model file: its kernels have 5 parts, more than 3; pickle it"):
        model.save(tmp_path / "n")
    refused(tmp_path / "m", "its kernels have 5 parts")


def test_levels_of_one_hash_are_refused_when_they_are_saved(tmp_path):
    levels = [k * (2**61 - 1) for k in range(150)]
    frame = pd.DataFrame({"p": rng.normal(size=300), "shop": pd.Series(levels * 2, dtype=object)})
    model = MultiTaskRegressor(terms=[Term("constant", by="shop")], alpha=0.1).fit(frame, frame["p"])
    with pytest.raises(ModelFileError, match="have the same hash"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())
