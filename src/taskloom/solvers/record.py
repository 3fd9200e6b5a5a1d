"""The record of a fit: best primal point, best dual bound, history, and when to stop; for every solver and engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..problem.evidence import Evidence
from ..problem.solution import ABOVE, Certificate, History, rounded_gap, sentence

BOUND_ROUNDING = 1e-9  # relative rounding error that primal and dual values may have
MAX_STALLED_CERTIFICATES = 300  # certificates without a decrease of the gap after which a solver counts as stalled;
MAX_STALLED_BEFORE_NEXT = 150  # the same where another one follows


class Certifiable(Protocol):
    """What the loop asks of a problem, wherever its data are."""

    @property
    def scale(self) -> float: ...  # the loss of the intercept-only model

    @property
    def rounding_floor(self) -> float: ...  # what rounding alone may leave of it

    @property
    def structure(self) -> Any: ...

    @property
    def loss(self) -> Any: ...

    def relative(self, gap: float, size: float = 0.0) -> float: ...

    def evidence(self, point: Any, tol: float) -> Evidence: ...

    def evidence_of_constants(self) -> Evidence: ...

    @property
    def notes(self) -> Sequence[str]: ...  # remarks for the message of the certificate

    def component_error(self, point: Any, dual: Any, room: float) -> str:
        """A contradiction between methods of a component that a user wrote; empty if there is none."""
        ...

    def settled(self, point: Any) -> tuple[Any, float]:
        """The point with the best structure for its weights, and by how much its objective is lower."""
        ...


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a loop found: the best point, the dual point behind the best bound, their certificate, and the history."""

    point: Any
    dual_point: Any
    certificate: Certificate
    history: History


