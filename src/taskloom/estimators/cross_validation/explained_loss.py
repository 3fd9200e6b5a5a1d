"""The default score of a search among sums of terms: the share of the loss of the best constant that a model explains.

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


@dataclass(frozen=True, eq=False)
class ExplainedLoss:
    """The loss of the best constant: one number for a long table, one for each task of a wide one."""

    loss: Loss
    constant_loss: Array

    @classmethod
    def of(cls, loss: Loss, seen: Observations, sample_weight: Array, wide: bool) -> ExplainedLoss:
        """From all data; ``sample_weight`` has an entry for each observation."""
        task, n_tasks = (seen.task, seen.n_tasks) if wide else (np.zeros(len(seen.y), dtype=int), 1)
        all_seen = Observations(seen.row, task, seen.y, sample_weight, n_tasks)
        values = loss.value(seen.y, best_constants(loss, all_seen)[task])
        return cls(loss, all_seen.sum_by_task(sample_weight * values) / all_seen.sum_by_task(sample_weight))

    def __call__(self, scored: TaskScores, z: Array) -> float:
        """The score of decision values of the observations that ``scored`` holds; 1 is best, 0 is that of the constant."""
        values = self.loss.value(scored.y, z)
        if len(self.constant_loss) == 1:
            mean = np.array([np.average(values, weights=scored.w)])
        else:
            seen = scored.total > 0
            mean = np.bincount(scored.task, scored.w * values, len(scored.names))[seen] / scored.total[seen]
        null = self.constant_loss if len(self.constant_loss) == 1 else self.constant_loss[seen]
        exact = np.where(mean <= 0, 1.0, 0.0)  # where the constant has no loss
        return float(np.mean(np.where(null > 0, 1 - mean / np.where(null > 0, null, 1.0), exact)))
