"""Losses of a real target ``y``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from .._component import is_number
from .base import Array, Loss
from .smoothed import Smoothed


class _DifferenceLoss(Loss):
    """A function of ``y - z``."""

    of_differences: ClassVar[bool] = True


@dataclass(eq=False, repr=False)
class Squared(_DifferenceLoss):
    """``(y - z)^2``."""

    quadratic: ClassVar[bool] = True
    max_curvature: ClassVar[float] = 2.0

    def value(self, y: Array, z: Array) -> Array:
        return (y - z) ** 2

    def gradient(self, y: Array, z: Array) -> Array:
        return 2 * (z - y)

    def curvature(self, y: Array, z: Array) -> Array:
        return np.full_like(z, 2.0)

    def conjugate(self, y: Array, s: Array) -> Array:
        return s * y + s**2 / 4

    def gradient_bounds(self, y: Array) -> tuple[float, float]:
        return -np.inf, np.inf


@dataclass(eq=False, repr=False)
class Huber(_DifferenceLoss):
    """``r^2`` for ``|r| <= width``, ``2 width |r| - width^2`` beyond, with ``r = y - z``: robust regression.

    Parameters
    ----------
    width : float, default=1.0
        The threshold between the quadratic and the linear part (``epsilon`` in scikit-learn, often ``delta``); greater than 0,
        in the units of the targets.
    """

    width: float = 1.0
    ranges: ClassVar[dict[str, str]] = {"width": "> 0"}
    max_curvature: ClassVar[float] = 2.0

    def value(self, y: Array, z: Array) -> Array:
        r = np.abs(z - y)
        return np.where(r <= self.width, r**2, self.width * (2 * r - self.width))

    def gradient(self, y: Array, z: Array) -> Array:
        return 2 * np.clip(z - y, -self.width, self.width)

    def curvature(self, y: Array, z: Array) -> Array:
        return np.where(np.abs(z - y) <= self.width, 2.0, 0.0)

    def majorant(self, y: Array, z: Array) -> Array:
        return 2 * self.width / np.maximum(np.abs(z - y), self.width)

    def as_smoothed(self) -> Smoothed:
        return Smoothed(_Lines(2 * self.width), np.zeros(()), 0.5)

    def conjugate(self, y: Array, s: Array) -> Array:
        return np.where(np.abs(s) <= 2 * self.width, s * y + s**2 / 4, np.inf)

    def gradient_bounds(self, y: Array) -> tuple[float, float]:
        return -2 * self.width, 2 * self.width


@dataclass(eq=False, repr=False)
class _Lines(_DifferenceLoss):
    """``height |y - z|``: what Huber's loss smooths."""

    height: float
    smooth: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        return self.height * np.abs(y - z)

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        return z - np.clip(z - y, -self.height * step, self.height * step)

    def conjugate(self, y: Array, s: Array) -> Array:
        return np.where(np.abs(s) <= self.height, s * y, np.inf)

    def gradient_bounds(self, y: Array) -> tuple[float, float]:
        return -self.height, self.height


@dataclass(eq=False, repr=False)
class EpsilonInsensitive(_DifferenceLoss):
    """``max(0, |y - z| - epsilon)``: support vector regression; errors below ``epsilon`` are ignored.

    Parameters
    ----------
    epsilon : float, default=0.1
        Half-width of the tube within which the loss is 0; at least 0.
    """

    epsilon: float = 0.1
    ranges: ClassVar[dict[str, str]] = {"epsilon": ">= 0"}
    smooth: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        return np.maximum(np.abs(y - z) - self.epsilon, 0.0)

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        r = np.abs(z - y)
        shrunk = np.where(r <= self.epsilon, r, np.maximum(r - step, self.epsilon))
        return y + np.sign(z - y) * shrunk

    def conjugate(self, y: Array, s: Array) -> Array:
        return np.where(np.abs(s) <= 1, s * y + self.epsilon * np.abs(s), np.inf)

    def gradient_bounds(self, y: Array) -> tuple[float, float]:
        return -1.0, 1.0


@dataclass(eq=False, repr=False)
class Quantile(_DifferenceLoss):
    """``max(q r, (q - 1) r)``, ``r = y - z``: its minimiser is the conditional ``q``-quantile.

    Parameters
    ----------
    q : float, default=0.5
        The quantile, between 0 and 1; 0.5 is half the absolute error.
    """

    q: float = 0.5
    smooth: ClassVar[bool] = False

    def check(self) -> None:
        if not (is_number(self.q) and 0 < self.q < 1):
            raise ValueError(f"Quantile needs 0 < q < 1, got q={self.q!r}")

    def value(self, y: Array, z: Array) -> Array:
        r = y - z
        return np.maximum(self.q * r, (self.q - 1) * r)

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        r = z - y
        return z - np.clip(r, -step * self.q, step * (1 - self.q))

    def conjugate(self, y: Array, s: Array) -> Array:
        return np.where((s >= -self.q) & (s <= 1 - self.q), s * y, np.inf)

    def gradient_bounds(self, y: Array) -> tuple[float, float]:
        return -self.q, 1 - self.q


@dataclass(eq=False, repr=False)
class Absolute(EpsilonInsensitive):
    """``|y - z|``: its minimiser is the conditional median."""

    epsilon: float = field(default=0.0, init=False)

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        return z - np.clip(z - y, -step, step)
