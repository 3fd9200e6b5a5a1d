"""The paper's methods as recipes: one line each over one estimator."""

from __future__ import annotations

from typing import Any

from .estimators import MultiTaskRegressor
from .structures import Clusters, Frobenius, Independent, Trace, UnitTrace

__all__ = ["MTCL", "MTFL", "MTRL", "OKL", "STL"]


def STL(**options: Any) -> MultiTaskRegressor:
    """Single-task learning: independent tasks.

    Parameters
    ----------
    **options : object
        The other parameters of :class:`~taskloom.MultiTaskRegressor`.

    Returns
    -------
    MultiTaskRegressor
        Not fitted yet.
    """
    return MultiTaskRegressor(Independent(), **options)


def MTFL(**options: Any) -> MultiTaskRegressor:
    """Multi-task feature learning (Argyriou, Evgeniou and Pontil 2008): the trace norm.

    Parameters
    ----------
    **options : object
        The other parameters of :class:`~taskloom.MultiTaskRegressor`.

    Returns
    -------
    MultiTaskRegressor
        Not fitted yet.
    """
    return MultiTaskRegressor(Trace(), **options)


def MTRL(**options: Any) -> MultiTaskRegressor:
    """Multi-task relation learning (Zhang and Yeung 2010): a structure of unit trace; their lambda_1 is ``ridge``.

    Parameters
    ----------
    **options : object
        The other parameters of :class:`~taskloom.MultiTaskRegressor`.

    Returns
    -------
    MultiTaskRegressor
        Not fitted yet.
    """
    return MultiTaskRegressor(UnitTrace(), **options)


def OKL(**options: Any) -> MultiTaskRegressor:
    """Output kernel learning (Dinuzzo et al. 2011): the squared Frobenius norm of the structure.

    Parameters
    ----------
    **options : object
        The other parameters of :class:`~taskloom.MultiTaskRegressor`.

    Returns
    -------
    MultiTaskRegressor
        Not fitted yet.
    """
    return MultiTaskRegressor(Frobenius(), **options)


def MTCL(
    n_clusters: int = 2, *, mean: float = 0.1, between: float = 1.0, within: float = 10.0, **options: Any
) -> MultiTaskRegressor:
    """Multi-task clustered learning (Jacob, Bach and Vert 2008).

    Parameters
    ----------
    n_clusters : int, default=2
        The number of clusters.
    mean : float, default=0.1
        Penalty of the mean of all tasks.
    between : float, default=1.0
        Penalty of the differences between clusters.
    within : float, default=10.0
        Penalty of the differences within clusters.
    **options : object
        The other parameters of :class:`~taskloom.MultiTaskRegressor`.

    Returns
    -------
    MultiTaskRegressor
        Not fitted yet.
    """
    return MultiTaskRegressor(Clusters(n_clusters, mean=mean, between=between, within=within), **options)
