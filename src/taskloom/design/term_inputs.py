"""The data of a sum of terms: features of each term, and what the task of each row looks like to it.

A term predicts ``phi(x_i)' W u(i)``. Its task side ``u`` is the indicator of the row's level (own functions, a grouping),
1 (a common function), or descriptors of the level. The passes over the data are those of any problem: predict and correlate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import csr_array

from .design import FEATURE_SIZES, TARGET_SIZES, Design, check_size
from .inputs import Inputs
from .observations import Grouping, Observations, Value

Array = np.ndarray
MIN_SINGULAR_VALUE = 1e-13  # of the unpenalised columns at equal size, relative to the largest; smaller ones are rounding


@dataclass(frozen=True, eq=False)
class FreeBasis(Value):
    """A basis ``E`` of the unpenalised columns, the intercept first: ``E'VE = I``, and ``columns back = E``.

    Columns in units of their own or far from zero would lose in their products the digits that tell them apart.
    """

    E: Array
    back: Array

    @classmethod
    def of(cls, columns: Array, weight: Array) -> FreeBasis:
        size = np.sqrt(weight @ columns**2)
        size[size == 0] = 1.0
        root = np.sqrt(weight)[:, None]
        U, s, Vt = np.linalg.svd(root * columns / size, full_matrices=False)
        kept = s > MIN_SINGULAR_VALUE * s.max(initial=0.0)
        return cls(U[:, kept] / root, Vt[kept].T / s[kept] / size[:, None])


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

    @property
    def dense_columns(self) -> Array:
        """The products of features and task side (``n x rp``): predictions are these times ``W`` row by row."""
        return (self.phi[:, :, None] * self.side[:, None, :]).reshape(len(self.phi), -1)

    @cached_property
    def indicator(self) -> csr_array:
        """The levels as a sparse matrix (``levels x n``), whose products are sums over the rows of each level."""
        n = len(self.phi)
        codes = np.zeros(n, dtype=int) if self.codes is None else self.codes
        return csr_array((np.ones(n), (codes, np.arange(n))), shape=(self.n_levels, n))

    def predict(self, W: Array) -> Array:
        """``phi(x_i)' W u(i)`` for every row."""
        if self.codes is None:
            return self.phi @ W[:, 0]
        by_level = W if self.descriptors is None else W @ self.descriptors.T
        return np.einsum("ij,ij->i", self.phi, by_level.T[self.codes])

    def correlate(self, G: Array) -> Array:
        """``sum_i G_i phi(x_i) u(i)'`` (``r x p``)."""
        if self.codes is None:
            return (G @ self.phi)[:, None]
        sums = self.indicator @ (G[:, None] * self.phi)
        return sums.T if self.descriptors is None else sums.T @ self.descriptors


@dataclass(frozen=True, eq=False)
class TermInputs(Inputs):
    """The terms of a predictor, over the same rows; weights are one column."""

    terms: tuple[TermData, ...] = ()
    mostly_observed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        n, size = len(self.terms[0].phi), sum(term.r * term.p for term in self.terms)
        self.__dict__.update(n_rows=n, n_features=size, n_tasks=1, mostly_observed=False)

    def split(self, W: Array) -> list[Array]:
        """The weights of each term (``r x p``)."""
        shapes = [(term.r, term.p) for term in self.terms]
        ends = np.cumsum([r * p for r, p in shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(np.ravel(W), ends), shapes, strict=True)]

    def predict(self, W: Array, b: Array) -> Array:
        z = np.full(self.n_rows, float(b[0]))
        if np.any(W):
            for term, part in zip(self.terms, self.split(W), strict=True):
                z += term.predict(part)
        return z

    def correlate(self, G: Array) -> Array:
        return np.concatenate([np.ravel(term.correlate(G)) for term in self.terms])[:, None]

    @cached_property
    def free_columns(self) -> Array | None:
        """The columns of the unpenalised terms, ``n x k``; ``None`` if all are penalised."""
        free = [term.dense_columns for term in self.terms if term.free]
        return np.hstack(free) if free else None


@dataclass(frozen=True, eq=False)
class TermDesign(Design):
    """Terms, targets and weights, with one intercept for all rows or none."""

    inputs: TermInputs

    @classmethod
    def of(cls, terms: tuple[TermData, ...], y: Array, weight: Array, fit_intercept: bool) -> TermDesign:
        """Rows in their order; ``weight`` is the weight ``v_i`` in the objective, and positive."""
        for term in terms:
            check_size(term.phi, "features", *FEATURE_SIZES)
        check_size(y, "y", *TARGET_SIZES)
        n = len(y)
        zero = np.zeros(n, dtype=int)
        seen = Observations(np.arange(n), zero, y, weight, 1, Grouping(np.arange(n), zero, 1))
        return cls(TermInputs(np.zeros((n, 0)), seen.grouping, terms), seen, fit_intercept)

    @cached_property
    def free_basis(self) -> FreeBasis | None:
        """Of the intercept and the columns of the unpenalised terms; ``None`` where there are neither."""
        free = self.inputs.free_columns
        one = np.ones((self.n_rows, int(self.fit_intercept)))
        columns = one if free is None else np.hstack([one, free])
        return FreeBasis.of(columns, self.observations.weight) if columns.shape[1] else None

    def with_observations(self, observations: Observations) -> TermDesign:
        return TermDesign(self.inputs, observations, self.fit_intercept)

    @property
    def shared_inputs(self) -> None:
        """Rows are not shared by tasks here: there is one column of targets."""
        return

    eigenbasis = shared_inputs
