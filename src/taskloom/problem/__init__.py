"""The problem as an immutable value: data, objective and dual; and the solution that a solver returns."""

from ..design import Design, Observations
from .model import Model, Targets
from .problem import Problem
from .solution import Certificate, History, Solution, Start

__all__ = ["Certificate", "Design", "History", "Model", "Observations", "Problem", "Solution", "Start", "Targets"]
