"""A file on disk: 8 bytes of header length, a JSON header, arrays (the safetensors format), with a checksum over all of it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import limits
from .atomic import atomic_write
from .refusal import ModelFileError, check

Array = np.ndarray
FORMAT = "taskloom"
VERSION = 1
MAX_HEADER = 64 << 20  # bytes; names of tasks are in it
KINDS = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "|u1",
    "BOOL": "|b1",
}


def _library() -> Any:
    try:
        import safetensors.numpy
    except ImportError:
        raise ImportError('model files need the package safetensors: python -m pip install "taskloom[files]"') from None
    return safetensors


def write(path: str | os.PathLike, tree: Any, arrays: dict[str, Array], written_by: str) -> None:
    """Write a model (a tree of JSON values that names arrays) as one file, all or nothing.

    Parameters
    ----------
    path : str or path
        Where the file is to be.
    tree : object
        A JSON value.
    arrays : dict of ndarray
        The arrays, by the names that ``tree`` gives them.
    written_by : str
        Name and version of the writer.
    """
    library = _library()
    metadata = {"format": FORMAT, "version": str(VERSION), "written_by": written_by, "model": json.dumps(tree, allow_nan=False)}
    parts = {name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    metadata["sha256"] = _checksum(metadata, parts)
    data = library.numpy.save(parts, metadata)
    fits = int.from_bytes(data[:8], "little") <= MAX_HEADER
    check(fits, f"names and settings of this model need more than {MAX_HEADER >> 20} MiB, too much for a file")
    atomic_write(path, data)


def read(path: str | os.PathLike) -> tuple[Any, dict[str, Array], dict[str, str]]:
    """The tree, the arrays and the metadata of a model file, after every check that needs no knowledge of models.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    tree : object
        A JSON value.
    arrays : dict of ndarray
        The arrays, by name.
    metadata : dict of str
        Format, version, writer and checksum.
    """
    library = _library()
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        check(stat.S_ISREG(status.st_mode), f"{path} is not a regular file")
        start = file.read(8)
        length = int.from_bytes(start, "little")
        whole = len(start) == 8 and 2 <= length <= min(MAX_HEADER, status.st_size - 8)
        check(whole, f"{path} is not a taskloom model file, or it is cut short ({status.st_size} bytes)")
        header = file.read(length)
        metadata = _metadata(path, header)
        rest = file.read()
    try:
        entries = library.deserialize(start + header + rest)
    except library.SafetensorError as error:
        raise ModelFileError(f"{path} is damaged or cut short: {error}") from None
    arrays = {name: _array(path, entry) for name, entry in entries}
    same = _checksum(metadata, arrays) == metadata.get("sha256")
    check(same, f"{path} is damaged: its content does not match its checksum; copy or save it again")
    tree = strict_json(path, metadata["model"].encode("utf-8", "surrogatepass"))
    with _naming(path):
        limits.check_tree(tree, arrays, len(metadata["model"]))
    return tree, arrays, metadata


def _array(path: Any, entry: dict[str, Any]) -> Array:
    check(entry["dtype"] in KINDS, f"{path} holds an array of type {entry['dtype']}, which no model has")
    flat = np.frombuffer(bytearray(entry["data"]), dtype=KINDS[entry["dtype"]])
    with _naming(path):
        limits.check_shape(entry["shape"], flat.size)
    return flat.reshape(entry["shape"])


@contextmanager
def _naming(path: Any) -> Iterator[None]:
    """Refusals of a limit name the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path} is not usable: {error}") from None


def _metadata(path: Any, header: bytes) -> dict[str, str]:
    """What the header says about the file, if it is one of ours, of a version that we can read."""
    table = strict_json(path, header)
    metadata: Any = table.get("__metadata__") if isinstance(table, dict) else None
    ours = isinstance(metadata, dict) and metadata.get("format") == FORMAT
    check(ours, f"{path} is not a taskloom model file")
    version = metadata.get("version")
    numbered = isinstance(version, str) and version.isascii() and version.isdigit() and len(version) < 10 and int(version) > 0
    check(numbered, f"{path} is damaged: it has no version number")
    newer = f"{path} was written by a newer taskloom (its format is {int(version)}, ours is {VERSION}); upgrade taskloom"
    check(int(version) <= VERSION, newer)
    complete = all(isinstance(value, str) for value in metadata.values()) and "model" in metadata
    check(complete, f"{path} is damaged: its description is incomplete")
    small = len(metadata) <= limits.WORDS and len(table) <= limits.ARRAYS + 1
    check(small, f"{path} is not usable: it has more than {limits.ARRAYS} arrays, or {limits.WORDS} words about itself")
    return metadata


def strict_json(path: Any, data: bytes) -> Any:
    """JSON without duplicate names, without NaN, of a limited number of values, and not nested without end."""
    with _naming(path):
        limits.check_text(data)

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            raise ValueError("a name occurs twice")
        return table

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(data.decode("utf-8", "surrogatepass"), object_pairs_hook=once, parse_constant=refuse)
    except UnicodeDecodeError:
        raise ModelFileError(f"{path} is not a taskloom model file (its header is not text)") from None
    except RecursionError:
        raise ModelFileError(f"{path} is damaged: its description is nested too deeply") from None
    except ValueError as error:
        raise ModelFileError(f"{path} is damaged: its description is not readable ({error})") from None


def _checksum(metadata: dict[str, str], arrays: dict[str, Array]) -> str:
    """Over everything in the file but the checksum itself. It finds accidents, not forgery."""
    digest = hashlib.sha256()
    for key in sorted(metadata.keys() - {"sha256"}):
        digest.update(json.dumps([key, metadata[key]]).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(json.dumps([name, array.dtype.str, list(array.shape)]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data if array.size else b"")  # one number alone has no other view
    return digest.hexdigest()
