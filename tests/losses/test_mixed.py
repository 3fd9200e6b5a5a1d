"""A loss of its own for each task: the laws of losses hold, and CVXPY finds the certified minimum."""

import warnings

import cvxpy as cp
import numpy as np
import oracle
import pytest
import zoo
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskRegressor, losses, structures
from taskloom.design import Observations
from taskloom.losses import mixed_loss
from taskloom.losses.mixed import Mixed
from taskloom.problem import Problem
from taskloom.solvers import alpha_max, solve

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 4))
Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(12, 3))


SQUARED, HUBER, ABSOLUTE, QUANTILE = losses.Squared(), losses.Huber(0.7), losses.Absolute(), losses.Quantile(0.3)
LOGISTIC, HINGE, SQUARED_HINGE = losses.Logistic(), losses.Hinge(), losses.SquaredHinge()

COMBINATIONS = {
    "squared+logistic": [SQUARED, LOGISTIC, SQUARED, LOGISTIC],
    "huber+hinge": [HUBER, HINGE, HINGE, HUBER],
    "squared+absolute+logistic": [SQUARED, ABSOLUTE, LOGISTIC, ABSOLUTE],
    "quantile+squared_hinge": [QUANTILE, SQUARED_HINGE, QUANTILE, SQUARED_HINGE],
}
EVERY = pytest.mark.parametrize("combination", list(COMBINATIONS.values()), ids=list(COMBINATIONS))
STRUCTURES = [structures.Trace(), structures.Frobenius(), structures.Clusters(2), structures.SharedMean(2.0)]

SMOOTH = [SQUARED, HUBER, SQUARED_HINGE, LOGISTIC]
KINKED = [SQUARED, ABSOLUTE, HINGE, LOGISTIC, QUANTILE]
MIXES = pytest.mark.parametrize("parts", [SMOOTH, KINKED], ids=["smooth", "kinked"])
SHAPES = pytest.mark.parametrize("shape", [(400,), (20, 20)], ids=["flat", "batch"])


# --- laws -------------------------------------------------------------------------------------------------------


def points(parts, shape):
    """A mixture, with targets that every part understands, and predictions."""
    rng = np.random.default_rng(1)
    loss = Mixed(parts, rng.integers(len(parts), size=shape))
    signs = np.array([part.targets == "signs" for part in parts])[loss.which]
    y = rng.normal(size=shape)
    return loss, np.where(signs, np.where(y > 0, 1.0, -1.0), y), 2 * rng.normal(size=shape)


def inside(loss, y):
    """Random gradients of the interval on which the conjugate is finite."""
    lower, upper = (np.clip(edge, -5, 5) for edge in loss.gradient_bounds(y))
    return lower + (upper - lower) * np.random.default_rng(2).random(y.shape)


def stand_in(parts, shape):
    """The mixture smoothed, with another width for each observation."""
    loss, y, z = points(parts, shape)
    width = 10 ** np.random.default_rng(3).uniform(-2, 0.5, size=shape)
    return loss, loss.smoothed(0.5 * inside(loss, y), width), y, z


@SHAPES
@MIXES
def test_fenchel_young(parts, shape):
    loss, y, z = points(parts, shape)
    s = inside(loss, y)
    apart = loss.value(y, z) + loss.conjugate(y, s) - s * z
    assert np.all(np.isfinite(apart))
    assert np.all(apart >= -1e-12)


@SHAPES
def test_fenchel_young_is_an_equality_at_the_gradient(shape):
    loss, y, z = points(SMOOTH, shape)
    s = loss.gradient(y, z)
    assert np.allclose(loss.value(y, z) + loss.conjugate(y, s), s * z, atol=1e-10)


@SHAPES
@MIXES
def test_each_entry_is_under_its_own_loss(parts, shape):
    loss, y, z = points(parts, shape)
    s = inside(loss, y)
    for k, part in enumerate(parts):
        own = loss.which == k
        for mine, theirs in [(loss.value(y, z), part.value(y, z)), (loss.conjugate(y, s), part.conjugate(y, s))]:
            assert np.array_equal(mine[own], theirs[own])
        for mine, theirs in zip(loss.gradient_bounds(y), part.gradient_bounds(y), strict=True):
            assert np.array_equal(mine[own], np.broadcast_to(theirs, shape)[own])


@SHAPES
@MIXES
def test_smoothing_touches_nonsmooth_losses_alone(parts, shape):
    loss, smooth, y, z = stand_in(parts, shape)
    kinks = ~np.array([part.smooth for part in parts])[loss.which]
    assert smooth.smooth
    assert np.array_equal(smooth.value(y, z)[~kinks], loss.value(y, z)[~kinks])
    assert np.all(smooth.value(y, z) <= loss.value(y, z) + 1e-12)
    assert np.any(smooth.value(y, z)[kinks] < loss.value(y, z)[kinks] - 1e-3) == kinks.any()


