"""Section 2.3 and the appendix of the paper: a code or a metric on the outputs is a choice of the structure ``A``.

The other side of each equivalence is written in CVXPY as the paper prints it, in coefficients ``C`` of the kernel matrix. Both
theorems are about losses of the inner product of label and prediction, which the losses of rows are: they see
``<y', f(x)>`` for the code ``y'`` of every class. Least squares is not such a loss, and here it shows.
"""

import cvxpy as cp
import numpy as np
import oracle
import pytest
import zoo
from sklearn.metrics.pairwise import rbf_kernel

from taskloom import MultiTaskClassifier, MultiTaskRegressor, structures

EVERY = pytest.mark.parametrize("loss", zoo.ROW_LOSSES, ids=zoo.name)
STRENGTH = 0.02
T = zoo.T
X, LABEL, Y = zoo.classes(3, n=20)
K = rbf_kernel(X, gamma=0.5)
_rng = np.random.default_rng(1)
CODE = _rng.normal(size=(2, T))  # L: the classes as points in the plane
_B = _rng.normal(size=(T, T))
THETA = _B @ _B.T / T + 0.2 * np.eye(T)


def minimised(data, *norms):
    """The least value of ``data + STRENGTH * norms``."""
    return oracle.solve(cp.Problem(cp.Minimize(data + STRENGTH * sum(norms))), "the other side of an equivalence")


def norm(C, metric=None):
    """``tr(metric C'KC)``."""
    metric = np.eye(C.shape[1]) if metric is None else metric
    return cp.sum_squares(oracle.square_root(K).T @ C @ oracle.square_root(metric))


def learned(loss, structure):
    """Our side: outputs at the training inputs, and the certified objective."""
    model = MultiTaskClassifier(
        structure, loss=loss, kernel="precomputed", alpha=STRENGTH, fit_intercept=False, tol=1e-8, max_iter=3000
    ).fit(K, LABEL)
    return model.decision_function(K), model.certificate_


class TestCoding:
    """Appendix, "Coding and Embedding": the coded problem with kernel ``k I_l`` is problem (P) with ``A = L'L``."""

    @EVERY
    def test_the_coded_problem_is_the_structure_of_the_code(self, loss):
        """Learn ``f: X -> R^l`` alone; the loss sees ``<L e_k, f(x)>`` for every class ``k``."""
        C = cp.Variable((len(X), len(CODE)))
        inner_products = (K @ C) @ CODE
        value = minimised(cp.sum(oracle.row_losses(loss, Y, inner_products)) / len(X), norm(C))
        outputs, certificate = learned(loss, structures.OutputCode(CODE))
        assert certificate.dual - 1e-7 <= value <= certificate.primal + 1e-7
        assert abs(certificate.primal - value) <= 1e-6 * value
        if loss.smooth:  # a hinge has flat pieces; its minimum is the statement
            assert np.allclose(outputs, inner_products.value, atol=1e-3)

    @EVERY
    def test_another_structure_is_another_problem(self, loss):
        """The comparison can fail: without the code the minimum is far away."""
        coded, plain = (learned(loss, F)[1].primal for F in (structures.OutputCode(CODE), structures.Independent()))
        assert abs(coded - plain) > 0.01 * plain

    def _least_squares(self, code, alpha):
        """What ``L'f`` predicts, with ``f`` least squares on the codes ``L y``: ``C = (K + n alpha)^-1 Y L'``."""
        coded = np.linalg.solve(K + len(X) * alpha * np.eye(len(X)), (Y > 0) @ code.T)
        return K @ coded @ code

    def _structured(self, code, alpha):
        model = MultiTaskRegressor(
            structures.OutputCode(code), kernel="precomputed", alpha=alpha, fit_intercept=False, tol=1e-10
        ).fit(K, (Y > 0).astype(float))
        return model.predict(K)

    def test_it_does_not_hold_for_least_squares_on_codes(self):
        """Correction 8: ``||Ly - f||^2`` is not a function of the inner product; no strength makes the two agree."""
        coded = self._least_squares(CODE, STRENGTH)
        for alpha in STRENGTH * np.logspace(-4, 4, 17):
            ours = self._structured(CODE, alpha)
            assert np.linalg.norm(ours - coded) > 0.1 * np.linalg.norm(coded)
            scale = np.vdot(ours, coded) / np.vdot(ours, ours)  # nor does a common factor
            assert np.linalg.norm(scale * ours - coded) > 0.1 * np.linalg.norm(coded)

    def test_it_holds_for_least_squares_where_the_code_keeps_all_distances(self):
        """An orthogonal code changes nothing at all, so that the test above fails for a reason."""
        code = np.linalg.qr(_B)[0]
        assert np.allclose(self._structured(code, STRENGTH), self._least_squares(code, STRENGTH), atol=1e-6)


