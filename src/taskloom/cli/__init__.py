"""The command ``taskloom``. This module stays light: ``--help`` must not wait for NumPy."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

FAILED, USAGE, NOT_PROVED, INTERRUPTED = 1, 2, 3, 130  # exit codes; 0 is success


class Interrupted(BaseException):
    """Ctrl-C. Not a ``KeyboardInterrupt``: solvers answer that one with their best iterate, and the command would go on."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line in a process of its own, and leave with its exit code."""
    from .postponed import postpone_imports

    postpone_imports()
    sys.exit(run(sys.argv[1:] if argv is None else argv))


def run(argv: Sequence[str]) -> int:
    """Run a command and return its exit code; an error is one sentence, and a traceback with ``--debug``."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name that the terminal cannot show is escaped, not an error
            stream.reconfigure(errors="backslashreplace")
    try:
        import click

        from .app import app
    except ImportError as error:
        if (error.name or "").split(".")[0] not in ("click", "rich"):
            raise
        return _fail('the command line needs click and rich: python -m pip install "taskloom[cli]"')
    try:
        with _interruptible():
            code = int(app.main(args=list(argv), prog_name="taskloom", standalone_mode=False) or 0)
            sys.stdout.flush()  # a full disk shows here, not when Python ends
            return code
    except click.UsageError as error:
        error.show()
        return USAGE
    except (Interrupted, KeyboardInterrupt, click.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has gone
        _drop_output()
        return FAILED
    except Exception as error:
        if "--debug" in argv:
            raise
        if isinstance(error, OSError):
            _drop_output()
        return _fail(sentence(error))


def _drop_output() -> None:
    """Discard buffered output that cannot be written: Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


REMEDIES = (  # as messages name them for Python, and for the command line
    ('Add it with add_task, or set unseen="mean" to predict', "Pass --unseen mean to predict it"),
    ("use MultiTaskClassifier for labels", "pass --classify for labels"),
    ("with unseen='auto' the term adds", "without --unseen raise its term adds"),
    (" or a Structure object", ""),
)


def sentence(error: Exception) -> str:
    """The error message in one line."""
    text = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    if isinstance(error, MemoryError):
        return f"not enough memory{': ' + text if text else ''}"
    if isinstance(error, (ValueError, OSError, ImportError)) or type(error).__module__.startswith("click"):
        text = getattr(error, "message", None) or text or type(error).__name__
        for python, command_line in REMEDIES:
            text = text.replace(python, command_line)
        return text
    return f"unexpected {type(error).__name__}: {text} (run again with --debug for the traceback)"


def _fail(text: str, code: int = FAILED) -> int:
    from ..labels import plain, shorten  # a sentence may quote a cell of a megabyte, or one that clears the screen

    sys.stderr.write(f"taskloom: {shorten(plain(text), 1000)}\n")
    return code


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the command at once, also inside a solve."""

    def stop(*_: Any) -> None:
        raise Interrupted

    try:
        before = signal.signal(signal.SIGINT, stop)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
