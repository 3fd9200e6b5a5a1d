"""What a refusal must look like: one sentence that was meant for a user."""

from __future__ import annotations

import io
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from taskloom import cli

LOADED, REFUSED = "used", "refused"
SECONDS = 10.0  # CPU time of one case
LONGEST = 1200  # characters of a sentence


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
    return ("FAILURE(memory)" if line.startswith("not enough memory") else REFUSED), line


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
