"""Sums of terms on small data, as taskloom poses them and as the oracle does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from terms_oracle import OracleTerm

from taskloom import losses, structures
from taskloom.design.term_inputs import TermData
from taskloom.problem.term_problem import PosedTerm, term_problem
from taskloom.structures import Structure

Array = np.ndarray
N, LEVELS, REGIONS = 60, 5, 3

LOSSES = [
    losses.Squared(),
    losses.Huber(0.7),
    losses.Absolute(),
    losses.Quantile(0.3),
    losses.EpsilonInsensitive(0.2),
    losses.Logistic(),
    losses.Hinge(),
    losses.SquaredHinge(),
]


def psd(p: int, rank: int | None = None) -> Array:
    B = np.random.default_rng(p).normal(size=(p, rank or p))
    return B @ B.T


def chain(p: int) -> Array:
    return np.eye(p, k=1) + np.eye(p, k=-1)


# Of the size of the task side, where they have one.
STRUCTURES: dict[str, Callable[[int], Structure]] = {
    "independent": lambda p: structures.Independent(),
    "fixed": lambda p: structures.Fixed(psd(p)),
    "fixed of low rank": lambda p: structures.Fixed(psd(p, 2)),
    "shared mean": lambda p: structures.SharedMean(2.0),
    "graph": lambda p: structures.TaskGraph(chain(p), 0.5),
    "trace": lambda p: structures.Trace(),
    "frobenius": lambda p: structures.Frobenius(),
    "schatten": lambda p: structures.Schatten(1.5),
    "schatten norm": lambda p: structures.SchattenNorm(2),
    "unit trace": lambda p: structures.UnitTrace(),
    "clusters": lambda p: structures.Clusters(2),
    "log det": lambda p: structures.LogDet(0.3),
    "sparse": lambda p: structures.Sparse(0.3),
    "feature selection": lambda p: structures.FeatureSelection(),
    "sum": lambda p: structures.Frobenius() + 0.5 * structures.Sparse(0.3),
}
LAYOUTS = ["common", "free", "crossed", "nested", "few descriptors", "many descriptors", "four"]


@dataclass(eq=False)
class Case:
    """Terms, targets and weights; ``problem`` is taskloom's, ``oracle_terms`` the oracle's."""

    terms: list[PosedTerm]
    y: Array
    v: Array
    loss: Any
    alpha: float = 0.02
    ridge: float = 0.0
    fit_intercept: bool = True

    @property
    def problem(self):
        return term_problem(self.terms, self.y, self.v, self.loss, self.alpha, self.ridge, self.fit_intercept)

    @property
    def oracle_terms(self) -> list[OracleTerm]:
        return [for_oracle(term) for term in self.terms]

    @property
    def settings(self) -> dict[str, Any]:
        return {"alpha": self.alpha, "ridge": self.ridge, "fit_intercept": self.fit_intercept}

    def weights(self, W: Array) -> list[Array]:
        """``W_q`` in the units of the user."""
        roots = [1.0 if term.data.free else np.sqrt(term.weight) for term in self.terms]
        return [root * part for root, part in zip(roots, self.problem.structure.features_of(W), strict=True)]


def for_oracle(term: PosedTerm) -> OracleTerm:
    """The term as the oracle sees it: functions of the eigenvalues are on the side of the tasks, whatever taskloom does."""
    data, n = term.data, len(term.data.phi)
    if data.codes is None:
        u = np.ones((n, 1))
    else:
        rows = np.eye(data.n_levels) if data.descriptors is None else data.descriptors
        u = np.array([rows[code] for code in data.codes])
    return OracleTerm(data.phi, u, term.structure, np.inf if data.free else term.weight, term.structure.on_features)


def case(loss: Any, own: str, layout: str, seed: int = 0, **settings: Any) -> Case:
    """A sum of two to four terms; the structure is that of the own part, or of the descriptors where there are some."""
    rng = np.random.default_rng(seed)
    X, one = rng.normal(size=(N, 2)), np.ones((N, 1))
    X -= X.mean(axis=0)
    shop = rng.permutation(np.arange(N) % LEVELS)
    region, town = rng.integers(0, REGIONS, N), np.array([0, 0, 1, 1, 1])[shop]
    slopes, v = rng.normal(size=(2, LEVELS)), rng.uniform(0.5, 1.5, N)
    z = X @ [1.0, -0.5] + np.einsum("ij,ji->i", X, slopes[:, shop]) + rng.normal(size=LEVELS)[shop]
    y = z + 0.5 * rng.normal(size=N)
    if loss.targets == "signs":
        y = np.where(y > np.median(y), 1.0, -1.0)
    constant = np.hstack([X, one])

    def term(phi: Array, codes: Array | None = None, levels: int = 1, weight: float = 1.0, structure="independent", U=None):
        data = TermData(phi, codes, levels, U)
        return PosedTerm(data, STRUCTURES[structure](data.p), weight)

    common, by_region = term(X, weight=2.0), term(one, region, REGIONS, 0.3)
    own_part = term(constant, shop, LEVELS, 0.6, own)
    few, many = rng.normal(size=(LEVELS, 2)), rng.normal(size=(LEVELS, 7))
    terms = {
        "common": [common, own_part],
        "free": [PosedTerm(TermData(X, free=True), structures.Independent()), own_part],
        "crossed": [common, own_part, by_region],
        "nested": [term(one, town, 2, 1.5), term(X, shop, LEVELS, 0.6, own), term(one, shop, LEVELS, 0.5)],
        "few descriptors": [term(constant, shop, LEVELS, 0.5), term(constant, shop, LEVELS, 1.5, own, few)],
        "many descriptors": [common, term(constant, shop, LEVELS, 0.7, own, many)],
        "four": [common, own_part, by_region, term(X, shop, LEVELS, 0.4, "trace", few)],
    }[layout]
    return Case(terms, y, v / v.sum(), loss, **settings)
