"""JSON as values again. Only what :mod:`encode` writes is read, and classes come from a list: a file cannot run anything."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse

from . import limits
from .allowed import PACKAGES, RENAMED, classes
from .archive import KINDS
from .refusal import ModelFileError, check

Array = np.ndarray
_TIMES = ("datetime64", "timedelta64")
_UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns")
_NUMBERS = {np.dtype(code).name: np.dtype(code).type for code in KINDS.values()}
_ROOM = 1 << 26  # bytes of arrays that stand in lists and in kernels, besides four times those of the file


class Decoder:
    """Values of a tree of JSON values.

    Parameters
    ----------
    arrays : dict of ndarray
        The arrays of the file, by name.
    more : dict of callables, default=None
        Readers ``reader(node, decoder)`` of kinds that this module does not know.
    """

    def __init__(self, arrays: dict[str, Array], more: dict[str, Callable[[dict, Decoder], Any]] | None = None):
        self.arrays = arrays
        self._fortran: dict[str, Array] = {}
        self._components: dict[str, Any] = {}  # a search has the same structure at every alpha
        self._keys: dict[int, str] = {}  # of the components, by their identity
        self._room = _ROOM + 4 * sum(array.nbytes for array in arrays.values())
        self._readers: dict[str, Callable[[dict, Decoder], Any]] = dict(more or {})

    def decode(self, node: Any) -> Any:
        """The value that a node stands for.

        Parameters
        ----------
        node : object
            A JSON value.

        Returns
        -------
        object
            What was encoded.
        """
        if node is None or type(node) in (bool, int, str):
            return node
        if type(node) is float:
            check(math.isfinite(node), "a number is out of range")
            return node
        if type(node) is list:
            return self._named([self.decode(entry) for entry in node])
        check(isinstance(node, dict) and isinstance(node.get("@"), str), "a value has no kind")
        kind = node["@"]
        if kind in self._readers:
            return self._readers[kind](node, self)
        if kind in PACKAGES:
            return self._component(kind, node)
        reader = getattr(self, f"_read_{kind}", None) if kind.isidentifier() else None
        check(reader is not None, f"there is no kind of value {kind[:40]!r}")
        return reader(node)  # type: ignore[misc]

    def decode_items(self, node: Any) -> dict[str, Any]:
        """The values of a plain JSON object.

        Parameters
        ----------
        node : dict
            A JSON object.

        Returns
        -------
        dict
            Its values, decoded.
        """
        check(isinstance(node, dict), "parameters are missing")
        return {name: self.decode(value) for name, value in node.items()}

    def _named(self, values: list) -> list:
        """Values that may be one array many times, of which NumPy and scikit-learn make copies and texts."""
        self._room -= sum(value.nbytes for value in values if isinstance(value, np.ndarray))
        check(self._room >= 0, "it names its arrays too often")
        return values

    def _component(self, kind: str, node: dict) -> Any:
        name, params = node.get("class"), self.decode_items(node.get("params"))
        if isinstance(name, str) and (kind, name) in RENAMED:
            name, new_names = RENAMED[kind, name]
            params = {new_names.get(param, param): value for param, value in params.items()}
        cls = classes(kind).get(name) if isinstance(name, str) else None
        check(cls is not None, f"there is no {kind} {str(name)[:40]!r} that a model file may name")
        if kind == "kernel":
            self._named(list(params.values()))
            check_threads(params.get("pairwise_kernels_kwargs"))
        key = f"{kind}:{name}:{self._key(params)}"
        if key not in self._components:
            made = getattr(cls, "restored", cls)(**params)  # type: ignore[misc]
            self._components[key], self._keys[id(made)] = made, f"#{len(self._keys)}"
        return self._components[key]

    def _key(self, value: Any) -> str:
        """A text that is the same for the same value; arrays and components are themselves, so that it stays short."""
        if isinstance(value, (list, tuple)):
            return f"{type(value).__name__}({','.join(map(self._key, value))})"
        if isinstance(value, dict):
            return "{" + ",".join(f"{self._key(name)}:{self._key(entry)}" for name, entry in value.items()) + "}"
        if isinstance(value, np.ndarray):
            return f"@{id(value)}"
        return self._keys.get(id(value)) or repr(value)

    def _read_float(self, node: dict) -> float:
        check(node.get("value") in ("nan", "inf", "-inf"), "a number is not readable")
        return float(node["value"])

    def _read_tuple(self, node: dict) -> tuple:
        return tuple(self.decode(_listed(node, "values")))

    def _read_dict(self, node: dict) -> dict:
        items = self.decode(_listed(node, "items"))
        check(all(isinstance(item, list) and len(item) == 2 for item in items), "a dictionary is not readable")
        try:
            limits.check_keys(key for key, _ in items)
            table = dict(items)
        except TypeError:
            raise ModelFileError("a dictionary has a key that cannot be one") from None
        check(len(table) == len(items), "a dictionary has a key twice")
        return table

    def _read_scalar(self, node: dict) -> Any:
        dtype, value = str(node.get("dtype")), node.get("value")
        if dtype == "str":
            check(isinstance(value, str), "a text is not readable")
            return np.str_(value)
        if dtype in _TIMES:
            return getattr(np, dtype)(_whole(value), _unit(node))
        check(dtype in _NUMBERS, "a number has an unknown type")
        number = self.decode(value)
        check(isinstance(number, (bool, int, float)), "a number is not readable")
        return _NUMBERS[dtype](number)

    def _read_array(self, node: dict) -> Array:
        name, order = node.get("name"), node.get("order", "C")
        check(isinstance(name, str) and name in self.arrays, "an array is missing")
        check(order in ("C", "F"), "an array has an unknown order")
        array = self.arrays[name]  # type: ignore[index]
        if "time" in node:
            check(node["time"] in _TIMES and array.dtype == np.int64, "an array of times is not readable")
            return array.view(f"{node['time']}[{_unit(node)}]")
        if order == "F" and name not in self._fortran:
            self._fortran[name] = np.asfortranarray(array)  # type: ignore[index]
        return self._fortran[name] if order == "F" else array  # type: ignore[index]

    def _read_strings(self, node: dict) -> Array:
        values = _listed(node, "values")
        check(all(isinstance(value, str) for value in values), "an array of texts is not readable")
        longest = max(map(len, values), default=0)
        return np.array(values, dtype=f"U{max(longest, 1)}").reshape(_shape(node, len(values)))

    def _read_objects(self, node: dict) -> Array:
        values = self.decode(_listed(node, "values"))
        return np.fromiter(values, dtype=object).reshape(_shape(node, len(values)))

    def _read_sparse(self, node: dict) -> Any:
        name = str(node.get("class"))
        check(name in ("csr_array", "csr_matrix"), "a sparse matrix is of an unknown kind")
        parts = [self.decode(node.get(part)) for part in ("data", "indices", "indptr")]
        check(all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts), "a sparse matrix is not readable")
        shape = _sizes(node.get("shape"))
        right = len(shape) == 2 and len(parts[2]) == shape[0] + 1 and shape[1] <= limits.COLUMNS
        check(right, "a sparse matrix has the wrong shape")
        matrix = getattr(scipy.sparse, name)(tuple(parts), shape=shape)
        matrix.check_format(full_check=True)
        return matrix

    def _read_date(self, node: dict) -> datetime.date:
        return getattr(datetime, node["@"]).fromisoformat(str(node.get("value")))

    _read_datetime = _read_date

    def _read_timestamp(self, node: dict) -> Any:
        try:
            pandas = import_module("pandas")
        except ImportError:
            raise ImportError("this model has times of pandas in it: python -m pip install pandas") from None
        unit = _unit(node)
        return pandas.Timestamp(np.int64(_whole(node.get("value"))).astype(f"datetime64[{unit}]")).as_unit(unit)


def _listed(node: dict, name: str) -> list:
    values = node.get(name)
    check(isinstance(values, list), "a list is missing")
    return values  # type: ignore[return-value]


def _whole(value: Any) -> int:
    check(type(value) is int and abs(value) < 1 << 63, "a time is not readable")
    return value


def _unit(node: dict) -> str:
    check(node.get("unit") in _UNITS, "a time has an unknown unit")
    return node["unit"]


def _sizes(shape: Any) -> tuple[int, ...]:
    short = isinstance(shape, list) and len(shape) <= limits.DIMENSIONS
    whole = short and all(type(size) is int and 0 <= size < 1 << 48 for size in shape)
    check(whole, "a shape is not readable")
    return tuple(shape)


def _shape(node: dict, count: int) -> tuple[int, ...]:
    shape = _sizes(node.get("shape"))
    check(math.prod(shape) == count, f"{count} values do not have the shape {list(shape)}")
    return shape


def check_threads(settings: Any) -> None:
    """A kernel may be computed by some threads, not by millions."""
    n_jobs = settings.get("n_jobs") if isinstance(settings, dict) else None
    check(n_jobs is None or (type(n_jobs) is int and n_jobs <= limits.THREADS), f"n_jobs={n_jobs!r} is no number of threads")
