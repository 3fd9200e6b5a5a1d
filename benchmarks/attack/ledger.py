"""The ledger: one line of JSON for each instance that was judged, appended in one write, so that a kill loses nothing else."""

from __future__ import annotations

import faulthandler
import json
import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from taskloom.experiments.process_pool import end_with_parent

from .check import GOOD, check
from .growing import grow_if_asked
from .kinds import draw

Entry = dict[str, Any]
DIED = "the worker was killed, or ended itself after too long in compiled code"


def read(path: Path, seed: int) -> dict[int, Entry]:
    """The entries of a seed, by instance; of several the last counts, and a line that a kill cut short does not."""
    entries: dict[int, Entry] = {}
    if not path.exists():
        return entries
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        if entry["seed"] == seed:
            entries[entry["k"]] = entry
    return entries


def append(path: Path, entry: Entry) -> None:
    """One write of one line: it is there as a whole, or a reader skips it. A line that was cut short is closed first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = (json.dumps(entry) + "\n").encode()
    if path.exists() and path.stat().st_size > 0:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            data = data if file.read(1) == b"\n" else b"\n" + data
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)


def judge(seed: int, k: int, limit: float) -> Entry:
    """Instance ``k`` from its numbers alone."""
    grow_if_asked()
    return check(draw(seed, k), limit)


def _work(seed: int, k: int, limit: float) -> Entry:
    """What a worker runs; where compiled code never comes back to look at the clock, the worker ends itself."""
    faulthandler.dump_traceback_later(20 * limit + 60, exit=True)
    try:
        return judge(seed, k, limit)
    finally:
        faulthandler.cancel_dump_traceback_later()


def run(path: Path, seed: int, instances: int, jobs: int, limit: float, show: Any = print) -> dict[int, Entry]:
    """Judge every instance that the ledger does not have; a worker that dies is a failure of the instance it had."""
    done = read(path, seed)
    todo = [k for k in range(instances) if k not in done]

    def keep(entry: Entry) -> None:
        append(path, entry)
        done[entry["k"]] = entry
        if entry["outcome"] not in GOOD:
            show(f"{entry['k']}: {entry['outcome']} {entry['detail']}")
        elif len(done) % 100 == 0:
            show(f"{len(done)} of {instances}")

    while todo:
        with ProcessPoolExecutor(jobs, initializer=end_with_parent, initargs=(os.getpid(),)) as pool:
            waiting = {pool.submit(_work, seed, k, limit): k for k in todo[: 50 * jobs]}
            try:
                for future in as_completed(waiting):
                    keep(future.result())
            except BrokenProcessPool:
                suspects = [k for k in waiting.values() if k not in done][:jobs]
                show(f"a worker died at one of the instances {suspects}; they are run one by one")
                for k in suspects:
                    keep(_alone(seed, k, limit))
        todo = [k for k in todo if k not in done]
    return done


def _alone(seed: int, k: int, limit: float) -> Entry:
    """In a process of its own, whose death is a line of the ledger."""
    try:
        with ProcessPoolExecutor(1, initializer=end_with_parent, initargs=(os.getpid(),)) as pool:
            return pool.submit(_work, seed, k, limit).result()
    except BrokenProcessPool:
        about = draw(seed, k)
        names = {name: about[name] for name in ("loss", "structure")}
        return {"k": k, "seed": seed, **names, "outcome": "FAILURE(crash of the process)", "detail": DIED, "seconds": 0.0}
