"""A constant of the penalty taken out, where the loss is tiny beside it: the gap would drown in its rounding."""

from __future__ import annotations

from dataclasses import replace

from ...problem import Problem
from ...problem.solution import Solution, Start
from .base import Reformulation

MIN_RELATIVE_SCALE = 1e-6  # a loss smaller than this share of the penalty's constant is measured without that constant


class PenaltyConstant(Reformulation):
    """The problem under the penalty less its constant."""

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        above_constant = problem.structure.shifted_to_zero(problem.n_tasks)
        return above_constant is not None and problem.scale < MIN_RELATIVE_SCALE * abs(above_constant[1])

    def apply(self, problem: Problem, start: Start | None) -> Problem:
        shifted = problem.structure.shifted_to_zero(problem.n_tasks)
        assert shifted is not None
        structure, self.shift = shifted
        return problem.with_structure(structure)

    def invert(self, solution: Solution) -> Solution:
        """Add the constant to primal and dual values; the gap is unchanged."""
        said, history = solution.certificate, solution.history
        for column in (history.objective, history.dual):
            column[:] = [value + self.shift for value in column]
        certificate = replace(said, primal=said.primal + self.shift, dual=said.dual + self.shift)
        return replace(solution, certificate=certificate)
