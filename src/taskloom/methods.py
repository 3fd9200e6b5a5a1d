"""The paper's methods as recipes: one line each over one estimator."""

from __future__ import annotations

from typing import Any

from .estimators import MultiTaskRegressor
from .structures import Clusters, Frobenius, Independent, Trace, UnitTrace

__all__ = ["MTCL", "MTFL", "MTRL", "OKL", "STL"]


def STL(**options: Any) -> MultiTaskRegressor:
    """Single-task learning: independent tasks."""
    return MultiTaskRegressor(Independent(), **options)


def MTFL(**options: Any) -> MultiTaskRegressor:
    """Multi-task feature learning (Argyriou, Evgeniou and Pontil 2008): the trace norm."""
    return MultiTaskRegressor(Trace(), **options)


def MTRL(**options: Any) -> MultiTaskRegressor:
    """Multi-task relation learning (Zhang and Yeung 2010): a structure of unit trace; their lambda_1 is ``ridge``."""
    return MultiTaskRegressor(UnitTrace(), **options)


def OKL(**options: Any) -> MultiTaskRegressor:
    """Output kernel learning (Dinuzzo et al. 2011): the squared Frobenius norm of the structure."""
    return MultiTaskRegressor(Frobenius(), **options)


def MTCL(
    n_clusters: int = 2, *, mean: float = 0.1, between: float = 1.0, within: float = 10.0, **options: Any
) -> MultiTaskRegressor:
    """Multi-task clustered learning (Jacob, Bach and Vert 2008)."""
    return MultiTaskRegressor(Clusters(n_clusters, mean=mean, between=between, within=within), **options)
