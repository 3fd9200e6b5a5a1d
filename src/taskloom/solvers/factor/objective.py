"""The objective as a function of the factor of a structure, tasks eliminated; written once for NumPy, PyTorch and CuPy.

    h(Q) = tr (QQ')^p + sum_t min_b [ ||y_t - X_t Q b||^2 + alpha ||b||^2 ],     D = QQ',   w_t = Q b_t,   p = 1 or 2

with the weights of the observations inside ``X_t`` and ``y_t``. The tasks are eliminated exactly, so that the Hessian of ``h``
sees how they answer to a change of ``Q``; a product with it costs two passes over the data and no decomposition, where a
proximal step on ``W`` costs a singular value decomposition.

Tasks come in blocks (``task_blocks``). The rows of ``B``, ``Z`` and ``W`` are the tasks in the order of the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import scipy.linalg

from ..._array_api import cast, column_squares, double, inner, like, namespace, to_numpy, total
from ...design.input_spectrum import InputSpectrum
from ...design.task_data import TaskBlock, eye_like

Array = Any  # of any of the libraries
TINY = float(np.finfo(float).tiny)
SPAN_CURVATURE = 6.0  # curvature within the span of ``Q``, measured; 4 at fixed ``W`` with orthogonal columns


def joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(list(parts))


class Point:
    """``h`` at ``Q``, up to a constant: value, gradient, products with the Hessian and a metric that resembles it."""

    def __init__(self, data: Sequence[TaskBlock], Q: Array, alpha: float, p: int = 1, spread: InputSpectrum | None = None):
        self.Q, self.alpha, self.p, self.spread = Q, alpha, p, spread
        self.parts = [block.at(Q, alpha) for block in data]
        self.places = [slice(*ends) for ends in pairwise(accumulate((block.n_tasks for block in data), initial=0))]
        self.B, self.Z = joined([part.B for part in self.parts]), joined([part.Z for part in self.parts])
        self.value = self.charge + sum(total(part.least) for part in self.parts)
        self.gradient = 2 * p * (Q if p == 1 else Q @ self.E) - self.Z.T @ self.B

    @cached_property
    def E(self) -> Array:
        return self.Q.T @ self.Q

    @cached_property
    def charge(self) -> float:
        """``tr (QQ')^p``; nothing where ``D`` is known, which ``p = 0`` stands for."""
        Q = double(self.Q)
        return 0.0 if self.p == 0 else inner(Q, Q) if self.p == 1 else inner(E := Q.T @ Q, E)

    @property
    def penalty(self) -> float:
        return self.charge + self.alpha * inner(self.B, self.B)

    def weights(self) -> Array:
        """``W`` with a row for each task."""
        return self.B @ self.Q.T

    def hessian(self, dQ: Array) -> Array:
        """The product of the Hessian of ``h`` with ``dQ``."""
        dW, dZ = self.B @ dQ.T, self.Z @ dQ
        both = [part.answer(dW[place, :], dZ[place, :]) for part, place in zip(self.parts, self.places, strict=True)]
        dB, correlation = joined([one for one, _ in both]), joined([other for _, other in both])
        if self.p == 1:
            return (2 + self.lift) * dQ + correlation.T @ self.B - self.Z.T @ dB
        bend = 4 * (dQ @ self.E + self.Q @ (dQ.T @ self.Q) + self.Q @ (self.Q.T @ dQ))
        return bend + self.lift * dQ + correlation.T @ self.B - self.Z.T @ dB

    @cached_property
    def squared_norm(self) -> np.ndarray:
        """The squared lengths of the columns, those of small ones too large: they have no direction."""
        squared_norm = column_squares(self.Q)
        return squared_norm + (1e-12 * squared_norm.max(initial=0.0) + TINY)

    @cached_property
    def lift(self) -> float:
        """What makes up for a negative gradient in ``D`` along a direction of ``Q``: Newton's method would run away with it.

        The columns of ``Q`` are orthogonal wherever the walk goes.
        """
        length = np.sqrt(self.squared_norm)
        correlation = self.Z @ self.Q
        gradient = double(to_numpy(correlation.T @ correlation)) / (4 * self.alpha * length * length[:, None])
        if self.p != 1:
            gradient = gradient - np.diag(self.p * column_squares(self.Q) ** (self.p - 1))
        return max(float(np.linalg.eigvalsh(gradient)[-1]) - (self.p == 1), 0.0)

    def metric(self) -> Callable[[Array], Array]:
        """The inverse of what the Hessian would be, were the inputs of all tasks alike (and alike in all directions).

        Under the trace penalty, more than that within the span of ``Q``, where tasks undo what a change does to ``W``.
        """
        outside = self._metric()
        return outside if self.p != 1 else self._inside(outside)

    def _inside(self, outside: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """With ``W`` as it is, ``tr D + alpha tr(W'D^-1 W)`` is left to bend, at the best ``D`` by about ``1 + q_j^2 / q_i^2``
        for a change of column ``j`` along column ``i``. The smaller of both curvatures counts: their inverses add up."""
        U = self.Q / like(np.sqrt(self.squared_norm), self.Q)
        bends = like(SPAN_CURVATURE * (1 + self.squared_norm / self.squared_norm[:, None]) + self.lift, self.Q)

        def inverse(gradient: Array) -> Array:
            basis = cast(U, gradient.dtype)
            return outside(gradient) + basis @ ((basis.T @ gradient) / cast(bends, gradient.dtype))

        return inverse

    def _metric(self) -> Callable[[Array], Array]:
        """For inputs that are alike, as if no change could be undone."""
        floor = 0.4 if self.p == 1 else 1e-9 * self.charge**0.5
        K = (floor + self.lift) * eye_like(self.B)
        if self.p != 1:
            K = K + 4 * self.E
        pulls = [(part.B * (2 * part.free * part.size)[:, None]).T @ part.B for part in self.parts]
        if self.spread is not None:
            return spread_metric(K, sum(pulls, 0 * K), self.spread)
        inverse = namespace(K).linalg.inv(sum(pulls, K))
        return lambda gradient: gradient @ cast(inverse, gradient.dtype)

    def lightened(self, data: Sequence[TaskBlock]) -> Point:
        """The same point for products in the precision of ``data``: a Newton direction needs two digits."""
        twin, dtype = copy(self), data[0].dtype
        twin.Q, twin.B, twin.Z, twin.gradient = (cast(part, dtype) for part in (self.Q, self.B, self.Z, self.gradient))
        twin.parts = [part.lightened(block) for part, block in zip(self.parts, data, strict=True)]  # type: ignore[attr-defined]
        return twin


def spread_metric(K: np.ndarray, correlation: np.ndarray, spread: InputSpectrum) -> Callable[[np.ndarray], np.ndarray]:
    """``K + k correlation`` inverted in each direction of the inputs, ``k`` the variance along it."""
    bends, V = scipy.linalg.eigh(double(correlation), double(K))
    scale = 1 / (1 + np.multiply.outer(np.maximum(bends, 0.0), spread.variances))

    def inverse(gradient: np.ndarray) -> np.ndarray:
        dtype = gradient.dtype
        along = spread.inward(cast(V.T, dtype) @ gradient.T)
        return (cast(V, dtype) @ spread.outward(cast(scale, dtype) * along)).T

    return inverse
