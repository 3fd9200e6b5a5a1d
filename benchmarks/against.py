"""This tree against an old one: CPU seconds of the same work, in interleaved pairs.

    python benchmarks/against.py --old PATH_OR_REVISION [--new PATH_OR_REVISION] [--repeat 7] [--only NAME ...] [--output]

Two processes, one for each tree, take turns on the workloads of benchmarks/workloads.py: old and new after each other, and
the one that begins changes from pair to pair. A run is CPU seconds of its process, with one thread; what takes less than a
second is repeated within a run, and the least time counts. A workload's ratio is the median over pairs of new / old; ``low``
and ``high`` are the smallest and the largest pair. Both trees must reach the same certified tolerance. A revision is unpacked
into a temporary folder; nothing is installed. With a tree against itself, the ratios show the noise of the machine; a few per
cent that all pairs of a workload share come from where a process happens to have its memory. ``--output`` writes against.json,
against.md and against.png under benchmarks/results.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported, and for the workers
os.environ["MKL_NUM_THREADS"] = "1"

import argparse
import gc
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from output import write

ROOT = Path(__file__).resolve().parent.parent
BRIEF, MOST = 0.1, 25  # seconds of work that a run should have at least, and the most repeats to get there
LONG, FEW = 1.0, 3  # seconds from which on work is done once in a run, and the least repeats of all other work
CONVERGED = ("optimal", "stationary")
GOALS = {"median": 1.10, "max": 1.25}


# --- in a worker ------------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Answer one line of JSON with another until there are no more: a name of a workload and how often to run it."""
    from workloads import WORKLOADS

    import taskloom

    replies = os.fdopen(os.dup(1), "w")  # whatever a library prints must not end up between the answers
    os.dup2(2, 1)
    made: dict[str, Any] = {}
    print(json.dumps({"home": taskloom.__file__, "workloads": list(WORKLOADS)}), file=replies, flush=True)
    for line in sys.stdin:
        ask = json.loads(line)
        if ask["name"] not in made:
            made = {ask["name"]: WORKLOADS[ask["name"]]()}  # of one workload at a time
        print(json.dumps(run(made[ask["name"]], ask["count"])), file=replies, flush=True)


def run(fresh: Any, count: int) -> dict[str, Any]:
    """The least CPU seconds of ``count`` runs, and how they ended."""
    least, certificates = np.inf, []
    for _ in range(count):
        work = fresh()
        gc.collect()
        began = time.process_time()
        certificates = work()
        least = min(least, time.process_time() - began)
    return {
        "seconds": least,
        "status": sorted({certificate.status for certificate in certificates}),
        "gap": max((c.relative_gap for c in certificates if np.isfinite(c.relative_gap)), default=None),
    }


# --- in the process that compares -------------------------------------------------------------------------------------------


def source_of(tree: str, stack: ExitStack) -> Path:
    """The folder that holds the package: of a checkout, of a folder with sources, or of a revision of this repository."""
    place = Path(tree)
    if not place.is_dir():
        git = subprocess.run(["git", "archive", tree, "src"], cwd=ROOT, capture_output=True, check=False)
        if git.returncode:
            raise SystemExit(f"{tree} is no folder and no revision: {git.stderr.decode().strip()}")
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with tarfile.open(fileobj=io.BytesIO(git.stdout)) as packed:
            packed.extractall(place, filter="data")
    found = next((folder for folder in (place, place / "src") if (folder / "taskloom").is_dir()), None)
    if found is None:
        raise SystemExit(f"no package taskloom in {tree} or in its folder src")
    return found.resolve()


