"""A loss of its own for each task: observations know which of several losses is theirs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from .base import Array, Loss


@dataclass(eq=False, repr=False)
class Mixed(Loss):
    """``l_k(y, z)`` with ``k = which`` of each observation; ``y`` and ``z`` come in the shape of ``which``.

    Losses are entrywise and so are their conjugates, so nothing in the certificate has to know that they differ. Tasks
    whose losses are measured in different units are weighed by ``task_weight``, not here.
    """

    parts: list[Loss]
    which: Array
    targets: ClassVar[Literal["numbers", "signs", "mixed"]] = "mixed"

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        return all(part.smooth for part in self.parts)

    @property
    def is_surrogate(self) -> bool:  # type: ignore[override]
        return any(part.is_surrogate for part in self.parts)

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        return max(part.max_curvature for _, part in self.pieces)

    @property
    def proof(self) -> str:  # type: ignore[override]
        return next((part.proof for part in self.parts if part.proof), "")

    @cached_property
    def pieces(self) -> list[tuple[tuple[Array, ...], Loss]]:
        """The places of each loss that occurs, and the loss cut down to them."""
        places = [(k, np.nonzero(self.which == k)) for k in np.unique(self.which)]
        return [(place, self.parts[k].pick(place)) for k, place in places]

    def fresh(self) -> Mixed:
        return Mixed([part.fresh() for part in self.parts], self.which)

    def _entrywise(self, method: str, *arguments: Array) -> Array:
        """What this method of each loss says about its own entries."""
        out = np.empty(self.which.shape)
        for place, part in self.pieces:
            out[place] = getattr(part, method)(*(argument[place] for argument in arguments))
        return out

    def value(self, y: Array, z: Array) -> Array:
        return self._entrywise("value", y, z)

    def gradient(self, y: Array, z: Array) -> Array:
        return self._entrywise("gradient", y, z)

    def curvature(self, y: Array, z: Array) -> Array:
        return self._entrywise("curvature", y, z)

    def majorant(self, y: Array, z: Array) -> Array:
        return self._entrywise("majorant", y, z)

    def conjugate(self, y: Array, s: Array) -> Array:
        return self._entrywise("conjugate", y, s)

    def gradient_bounds(self, y: Array) -> tuple[Array, Array]:
        lower, upper = np.empty(self.which.shape), np.empty(self.which.shape)
        for place, part in self.pieces:
            lower[place], upper[place] = part.gradient_bounds(y[place])
        return lower, upper

    def pick(self, which: Array | tuple[Array, ...]) -> Mixed:
        return Mixed([part.pick(which) for part in self.parts], self.which[which])

    def smoothed(self, guess: Array, width: Array | float) -> Mixed:
        """Only the losses with kinks: the others are minimised as they are."""
        return Mixed([part if part.smooth else part.smoothed(guess, width) for part in self.parts], self.which)

    def unit(self, residual: Array) -> Array:
        return self._entrywise("unit", residual)
