"""A penalty written in CVXPY: its value, prox and best structure as conic problems, compiled once for each number of tasks."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ..._linalg import compose, psd_eigh
from ..base import Array

TOLERANCES = (1e-10, 1e-8)
SOLVED = ("optimal", "optimal_inaccurate")
LIKE = 30.0  # how far a structure may be from the unit
FAINT = 1e-4  # of the largest one so far, below which a structure is nearly nothing, and sets no unit
FEASIBLE = 1e-6  # how far a constraint may be missed, relative to the structure: a conic solver never meets it exactly


def _cvxpy() -> Any:
    try:
        import cvxpy
    except ImportError:
        raise ImportError(
            "a structure written as a function of a CVXPY variable needs CVXPY: pip install 'taskloom[custom]'"
        ) from None
    return cvxpy


class ConicPenalty:
    """``F`` from a function of a CVXPY variable ``A``; the results are right to the accuracy of the conic solver."""

    def __init__(self, function: Callable[[Any], Any], n_tasks: int):
        self.cp, self.function, self.n_tasks = _cvxpy(), function, n_tasks
        self._busy = threading.RLock()  # compiled problems hold their parameters: one thread at a time
        self._compiled: dict[str, Any] = {}
        self.unit = self.cost = 1.0  # of structures, and of F: what conic problems are posed in
        self.most = 0.0  # the largest size so far
        self._check()

    def _write(self, unit: float = 1.0) -> tuple[Any, Any, list]:
        """A fresh ``B``, ``F(A)`` with ``A = unit B``, and the constraints."""
        B = self.cp.Variable((self.n_tasks, self.n_tasks), PSD=True)
        result = self.function(B if unit == 1 else unit * B)
        F, constraints = result if isinstance(result, tuple) else (result, [])
        return B, self.cp.Constant(F) if isinstance(F, int | float) else F, list(constraints)

    def _check(self) -> None:
        cp = self.cp
        _, F, constraints = self._write()
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
        status = self._least()[0].status
        if "infeasible" in status:
            raise ValueError(
                f"no structure of {self.n_tasks} tasks meets the constraints of CustomStructure: they are infeasible"
            )
        if "unbounded" in status:
            raise ValueError(
                f"the penalty of CustomStructure has no minimum over structures of {self.n_tasks} tasks: it is unbounded below"
            )

    def _least(self) -> tuple[Any, Any]:
        A, F, constraints = self._write()
        problem = self.cp.Problem(self.cp.Minimize(F), constraints)
        self._solve(problem)
        return problem, A

    def _solve(self, problem: Any) -> bool:
        """Whether a solution was found; the status says what was found instead."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on accuracy: the certificate judges it
            for tol in TOLERANCES:
                try:
                    problem.solve(
                        solver=self.cp.CLARABEL, tol_gap_abs=tol, tol_gap_rel=tol, tol_feas=tol, max_iter=200, max_threads=1
                    )
                except self.cp.error.SolverError:
                    continue
                except BaseException as error:
                    if type(error).__name__ != "PanicException":  # of Rust, in Clarabel: an eigenvalue that it cannot find
                        raise
                    continue
                if problem.status != "optimal_inaccurate" or tol == TOLERANCES[-1]:
                    break
        return problem.status in SOLVED

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._compiled:
            self._compiled[name] = make()
        return self._compiled[name]

    def _read(self, A: Any) -> Array:
        """The solver's ``A``, without the trace by which it leaves the cone."""
        return compose(*psd_eigh(A.value))

    def _answer(self, problem: Any, A: Any, what: str) -> Array:
        if not self._solve(problem) or A.value is None:
            raise RuntimeError(f"the conic solver could not compute the {what} of the custom penalty: {problem.status}")
        return self._read(A)

    def value(self, A: Array) -> float:
        with self._busy:
            variable, F, constraints, hidden = self._once("value", self._make_value)
            if hidden is not None:
                problem, given = hidden
                given.value = A
                return float(problem.value) if self._solve(problem) else np.inf
            variable.save_value(A)
            slack = FEASIBLE * max(1.0, float(np.abs(A).max(initial=0.0)))
            if any(float(np.max(constraint.violation(), initial=0.0)) > slack for constraint in constraints):
                return np.inf
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")  # a logarithm at the edge of its domain
                value = float(F.value)
            return value if np.isfinite(value) else np.inf

    def _make_value(self) -> tuple:
        """``F`` to be evaluated; by a problem of its own where its author used variables beside ``A``."""
        A, F, constraints = self._write()
        own = {v.id for part in (F, *constraints) for v in part.variables()} - {A.id}
        if not own:
            return A, F, constraints, None
        given = self.cp.Parameter((self.n_tasks, self.n_tasks))
        return A, F, constraints, (self.cp.Problem(self.cp.Minimize(F), [*constraints, given == A]), given)

    def prox(self, A: Array, step: float) -> Array:
        with self._busy:
            try:
                return self._prox(A, step)
            except RuntimeError:  # in units of what was given, then, for once
                before, size = (self.unit, self.cost), float(np.abs(A).max(initial=0.0))
                if not self._measure_in(size, size):
                    raise
                try:
                    return self._prox(A, step)
                finally:
                    self._pose_in(*before)

    def _prox(self, A: Array, step: float) -> Array:
        problem, B, around, (strength, pull) = self._once("prox", self._make_prox)
        step = step * self.cost / self.unit**2
        scale = max(step, 1.0)  # the objective is divided by it: a long step would drown F
        strength.value, pull.value = step / scale, 1 / np.sqrt(scale)
        around.value = A / (self.unit * np.sqrt(scale))
        return self.unit * self._answer(problem, B, "prox")

    def _make_prox(self) -> tuple:
        cp = self.cp
        B, F, constraints = self._write(self.unit)
        strength, pull = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True)
        around = cp.Parameter((self.n_tasks, self.n_tasks))
        objective = strength * (F / self.cost) + cp.sum_squares(pull * B - around) / 2
        return cp.Problem(cp.Minimize(objective), constraints), B, around, (strength, pull)

    def best_structure(self, S: Array) -> Array:
        """The first question of a fit: it tells the size of structures, in which all others are then asked."""
        s, V = psd_eigh(S)
        largest = float(s[-1])
        with self._busy:
            for guess in (self.unit, float(np.sqrt(largest)), float(np.cbrt(largest))):  # of linear or square penalties
                try:
                    self._measure_in(guess, largest)
                    A = self._best(s, V)
                    self.most = max(self.most, size := float(np.abs(A).max(initial=0.0)))
                    if self._measure_in(size, largest):
                        A = self._best(s, V)
                    return A
                except RuntimeError as error:
                    failure = error
            raise failure

    def _best(self, s: Array, V: Array) -> Array:
        problem, B, root = self._once("best", self._make_best)
        root.value = compose(np.sqrt(s / (self.unit * self.cost)), V)
        return self.unit * self._answer(problem, B, "best structure")

    def _make_best(self) -> tuple:
        """``tr(B^-1 LL')`` is the least ``tr R`` with ``[[B, L], [L', R]] >= 0``."""
        cp, T = self.cp, self.n_tasks
        B, F, constraints = self._write(self.unit)
        root, R = cp.Parameter((T, T)), cp.Variable((T, T), symmetric=True)
        schur = cp.bmat([[B, root.T], [root, R]]) >> 0
        return cp.Problem(cp.Minimize(cp.trace(R) + F / self.cost), [*constraints, schur]), B, root

    def _measure_in(self, size: float, largest: float) -> bool:
        """Take this size for the unit, unless it is much like the one at hand; whether that changed anything.

        What a conic solver is right to is an absolute number: structures of 1e-4 would be known to a digit or two. The unit of
        ``F`` is its value there, or where that says nothing (an indicator) what the weights are charged.
        """
        if not (np.isfinite(size) and size > 0 and largest > 0):
            return False
        size = max(size, FAINT * self.most)
        unit = self.unit if 1 / LIKE <= size / self.unit <= LIKE else size
        cost = abs(self.value(unit * np.eye(self.n_tasks)))
        cost = cost if np.isfinite(cost) and cost > 0 else largest / unit
        if unit == self.unit and 1 / LIKE <= cost / self.cost <= LIKE:
            return False
        self._pose_in(unit, cost)
        return True

    def _pose_in(self, unit: float, cost: float) -> None:
        self.unit, self.cost = unit, cost
        for question in ("prox", "best"):
            self._compiled.pop(question, None)
