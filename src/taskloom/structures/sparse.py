"""Sparse relations: most pairs of tasks have nothing to do with each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._component import is_number
from .base import Array, Structure
from .l1_penalty import Relations


@dataclass(eq=False, repr=False)
class Sparse(Relations):
    """``F(A) = tr A + l1 sum_{t != s} |A_ts|``: a trace penalty that also zeroes relations.

    Parameters
    ----------
    l1 : float, default=0.1
        Price of relations between tasks (off the diagonal); at least 0.
    """

    l1: float = 0.1
    zeroes_relations: ClassVar[bool] = True

    def check(self) -> None:
        if not (is_number(self.l1) and self.l1 >= 0):
            raise ValueError(f"Sparse needs l1 >= 0, got l1={self.l1!r}")

    @property
    def strengths(self) -> tuple[float, float]:
        return 0.0, self.l1


@dataclass(eq=False, repr=False)
class LogDet(Relations):
    """``F(A) = tr A - mu log det A + l1 sum_{t != s} |A_ts|``: no task direction dies, and few relations live.

    Lozano and Sindhwani's penalty, made convex. Without ``l1`` it sees the eigenvalues of ``A`` alone.

    Parameters
    ----------
    mu : float, default=1.0
        Strength of the barrier ``-log det A``; greater than 0.
    l1 : float, default=0.0
        Price of relations between tasks (off the diagonal); at least 0.
    """

    mu: float = 1.0
    l1: float = 0.0
    interior: ClassVar[bool] = True

    def check(self) -> None:
        if not (is_number(self.mu) and self.mu > 0):
            raise ValueError(f"LogDet needs mu > 0, got mu={self.mu!r}")
        if not (is_number(self.l1) and self.l1 >= 0):
            raise ValueError(f"LogDet needs l1 >= 0, got l1={self.l1!r}")

    @property
    def zeroes_relations(self) -> bool:  # type: ignore[override]
        return self.l1 > 0

    @property
    def strengths(self) -> tuple[float, float]:
        return self.mu, self.l1

    def shifted_to_zero(self, n_tasks: int) -> tuple[Structure, float] | None:
        if self.l1 > 0:
            return None
        return _LogDetAboveLeast(self.mu), n_tasks * (self.mu - self.mu * float(np.log(self.mu)))


class _LogDetAboveLeast(LogDet):
    """``sum (a - mu - mu log(a / mu))``: zero at ``A = mu I``, so that beside it a loss of 1e-30 is still seen."""

    def f(self, a: Array) -> float:
        more = a / self.mu - 1
        return self.mu * float(np.sum(more - np.log1p(more))) if np.all(a > 0) else np.inf

    def f_conjugate(self, s: Array) -> float:
        return -self.mu * float(np.log1p(-s).sum()) if np.all(s < 1) else np.inf

    def shifted_to_zero(self, n_tasks: int) -> tuple[Structure, float] | None:
        return None
