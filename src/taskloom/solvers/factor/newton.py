"""Newton's method on a factor ``Q`` of the structure, with the tasks eliminated by an engine.

    h(Q) = tr (QQ')^p + sum_t min_b [ ||y_t - X_t Q b||^2 + alpha ||b||^2 ],     D = QQ',   w_t = Q b_t,   p = 1 or 2

The weights of the observations are inside ``X_t`` and ``y_t``. The tasks are eliminated exactly, so the Hessian of ``h``
includes their response to a change of ``Q``. A product with it costs two passes over the data and no decomposition; a
proximal step on ``W`` costs a singular value decomposition.

A step solves the Newton system by preconditioned conjugate gradients, to a residual that falls as the steps do. The objective
is not convex in ``Q`` but the problem is convex in ``D = QQ'``: after a certificate, a proximal step on ``D`` finds directions
that ``Q`` lacks. The same code runs on the host, on a device and over a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from ..._array_api import cast, column_squares, dot, double, eigh, inner, like, namespace, to_numpy
from ..._linalg import conjugate_gradient
from ..._time_limit import check_time
from ...design.input_spectrum import InputSpectrum
from ...design.task_data import eye_like
from ...engines.local import WeightSpectrum
from ..base import Run, Solver

Array = Any  # of any of the libraries
TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True)
class NewtonTuning:
    """Constants of Newton's method on the factor; shares are relative to what their names say."""

    forcing: float = 0.1  # smallest relative residual of a Newton system
    certificate_interval: int = 8  # steps after which a certificate is computed at the latest
    decrease_per_gap: float = 0.2  # predicted decrease, as a share of the gap that it announces
    max_cg_steps: int = 100  # conjugate-gradient steps for one direction
    min_curvature_share: float = (
        0.1  # of the preconditioner's curvature: below it conjugate gradients stop, far from the optimum
    )
    max_step_share: float = np.inf  # longest step, as a multiple of the norm of the factor
    min_decrease_in_eps: float = 1000  # below this many roundings of the value, the gradient norm decides about a step
    max_dropped_column_share: float = 0.1  # columns below this share of the mean squared norm may be dropped, if the dual
    max_dropped_gradient: float = 1.0  # agrees (squared dual norms of vanishing columns are below 1),
    max_dropped_column_ratio: float = 0.7  # and if a step leaves less than this share of their squared norm
    first_shrinkage_share: float = 0.25  # share of the penalty's shrinkage of the first weights: more would drop directions
    max_first_shrinkage: float = 0.3  # largest shrinkage of the first weights, relative to the inputs of a task
    weak_penalty_share: float = 0.02  # a penalty below this share of the inputs leaves the tasks nearly as fitted independently
    min_starting_singular_value: float = 3e-3  # of starting weights, relative to the mean; smaller ones are dropped
    proximal_length_share: float = 0.7  # first length of a proximal step, as a share of one over the curvature
    span_curvature: float = 6.0  # curvature within the span of ``Q``, measured; 4 at fixed ``W`` with orthogonal columns
    max_stalled_certificates: int = 6  # that do not halve the gap, after which proximal steps take over
    min_model_curvature_share: float = 1e-6  # smallest curvature of a quadratic model, relative to the majorant
    min_single_precision_decrease: float = 1e-7  # predicted decrease over the scale above which single precision suffices


TUNING = NewtonTuning()


