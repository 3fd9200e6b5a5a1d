"""Nonsmooth losses and their smoothing: widths where constants fit, weak strengths, singular structures."""

import numpy as np
import pytest

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, solve, structures
from taskloom.losses import Absolute, Logistic, Mixed
from taskloom.solvers.reformulations import Smoothing

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 4))
Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(12, 3))


@pytest.mark.parametrize("loss", ["squared", "absolute", "quantile", "epsilon_insensitive", "huber"])
@pytest.mark.parametrize("structure", [structures.Robust(), structures.Trace(), structures.LogDet(0.3), structures.Clusters(2)])
def test_constant_targets_leave_nothing_to_learn(loss, structure):
    """Smoothing measured its width by the loss of constants: 1e-300, whose inverse times large inputs overflowed."""
    model = MultiTaskRegressor(structure, loss=loss).fit(1e15 * X, 0 * Y + [0.0, 3.0, -2.0])
    assert model.certificate_.optimal, model.certificate_.message
    assert np.allclose(model.predict(X), [0.0, 3.0, -2.0], rtol=1e-12)


@pytest.mark.parametrize(("kernel", "n_tasks"), [("linear", 20), ("laplacian", 6)])
def test_a_nonsmooth_loss_under_a_singular_known_structure_at_a_weak_strength(kernel, n_tasks):
    """Newton set out from duals whose errors a weak strength blew up, then crept along with the majorant: no progress."""
    draw = np.random.default_rng(1)
    inputs, L = draw.normal(size=(10, 3)), draw.normal(size=(max(n_tasks // 3, 1), n_tasks))
    labels = np.where(draw.random((10, n_tasks)) < 0.5, 1, 0)
    labels[0], labels[1] = 1, 0
    model = MultiTaskClassifier(structures.OutputCode(L), loss="hinge", kernel=kernel, alpha=1e-7, max_iter=30).fit(
        inputs, labels
    )
    assert model.certificate_.optimal, model.certificate_.message


@pytest.mark.parametrize("structure", [structures.Dirty(), structures.LowRank(1)])
def test_a_nonsmooth_loss_is_smoothed_where_constants_fit_a_task(structure):
    """A task of one row has residuals of zero: the smoothing had a width of 1e-300, and overflowed or did nothing."""
    targets = np.full((4, 4), np.nan)
    np.fill_diagonal(targets, [7.0, -4.0, 0.4, 1.2])
    losses = {0: "squared", 1: "squared", 2: "absolute", 3: "squared"} if structure.convex else "absolute"
    said = MultiTaskRegressor(structure, loss=losses, alpha=1e-3).fit(1e4 * X[:4], targets).certificate_
    assert said.converged, said.message


def test_a_task_of_zeros_under_an_absolute_loss_beside_other_losses():
    """Its residuals were the rounding of its constant, 1e-20, and so was the width of its smoothing."""
    labels = np.where(rng.normal(size=12) > 0, 1.0, -1.0)
    problem = Problem(
        X,
        np.column_stack([labels, 0 * labels]),
        Mixed((Logistic(), Absolute()), np.repeat([0, 1], 12)),
        structures.SharedMean(3.0),
        1e-3,
    )
    smoothing = Smoothing()
    assert smoothing.apply(problem).loss.smooth
    assert np.min(smoothing.width) > 0.1
    assert solve(problem).certificate.optimal
