"""The engine for tasks in memory under the squared loss, on the host or on a device: blocks of ``design.task_data``."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from .._array_api import cast, double, inner, left_vectors, like, namespace, row_products, to_numpy, top_eigenvalue, total
from ..design.input_spectrum import InputSpectrum
from ..design.task_data import TaskBlock, typical
from .base import WeightSpectrum

Array = Any  # of any of the libraries


def joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(list(parts))


class LocalTasks:
    """Tasks at a factor, in memory. The rows of ``B`` and ``Z`` are the tasks in the order of the blocks."""

    def __init__(self, parts: Sequence[Any], Q: Array):
        self.parts, self.Q = parts, Q
        self.B, self.Z = joined([part.B for part in parts]), joined([part.Z for part in parts])
        counts = (part.B.shape[0] for part in parts)
        self.places = [slice(*ends) for ends in pairwise(accumulate(counts, initial=0))]
        self.minimum = sum(total(part.minimum) for part in parts)
        self.product = self.Z.T @ self.B

    @cached_property
    def squared_norm(self) -> float:
        return inner(self.B, self.B)

    @cached_property
    def curvature(self) -> Array:
        both = [(part.B * (2 * part.residual_share * part.size)[:, None]).T @ part.B for part in self.parts]
        return sum(both[1:], both[0])

    def hessian(self, dQ: Array) -> Array:
        dW, dZ = self.B @ dQ.T, self.Z @ dQ
        both = [part.derivative(dW[place, :], dZ[place, :]) for part, place in zip(self.parts, self.places, strict=True)]
        dB, correlation = joined([one for one, _ in both]), joined([other for _, other in both])
        return correlation.T @ self.B - self.Z.T @ dB

    def correlation_gram(self, X: Array) -> Array:
        correlation = self.Z @ X
        return correlation.T @ correlation

    def outside(self, U: Array) -> tuple[float, float]:
        outside = self.Z - (self.Z @ U) @ U.T
        share = double(to_numpy(row_products(outside, outside)))
        curvatures = double(to_numpy(joined([part.residual_share * part.size for part in self.parts])))
        largest = float(share.max(initial=0.0))
        curvature = float(np.average(curvatures, weights=share / largest)) if largest > 0 else 0.0  # against overflow
        return top_eigenvalue(outside), curvature

    def grown(self, Q: Array, step: float) -> tuple[np.ndarray, Array]:
        return left_vectors(namespace(Q).concat([Q, step**0.5 * self.Z.T], axis=1))

    def weights(self) -> Array:
        """``W``, one row for each task."""
        return self.B @ self.Q.T

    def weight_spectrum(self) -> WeightSpectrum:
        return WeightSpectrum.of(double(self.weights()))

    def ahead(self, dQ: Array) -> Any:
        """Under the squared loss a minimum takes no iterations, and needs no start."""
        return None

    def in_precision_of(self, data: Sequence[TaskBlock]) -> LocalTasks:
        """A copy for Hessian products in the precision of ``data``: a Newton direction needs two digits."""
        twin, dtype = copy(self), data[0].dtype
        twin.Q, twin.B, twin.Z = (cast(part, dtype) for part in (self.Q, self.B, self.Z))
        twin.parts = [part.in_precision_of(block) for part, block in zip(self.parts, data, strict=True)]
        return twin


class LocalEngine:
    """Blocks of tasks under the squared loss; iterations far from the optimum may use a copy in single precision.

    Parameters
    ----------
    data : blocks of tasks
    alpha : float
    single_data : blocks of tasks, optional
        The same in single precision.
    spectrum : InputSpectrum, optional
        The spectrum of the inputs, if these are not isotropic.
    """

    def __init__(
        self,
        data: Sequence[TaskBlock],
        alpha: float,
        single_data: Sequence[TaskBlock] | None = None,
        spectrum: InputSpectrum | None = None,
    ):
        self.data, self.alpha, self.single_data, self.spectrum = data, alpha, single_data, spectrum
        self.direction_data = single_data  # for directions, until one fails to decrease the objective
        self.dtype, self.n_features = data[0].dtype, data[0].n_features
        self.n_tasks = sum(block.n_tasks for block in data)

    @cached_property
    def size(self) -> float:
        return typical(np.concatenate([to_numpy(block.size) for block in self.data]))

    @cached_property
    def target_squares(self) -> float:
        return sum(total(block.squares) for block in self.data)

    def independent_fits(self, shrinkage: float) -> WeightSpectrum:
        W = joined([block.independent_fit(shrinkage) for block in self.single_data or self.data])
        return WeightSpectrum.of(double(W))

    def known_factor(self) -> Array:
        return like(np.eye(self.n_features), self.data[0].squares)

    def eliminate(self, Q: Array, near: Any = None, start: Any = None) -> LocalTasks:
        if self.single_data is not None:
            try:
                return self._at(self.single_data, Q)
            except np.linalg.LinAlgError:  # singular in single precision
                self.single_data = None
        return self._at(self.data, Q)

    def _at(self, data: Sequence[TaskBlock], Q: Array) -> LocalTasks:
        Q = cast(Q, data[0].dtype)
        return LocalTasks([block.at(Q, self.alpha) for block in data], Q)

    def for_directions(self, tasks: LocalTasks) -> LocalTasks:
        """The tasks for Hessian products, in single precision where that suffices."""
        if self.direction_data is None or tasks.Q.dtype != self.dtype:
            return tasks
        return tasks.in_precision_of(self.direction_data)

    def refine(self) -> bool:
        """Use double precision for directions as well; False if that is so already."""
        refined, self.direction_data = self.direction_data is not None, None
        return refined
