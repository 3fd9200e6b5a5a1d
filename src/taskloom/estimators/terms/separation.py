"""Whether unpenalised terms separate the labels: then there is no minimiser, and the infimum is approached at infinity."""

from __future__ import annotations

import numpy as np

from ...losses import Loss
from ...problem import Problem
from ...problem.solution import Solution
from ...problem.term_problem import PosedTerm
from ...structures.term_stack import TermStack

Array = np.ndarray
FAR = 30.0  # a margin at which losses that have a minimum at a finite one are flat
NOTE = (
    "The unpenalised terms separate the labels: there is no minimiser, and their coefficients grow without bound as tol falls. "
    "Give these terms a finite weight."
)


def separated(problem: Problem, solution: Solution, posed: list[PosedTerm]) -> bool:
    """Whether intercept and unpenalised terms of a solution have the sign of every label.

    Scaled up, they lower a loss that falls for ever, and no penalty holds them.
    """
    if problem.loss.targets != "signs" or not any(one.data.free for one in posed) or not _falls_for_ever(problem.loss):
        return False
    stack: TermStack = problem.structure  # type: ignore[assignment]
    z = np.full(len(problem.observations.y), float(solution.b[0]))
    for one, W in zip(posed, stack.features_of(solution.W), strict=True):
        z += one.data.predict(W) if one.data.free else 0.0
    return bool((problem.observations.y * z > 0).all())


def _falls_for_ever(loss: Loss) -> bool:
    one = np.ones(1)
    return bool(np.all(loss.value(one, 2 * FAR * one) < loss.value(one, FAR * one)))  # hinges have no gradient
