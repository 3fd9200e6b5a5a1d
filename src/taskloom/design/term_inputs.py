"""The data of a sum of terms: features of each term, and what the task of each row looks like to it.

A term predicts ``phi(x_i)' W u(i)``. Its task side ``u`` is the indicator of the row's level (own functions, a grouping),
1 (a common function), or descriptors of the level. The passes over the data are those of any problem: predict and correlate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np

from .._linalg import long_product
from .design import FEATURE_SIZES, TARGET_SIZES, Design, check_size
from .free_basis import FreeBasis
from .inputs import Inputs
from .levels import LevelIndex, joined
from .observations import Grouping, Observations, Value
from .shared_rows import SharedRows
from .term_moments import TermMoments

Array = np.ndarray
Scale: TypeAlias = float | Array  # of a term, or of each of its features


@dataclass(frozen=True, eq=False)
class TermData(Value):
    """One term: features (``n x r``), the level of each row, and descriptors of the levels (``levels x p``).

    Without levels the task side is 1 for every row. Without descriptors it is the indicator of the level.
    """

    phi: Array
    codes: Array | None = None
    n_levels: int = 1
    descriptors: Array | None = None
    free: bool = False  # not penalised: fixed effects

    @property
    def r(self) -> int:
        return self.phi.shape[1]

    @property
    def p(self) -> int:
        """The size of the task side."""
        return self.n_levels if self.descriptors is None else self.descriptors.shape[1]

    @property
    def grouped(self) -> bool:
        """Whether every row belongs to one level of many, each with weights of its own."""
        return self.codes is not None and self.descriptors is None

    @cached_property
    def side(self) -> Array:
        """``u`` of each row (``n x p``), where that is a dense matrix."""
        if self.codes is None:
            return np.ones((len(self.phi), 1))
        if self.descriptors is None:
            return np.eye(self.n_levels)[self.codes]
        return self.descriptors[self.codes]

    def times_side(self, right: Array) -> Array:
        """``u`` of each row times a matrix (``p x k``)."""
        return right[self.codes] if self.grouped else self.side @ right

    @cached_property
    def levels(self) -> LevelIndex:
        """The level of each row; one for all without ``by``."""
        codes = np.zeros(len(self.phi), dtype=int) if self.codes is None else self.codes
        return LevelIndex(codes, self.n_levels)

    @cached_property
    def gram(self) -> Array:
        """``phi phi'`` (``n x n``)."""
        return long_product(self.phi, self.phi.T)

    @property
    def columns(self) -> Array:
        """A dense column for each weight, feature by feature (``n x r p``)."""
        if self.codes is None:
            return self.phi
        return (self.phi[:, :, None] * self.side[:, None, :]).reshape(len(self.phi), -1)

    def predict(self, W: Array) -> Array:
        """``phi(x_i)' W u(i)`` for every row."""
        if self.codes is None:
            return self.phi @ W[:, 0]
        by_level = W if self.descriptors is None else W @ self.descriptors.T
        return self.levels.products(self.phi, by_level.T)

    def correlate(self, G: Array) -> Array:
        """``sum_i G_i phi(x_i) u(i)'`` (``r x p``)."""
        if self.codes is None:
            return (G @ self.phi)[:, None]
        sums = self.levels.correlations(self.phi, G).T
        return sums if self.descriptors is None else sums @ self.descriptors


