from __future__ import annotations
from dataclasses import dataclass
from .base import Run, Solver
@dataclass(eq=False, repr=False)
class Block(Solver):
    def begin(self, problem, start) -> Run:
        raise NotImplementedError
