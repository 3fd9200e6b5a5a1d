"""Constraints of penalties in CVXPY, relative to their own size: a tolerance is an absolute number.

The unit of a constraint is its constant, as of ``trace(A) <= 1e-7``. Where it has none, as ``A[0, 1] == 0``, it is what the
constraint makes of a structure of the size in question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import Array

LEAST_CONSTANT = 1e-8  # constants below this share of what a structure gives do not count as units
ENTRYWISE = ("Equality", "Inequality", "Zero", "NonPos", "NonNeg")


class ConstraintUnits:
    """The units of the constraints on a variable of CVXPY; ``others`` are the variables besides it, held at 0."""

    def __init__(self, variable: Any, F: Any, constraints: Sequence[Any]):
        self.variable, self.constraints = variable, constraints
        all_variables = {v.id: v for part in (F, *constraints) for v in part.variables()}
        self.others = [v for v in all_variables.values() if v is not variable]
        root = np.random.default_rng(0).normal(size=variable.shape)
        probe = root @ root.T
        self.probes = (np.eye(len(probe)), probe / np.abs(probe).max(initial=1e-300))
        self.zero = np.zeros(variable.shape)
        self.constants = [_largest(c, self._sides(c, self.zero)) for c in constraints]

    def place(self, A: Array) -> None:
        """Give the variable this value, and 0 to the others."""
        self.variable.save_value(A)
        for other in self.others:
            other.save_value(np.zeros(other.shape))

    def _sides(self, constraint: Any, A: Array) -> list[Array]:
        """The sides of a constraint at ``A``; 0 where they are not finite."""
        self.place(A)
        with np.errstate(all="ignore"):
            return [np.nan_to_num(np.asarray(arg.value), nan=0.0, posinf=0.0, neginf=0.0) for arg in constraint.args]

    def _reach(self, constraint: Any, A: Array) -> Array:
        """By how much the sides of a constraint differ between 0 and ``A``."""
        there, here = self._sides(constraint, A), self._sides(constraint, self.zero)
        return _largest(constraint, [side - constant for side, constant in zip(there, here, strict=True)])

    def at(self, size: float) -> list[Array]:
        """The units at structures of this size; the value of the variable is lost."""
        units = []
        for constraint, constant in zip(self.constraints, self.constants, strict=True):
            reach = np.maximum.reduce([self._reach(constraint, size * probe) for probe in self.probes])
            unit = np.where(constant > 0, np.maximum(constant, LEAST_CONSTANT * reach), reach)
            units.append(np.where(unit > 0, unit, 1.0))
        return units

    def sizes(self) -> list[float]:
        """Sizes of structures that the constants of the constraints ask for."""
        found = []
        for constraint, constant in zip(self.constraints, self.constants, strict=True):
            reach = self._reach(constraint, self.probes[0])
            given = (constant > 0) & (reach > 0)
            found += np.unique(constant[given] / reach[given]).tolist()
        return found

    def violation(self, A: Array) -> float:
        """By how much ``A`` violates a constraint, in units of it at the size of ``A``; without other variables."""
        units = self.at(float(np.abs(A).max(initial=0.0)))
        self.variable.save_value(A)
        with np.errstate(all="ignore"):  # CVXPY divides by norms that may be 0
            violations = [
                float(np.max(c.violation() / unit, initial=0.0)) for c, unit in zip(self.constraints, units, strict=True)
            ]
        return max(violations, default=0.0)


def _largest(constraint: Any, sides: list[Array]) -> Array:
    """The largest absolute value of the sides of a constraint; of each entry where they are compared by entries."""
    if type(constraint).__name__ in ENTRYWISE:
        return np.maximum.reduce(np.broadcast_arrays(*map(np.abs, sides)))
    return np.asarray(max(float(np.abs(side).max(initial=0.0)) for side in sides))
