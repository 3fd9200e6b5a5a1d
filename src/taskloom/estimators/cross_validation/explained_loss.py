"""The default score of a search: the share of the loss of the best constant that a model explains.

Under the squared loss it is R2. The loss of the best constant is that over all data, so that a fold may test one row of a task.
Targets of a long table are in one column, and count alike; those of a wide table may be in different units, and every task
counts alike.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...design import Observations
from ...losses import Loss
from ...metrics import TaskScores
from ...problem.intercepts import best_constants

Array = np.ndarray
ROUNDING = 1e-14  # of the loss of zero: a smaller loss of the best constant is rounding


@dataclass(frozen=True, eq=False)
class ExplainedLoss:
    """The loss of the best constant: one number for a long table, one for each task of a wide one."""

    loss: Loss
    constant_loss: Array
    rounding: Array  # losses up to these are none

    @classmethod
    def of(cls, loss: Loss, seen: Observations, sample_weight: Array, wide: bool) -> ExplainedLoss:
        """From all data; ``sample_weight`` has an entry for each observation."""
        task, n_tasks = (seen.task, seen.n_tasks) if wide else (np.zeros(len(seen.y), dtype=int), 1)
        all_seen = Observations(seen.row, task, seen.y, sample_weight, n_tasks)
        of_constants = loss.value(seen.y, best_constants(loss, all_seen)[task])
        of_zero = loss.value(seen.y, np.zeros(len(seen.y)))
        found = (all_seen.sum_by_task(sample_weight * values) for values in (of_constants, ROUNDING * of_zero))
        return cls(loss, *(values / all_seen.sum_by_task(sample_weight) for values in found))

    @classmethod
    def of_scored(cls, loss: Loss, scored: TaskScores, wide: bool) -> ExplainedLoss:
        """From the targets of all data as a scorer holds them."""
        order = np.argsort(scored.task, kind="stable")
        order = order[scored.w[order] > 0]
        seen = Observations(order, scored.task[order], scored.y[order], scored.w[order], len(scored.names))
        return cls.of(loss, seen, scored.w[order], wide)

    def __call__(self, scored: TaskScores, z: Array) -> float:
        """The score of decision values of the observations that ``scored`` holds; 1 is best, 0 is that of the constant."""
        values, null, rounding = self.loss.value(scored.y, z), self.constant_loss, self.rounding
        if len(null) == 1:
            mean = np.array([np.average(values, weights=scored.w)])
        else:
            seen = scored.total > 0
            mean = np.bincount(scored.task, scored.w * values, len(scored.names))[seen] / scored.total[seen]
            null, rounding = null[seen], rounding[seen]
        exact = np.where(mean <= rounding, 1.0, 0.0)  # where the constant has no loss
        some = null > rounding
        return float(np.mean(np.where(some, 1 - mean / np.where(some, null, 1.0), exact)))
