"""What the campaign (benchmarks/campaign.py) found, each with the smallest case that showed it: see docs/robustness.md."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, solve, structures
from taskloom.losses import Squared
from taskloom.solvers.newton import Batch, Gram, newton

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 4))
Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(12, 3))


@pytest.mark.parametrize("unit", [1e-93, 1e-60, 1e60, 1e200])
def test_targets_in_absurd_units_are_refused_in_a_sentence(unit):
    """Fourth powers vanished, and a step divided by them: RuntimeWarning, overflow encountered in square."""
    with pytest.raises(ValueError, match=r"the largest entry of y is .* in size"):
        MultiTaskRegressor(structures.FeatureSelection(), alpha=1e-3 * min(unit, 1e100) ** 2).fit(X + 1e4, unit * Y)


@pytest.mark.parametrize("loss", ["squared", "absolute", "quantile", "epsilon_insensitive", "huber"])
@pytest.mark.parametrize("structure", [structures.Robust(), structures.Trace(), structures.LogDet(0.3), structures.Clusters(2)])
def test_constant_targets_leave_nothing_to_learn(loss, structure):
    """Smoothing measured its width by the loss of constants: 1e-300, whose inverse times large inputs overflowed."""
    model = MultiTaskRegressor(structure, loss=loss).fit(1e15 * X, 0 * Y + [0.0, 3.0, -2.0])
    assert model.certificate_.optimal, model.certificate_.message
    assert np.allclose(model.predict(X), [0.0, 3.0, -2.0], rtol=1e-12)


def test_a_useless_start_does_not_grow_from_step_to_step():
    """One step of an ill-conditioned system is off by a share of its start: starts that came from each other grew to 1e132."""
    P = rng.normal(size=(9, 9))
    K = 1e14 * (P[:, :3] @ P[:, :3].T)[None]
    batch = Batch(Squared(), rng.normal(size=(1, 9)), np.full((1, 9), 1 / 9), Gram(K), None)
    far = 1e40 * rng.normal(size=(1, 9))
    clean, found = newton(batch, np.zeros((1, 9)), np.zeros((1, 0))), newton(batch, far, np.zeros((1, 0)))
    assert np.allclose(found.coef, clean.coef)


def test_weak_strength_on_ill_conditioned_sums_ends_without_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MultiTaskRegressor(
            structures.Schatten(1.2), kernel=["linear", "rbf"], gamma=1e-13, alpha=1e-26, ridge=4e-26, max_iter=20
        )
        said = model.fit(5e5 * X, 1e-18 * Y).certificate_
    assert said.dual <= said.primal


def test_problems_say_so_too():
    with pytest.raises(ValueError, match="largest entry of features"):
        solve(Problem(1e120 * X, Y))


@pytest.mark.parametrize(("kernel", "n_tasks"), [("linear", 20), ("laplacian", 6)])
def test_kinks_under_a_singular_known_structure_at_a_weak_strength(kernel, n_tasks):
    """Newton set out from duals whose errors a weak strength blew up, then crept along with the majorant: no progress."""
    draw = np.random.default_rng(1)
    inputs, L = draw.normal(size=(10, 3)), draw.normal(size=(max(n_tasks // 3, 1), n_tasks))
    labels = np.where(draw.random((10, n_tasks)) < 0.5, 1, 0)
    labels[0], labels[1] = 1, 0
    model = MultiTaskClassifier(structures.OutputCode(L), loss="hinge", kernel=kernel, alpha=1e-7, max_iter=30).fit(
        inputs, labels
    )
    assert model.certificate_.optimal, model.certificate_.message