class Worker:
    """A process that runs workloads with one tree on its path."""

    def __init__(self, source: Path, stack: ExitStack):
        command = [sys.executable, __file__, "--serve"]
        self.process = stack.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(source), "PYTHONHASHSEED": "0"},
            )
        )
        stack.callback(self.process.stdin.close)
        hello = json.loads(self.process.stdout.readline())
        self.workloads = hello["workloads"]
        if Path(hello["home"]).resolve().parent.parent != source:
            raise SystemExit(f"the worker for {source} imported {hello['home']}")

    def run(self, name: str, count: int = 1) -> dict[str, Any]:
        print(json.dumps({"name": name, "count": count}), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a worker died of {name!r}")
        return json.loads(answer)


def repeats(seconds: float) -> int:
    """How often work is repeated within a run: others only ever add to its time, and to the short ones most."""
    return 1 if seconds >= LONG else int(np.clip(np.ceil(BRIEF / max(seconds, 1e-6)), FEW, MOST))


def compare(name: str, old: Worker, new: Worker, repeat: int) -> dict[str, Any]:
    """One row of the table; the first run of each, in which data are made and memory is new, does not count."""
    count = repeats(max(worker.run(name)["seconds"] for worker in (old, new)))
    pairs = []
    for k in range(repeat):
        order = (old, new) if k % 2 == 0 else (new, old)
        both = {worker: worker.run(name, count) for worker in order}
        pairs.append((both[old], both[new]))
    seconds = np.array([[one["seconds"] for one in pair] for pair in pairs])
    ratios = seconds[:, 1] / seconds[:, 0]
    row = {"workload": name, "old ms": 1e3 * float(np.median(seconds[:, 0])), "new ms": 1e3 * float(np.median(seconds[:, 1]))}
    row |= {"new / old": float(np.median(ratios)), "low": float(ratios.min()), "high": float(ratios.max())}
    gaps = [one["gap"] for one in pairs[-1]]
    row |= dict(zip(("old gap", "new gap"), gaps, strict=True))
    wrong = [set(one["status"]) - set(CONVERGED) for one in pairs[-1]]
    return row | {"not reached": "; ".join(f"{who}: {s}" for who, s in zip(("old", "new"), wrong, strict=True) if s) or None}


def summary(rows: list[dict[str, Any]]) -> list[str]:
    ratios = np.array([row["new / old"] for row in rows])
    slowest = rows[int(np.argmax(ratios))]["workload"]
    spread = np.median([row["high"] - row["low"] for row in rows])
    return [
        f"Median of the ratios: {np.median(ratios):.3f} (the goal is at most {GOALS['median']}).",
        f"Largest: {ratios.max():.3f}, {slowest} (the goal is at most {GOALS['max']}); smallest: {ratios.min():.3f}.",
        f"Between the smallest and the largest pair of a workload lie {spread:.3f} (median over workloads).",
    ]


def draw(figure: Any, rows: list[dict[str, Any]]) -> None:
    figure.set_size_inches(9, 0.25 * len(rows) + 1)
    axes, places = figure.subplots(), range(len(rows))
    middle = np.array([row["new / old"] for row in rows])
    reach = [middle - [row["low"] for row in rows], [row["high"] for row in rows] - middle]
    axes.errorbar(middle, places, xerr=reach, fmt="o")
    axes.set_yticks(places, [row["workload"] for row in rows], fontsize=7)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.axvline(GOALS["max"], color="tab:red", linewidth=0.8)
    axes.set_xlabel("CPU seconds, new / old")
    axes.invert_yaxis()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="a folder (a checkout, or one that holds the package) or a revision")
    parser.add_argument("--new", default=str(ROOT), help="the same; this tree by default")
    parser.add_argument("--repeat", type=int, default=7, help="pairs of runs of each workload")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="workloads whose names contain one of these")
    parser.add_argument("--output", action="store_true", help="write the results, and do not only print them")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    rows = []
    with ExitStack() as stack:
        old, new = (Worker(source_of(tree, stack), stack) for tree in (options.old, options.new))
        for name in new.workloads:
            if options.only is None or any(part in name for part in options.only):
                rows.append(compare(name, old, new, options.repeat))
                print(f"{name}: {rows[-1]['new / old']:.3f}", flush=True)
    if not rows:
        raise SystemExit(f"no workload has one of {options.only} in its name")
    title = "CPU seconds against an old tree"
    write("against", title, rows, summary(rows), lambda figure: draw(figure, rows), quick=not options.output)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["--serve"] else main()
