"""Stands in for a Dask cluster: what is submitted runs at once, in this process."""

import numpy as np

from taskloom.distributed.dask_engine import DaskEngine
from taskloom.distributed.dask_workers import Workers
from taskloom.distributed.task_summaries import summarise


class SynchronousWorkers(Workers):
    """Futures are results."""

    def __init__(self):
        super().__init__(client=None)

    def submit(self, name, function, *arguments):
        return function(*arguments)

    def gather(self, futures):
        return futures


def engine_over(problem, n_blocks=3):
    """The engine of a problem whose rows are in blocks on several workers; tasks are in several blocks."""
    obs = problem.observations
    rows, centre = np.column_stack([problem.features[obs.row], obs.y]), problem.fit_intercept
    statistics = []
    for block in np.array_split(np.random.default_rng(0).permutation(obs.y.size), n_blocks):
        labels, task = np.unique(obs.task[block], return_inverse=True)
        statistics.append(summarise(rows[block], task, labels, centre))
    present, counts = [each.labels for each in statistics], [each.counts for each in statistics]
    weights = obs.task_weights
    return DaskEngine(
        SynchronousWorkers(), statistics, present, counts, weights, centre, problem.alpha, problem.ridge, problem.n_features
    )
