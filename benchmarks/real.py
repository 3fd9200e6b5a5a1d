"""The first call of taskloom beside what users pick instead, on real data.

    python benchmarks/real.py [--only DATA ...] [--methods WORDS ...] [--candidates] [--splits 2] [--aside]

Every method is tuned on the training rows only and runs in a process of its own with one thread and a limit of CPU seconds.
Each run is appended to benchmarks/results/real.jsonl, and runs that are there are not repeated (``--again`` does), so that an
interrupted table goes on where it stopped. ``--candidates`` runs models of taskloom that are set by hand in place of the
methods: what the first call could have chosen. Data sets that were kept aside from all tuning run with ``--aside`` only.
Data is looked for in ../shared/data; what is not there is skipped with a line. Writes benchmarks/results/real.md and real.json.
"""

from __future__ import annotations

import os

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[pool] = "1"

import argparse  # noqa: E402
import json  # noqa: E402
import multiprocessing  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Iterable  # noqa: E402
from multiprocessing.connection import Connection  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from output import RESULTS  # noqa: E402
from real_data.boosters import BOOSTERS  # noqa: E402
from real_data.loaders import DataSet, data_sets  # noqa: E402
from real_data.method import Method  # noqa: E402
from real_data.mixed import MIXED  # noqa: E402
from real_data.ours import CANDIDATES, FIRST  # noqa: E402
from real_data.plain import PLAIN  # noqa: E402
from real_data.report import pages  # noqa: E402
from real_data.scoring import ERRORS, unexplained_by_task  # noqa: E402

METHODS = [*FIRST, *PLAIN, *MIXED, *BOOSTERS]
RECORD = RESULTS / "real.jsonl"
Run = dict[str, Any]


def recorded() -> dict[tuple[str, str, int], Run]:
    """The runs so far; the last one counts."""
    lines = RECORD.read_text().splitlines() if RECORD.exists() else []
    return {(run["data"], run["method"], run["split"]): run for run in map(json.loads, lines)}


def work(data: DataSet, method: Method, split: int, out: Connection) -> None:
    """In a process of its own: fit, predict, score, and what it took."""
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + method.limit,) * 2)
    warnings.simplefilter("ignore")
    train, test = (data.all.rows(rows) for rows in data.split(split))
    began = time.process_time()
    try:
        if method.most_rows is not None and len(train.X) > method.most_rows:
            raise ValueError(f"not tried on {len(train.X)} rows")
        found = method.run(data, train, test)
        guess, extras = found if isinstance(found, tuple) else (found, {})
        seconds = time.process_time() - began
        run = {"error": ERRORS[data.error](train, test, guess), "seconds": round(seconds, 2)} | extras
        if data.error == "unexplained":
            run["by task"] = unexplained_by_task(train, test, guess)
    except Exception as error:
        run = {"failed": f"{type(error).__name__}: {error}"[:200], "seconds": round(time.process_time() - began, 2)}
    out.send(run)


def measure(data: DataSet, method: Method, split: int) -> Run:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=work, args=(data, method, split, sender))
    process.start()
    sender.close()
    try:
        run = receiver.recv()
    except EOFError:  # the limit of CPU seconds ends the process
        run = {"failed": f"more than {method.limit} s", "seconds": float(method.limit)}
    process.join()
    what = f"{data.error}{f', {data.note}' if data.note else ''}"
    return {"data": data.name, "counted": what, "method": method.name, "group": method.group, "split": split} | run


def picked(methods: Iterable[Method], words: list[str], form: str) -> list[Method]:
    return [each for each in methods if form in each.forms and (not words or any(word in each.name for word in words))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="data sets")
    parser.add_argument("--methods", nargs="*", default=[], help="words of the names of methods")
    parser.add_argument("--candidates", action="store_true", help="models of taskloom that are set by hand")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="repeat runs that are recorded")
    parser.add_argument("--aside", action="store_true", help="run what was kept aside from tuning, too")
    given = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    methods = CANDIDATES if given.candidates else METHODS
    for name in sorted({each.needs for each in methods if each.needs and each.missing}):
        print(f"methods of {name}: skipped, the package is not installed", flush=True)
    for data in data_sets(given.only):
        if data.kept_aside and not given.aside:
            print(f"{data.name}: kept aside (--aside runs it)", flush=True)
            continue
        for split in range(given.splits):
            for method in picked(methods, given.methods, data.form):
                if method.missing or ((data.name, method.name, split) in recorded() and not given.again):
                    continue
                run = measure(data, method, split)
                with RECORD.open("a") as record:
                    record.write(json.dumps(run) + "\n")
                print({key: run[key] for key in run if key not in ("said", "counted")}, flush=True)
    command = "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    for name, text in pages(list(recorded().values()), command).items():
        (RESULTS / name).write_text(text)


if __name__ == "__main__":
    main()
