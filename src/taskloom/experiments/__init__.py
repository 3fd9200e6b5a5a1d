"""The paper's experiments, end to end: ``reproduce("sarcos")``, or ``python -m taskloom.experiments sarcos``."""

from __future__ import annotations

from .runner import EXPERIMENTS, reproduce

__all__ = ["EXPERIMENTS", "reproduce"]