class Record:
    """The best primal and dual points so far. They may come from different iterations: both bounds hold.

    Parameters
    ----------
    problem : Certifiable
    tol : float
        The relative gap that is asked for.
    constant : float
        What the objective of the user's problem has in addition.
    history : History, optional
        Of an earlier stage of the same fit; it is continued.
    began : float, optional
        When the fit began, by ``time.perf_counter``.
    original_dual : float, optional
        The bound on the user's problem, if this one is a restriction of it: its own bounds say nothing there.
    """

    def __init__(
        self,
        problem: Certifiable,
        tol: float,
        constant: float = 0.0,
        history: History | None = None,
        began: float | None = None,
        original_dual: float | None = None,
    ):
        self.problem: Any = problem
        self.tol, self.constant, self.original_dual = tol, constant, original_dual
        self.history = History() if history is None else history
        self.began = time.perf_counter() if began is None else began
        self.convex = problem.structure.convex
        first = problem.evidence_of_constants()
        self.point, self.primal = first.point, first.primal + constant
        self.dual, self.dual_point, self.last = first.dual + constant, first.dual_point, first.last
        self.stationarity = self.last_residual = self.last_gap = np.inf
        self.length: Any = None  # of the last step, for a warm start
        self.found = False  # whether a solver has made a point
        self.stalled_certificates, self._least_gap = 0, np.inf
        self.patience = MAX_STALLED_CERTIFICATES

    @property
    def gap(self) -> float:
        return rounded_gap(self.primal, self.dual)

    @property
    def relative_gap(self) -> float:
        return self.problem.relative(self.gap, abs(self.primal) + abs(self.dual))

    @property
    def residual(self) -> float:
        """What ``tol`` bounds: the relative gap, or the stationarity residual if the problem is not convex."""
        return self.relative_gap if self.convex else self.stationarity

    @property
    def contradicted(self) -> bool:
        """Whether the dual bound exceeds the primal value by more than rounding: then one of them is wrong."""
        if not (self.convex and np.isfinite(self.dual) and np.isfinite(self.primal)):
            return False
        problem = self.problem
        numeric = 100 if problem.structure.proof or problem.loss.proof else 1  # numerical conjugates are less accurate
        return self.dual - self.primal > numeric * self._room + problem.rounding_floor

    @property
    def _room(self) -> float:
        """How wrong the bound may be: what rounding makes of it, and little compared with the tolerance."""
        sizes = [abs(bound) for bound in (self.primal, self.dual) if np.isfinite(bound)]
        return BOUND_ROUNDING * sum(sizes) + 1e-3 * self.tol * self.problem.scale

    def _contradiction(self) -> str:
        """Why nothing is proved: bounds that exclude each other, or a component of the user that contradicts itself."""
        if self.contradicted:
            return ABOVE.format(dual=self.dual, primal=self.primal)
        dual = self.dual_point if self.convex and np.isfinite(self.dual) else None
        return self.problem.component_error(self.point, dual, self._room + self.problem.rounding_floor)

    def status(self, finished: str | None) -> str | None:
        """The status with which the last certificate ends the fit, if it does; ``finished`` is what the solver says."""
        if self.contradicted:
            return "contradiction"
        if self.residual <= self.tol and finished != "change":
            return "optimal" if self.convex else "stationary"
        return "stalled" if self.stalled_certificates >= self.patience else None

    def constants_are_optimal(self) -> bool:
        """Whether the intercept-only model fits up to rounding; solvers need a positive scale and must not start."""
        if not self.convex or self.problem.scale > self.problem.rounding_floor:
            return False
        self.update(self.point)
        self.add_to_history()
        return self.residual <= self.tol

    @property
    def left_better_point(self) -> bool:
        """If not convex: whether the last iterate is stationary, but the best one has a lower objective and is not."""
        return not self.convex and self.last_residual <= self.tol < self.stationarity

    def update(self, point: Any) -> float:
        """Certify a point, keep it if it is the best, and return its duality gap."""
        found = self.problem.evidence(point, self.tol)
        primal, dual = found.primal + self.constant, found.dual + self.constant
        self.found, self.last = True, found.last or found.dual_point
        if self.convex:
            if primal < self.primal:
                self.primal, self.point = primal, found.point
            if dual > self.dual:
                self.dual, self.dual_point = dual, found.dual_point
            self.dual_point = self.dual_point or found.dual_point
            self.last_gap = max(primal - dual, 0.0)
        else:
            self._update_stationary(found, primal)
        left = self.gap if self.convex else self.stationarity
        better = left < 0.999 * self._least_gap
        self.stalled_certificates, self._least_gap = (0, left) if better else (self.stalled_certificates + 1, self._least_gap)
        return self.last_gap

    def _update_stationary(self, found: Evidence, primal: float) -> None:
        """If not convex: the squared stationarity residual takes the place of the gap. Ties go to the smaller residual."""
        residual, same = found.stationarity, 1e-12 * abs(primal)
        assert residual is not None
        self.last_residual, self.last_gap = residual, residual**2 * self.problem.scale
        if primal < self.primal - same or (primal <= self.primal + same and residual < self.stationarity):
            self.primal, self.stationarity = min(primal, self.primal), residual
            self.point, self.dual_point = found.point, found.dual_point

    def add_to_history(self) -> None:
        """One row for each iteration: the best bounds so far, certified anew or not."""
        dual = self.dual if self.original_dual is None else self.original_dual
        self.history.add(self.primal, dual, time.perf_counter() - self.began)

    def close(self, status: str, solver: str) -> Outcome:
        """The best point with its certificate; where no step was made, that is the intercept-only model."""
        if not self.found:
            self.update(self.point)
        if not len(self.history):
            self.add_to_history()
        if self.convex:
            self.point, penalty_decrease = self.problem.settled(self.point)
            self.primal -= penalty_decrease
        self.history.correct(self.primal, self.dual)
        residual = None if self.convex else self.stationarity
        if self.convex and status in ("stalled", "max_iter", "time_limit") and self.relative_gap <= self.tol:
            status = "optimal"  # with the best structure
        why = self._contradiction()
        status = "contradiction" if why else status
        primal, dual, gap, relative = map(float, (self.primal, self.dual, self.gap, self.relative_gap))
        message = sentence(status, relative, residual, len(self.history), self.tol, solver, why)
        if why:
            dual, gap, relative = -np.inf, np.inf, np.inf
        message = " ".join([message, *self._notes()])
        certificate = Certificate(primal, dual, gap, relative, status, message, residual)
        return Outcome(self.point, self.dual_point, certificate, self.history)

    def _notes(self) -> list[str]:
        """Remarks on the certificate."""
        notes = list(self.problem.notes)
        if not self.convex:
            return notes
        if not np.isfinite(self.dual):
            none = "No certificate is available: no finite bound on the conjugates of the loss and the penalty was found."
            return [none, *notes]
        proofs = filter(None, (self.problem.structure.proof, self.problem.loss.proof))
        return [*map("{}.".format, proofs), *notes]
