"""Solvers: one loop (``solve``), and the methods whose steps it repeats."""

from typing import Any

from .alternating import Alternating
from .auto import SOLVERS
from .base import Solver
from .block_descent import Block
from .cluster_newton import ClusterNewton
from .factor.factored import Factored
from .path import alpha_max, path, strength_grid
from .proximal import Proximal
from .solve import solve

Projected = Reweighted = Factored  # deprecated: former names
Smooth = ClusterNewton  # deprecated: a strategy of ``solver="auto"``

__all__ = ["Alternating", "Block", "Factored", "Proximal", "Solver", "alpha_max", "path", "solve", "strength_grid"]


def __getattr__(name: str) -> Any:
    """Every solver of the list, by the name of its class."""
    for solver in SOLVERS:
        if solver.__name__ == name:
            return solver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
