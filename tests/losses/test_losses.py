"""Laws of every loss."""

import numpy as np
import pytest
import zoo
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from taskloom import losses
from taskloom.losses.smoothed import Smoothed

EVERY = pytest.mark.parametrize("loss", zoo.LOSSES, ids=zoo.name)
SMOOTH = pytest.mark.parametrize("loss", [loss for loss in zoo.LOSSES if loss.smooth], ids=zoo.name)
KINKED = pytest.mark.parametrize("loss", [loss for loss in zoo.LOSSES if not loss.smooth], ids=zoo.name)


def points(loss, n=400):
    rng = np.random.default_rng(1)
    return zoo.targets(loss, rng, n), 2 * rng.normal(size=n)


def inside(loss, y):
    """Random gradients of the interval on which the conjugate is finite."""
    lower, upper = (np.clip(np.broadcast_to(edge, y.shape), -5, 5) for edge in loss.gradient_bounds(y))
    return lower + (upper - lower) * np.random.default_rng(2).random(y.shape)


@EVERY
def test_fenchel_young(loss):
    y, z = points(loss)
    s = inside(loss, y)
    assert np.all(loss.value(y, z) + loss.conjugate(y, s) - s * z >= -1e-12)


@EVERY
def test_the_conjugate_is_the_supremum(loss):
    y, _ = points(loss, 30)
    s = 0.98 * inside(loss, y)
    z = np.linspace(-30, 30, 60001)[:, None]
    assert np.allclose((s * z - loss.value(y, z)).max(axis=0), loss.conjugate(y, s), atol=2e-3)


@EVERY
def test_the_conjugate_is_infinite_outside_its_interval(loss):
    y, _ = points(loss, 10)
    lower, upper = (np.broadcast_to(edge, y.shape) for edge in loss.gradient_bounds(y))
    assert np.all(lower <= 0)
    assert np.all(upper >= 0)
    for edge, step in ((lower, -0.01), (upper, 0.01)):
        finite = np.isfinite(edge)
        assert np.all(np.isinf(loss.conjugate(y[finite], edge[finite] + step)))


@EVERY
def test_convex_along_lines(loss):
    y, z = points(loss)
    other = z[::-1]
    assert np.all(loss.value(y, (z + other) / 2) <= (loss.value(y, z) + loss.value(y, other)) / 2 + 1e-12)


@SMOOTH
def test_gradient_and_curvature_are_derivatives(loss):
    y, z = points(loss)
    h = 1e-5
    numeric = (loss.value(y, z + h) - loss.value(y, z - h)) / (2 * h)
    assert np.allclose(loss.gradient(y, z), numeric, atol=1e-4)
    bends = np.abs(loss.gradient(y, z + h) - loss.gradient(y, z - h)) / (2 * h)
    away = np.abs(loss.curvature(y, z + 1e-3) - loss.curvature(y, z - 1e-3)) < 0.1  # not at a bend of the gradient
    assert np.allclose(loss.curvature(y, z)[away], bends[away], atol=1e-3)
    assert bends.max() <= loss.max_curvature + 1e-6


@SMOOTH
def test_the_majorant_lies_above_the_loss(loss):
    y, z = points(loss)
    for other in (z[::-1], z + 3, z - 0.1):
        parabola = loss.value(y, z) + loss.gradient(y, z) * (other - z) + loss.majorant(y, z) * (other - z) ** 2 / 2
        assert np.all(loss.value(y, other) <= parabola + 1e-12)


@SMOOTH
def test_fenchel_young_is_an_equality_at_the_gradient(loss):
    y, z = points(loss)
    s = loss.gradient(y, z)
    assert np.allclose(loss.value(y, z) + loss.conjugate(y, s), s * z, atol=1e-10)


@KINKED
@pytest.mark.parametrize("step", [0.01, 0.3, 4.0])
def test_the_prox_beats_every_other_point(loss, step):
    y, z = points(loss, 40)
    u = loss.prox(y, z, step)
    at = step * loss.value(y, u) + (u - z) ** 2 / 2
    others = np.linspace(-10, 10, 4001)[:, None]
    assert np.all(at <= (step * loss.value(y, others) + (others - z) ** 2 / 2).min(axis=0) + 1e-12)


@KINKED
@pytest.mark.parametrize("width", [1e-3, 0.2, 3.0])
def test_the_smoothed_loss_obeys_the_laws_of_smooth_losses(loss, width):
    y, z = points(loss)
    smooth = Smoothed(loss, 0.5 * inside(loss, y), width)
    s = smooth.gradient(y, z)
    assert np.allclose(smooth.value(y, z) + smooth.conjugate(y, s), s * z, atol=1e-9)
    assert np.all(np.isfinite(loss.conjugate(y, s)))
    assert np.all(smooth.value(y, z) <= loss.value(y, z) + 1e-12)
    h = 1e-6 * width
    numeric = (smooth.gradient(y, z + h) - smooth.gradient(y, z - h)) / (2 * h)
    assert np.mean(np.abs(numeric - smooth.curvature(y, z)) < 1e-3 / width) > 0.97


@EVERY
@given(y=st.floats(-1e6, 1e6), z=st.floats(-1e6, 1e6))
def test_values_are_finite_and_not_negative(loss, y, z):
    if loss.targets == "signs":
        y = 1.0 if y > 0 else -1.0
    value = loss.value(np.array([y]), np.array([z]))
    assert np.all(np.isfinite(value))
    assert np.all(value >= 0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: losses.Huber(0), "width > 0, got width=0"),
        (lambda: losses.Quantile(1.5), "0 < q < 1, got q=1.5"),
        (lambda: losses.EpsilonInsensitive(-1), "epsilon >= 0, got epsilon=-1"),
        (lambda: losses.as_loss("cauchy"), "'cauchy'"),
        (lambda: losses.Squared().set_params(width=1), "no parameter 'width'"),
    ],
)
def test_nonsense_is_refused_by_name(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_a_class_in_place_of_an_object_is_refused():
    with pytest.raises(TypeError, match="pass an object"):
        losses.as_loss(losses.Huber)


def test_a_bad_parameter_leaves_the_old_one():
    loss = losses.Huber(2.0)
    with pytest.raises(ValueError, match="width"):
        loss.set_params(width=-1)
    assert loss.width == 2.0
    assert loss.set_params(width=3.0).width == 3.0


def test_the_logistic_loss_far_out_and_its_best_constant():
    """Against scipy's functions, where exponentials would overflow; and the constant against a search."""
    loss, z = losses.Logistic(), np.array([-1e4, -800.0, -40.0, -1e-9, 0.0, 1e-9, 40.0, 800.0, 1e4])
    for y in (-1.0, 1.0):
        m = y * z
        assert np.allclose(loss.value(np.full(9, y), z), np.logaddexp(0.0, -m), rtol=1e-15)
        assert np.allclose(loss.gradient(np.full(9, y), z), -y * expit(-m), rtol=1e-14, atol=0)
        assert np.allclose(loss.curvature(np.full(9, y), z), expit(z) * expit(-z), rtol=1e-14, atol=0)
    up, down = np.array([3.0, 1.0]), np.array([1.0, 4.0])
    at = loss.best_constant(up, down)
    for step in (-1e-4, 1e-4):
        cost = [up * loss.value(np.ones(2), b) + down * loss.value(-np.ones(2), b) for b in (at, at + step)]
        assert np.all(cost[0] < cost[1])
    assert loss.best_constant(np.array([1.0]), np.array([0.0])) is None
