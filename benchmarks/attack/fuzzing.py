"""Judging what becomes of a file: it is used, or refused in one sentence; nothing runs, nothing grows, nothing takes long."""

from __future__ import annotations

import io
import resource
import sys
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline

import taskloom
from taskloom import ModelFileError, cli

from .check import TooSlow, limited
from .model_files import frame

LOADED, REFUSED = "used", "refused"
SECONDS = 10.0  # CPU time of one case
ROOM = 2 << 30  # bytes of address space that all cases together may add
LONGEST = 1200  # characters of a sentence


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


def _load_and_predict(path: Path) -> tuple[str, str]:
    try:
        model = taskloom.load(path)
    except ModelFileError as error:
        return (REFUSED, str(error)) if is_sentence(str(error)) else ("FAILURE(no sentence)", str(error)[:300])
    try:
        rows = rows_for(model)
        found = model.predict(rows)
        if getattr(model, "_training", None) is not None:
            model.predict(rows, return_std=True)
    except ValueError as error:
        return (LOADED, f"predict refuses: {error}") if meant(error) else ("FAILURE(predict)", fault(error))
    if not np.asarray(found).size:
        return "FAILURE(predict)", "no predictions"
    outcome, detail = judge_command(["inspect", str(path)])
    return (LOADED, detail) if outcome in (LOADED, REFUSED) else (outcome, detail)


def judge_command(argv: list[str]) -> tuple[str, str]:
    """What the command line makes of it: a result, or one sentence on stderr and an exit code that says so."""
    said, wrote = io.StringIO(), io.StringIO()
    with redirect_stderr(said), redirect_stdout(wrote):
        code = cli.run(argv)
    text = said.getvalue()
    if code in (0, cli.NOT_PROVED):
        return LOADED, ""
    if code == cli.USAGE:
        return (REFUSED, text) if text.startswith("Usage:") else ("FAILURE(usage)", text[:300])
    line = text.removeprefix("taskloom: ").removesuffix("\n")
    if code != cli.FAILED or line.startswith("unexpected") or not text.startswith("taskloom: ") or not is_sentence(line):
        return "FAILURE(no sentence)", f"exit code {code}: {text[:300]!r}"
    return REFUSED, line


def rows_for(model: Any) -> Any:
    """Rows that a model should be able to predict."""
    if isinstance(model, Pipeline):
        return frame()
    width = model.n_features_in_
    if width > 1000:
        raise AssertionError(f"a file of few bytes gave a model of {width} columns")
    names = getattr(model, "feature_names_in_", None)
    columns = range(width) if names is None else names.tolist()
    table = pd.DataFrame(np.zeros((3, width)) + 0.5, columns=columns)
    if model.task_column is None:
        return table if names is not None else table.to_numpy()
    label = model.tasks_.tolist()[0]
    if names is not None:
        return table.astype(object).assign(**{model.task_column: [label] * 3})
    table = table.astype(object)
    table.iloc[:, model.task_column] = [label] * 3
    return table.to_numpy()


def is_sentence(text: str) -> bool:
    """One line that a person can read: not empty, not endless, nothing that moves the cursor of a terminal."""
    return bool(text) and text.isprintable() and len(text) <= LONGEST


def meant(error: BaseException) -> bool:
    """Whether a check of taskloom's or scikit-learn's raised it, and not arithmetic that went astray."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    raised = "raise" in (last.line or "") or "sklearn" in last.filename
    return is_sentence(str(error)) and raised and ("taskloom" in last.filename or "sklearn" in last.filename)


def fault(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(last.filename).name}:{last.lineno}: {' '.join(str(error).split())[:200]}"


@dataclass
class Tally:
    """Outcomes by kind, failures with their cases, and what the slowest and the largest case took."""

    outcomes: dict[str, Counter] = field(default_factory=lambda: defaultdict(Counter))
    failures: list[dict[str, Any]] = field(default_factory=list)
    sentences: Counter = field(default_factory=Counter)
    slowest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    seconds: float = 0.0

    def judge(self, k: int, kind: str, judged: Callable[[], tuple[str, str]]) -> bool:
        """Judge one case; whether it went well."""
        began = time.process_time()
        outcome, detail = judged()
        took = time.process_time() - began
        self.seconds += took
        self.slowest[kind] = max(self.slowest[kind], took)
        self.outcomes[kind][outcome] += 1
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
        return {"kind": name, "cases": outcomes.total(), **counts, "slowest (CPU s)": round(slowest, 2)}


def remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()
