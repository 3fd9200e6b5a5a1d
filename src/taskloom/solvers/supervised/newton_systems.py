"""The inputs of a batch of small convex problems, and their Newton systems (``batched_newton``).

A design stores the inputs in the form with the smaller systems: coefficients of features, or dual variables of observations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy.sparse import csr_array

from ..._array_api import times
from ..._linalg import Positive, conjugate_gradient, solve_spd
from ...features.kernels import weighted_gram

Array = np.ndarray


@dataclass(frozen=True)
class SystemTuning:
    """How exactly Newton systems are solved."""

    max_cg_steps: int = 2000  # conjugate-gradient steps of one system
    relative_residual: float = 1e-11  # of a system that is solved exactly
    max_relative_residual: float = 1e-2  # far from the minimum of a multiclass loss
    relative_residual_above_minimum: float = 1e-3  # if the solution may stay above the minimum
    min_curved_share: float = 1e-14  # of the largest curvature; observations below are on a linear piece


TUNING = SystemTuning()


@dataclass(frozen=True, eq=False)
class OneEach:
    """One intercept for each batch element; ``mask`` (``B x m``) marks the entries that are not padding."""

    mask: Array
    damped_where_flat: ClassVar[bool] = True

    def expand(self, b: Array) -> Array:
        """The intercept of each observation (``B x m``)."""
        return self.mask * b

    def gather(self, x: Array) -> Array:
        """The sum over the observations of each intercept (``B x k``)."""
        return np.einsum("bm,bm->b", self.mask, x)[:, None]

    curvatures = gather  # of the intercepts, from those of the observations

    def dense(self) -> Array:
        """The indicator matrix (``B x m x k``), for dense systems."""
        return self.mask[:, :, None]

    def pick(self, which: Array) -> OneEach:
        return OneEach(self.mask[which])


@dataclass(frozen=True, eq=False)
class OnePerTask:
    """The same for a single batch element that holds all tasks; ``task`` (``m``) names the task of each observation."""

    task: Array
    n_tasks: int
    damped_where_flat: ClassVar[bool] = True

    def expand(self, b: Array) -> Array:
        return b[:, self.task]

    def gather(self, x: Array) -> Array:
        return np.bincount(self.task, weights=x[0], minlength=self.n_tasks)[None]

    curvatures = gather

    def dense(self) -> Array:
        return np.eye(self.n_tasks)[self.task][None]

    def pick(self, which: Array) -> OnePerTask:
        return self


@dataclass(frozen=True, eq=False)
class FreeColumns:
    """An intercept of all rows and the columns of unpenalised terms (``n x k``), of a single batch element."""

    E: Array
    damped_where_flat: ClassVar[bool] = False  # where they almost separate the labels few rows curve, and their step is right

    def expand(self, b: Array) -> Array:
        return b @ self.E.T

    def gather(self, x: Array) -> Array:
        return x @ self.E

    def curvatures(self, h: Array) -> Array:
        return h @ self.E**2

    def dense(self) -> Array:
        return self.E[None]

    def pick(self, which: Array) -> FreeColumns:
        return self


Intercepts: TypeAlias = OneEach | OnePerTask | FreeColumns
# A factored Newton system: maps coefficients and the gradient of the loss to the steps of both.
Direction: TypeAlias = Callable[[Array, Array], tuple[Array, Array]]


class BatchDesign(ABC):
    """The inputs of a batch, in the form with the smaller systems."""

    direct: ClassVar[bool] = True  # whether systems are solved by factorisation
    bordered: ClassVar[bool] = False  # whether intercepts are among the coefficients
    tolerance: float = 0.0  # how far above the minimum a solution may stay

    @abstractmethod
    def start(self, u: Array) -> Array:
        """The coefficients of ``beta = X'u``."""

    @abstractmethod
    def predict(self, coef: Array) -> Array:
        """``X beta``."""

    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        """``<beta, other beta>``, given the predictions of the other."""
        return np.einsum("bi,bi->b", coef, other)

    def pick(self, which: Array) -> BatchDesign:
        """Some of the batch elements; a single one is all."""
        return self

    @abstractmethod
    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        """The Newton system at curvatures ``h``."""


