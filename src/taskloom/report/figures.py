"""Charts and tables of a report."""

from __future__ import annotations

from typing import Any

import numpy as np

from .charts import Chart, Line
from .facts import Facts
from .sentences import minus, signed

Array = np.ndarray


def convergence(facts: Facts) -> list[Chart]:
    """Objective and dual value by iteration, and the relative gap by iteration and by time."""
    history = getattr(facts.model, "history_", None)
    if history is None or len(history["iteration"]) < 2:
        return []
    proof = facts.model.certificate_
    objective, dual = (_finite(history[name]) for name in ("objective", "dual"))
    last = objective[np.isfinite(objective)][-1:]
    if last.size:  # a first dual bound can be very poor: show the last iterations
        far = last[0] - 2 * max(float(np.nanmax(objective)) - last[0], 0.05 * abs(last[0]))
        dual = np.where(dual >= far, dual, np.nan)
    both = np.isfinite(objective) & np.isfinite(dual)
    lines = [Line(history["iteration"], objective, "upper"), Line(history["iteration"], dual, "lower")]
    band = (history["iteration"][both], dual[both], objective[both]) if both.sum() > 1 else None
    title = "Objective by iteration" if band is None else "Objective and dual value by iteration"
    charts = [Chart(title, "iteration", lines, band=band, integer_x=True)]
    gap = _finite(history["gap"])
    if not np.any(gap > 0) or not 0 < proof.relative_gap < np.inf:
        return charts if np.isfinite(objective).any() else []
    gap = gap * (proof.relative_gap / proof.gap)
    for what, label in (("iteration", "iteration"), ("seconds", "time in seconds")):
        title = f"Relative duality gap by {what.replace('seconds', 'time')}"
        line = Line(history[what], gap, "gap")
        charts.append(Chart(title, label, [line], log_y=True, mark_y=facts.model.tol or None, integer_x=what == "iteration"))
    return charts


def path(facts: Facts) -> list[Chart]:
    """Score and eigenvalues along the regularisation path of a cross-validated model."""
    found = getattr(facts.model, "path_", None)
    if found is None or len(found["alphas"]) < 2:
        return []
    alphas, score, error = found["alphas"], found["score"], np.nan_to_num(found["standard_error"])
    label = "regularisation strength alpha"
    band = (alphas, score - error, score + error)
    charts = [Chart("Score by alpha", label, [Line(alphas, score, "lower")], log_x=True, band=band, mark_x=facts.alpha)]
    if "spectrum" in found:
        shown = found["spectrum"][:, :30]
        lines = [Line(alphas, column, "many") for column in shown.T]
        charts.append(Chart("Eigenvalues of the structure by alpha", label, lines, log_x=True, mark_x=facts.alpha))
    return charts


def gains(facts: Facts) -> tuple[list[dict[str, Any]], str]:
    """One row per scored task, largest gain first, with its interval in percent of the axis; and the range of the axis."""
    found = facts.gains
    if found is None or found.scored.size == 0:
        return [], ""
    gain, left, right = found.gain, found.gain - found.margin, found.gain + found.margin
    low, high = _span(left[found.scored], right[found.scored])

    def place(value: float) -> float:
        return round(float(np.clip(100 * (value - low) / (high - low), 0, 100)), 1)

    names = facts.names if facts.by_task else ["all classes"]
    rows = [
        {
            "name": names[t],
            "alone": minus(f"{found.alone[t]:.3f}"),
            "together": minus(f"{found.together[t]:.3f}"),
            "gain": minus(f"{gain[t]:+.3f}"),
            "raw": f"{gain[t]:.6g}",
            "look": "better" if found.better[t] else "worse" if found.worse[t] else "unsure",
            "zero": place(0.0),
            "from": place(left[t]),
            "to": place(right[t]),
            "at": place(gain[t]),
            "cut": bool(gain[t] < low or gain[t] > high),
            "single_model": found.kept[t],
        }
        for t in found.scored[np.argsort(-gain[found.scored], kind="stable")]
    ]
    return rows, f"{signed(low)} to {signed(high)}"


def _span(low: Array, high: Array) -> tuple[float, float]:
    """The range of the intervals, with 0; of 20 tasks and more the extreme 3 % are cut off."""
    few = len(low) < 20
    left = min(float(low.min() if few else np.quantile(low, 0.03)), 0.0)
    right = max(float(high.max() if few else np.quantile(high, 0.97)), 0.0)
    space = 0.08 * (right - left) or 1.0
    return left - space, right + space


def strongest(facts: Facts, n: int = 12) -> list[dict[str, str]]:
    """The largest correlations in absolute value."""
    if facts.n_tasks < 2 or facts.vanished or not facts.related:
        return []
    one, other, value = facts.pairs
    order = [k for k in np.argsort(-np.abs(value), kind="stable")[:n] if abs(value[k]) >= 0.005]
    names = facts.names
    return [{"one": names[one[k]], "other": names[other[k]], "value": signed(value[k])} for k in order]


def groups(facts: Facts) -> tuple[list[dict[str, Any]], list[str]]:
    """Clusters of two tasks or more, largest first, and the tasks in no cluster."""
    names = {g: [facts.names[t] for t in members] for g, members in facts.clusters.items()}
    real = sorted((g for g in names if len(names[g]) > 1), key=lambda g: (-len(names[g]), g))
    single = [members[0] for members in names.values() if len(members) == 1]
    return [{"number": g + 1, "colour": g % 8, "names": names[g]} for g in real], single


def tasks(facts: Facts) -> list[dict[str, str]]:
    """One row per task: observations, targets, score."""
    data = facts.data
    if data is None:
        return []
    return [
        {
            "name": name,
            "count": f"{data.counts[t]:,}",
            "mean": "" if np.isnan(data.mean[t]) else minus(f"{data.mean[t]:.3g}"),
            "std": "" if np.isnan(data.std[t]) else f"{data.std[t]:.3g}",
            "score": "" if np.isnan(data.score[t]) else minus(f"{data.score[t]:.3f}"),
        }
        for t, name in enumerate(facts.names)
    ]


def _finite(values: Any) -> Array:
    values = np.asarray(values, dtype=float)
    return np.where(np.isfinite(values), values, np.nan)