class Point:
    """``h`` at ``Q``, up to a constant: value, gradient, Hessian products and a preconditioner."""

    def __init__(self, tasks: Any, Q: Array, alpha: float, p: int = 1, spectrum: InputSpectrum | None = None):
        self.tasks, self.Q, self.alpha, self.p, self.spectrum = tasks, Q, alpha, p, spectrum
        self.value = self.charge + tasks.minimum
        self.gradient = 2 * p * (Q if p == 1 else Q @ self.E) - tasks.product

    @cached_property
    def E(self) -> Array:
        return self.Q.T @ self.Q

    @cached_property
    def charge(self) -> float:
        """``tr (QQ')^p``; 0 for a known ``D`` (``p = 0``)."""
        Q = double(self.Q)
        return 0.0 if self.p == 0 else inner(Q, Q) if self.p == 1 else inner(E := Q.T @ Q, E)

    @property
    def penalty(self) -> float:
        return self.charge + self.alpha * self.tasks.squared_norm

    def hessian(self, dQ: Array) -> Array:
        """The product of the Hessian of ``h`` with ``dQ``."""
        curvature = 2 * dQ
        if self.p != 1:
            curvature = 4 * (dQ @ self.E + self.Q @ (dQ.T @ self.Q) + self.Q @ (self.Q.T @ dQ))
        return curvature + self.lift * dQ + self.tasks.hessian(dQ)

    @cached_property
    def squared_norm(self) -> np.ndarray:
        """Squared norms of the columns of ``Q``, bounded away from zero."""
        squared_norm = column_squares(self.Q)
        return squared_norm + (1e-12 * squared_norm.max(initial=0.0) + TINY)

    @cached_property
    def lift(self) -> float:
        """The Levenberg damping for a negative gradient in ``D`` along the columns of ``Q``, which are orthogonal.

        Without it Newton's method would follow such a direction too far.
        """
        length = np.sqrt(self.squared_norm)
        gradient = double(to_numpy(self.tasks.correlation_gram(self.Q))) / (4 * self.alpha * length * length[:, None])
        if self.p != 1:
            gradient = gradient - np.diag(self.p * column_squares(self.Q) ** (self.p - 1))
        return max(float(np.linalg.eigvalsh(gradient)[-1]) - (self.p == 1), 0.0)

    @cached_property
    def metric(self) -> Callable[[Array], Array]:
        """The preconditioner: the inverse Hessian if the inputs of all tasks had equal variance in all directions.

        Under the trace penalty it is larger within the span of ``Q``, where the tasks undo the effect of a change on ``W``. At
        fixed ``W``, ``tr D + alpha tr(W'D^-1 W)`` has at the best ``D`` a curvature of about ``1 + q_j^2 / q_i^2`` for a change
        of column ``j`` along column ``i``. The smaller of both curvatures counts, so their inverses are added.
        """
        outside = self._metric()
        if self.p != 1:
            return outside
        U = self.Q / like(np.sqrt(self.squared_norm), self.Q)
        ratios = self.squared_norm / self.squared_norm[:, None]
        curvatures = like(TUNING.span_curvature * (1 + ratios) + self.lift, self.Q)

        def inverse(gradient: Array) -> Array:
            basis = cast(U, gradient.dtype)
            return outside(gradient) + basis @ ((basis.T @ gradient) / cast(curvatures, gradient.dtype))

        return inverse

    def _metric(self) -> Callable[[Array], Array]:
        """The preconditioner without the response of the tasks."""
        floor = 0.4 if self.p == 1 else 1e-9 * self.charge**0.5
        K = (floor + self.lift) * eye_like(self.E) + (0 if self.p == 1 else 4 * self.E)
        if self.spectrum is not None:
            return anisotropic_metric(K, self.tasks.curvature, self.spectrum)
        inverse = namespace(K).linalg.inv(K + self.tasks.curvature)
        return lambda gradient: gradient @ cast(inverse, gradient.dtype)

    @cached_property
    def predicted_decrease(self) -> float:
        """The decrease of the quadratic model along the preconditioned gradient."""
        return inner(self.gradient, self.metric(self.gradient)) / 2

    def with_tasks(self, tasks: Any) -> Point:
        """A copy for Hessian products with the tasks in another precision."""
        twin = copy(self)
        twin.tasks, twin.Q, twin.gradient = tasks, tasks.Q, cast(self.gradient, tasks.Q.dtype)
        twin.__dict__.pop("E", None)
        return twin


def anisotropic_metric(K: np.ndarray, correlation: np.ndarray, spectrum: InputSpectrum) -> Callable[[np.ndarray], np.ndarray]:
    """The inverse of ``K + k correlation`` along each eigenvector of the inputs, ``k`` its variance."""
    curvatures, V = scipy.linalg.eigh(double(correlation), double(K))
    curvatures = np.maximum(curvatures, 0.0)
    factors = 1 / (1 + np.multiply.outer(curvatures, spectrum.variances))
    rest = 1 / (1 + curvatures * (spectrum.rest or 0.0))[:, None]

    def inverse(gradient: np.ndarray) -> np.ndarray:
        dtype = gradient.dtype
        along = cast(V.T, dtype) @ gradient.T
        return (cast(V, dtype) @ spectrum.scaled(along, cast(factors, dtype), cast(rest, dtype))).T

    return inverse


