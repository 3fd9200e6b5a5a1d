"""A time limit that long computations look at: ``check_time`` inside their loops raises where it has passed.

The limit travels in a context variable, so that a loop far below a fit needs no argument for it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))


class TimeLimitError(TimeoutError):
    """The time limit of a fit has passed. A solve catches it and returns its best point."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Limit the time of everything inside; a limit around this one still holds."""
    if seconds is None:
        yield
        return
    token = _deadline.set(min(_deadline.get(), time.perf_counter() + seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def time_is_up() -> bool:
    """Whether the time limit has passed."""
    return time.perf_counter() >= _deadline.get()


def check_time() -> None:
    """Raise ``TimeLimitError`` if the time limit has passed."""
    if time_is_up():
        raise TimeLimitError("time_limit was reached before a first iterate was found; raise time_limit")


@contextmanager
def no_time_limit() -> Iterator[None]:
    """Inside, no limit holds: for the last certificate of a fit whose time is up."""
    token = _deadline.set(float("inf"))
    try:
        yield
    finally:
        _deadline.reset(token)


def remaining_time() -> float | None:
    """Seconds until the time limit, for calls that wait; ``None`` without one."""
    left = _deadline.get() - time.perf_counter()
    return None if left == float("inf") else max(left, 0.0)
