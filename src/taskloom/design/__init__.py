"""The data of a problem: features, groupings, weights and targets, their layouts and their decompositions."""

from .design import Design
from .inputs import Inputs
from .observations import Grouping, Observations, TaskBatch, batches, task_strengths, tasks_by_size

__all__ = ["Design", "Grouping", "Inputs", "Observations", "TaskBatch", "batches", "task_strengths", "tasks_by_size"]
