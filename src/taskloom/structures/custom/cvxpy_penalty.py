"""Penalties written in CVXPY: value, prox and best structure are conic problems, compiled once per number of tasks."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np

from ..._linalg import compose, psd_eigh
from ..base import Array
from .conic_solver import SOLVED, solve_conic
from .constraints import ConstraintUnits
from .numeric_bounds import Penalty, proximal_minimum

UNIT_RANGE = 30.0  # the size of a structure may differ from the unit by this factor
MAX_RESCALES = 12  # until a structure has the size of its unit: each finds ten digits more
MIN_UNIT = 1e-4  # relative to the largest structure so far: smaller ones do not change the unit
SIZES = np.logspace(-24, 24, 49)  # of structures, among which the minimum of a penalty is looked for
SMALL = 1e-16  # in the units of structures, the unit in which zero is evaluated
MIN_DIVISOR = 1e-2  # of the objective of a prox, which is divided by its size because solvers are right to an absolute number
FEASIBILITY = 1e-7  # tolerance of the constraints in their own units, because conic solvers are inexact

NO_CVXPY = "a structure written as a function of a CVXPY variable needs CVXPY: pip install 'taskloom[custom]'"


class _ScaledProblems:
    """The conic problems for ``A = unit B``, with ``F`` in units of its own; compiled on first use.

    ``cost`` is the unit of ``tr(A^-1 S) + F(A)``, where ``F`` alone may be small.
    """

    def __init__(self, penalty: ConicPenalty, unit: float, cost: float):
        self.penalty, self.unit, self.cost = penalty, unit, cost
        self.penalty_size = penalty.size_at(unit)
        self.penalty_unit = self.penalty_size or cost

    def expression(self) -> tuple[Any, Any, list]:
        """A new variable ``B``, ``F(unit B) / penalty_unit``, and the constraints."""
        B, F, constraints = self.penalty.expression(self.unit)
        return B, F / self.penalty_unit, constraints

    @cached_property
    def prox(self) -> tuple[Any, ...]:
        """``min step F(B) + weight ||B||^2 / 2 - <B, pull>``: the problem, ``B``, the parameters pull, step and weight."""
        cp, T = self.penalty.cp, self.penalty.n_tasks
        B, F, constraints = self.expression()
        step, weight, pull = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True), cp.Parameter((T, T))
        objective = step * F + weight * cp.sum_squares(B) / 2 - cp.sum(cp.multiply(pull, B))
        return cp.Problem(cp.Minimize(objective), constraints), B, pull, step, weight

    @cached_property
    def best(self) -> tuple[Any, ...]:
        """``min tr(B^-1 LL') + F(B) / cost``: the problem, ``B``, and the parameter ``L``.

        ``tr(B^-1 LL')`` is the minimum of ``tr R`` over ``[[B, L], [L', R]] >= 0``.
        """
        cp, T = self.penalty.cp, self.penalty.n_tasks
        B, F, constraints = self.expression()
        root, R = cp.Parameter((T, T)), cp.Variable((T, T), symmetric=True)
        schur = cp.bmat([[B, root.T], [root, R]]) >> 0
        return cp.Problem(cp.Minimize(cp.trace(R) + (self.penalty_unit / self.cost) * F), [*constraints, schur]), B, root

    @cached_property
    def value(self) -> tuple[Any, ...]:
        """``F(B)`` of a given ``B``, minimised over the other variables: the problem, ``B``, and the parameter."""
        cp, T = self.penalty.cp, self.penalty.n_tasks
        B, F, constraints = self.expression()
        given = cp.Parameter((T, T))
        return cp.Problem(cp.Minimize(F), [*constraints, given == B]), B, given

    @cached_property
    def minimum(self) -> tuple[Array, float]:
        """The minimiser of ``F`` and a bound on ``F*(0)``; exactly 0 where that is as good, because solvers are inexact."""
        A, at_zero = proximal_minimum(self.penalty, self.unit, self.penalty_unit)
        zero = np.zeros_like(A)
        return (zero if self.penalty.value(zero) <= self.penalty.value(A) else A), at_zero


class ConicPenalty(Penalty):
    """``F`` from a function of a CVXPY variable ``A``; results have the accuracy of the conic solver."""

    def __init__(self, function: Callable[[Any], Any], n_tasks: int):
        try:
            self.cp: Any = import_module("cvxpy")
        except ImportError:
            raise ImportError(NO_CVXPY) from None
        self.function, self.n_tasks = function, n_tasks
        self._lock = threading.RLock()  # compiled problems hold their parameters: one thread at a time
        self.largest_structure = 0.0
        self._failure = ""
        self._check()

    def expression(self, unit: float = 1.0) -> tuple[Any, Any, list]:
        """A new variable ``B``, the expression ``F(A)`` with ``A = unit B``, and the constraints."""
        B = self.cp.Variable((self.n_tasks, self.n_tasks), PSD=True)
        result = self.function(B if unit == 1 else unit * B)
        F, constraints = result if isinstance(result, tuple) else (result, [])
        return B, self.cp.Constant(F) if isinstance(F, int | float) else F, list(constraints)

    def _check(self) -> None:
        cp = self.cp
        _, F, constraints = self.expression()
        if not isinstance(F, cp.Expression):
            raise ValueError(
                "CustomStructure needs a function from a CVXPY variable to an expression, or to an expression and a list of "
                f"constraints; got {type(F).__name__}"
            )
        if not F.is_scalar():
            raise ValueError(f"the penalty of CustomStructure must be one number, got an expression of shape {F.shape}")
        if not F.is_convex():
            raise ValueError(f"the penalty of CustomStructure must be convex by CVXPY's rules (is_convex() is False), got {F}")
        wrong = next((c for c in constraints if not (isinstance(c, cp.Constraint) and c.is_dcp())), None)
        if wrong is not None:
            raise ValueError(f"the constraints of CustomStructure must be convex by CVXPY's rules, got {wrong}")
        problem = self._first_problem()
        if problem.status is None:
            return  # neither solved nor refuted in any of these units: the fit will find others
        if "infeasible" in problem.status:
            raise ValueError(
                f"no structure of {self.n_tasks} tasks meets the constraints of CustomStructure: they are infeasible"
            )
        if "unbounded" in problem.status:
            raise ValueError(
                f"the penalty of CustomStructure has no minimum over structures of {self.n_tasks} tasks: it is unbounded below"
            )

    def _first_problem(self) -> Any:
        """The minimisation of ``F`` in the first units in which it can be solved; they serve until a fit finds its own."""
        for unit in self._natural_sizes():
            self.scaled = _ScaledProblems(self, unit, self.size_at(unit) or 1.0)
            B, F, constraints = self.scaled.expression()
            problem = self.cp.Problem(self.cp.Minimize(F), constraints)
            if self._solve(problem, B):
                break
        return problem

    def _natural_sizes(self) -> list[float]:
        """Sizes of structures that the penalty itself speaks of: of its constants, and of its minimum along the identity."""
        F, constraints, alone = self._explicit
        sizes = constraints.sizes()
        if alone:
            values = [self._evaluate(F, constraints, size * np.eye(self.n_tasks)) for size in SIZES]
            least = int(np.argmin(values))
            sizes += [float(SIZES[least])] if 0 < least < len(SIZES) - 1 and values[0] > values[least] < values[-1] else []
        return [*sizes, 1.0]

    def _solve(self, problem: Any, B: Any) -> bool:
        """Solve a conic problem for a ``B`` of size 1, and return whether it was solved."""
        self._failure = solve_conic(self.cp, problem, [B])
        return self._failure in SOLVED

    def _solution(self, problem: Any, A: Any, what: str) -> Array:
        """The solution, projected on the positive semidefinite matrices."""
        if not self._solve(problem, A) or A.value is None:
            raise RuntimeError(
                f"the conic solver could not compute the {what} of the custom penalty ({self._failure}); bring y and alpha to "
                "units in which the structure is of size 1, or write the penalty as an object with value and prox"
            )
        return compose(*psd_eigh(A.value))

    @cached_property
    def _explicit(self) -> tuple[Any, ConstraintUnits, bool]:
        """``F(A)``, its constraints on ``A`` in their units, and whether there are no variables besides ``A``."""
        A, F, constraints = self.expression()
        units = ConstraintUnits(A, F, constraints)
        return F, units, not units.others

    def value(self, A: Array) -> float:
        with self._lock:
            F, constraints, alone = self._explicit
            if not alone:
                return self._solved_value(A)
            if constraints.violation(A) > FEASIBILITY:
                return np.inf
            return self._evaluate(F, constraints, A)

    @staticmethod
    def _evaluate(F: Any, constraints: ConstraintUnits, A: Array) -> float:
        """``F(A)`` with the other variables at 0; infinite where it is not defined."""
        constraints.place(A)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # a logarithm at the boundary of its domain
            value = F.value
        return float(value) if value is not None and np.isfinite(value) else np.inf

    def _solved_value(self, A: Array) -> float:
        """``F(A)``, minimised over the other variables, in units of ``A``."""
        scaled = self.scaled
        size = float(np.abs(A).max(initial=0.0)) or SMALL * scaled.unit
        if not 1 / UNIT_RANGE <= size / scaled.unit <= UNIT_RANGE:
            scaled = _ScaledProblems(self, size, scaled.cost * size / scaled.unit)
        problem, B, given = scaled.value
        given.value = A / scaled.unit
        return scaled.penalty_unit * float(problem.value) if self._solve(problem, B) else np.inf

    @property
    def minimum(self) -> tuple[Array, float]:
        """In the units of the structures, which are known after the first best structure."""
        with self._lock:
            return self.scaled.minimum

    def prox(self, A: Array, step: float) -> Array:
        with self._lock:
            try:
                return self._prox(A, step)
            except RuntimeError:  # once more, in units of A
                before, size = self.scaled, float(np.abs(A).max(initial=0.0))
                if not self._rescale(size, size):
                    raise
                try:
                    return self._prox(A, step)
                finally:
                    self.scaled = before

    def _prox(self, A: Array, step: float) -> Array:
        unit, (problem, B, pull, length, weight) = self.scaled.unit, self.scaled.prox
        step = step / unit**2
        divisor = max(step * self.scaled.penalty_size, float(np.abs(A).max(initial=0.0)) / unit, MIN_DIVISOR)
        step *= self.scaled.penalty_unit
        length.value, weight.value, pull.value = step / divisor, 1 / divisor, A / (unit * divisor)
        return unit * self._solution(problem, B, "prox")

    def best_structure(self, S: Array) -> Array:
        """The first call of a fit, which determines the unit of all others from the size of the structure."""
        s, V = psd_eigh(S)
        largest = float(s[-1])
        with self._lock:
            guesses = [float(np.sqrt(largest)), float(np.cbrt(largest))]  # of linear and of quadratic penalties
            guesses = [*([self.scaled.unit] if self.largest_structure else []), *guesses, *self._natural_sizes()]
            for guess in guesses:
                try:
                    return self._best_in_its_units(s, V, guess)
                except RuntimeError as error:
                    failure = error
            raise failure

    def _best_in_its_units(self, s: Array, V: Array, guess: float) -> Array:
        largest = float(s[-1])
        self._rescale(guess, largest)
        for _ in range(MAX_RESCALES):
            A = self._best(s, V)
            size = float(np.abs(A).max(initial=0.0))
            if not self._rescale(size, largest):
                break
        self.largest_structure = max(self.largest_structure, size)
        return A

    def _best(self, s: Array, V: Array) -> Array:
        problem, B, root = self.scaled.best
        root.value = compose(np.sqrt(s / (self.scaled.unit * self.scaled.cost)), V)
        return self.scaled.unit * self._solution(problem, B, "best structure")

    def _rescale(self, size: float, largest: float) -> bool:
        """Take this size as the unit of structures unless it is close to the current one; return whether anything changed.

        Conic solvers have an absolute accuracy, so that structures of size 1e-4 would have one or two correct digits. The unit
        of ``F`` is its value there, or the squared norm of the weights where that is larger (an indicator function has none).
        """
        if not (np.isfinite(size) and size > 0 and largest > 0):
            return False
        now, size = self.scaled, max(size, MIN_UNIT * self.largest_structure)
        unit = now.unit if 1 / UNIT_RANGE <= size / now.unit <= UNIT_RANGE else size
        cost = max(self.size_at(unit), largest / unit)
        if unit == now.unit and 1 / UNIT_RANGE <= cost / now.cost <= UNIT_RANGE:
            return False
        self.scaled = _ScaledProblems(self, unit, cost)
        return True

    def size_at(self, unit: float) -> float:
        """``|F|`` at structures of this size; 0 where it is not known, and of indicator functions."""
        F, constraints, _ = self._explicit
        values = [abs(self._evaluate(F, constraints, unit * probe)) for probe in constraints.probes]
        return max((value for value in values if np.isfinite(value)), default=0.0)
