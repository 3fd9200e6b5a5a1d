"""No cliffs: problems that once cost far more than their neighbours, and a walk that looks for others.

    python benchmarks/cliffs.py --table [--only WORDS ...]     the rows of benchmarks/cliff_rows, each in a process of its own
    python benchmarks/cliffs.py --walk [--steepest 25] [--seconds 600]

``--table`` measures CPU seconds with one thread and writes benchmarks/results/cliffs.md unless ``--only`` picks some rows.
``--walk`` starts from a few ordinary problems, changes one thing at a time (tasks, rows, inputs, missing share, loss,
structure, kernel, layout, strength), and prints the steepest steps.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import subprocess
import sys

import cliff_rows
from cliff_rows.row import Row
from output import RESULTS, table


def rows() -> dict[str, Row]:
    """All rows, by subject and place."""
    found: dict[str, Row] = {}
    for module in sorted(pkgutil.iter_modules(cliff_rows.__path__), key=lambda each: each.name):
        held = importlib.import_module(f"cliff_rows.{module.name}")
        found |= {f"{module.name}:{k}": row for k, row in enumerate(getattr(held, "ROWS", []))}
    return found


LIMIT = 300.0  # wall seconds of a row with its neighbour
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def measure(key: str) -> dict:
    """One row in a process of its own."""
    row = rows()[key]
    shown = {"problem": row.problem, "before": row.before, "bar": row.bar}
    failed = shown | {"seconds": None, "neighbour": None, "ratio": None, "met": "no"}
    try:
        run = subprocess.run(
            [sys.executable, __file__, "--row", key],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | ONE_THREAD,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        return failed | {"note": f"stopped after {LIMIT:.0f} s"}
    if run.returncode:
        return failed | {"note": f"failed: {run.stderr.strip()[-200:]}"}
    found = json.loads(run.stdout.splitlines()[-1])
    return shown | found


def run_row(key: str) -> None:
    found = rows()[key].measure()
    ratio = found.seconds / max(found.neighbour, 1e-9)
    said = {"seconds": found.seconds, "neighbour": found.neighbour, "ratio": ratio}
    print(json.dumps(said | {"met": "yes" if found.met else "no", "note": found.note}))


def print_table(only: list[str]) -> None:
    picked = [key for key, row in rows().items() if not only or any(word in key + " " + row.problem for word in only)]
    measured = []
    for key in picked:
        measured.append(measure(key))
        print(key, {name: value for name, value in measured[-1].items() if name != "before"}, flush=True)
    text = table(measured)
    print(text)
    if not only:
        how = f"`python benchmarks/cliffs.py --table`: CPU seconds, one thread; load {os.getloadavg()[0]:.1f} at the end."
        (RESULTS / "cliffs.md").write_text(f"# Cliffs\n\n{how}\n\n{text}\n")
        (RESULTS / "cliffs.json").write_text(json.dumps(measured, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--walk", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--steepest", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--row", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        run_row(given.row)
    elif given.walk:
        from cliff_walk import walk

        walk(given.steepest, given.seconds)
    else:
        print_table(given.only)


if __name__ == "__main__":
    main()
