"""A solver is one move. It says whether it accepts a problem, sets out, and steps; ``loop.solve`` does the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .._component import Component
from ..problem import Problem
from ..problem.solution import Start
from ..structures.known import Rooted

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Iterate:
    """Where a solver stands: enough to evaluate the objective and to build a dual candidate.

    ``A`` is the structure at hand, where it sits on the tasks: a bound on ``F*`` may look for its proof around it.
    ``penalty = alpha tr(A^+ W'W) + ridge ||W||^2 + F(A)`` is given when ``W`` goes with the structure at hand (on either side);
    without it the best structure for ``W`` is computed. ``Z = Phi'G`` with ``G = -v gradients`` is given where it is known.
    ``factor`` is what ``A`` is made of, for structures that are known by their factors. ``norm`` is ``penalty`` without
    ``F(A)``, beside which it may be lost: given where there is no gap, and the gradient of the tasks is what counts. ``settle``
    gives the penalty of the best structure for ``W``, and that structure, where there is a shorter way to them than from ``W``.
    """

    W: Array
    b: Array
    z: Array
    gradients: Array
    A: Array | None = None
    penalty: float | None = None
    Z: Array | None = None
    factor: Array | None = None
    norm: float | None = None
    settle: Callable[[], tuple[float, Array]] | None = None

    def objective(self, problem: Problem) -> float:
        """``J`` here, with the structure at hand or else the best one."""
        penalty = problem.best_penalty(self.W)[0] if self.penalty is None else self.penalty
        return problem.loss_term(self.z) + penalty


class Run(ABC):
    """A solver on its way."""

    length: Any = None  # of the last step, where there is such a thing
    finished: str | None = None  # a status, once the run knows that another step would change nothing

    @abstractmethod
    def step(self, gap: float) -> Iterate:
        """One move; ``gap`` is the certified gap at the last one, to which barriers are tied."""

    @abstractmethod
    def retarget(self, problem: Problem) -> None:
        """Go on from here with a loss that was smoothed anew."""


class Solver(Component, ABC):
    """Settings of a method; ``begin`` starts it on a problem."""

    # Losses with kinks come smoothed: what share of the gap a new guess of the gradients should leave, and by how much the
    # width
    # falls where it leaves more. Solvers that minimise a narrow stand-in as quickly as a wide one can ask for more.
    narrowing: ClassVar[tuple[float, float]] = (0.5, 3.0)

    @property
    def name(self) -> str:
        """The name of the solver in messages and as ``solver=``."""
        return type(self).__name__.lower()

    def accepts(self, problem: Problem) -> str | None:
        """``None``, or the sentence that says why not and what to use instead.

        Parameters
        ----------
        problem : Problem
            The problem to be solved.

        Returns
        -------
        str or None
            The reason for a refusal.
        """
        return None

    @abstractmethod
    def begin(self, problem: Problem, start: Start | None, tol: float) -> Run:
        """Start on ``problem``, from weights and intercepts ``(W, b)`` when given.

        Parameters
        ----------
        problem : Problem
            The problem, with features centred and losses smooth.
        start : Start or None
            Weights ``W`` of shape (n_features, n_tasks) and intercepts ``b`` of shape (n_tasks,).
        tol : float
            The relative duality gap that is asked for.

        Returns
        -------
        Run
            The iteration; each ``step`` is one iterate.
        """


def needs_convex(name: str, problem: Problem) -> str:
    """The refusal of a solver that has no use for a structure that is not convex."""
    return f'solver="{name}" needs a convex structure, which {problem.structure!r} is not; use solver="auto"'


def stationarity(problem: Problem, point: Iterate) -> tuple[float, Array]:
    """The larger of the two gradients, and the dual candidate of the tasks behind it."""
    structure: Any = problem.structure
    assert point.A is not None
    assert point.norm is not None
    G = problem.dual_candidate(point.gradients)
    Z = problem.correlate(G)
    primal = problem.loss_term(point.z) + point.norm
    dual = problem.with_structure(Rooted(structure.root(point.A))).dual(G, point.W, Z=Z)
    gap = max(primal - dual, 4 * np.finfo(float).eps * abs(primal))
    Z1 = Z - 2 * problem.ridge * point.W
    unit = problem.targets.gradient_unit
    in_structure = structure.residual(point.A, Z1.T @ Z1 / (4 * problem.alpha), unit, point.factor)
    return max(float(np.sqrt(gap / unit)), in_structure), G
