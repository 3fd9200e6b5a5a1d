"""Solvers: one loop (``solve``), and the methods whose steps it repeats."""

from .alternating import Alternating
from .base import Solver
from .block_descent import Block
from .cluster_newton import Smooth
from .factor.factored import Factored
from .factor.projected import Projected
from .factor.reweighted import Reweighted
from .path import alpha_max, path, strength_grid
from .proximal import Proximal
from .solve import solve

__all__ = [
    "Alternating",
    "Block",
    "Factored",
    "Projected",
    "Proximal",
    "Reweighted",
    "Smooth",
    "Solver",
    "alpha_max",
    "path",
    "solve",
    "strength_grid",
]
