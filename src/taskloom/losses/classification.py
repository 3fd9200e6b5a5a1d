"""Losses of a label ``y`` in {-1, +1} and a decision value ``z``; ``-p = y s`` is the derivative in the margin ``y z``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import xlog1py, xlogy

from .base import Array, Loss


class _MarginLoss(Loss):
    """A decreasing function of the margin ``y z``, with derivative between -1 and 0."""

    targets: ClassVar[Literal["numbers", "signs", "mixed"]] = "signs"

    def gradient_bounds(self, y: Array) -> tuple[Array, Array]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)


@dataclass(eq=False, repr=False)
class Logistic(_MarginLoss):
    """``log(1 + exp(-y z))``: logistic regression."""

    max_curvature: ClassVar[float] = 0.25

    # exp(-|m|) cannot overflow, and NumPy vectorises it: two to three times faster than expit.

    def value(self, y: Array, z: Array) -> Array:
        m = y * z
        return np.log1p(np.exp(-np.abs(m))) + np.maximum(-m, 0.0)

    def gradient(self, y: Array, z: Array) -> Array:
        m = y * z
        e = np.exp(-np.abs(m))
        return -y * np.where(m <= 0, 1.0, e) / (1.0 + e)

    def curvature(self, y: Array, z: Array) -> Array:
        e = np.exp(-np.abs(z))
        return e / (1.0 + e) ** 2

    def best_constant(self, up: Array, down: Array) -> Array | None:
        return np.log(up / down) if np.all((up > 0) & (down > 0)) else None

    def conjugate(self, y: Array, s: Array) -> Array:
        p = -y * s
        inside = np.clip(p, 0.0, 1.0)
        return np.where((p >= 0) & (p <= 1), xlogy(inside, inside) + xlog1py(1 - inside, -inside), np.inf)


@dataclass(eq=False, repr=False)
class Hinge(_MarginLoss):
    """``max(0, 1 - y z)``: the support vector machine."""

    smooth: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        return np.maximum(1 - y * z, 0.0)

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        return z + y * np.clip(1 - y * z, 0.0, step)

    def conjugate(self, y: Array, s: Array) -> Array:
        p = -y * s
        return np.where((p >= 0) & (p <= 1), -p, np.inf)


@dataclass(eq=False, repr=False)
class SquaredHinge(_MarginLoss):
    """``max(0, 1 - y z)^2``."""

    max_curvature: ClassVar[float] = 2.0

    def value(self, y: Array, z: Array) -> Array:
        return np.maximum(1 - y * z, 0.0) ** 2

    def gradient(self, y: Array, z: Array) -> Array:
        return -2 * y * np.maximum(1 - y * z, 0.0)

    def curvature(self, y: Array, z: Array) -> Array:
        return np.where(y * z < 1, 2.0, 0.0)

    def conjugate(self, y: Array, s: Array) -> Array:
        p = -y * s
        return np.where(p >= 0, p**2 / 4 - p, np.inf)

    def gradient_bounds(self, y: Array) -> tuple[Array, Array]:
        return np.where(y > 0, -np.inf, 0.0), np.where(y > 0, 0.0, np.inf)
