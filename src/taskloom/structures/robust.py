"""Weights as the sum of a shared part and a sparse part: outlier tasks, or task-specific features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .feature_selection import FeatureSelection
from .spectral import Trace
from .term_sum import SplitStructure
from .terms import EntryNorms, FeatureMatrix, GroupNorms, TaskMatrix, TaskNorms, Variable


@dataclass(eq=False, repr=False)
class Robust(SplitStructure):
    """Low rank plus outlier tasks: ``W = L + S``, with the penalty ``2 sqrt(alpha) (||L||_* + outliers sum_t ||s_t||)``.

    The columns of ``S`` are zero except for outlier tasks, which fitted models list in ``outlier_tasks_``. With ``outliers``
    below ``1 / sqrt(T)`` every task is an outlier, from 1 on none is. Its square is the share of one singular vector of ``L``
    from which on a single task is penalised less as an outlier.

    Parameters
    ----------
    outliers : float, default=0.85
        Regularisation strength of the outlier part, between ``1 / sqrt(n_tasks)`` and 1.
    """

    outliers: float = 0.85
    ranges: ClassVar[dict[str, str]] = {"outliers": "> 0"}

    def variables(self, width: int, n_tasks: int) -> list[Variable]:
        side = FeatureMatrix if width <= 3 * n_tasks else TaskMatrix
        return [side(Trace()), TaskNorms(GroupNorms(self.outliers))]


@dataclass(eq=False, repr=False)
class Dirty(SplitStructure):
    """``W = P + Q`` with the penalty ``2 sqrt(alpha) (sum_j ||row j of P|| + private sum |Q_jt|)``: dirty models.

    ``P`` has few nonzero rows, the features that all tasks use; ``Q`` has few nonzero entries, the task-specific weights. With
    ``private`` below ``1 / sqrt(T)`` the shared part ``P`` is zero, from 1 on ``Q`` is zero.

    Parameters
    ----------
    private : float, default=0.5
        Regularisation strength of the task-specific weights, between ``1 / sqrt(n_tasks)`` and 1.
    """

    private: float = 0.5
    ranges: ClassVar[dict[str, str]] = {"private": "> 0"}
    keeps_columns: ClassVar[bool] = True

    def variables(self, width: int, n_tasks: int) -> list[Variable]:
        return [FeatureMatrix(FeatureSelection()), EntryNorms(GroupNorms(self.private))]
