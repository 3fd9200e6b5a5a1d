"""Newton's method on many small problems at once: useless starts, nonsmooth losses, plateaus."""

import numpy as np
import pytest

from taskloom.losses import Absolute, CustomLoss, EpsilonInsensitive, Hinge, Quantile, Squared
from taskloom.solvers.supervised.batched_newton import TUNING, Batch, newton
from taskloom.solvers.supervised.newton_systems import DenseColumns, Gram, OneEach

rng = np.random.default_rng(0)


def test_a_useless_start_does_not_grow_from_step_to_step():
    """One step of an ill-conditioned system is off by a share of its start: starts that came from each other grew to 1e132."""
    P = rng.normal(size=(9, 9))
    K = 1e14 * (P[:, :3] @ P[:, :3].T)[None]
    batch = Batch(Squared(), rng.normal(size=(1, 9)), np.full((1, 9), 1 / 9), Gram(K), None)
    far = 1e40 * rng.normal(size=(1, 9))
    clean, found = newton(batch, np.zeros((1, 9)), np.zeros((1, 0))), newton(batch, far, np.zeros((1, 0)))
    assert np.allclose(found.coef, clean.coef)


@pytest.mark.parametrize("loss", [Hinge(), Absolute(), Quantile(0.2), EpsilonInsensitive(0.1)], ids=repr)
@pytest.mark.parametrize("dense", [DenseColumns, Gram])
def test_a_smoothed_loss_is_minimised_at_any_strength(loss, dense):
    """Newton met the pieces of the loss one by one, and gave up far from the minimum: its own duality gap was 1 or more."""
    draw = np.random.default_rng(5)
    inputs = 1e4 * draw.normal(size=(2, 40, 30)) * 10.0 ** -draw.uniform(0, 4, size=30)
    y = draw.normal(size=(2, 40)) if loss.targets == "numbers" else draw.choice([-1.0, 1.0], size=(2, 40))
    v = np.full((2, 40), 1 / 40)
    v[1, -5:] = 0.0  # padded
    design = DenseColumns(inputs) if dense is DenseColumns else Gram(inputs @ inputs.transpose(0, 2, 1))
    smoothed = loss.smoothed(np.zeros((2, 40)), 0.01)
    batch = Batch(smoothed, y, v, design, OneEach((v > 0).astype(float)))
    fit = newton(batch, design.start(np.zeros((2, 40))), np.zeros((2, 1)))
    z = batch.outputs(design.predict(fit.coef), fit.b)
    u = -v * smoothed.gradient(y, z)
    beta = fit.coef if dense is DenseColumns else np.einsum("bmp,bm->bp", inputs, fit.coef)
    gap = np.square(np.einsum("bmp,bm->bp", inputs, u) - beta).sum() / 2
    assert gap <= 1e-6
    assert np.abs(u.sum(axis=1)).max() <= 1e-6


def test_newton_goes_on_where_its_start_was_flatter_than_the_way():
    """25 steps whose decrement was above that of the first, on the plateau of an outlier, counted as rounding."""
    draws = np.random.default_rng(363)
    n, p = int(draws.integers(6, 40)), int(draws.integers(2, 12))
    size = 10 ** draws.uniform(0, 4)
    y = draws.normal(size=(1, n)) * 10 ** draws.uniform(0, 3)
    y[0, draws.integers(n)] = 1e6
    inputs = size * draws.normal(size=(1, n, p))
    start = np.matmul(inputs.transpose(0, 2, 1), draws.normal(size=(1, n, 1)))[..., 0] * 10 ** draws.uniform(-3, 0)
    batch = Batch(CustomLoss(Plateau()), y, np.full((1, n), 1 / n), DenseColumns(inputs), OneEach(np.ones((1, n))))
    found = newton(batch, start, np.zeros((1, 1)))
    again = newton(batch, found.coef, found.b)
    values = batch.value(found.coef, found.b), batch.value(again.coef, again.b)
    assert found.steps == TUNING.max_steps or np.allclose(*values, rtol=1e-6)  # it ends where nothing is left, or at its limit


class Plateau:
    """``log cosh``, whose curvature vanishes within a few units."""

    max_curvature = 1.0

    def value(self, y, z):
        return np.logaddexp(z - y, y - z) - np.log(2)

    def gradient(self, y, z):
        return np.tanh(z - y)
