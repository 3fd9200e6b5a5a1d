"""Shared, fully observed inputs and the squared loss, with everything that does not change taken out.

With ``Phi_s = sqrt(s) (Phi - mean) = U diag(d) V'`` (``s`` the weights of the rows), the objective depends on the targets only
through ``U'Y_s``, and on the weights through ``V'W``:

    J(W, b, A) at its best b = constant + sum_t c_t ||(U'Y_s)_t - d o (V'W)_t||^2 + alpha tr(A^+ W'W) + ...

That is the same kind of problem with ``r`` rows, diagonal features and no intercepts: an iteration costs ``O(r T^2)`` whatever
the number of rows. ``U`` comes from ``Phi_s V / d``, so directions far below the largest are inexact; ``solve`` therefore
certifies what it found on the problem that was posed, not on this one.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.sparse import diags_array, issparse

from ...problem import Problem
from ...problem.observations import Observations
from ...problem.solution import Start
from ...structures import Structure
from .shared_inputs import SharedInputs

Array = np.ndarray
WORTHWHILE = 32  # below this many features an iteration is cheap as it is


class DiagonalInputs(SharedInputs):
    """The decomposition of features that are diagonal already."""

    V = None

    def __init__(self, d: Array, targets: Array, c: Array):
        self.c, self.fit_intercept = c, False
        self.k, self.d = d**2, d
        self.targets = targets * np.sqrt(c)
        self.rows = np.ascontiguousarray(self.targets.T)
        self.projected = d[:, None] * self.targets

    def decompose(self) -> None:
        """Nothing is left to do."""

    def _moments_along(self, Q: Array) -> tuple[Array, Array]:
        P = self.d[:, None] * Q
        return P.T @ P, P.T @ self.targets


class Eigenbasis:
    """A problem in the eigenvectors of its features, and the way there and back."""

    share: ClassVar[float] = 0.8  # of the tolerance: the bound of the problem that was posed may be a little weaker
    whole: ClassVar[bool] = True  # its minimum is that of the problem that was posed
    same_rows: ClassVar[bool] = False  # its rows are directions: duals of the problem that was posed are computed there

    def __init__(self, problem: Problem, inputs: SharedInputs):
        inputs.decompose()
        order = np.argsort(inputs.k)[::-1]
        d = np.sqrt(inputs.k[order])
        keep = d > 1e-10 * max(float(d[0]), np.finfo(float).tiny)
        keep[0] = True
        self.kept, self.n_features = order[keep], len(order)
        self.V = None if inputs.V is None else inputs.V[:, self.kept]
        self.inputs = inputs
        d = d[keep]
        root_c = np.sqrt(inputs.c)
        along = inputs.projected[order[keep]] / root_c
        targets = np.divide(along, d[:, None], where=d[:, None] > 0, out=np.zeros_like(along))
        r, T = targets.shape
        observations = Observations(
            np.tile(np.arange(r), T), np.repeat(np.arange(T), r), targets.T.ravel(), np.repeat(inputs.c, r), T
        )
        features = diags_array(d, format="csr")
        self.problem = Problem(features, observations, problem.loss, problem.structure, problem.alpha, problem.ridge, False)
        self.problem.once("shared inputs", lambda: DiagonalInputs(d, targets, inputs.c))
        self.problem.once("scale", lambda: problem.scale)
        self.problem.once("rounding_floor", lambda: problem.rounding_floor)
        self.problem.once("reduced", lambda: None)
        whole = float(problem.observations.weight @ (problem.observations.y - inputs.y_mean[problem.observations.task]) ** 2)
        self.constant = whole - float(np.sum(inputs.c * targets**2))

    @staticmethod
    def of(problem: Problem, worthwhile: int = WORTHWHILE) -> Eigenbasis | None:
        """The reduction, where there is one and it pays; it turns the features, which a structure on them would not survive."""
        if problem.structure.keeps_columns or problem.structure.parted:
            return None
        return problem.once("reduced", lambda: Eigenbasis._build(problem, worthwhile))

    @staticmethod
    def _build(problem: Problem, worthwhile: int) -> Eigenbasis | None:
        if issparse(problem.features) or problem.n_features < worthwhile:
            return None
        inputs = SharedInputs.of(problem)
        return None if inputs is None else Eigenbasis(problem, inputs)

    def at(self, alpha: float, structure: Structure) -> Problem:
        """The reduced problem at another strength, under another structure."""
        return self.problem.under(structure).at(alpha)

    def inward(self, start: tuple | None) -> Start | None:
        """Weights to start from, in the coordinates of the reduced problem."""
        if start is None:
            return None
        W = start[0][self.kept] if self.V is None else self.V.T @ start[0]
        return Start(W, np.zeros_like(start[1]), getattr(start, "length", None))

    def outward(self, W: Array, _: Array) -> tuple[Array, Array]:
        """Weights and intercepts of the problem that was posed."""
        if self.V is None:
            outside = np.zeros((self.n_features, W.shape[1]))
            outside[self.kept] = W
        else:
            outside = self.V @ W
        return outside, self.inputs.intercepts(outside)

    def posed(self, problem: Problem, W: Array, b: Array) -> tuple[Array, Array, Array]:
        """The same, and what they predict there."""
        W, b = self.outward(W, b)
        return W, b, problem.predict(W, b)

    def features(self, phi: Array) -> Array:
        """Features of other inputs, in the coordinates of the reduced weights."""
        centred = phi - self.inputs.x_mean
        return centred[:, self.kept] if self.V is None else centred @ self.V

    def finer(self, problem: Problem, Z: Array, A: Array, tol: float) -> Eigenbasis | None:
        """What to try where this reduction, certified, was not fine enough: nothing, for nothing is left out."""
        return None
