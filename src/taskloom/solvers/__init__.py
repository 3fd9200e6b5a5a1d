"""Solvers: one loop (``solve``), and the methods whose steps it repeats."""

from typing import Any

from .._component import warn
from .alternating import Alternating
from .base import Solver
from .block_descent import Block
from .cluster_newton import ClusterNewton
from .factor.factored import Factored
from .path import alpha_max, path, strength_grid
from .proximal import Proximal
from .solve import solve

__all__ = ["Alternating", "Block", "Factored", "Proximal", "Solver", "alpha_max", "path", "solve", "strength_grid"]

_FORMER = {"Projected": Factored, "Reweighted": Factored, "Smooth": ClusterNewton}


def __getattr__(name: str) -> Any:
    """The former names of solvers."""
    if name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    solver = _FORMER[name]
    warn(f"solvers.{name} is a former name and will go in a later version; use {solver.__name__}", DeprecationWarning)
    return solver