@SHAPES
@MIXES
def test_the_stand_in_obeys_the_laws_of_smooth_losses(parts, shape):
    loss, smooth, y, z = stand_in(parts, shape)
    s = smooth.gradient(y, z)
    assert np.allclose(smooth.value(y, z) + smooth.conjugate(y, s), s * z, atol=1e-9)
    assert np.all(np.isfinite(loss.conjugate(y, s)))
    h = 1e-8
    numeric = (smooth.gradient(y, z + h) - smooth.gradient(y, z - h)) / (2 * h)
    assert np.mean(np.abs(numeric - smooth.curvature(y, z)) < 1e-4 * (1 + numeric)) > 0.97
    assert numeric.max() <= smooth.max_curvature * (1 + 1e-5)
    for other in (z[::-1], z + 3, z - 0.1):
        parabola = smooth.value(y, z) + s * (other - z) + smooth.majorant(y, z) * (other - z) ** 2 / 2
        assert np.all(smooth.value(y, other) <= parabola + 1e-10)


@MIXES
def test_a_selection_is_under_the_same_losses(parts):
    _, smooth, y, z = stand_in(parts, (400,))
    place = np.random.default_rng(4).integers(400, size=(7, 30))  # as a padded batch: repeated, in any order
    picked, rows = smooth.pick(place), np.array([2, 5])
    for method in ("value", "gradient", "curvature", "conjugate"):
        whole = getattr(smooth, method)(y, z)[place]
        assert np.array_equal(getattr(picked, method)(y[place], z[place]), whole, equal_nan=True)
        assert np.array_equal(getattr(picked.pick(rows), method)(y[place][rows], z[place][rows]), whole[rows], equal_nan=True)


def test_units_are_those_of_each_loss():
    loss = Mixed([ABSOLUTE, HINGE], np.array([0, 0, 1, 1]))
    assert loss.unit(np.array([-300.0, 500.0, 7.0, 9.0])).tolist() == [400.0, 400.0, 1.0, 1.0]


def test_tasks_that_agree_share_a_loss():
    task = np.array([0, 0, 1, 2, 3])
    same = [losses.Huber(2.0), losses.Huber(2.0), losses.Huber(2), losses.Huber(2.0)]
    assert mixed_loss(same, task) is same[0]
    mixed = mixed_loss([losses.Huber(2.0), HINGE, losses.Huber(1.0), losses.Huber(2.0)], task)
    assert [type(part).__name__ for part in mixed.parts] == ["Huber", "Hinge", "Huber"]
    assert mixed.which.tolist() == [0, 0, 1, 2, 0]
    assert not mixed.smooth


# --- problems ---------------------------------------------------------------------------------------------------


def data(combination, layout, seed=0, n=14, d=3):
    """``X`` and ``Y`` with numbers or labels, as each task's loss wants; ``missing`` leaves out 30 % (never all of a label)."""
    rng = np.random.default_rng(seed)
    T = len(combination)
    X = rng.normal(size=(n, d))
    Y = X @ rng.normal(size=(d, 2)) @ rng.normal(size=(2, T)) + 0.4 * rng.normal(size=(n, T)) + 0.5
    signs = np.array([loss.targets == "signs" for loss in combination])
    Y = np.where(signs, np.where(np.median(Y, axis=0) < Y, 1.0, -1.0), Y)
    if layout == "missing":
        Y[:2, signs] = np.array([[1.0], [-1.0]])
        Y[2:] = np.where(rng.random((n - 2, T)) < 0.3, np.nan, Y[2:])
    return X, Y


def problem_of(X, Y, combination, structure, alpha=0.05, fit_intercept=True, task_weight="equal"):
    seen = Observations.from_wide(Y, task_weight=task_weight)
    return Problem(X, seen, mixed_loss(combination, seen.task), structure, alpha, fit_intercept=fit_intercept)


def minimum(X, Y, combination, structure, alpha=0.05, fit_intercept=True):
    """The objective with another loss in each task, in CVXPY."""
    T = len(combination)
    v = oracle.observation_weights(Y, None, None)
    W, penalty, constraints, _ = oracle.structure_penalty(structure, X.shape[1], T, alpha)
    b = cp.Variable(T) if fit_intercept else np.zeros(T)
    for t, loss in enumerate(combination):
        seen = v[:, t] > 0
        penalty = penalty + v[seen, t] @ oracle.losses(loss, Y[seen, t], X[seen] @ W[:, t] + b[t])
    return oracle.solve(cp.Problem(cp.Minimize(penalty), constraints), f"a mixture with {type(structure).__name__}")


def compare(combination, structure, layout, fit_intercept=True):
    X, Y = data(combination, layout)
    problem = problem_of(X, Y, combination, structure, fit_intercept=fit_intercept)
    certificate = solve(problem, tol=1e-8 if problem.loss.smooth else 1e-7).certificate
    truth = minimum(X, Y, combination, structure, fit_intercept=fit_intercept)
    noise = 1e-7 * max(1.0, truth)  # the oracle's own accuracy
    assert certificate.optimal, certificate.message
    assert certificate.dual - noise <= truth <= certificate.primal + noise
    assert abs(certificate.primal - truth) <= 1e-6 * truth


