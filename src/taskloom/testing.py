"""Checks for custom losses and structures: inequalities that hold at every point, evaluated at random points.

Certificates are only valid if these hold. A failure is an ``AssertionError`` that names the method to correct.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ._linalg import symmetric
from .losses import as_loss
from .structures import as_structure

__all__ = ["check_loss", "check_structure"]

Array = np.ndarray


SMALL_LOSS = "conjugate is too small: l(y, z) + l*(y, s) >= s z must hold (Fenchel-Young)"
LARGE_LOSS = "conjugate is too large: l(y, z) + l*(y, s) = s z must hold at the gradient s of z"
SMALL = "conjugate is too small: F(A) + F*(S) >= <S, A> must hold (Fenchel-Young)"
UNEQUAL = "conjugate is too {}: F(A) + F*(S) = <S, A> must hold at a gradient S of F at A"
PROX = "prox must minimise step * value(B) + ||B - A||^2 / 2 over positive semidefinite B"
INDEFINITE = "prox must give positive semidefinite matrices, also for indefinite ones"


def _require(condition: Any, name: str, sentence: str) -> None:
    """Raise unless the condition holds everywhere; the sentence says what a method of ``name`` must do."""
    if not np.all(condition):
        raise AssertionError(f"{name}.{sentence}")


def check_loss(loss: Any, y: Any = None, *, random_state: int = 0) -> None:
    """Check that a loss is convex, and that its gradient or prox, curvature and conjugate are consistent with its value.

    Parameters
    ----------
    loss : Loss, str or object
        A loss or its name, or an object with ``value`` and ``gradient`` or ``prox``.
    y : array-like of shape (n_samples,), default=None
        Targets; ``None`` is small counts, or -1 and +1 for a classification loss.
    random_state : int, default=0
        Seed of the points.

    Raises
    ------
    AssertionError
        With the first inequality that fails, and the method to correct.
    """
    given, loss = loss, as_loss(loss)
    rng, name = np.random.default_rng(random_state), type(getattr(loss, "loss", given)).__name__
    choices = np.array([-1.0, 1.0]) if loss.targets == "signs" else np.array([0.0, 1.0, 2.0, 5.0])
    y = rng.choice(choices if y is None else np.asarray(y, dtype=float).ravel(), size=200)
    z, other = 2 * rng.normal(size=200), 2 * rng.normal(size=200)
    value, far = loss.value(y, z), loss.value(y, other)
    size = 1e-9 * (1 + np.abs(value) + np.abs(far))
    _require(np.shape(value) == z.shape, name, f"value must be entrywise: it gave shape {np.shape(value)} for {z.shape}")
    _require(value >= -size, name, "value must not be negative: add a function of y such that its minimum is 0")
    middle = loss.value(y, (z + other) / 2)
    _require(middle <= (value + far) / 2 + size, name, "value must be convex in z: it lies above a chord")
    if loss.smooth:
        _check_gradient(loss, name, y, z)
        at, s = z, loss.gradient(y, z)
    else:
        at, s = _gradients_of_prox(loss, name, y, z, rng)
    lower, upper = (np.broadcast_to(edge, y.shape) for edge in loss.gradient_bounds(y))
    _require((lower <= 0) & (upper >= 0), name, "gradient_bounds must give an interval that contains 0")
    room = 1e-8 * (1 + np.abs(s))
    inside = (s >= lower - room) & (s <= upper + room)
    _require(inside, name, "gradient_bounds must give an interval that contains every gradient")
    s = np.clip(s, lower, upper)
    star = loss.conjugate(y, s)
    for point, there in ((z, value), (other, far)):
        _require(there + star - s * point >= -size * (1 + np.abs(s * point)), name, SMALL_LOSS)
    value = loss.value(y, at)
    _require(np.abs(value + star - s * at) <= 1e-6 * (1 + np.abs(value) + np.abs(s * at)), name, LARGE_LOSS)


def _check_gradient(loss: Any, name: str, y: Array, z: Array) -> None:
    h = 1e-5
    gradient = loss.gradient(y, z)
    numeric = (loss.value(y, z + h) - loss.value(y, z - h)) / (2 * h)
    close = np.abs(gradient - numeric) <= 1e-4 * (1 + np.abs(gradient))
    _require(np.mean(close) > 0.97, name, "gradient must be the derivative of value in z")  # a few points may be nonsmooth
    curvature = (loss.gradient(y, z + h) - loss.gradient(y, z - h)) / (2 * h)
    close = np.abs(loss.curvature(y, z) - curvature) <= 1e-3 * (1 + np.abs(curvature))
    _require(np.mean(close) > 0.97, name, "curvature must be the derivative of gradient in z")
    bounded = np.max(curvature) <= loss.max_curvature * (1 + 1e-6) + 1e-6
    _require(bounded, name, "max_curvature must bound every curvature; omit it where there is no bound")


def _gradients_of_prox(loss: Any, name: str, y: Array, z: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Check the prox against other points; returns its result, and a subgradient there."""
    step = 0.7
    u = loss.prox(y, z, step)
    at = step * loss.value(y, u) + (u - z) ** 2 / 2
    for distance in (1e-3, 1e-1, 1.0, 5.0):
        other = u + distance * rng.normal(size=u.shape)
        reached = step * loss.value(y, other) + (other - z) ** 2 / 2
        _require(at <= reached + 1e-9 * (1 + np.abs(reached)), name, "prox must minimise step * value(y, u) + (u - z)^2 / 2")
    return u, (z - u) / step


