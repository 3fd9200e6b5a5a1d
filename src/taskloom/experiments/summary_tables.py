"""Means, standard deviations and paired differences over the repetitions; tables and curves with the printed numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..metrics import normalized_improvement

Printed = dict[str, dict[str, list[float]]]
BASELINES = ["STL, one strength"]
TOLERANCE = 1e-4  # largest relative duality gap of a fit


def summary(done: list[tuple[dict, dict]], settings: dict[str, Any], score: str) -> dict[str, Any]:
    """``results`` by method (means over the repetitions, in the order of the sizes), ``baselines``, and the worst certificates.

    A baseline is a second way of single-task learning; the other methods are compared with ``STL``, not with it.
    ``score`` is ``"nmse"`` (smaller is better; nI is the paper's) or a score where larger is better (then ``gain``).
    """
    sizes = settings["sizes"]
    repetitions = sorted({unit["repetition"] for unit, _ in done})
    by_place = {(unit["repetition"], unit["size"]): result for unit, result in done}
    results, certificates = {}, {}
    values = {
        name: np.array([[by_place[r, size][name][score] for size in sizes] for r in repetitions])
        for name in settings["methods"]
    }
    n = len(repetitions)
    for name, mine in values.items():
        single_task = values["STL"]
        better = (single_task - mine) if score == "nmse" else (mine - single_task)  # positive: better than single-task learning
        measure, single = ("nI", normalized_improvement) if score == "nmse" else ("gain", None)
        entry: dict[str, Any] = {
            "sizes": sizes,
            score: mine.mean(axis=0).tolist(),
            f"{score}_std": (mine.std(axis=0, ddof=1) if n > 1 else np.zeros(len(sizes))).tolist(),
            measure: [normalized_improvement(single_task[:, k], mine[:, k]) for k in range(len(sizes))]
            if single
            else better.mean(axis=0).tolist(),
            "better_than_STL": better.mean(axis=0).tolist(),
            "better_than_STL_standard_error": (
                better.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(len(sizes))
            ).tolist(),
        }
        entry["repetitions"] = [
            {
                "repetition": r,
                "seed": r,
                "sizes": sizes,
                score: mine[i].tolist(),
                measure: [normalized_improvement([a], [b]) for a, b in zip(single_task[i], mine[i], strict=True)]
                if single
                else better[i].tolist(),
                "setting": [by_place[r, size][name]["setting"] for size in sizes],
                "alpha": [by_place[r, size][name]["alpha"] for size in sizes],
            }
            for i, r in enumerate(repetitions)
        ]
        results[name] = entry
        certificates[name] = {
            key: max(result[name][key] for _, result in done) for key in ("relative_gap", "relative_gap_in_folds")
        } | {"seconds": round(sum(result[name]["seconds"] for _, result in done), 1)}
    worst = max(entry["relative_gap"] for entry in certificates.values())
    return {
        "results": {name: entry for name, entry in results.items() if name not in BASELINES},
        "baselines": {name: entry for name, entry in results.items() if name in BASELINES},
        "certificates": {"all_within_tolerance": worst <= TOLERANCE, "tolerance": TOLERANCE} | certificates,
    }


def worst_of(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The certificates of several summaries: the largest gap of each method, and the sum of its seconds."""
    whole: dict[str, Any] = {}
    for name, first in parts[0].items():
        if not isinstance(first, dict):
            whole[name] = all(part[name] for part in parts) if isinstance(first, bool) else first
            continue
        whole[name] = {key: (sum if key == "seconds" else max)(part[name][key] for part in parts) for key in first}
    return whole


def compare_table(record: dict[str, Any], score: str, sections: dict[str, str]) -> tuple[str, list[list[Any]]]:
    """Markdown for people, rows for a CSV file."""
    measure = "nI" if score == "nmse" else "gain"
    percent = score != "nmse"
    sizes = record["settings"]["sizes"]
    unit = 100.0 if percent else 1.0
    form = "{:.2f}" if percent else "{:.4f}"
    rows: list[list[Any]] = [
        ["protocol", "method", "size", score, f"{score}_std", measure, "better_than_STL", "standard_error", "printed"]
    ]
    lines = []
    for key, title in sections.items():
        if key not in record:
            continue
        beside = "; printed in brackets" if key == "results" and record["printed"] else ""
        repeats = len(next(iter(record[key].values()))["repetitions"])
        shown_as = f"{score}{' (%)' if percent else ''} ± standard deviation, {measure}{beside}"
        lines += [f"## {title}: {shown_as} ({repeats} repetitions)", ""]
        lines += ["| method | " + " | ".join(map(str, sizes)) + " |", "|---" * (1 + len(sizes)) + "|"]
        entries = {**record[key], **record["baselines"].get(key, {})}
        for name, entry in entries.items():
            cells = []
            for k, size in enumerate(sizes):
                known = record["printed"].get(name) if key == "results" and sizes == record["printed_sizes"] else None
                mean, std = unit * entry[score][k], unit * entry[f"{score}_std"][k]
                shown = f"{unit * entry[measure][k]:+.2f}" if percent else f"{entry[measure][k]:+.4f}"
                gain = "0" if name == "STL" else shown
                cell = f"{form.format(mean)} ± {form.format(std)}, {gain}"
                printed = unit * known[score][k] if known else None
                if known and printed is not None:
                    cell += f" ({form.format(printed)}" + (f", {known['nI'][k]:+.4f})" if "nI" in known else ")")
                cells.append(cell)
                rows.append(
                    [
                        key,
                        name,
                        size,
                        entry[score][k],
                        entry[f"{score}_std"][k],
                        entry[measure][k],
                        entry["better_than_STL"][k],
                        entry["better_than_STL_standard_error"][k],
                        known[score][k] if known else "",
                    ]
                )
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines += ["", *_paired(entries, sizes, unit, form), ""]
    proof = record["certificates"]
    worst = max(entry["relative_gap"] for entry in proof.values() if isinstance(entry, dict))
    lines.append(
        f"Largest relative duality gap of the final fits: {worst:.1e} "
        f"({'all' if proof['all_within_tolerance'] else 'NOT all'} within {TOLERANCE:g})."
    )
    return "\n".join(lines), rows


def _paired(results: dict[str, Any], sizes: list[Any], unit: float, form: str) -> list[str]:
    """How much better than single-task learning, on the same repetitions, with its standard error."""
    lines = ["Better than STL, paired over the repetitions ± standard error:", ""]
    lines += ["| method | " + " | ".join(map(str, sizes)) + " |", "|---" * (1 + len(sizes)) + "|"]
    for name, entry in results.items():
        if name == "STL":
            continue
        pairs = zip(entry["better_than_STL"], entry["better_than_STL_standard_error"], strict=True)
        cells = [form.replace("{:", "{:+").format(unit * mean) + " ± " + form.format(unit * error) for mean, error in pairs]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def curves(record: dict[str, Any], figure: Any, score: str, sections: dict[str, str], label: str) -> None:
    """A panel for each protocol: our means with bars of one standard deviation, printed values as open circles."""
    there = [key for key in sections if key in record]
    panels = figure.subplots(1, len(there), squeeze=False)[0]
    for panel, key in zip(panels, there, strict=True):
        for name, entry in record[key].items():
            line = panel.errorbar(entry["sizes"], entry[score], entry[f"{score}_std"], marker=".", capsize=2, label=name)
            if key == "results" and name in record["printed"] and entry["sizes"] == record["printed_sizes"]:
                colour = line.lines[0].get_color()
                panel.plot(entry["sizes"], record["printed"][name][score], "o", mfc="none", color=colour)
        panel.set(title=sections[key], xlabel="training examples", ylabel=label)
    panels[0].legend(title="circles: printed", fontsize="small")
