"""What a row of the table is: a problem, its bar, and how both are measured in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"  # beside the repository; none of it is in here


@dataclass(frozen=True)
class Measured:
    """CPU seconds of the problem and of its neighbour in the same process, and how many times the neighbour it may take."""

    seconds: float
    neighbour: float  # CPU seconds of the neighbour; 1.0 where the bar is in seconds
    factor: float  # the bar: seconds <= factor * neighbour
    note: str = ""  # what was proved, peak memory, what the neighbour is
    also: bool = True  # whether what else the bar asks for holds (a gap, a limit of memory)

    @property
    def met(self) -> bool:
        return self.also and self.seconds <= self.factor * self.neighbour


@dataclass(frozen=True)
class Row:
    """One row: the problem, what the issue measured, the bar in words, and the measurement."""

    problem: str
    before: str
    bar: str
    measure: Callable[[], Measured]


def cpu(work: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """The least CPU seconds (user and system) of this process over the repeats, and what the work gave."""
    least, found = float("inf"), None
    for _ in range(repeats):
        began = time.process_time()
        found = work()
        least = min(least, time.process_time() - began)
    return least, found
