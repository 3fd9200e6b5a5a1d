"""Components of users that contradict themselves are never certified; right ones are, in any units."""

import numpy as np
import pytest
import wrong_components as components
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, solve
from taskloom.losses import CustomLoss, Loss
from taskloom.losses import fenchel_young as of_losses
from taskloom.structures import CustomStructure, Frobenius, LowRank

UNITS = (1e-8, 1.0, 1e8)
POWER = {"Round": 0, "LogCosh": 0, "Distance": 1, "ExactDistance": 1, "Pieces": 1}  # of the unit, in the loss; others have 2


def data(seed=0, n=25):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ rng.normal(size=(3, 2)) @ rng.normal(size=(2, 3)) + 0.5 * rng.normal(size=(n, 3))


def strength(power, unit, structure="trace"):
    """The alpha with which a problem in other units is the same problem."""
    return 0.05 * unit ** (2 * power - 2 if structure == "trace" else power - 2)


def labelled(certificate):
    return not certificate.converged and certificate.dual == -np.inf and certificate.relative_gap == np.inf


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # where every curvature is negative
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", [name for name, _ in components.wrong_losses(1.0)])
def test_a_wrong_loss_is_labelled(name, unit):
    """Before, 33 of these 96 fits were optimal, and 13 bounds were above a known minimum."""
    case = dict(components.wrong_losses(unit))[name]
    power = 1 if "Distance" in type(case.component).__name__ else 2
    for seed in (0, 1):
        X, Y = data(seed)
        problem = Problem(X, unit * Y, case.component, "trace", strength(power, unit))
        assert labelled(solve(problem, max_iter=60, time_limit=2).certificate)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", [name for name, _ in components.wrong_structures()])
def test_a_wrong_structure_is_labelled(name, unit):
    """Before, 14 of these 60 fits were optimal."""
    case = dict(components.wrong_structures())[name]
    alpha = 0.05 * unit if "Square" in type(case.component).__name__ else 0.05 * unit**2
    for seed in (0, 1):
        X, Y = data(seed)
        assert labelled(solve(Problem(X, unit * Y, structure=case.component, alpha=alpha), max_iter=60).certificate)


def test_the_user_is_warned_and_the_method_is_named():
    X, Y = data()
    wrong = dict(components.wrong_losses(1.0))["derivative times 0.5"].component
    with pytest.warns(ConvergenceWarning, match=r"Not certified: WrongSquare.gradient is not the derivative"):
        model = MultiTaskRegressor(loss=wrong).fit(X, Y)
    assert model.certificate_.status == "contradiction"
    wrong = dict(components.wrong_structures())["conjugate without a domain"].component
    with pytest.warns(ConvergenceWarning, match="Not certified"):
        MultiTaskRegressor(wrong, alpha=0.05).fit(X, Y)


def test_a_wrong_loss_is_labelled_under_a_structure_that_is_not_convex():
    X, Y = data()
    wrong = dict(components.wrong_losses(1.0))["derivative times 1.01"].component
    assert labelled(solve(Problem(X, Y, wrong, LowRank(1), 0.05)).certificate)


def test_one_wrong_loss_among_several_is_labelled():
    X, Y = data()
    wrong = dict(components.wrong_losses(1.0))["derivative times 1.01"].component
    with pytest.warns(ConvergenceWarning, match=r"WrongSquare.gradient"):
        MultiTaskRegressor(loss={0: "squared", 1: wrong, 2: "huber"}, alpha=0.05).fit(X, Y)
    right = MultiTaskRegressor(loss={0: "squared", 1: components.Square(), 2: "huber"}, alpha=0.05).fit(X, Y)
    assert right.certificate_.optimal


def test_one_wrong_structure_in_a_sum_is_labelled():
    X, Y = data()
    wrong = dict(components.wrong_structures())["prox with half the step"].component
    for penalty, right in ((components.TraceMethods(), True), (wrong, False)):
        certificate = solve(Problem(X, Y, structure=CustomStructure(penalty) + Frobenius(), alpha=0.05)).certificate
        assert certificate.optimal if right else labelled(certificate)


