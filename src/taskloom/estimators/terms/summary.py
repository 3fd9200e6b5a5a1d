"""The summary of a fitted model: numbers as attributes, and a table for people who know those of lme4 and statsmodels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tables.layout import shown
from ..fitted import FittedState
from ..validation import losses_by_task
from .described_terms import DescribedTerm, described_terms, in_words
from .mixed_model import Coefficient, MixedModel, VarianceComponent, mixed_model
from .text_table import rule, table, wrapped

Array = np.ndarray
SHOWN_COEFFICIENTS = 40
SHOWN_LEVELS = 5
TERM_COLUMNS = ["term", "structure", "weight", "levels"]
VARIANCE_COLUMNS = ["group", "effect", "variance", "std. dev.", "correlations"]
COEFFICIENT_COLUMNS = ["fitted", "GLS", "std. error", "z"]


@dataclass(frozen=True, eq=False)
class Summary:
    """What a fitted model is and what it found; ``print`` shows it.

    Attributes
    ----------
    model : str
        The name of the estimator.
    loss : str
        The loss.
    alpha : float
        The strength of the penalty.
    n_observations : int or None
        Observed targets of positive weight; ``None`` if they were not counted (``partial_fit``, a model file without data).
    terms : list of str
        Formula-like text of each term.
    structures : list of str
        The structure of each term.
    weights : list of float
        The weight of each term; ``inf`` for unpenalised ones.
    levels : list of int or None
        The number of levels of each term; ``None`` for functions of all rows.
    groups : dict
        The number of levels of each grouping.
    variance_components : list of VarianceComponent
        ``term``, ``by``, ``features``, ``covariance``, ``kind``; from the restricted likelihood.
    residual_variance : float or None
        The variance of the noise.
    log_likelihood : float or None
        The restricted log likelihood.
    coefficients : list of Coefficient
        Of the common part: ``name``, ``fitted``, ``gls``, ``std_error``, ``z``.
    certificate : str
        The bracket of the minimum, in a line.
    notes : list of str
        What is missing, and why.
    """

    model: str
    loss: str
    alpha: float
    n_observations: int | None
    terms: list[str]
    structures: list[str]
    weights: list[float]
    levels: list[int | None]
    groups: dict[str, int]
    variance_components: list[VarianceComponent]
    residual_variance: float | None
    log_likelihood: float | None
    coefficients: list[Coefficient]
    certificate: str
    notes: list[str]

    def __str__(self) -> str:
        parts = [rule("="), *self._head(), "", *self._terms()]
        if self.residual_variance is not None:
            parts += ["", *self._variances()]
        if self.coefficients:
            parts += ["", *self._common()]
        return "\n".join([*parts, rule(), *wrapped(self.certificate), *(line for note in self.notes for line in wrapped(note))])

    __repr__ = __str__

    def _head(self) -> list[str]:
        n = "not counted" if self.n_observations is None else f"{self.n_observations}"
        groups = ", ".join(f"{by} {levels}" for by, levels in self.groups.items()) or "none"
        likelihood = [] if self.log_likelihood is None else [f"REML log likelihood: {self.log_likelihood:.2f}"]
        facts = [f"{self.model}: {self.loss} loss", f"observations: {n}", f"alpha: {self.alpha:.4g}", f"groups: {groups}"]
        return [line for fact in [facts[0], "   ".join([*facts[1:3], *likelihood]), facts[3]] for line in wrapped(fact)]

    def _terms(self) -> list[str]:
        return ["Terms", *table(TERM_COLUMNS, self.term_rows, "lllr")]

    def _variances(self) -> list[str]:
        return ["Variance components (restricted maximum likelihood)", *table(VARIANCE_COLUMNS, self.variance_rows, "llrrl")]

    def _common(self) -> list[str]:
        rows = self.coefficient_rows[:SHOWN_COEFFICIENTS]
        if self.residual_variance is None:
            lines = ["Coefficients of the common part", *table(["", "fitted"], [row[:2] for row in rows], "lr")]
        else:
            title = "Coefficients of the common part (GLS: generalised least squares, without a penalty)"
            lines = [title, *table(["", *COEFFICIENT_COLUMNS], rows, "lrrrr")]
        hidden = len(self.coefficients) - len(rows)
        return [*lines, f"... and {hidden} more: summary.coefficients"] if hidden else lines

    @property
    def term_rows(self) -> list[list[str]]:
        """The terms as text, in the columns ``TERM_COLUMNS``."""
        rows = zip(self.terms, self.structures, self.weights, self.levels, strict=True)
        return [[text, F, f"{weight:.4g}", "" if levels is None else str(levels)] for text, F, weight, levels in rows]

    @property
    def variance_rows(self) -> list[list[str]]:
        """The variance components as text, in the columns ``VARIANCE_COLUMNS``; none where they are not estimated."""
        if self.residual_variance is None:
            return []
        rows = [row for component in self.variance_components for row in _variance_rows(component)]
        return [*rows, ["residual", "", *_numbers(self.residual_variance), ""]]

    @property
    def coefficient_rows(self) -> list[list[str]]:
        """The coefficients of the common part as text: name, then ``COEFFICIENT_COLUMNS``."""
        return [[each.name, *map(_number, each[1:]), _number(each.z, ".2f")] for each in self.coefficients]


def _number(value: float, form: str = ".5g") -> str:
    return "" if np.isnan(value) else format(value, form)


def _numbers(variance: float) -> list[str]:
    return [f"{variance:.5g}", f"{np.sqrt(variance):.5g}"]


def _variance_rows(component: VarianceComponent) -> list[list[str]]:
    """One row for each feature with its correlations to those before it; one row under a common variance."""
    D, names = component.covariance, component.features
    if component.kind == "scale":
        label = names[0] if len(names) == 1 else f"each of {len(names)} inputs"
        return [[component.by, label, *_numbers(float(D[0, 0])), ""]]
    deviations = np.sqrt(np.maximum(np.diag(D), np.finfo(float).tiny))
    C = D / np.outer(deviations, deviations)
    before = ["  ".join(f"{C[j, i]:5.2f}" for i in range(j)) if component.kind == "full" else "" for j in range(len(names))]
    return [["" if j else component.by, name, *_numbers(float(D[j, j])), before[j]] for j, name in enumerate(names)]


def summary_of(model: Any, state: FittedState) -> Summary:
    """The summary of a fitted model."""
    terms, rows = described_terms(model, state), state.term_rows
    intercept = float(state.intercept_[0]) if state.common_part is None else state.common_part.intercept
    found = mixed_model(terms, rows, intercept) if state.is_sum else MixedModel([], None, [], None, _plain())
    n = state.n_observations if rows is None else len(rows.y)
    n = state.training.y.size if n is None and state.training is not None else n  # a loaded model
    n = n // state.n_tasks if n is not None and state.one_vs_rest else n  # every row is an observation of each class
    return Summary(
        type(model).__name__,
        _loss(model, state),
        float(state.alpha),
        n,
        [term.text for term in terms],
        [term.structure for term in terms],
        [term.weight for term in terms],
        [None if term.by is None or term.levels is None else len(term.levels) for term in terms],
        {str(term.by): len(term.levels) for term in terms if term.by is not None and term.levels is not None},
        found.components,
        found.sigma2,
        found.log_likelihood,
        found.coefficients,
        _certificate(state),
        _notes(terms, found) + _added(state),
    )


def _plain() -> str:
    return "Variance components are those of a mixed model: fit with common=True, or with terms=."


def _loss(model: Any, state: FittedState) -> str:
    return ", ".join(dict.fromkeys(in_words(loss) for loss in losses_by_task(model.loss, state.tasks_)))


def _certificate(state: FittedState) -> str:
    found = state.certificate_
    if found is None:
        return "Certificate: none in this model file."
    if not np.isfinite(found.dual):
        return f"Certificate: {found.status}; {found.message}"
    bracket = f"the minimum is in [{found.dual:.8g}, {found.primal:.8g}]"
    return f"Certificate: {found.status}; {bracket}, relative gap {found.relative_gap:.1e}."


def _added(state: FittedState) -> list[str]:
    """What the summary lacks after ``add_task``."""
    if not (state.is_sum and state.added_tasks_):
        return []
    names = ", ".join(map(shown, state.added_tasks_[:SHOWN_LEVELS]))
    more = f" and {len(state.added_tasks_) - SHOWN_LEVELS} more" if len(state.added_tasks_) > SHOWN_LEVELS else ""
    lacks = "Observations, variance components, standard errors and certificate are those of the fit."
    return [f"Added after the fit: {names}{more}. {lacks}"]


def _notes(terms: list[DescribedTerm], found: MixedModel) -> list[str]:
    notes = [found.note] if found.note else []
    if found.components:
        centred = "Effects of levels are those of inputs centred at their means. "
        apart = any(term.by is not None and term.inputs is not None and term.inputs.mean is not None for term in terms)
        apart = apart and any(each.kind != "full" or np.array_equal(each.covariance, each.centred) for each in found.components)
        notes.append(f"{centred if apart else ''}Levels are independent in the likelihood; alpha and weights are not in it.")
    return notes
