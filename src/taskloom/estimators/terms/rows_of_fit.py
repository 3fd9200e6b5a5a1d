"""The data of a fit of terms, as its summary and its standard deviations need them: references, nothing computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

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
        data = tuple(map(in_units, posed))
        return cls(data, y, sample_weight, problem.observations.weight, problem.loss, problem.fit_intercept)


def in_units(term: PosedTerm) -> TermData:
    """The data with features in their units."""
    return term.data if isinstance(term.units, float) else replace(term.data, phi=term.data.phi * term.units)
