"""Values for the tree of a model file that ask for far more work or memory than their size."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .parts import Parts, Rng

MODULUS = (1 << 61) - 1  # integers that differ by it have one hash
RBF = {"@": "kernel", "class": "RBF", "params": {}}


@dataclass
class Case:
    """A real file taken apart, about how many bytes to put into it, and random numbers."""

    parts: Parts
    size: int
    rng: Rng


Change = Callable[[Case], Any]


def array(name: str) -> dict[str, Any]:
    return {"@": "array", "name": name}


def objects(values: list[Any]) -> dict[str, Any]:
    return {"@": "objects", "shape": [len(values)], "values": values}


def strings(values: list[str]) -> dict[str, Any]:
    return {"@": "strings", "shape": [len(values)], "values": values}


def estimator(parts: Parts) -> dict[str, Any]:
    return parts.tree["steps"][-1] if parts.tree["@"] == "pipeline" else parts.tree


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


# --- values that can stand anywhere in the tree ----------------------------------------------------------------------------


def one_hash(case: Case) -> Any:
    """Integers, or pairs of them, that all have the same hash."""
    step = MODULUS << int(case.rng.integers(0, 400))
    values = [k * step for k in range(1, 2 + case.size // (len(str(step)) + 8))]
    match int(case.rng.integers(3)):
        case 0:
            return objects(values)
        case 1:
            return {"@": "dict", "items": [[value, 1] for value in values]}
        case _:
            pairs = [{"@": "tuple", "values": pair} for pair in _pairs_of_one_hash(min(case.size // 70, 200_000))]
            return objects(pairs)


def _pairs_of_one_hash(count: int) -> list[list[int]]:
    """Pairs ``(a, b)`` with one hash: Python's mix of a pair can be solved for its second entry."""
    one, two, five, whole = 11400714785074694791, 14029467366897019727, 2870177450012600261, 1 << 64

    def rotated(x: int, by: int) -> int:
        return ((x << by) | (x >> (64 - by))) % whole

    undo_one, undo_two, goal, found = pow(one, -1, whole), pow(two, -1, whole), 12345, []
    for a in range(1, 8 * count):
        before = rotated((five + a * two) % whole, 31) * one % whole
        b = (rotated(goal * undo_one % whole, 33) - before) * undo_two % whole
        if b < MODULUS:
            found.append([a, b])
        if len(found) == count:
            break
    return found


