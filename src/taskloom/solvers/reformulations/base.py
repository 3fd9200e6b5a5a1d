"""The interface of a reformulation: a problem goes in, a solution comes back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from ...problem import Problem
from ...problem.solution import Solution, Start

Array = np.ndarray


class Reformulation(ABC):
    """A problem written as another one that is easier to solve.

    ``exact`` reformulations keep the values of objective and bound. A solution of another one is certified on the original
    problem, and the inner one is solved to ``tolerance_share`` of the tolerance to leave room for that.
    """

    exact: ClassVar[bool] = True
    tolerance_share: ClassVar[float] = 1.0
    restricted: ClassVar[bool] = False  # whether the inner minimum may lie above the original one
    same_rows: bool = True  # whether dual points of the inner problem are dual points of the original one
    same_tasks: bool = True  # whether structures of the inner problem are structures of the original one
    constant: float = 0.0  # what the objective of the original problem has in addition

    @classmethod
    @abstractmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        """Whether the problem can be written in this way, and whether that may pay; ``inside`` another reformulation."""

    @abstractmethod
    def apply(self, problem: Problem, start: Start | None) -> Problem | None:
        """The inner problem; ``None`` if it turns out that it would not pay."""

    def to_inner(self, start: Start) -> Start | None:
        """A warm start of the inner problem."""
        return start

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the original problem."""
        return W, b

    def invert(self, solution: Solution) -> Solution:
        """The solution of the original problem."""
        return solution

    def enlarged(self, problem: Problem, Z: Array, A: Array, tol: float) -> Any:
        """The subspace of the next attempt, where a solution of this one does not solve the original problem."""
        return None
