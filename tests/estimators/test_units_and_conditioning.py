"""Other units, bad conditioning, kernels that are not quite kernels: the same model, or a certificate that shows the damage."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskClassifier, MultiTaskRegressor, Problem, losses, solve, structures

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 4))
Y = X @ rng.normal(size=(4, 3)) + rng.normal(size=(12, 3))


n, d, T = 24, 4, 3


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ rng.normal(size=(d, T)) + 0.5 * rng.normal(size=(n, T)) + 1


class TestUnits:
    """``X`` in other units divides the weights, ``alpha`` takes the square; those of ``Y`` are taken up by loss and ``A``."""

    @pytest.mark.parametrize("unit", [1e6, 1e-80])
    @pytest.mark.parametrize(
        "structure",
        [structures.Trace(), structures.Clusters(2), structures.LogDet(0.5), structures.FeatureSelection(), "robust"],
    )
    @pytest.mark.parametrize("loss", ["squared", "absolute"])
    def test_of_the_inputs(self, unit, structure, loss):
        X, Y = data()
        plain = MultiTaskRegressor(structure, loss=loss, alpha=0.05, ridge=0.01, tol=1e-7).fit(X, Y)
        other = MultiTaskRegressor(structure, loss=loss, alpha=0.05 * unit**2, ridge=0.01 * unit**2, tol=1e-7).fit(unit * X, Y)
        assert other.certificate_.optimal, other.certificate_.message
        assert np.isclose(other.certificate_.primal, plain.certificate_.primal, rtol=1e-6)
        assert np.allclose(other.predict(unit * X), plain.predict(X), atol=2e-3 * np.abs(Y).max())

    @pytest.mark.parametrize("unit", [1e-6, 1e6])
    def test_of_the_inputs_with_a_kernel(self, unit):
        X, Y = data()
        plain = MultiTaskRegressor(kernel="rbf", gamma=0.3, alpha=0.05, tol=1e-7).fit(X, Y)
        other = MultiTaskRegressor(kernel="rbf", gamma=0.3 / unit**2, alpha=0.05, tol=1e-7).fit(unit * X, Y)
        assert np.allclose(other.predict(unit * X), plain.predict(X), atol=1e-6)

    @pytest.mark.parametrize("unit", [1e6, 1e-40])
    @pytest.mark.parametrize(
        ("structure", "power"),
        [
            (structures.Trace(), 2),
            (structures.SchattenNorm(2), 2),
            (structures.FeatureSelection(), 2),
            (structures.Sparse(0.2), 2),
            (structures.Frobenius(), 1),
            (structures.Independent(), 0),
            (structures.UnitTrace(), 0),
            (structures.Clusters(2), 0),
        ],
    )
    def test_of_the_targets(self, unit, structure, power):
        """``A`` takes ``unit^power``; ``alpha`` what is left of it, so that all terms of the objective grow by ``unit^2``."""
        X, Y = data()
        plain = MultiTaskRegressor(structure, alpha=0.05, tol=1e-7).fit(X, Y)
        other = MultiTaskRegressor(structure, alpha=0.05 * unit**power, tol=1e-7).fit(X, unit * Y)
        assert other.certificate_.optimal, other.certificate_.message
        assert np.isclose(other.certificate_.primal, unit**2 * plain.certificate_.primal, rtol=1e-6)
        assert np.allclose(other.predict(X), unit * plain.predict(X), atol=2e-3 * unit * np.abs(Y).max())
        assert np.allclose(
            other.structure_, unit**power * plain.structure_, atol=1e-2 * unit**power * np.abs(plain.structure_).max()
        )

    @pytest.mark.parametrize("unit", [1e-6, 1e6])
    def test_of_the_targets_under_losses_with_a_width(self, unit):
        X, Y = data()
        for loss, wider in ((losses.Huber(0.5), losses.Huber(0.5 * unit)),):
            plain = MultiTaskRegressor(loss=loss, alpha=0.05, tol=1e-7).fit(X, Y)
            other = MultiTaskRegressor(loss=wider, alpha=0.05 * unit**2, tol=1e-7).fit(X, unit * Y)
            assert np.allclose(other.predict(X), unit * plain.predict(X), atol=1e-3 * unit)

    @pytest.mark.parametrize("unit", [1e-40, 1e-15, 1e30])
    @pytest.mark.parametrize("structure", ["independent", "trace"])
    def test_bounds_of_losses_with_a_width_are_true_in_any_units(self, structure, unit):
        """The gradients of a task must add up to zero beside their own size, or the dual value is no bound."""
        deep = np.random.default_rng(7)
        X = deep.normal(size=(20, 3))
        Y = X @ deep.normal(size=(3, 2)) + deep.standard_t(1.5, size=(20, 2)) + 0.5
        truth = MultiTaskRegressor(structure, loss=losses.Huber(0.5), alpha=0.3, tol=1e-8).fit(X, Y).certificate_.primal
        alpha = 0.3 * unit**2 if structure == "trace" else 0.3
        for solver in ("block", "auto"):
            found = MultiTaskRegressor(structure, loss=losses.Huber(0.5 * unit), alpha=alpha, solver=solver).fit(X, unit * Y)
            said = found.certificate_
            assert said.optimal
            assert said.dual <= truth * (1 + 1e-7) * unit**2 <= said.primal * (1 + 2e-7)

    def test_units_in_which_squares_overflow_are_refused(self):
        X, Y = data()
        with pytest.raises(ValueError, match=r"largest entry of y is 3\.\d+e\+200 in size.*divide by"):
            MultiTaskRegressor().fit(X, 1e200 * Y / np.abs(Y).max() * 3.5)
        with pytest.raises(ValueError, match=r"largest entry of features is .*e-1"):
            MultiTaskRegressor().fit(1e-130 * X, Y)
        assert MultiTaskRegressor().fit(0 * X, 0 * Y).certificate_.optimal

    def test_a_classifier_does_not_mind_the_units_of_its_inputs(self):
        X, Y = data()
        labels = np.where(np.median(Y, axis=0) < Y, 1, 0)
        plain = MultiTaskClassifier(alpha=0.01, tol=1e-7).fit(X, labels)
        other = MultiTaskClassifier(alpha=0.01 * 1e12, tol=1e-7).fit(1e6 * X, labels)
        assert np.allclose(other.decision_function(1e6 * X), plain.decision_function(X), atol=1e-2)


class TestKernels:
    def test_rounding_is_not_worth_a_word(self):
        X, Y = data()
        X[1] = X[0]  # a singular matrix, with eigenvalues of either sign below rounding
        assert "repaired" not in MultiTaskRegressor(kernel="rbf").fit(X, Y).certificate_.message

    def test_a_matrix_that_is_indefinite_by_rounding_is_repaired_with_a_note(self):
        X, Y = data()
        K = rbf_kernel(X)
        k, U = np.linalg.eigh(K)
        k[0] = -2e-9 * k[-1]  # as single precision leaves it
        model = MultiTaskRegressor(kernel="precomputed", alpha=0.01).fit((U * k) @ U.T, Y)
        clean = MultiTaskRegressor(kernel="precomputed", alpha=0.01).fit((U * np.maximum(k, 0)) @ U.T, Y)
        assert model.certificate_.optimal
        assert f"smallest eigenvalue was {k[0]:.1e}" in model.certificate_.message
        assert np.isclose(model.certificate_.primal, clean.certificate_.primal, rtol=1e-6)

    def test_a_truly_indefinite_matrix_is_refused_with_its_smallest_eigenvalue(self):
        X, Y = data()
        K = rbf_kernel(X) - 0.5 * np.eye(n)
        smallest = np.linalg.eigvalsh(K)[0]
        with pytest.raises(ValueError, match=f"smallest eigenvalue {smallest:.3g}"):
            MultiTaskRegressor(kernel="precomputed").fit(K, Y)


@pytest.mark.parametrize(
    ("structure", "alpha"),
    [
        (structures.Independent(), 1e-14),
        (structures.Trace(), 1e-14),
        (structures.Trace(), 1e-8),
        (structures.LogDet(0.3), 1e-10),
    ],
)
@pytest.mark.parametrize("fault", ["collinear", "sizes", "far"])
def test_an_ill_conditioned_system_shows_in_the_gap(structure, fault, alpha):
    """Whatever the conditioning, the objective is that of the model, and nothing far above the bound is called optimal."""
    X, Y = data()
    if fault == "collinear":
        X = np.hstack([X, X @ np.ones((d, 1)) + 1e-9 * np.random.default_rng(1).normal(size=(n, 1))])
    elif fault == "sizes":
        X = X * 10.0 ** np.array([-8, -3, 0, 6])
    else:
        X = X + 1e7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MultiTaskRegressor(structure, alpha=alpha, max_iter=50).fit(X, Y)
    said = model.certificate_
    problem = Problem(X, Y, "squared", structure, alpha)
    attained = problem.best_primal(model.coef_.T, model.intercept_)[0]
    floor = sum(_unpenalised(X, Y[:, t]) for t in range(T)) + (0 if not isinstance(structure, structures.LogDet) else -np.inf)
    assert attained <= said.primal * (1 + 1e-6) + 1e-4 * problem.scale
    assert said.primal >= floor * (1 - 1e-6)
    assert said.optimal == (said.relative_gap <= 1e-4)
    assert said.dual <= said.primal + 1e-9 * abs(said.primal)


def _unpenalised(X, y):
    """The least mean square of the residuals, with an intercept."""
    centred, target = X - X.mean(axis=0), y - y.mean()
    fitted = centred @ np.linalg.lstsq(centred, target, rcond=1e-15)[0]
    return float(np.mean((target - fitted) ** 2))


@pytest.mark.parametrize("unit", [1e-93, 1e-60, 1e60, 1e200])
def test_targets_in_absurd_units_are_refused_in_a_sentence(unit):
    """Fourth powers vanished, and a step divided by them: RuntimeWarning, overflow encountered in square."""
    with pytest.raises(ValueError, match=r"the largest entry of y is .* in size"):
        MultiTaskRegressor(structures.FeatureSelection(), alpha=1e-3 * min(unit, 1e100) ** 2).fit(X + 1e4, unit * Y)


def test_weak_strength_on_ill_conditioned_sums_ends_without_overflow():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = MultiTaskRegressor(
            structures.Schatten(1.2), kernel=["linear", "rbf"], gamma=1e-13, alpha=1e-26, ridge=4e-26, max_iter=20
        )
        said = model.fit(5e5 * X, 1e-18 * Y).certificate_
    assert said.dual <= said.primal


def test_features_in_absurd_units_are_refused_by_the_problem():
    with pytest.raises(ValueError, match="largest entry of features"):
        solve(Problem(1e120 * X, Y))


@pytest.mark.parametrize("unit", [1e26, 1e-40])
def test_single_precision_is_left_where_it_does_not_hold_the_numbers(unit):
    """A structure of 1e52 overflowed, and weights of 1e-45 vanished, in the precision of the inputs."""
    model = MultiTaskRegressor(structures.FeatureSelection(), alpha=0.1 * unit**2).fit(X.astype(np.float32), unit * Y)
    assert model.certificate_.optimal, model.certificate_.message
    assert model.score(X.astype(np.float32), unit * Y) > 0.3
    assert np.isfinite(model.structure_).all()


@pytest.mark.parametrize("unit", [1e-6, 1e-14, 1e-40])
def test_the_constant_of_a_log_determinant_does_not_hide_a_small_loss(unit):
    """``mu - mu log mu`` for each task is 1, the loss 1e-80: their sum has no digits left for a gap."""
    said = MultiTaskRegressor(structures.LogDet(0.3), alpha=0.1).fit(X, unit * Y).certificate_
    assert said.optimal, said.message
    assert said.primal == pytest.approx(3 * (0.3 - 0.3 * np.log(0.3)), rel=1e-9)
    alone = MultiTaskRegressor(structures.Independent(), alpha=0.1 / 0.3).fit(X, unit * Y)  # what A = mu I amounts to
    model = MultiTaskRegressor(structures.LogDet(0.3), alpha=0.1, tol=1e-8).fit(X, unit * Y)
    assert np.allclose(model.coef_, alone.coef_, rtol=1e-3, atol=1e-3 * np.abs(alone.coef_).max())