def texts_of_one_length(case: Case) -> Any:
    """Arrays of short texts, each with a long one, whose room they all take."""
    count = int(case.rng.integers(1, 9))
    long = max(case.size // (2 * count), 2)
    one = strings(["x" * long] + ["y"] * min(long // 2, (1 << 27) // long))
    return [json.loads(json.dumps(one)) for _ in range(count)]


def kernels(case: Case) -> Any:
    """Sums of sums of kernels: as deep as possible, or as wide."""
    node, count = RBF, max(case.size // 120, 1)
    if case.rng.random() < 0.5:
        for k in range(min(count, int(case.rng.choice([50, 150, 300])))):
            node = {"@": "kernel", "class": "Sum", "params": {"k1": node, "k2": RBF | {"params": {"length_scale": 1.0 + k}}}}
        return node
    row = [{"@": "kernel", "class": "RBF", "params": {"length_scale": 1.0 + k}} for k in range(count)]
    while len(row) > 1:
        pairs = zip(row[::2], row[1::2], strict=False)
        row = [{"@": "kernel", "class": "Product", "params": {"k1": a, "k2": b}} for a, b in pairs]
    return row[0]


def scaled_kernels(case: Case) -> Any:
    """Kernels that all name one long array of scales."""
    case.parts.arrays["long"] = np.ones(case.size // 16)
    one = {"@": "kernel", "class": "RBF", "params": {"length_scale": array("long")}}
    return [one] * min(case.size // 200, 5000)


def references(case: Case) -> Any:
    """One array by name, very often."""
    case.parts.arrays["long"] = np.arange(2000.0)
    return [array("long")] * (case.size // 32)


def shapes(case: Case) -> Any:
    """Dimensions without end, whose product has millions of digits."""
    shape = [int(case.rng.choice([1, (1 << 47) + 1]))] * (case.size // 18)
    return {"@": str(case.rng.choice(["strings", "objects"])), "shape": shape, "values": ["a"]}


def plain_values(case: Case) -> Any:
    """Very many of something small."""
    match int(case.rng.integers(8)):
        case 0:
            return [0] * (case.size // 3)
        case 1:
            return [[]] * (case.size // 4)
        case 2:
            return [{"a": 0}] * (case.size // 13)
        case 3:
            return [0.5] * (case.size // 5)
        case 4:
            return [f"{k:x}" for k in range(case.size // 9)]
        case 5:
            return {"@": "dict", "items": [[f"{k:x}", None] for k in range(case.size // 18)]}
        case 6:
            return objects([{"@": "timestamp", "unit": "ns", "value": k} for k in range(case.size // 60)])
        case _:
            return [{"@": "loss", "class": "Huber", "params": {"width": 1.0 + k}} for k in range(case.size // 70)]


def numbers(case: Case) -> Any:
    """Numbers that no type of NumPy holds."""
    n = int(case.rng.choice([19, 20, 39, 309, 400, 4000]))
    return pick(case.rng, [10**n, -(10**n), {"@": "scalar", "dtype": "float64", "value": 10**n}, [10**n]])


def long_texts(case: Case) -> Any:
    """A text as long as the file; half of the time none that a terminal could show."""
    return pick(case.rng, ["x", "\x1b", "\ud800", "é"]) * (case.size // 6)


def matrices(case: Case) -> Any:
    """Known structures whose matrices take the cube of their case.size to look at."""
    n = int(min(case.size, 12 << 20) ** 0.5)
    case.parts.arrays["square"], case.parts.arrays["code"] = np.eye(n, dtype=bool), np.ones((1, case.size // 8))
    names = [("Fixed", "A", "square"), ("OutputMetric", "theta", "square"), ("OutputCode", "L", "code")]
    name, param, of = pick(case.rng, [*names, ("TaskGraph", "adjacency", "square")])
    many = [
        {"@": "structure", "class": name, "params": {param: array(of) | {"x": k}}} for k in range(int(case.rng.integers(1, 40)))
    ]
    return many if len(many) > 1 else many[0]


def threads(case: Case) -> Any:
    """A kernel that asks for millions of threads."""
    params = {
        "metric": "rbf",
        "pairwise_kernels_kwargs": {"@": "dict", "items": [["n_jobs", int(case.rng.choice([500, 10**6]))]]},
    }
    return {"@": "kernel", "class": "PairwiseKernel", "params": params}


def maps(case: Case) -> Any:
    """Maps of the features that ask for more components, columns or threads than they have numbers for."""
    n = int(case.rng.choice([10**8, 10**12]))
    case.parts.arrays |= {"hash": np.zeros((2, 2), dtype=np.int64), "rows": np.ones((4, 2)), "square": np.eye(4)}
    sketch = {"indexHash_": array("hash"), "bitHash_": array("hash"), "n_features_in_": 2}
    nystroem = {"components_": array("rows"), "normalization_": array("square"), "n_features_in_": 2}
    return pick(
        case.rng,
        [
            {"@": "map", "class": "PolynomialCountSketch", "params": {"n_components": 10**8}, "fitted": sketch},
            {"@": "map", "class": "PolynomialCountSketch", "params": {"n_components": n, "degree": 2}, "fitted": sketch},
            {"@": "map", "class": "Nystroem", "params": {"n_jobs": n, "n_components": 4}, "fitted": nystroem},
        ],
    )


def sparse_columns(case: Case) -> Any:
    """A sparse matrix of a few numbers and very many columns."""
    case.parts.arrays |= {"none": np.zeros(0), "nowhere": np.zeros(0, dtype=np.int32), "ends": np.zeros(3, dtype=np.int32)}
    columns = 1 << int(case.rng.integers(24, 47))
    made = {"data": array("none"), "indices": array("nowhere"), "indptr": array("ends")}
    return {"@": "sparse", "class": "csr_array", "shape": [2, columns], **made}


VALUES: dict[str, Change] = {
    "integers or pairs of one hash": one_hash,
    "texts that take the room of the longest": texts_of_one_length,
    "sums of sums of kernels": kernels,
    "kernels that name one long array": scaled_kernels,
    "one array named very often": references,
    "shapes without end": shapes,
    "very many small values": plain_values,
    "numbers beyond every type": numbers,
    "texts as long as the file": long_texts,
    "matrices of known structures": matrices,
    "millions of threads": threads,
    "maps that ask for components": maps,
    "sparse matrices of many columns": sparse_columns,
}
