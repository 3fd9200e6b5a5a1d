"""Newton's method on the factor of a structure (``objective``); for NumPy, PyTorch and CuPy.

``h`` is not convex in ``Q`` but the problem is convex in ``D = QQ'``: a proximal step on ``D`` finds directions that ``Q``
lacks (``FactorNewton._grow``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..._array_api import (
    cast,
    column_squares,
    dot,
    double,
    eigh,
    inner,
    left_vectors,
    like,
    namespace,
    row_products,
    to_numpy,
    top_eigenvalue,
    total,
)
from ...design.input_spectrum import InputSpectrum
from ...design.task_data import TaskBlock, eye_like, typical
from .objective import TINY, Point, joined

Array = Any  # of any of the libraries
MAX_STEPS_PER_CERTIFICATE = 8  # Newton steps after which a certificate is computed, whatever the predicted decrease
MIN_PREDICTED_DECREASE_SHARE = 0.2  # share of the tolerance at which the predicted decrease is worth a certificate
MIN_DECREASE_IN_EPS = 1000  # below this many roundings of the value, the gradient norm decides about a step
MAX_DROPPED_COLUMN_SHARE = 0.1  # columns below this share of the mean squared norm may be dropped, if the dual agrees,
MAX_DROPPED_COLUMN_RATIO = 0.7  # and if a step leaves less than this share of their squared norm: they are vanishing
FIRST_SHRINKAGE_SHARE = 0.25  # share of the penalty's shrinkage of the first weights: more would drop needed directions
MAX_FIRST_SHRINKAGE = 0.3  # largest shrinkage of the first weights, relative to the inputs of a task
WEAK_PENALTY_SHARE = 0.02  # a penalty below this share of the inputs leaves the tasks nearly as if fitted independently
MIN_STARTING_SINGULAR_VALUE = 3e-3  # of starting weights, relative to the mean singular value; smaller ones are dropped
MIN_CURVATURE_SHARE = 0.1  # share of the preconditioner's curvature below which conjugate gradients stop, far from the optimum
PROXIMAL_LENGTH_SHARE = 0.7  # first length of a proximal step, as a share of one over the curvature
MIN_SINGLE_PRECISION_DECREASE = 1e-7  # predicted decrease, relative to the scale, above which single precision suffices


def newton_direction(point: Point, metric: Callable[[Array], Array], forcing: float, limit: int = 100) -> Array:
    """Preconditioned conjugate gradients on the Newton system, to a relative residual or to negative curvature.

    As long as the gradient in ``D`` has negative eigenvalues, they also stop at curvature that is small compared with the
    preconditioner's: the step would be far too long.
    """
    x, r = 0 * point.gradient, -point.gradient
    z = metric(r)
    p, size = z, dot(r, z)
    target_decrease, flat, length = forcing**2 * size, min(MIN_CURVATURE_SHARE, point.lift) if point.p == 1 else 0.0, size
    for k in range(limit):
        Hp = point.hessian(p)
        curvature = dot(p, Hp)
        if curvature <= max(flat * length, 1e-14 * dot(p, p)):
            return x if k else p
        x = x + (size / curvature) * p
        r = r - (size / curvature) * Hp
        z = metric(r)
        size, last = dot(r, z), size
        if size <= target_decrease:
            break
        p = z + (size / last) * p
        length = size + (size / last) ** 2 * length  # squared norm of ``p`` in the metric
    return x


def _flatter(point: Point, metric: Callable[[Array], Array], predicted_decrease: float) -> bool:
    """Whether a step reduced the preconditioned norm of the gradient, where rounding hides the change of the value."""
    return inner(point.gradient, metric(point.gradient)) / 2 < predicted_decrease / 4


class FactorNewton:
    """Newton steps until the predicted decrease is below the tolerance, and proximal steps for missing directions.

    Parameters
    ----------
    data : blocks of tasks
    alpha, p : float, int
        Regularisation strength and power of the penalty: 1 for the trace, 2 for Frobenius.
    scale : float
        The loss that gaps are relative to.
    start : array, optional
        Starting weights, one row for each task; by default from independent fits of the tasks.
    single_data : blocks of tasks, optional
        The blocks in single precision, for the first steps and for all directions.
    spectrum : InputSpectrum, optional
        The spectrum of the inputs, if these are not isotropic.
    """

    just_grown = False  # whether a proximal step has just added directions: none of them is dropped yet
    direction_data: Sequence[TaskBlock] | None = None  # for directions, until one fails to decrease ``h``

    def __init__(
        self,
        data: Sequence[TaskBlock],
        alpha: float,
        p: int,
        scale: float,
        tol: float,
        forcing: float,
        start: Array | None = None,
        single_data: Sequence[TaskBlock] | None = None,
        spectrum: InputSpectrum | None = None,
    ):
        self.data, self.alpha, self.p, self.scale, self.forcing, self.single_data = data, alpha, p, scale, forcing, single_data
        self.spectrum = spectrum
        self.direction_data = single_data
        self.dtype = data[0].dtype
        self.here = self._at(self._first_factor() if start is None else self._factor_of(start))
        self.target_decrease = MIN_PREDICTED_DECREASE_SHARE * tol * scale
        self.no_decrease = False  # whether the last line search failed
        self.certified = False  # whether a certificate has been computed
        self.check_directions = start is not None  # a warm start may lack directions

    def _at(self, Q: Array) -> Point:
        if self.single_data is not None:
            try:
                return Point(self.single_data, cast(Q, self.single_data[0].dtype), self.alpha, self.p, self.spectrum)
            except np.linalg.LinAlgError:  # singular in single precision
                self.single_data = None
        return Point(self.data, cast(Q, self.dtype), self.alpha, self.p, self.spectrum)

    def _first_factor(self) -> Array:
        """The best factor for independent fits of the tasks, with some of the shrinkage of the penalty."""
        W = joined([block.independent_fit(self._shrinkage) for block in self.single_data or self.data])
        norm, root = (inner(W, W) / W.shape[0]) ** 0.5, self.alpha**0.5
        if self.p == 1 and root < WEAK_PENALTY_SHARE * norm * self._size:
            W = self._at((root * norm) ** 0.5 * eye_like(W)).weights()
        return self._factor_of(W, FIRST_SHRINKAGE_SHARE)

    @property
    def _shrinkage(self) -> float:
        """The ridge of the first weights, as a share of the size of the inputs of a task.

        With singular values ``s`` of the weights ``D`` is about ``sqrt(alpha) s``, and the tasks are shrunk by ``alpha / D``.
        """
        squares = sum(total(block.squares) for block in self.data) * self._size  # sum of ``s^2`` times the squared size
        count = min(sum(block.n_tasks for block in self.data), self.data[0].n_features)
        return (
            min(MAX_FIRST_SHRINKAGE, (self.alpha * count / squares) ** 0.5)
            if self.p == 1 and squares > 0
            else MAX_FIRST_SHRINKAGE
        )

    @cached_property
    def _size(self) -> float:
        """The typical sum of squares of the inputs of a task along a direction."""
        return typical(np.concatenate([to_numpy(block.size) for block in self.data]))

    def _factor_of(self, W: Array, shrink: float = 0.0) -> Array:
        """The best factor for the weights; under the trace penalty for their leading singular vectors.

        ``shrink`` is the share of the penalty's shrinkage of singular values, as if the inputs of all tasks were isotropic.
        """
        exact = double(W)
        if self.p != 1:
            squared_norm, U = (side[..., ::-1] for side in eigh(exact.T @ exact))
            squared_norm = self.alpha * np.maximum(squared_norm, 1e-14 * max(squared_norm[0], np.finfo(float).tiny))
            q = min(*W.shape)
            return like(U[:, :q] * (squared_norm[:q] / self.p) ** (0.5 / (self.p + 1)), W)
        squares, vectors = left_vectors(exact.T)
        s, root = np.sqrt(np.maximum(squares[::-1], 0.0)), self.alpha**0.5
        q = int(np.count_nonzero(s > MIN_STARTING_SINGULAR_VALUE * s.mean()))  # the weights of a fit have the right rank
        if shrink > 0:
            q = min(max(40, s.size // 2), int(np.count_nonzero(s > 1e-7 * s[0])))  # smaller ones are rounding
        if shrink > 0 and self._size > 0:
            left = s - shrink * root / self._size
            q, s = min(q, 2 + int(1.3 * np.count_nonzero(left > 0))), np.maximum(left, 0.1 * s)
        q = max(q, 1)
        largest_last = np.sqrt(root * s[:q][::-1])
        return cast(vectors[:, vectors.shape[1] - q :] * like(largest_last, exact), W.dtype)

    def advance(self) -> bool:
        """Up to ``MAX_STEPS_PER_CERTIFICATE`` Newton steps, after a proximal one if directions are missing; whether the point
        changed.
        """
        moved = self.check_directions and self._grow()
        for k in range(MAX_STEPS_PER_CERTIFICATE):
            metric = self.here.metric()
            predicted_decrease = inner(self.here.gradient, metric(self.here.gradient)) / 2
            if k == 0 and self.certified and not moved:
                self.target_decrease = min(self.target_decrease, 0.3 * predicted_decrease)  # make at least one step
            coarse, settled = self.here.Q.dtype != self.dtype, predicted_decrease <= self.target_decrease
            if settled and not (coarse and self.target_decrease < MIN_SINGLE_PRECISION_DECREASE * self.scale):
                break
            if predicted_decrease <= MIN_SINGLE_PRECISION_DECREASE * self.scale:
                self.single_data = None  # in double precision from the next point on
            self.just_grown = k == 0 and moved
            self.no_decrease = not settled and not self._newton_step(metric, predicted_decrease)
            if self.no_decrease and not coarse:
                if self.direction_data is None:
                    break
                self.direction_data = None
                continue
            if settled or self.no_decrease:
                self.single_data = None
                self.here = self._at(self.here.Q)
            moved = True
        self.check_directions, self.certified, self.target_decrease = True, True, self.target_decrease / 4
        return moved

    def _direction(self, metric: Callable[[Array], Array], predicted_decrease: float) -> Array:
        """The Newton direction, with a relative residual that depends on the predicted decrease."""
        forcing = float(np.clip((predicted_decrease / self.scale) ** 0.25, self.forcing, 0.3))
        here = self.here
        if self.direction_data is not None and here.Q.dtype == self.dtype:
            here = here.in_precision_of(self.direction_data)
        return newton_direction(here, metric, forcing)

    def _newton_step(self, metric: Callable[[Array], Array], predicted_decrease: float) -> bool:
        here, move = self.here, self._direction(metric, predicted_decrease)
        directional_derivative, t = inner(here.gradient, move), 1.0
        below_rounding = predicted_decrease < MIN_DECREASE_IN_EPS * float(namespace(here.Q).finfo(here.Q.dtype).eps) * abs(
            here.value
        )
        while t > 1e-6:
            whole, trimmed = self._trimmed(here.Q + t * move)
            for Q in [whole] if trimmed is whole else [trimmed, whole]:  # keep all columns if dropping some fails
                there = self._at(Q)
                if there.value < here.value + 1e-4 * t * directional_derivative or (
                    below_rounding and Q is whole and _flatter(there, metric, predicted_decrease)
                ):
                    self.here = there
                    return True
            t /= 4
        return False

    def _trimmed(self, Q: Array) -> tuple[Array, Array]:
        """``Q`` with orthogonal columns, and without columns that are small and vanish according to the dual.

        The cost of an iteration grows with the rank.
        """
        squared_norm, V = eigh(Q.T @ Q)
        whole = Q @ like(V, Q)
        if self.p != 1 or self.just_grown:
            return whole, whole
        share = squared_norm * (squared_norm.size / max(float(squared_norm.sum()), TINY))
        correlation = self.here.Z @ whole
        size = column_squares(correlation) / (4 * self.alpha)  # times the squared norm
        before = column_squares(self.here.Q.T @ whole)  # of the current factor, times the squared norm
        dropped = (
            (share < MAX_DROPPED_COLUMN_SHARE)
            & (size < (1 - 2 * share) * squared_norm)
            & (squared_norm**2 < MAX_DROPPED_COLUMN_RATIO * before)
        )
        return whole, Q @ like(V[:, ~dropped], Q) if dropped.any() else whole

    def _grow(self) -> bool:
        """A proximal step on ``D``, in which the problem is convex, if the dual constraint is violated outside the range of
        ``Q``.

        It adds the missing directions. Its first length is one over the curvature of ``h`` along them. Along ``u`` that is
        ``sum_t (u'z_t)^2 u'X_t'(X_t D X_t' + alpha)^-1 X_t u / (2 alpha)``, approximated by isotropic inputs.
        """
        if self.p != 1:
            return False
        here, outside = self.here, self._outside()
        largest = top_eigenvalue(outside)
        if largest <= 4 * self.alpha:
            return False
        jump = self._proximal_length(outside, largest)
        for _ in range(12):
            pair = [here.Q, (jump / (4 * self.alpha)) ** 0.5 * here.Z.T]
            squares, U = left_vectors(namespace(here.Q).concat(pair, axis=1))
            kept = int(np.count_nonzero(squares > jump))
            Q = U[:, U.shape[1] - kept :] * like(np.sqrt(squares[squares.size - kept :] - jump), here.Q)
            if kept and (there := self._at(Q)).value < here.value:
                self.here = there
                return True
            jump /= 4
        return False

    def _proximal_length(self, outside: Array, largest: float) -> float:
        """One over the curvature, or the mean squared norm of the columns if the loss has no curvature."""
        share = double(to_numpy(row_products(outside, outside)))
        curvatures = double(to_numpy(joined([part.residual_share * part.size for part in self.here.parts])))
        curvature = float(np.average(curvatures, weights=share / share.max()))  # normalised against overflow
        length = PROXIMAL_LENGTH_SHARE * 2 * self.alpha * (self.alpha / largest) / curvature if curvature > 0 else np.inf
        return length if np.isfinite(length) else inner(self.here.Q, self.here.Q) / self.here.Q.shape[1]

    def _outside(self) -> Array:
        """The part of ``Z`` outside the range of ``Q``."""
        squared_norm, V = eigh(self.here.E)
        keep = squared_norm > 1e-15 * squared_norm[-1]
        U = self.here.Q @ like(V[:, keep] / np.sqrt(squared_norm[keep]), self.here.Q)
        return self.here.Z - (self.here.Z @ U) @ U.T
