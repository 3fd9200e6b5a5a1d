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
from .numeric_bounds import Penalty

TOLERANCES = (1e-10, 1e-8)
SOLVED = ("optimal", "optimal_inaccurate")
UNIT_RANGE = 30.0  # the size of a structure may differ from the unit by this factor
MIN_UNIT = 1e-4  # relative to the largest structure so far: smaller ones do not change the unit
FEASIBILITY = 1e-6  # tolerance of the constraints relative to the structure, because conic solvers are inexact


NO_CVXPY = "a structure written as a function of a CVXPY variable needs CVXPY: pip install 'taskloom[custom]'"


class _ScaledProblems:
    """The prox and the best structure for ``A = unit B`` and penalties in units of ``cost``, each compiled on first use."""

    def __init__(self, penalty: ConicPenalty, unit: float, cost: float):
        self.penalty, self.unit, self.cost = penalty, unit, cost

    @cached_property
    def prox(self) -> tuple[Any, ...]:
        """``min step F(B) / cost + ||scale B - point||^2 / 2``: the problem, ``B``, the parameters point, step and scale."""
        cp, T = self.penalty.cp, self.penalty.n_tasks
        B, F, constraints = self.penalty.expression(self.unit)
        step, scale, point = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True), cp.Parameter((T, T))
        objective = step * (F / self.cost) + cp.sum_squares(scale * B - point) / 2
        return cp.Problem(cp.Minimize(objective), constraints), B, point, step, scale

    @cached_property
    def best(self) -> tuple[Any, ...]:
        """``min tr(B^-1 LL') + F(B) / cost``: the problem, ``B``, and the parameter ``L``.

        ``tr(B^-1 LL')`` is the minimum of ``tr R`` over ``[[B, L], [L', R]] >= 0``.
        """
        cp, T = self.penalty.cp, self.penalty.n_tasks
        B, F, constraints = self.penalty.expression(self.unit)
        root, R = cp.Parameter((T, T)), cp.Variable((T, T), symmetric=True)
        schur = cp.bmat([[B, root.T], [root, R]]) >> 0
        return cp.Problem(cp.Minimize(cp.trace(R) + F / self.cost), [*constraints, schur]), B, root


class ConicPenalty(Penalty):
    """``F`` from a function of a CVXPY variable ``A``; results have the accuracy of the conic solver."""

    def __init__(self, function: Callable[[Any], Any], n_tasks: int):
        try:
            self.cp: Any = import_module("cvxpy")
        except ImportError:
            raise ImportError(NO_CVXPY) from None
        self.function, self.n_tasks = function, n_tasks
        self._lock = threading.RLock()  # compiled problems hold their parameters: one thread at a time
        self.scaled = _ScaledProblems(self, 1.0, 1.0)
        self.largest_structure = 0.0
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
        problem = cp.Problem(cp.Minimize(F), constraints)
        self._solve(problem)
        if "infeasible" in problem.status:
            raise ValueError(
                f"no structure of {self.n_tasks} tasks meets the constraints of CustomStructure: they are infeasible"
            )
        if "unbounded" in problem.status:
            raise ValueError(
                f"the penalty of CustomStructure has no minimum over structures of {self.n_tasks} tasks: it is unbounded below"
            )

    def _solve(self, problem: Any) -> bool:
        """Solve a conic problem, and return whether it was solved."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about accuracy, which the certificate measures
            for tol in TOLERANCES:
                try:
                    problem.solve(
                        solver=self.cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol, max_iter=200, max_threads=1
                    )
                except self.cp.error.SolverError:
                    continue
                except BaseException as error:
                    if type(error).__name__ != "PanicException":  # raised by Clarabel where an eigenvalue solver fails
                        raise
                    continue
                if problem.status != "optimal_inaccurate" or tol == TOLERANCES[-1]:
                    break
        return problem.status in SOLVED

    def _solution(self, problem: Any, A: Any, what: str) -> Array:
        """The solution, projected on the positive semidefinite matrices."""
        if not self._solve(problem) or A.value is None:
            raise RuntimeError(f"the conic solver could not compute the {what} of the custom penalty: {problem.status}")
        return compose(*psd_eigh(A.value))

    @cached_property
    def _value_problem(self) -> tuple[Any, ...]:
        """``A``, ``F(A)`` and its constraints; where ``F`` has auxiliary variables, a problem that fixes ``A``, too."""
        A, F, constraints = self.expression()
        if not {v.id for part in (F, *constraints) for v in part.variables()} - {A.id}:
            return A, F, constraints, None, None
        given = self.cp.Parameter((self.n_tasks, self.n_tasks))
        return A, F, constraints, self.cp.Problem(self.cp.Minimize(F), [*constraints, given == A]), given

    def value(self, A: Array) -> float:
        with self._lock:
            variable, F, constraints, problem, given = self._value_problem
            if problem is not None:
                given.value = A
                return float(problem.value) if self._solve(problem) else np.inf
            variable.save_value(A)
            slack = FEASIBILITY * max(1.0, float(np.abs(A).max(initial=0.0)))
            if any(float(np.max(constraint.violation(), initial=0.0)) > slack for constraint in constraints):
                return np.inf
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # a logarithm at the boundary of its domain
                value = float(F.value)
            return value if np.isfinite(value) else np.inf

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
        unit, (problem, B, point, length, scale) = self.scaled.unit, self.scaled.prox
        step = step * self.scaled.cost / unit**2
        divisor = max(step, 1.0)  # of the objective, because a long step would leave F inaccurate
        length.value, scale.value = step / divisor, 1 / np.sqrt(divisor)
        point.value = A / (unit * np.sqrt(divisor))
        return unit * self._solution(problem, B, "prox")

    def best_structure(self, S: Array) -> Array:
        """The first call of a fit, which determines the unit of all others from the size of the structure."""
        s, V = psd_eigh(S)
        largest = float(s[-1])
        with self._lock:
            for guess in (self.scaled.unit, float(np.sqrt(largest)), float(np.cbrt(largest))):  # linear, quadratic penalties
                try:
                    self._rescale(guess, largest)
                    A = self._best(s, V)
                    self.largest_structure = max(self.largest_structure, size := float(np.abs(A).max(initial=0.0)))
                    if self._rescale(size, largest):
                        A = self._best(s, V)
                    return A
                except RuntimeError as error:
                    failure = error
            raise failure

    def _best(self, s: Array, V: Array) -> Array:
        problem, B, root = self.scaled.best
        root.value = compose(np.sqrt(s / (self.scaled.unit * self.scaled.cost)), V)
        return self.scaled.unit * self._solution(problem, B, "best structure")

    def _rescale(self, size: float, largest: float) -> bool:
        """Take this size as the unit of structures unless it is close to the current one; return whether anything changed.

        Conic solvers have an absolute accuracy, so that structures of size 1e-4 would have one or two correct digits. The unit
        of ``F`` is its value there, or where that is 0 or infinite (an indicator function) the squared norm of the weights.
        """
        if not (np.isfinite(size) and size > 0 and largest > 0):
            return False
        now, size = self.scaled, max(size, MIN_UNIT * self.largest_structure)
        unit = now.unit if 1 / UNIT_RANGE <= size / now.unit <= UNIT_RANGE else size
        cost = abs(self.value(unit * np.eye(self.n_tasks)))
        cost = cost if np.isfinite(cost) and cost > 0 else largest / unit
        if unit == now.unit and 1 / UNIT_RANGE <= cost / now.cost <= UNIT_RANGE:
            return False
        self.scaled = _ScaledProblems(self, unit, cost)
        return True
