"""Judging what becomes of a file: used, or refused in one sentence; nothing runs, nothing grows, nothing takes long."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

import taskloom
from taskloom import ModelFileError

from . import heavy_files, heavy_tables, model_files, table_files
from .check import TooSlow, limited
from .judging import LOADED, REFUSED, SECONDS, fault, is_sentence, judge_command, meant

ROOM = 2 << 30  # bytes of address space that all cases together may add
LOAD_ROOM = 1 << 30  # bytes that loading one file may add
LOAD_SECONDS = 3.0  # CPU time of loading one file
LAST_SECONDS = 30  # CPU time after which a case of its own process is ended, wherever it is


def limit_memory(room: int = ROOM) -> None:
    """From here on this process may grow by so much; asking for more is a ``MemoryError``, which counts as a failure."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, resource.RLIM_INFINITY))


def peak() -> float:
    """The largest memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 1 << 20)


def judge_model(path: Path, mark: Path) -> tuple[str, str]:
    """The outcome of loading a file and predicting with what is in it, and the sentence or the fault."""
    try:
        with limited(SECONDS), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", RuntimeWarning)  # numbers of 1e308 in a forged file overflow, as they should
            outcome, detail = _load_and_predict(path)
    except TooSlow:
        outcome, detail = "FAILURE(too slow)", f"more than {SECONDS:g} CPU seconds"
    except BaseException as error:
        outcome, detail = f"FAILURE({type(error).__name__})", fault(error)
    if mark.exists():
        mark.unlink()
        return "FAILURE(it ran)", "the canary was unpickled"
    return outcome, detail


def apart(judged: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """The outcome of a case in a process of its own: one that dies, or that code in C keeps busy, is a failure."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CPU, (LAST_SECONDS, LAST_SECONDS))
            limit_memory(4 * LOAD_ROOM)  # so that a file cannot take the machine; a gibibyte is a failure already
            os.write(writing, json.dumps([part[:2000] for part in judged()]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    outcome, detail = json.loads(said) if said else ("FAILURE(died)", f"of {LAST_SECONDS} CPU seconds, or of a signal")
    return outcome, detail


def judge_heavy_command(argv: list[str]) -> tuple[str, str]:
    """What a command makes of a table, if it takes little time and memory."""
    before = peak()
    try:
        with limited(SECONDS):
            outcome, detail = judge_command(argv)
    except TooSlow:
        outcome, detail = "FAILURE(too slow)", f"more than {SECONDS:g} CPU seconds"
    except BaseException as error:
        outcome, detail = f"FAILURE({type(error).__name__})", fault(error)
    grown = peak() - before
    return (outcome, detail) if grown <= LOAD_ROOM >> 20 else ("FAILURE(memory)", f"{grown:.0f} MiB; {outcome}: {detail}")


def _load_and_predict(path: Path) -> tuple[str, str]:
    began, before = time.process_time(), peak()
    try:
        model = taskloom.load(path)
    except ModelFileError as error:
        model, refusal = None, str(error)
    spent, grown = time.process_time() - began, peak() - before
    if spent > LOAD_SECONDS:
        return "FAILURE(too slow)", f"loading took {spent:.1f} CPU seconds"
    if grown > LOAD_ROOM >> 20:
        return "FAILURE(memory)", f"loading took {grown:.0f} MiB"
    if model is None:
        return (REFUSED, refusal) if is_sentence(refusal) else ("FAILURE(no sentence)", refusal[:300])
    try:
        rows = rows_for(model)
        found = model.predict(rows)
        last = model[-1] if isinstance(model, Pipeline) else model
        if last._state.training is not None:
            model.predict(rows, return_std=True)
    except ValueError as error:
        return (LOADED, f"predict refuses: {error}") if meant(error) else ("FAILURE(predict)", fault(error))
    if not np.asarray(found).size:
        return "FAILURE(predict)", "no predictions"
    outcome, detail = judge_command(["inspect", str(path)])
    return (LOADED, detail) if outcome in (LOADED, REFUSED) else (outcome, detail)


def rows_for(model: Any) -> Any:
    """Rows that a model should be able to predict."""
    if isinstance(model, Pipeline):
        return model_files.frame()
    width = model.n_features_in_
    if width > 1000:
        raise AssertionError(f"a file of few bytes gave a model of {width} columns")
    names = getattr(model, "feature_names_in_", None)
    columns = range(width) if names is None else names.tolist()
    table = pd.DataFrame(np.zeros((3, width)) + 0.5, columns=columns)
    if model.task_column is None:
        return table if names is not None else table.to_numpy()
    label = model.tasks_.tolist()[0]
    if isinstance(model.task_column, str):
        return table.astype(object).assign(**{model.task_column: [label] * 3})
    table = table.astype(object)
    table.iloc[:, model.task_column] = [label] * 3
    return table if names is not None else table.to_numpy()


def _spent(children: bool) -> float:
    """CPU seconds of this process, or of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Tally:
    """Outcomes by kind, failures with their cases, and what the slowest took; as JSON, so that a run can go on."""

    def __init__(self, before: dict[str, Any] | None = None):
        before = before or {"done": 0, "outcomes": {}, "slowest": {}, "failures": []}
        self.done: int = before["done"]
        self.outcomes: dict[str, Counter] = defaultdict(Counter, {k: Counter(n) for k, n in before["outcomes"].items()})
        self.slowest: dict[str, float] = defaultdict(float, before["slowest"])
        self.failures: list[dict[str, Any]] = list(before["failures"])

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("done", "outcomes", "slowest", "failures")}

    def judge(self, k: int, kind: str, judged: Callable[[], tuple[str, str]], children: bool = False) -> bool:
        """Judge one case, here or in child processes; whether it went well."""
        began = _spent(children)
        outcome, detail = judged()
        self.slowest[kind] = max(self.slowest[kind], round(_spent(children) - began, 2))
        self.outcomes[kind][outcome] += 1
        self.done += 1
        if outcome.startswith("FAILURE"):
            self.failures.append({"case": k, "kind": kind, "outcome": outcome, "detail": detail})
            return False
        return True

    def rows(self) -> list[dict[str, Any]]:
        names = sorted(self.outcomes)
        rows = [self._row(name, self.outcomes[name], self.slowest[name]) for name in names]
        total: Counter = sum((self.outcomes[name] for name in names), Counter())
        return [*rows, self._row("all", total, max(self.slowest.values(), default=0.0))]

    @staticmethod
    def _row(name: str, outcomes: Counter, slowest: float) -> dict[str, Any]:
        failures = sum(n for outcome, n in outcomes.items() if outcome.startswith("FAILURE"))
        counts = {LOADED: outcomes[LOADED], REFUSED: outcomes[REFUSED], "failures": failures}
        return {"kind": name, "cases": outcomes.total(), **counts, "slowest (CPU s)": slowest}


class Fuzzer:
    """Draws the cases of a seed, judges them in a folder, and keeps the files that fail."""

    def __init__(self, folder: Path, seed: int, failures: Path, largest: int = heavy_files.LARGEST):
        self.largest = largest  # bytes of a heavy file
        self.seed, self.failures, self.folder, self.mark = seed, failures, folder, folder / "mark"
        self.seeds = model_files.write_seeds(folder)
        self.changes = model_files.kinds(self.seeds, self.mark)
        self.model = table_files.write_model(folder)
        self.desk = folder / "desk"
        self.desk.mkdir()

    def judge_next(self, what: str, tally: Tally) -> None:
        """The next case of a kind of file, into its tally."""
        k = tally.done
        if what == "model files":
            kind, data = model_files.draw(self.seed, k, self.seeds, self.changes)
            good = tally.judge(k, kind, lambda: self._model(data))
        elif what == "tables":
            kind, data, options, command = table_files.draw(self.seed, k)
            good = tally.judge(k, kind, lambda: self._table(data, options, command))
        elif what == "heavy model files":
            kind, data = heavy_files.draw(self.seed, k, self.seeds, self.largest)
            good = tally.judge(k, kind, lambda: apart(lambda: self._model(data)), children=True)
        elif what == "heavy tables":
            kind, argv = self._heavy_table(k)
            tally.judge(k, kind, lambda: apart(lambda: judge_heavy_command(argv)), children=True)
            return
        else:  # one of each: too large to be kept, or to be drawn by the thousand
            kind, make = list(table_files.LARGE.items())[k]
            tally.judge(k, kind, lambda: self._table(make(), [], "fit"))
            return
        if not good:
            self._keep(f"{what.split()[0]}-{self.seed}-{k}", data)

    def _heavy_table(self, k: int) -> tuple[str, list[str]]:
        for left in self.desk.iterdir():
            left.unlink()
        return heavy_tables.draw(self.seed, k, self.desk / "t.csv", self.model, self.desk / "o.csv")

    def one(self, what: str, k: int) -> tuple[str, ...]:
        if what == "heavy-table":
            kind, argv = self._heavy_table(k)
            return kind, *argv, *apart(lambda: judge_heavy_command(argv))
        if what == "heavy":
            kind, data = heavy_files.draw(self.seed, k, self.seeds, self.largest)
            return kind, *apart(lambda: self._model(data))
        if what == "model":
            kind, data = model_files.draw(self.seed, k, self.seeds, self.changes)
            return kind, *self._model(data)
        kind, data, options, command = table_files.draw(self.seed, k)
        return kind, command, *options, *self._table(data, options, command)

    def _model(self, data: bytes) -> tuple[str, str]:
        path = self.desk / "m"
        path.write_bytes(data)
        try:
            return judge_model(path, self.mark)
        finally:
            path.unlink()

    def _table(self, data: bytes, options: list[str], command: str) -> tuple[str, str]:
        for left in self.desk.iterdir():
            left.unlink()
        return table_files.judge_table(self.desk, self.model, data, options, command)

    def _keep(self, name: str, data: bytes) -> None:
        self.failures.mkdir(parents=True, exist_ok=True)
        (self.failures / name).write_bytes(data)