class PrimalDesign(BatchDesign):
    """The coefficients are ``beta`` itself, and the systems are of its size."""

    @abstractmethod
    def gather(self, U: Array) -> Array:
        """``X'U`` for several columns (``B x m x k``)."""

    @abstractmethod
    def gram(self, h: Array) -> Array:
        """``X'HX`` (``B x p x p``)."""

    def start(self, u: Array) -> Array:
        return self.gather(u[..., None])[..., 0]

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        """``(I + X'HX) d beta = -(X'g + beta)``, bordered by the intercepts."""
        M = self.gram(h)
        M += np.eye(M.shape[-1])
        if intercepts is not None and damping is not None:
            E = intercepts.dense()
            border, corner = self.gather(h[:, :, None] * E), E.mT @ (h[:, :, None] * E)
            corner += damping[:, :, None] * np.eye(E.shape[-1])
            M = np.concatenate([np.concatenate([M, border], axis=2), np.concatenate([border.mT, corner], axis=2)], axis=1)
        return bordered_direction(self, M, intercepts)


@dataclass(frozen=True, eq=False)
class DenseColumns(PrimalDesign):
    """``X`` itself (``B x m x p``)."""

    X: Array

    def gather(self, U: Array) -> Array:
        return self.X.mT @ U

    def gram(self, h: Array) -> Array:
        return self.X.mT @ (h[:, :, None] * self.X)

    def predict(self, coef: Array) -> Array:
        return times(self.X, coef)

    def pick(self, which: Array) -> DenseColumns:
        return DenseColumns(self.X[which])


@dataclass(frozen=True, eq=False)
class Gram(BatchDesign):
    """``K = XX'`` (``B x m x m``); the coefficients are the dual ``u`` with ``beta = X'u``."""

    K: Array

    def start(self, u: Array) -> Array:
        return u

    def predict(self, coef: Array) -> Array:
        return times(self.K, coef)

    def inner(self, coef: Array, other: Array, predicted: Array) -> Array:
        return np.einsum("bi,bi->b", coef, predicted)

    def pick(self, which: Array) -> Gram:
        return Gram(self.K[which])

    def factor(self, h: Array, intercepts: Intercepts | None, damping: Array | None) -> Direction:
        """``(I + HK) du = e - H E db`` with ``e = -g - u``, symmetrised by ``R = sqrt(h)``.

        ``du`` is computed as ``R`` times a solution, without cancellation: under a weak penalty ``K`` is large and ``du``
        small. Observations without curvature take ``du = e`` and leave the system, which is small where the loss is mostly
        linear. The intercepts follow from the condition that the dual variables of each task add up to zero.
        """
        curved = h > TUNING.min_curved_share * h.max(axis=1, keepdims=True, initial=0.0)
        rows = np.flatnonzero(curved.any(axis=0))
        root, every = np.sqrt(np.where(curved, h, 0.0))[:, rows], rows.size == h.shape[1]
        among = self.K if every else self.K[:, rows]
        inside = self.K if every else among[:, :, rows]
        system = Positive(root[:, :, None] * inside * root[:, None, :] + np.eye(rows.size))

        def expanded(part: Array) -> Array:
            """``R`` times values of the curved observations, with zeros for the others."""
            whole = np.zeros((len(h), h.shape[1], part.shape[-1]))
            whole[:, rows] = root[:, :, None] * part
            return whole

        def direction(coef: Array, g: Array) -> tuple[Array, Array]:
            e = -g - coef
            linear_part = np.where(curved, 0.0, e)
            scaled = np.divide(e[:, rows], root, out=np.zeros_like(root), where=root > 0)
            rhs = (scaled - root * times(among, linear_part))[..., None]
            if intercepts is None or damping is None:
                return linear_part + expanded(system.solve(rhs))[..., 0], np.zeros((len(g), 0))
            E = intercepts.dense()
            both = expanded(system.solve(np.concatenate([rhs, root[:, :, None] * E[:, rows]], axis=-1)))
            step, through = linear_part[..., None] + both[..., :1], both[..., 1:]
            schur = E.mT @ through + damping[:, :, None] * np.eye(E.shape[-1])
            db = solve_spd(schur, intercepts.gather(step[..., 0] + coef)[..., None])
            return (step - through @ db)[..., 0], db[..., 0]

        return direction


