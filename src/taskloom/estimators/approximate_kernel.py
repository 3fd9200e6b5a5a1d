"""Approximate kernels in the estimators: draw the feature map, and map rows in pieces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..features.approximate import Approximation, MappedFeatures, Reservoir, mapped, pieces
from ..problem.solution import Certificate

Array = np.ndarray
NAMES = {"nystroem": "Nystroem landmarks", "leverage": "landmarks by leverage scores", "fourier": "random Fourier features"}


def approximation_of(model: Any) -> Approximation:
    """The approximation that an estimator's parameters specify."""
    parameters = {"gamma": model.gamma, "degree": model.degree, "coef0": model.coef0}
    return Approximation(model.approximation, model.n_components, model.kernel, parameters)


def reservoir_of(model: Any) -> Reservoir:
    """The random sample of rows from which the map is drawn."""
    return Reservoir(approximation_of(model).sample_size, model.random_state)


def approximate_features(model: Any, inputs: Any, live: Array) -> MappedFeatures:
    """The features of the training inputs; a transformer is fitted on all observed rows."""
    rows = inputs if len(live) == inputs.shape[0] else inputs[live]
    reservoir = reservoir_of(model)
    reservoir.add(rows)
    sample = reservoir.kept if isinstance(model.approximation, str) else rows
    feature_map, error = approximation_of(model).draw(sample, reservoir.seed)
    return MappedFeatures(feature_map, map_rows(feature_map, inputs), error)


def map_rows(feature_map: Any, inputs: Any) -> Array:
    """The mapped rows, in pieces: the kernel with the landmarks may need more memory than the features."""
    first = mapped(feature_map, inputs[:1])
    phi = np.empty((inputs.shape[0], first.shape[1]))
    for rows in pieces(*phi.shape):
        phi[rows] = mapped(feature_map, inputs[rows])
    return phi


def approximation_note(certificate: Certificate, features: MappedFeatures, approximation: Any) -> Certificate:
    """The certificate with a note that it is about the approximate kernel."""
    by = NAMES[approximation] if isinstance(approximation, str) else type(approximation).__name__
    note = (
        f" This certifies the problem with the approximate kernel ({features.n_inputs} features, {by}); "
        "bound_exact(X, y) says how far the exact one may be."
    )
    return replace(certificate, message=certificate.message + note)