@pytest.mark.parametrize("layout", ["shared", "missing"])
@pytest.mark.parametrize("F", STRUCTURES, ids=zoo.name)
@EVERY
def test_cvxpy_finds_the_certified_minimum(combination, F, layout):
    compare(combination, F, layout)


@EVERY
def test_without_intercepts(combination):
    compare(combination, structures.Trace(), "missing", fit_intercept=False)


@pytest.mark.parametrize("solver", ["alternating", "block", "factored", "proximal"])
@pytest.mark.parametrize("name", ["squared+logistic", "huber+hinge"])
def test_every_solver_takes_a_mixture(name, solver):
    combination = COMBINATIONS[name]
    problem = problem_of(*data(combination, "missing"), combination, structures.Frobenius())
    best = solve(problem, tol=1e-7)
    other = solve(problem, solver, tol=1e-4)
    assert other.certificate.optimal, other.certificate.message
    assert abs(other.certificate.primal - best.certificate.primal) <= 1e-4 * problem.scale


@pytest.mark.parametrize("loss", zoo.LOSSES, ids=zoo.name)
def test_a_mixture_of_one_loss_is_that_loss(loss):
    X, Y = zoo.data(loss, "missing")
    plain = Problem(X, Y, loss, structures.Trace(), 0.05)
    which = plain.observations.task % 2
    mixed = Problem(X, plain.observations, Mixed([loss, loss], which), structures.Trace(), 0.05)
    assert np.isclose(mixed.scale, plain.scale, rtol=1e-12)
    one, other = (solve(problem, tol=1e-7) for problem in (plain, mixed))
    assert one.certificate.optimal
    assert other.certificate.optimal
    assert abs(one.certificate.primal - other.certificate.primal) <= 1e-7 * plain.scale


def test_the_best_constants_of_a_mixture():
    """The mean, the median, the log odds, the more frequent label; and far out where there is but one label."""
    rng = np.random.default_rng(0)
    Y = np.column_stack([1000 + 30 * rng.normal(size=21), -50 + rng.normal(size=21), np.ones(21), -np.ones(21), np.ones(21)])
    Y[0, 2], Y[0, 3] = -1.0, 1.0
    problem = problem_of(np.zeros((21, 1)), Y, [SQUARED, ABSOLUTE, LOGISTIC, HINGE, LOGISTIC], structures.Trace())
    expected = [Y[:, 0].mean(), np.median(Y[:, 1]), np.log(20), -1.0]
    assert np.allclose(problem.best_constants[:4], expected, rtol=1e-6)
    assert problem.best_constants[4] > 20


@EVERY
def test_everything_vanishes_at_the_largest_strength(combination):
    problem = problem_of(*data(combination, "missing"), combination, structures.Trace())
    edge = alpha_max(problem)
    above, below = (solve(problem.at(share * edge), tol=1e-7) for share in (1.001, 0.8 if problem.loss.smooth else 0.3))
    assert above.certificate.optimal
    assert above.certificate.primal >= (1 - 1e-7) * problem.scale
    assert below.certificate.primal <= (1 - 1e-5) * problem.scale


@pytest.mark.parametrize("F", ["trace", "frobenius"])
@pytest.mark.parametrize("spread", [1.0, 3000.0])
@pytest.mark.parametrize("weighed", [False, True], ids=["equal", "weighed"])
def test_targets_in_thousands_beside_labels(F, weighed, spread):
    """Predictions that differ by a thousand, and losses that differ by its square unless they are weighed."""
    combination = [SQUARED, HINGE, SQUARED, HINGE]
    X, Y = data(combination, "shared", n=40, d=5)
    Y[:, ::2] = 1000 + spread * Y[:, ::2]
    c = np.where(np.arange(4) % 2 == 0, 1 / Y.var(axis=0), 1.0) if weighed else "equal"
    solution = solve(problem_of(X, Y, combination, F, 0.1, task_weight=c), tol=1e-5)
    assert solution.certificate.relative_gap <= 1e-5, solution.certificate.message


def test_the_scale_of_a_mixed_loss_is_that_of_the_best_constants():
    """The bracket around the constants ended at 2 or so: targets far from zero made the scale, and the gap beside it, wrong."""
    targets = np.where(np.arange(3) == 1, np.where(Y > 0, 1.0, -1.0), Y + 1e4)
    losses = {0: "squared", 1: "logistic", 2: "absolute"}
    model = MultiTaskRegressor(structures.Trace(), loss=losses, alpha=0.1, tol=1e-2, max_iter=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        said = model.fit(X, targets).certificate_
    share = (targets[:, 1] > 0).mean()
    scale = targets[:, 0].var() - share * np.log(share) - (1 - share) * np.log1p(-share)
    scale += np.abs(targets[:, 2] - np.median(targets[:, 2])).mean()
    assert said.gap / said.relative_gap == pytest.approx(scale, rel=1e-6)
