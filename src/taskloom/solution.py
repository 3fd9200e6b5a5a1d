"""What a solver hands back: weights, structure, a certificate, and the way there."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np

Array = np.ndarray

STATUS = {
    "optimal": "Optimal: the objective is proved to be within {relative_gap:.1e} (relative) of the minimum",
    "max_iter": (
        "Stopped after max_iter={n_iter} iterations with a relative duality gap of {relative_gap:.1e} (asked for {tol:.1e}). "
        "Raise max_iter or alpha, loosen tol, or take another solver"
    ),
    "time_limit": (
        "Stopped at the time limit after {n_iter} iterations with a relative duality gap of {relative_gap:.1e} "
        "(asked for {tol:.1e}). Raise time_limit or loosen tol"
    ),
    "interrupted": (
        "Interrupted after {n_iter} iterations; this is the best iterate so far, with a relative duality gap of "
        "{relative_gap:.1e} (asked for {tol:.1e})"
    ),
    "callback": (
        "Stopped by a callback after {n_iter} iterations, at a relative duality gap of {relative_gap:.1e} (asked for {tol:.1e})"
    ),
    "stalled": (
        "No further progress after {n_iter} iterations, at a relative duality gap of {relative_gap:.1e} (asked for {tol:.1e}): "
        "this is as far as rounding lets this solver go. Loosen tol, raise alpha, or rescale the inputs"
    ),
    "change": (
        "Stopped as Algorithm 1 is printed, when the objective changed by less than tol; that proves nothing. "
        "The relative duality gap is {relative_gap:.1e}"
    ),
}


@dataclass(frozen=True)
class Certificate:
    """The proof that comes with a fit: ``dual <= minimum <= primal``, for the problem the user posed."""

    primal: float
    dual: float
    gap: float
    relative_gap: float
    status: str
    message: str

    @property
    def optimal(self) -> bool:
        """Whether the gap is within the tolerance that was asked for."""
        return self.status == "optimal"


@dataclass
class History:
    """One entry for each iteration; ``objective`` and ``dual`` are the best so far, so ``gap`` never grows."""

    iteration: list[int] = field(default_factory=list)
    objective: list[float] = field(default_factory=list)
    dual: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def best(self) -> tuple[Array, Array]:
        """The best weights and intercepts so far; a running solve puts its own in place of this."""
        raise RuntimeError("no solve is running")

    def add(self, iteration: int, objective: float, dual: float, gap: float, seconds: float) -> None:
        self.iteration.append(iteration)
        self.objective.append(objective)
        self.dual.append(dual)
        self.gap.append(gap)
        self.seconds.append(seconds)

    def as_dict(self) -> dict[str, Array]:
        """The columns as arrays."""
        return {column.name: np.asarray(getattr(self, column.name)) for column in fields(self)}

    def __len__(self) -> int:
        return len(self.iteration)


class Start(NamedTuple):
    """Where to set out: weights, intercepts, and the step length that a solver ended with nearby, if it has one."""

    W: Array
    b: Array
    length: float | None = None


@dataclass(frozen=True, eq=False)
class Addends:
    """The addends of a predictor that is a sum: weights, structure variable and implied task matrix of each."""

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
    A: Array
    G: Array
    certificate: Certificate
    history: History
    solver: str
    length: float | None = None  # the solver's last step length, for a start nearby
    addends: Addends | None = None  # where the predictor is a sum; ``A`` is then the sum of their task matrices

    @property
    def gap(self) -> float:
        return self.certificate.gap

    @property
    def n_iter(self) -> int:
        return max(len(self.history), 1)
