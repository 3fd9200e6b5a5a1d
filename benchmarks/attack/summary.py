"""The table: outcomes by loss and structure, and the sentences with which fits stopped or were refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from taskloom.persistence import atomic_write

from .check import OPTIMAL, REFUSED, STOPPED, TOO_SLOW
from .draw import Description
from .kinds import draw

COLUMNS = ("instances", "optimal", "stopped", "too slow", "refused", "false certificates", "crashes", "other failures", "CPU s")


def row(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of one cell of the table."""
    outcomes = Counter(entry["outcome"] for entry in entries)
    failures = {name: n for name, n in outcomes.items() if name.startswith("FAILURE")}
    false = sum(n for name, n in failures.items() if "false certificate" in name)
    crashes = sum(n for name, n in failures.items() if "crash" in name)
    return {
        "instances": len(entries),
        "optimal": outcomes[OPTIMAL],
        "stopped": outcomes[STOPPED],
        "too slow": outcomes[TOO_SLOW],
        "refused": outcomes[REFUSED],
        "false certificates": false,
        "crashes": crashes,
        "other failures": sum(failures.values()) - false - crashes,
        "CPU s": round(sum(entry["seconds"] for entry in entries), 1),
    }


def _decades(exponent: float) -> str:
    size = abs(exponent)
    return "1" if size == 0 else "to 1e±6" if size <= 6 else "beyond 1e±6"


def aspects(about: Description) -> dict[str, list[str]]:
    """Under which rows of the table of coverage an instance counts."""
    T, ridge = about["T"], about["ridge"]
    return ({"kind": [about["kind"]]} if "kind" in about else {}) | {
        "solver": [about["solver"]],
        "kernel": [about["kernel"]],
        "layout": [about["layout"], *(["sparse"] if about.get("sparse") else [])],
        "tasks": ["1" if T == 1 else "2 to 6" if T <= 6 else "7 to 15" if T <= 15 else "16 to 60"],
        "shape": [
            "one row in all" if about["n"] == 1 else "more columns than rows" if about["d"] > about["n"] else "more rows"
        ],
        "precision": [about["dtype"]],
        "scale of X": [_decades(about["scale_x"])],
        "scale of Y": [_decades(about["scale_y"])],
        "strength": [f"1e{int(about['strength'] // 2) * 2:+d} to 1e{int(about['strength'] // 2) * 2 + 2:+d} of alpha_max"],
        "sample_weight": [about["sample_weight"]],
        "task_weight": [about["task_weight"]],
        "intercept": ["yes" if about["fit_intercept"] else "no"],
        "ridge": ["yes" if ridge else "no"],
        "fault": [*about["faults"], *(["a task with a single row"] if about["single row"] else [])] or ["none"],
        "judged by": [about["second"] or "bound"],
        "told again": about["invariances"],
    }


def coverage(entries: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The same counts by everything else that was drawn."""
    groups: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for entry in entries:
        ran = {"solver that ran": [entry.get("ran") or "none"]}
        for by, names in (aspects(draw(entry["seed"], entry["k"])) | ran).items():
            for name in names:
                groups.setdefault(by, {}).setdefault(name, []).append(entry)
    return {by: {name: row(group[name]) for name in sorted(group)} for by, group in groups.items()}


def summarise(entries: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Everything that the two files show."""
    entries = list(entries)
    tables = {}
    for by in ("loss", "structure"):
        names = sorted({entry[by] for entry in entries})
        tables[by] = {name: row([entry for entry in entries if entry[by] == name]) for name in names}
    pairs = sorted({(entry["loss"], entry["structure"]) for entry in entries})
    tables["loss x structure"] = {
        f"{loss} x {structure}": row([e for e in entries if (e["loss"], e["structure"]) == (loss, structure)])
        for loss, structure in pairs
    }
    reasons = Counter(_reason(entry) for entry in entries if entry["outcome"] in (STOPPED, REFUSED, TOO_SLOW))
    failures = [entry for entry in entries if entry["outcome"].startswith("FAILURE")]
    total = row(entries)
    usual = [e for e in entries if e["outcome"] != REFUSED and draw(e["seed"], e["k"])["solver"] == "auto"]
    total["by default"] = len(usual)
    total["share optimal"] = round(sum(e["outcome"] == OPTIMAL for e in usual) / len(usual), 4) if usual else None
    total["comparisons cut short"] = sum(e.get("unfinished", False) for e in entries)
    reasons_and_failures = {"reasons": dict(reasons.most_common()), "failures": failures}
    return {"total": total, **tables, "coverage": coverage(entries), **reasons_and_failures}


def _reason(entry: dict[str, Any]) -> str:
    """A sentence without its numbers, so that alike ones count together."""
    words = re.sub(r"[-+]?\d[\d.e+-]*", "#", entry["detail"])
    return f"{entry['outcome']}: {words[:110]}"


def as_markdown(found: dict[str, Any]) -> str:
    total = found["total"]
    share = 100 * (total["share optimal"] or 0)
    lines = [
        f"{total['instances']} instances: {total['optimal']} optimal ({share:.2f} % of the {total['by default']} with "
        "solver='auto' that were not refused), "
        f"{total['stopped']} stopped and said why, {total['too slow']} too slow, {total['refused']} refused in one sentence, "
        f"{total['false certificates']} false certificates, {total['crashes']} crashes, {total['other failures']} other "
        "failures.",
        "",
        f"At {total['comparisons cut short']} of them the comparisons with the same problem in other words were cut short.",
    ]
    for by in ("loss", "structure"):
        lines += ["", f"| {by} | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
        lines += [f"| {name} | {' | '.join(str(cells[c]) for c in COLUMNS)} |" for name, cells in found[by].items()]
    losses, structures = sorted(found["loss"]), sorted(found["structure"])
    lines += [
        "",
        "Optimal of fitted, by loss and structure:",
        "",
        f"| | {' | '.join(losses)} |",
        f"|---|{'---|' * len(losses)}",
    ]
    for structure in structures:
        cells = [found["loss x structure"].get(f"{loss} x {structure}") for loss in losses]
        shown = [f"{c['optimal']}/{c['instances'] - c['refused']}" if c else "" for c in cells]
        lines.append(f"| {structure} | {' | '.join(shown)} |")
    lines += ["", "What was drawn:", "", f"| | | {' | '.join(COLUMNS)} |", f"|---|---|{'---|' * len(COLUMNS)}"]
    for by, group in found["coverage"].items():
        lines += [f"| {by} | {name} | {' | '.join(str(cells[c]) for c in COLUMNS)} |" for name, cells in group.items()]
    lines += ["", "Sentences:", "", *(f"- {n} x {reason}" for reason, n in found["reasons"].items())]
    return "\n".join(lines) + "\n"


def write(entries: Iterable[dict[str, Any]], folder: Path) -> str:
    found = summarise(entries)
    text = as_markdown(found)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "campaign.json", (json.dumps(found, indent=1) + "\n").encode())
    atomic_write(folder / "campaign.md", text.encode())
    return text
