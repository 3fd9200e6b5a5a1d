"""The problem of a sum of terms: a ``Problem`` whose weights are one column, with one intercept for all rows.

    D(G) = - sum_i v_i loss*(y_i, -G_i/v_i) - sum_q F_q*(omega_q Z_q'Z_q / (4 alpha)),    Z_q = sum_i G_i phi_q(x_i) u_q(i)'

For the intercept the ``G_i`` add up to zero, and for unpenalised terms ``Z_q = 0``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..design.term_inputs import Scale, SumData, TermData, TermDesign
from ..losses import Loss, RowLoss, as_loss
from ..structures import Structure
from ..structures.base import Array
from ..structures.known import Independent
from ..structures.term_stack import PENALISED, UNPENALISED, TermStack
from ..structures.term_sum import check_term
from ..structures.terms import FeatureMatrix, TaskMatrix, Variable
from .model import Model, Targets
from .problem import Problem

MAX_CHANGES = 30  # of a dual candidate, until it is orthogonal to the unpenalised columns
MAX_ROOM_SHARE = 0.99  # of the way to the edge of the domain of ``loss*`` that one change may take
MAX_SHIFT = 1e-15  # of gradients, relative to the largest, that is rounding
MAX_ORTHOGONAL = 1e-15  # correlation of gradients with a column of length 1, relative to their length
MAX_LEFT = 1e-12  # correlation with a column of the basis of unpenalised ones, relative to its largest possible size


@dataclass(frozen=True, eq=False)
class PosedTerm:
    """The data of a term, its structure, its weight, and on which side a structure of eigenvalues is put."""

    data: TermData
    structure: Structure
    weight: float = 1.0
    units: Scale = 1.0  # of all features, or of each

    @property
    def variable(self) -> Variable:
        """The structure variable: none for independent levels; on the features where that decouples the levels."""
        if self.data.free:
            return UNPENALISED
        if isinstance(self.structure, Independent):
            return PENALISED
        if self.structure.on_features:
            return FeatureMatrix(self.structure)
        moved = self.structure.moved_to_features(self.data.p) if self.data.r <= self.data.p else None
        return TaskMatrix(self.structure) if moved is None else FeatureMatrix(moved)

    @property
    def scale(self) -> Scale:
        """What multiplies the features: ``sqrt(omega)``, and their units."""
        return 1.0 if self.data.free else float(np.sqrt(self.weight)) * self.units


def term_problem(
    terms: Sequence[PosedTerm],
    y: Array,
    weight: Array,
    loss: Loss | str = "squared",
    alpha: float = 0.01,
    ridge: float = 0.0,
    fit_intercept: bool = True,
) -> Problem:
    """The problem of a sum of terms.

    Parameters
    ----------
    terms : sequence of PosedTerm
        Features, task side, structure and weight of each term.
    y : ndarray of shape (n,)
        Targets.
    weight : ndarray of shape (n,)
        The weight ``v_i`` of each row in the objective, positive.
    loss : Loss or str, default="squared"
        A loss of single outputs.
    alpha, ridge : float
        Regularisation strengths.
    fit_intercept : bool, default=True
        Whether there is an unpenalised intercept for all rows.

    Returns
    -------
    Problem
        Weights are one column; ``problem.structure.features_of(W)`` are those of each term.
    """
    return problem_of_targets(term_targets(terms, y, weight, loss, fit_intercept), terms, alpha, ridge)


def term_targets(
    terms: Sequence[PosedTerm], y: Array, weight: Array, loss: Loss | str = "squared", fit_intercept: bool = True
) -> TermTargets:
    """What problems of a sum of terms share at all weights, structures and strengths.

    Parameters
    ----------
    terms : sequence of PosedTerm
        Their data.
    y, weight : ndarray of shape (n,)
        Targets, and the weight of each row in the objective.
    loss : Loss or str, default="squared"
        A loss of single outputs.
    fit_intercept : bool, default=True
        Whether there is an unpenalised intercept for all rows.

    Returns
    -------
    TermTargets
        For ``problem_of_targets``.
    """
    loss = as_loss(loss).fresh()
    if isinstance(loss, RowLoss):
        raise ValueError(f"{type(loss).__name__} is a loss of whole rows, and terms need one of single outputs")
    return TermTargets(TermDesign.of(SumData.of(tuple(term.data for term in terms), y, weight, fit_intercept)), loss)


def problem_of_targets(targets: TermTargets, terms: Sequence[PosedTerm], alpha: float, ridge: float = 0.0) -> Problem:
    """The problem of terms with these targets; what is computed from the data is computed once.

    Parameters
    ----------
    targets : TermTargets
        Those of the terms.
    terms : sequence of PosedTerm
        Structure and weight of each term.
    alpha, ridge : float
        Regularisation strengths.

    Returns
    -------
    Problem
        The problem.
    """
    data = targets.design.data
    for term in terms:
        moved = isinstance(term.variable, FeatureMatrix)
        check_term(term.structure, term.data.r if moved else term.data.p)
        if not moved and term.data.codes is not None and not isinstance(term.structure, Independent):
            term.structure.check_size(term.data.p)
    if ridge > 0 and any(each.free for each in data.terms):
        raise ValueError(f"a ridge penalises all terms, got ridge={ridge!r} and a term with weight=inf; leave one out")
    scaled = TermTargets(TermDesign.of(data, tuple(term.scale for term in terms)), targets.loss, original=targets)
    sizes = [each.r for each in data.terms], tuple(each.p for each in data.terms)
    structure = TermStack([term.variable for term in terms], sizes[0], 1, sizes[1])
    return Problem.of(Model(scaled, structure), alpha, ridge)


@dataclass(frozen=True, eq=False)
class TermTargets(Targets):
    """Targets of a sum of terms; dual candidates are orthogonal to the unpenalised columns."""

    design: TermDesign

    @cached_property
    def best_constants(self) -> Array:
        return super().best_constants if self.original is None else self.original.best_constants

    @property
    def centering(self) -> None:
        """Terms are centred before."""
        return

    def dual_candidate(self, gradients: Array) -> Array:
        basis = self.design.data.free_basis
        if basis is None or self.design.data.free_columns is None:
            return super().dual_candidate(gradients)
        obs, v, E = self.observations, self.observations.weight, basis.E
        if self.loss.quadratic:  # any gradient has a finite conjugate
            for _ in range(2):  # the second time for rounding
                weighted = v * gradients
                left = weighted @ E
                if np.all(np.abs(left) <= MAX_ORTHOGONAL * np.sqrt(weighted @ gradients)):
                    return -weighted
                gradients = gradients - E @ left
            return -v * gradients
        lower, upper = (np.broadcast_to(edge, gradients.shape) for edge in self.loss.gradient_bounds(obs.y))
        s = np.clip(gradients, lower, upper)
        goal = MAX_LEFT * (np.abs(E).T @ v) * float(np.abs(s).max(initial=0.0))
        for _ in range(MAX_CHANGES):
            left = E.T @ (v * s)
            if np.all(np.abs(left) <= goal):
                return -v * s
            below, above = np.maximum(s - lower, 0.0), np.maximum(upper - s, 0.0)
            room = np.minimum(below, above)
            room = np.where(np.isfinite(room), room, 1.0)
            change = E @ np.linalg.lstsq(E.T @ ((v * room)[:, None] * E), left, rcond=1e-14)[0]
            s = np.clip(s - room * change, s - MAX_ROOM_SHARE * below, s + MAX_ROOM_SHARE * above)
        return np.zeros_like(s)  # the only candidate that is certain to be one

    def shifted_correlations(self, gradients: Array, G: Array, Z: Array) -> Array | None:
        """``None`` beside unpenalised columns, unless the candidate was orthogonal to them: their part is not a constant."""
        if self.design.data.free_columns is None:
            return super().shifted_correlations(gradients, G, Z)
        step = np.abs(G / self.observations.weight + gradients).max(initial=0.0)
        return Z if step <= MAX_SHIFT * np.abs(gradients).max(initial=0.0) else None
