"""Laws of the one conjugate-gradient method: exact after as many steps as unknowns, and where it stops before."""

import numpy as np
import pytest

from taskloom._array_api import dot
from taskloom._linalg import conjugate_gradient


def system(n, condition=100.0, seed=0):
    """A positive definite matrix with known eigenvalues, and a right-hand side."""
    rng = np.random.default_rng(seed)
    V = np.linalg.qr(rng.normal(size=(n, n)))[0]
    return (V * np.geomspace(1, condition, n)) @ V.T, rng.normal(size=n)


@pytest.mark.parametrize("n", [1, 2, 7, 12])
@pytest.mark.parametrize("preconditioned", [False, True])
def test_as_many_steps_as_unknowns_are_exact(n, preconditioned):
    M, target = system(n, 10.0)
    P = np.diag(1 / np.diag(M))
    options = {"preconditioner": lambda r: P @ r} if preconditioned else {}
    x = conjugate_gradient(lambda p: M @ p, target, max_steps=n, **options)
    np.testing.assert_allclose(M @ x, target, rtol=0, atol=1e-9 * np.linalg.norm(target))


def test_the_inverse_as_a_preconditioner_takes_one_step():
    M, target = system(9)
    taken = []
    x = conjugate_gradient(
        lambda p: M @ p, target, preconditioner=lambda r: np.linalg.solve(M, r), tol=1e-8, max_steps=9, checkpoint=taken.append
    )
    assert len(taken) == 1
    assert taken[0] == pytest.approx(1)
    np.testing.assert_allclose(x, np.linalg.solve(M, target))


def test_every_step_lowers_the_quadratic():
    M, target = system(20, 1e4)
    points = [conjugate_gradient(lambda p: M @ p, target, max_steps=k) for k in range(20)]
    values = [x @ M @ x / 2 - target @ x for x in points]
    assert values == sorted(values, reverse=True)
    assert not points[0].any()


@pytest.mark.parametrize("library", ["numpy", "torch", "array_api_strict"])
def test_arrays_of_any_shape_and_library(library):
    """Rows of a Sylvester equation ``A X + X B = C``."""
    asarray = pytest.importorskip(library).asarray
    (A, _), (B, _), C = system(4), system(3, seed=1), np.random.default_rng(2).normal(size=(4, 3))
    x = conjugate_gradient(lambda P: asarray(A) @ P + P @ asarray(B), asarray(C), tol=1e-12, max_steps=50, inner=dot)
    assert type(x) is type(asarray(C))
    X = np.asarray(x)
    np.testing.assert_allclose(A @ X + X @ B, C, atol=1e-9)


@pytest.mark.parametrize("tol", [1e-1, 1e-4, 1e-9])
def test_it_stops_at_the_first_residual_below_the_tolerance(tol):
    M, target = system(30, 1e3)
    P = np.diag(1 / np.diag(M))
    options = {"preconditioner": lambda r: P @ r, "max_steps": 200}
    taken = []
    x = conjugate_gradient(lambda p: M @ p, target, tol=tol, checkpoint=taken.append, **options)
    before = conjugate_gradient(lambda p: M @ p, target, **(options | {"max_steps": len(taken) - 1}))

    def norm(r):
        return np.sqrt(r @ P @ r)

    assert norm(target - M @ x) <= tol * norm(target) * (1 + 1e-6) < norm(target - M @ before)


def test_the_euclidean_residual_may_decide_as_well():
    M, target = system(30, 1e3)
    x = conjugate_gradient(lambda p: M @ p, target, max_residual=1e-3, max_steps=200)
    assert 1e-5 < np.linalg.norm(target - M @ x) <= 1e-3


def test_negative_curvature_ends_it_with_the_direction_so_far():
    M, target = np.diag([1.0, 2.0, -1.0]), np.array([1.0, 1.0, 1e-3])
    taken = []
    x = conjugate_gradient(lambda p: M @ p, target, max_steps=10, checkpoint=taken.append)
    assert 1 <= len(taken) < 3
    assert target @ x > 0  # of descent
    np.testing.assert_array_equal(x, conjugate_gradient(lambda p: M @ p, target, max_steps=len(taken)))
    np.testing.assert_array_equal(conjugate_gradient(lambda p: -p, target, max_steps=10), target)  # the first direction
    np.testing.assert_array_equal(conjugate_gradient(lambda p: np.nan * p, target, max_steps=10), target)


def test_curvature_far_below_that_of_the_preconditioner_ends_it():
    M, target = np.diag([1.0, 1.0, 1e-6]), np.ones(3)
    short = conjugate_gradient(lambda p: M @ p, target, max_steps=10, min_curvature=0.1)
    whole = conjugate_gradient(lambda p: M @ p, target, max_steps=10)
    assert np.linalg.norm(short) < 10
    assert np.linalg.norm(whole) > 1e5


def test_a_target_of_zero_takes_no_product():
    def refuse(p):
        raise AssertionError

    assert not conjugate_gradient(refuse, np.zeros((2, 3)), tol=1e-3, max_steps=5).any()


def test_step_lengths_carry_linear_functions_of_the_solution():
    """What ``product`` computes on the way needs no evaluation at the solution."""
    (M, target), C = system(8), np.random.default_rng(3).normal(size=(5, 8))
    along, followed = [], np.zeros(5)

    def product(p):
        along.append(C @ p)
        return M @ p

    def checkpoint(length):
        followed[:] += length * along[-1]

    x = conjugate_gradient(product, target, max_steps=8, checkpoint=checkpoint)
    np.testing.assert_allclose(followed, C @ x)


def test_a_checkpoint_may_end_it_by_an_exception():
    class OutOfTimeError(Exception):
        pass

    def stop(length):
        raise OutOfTimeError

    M, target = system(8)
    with pytest.raises(OutOfTimeError):
        conjugate_gradient(lambda p: M @ p, target, max_steps=8, checkpoint=stop)
