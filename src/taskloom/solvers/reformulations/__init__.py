"""Reformulations of a problem, as a list: a problem goes down the list, a solution comes back up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...problem import Problem
from ...problem.solution import Solution, Start
from .base import Reformulation
from .equivalent import Centring, PenaltyConstant, StackedTerms
from .smoothing import Smoothing
from .subspaces import EigenbasisForm, KrylovSubspace

Array = np.ndarray
EQUIVALENT: tuple[type[Reformulation], ...] = (PenaltyConstant, StackedTerms)  # solved once, in this form
ATTEMPTS: tuple[type[Reformulation], ...] = (KrylovSubspace, EigenbasisForm, Centring)  # certified on the problem above
REFORMULATIONS = (*EQUIVALENT, *ATTEMPTS, Smoothing)  # in this order; a nonsmooth loss is smoothed while a solver runs


class Chain:
    """A problem, the reformulations that apply to it from the outside in, and the inner problem."""

    def __init__(
        self, problem: Problem, start: Start | None, kinds: Sequence[type[Reformulation]], without: set[type] | None = None
    ):
        self.steps: list[Reformulation] = []
        self.exact = self.same_rows = True
        self.restricted, self.constant, self.tolerance_share = False, 0.0, 1.0
        self.problem = self.inner = problem
        self.problems = [problem]
        for kind in kinds:
            if kind in (without or ()) or not kind.applies(self.inner, bool(self.steps)):
                continue
            step = kind()
            if (inner := step.apply(self.inner, start)) is not None:
                self.inner, start = inner, None if start is None else step.to_inner(start)
                self.steps.append(step)
                self.problems.append(inner)
                self.exact, self.same_rows = self.exact and step.exact, self.same_rows and step.same_rows
                self.restricted, self.constant = self.restricted or step.restricted, self.constant + step.constant
                self.tolerance_share = min(self.tolerance_share, step.tolerance_share)
        self.start = start

    def to_original(self, W: Array, b: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the original problem."""
        for step in reversed(self.steps):
            W, b = step.to_original(W, b)
        return W, b

    def original_point(self, W: Array, b: Array) -> tuple[Array, Array, Array]:
        """Weights, intercepts and predictions of the original problem; in a subspace predictions need fewer features."""
        z = None
        for step, inner in zip(reversed(self.steps), reversed(self.problems), strict=False):
            z = inner.predict(W, b) if step.restricted else z
            W, b = step.to_original(W, b)
        return W, b, self.problem.predict(W, b) if z is None else z

    def invert(self, solution: Solution) -> Solution:
        """The solution of the original problem."""
        for step in reversed(self.steps):
            solution = step.invert(solution)
        return solution
