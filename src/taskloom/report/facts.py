"""The content of a report as numbers, from a fitted model and, where they are given, from the data."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..estimators.inspection.model_facts import chosen_alpha, labelled_tasks, observed_targets, one_target
from ..estimators.inspection.task_order import every_pair, leaf_order, task_tree, whole_structure
from ..estimators.terms.summary import Summary
from ..labels import display_names
from ..structures import as_structure
from ..structures.factored_matrix import FactoredStructure
from ..tables.layout import as_table

Array = np.ndarray
LARGEST_MAP = 2000  # tasks; of more, cells would be smaller than pixels
CONTRIBUTIONS = 12  # shown for each task
CLEAR = 2.0  # a gain is clear when it is this many standard errors from 0


@dataclass(frozen=True, eq=False)
class ReportData:
    """Sizes of the data, and one entry per task."""

    n_rows: int
    n_inputs: int
    n_observations: int
    counts: Array
    mean: Array  # of targets, or the share of the second class
    std: Array  # standard deviation of targets, NaN for labels
    score: Array  # of the model on these data


class Gains:
    """Scores of single-task and multi-task models: one entry per task, or a single one for the classes of one target."""

    def __init__(self, transfer: dict[str, Any]):
        columns = ("alone", "together", "gain", "standard_error")
        self.alone, self.together, self.gain, self.error = (np.asarray(transfer[name], dtype=float) for name in columns)
        self.scored = np.flatnonzero(~np.isnan(self.gain))
        self.kept = np.broadcast_to(np.asarray(transfer.get("model", "")) == "alone", self.gain.shape)  # single-task models
        self.margin = CLEAR * np.nan_to_num(self.error)
        known = np.isfinite(self.error)  # nothing is clear without a standard error
        self.better, self.worse = known & (self.gain - self.margin > 0), known & (self.gain + self.margin < 0)


@dataclass(frozen=True, eq=False)
class Facts:
    """The content of the page, in the order of ``tasks_``."""

    model: Any
    names: list[str]
    correlation: Array
    groups: Array
    order: Array
    structures: list[Any]  # one, or one for each kernel
    alpha: float
    eigenvalues: Array
    contributions: list[list[tuple[int, float]]] | None
    gains: Gains | None
    data: ReportData | None
    summary: Summary | None = None  # of models with ``terms=`` or ``common=``
    related: bool = True  # whether there are correlations of tasks to show

    @property
    def only_terms(self) -> bool:
        """Whether there are terms in place of tasks."""
        return self.model._state.fitted_terms is not None

    @property
    def n_tasks(self) -> int:
        return len(self.names)

    @property
    def one_target(self) -> bool:
        """Whether the tasks are the classes of one target."""
        return one_target(self.model)

    @property
    def noun(self) -> str:
        """What the tasks are called."""
        if self.one_target:
            return "classes"
        if self.only_terms:
            return "target"
        return "task" if self.n_tasks == 1 else "tasks"

    @property
    def vanished(self) -> bool:
        """Whether all predictions are constant."""
        return bool(self.eigenvalues[0] <= 1e-12)

    @property
    def has_map(self) -> bool:
        return self.related and 1 < self.n_tasks <= LARGEST_MAP

    @property
    def by_task(self) -> bool:
        """Whether the comparison has one row per task; that of one target with several classes has a single row."""
        return self.gains is not None and len(self.gains.gain) == self.n_tasks

    @cached_property
    def clusters(self) -> dict[int, list[int]]:
        """The tasks of each cluster, in the order of the map."""
        members: dict[int, list[int]] = {}
        for t in self.order.tolist():
            members.setdefault(int(self.groups[t]), []).append(t)
        return members

    @cached_property
    def pairs(self) -> tuple[Array, Array, Array]:
        """Every pair of tasks: the earlier one, the later one, their correlation."""
        later, earlier = np.tril_indices(self.n_tasks, -1)
        return earlier, later, self.correlation[later, earlier]


def gather(model: Any, X: Any, y: Any, transfer: dict[str, Array] | None) -> Facts:
    """Read a fitted model."""
    transfer = transfer if transfer is not None else getattr(model, "transfer_", None)
    return Facts(
        model=model,
        **(_relations(model) if _is_related(model) else _no_relations(model)),
        structures=_structures(model),
        alpha=chosen_alpha(model),
        contributions=_contributions(model),
        gains=None if transfer is None else Gains(transfer),
        data=None if y is None else _describe(model, X, y),
        summary=model.summary() if model._state.is_sum else None,
    )


def _is_related(model: Any) -> bool:
    """Whether a page shows correlations of tasks: ``terms=`` has none, and a common part goes with too many tasks for them."""
    return model._state.fitted_terms is None and not (model._state.is_sum and isinstance(model.structure_, FactoredStructure))


def _relations(model: Any) -> dict[str, Any]:
    C, groups = every_pair(model), model.task_clusters()
    return {
        "names": display_names(model.tasks_),
        "correlation": C,
        "groups": groups,
        "order": leaf_order(task_tree(C, groups)),
        "eigenvalues": np.maximum(np.linalg.eigvalsh(whole_structure(model))[::-1], 0.0),
    }


def _no_relations(model: Any) -> dict[str, Any]:
    state = model._state
    T = len(state.tasks_)
    parts = [state.common_part] if state.fitted_terms is None else state.fitted_terms
    size = sum(float(np.sum(getattr(part, name) ** 2)) for part in parts for name in vars(part) if name.endswith("weights"))
    return {
        "names": display_names(state.tasks_) if state.fitted_terms is None else ["all rows"],
        "correlation": np.zeros((0, 0)),
        "groups": np.zeros(T, int),
        "order": np.arange(T),
        "eigenvalues": np.array([size]),
        "related": False,
    }


def _structures(model: Any) -> list[Any]:
    """The structure of the tasks, one for each kernel, or those of the terms that have one."""
    if model._state.fitted_terms is not None:
        return [as_structure(each.term.structure) for each in model._state.fitted_terms if each.term.structure is not None]
    chosen = getattr(model, "best_structure_", model.structure)
    return [as_structure(each) for each in (chosen if isinstance(chosen, list | tuple) else [chosen])]


def _contributions(model: Any) -> list[list[tuple[int, float]]] | None:
    """The contributions of tasks to each task, largest first; ``None`` for feature-side structures."""
    labels = model.tasks_.tolist()
    if len(labels) > LARGEST_MAP or model._state.contributions is None:
        return None
    added, place = set(getattr(model, "added_tasks_", [])), {label: t for t, label in enumerate(labels)}
    found = []
    for label in labels:
        shares = {} if label in added else model.explain(label)
        largest = sorted(((place[other], share) for other, share in shares.items()), key=lambda pair: -abs(pair[1]))
        found.append([pair for pair in largest[:CONTRIBUTIONS] if abs(pair[1]) >= 5e-4])
    return found


def _describe(model: Any, X: Any, y: Any) -> ReportData:
    """Number of observations, mean and standard deviation of targets, and score of each task."""
    T, by_class = len(model.tasks_), one_target(model)
    task, values = observed_targets(model, X, y)
    counts = np.bincount(task, minlength=T)
    live = np.maximum(counts, 1)
    mean = np.bincount(task, weights=values, minlength=T) / live
    std = np.sqrt(np.bincount(task, weights=(values - mean[task]) ** 2, minlength=T) / live)
    labelled = labelled_tasks(model)
    n_rows = len(as_table(y))
    by_task = model.score_per_task(X, y)
    score = [by_task.get(0 if by_class else label, np.nan) for label in model.tasks_.tolist()]
    return ReportData(
        n_rows=n_rows,
        n_inputs=_n_inputs(model),
        n_observations=n_rows if by_class else len(values),
        counts=counts,
        mean=np.where(counts == 0, np.nan, np.where(labelled, (mean + 1) / 2, mean)),
        std=np.where(labelled | (counts == 0), np.nan, std),
        score=np.array(score, dtype=float),
    )


def _n_inputs(model: Any) -> int:
    """The columns of inputs, without those of tasks, groupings and descriptors."""
    terms = model._state.fitted_terms
    if terms is not None:
        return len({column for term in terms for column in term.inputs.columns})
    return int(model.n_features_in_) - (model.task_column is not None)


def payload(facts: Facts) -> dict[str, Any]:
    """The data of the page's script; correlations as 16-bit integers (30 kB for 150 tasks)."""
    relations = np.round(facts.pairs[2] * 10000).astype("<i2").tobytes() if facts.has_map else b""
    shares = facts.contributions
    gain, error = (_numbers(facts.gains.gain), _numbers(facts.gains.error)) if facts.by_task else (None, None)  # type: ignore[union-attr]
    return {
        "names": facts.names,
        "groups": facts.groups.tolist(),
        "order": facts.order.tolist(),
        "relations": base64.b64encode(relations).decode(),
        "contributions": shares and [[[s, round(1000 * share)] for s, share in row] for row in shares],
        "counts": None if facts.data is None else facts.data.counts.tolist(),
        "gain": gain,
        "error": error,
    }


def _numbers(column: Array) -> list[float | None]:
    """Rounded to five digits, ``None`` for NaN."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in column]
