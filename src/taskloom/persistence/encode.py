"""Values as JSON: plain ones as they are, others as ``{"@": kind, ...}``, arrays by the name that they have in the file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import issparse

from . import limits
from .allowed import kind_of, parameters
from .archive import KINDS
from .refusal import ModelFileError, check

Array = np.ndarray
_STORED = {np.dtype(code) for code in KINDS.values()}


class Encoder:
    """Turns values into JSON and collects their arrays; an array that occurs twice is held once.

    What cannot be stored is named in the error.

    Parameters
    ----------
    more : dict of callables, default=None
        Writers ``writer(value, encoder)`` of types that this module does not know.
    """

    def __init__(self, more: dict[type, Callable[[Any, Encoder], Any]] | None = None) -> None:
        self.arrays: dict[str, Array] = {}
        self._more = more or {}
        self._names: dict[int, tuple[str, Array]] = {}  # keeps what it names alive, so that identities stay its own

    def encode(self, value: Any, where: str) -> Any:
        """A value as JSON; its arrays go to ``arrays``.

        Parameters
        ----------
        value : object
            What to store.
        where : str
            What the value is called in an error.

        Returns
        -------
        object
            A JSON value.
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"@": "float", "value": repr(value)}
        if type(value) in self._more:
            return self._more[type(value)](value, self)
        if isinstance(value, np.generic):
            return self._scalar(value, where)
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if issparse(value):
            return self._sparse(value, where)
        if type(value) is list:
            return [self.encode(entry, where) for entry in value]
        if type(value) is tuple:
            return {"@": "tuple", "values": [self.encode(entry, where) for entry in value]}
        if type(value) is dict:
            limits.check_keys(value)
            items = [[self.encode(key, where), self.encode(entry, f"{where}[{key!r}]")] for key, entry in value.items()]
            return {"@": "dict", "items": items}
        if isinstance(value, datetime.date):
            return _moment(value, where)
        kind = kind_of(value)
        if kind is not None:
            name = type(value).__name__
            params = {key: self.encode(entry, f"{where}.{key}") for key, entry in parameters(value).items()}
            return {"@": kind, "class": name, "params": params}
        rid = " (or set_params(scoring=None): predictions do not need it)" if where.startswith("scoring") else ""
        raise ModelFileError(
            f"{where} is {_described(value)}, which a model file cannot hold (data, no code); take one of taskloom's or "
            f"scikit-learn's own by name{rid}, or pickle the model"
        )

    def _scalar(self, value: np.generic, where: str) -> Any:
        if isinstance(value, np.str_):
            return {"@": "scalar", "dtype": "str", "value": str(value)}
        if value.dtype.kind in "mM":
            unit = np.datetime_data(value.dtype)[0]  # type: ignore[arg-type]
            return {"@": "scalar", "dtype": value.dtype.name.split("[")[0], "unit": unit, "value": int(value.astype(np.int64))}
        if value.dtype not in _STORED:
            raise ModelFileError(f"{where} is a number of type {value.dtype}, which a model file cannot hold")
        return {"@": "scalar", "dtype": value.dtype.name, "value": self.encode(value.item(), where)}

    def _array(self, array: Array, where: str) -> Any:
        if array.dtype.kind == "U":
            return {"@": "strings", "shape": list(array.shape), "values": array.ravel().tolist()}
        if array.dtype.kind == "O":
            values = [self.encode(entry, where) for entry in array.ravel().tolist()]
            return {"@": "objects", "shape": list(array.shape), "values": values}
        node: dict[str, Any] = {"@": "array"}
        if array.dtype.kind in "mM":
            unit, count = np.datetime_data(array.dtype)
            if count != 1:
                raise ModelFileError(f"{where} holds times in units of {count} {unit}, which a model file cannot hold")
            node |= {"time": array.dtype.name.split("[")[0], "unit": unit}
        elif array.dtype.newbyteorder("<") not in _STORED:
            raise ModelFileError(f"{where} is an array of type {array.dtype}, which a model file cannot hold")
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            node["order"] = "F"  # sums run in the order of memory: predictions are the same to the last bit
        if id(array) not in self._names:
            self._names[id(array)] = (f"{len(self.arrays)}", array)
            self.arrays[f"{len(self.arrays)}"] = array.view(np.int64) if array.dtype.kind in "mM" else array
        return node | {"name": self._names[id(array)][0]}

    def _sparse(self, matrix: Any, where: str) -> Any:
        if matrix.format != "csr":
            raise ModelFileError(f"{where} is a sparse matrix by {matrix.format!r}, which a model file cannot hold")
        check(matrix.shape[1] <= limits.COLUMNS, f"{where} has {matrix.shape[1]} columns, too many for a model file")
        parts = {name: self._array(getattr(matrix, name), where) for name in ("data", "indices", "indptr")}
        return {"@": "sparse", "class": type(matrix).__name__, "shape": list(matrix.shape)} | parts


def _moment(value: Any, where: str) -> Any:
    """A date, a date and time, or pandas' own, which has a unit."""
    if getattr(value, "tzinfo", None) is not None:
        raise ModelFileError(f"{where} holds a time with a zone ({value}), which a model file cannot hold; convert it to UTC")
    if type(value) is datetime.date or type(value) is datetime.datetime:
        return {"@": type(value).__name__, "value": value.isoformat()}
    if type(value).__name__ == "Timestamp" and hasattr(value, "asm8"):
        return {"@": "timestamp", "unit": value.unit, "value": int(value.asm8.astype(np.int64))}
    raise ModelFileError(f"{where} is {_described(value)}, which a model file cannot hold")


def _described(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    return f"the function {name}" if callable(value) and name else f"of type {type(value).__name__}"
