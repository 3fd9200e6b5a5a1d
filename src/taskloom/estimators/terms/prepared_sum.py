"""The data of a fit with ``terms=`` or ``common=``, validated once: problems at any alpha and weights, and fitted states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...design import Observations
from ...problem import Problem
from ...problem.solution import Solution
from ...problem.term_problem import PosedTerm, TermTargets, problem_of_targets, term_targets
from ...structures.term_stack import stacked
from ..fitted import FittedState
from ..target_encoding import TargetScale
from ..validation import (
    InputColumns,
    TargetInfo,
    described,
)
from .rows_of_fit import RowsOfFit
from .separation import NOTE, separated

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
    dtype: np.dtype  # of predictions and coefficients: single precision if the inputs were
    rows: TermTargets  # of the posed terms; what is computed from them serves at all strengths and weights

    @property
    def scale(self) -> TargetScale:
        return TargetScale.none(len(self.targets.tasks_))

    @property
    def kernel(self) -> Any:
        return self.model._kernel()

    def problem(self, alpha: float) -> Problem:
        """The problem at a strength."""
        return self._at_one.at(alpha)

    @cached_property
    def _at_one(self) -> Problem:
        return problem_of_targets(self.rows, self.posed, 1.0, float(self.model.ridge))

    def predictor(self, problem: Problem, W: Array, b: Array) -> FittedState:
        """The fields that predictions need, at some weights."""
        return FittedState(
            **described(self.columns, self.targets),
            scale=self.scale,
            kernel=self.kernel,
            alpha=problem.alpha,
            ridge=problem.ridge,
            dtype=self.dtype,
            **self.predicting(problem, W, b),
        )

    def state(self, problem: Problem, solution: Solution) -> FittedState:
        """The fitted model of a solution of ``problem``."""
        state = self.predictor(problem, solution.W, solution.b)
        certificate = solution.certificate
        notes = [NOTE] * separated(problem, solution, self.posed) + [LANDMARKS_NOTE] * (not self.exact)
        if notes:
            certificate = replace(certificate, message=" ".join([certificate.message, *notes]))
        return replace(
            state,
            certificate_=certificate,
            n_iter_=solution.n_iter,
            history_=solution.history.as_dict(),
            training_left_out=True,
            term_rows=RowsOfFit.of(self.posed, self.seen.y, self.sample_weight, problem),
            **self.structures(state, problem, solution),
        )

    def weights_of(self, last: FittedState, problem: Problem) -> tuple[Array, Array] | None:
        """The weights and the free intercept of a fitted model in this problem, if their shapes are those of the data."""
        parts = self.fitted_weights(last)
        if parts is None or [part.shape for part in parts] != [(one.data.r, one.data.p) for one in self.posed]:
            return None
        scaled = [part / np.sqrt(1.0 if one.data.free else one.weight) for part, one in zip(parts, self.posed, strict=True)]
        b = last.intercept_[:1] if last.common_part is None else np.array([last.common_part.intercept])
        return stacked(scaled), b.astype(float)

    @abstractmethod
    def fitted_weights(self, last: FittedState) -> list[Array] | None:
        """The weights of each term of a fitted model; ``None`` if it is another kind of model."""

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether no kernel has landmarks."""

    @abstractmethod
    def predicting(self, problem: Problem, W: Array, b: Array) -> dict[str, Any]:
        """The terms with these weights, and coefficients."""

    @abstractmethod
    def structures(self, state: FittedState, problem: Problem, solution: Solution) -> dict[str, Any]:
        """What was learned, beside the weights."""

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
    def new_rows(self, model: Any, X: Any) -> Any:
        """New rows as ``values`` takes them; ``model`` has the columns of the fit."""

    @abstractmethod
    def values(self, problem: Problem, solution: Solution, rows: Any) -> Array:
        """The decision values of new rows."""


def rows_of(posed: list[PosedTerm], seen: Observations, model: Any) -> TermTargets:
    """The data of posed terms."""
    return term_targets(posed, seen.y, seen.weight, model.loss, bool(model.fit_intercept))
