"""Task labels as text: one line, no control characters, unique."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Any


def display_names(tasks: Any, limit: int = 120) -> list[str]:
    """A unique text for each task label, at most ``limit`` characters long."""
    labels = tasks.tolist() if hasattr(tasks, "tolist") else list(tasks)
    texts = [clean_text(str(label)) for label in labels]
    taken = Counter(texts)
    texts = [clean_text(repr(label)) if taken[text] > 1 else text for label, text in zip(labels, texts, strict=True)]
    short = [shorten(text, limit) for text in texts]
    taken = Counter(short)
    return [f"{shorten(text, limit - 6)} #{k}" if taken[text] > 1 else text for k, text in enumerate(short)]


def plain(label: Any) -> str:
    """A text that is safe for a terminal: control characters and lone surrogates are escaped."""
    text = str(label)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a text that is longer than ``limit``."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 3
    return f"{text[: limit - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


def clean_text(text: str) -> str:
    """On one line; control characters and lone surrogates become the replacement character."""
    spaced = " ".join(text.split())
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c for c in spaced) or "(no name)"
