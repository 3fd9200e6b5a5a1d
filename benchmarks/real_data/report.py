"""The pages of results: the first call beside the best of each kind, every method, and the candidates."""

from __future__ import annotations

import json
import os
import platform
from collections import defaultdict
from typing import Any

import numpy as np
from output import table

from .scoring import paired

Run = dict[str, Any]
Errors = dict[str, dict[int, float]]  # of a method, of a split
FIRST = "taskloom, first call"
NOT_OURS = ("plain", "mixed model", "trees")


def errors_of(runs: list[Run], groups: tuple[str, ...]) -> Errors:
    found: Errors = defaultdict(dict)
    for run in runs:
        if run["group"] in groups and "error" in run:
            found[run["method"]][run["split"]] = run["error"]
    return found


def best_of(errors: Errors) -> tuple[str, dict[int, float]] | None:
    """The method with the smallest mean error among those that ran on most splits."""
    if not errors:
        return None
    most = max(map(len, errors.values()))
    whole = {name: held for name, held in errors.items() if len(held) == most}
    return min(whole.items(), key=lambda each: mean(each[1]))


def mean(errors: dict[int, float]) -> float:
    return float(np.mean(list(errors.values())))


def shown(gap: float, spread: float | None) -> str:
    return f"{gap:+.3g}" + ("" if spread is None else f" +- {spread:.1g}")


def by_data(runs: list[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        found[run["data"]].append(run)
    return found


def beside_the_best(runs: list[Run]) -> list[Run]:
    """One row a data set: the first call, and the best method of every other kind with the paired difference to it."""
    rows = []
    for data, held in by_data(runs).items():
        mine = errors_of(held, ("taskloom",)).get(FIRST)
        row: Run = {
            "data": data,
            "splits": len(mine or {}),
            "first call": float(np.mean(list(mine.values()))) if mine else "failed",
        }
        for group in NOT_OURS:
            best = best_of(errors_of(held, (group,)))
            if best is None:
                continue
            row[f"best {group}"] = f"{mean(best[1]):.3g} ({best[0]})"
            both = (mine or {}).keys() & best[1].keys()
            if mine and both:
                row[f"over {group}"] = sum(mine[k] for k in both) / sum(best[1][k] for k in both)
                row[f"less {group}"] = shown(*paired(mine, best[1]))
        rows.append(row)
    return rows


def every_method(held: list[Run], groups: tuple[str, ...]) -> list[Run]:
    """One row a method: mean error, paired difference to the best of them, CPU seconds, and the splits on which it failed."""
    errors = errors_of(held, groups)
    best = best_of(errors)
    rows = []
    for name in dict.fromkeys(run["method"] for run in held if run["group"] in groups):
        mine = [run for run in held if run["method"] == name]
        row: Run = {"method": name, "error": mean(errors[name]) if errors.get(name) else None}
        if best is not None and errors.get(name) and errors[name].keys() & best[1].keys():
            row["less the best"] = "" if name == best[0] else shown(*paired(errors[name], best[1]))
        by_task = [run["by task"] for run in mine if "by task" in run]
        if by_task:
            row["by task"] = float(np.mean(by_task))
        row["splits"] = len(errors.get(name, {}))
        row["CPU seconds"] = float(np.mean([run["seconds"] for run in mine]))
        row["failed"] = "; ".join(sorted({run["failed"] for run in mine if "failed" in run}))[:90]
        rows.append(row)
    return rows


def best_by_folds(held: list[Run]) -> str | None:
    """The candidate with the best cross-validated score on the first split; all are scored alike on the same folds."""
    comparable = [
        run for run in held if "alpha" in run and not run["method"].endswith(("default score", "steady")) and run["split"] == 0
    ]
    return max(comparable, key=lambda run: run["cv"])["method"] if comparable else None


def candidates_table(runs: list[Run]) -> list[Run]:
    """A row a candidate, a column a data set: its error over that of the best plain method; * where its own folds are best."""
    rows: dict[str, Run] = {}
    for data, held in by_data(runs).items():
        best = best_of(errors_of(held, ("plain", "mixed model")))
        ours = errors_of(held, ("taskloom", "candidate"))
        if best is None or not ours:
            continue
        steady = {
            run["method"]: run["cv"]
            for run in held
            if "alpha" in run and not run["method"].endswith(("default score", "steady")) and not run["split"]
        }
        chosen = max(steady, key=lambda name: steady[name]) if steady else None
        for name, held_errors in ours.items():
            both = held_errors.keys() & best[1].keys()
            if both:
                ratio = float(np.mean([held_errors[k] for k in both]) / np.mean([best[1][k] for k in both]))
                rows.setdefault(name, {"candidate": name})[data] = f"{ratio:.3f}" + ("*" if name == chosen else "")
    return list(rows.values())


def pages(runs: list[Run], command: str) -> dict[str, str]:
    """The files of results, by name."""
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    first, groups = beside_the_best(runs), ("taskloom", *NOT_OURS)
    methods = {data: every_method(held, groups) for data, held in by_data(runs).items()}
    lines = [
        "# The first call of taskloom beside what users pick instead, on real data",
        "",
        f"`{command}` on {machine}, one thread, CPU seconds; load {os.getloadavg()[0]:.1f} at the end.",
        "Errors: lower is better, means over splits. Differences are paired over splits, with a standard error from two on.",
        "",
        table(first),
    ]
    for data, held in by_data(runs).items():
        counted = next((run["counted"] for run in held if "counted" in run), "")
        lines += ["", f"## {data}: {counted}", "", table(methods[data])]
    if tried := candidates_table(runs):
        lines += ["", "## What the first call could have chosen", ""]
        lines += ["Errors over that of the best plain method or mixed model; * is the choice of the candidates' own folds.", ""]
        lines += [table(tried)]
    record = {"command": command, "machine": machine, "rows": first, "methods": methods, "candidates": tried}
    return {"real.md": "\n".join(lines) + "\n", "real.json": json.dumps(record, indent=1) + "\n"}
