"""Shared, fully observed inputs and the squared loss, along the eigenvectors of the inputs (``design.eigenbasis``)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...problem import Problem
from ...problem.solution import Start

Array = np.ndarray
WORTHWHILE = 32  # below this many features an iteration is cheap as it is


class EigenbasisForm:
    """A problem along the eigenvectors of its features, and the way there and back."""

    share: ClassVar[float] = 0.8  # of the tolerance: the bound of the original problem may be a little weaker
    whole: ClassVar[bool] = True  # its minimum is that of the original problem
    same_rows: ClassVar[bool] = False  # its rows are directions: duals of the original problem are computed there

    def __init__(self, problem: Problem):
        assert problem.design.eigenbasis is not None
        self.basis = problem.design.eigenbasis
        self.constant = self.basis.constant

    @staticmethod
    def of(problem: Problem, worthwhile: int = WORTHWHILE) -> EigenbasisForm | None:
        """Where there is one and it pays; it turns the features, which a structure on them would not survive."""
        if problem.structure.keeps_columns or problem.structure.is_sum or problem.n_features < worthwhile:
            return None
        return None if problem.targets.in_eigenbasis is None else EigenbasisForm(problem)

    def apply(self, problem: Problem) -> Problem:
        """The problem along the eigenvectors."""
        assert problem.model.in_eigenbasis is not None
        return Problem.of(problem.model.in_eigenbasis, problem.alpha, problem.ridge)

    def inward(self, start: Start | None) -> Start | None:
        """Weights to start from, along the eigenvectors."""
        return None if start is None else start._replace(W=self.basis.inward(start.W), b=np.zeros_like(start.b))

    def outward(self, W: Array, _: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the original problem."""
        return self.basis.outward(W)

    def original(self, problem: Problem, W: Array, b: Array) -> tuple[Array, Array, Array]:
        """The same, and what they predict there."""
        W, b = self.outward(W, b)
        return W, b, problem.predict(W, b)

    def finer(self, problem: Problem, Z: Array, A: Array, tol: float) -> None:
        """What to try where this form, certified, was not fine enough: nothing, for nothing is left out."""
        return
