"""One self-contained HTML page about a fitted model; needs the extra ``taskloom[report]``."""

from .page import render_report, write_report

__all__ = ["render_report", "write_report"]
