"""Classification losses with an offset: a given decision value that is added to the predictions."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Array, Loss


@dataclass(eq=False, repr=False)
class Shifted(Loss):
    """``l(y, z + offset)``, with one offset per observation. (For regression losses, shift ``y`` instead.)"""

    loss: Loss
    offset: Array

    def check(self) -> None:
        vars(self).update(smooth=self.loss.smooth, targets=self.loss.targets, max_curvature=self.loss.max_curvature)

    @property
    def user_written(self) -> bool:
        return self.loss.user_written

    def pick(self, which: Array | tuple[Array, ...]) -> Shifted:
        return Shifted(self.loss.pick(which), self.offset[which])

    def value(self, y: Array, z: Array) -> Array:
        return self.loss.value(y, z + self.offset)

    def gradient(self, y: Array, z: Array) -> Array:
        return self.loss.gradient(y, z + self.offset)

    def curvature(self, y: Array, z: Array) -> Array:
        return self.loss.curvature(y, z + self.offset)

    def majorant(self, y: Array, z: Array) -> Array:
        return self.loss.majorant(y, z + self.offset)

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        return self.loss.prox(y, z + self.offset, step) - self.offset

    def conjugate(self, y: Array, s: Array) -> Array:
        return self.loss.conjugate(y, s) - s * self.offset

    def gradient_bounds(self, y: Array) -> tuple[Array | float, Array | float]:
        return self.loss.gradient_bounds(y)
