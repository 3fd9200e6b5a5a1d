"""Task-specific losses: each observation has one of several losses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from .base import Array, Loss


def _entrywise(name: str) -> Any:
    """The method of this name of each loss, on the entries of its observations."""

    def method(self: Mixed, *arguments: Array) -> Array:
        out = np.empty(self.which.shape)
        for indices, part in self.pieces:
            out[indices] = getattr(part, name)(*(argument[indices] for argument in arguments))
        return out

    return method


@dataclass(eq=False, repr=False)
class Mixed(Loss):
    """``l_k(y, z)`` with ``k = which`` for each observation; ``y`` and ``z`` have the shape of ``which``.

    Losses in different units are weighted by ``task_weight``, not here.
    """

    parts: list[Loss]
    which: Array
    targets: ClassVar[Literal["numbers", "signs", "mixed"]] = "mixed"

    def check(self) -> None:
        surrogate = any(part.is_surrogate for part in self.parts)
        proof = next((part.proof for part in self.parts if part.proof), "")
        vars(self).update(smooth=all(part.smooth for part in self.parts), is_surrogate=surrogate, proof=proof)

    @property
    def user_written(self) -> bool:
        return any(part.user_written for part in self.parts)

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        return max(part.max_curvature for _, part in self.pieces)

    @cached_property
    def pieces(self) -> list[tuple[tuple[Array, ...], Loss]]:
        """For each loss that occurs, the indices of its observations, and the loss of this subset."""
        found = [(k, np.nonzero(self.which == k)) for k in np.unique(self.which)]
        return [(indices, self.parts[k].pick(indices)) for k, indices in found]

    def fresh(self) -> Mixed:
        return Mixed([part.fresh() for part in self.parts], self.which)

    value, gradient, curvature = _entrywise("value"), _entrywise("gradient"), _entrywise("curvature")
    majorant, conjugate, unit = _entrywise("majorant"), _entrywise("conjugate"), _entrywise("unit")

    def gradient_bounds(self, y: Array) -> tuple[Array, Array]:
        lower, upper = np.empty(self.which.shape), np.empty(self.which.shape)
        for indices, part in self.pieces:
            lower[indices], upper[indices] = part.gradient_bounds(y[indices])
        return lower, upper

    def pick(self, which: Array | tuple[Array, ...]) -> Mixed:
        return Mixed([part.pick(which) for part in self.parts], self.which[which])

    def smoothed(self, guess: Array, width: Array | float) -> Mixed:
        """Only nonsmooth losses are smoothed."""
        return Mixed([part if part.smooth else part.smoothed(guess, width) for part in self.parts], self.which)
