"""What the fitted levels say about a new one: the conditional law of its weights under the structure of the fit.

A new level minimises ``sum_i v_i loss(y_i, f_i) + alpha/omega (w - w0)'D^+(w - w0) + ridge/omega ||w||^2`` given all else. The
structure defines ``w0`` and ``D``, as it does for a new task (``new_task_prior.py``). Where a matrix on the features was
learned, that is ``D``; else ``D`` is ``W M M'W' + own I``, and ``w0`` a combination of the fitted weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..._linalg import psd_eigh
from ..new_task_prior import NewTaskPrior, new_task_prior
from .term_features import InputMap

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class LevelPrior:
    """``w = mean + root c + sqrt(own) c'``, where the coefficients ``c`` and ``c'`` are penalised by their squares."""

    mean: Array  # r
    root: Array  # r x q
    own: float = 0.0  # of every feature
    levels: NewTaskPrior | None = None  # in the fitted levels; None where levels are independent given D
    own_variance: float = 0.0  # of the new level given the others, without the ridge

    def features(self, phi: Array) -> Array:
        """The columns of the coefficients."""
        return np.hstack([phi @ self.root, np.sqrt(self.own) * phi]) if self.own > 0 else phi @ self.root

    def weights(self, coef: Array) -> Array:
        """The weights from the coefficients."""
        q = self.root.shape[1]
        inside = self.mean + self.root @ coef[:q]
        return inside + np.sqrt(self.own) * coef[q:] if self.own > 0 else inside

    def of_levels(self, coef: Array, n_levels: int) -> Array:
        """The weights of the fitted levels in the new one; 0 for those that were added."""
        assert self.levels is not None
        beta = self.levels.mean + self.levels.loadings @ coef[: self.root.shape[1]]
        return np.pad(beta, (0, n_levels - len(beta)))

    def completed(self, inputs: InputMap, X: Array) -> tuple[LevelPrior, InputMap]:
        """With all features of an exact kernel at the new inputs, if the prior is not confined to those of the fit."""
        if self.own == 0 or inputs.kernel is None or not inputs.kernel.exact:
            return self, inputs
        longer = inputs.extended(X)
        mean, root = (longer.same_weights(each, inputs) for each in (self.mean, self.root))
        return replace(self, mean=mean, root=root), longer


def level_prior(
    structure: Any, matrix: Array | None, on_features: bool, W: Array, rho: float, relation: Array | None = None
) -> LevelPrior:
    """The law of the weights of a new level, in the units of the penalty.

    Parameters
    ----------
    structure : Structure
        The structure of the term.
    matrix : ndarray or None
        Its matrix, of the levels of the fit or of the features; ``None`` for independent levels.
    on_features : bool
        Which of them.
    W : ndarray of shape (r, levels)
        The weights of the levels of the fit, in the same units.
    rho : float
        ``ridge / alpha``.
    relation : ndarray of shape (levels,), optional
        Given covariances with the levels.

    Returns
    -------
    LevelPrior
        The law.
    """
    if on_features and matrix is not None:
        d, V = psd_eigh(matrix)
        return LevelPrior(np.zeros(len(W)), V * np.sqrt(d / (1 + rho * d)))

    def gram() -> Array:
        return W.T @ W

    if matrix is None:
        law = NewTaskPrior(np.zeros(W.shape[1]), np.zeros((W.shape[1], 0)), 1.0)
    else:
        law = new_task_prior(structure, matrix, gram, relation, W.T)
    shrunk = law.with_ridge(rho, gram)
    return LevelPrior(W @ shrunk.mean, W @ shrunk.loadings, shrunk.own_variance, shrunk, law.own_variance)
