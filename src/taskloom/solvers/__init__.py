"""Solvers: one loop, three moves."""

from .alternating import Alternating
from .base import Solver
from .block import Block
from .factored import Factored
from .loop import solve

__all__ = ["Alternating", "Block", "Factored", "Solver", "solve"]
