"""Approximate kernels in the estimators: draw the map, map rows in pieces, say what the certificate is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from ..features.approximate import Approximation, MappedFeatures, Reservoir, mapped, pieces
from ..problem.solution import Certificate

Array = np.ndarray
NAMES = {"nystroem": "Nystroem landmarks", "leverage": "landmarks by leverage scores", "fourier": "random Fourier features"}


class Approximating(BaseEstimator):
    """A model of mapped features is a linear one behind a map."""

    kernel: Any
    gamma: Any
    degree: Any
    coef0: Any
    approximation: Any
    n_components: Any
    random_state: Any
    feature_map_: Any
    coef_: Any
    _dtype: Any

    def _linear_values(self, inputs, task):
        """Predictions of a model that is linear in its inputs."""
        raise NotImplementedError

    def _approximation(self) -> Approximation:
        parameters = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0}
        return Approximation(self.approximation, self.n_components, self.kernel, parameters)

    def _reservoir(self) -> Reservoir:
        """What the rows must pass through before a map can be drawn."""
        return Reservoir(self._approximation().sample_size, self.random_state)

    def _drawn(self, reservoir: Reservoir):
        """The map from what a reservoir holds, and the error of the kernel if it was measured."""
        return self._approximation().draw(reservoir.kept, reservoir.seed)

    def _approximate(self, inputs, live: Array) -> MappedFeatures:
        """The features of the training inputs; a transformer of the user's own is fitted on all that were observed."""
        rows = inputs if len(live) == inputs.shape[0] else inputs[live]
        reservoir = self._reservoir()
        reservoir.add(rows)
        if isinstance(self.approximation, str):
            feature_map, error = self._drawn(reservoir)
        else:
            feature_map, error = self._approximation().draw(rows, reservoir.seed)
        return MappedFeatures(feature_map, self._map(inputs, feature_map), error)

    def _map(self, inputs, feature_map=None) -> Array:
        """The mapped rows; a kernel with few columns may need more room than its features, so it goes piece by piece."""
        feature_map = self.feature_map_ if feature_map is None else feature_map
        first = mapped(feature_map, inputs[:1])
        phi = np.empty((inputs.shape[0], first.shape[1]))
        for rows in pieces(*phi.shape):
            phi[rows] = mapped(feature_map, inputs[rows])
        return phi

    def _mapped_values(self, inputs, task) -> Array:
        """Predictions, some rows at a time."""
        parts = [
            self._linear_values(mapped(self.feature_map_, inputs[rows]), None if task is None else task[rows])
            for rows in pieces(inputs.shape[0], self.coef_.shape[1])
        ]
        return np.concatenate(parts).astype(self._dtype, copy=False)

    def _of_the_approximation(self, certificate: Certificate, features: Any) -> Certificate:
        """The certificate, which says of which problem it is."""
        if not isinstance(features, MappedFeatures):
            return certificate
        if features.error is not None:
            self.approximation_error_ = features.error
        by = NAMES[self.approximation] if isinstance(self.approximation, str) else type(self.approximation).__name__
        note = (
            f" This certifies the problem with the approximate kernel ({features.n_inputs} features, {by}); "
            "bound_exact(X, y) says how far the exact one may be."
        )
        return replace(certificate, message=certificate.message + note)
