"""Sums of penalties on the same ``A``.

    F(A) = sum_k w_k F_k(A),     F*(S) = min over sum_k S_k >= S of sum_k w_k F_k*(S_k / w_k)

Every split of ``S`` gives an upper bound on ``F*``. The prox is computed by dual ascent with the prox of each member; its
multipliers are the split that is exact at the optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .._component import is_number
from .._linalg import compose, psd_eigh, symmetric
from .base import Array, IterativeStructure, Ray, Structure, finite_ray
from .inner_solvers import accelerated, inverse_trace, proximal_gradient
from .sparse import INNER_STEPS, LogDet, Sparse, off_diagonal
from .spectral import Trace

MAX_PROXES = 5_000  # inner iterations of one best structure; a median problem needs some hundreds


class _Parts(NamedTuple):
    """The summands: members with a prox in closed form, and the weight ``l1`` of ``sum_{t != s} |A_ts|``.

    The first member is the one with the smallest domain, so that its prox has a finite ``F``.
    """

    parts: list[tuple[float, Structure]]
    l1: float

    @property
    def invariant(self) -> bool:
        """Whether every member is a function of the eigenvalues."""
        return all(member.spectral for _, member in self.parts)

    @property
    def spectral(self) -> bool:
        return self.l1 == 0 and self.invariant

    def value(self, A: Array) -> float:
        """``F(A)`` of a matrix, or of a vector of eigenvalues."""
        if A.ndim == 1:
            return sum(weight * member.f(A) for weight, member in self.parts)  # type: ignore[attr-defined]
        off = self.l1 * float(np.abs(off_diagonal(A)).sum())
        return sum((weight * member.value(A) for weight, member in self.parts), start=off)


@dataclass(eq=False, repr=False)
class Sum(IterativeStructure):
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
    iterative: ClassVar[bool] = True

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
            if member.splits_weights:
                raise ValueError(f"Sum needs structures of one A; {name} splits the weights and has several")
            if member.on_features:
                raise ValueError(f"Sum needs structures on the tasks; {name} penalises the features")
            if not getattr(member, "convex", True):
                raise ValueError(f"Sum needs convex members; {name} is not convex")
        weights = self._weights
        if not (len(weights) == len(self.members) and all(is_number(w) and w > 0 for w in weights)):
            raise ValueError(
                f"Sum needs one positive weight for each of its {len(self.members)} members, got weights={self.weights!r}"
            )

    @classmethod
    def of(cls, summands: Sequence[tuple[float, Structure]]) -> Sum:
        """The sum of these penalties, each with its weight.

        Parameters
        ----------
        summands : sequence of (float, Structure)
            Weights and structures.

        Returns
        -------
        Sum
            The sum.
        """
        return cls([structure for _, structure in summands], [weight for weight, _ in summands])

    @property
    def summands(self) -> list[tuple[float, Structure]]:
        return list(zip(map(float, self._weights), self.members, strict=True))

    def check_tasks(self, n_tasks: int) -> None:
        for member in self.members:
            member.check_tasks(n_tasks)
        # The bounded domains must intersect, which holds if the prox of their sum is close to each of them.
        bounded = [member for member in self.members if not np.isfinite(member.value(1e3 * np.eye(n_tasks)))]
        if len(bounded) < 2:
            return
        A = Sum(bounded).prox(np.eye(n_tasks), 1.0)
        distance = max(float(np.linalg.norm(member.prox(A, 1e-6) - A)) for member in bounded)
        names = " and ".join(repr(member) for member in bounded)
        if not distance <= 1e-3 * float(np.linalg.norm(A)):
            raise ValueError(
                f"no A satisfies {names} for {n_tasks} tasks: the sum is infinite everywhere; change a parameter of one of them"
            )

    @property
    def user_written(self) -> bool:
        return any(member.user_written for member in self.members)

    @property
    def proof(self) -> str:  # type: ignore[override]
        return next((member.proof for member in self.members if member.proof), "")

    @property
    def _weights(self) -> Sequence[float]:
        return [1.0] * len(self.members) if self.weights is None else self.weights

    def bind(self, tasks: Any) -> Structure:
        return Sum([member.bind(tasks) for member in self.members], self.weights)

    def value(self, A: Array) -> float:
        return float(sum(weight * member.value(A) for weight, member in self.summands))

    def _parts(self, n_tasks: int) -> _Parts:
        """The summands, where all members of the form ``tr A - mu log det A`` are merged into one."""
        parts, traces, mu, l1 = [], 0.0, 0.0, 0.0
        for weight, member in self.summands:
            if member.mu_and_l1 is None:
                parts.append((weight, member))
            else:
                traces, mu, l1 = traces + weight, mu + weight * member.mu_and_l1[0], l1 + weight * member.mu_and_l1[1]
        if traces > 0:
            parts.append((traces, LogDet(mu / traces) if mu > 0 else Sparse(0.0)))
        identity = np.eye(n_tasks)

        def domain_size(part: tuple[float, Structure]) -> tuple[bool, bool]:
            """Sort key: bounded domains first, then domains of nonsingular matrices."""
            return bool(np.isfinite(part[1].value(1e3 * identity))), bool(np.isfinite(part[1].value(0 * identity)))

        return _Parts(sorted(parts, key=domain_size), l1)

    # --- prox -----------------------------------------------------------------------------------------------

    def _prox_and_multipliers(
        self, A: Array, step: float, N: Array | None = None, origin: Array | None = None
    ) -> tuple[Array, Array | None]:
        """The prox and the multipliers, computed on the eigenvalues where all members are spectral."""
        parts = self._parts(len(A))
        if parts.spectral:
            a, V = np.linalg.eigh(symmetric(A))
            b, m, _ = _split(parts, a, step, None, None)
            return compose(b, V), None if m is None else (V * m[:, None, :]) @ V.T
        return _split(parts, symmetric(A), step, N, origin)[:2]

    # --- best structure -----------------------------------------------------------------------------------------------

    def best_structure(self, S: Array) -> Array:
        parts = self._parts(len(S))
        if parts.spectral or (parts.invariant and not np.any(S)):  # l1 is zero at a multiple of the identity
            s, V = psd_eigh(S)
            a, m = _descend(parts._replace(l1=0.0), s, None)
            if parts.spectral and m is not None and np.any(S):
                self._keep((V * m[:, None, :]) @ V.T)
            return compose(a, V)
        A, M = _descend(parts, symmetric(S), self._last_multipliers)
        self._keep(M)
        return A

    def first_structure(self, R: Array, floor: float) -> Array:
        """The prox at ``(R'R + floor I)^(1/2)``, without an iteration of its own."""
        A, _ = Trace().best_of_root(R, floor)
        size = float(np.trace(A)) / len(A)
        return self._prox_and_multipliers(A, 1e-3 * size if size > 0 else 1.0, None, 0 * A)[0]

    # --- dual bound ----------------------------------------------------------------------------------------------

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        """The split gives the multipliers to all members but the first, which gets ``c S`` minus their sum."""
        ((own, first), *others), _ = parts = self._parts(len(S))
        found = self._multipliers_for_bound(S, near)
        M = np.zeros((len(parts.parts), *S.shape)) if found is None else found
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
            return own * first.conjugate((c * S - taken) / own, near) + rest

        return finite_ray(bound, n_steps=45)


def _descend(parts: _Parts, S: Array, M: Array | None) -> tuple[Array, Array | None]:
    """``argmin_A tr(A^-1 S) + F(A)`` and its multipliers, by proximal gradient steps.

    Where ``S`` is zero, the proximal point method minimises ``F``. Near the boundary of the cone steps may become ever shorter,
    each with an iterative prox: the total number of inner iterations is bounded.
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

    def prox(A: Array, step: float) -> tuple[Array, float]:
        nonlocal M, spent
        B, M, rounds = _split(parts, A, step, M, None)
        spent += rounds
        return B, parts.value(B)

    def more() -> bool:
        return spent < MAX_PROXES

    return proximal_gradient(partial(inverse_trace, S=S), prox, A, parts.value(A), size, n_steps=MAX_PROXES, more=more), M


def _prox(part: tuple[float, Structure], x: Array, step: float) -> Array:
    """The prox of one member, at a matrix or at a vector of eigenvalues."""
    weight, member = part
    return (member.f_prox if x.ndim == 1 else member.prox)(x, step * weight)  # type: ignore[attr-defined]


def _split(parts: _Parts, A: Array, step: float, M: Array | None, origin: Array | None) -> tuple[Array, Array | None, int]:
    """``argmin_B step F(B) + ||B - A||^2 / 2``, its multipliers, and the number of iterations.

    Accelerated gradient ascent on the multipliers ``M``. ``B`` is the prox of the first member at ``A - step sum(M)``; the
    multipliers of the others follow from their proxes (Moreau), those of ``l1`` from a clip. With an ``origin`` the prox is
    inexact: at most ``INNER_STEPS`` iterations, or until the members agree within a tenth of ``||B - origin||``.
    """
    first, *others = parts.parts
    q = len(others) + (parts.l1 > 0)
    if q == 0:
        return _prox(first, A, step), None, 1
    scale = q * step

    def ascend(M: Array) -> tuple[Array, tuple[Array, Array], bool]:
        B = _prox(first, A - step * M.sum(axis=0), step)
        V = M + B / scale
        new = np.empty_like(V)
        for j, part in enumerate(others):
            new[j] = V[j] - _prox(part, scale * V[j], scale) / scale
        if parts.l1 > 0:
            new[-1] = np.clip(off_diagonal(V[-1]), -parts.l1, parts.l1)
        exact = 1e-13 * float(np.linalg.norm(B) + np.linalg.norm(A))
        enough = exact if origin is None else 0.1 * float(np.linalg.norm(B - origin))
        return new, (B, new), scale * float(np.linalg.norm(new - M)) <= enough

    start = np.zeros((q, *A.shape)) if M is None else M
    n_steps = INNER_STEPS if origin is not None else 5000 if A.ndim == 1 else 500  # steps on eigenvalues are cheap
    (B, M), rounds = accelerated(ascend, start, n_steps)
    return B, M, rounds
