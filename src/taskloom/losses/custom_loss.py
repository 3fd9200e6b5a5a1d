"""Convex losses that users write: an object with ``value`` and ``gradient`` or ``prox``, and optional methods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import numeric_conjugate as numeric
from .base import OLD_NAMES, Array, Loss
from .smoothed import Smoothed

MIN_CURVATURE = 1e-6  # the smallest curvature of the majorant, relative to the largest


def has_methods(loss: Any) -> bool:
    """Whether an object has the methods ``value`` and ``gradient`` or ``prox``."""
    there = {name for name in ("value", "gradient", "prox") if callable(method_of(loss, name))}
    return not isinstance(loss, type) and "value" in there and len(there) > 1


def method_of(loss: Any, name: str) -> Any:
    """A method of a user's loss, under its new or old name; ``None`` if it has none."""
    return getattr(loss, name, getattr(loss, OLD_NAMES.get(name, name), None))


@dataclass(eq=False, repr=False)
class CustomLoss(Loss):
    """A loss of your own; docs/custom.md shows how to write one and how to check it.

    Missing methods are computed numerically: the curvature from differences of gradients, an upper bound on the conjugate by
    root finding (the certificate says so), and its domain from the gradients at large ``|z|``.

    Parameters
    ----------
    loss : object
        With ``value(y, z)``, and ``gradient(y, z)`` (a smooth loss) or ``prox(y, z, step)`` (a nonsmooth loss). Optional:
        ``curvature(y, z)``, ``conjugate(y, s)``, ``gradient_bounds(y)``, and the attributes ``max_curvature``,
        ``targets`` and ``of_differences``. Their meaning is that of ``Loss``; all are entrywise.
    """

    loss: Any

    def check(self) -> None:
        name = getattr(self.loss, "__name__", self.loss)
        if isinstance(self.loss, type):
            raise ValueError(f"loss={name} is a class; pass an object of it: {name}(...)")
        if not has_methods(self.loss):
            raise ValueError(
                f"CustomLoss needs an object with the methods value and gradient, or value and prox; got {self.loss!r}"
            )
        self._bounds_cache: tuple[Any, Any] = (None, None)  # cache of gradient_bounds: the last targets, and the result
        vars(self).update(
            smooth=bool(getattr(self.loss, "smooth", self._method("gradient") is not None)),
            targets=getattr(self.loss, "targets", "numbers"),
            max_curvature=float(getattr(self.loss, "max_curvature", np.inf)),
            of_differences=bool(getattr(self.loss, "of_differences", False)),
        )

    @property
    def user_written(self) -> bool:
        return True

    def fresh(self) -> CustomLoss:
        return CustomLoss(self.loss)

    def __getstate__(self) -> dict:
        """Without the cached targets of the last fit, so that a saved loss contains no data."""
        return {"loss": self.loss}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["loss"])  # type: ignore[misc]

    def _method(self, name: str) -> Any:
        return method_of(self.loss, name)

    @property
    def proof(self) -> str:  # type: ignore[override]
        source = "gradients" if self._method("gradient") is not None else "prox"
        known = self._method("conjugate") is not None
        return "" if known else f"The conjugate of the loss was bounded numerically, from its {source}"

    def _call(self, name: str, *arguments: Any) -> Array:
        with np.errstate(all="ignore"):  # exponentials may overflow at large |z|
            return np.asarray(self._method(name)(*arguments), dtype=float)

    def value(self, y: Array, z: Array) -> Array:
        return self._call("value", y, z)

    def gradient(self, y: Array, z: Array) -> Array:
        return self._call("gradient", y, z) if self._method("gradient") is not None else super().gradient(y, z)

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        return self._call("prox", y, z, step) if self._method("prox") is not None else super().prox(y, z, step)

    def curvature(self, y: Array, z: Array) -> Array:
        if self._method("curvature") is not None:
            return self._call("curvature", y, z)
        h = 1e-5 * np.maximum(np.maximum(np.abs(z), np.abs(y)), numeric.typical_size(y))
        with np.errstate(all="ignore"):  # both may have overflowed
            return np.clip((self.gradient(y, z + h) - self.gradient(y, z - h)) / (2 * h), 0.0, self.max_curvature)

    def majorant(self, y: Array, z: Array) -> Array:
        """With an unbounded curvature: the largest one near ``z``; on a linear piece the mean one between ``y`` and ``z``."""
        if self._method("majorant") is not None:
            return self._call("majorant", y, z)
        near = super().majorant(y, z)
        linear = near <= 0
        if np.any(linear):
            with np.errstate(all="ignore"):
                mean_curvature = (self.gradient(y, z) - self.gradient(y, y)) / np.where(z == y, np.inf, z - y)
            near = np.where(linear & np.isfinite(mean_curvature), mean_curvature, near)
            near = np.maximum(near, MIN_CURVATURE * np.max(near, initial=0.0))
        return near

    def conjugate(self, y: Array, s: Array) -> Array:
        if self._method("conjugate") is not None:
            return self._call("conjugate", y, s)
        with np.errstate(all="ignore"):
            return numeric.conjugate(self.value, self._point_and_gradient, y, s)

    def smoothed(self, guess: Array, width: Array | float) -> Smoothed:
        return Smoothed(self, guess, width) if self._method("conjugate") is not None else _Envelope(self, guess, width)

    def _point_and_gradient(self, y: Array, m: Array) -> tuple[Array, Array]:
        if self._method("gradient") is not None:
            return m, self.gradient(y, m)
        u = self.prox(y, m, 1.0)
        return u, m - u

    def gradient_bounds(self, y: Array) -> tuple[Array | float, Array | float]:
        if (known := self._method("gradient_bounds")) is not None:
            return known(y)
        y = np.asarray(y, dtype=float)
        key = (y.shape, y.tobytes())
        if self._bounds_cache[0] != key:  # a smoothed loss calls this at every step, with the same targets
            with np.errstate(all="ignore"):
                bounds = numeric.interval(self._gradient_at_large_z, y)
                for edge in bounds:  # where the conjugate may be infinite, by rounding or by definition
                    out = np.isfinite(edge) & ~np.isfinite(self.conjugate(y, np.where(np.isfinite(edge), edge, 0.0)))
                    edge[out] *= 1 - 1e-10
            self._bounds_cache = key, bounds
        return self._bounds_cache[1]

    def _gradient_at_large_z(self, y: Array, z: Array) -> Array:
        if self._method("gradient") is not None:
            return self.gradient(y, z)
        z = np.clip(z, -1e12, 1e12)  # z - prox must not be lost in rounding: a step of |z| / 100 keeps fourteen digits
        step = np.abs(z) / 100
        return (z - self.prox(y, z, step)) / step


class _Envelope(Smoothed):
    """The smoothed surrogate with its value computed from the prox, which is faster than from a numerical conjugate."""

    def value(self, y: Array, z: Array) -> Array:
        shifted = z + self.width * self.guess
        u = self.loss.prox(y, shifted, self.width)
        s = (shifted - u) / self.width
        return s * (z - u) + self.loss.value(y, u) - self.width * (s - self.guess) ** 2 / 2
