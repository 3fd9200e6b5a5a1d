"""Upper bounds on the conjugate of a penalty, and its best structure, computed from its value and its prox.

With ``P = prox(M, step)``, ``N = (M - P) / step`` is a subgradient at ``P`` of ``F`` restricted to the cone, so that
``F*(N) = <N, P> - F(P)``. ``F*`` is a supremum over ``A >= 0`` and therefore monotone: ``c S <= N`` as matrices implies
``F*(c S) <= F*(N)``. The bound is as accurate as the prox.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import numpy as np

from ..._linalg import compose, symmetric
from ..base import TINY, Array, Ray, penalty_with
from ..inner_solvers import inverse_trace, proximal_gradient

RIDGES = (1e-13, 1e-10, 1e-7, 1e-4, 1e-2)  # multiples of the identity that are added where S is singular
# Step lengths (relative to the current structure) and ridges of the proxes whose subgradients give bounds. Long steps give the
# sharpest bounds; short ones give bounds for larger c while the current structure is far from optimal.
STEPS_AND_RIDGES = ((1e4, 1e-10), (1e4, 1e-7), (1e4, 1e-4), (1e2, 1e-7), (1.0, 1e-4), (1.0, 1e-2))


class Penalty(Protocol):
    """A convex penalty of some number of tasks, with value and prox."""

    n_tasks: int

    def value(self, A: Array) -> float: ...

    def prox(self, A: Array, step: float) -> Array: ...

    @cached_property
    def minimum(self) -> tuple[Array, float]:
        """A minimiser of ``F``, and an upper bound on ``F*(0) = -min F``."""
        return proximal_minimum(self, 1.0, 1.0)


def proximal_minimum(F: Penalty, unit: float, cost: float) -> tuple[Array, float]:
    """A minimiser of ``F`` by the proximal point method, and an upper bound on ``F*(0)``; for structures of this size."""
    start, first = unit * np.eye(F.n_tasks), unit**2 / cost
    A, step = F.prox(start, first), 10.0
    for _ in range(40):
        before, A = A, F.prox(A, first * step)
        step = min(10 * step, 1e8)
        if np.linalg.norm(A - before) <= 1e-12 * max(float(np.linalg.norm(A)), 1e-12 * unit):
            break
    near = [subgradient(F, A + step * ridge * start, step * first) for ridge in RIDGES]
    return A, min((each.conjugate for each in near if np.linalg.eigvalsh(each.N)[0] >= 0), default=np.inf)


class Subgradient(NamedTuple):
    """A subgradient ``N`` of ``F`` at ``P``, and ``F*(N)``."""

    N: Array
    P: Array
    conjugate: float


def subgradient(F: Penalty, M: Array, step: float) -> Subgradient:
    """The subgradient of ``F`` at ``prox(M, step)``."""
    P = F.prox(M, step)
    N = symmetric(M - P) / step
    return Subgradient(N, P, float(np.vdot(N, P)) - F.value(P))


def max_scale(S: Array, N: Array) -> float:
    """The largest ``c`` with ``c S <= N``; for an indefinite ``N``, 1 if ``S <= N`` and else 0."""
    n, V = np.linalg.eigh(N)
    if not n[0] > 0:
        return float(np.linalg.eigvalsh(symmetric(N - S))[0] >= 0)
    half = V / np.sqrt(n)
    return (1 - 1e-13) / max(float(np.linalg.eigvalsh(symmetric(half.T @ S @ half))[-1]), TINY)


def ray(F: Penalty, S: Array, near: Array | None) -> Ray:
    """An upper bound on ``F*`` along ``c S``, from subgradients of ``F`` around ``near``; exact as ``near`` becomes optimal.

    Between 0 and a subgradient, ``F*`` is convex and lies below the chord (``at_zero`` is ``F*(0)``).
    """
    minimiser, at_zero = F.minimum
    if not np.any(S):
        return Ray(np.inf, lambda _: at_zero)
    found = [(0.0, at_zero), *_bounds(F, S, minimiser if near is None else near)]
    most = max(far for far, _ in found)

    def conjugate(c: float) -> float:
        if c <= 0:
            return at_zero
        chords = (bound + (1 - c / far) * min(at_zero - bound, 0.0) for far, bound in found if c <= far)
        return min(chords, default=np.inf)

    return Ray(most, conjugate)


def _bounds(F: Penalty, S: Array, near: Array) -> Iterator[tuple[float, float]]:
    """Pairs of a scale ``c`` and an upper bound on ``F*(c S)``, until one is tight for ``c = 1``."""
    size_of_S = float(np.abs(np.linalg.eigvalsh(S)).sum())  # in a sum of structures S may be indefinite
    level = size_of_S / len(S)
    unit = (float(np.trace(near)) or 1e-12) / max(size_of_S, TINY)
    below = float(np.vdot(S, near)) - F.value(near)
    for size, ridge in STEPS_AND_RIDGES:
        N, P, bound = subgradient(F, near + size * unit * (S + ridge * level * np.eye(len(S))), size * unit)
        far = max_scale(S, N)
        below = max(below, float(np.vdot(S - N, P)) + bound)
        if far > 0 and np.isfinite(bound):
            yield far, bound
        if far >= 1 and bound - below <= 1e-10 * (abs(bound) + float(np.vdot(N, P))):
            return


def best_structures(F: Penalty, root: Array) -> list[Array]:
    """``argmin_A tr(A^-1 LL') + F(A)`` for a tall ``L``: candidates, one of which is accurate.

    The dual method converges fast where ``F*`` has a small domain (trace penalties), the primal method where ``F`` keeps ``A``
    nonsingular. The primal one is used if the dual one leaves a duality gap.
    """
    candidates, bound = _dual_method(F, root)
    A, value = best_candidate(F, root.T, candidates)
    return [A] if value - bound <= 1e-10 * abs(bound) else [A, _primal_method(F, root, A)]


def _dual_method(F: Penalty, root: Array) -> tuple[list[Array], float]:
    """Maximise ``2 tr (L'NL)^(1/2) - F*(N)`` by proximal gradient steps; candidates for ``A``, and the dual value.

    The gradient of the first term is ``A``. The prox of ``F*`` follows from that of ``F`` (Moreau).
    """
    size = float(np.linalg.norm(root)) / np.sqrt(len(root))
    V, s, _ = np.linalg.svd(root, full_matrices=False)
    start = compose(s, V) + size * 1e-8 * np.eye(len(root))

    def cost(N: Array) -> tuple[float, Array]:
        n, V = np.linalg.eigh(N)
        if not n[0] > 0:
            return np.inf, N
        _, s, Vt = np.linalg.svd((V * np.sqrt(n)).T @ root, full_matrices=False)
        LV = (root @ Vt.T)[:, s > TINY]
        return -2 * float(s.sum()), -(LV / s[s > TINY]) @ LV.T

    def prox(M: Array, step: float) -> tuple[Array, float]:
        N, _, conjugate = subgradient(F, M / step, 1 / step)
        return N, conjugate

    for length in (1.0, 10.0, 100.0, 1e3):
        N, _, conjugate = subgradient(F, size * length * np.eye(len(root)) + start, size * length)
        value, gradient = cost(N)
        if np.isfinite(value):
            break
    else:
        return [F.prox(start, 1e-3 * size)], -np.inf
    length = float(np.linalg.norm(N)) / max(float(np.linalg.norm(gradient)), TINY)
    N = proximal_gradient(cost, prox, N, conjugate, length, n_steps=100)
    gradient = cost(N)[1]
    length = float(np.linalg.norm(N)) / max(float(np.linalg.norm(gradient)), TINY)
    N, P, conjugate = subgradient(F, N / length - gradient, 1 / length)
    value, gradient = cost(N)
    return [-gradient, P], -value - conjugate


def _primal_method(F: Penalty, root: Array, A: Array) -> Array:
    """Minimise ``tr(A^-1 LL') + F(A)`` by proximal gradient steps from a nonsingular ``A``."""

    def prox(M: Array, step: float) -> tuple[Array, float]:
        P = F.prox(M, step)
        return P, F.value(P)

    cost = partial(inverse_trace, S=root @ root.T)
    value, gradient = cost(A)
    if not np.isfinite(value):
        return A
    length = float(np.linalg.norm(A)) / max(float(np.linalg.norm(gradient)), TINY)
    return proximal_gradient(cost, prox, A, F.value(A), length)


def best_candidate(F: Penalty, R: Array, candidates: list[Array]) -> tuple[Array, float]:
    """The candidate with the smallest objective; if all are infinite, mixed with a little of a nonsingular structure."""
    values = [penalty_with(F, R, A) for A in candidates]
    if not np.isfinite(min(values)):
        A = next((A for A in candidates if np.isfinite(F.value(A))), candidates[0])
        level = float(np.trace(A)) / len(A) or 1e-12
        inside = F.prox(level * np.eye(len(A)), 1e-6 * level)
        candidates = [(1 - share) * A + share * inside for share in (1e-12, 1e-9, 1e-6, 1e-3)]
        values = [penalty_with(F, R, A) for A in candidates]
    k = int(np.argmin(values))
    return candidates[k], values[k]
