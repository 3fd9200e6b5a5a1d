"""The weights of a new level in all terms that it enters, found together; what was fitted is an offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ..._component import warn
from ...design.term_inputs import TermData
from ...losses import as_loss
from ...losses.offset import Shifted
from ...problem.term_problem import PosedTerm, term_problem
from ...solvers import solve
from ...structures import Independent
from .level_prior import LevelPrior

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class LevelTerm:
    """A term of a new level: its features at the observed rows, and the law of its weights; ``None`` without a penalty."""

    phi: Array
    prior: LevelPrior | None
    scale: float = 1.0  # sqrt(omega), of weights in the units of the penalty

    @property
    def free(self) -> bool:
        return self.prior is None

    @property
    def columns(self) -> Array:
        return self.phi if self.prior is None else self.scale * self.prior.features(self.phi)

    @property
    def mean(self) -> Array:
        """What is expected before any observation, at the rows."""
        return np.zeros(len(self.phi)) if self.prior is None else self.scale * (self.phi @ self.prior.mean)

    def weights(self, coef: Array) -> Array:
        return coef if self.prior is None else self.scale * self.prior.weights(coef)


def level_coefficients(model: Any, alpha: float, terms: list[LevelTerm], y: Array, v: Array, offset: Array) -> list[Array]:
    """The coefficients of the columns of each term: one certified problem, with ``v`` the weights of its rows.

    Without a row they are zero.
    """
    columns = [term.columns for term in terms]
    coefs = [np.zeros(each.shape[1]) for each in columns]
    free = [k for k, term in enumerate(terms) if term.free]
    _check_determined(columns, free)
    parts = [which for which in (free, [k for k in range(len(terms)) if k not in free]) if sum(coefs[k].size for k in which)]
    if not (len(y) and parts):
        return coefs
    loss, offset = as_loss(model.loss), offset + np.sum([term.mean for term in terms], axis=0)
    loss, y = (loss, y - offset) if loss.of_differences else (Shifted(loss, offset), y)
    posed = [PosedTerm(TermData(np.hstack([columns[k] for k in which]), free=which is free), Independent()) for which in parts]
    problem = term_problem(posed, y, v, loss, alpha, fit_intercept=False)
    solution = solve(problem, tol=model.tol, max_iter=model.max_iter)
    if not solution.certificate.converged:
        warn(solution.certificate.message, ConvergenceWarning)
    for which, W in zip(parts, np.split(solution.W[:, 0], np.cumsum([each.data.r for each in posed])[:-1]), strict=True):
        ends = np.cumsum([coefs[k].size for k in which])[:-1]
        for k, coef in zip(which, np.split(W, ends), strict=True):
            coefs[k] = coef
    return coefs


def _check_determined(columns: list[Array], free: list[int]) -> None:
    """Weights without a penalty need as many independent rows."""
    if not free:
        return
    X = np.hstack([columns[k] for k in free])
    if not len(X) or np.linalg.matrix_rank(X) < X.shape[1]:
        raise ValueError(
            f"a new level has {X.shape[1]} weights without a penalty (weight=inf), which its {len(X)} observed rows do not "
            "determine; give more rows, or refit with a finite weight"
        )
