"""Losses and structures with one error each, as users make them: every one must be caught by a fit, or labelled.

``wrong_losses(unit)`` and ``wrong_structures()`` give pairs of a name and a ``Case``: the component, and the right one whose
``value`` it has, so that the true minimum is known (``None`` where the value is not convex). ``right_losses(unit)`` are right
in every way, and must be certified: smooth, with kinks, of straight pieces, known by gradient, prox or conjugate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from taskloom import losses, structures


class Case(NamedTuple):
    component: Any
    right: Any  # a component of the library with the same value


class Square:
    """``(z - y)^2`` by value and gradient."""

    def value(self, y, z):
        return (z - y) ** 2

    def gradient(self, y, z):
        return 2 * (z - y)


class ExactSquare(Square):
    def conjugate(self, y, s):
        return s * y + s**2 / 4

    def gradient_bounds(self, _):
        return -np.inf, np.inf


class Scaled:
    """Losses of residuals in units of ``unit``."""

    def __init__(self, unit=1.0):
        self.unit = unit


class Bent(Scaled):
    """Huber's loss, whose gradients are bounded, by value and gradient."""

    def value(self, y, z):
        r = np.abs(z - y)
        return np.where(r <= self.unit, r**2, self.unit * (2 * r - self.unit))

    def gradient(self, y, z):
        return 2 * np.clip(z - y, -self.unit, self.unit)


class Round(Scaled):
    """``sqrt(1 + r^2) - 1``, whose square overflows far out."""

    def value(self, y, z):
        r = (z - y) / self.unit
        return r**2 / (np.sqrt(1 + r**2) + 1)

    def gradient(self, y, z):
        r = (z - y) / self.unit
        return r / np.sqrt(1 + r**2) / self.unit


class LogCosh(Scaled):
    def value(self, y, z):
        return np.logaddexp((z - y) / self.unit, (y - z) / self.unit) - np.log(2)

    def gradient(self, y, z):
        return np.tanh((z - y) / self.unit) / self.unit


class Distance:
    """``|z - y|`` by value and prox."""

    def value(self, y, z):
        return np.abs(z - y)

    def prox(self, y, z, step):
        return y + np.sign(z - y) * np.maximum(np.abs(z - y) - step, 0)


class ExactDistance(Distance):
    edge = 1.0

    def conjugate(self, y, s):
        return np.where(np.abs(s) <= self.edge, s * y, np.inf)

    def gradient_bounds(self, _):
        return -self.edge, self.edge


class Pieces(Scaled):
    """The largest of ``r / 4``, ``-2 r`` and ``2 r - unit``: straight pieces, by value and prox."""

    def value(self, y, z):
        r = z - y
        return np.maximum.reduce([r / 4, -2 * r, 2 * r - self.unit])

    def prox(self, y, z, step):
        kinks, slopes = (0.0, 4 * self.unit / 7), (-2.0, 0.25, 2.0)
        m = z - y
        moved = [m - step * slope for slope in slopes]
        u = np.where(moved[0] < kinks[0], moved[0], np.where(moved[1] <= kinks[0], kinks[0], moved[1]))
        return y + np.where(moved[2] >= kinks[1], moved[2], np.minimum(u, kinks[1]))


class Poisson:
    """Half the deviance, for counts."""

    def value(self, y, z):
        return np.exp(z) - y * z + np.where(y > 0, y * np.log(np.where(y > 0, y, 1)), 0) - y

    def gradient(self, y, z):
        return np.exp(z) - y


def with_method(base: type, *arguments: Any, **methods: Any) -> Any:
    """An object of a class that differs from ``base`` in these methods, which get the object first."""
    return type(f"Wrong{base.__name__}", (base,), methods)(*arguments)


def right_losses(unit: float) -> list[tuple[str, Any]]:
    """Right losses of residuals of this size."""
    made = (Square(), ExactSquare(), Bent(unit), Round(unit), LogCosh(unit), Distance(), ExactDistance(), Pieces(unit))
    return [(type(loss).__name__, loss) for loss in made]


