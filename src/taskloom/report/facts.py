"""What a report says, as numbers: read off a fitted model, and off the data where they are given."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..estimators.inspect_model import chosen_alpha, labelled_tasks, observed_targets, one_target, tells_contributions
from ..inspection.labels import display_names
from ..inspection.task_order import every_pair, leaf_order, task_tree, whole_structure
from ..structures import as_structure
from ..tables import as_table

Array = np.ndarray
LARGEST_MAP = 2000  # tasks; beyond it the map would be smaller than its pixels and the file larger than its use
LENDERS = 12  # shown for each task


@dataclass(frozen=True, eq=False)
class ReportData:
    """The data beside the model: sizes, and one row for each task."""

    n_rows: int
    n_inputs: int
    n_observations: int
    counts: Array
    mean: Array  # of targets, or the share of the second class
    spread: Array  # NaN for labels
    score: Array  # of the model on these data


@dataclass(frozen=True, eq=False)
class Facts:
    """Everything that the page shows, in the order of ``tasks_``."""

    model: Any
    names: list[str]
    correlation: Array
    groups: Array
    order: Array
    structures: list[Any]  # one, or one for each kernel
    alpha: float
    eigenvalues: Array
    lenders: list[list[tuple[int, float]]] | None
    ledger: dict[str, Array] | None
    data: ReportData | None

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
        return "task" if self.n_tasks == 1 else "tasks"

    @property
    def vanished(self) -> bool:
        """Whether nothing at all was learned but constants."""
        return bool(self.eigenvalues[0] <= 1e-12)

    @property
    def has_map(self) -> bool:
        return 1 < self.n_tasks <= LARGEST_MAP

    @property
    def by_task(self) -> bool:
        """Whether the ledger has the tasks of the model; that of one target with several classes has one row."""
        return self.ledger is not None and len(self.ledger["gain"]) == self.n_tasks


def gather(model: Any, X: Any, y: Any, transfer: dict[str, Array] | None) -> Facts:
    """Read a fitted model."""
    C, groups = every_pair(model), model.task_clusters()
    chosen = getattr(model, "best_structure_", model.structure)
    return Facts(
        model=model,
        names=display_names(model.tasks_),
        correlation=C,
        groups=groups,
        order=leaf_order(task_tree(C, groups)),
        structures=[as_structure(each) for each in (chosen if isinstance(chosen, list | tuple) else [chosen])],
        alpha=chosen_alpha(model),
        eigenvalues=np.maximum(np.linalg.eigvalsh(whole_structure(model))[::-1], 0.0),
        lenders=_lenders(model),
        ledger=transfer if transfer is not None else getattr(model, "transfer_", None),
        data=None if y is None else _describe(model, X, y),
    )


def _lenders(model: Any) -> list[list[tuple[int, float]]] | None:
    """Who lends strength to each task, largest share first; ``None`` where the structure sits on the features."""
    labels = model.tasks_.tolist()
    if len(labels) > LARGEST_MAP or not tells_contributions(model):
        return None
    place = {label: t for t, label in enumerate(labels)}
    added = set(getattr(model, "added_tasks_", []))
    found = []
    for label in labels:
        shares = {} if label in added else model.explain(label)
        strong = sorted(((place[other], share) for other, share in shares.items()), key=lambda pair: -abs(pair[1]))
        found.append([pair for pair in strong[:LENDERS] if abs(pair[1]) >= 5e-4])
    return found


def _describe(model: Any, X: Any, y: Any) -> ReportData:
    """Counts, targets and scores of each task."""
    T, by_class = len(model.tasks_), one_target(model)
    task, values = observed_targets(model, X, y)
    counts = np.bincount(task, minlength=T)
    live = np.maximum(counts, 1)
    mean = np.bincount(task, weights=values, minlength=T) / live
    spread = np.sqrt(np.bincount(task, weights=(values - mean[task]) ** 2, minlength=T) / live)
    labelled = labelled_tasks(model)
    n_rows = len(as_table(y))
    by_task = model.score_per_task(X, y)
    score = [by_task.get(0 if by_class else label, np.nan) for label in model.tasks_.tolist()]
    return ReportData(
        n_rows=n_rows,
        n_inputs=int(model.n_features_in_) - (model.task_column is not None),
        n_observations=n_rows if by_class else len(values),
        counts=counts,
        mean=np.where(counts == 0, np.nan, np.where(labelled, (mean + 1) / 2, mean)),
        spread=np.where(labelled | (counts == 0), np.nan, spread),
        score=np.array(score, dtype=float),
    )


def payload(facts: Facts) -> dict[str, Any]:
    """What the page's script needs; correlations as 16-bit numbers, which keeps 150 tasks to 30 kB."""
    T = facts.n_tasks
    lower = facts.correlation[np.tril_indices(T, -1)]
    gain = error = None
    if facts.by_task:
        gain, error = (_numbers(facts.ledger[column]) for column in ("gain", "standard_error"))  # type: ignore[index]
    return {
        "names": facts.names,
        "groups": facts.groups.tolist(),
        "order": facts.order.tolist(),
        "relations": base64.b64encode(np.round(lower * 10000).astype("<i2").tobytes()).decode() if facts.has_map else "",
        "lenders": facts.lenders and [[[s, round(1000 * share)] for s, share in own] for own in facts.lenders],
        "counts": None if facts.data is None else facts.data.counts.tolist(),
        "gain": gain,
        "error": error,
    }


def _numbers(column: Array) -> list[float | None]:
    """Rounded to five digits, ``None`` where there is no number."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in np.asarray(column, dtype=float)]
