"""What a block of levels of the eliminated term gives to a fit from moments."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from .observations import Value

Array = np.ndarray


class LevelBlock(Value, ABC):
    """Some of the levels, with what remains of their rows."""

    levels: Array | slice

    @abstractmethod
    def along(self, t: Array) -> Array:
        """``X'VYt`` (``k x levels``)."""

    @abstractmethod
    def curved(self, W: Array) -> Array:
        """``X'VXW`` (``k x levels``)."""

    @abstractmethod
    def cross(self, W: Array) -> Array:
        """``Y'V XW``, added over the levels."""

    @abstractmethod
    def at(self, root: Array) -> LevelSystems:
        """The systems at a root of the metric (``k x q``)."""


class LevelSystems(ABC):
    """``A = I + 2 L'X'VXL`` for each level."""

    schur: Array  # twice Y'VX L A^-1 L'X'VY, added over the levels

    @abstractmethod
    def solve(self, r: Array) -> Array:
        """``A^-1 r`` for every level (``q x levels``)."""