class OwnLoss(Loss):
    """Derived from ``Loss``, with a derivative that is wrong by a factor."""

    def __init__(self, factor):
        self.factor = factor

    def get_params(self, deep=True):
        return {"factor": self.factor}

    def value(self, y, z):
        return (z - y) ** 2

    def gradient(self, y, z):
        return 2 * self.factor * (z - y)

    def curvature(self, y, z):
        return np.full_like(z, 2 * self.factor)

    def conjugate(self, y, s):
        return s * y + s**2 / 4

    def gradient_bounds(self, y):
        return -np.inf, np.inf


def test_a_loss_that_is_derived_from_the_interface_is_tried_too():
    X, Y = data()
    assert solve(Problem(X, Y, OwnLoss(1.0), alpha=0.05)).certificate.optimal
    assert labelled(solve(Problem(X, Y, OwnLoss(0.9), alpha=0.05), max_iter=60).certificate)


@settings(max_examples=60, deadline=None)
@given(
    exponent=st.integers(-8, 8),
    kind=st.integers(0, 7),
    seed=st.integers(0, 5),
    offset=st.sampled_from([0.0, 3.0, 100.0]),
    structure=st.sampled_from(["trace", "independent"]),
    tol=st.sampled_from([1e-3, 1e-4, 1e-6]),
)
def test_right_losses_are_certified_in_any_units(exponent, kind, seed, offset, structure, tol):
    unit = 10.0**exponent
    name, loss = components.right_losses(unit)[kind]
    X, Y = data(seed)
    problem = Problem(X, unit * (Y + offset), loss, structure, strength(POWER.get(name, 2), unit, structure))
    certificate = solve(problem, tol=tol).certificate
    assert certificate.optimal, f"{name}: {certificate.message}"


@settings(max_examples=40, deadline=None)
@given(exponent=st.integers(-8, 8), kind=st.integers(0, 2), seed=st.integers(0, 5))
def test_right_structures_are_certified_in_any_units(exponent, kind, seed):
    unit = 10.0**exponent
    name, structure = components.right_structures()[kind]
    X, Y = data(seed)
    alpha = 0.05 * (unit if name == "SquareMethods" else unit**2)
    certificate = solve(Problem(X, unit * Y, structure=structure, alpha=alpha)).certificate
    assert certificate.optimal, f"{name}: {certificate.message}"


@settings(max_examples=30, deadline=None)
@given(rate=st.floats(-2.0, 16.0), seed=st.integers(0, 5))
def test_right_counts_of_any_size_are_certified(rate, seed):
    """Values of counts of 1e7 are differences of numbers of 1e8: their rounding is no contradiction."""
    X, Y = data(seed)
    counts = np.random.default_rng(seed).poisson(np.exp(rate + 0.1 * Y)).astype(float)
    if counts.sum(axis=0).min() > 0:
        certificate = solve(Problem(X, counts, components.Poisson(), "independent", 0.01 * np.exp(rate))).certificate
        assert "Not certified" not in certificate.message


class Logistic:
    targets = "signs"

    def value(self, y, z):
        return np.logaddexp(0, np.where(y == 1, -z, z))

    def gradient(self, y, z):
        return np.where(y == 1, -expit(-z), expit(z))


def test_labels_are_not_moved_by_rounding():
    X, Y = data(n=60)
    assert MultiTaskClassifier(loss=Logistic(), alpha=0.01).fit(X, Y > 0).certificate_.optimal


def test_methods_are_tried_at_a_bounded_number_of_points():
    class Counting(components.Square):
        calls = largest = 0

        def value(self, y, z):
            self.calls, self.largest = self.calls + 1, max(self.largest, z.size)
            return super().value(y, z)

    loss = Counting()
    y = np.random.default_rng(0).normal(size=10**5)
    assert of_losses.sample(y).size == of_losses.MAX_OBSERVATIONS
    z = np.zeros(of_losses.MAX_OBSERVATIONS)
    assert not np.any(of_losses.gradient_excess(CustomLoss(loss), y[: z.size], z, 1.0))
    assert loss.calls <= 60
