"""The certified bracket holds the value that CVXPY and Clarabel find, and both ends of it touch that value."""

import itertools

import numpy as np
import oracle
import pytest
import zoo
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskClassifier, MultiTaskRegressor
from taskloom.features.kernels import KernelFeatures

PAIRS = list(itertools.product(zoo.LOSSES, zoo.STRUCTURES))
SETTINGS = list(itertools.product(["shared", "own", "missing"], ["linear", "rbf"], [True, False]))


def compare(loss, F, layout, kernel, fit_intercept, seed=0, alpha=0.05, ridge=0.0):
    X, Y = zoo.data(loss, layout, seed=seed, n=8 if layout == "own" else 12, d=3)
    tol = 1e-8 if loss.smooth else 1e-7
    model = MultiTaskClassifier if loss.targets == "signs" else MultiTaskRegressor
    model = model(
        F, loss=loss, kernel=kernel, gamma=0.3, alpha=alpha, ridge=ridge, fit_intercept=fit_intercept, tol=tol, max_iter=3000
    )
    certificate = model.fit(X, Y).certificate_
    phi = X if kernel == "linear" else KernelFeatures(rbf_kernel(X, gamma=0.3)).phi
    truth = oracle.minimum(phi, Y, loss, F, alpha, ridge=ridge, fit_intercept=fit_intercept)
    noise = 1e-7 * max(1.0, abs(truth))  # the oracle's own accuracy
    assert certificate.dual - noise <= truth <= certificate.primal + noise
    assert abs(certificate.primal - truth) <= 1e-6 * max(abs(truth), 1e-3) + noise
    assert certificate.optimal, certificate.message


@pytest.mark.parametrize("k", range(len(PAIRS)), ids=[f"{zoo.name(loss)}-{zoo.name(F)}" for loss, F in PAIRS])
def test_every_pair_of_loss_and_structure(k):
    """Each pair in one setting; the settings take turns so that all of them meet all losses and all structures."""
    loss, F = PAIRS[k]
    layout, kernel, fit_intercept = SETTINGS[(5 * (k // len(zoo.STRUCTURES)) + 7 * (k % len(zoo.STRUCTURES))) % len(SETTINGS)]
    compare(loss, F, layout, kernel, fit_intercept, seed=k % 5, ridge=0.02 if k % 3 == 0 else 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize(("loss", "F"), PAIRS, ids=lambda c: type(c).__name__)
def test_the_whole_product(loss, F, setting):
    compare(loss, F, *setting, seed=11)


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("F", zoo.LEARNED, ids=zoo.name)
def test_weak_and_strong_penalties(F, alpha):
    compare(zoo.LOSSES[0], F, "missing", "linear", True, seed=3, alpha=alpha)


def test_a_structure_that_is_nearly_nothing_grows_again():
    """A first stand-in for the kinks leaves 1e-10 of it; steps in proportion to that would never end."""
    by_name = {type(each).__name__: each for each in (*zoo.LOSSES, *zoo.STRUCTURES)}
    compare(by_name["Absolute"], by_name["Sparse"], "own", "rbf", False, seed=11)


def test_weights_reach_the_objective():
    rng = np.random.default_rng(0)
    loss, F = zoo.LOSSES[1], zoo.LEARNED[0]
    X, Y = zoo.data(loss, "missing", n=10, d=3)
    S, c = rng.uniform(0.1, 2, size=Y.shape), rng.uniform(0.5, 2, size=zoo.T)
    model = MultiTaskRegressor(F, loss=loss, alpha=0.05, task_weight=c, tol=1e-8).fit(X, Y, sample_weight=S)
    truth = oracle.minimum(X, Y, loss, F, 0.05, sample_weight=S, task_weight=c)
    assert abs(model.certificate_.primal - truth) <= 1e-6 * truth
