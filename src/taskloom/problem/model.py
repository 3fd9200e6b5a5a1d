"""Targets and a structure: a problem but for its strength."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..design.value import Value
from ..features import to_dense
from ..structures import Structure
from ..structures.term_sum import TermSum
from ..structures.terms import Term
from .targets import Targets


@dataclass(frozen=True, eq=False)
class Model(Value):
    """A predictor is a sum of terms (most often one), whose weights the structure charges for."""

    targets: Targets
    structure: Structure

    def __post_init__(self) -> None:
        self.structure.check_size(self.targets.design.n_tasks)
        self.structure.check_tasks(self.targets.design.n_tasks)

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the predictor: columns of the features, and the structure variable on their weights."""
        return self.structure.terms(self.targets.design.n_features, self.targets.design.n_tasks)

    @cached_property
    def stacked(self) -> Model | None:
        """Where several terms share columns: the model with features and weights for each of them; else ``None``."""
        if len(self.terms) == 1 or self.structure.is_sum:
            return None
        features = to_dense(self.targets.design.features)
        blocks = [features[:, term.columns] for term in self.terms]
        structure = TermSum(
            [term.variable for term in self.terms], [block.shape[1] for block in blocks], self.targets.design.n_tasks
        )
        return Model(self.targets.with_features(np.hstack(blocks)), structure)

    @cached_property
    def centred(self) -> Model:
        """The model of the centred data."""
        return Model(self.targets.centred, self.structure)

    @cached_property
    def in_eigenbasis(self) -> Model | None:
        """The model along the eigenvectors of shared inputs, under the squared loss."""
        targets = self.targets.in_eigenbasis
        return None if targets is None else Model(targets, self.structure)

    @cached_property
    def penalty_at_zero(self) -> tuple[float, Any]:
        """``min_A F(A)``, the penalty of weights of zero, and the structure that attains it."""
        design = self.targets.design
        zero = np.zeros((design.n_features, design.n_tasks))
        A, penalty = self.structure.final_structure(zero.T if self.structure.on_features else zero)
        return penalty, A
