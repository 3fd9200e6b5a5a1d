"""Runs an experiment: units of work, a store of finished results, a record, a table, a plot."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from joblib import Parallel, delayed
from threadpoolctl import threadpool_limits

from taskloom import __version__

from ..datasets import get_data_home
from ..persistence import atomic_path, atomic_write
from ..versions import versions
from . import fig1, sarcos, scenes, school
from .process_pool import end_with_parent

Unit = dict[str, Any]
Report = Callable[[int, int, str], None]  # units done, units in all, what was done last


class Experiment(Protocol):
    """The interface of the experiment modules in this folder."""

    TITLE: str

    def settings(self, quick: bool, repetitions: int | None) -> dict[str, Any]: ...

    def units(self, settings: dict[str, Any]) -> list[Unit]: ...

    def measure(self, unit: Unit, settings: dict[str, Any], folder: Path) -> dict[str, Any]: ...

    def summarise(self, settings: dict[str, Any], done: list[tuple[Unit, dict[str, Any]]]) -> dict[str, Any]: ...

    def table(self, record: dict[str, Any]) -> tuple[str, list[list[Any]]]: ...

    def draw(self, record: dict[str, Any], figure: Any) -> None: ...


EXPERIMENTS: dict[str, Any] = {"fig1": fig1, "sarcos": sarcos, "scenes": scenes, "school": school}


def reproduce(
    name: str,
    data: str | os.PathLike | None = None,
    output: str | os.PathLike | None = None,
    quick: bool = False,
    *,
    repetitions: int | None = None,
    n_jobs: int | None = None,
    progress: Report | None = None,
    verbose: bool = True,
) -> dict[str, Any]:
    """Run an experiment of the paper and write its results beside the printed ones.

    Writes ``NAME.md``, ``NAME.csv``, ``NAME.json``, ``NAME.png`` and ``NAME.svg`` (plots need matplotlib) into the output
    folder. Finished repetitions are kept in ``NAME.results.json`` there: an interrupted run is resumed, as long as settings
    and version are the same.

    Parameters
    ----------
    name : {"fig1", "sarcos", "scenes", "school"}
        The experiment.
    data : path, default=None
        The folder of the data sets (see :func:`taskloom.datasets.get_data_home`).
    output : path, default=None
        ``None`` is ``reproduced/NAME`` in the current folder.
    quick : bool, default=False
        All sizes, fewer repetitions and values of alpha: at most two minutes on two cores.
    repetitions : int, default=None
        Number of repetitions.
    n_jobs : int, default=None
        Processes for the repetitions; ``None`` is the number of cores, at most 4. Times are always measured one by one.
    progress : callable, default=None
        Called with the units done, the units in all and a text; ``None`` shows a bar (rich) or lines on stderr.
    verbose : bool, default=True
        Whether to show progress and print the table.

    Returns
    -------
    dict
        The record that the JSON file holds.
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"there is no experiment {name!r}; there are {sorted(EXPERIMENTS)}")
    if repetitions is not None and repetitions < 1:
        raise ValueError(f"repetitions must be at least 1, got {repetitions!r}")
    experiment: Experiment = EXPERIMENTS[name]
    folder, target = get_data_home(data), Path(output) if output is not None else Path("reproduced") / name
    settings = experiment.settings(quick, repetitions)
    same = {key: value for key, value in settings.items() if not key.startswith("repetitions")}  # more of them resume the run
    store = ResultStore(target / f"{name}.results.json", {"experiment": name, "version": __version__, "settings": same})
    units = experiment.units(settings)
    began = time.perf_counter()
    manner = nullcontext(progress) if progress is not None else _shown(name) if verbose else nullcontext(lambda *_: None)
    with manner as report:
        _work(experiment, settings, units, folder, store, 1 if name == "fig1" else n_jobs, report)
    record: dict[str, Any] = {
        "experiment": name,
        "title": experiment.TITLE,
        "quick": quick,
        "command": f"taskloom reproduce {name}{' --quick' * quick}{f' --repetitions {repetitions}' if repetitions else ''}",
        "versions": versions(),
        "settings": settings,
        "seconds_of_this_run": round(time.perf_counter() - began, 1),
        **experiment.summarise(settings, [(unit, store.done[unit_name(unit)]) for unit in units]),
    }
    text, rows = experiment.table(record)
    write_atomically(target / f"{name}.json", json.dumps(record, indent=1))
    write_atomically(target / f"{name}.md", f"# {experiment.TITLE}\n\n`{record['command']}`\n\n{text}\n")
    write_atomically(target / f"{name}.csv", _as_csv(rows))
    drawn = _plot(experiment, record, target / name)
    if verbose:
        sys.stdout.write(f"{text}\n\nWritten to {target}{'' if drawn else ' (no plot: matplotlib is not installed)'}\n")
    return record


