"""The width of a kernel from the inputs of a fit: ``gamma="scale"`` and ``gamma="median"``."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.spatial.distance import pdist

MAX_ROWS = 1000  # whose pairs are compared: half a million distances
WIDTHS = ("scale", "median")


def resolved_gamma(gamma: float | str | None, X: Any) -> float | None:
    """A number for ``gamma``; ``None`` and numbers stay as they are.

    ``"scale"`` is ``1 / (d var(X))``, as in scikit-learn's support vector machines. ``"median"`` is ``1 / (2 m)`` with the
    median ``m`` of the squared distances between rows: the Gaussian kernel has the median distance as its standard deviation.
    """
    if not isinstance(gamma, str):
        return gamma
    squared = X.shape[1] * _variance(X) if gamma == "scale" else 2 * median_squared_distance(X)
    return 1 / squared if squared > 0 else 1 / X.shape[1]


def _variance(X: Any) -> float:
    """The variance of all entries."""
    if issparse(X):
        return float(X.multiply(X).mean() - X.mean() ** 2)
    return float(np.var(X, dtype=np.float64))


def median_squared_distance(X: Any) -> float:
    """The median over pairs of rows that differ."""
    some = _spread_rows(X)
    distances = pdist(np.asarray(some.toarray() if issparse(some) else some, dtype=np.float64), "sqeuclidean")
    distances = distances[distances > 0]
    return float(np.median(distances)) if distances.size else 0.0


def _spread_rows(X: Any) -> Any:
    """All rows, or as many from the nearest to the farthest from their mean: whatever their order."""
    if X.shape[0] <= MAX_ROWS:
        return X
    mean = np.asarray(X.mean(axis=0)).ravel()
    squares = np.asarray(X.multiply(X).sum(axis=1)).ravel() if issparse(X) else np.einsum("ij,ij->i", X, X, dtype=np.float64)
    order = np.argsort(squares - 2 * (X @ mean), kind="stable")
    return X[order[np.linspace(0, len(order) - 1, MAX_ROWS).astype(int)]]
