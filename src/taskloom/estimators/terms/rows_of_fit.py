"""The data of a fit of terms, as its summary and its standard deviations need them: references, nothing computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...design.term_inputs import TermData
from ...losses import Loss
from ...problem import Problem
from ...problem.term_problem import PosedTerm

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class RowsOfFit:
    """Features and levels of each term, targets, and sample weights (without those of tasks)."""

    terms: tuple[TermData, ...]
    y: Array
    sample_weight: Array
    weight: Array  # of the objective, ``v_i``
    loss: Loss
    fit_intercept: bool

    @classmethod
    def of(cls, posed: list[PosedTerm], y: Array, sample_weight: Array, problem: Problem) -> RowsOfFit:
        data = tuple(each.data for each in posed)
        return cls(data, y, sample_weight, problem.observations.weight, problem.loss, problem.fit_intercept)
