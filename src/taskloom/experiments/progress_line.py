"""Progress: a bar on a terminal where rich is installed, lines on stderr otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

Report = Callable[[int, int, str], None]  # units done, units in all, what was done last


@contextmanager
def shown(title: str) -> Iterator[Report]:
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
