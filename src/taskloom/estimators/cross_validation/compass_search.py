"""A compass search: the best point of a noisy function of a few logarithms, by steps along the axes that shrink.

Alpha and the weights of terms are scales; the cross-validated score is smooth in their logarithms and flat near its maximum, so
that a quarter of a decade is fine enough. Every point costs one fit for each fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
Point = tuple[float, ...]  # logarithms to base 10
STEPS = (1.0, 0.5, 0.25)  # decades
FARTHEST = 6.0  # decades from the start, along one axis
WORTHWHILE = 1e-6  # a gain of the score


class CompassSearch:
    """Points that were tried, and their scores.

    Parameters
    ----------
    evaluate : callable
        Scores of some points: NaN where there is none.
    budget : int
        How many points may be tried.
    """

    def __init__(self, evaluate: Callable[[Sequence[Point]], Sequence[float]], budget: int):
        self.evaluate, self.budget = evaluate, budget
        self.scores: dict[Point, float] = {}

    def try_points(self, points: Sequence[Point]) -> None:
        """Score the points that are new, as far as the budget goes."""
        new = list(dict.fromkeys(point for point in map(rounded, points) if point not in self.scores))
        new = new[: max(self.budget - len(self.scores), 0)]
        if new:
            found = self.evaluate(new)
            self.scores.update({point: float(score) for point, score in zip(new, found, strict=True)})

    @property
    def best(self) -> Point:
        """The best point; the first among equals."""
        return max(self.scores, key=self._value)

    def _value(self, point: Point) -> float:
        score = self.scores.get(point, np.nan)  # beyond the budget a point has none
        return -np.inf if np.isnan(score) else score

    def _better(self, centre: Point) -> bool:
        """Whether the best point is better than this one by more than fits are exact."""
        return self.best != centre and not self._value(self.best) <= self._value(centre) + WORTHWHILE

    def run(self, axes: Sequence[int]) -> None:
        """Move from the best point along these axes, in both directions, while that improves the score."""
        start = np.array(self.best)
        for step in STEPS:
            while len(self.scores) < self.budget:
                centre = self.best
                for axis in axes:
                    self._along(axis, step, start)
                if not self._better(centre):
                    break

    def _along(self, axis: int, step: float, start: Array) -> None:
        """One step to either side, and on in the better direction while that helps."""
        centre = self.best
        for sign in (1.0, -1.0):
            last = centre
            for k in range(1, int(2 * FARTHEST / step)):
                point = np.array(centre)
                point[axis] += sign * k * step
                if abs(point[axis] - start[axis]) > FARTHEST:
                    break
                self.try_points([tuple(point)])
                if not self._value(rounded(point)) > self._value(last) + WORTHWHILE:
                    break
                last = rounded(point)
            if last != centre:
                return


def rounded(point: Sequence[float] | Array) -> Point:
    """Without the rounding errors of sums of steps, so that a point is recognised."""
    return tuple(np.round(np.asarray(point, dtype=float), 6).tolist())
