"""Immutable values with properties that are computed once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class Value:
    """Base of frozen dataclasses with ``cached_property``: a pickle holds the fields and nothing that follows from them."""

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: self.__dict__[field.name] for field in fields(self)}  # type: ignore[arg-type]
