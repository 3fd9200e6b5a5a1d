"""Model files of a few bytes to 24 MB that ask for far more work or memory than their size, with a right checksum.

Each kind puts something into a real file: many of a thing, one thing named many times, or a number that is a size. Case ``k``
of a seed is always the same. Loading one may take three seconds and a gibibyte, whatever it holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from .heavy_values import VALUES, Case, array, estimator, pick
from .parts import Parts

LARGEST = 24 << 20  # bytes of a file
PLACES: dict[str, list[str]] = {  # where a value does the most, by its kind; anywhere otherwise
    "integers or pairs of one hash": ["tasks_", "loss"],
    "sums of sums of kernels": ["kernel"],
    "kernels that name one long array": ["kernel"],
    "one array named very often": ["alpha", "kernel", "_learned"],
    "numbers beyond every type": ["alpha", "ridge", "tol", "n_features_in_", "gamma", "max_iter", "n_iter_"],
    "texts as long as the file": ["task_column", "kernel"],
    "matrices of known structures": ["structure", "_learned"],
    "millions of threads": ["kernel"],
    "maps that ask for components": ["feature_map_"],
    "sparse matrices of many columns": ["X_fit_"],
}


def placed(kind: str, case: Case) -> bytes:
    """A value of a kind where it does the most, or in another parameter or fitted attribute."""
    parts, rng = case.parts, case.rng
    model, value = estimator(parts), VALUES[kind](case)
    name = pick(rng, PLACES[kind]) if kind in PLACES and rng.random() < 0.7 else ""
    holders = [holder for holder in (model["params"], model["fitted"]) if name in holder]
    holder = holders[0] if holders else pick(rng, [model["params"], model["fitted"]])
    holder[name if holders else pick(rng, list(holder))] = value
    if name == "feature_map_" and holders and "n_components" in value.get("params", {}):
        model["fitted"]["n_features_in_"] = value["fitted"]["n_features_in_"]
    if name == "X_fit_" and holders:
        model["fitted"]["n_features_in_"] = value["shape"][1]
    return parts.signed()


# --- files that are heavy as a whole ---------------------------------------------------------------------------------------


def many_arrays(case: Case) -> bytes:
    """Arrays that nobody names, most of them empty."""
    few = [np.zeros(0), np.zeros((0, 1 << 40)), np.zeros((1,) * int(case.rng.integers(1, 40)))]
    case.parts.arrays |= {f"more{k}": few[k % 3] for k in range(case.size // 80)}
    return case.parts.signed()


def metadata(case: Case) -> bytes:
    """Words about the file without end."""
    case.parts.metadata |= {f"{k:x}": "" for k in range(case.size // 12)}
    return case.parts.signed()


def header(case: Case) -> bytes:
    """JSON in the header itself, beside the arrays."""
    filler = pick(case.rng, ["[]", "{}", "0", '{"a":0}', '"a"', "[[[[]]]]"])
    body = ",".join([filler] * (case.size // (len(filler) + 1)))
    return case.parts.with_header(f'{json.dumps(case.parts.header)[:-1]}, "more": [{body}]}}')


def digits(case: Case) -> bytes:
    """One number with as many digits as the file has bytes."""
    start = pick(case.rng, ["0.", "1.", "9", "-0.000"])
    text = json.dumps(case.parts.tree)
    return case.parts.signed(f'{text[:-1]}, "more": {start}{"3" * (case.size - 10)}e0}}')


def nesting(case: Case) -> bytes:
    """Lists in lists, again and again."""
    deep = int(case.rng.choice([10, 90, 800]))
    one = "[" * deep + "]" * deep
    text = json.dumps(case.parts.tree)
    return case.parts.signed(f'{text[:-1]}, "more": [{",".join([one] * max(case.size // (2 * deep + 1), 1))}]}}')


def levels(case: Case) -> bytes:
    """A column with a long name and many levels: names of the encoded columns would hold it once for each."""
    if case.parts.tree["@"] != "pipeline":
        return many_arrays(case)
    fitted, long = case.parts.tree["steps"][0]["fitted"], "x" * (case.size // 2)
    names, items = fitted["feature_names_in_"], fitted["levels_"]["items"]
    names["values"] = [long if name == items[0][0] else name for name in names["values"]]
    items[0] = [long, [f"{k:x}" for k in range(case.size // 20)]]
    return case.parts.signed()


def tall_inputs(case: Case) -> bytes:
    """Features without columns and with more rows than there are bytes."""
    training = estimator(case.parts).get("training")
    if not training:
        return many_arrays(case)
    case.parts.arrays["tall"] = np.zeros((1 << int(case.rng.integers(28, 40)), 0))
    for name in ("phi", "U", "X"):
        if name in training["features"]:
            training["features"][name] = array("tall")
    return case.parts.signed()


def many_tasks(case: Case) -> bytes:
    """Numbers as names of tasks, more than the model has tasks."""
    case.parts.arrays["names"] = (
        np.arange(case.size // 8) if case.rng.random() < 0.5 else np.zeros(case.size // 2, dtype=np.int16)
    )
    estimator(case.parts)["fitted"]["tasks_"] = array("names")
    return case.parts.signed()


WHOLE: dict[str, Callable[[Case], bytes]] = {
    "arrays that nobody names": many_arrays,
    "words about the file without end": metadata,
    "a header of small values": header,
    "a number as long as the file": digits,
    "lists in lists": nesting,
    "a long name times many levels": levels,
    "rows without columns": tall_inputs,
    "more names than tasks": many_tasks,
}
KINDS = [*VALUES, *WHOLE]


def draw(seed: int, k: int, seeds: list[bytes], largest: int = LARGEST) -> tuple[str, bytes]:
    """Case ``k``: the name of its kind, and a file of at most about ``largest`` bytes; each kind in its turn."""
    rng = np.random.default_rng([seed, k, 2])
    kind = KINDS[k % len(KINDS)]
    size = int(np.exp(rng.uniform(np.log(1000), np.log(largest)))) if k >= len(KINDS) else largest
    fitting = [data for data in seeds if _suits(kind, data)]
    case = Case(Parts(pick(rng, fitting)), size, rng)
    return kind, placed(kind, case) if kind in VALUES else WHOLE[kind](case)


def _suits(kind: str, data: bytes) -> bool:
    """Whether a file has the place where a kind does the most."""
    head = data[: 8 + int.from_bytes(data[:8], "little")]
    needed = {
        "sums of sums of kernels": b"dual_coef_",
        "kernels that name one long array": b"dual_coef_",
        "millions of threads": b"dual_coef_",
        "rows without columns": b"training",
        "maps that ask for components": b"feature_map_",
        "sparse matrices of many columns": b"X_fit_",
        "a long name times many levels": b"preprocessor",
    }
    return needed.get(kind, b"") in head
