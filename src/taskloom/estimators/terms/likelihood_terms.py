"""Terms at the variance components that maximise the restricted likelihood: their fit has the predictions of a mixed model.

With ``v_i = s_i / sum s`` the penalty of an effect with covariance ``D`` is ``alpha w'D^-1 w`` at ``alpha = sigma^2 / n``:
predictions are the empirical best linear unbiased ones, those of lme4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...losses import Squared
from ...structures import Fixed
from .described_terms import INTERCEPT, DescribedTerm, described
from .mixed_model import VarianceComponent, mixed_model
from .prepared_terms import PreparedTerms
from .rows_of_fit import RowsOfFit
from .term import Term

Array = np.ndarray
SMALLEST = 1e-10  # variance of an effect, relative to that of the noise: one that vanished keeps a penalty


def likelihood_terms(model: Any, X: Any, y: Any, sample_weight: Any = None) -> tuple[list[Term], float] | str:
    """The terms with their variances as structures and weights, and alpha; or why there are none.

    Parameters
    ----------
    model : MultiTaskRegressor
        An estimator with ``terms=``; it is not fitted.
    X, y, sample_weight
        As in its ``fit``.
    """
    data = PreparedTerms.of(model, X, y, sample_weight)
    n = len(data.seen.y)
    features = tuple(one.data for one in data.posed)
    zero = [replace(term, weights=np.zeros((one.r, one.p))) for term, one in zip(data.fitted, features, strict=True)]
    terms = described(zero, data.columns)
    rows = RowsOfFit(features, data.seen.y, data.sample_weight, data.seen.weight, Squared(), bool(model.fit_intercept))
    found = mixed_model(terms, rows, 0.0)
    if found.sigma2 is None:
        return found.note
    floor = SMALLEST * found.sigma2
    of_term = {term.text: [each for each in found.components if each.term == term.text] for term in terms}
    at = [_with_variances(given, term, of_term[term.text], floor) for given, term in zip(model.terms, terms, strict=True)]
    return at, found.sigma2 / n


def _with_variances(given: Term, term: DescribedTerm, components: list[VarianceComponent], floor: float) -> Term:
    """A fixed effect without a penalty; a random one with its covariance, or with its one variance as the weight."""
    if not components:
        return replace(given, weight=np.inf, structure=None)
    if term.features is None or term.described:
        return replace(given, weight=max(float(components[0].centred[0, 0]), floor), structure=None)
    D = np.zeros((len(term.features), len(term.features)))
    for each in components:
        place = [term.features.index(name) for name in each.features]
        D[np.ix_(place, place)] = each.centred
    D[np.diag_indices_from(D)] += floor
    if term.features == [INTERCEPT]:
        return replace(given, weight=float(D[0, 0]), structure=None)
    return replace(given, weight=1.0, structure=Fixed(D, side="features"))
