"""The interface of an engine: a solver on a factor ``Q`` of ``D = QQ'`` holds ``r x q`` matrices, and an engine the tasks.

    h(Q) = tr (QQ')^p + sum_t min_b [ loss of task t with weights Q b + alpha ||b||^2 ],     w_t = Q b_t

Whatever has a row for each task stays with the engine. What it returns are sums over the tasks.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .local import WeightSpectrum

Array = Any  # of any of the libraries


class Eliminated(Protocol):
    """The tasks at a factor, each at its minimum: sums over the tasks of ``b_t`` and of the correlations ``z_t = X_t'g_t``."""

    Q: Array
    minimum: float  # sum of the minima of the tasks, up to a constant
    squared_norm: float  # ||B||^2
    product: Array  # Z'B, ``r x q``
    curvature: Array  # approximate curvature of the tasks along ``B``, ``q x q``

    def hessian(self, dQ: Array) -> Array:
        """The change of ``-Z'B`` with ``Q``: the product of the Hessian, without the penalty."""
        ...

    def correlation_gram(self, X: Array) -> Array:
        """``(ZX)'(ZX)`` for some directions ``X`` (``r x k``)."""
        ...

    def outside(self, U: Array) -> tuple[float, float]:
        """The largest eigenvalue of ``Z'Z`` outside the span of ``U``, and the curvature of the tasks there."""
        ...

    def grown(self, Q: Array, step: float) -> tuple[np.ndarray, Array]:
        """Eigenvalues (ascending) and eigenvectors of ``QQ' + step Z'Z``."""
        ...

    def weight_spectrum(self) -> WeightSpectrum:
        """Of ``W = BQ'``."""
        ...


class Engine(Protocol):
    """Tasks, wherever their rows are."""

    n_tasks: int
    n_features: int
    dtype: Any  # of factors
    spectrum: Any  # the second moments of the inputs, where they are not isotropic; else None
    size: float  # typical sum of squares of the inputs of a task along a direction
    target_squares: float  # sum of the squared targets

    def independent_fits(self, shrinkage: float) -> WeightSpectrum:
        """Approximate ridge solutions of the tasks; the ridge is ``shrinkage`` times the size of their inputs."""
        ...

    def known_factor(self) -> Array:
        """The factor of the identity, for independent tasks."""
        ...

    def eliminate(self, Q: Array, near: Any = None, start: Any = None) -> Eliminated:
        """Minimise every task at the factor; where that takes iterations, from the minima ``near`` or from ``start``."""
        ...
