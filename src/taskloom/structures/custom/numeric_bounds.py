"""What follows from the value and the prox of a penalty alone: bounds on its conjugate, and its best structure.

With ``P = prox(M, step)`` the matrix ``N = (M - P) / step`` is a gradient of ``F`` (and of the cone) at ``P``, so that
``F*(N) = <N, P> - F(P)`` exactly. ``F*`` looks at ``A >= 0`` only, so it grows with its argument: where ``c S <= N`` as
matrices, ``F*(c S) <= F*(N)``. No conjugate is needed, and the bound is as good as the prox.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from ..._linalg import compose, psd_eigh, symmetric
from ..base import Array, Ray

TINY = np.finfo(float).tiny
LIFTS = (1e-13, 1e-10, 1e-7, 1e-4, 1e-2)  # shares of the identity that make room where S is singular
# Where gradients are looked for: the length of the step (in units of the structure at hand) and the lift. Long steps give the
# sharpest bounds; shorter ones reach further while the structure at hand is still far from the best one.
PLACES = ((1e4, 1e-10), (1e4, 1e-7), (1e4, 1e-4), (1e2, 1e-7), (1.0, 1e-4), (1.0, 1e-2))


class Penalty(Protocol):
    """A convex ``F`` as its author gives it."""

    def value(self, A: Array) -> float: ...

    def prox(self, A: Array, step: float) -> Array: ...


class Support(NamedTuple):
    """A gradient ``N`` of ``F`` at ``P``, and ``F*(N)``."""

    N: Array
    P: Array
    conjugate: float


def support(F: Penalty, M: Array, step: float) -> Support:
    """The gradient of ``F`` that the prox of ``M`` finds."""
    P = F.prox(M, step)
    N = symmetric(M - P) / step
    return Support(N, P, float(np.vdot(N, P)) - F.value(P))


def max_scale(S: Array, N: Array) -> float:
    """The largest ``c`` with ``c S <= N``; 1 where ``S <= N`` is all that can be said, for a gradient may be indefinite."""
    n, V = np.linalg.eigh(N)
    if not n[0] > 0:
        return float(np.linalg.eigvalsh(symmetric(N - S))[0] >= 0)
    half = V / np.sqrt(n)
    return (1 - 1e-13) / max(float(np.linalg.eigvalsh(symmetric(half.T @ S @ half))[-1]), TINY)


def least(F: Penalty, n_tasks: int) -> tuple[Array, float]:
    """Where ``F`` is least, and a bound from above on ``F*(0) = -min F``."""
    eye = np.eye(n_tasks)
    A, step = F.prox(eye, 1.0), 10.0
    for _ in range(40):  # the proximal point method, with steps that grow
        before, A = A, F.prox(A, step)
        step = min(10 * step, 1e8)
        if np.linalg.norm(A - before) <= 1e-12 * max(float(np.linalg.norm(A)), 1e-12):
            break
    bounds = [np.inf]
    for lift in LIFTS:
        near = support(F, A + step * lift * eye, step)
        if np.linalg.eigvalsh(near.N)[0] >= 0:
            bounds.append(near.conjugate)
    return A, min(bounds)


def ray(F: Penalty, S: Array, near: Array, at_zero: float) -> Ray:
    """``F*`` along ``c S``, bounded by gradients of ``F`` around ``near``; exact as ``near`` becomes optimal.

    Between 0 and a gradient ``F*`` lies below the chord (``at_zero`` is ``F*(0)``).
    """
    if not np.any(S):
        return Ray(np.inf, lambda _: at_zero)
    found = [(0.0, at_zero), *_supports(F, S, near)]
    most = max(far for far, _ in found)

    def conjugate(c: float) -> float:
        bounds = [np.inf]
        for far, bound in found:
            if 0 < c <= far:
                chord = bound + (1 - c / far) * (at_zero - bound) if at_zero < bound else bound
                bounds.append(chord)
        return min(bounds) if c > 0 else at_zero

    return Ray(most, conjugate)


def _supports(F: Penalty, S: Array, near: Array) -> Iterator[tuple[float, float]]:
    """How far along ``S`` a gradient bounds ``F*``, and the bound; until one of them is as good as any can be."""
    size_of_S = float(np.abs(np.linalg.eigvalsh(S)).sum())  # its trace; in a sum of structures S may be indefinite
    level = size_of_S / len(S)
    unit = max(float(np.trace(near)), 1e-12) / max(size_of_S, TINY)
    below = float(np.vdot(S, near)) - F.value(near)
    for size, lift in PLACES:
        N, P, bound = support(F, near + size * unit * (S + lift * level * np.eye(len(S))), size * unit)
        far = max_scale(S, N)
        below = max(below, float(np.vdot(S - N, P)) + bound)
        if far > 0 and np.isfinite(bound):
            yield far, bound
        if far >= 1 and bound - below <= 1e-10 * (abs(bound) + float(np.vdot(N, P))):
            return


def best_structures(F: Penalty, root: Array) -> list[Array]:
    """``argmin_A tr(A^-1 LL') + F(A)`` for a tall ``L``: candidates, one of them right to many digits.

    The dual problem is easy where ``F*`` has a small domain (trace penalties and their like), the primal one where ``F`` keeps
    ``A`` away from singular; which it is shows in the price and the bound that the first attempt leaves behind.
    """
    candidates, bound = _by_the_dual(F, root)
    A, price = cheapest(F, root.T, candidates)
    return [A] if price - bound <= 1e-10 * abs(bound) else [A, _by_the_primal(F, root, A)]


def _by_the_dual(F: Penalty, root: Array, n_steps: int = 100) -> tuple[list[Array], float]:
    """Maximise ``2 tr (L'NL)^(1/2) - F*(N)``, whose first gradient is ``A``, and the bound that was reached.

    It has none of the steep walls that the inverse has at a singular ``A``. The prox of ``F*`` comes from that of ``F``
    (Moreau); lengths are Barzilai and Borwein's.
    """
    size = float(np.linalg.norm(root)) / np.sqrt(len(root))
    start = compose(*_roots(root)) + size * 1e-8 * np.eye(len(root))
    for length in (1.0, 10.0, 100.0, 1e3):
        here = support(F, size * length * np.eye(len(root)) + start, size * length)
        value, A = _dual(root, here)
        if np.isfinite(value):
            break
    else:
        return [F.prox(start, 1e-3 * size)], -np.inf
    recent, sigma = [value], float(np.linalg.norm(here.N)) / max(float(np.linalg.norm(A)), TINY)
    for _ in range(n_steps):
        for _ in range(50):
            there = support(F, here.N / sigma + A, 1 / sigma)
            there_value, there_A = _dual(root, there)
            move = there.N - here.N
            length, bend = float(np.vdot(move, move)), float(np.vdot(move, A - there_A))
            if there_value >= min(recent[-5:]) + 1e-4 * length / (2 * sigma) - 1e-14 * abs(value):
                break
            sigma /= 2
        else:
            break
        here, A, value = there, there_A, there_value
        recent.append(value)
        sigma = min(max(length / bend if bend > 0 else 10 * sigma, 1e-2 * sigma), 1e2 * sigma)
        if min(charge(F, root.T, A), charge(F, root.T, here.P)) - value <= 1e-13 * abs(value):
            break
    return [A, here.P], max(recent)


def _by_the_primal(F: Penalty, root: Array, A: Array, n_steps: int = 300) -> Array:
    """Proximal gradient steps on ``tr(A^-1 LL') + F(A)`` from a regular ``A``, with Barzilai and Borwein's lengths."""

    def smooth(A: Array) -> tuple[float, Array]:
        a, V = np.linalg.eigh(A)
        if not a[0] > 0:
            return np.inf, A
        half = (V / a) @ (V.T @ root)  # A^-1 L
        return float(np.vdot(root, half)), -half @ half.T

    squared_norm, gradient = smooth(A)
    if not np.isfinite(squared_norm):
        return A
    recent, length = [squared_norm + F.value(A)], float(np.linalg.norm(A)) / max(float(np.linalg.norm(gradient)), TINY)
    for _ in range(n_steps):
        for _ in range(60):
            there = F.prox(A - length * gradient, length)
            there_energy, there_slope = smooth(there)
            move, value = there - A, there_energy + F.value(there)
            size, bend = float(np.vdot(move, move)), float(np.vdot(move, there_slope - gradient))
            if value <= max(recent[-5:]) - 1e-4 * size / (2 * length) + 1e-15 * abs(recent[-1]):
                break
            length /= 2
        else:
            break
        A, gradient = there, there_slope
        recent.append(value)
        length = min(max(size / bend if bend > 0 else 10 * length, 1e-2 * length), 1e2 * length)
        if size <= 1e-26 * float(np.vdot(A, A)):
            break
    return A


def _roots(root: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of ``(LL')^(1/2)``."""
    V, s, _ = np.linalg.svd(root, full_matrices=False)
    return s, V


def _dual(root: Array, at: Support) -> tuple[float, Array]:
    """The dual function at a gradient, and the ``A = L (L'NL)^(-1/2) L'`` that it implies (singular values keep small ones)."""
    n, V = np.linalg.eigh(at.N)
    if not n[0] > 0:
        return -np.inf, at.P
    _, s, Vt = np.linalg.svd((V * np.sqrt(n)).T @ root, full_matrices=False)
    turned = root @ Vt.T
    keep = s > TINY
    return 2 * float(s.sum()) - at.conjugate, (turned[:, keep] / s[keep]) @ turned[:, keep].T


def charge(F: Penalty, R: Array, A: Array) -> float:
    """``tr(A^-1 R'R) + F(A)``; infinite where ``R`` leaves the range of ``A``."""
    a, V = np.linalg.eigh(symmetric(A))
    squared_norm = np.einsum("ij,ij->j", RV := R @ V, RV)
    if np.any(squared_norm[a <= 0] > 0):
        return np.inf
    return float((squared_norm[a > 0] / a[a > 0]).sum()) + F.value(A)


def cheapest(F: Penalty, R: Array, candidates: list[Array]) -> tuple[Array, float]:
    """The candidate that charges least for ``R``; where none reaches all of it, with a trace of a regular structure."""
    A, price = _least_charge(F, R, candidates)
    if np.isfinite(price):
        return A, price
    A = next((A for A in candidates if np.isfinite(F.value(A))), A)
    level = max(float(np.trace(A)) / len(A), 1e-12)
    inside = F.prox(level * np.eye(len(A)), 1e-6 * level)
    return _least_charge(F, R, [(1 - share) * A + share * inside for share in (1e-12, 1e-9, 1e-6, 1e-3)])


def _least_charge(F: Penalty, R: Array, candidates: list[Array]) -> tuple[Array, float]:
    prices = [charge(F, R, A) for A in candidates]
    k = int(np.argmin(prices))
    return candidates[k], prices[k]


def tall_root(S: Array) -> Array:
    """A tall ``L`` with ``S = LL'``."""
    s, V = psd_eigh(S)
    return V[:, s > 0] * np.sqrt(s[s > 0])