class ResultStore:
    """Finished results, on disk after each unit of work, so that a run can be interrupted and resumed.

    They are kept by the name of their unit, in one JSON file that is replaced atomically; a different key discards them.
    """

    def __init__(self, path: Path, key: dict[str, Any]):
        self.path, self.key = path, json.loads(json.dumps(key))
        self.done: dict[str, Any] = {}
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["key"] == self.key:
                self.done = kept["done"]

    def add(self, unit: str, result: Any) -> None:
        self.done[unit] = result
        write_atomically(self.path, json.dumps({"key": self.key, "done": self.done}))


def write_atomically(path: Path, text: str) -> None:
    """Write a text file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.encode("utf-8"))


@contextmanager
def _shown(title: str) -> Iterator[Report]:
    """Progress: a bar on a terminal where rich is installed, lines on stderr otherwise."""
    if sys.stderr.isatty() and find_spec("rich"):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            line = bar.add_task(title, total=None)
            yield lambda done, total, text: bar.update(line, completed=done, total=total, description=f"{title}: {text}")
    else:
        began = time.perf_counter()

        def write(done: int, total: int, text: str) -> None:
            sys.stderr.write(f"{title}: {done} of {total}, {text} ({time.perf_counter() - began:.0f} s)\n")
            sys.stderr.flush()

        yield write


def _as_csv(rows: list[list[Any]]) -> str:
    """Cells with commas in them (``STL, one strength``) are quoted."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def unit_name(unit: Unit) -> str:
    return ", ".join(f"{key} {value}" for key, value in unit.items())


def _work(
    experiment: Any, settings: dict, units: list[Unit], folder: Path, store: ResultStore, n_jobs: int | None, report: Report
) -> None:
    """Run the units that are not in the store; every result is on disk before the next one."""
    todo = [unit for unit in units if unit_name(unit) not in store.done]
    if len(todo) < len(units):
        report(len(units) - len(todo), len(units), "already done")
    jobs = min(n_jobs or min(os.cpu_count() or 1, 4), max(len(todo), 1))
    if jobs == 1:
        results = (_one(experiment.measure, unit, settings, folder) for unit in todo)
    else:
        pool = Parallel(n_jobs=jobs, return_as="generator_unordered", initializer=end_with_parent, initargs=(os.getpid(),))
        results = pool(delayed(_one)(experiment.measure, unit, settings, folder) for unit in todo)
    for unit, result in results:
        store.add(unit_name(unit), result)
        report(sum(unit_name(one) in store.done for one in units), len(units), unit_name(unit))


def _one(measure: Callable, unit: Unit, settings: dict, folder: Path) -> tuple[Unit, dict]:
    """One unit with one BLAS thread: the matrices are small, and times should not depend on the number of threads."""
    with threadpool_limits(1):
        return unit, measure(unit, settings, folder)


def _plot(experiment: Any, record: dict, path: Path) -> bool:
    """Write PNG and SVG; returns whether matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    figure = Figure(figsize=(9, 4), layout="constrained")
    experiment.draw(record, figure)
    for form in ("png", "svg"):
        with atomic_path(path.with_name(f"{path.name}.{form}")) as temporary:
            figure.savefig(temporary, dpi=120, format=form)
    return True
