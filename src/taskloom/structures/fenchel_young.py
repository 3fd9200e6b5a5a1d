"""Whether the methods of a penalty agree at a structure: ``F(B) + F*(S) >= <S, B>`` for every ``B`` (Fenchel and Young).

With ``P = prox(M, step)``, ``N = (M - P) / step`` and ``<N, P> - F(P)`` in place of the conjugate, that says that ``P`` is the
minimiser. So one function tests conjugates and proximal operators, from values alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._linalg import symmetric
from .base import Array

EPS = float(np.finfo(float).eps)
LENGTHS = 10.0 ** np.arange(-2, 6)  # of the structures that are tried, relative to the given one
SLOPE = 1e-7  # relative accuracy of subgradients: a prox may be iterative
SCALES = (1.0, 1.3, 30.0)  # of the matrices at which a conjugate is tried


def excess(F: Any, S: Array, claimed: float, A: Array, size: float) -> float:
    """By how much ``sup_B <S, B> - F(B)`` exceeds what is claimed of it, beyond rounding; 0 where nothing was found."""
    found = 0.0
    if not np.isfinite(claimed):
        return found
    for B in _tried(S, A, size):
        value, price = F.value(B), float(np.vdot(S, B))
        if np.isfinite(value):
            room = 100 * EPS * (abs(price) + abs(value) + abs(claimed)) + SLOPE * float(np.abs(S).max() * np.abs(B - A).sum())
            found = max(found, price - value - claimed - room)
    return found


def _tried(S: Array, A: Array, size: float) -> Iterator[Array]:
    """Structures: multiples of ``A``, and more along the identity and the top eigenvector of ``S``, with ``A`` and alone."""
    top = np.linalg.eigh(symmetric(S))[1][:, -1]
    directions = (np.eye(len(S)) / len(S), np.outer(top, top))
    yield A
    for length in LENGTHS:
        yield length * A
        for direction in directions:
            yield A + length * size * direction
            yield length * size * direction


def prox_excess(F: Any, S: Array, A: Array, size: float) -> float:
    """How far the prox is from a minimiser, around ``A``; infinite if it leaves the cone."""
    found, length = 0.0, size / max(float(np.abs(np.linalg.eigvalsh(S)).sum()), EPS * EPS)
    for step in (length / 10, 10 * length):
        for M in (A + step * S, -A):
            P = symmetric(F.prox(M, step))
            if np.linalg.eigvalsh(P)[0] < -1e-9 * np.abs(M).max(initial=0.0):
                return np.inf
            N = (M - P) / step
            found = max(found, excess(F, N, float(np.vdot(N, P)) - F.value(P), P, size))
    return found


def conjugate_excess(F: Any, S: Array, A: Array, size: float) -> float:
    """By how much the conjugate is too small at ``S`` and its multiples."""
    return max(excess(F, scale * S, F.conjugate(scale * S, A), A, size) for scale in SCALES)
