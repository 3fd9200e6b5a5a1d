"""A compass search: the best point of a noisy function of a few logarithms, by steps along the axes that shrink.

Alpha and the weights of terms are scales; the cross-validated score is smooth in their logarithms and flat near its maximum, so
that a quarter of a decade is fine enough. Every point costs one fit for each fold, so that gains within the noise of the score
are not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray
Point = tuple[float, ...]  # logarithms to base 10
STEPS = (1.0, 0.5, 0.25)  # decades
LENGTHS = (1, 3, 6, 12)  # in steps, of a walk in one direction: plateaus are wide
FARTHEST = 6.0  # decades from the start, along one axis
WORTHWHILE = 1e-6  # a gain of the score: fits are no more exact


class CompassSearch:
    """Points that were tried, and their scores.

    Parameters
    ----------
    evaluate : callable
        Scores of some points: NaN where there is none.
    budget : int
        How many points may be tried.
    noise : callable, default=None
        The gain over a point that is within the noise of its score.
    """

    def __init__(
        self,
        evaluate: Callable[[Sequence[Point]], Sequence[float]],
        budget: int,
        noise: Callable[[Point], float] | None = None,
    ):
        self.evaluate, self.budget, self.noise = evaluate, budget, noise
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

    def _least(self, point: Point) -> float:
        """A difference of scores that counts: more than fits are exact, and than the noise."""
        return WORTHWHILE if self.noise is None else max(WORTHWHILE, self.noise(point))

    def _gains(self, centre: Point, least: float) -> bool:
        """Whether the best point is better than this one by more than that."""
        return self.best != centre and not self._value(self.best) <= self._value(centre) + least

    def run(self, axes: Sequence[int]) -> None:
        """Move from the best point along these axes, in both directions, while that improves the score.

        Axes along which a step in neither direction changes the score are left out of smaller steps.
        """
        start = np.array(self.best)
        for step in STEPS:
            before, count = self.best, list(axes)
            while axes and len(self.scores) < self.budget:
                centre = self.best
                count = [axis for axis in axes if self._along(axis, step, start)]
                if not self._gains(centre, self._least(self.best)):
                    break
            axes = count
            if step < STEPS[0] and not self._gains(before, self._least(self.best)):
                return  # a smaller step gains less

    def _along(self, axis: int, step: float, start: Array) -> bool:
        """One step to either side, and longer ones in the better direction while that helps; whether any changed the score."""
        centre, changes = self.best, False
        for sign in (1.0, -1.0):
            for length in LENGTHS:
                point, last = np.array(centre), self.best
                point[axis] += sign * length * step
                if abs(point[axis] - start[axis]) > FARTHEST:
                    break
                self.try_points([tuple(point)])
                changes |= not abs(self._value(rounded(point)) - self._value(centre)) <= self._least(self.best)
                if not self._gains(last, WORTHWHILE):
                    break
            if self._gains(centre, WORTHWHILE):
                break
        return changes


def rounded(point: Sequence[float] | Array) -> Point:
    """Without the rounding errors of sums of steps, so that a point is recognised."""
    return tuple(np.round(np.asarray(point, dtype=float), 6).tolist())
