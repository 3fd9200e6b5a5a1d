"""The interface of a solver: ``accepts`` a problem, ``begin`` a run, and ``step``. ``solve.solve`` does everything else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from .._component import Component
from ..problem import Problem
from ..problem.solution import Start

Array = np.ndarray


class Run(ABC):
    """The state of a solver on one problem.

    The loop decides when a certificate is computed: at every step, unless the run estimates its gap at less cost. Then it is
    computed once the estimate is small enough, at the latest after ``certificate_interval`` steps.
    """

    here: Any  # the current point, unless ``point`` is overridden
    length: Any = None  # last step length, if the method has one
    finished: str | None = None  # the final status, once further steps would change nothing
    successor: Solver | None = None  # the solver that continues from here, once this one makes no progress
    certificate_interval: int = 1

    @abstractmethod
    def step(self, gap: float | None) -> None:
        """One step; the first one evaluates the starting point. ``gap`` is that of the current point, if it was certified."""

    def point(self) -> Any:
        """The current point, with what a certificate needs."""
        return self.here

    def estimated_gap(self) -> float:
        """An estimate of the duality gap at the current point that costs less than a certificate."""
        return 0.0

    def retarget(self, problem: Problem) -> None:
        """Continue with a loss that was smoothed anew."""
        raise AssertionError("the squared loss needs no smoothing")


class Solver(Component, ABC):
    """Settings of a method; ``begin`` starts it on a problem."""

    def smoothing_schedule(self, problem: Problem) -> tuple[float, float]:
        """How a nonsmooth loss is smoothed (``reformulations.Smoothing``).

        Parameters
        ----------
        problem : Problem
            The problem to be solved.

        Returns
        -------
        tuple of float
            The share to which each smoothing should reduce the gap, and the factor by which its width shrinks otherwise.
        """
        return 0.5, 3.0

    name: ClassVar[str]  # in messages, and as ``solver=``

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = cls.__name__.lower()

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
