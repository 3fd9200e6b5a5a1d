"""The problem as a value: its data, its objective, its dual, and what a solver hands back."""

from .observations import Observations
from .problem import Problem
from .solution import Certificate, History, Solution, Start

__all__ = ["Certificate", "History", "Observations", "Problem", "Solution", "Start"]
