"""The engine for tasks in memory under the squared loss, on the host or on a device: blocks of ``design.task_data``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from .._array_api import cast, double, inner, left_vectors, like, namespace, row_products, to_numpy, top_eigenvalue, total
from .._time_limit import check_time
from ..design.input_spectrum import InputSpectrum
from ..design.task_data import TaskBlock, typical

Array = Any  # of any of the libraries


class WeightSpectrum(NamedTuple):
    """Squared singular values (ascending) of weights and their vectors on the features, and the number of tasks."""

    squares: np.ndarray
    vectors: Array
    n_tasks: int

    @classmethod
    def of(cls, W: Array) -> WeightSpectrum:
        """From weights with one row for each task."""
        return cls(*left_vectors(W.T), W.shape[0])

    @property
    def rms(self) -> float:
        """The root mean square over tasks of the norm of the weights."""
        return float(np.maximum(self.squares, 0.0).sum() / self.n_tasks) ** 0.5


def joined(parts: Sequence[Array]) -> Array:
    return parts[0] if len(parts) == 1 else namespace(parts[0]).concat(list(parts))


def gathered(parts: Sequence[Any], name: str) -> Array:
    """An array with a row for each task, from all parts."""
    return joined(list(map(attrgetter(name), parts)))


class LocalTasks:
    """Tasks at a factor, in memory. The rows of ``B`` and ``Z`` are the tasks in the order of the blocks."""

    ahead: Any = None  # a first-order prediction of the minima at another factor, where these take iterations

    def __init__(self, parts: Sequence[Any], Q: Array):
        self.parts, self.Q = parts, Q
        self.B, self.Z = gathered(parts, "B"), gathered(parts, "Z")
        self.minimum = total(gathered(parts, "minimum"))
        self.product = self.Z.T @ self.B

    def places(self) -> Iterator[tuple[Any, slice]]:
        """Each part with the rows of its tasks."""
        first = 0
        for part in self.parts:
            yield part, slice(first, first + part.B.shape[0])
            first += part.B.shape[0]

    @cached_property
    def squared_norm(self) -> float:
        return inner(self.B, self.B)

    @cached_property
    def curvatures(self) -> Array:
        """How much each task resists a change of the factor."""
        return gathered(self.parts, "residual_share") * gathered(self.parts, "size")

    @cached_property
    def curvature(self) -> Array:
        return (self.B * (2 * self.curvatures)[:, None]).T @ self.B

    def hessian(self, dQ: Array) -> Array:
        dW, dZ = self.B @ dQ.T, self.Z @ dQ
        out = 0.0
        for part, place in self.places():
            dB, correlation = part.derivative(dW[place, :], dZ[place, :])
            out = out + correlation.T @ self.B[place, :] - self.Z[place, :].T @ dB
        return out

    def correlation_gram(self, X: Array) -> Array:
        correlation = self.Z @ X
        return correlation.T @ correlation

    def outside(self, U: Array) -> tuple[float, float]:
        outside = self.Z - (self.Z @ U) @ U.T
        share = double(to_numpy(row_products(outside, outside)))
        curvatures = double(to_numpy(self.curvatures))
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

    def in_precision_of(self, data: Sequence[TaskBlock]) -> LocalTasks:
        """A copy for Hessian products in the precision of ``data``: a Newton direction needs two digits."""
        twin, dtype = copy(self), data[0].inputs.dtype
        twin.Q, twin.B, twin.Z = cast(self.Q, dtype), cast(self.B, dtype), cast(self.Z, dtype)
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

    def __init__(self, data: Sequence[TaskBlock], alpha: float, single_data: Any = None, spectrum: InputSpectrum | None = None):
        self.data, self.alpha, self.single_data, self.spectrum = data, alpha, single_data, spectrum
        self.direction_data = single_data  # for directions, until one fails to decrease the objective
        self.dtype, self.n_features = data[0].inputs.dtype, data[0].inputs.shape[-1]
        self.n_tasks = sum(block.size.shape[0] for block in data)

    @cached_property
    def size(self) -> float:
        return typical(gathered(self.data, "size"))

    @cached_property
    def target_squares(self) -> float:
        return total(gathered(self.data, "squares"))

    def independent_fits(self, shrinkage: float) -> WeightSpectrum:
        W = joined([block.independent_fit(shrinkage) for block in self.single_data or self.data])
        return WeightSpectrum.of(double(W))

    def known_factor(self) -> Array:
        return like(np.eye(self.n_features), self.data[0].squares)

    def eliminate(self, Q: Array, near: Any = None, start: Any = None) -> LocalTasks:
        data, parts = self.single_data or self.data, []
        Q = cast(Q, data[0].inputs.dtype)
        try:
            for block in data:
                check_time()
                parts.append(block.solved(block, Q, self.alpha))
        except np.linalg.LinAlgError:
            if self.single_data is None:
                raise
            self.single_data = None  # singular in single precision
            return self.eliminate(Q)
        return LocalTasks(parts, Q)

    def for_directions(self, tasks: LocalTasks) -> LocalTasks:
        """The tasks for Hessian products, in single precision where that suffices."""
        if self.direction_data is None or tasks.Q.dtype != self.dtype:
            return tasks
        return tasks.in_precision_of(self.direction_data)

    def refine(self) -> bool:
        """Use double precision for directions as well; False if that is so already."""
        refined, self.direction_data = self.direction_data is not None, None
        return refined
