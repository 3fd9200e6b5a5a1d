"""What ``solver="auto"`` runs."""

from __future__ import annotations

from ..problem import Problem
from .alternating import Alternating
from .base import Solver
from .factored import Factored
from .proximal import Proximal


def choose(problem: Problem) -> Solver:
    """Variable projection on a factor where the structure has one, alternation where ``A`` is well conditioned.

    What is left (sparse relations, structures of a user's own) gets variable projection with proximal steps on ``A``.
    """
    structure = problem.structure
    if structure.either_side:
        return Factored()
    return Alternating() if structure.known or structure.interior else Proximal()
