"""Approximate kernels in the estimators: draw the feature map, and map rows in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..features.approximate import Approximation, MappedFeatures, Reservoir, mapped, pieces
from .fitted import Kernel

Array = np.ndarray
NAMES = {"nystroem": "Nystroem landmarks", "leverage": "landmarks by leverage scores", "fourier": "random Fourier features"}


def approximation_of(model: Any, kernel: Kernel) -> Approximation:
    """The approximation of a kernel that an estimator's parameters specify."""
    return Approximation(model.approximation, model.n_components, kernel.kernel, kernel.parameters)


def reservoir_of(model: Any) -> Reservoir:
    """The random sample of rows from which the map is drawn."""
    return Reservoir(approximation_of(model, Kernel(model.kernel)).sample_size, model.random_state)


def approximate_features(model: Any, kernel: Kernel, inputs: Any, live: Array) -> MappedFeatures:
    """The features of the training inputs; a transformer is fitted on all observed rows."""
    rows = inputs if len(live) == inputs.shape[0] else inputs[live]
    reservoir = reservoir_of(model)
    reservoir.add(rows)
    sample = reservoir.kept if isinstance(model.approximation, str) else rows
    feature_map, error = approximation_of(model, kernel).draw(sample, reservoir.seed)
    return mapped_features(model, feature_map, map_rows(feature_map, inputs), error)


def map_rows(feature_map: Any, inputs: Any) -> Array:
    """The mapped rows, in pieces: the kernel with the landmarks may need more memory than the features."""
    first = mapped(feature_map, inputs[:1])
    phi = np.empty((inputs.shape[0], first.shape[1]))
    for rows in pieces(*phi.shape):
        phi[rows] = mapped(feature_map, inputs[rows])
    return phi


def mapped_features(model: Any, feature_map: Any, phi: Array, error: float | None = None) -> MappedFeatures:
    """The features of a map, with a note for the certificate, which is about the approximate kernel."""
    features, kind = MappedFeatures(feature_map, phi, error), model.approximation
    features.note = (
        f"This certifies the problem with the approximate kernel ({features.n_inputs} features, "
        f"{NAMES[kind] if isinstance(kind, str) else type(kind).__name__}); "
        "bound_exact(X, y) says how far the exact one may be."
    )
    return features
