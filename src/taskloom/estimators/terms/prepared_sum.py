"""The data of a fit with ``terms=`` or ``common=``, validated once: problems at any alpha and weights, and fitted states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...design import Observations
from ...problem import Problem
from ...problem.solution import Solution
from ...problem.term_problem import PosedTerm
from ..fitted import FittedState
from ..target_encoding import TargetScale
from ..validation import (
    InputColumns,
    TargetInfo,
    described,
)
from .fit_terms import problem_of
from .rows_of_fit import RowsOfFit

Array = np.ndarray
LANDMARKS_NOTE = "Kernels on more than 5000 rows have 400 landmarks."


@dataclass(frozen=True, eq=False)
class PreparedSum(ABC):
    """Validated data of a sum of terms."""

    model: Any  # the estimator, not fitted
    columns: InputColumns
    targets: TargetInfo
    seen: Observations  # of all terms; the weights are those of the objective
    sample_weight: Array
    posed: list[PosedTerm]

    @property
    def scale(self) -> TargetScale:
        return TargetScale.none(len(self.targets.tasks_))

    @property
    def kernel(self) -> Any:
        return self.model._kernel()

    def problem(self, alpha: float) -> Problem:
        """The problem at a strength."""
        return problem_of(self.posed, self.seen.y, self.seen.weight, self.model, alpha)

    def _state(self, problem: Problem, solution: Solution, exact: bool, **found: Any) -> FittedState:
        note = "" if exact else LANDMARKS_NOTE
        certificate = replace(solution.certificate, message=f"{solution.certificate.message} {note}".rstrip())
        return FittedState(
            **described(self.columns, self.targets),
            scale=self.scale,
            kernel=self.kernel,
            alpha=problem.alpha,
            ridge=problem.ridge,
            dtype=np.dtype(float),
            certificate_=certificate,
            n_iter_=solution.n_iter,
            history_=solution.history.as_dict(),
            training_left_out=True,
            term_rows=RowsOfFit.of(self.posed, self.seen.y, self.sample_weight, problem),
            **found,
        )

    @property
    @abstractmethod
    def weights(self) -> dict[str, float]:
        """The weight of each term, by name."""

    @property
    @abstractmethod
    def searched(self) -> list[str]:
        """The weights that a search chooses besides alpha."""

    @abstractmethod
    def with_weights(self, weights: dict[str, float]) -> PreparedSum:
        """The same data with other weights."""

    @abstractmethod
    def under(self, structure: Any) -> PreparedSum:
        """The same data under another structure of the own parts; ``None`` is the one that was given."""

    @abstractmethod
    def parameters(self, weights: dict[str, float]) -> dict[str, Any]:
        """The parameters of an estimator that stand for these weights."""

    @abstractmethod
    def state(self, problem: Problem, solution: Solution) -> FittedState:
        """The fitted model of a solution of ``problem``."""

    @abstractmethod
    def new_rows(self, model: Any, X: Any) -> Any:
        """New rows as ``values`` takes them; ``model`` has the columns of the fit."""

    @abstractmethod
    def values(self, problem: Problem, solution: Solution, rows: Any) -> Array:
        """The decision values of new rows."""
