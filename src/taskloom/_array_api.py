"""NumPy, PyTorch and CuPy arrays through the array API standard (``xp``), and functions that the standard lacks.

Uses the array-api-compat that scikit-learn vendors. ``SCIPY_ARRAY_API`` is not needed.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri

MANY = 12  # number of matrices per row from which batched inversion is faster
SMALL = 400  # symmetric matrices up to this size are decomposed on the host, which is faster than a GPU
NO_CARD = (
    "device={device!r} needs PyTorch or CuPy and a CUDA device, but {why}; install taskloom[torch] on a machine with a GPU, "
    "or leave device=None"
)


def library(array: Any) -> str | None:
    """``"torch"`` or ``"cupy"`` for an array of theirs (without importing them), ``"numpy"``, else ``None``."""
    if isinstance(array, np.ndarray):
        return "numpy"
    owner = type(array).__module__.partition(".")[0]
    return owner if owner in ("torch", "cupy", "array_api_strict") and hasattr(array, "dtype") else None


def namespace(array: Any) -> ModuleType:
    """The array API namespace of an array."""
    if isinstance(array, np.ndarray):
        return np
    name = library(array)
    if name == "array_api_strict":
        return import_module(name)
    try:
        return import_module(f"sklearn.externals.array_api_compat.{name}")
    except ImportError:  # scikit-learn before 1.7
        return import_module(f"array_api_compat.{name}")


def on_card(array: Any) -> bool:
    """Whether an array is on an accelerator."""
    return not isinstance(array, np.ndarray) and place(array) != "cpu"


def place(array: Any) -> str:
    """The device of an array: ``"cpu"``, ``"cuda:0"``."""
    name = library(array)
    return str(array.device) if name == "torch" else f"cuda:{array.device.id}" if name == "cupy" else "cpu"


def to_numpy(array: Any) -> Any:
    """An array of another library as a NumPy array, copied to the host if needed; anything else unchanged."""
    if isinstance(array, np.ndarray):
        return array
    name = library(array)
    if name == "cupy":
        return array.get()
    if name == "torch":
        array = array.detach()
        if not on_card(array):
            return array.numpy()
        dtype = str(array.dtype).removeprefix("torch.")
        out = np.empty(tuple(array.shape), dtype)  # NumPy's memory comes in large pages: a third of the time of a copy
        import_module("torch").from_numpy(out).copy_(array)
        return out
    return np.asarray(array) if name == "array_api_strict" else array


def like(values: np.ndarray, array: Any) -> Any:
    """A NumPy array converted to the library, device and dtype of another array."""
    if isinstance(array, np.ndarray):
        return values.astype(array.dtype, copy=False)
    return namespace(array).asarray(np.ascontiguousarray(values), dtype=array.dtype, device=array.device)


def following(values: np.ndarray, X: Any) -> Any:
    """Results computed from ``X``, in the library and on the device of ``X``; NumPy arrays for other tables."""
    if library(X) in (None, "numpy"):
        return values
    return namespace(X).asarray(np.ascontiguousarray(values), device=X.device)


def plain(array: Any) -> Any:
    """A PyTorch tensor detached from its graph, which would keep all intermediate results of a fit."""
    return array.detach() if library(array) == "torch" else array


def card_array(array: Any, device: str) -> Any:
    """An array on the requested device, in its library; NumPy arrays are converted to PyTorch, or else to CuPy."""
    name, array = library(array), plain(array)
    if device == "cpu" and on_card(array):
        raise ValueError('device="cpu" needs arrays on the host; leave device=None for arrays on a GPU')
    if device == "cpu" or on_card(array):
        return array
    owner = _card_library(device, ("torch",) if name == "torch" else ("torch", "cupy"))
    if owner.__name__ == "torch":
        return owner.as_tensor(array, device=device)
    with owner.cuda.Device(_number(device)):
        return owner.asarray(array)


def usable(device: str) -> bool:
    """Whether this machine has the device."""
    try:
        _card_library(device, ("torch", "cupy"))
    except ValueError:
        return False
    return True


def _number(device: str) -> int:
    return int(device.partition(":")[2] or 0)


def _card_library(device: str, names: tuple[str, ...]) -> ModuleType:
    """The first of these libraries that has the device, or a ``ValueError``."""
    why = "none is installed"
    for name in names:
        try:
            owner = import_module(name)
        except ImportError:
            continue
        count = owner.cuda.device_count() if name == "torch" else _cupy_devices(owner)
        if _number(device) < count:
            return owner
        why = f"{name} finds {count} devices"
    raise ValueError(NO_CARD.format(device=device, why=why))


def _cupy_devices(cupy: ModuleType) -> int:
    try:
        return cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def cast(array: Any, dtype: Any) -> Any:
    """An array with another dtype, without a copy if it is the same."""
    if isinstance(array, np.ndarray):
        return array.astype(dtype, copy=False)
    return namespace(array).astype(array, dtype, copy=False)


def double(array: Any) -> Any:
    """An array in double precision."""
    if isinstance(array, np.ndarray):
        return array if array.dtype == np.float64 else array.astype(np.float64)
    return cast(array, namespace(array).float64)


def dot(a: Any, b: Any) -> float:
    """The sum of products, in the precision of the arrays."""
    return float(np.vdot(a, b) if isinstance(a, np.ndarray) else namespace(a).sum(a * b))


def inner(a: Any, b: Any) -> float:
    """The sum of products, in double precision."""
    return dot(double(a), double(b))


def total(a: Any) -> float:
    """The sum of all numbers, in double precision."""
    return float(a.sum(dtype=float) if isinstance(a, np.ndarray) else namespace(a).sum(double(a)))


def times(M: Any, x: Any) -> Any:
    """``M x`` for each matrix of a stack (``B x m x d``) and each vector (``B x d``); a single matrix serves all vectors."""
    if M.shape[0] == 1:
        return x @ M[0, :, :].T
    return (M @ x[:, :, None])[:, :, 0]


def times_transposed(M: Any, x: Any) -> Any:
    """``M'x`` for each matrix of a stack (``B x m x d``) and each vector (``B x m``); a single matrix serves all vectors."""
    if M.shape[0] == 1:
        return x @ M[0, :, :]
    return (x[:, None, :] @ M)[:, 0, :]


