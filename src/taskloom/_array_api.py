"""Arrays of other libraries: NumPy, PyTorch and CuPy behind one name, ``xp``, and the few things the standard does not have.

The only place that knows scikit-learn's vendored array-api-compat. It needs no ``SCIPY_ARRAY_API``: nothing is dispatched, code
that is written with ``xp`` runs on what it is given.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg.lapack import dtrtri

from ._component import require

SMALL = 400  # symmetric matrices up to this size are decomposed by the host: it is done before a card has begun
NO_CARD = (
    'device={device!r} needs PyTorch or CuPy with a CUDA device, and {why}; pip install "taskloom[torch]" on a machine with a '
    "card, or leave device=None"
)


def library(array: Any) -> str | None:
    """``"torch"`` or ``"cupy"`` for an array of theirs (neither is imported to find out), ``"numpy"``, else ``None``."""
    if isinstance(array, np.ndarray):
        return "numpy"
    owner = type(array).__module__.partition(".")[0]
    return owner if owner in ("torch", "cupy", "array_api_strict") and hasattr(array, "dtype") else None


def namespace(array: Any) -> ModuleType:
    """The functions of the array-API standard for arrays of this library."""
    name = library(array)
    if name in ("numpy", "array_api_strict"):
        return import_module(str(name))
    try:
        return import_module(f"sklearn.externals.array_api_compat.{name}")
    except ImportError:  # scikit-learn before 1.7
        return import_module(f"array_api_compat.{name}")


def on_card(array: Any) -> bool:
    """Whether an array lies on an accelerator."""
    return library(array) == "cupy" or (library(array) == "torch" and array.device.type != "cpu")


def to_numpy(array: Any) -> Any:
    """An array of another library as NumPy's, copied to the host if need be; anything else as it is."""
    name = library(array)
    if name == "cupy":
        return array.get()
    return np.asarray(array.detach().cpu() if name == "torch" else array) if name is not None else array


def like(values: np.ndarray, array: Any) -> Any:
    """NumPy's numbers in the library, on the device and (if they are floats) in the precision of another array."""
    if library(array) in (None, "numpy"):
        return values.astype(array.dtype, copy=False) if isinstance(array, np.ndarray) and values.dtype.kind == "f" else values
    xp = namespace(array)
    kept = np.ascontiguousarray(values)
    return xp.asarray(kept, dtype=array.dtype if kept.dtype.kind == "f" else None, device=array.device)


def card_array(array: Any, device: str) -> Any:
    """An array on the device that was asked for: it stays in its library; NumPy's go to PyTorch, or else to CuPy."""
    name = library(array)
    require(name is not None, f"a device takes arrays of NumPy, PyTorch or CuPy, got {type(array).__name__}")
    if device == "cpu":
        require(not on_card(array), 'device="cpu" needs arrays on the host; pass device=None for arrays on a card')
        return array
    if on_card(array):
        return array
    why = "neither is installed"
    if name == "torch" or _installed("torch"):
        import torch

        if torch.cuda.is_available():
            return torch.as_tensor(array, device=device)
        why = "PyTorch sees none"
    if name != "torch" and _installed("cupy"):
        import cupy

        if cupy.cuda.is_available():
            with cupy.cuda.Device(int(device.partition(":")[2] or 0)):
                return cupy.asarray(array)
        why = "CuPy sees none"
    raise ValueError(NO_CARD.format(device=device, why=why))


def _installed(name: str) -> bool:
    try:
        import_module(name)
    except ImportError:
        return False
    return True


def inner(a: Any, b: Any) -> float:
    """The sum of products, added up in double precision."""
    if isinstance(a, np.ndarray):
        return float(np.vdot(a, b))
    xp = namespace(a)
    return float(xp.sum(a * b, dtype=xp.float64))


def times(M: Any, x: Any) -> Any:
    """``M x`` for each matrix of a stack (``B x m x d``) and each vector (``B x d``)."""
    return (M @ x[:, :, None])[:, :, 0]


def times_transposed(M: Any, x: Any) -> Any:
    """``M'x`` for each matrix of a stack (``B x m x d``) and each vector (``B x m``)."""
    return (x[:, None, :] @ M)[:, 0, :]


def eigh(M: Any) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (ascending) and vectors of a symmetric matrix as NumPy's, decomposed on the host where it is small."""
    if library(M) == "numpy" or M.shape[0] <= SMALL:
        return np.linalg.eigh(to_numpy(M).astype(float, copy=False))
    values, vectors = namespace(M).linalg.eigh(M)
    return to_numpy(values).astype(float), to_numpy(vectors).astype(float)


def inverse_roots(K: Any) -> Any:
    """``R`` with ``K^-1 = R'R``, for each of the positive definite matrices ``K``."""
    name, xp = library(K), namespace(K)
    L = xp.linalg.cholesky(K)
    if name == "numpy":
        if L.dtype != np.float64:
            return np.linalg.inv(L)
        for matrix in L:
            dtrtri(matrix.T, lower=0, overwrite_c=1)  # in place: the transpose of a C matrix is what LAPACK calls one
        return L
    eye = xp.eye(K.shape[-1], dtype=K.dtype, device=K.device)
    if name == "torch":
        return xp.linalg.solve_triangular(L, eye, upper=False)
    return xp.linalg.inv(L)
