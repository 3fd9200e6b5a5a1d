"""Progress on the console: a bar in a terminal with rich installed, lines otherwise."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import log
from typing import Any

from ..estimators.callbacks import show
from ..problem.solution import History

Report = Callable[[History, float], bool | None]  # the history and the relative gap; True stops the fit


@contextmanager
def progress_report(progress: Any, tol: float) -> Iterator[Report]:
    """``progress`` is True, False, or a callable of the history."""
    if callable(progress):
        yield lambda history, _: progress(history)
    elif not progress:
        yield lambda *_: None
    elif sys.stderr.isatty() and find_spec("rich"):
        with _bar(tol) as report:
            yield report
    else:
        yield _line


def _line(history: History, gap: float) -> None:
    if line := show(history):
        sys.stderr.write(f"{line}   (relative gap {gap:.1e})\n")
        sys.stderr.flush()


@contextmanager
def _bar(tol: float) -> Iterator[Report]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("taskloom: reading", total=1.0)

        def report(history: History, gap: float) -> None:
            share = log(min(gap, 1.0)) / log(tol) if 0 < tol < 1 and gap > 0 else 0.0  # of the decades from 1 to tol
            text = f"taskloom: iteration {len(history)}, relative gap {gap:.1e}"
            bar.update(line, completed=min(max(share, 0.0), 1.0), description=text)

        yield report
