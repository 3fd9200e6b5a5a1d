"""The interface of a solver: ``accepts`` a problem, ``begin`` a run, and ``step``. ``solve.solve`` does everything else."""

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
    """A primal point: enough to evaluate the objective and to build a dual candidate.

    ``A`` is the current structure on the tasks; a numerical bound on ``F*`` is computed near it. ``penalty = alpha tr(A^+ W'W)
    +
    ridge ||W||^2 + F(A)`` is given if ``W`` belongs to the current structure; otherwise the best structure for ``W`` is
    computed.
    ``Z = Phi'G`` with ``G = -v gradients`` is given where it is known. ``factor`` holds the parameters of ``A`` for structures
    with a factor. ``norm`` is ``penalty`` without ``F(A)``, given for problems that are not convex. ``best_penalty`` returns
    the
    penalty of the best structure for ``W`` and that structure, where there is a cheaper way than from ``W``.
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
    best_penalty: Callable[[], tuple[float, Array]] | None = None

    def objective(self, problem: Problem) -> float:
        """``J`` at this point, with the current structure or else the best one."""
        penalty = problem.best_penalty(self.W)[0] if self.penalty is None else self.penalty
        return problem.loss_term(self.z) + penalty


class Run(ABC):
    """The state of a solver on one problem."""

    length: Any = None  # last step length, if the method has one
    finished: str | None = None  # the final status, once further steps would change nothing

    @abstractmethod
    def step(self, gap: float) -> Iterate:
        """One iteration; ``gap`` is the certified gap of the last iterate."""

    @abstractmethod
    def retarget(self, problem: Problem) -> None:
        """Continue with a loss that was smoothed anew."""


class Solver(Component, ABC):
    """Settings of a method; ``begin`` starts it on a problem."""

    # Nonsmooth losses are smoothed (``SmoothedProblem``): the share to which each smoothing should reduce the gap, and the
    # factor by which its width shrinks otherwise.
    smoothing_schedule: ClassVar[tuple[float, float]] = (0.5, 3.0)

    @property
    def name(self) -> str:
        """The name of the solver in messages and as ``solver=``."""
        return type(self).__name__.lower()

    def accepts(self, problem: Problem) -> str | None:
        """``None``, or the reason why not and what to use instead.

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
    """The message of a solver that needs a convex structure."""
    return f'solver="{name}" needs a convex structure, which {problem.structure!r} is not; use solver="auto"'


def stationarity(problem: Problem, point: Iterate) -> tuple[float, Array]:
    """The stationarity residual of an iterate of a problem that is not convex, and the dual candidate of its tasks.

    At a fixed structure the tasks are a convex problem with its own dual: ``(J - D) / scale`` bounds their possible decrease,
    and
    its square root is the norm of the gradient of ``J`` in the weights, ``||dJ/dV|| / (2 sqrt(alpha scale))`` with ``W = VL'``
    and ``A = LL'``. For the structure it is the norm of the gradient of the objective with the tasks eliminated, projected on
    the
    constraints. The residual is the larger of the two.
    """
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