@dataclass(frozen=True, eq=False)
class TermInputs(Inputs):
    """The terms of a predictor, over the same rows; weights are one column.

    The features of a term are those of its data times ``scales``, one number for each term or for each of its features: what
    is computed from the data serves at all scales.
    """

    terms: tuple[TermData, ...] = ()
    scales: tuple[Scale, ...] = ()
    mostly_observed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        n, size = len(self.terms[0].phi), sum(term.r * term.p for term in self.terms)
        self.__dict__.update(n_rows=n, n_features=size, n_tasks=1, mostly_observed=False)
        self.__dict__.update(scales=self.scales or (1.0,) * len(self.terms))

    def split(self, W: Array) -> list[Array]:
        """The weights of each term (``r x p``)."""
        shapes = [(term.r, term.p) for term in self.terms]
        ends = np.cumsum([r * p for r, p in shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(np.ravel(W), ends), shapes, strict=True)]

    def predict(self, W: Array, b: Array) -> Array:
        z = np.full(self.n_rows, float(b[0]))
        if np.any(W):
            for term, scale, part in zip(self.terms, self.scales, self.split(W), strict=True):
                z += term.predict(scaled_rows(part, scale))
        return z

    def correlate(self, G: Array) -> Array:
        parts = zip(self.terms, self.scales, strict=True)
        return np.concatenate([np.ravel(scaled_rows(term.correlate(G), scale)) for term, scale in parts])[:, None]


def scaled_rows(M: Array, scale: Scale) -> Array:
    """Each row, of a feature, times its scale."""
    if isinstance(scale, float):
        return M if scale == 1 else scale * M
    return scale[:, None] * M


@dataclass(frozen=True, eq=False)
class SumData(Value):
    """The data of a sum of terms and what is computed from them once: independent of scales, structures and strengths."""

    terms: tuple[TermData, ...]
    observations: Observations
    fit_intercept: bool

    @classmethod
    def of(cls, terms: tuple[TermData, ...], y: Array, weight: Array, fit_intercept: bool) -> SumData:
        """Rows in their order; ``weight`` is the weight ``v_i`` in the objective, and positive."""
        for term in terms:
            check_size(term.phi, "features", *FEATURE_SIZES)
        check_size(y, "y", *TARGET_SIZES)
        n = len(y)
        zero = np.zeros(n, dtype=int)
        return cls(terms, Observations(np.arange(n), zero, y, weight, 1, Grouping(np.arange(n), zero, 1)), fit_intercept)

    @cached_property
    def free_columns(self) -> Array | None:
        """The columns of the unpenalised terms, ``n x k``; ``None`` if all are penalised."""
        free = [term.columns for term in self.terms if term.free]
        return joined(free) if free else None

    @cached_property
    def free_basis(self) -> FreeBasis | None:
        """Of the intercept and the columns of the unpenalised terms; ``None`` where there are neither."""
        free = self.free_columns
        columns = ([np.ones(len(self.observations.y))] if self.fit_intercept else []) + ([] if free is None else [free])
        return FreeBasis.of(joined(columns), self.observations.weight) if columns else None

    @cached_property
    def shared_rows(self) -> SharedRows | None:
        """Where every level has the same rows."""
        return SharedRows.of(self.terms, self.observations.weight)

    @cached_property
    def eliminations(self) -> tuple[TermMoments, ...]:
        """The moments under the squared loss where a term is eliminated: for each term, and for none."""
        return tuple(TermMoments(self, k) for k in (*range(len(self.terms)), None))


@dataclass(frozen=True, eq=False)
class TermDesign(Design):
    """Terms at their scales, targets and weights, with one intercept for all rows or none."""

    inputs: TermInputs
    data: SumData = None  # type: ignore[assignment]  # derived, shared by designs at other scales

    def __post_init__(self) -> None:
        super().__post_init__()
        data = self.data or SumData(self.inputs.terms, self.observations, self.fit_intercept)
        self.__dict__.update(data=data)

    @classmethod
    def of(cls, data: SumData, scales: tuple[Scale, ...] = ()) -> TermDesign:
        """The terms of the data at these scales."""
        seen = data.observations
        inputs = TermInputs(np.zeros((len(seen.y), 0)), seen.grouping, data.terms, scales)
        return cls(inputs, seen, data.fit_intercept, data=data)

    def with_observations(self, observations: Observations) -> TermDesign:
        return TermDesign(self.inputs, observations, self.fit_intercept)

    @property
    def shared_inputs(self) -> None:
        """Rows are not shared by tasks here: there is one column of targets."""
        return

    eigenbasis = shared_inputs
