"""Penalties in CVXPY with constraints, in any units: equal to CVXPY on the whole problem in good ones, and never infeasible."""

import cvxpy as cp
import numpy as np
import oracle
import pytest

from taskloom import MultiTaskRegressor, Problem, solve
from taskloom.structures import CustomStructure
from taskloom.structures.custom.cvxpy_penalty import ConicPenalty

T = 4
FAR = np.abs(np.subtract.outer(np.arange(T), np.arange(T))) > 1
rng = np.random.default_rng(3)
X = rng.normal(size=(30, 3))
Y = X @ rng.normal(size=(3, 2)) @ rng.normal(size=(2, T)) + 0.3 * rng.normal(size=(30, T))


def largest_and_trace(A, a, f):
    t = cp.Variable()
    return f / a * (t + cp.trace(A)), [cp.diag(A) <= t]


# Penalties as users write them, where structures are of size a and values of size f.
PENALTIES = {
    "band": lambda A, a, f: (f / a * cp.trace(A), [A[FAR] == 0]),
    "fixed trace": lambda A, a, _: (0.0, [cp.trace(A) == a]),
    "ball": lambda A, a, _: (0.0, [cp.norm(A, "fro") <= a]),
    "squares": lambda A, a, f: (f / a**2 * cp.sum_squares(A), [cp.trace(A) <= 2 * a]),
    "floor": lambda A, a, f: (f / a * cp.trace(A), [A >> 0.1 * a * np.eye(T)]),
    "cone": lambda A, a, f: (f / a * cp.trace(A), [cp.SOC(3 * a + 0 * cp.trace(A), cp.vec(A, order="F"))]),
    "small entry": lambda A, a, f: (f / a * cp.trace(A), [A[0, 0] <= 1e-5 * a, A[1, 2] == A[2, 3]]),
    "nonnegative": lambda A, a, f: (f / a * cp.trace(A), [A >= 0]),
    "log det": lambda A, a, f: (f * (cp.trace(A) / a - 0.3 * cp.log_det(A / a)), [A[0, 1] == 0]),
    "absolute": lambda A, a, f: (f / a * (cp.trace(A) + 0.3 * cp.sum(cp.abs(A))), [A[0, 3] == 0]),
    "another variable": largest_and_trace,
}


def minimum(name, alpha):
    """The whole problem in CVXPY, in units of 1."""
    n, r = X.shape
    W, b, R = cp.Variable((r, T)), cp.Variable((1, T)), cp.Variable((r, r), symmetric=True)
    A = cp.Variable((T, T), PSD=True)
    F, constraints = PENALTIES[name](A, 1.0, 1.0)
    loss = cp.sum_squares(X @ W + np.ones((n, 1)) @ b - Y) / n
    schur = cp.bmat([[A, W.T], [W, R]]) >> 0
    return oracle.solve(cp.Problem(cp.Minimize(loss + alpha * cp.trace(R) + F), [*constraints, schur]), name)


@pytest.mark.parametrize("name", sorted(PENALTIES))
def test_constraints_hold_and_bounds_are_true_in_any_units(name):
    """The minimum of targets of 1e-7 was 8 % too low, with forbidden entries at 38 % of the largest, and "optimal"."""
    truth = minimum(name, 0.2)
    for unit, size in ((1.0, 1.0), (1e-7, 1e-14), (1e-5, 1e-10), (1.0, 1e-7), (1e-5, 1e3), (1e5, 1e-5), (1e7, 1.0)):
        structure = CustomStructure(lambda A, a=size, f=unit**2: PENALTIES[name](A, a, f))
        problem = Problem(X, unit * Y, structure=structure, alpha=0.2 * size)
        found = solve(problem, tol=1e-5)
        scale, certificate = problem.scale / unit**2, found.certificate
        assert certificate.optimal, certificate.message
        assert abs(certificate.primal / unit**2 - truth) <= 1.1e-5 * scale
        assert certificate.dual / unit**2 <= truth + 1e-7 * scale
        value = PENALTIES[name](cp.Constant(found.A / size), 1.0, 1.0)
        if name != "another variable":
            with np.errstate(all="ignore"):  # CVXPY divides by norms that may be 0
                assert all(np.max(constraint.violation()) <= 1e-6 for constraint in value[1])
        if name == "band":
            assert np.abs(found.A[FAR]).max() <= 1e-7 * np.abs(found.A).max()


@pytest.mark.parametrize("bound", [1e-12, 1e-7, 1e-4, 1e4])
@pytest.mark.parametrize("alpha", [1e-3, 5.0])
def test_a_bound_in_units_of_its_own(bound, alpha):
    """``trace(A) <= 1e-7`` raised an error that ended with "None"."""
    tight = CustomStructure(lambda A: (0.0, [cp.trace(A) <= bound]))
    found = MultiTaskRegressor(tight, alpha=alpha).fit(X, Y)
    truth = MultiTaskRegressor("unit_trace", alpha=alpha / bound, tol=1e-9).fit(X, Y).certificate_
    assert found.certificate_.optimal
    assert np.trace(found.structure_) <= bound * (1 + 1e-7)
    assert found.certificate_.dual <= truth.primal * (1 + 1e-9)
    assert found.certificate_.primal >= truth.dual * (1 - 1e-9)


@pytest.mark.parametrize("size", [1e-14, 1e-7, 1.0, 1e7])
def test_a_structure_that_violates_a_constraint_has_no_value(size):
    banded = ConicPenalty(lambda A: (cp.trace(A), [A[FAR] == 0]), T)
    A = size * np.eye(T)
    assert np.isclose(banded.value(A), 4 * size)
    A[0, 3] = A[3, 0] = 1e-5 * size
    assert banded.value(A) == np.inf
    small = ConicPenalty(lambda A: (cp.trace(A), [A[0, 0] <= 1e-6 * size]), T)
    A = size * np.diag([2e-6, 1.0, 1.0, 1.0])
    assert small.value(A) == np.inf
    assert small.value(np.diag([1e-6, 1.0, 1.0, 1.0]) * size) < np.inf


def test_where_a_conic_solver_fails_the_reason_and_the_remedy_are_named(monkeypatch):
    penalty = ConicPenalty(cp.trace, T)
    monkeypatch.setattr("taskloom.structures.custom.cvxpy_penalty.solve_conic", lambda *_: "it gave up")
    with pytest.raises(RuntimeError, match=r"the prox of the custom penalty \(it gave up\); bring y and alpha to units"):
        penalty.prox(np.eye(T), 1.0)