class FactorNewton(Run):
    """Newton steps on the factor; proximal ones, after a certificate, where directions are missing.

    Parameters
    ----------
    engine : Engine
        The tasks.
    alpha, p : float, int
        Regularisation strength and power of the penalty: 1 for the trace, 2 for Frobenius.
    scale, tol : float
        The loss that gaps are relative to, and the relative gap that is asked for.
    tuning : NewtonTuning
    start : WeightSpectrum or array, optional
        Of starting weights, or a factor itself; by default from independent fits of the tasks.
    first : object, optional
        What the engine needs to eliminate tasks at the first factor.
    """

    when_stuck: Solver | None = None  # the solver that takes over if no step decreases the objective

    def __init__(
        self,
        engine: Any,
        alpha: float,
        p: int,
        scale: float,
        tol: float,
        tuning: NewtonTuning,
        start: WeightSpectrum | Array | None = None,
        first: Any = None,
    ):
        self.engine, self.alpha, self.p, self.scale, self.tuning = engine, alpha, p, scale, tuning
        self.certificate_interval = tuning.certificate_interval
        self.single_suffices = tuning.decrease_per_gap * tol >= tuning.min_single_precision_decrease
        self.warm, self.begun = start is not None, False
        if start is None:
            Q = self._first_factor()
        else:
            Q = self._factor_of(start) if isinstance(start, WeightSpectrum) else start
        self.here = self._at(Q, start=first)

    def _at(self, Q: Array, start: Any = None) -> Point:
        near = self.here.tasks if self.begun else None
        tasks = self.engine.eliminate(Q, near, start)
        return Point(tasks, tasks.Q, self.alpha, self.p, self.engine.spectrum)

    # --- the first factor ---------------------------------------------------------------------------------------

    def _first_factor(self) -> Array:
        """The best factor for independent fits of the tasks, with some of the shrinkage of the penalty.

        With singular values ``s`` of the weights ``D`` is about ``sqrt(alpha) s``, and the tasks are shrunk by ``alpha / D``.
        """
        squares = self.engine.target_squares * self.engine.size  # sum of ``s^2`` times the squared size
        count, shrinkage = min(self.engine.n_tasks, self.engine.n_features), self.tuning.max_first_shrinkage
        if self.p == 1 and squares > 0:
            shrinkage = min(shrinkage, (self.alpha * count / squares) ** 0.5)
        spectrum = self.engine.independent_fits(shrinkage)
        root = self.alpha**0.5
        if self.p == 1 and root < self.tuning.weak_penalty_share * spectrum.rms * self.engine.size:
            eye = like(np.eye(self.engine.n_features), spectrum.vectors)
            spectrum = self.engine.eliminate((root * spectrum.rms) ** 0.5 * eye).weight_spectrum()
        return self._factor_of(spectrum, self.tuning.first_shrinkage_share)

    def _factor_of(self, weights: WeightSpectrum, shrink: float = 0.0) -> Array:
        """The best factor for the weights; under the trace penalty for their leading singular vectors.

        ``shrink`` is the share of the penalty's shrinkage of singular values, as if the inputs of all tasks were isotropic.
        """
        squares, vectors = np.maximum(weights.squares, 0.0), weights.vectors
        if self.p != 1:
            squares = self.alpha * np.maximum(squares, 1e-14 * max(squares[-1], TINY))
            return cast(vectors * like((squares / self.p) ** (0.5 / (self.p + 1)), vectors), self.engine.dtype)
        s, root, size = np.sqrt(squares[::-1]), self.alpha**0.5, self.engine.size if shrink > 0 else 0.0
        q = int(np.count_nonzero(s > self.tuning.min_starting_singular_value * s.mean()))  # the weights of a fit have the rank
        if shrink > 0:
            q = min(max(40, s.size // 2), int(np.count_nonzero(s > 1e-7 * s[0])))  # smaller ones are rounding
        if size > 0:
            left = s - shrink * root / size
            q, s = min(q, 2 + int(1.3 * np.count_nonzero(left > 0))), np.maximum(left, 0.1 * s)
        q = max(q, 1)
        largest_last = np.sqrt(root * s[:q][::-1])
        return cast(vectors[:, vectors.shape[1] - q :] * like(largest_last, vectors), self.engine.dtype)

    # --- steps --------------------------------------------------------------------------------------------------

    def estimated_gap(self) -> float:
        predicted, coarse = self.here.predicted_decrease, self.here.Q.dtype != self.engine.dtype
        if coarse and not self.single_suffices and predicted < self.tuning.min_single_precision_decrease * self.scale:
            return np.inf  # single precision cannot tell
        return predicted / self.tuning.decrease_per_gap

    def step(self, gap: float | None) -> None:
        if not self.begun:
            self.begun = True
            if self.warm:  # a warm start may lack directions
                self._grow()
            return
        if gap is not None:
            self.single_suffices = False
        grown = gap is not None and self._grow()
        coarse = self.here.Q.dtype != self.engine.dtype
        if self.here.predicted_decrease <= self.tuning.min_single_precision_decrease * self.scale:
            self.engine.single_data = None  # in double precision from the next point on
        if self._newton_step(keep_columns=grown) or grown:
            return
        if coarse:
            self.engine.single_data = None
            self.here = self._at(self.here.Q)
        elif not self.engine.refine():
            self.successor, self.finished = self.when_stuck, None if self.when_stuck else "stalled"

    def _newton_step(self, keep_columns: bool) -> bool:
        here, tuning = self.here, self.tuning
        move = self._direction()
        derivative, ahead = inner(here.gradient, move), here.tasks.ahead and here.tasks.ahead(move)
        eps = float(namespace(here.Q).finfo(here.Q.dtype).eps)
        below_rounding = here.predicted_decrease < tuning.min_decrease_in_eps * eps * abs(here.value)
        t = min(1.0, tuning.max_step_share * (inner(here.Q, here.Q) / max(inner(move, move), TINY)) ** 0.5)
        while t > 1e-6:
            check_time()
            whole, trimmed = self._trimmed(here.Q + t * move, keep_columns)
            start = None if ahead is None else ahead(t)
            for Q in [whole] if trimmed is whole else [trimmed, whole]:  # keep all columns if dropping some fails
                there = self._at(Q, start)
                if there.value < here.value + 1e-4 * t * derivative or (below_rounding and Q is whole and self._flatter(there)):
                    self.here = there
                    return True
            t /= 4
        return False

    def _flatter(self, there: Point) -> bool:
        """Whether a step reduced the preconditioned norm of the gradient, where rounding hides the change of the value."""
        return inner(there.gradient, self.here.metric(there.gradient)) / 2 < self.here.predicted_decrease / 4

    def _direction(self) -> Array:
        """Preconditioned conjugate gradients on the Newton system, to a relative residual or to negative curvature.

        The residual depends on the predicted decrease. As long as the gradient in ``D`` has negative eigenvalues, they also
        stop at curvature that is small compared with the preconditioner's: the step would be far too long.
        """
        forcing = float(np.clip((self.here.predicted_decrease / self.scale) ** 0.25, self.tuning.forcing, 0.3))
        tasks = self.engine.for_directions(self.here.tasks)
        point = self.here if tasks is self.here.tasks else self.here.with_tasks(tasks)
        return conjugate_gradient(
            point.hessian,
            -point.gradient,
            preconditioner=point.metric,
            tol=forcing,
            max_steps=self.tuning.max_cg_steps,
            min_curvature=min(self.tuning.min_curvature_share, point.lift) if self.p == 1 else 0.0,
            inner=dot,
        )

    def _trimmed(self, Q: Array, keep_columns: bool) -> tuple[Array, Array]:
        """``Q`` with orthogonal columns, and without columns that are small and vanish according to the dual.

        The cost of an iteration grows with the rank.
        """
        tuning = self.tuning
        squared_norm, V = eigh(Q.T @ Q)
        whole = Q @ like(V, Q)
        if self.p != 1 or keep_columns:
            return whole, whole
        share = squared_norm * (squared_norm.size / max(float(squared_norm.sum()), TINY))
        small = share < tuning.max_dropped_column_share
        if not small.any():
            return whole, whole
        size = np.diag(to_numpy(self.here.tasks.correlation_gram(whole))) / (4 * self.alpha)  # times the squared norm
        before = column_squares(self.here.Q.T @ whole)  # of the current factor, times the squared norm
        dropped = (
            small
            & (size < (tuning.max_dropped_gradient - 2 * share) * squared_norm)
            & (squared_norm**2 / tuning.max_dropped_column_ratio < before)
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
        here, alpha = self.here, self.alpha
        squared_norm, V = eigh(here.E)
        keep = squared_norm > 1e-15 * squared_norm[-1]
        largest, curvature = here.tasks.outside(here.Q @ like(V[:, keep] / np.sqrt(squared_norm[keep]), here.Q))
        if largest <= 4 * alpha:
            return False
        jump = self.tuning.proximal_length_share * 2 * alpha * (alpha / largest) / curvature if curvature > 0 else np.inf
        if not np.isfinite(jump):  # the loss has no curvature: the mean squared norm of the columns
            jump = inner(here.Q, here.Q) / here.Q.shape[1]
        for _ in range(12):
            squares, U = here.tasks.grown(here.Q, jump / (4 * alpha))
            kept = int(np.count_nonzero(squares > jump))
            Q = U[:, U.shape[1] - kept :] * like(np.sqrt(squares[squares.size - kept :] - jump), here.Q)
            if kept and (there := self._at(Q)).value < here.value:
                self.here = there
                return True
            jump /= 4
        return False
