"""The report writer, where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def report_writer() -> Callable[..., Any]:
    """``write_report``, or an error that says what is missing, before any time is spent."""
    try:
        return import_module("taskloom.report").write_report
    except ImportError as error:
        if error.name == "taskloom.report":
            raise ImportError("this version of taskloom has no report writer") from None
        raise ImportError(f'reports need {error.name}: python -m pip install "taskloom[report]"') from None
