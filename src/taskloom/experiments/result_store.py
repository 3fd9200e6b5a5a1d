"""What has been done already: one result for each unit of work, on disk after every unit, so that a run can be stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..persistence import atomic_write


class Ledger:
    """Results by the name of their unit, in one JSON file that is replaced as a whole; another key starts it anew."""

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
    """Either the old file or the new one, never a half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, text.encode("utf-8"))