def wrong_losses(unit: float) -> list[tuple[str, Case]]:
    """Losses of residuals of this size with one error each."""
    squared, absolute, bent = losses.Squared(), losses.Absolute(), losses.Huber(unit)

    def times(factor: float) -> Any:
        return with_method(Square, gradient=lambda _, y, z: 2 * factor * (z - y))

    def wide(edge: float) -> Any:
        return type("WideDistance", (ExactDistance,), {"edge": edge})()

    def twice_bent(_: Any, y: Any, z: Any) -> Any:
        return 2 * Bent(unit).gradient(y, z)

    def stepped(factor: float) -> Any:
        return with_method(Distance, prox=lambda _, y, z, step: Distance().prox(y, z, factor * step))

    def square_prox(_: Any, y: Any, z: Any, step: Any) -> Any:
        return (z + 2 * step * y) / (1 + 2 * step)

    def well(_: Any, y: Any, z: Any) -> Any:
        return unit**2 * np.log1p(((z - y) / unit) ** 2)

    def well_gradient(_: Any, y: Any, z: Any) -> Any:
        return 2 * (z - y) / (1 + ((z - y) / unit) ** 2)

    return [
        ("derivative times 0.5", Case(times(0.5), squared)),
        ("derivative times 2", Case(times(2.0), squared)),
        ("derivative times 1.01", Case(times(1.01), squared)),
        ("derivative with the wrong sign", Case(times(-1.0), squared)),
        ("derivative at another point", Case(with_method(Square, gradient=lambda _, y, z: 2 * (z - y) + unit / 5), squared)),
        ("derivative of another loss", Case(with_method(Square, gradient=lambda _, y, z: Bent(unit).gradient(y, z)), squared)),
        (
            "bounded derivative times 2",
            Case(with_method(Bent, unit, gradient=twice_bent), bent),
        ),
        (
            "prox with twice the step",
            Case(stepped(2.0), absolute),
        ),
        (
            "prox with half the step",
            Case(stepped(0.5), absolute),
        ),
        ("prox of another loss", Case(with_method(Distance, prox=square_prox), absolute)),
        ("conjugate times 0.9", Case(with_method(ExactSquare, conjugate=lambda _, y, s: 0.9 * (s * y + s**2 / 4)), squared)),
        ("conjugate too small", Case(with_method(ExactSquare, conjugate=lambda _, y, s: s * y + s**2 / 5), squared)),
        ("conjugate with too large a domain", Case(wide(1.5), absolute)),
        ("conjugate without a domain", Case(wide(np.inf), absolute)),
        ("value that is not convex", Case(with_method(Square, value=well, gradient=well_gradient), None)),
        ("value of another unit", Case(with_method(Square, value=lambda _, y, z: 3 * (z - y) ** 2), None)),
    ]


class TraceMethods:
    """``tr A`` by value and prox."""

    def value(self, A):
        return float(np.trace(A))

    def prox(self, A, step):
        a, V = np.linalg.eigh(A)
        return (V * np.maximum(a - step, 0)) @ V.T


class ExactTrace(TraceMethods):
    edge = 1.0

    def conjugate(self, S):
        return 0.0 if np.linalg.eigvalsh(S)[-1] <= self.edge else np.inf


class SquareMethods:
    """``tr A^2`` by value and prox."""

    def value(self, A):
        return float(np.vdot(A, A))

    def prox(self, A, step):
        a, V = np.linalg.eigh(A)
        return (V * np.maximum(a, 0) / (1 + 2 * step)) @ V.T


def right_structures() -> list[tuple[str, Any]]:
    """Right structures, by methods."""
    return [(type(structure).__name__, structure) for structure in (TraceMethods(), ExactTrace(), SquareMethods())]


def wrong_structures() -> list[tuple[str, Case]]:
    """Structures with one error each."""
    trace, frobenius = structures.Trace(), structures.Frobenius()

    def stepped(factor: float) -> Any:
        return with_method(TraceMethods, prox=lambda _, A, step: TraceMethods().prox(A, factor * step))

    def wide(edge: float) -> Any:
        return type("WideTrace", (ExactTrace,), {"edge": edge})()

    def square_prox(_: Any, A: Any, step: float) -> Any:
        return SquareMethods().prox(A, step)

    def root(_: Any, A: Any) -> float:
        return np.sqrt(max(float(np.trace(A)), 0))

    def square_conjugate(_: Any, S: Any) -> float:
        return 0.9 * float(np.vdot(S, S)) / 4

    return [
        ("prox with twice the step", Case(stepped(2.0), trace)),
        ("prox with half the step", Case(stepped(0.5), trace)),
        ("prox with 1.01 times the step", Case(stepped(1.01), trace)),
        (
            "prox of another penalty",
            Case(with_method(TraceMethods, prox=square_prox), trace),
        ),
        ("prox without the cone", Case(with_method(SquareMethods, prox=lambda _, A, step: A / (1 + 2 * step)), frobenius)),
        ("conjugate times 0.9", Case(with_method(SquareMethods, conjugate=square_conjugate), frobenius)),
        ("conjugate with too large a domain", Case(wide(1.5), trace)),
        ("conjugate without a domain", Case(wide(np.inf), trace)),
        ("value times 0.5", Case(with_method(TraceMethods, value=lambda _, A: 0.5 * float(np.trace(A))), 0.5 * trace)),
        (
            "value that is not convex",
            Case(with_method(TraceMethods, value=root), None),
        ),
    ]
