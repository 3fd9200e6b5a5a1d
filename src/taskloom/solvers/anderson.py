"""Anderson's acceleration of a fixed-point iteration."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


class Extrapolation:
    """Combine the last few images of ``x -> g(x)`` so that their residuals nearly cancel.

    Weights are combined, not structures: a straight line between two structures leaves the cone where the tasks turn,
    a line between two sets of weights does not.
    """

    def __init__(self, memory: int):
        self.memory = memory
        self.clear()

    def clear(self) -> None:
        """Forget the past, as when the map has changed."""
        self.points: list[Array] = []
        self.images: list[Array] = []

    def __call__(self, x: Array, image: Array) -> Array:
        """The next point, given that ``x`` was mapped to ``image``; ``image`` itself while there is nothing to combine."""
        if self.memory == 0:
            return image
        self.points = [*self.points, x][-self.memory - 1 :]
        self.images = [*self.images, image][-self.memory - 1 :]
        if len(self.points) < 2:
            return image
        residuals = [(g - p).ravel() for p, g in zip(self.points, self.images, strict=True)]
        differences = np.stack([residuals[-1] - r for r in residuals[:-1]], axis=1)
        gram = differences.T @ differences
        gram += 1e-12 * np.trace(gram) * np.eye(len(gram))
        try:
            shares = np.linalg.solve(gram, differences.T @ residuals[-1])
        except np.linalg.LinAlgError:  # two steps that did not move at all
            return image
        combined = image
        for share, past in zip(shares, self.images[:-1], strict=True):
            combined = combined + share * (past - image)
        return combined
