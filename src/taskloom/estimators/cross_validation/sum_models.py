"""The candidates that are sums of terms: a common part beside own parts under several structures, or ``terms=``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils.validation import _num_samples

from ...losses import as_loss
from ...structures import Independent, as_structure
from ..base import MultiTaskEstimator
from ..callbacks import Watch
from ..fitted import FittedState
from ..terms.fit_sum import prepared_sum, solved_state
from ..terms.prepared_sum import PreparedSum
from .explained_loss import ExplainedLoss
from .folds_fit import CVData, variance_by_task
from .results import Candidate
from .splitters import Split, make_folds
from .sum_search import SumCandidate, SumFold, SumSearch, largest_grouping

MAX_PRODUCTS = 2e9  # of features over all observations, up to which a common part is a candidate unless it was asked for


@dataclass(eq=False)
class SumModels:
    """The prepared data and the candidates."""

    model: MultiTaskEstimator
    cv_data: CVData
    data: PreparedSum
    candidates: list[SumCandidate]
    alphas: Any
    weights: dict[str, float]  # that were given
    verbose: bool
    interrupted: bool = False

    @classmethod
    def of(cls, search: Any, structures: list[Any], settings: tuple, common: Any) -> SumModels:
        """Of a cross-validated estimator, with this common part (``None`` for ``terms=``)."""
        model = search._plain(common=common) if common is None else search._plain(common=common, structure=structures[0])
        if search.fallback is not None:
            raise ValueError("fallback= is for fits without common= and terms=; leave it out")
        cv_data = CVData(model, *settings)
        if cv_data.leaves_one_out:
            raise ValueError('cv="loo" does not know common= and terms= yet; pass cv=5')
        model._validate_params()
        data = prepared_sum(model, cv_data.X, cv_data.y, cv_data.sample_weight)
        given = given_weights(search.weights, data)
        for structure in structures:
            data.under(structure).problem(1.0)  # raises where the structure cannot be one of a sum
        candidates = [SumCandidate(structure, data=data.under(structure)) for structure in structures]
        alphas = search.alphas if isinstance(search.alphas, Integral) else search._given_alphas()
        return cls(model, cv_data, data, candidates, alphas, given, bool(search.verbose))

    def make_folds(self) -> list[Split]:
        """The folds, stratified over the levels of the largest grouping; sets the default score."""
        data, model = self.data, self.model
        seen, n_rows = data.seen, _num_samples(self.cv_data.X)
        self.cv_data.variance = variance_by_task(seen, data.targets.tasks_, data.scale.std, data.targets.wide)
        self.cv_data.explained = ExplainedLoss.of(as_loss(model.loss), seen, data.sample_weight, data.targets.wide)
        labelled = model._labelled(data.targets)
        if self.cv_data.folds is None:
            self.cv_data.folds = make_folds(self.cv_data, seen, n_rows, labelled, largest_grouping(data))
        return self.cv_data.folds

    def search(self, after_setting: Callable[[], Any]) -> None:
        """Search every candidate; Ctrl-C ends the search."""
        assert self.cv_data.folds is not None
        folds = [SumFold.of(self.cv_data, split) for split in self.cv_data.folds]
        for candidate in self.candidates:
            one = SumSearch(candidate, folds, self.alphas, self.weights, self.cv_data.n_jobs, self.verbose, after_setting)
            if one.run():
                self.interrupted = True
                return

    def refitted(self, chosen: SumCandidate, watch: Watch | None = None) -> FittedState:
        """The fit of all data with the best setting of a candidate."""
        assert chosen.data is not None
        data = chosen.data.with_weights(chosen.weights[chosen.best])
        return solved_state(self.model, data, float(chosen.alphas[chosen.best]), watch)


def given_weights(weights: Any, data: PreparedSum) -> dict[str, float]:
    """The weights that were given, by name: a dict, or a list with one for each term."""
    names = list(data.weights)
    if weights is None:
        return {}
    if not isinstance(weights, dict):
        if np.ndim(weights) != 1 or len(weights) != len(names):
            raise ValueError(f"weights= takes a dict by name or a list of {len(names)} ({', '.join(names)}), got {weights!r}")
        weights = dict(zip(names, weights, strict=True))
    for name, weight in weights.items():
        if name not in names:
            raise ValueError(f"weights= names {name!r}, which is no term of this model; the terms are {', '.join(names)}")
        if not (isinstance(weight, (int, float, np.number)) and weight > 0):
            raise ValueError(f"weights= needs positive numbers, got {weight!r} for {name!r}")
        if np.isinf(weight) and np.isfinite(data.weights[name]):
            raise ValueError(f"weights= has inf for {name!r}; give the term itself weight=np.inf, which takes its penalty away")
    return {name: float(weight) for name, weight in weights.items()}


def sum_models(search: Any, structures: list[Any], settings: tuple) -> tuple[SumModels | None, str]:
    """The sums among the candidates of a search, and why there are none where ``common="auto"`` would compare."""
    auto = isinstance(search.common, str) and search.common == "auto"
    if search.terms is not None:
        if search.structures is not None:
            raise ValueError(f"terms= says it all; leave structures as it is by default, got {search.structures!r}")
        if not auto and search.common not in (None, False):
            raise ValueError(f"terms= says it all; leave common as it is by default, got common={search.common!r}")
        return SumModels.of(search, [None], settings, None), ""
    if search.common is None or search.common is False:
        return None, ""
    if search.structure is None and search.structures is None:
        structures = [Independent()] if auto else [as_structure(None), Independent()]
    if not auto:
        return SumModels.of(search, structures, settings, search.common), ""
    try:
        found = SumModels.of(search, structures, settings, True)
    except ValueError as error:  # bad data are refused by the plain models, with the same sentence
        return None, str(error)
    size = max(len(found.data.seen.y) * term.data.r**2 for term in found.data.posed)
    if size > MAX_PRODUCTS:
        return None, f"{size:.1e} products of features are many; common=True compares all the same"
    return found, ""


def with_kernel(candidate: Candidate) -> str:
    """The kernel of a candidate, where several are compared."""
    return "" if candidate.kernel is None else f" under a {candidate.kernel}"


def sentence(chosen: Candidate, candidates: list[Candidate], n_folds: int, why_none: str, why_linear: str = "") -> str:
    """What was chosen among what, in one sentence."""
    k = chosen.best
    what = "the terms" if chosen.structure is None else repr(chosen.structure)
    if isinstance(chosen, SumCandidate):
        weights = ", ".join(f"{name} {weight:.3g}" for name, weight in chosen.weights[k].items())
        what += f"{'' if chosen.structure is None else ' own parts beside a common part'} (weights: {weights})"
    else:
        what += " without a common part"
    what += with_kernel(chosen)
    best = f"{what} at alpha = {chosen.alphas[k]:.3g}: score {chosen.mean[k]:.4g} over {n_folds} folds"
    others = [
        f"{'a common part and ' if isinstance(each, SumCandidate) else ''}{each.structure!r}{with_kernel(each)} "
        f"{np.nanmax(each.mean):.4g}"
        for each in candidates
        if each is not chosen
    ]
    rest = f"; the others: {', '.join(others)}" if others else ""
    for what, why in (("common part", why_none), ("Gaussian kernel", why_linear)):
        rest += f"; no {what} was tried: {why}" if why else ""
    return f"{best}{rest}."
