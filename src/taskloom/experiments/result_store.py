"""Finished results, on disk after each unit of work, so that a run can be interrupted and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..persistence import atomic_write


class ResultStore:
    """Results by the name of their unit, in one JSON file that is replaced atomically; a different key discards them."""

    def __init__(self, path: Path, key: dict[str, Any]):
        self.path, self.key = path, json.loads(json.dumps(key))
        self.done: dict[str, Any] = {}
        if path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["key"] == self.key:
                self.done = kept["done"]

    def add(self, unit: str, result: Any) -> None:
        self.done[unit] = result
        write_atomically(self.path, json.dumps({"key": self.key, "done": self.done}))


def write_atomically(path: Path, text: str) -> None:
    """Write a text file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.encode("utf-8"))
