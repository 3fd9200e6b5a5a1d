"""The table: outcomes by loss and structure, and the sentences with which fits stopped or were refused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from taskloom.model_file import atomic_write

from .check import OPTIMAL, REFUSED, STOPPED, TOO_SLOW
from .draw import draw

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
    return {"total": total, **tables, "reasons": dict(reasons.most_common()), "failures": failures}


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
    lines += ["", "Sentences:", "", *(f"- {n} x {reason}" for reason, n in found["reasons"].items())]
    return "\n".join(lines) + "\n"


def write(entries: Iterable[dict[str, Any]], folder: Path) -> str:
    found = summarise(entries)
    text = as_markdown(found)
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / "campaign.json", (json.dumps(found, indent=1) + "\n").encode())
    atomic_write(folder / "campaign.md", text.encode())
    return text