@dataclass(frozen=True, eq=False)
class SparseColumns(PrimalDesign):
    """``X Q`` of a single batch element, stored as its factors: ``X`` (``m x d``, sparse) and ``Q`` (``d x q``)."""

    X: csr_array
    Q: Array

    def gather(self, U: Array) -> Array:
        return (self.Q.T @ (self.X.T @ U[0]))[None]

    def gram(self, h: Array) -> Array:
        return (self.Q.T @ weighted_gram(self.X, h[0]) @ self.Q)[None]

    def predict(self, coef: Array) -> Array:
        return (self.X @ (self.Q @ coef[0]))[None]


def bordered_direction(design: BatchDesign, M: Array, intercepts: Intercepts | None) -> Direction:
    """The steps that solve a Newton system for coefficients and intercepts together."""
    system = Positive(M)

    def direction(coef: Array, g: Array) -> tuple[Array, Array]:
        sums = np.zeros((len(g), 0)) if intercepts is None else intercepts.gather(g)
        both = system.solve(-np.concatenate([design.start(g) + coef, sums], axis=1)[..., None])[..., 0]
        return both[:, : coef.shape[1]], both[:, coef.shape[1] :]

    return direction


def direction_without_intercepts(
    design: BatchDesign,
    intercepts: Intercepts | None,
    curved: Callable[[Array], Array],
    solved: Callable[[Array], Array],
    solve: Callable[[Array, Array, Array], Array],
) -> Direction:
    """``(I + X'HX) d beta = -(X'g + beta)`` for one batch element, with the intercepts eliminated.

    ``curved`` multiplies predictions by ``H``, and ``solved`` solves the block of the intercepts in it. ``solve`` is a function
    of the right-hand side, the coefficients and the gradient.
    """

    def direction(coef: Array, g: Array) -> tuple[Array, Array]:
        step = solve(-(design.start(balanced(g, intercepts, curved, solved)) + coef), coef, g)
        if intercepts is None:
            return step, np.zeros((1, 0))
        return step, -solved(intercepts.gather(g + curved(design.predict(step))))

    return direction


def balanced(
    g: Array, intercepts: Intercepts | None, curved: Callable[[Array], Array], solved: Callable[[Array], Array]
) -> Array:
    """What is left of a gradient when the intercepts have followed it."""
    return g if intercepts is None else g - curved(intercepts.expand(solved(intercepts.gather(g))))


def iterative_direction(
    design: BatchDesign,
    curved: Callable[[Array], Array],
    intercepts: Intercepts | None,
    solved: Callable[[Array], Array],
    max_residual: Callable[[Array, Array, Array], float],
    product: Callable[[Array], Array] | None = None,
    **options: Any,
) -> Direction:
    """``direction_without_intercepts`` by conjugate gradients.

    ``max_residual`` is a function of the right-hand side, the coefficients and the gradient. ``product`` is given where there
    is a cheaper one.
    """

    def product_by_passes(x: Array) -> Array:
        return x + design.start(balanced(curved(design.predict(x)), intercepts, curved, solved))

    def solve(rhs: Array, coef: Array, g: Array) -> Array:
        enough = max_residual(rhs, coef, g)
        return conjugate_gradient(
            product or product_by_passes, rhs, max_residual=enough, max_steps=TUNING.max_cg_steps, **options
        )

    return direction_without_intercepts(design, intercepts, curved, solved, solve)


def eliminated_entries(
    h: Array, intercepts: Intercepts | None, damping: Array | None
) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """``curved`` and ``solved`` for a loss of single outputs, whose ``H`` is diagonal."""
    total = np.ones(1) if intercepts is None or damping is None else intercepts.gather(h) + damping
    return (lambda z: h * z), (lambda gathered: gathered / total)


def iterative_direction_of_entries(
    design: BatchDesign, h: Array, intercepts: Intercepts | None, damping: Array | None, **options: Any
) -> Direction:
    """``iterative_direction`` for a loss of single outputs."""
    curved, solved = eliminated_entries(h, intercepts, damping)
    return iterative_direction(design, curved, intercepts, solved, **options)
