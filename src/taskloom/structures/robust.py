"""What the tasks share, plus what single tasks, or single weights, keep to themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._component import is_number
from .feature_selection import FeatureSelection
from .spectral import Trace
from .term_sum import SplitStructure
from .terms import EntryNorms, FeatureMatrix, TaskMatrix, TaskNorms, Variable


@dataclass(eq=False, repr=False)
class Robust(SplitStructure):
    """Low rank plus whole outlier tasks: ``W = L + S``, at the price ``2 sqrt(alpha) (||L||_* + outliers sum_t ||s_t||)``.

    A task joins the others through ``L``, or goes its own way through its column of ``S``; fitted models name those tasks in
    ``outlier_tasks_``. ``outliers`` lies between ``1 / sqrt(T)``, below which every task goes its own way, and 1, from which
    on none does: its square is the share of one direction of ``L`` that a task may take for itself before it is cheaper to
    call it an outlier.

    Parameters
    ----------
    outliers : float, default=0.85
        Price of an outlier task, between ``1 / sqrt(n_tasks)`` and 1.
    """

    outliers: float = 0.85

    def check(self) -> None:
        if not (is_number(self.outliers) and self.outliers > 0):
            raise ValueError(f"Robust needs outliers > 0, got outliers={self.outliers!r}")

    def variables(self, width: int, n_tasks: int) -> list[Variable]:
        side = FeatureMatrix if width <= 3 * n_tasks else TaskMatrix
        return [side(Trace()), TaskNorms(self.outliers)]


@dataclass(eq=False, repr=False)
class Dirty(SplitStructure):
    """Shared features plus private weights: ``W = P + Q``, at ``2 sqrt(alpha) (sum_j ||row j of P|| + private sum |Q_jt|)``.

    Most tasks use the same few features, and some use a few of their own besides. ``private`` lies between ``1 / sqrt(T)``,
    below which nothing is shared, and 1, from which on nothing is private.

    Parameters
    ----------
    private : float, default=0.5
        Price of a private weight, between ``1 / sqrt(n_tasks)`` and 1.
    """

    private: float = 0.5
    keeps_columns: ClassVar[bool] = True

    def check(self) -> None:
        if not (is_number(self.private) and self.private > 0):
            raise ValueError(f"Dirty needs private > 0, got private={self.private!r}")

    def variables(self, width: int, n_tasks: int) -> list[Variable]:
        return [FeatureMatrix(FeatureSelection()), EntryNorms(self.private)]
