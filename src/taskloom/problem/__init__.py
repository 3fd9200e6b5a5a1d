"""The problem as a value: its data, its objective, its dual, and what a solver hands back."""

from ..design import Design, Observations
from .model import Model, Targets
from .problem import Problem
from .solution import Certificate, History, Solution, Start

__all__ = ["Certificate", "Design", "History", "Model", "Observations", "Problem", "Solution", "Start", "Targets"]