def check_structure(structure: Any, n_tasks: int = 4, *, random_state: int = 0, rtol: float = 1e-6) -> None:
    """Check that a penalty is convex, and that its prox, conjugate and ``best_structure`` are consistent with its value.

    Parameters
    ----------
    structure : Structure, str, object or callable
        A structure or its name, an object with ``value`` and ``prox``, or a function of a CVXPY variable.
    n_tasks : int, default=4
        The size of the matrices to try.
    random_state : int, default=0
        Seed of the points.
    rtol : float, default=1e-6
        Tolerance of the checks; for a penalty in CVXPY the accuracy of its solver.

    Raises
    ------
    AssertionError
        With the first inequality that fails, and the method to correct.
    """
    given, F = structure, as_structure(structure)
    F.check_tasks(n_tasks)
    rng, name = np.random.default_rng(random_state), type(getattr(F, "penalty", given)).__name__

    def random_psd() -> Array:
        B = rng.normal(size=(n_tasks, n_tasks))
        return B @ B.T / n_tasks

    points = [F.prox(scale * random_psd(), 0.1) for scale in (0.3, 1.0, 3.0)]  # the result of a prox is in the domain
    values = [F.value(A) for A in points]
    for A, value in zip(points, values, strict=True):
        least = float(np.linalg.eigvalsh(symmetric(A))[0])
        _require(least >= -1e-9 * (1 + np.abs(A).max()), name, "prox must give positive semidefinite matrices")
        _require(np.isfinite(value), name, "value must be finite at the result of the prox")
    slack = rtol * (1 + max(np.abs(values)))
    for i, j in ((0, 1), (1, 2), (0, 2)):
        middle = F.value((points[i] + points[j]) / 2)
        _require(middle <= (values[i] + values[j]) / 2 + slack, name, "value must be convex: it lies above a chord")
    for step in (0.1, 1.0):
        _check_prox(F, name, symmetric(rng.normal(size=(n_tasks, n_tasks))), step, points, rtol)
        _check_prox(F, name, random_psd(), step, points, rtol)
    for A in points:
        S = random_psd() * 10 ** rng.uniform(-2, 0)
        star = F.conjugate(S, A)
        for B, other in zip(points, values, strict=True):
            price = float(np.vdot(S, B))
            _require(star >= price - other - slack * (1 + abs(price)), name, SMALL)
        _check_step(F, name, S + 0.01 * np.eye(n_tasks), points, rtol)
    for size in (0.3, 0.7, 1.1, 1.3, 2.0, 5.0):  # a conjugate must be infinite outside its domain: check along one direction
        S = random_psd()
        s, V = np.linalg.eigh(S)
        _check_along(F, name, size / s[-1] * S, np.outer(V[:, -1], V[:, -1]), rtol)


def _check_along(F: Any, name: str, S: Array, A: Array, rtol: float) -> None:
    """The Fenchel-Young inequality along the top eigenvector of ``S``, where the value is finite."""
    star = F.conjugate(S, F.prox(A, 0.1))
    for length in (0.01, 0.1, 1.0, 10.0, 100.0):
        price = float(np.vdot(S, A)) * length
        _require(star >= price - F.value(length * A) - rtol * (1 + price), name, SMALL)


def _check_prox(F: Any, name: str, M: Array, step: float, points: list[Array], rtol: float) -> None:
    P = F.prox(M, step)
    _require(np.linalg.eigvalsh(symmetric(P))[0] >= -max(rtol, 1e-9) * (1 + np.abs(P).max()), name, INDEFINITE)
    at = step * F.value(P) + float(np.sum((P - M) ** 2)) / 2
    level = max(float(np.abs(P).max()), 0.1) * np.eye(len(P))
    for A in (*points, 0.5 * P, 1.5 * P, P + level):  # any point will do: outside the domain the value is infinite
        for share in (1e-3, 1e-2, 0.1, 1.0):
            B = P + share * (A - P)
            reached = step * F.value(B) + float(np.sum((B - M) ** 2)) / 2
            _require(at <= reached + rtol * share * (1 + abs(reached)), name, PROX)
    N = (M - P) / step  # a gradient of F at P: the conjugate is known there
    if np.linalg.eigvalsh(symmetric(N))[0] >= 0:
        exact, found = float(np.vdot(N, P)) - F.value(P), F.conjugate((1 - 1e-9) * N, P)
        _require(found >= exact - rtol * (1 + abs(exact)), name, UNEQUAL.format("small"))
        _require(found <= exact + 1e-3 * (1 + abs(exact)), name, UNEQUAL.format("large"))


def _check_step(F: Any, name: str, S: Array, points: list[Array], rtol: float) -> None:
    root = np.linalg.cholesky(S).T
    A, price = F.best_of_root(root)
    for B in points:
        for share in (1e-2, 0.3, 1.0):
            mixed = A + share * (B - A)
            if np.linalg.eigvalsh(symmetric(mixed))[0] > 1e-9:
                other = float(np.trace(np.linalg.solve(mixed, S))) + F.value(mixed)
                best = price <= other + rtol * (1 + abs(other))
                _require(best, name, "best_structure must minimise tr(A^-1 S) + value(A)")
