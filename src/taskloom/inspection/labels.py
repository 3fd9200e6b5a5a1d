"""Task labels as text for people: one line, no control characters, never two alike."""

from __future__ import annotations

import unicodedata
from collections import Counter
from typing import Any


def display_names(tasks: Any, limit: int = 120) -> list[str]:
    """One readable text for each task label, at most ``limit`` characters long; labels that would read alike are told apart."""
    labels = tasks.tolist() if hasattr(tasks, "tolist") else list(tasks)
    texts = [clean_text(str(label)) for label in labels]
    taken = Counter(texts)
    texts = [clean_text(repr(label)) if taken[text] > 1 else text for label, text in zip(labels, texts, strict=True)]
    short = [shorten(text, limit) for text in texts]
    taken = Counter(short)
    return [f"{shorten(text, limit - 6)} #{k}" if taken[text] > 1 else text for k, text in enumerate(short)]


def plain(label: Any) -> str:
    """A name as a terminal may show it: what would move its cursor, or is half a character, is escaped."""
    text = str(label)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shorten(text: str, limit: int) -> str:
    """The beginning and the end of a text that is longer than ``limit``."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 3
    return f"{text[: limit - 1 - tail].rstrip()}…{text[len(text) - tail :].lstrip()}"


def clean_text(text: str) -> str:
    """On one line; what cannot be printed (control characters, halves of characters) becomes a replacement sign."""
    spaced = " ".join(text.split())
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c for c in spaced) or "(no name)"
