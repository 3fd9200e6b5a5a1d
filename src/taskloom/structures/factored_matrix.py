"""Task matrices of many tasks in the factored form ``A = LL' + diag(own)``, which avoids ``T x T`` arrays."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from .._linalg import column_squares, psd_eigh

Array = np.ndarray

DENSE_TASKS = 2000  # up to this number of tasks, structures are returned as arrays
FEW_TASKS = 300  # up to this number an array costs no more than its factors
LARGEST_ARRAY = 10_000  # the largest number of tasks for which a T x T matrix is formed (0.8 GB)


def gibibytes(n_tasks: int) -> str:
    """The memory of one ``T x T`` matrix, as text."""
    return f"{n_tasks**2 * 8 / 2**30:.3g} GiB"


class FactoredStructure:
    """``A = L L' + diag(own)`` (``T x T``), stored as ``L`` (``T x q``) and ``own`` (``T``).

    The ``structure_`` of fits with more than ``DENSE_TASKS`` (2000) tasks. It supports ``A[i, j]`` for integers, arrays (pairs,
    as in NumPy) and slices, ``A @ X``, ``A.shape``, ``len(A)`` and ``A.diag``. The block ``A[:100, :100]`` is factored too.

    Parameters
    ----------
    L : array-like of shape (n_tasks, n_columns)
        The factor.
    own : float or array-like of shape (n_tasks,), default=0.0
        Task-specific variances, added to the diagonal; not negative.

    Examples
    --------
    >>> import numpy as np
    >>> from taskloom import FactoredStructure
    >>> A = FactoredStructure(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]]))
    >>> float(A[1, 2]), A.rank, A.nearest(0, k=1)[0].tolist()
    (2.0, 2, [1])
    """

    ndim = 2
    __array_ufunc__ = None  # arithmetic with arrays would need all of A, and raises TypeError

    def __init__(self, L: Any, own: Any = 0.0):
        self.L = np.asarray(L)
        self.L = self.L if self.L.dtype.kind == "f" else self.L.astype(float)
        if self.L.ndim != 2:
            raise ValueError(f"FactoredStructure needs a matrix L with one row for each task, got shape {self.L.shape}")
        self.own = np.array(np.broadcast_to(np.asarray(own, dtype=self.L.dtype), (len(self.L),)))
        if not (self.own >= 0).all():
            raise ValueError(f"own must not be negative, got {self.own.min(initial=0.0):.3g}")

    @classmethod
    def total(cls, parts: Sequence[Any]) -> Any:
        """The sum of arrays, or of factored structures.

        Parameters
        ----------
        parts : sequence of ndarray, or of FactoredStructure
            The summands, all of one kind.

        Returns
        -------
        ndarray or FactoredStructure
            Their sum.
        """
        if not any(isinstance(part, cls) for part in parts):
            return np.sum(parts, axis=0)
        if not all(isinstance(part, cls) for part in parts):
            raise ValueError("structures of one sum must all be arrays, or all FactoredStructure")
        return cls(np.hstack([part.L for part in parts]), np.sum([part.own for part in parts], axis=0))

    def __repr__(self) -> str:
        own = " + diag(own)" if np.any(self.own) else ""
        return f"<FactoredStructure: A = L L'{own} of {len(self)} tasks, L with {self.L.shape[1]} columns>"

    def __len__(self) -> int:
        return len(self.L)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_tasks, n_tasks)``."""
        return (len(self), len(self))

    dtype = property(attrgetter("L.dtype"), doc="The dtype of ``L``.")

    @property
    def diag(self) -> Array:
        """The diagonal: the variance of each task."""
        return np.einsum("tq,tq->t", self.L, self.L) + self.own

    def trace(self) -> float:
        """The sum of the diagonal."""
        return float(np.vdot(self.L, self.L)) + float(self.own.sum())

    @property
    def rank(self) -> int:
        """The rank of ``A``: the number of tasks with ``own > 0``, plus the rank of ``L`` on the other tasks."""
        free = self.own > 0
        rest = self.L[~free]
        values = np.sqrt(psd_eigh(rest.T @ rest)[0]) if rest.size else np.zeros(0)
        return int(free.sum()) + int(np.sum(values > 1e-7 * values.max(initial=0.0)))

    # --- entries ------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        i, j = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(i, slice) and isinstance(j, slice) and i == j:
            return FactoredStructure(self.L[i], self.own[i])
        every = np.arange(len(self))
        rows, columns = every[i], every[j]
        if not isinstance(i, slice) and not isinstance(j, slice):
            self._refuse(np.broadcast(rows, columns).size)
            return np.einsum("...q,...q->...", self.L[rows], self.L[columns]) + self.own[rows] * (rows == columns)
        self._refuse(rows.size * columns.size)
        same = rows.reshape(rows.shape + (1,) * columns.ndim) == columns
        return np.tensordot(self.L[rows], self.L[columns], (-1, -1)) + same * self.own[columns]

    def _refuse(self, size: int) -> None:
        if size > LARGEST_ARRAY**2:
            raise ValueError(
                f"{size} entries of the structure of {len(self)} tasks are more than an array should hold (all of it would be "
                f"{gibibytes(len(self))}); ask for some of them, A[i, j], A.nearest(task, k) or A.diag, or work with A.L"
            )

    def to_array(self) -> Array:
        """All of ``A`` as an array, up to 10 000 tasks."""
        self._refuse(len(self) ** 2)
        A = self.L @ self.L.T
        A[np.diag_indices(len(A))] += self.own
        return A

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.to_array().astype(self.dtype if dtype is None else dtype, copy=False)

    def astype(self, dtype: Any, copy: bool = True) -> FactoredStructure:
        """The same matrix in another precision; the object itself if the precision is the same.

        Parameters
        ----------
        dtype : dtype
            The new dtype.
        copy : bool, default=True
            Ignored; for compatibility with NumPy.

        Returns
        -------
        FactoredStructure
            The same matrix.
        """
        return self if self.dtype == dtype else FactoredStructure(self.L.astype(dtype), self.own.astype(dtype))

    def __matmul__(self, X: Any) -> Array:
        X = np.asarray(X)
        return self.L @ (self.L.T @ X) + (self.own * X.T).T

    def __rmatmul__(self, X: Any) -> Array:
        return (self @ np.asarray(X).T).T

    def bordered(self, beta: Array, own: float) -> FactoredStructure:
        """The matrix with one more task: ``beta`` times the others, plus a task-specific variance.

        Parameters
        ----------
        beta : ndarray of shape (n_tasks,)
            The weights of the other tasks in the new one.
        own : float
            The task-specific variance of the new task.

        Returns
        -------
        FactoredStructure
            The matrix with one more row and column.
        """
        if np.any(self.own * beta):
            raise ValueError(
                "a task that depends on task-specific variances of others cannot be added to a factored structure; fit again"
            )
        return FactoredStructure(np.vstack([self.L, beta @ self.L]), np.append(self.own, own))

    # --- relations ----------------------------------------------------------------------------------------------

    def correlations(self) -> FactoredStructure:
        """``A`` scaled to a unit diagonal, in factored form; a task with variance 0 has correlation 0 with all others."""
        size = np.sqrt(self.diag.astype(float))
        seen = size > 1e-9 * max(float(size.max(initial=0.0)), np.finfo(float).tiny)
        scale = np.divide(1.0, size, out=np.zeros_like(size), where=seen)
        return FactoredStructure(self.L * scale[:, None], np.where(seen, self.own * scale**2, 1.0))

    def correlation(self, i: Any, j: Any) -> Any:
        """The correlation of task ``i`` with task ``j``, by position; of pairs of them, for arrays.

        Parameters
        ----------
        i : int or array of int
            Positions of tasks.
        j : int or array of int
            Positions of tasks, as many as in ``i`` or a single one.

        Returns
        -------
        float or ndarray
            Their correlations.
        """
        both = np.broadcast_arrays(*(np.arange(len(self))[each] for each in (i, j)))
        tasks, back = np.unique(both, return_inverse=True)
        part, largest = FactoredStructure(self.L[tasks], self.own[tasks]), float(self.diag.max())
        size = part.diag
        size = np.sqrt(np.where(size > 1e-18 * largest, size, np.inf))
        one, other = back.reshape(2, *both[0].shape)
        found = np.where(one == other, 1.0, np.clip(part[one, other] / (size[one] * size[other]), -1.0, 1.0))
        return float(found) if found.ndim == 0 else found

    def nearest(self, task: int, k: int = 10) -> tuple[Array, Array]:
        """The ``k`` tasks with the largest correlation with one task, by position, in time proportional to the size of ``L``.

        Parameters
        ----------
        task : int
            The position of the task.
        k : int, default=10
            The number of neighbours.

        Returns
        -------
        tasks : ndarray of int
            Nearest first; the task itself is left out.
        correlations : ndarray of float
        """
        if not (1 <= k < len(self)):
            raise ValueError(f"k must be between 1 and the number of other tasks, {len(self) - 1}, got k={k!r}")
        found = np.asarray(self.correlation(task, np.arange(len(self))))
        found[np.arange(len(self))[task]] = -np.inf
        top = np.argpartition(-found, k - 1)[:k]
        top = top[np.lexsort((top, -found[top]))]
        return top, found[top]

    # --- eigenvalues --------------------------------------------------------------------------------------------

    def eigen(self) -> tuple[Array, Array, float]:
        """Eigenvalues ``a`` with eigenvectors ``V`` (``T x q``), and the eigenvalue on the orthogonal complement of ``V``."""
        own = float(self.own[0])
        if not np.all(self.own == own):
            raise ValueError("eigenvalues of a factored structure need equal task-specific variances (own)")
        e, V = psd_eigh(self.L.T @ self.L) if self.L.shape[1] else (np.zeros(0), np.zeros((0, 0)))
        keep = e > 1e-14 * e.max(initial=0.0)
        return e[keep] + own, self.L @ (V[:, keep] / np.sqrt(e[keep])), own

    def inverse_quadratic(self, R: Array) -> float:
        """``tr(A^+ R'R)``; ``inf`` where ``R`` is not in the range of ``A``.

        Parameters
        ----------
        R : ndarray of shape (n_rows, n_tasks)
            A root of ``R'R``.

        Returns
        -------
        float
            The squared norm.
        """
        a, V, own = self.eigen()
        squares = column_squares(RV := R @ V)
        outside = float(np.vdot(rest := R - RV @ V.T, rest))
        if own <= 0 and outside > 1e-14 * squares.sum():
            return np.inf
        return float((squares / a).sum()) + (outside / own if own > 0 else 0.0)

    def spectrum(self) -> Array:
        """All ``T`` eigenvalues, largest first."""
        a, _, own = self.eigen()
        return np.concatenate([a[::-1], np.full(len(self) - a.size, own)])

    def shrunk(self, rho: float) -> FactoredStructure:
        """``A (I + rho A)^-1``: the structure that includes a ridge penalty.

        Parameters
        ----------
        rho : float
            The ridge, relative to ``alpha``.

        Returns
        -------
        FactoredStructure
            The shrunk matrix.
        """
        if rho == 0:
            return self
        a, V, own = self.eigen()
        after = own / (1 + rho * own)
        return FactoredStructure(V * np.sqrt(a / (1 + rho * a) - after), after)


def by_eigen(a: Array, V: Array, rest: float) -> FactoredStructure:
    """The matrix with eigenvalues ``a >= rest`` for eigenvectors ``V``, and ``rest`` on their orthogonal complement."""
    return FactoredStructure(V * np.sqrt(np.maximum(a - rest, 0.0)), rest)


def few(n_tasks: int) -> bool:
    """Whether solvers form an array: beyond, an array is made of the factors where somebody asks for it."""
    return n_tasks <= min(FEW_TASKS, DENSE_TASKS)


def returned(A: Any) -> Any:
    """The structure as it is returned: an array, unless there are many tasks."""
    return A.to_array() if isinstance(A, FactoredStructure) and len(A) <= DENSE_TASKS else A


def diagonal(variances: Array) -> Any:
    """The structure of independent tasks with these variances; an array if they are few."""
    return np.diag(variances) if few(len(variances)) else FactoredStructure(np.zeros((len(variances), 0)), variances)
