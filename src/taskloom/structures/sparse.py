"""Sparse relations: most pairs of tasks have nothing to do with each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._component import is_number, require
from .._linalg import psd_eigh, symmetric
from .base import Array, Ray, Structure


def maximise_in_box(f: Callable[[Array], tuple[float, Array]], x: Array, bound: float, n_steps: int = 500) -> Array:
    """Maximise a concave ``f`` (value, slope) over ``|x| <= bound`` by spectral projected gradients.

    ``f`` may be ``-inf`` outside its domain; ``x`` must start inside. The step length is Barzilai and Borwein's, the
    acceptance rule looks back over the last few values; where rounding hides the gain, the slopes decide.
    """
    value, slope = f(x)
    recent, length = [value], 1.0 / max(float(np.abs(slope).max(initial=0.0)), 1e-30)
    for _ in range(n_steps):
        move = np.clip(x + length * slope, -bound, bound) - x
        if np.abs(move).max(initial=0.0) <= 1e-14 * bound:
            break
        for _ in range(40):
            new_value, new_slope = f(x + move)
            size, bend = float(np.vdot(move, move)), float(np.vdot(move, slope - new_slope))
            if new_value >= min(recent) + 1e-4 * float(np.vdot(slope, move)):
                break
            if new_value >= value - 1e-12 * abs(value) and bend <= size / length:
                break
            move = move / 2
        else:
            break
        x, value, slope = x + move, new_value, new_slope
        length = min(max(size / bend if bend > 0 else 10 * length, 1e-30), 1e30)
        recent = [*recent[-8:], value]
    return x


def _share(energy: Array, lifted: Array) -> float:
    """``sum energy / sqrt(lifted)``, 0 where both are."""
    return float(np.divide(energy, np.sqrt(lifted), out=np.zeros_like(energy), where=lifted > 0).sum())


@dataclass(eq=False, repr=False)
class Sparse(Structure):
    """``F(A) = tr A + l1 sum_{t != s} |A_ts|``: a trace penalty that also zeroes relations.

    ``F(A)`` is the largest ``<I + N, A>`` over the symmetric ``N`` with zero diagonal and entries within ``l1``; every
    question about ``F`` is a smooth concave problem in ``N``, and any such ``N`` proves a bound.
    """

    l1: float = 0.1
    zeroes_relations: ClassVar[bool] = True

    def check(self) -> None:
        require(is_number(self.l1) and self.l1 >= 0, f"Sparse needs l1 >= 0, got l1={self.l1!r}")

    def value(self, A: Array) -> float:
        diagonal = float(np.trace(A))
        return diagonal + self.l1 * (float(np.abs(A).sum()) - float(np.abs(np.diag(A)).sum()))

    def _search(self, dual: Callable[[Array], tuple[float, Array]], start: Array) -> Array:
        """The best ``N`` for a dual function that gives its value and ``A``, the slope with respect to ``N``."""

        def masked(N: Array) -> tuple[float, Array]:
            value, A = dual(N)
            A = A.copy()
            np.fill_diagonal(A, 0.0)
            return value, A

        return maximise_in_box(masked, start, self.l1)

    def best_structure(self, S: Array) -> Array:
        """``A = L (L'RL)^(-1/2) L'`` with ``S = LL'`` and ``R = I + N`` at the best ``N`` (so ``A R A = S``)."""
        s, V = psd_eigh(S)
        keep = s > 1e-28 * max(s[-1], np.finfo(float).tiny)
        if not keep.any():
            return np.zeros_like(S)
        L = V[:, keep] * np.sqrt(s[keep])

        def dual(N: Array) -> tuple[float, Array]:
            e, E = np.linalg.eigh(symmetric(L.T @ L + L.T @ N @ L))
            if e[0] <= 0:
                return -np.inf, np.zeros_like(N)
            LE = L @ E
            return 2 * float(np.sqrt(e).sum()), (LE / np.sqrt(e)) @ LE.T

        return dual(self._search(dual, np.zeros_like(S)))[1]

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        """What the search finds, or the best diagonal structure where that is cheaper (as when ``R'R`` is nearly singular)."""
        A, penalty = super().best_of_root(R, floor)
        energy = np.einsum("ij,ij->j", R, R)
        if penalty <= 2 * float(np.sqrt(energy).sum()):
            return A, penalty
        return np.diag(np.sqrt(energy + floor)), float(np.sqrt(energy + floor).sum() + _share(energy, energy + floor))

    def prox(self, A: Array, step: float) -> Array:
        return self._prox_and_dual(A, step)[0]

    def _prox_and_dual(self, A: Array, step: float) -> tuple[Array, Array]:
        """The prox is ``B(N) = (A - step (I + N))_+`` at the ``N`` that makes ``||B(N)||`` least."""

        def dual(N: Array) -> tuple[float, Array]:
            b, V = psd_eigh(A - step * (np.eye(len(A)) + N))
            return -float(b @ b) / (2 * step), (V * b) @ V.T

        start = np.clip((A - np.diag(np.diag(A))) / step, -self.l1, self.l1)
        N = self._search(dual, start)
        return dual(N)[1], N

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        """``F*(cS) = 0`` while ``c S <= I + N``; the ``N`` of the prox around ``near`` is the best one at the optimum."""
        near = np.zeros_like(S) if near is None else near
        size = max(float(np.trace(near)), 1e-12)
        N = self._prox_and_dual(near + size * S, size)[1]
        reach = 0.0
        for share in (1.0, 1 - 1e-9, 1 - 1e-6, 0.999, 0.9, 0.0):  # N may leave I + N singular: shrink it into the cone
            r, V = np.linalg.eigh(np.eye(len(S)) + share * N)
            if r[0] > 1e-12:
                half = (V / np.sqrt(r)).T @ S @ (V / np.sqrt(r))
                reach = max(reach, 1 / max(float(np.linalg.eigvalsh(symmetric(half))[-1]), np.finfo(float).tiny))
        return Ray(reach, lambda c: 0.0 if c <= reach else np.inf)

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return self.ray(S, near).conjugate(1.0)
