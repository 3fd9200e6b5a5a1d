"""Solvers: one loop, and the moves that it repeats."""

from .alternating import Alternating
from .base import Solver
from .block import Block
from .factored import Factored
from .loop import solve
from .path import alpha_max, path, strength_grid
from .projected import Projected
from .proximal import Proximal
from .smooth import Smooth

__all__ = [
    "Alternating",
    "Block",
    "Factored",
    "Projected",
    "Proximal",
    "Smooth",
    "Solver",
    "alpha_max",
    "path",
    "solve",
    "strength_grid",
]
