"""Smoothed surrogates of nonsmooth losses, for the proximal method of multipliers."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

import numpy as np

from .base import Array, Loss


@dataclass(eq=False, repr=False)
class Smoothed(Loss):
    """``sup_s  s z - l*(y, s) - width (s - guess)^2 / 2``: a smooth lower bound of ``l``.

    With ``u = prox(z + width guess)`` the gradient is ``(z + width guess - u)/width``, a subgradient of ``l`` at ``u``. It is
    in the domain of ``l*``, and has the Lipschitz constant ``1/width``. Iterating with the gradient as the next guess converges
    to the minimiser for ``l`` itself at a fixed width, so that the problems do not become ill-conditioned. The width is one
    number, or one per observation.
    """

    loss: Loss
    guess: Array
    width: Array | float
    smooth: ClassVar[bool] = True
    is_surrogate: ClassVar[bool] = True
    of_differences = property(attrgetter("loss.of_differences"))

    def pick(self, which: Array | tuple[Array, ...]) -> Smoothed:
        width = self.width[which] if isinstance(self.width, np.ndarray) else self.width
        return type(self)(self.loss.pick(which), self.guess[which], width)

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        return float(np.max(1 / self.width))

    def as_smoothed(self) -> Smoothed:
        return self

    def gradient(self, y: Array, z: Array) -> Array:
        shifted = z + self.width * self.guess
        lower, upper = self.loss.gradient_bounds(y)
        # Division by a small width amplifies rounding; the clip keeps the gradient in the domain of l*.
        return np.clip((shifted - self.loss.prox(y, shifted, self.width)) / self.width, lower, upper)

    def value(self, y: Array, z: Array) -> Array:
        s = self.gradient(y, z)
        return s * z - self.loss.conjugate(y, s) - self.width * (s - self.guess) ** 2 / 2

    def curvature(self, y: Array, z: Array) -> Array:
        """1/width where the prox is at a nondifferentiable point of ``l``, 0 where ``l`` is linear."""
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
