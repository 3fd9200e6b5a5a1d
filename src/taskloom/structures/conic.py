"""A penalty written in CVXPY: its value, prox and best structure as conic problems, compiled once for each number of tasks."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .._component import require
from .._linalg import compose, psd_eigh
from .base import Array

TOLERANCES = (1e-10, 1e-8)
SOLVED = ("optimal", "optimal_inaccurate")
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
        self._check()

    def _write(self) -> tuple[Any, Any, list]:
        """A fresh ``A``, ``F(A)`` and the constraints."""
        A = self.cp.Variable((self.n_tasks, self.n_tasks), PSD=True)
        result = self.function(A)
        F, constraints = result if isinstance(result, tuple) else (result, [])
        return A, self.cp.Constant(F) if isinstance(F, int | float) else F, list(constraints)

    def _check(self) -> None:
        cp = self.cp
        _, F, constraints = self._write()
        require(
            isinstance(F, cp.Expression),
            "CustomStructure needs a function from a CVXPY variable to an expression, or to an expression and a list of "
            f"constraints; got {type(F).__name__}",
        )
        require(F.is_scalar(), f"the penalty of CustomStructure must be one number, got an expression of shape {F.shape}")
        require(
            F.is_convex(),
            f"the penalty of CustomStructure must be convex by CVXPY's rules (is_convex() is False), got {F}",
        )
        wrong = next((c for c in constraints if not (isinstance(c, cp.Constraint) and c.is_dcp())), None)
        require(wrong is None, f"the constraints of CustomStructure must be convex by CVXPY's rules, got {wrong}")
        status = self._least()[0].status
        require(
            "infeasible" not in status,
            f"no structure of {self.n_tasks} tasks meets the constraints of CustomStructure: they are infeasible",
        )
        require(
            "unbounded" not in status,
            f"the penalty of CustomStructure has no minimum over structures of {self.n_tasks} tasks: it is unbounded below",
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
            problem, variable, around, (strength, pull) = self._once("prox", self._make_prox)
            scale = max(step, 1.0)  # the objective is divided by it: a long step would drown F
            strength.value, pull.value = step / scale, 1 / np.sqrt(scale)
            around.value = A / np.sqrt(scale)
            return self._answer(problem, variable, "prox")

    def _make_prox(self) -> tuple:
        cp = self.cp
        A, F, constraints = self._write()
        strength, pull = cp.Parameter(nonneg=True), cp.Parameter(nonneg=True)
        around = cp.Parameter((self.n_tasks, self.n_tasks))
        objective = strength * F + cp.sum_squares(pull * A - around) / 2
        return cp.Problem(cp.Minimize(objective), constraints), A, around, (strength, pull)

    def best_structure(self, S: Array) -> Array:
        with self._busy:
            problem, variable, root = self._once("best", self._make_best)
            s, V = psd_eigh(S)
            root.value = compose(np.sqrt(s), V)
            return self._answer(problem, variable, "best structure")

    def _make_best(self) -> tuple:
        """``tr(A^-1 LL')`` is the least ``tr R`` with ``[[A, L], [L', R]] >= 0``."""
        cp, T = self.cp, self.n_tasks
        A, F, constraints = self._write()
        root, R = cp.Parameter((T, T)), cp.Variable((T, T), symmetric=True)
        schur = cp.bmat([[A, root.T], [root, R]]) >> 0
        return cp.Problem(cp.Minimize(cp.trace(R) + F), [*constraints, schur]), A, root
