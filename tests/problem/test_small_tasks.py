"""The passes over many small tasks at once, against a loop over the tasks."""

import numpy as np

from taskloom.design import Inputs, Observations
from taskloom.design import inputs as module


def test_passes_over_small_tasks_are_those_of_each_task(monkeypatch):
    rng = np.random.default_rng(0)
    task = np.sort(rng.integers(0, 40, size=150))
    row, phi = rng.permutation(150), rng.normal(size=(150, 12))
    seen = Observations(row, task, rng.normal(size=150), np.ones(150), 41)  # the last task has no observation
    W, b, G = rng.normal(size=(12, 41)), rng.normal(size=41), rng.normal(size=150)
    together = Inputs(phi, seen.grouping)
    assert together._small_tasks is not None
    z, Z = together.predict(W, b), together.correlate(G)
    monkeypatch.setattr(module, "MAX_SMALL_TASK", 0)
    one_by_one = Inputs(phi, seen.grouping)
    assert one_by_one._small_tasks is None
    assert np.allclose(z, one_by_one.predict(W, b), rtol=1e-13)
    assert np.allclose(Z, one_by_one.correlate(G), rtol=1e-13)
