"""Shared inputs under the squared loss, along the eigenvectors of their features (``design.shared_inputs.Eigenbasis``)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from ...problem import Problem
from ...problem.solution import Solution, Start
from .base import Reformulation

Array = np.ndarray
MIN_FEATURES_FOR_EIGENBASIS = 32  # with fewer features, an iteration is cheap as it is


class EigenbasisForm(Reformulation):
    """A problem along the eigenvectors of its features: diagonal features, one row for each, no intercepts."""

    exact: ClassVar[bool] = False
    tolerance_share: ClassVar[float] = 0.8  # the bound on the original problem may be slightly weaker
    same_rows = False  # its rows are eigenvectors

    @classmethod
    def applies(cls, problem: Problem, inside: bool = False) -> bool:
        """Whether inputs are shared, and many; structures on the features forbid another basis."""
        structure, small = problem.structure, problem.n_features < MIN_FEATURES_FOR_EIGENBASIS
        if structure.keeps_columns or structure.is_sum or not structure.convex or (small and not inside):
            return False
        return problem.targets.in_eigenbasis is not None

    @classmethod
    def of(cls, problem: Problem) -> EigenbasisForm | None:
        """The form of a problem, where it applies; for problems of the same targets."""
        form = cls()
        return form if cls.applies(problem) and form.apply(problem) is not None else None

    def apply(self, problem: Problem, start: Start | None = None) -> Problem:
        assert problem.design.eigenbasis is not None
        assert problem.model.in_eigenbasis is not None
        self.basis = problem.design.eigenbasis
        self.constant = self.basis.constant
        return Problem.of(problem.model.in_eigenbasis, problem.alpha, problem.ridge)

    def to_inner(self, start: Start) -> Start:
        return start._replace(W=self.basis.to_inner(start.W), b=np.zeros_like(start.b))

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        return self.basis.to_original(W)

    def invert(self, solution: Solution) -> Solution:
        W, b = self.to_original(solution.W, solution.b)
        return replace(solution, W=W, b=b)
