"""The moments of a sum of terms under the squared loss, where one term is eliminated: no step needs the rows again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from .free_basis import weighted_gram
from .level_blocks import FewRows, level_blocks
from .level_systems import LevelBlock
from .levels import joined
from .observations import Value
from .same_rows import SameRows

if TYPE_CHECKING:
    from .term_inputs import SumData

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class TermMoments(Value):
    """Moments of all columns but those of the eliminated term (``first``), which is grouped; ``None`` is none.

    The columns are those of the other penalised terms, feature by feature, the basis of the unpenalised ones, and the targets,
    less their mean where there is an intercept.
    """

    data: SumData
    first: int | None

    @property
    def others(self) -> list[int]:
        """The other penalised terms."""
        return [q for q, term in enumerate(self.data.terms) if not term.free and q != self.first]

    @cached_property
    def mean(self) -> float:
        """What the targets are less by."""
        obs = self.data.observations
        return float(obs.weight @ obs.y / obs.weight.sum()) if self.data.fit_intercept else 0.0

    @cached_property
    def _of_rows(self) -> tuple[Array, list[LevelBlock]]:
        obs, basis = self.data.observations, self.data.free_basis
        columns = [self.data.terms[q].columns for q in self.others]
        Y = joined([*columns, *([] if basis is None else [basis.E]), obs.y - self.mean])
        if self.first is None:
            return weighted_gram(Y, obs.weight), []
        term = self.data.terms[self.first]
        blocks = level_blocks(term.phi, Y, obs.weight, term.levels)
        few = [block for block in blocks if isinstance(block, FewRows | SameRows)]
        if not few:
            return weighted_gram(Y, obs.weight), blocks
        elsewhere = ~np.isin(term.levels.codes, np.concatenate([block.levels for block in few]))
        return weighted_gram(Y[elsewhere], obs.weight[elsewhere]) + sum(block.gram for block in few), blocks

    @property
    def gram(self) -> Array:
        """``Y'VY``."""
        return self._of_rows[0]

    @property
    def blocks(self) -> list[LevelBlock]:
        """The levels of the eliminated term."""
        return self._of_rows[1]
