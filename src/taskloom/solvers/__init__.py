"""Solvers: one loop (``solve``), and the methods whose steps it repeats."""

from .alternating import Alternating
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
