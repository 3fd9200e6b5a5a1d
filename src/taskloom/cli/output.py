"""Printed output of the commands: results to stdout, notes and progress to stderr."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..labels import plain

ENDLESS = 10_000  # columns where stdout is not a terminal: a file has no width


def number(value: float, sign: str = "") -> str:
    """A score with three digits; a dash for NaN."""
    return "-" if math.isnan(value) else f"{value:{sign}.3f}"


def percent(value: float) -> str:
    """A relative duality gap as a percentage."""
    if not math.isfinite(value):
        return "not proved"
    return f"{100 * value:.4f} %" if value < 1 else f"{100 * value:.0f} %"


def ended_well(certificate: Any) -> bool:
    """Whether a fit converged: the gap is within the tolerance, or (not convex) the point is stationary."""
    return certificate.status in ("optimal", "stationary")


def report_writer() -> Callable[..., Any]:
    """``write_report``; an error where a package for reports is missing, before any time is spent."""
    try:
        import jinja2  # noqa: F401

        from ..report import write_report
    except ImportError as error:
        raise ImportError(f'reports need {error.name}: python -m pip install "taskloom[report]"') from None
    return write_report


class Output:
    """The streams of a command."""

    def __init__(self, quiet: bool = False, as_json: bool = False):
        self.quiet, self.as_json = quiet, as_json
        self.out = Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else ENDLESS)
        self.err = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """A remark, to stderr; also part of the JSON result."""
        self.notes.append(text)
        if not self.quiet:
            self.err.print(plain(text), style="dim", soft_wrap=True)

    def say(self, *lines: str) -> None:
        """Lines of the result."""
        for text in lines if not self.as_json else ():
            self.out.print(plain(text), soft_wrap=True)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Text in the first column, right-aligned numbers in the others."""
        if self.as_json:
            return
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for k, (name, *cells) in enumerate(zip(columns, *rows, strict=True)):
            if k == 0:  # on a narrow terminal text is folded, never numbers
                table.add_column(Text(name, style="bold"), overflow="fold")
            else:
                width = max(len(plain(cell)) for cell in (name, *cells))
                table.add_column(Text(name, style="bold"), justify="right", no_wrap=True, min_width=width)
        for row in rows:
            table.add_row(*(Text(plain(cell)) for cell in row))
        self.out.print(table)

    def result(self, value: dict[str, Any]) -> None:
        """The whole result as JSON, where that was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(jsonable(value | {"notes": self.notes}), indent=2) + "\n")

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[Progress]:
        """A progress bar, shown on a terminal; warnings of the fit become notes."""
        words, folds = TextColumn("{task.description}"), TextColumn("folds")
        columns = (words, BarColumn(), MofNCompleteColumn(), folds, TimeElapsedColumn())
        bar = Progress(*columns, console=self.err, transient=True)
        bar.add_task(title, total=total)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with nullcontext() if self.quiet or not self.err.is_terminal else bar:
                yield bar
        for text in dict.fromkeys(" ".join(str(entry.message).split()) for entry in caught):
            self.note(f"note: {text}")


class FoldProgress:
    """A scikit-learn callback that advances a progress bar by one step per fold."""

    def __init__(self, bar: Progress):
        self.bar = bar
        self.settings = 0

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
        elif context.task_name == "setting":  # of alpha and weights, each on all folds
            self.settings += 1
            self.bar.update(self.bar.task_ids[-1], description=f"settings tried: {self.settings}")
        return False


def jsonable(value: Any) -> Any:
    """Values that JSON can hold: arrays as lists, NaN and infinity as null, other objects as text."""
    if isinstance(value, dict):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [jsonable(entry) for entry in (value.tolist() if isinstance(value, np.ndarray) else value)]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def print_gains(output: Output, transfer: dict[str, Any], everything: bool, score: str) -> None:
    """Single-task and multi-task score of each task, largest gain first; of many tasks the first and the last."""
    gain = np.asarray(transfer["gain"], dtype=float)
    order = np.argsort(np.where(np.isnan(gain), np.inf, -gain), kind="stable")
    columns = ("alone", "together", "gain", "standard_error")
    rows = [
        (str(transfer["task"][t]), *(number(transfer[name][t], "+" if name == "gain" else "") for name in columns))
        for t in order
    ]
    ends = 8
    if len(rows) > 2 * ends + 4 and not everything:
        rows[ends:-ends] = [(f"... {len(rows) - 2 * ends} more (--all-tasks)", "", "", "", "")]
    output.table(("task", f"single-task {score}", "multi-task", "gain", "std. error"), rows)
    seen = gain[~np.isnan(gain)]
    if seen.size == 0:
        return
    error = f" (standard error over tasks {seen.std(ddof=1) / math.sqrt(seen.size):.3f})" if seen.size > 1 else ""
    output.say(
        f"mean: {np.nanmean(transfer['alone']):.3f} single-task, {np.nanmean(transfer['together']):.3f} multi-task, gain "
        f"{seen.mean():+.3f}{error}; {int((seen > 0).sum())} of {seen.size} tasks gain"
    )
