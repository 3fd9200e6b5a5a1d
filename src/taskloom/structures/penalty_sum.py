"""Sums of structures: several penalties on the same ``A``.

    F(A) = sum_k w_k F_k(A),     F*(S) = min over sum_k S_k >= S of sum_k w_k F_k*(S_k / w_k)

Any split of ``S`` proves a bound. The prox is found by splitting as well: each member has its own prox, and the multipliers
that make them agree are the split that is exact at the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from .._component import is_number
from .._linalg import compose, psd_eigh, symmetric
from .base import Array, Ray, Remembering, Structure
from .sparse import FEW, LogDet, Relations, Sparse, off_diagonal
from .spectral import TINY, Schatten, SchattenNorm, SpectralStructure
from .term_sum import SplitStructure

ROUNDS = 5_000  # of proxes in one closed step; where the median problem needs some hundreds


class _Part(NamedTuple):
    weight: float
    structure: Structure


class _Parts(NamedTuple):
    """What a sum is made of: members with a prox in closed form, the first of which lands where all are finite, and ``l1``."""

    parts: list[_Part]
    l1: float

    @property
    def invariant(self) -> bool:
        """Whether everything but ``l1`` sees eigenvalues alone."""
        return all(isinstance(part.structure, SpectralStructure) for part in self.parts)

    @property
    def spectral(self) -> bool:
        return self.l1 == 0 and self.invariant

    def value(self, A: Array) -> float:
        """``F(A)``, of a matrix or of eigenvalues alone."""
        if A.ndim == 1:
            return sum(part.weight * part.structure.f(A) for part in self.parts)  # type: ignore[attr-defined]
        off = self.l1 * float(np.abs(off_diagonal(A)).sum())
        return sum((part.weight * part.structure.value(A) for part in self.parts), start=off)


def _taken_apart(members: Sequence[Structure], weights: Sequence[float], n_tasks: int) -> _Parts:
    """Everything of the form ``tr A - mu log det A`` is one part, whatever it was written as."""
    parts, traces, mu, l1 = [], 0.0, 0.0, 0.0
    for weight, member in zip(map(float, weights), members, strict=True):
        if isinstance(member, Relations):
            traces, mu, l1 = traces + weight, mu + weight * member.strengths[0], l1 + weight * member.strengths[1]
        elif isinstance(member, (Schatten, SchattenNorm)) and member.p == 1:
            traces += weight
        else:
            parts.append(_Part(weight, member))
    if traces > 0:
        parts.append(_Part(traces, LogDet(mu / traces) if mu > 0 else Sparse(0.0)))
    identity = np.eye(n_tasks)

    def freedom(part: _Part) -> tuple[bool, bool]:
        """Sets come first, then members that keep ``A`` from being singular."""
        return bool(np.isfinite(part.structure.value(1e3 * identity))), bool(np.isfinite(part.structure.value(0 * identity)))

    return _Parts(sorted(parts, key=freedom), l1)


@dataclass(eq=False, repr=False)
class Sum(Remembering):
    """``F(A) = sum_k weights[k] F_k(A)``; ``Trace() + 0.5 * Sparse(0.1)`` is another way to write one.

    Parameters
    ----------
    members : sequence of Structure
        Convex structures on the tasks that are learned, not known.
    weights : sequence of float, default=None
        Positive numbers; ``None`` is 1 for all.
    """

    members: Sequence[Structure]
    weights: Sequence[float] | None = None

    def check(self) -> None:
        if not (isinstance(self.members, (list, tuple)) and len(self.members) > 0):
            raise ValueError(f"Sum needs a list of structures, got members={self.members!r}")
        for member in self.members:
            name = type(member).__name__
            if not isinstance(member, Structure):
                raise ValueError(f"Sum needs structures as members, got {member!r}")
            if isinstance(member, Sum):
                raise ValueError("Sum does not nest: write all members in one list, or add them with +")
            if member.known:
                raise ValueError(f"Sum needs structures that are learned; {name} fixes A, so there is nothing to add to it")
            if isinstance(member, SplitStructure):
                raise ValueError(f"Sum needs structures of one A; {name} splits the weights and has several")
            if member.on_features:
                raise ValueError(f"Sum needs structures on the tasks; {name} sits on the features")
            if not getattr(member, "convex", True):
                raise ValueError(f"Sum needs convex members; {name} is not convex")
        weights = self._weights
        if not (len(weights) == len(self.members) and all(is_number(w) and w > 0 for w in weights)):
            raise ValueError(
                f"Sum needs one positive weight for each of its {len(self.members)} members, got weights={self.weights!r}"
            )

    def check_tasks(self, n_tasks: int) -> None:
        for member in self.members:
            member.check_tasks(n_tasks)
        self._check_room(n_tasks)

    def _check_room(self, n_tasks: int) -> None:
        """Members that are sets must have an ``A`` in common: then the prox lands next to each of them."""
        bounded = [member for member in self.members if not np.isfinite(member.value(1e3 * np.eye(n_tasks)))]
        if len(bounded) < 2:
            return
        A = Sum(bounded).prox(np.eye(n_tasks), 1.0)
        apart = max(float(np.linalg.norm(member.prox(A, 1e-6) - A)) for member in bounded)
        names = " and ".join(repr(member) for member in bounded)
        if not apart <= 1e-3 * float(np.linalg.norm(A)):
            raise ValueError(
                f"no A satisfies {names} for {n_tasks} tasks: their sum is infinite everywhere; change a parameter of one of "
                "them"
            )

    @property
    def proof(self) -> str:  # type: ignore[override]
        return next((member.proof for member in self.members if member.proof), "")

    @property
    def _weights(self) -> Sequence[float]:
        return [1.0] * len(self.members) if self.weights is None else self.weights

    def bind(self, tasks: Any) -> Structure:
        return Sum([member.bind(tasks) for member in self.members], self.weights)

    @property
    def iterative(self) -> bool:
        return True

    @property
    def steepness(self) -> float:
        return float(sum(self._weights))

    def value(self, A: Array) -> float:
        return float(sum(w * member.value(A) for w, member in zip(self._weights, self.members, strict=True)))

    def _parts(self, n_tasks: int) -> _Parts:
        return _taken_apart(self.members, self._weights, n_tasks)

    # --- the prox -----------------------------------------------------------------------------------------------

    def prox(self, A: Array, step: float) -> Array:
        return self._prox_and_split(A, step)[0]

    def proximal_step(self, A: Array, gradient: Array, step: float) -> Array:
        """As exact as a step of this size deserves, from the split of the step before."""
        B, self._N = self._prox_and_split(A - step * gradient, step, self._N, A)
        self._proves = True
        return B

    def _prox_and_split(
        self, A: Array, step: float, M: Array | None = None, origin: Array | None = None
    ) -> tuple[Array, Array | None]:
        """The prox, and the multipliers; where all members are spectral, from eigenvalues alone."""
        parts = self._parts(len(A))
        if parts.spectral:
            a, V = np.linalg.eigh(symmetric(A))
            b, m, _ = _split(parts, a, step, None, None)
            return compose(b, V), None if m is None else (V * m[:, None, :]) @ V.T
        return _split(parts, symmetric(A), step, M, origin)[:2]

    # --- the step -----------------------------------------------------------------------------------------------

    def best_structure(self, S: Array) -> Array:
        parts = self._parts(len(S))
        if parts.spectral or (parts.invariant and not np.any(S)):  # l1 costs nothing at a multiple of the identity
            s, V = psd_eigh(S)
            a, m = _descend(parts._replace(l1=0.0), s, None)
            if self._remembers and parts.spectral and m is not None and np.any(S):  # a bound looks for its split from here
                self._N = (V * m[:, None, :]) @ V.T
            return compose(a, V)
        A, M = _descend(parts, symmetric(S), self._N)
        if self._remembers:
            self._N = M
        return A

    def first_structure(self, R: Array, floor: float) -> Array:
        """The prox around the root of the squared_norm: a start needs no search."""
        _, s, Vt = np.linalg.svd(R, full_matrices=R.shape[0] < R.shape[1])
        squared_norm = np.full(R.shape[1], floor)
        squared_norm[: s.size] += s**2
        size = float(np.sqrt(squared_norm).mean())
        around = compose(np.sqrt(squared_norm), Vt.T)
        return self._prox_and_split(around, 1e-3 * size if size > 0 else 1.0, None, 0 * around)[0]

    # --- the bound ----------------------------------------------------------------------------------------------

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        """The first part takes what the multipliers of the others leave of ``c S``."""
        (first, *others), _ = parts = self._parts(len(S))
        M = self._multipliers(parts, S, near)
        rest, taken = 0.0, np.zeros_like(S)
        for k, (weight, member) in enumerate(others):
            share = M[k] / weight
            ray = member.ray(share, near)
            shrink = 1.0 if np.isfinite(ray.conjugate(1.0)) else min(1.0, ray.max_scale * (1 - 1e-14))
            rest += weight * ray.conjugate(shrink)
            taken = taken + weight * shrink * share
        if parts.l1 > 0:
            taken = taken + M[-1]

        def bound(c: float) -> float:
            return first.weight * first.structure.conjugate((c * S - taken) / first.weight, near) + rest

        if np.isfinite(bound(1.0)):
            return Ray(1.0, lambda c: bound(c) if c <= 1 else np.inf)
        low, high = 0.0, 1.0
        for _ in range(45):
            middle = (low + high) / 2
            low, high = (middle, high) if np.isfinite(bound(middle)) else (low, middle)
            if low > 0 and high - low <= 1e-12 * low:
                break
        return Ray(low, lambda c: bound(c) if c <= low else np.inf)

    def _multipliers(self, parts: _Parts, S: Array, near: Array | None) -> Array:
        if self._N is not None and self._proves:
            return self._N
        if self._N is None and self._remembers:  # before the first step any split will do
            return np.zeros((len(parts.parts), *S.shape))
        near = np.zeros_like(S) if near is None else near
        size = max(float(np.trace(near)), 1e-12)
        M = _split(parts, symmetric(near + size * S), size, self._N, None)[1]
        if self._remembers:
            self._N = M
        return np.zeros((0, *S.shape)) if M is None else M

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return self.ray(S, near).conjugate(1.0)


def _energy(A: Array, S: Array) -> tuple[float, Array]:
    """``tr(A^-1 S)`` and its gradient, of matrices or of eigenvalues alone."""
    a, V = (A, None) if A.ndim == 1 else np.linalg.eigh(symmetric(A))
    if a.min() <= 1e-14 * max(float(a.max()), TINY):
        return np.inf, np.zeros_like(A)
    if V is None:
        return float((S / a).sum()), -S / a**2
    inverse = (V / a) @ V.T
    return float(np.vdot(inverse, S)), -inverse @ S @ inverse


def _descend(parts: _Parts, S: Array, M: Array | None) -> tuple[Array, Array | None]:
    """``argmin_A tr(A^-1 S) + F(A)`` and its multipliers: proximal gradient steps, their lengths Barzilai and Borwein's.

    Where ``S`` is zero, the prox itself, repeated, finds the least ``F``. Near the boundary of the cone a step can ask for
    ever shorter lengths, each a search of its own: the rounds of all of them together are bounded.
    """
    size = float(np.sqrt((S.sum() if S.ndim == 1 else np.trace(S)) / len(S)))
    start = np.full(len(S), size) if S.ndim == 1 else size * np.eye(len(S))
    A, M, spent = _split(parts, start, 1e-3 * size or 1.0, M, None)
    if size == 0:
        for _ in range(100):
            before, (A, M, _) = A, _split(parts, A, 10.0, M, None)
            if np.abs(A - before).max() <= 1e-13 * np.abs(A).max():
                break
        return A, M
    squared_norm, gradient = _energy(A, S)
    value, length = squared_norm + parts.value(A), size
    recent, best = [value], (value, A)
    while spent < ROUNDS:
        B, M, rounds = _split(parts, A - length * gradient, length, M, None)
        spent += rounds
        squared_norm, new_slope = _energy(B, S)
        move = B - A
        moved, value = float(np.vdot(move, move)), squared_norm + parts.value(B)
        if value > max(recent[-5:]) - 1e-4 * moved / (2 * length):
            if moved <= 1e-30 * float(np.vdot(A, A)):
                break
            length /= 3
            continue
        if moved <= 1e-28 * float(np.vdot(A, A)):
            break  # what is left is rounding, and bends in no way
        bend = float(np.vdot(move, new_slope - gradient))
        length = moved / bend if bend > 0 else 3 * length
        A, gradient = B, new_slope
        recent.append(value)
        best = min(best, (value, A), key=itemgetter(0))
        if len(recent) > 12 and max(recent[-12:]) - min(recent[-12:]) <= 1e-14 * abs(value):
            break
    return best[1], M


def _prox(part: _Part, x: Array, step: float) -> Array:
    """Of a matrix, or of eigenvalues alone."""
    if x.ndim == 1:
        return part.structure.f_prox(x, step * part.weight)  # type: ignore[attr-defined]
    return part.structure.prox(x, step * part.weight)


def _split(parts: _Parts, A: Array, step: float, M: Array | None, origin: Array | None) -> tuple[Array, Array | None, int]:
    """``argmin_B step F(B) + ||B - A||^2 / 2`` by accelerated ascent on the multipliers, given up whenever it points downhill.

    ``B`` is the prox of the first part at ``A - step sum(M)``; every other part answers with a prox of its own (Moreau), ``l1``
    with a clip. With an ``origin``, a few rounds will do, or fewer if the parts agree within a tenth of the step from there.
    """
    first, *others = parts.parts
    q = len(others) + (parts.l1 > 0)
    if q == 0:
        return _prox(first, A, step), None, 1
    reach = q * step
    x = np.zeros((q, *A.shape)) if M is None else M
    ahead, momentum = x, 1.0
    rounds = FEW if origin is not None else 5000 if A.ndim == 1 else 500  # those on eigenvalues cost next to nothing
    for k in range(rounds):
        B, point = _prox(first, A - step * ahead.sum(axis=0), step), ahead
        V = point + B / reach
        new = np.empty_like(V)
        for j, part in enumerate(others):
            new[j] = V[j] - _prox(part, reach * V[j], reach) / reach
        if parts.l1 > 0:
            new[-1] = np.clip(off_diagonal(V[-1]), -parts.l1, parts.l1)
        apart = reach * float(np.linalg.norm(new - point))
        if apart <= (
            1e-13 * float(np.linalg.norm(B) + np.linalg.norm(A)) if origin is None else 0.1 * float(np.linalg.norm(B - origin))
        ):
            break
        if k > 0 and float(np.vdot(new - point, new - x)) < 0:
            momentum = 1.0
        grown = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / grown * (new - x)
        x, momentum = new, grown
    if parts.l1 > 0:
        new[-1] = np.clip(new[-1], -parts.l1, parts.l1)
    return B, new, k + 1


def added(one: Structure, other: Structure) -> Sum:
    """The sum of two structures, either of which may be a sum."""
    (members, weights), (more, heavier) = _written_out(one), _written_out(other)
    return Sum([*members, *more], [*weights, *heavier])


def scaled(structure: Structure, factor: float) -> Sum:
    """A structure times a positive number."""
    if not (is_number(factor) and factor > 0):
        raise ValueError(f"a structure can be multiplied by a positive number, got {factor!r}")
    members, weights = _written_out(structure)
    return Sum(members, [factor * weight for weight in weights])


def _written_out(structure: Structure) -> tuple[list[Structure], list[float]]:
    if isinstance(structure, Sum):
        return list(structure.members), list(structure._weights)
    return [structure], [1.0]
