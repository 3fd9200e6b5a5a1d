"""Convex penalties that users write, as a CVXPY expression of ``A`` or as an object with ``value`` and ``prox``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._linalg import psd_root, symmetric
from ..base import Array, Ray, Structure, finite_ray
from . import numeric_bounds as bounds
from .cvxpy_penalty import ConicPenalty


def has_methods(penalty: Any) -> bool:
    """Whether an object has the methods ``value`` and ``prox``."""
    return not isinstance(penalty, type) and all(callable(getattr(penalty, name, None)) for name in ("value", "prox"))


class _Methods(bounds.Penalty):
    """The ``value`` and ``prox`` of a user's object, as a float and a symmetric matrix."""

    def __init__(self, penalty: Any, n_tasks: int):
        self.penalty, self.n_tasks = penalty, n_tasks
        probe = np.eye(n_tasks)
        P, name = np.asarray(penalty.prox(probe, 1.0)), type(penalty).__name__
        if P.shape != probe.shape:
            raise ValueError(f"{name}.prox must give a matrix of shape {probe.shape}, got shape {P.shape}")
        if not np.isfinite(P).all():
            raise ValueError(f"{name}.prox must give a finite matrix, got NaN or infinity at the identity")
        value = penalty.value(P)
        if np.ndim(value) != 0:
            raise ValueError(f"{name}.value must give one number, got shape {np.shape(value)}")
        if not np.isfinite(value):
            raise ValueError(
                f"{name}.value must be finite at the result of its prox, got {float(value)!r} at the prox of the identity"
            )

    def value(self, A: Array) -> float:
        value = float(self.penalty.value(A))
        return np.inf if np.isnan(value) else value

    def prox(self, A: Array, step: float) -> Array:
        return symmetric(np.asarray(self.penalty.prox(symmetric(A), float(step)), dtype=float))


@dataclass(eq=False, repr=False)
class CustomStructure(Structure):
    """A penalty of your own; docs/custom.md shows how to write one and how to check it.

    Without a ``conjugate``, the certificate uses an upper bound computed from the prox, and its message says so.

    Parameters
    ----------
    penalty : callable or object
        A function from a CVXPY variable ``A`` to a convex expression, or to an expression and a list of constraints (needs
        ``pip install taskloom[custom]``). Or an object with ``value(A)`` and ``prox(A, step)``, and where they are known
        ``conjugate(S)`` and ``best_structure(S)``; their meaning is that of ``Structure``.
    """

    penalty: Any

    def check(self) -> None:
        what, name = self.penalty, getattr(self.penalty, "__name__", self.penalty)
        if isinstance(what, type):
            raise ValueError(f"penalty={name} is a class; pass an object of it: {name}(...)")
        if not (has_methods(what) or callable(what)):
            raise ValueError(
                "CustomStructure needs a function of a CVXPY variable, or an object with the methods value and prox; got "
                f"{what!r}"
            )
        self._by_size: dict[int, bounds.Penalty] = {}

    def __getstate__(self) -> dict:
        """Without compiled problems, which cannot be pickled."""
        return {"penalty": self.penalty}

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state, _by_size={})

    def bind(self, tasks: Any) -> CustomStructure:
        """A copy for one fit: compiled problems hold parameters and units, which fits in other threads must not change."""
        return CustomStructure(self.penalty)

    def _for_tasks(self, n_tasks: int) -> bounds.Penalty:
        """The penalty for this many tasks, compiled where it is written in CVXPY."""
        if n_tasks not in self._by_size:
            self._by_size[n_tasks] = (_Methods if has_methods(self.penalty) else ConicPenalty)(self.penalty, n_tasks)
        return self._by_size[n_tasks]

    def _optional(self, name: str) -> Any:
        """A method that the object may have besides the required ones."""
        return getattr(self.penalty, name, None) if has_methods(self.penalty) else None

    @property
    def user_written(self) -> bool:
        return has_methods(self.penalty)  # one in CVXPY has no methods that could contradict each other

    @property
    def proof(self) -> str:  # type: ignore[override]
        if self._optional("conjugate") is not None:
            return ""
        source = "its prox" if has_methods(self.penalty) else "the prox that a conic solver computes, to its accuracy"
        return f"The conjugate of the penalty was bounded numerically, from {source}"

    def check_tasks(self, n_tasks: int) -> None:
        """Compile for each new problem, because the penalty may have changed since the last one."""
        self._by_size.clear()
        self._for_tasks(n_tasks)

    def value(self, A: Array) -> float:
        return self._for_tasks(len(A)).value(A)

    def prox(self, A: Array, step: float) -> Array:
        return self._for_tasks(len(A)).prox(A, step)

    def best_structure(self, S: Array) -> Array:
        return self.best_of_root(psd_root(S, rtol=0.0).T)[0]

    def best_of_root(self, R: Array, floor: float = 0.0) -> tuple[Array, float]:
        F, T = self._for_tasks(R.shape[1]), R.shape[1]
        if not np.any(R) and floor == 0:
            return F.minimum[0], F.value(F.minimum[0])
        lift = max(floor, 1e-24 * float(np.vdot(R, R)))
        _, s, Vt = np.linalg.svd(R, full_matrices=R.shape[0] < T)
        root = Vt.T * np.sqrt(np.append(s, np.zeros(T - s.size)) ** 2 + lift)
        own = self._optional("best_structure") or getattr(F, "best_structure", None)
        if own is None:
            return bounds.best_candidate(F, R, bounds.best_structures(F, root))
        return bounds.best_candidate(F, R, [symmetric(np.asarray(own(root @ root.T), dtype=float))])

    def ray(self, S: Array, near: Array | None = None) -> Ray:
        conjugate = self._optional("conjugate")
        if conjugate is not None:
            return finite_ray(lambda c: float(conjugate(c * S)))
        return bounds.ray(self._for_tasks(len(S)), S, near)

    def conjugate(self, S: Array, near: Array | None = None) -> float:
        return self.ray(S, near).conjugate(1.0)
