"""Limits on the content of a model file, so that the work and the memory of loading are bounded by its size.

They are checked when a model is saved as they are when a file is read: what is saved can be loaded.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np

from .allowed import PACKAGES
from .refusal import check

Array = np.ndarray
VALUES = 1 << 22  # JSON values of a description
CONTAINERS = 1 << 19  # lists and objects among them: each takes fifty times the memory of its two characters
DEPTH = 200  # of lists and objects in each other
COMPONENTS, KERNELS = 100_000, 256  # a loss for each task; parts of kernels, which are evaluated on trial
ARRAYS = 1 << 16
WORK, TIMES = 1 << 32, 100  # bytes of arrays, as 64-bit numbers, each time that they are named; besides so many times all
REFERENCE = 1 << 15  # bytes that a name of an array counts at least
TEXT_ARRAYS = 100_000  # arrays of texts and of objects: the classes of each task
INTEGER = 1 << 127
TEXT = 1 << 28  # bytes of arrays of texts, which all take the room of the longest, besides eight for each of the description
SAME_HASH = 100  # keys of one hash
WORDS = 64  # entries of the metadata
COLUMNS = 1 << 24  # of a sparse matrix, and of an array without entries
DIMENSIONS = 4
THREADS = 256


def check_saved(tree: Any, arrays: dict[str, Array]) -> None:
    """What a file is about to hold."""
    text = json.dumps(tree).encode()
    check_text(text)
    check_tree(tree, arrays, len(text))
    check(len(arrays) <= ARRAYS, f"it has {len(arrays)} arrays, more than {ARRAYS}")
    for array in arrays.values():
        check_shape(array.shape, array.size)


def check_text(text: bytes) -> None:
    """The number of values in a JSON text, before it is parsed: marks outside of strings are counted."""
    codes = np.frombuffer(text.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    outside = np.cumsum(codes == ord('"'), dtype=np.uint8) & 1 == 0  # an even number of quotes before; overflow keeps parity
    containers = int(np.count_nonzero(((codes == ord("[")) | (codes == ord("{"))) & outside))
    commas = int(np.count_nonzero((codes == ord(",")) & outside))
    small = containers <= CONTAINERS and containers + commas <= VALUES
    check(small, f"its description holds more than {VALUES} values, or {CONTAINERS} lists and objects")


def check_tree(tree: Any, arrays: dict[str, Array], n_bytes: int) -> None:
    """The numbers of components, of names of arrays and of texts in a description of ``n_bytes``, level by level."""
    kinds: Counter[str] = Counter()
    sizes, work, built = {name: 8 * array.size for name, array in arrays.items()}, 0, set()
    texts, level, depth = 0, [tree], 0
    while level:
        depth += 1
        check(depth <= DEPTH, f"its description is nested more than {DEPTH} levels deep")
        within = all(-INTEGER < node < INTEGER for node in level if type(node) is int)
        check(within, "it holds an integer of more than 127 bits, which is out of range")
        inside: list[Iterable[Any]] = []
        for node in level:
            kind = node.get("@") if type(node) is dict else None
            if type(kind) is str:
                kinds[kind] += 1
                texts += _room(node.get("values")) if kind == "strings" else 0
                work += max(REFERENCE, sizes.get(str(node.get("name")), 0)) if kind == "array" else 0
                if kind in PACKAGES and (key := _key(node)) is not None:
                    if key in built:  # the decoder makes it once
                        continue
                    built.add(key)
            if type(node) is not int:
                inside.append(node.values() if type(node) is dict else node)
        level = [child for children in inside for child in children if type(child) in (dict, list, int)]
    components, listed = sum(kinds[kind] for kind in PACKAGES), kinds["strings"] + kinds["objects"]
    check(components <= COMPONENTS, f"it has {components} components, more than {COMPONENTS}")
    kernels = kinds["kernel"] + kinds["kernel_map"]
    check(kernels <= KERNELS, f"its kernels have {kernels} parts, more than {KERNELS}")
    check(listed <= TEXT_ARRAYS, f"it has {listed} arrays of texts or objects, more than {TEXT_ARRAYS}")
    most = WORK + TIMES * sum(array.nbytes for array in arrays.values())
    check(work <= most, f"it names its arrays too often ({kinds['array']} times, {work >> 20} MiB)")
    check(texts <= TEXT + 8 * n_bytes, f"its arrays of texts would take {texts >> 20} MiB; shorten the longest names")


def _key(node: dict) -> str | None:
    """A component whose parameters are numbers, texts and arrays as a text; ``None`` if it has others."""
    params = node.get("params")
    if type(params) is not dict or not all(_is_flat(value) for value in params.values()):
        return None
    return json.dumps([node["@"], str(node.get("class")), params])


def _is_flat(value: Any) -> bool:
    if type(value) is dict:
        return value.get("@") == "array" and value.keys() <= {"@", "name", "order"} and not any(map(_is_nested, value.values()))
    return type(value) is not list


def _is_nested(value: Any) -> bool:
    return type(value) in (dict, list)


def _room(values: Any) -> int:
    """The bytes of an array of texts."""
    if type(values) is not list:
        return 0
    return 4 * len(values) * max((len(value) for value in values if type(value) is str), default=0)


def check_keys(keys: Iterable[Any]) -> None:
    """Before a table of keys is made: with many of one hash it would take time that grows with the square of their number.

    Texts have another hash in every process; those of tuples and of large integers are the file's choice.
    """
    many = max(Counter(map(hash, keys)).values(), default=0)
    check(many <= SAME_HASH, f"{many} keys or labels have the same hash; take texts")


def check_shape(shape: Any, size: int) -> None:
    """The shape of an array of ``size`` entries: no more dimensions than models have, none longer than its content."""
    check(len(shape) <= DIMENSIONS, f"an array has {len(shape)} dimensions, more than {DIMENSIONS}")
    check(max(shape, default=0) <= max(size, COLUMNS), f"an array without entries has the shape {tuple(shape)}")
