"""Any convex loss that a user writes: an object with ``value`` and ``gradient`` (or ``prox``), and more where it is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from . import numeric_conjugate as numeric
from .base import OLD_NAMES, Array, Loss
from .smoothed import Smoothed

STRAIGHT = 1e-6  # the least curvature to count on, as a share of the largest


def has_methods(loss: Any) -> bool:
    """Whether an object brings what a loss must bring."""
    there = {name for name in ("value", "gradient", "prox") if callable(method_of(loss, name))}
    return not isinstance(loss, type) and "value" in there and len(there) > 1


def method_of(loss: Any, name: str) -> Any:
    """A method of a user's loss, under its name or the old one; ``None`` where there is none."""
    return getattr(loss, name, getattr(loss, OLD_NAMES.get(name, name), None))


@dataclass(eq=False, repr=False)
class CustomLoss(Loss):
    """A loss of your own; docs/custom.md shows how to write one and how to check it.

    What is missing is found numerically: curvatures from differences of gradients, the conjugate from a bracket that bounds it
    from above (the certificate says so), its interval from the gradients far out.

    Parameters
    ----------
    loss : object
        With ``value(y, z)``, and ``gradient(y, z)`` (a smooth loss) or ``prox(y, z, step)`` (a loss with kinks). Where they are
        known: ``curvature(y, z)``, ``conjugate(y, s)``, ``gradient_bounds(y)``, and the attributes ``max_curvature``,
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
        self._edges: tuple[Any, Any] = (None, None)  # the last targets whose gradients were asked for, and the answer

    def fresh(self) -> CustomLoss:
        return CustomLoss(self.loss)

    def __getstate__(self) -> dict:
        """Without the targets of the last fit: a loss that is saved must not carry the data along."""
        return {"loss": self.loss}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["loss"])  # type: ignore[misc]

    def _own(self, name: str) -> Any:
        return method_of(self.loss, name)

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.loss, "smooth", self._own("gradient") is not None))

    @property
    def targets(self) -> Literal["numbers", "signs", "mixed"]:  # type: ignore[override]
        return getattr(self.loss, "targets", "numbers")

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        return float(getattr(self.loss, "max_curvature", np.inf))

    @property
    def of_differences(self) -> bool:  # type: ignore[override]
        return bool(getattr(self.loss, "of_differences", False))

    @property
    def proof(self) -> str:  # type: ignore[override]
        source = "gradients" if self._own("gradient") is not None else "prox"
        known = self._own("conjugate") is not None
        return "" if known else f"The conjugate of the loss was bounded numerically, from its {source}"

    def _call(self, name: str, *arguments: Any) -> Array:
        with np.errstate(all="ignore"):  # far out, an author's exponential overflows
            return np.asarray(self._own(name)(*arguments), dtype=float)

    def value(self, y: Array, z: Array) -> Array:
        return self._call("value", y, z)

    def gradient(self, y: Array, z: Array) -> Array:
        return self._call("gradient", y, z) if self._own("gradient") is not None else super().gradient(y, z)

    def prox(self, y: Array, z: Array, step: Array | float) -> Array:
        return self._call("prox", y, z, step) if self._own("prox") is not None else super().prox(y, z, step)

    def curvature(self, y: Array, z: Array) -> Array:
        if self._own("curvature") is not None:
            return self._call("curvature", y, z)
        h = 1e-5 * np.maximum(np.maximum(np.abs(z), np.abs(y)), numeric.usual_size(y))
        return np.clip((self.gradient(y, z + h) - self.gradient(y, z - h)) / (2 * h), 0.0, self.max_curvature)

    def majorant(self, y: Array, z: Array) -> Array:
        """Where nothing bounds the curvature: the largest one near ``z``, or on a straight piece that of the way to ``y``."""
        if self._own("majorant") is not None:
            return self._call("majorant", y, z)
        near = super().majorant(y, z)
        straight = near <= 0
        if np.any(straight):
            with np.errstate(all="ignore"):
                along = (self.gradient(y, z) - self.gradient(y, y)) / np.where(z == y, np.inf, z - y)
            near = np.where(straight & np.isfinite(along), along, near)
            near = np.maximum(near, STRAIGHT * np.max(near, initial=0.0))
        return near

    def conjugate(self, y: Array, s: Array) -> Array:
        if self._own("conjugate") is not None:
            return self._call("conjugate", y, s)
        with np.errstate(all="ignore"):
            return numeric.conjugate(self.value, self._point_and_gradient, y, s)

    def smoothed(self, guess: Array, width: Array | float) -> Smoothed:
        return Smoothed(self, guess, width) if self._own("conjugate") is not None else _Envelope(self, guess, width)

    def _point_and_gradient(self, y: Array, m: Array) -> tuple[Array, Array]:
        if self._own("gradient") is not None:
            return m, self.gradient(y, m)
        u = self.prox(y, m, 1.0)
        return u, m - u

    def gradient_bounds(self, y: Array) -> tuple[Array | float, Array | float]:
        if (known := self._own("gradient_bounds")) is not None:
            return known(y)
        y = np.asarray(y, dtype=float)
        key = (y.shape, y.tobytes())
        if self._edges[0] != key:  # the same targets again and again: a smoothed loss asks at every step
            self._edges = key, self._find_bounds(y)
        return self._edges[1]

    def _find_bounds(self, y: Array) -> tuple[Array, Array]:
        with np.errstate(all="ignore"):
            lower, upper = numeric.interval(self._gradient_far_out, y)
            for edge in (lower, upper):  # the edge itself may lie outside, by rounding or by the author's own rule
                out = np.isfinite(edge) & ~np.isfinite(self.conjugate(y, np.where(np.isfinite(edge), edge, 0.0)))
                edge[out] *= 1 - 1e-10
        return lower, upper

    def _gradient_far_out(self, y: Array, z: Array) -> Array:
        if self._own("gradient") is not None:
            return self.gradient(y, z)
        z = np.clip(z, -1e12, 1e12)  # m - prox must not drown in m: a step of a hundredth keeps fourteen digits
        step = np.abs(z) / 100
        return (z - self.prox(y, z, step)) / step


class _Envelope(Smoothed):
    """The same stand-in, its value read off the prox: a conjugate that is found numerically costs many of them."""

    def value(self, y: Array, z: Array) -> Array:
        shifted = z + self.width * self.guess
        u = self.loss.prox(y, shifted, self.width)
        s = (shifted - u) / self.width
        return s * (z - u) + self.loss.value(y, u) - self.width * (s - self.guess) ** 2 / 2

    def pick(self, which: Array | tuple[Array, ...]) -> _Envelope:
        cut = super().pick(which)
        return _Envelope(cut.loss, cut.guess, cut.width)
