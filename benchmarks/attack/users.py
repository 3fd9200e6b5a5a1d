"""Components as users write them: structures with constraints, and losses and structures that are wrong somewhere."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
CONSTRAINTS = ("forbidden entries", "bounded trace", "bounded entries", "bounded eigenvalues", "no negative entries")
LOSS_FAULTS = {  # what may be wrong in a loss that brings these methods
    "log_cosh": ("gradient", "conjugate domain", "conjugate values", "curvature"),
    "huber": ("gradient", "conjugate domain", "conjugate values", "curvature"),
    "absolute": ("prox", "prox moved", "conjugate domain", "conjugate values"),
    "quantile": ("prox", "prox moved", "conjugate domain", "conjugate values"),
}
STRUCTURE_FAULTS = ("prox", "prox moved", "value", "conjugate values", "conjugate domain")


# --- constraints ------------------------------------------------------------------------------------------------


def far_apart(T: int) -> Array:
    """The pairs of tasks that are no neighbours."""
    return np.abs(np.subtract.outer(np.arange(T), np.arange(T))) > 1


def constrained(A: Any, what: str, bound: float) -> tuple[Any, list]:
    """A penalty and its constraints, of a CVXPY variable."""
    import cvxpy as cp

    match what:
        case "forbidden entries":
            far = far_apart(A.shape[0])
            return cp.trace(A), [A[far] == 0] if far.any() else []
        case "bounded trace":
            return cp.Constant(0.0), [cp.trace(A) <= bound]
        case "bounded entries":
            return cp.trace(A), [bound >= A, -bound <= A]
        case "bounded eigenvalues":
            return cp.trace(A), [cp.lambda_max(A) <= bound]
        case _:
            return cp.trace(A), [A >= 0]


def violation(A: Array, what: str, bound: float) -> float:
    """By how much a structure violates a constraint, relative to its bound or to its largest entry."""
    size = float(np.abs(A).max(initial=0.0))
    if size == 0:
        return 0.0
    match what:
        case "forbidden entries":
            return float(np.abs(A[far_apart(len(A))]).max(initial=0.0)) / size
        case "bounded trace":
            return max(float(np.trace(A)) / bound - 1, 0.0)
        case "bounded entries":
            return max(size / bound - 1, 0.0)
        case "bounded eigenvalues":
            return max(float(np.linalg.eigvalsh(A)[-1]) / bound - 1, 0.0)
        case _:
            return max(-float(A.min()), 0.0) / size


# --- wrong components -------------------------------------------------------------------------------------------


def _widened(fault: str, factor: float) -> float:
    """How much too wide the domain of a conjugate is: by a factor, or one of 2 and more for want of any bounds."""
    wide = max(factor, 1 / factor) if fault == "conjugate domain" else 1.0
    return wide if wide < 2 else np.inf


class WrongLoss:
    """A loss with the right ``value``, and one method that is not of it."""

    of_differences = True

    def __init__(self, name: str, fault: str, factor: float, size: float, width: float = 1.0, q: float = 0.5):
        self.name, self.fault, self.factor, self.size, self.width, self.q = name, fault, factor, size, width, q
        smooth = name in ("log_cosh", "huber")
        if smooth:
            self.gradient = self._gradient
            self.max_curvature = 1 / width**2 if name == "log_cosh" else 2.0
        else:
            self.prox = self._prox
        if fault.startswith("conjugate"):
            self.conjugate = self._conjugate
            if np.isfinite(_widened(fault, factor)):
                self.gradient_bounds = self._gradient_bounds
        if fault == "curvature":
            self.curvature = self._curvature

    def value(self, y: Array, z: Array) -> Array:
        r = np.abs(y - z)
        match self.name:
            case "log_cosh":
                return r / self.width + np.log1p(np.exp(-2 * r / self.width)) - np.log(2)
            case "huber":
                return np.where(r <= self.width, r**2, 2 * self.width * r - self.width**2)
            case "absolute":
                return r
            case _:
                return np.where(y >= z, self.q * (y - z), (1 - self.q) * (z - y))

    def _gradient(self, y: Array, z: Array) -> Array:
        factor = self.factor if self.fault == "gradient" else 1.0
        if self.name == "log_cosh":
            return factor * np.tanh((z - y) / self.width) / self.width
        return factor * 2 * np.clip(z - y, -self.width, self.width)

    def _curvature(self, y: Array, z: Array) -> Array:
        if self.name == "log_cosh":
            return self.factor * (1 - np.tanh((z - y) / self.width) ** 2) / self.width**2
        return self.factor * 2.0 * (np.abs(z - y) <= self.width)

    def _prox(self, y: Array, z: Array, step: Any) -> Array:
        step = step * (self.factor if self.fault == "prox" else 1.0)
        low, high = (1.0, 1.0) if self.name == "absolute" else (self.q, 1 - self.q)
        r = z - y
        moved = np.where(r > high * step, r - high * step, np.where(r < -low * step, r + low * step, 0.0))
        return y + moved * (self.factor if self.fault == "prox moved" else 1.0)

    def _gradient_bounds(self, y: Array) -> tuple[Any, Any]:
        wide = _widened(self.fault, self.factor)
        low, high = {
            "log_cosh": (1 / self.width, 1 / self.width),
            "huber": (2 * self.width, 2 * self.width),
            "absolute": (1.0, 1.0),
            "quantile": (self.q, 1 - self.q),
        }[self.name]
        return np.full_like(y, -wide * low), np.full_like(y, wide * high)

    def _conjugate(self, y: Array, s: Array) -> Array:
        low, high = self._gradient_bounds(y)
        inside = s * y
        if self.name == "huber":
            inside = inside + s**2 / 4
        elif self.name == "log_cosh":
            t = np.clip(s * self.width, -1, 1)
            inside = inside + ((1 + t) * np.log(np.maximum(1 + t, 1e-300)) + (1 - t) * np.log(np.maximum(1 - t, 1e-300))) / 2
        if self.fault == "conjugate values":
            inside = inside - 0.05 * {"log_cosh": 1.0, "huber": self.size**2}.get(self.name, self.size)
        return np.where((s >= low) & (s <= high), inside, np.inf)


class WrongStructure:
    """``tr A``, or ``tr A + ||A||^2 / 2``, and one method that is not of it."""

    def __init__(self, name: str, base: str, fault: str, factor: float):
        self.base, self.fault, self.factor = base, fault, factor
        if fault.startswith("conjugate"):
            self.conjugate = self._conjugate

    def value(self, A: Array) -> float:
        size = float(np.trace(A)) + (float(np.vdot(A, A)) / 2 if self.base != "trace" else 0.0)
        return size * (self.factor if self.fault == "value" else 1.0)

    def prox(self, A: Array, step: float) -> Array:
        a, V = np.linalg.eigh(A)
        step = step * (self.factor if self.fault == "prox" else 1.0)
        a = np.maximum((a - step) / (1 + step if self.base != "trace" else 1.0), 0.0)
        return (V * (a * (self.factor if self.fault == "prox moved" else 1.0))) @ V.T

    def _conjugate(self, S: Array) -> float:
        """``F*`` is ``||(S - I)_+||^2 / 2``, or 0 up to the largest eigenvalue 1 and infinite beyond."""
        s = np.linalg.eigvalsh(S)
        wide = _widened(self.fault, self.factor)
        if self.base == "trace":
            if s[-1] > wide * (1 + 1e-12):
                return np.inf
            return -0.05 * float(s.sum()) if self.fault == "conjugate values" else 0.0
        wide = min(wide, 2.0)  # which has bounds in no case
        share = 0.5 if self.fault == "conjugate values" else 1.0
        return share * float((np.maximum(s - wide, 0) ** 2).sum()) / 2
