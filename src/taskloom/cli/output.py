"""What the commands print: notes and progress to stderr, results to stdout."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..inspection.labels import plain

ENDLESS = 10_000  # columns of what is not a terminal: a file has no edge at which numbers would have to be cut


def number(value: float, digits: int = 3) -> str:
    """A score; a dash where there is none."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def percent(value: float) -> str:
    """A relative gap as people read it."""
    if not math.isfinite(value):
        return "not proved"
    return f"{100 * value:.4f} %" if value < 1 else f"{100 * value:.0f} %"


def ended_well(certificate: Any) -> bool:
    """Whether a fit got as far as can be told: within its tolerance, or, where the problem is not convex, at rest."""
    return certificate.status in ("optimal", "stationary")


class Output:
    """Where a command says what it found."""

    def __init__(self, quiet: bool = False, as_json: bool = False):
        self.quiet, self.as_json = quiet, as_json
        self.out = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else ENDLESS)
        self.err = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Something worth knowing on the way."""
        self.notes.append(text)
        if not self.quiet:
            self.err.print(plain(text), style="dim", soft_wrap=True)

    def say(self, text: str = "") -> None:
        """A part of the result, for people."""
        if not self.as_json:
            self.out.print(plain(text) if text else "", soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
        """Words on the left, numbers on the right."""
        if self.as_json:
            return
        table = Table(
            title=None if title is None else Text(title), title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0)
        )
        for k, (name, *cells) in enumerate(zip(columns, *rows, strict=True)):
            if k == 0:  # on a narrow terminal words are folded, never numbers
                table.add_column(Text(name, style="bold"), overflow="fold")
            else:
                width = max(len(plain(cell)) for cell in (name, *cells))
                table.add_column(Text(name, style="bold"), justify="right", no_wrap=True, min_width=width)
        for row in rows:
            table.add_row(*(Text(plain(cell)) for cell in row))
        self.out.print(table)

    def result(self, value: dict[str, Any]) -> None:
        """The whole result, for programs."""
        if self.as_json:
            sys.stdout.write(json.dumps(jsonable(value | {"notes": self.notes}), indent=2) + "\n")

    @contextmanager
    def progress(self, title: str, total: int | None, unit: str = "folds") -> Iterator[Progress | None]:
        """A bar on a terminal, nothing elsewhere; warnings of the fit become notes."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if self.quiet or not self.err.is_terminal:
                yield None
            else:
                columns = (
                    TextColumn("{task.description}"),
                    BarColumn(),
                    MofNCompleteColumn(),
                    TextColumn(unit),
                    TimeElapsedColumn(),
                )
                with Progress(*columns, console=self.err, transient=True) as bar:
                    bar.add_task(title, total=total)
                    yield bar
        for text in dict.fromkeys(" ".join(str(entry.message).split()) for entry in caught):
            self.note(f"note: {text}")


class Watcher:
    """scikit-learn's callbacks to a progress bar: a step for each fold."""

    def __init__(self, bar: Progress):
        self.bar = bar

    def setup(self, estimator: Any, context: Any) -> None:
        """Nothing to prepare."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Nothing to clean up."""

    def on_fit_task_begin(self, estimator: Any, context: Any, **_: Any) -> None:
        if context.task_name == "refit":
            self.bar.update(self.bar.task_ids[-1], description="fitting all rows")

    def on_fit_task_end(self, estimator: Any, context: Any, **_: Any) -> bool:
        if context.task_name == "fold":
            self.bar.advance(self.bar.task_ids[-1])
        return False


def watched(estimator: Any, bar: Progress | None) -> Any:
    """The estimator, reporting to the bar if there is one."""
    return estimator if bar is None else estimator.set_callbacks(Watcher(bar))


def jsonable(value: Any) -> Any:
    """Values as JSON has them: arrays are lists, what is no number is null, names are texts."""
    if isinstance(value, dict):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [jsonable(entry) for entry in (value.tolist() if isinstance(value, np.ndarray) else value)]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def ledger(output: Output, transfer: dict[str, Any], everything: bool, score: str) -> None:
    """Each task's score alone and together, the largest gains first; of many tasks the ends."""
    gain = np.asarray(transfer["gain"], dtype=float)
    order = np.argsort(np.where(np.isnan(gain), np.inf, -gain), kind="stable")
    names = list(transfer["task"])
    rows = [
        (
            plain(names[t]),
            number(transfer["alone"][t]),
            number(transfer["together"][t]),
            f"{gain[t]:+.3f}" if not math.isnan(gain[t]) else "-",
            number(transfer["standard_error"][t]) if "standard_error" in transfer else "-",
        )
        for t in order
    ]
    ends = 8
    if len(rows) > 2 * ends + 4 and not everything:
        left = len(rows) - 2 * ends
        rows = [*rows[:ends], (f"... {left} more (--all-tasks)", "", "", "", ""), *rows[-ends:]]
    output.table(("task", f"{score} alone", "together", "gain", "std. error"), rows)
    if np.isnan(gain).all():
        return
    seen = gain[~np.isnan(gain)]
    spread = f" (standard error over tasks {seen.std(ddof=1) / math.sqrt(seen.size):.3f})" if seen.size > 1 else ""
    output.say(
        f"mean: {np.nanmean(transfer['alone']):.3f} alone, {np.nanmean(transfer['together']):.3f} together, gain "
        f"{seen.mean():+.3f}{spread}; {int((seen > 0).sum())} of {seen.size} tasks gain"
    )
