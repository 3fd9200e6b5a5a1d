"""The interior-point method for smoothed losses: its optimum, and where it ends."""

import numpy as np

from taskloom.losses import Hinge, Logistic, Mixed, Squared
from taskloom.solvers.supervised.batched_newton import Batch
from taskloom.solvers.supervised.interior_point import _Path, interior_point_start
from taskloom.solvers.supervised.newton_systems import DenseColumns, OneEach

rng = np.random.default_rng(0)


def test_a_nonsmooth_loss_of_some_tasks_beside_other_losses():
    """Inside, observations under other losses take part as they are, and exponentials in short steps."""
    draw = np.random.default_rng(4)
    inputs, which = 30 * draw.normal(size=(1, 24, 8)), np.arange(24)[None] // 8
    y = np.where(which == 0, draw.normal(size=(1, 24)), draw.choice([-1.0, 1.0], size=(1, 24)))
    loss = Mixed([Squared(), Logistic(), Hinge()], which).smoothed(np.zeros((1, 24)), 0.01)
    batch = Batch(loss, y, np.full((1, 24), 1 / 24), DenseColumns(inputs), OneEach(np.ones((1, 24))))
    coef, b = interior_point_start(batch, np.zeros((1, 8)), np.zeros((1, 1)))
    gradient = batch.v * loss.gradient(y, batch.outputs(batch.design.predict(coef), b))
    assert np.square(np.einsum("bmp,bm->bp", inputs, gradient) + coef).sum() / 2 <= 1e-9
    assert abs(gradient.sum()) <= 1e-9


def test_interior_steps_end_where_only_rounding_is_left(monkeypatch):
    """After a dozen steps to 1e-12 followed fifty of length 1e-36."""
    taken = []
    step = _Path._step
    monkeypatch.setattr(_Path, "_step", lambda *given: taken.append(1) or step(*given))
    monkeypatch.setattr(_Path, "_length", lambda self, *_: np.full(len(self.batch.y), 1e-30))
    y = np.sign(rng.normal(size=(1, 40)))
    loss = Hinge().smoothed(np.zeros((1, 40)), 1e-2)
    interior_point_start(
        Batch(loss, y, np.ones((1, 40)), DenseColumns(rng.normal(size=(1, 40, 5))), None), np.zeros((1, 5)), np.zeros((1, 0))
    )
    assert len(taken) == 3