class TestMetric:
    """Appendix, "Output Metric": a metric ``Theta`` on the outputs with kernel ``k I`` is the kernel ``k Theta``."""

    @EVERY
    def test_the_deformed_problem_is_the_structure_of_the_metric(self, loss):
        """The loss sees ``<e_k, f(x)>_Theta = <e_k, Theta f(x)>``, and the norm is ``tr(Theta C'KC)``."""
        C = cp.Variable((len(X), T))
        inner_products = K @ C @ THETA
        value = minimised(cp.sum(oracle.row_losses(loss, Y, inner_products)) / len(X), norm(C, THETA))
        outputs, certificate = learned(loss, structures.OutputMetric(THETA))
        assert certificate.dual - 1e-7 <= value <= certificate.primal + 1e-7
        assert abs(certificate.primal - value) <= 1e-6 * value
        if loss.smooth:
            assert np.allclose(outputs, inner_products.value, atol=1e-3)

    @EVERY
    def test_the_code_of_a_metric_is_the_metric(self, loss):
        """``Theta = L'L``: both theorems meet."""
        root = oracle.square_root(THETA).T
        one, other = learned(loss, structures.OutputCode(root)), learned(loss, structures.OutputMetric(THETA))
        assert np.isclose(one[1].primal, other[1].primal, rtol=1e-7)

    def _squared(self, metric_on_norm):
        """Predictions under ``||y - f(x)||_Theta^2`` with the plain norm of ``f``, or with the metric on the norm too."""
        C = cp.Variable((len(X), T))
        missed = ((Y > 0) - K @ C) @ oracle.square_root(THETA)
        minimised(cp.sum_squares(missed) / len(X), norm(C, THETA if metric_on_norm else None))
        return K @ C.value

    def _ours(self, structure):
        model = MultiTaskRegressor(structure, kernel="precomputed", alpha=STRENGTH, fit_intercept=False, tol=1e-10)
        return model.fit(K, (Y > 0).astype(float)).predict(K)

    def test_the_squared_loss_wants_the_metric_on_the_loss(self):
        """Section 2.3 for least squares, read as it holds (correction 8): ``Theta`` on the loss, the norm left alone.

        ``(Y - KC) Theta = n alpha C`` has the solution ``C = C' Theta`` with ``Y - K C' Theta = n alpha C'``: that of (P).
        """
        assert np.allclose(self._squared(metric_on_norm=False), self._ours(structures.OutputMetric(THETA)), atol=1e-4)

    def test_the_squared_loss_with_the_metric_on_both_learns_each_task_alone(self):
        """``(Y - KC) Theta = n alpha C Theta``: the metric cancels, so it is not the kernel ``k Theta``."""
        both = self._squared(metric_on_norm=True)
        assert np.allclose(both, self._ours(structures.Independent()), atol=1e-4)
        assert np.linalg.norm(both - self._ours(structures.OutputMetric(THETA))) > 0.1 * np.linalg.norm(both)
