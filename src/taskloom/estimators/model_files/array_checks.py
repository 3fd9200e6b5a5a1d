"""Checks of arrays in a model file: type, shape, finite numbers, labels that differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...persistence.limits import check_keys
from ...persistence.refusal import check

Array = np.ndarray


def check_numbers(name: str, array: Any, shape: tuple[int, ...], dtype: np.dtype | None = None) -> None:
    """Finite numbers of this shape, in single or double precision."""
    check(isinstance(array, np.ndarray), f"{name} is no array")
    check(array.shape == shape, f"{name} has the shape {array.shape}, not {shape}")
    check(array.dtype == dtype if dtype is not None else array.dtype in ("f4", "f8"), f"{name} is of type {array.dtype}")
    check(bool(np.isfinite(array).all()), f"{name} is not finite")


def check_matrix(name: str, array: Any) -> None:
    """A matrix of finite numbers in double precision, of any shape."""
    check(isinstance(array, np.ndarray) and array.ndim == 2, f"{name} is no matrix")
    check_numbers(name, array, array.shape, np.dtype(float))


def check_positions(name: str, index: Any, count: int, top: int) -> None:
    """``count`` whole numbers from 0 to ``top - 1``."""
    good = isinstance(index, np.ndarray) and index.dtype.kind == "i" and index.shape == (count,)
    check(good and (count == 0 or (index.min() >= 0 and index.max() < top)), f"{name} is out of range")


def are_labels(labels: Any, count: int) -> bool:
    """Whether this is an array of so many labels, no two alike."""
    if not (isinstance(labels, np.ndarray) and labels.shape == (count,)):
        return False
    if labels.dtype.kind not in "OU":
        ordered = np.sort(labels)
        return bool((ordered[1:] != ordered[:-1]).all())
    values = labels.tolist()
    check_keys(values)
    return len(set(values)) == count


def are_names(given: Any, count: Any) -> bool:
    """Whether this is an array of so many texts."""
    return isinstance(given, np.ndarray) and given.shape == (count,) and all(isinstance(name, str) for name in given)