def eigh(M: Any) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (ascending) and eigenvectors of a symmetric matrix as NumPy arrays; small ones are decomposed on the host."""
    if isinstance(M, np.ndarray) or M.shape[0] <= SMALL:
        return np.linalg.eigh(to_numpy(M).astype(float, copy=False))
    values, vectors = namespace(M).linalg.eigh(M)
    return to_numpy(values).astype(float), to_numpy(vectors).astype(float)


def top_eigenvalue(M: Any) -> float:
    """The largest eigenvalue of ``M'M``, from the smaller Gram matrix."""
    gram = M.T @ M if M.shape[1] <= M.shape[0] else M @ M.T
    if library(M) == "numpy" or gram.shape[0] <= SMALL:
        return float(np.linalg.eigvalsh(to_numpy(gram).astype(float, copy=False))[-1])
    return float(namespace(M).linalg.eigvalsh(gram)[-1])


def left_vectors(M: Any) -> tuple[np.ndarray, Any]:
    """Squared singular values (ascending) and left vectors, from the smaller Gram matrix; small ones are inaccurate."""
    if M.shape[0] <= M.shape[1]:
        squares, U = eigh(M @ M.T)
        return squares, like(U, M)
    squares, V = eigh(M.T @ M)
    least = float(namespace(M).finfo(M.dtype).smallest_normal)  # the inverse root of smaller numbers would overflow
    return squares, M @ like(V / np.sqrt(np.maximum(squares, least)), M)


def row_products(a: Any, b: Any) -> Any:
    """The inner product of each row of ``a`` with that of ``b``."""
    return np.einsum("ij,ij->i", a, b) if isinstance(a, np.ndarray) else namespace(a).sum(a * b, axis=1)


def column_squares(a: Any) -> np.ndarray:
    """The sum of squares of each column, as a NumPy array in double precision."""
    if isinstance(a, np.ndarray):
        return np.einsum("ij,ij->j", a, a).astype(float, copy=False)
    return to_numpy(namespace(a).sum(a * a, axis=0)).astype(float)


def add_to_diagonals(K: Any, lift: Any) -> Any:
    """``K + lift I`` for each matrix of a stack; in place where the library is NumPy."""
    n = K.shape[-1]
    if isinstance(K, np.ndarray):
        K.reshape(len(K), n * n)[:, :: n + 1] += lift if np.ndim(lift) == 0 else lift[:, None]
        return K
    lift = lift if isinstance(lift, float) else lift[:, None, None]
    return K + lift * namespace(K).eye(n, dtype=K.dtype, device=K.device)


def inverse_roots(K: Any, lift: Any) -> Any:
    """``R`` with ``(K + lift I)^-1 = R'R``, for each of the positive semidefinite matrices ``K``; one lift, or one for each."""
    name, xp = library(K), namespace(K)
    if name == "numpy":
        return cast(_inverse_roots(K, lift), K.dtype)
    rounding = float(xp.finfo(K.dtype).eps) * xp.linalg.trace(K)  # not all libraries raise an error where Cholesky fails
    L = xp.linalg.cholesky(add_to_diagonals(K, lift + rounding))
    if name == "torch":
        eye = xp.eye(K.shape[-1], dtype=K.dtype, device=K.device)
        return xp.linalg.solve_triangular(L, eye, upper=False)
    return xp.linalg.inv(L)


def _inverse_roots(K: np.ndarray, lift: Any, again: bool = True) -> np.ndarray:
    """In double precision, which is faster than single precision for small matrices.

    If rounding made a matrix indefinite, a multiple of the identity of that size is added, once.
    """
    try:
        M = add_to_diagonals(K.astype(float), lift)
        return _invert_batch(np.linalg.cholesky(M)) if len(M) >= MANY * M.shape[1] else _invert_each(M)
    except np.linalg.LinAlgError:
        if not again or K.dtype != np.float64:
            raise
        return _inverse_roots(K, lift + 4 * np.finfo(float).eps * np.trace(K, axis1=1, axis2=2), again=False)


def _invert_each(K: np.ndarray) -> np.ndarray:
    """Cholesky factors and their inverses in place, one matrix at a time; LAPACK takes transposed C arrays."""
    for M in K.transpose(0, 2, 1):
        if dpotrf(M, 0, 1, 1)[1]:  # upper, cleaned, in place
            raise np.linalg.LinAlgError("a matrix is not positive definite")
        dtrtri(M, 0, 0, 1)
    return K


def _invert_batch(L: np.ndarray) -> np.ndarray:
    """The inverses of many small lower triangular matrices, by one forward substitution."""
    n = L.shape[1]
    rows, out = np.ascontiguousarray(L.transpose(1, 2, 0)), np.zeros((n, n, len(L)))
    for i in range(n):
        out[i, i] = 1 / rows[i, i]
        out[i, :i] = -out[i, i] * np.einsum("jt,jkt->kt", rows[i, :i], out[:i, :i])
    return np.ascontiguousarray(out.transpose(2, 0, 1))
