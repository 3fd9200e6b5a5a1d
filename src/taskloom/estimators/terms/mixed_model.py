"""The Gaussian mixed model of a fit with terms: which columns are fixed, which effects are random, and what they vary by.

Common linear terms, penalised or not, and unpenalised groupings are fixed effects; penalised groupings are random effects, with
independent levels; a kernel on all rows, or descriptors, are random effects with one variance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...design.term_inputs import TermData
from .described_terms import INTERCEPT, DescribedTerm, level_names
from .rows_of_fit import RowsOfFit
from .variance_components import LARGEST_FULL, Components, CovarianceShape, RandomEffects, variance_components

Array = np.ndarray
MOST_FIXED = 500  # columns of fixed effects
MOST_CROSSED = 2000  # columns of all random effects but those of the largest grouping: they are in one Cholesky factor
MOST_NUMBERS = 20_000_000  # in the blocks of the largest grouping
DEPENDENT = 1e-7  # share of a column that is not in the span of those before it


class VarianceComponent(NamedTuple):
    """The covariance of effects that have one, in the units of the inputs.

    A full covariance with an intercept is that of the level where all inputs are zero, as in lme4; the other kinds are of
    centred inputs, as the term sees them, and ``centred`` always is.
    """

    term: str
    by: str
    features: list[str]
    covariance: Array
    kind: str  # "full", "diagonal", or "scale": one variance for each of the features
    centred: Array  # the covariance as the term sees its features


class Coefficient(NamedTuple):
    """A coefficient of the common part: as fitted, by generalised least squares, and the standard error of the latter."""

    name: str
    fitted: float
    gls: float = np.nan
    std_error: float = np.nan

    @property
    def z(self) -> float:
        return self.gls / self.std_error


class MixedModel(NamedTuple):
    """Estimates of the mixed model; empty, with a reason, where there are none."""

    components: list[VarianceComponent]
    sigma2: float | None
    coefficients: list[Coefficient]
    log_likelihood: float | None
    note: str


def mixed_model(terms: list[DescribedTerm], rows: RowsOfFit | None, intercept: float) -> MixedModel:
    """Variance components by restricted maximum likelihood, and the coefficients of the common part."""
    fixed = [term for term in terms if _is_fixed(term)]
    fitted = _fitted(fixed, intercept, rows is None or rows.fit_intercept)
    why = _refused(terms, rows)
    if why or rows is None:
        return MixedModel([], None, [Coefficient(*each) for each in fitted], None, why)
    data = list(zip(terms, rows.terms, strict=True))
    n = len(rows.y)
    X = np.hstack([np.ones((n, int(rows.fit_intercept))), *(each.columns for term, each in data if _is_fixed(term))])
    parts, effects = _effects([(term, each) for term, each in data if not _is_fixed(term)])
    weight = rows.sample_weight * n / rows.sample_weight.sum()
    mean = float(weight @ rows.y) / n if rows.fit_intercept else 0.0
    kept = _independent(np.sqrt(weight)[:, None] * X)
    if n <= len(kept):
        note = f"Variance components need more rows than common coefficients, got {n} rows and {len(kept)} coefficients."
        return MixedModel([], None, [Coefficient(*each) for each in fitted], None, note)
    try:
        found = variance_components(X[:, kept], rows.y - mean, weight, effects)
    except np.linalg.LinAlgError:
        note = "The likelihood has no maximum: the common part fits all rows without an error."
        return MixedModel([], None, [Coefficient(*each) for each in fitted], None, note)
    rest = X.shape[1] - len(kept)
    note = f"Columns of the common part that depend linearly on others, without standard errors: {rest}." if rest else ""
    coefficients = _coefficients(fitted, found, kept, _origin(fixed), rows.fit_intercept, mean)
    return MixedModel(_components(parts, found), found.sigma2, coefficients, found.log_likelihood, note)


def _is_fixed(term: DescribedTerm) -> bool:
    return term.features is not None and (term.free or term.by is None)


def _refused(terms: list[DescribedTerm], rows: RowsOfFit | None) -> str:
    """Why there are no variance components; empty if there are."""
    if rows is None:
        return "Variance components and standard errors need the data of the fit, which this model does not hold; refit it."
    if not rows.loss.quadratic:
        return f"Variance components and standard errors need loss='squared'; this fit has {type(rows.loss).__name__}."
    if any(term.by is not None and term.features is None and not term.described for term in terms):
        return "Variance components are for linear and constant groupings; this fit has a kernel for each level."
    data = list(zip(terms, rows.terms, strict=True))
    if (p := sum(each.r * each.p for term, each in data if _is_fixed(term))) > MOST_FIXED:
        return f"Variance components are for up to {MOST_FIXED} unpenalised or common columns, got {p}."
    sizes: dict[str, tuple[int, int]] = {}
    for term, each in data:
        if not _is_fixed(term):
            key, levels, r = (term.by, each.p, each.r) if _grouped(term) else (term.text, 1, each.r * each.p)
            sizes[str(key)] = levels, r + sizes.get(str(key), (0, 0))[1]
    ordered = sorted(sizes.values(), reverse=True)
    if (crossed := sum(levels * r for levels, r in ordered[1:])) > MOST_CROSSED:
        return f"Variance components are for up to {MOST_CROSSED} effects besides the largest grouping, got {crossed}."
    if ordered and (size := ordered[0][0] * ordered[0][1] ** 2) > MOST_NUMBERS:
        return f"Variance components are for up to {MOST_NUMBERS:.0e} products of features by level, got {size:.0e}."
    return ""


def _grouped(term: DescribedTerm) -> bool:
    return term.by is not None and not term.described


def _constant(term: DescribedTerm) -> bool:
    return term.inputs is not None and bool(term.inputs.constant)


def _in_units(term: DescribedTerm, data: TermData) -> Array:
    """The features, the constant one as 1 (it may be ``intercept_scaling``)."""
    if not _constant(term) or term.inputs is None or term.inputs.constant == 1:
        return data.phi
    return np.hstack([data.phi[:, :-1], np.ones((len(data.phi), 1))])


def _independent(X: Array) -> Array:
    """The columns that are not in the span of those before them."""
    norms = np.linalg.norm(X, axis=0)
    kept = np.flatnonzero(norms > 0)
    R = np.linalg.qr(X[:, kept] / norms[kept], mode="r")
    return kept[: len(R)][np.abs(np.diag(R)) > DEPENDENT]


class _Part(NamedTuple):
    """Where the covariance of some features of a term is: which random effects, and which rows of their covariance."""

    effects: int
    where: slice
    term: DescribedTerm
    features: list[str]
    kind: str


def _shapes(term: DescribedTerm, data: TermData) -> list[tuple[CovarianceShape, list[str]]]:
    """A full covariance for few features; else variances alone, that of the intercept apart from those of the inputs."""
    if not _grouped(term):
        size = data.r * data.p
        return [(CovarianceShape(size, "scale"), ["all weights"])]
    assert term.features is not None
    size = len(term.features)
    if size <= LARGEST_FULL:
        return [(CovarianceShape.of(size), term.features)]
    inputs = term.features[:-1] if _constant(term) else term.features
    kind = CovarianceShape.of(max(len(inputs), LARGEST_FULL + 1)).kind
    parts = [(CovarianceShape(len(inputs), kind), inputs)]
    return parts + ([(CovarianceShape(1, "full"), [INTERCEPT])] if len(inputs) < size else [])


def _effects(data: list[tuple[DescribedTerm, TermData]]) -> tuple[list[_Part], list[RandomEffects]]:
    """The random effects of each grouping: terms with the same one are beside each other."""
    by: dict[str, list[tuple[DescribedTerm, TermData]]] = {}
    for term, each in data:
        by.setdefault(f"by {term.by}" if _grouped(term) else term.text, []).append((term, each))
    parts: list[_Part] = []
    effects: list[RandomEffects] = []
    for members in by.values():
        shapes, start = [], 0
        for term, each in members:
            for shape, features in _shapes(term, each):
                parts.append(_Part(len(effects), slice(start, start + shape.size), term, features, shape.kind))
                shapes.append(shape)
                start += shape.size
        first = members[0][1]
        if _grouped(members[0][0]) and first.codes is not None:
            codes, phi = first.codes, np.hstack([_in_units(term, each) for term, each in members])
        else:
            codes, phi = np.zeros(len(first.phi), dtype=int), first.columns
        effects.append(RandomEffects(phi, codes, int(codes.max()) + 1, tuple(shapes)))
    return parts, effects


def _components(parts: list[_Part], found: Components) -> list[VarianceComponent]:
    """The covariances with their names; the intercept comes first, as in other summaries."""
    components = []
    for part in parts:
        term, D, names = part.term, found.covariances[part.effects][part.where, part.where], part.features
        if part.kind == "full":
            order = np.roll(np.arange(len(names)), int(_constant(term)))
            D, names = D[np.ix_(order, order)], [names[j] for j in order]
        move = _to_origin(term, len(names)) if part.kind == "full" else np.eye(len(D))
        components.append(VarianceComponent(term.text, term.by or "all rows", names, move @ D @ move.T, part.kind, D))
    place = {text: j for j, text in enumerate(dict.fromkeys(each.term for each in components))}
    return sorted(components, key=lambda each: (place[each.term], each.features != [INTERCEPT]))


def _to_origin(term: DescribedTerm, size: int) -> Array:
    """From an intercept (the first effect) at the means of the inputs to one where they are zero."""
    move = np.eye(size)
    mean = None if term.inputs is None else term.inputs.mean
    if _constant(term) and mean is not None and size == len(mean) + 1:
        move[0, 1:] = -mean
    return move


def _origin(fixed: list[DescribedTerm]) -> Array:
    """The means at which the columns of the common terms are centred; 0 for unpenalised groupings, which stay centred."""
    means = []
    for term in fixed:
        inputs: Any = term.inputs
        mean = np.zeros(0 if term.weights is None else term.weights.size)
        if term.by is None and inputs.mean is not None:
            mean[: len(inputs.mean)] = inputs.mean
        means.append(mean)
    return np.concatenate([*means, np.zeros(0)])


def _fitted(fixed: list[DescribedTerm], intercept: float, has_intercept: bool) -> list[tuple[str, float]]:
    """Names and fitted values of the common coefficients; the intercept is the value where all inputs are zero."""
    names: list[str] = []
    values: list[float] = []
    for term in fixed:
        assert term.weights is not None
        assert term.features is not None
        for name, row in zip(term.features, term.weights, strict=True):
            names += [f"{side}{name}" for side in _sides(term, len(row))]
            values += row.tolist()
    rest = list(zip(names, values, strict=True))
    return [(INTERCEPT, intercept - float(_origin(fixed) @ np.array(values, dtype=float))), *rest] if has_intercept else rest


def _sides(term: DescribedTerm, p: int) -> list[str]:
    """What the columns of the weights belong to: all rows, levels, or descriptors of levels."""
    if term.levels is None:
        return [""]
    names = [f"descriptor {j}" for j in range(p)] if term.described else level_names(term.levels)
    return [f"{term.by}[{name}]:" for name in names]


def _coefficients(
    fitted: list[tuple[str, float]],
    found: Components,
    kept: Array,
    origin: Array,
    has_intercept: bool,
    mean: float,
) -> list[Coefficient]:
    """Generalised least squares in the units of the inputs; columns that were left out have none."""
    to_inputs = np.eye(len(fitted))
    if has_intercept:
        to_inputs[0, 1:] = -origin
    to_inputs = to_inputs[:, kept]
    gls = to_inputs @ found.coef
    error = np.sqrt(np.einsum("ij,jk,ik->i", to_inputs, found.coef_covariance, to_inputs))
    if has_intercept:
        gls[0] += mean
    left_out = np.setdiff1d(np.arange(len(fitted)), kept)
    gls[left_out] = error[left_out] = np.nan
    return [Coefficient(*each, float(b), float(se)) for each, b, se in zip(fitted, gls, error, strict=True)]
