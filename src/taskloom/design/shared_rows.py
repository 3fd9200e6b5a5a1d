"""Terms over the same rows in every level: their Gram matrices are products of one over the rows and one over the levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .._linalg import psd_eigh
from .levels import LevelIndex
from .observations import Value

if TYPE_CHECKING:
    from .term_inputs import TermData

Array = np.ndarray
MIN_WIDE_SHARE = 0.2  # of the rows, the number of features from which on a term is wide


@dataclass(frozen=True, eq=False)
class SharedRows(Value):
    """Every level has the same rows, with weights ``v_it = s_i c_t``.

    ``wide`` says which terms have the features ``phi``, and perhaps some more after them.
    """

    order: Array  # the observations, level by level
    levels: Array  # of each block of rows
    phi: Array  # features of the rows that the wide terms have in common
    wide: tuple[bool, ...]
    row_weight: Array  # s
    level_weight: Array  # c

    @classmethod
    def of(cls, terms: Sequence[TermData], weight: Array) -> SharedRows | None:
        """``None`` where the rows of the levels differ, or no term is wide."""
        codes = [term.codes for term in terms if term.codes is not None and not term.free]
        if not codes or not all(np.array_equal(codes[0], other) for other in codes[1:]):
            return None
        index = LevelIndex(codes[0], int(codes[0].max()) + 1)
        levels = np.flatnonzero(index.counts)
        n = int(index.counts[levels[0]])
        if len(levels) < 2 or np.any(index.counts[levels] != n):
            return None
        wide = [term.r > MIN_WIDE_SHARE * n and not term.free for term in terms]
        if not any(wide) or not all(term.free or is_repeated(term.phi, index.order, n) for term in terms):
            return None
        rows = index.order[:n]
        phi = min((term.phi[rows] for term, one in zip(terms, wide, strict=True) if one), key=lambda each: each.shape[1])
        r = phi.shape[1]
        wide = [one and np.array_equal(term.phi[rows, :r], phi) for one, term in zip(wide, terms, strict=True)]
        V = weight[index.order].reshape(len(levels), n)
        s, c = V[0] / V[0].sum(), V.sum(axis=1)
        separable = np.allclose(V, c[:, None] * s, rtol=1e-12, atol=0.0)
        return cls(index.order, levels, phi, tuple(wide), s, c) if separable else None

    @property
    def rows(self) -> Array:
        """The observations of the first level."""
        return self.order[: len(self.phi)]

    @cached_property
    def eigenbasis(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors of ``S^(1/2) phi phi' S^(1/2)``."""
        weighted = np.sqrt(self.row_weight)[:, None] * self.phi
        return psd_eigh(weighted @ weighted.T)


def is_repeated(phi: Array, order: Array, n: int) -> bool:
    """Whether every ``n`` rows, in this order, are those before."""
    first = phi[order[:n]]
    return all(np.array_equal(phi[order[at : at + n]], first) for at in range(n, len(order), n))
