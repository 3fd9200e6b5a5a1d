"""The objective as a function of a factor of the structure, with the tasks eliminated by an engine.

    h(Q) = tr (QQ')^p + sum_t min_b [ ||y_t - X_t Q b||^2 + alpha ||b||^2 ],     D = QQ',   w_t = Q b_t,   p = 1 or 2

The weights of the observations are inside ``X_t`` and ``y_t``. The tasks are eliminated exactly, so the Hessian of ``h``
includes their response to a change of ``Q``. A product with it costs two passes over the data and no decomposition; a
proximal step on ``W`` costs a singular value decomposition.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from ..._array_api import cast, column_squares, double, inner, like, namespace, to_numpy
from ...design.input_spectrum import InputSpectrum
from ...design.task_data import eye_like

Array = Any  # of any of the libraries
TINY = float(np.finfo(float).tiny)
SPAN_CURVATURE = 6.0  # curvature within the span of ``Q``, measured; 4 at fixed ``W`` with orthogonal columns


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
        curvatures = like(SPAN_CURVATURE * (1 + self.squared_norm / self.squared_norm[:, None]) + self.lift, self.Q)

        def inverse(gradient: Array) -> Array:
            basis = cast(U, gradient.dtype)
            return outside(gradient) + basis @ ((basis.T @ gradient) / cast(curvatures, gradient.dtype))

        return inverse

    def _metric(self) -> Callable[[Array], Array]:
        """The preconditioner without the response of the tasks."""
        floor = 0.4 if self.p == 1 else 1e-9 * self.charge**0.5
        K = (floor + self.lift) * eye_like(self.E)
        if self.p != 1:
            K = K + 4 * self.E
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
    scale = 1 / (1 + np.multiply.outer(np.maximum(curvatures, 0.0), spectrum.variances))

    def inverse(gradient: np.ndarray) -> np.ndarray:
        dtype = gradient.dtype
        along = spectrum.to_inner(cast(V.T, dtype) @ gradient.T)
        return (cast(V, dtype) @ spectrum.to_original(cast(scale, dtype) * along)).T

    return inverse
