"""The result of a solver: weights, structure, certificate and history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..structures.factored_matrix import returned

Array = np.ndarray

STATUS = {
    "optimal": (
        "Optimal: the objective is proved to be within {relative_gap:.1e} of the minimum, relative to the intercept-only model"
    ),
    "max_iter": (
        "Stopped after max_iter={n_iter} iterations with a {measure} (asked for {tol:.1e}). "
        "Raise max_iter or alpha, loosen tol, or take another solver"
    ),
    "time_limit": (
        "Stopped at the time limit after {n_iter} iterations with a {measure} "
        "(asked for {tol:.1e}). Raise time_limit or loosen tol"
    ),
    "interrupted": (
        "Interrupted after {n_iter} iterations; this is the best iterate so far, with a {measure} (asked for {tol:.1e})"
    ),
    "callback": ("Stopped by a callback after {n_iter} iterations, at a {measure} (asked for {tol:.1e})"),
    "stalled": (
        "No further progress after {n_iter} iterations, at a {measure} (asked for {tol:.1e}): "
        "this is as far as this solver gets, mostly for rounding. Loosen tol, raise alpha, rescale the inputs, or take another "
        "solver"
    ),
    "rounding": (
        "The solver got to a {measure}, but the coefficients of this kernel cancel until too "
        "few digits are left: the loss of their own predictions is another by {off:.1e} (relative; tol={tol:.1e}). Raise alpha "
        "or ridge, or change the kernel's parameters so that its values differ by more than rounding"
    ),
    "cancellation": (
        "The solver got to a {measure}, but the inputs are so far from zero that predictions lose their last digits: the "
        "objective of the coefficients is another by {off:.1e} (relative; tol={tol:.1e}). Centre X, as by StandardScaler"
    ),
    "contradiction": (
        "Not certified: {why}. Nothing is proved after {n_iter} iterations. Check components of your own with "
        "taskloom.testing.check_structure and check_loss, and bring y and alpha to units of about 1"
    ),
    "change": (
        "Stopped as Algorithm 1 is printed, when the objective changed by less than tol; that proves nothing. "
        "It left a {measure}"
    ),
    "stationary": (
        "Stationary: the problem is not convex, and only a stationary point is known, with a {measure} (asked for {tol:.1e}); "
        "nothing is proved about the minimum"
    ),
}


ABOVE = (
    "the bound {dual:.10g} lies above the objective {primal:.10g} of a point: no minimum can, so a component is wrong, or too "
    "inexact in these units"
)
NOT_CONVEX = " The problem is not convex: a converged fit is a stationary point, without a bound on the minimum."


def reached(relative_gap: float, stationarity: float | None) -> str:
    """The relative duality gap in words, or the stationarity residual of a problem that is not convex."""
    if stationarity is not None:
        return f"stationarity residual of {stationarity:.1e}"
    return f"relative duality gap of {relative_gap:.1e}"


def sentence(
    status: str, relative_gap: float, stationarity: float | None, n_iter: int, tol: float, solver: str, why: str = ""
) -> str:
    """The message of a certificate; the solver is named unless the fit is optimal."""
    measure = reached(relative_gap, stationarity)
    words = STATUS[status].format(n_iter=n_iter, relative_gap=relative_gap, measure=measure, tol=tol, why=why)
    named = "" if status == "optimal" else f" ({solver})"
    return f"{words}{named}.{'' if stationarity is None or status == 'stationary' else NOT_CONVEX}"


@dataclass(frozen=True)
class Certificate:
    """The proof that comes with a fit: ``dual <= minimum <= primal``, for the user's problem.

    Under a structure that is not convex there is no proof: ``dual`` is ``-inf``, the gaps are ``inf``; ``stationarity`` says
    how far the fit is from a stationary point (``None`` for convex problems). It is the norm of the gradient of ``J`` in
    the weights and in the parameters of the structure, projected on their constraints, relative to the loss of the
    intercept-only model. It does not tell a minimum from other stationary points.
    """

    primal: float
    dual: float
    gap: float
    relative_gap: float
    status: str
    message: str
    stationarity: float | None = None

    @property
    def converged(self) -> bool:
        """Whether the gap is within the tolerance or, if the problem is not convex, the point is stationary."""
        return self.status in ("optimal", "stationary")

    def __repr__(self) -> str:
        shown = [f"{column.name}={getattr(self, column.name)!r}" for column in fields(self)]
        return f"Certificate({', '.join(shown if self.stationarity is not None else shown[:-1])})"

    @property
    def optimal(self) -> bool:
        """Whether the gap is proved to be within the tolerance that was asked for."""
        return self.status == "optimal"


def rounded_gap(primal: float, dual: float) -> float:
    """Primal minus dual value, at least the rounding error of their difference."""
    rounding = 4 * np.finfo(float).eps * (abs(primal) + abs(dual)) if np.isfinite(dual) else 0.0
    return max(abs(primal - dual), rounding)


@dataclass
class History:
    """One entry for each iteration; ``objective`` and ``dual`` are the best so far, so ``gap`` never grows."""

    iteration: list[int] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    dual: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.read_best: Callable[[], tuple[Array, Array]] | None = None  # set while a solve is running

    def best(self) -> tuple[Array, Array]:
        """The best weights and intercepts so far, while a solve is running."""
        if self.read_best is None:
            raise RuntimeError("no solve is running")
        return self.read_best()

    def add(self, objective: float, dual: float, seconds: float) -> None:
        """One more iteration, with the bounds of its point or of the last one that was certified."""
        if len(self):
            objective, dual = min(objective, self.objective[-1]), max(dual, self.dual[-1])
        row = (len(self) + 1, objective, dual, rounded_gap(objective, dual), seconds)
        for column, value in zip(fields(self), row, strict=True):
            getattr(self, column.name).append(value)

    def correct(self, objective: float, dual: float) -> None:
        """Set the bounds of the last iteration to those of the final certificate."""
        self.objective[-1], self.dual[-1], self.gap[-1] = objective, dual, rounded_gap(objective, dual)

    def as_dict(self) -> dict[str, Array]:
        """The columns as arrays."""
        return {name: np.asarray(getattr(self, name)) for name in self.__dataclass_fields__}

    def __len__(self) -> int:
        return len(self.iteration)


class Start(NamedTuple):
    """A warm start: weights and intercepts; from a fit of a similar problem also its step length and subspace."""

    W: Array
    b: Array
    length: float | None = None
    basis: Any = None


@dataclass(frozen=True, eq=False)
class SolvedTerms:
    """The terms of a predictor that is a sum: weights, structure variable and implied task matrix of each."""

    weights: list[Array]
    variables: list[Array]
    structures: list[Array]


@dataclass(frozen=True, eq=False)
class Solution:
    """The best certified iterate.

    ``W`` (``r x T``), ``b`` (``T``) and ``A`` (``T x T``) attain ``certificate.primal``; ``G`` holds one number for each
    observation and attains ``certificate.dual``.
    """

    W: Array
    b: Array
    structure: Any  # as the solver found it; ``A`` is an array up to 2000 tasks
    G: Array
    certificate: Certificate
    history: History
    solver: str
    length: float | None = None  # last step length, for a warm start
    terms: SolvedTerms | None = None  # where the predictor is a sum; ``A`` is then the sum of their task matrices
    basis: Any = field(default=None, repr=False)  # subspace of the solution, for a warm start
    Z: Array | None = field(default=None, repr=False)  # ``Phi'G``, where the certificate has computed it

    gap = property(attrgetter("certificate.gap"))
    addends = property(attrgetter("terms"), doc="Deprecated: the old name of ``terms``.")

    @cached_property
    def A(self) -> Any:
        """The structure: an array, factored for many tasks."""
        return returned(self.structure)

    @property
    def n_iter(self) -> int:
        return max(len(self.history), 1)
