"""Model files that nobody wrote on purpose, and files that somebody did: real ones, changed in one or a few places.

Case ``k`` of a seed is always the same. Raw changes are what disks and networks do (the checksum must notice); forgeries have a
right checksum and a wrong model, which only a person would make.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

import taskloom

from .other_files import Others
from .parts import Parts, Rng, flip_bits
from .strange import STRANGE, greedy

LAYOUT = "abc"  # tasks of the long tables


def frame(n: int = 12) -> pd.DataFrame:
    """Inputs that every model here takes, whatever its columns are called."""
    X = np.random.default_rng(0).normal(size=(n, 2))
    return pd.DataFrame(X, columns=list("pq")).assign(kind=["x", "y"] * (n // 2), shop=[LAYOUT[i % 3] for i in range(n)])


def write_seeds(folder: Path) -> list[bytes]:
    """Small real files of every kind of model."""
    table = frame()
    X, long = table[["p", "q"]].to_numpy(), table.drop(columns="kind")
    Y = np.column_stack([X[:, 0], X.sum(axis=1), -X[:, 1]])
    y, labels = X.sum(axis=1), np.where(Y > 0, "up", "down")
    Reg, Cla = taskloom.MultiTaskRegressor, taskloom.MultiTaskClassifier
    pipe = make_pipeline(taskloom.TablePreprocessor(task_column="shop"), Reg(task_column="shop", kernel="rbf"))
    models = [
        Reg().fit(X, Y),
        Reg(taskloom.structures.Clusters(2), alpha=0.1).fit(X, Y),
        Reg(kernel="rbf", loss="huber").fit(X, Y),
        Reg(kernel=["linear", "rbf"]).fit(X, Y),
        Reg(kernel="rbf", approximation=Nystroem(n_components=4, random_state=0)).fit(X, Y),
        Reg(kernel="rbf", approximation="nystroem", n_components=4).fit(X, Y),
        Reg(taskloom.structures.FeatureSelection()).fit(X, Y),
        Reg(task_column="shop", standardize_targets=True).fit(long, y),
        Cla().fit(X, labels),
        Cla(kernel="rbf", loss="hinge", alpha=0.1).fit(X, np.array(["u", "v", "w"] * 4)),
        taskloom.MultiTaskRegressorCV(alphas=3, cv=3, kernels=None).fit(X, Y),
        pipe.fit(table, y),
    ]
    path = folder / "seed"
    seeds = []
    for model in models:
        taskloom.save(model, path)
        seeds.append(path.read_bytes())
    path.unlink()
    return seeds


# --- accidents ------------------------------------------------------------------------------------------------------------


def overwrite(data: bytes, rng: Rng) -> bytes:
    at, n = int(rng.integers(len(data))), int(rng.integers(1, 64))
    filler = [rng.bytes(n), b"\0" * n, b"\xff" * n, data[:n]][int(rng.integers(4))]
    return data[:at] + filler + data[at + n :]


def cut(data: bytes, rng: Rng) -> bytes:
    return data[: int(rng.integers(len(data)))]


def lengthen(data: bytes, rng: Rng) -> bytes:
    return data + rng.bytes(int(rng.integers(1, 200)))


def move_a_piece(data: bytes, rng: Rng) -> bytes:
    (a, b), to = sorted(rng.integers(len(data), size=2)), int(rng.integers(len(data)))
    piece = data[a:b]
    rest = data if rng.random() < 0.5 else data[:a] + data[b:]
    return rest[:to] + piece + rest[to:]


def splice(data: bytes, rng: Rng, seeds: list[bytes]) -> bytes:
    other = seeds[int(rng.integers(len(seeds)))]
    return data[: int(rng.integers(len(data)))] + other[int(rng.integers(len(other))) :]


def lie_about_the_length(data: bytes, rng: Rng) -> bytes:
    true = int.from_bytes(data[:8], "little")
    lies = [
        0,
        1,
        2,
        true - 1,
        true + 1,
        len(data) - 8,
        len(data),
        1 << 26,
        (1 << 26) + 1,
        1 << 40,
        (1 << 63) - 1,
        (1 << 64) - 1,
    ]
    lie = lies[int(rng.integers(len(lies)))] if rng.random() < 0.7 else int(rng.integers(0, 2 * len(data)))
    return struct.pack("<Q", lie) + data[8:]


# --- headers --------------------------------------------------------------------------------------------------------------

SIZES = [0, 1, 3, -1, 1.5, 10**30, 1 << 31, 1 << 40, 1 << 60, (1 << 63) - 1, (1 << 64) - 1, "9", None, [], True]
KINDS = ["F64", "F32", "I64", "U8", "BOOL", "BF16", "F8_E4M3", "C64", "object", "O", "|O", "", None, 7]
NAMES = ["../../etc/passwd", "/dev/zero", "0", "__metadata__", "", "a\0b", "\ud800", "x" * 100_000, "__class__", "C:\\con"]


def lie_about_an_array(data: bytes, rng: Rng) -> bytes:
    parts = Parts(data)
    header = parts.header
    names = [name for name in header if name != "__metadata__"]
    entry = header[name := names[int(rng.integers(len(names)))]]
    match int(rng.integers(7)):
        case 0:
            entry["shape"] = [SIZES[i] for i in rng.integers(len(SIZES), size=int(rng.integers(0, 5)))]
        case 1:
            entry["dtype"] = KINDS[int(rng.integers(len(KINDS)))]
        case 2:
            entry["data_offsets"] = [SIZES[i] for i in rng.integers(len(SIZES), size=2)]
        case 3:
            a, b = entry["data_offsets"]
            entry["data_offsets"] = [[a + 8, b + 8], [a, b + 1], [b, a], [0, len(parts.body)]][int(rng.integers(4))]
        case 4:
            header[NAMES[int(rng.integers(len(NAMES)))]] = header.pop(name)
        case 5:
            header[names[int(rng.integers(len(names)))]] = [None, [], "text", {}, 5][int(rng.integers(5))]
        case _:
            entry["shape"] = [1 << int(rng.integers(20, 63))] * int(rng.integers(1, 4))
            entry["data_offsets"] = [0, 1 << int(rng.integers(20, 63))]
    return parts.with_header(header)


def twice(data: bytes, rng: Rng) -> bytes:
    """A name that occurs twice: of an array, of the description, in the description."""
    parts = Parts(data)
    text = json.dumps(parts.header)
    name = list(parts.header)[int(rng.integers(len(parts.header)))]
    if rng.random() < 0.5:
        return parts.with_header(text[:-1] + f", {json.dumps(name)}: {json.dumps(parts.header[name])}}}")
    model = json.dumps(parts.tree)
    return parts.signed(model[:-1] + ', "class": "MultiTaskRegressor"}' if '"class"' in model else model)


def strange_json(data: bytes, rng: Rng) -> bytes:
    """NaN and infinity, depth, length, surrogates, numbers of a million digits: in the header or in the model."""
    deep = int(rng.integers(10, 100_000))
    odd = [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "-0",
        "1" * int(rng.integers(10, 200_000)),
        "[" * deep + "]" * deep,
        '{"a":' * deep + "1" + "}" * deep,
        '"' + "\\ud800" * 3 + '"',
        '"' + "x" * 300_000 + '"',
        "[" + "0," * 100_000 + "0]",
        "null",
        "'single'",
        "0x10",
        "",
    ][int(rng.integers(15))]
    parts = Parts(data)
    model = json.dumps(parts.tree)
    marks = [i for i, c in enumerate(model) if c == ":"]
    at = marks[int(rng.integers(len(marks)))] + 1
    match int(rng.integers(3)):
        case 0:
            return parts.with_header(f'{{"__metadata__": {odd}}}')
        case 1:
            return parts.with_header(f'{json.dumps(parts.header)[:-1]}, "more": {odd}}}')
        case _:
            end = min(i for i in (model.find(",", at), model.find("}", at), len(model)) if i >= 0)
            return parts.signed(model[:at] + odd + model[end:])


def lie_about_the_file(data: bytes, rng: Rng) -> bytes:
    parts = Parts(data)
    name = ["format", "version", "written_by", "model", "sha256", "more"][int(rng.integers(6))]
    lies: list[Any] = [None, 1, "", "2", "0", "-1", "1.0", "9" * 50, "٣", "taskloom", "pickle", "{}", "[]", [], {}, "\x1b[2J"]
    if rng.random() < 0.2:
        parts.metadata.pop(name, None)
    else:
        parts.metadata[name] = lies[int(rng.integers(len(lies)))]
    return parts.with_header(parts.header)


# --- forgeries ------------------------------------------------------------------------------------------------------------


def places(node: Any, at: tuple = ()) -> list[tuple]:
    """Where something could be changed."""
    found = []
    for key, value in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
        found.append((*at, key))
        found += places(value, (*at, key))
    return found


def within(tree: Any, way: tuple) -> Any:
    for key in way:
        tree = tree[key]
    return tree


def change_the_tree(data: bytes, rng: Rng) -> bytes:
    """One to three values replaced, taken away, doubled, exchanged for another part of the tree, or moved a little."""
    parts = Parts(data)
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        ways = places(parts.tree)
        if not ways:
            break
        *way, last = ways[int(rng.integers(len(ways)))]
        holder = within(parts.tree, tuple(way))
        match int(rng.integers(8)):
            case 0:
                del holder[last]
            case 1:
                other = within(parts.tree, ways[int(rng.integers(len(ways)))])
                holder[last] = json.loads(json.dumps(other))
            case 2 if isinstance(holder, list):
                holder.insert(last, json.loads(json.dumps(holder[last])))
            case 2:
                holder[NAMES[int(rng.integers(len(NAMES)))]] = holder.pop(last)
            case 3 if isinstance(holder[last], (int, float)) and not isinstance(holder[last], bool):
                by = float(rng.choice([0.0, -1.0, 2.0, 1e300, 1e-300]))
                holder[last] = type(holder[last])(holder[last] * by) if abs(by) < 1e10 else holder[last] * by
            case 4:
                holder[last] = [holder[last]]
            case _:
                holder[last] = json.loads(json.dumps(STRANGE[int(rng.integers(len(STRANGE)))]))
    return parts.signed()


def change_an_array(data: bytes, rng: Rng) -> bytes:
    """Another type, shape or order, numbers that are none, or far too large; taken away, doubled, exchanged."""
    parts = Parts(data)
    names = list(parts.arrays)
    name, other = (names[i] for i in rng.integers(len(names), size=2))
    array = parts.arrays[name].copy()
    match int(rng.integers(11)):
        case 0:
            array = array.astype(rng.choice(["f4", "f2", "i8", "u1", "b1", "i4"])) if array.size < 1000 else array
        case 1:
            array = array.reshape([(-1,), (1, -1), (-1, 1), (1, 1, -1)][int(rng.integers(4))])
        case 2:
            array = array.T
        case 3:
            array = array[: int(rng.integers(max(len(array), 1)))] if array.ndim else array
        case 4:
            array = np.concatenate([array, array]) if array.ndim else array
        case 5 | 6 if array.dtype.kind == "f" and array.size:
            array.flat[int(rng.integers(array.size))] = rng.choice([np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0, -1.0])
        case 5 | 6 if array.size and array.dtype.kind in "iu":
            array.flat[int(rng.integers(array.size))] = rng.choice([0, -1, 99, 127])
        case 7:
            array = np.zeros_like(array)
        case 8:
            array = parts.arrays[other]
        case 9:
            array = np.zeros((0, *array.shape[1:]), array.dtype) if array.ndim else array
        case _:
            del parts.arrays[name]
            return parts.signed()
    parts.arrays[name] = array
    return parts.signed()


def fill_the_memory(data: bytes, rng: Rng) -> bytes:
    """Few bytes that ask for many: shapes, texts that all take the room of the longest, counts of components."""
    parts = Parts(data)
    n = 1 << int(rng.integers(20, 62))
    asks = greedy(n)
    parts.arrays |= {"s": np.zeros(0), "p": np.zeros(3, dtype=np.int64)}
    ways = [way for way in places(parts.tree) if len(way) > 1 and ("params" in way or "fitted" in way)]
    *way, last = ways[int(rng.integers(len(ways)))]
    within(parts.tree, tuple(way))[last] = asks[int(rng.integers(len(asks)))]
    return parts.signed()


def kinds(seeds: list[bytes], mark: Path) -> dict[str, Callable[[bytes, Rng], bytes]]:
    """Every kind of change by name, with a share of the cases for each."""
    return {
        "flipped bits": flip_bits,
        "overwritten": overwrite,
        "cut short": cut,
        "lengthened": lengthen,
        "a piece moved or doubled": move_a_piece,
        "two files in one": partial(splice, seeds=seeds),
        "a false length of the header": lie_about_the_length,
        "a false array in the header": lie_about_an_array,
        "a name twice": twice,
        "strange JSON": strange_json,
        "false metadata": lie_about_the_file,
        "another tree, right checksum": change_the_tree,
        "another array, right checksum": change_an_array,
        "asks for memory, right checksum": fill_the_memory,
        "pickles, archives, other formats": Others(mark).draw,
    }


SHARES = {"another tree, right checksum": 6, "another array, right checksum": 3, "pickles, archives, other formats": 0.5}


def draw(seed: int, k: int, seeds: list[bytes], changes: dict[str, Callable[[bytes, Rng], bytes]]) -> tuple[str, bytes]:
    """Case ``k``: the name of its kind, and the file."""
    rng = np.random.default_rng([seed, k])
    names = list(changes)
    share = np.array([SHARES.get(name, 1.0) for name in names])
    kind = names[int(rng.choice(len(names), p=share / share.sum()))]
    return kind, changes[kind](seeds[int(rng.integers(len(seeds)))], rng)
