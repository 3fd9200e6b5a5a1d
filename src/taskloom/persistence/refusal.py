"""The error of a file that cannot be used."""

from __future__ import annotations

from ..labels import plain, shorten

LONGEST = 1000  # characters of a message


class ModelFileError(ValueError):
    """A model file that cannot be used, or a model that cannot be put into one; the message says why.

    It may quote the file, so it is made safe for a terminal: short, on one line, and without control characters.
    """

    def __init__(self, message: str):
        super().__init__(shorten(plain(shorten(message, LONGEST)), LONGEST))


def check(condition: bool, message: str) -> None:
    """Refuse a file in one sentence."""
    if not condition:
        raise ModelFileError(message)
