"""A loss with kinks, made smooth around a guess of its gradients: the proximal method of multipliers in one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .base import Array, Loss


@dataclass(eq=False, repr=False)
class Smoothed(Loss):
    """``sup_s  s z - l*(y, s) - width (s - guess)^2 / 2``: below ``l``, with gradient Lipschitz ``1/width``.

    With ``u = prox(z + width guess)`` the gradient is ``(z + width guess - u)/width``, a true gradient of ``l`` at ``u``: it
    never leaves the domain of ``l*``, whatever the width. Taking the gradient as the next guess converges to the
    minimiser for ``l`` itself, with the width held fixed, so nothing becomes ill-conditioned. The width is one number,
    or one for each observation.
    """

    loss: Loss
    guess: Array
    width: Array | float
    smooth: ClassVar[bool] = True
    is_surrogate: ClassVar[bool] = True

    def pick(self, which: Array | tuple[Array, ...]) -> Smoothed:
        width = self.width[which] if isinstance(self.width, np.ndarray) else self.width
        return Smoothed(self.loss.pick(which), self.guess[which], width)

    @property
    def of_differences(self) -> bool:  # type: ignore[override]
        return self.loss.of_differences

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        return float(np.max(1 / self.width))

    def gradient(self, y: Array, z: Array) -> Array:
        shifted = z + self.width * self.guess
        lower, upper = self.loss.gradient_bounds(y)
        # Dividing by a small width amplifies rounding: the clip keeps the gradient inside the domain of l* exactly.
        return np.clip((shifted - self.loss.prox(y, shifted, self.width)) / self.width, lower, upper)

    def value(self, y: Array, z: Array) -> Array:
        s = self.gradient(y, z)
        return s * z - self.loss.conjugate(y, s) - self.width * (s - self.guess) ** 2 / 2

    def curvature(self, y: Array, z: Array) -> Array:
        """1/width where the prox rests on a kink (the gradient lies strictly inside its interval), 0 on the pieces."""
        shifted = z + self.width * self.guess
        nudge = 1e-7 * (self.width + np.abs(shifted))
        moved = self.loss.prox(y, shifted + nudge, self.width) - self.loss.prox(y, shifted, self.width)
        return np.clip(1 - moved / nudge, 0.0, 1.0) / self.width

    def majorant(self, y: Array, z: Array) -> Array:
        return np.full_like(z, 1 / self.width)

    def conjugate(self, y: Array, s: Array) -> Array:
        return self.loss.conjugate(y, s) + self.width * (s - self.guess) ** 2 / 2

    def gradient_bounds(self, y: Array) -> tuple[Array | float, Array | float]:
        return self.loss.gradient_bounds(y)
