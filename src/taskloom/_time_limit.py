"""A time limit that long computations look at: ``check_time`` inside their loops raises where it has passed.

The limit travels in a context variable, so that a loop far below a fit needs no argument for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple


class _Limit(NamedTuple):
    deadline: float = float("inf")
    raises: bool = True  # False while a fit whose time is up makes its last certificate


_limit: ContextVar[_Limit] = ContextVar("limit", default=_Limit())  # noqa: B039  (immutable)


class TimeLimitError(TimeoutError):
    """The time limit of a fit has passed. A solve catches it and returns its best point."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Limit the time of everything inside; a limit around this one still holds."""
    now = _limit.get()
    token = _limit.set(now if seconds is None else now._replace(deadline=min(now.deadline, time.perf_counter() + seconds)))
    try:
        yield
    finally:
        _limit.reset(token)


@contextmanager
def no_time_limit() -> Iterator[None]:
    """Inside, nothing raises: for the last certificate of a fit whose time is up. ``time_is_up`` still tells."""
    token = _limit.set(_limit.get()._replace(raises=False))
    try:
        yield
    finally:
        _limit.reset(token)


def time_is_up() -> bool:
    """Whether the time limit has passed."""
    return time.perf_counter() >= _limit.get().deadline


def check_time() -> None:
    """Raise ``TimeLimitError`` if the time limit has passed."""
    deadline, raises = _limit.get()
    if raises and time.perf_counter() >= deadline:
        raise TimeLimitError("time_limit was reached before a first iterate was found; raise time_limit")


def remaining_time() -> float | None:
    """Seconds until the time limit, for calls that wait; ``None`` without one."""
    deadline, raises = _limit.get()
    return max(deadline - time.perf_counter(), 0.0) if raises and deadline < float("inf") else None


def within_limit(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a long call into LAPACK or BLAS, which cannot be interrupted.

    Under a time limit it runs in a thread. If the limit passes first, that thread is left behind and ends on its own.
    """
    seconds = remaining_time()
    if seconds is None:
        return function(*arguments)
    outcome: dict[str, Any] = {}

    def call() -> None:
        try:
            outcome["result"] = function(*arguments)
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=call)  # not a daemon: LAPACK must not lose its arrays when the interpreter ends
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        check_time()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]
