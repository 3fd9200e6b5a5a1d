"""A failing instance made small: leave out tasks, rows, columns and options, one at a time, as long as it still fails."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .check import GOOD, check
from .draw import Description

PLAIN = {  # what every option is made if the failure does not need it
    "faults": [],
    "sample_weight": "none",
    "task_weight": "equal",
    "ridge": 0.0,
    "single row": False,
    "dtype": "float64",
    "sparse": False,
    "scale_x": 0.0,
    "scale_y": 0.0,
    "fit_intercept": False,
    "kernel": "linear",
    "layout": "wide",
    "solver": "auto",
    "second": "",
    "invariances": [],
    "loss": "squared",
    "structure": "trace",
    "strength": -1.0,
}


def outcome_of(about: Description, limit: float) -> str:
    return check(about, limit)["outcome"]


def shrink(about: Description, limit: float = 20.0, judge: Callable[[Description, float], str] = outcome_of) -> Description:
    """A smaller description with the same kind of failure; the same one, if it does not fail at all."""
    wanted = judge(about, limit)
    if wanted in GOOD:
        return about
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(about):
            if judge(smaller, limit) == wanted:
                about, progress = smaller, True
                break
    return about


def _smaller(about: Description) -> Iterator[Description]:
    """Candidates, the boldest first."""
    for what, size in (("tasks", about["T"]), ("rows", about["n"]), ("columns", about["d"])):
        gone = set(about["drop"][what])
        left = [i for i in range(size) if i not in gone]
        if what == "columns" and about["kernel"] == "precomputed":
            continue
        piece = len(left) // 2
        while piece >= 1:
            for first in range(0, len(left), piece):
                cut = left[first : first + piece]
                if len(cut) < len(left):
                    yield _with(about, drop={**about["drop"], what: sorted(gone | set(cut))})
            piece //= 2
    for fault in about["faults"]:
        yield _with(about, faults=[other for other in about["faults"] if other != fault])
    for option, plain in PLAIN.items():
        if about[option] != plain and option not in about.get("fixed", ()):  # what the kind is about stays
            yield _with(about, **{option: plain})
    for invariance in about["invariances"]:
        yield _with(about, invariances=[invariance]) if len(about["invariances"]) > 1 else about | {"invariances": []}


def _with(about: Description, **changes: Any) -> Description:
    return copy.deepcopy(about) | changes


def as_test(about: Description, outcome: str) -> str:
    """A test file that holds the description and asks for an outcome that is none of the failures."""
    name = re.sub(r"\W+", "_", outcome.removeprefix("FAILURE(").rstrip(")")).strip("_").lower()
    return f'''"""Found by the campaign: {outcome}, instance {about["k"]} of seed {about["seed"]}, shrunk."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from attack.check import GOOD, check

ABOUT = json.loads(
    """
{json.dumps(about, indent=1)}
"""
)


def test_{name}_{about["k"]}():
    entry = check(ABOUT)
    assert entry["outcome"] in GOOD, entry
'''


def write_test(about: Description, outcome: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"test_campaign_{about['seed']}_{about['k']}.py"
    path.write_text(as_test(about, outcome), encoding="utf-8")
    return path
